"""Predicted costs of intervals in lanes and in doubles, and cuts that balance them."""

import itertools

import numpy as np
import pytest

from mpimbs.base.sizes import tuned
from mpimbs.model import system_from
from mpimbs.model.order.order import arranged
from mpimbs.partition.balance import LaneCosts, balance
from mpimbs.partition.division import divide_tree
from mpimbs.partition.intervals import cut_tree, open_handles, swept_costs
from mpimbs.partition.ownership import own_intervals

MODELS = ("tree:9:2", "crowd:64", "caterpillar:400", "figure", "tree:4:5")


@pytest.mark.parametrize("spec", MODELS)
def test_predicted_is_what_ranks_do(spec: str) -> None:
    """Which bodies are in lanes, of every rank, without its sweeps being built."""
    system = system_from(spec)
    division = divide_tree(system.contents, 3)
    assert division.order is not None
    laid_out = arranged(system.contents, division.order)
    found = LaneCosts(system.contents, division.order).of(division.cuts)
    for rank, (first, last) in enumerate(itertools.pairwise(division.cuts.tolist())):
        assert found.swept[rank] == own_intervals(laid_out, division, rank).swept
        assert found.intervals[rank] == pytest.approx(found.bodies[first:last].sum())


@pytest.mark.parametrize("spec", MODELS)
def test_balanced_cuts_are_no_worse(spec: str) -> None:
    system = system_from(spec)
    order, cuts = cut_tree(system.contents, 5)
    costs, found = LaneCosts(system.contents, order), balance(system.contents, order, cuts, 0)
    assert found[0] == 0 and found[-1] == order.n and np.all(np.diff(found) >= 1)
    assert costs.of(found).intervals.max() <= costs.of(cuts).intervals.max()
    assert np.array_equal(balance(system.contents, order, cuts, 1), cuts), "in doubles they are balanced already"
    assert open_handles(order)[found].max() <= np.log2(order.n) + 1
    in_doubles = swept_costs(order, np.ones(order.n), cuts, tuned().tip_ratio)
    assert LaneCosts(system.contents, order, 1).of(cuts).intervals.sum() >= in_doubles.sum() * 0.99
