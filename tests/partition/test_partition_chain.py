"""Cuts of a chain: every rank owns a body, and shares of the cost are equal but for one body."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpimbs.base.errors import InputError
from mpimbs.model import JOINT_TYPES
from mpimbs.partition.chain import body_costs, split_chain
from oracles.random_systems import SETTINGS

COSTS = st.lists(st.sampled_from(body_costs(np.arange(len(JOINT_TYPES), dtype=np.int8))), min_size=1, max_size=200)
RATIOS = st.floats(0.1, 10)


@SETTINGS
@given(st.data(), COSTS, RATIOS)
def test_every_rank_owns_a_body(data: st.DataObject, costs: list[float], ratio: float) -> None:
    size = data.draw(st.integers(1, len(costs)))
    cuts = split_chain([np.array(costs)], size, ratio)
    assert cuts.shape == (size + 1,) and cuts.dtype == np.int64
    assert cuts[0] == 0 and cuts[-1] == len(costs)
    assert np.all(np.diff(cuts) >= 1), f"empty rank: {cuts}"


@SETTINGS
@given(st.data(), COSTS, RATIOS)
def test_shares_are_right_to_one_body(data: st.DataObject, costs: list[float], ratio: float) -> None:
    """The tip's share is the ratio times the others', where shares are not below what a rank owns at least."""
    size = data.draw(st.integers(1, max(1, len(costs) // 10)))
    share = sum(costs) / (size - 1 + ratio)
    cuts = split_chain([np.array(costs)], size, ratio)
    if min(share, ratio * share) > 2 * max(costs):
        owned = np.add.reduceat(costs, cuts[:-1])
        off = np.abs(owned - share * np.array([1.0] * (size - 1) + [ratio]))
        assert off.max() <= max(costs) * (1 + 1e-9), f"shares {owned} are off by {off}, a body costs {max(costs)}"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 64])
def test_equal_bodies(size: int) -> None:
    """The tip rank owns twice as many bodies as the others, to one body."""
    counts = np.diff(split_chain([np.ones(1024)], size, 2.0))
    assert counts[:-1].max(initial=0) - counts[:-1].min(initial=1024) <= 1
    if size > 1:
        assert abs(counts[-1] - 2 * counts[:-1].mean()) <= 1.5, counts


@pytest.mark.parametrize("ratio", [0.0, -1.0, np.nan, np.inf])
def test_errors(ratio: float) -> None:
    with pytest.raises(InputError, match="tip ratio"):
        split_chain([np.ones(3)], 2, ratio)
