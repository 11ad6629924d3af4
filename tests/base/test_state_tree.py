"""State taken apart and made again."""

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest

from mpimbs.base.arrays import Floats
from mpimbs.base.state_tree import made_again, taken_apart


class Pair(NamedTuple):
    value: float
    where: str = ""


@dataclass
class Leaf:
    pairs: tuple[Pair, ...]
    rows: dict[str, Floats]
    count: int = 0


@dataclass
class Root:
    vector: Floats
    leaf: Leaf
    others: list[Leaf]
    perhaps: Leaf | None = None
    rates: Floats | None = None
    first: tuple[float, int] | None = None
    by_number: dict[int, Pair] = field(default_factory=dict)
    free: Any = None


def test_a_tree_goes_through_json() -> None:
    leaf = Leaf((Pair(np.inf, "a"), Pair(1)), {"q": np.arange(6.0).reshape(2, 3), "u": np.ones((2, 0))}, 3)
    root = Root(np.arange(3.0), leaf, [leaf, Leaf((), {})], None, np.zeros(2), (0.5, 2), {7: Pair(2.0)}, {"x": [1]})
    plain, arrays = taken_apart(root)
    assert all(values.ndim == 1 for values in arrays.values()) and "leaf/rows/q/1" in arrays
    again = made_again(Root, json.loads(json.dumps(plain)), arrays)
    assert np.array_equal(again.vector, root.vector) and np.array_equal(again.rates, root.rates)
    assert again.leaf.pairs == leaf.pairs and again.leaf.rows.keys() == leaf.rows.keys()
    assert all(np.array_equal(again.others[0].rows[name], leaf.rows[name]) for name in leaf.rows)
    assert isinstance(again.leaf.pairs[1], Pair) and isinstance(again.leaf.pairs[1].value, float)
    assert (again.perhaps, again.first, again.by_number, again.free) == (None, (0.5, 2), {7: Pair(2.0)}, {"x": [1]})
    root.rates, root.perhaps = None, leaf
    plain, arrays = taken_apart(root)
    again = made_again(Root, json.loads(json.dumps(plain)), arrays)
    assert again.rates is None and again.perhaps is not None and again.perhaps.count == 3


def test_what_an_earlier_version_lacks_has_its_default() -> None:
    """Of dataclasses and of NamedTuples; what has none is missed, below."""
    plain, arrays = taken_apart(Leaf((Pair(2.0, "a"),), {"q": np.ones(2)}, 3))
    del plain["count"], plain["pairs"][0]["where"]
    again = made_again(Leaf, plain, arrays)
    assert (again.pairs, again.count) == ((Pair(2.0),), 0) and np.array_equal(again.rows["q"], np.ones(2))


def test_of_another_type() -> None:
    plain, arrays = taken_apart(Leaf((), {}, 1))
    with pytest.raises(KeyError):
        made_again(Root, plain, arrays)
