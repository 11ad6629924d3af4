"""What the sweeps of a tree's intervals are predicted to take, in lanes and in doubles, and cuts that balance it.

A body costs 1 that is swept in doubles, hangs on a revolute joint and carries no handle.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.sizes import tuned
from mpimbs.model.contents import Contents
from mpimbs.model.order.order import Order, heaviest_last
from mpimbs.partition.chain import split_chain
from mpimbs.partition.intervals import interval, move_to_few_handles, open_handles, swept_costs
from mpimbs.partition.lane_subtrees import choose_lane_subtrees, costs_of, stretch_cost, tile_cost
from mpimbs.parts.lane_subtrees import Chosen, Swept

ROUNDS = 2  # of balancing: what is swept in lanes depends on the cuts
EVEN = 1.02  # the dearest interval over the mean: nothing more is gained
MOST_BALANCED = 1 << 20  # bodies, of which a round takes seconds


class _Bodies(NamedTuple):
    """The tree of bodies, with the attributes of a `Build`."""

    parent: Integers
    order: Integers
    sizes: Integers


class Costs(NamedTuple):
    """Predicted costs of the intervals of a tree."""

    bodies: Floats  # [n]: of each body, by its place: what is swept in lanes has its share
    intervals: Floats  # [P]: sums of these
    swept: list[Swept]  # how many bodies of each interval are swept in which way


class LaneCosts:
    """Predicts what intervals of a tree cost, wherever they are cut.

    Parameters
    ----------
    order : Order
        Of its bodies.
    width : int
        Number of lanes, as of `Division`.
    """

    def __init__(self, system: Contents, order: Order, width: int = 0) -> None:
        where = order.where(0, order.n)
        self._order, self._width = order, width
        self._patterns = system.joint_patterns(0, order.n)[where]
        self._costs = costs_of(self._patterns)

    def of(self, cuts: Integers) -> Costs:
        """Predict, for cuts [P + 1]."""
        bodies = swept_costs(self._order, self._costs, cuts, tuned().tip_ratio)
        swept = []
        for first, last in itertools.pairwise(cuts.tolist()):
            parent = np.maximum(self._order.parents[first:last] - first, -1)
            made = _Bodies(parent, *heaviest_last(parent))
            opened = interval(self._order, first, last).open - first
            chosen = choose_lane_subtrees(made, self._patterns[first:last], opened, self._width)
            here = first + made.order
            bodies[here] = spread_costs(chosen, made.sizes, bodies[here], self._costs[here])
            swept.append(chosen.swept(made.sizes))
        return Costs(bodies, np.add.reduceat(bodies, cuts[:-1]), swept)


def spread_costs(chosen: Chosen, sizes: Integers, swept: Floats, costs: Floats) -> Floats:
    """Predicted costs of bodies of which some are swept in lanes: these share what their tiles take [n].

    Parameters
    ----------
    sizes : array [n]
        Bodies of the subtree at each place of the depth-first order.
    swept, costs : array [n]
        Of each place, swept in doubles: with the handles that it carries, and without.
    """
    spread = swept.copy()
    for group in chosen.groups:
        tiles, width = group.places.shape
        size = int(sizes[group.places[0, 0]])
        places = group.places.ravel()[: group.lanes]
        within = places[:, None] + np.arange(size)
        took = tiles * tile_cost(width, float(costs[within[0]].sum()))
        spread[within] = took / within.size
    for stretch in chosen.stretches:
        spread[stretch.first : stretch.last] = stretch_cost(stretch, costs) / (stretch.last - stretch.first)
    if chosen.any:
        spread *= 1.0 + tuned().subtrees_start / spread.sum()
    return spread


def balance(system: Contents, order: Order, cuts: Integers, width: int) -> Integers:
    """Move cuts that balance what intervals take in doubles to where what they take in lanes is balanced better.

    Parameters
    ----------
    system, order, width
        See `LaneCosts`.
    cuts : array [P + 1]

    Returns
    -------
    array [P + 1]
    """
    if width == 1 or order.n > MOST_BALANCED:
        return cuts
    costs, handles = LaneCosts(system, order, width), open_handles(order)
    best, least = cuts, np.inf
    for left in range(ROUNDS, -1, -1):
        found = costs.of(cuts)
        largest = float(found.intervals.max())
        if largest < least:
            best, least = cuts, largest
        if not left or largest <= EVEN * found.intervals.mean():
            break
        even = split_chain([found.bodies], len(cuts) - 1, 1.0)
        cuts = move_to_few_handles(even, found.bodies, handles)
    return best
