"""Intervals of depth-first orders: what hangs on what, how neighbours join, where cuts are, and who owns what."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpimbs.base.errors import InputError
from mpimbs.model import JOINT_TYPES, System, system_from
from mpimbs.model.order.order import Order
from mpimbs.model.order.segments import Integers
from mpimbs.partition.chain import body_costs, split_chain
from mpimbs.partition.division import divide, divide_tree
from mpimbs.partition.intervals import (
    MOVE,
    Floats,
    Interval,
    cut_intervals,
    interval,
    move_to_few_handles,
    open_handles,
    swept_costs,
)
from mpimbs.partition.shares import shares, told
from oracles.random_systems import SETTINGS
from oracles.trees import SHAPES, parents

DRAWN = parents()
SIZES = (1, 2, 3, 4, 5, 7, 16)
N = 2000


def ordered(parent: Integers) -> Order:
    return Order(len(parent), parent)


def same(one: Interval, other: Interval) -> None:
    for name, mine, theirs in zip(Interval._fields, one, other, strict=True):
        assert np.array_equal(mine, theirs), f"{name}: {mine}, {theirs}"


def drawn_cuts(data: st.DataObject, n: int, size: int) -> list[int]:
    """Places 0 to n at which an order is cut into so many intervals, none of them empty."""
    inner = data.draw(st.sets(st.integers(1, n - 1), min_size=size - 1, max_size=size - 1)) if size > 1 else set()
    return [0, *sorted(inner), n]


def costs_of(n: int) -> Floats:
    kinds = np.random.default_rng(n).integers(0, len(JOINT_TYPES), n)
    return body_costs(kinds.astype(np.int8))


@SETTINGS
@given(st.data(), DRAWN)
def test_an_interval_by_its_definition(data: st.DataObject, parent: Integers) -> None:
    """Components are what hangs together, and what does so by the body outside; open is who has children behind."""
    order = ordered(parent)
    above = order.parents.tolist()
    last = data.draw(st.integers(1, order.n))
    first = data.draw(st.integers(0, last - 1))
    found = interval(order, first, last)

    def outside(k: int) -> int:
        while k >= first:
            k = above[k]
        return k

    assert found.hung_on.tolist() == sorted({outside(k) for k in range(first, last)}, reverse=True)
    assert found.roots.tolist() == [k for k in range(first, last) if above[k] < first]
    opened = [k for k in range(first, last) if any(above[j] == k for j in range(last, order.n))]
    assert found.open.tolist() == opened
    path = [last] if last < order.n else []
    while path and path[-1] >= first:
        path.append(above[path[-1]])
    assert set(opened) <= set(path), "open bodies lie on the path to the first body behind"
    assert {outside(k) for k in opened} == ({found.hung_on[-1]} if opened else set())


@pytest.mark.parametrize("shape", SHAPES)
def test_few_handles_are_open(shape: str) -> None:
    """At most log2 n + 1 bodies are open, of all before any cut; so few are also the bodies that intervals hang on."""
    for n in (1, 2, 3, 10, 100, N):
        order = ordered(SHAPES[shape](n))
        handles, most = open_handles(order), np.log2(n) + 1
        assert handles[0] == handles[n] == 0 and handles.max() <= most
        for first, last in itertools.pairwise(np.unique(np.linspace(0, n, 24).astype(int)).tolist()):
            found = interval(order, first, last)
            assert len(found.open) <= handles[last] and len(found.hung_on) <= handles[first] + 1
            assert len(interval(order, 0, last).open) == handles[last]


def test_the_heaviest_child_last_is_what_bounds_the_handles() -> None:
    """With the heaviest first all bodies of a caterpillar are open at once."""
    n = 64
    k = np.arange(n)
    torn = np.where(k < n // 2, k - 1, n - 1 - k)  # the path, then its side bodies from the tip on
    assert open_handles(ordered(torn)).max() <= 7
    as_given = sum(any(torn[j] == i for j in range(n // 2, n)) for i in range(n // 2))
    assert as_given == n // 2


def test_a_chain_of_any_length_is_cut_without_arrays() -> None:
    order = Order(10**12)
    found = interval(order, 5, 10**11)
    assert (found.hung_on.tolist(), found.roots.tolist(), found.open.tolist()) == ([4], [5], [10**11 - 1])
    small = ordered(np.array([-1, 0, 1, 2]))
    for first, last in itertools.combinations(range(5), 2):
        by_hand = Interval(first, last, *(np.array(part) for part in ([first - 1], [first])), np.zeros(0))
        assert interval(small, first, last).open.tolist() == ([last - 1] if last < 4 else [])
        same(interval(small, first, last)._replace(open=np.zeros(0)), by_hand)


@SETTINGS
@given(DRAWN)
def test_open_handles(parent: Integers) -> None:
    order = ordered(parent)
    expected = [len(interval(order, 0, cut).open) if cut else 0 for cut in range(order.n + 1)]
    assert open_handles(order).tolist() == expected


@SETTINGS
@given(st.data(), DRAWN, st.floats(0.5, 3))
def test_swept_costs(data: st.DataObject, parent: Integers, ratio: float) -> None:
    """A body costs so much more for each open handle of its interval that hangs on it, or is its own."""
    order, costs = ordered(parent), costs_of(len(parent))
    cuts = drawn_cuts(data, order.n, data.draw(st.integers(1, min(order.n, 6))))
    expected = costs.copy()
    for first, last in itertools.pairwise(cuts):
        for k in interval(order, first, last).open.tolist():
            while k >= first:
                expected[k] += (ratio - 1.0) * costs[k]
                k = order.parents[k]
    assert swept_costs(order, costs, np.array(cuts), ratio) == pytest.approx(expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", SHAPES)
def test_cuts_balance_costs_at_few_handles(shape: str, size: int) -> None:
    order, costs = ordered(SHAPES[shape](N)), costs_of(N)
    cuts = cut_intervals(order, costs, size, 1.2)
    assert cuts[0] == 0 and cuts[-1] == N and np.all(np.diff(cuts) >= 1) and cuts.dtype == np.int64
    swept = swept_costs(order, costs, cuts, 1.2)
    owned = np.add.reduceat(swept, cuts[:-1])
    assert owned.max() <= (1 + 3 * MOVE) * owned.mean() + 2 * swept.max(), owned / owned.mean()


@pytest.mark.parametrize("shape", ["binary", "ternary", "recursive"])
def test_cuts_move_to_where_few_handles_are_open(shape: str) -> None:
    """Each by a part of a share at the most, and to no more handles than where costs are balanced."""
    n, size = 16384, 16
    order = ordered(SHAPES[shape](n))
    costs, handles = np.ones(n), open_handles(order)
    even = split_chain([costs], size, 1.0)
    moved = move_to_few_handles(even, costs, handles)
    assert np.abs(moved - even).max() <= MOVE * n / size + 1
    assert np.all(handles[moved] <= handles[even]) and handles[moved].sum() < handles[even].sum()
    assert max(len(interval(order, *cut).open) for cut in itertools.pairwise(moved.tolist())) <= 4
    for old, new in zip(even[1:-1].tolist(), moved[1:-1].tolist(), strict=True):
        reach = int(MOVE * n / size)
        assert handles[new] == handles[old - reach : old + reach + 1].min()


@pytest.mark.parametrize("size", [1, 2, 5, 15])
def test_every_rank_owns_a_body(size: int) -> None:
    order = Order.of(system_from("figure"))
    cuts = cut_intervals(order, costs_of(15), size)
    assert len(cuts) == size + 1 and np.all(np.diff(cuts) >= 1) and cuts[0] == 0 and cuts[-1] == 15


@pytest.mark.cases(4)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_million_bodies_are_cut_in_seconds(shape: str) -> None:
    order, costs = ordered(SHAPES[shape](10**6)), np.ones(10**6)
    start = time.process_time()
    cuts = cut_intervals(order, costs, 64, 1.2)
    for cut in itertools.pairwise(cuts.tolist()):
        interval(order, *cut)
    assert time.process_time() - start < 5  # on a machine that others use too


def test_shares_of_a_chain_are_those_it_is_divided_by() -> None:
    system = system_from("spatial_chain:1000")
    _, found = shares(system, 4)
    cuts = divide(system, 4).cuts.tolist()
    assert [(share.first, share.last) for share in found] == list(itertools.pairwise(cuts))
    assert [(share.components, share.handles) for share in found] == [(1, 1)] * 3 + [(1, 0)]
    assert max(share.cost for share in found) < 1.1


def test_shares_of_a_tree() -> None:
    system = system_from("tree:9:3")
    _, found = shares(system, 5)
    assert sum(share.last - share.first for share in found) == system.n_bodies
    assert np.mean([share.cost for share in found]) == pytest.approx(1.0)
    assert max(share.cost for share in found) < 1.1
    assert found[0].components == 1 and found[-1].handles == 0 and max(share.handles for share in found) <= 5


def test_shares_of_systems_with_loops() -> None:
    """A chain too is divided as trees are; loops to the world, and within a rank, lead to no other."""
    for spec, loops in (("four_bar:60", [1, 2, 2, 1]), ("four_bar_chain:60", [0, 0, 0, 0]), ("track:60", [1, 0, 0, 1])):
        system = system_from(spec)
        order, found = shares(system, 4)
        cuts = divide_tree(system, 4).cuts.tolist()
        assert [(share.first, share.last) for share in found] == list(itertools.pairwise(cuts))
        assert [share.loops for share in found] == loops
        lines = told(system, order, found)
        assert (
            lines[-1]
            == f"loops: how many lead to bodies of other ranks; {sum(loops) // 2} of {len(system.loops)} in all"
        )
        assert lines[1].split()[:6] == ["rank", "bodies", "hangs", "on", "open", "loops"]


@pytest.mark.parametrize("model", ["figure", "chain:15"])
def test_too_many_ranks(model: str) -> None:
    system: System = system_from(model)
    with pytest.raises(InputError, match="16 ranks for 15 bodies"):
        shares(system, 16)
