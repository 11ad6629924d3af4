"""Predicted costs of intervals in lanes and in doubles, and cuts that balance them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from mpimbs.base.sizes import PACKAGE, tuned, using
from mpimbs.model import Body, Joint, System, system_from
from mpimbs.model.order.arranged import arranged
from mpimbs.model.order.order import Order
from mpimbs.partition.balance import LaneCosts, balance
from mpimbs.partition.division import divide_tree
from mpimbs.partition.intervals import cut_tree, open_handles, swept_costs
from mpimbs.partition.limbs import row_cost, tile_cost
from mpimbs.partition.ownership import own_intervals
from mpimbs.parts.limbs import Swept

MODELS = ("tree:9:2", "crowd:64", "caterpillar:400", "figure", "tree:4:5")


def in_two_ways() -> System:
    """Twigs of five bodies: 128 alike, and 128 of which no two are."""
    system = System("twigs")
    types = ("revolute", "prismatic", "spherical")
    kinds = [
        Body(name="link", mass=1, center_of_mass=(0, -1, 0), inertia=(1, 1, 1, 0, 0, 0), joint=Joint(type=name))
        for name in types
    ]
    source = np.random.default_rng(1)
    rows = np.concatenate((np.zeros(640, int), source.integers(0, 3, 640)))
    parents = np.where(np.arange(1280) % 5, np.arange(1280) - 1, -1)
    system.branch(kinds, rows, parents)
    return system


@pytest.mark.parametrize("spec", MODELS)
def test_predicted_is_what_ranks_do(spec: str) -> None:
    """Which bodies are in lanes, of every rank, without its sweeps being built."""
    system = system_from(spec)
    division = divide_tree(system, 3)
    assert division.order is not None
    laid_out = arranged(system, division.order)
    found = LaneCosts(system, division.order).of(division.cuts)
    for rank, (first, last) in enumerate(itertools.pairwise(division.cuts.tolist())):
        assert found.swept[rank] == own_intervals(laid_out, division, rank).swept
        assert found.intervals[rank] == pytest.approx(found.bodies[first:last].sum())


def test_costs_by_hand() -> None:
    """64 bodies that hang on one: so many tiles of one row; without lanes what the sweep in doubles costs."""
    system = System("star")
    body = Body(name="hub", mass=1, center_of_mass=(0, -1, 0), inertia=(1, 1, 1, 0, 0, 0), joint=Joint(type="revolute"))
    system.add(body)
    system.branch([body.model_copy(update={"name": "twig"})], np.zeros(64, int), np.zeros(64, int))
    order, cuts = Order.of(system), np.array([0, 65])
    sizes = replace(PACKAGE, row_of_8=2.5, row_of_4=9.0, row_of_2=9.0)
    for width in (4, 8):
        with using(sizes):
            found = LaneCosts(system, order, width).of(cuts)
            tiles = 64 // width * tile_cost(width, 1.0)
            assert tile_cost(width, 1.0) == tuned().tile_start + row_cost(width)
            assert found.intervals[0] == pytest.approx(1.0 + tiles + tuned().limbs_start)
            assert found.swept == [Swept(64, 0, 1)] and np.ptp(found.bodies[1:]) < 1e-12
    alone = LaneCosts(system, order, 1).of(cuts)
    assert alone.swept == [Swept(0, 0, 65)] and alone.intervals[0] == pytest.approx(65.0)


@pytest.mark.parametrize("ranks", [2, 4, 7])
def test_cuts_are_balanced_by_what_lanes_take(ranks: int) -> None:
    """Twigs that are alike take a third of the others' time: their ranks get more."""
    system = in_two_ways()
    order, cuts = cut_tree(system, ranks)
    costs = LaneCosts(system, order)
    before, after = (costs.of(c).intervals for c in (cuts, balance(system, order, cuts, 0)))
    assert before.max() > 1.1 * before.mean()  # 1.18 with registers of 4 doubles, more with wider ones
    assert after.max() < 1.15 * after.mean() and after.max() < before.max()


@pytest.mark.parametrize("spec", MODELS)
def test_balanced_cuts_are_no_worse(spec: str) -> None:
    system = system_from(spec)
    order, cuts = cut_tree(system, 5)
    costs, found = LaneCosts(system, order), balance(system, order, cuts, 0)
    assert found[0] == 0 and found[-1] == order.n and np.all(np.diff(found) >= 1)
    assert costs.of(found).intervals.max() <= costs.of(cuts).intervals.max()
    assert np.array_equal(balance(system, order, cuts, 1), cuts), "in doubles they are balanced already"
    assert open_handles(order)[found].max() <= np.log2(order.n) + 1
    in_doubles = swept_costs(order, np.ones(order.n), cuts, tuned().tip_ratio)
    assert LaneCosts(system, order, 1).of(cuts).intervals.sum() >= in_doubles.sum() * 0.99
