"""Intervals of a depth-first order, one for each rank: where they are cut, and what of them hangs where.

Bodies are numbered by their places in an `Order` everywhere here. In an interval, all that hangs on one body outside is
one component. Bodies that have children behind the interval are open: they lie on one path, in the last component; all
other components are closed.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.sizes import tuned
from mpimbs.model.contents import Contents
from mpimbs.model.order.order import Order
from mpimbs.partition.chain import body_costs, split_chain
from mpimbs.parts.subchain import Outside

MOVE = 0.05  # of a share: how far a cut moves from where costs are balanced to where few handles are open
SPARED = 1  # so many more open bodies cost less than vectors that have to be put in order
ROUNDS = 3  # of balancing: what bodies cost depends on the handles that are open, and these on the cuts


class Interval(NamedTuple):
    """The bodies first to last - 1, and how they hang together and on others."""

    first: int
    last: int
    # [m]: the body before `first` that each component hangs on, the deepest first; -1 the world
    outside_bodies: Integers
    roots: Integers  # [r]: bodies whose parent is not here, in order; each component has one or several
    open: Integers  # [h]: bodies with a child at `last` or later, in order: from the one next to the root on


_NONE = np.zeros(0, np.int64)
NOTHING_OUTSIDE = Outside(np.array([-1]), np.array([-1]), _NONE, _NONE, 1)  # but the world


def interval(order: Order, first: int, last: int) -> Interval:
    """Say how the bodies first to last - 1, one at least, hang together and on others: O(last - first)."""
    if order.is_chain:
        tip = [last - 1] if last < order.n else []
        return Interval(first, last, *(np.array(part, np.int64) for part in ([first - 1], [first], tip)))
    parents = order.parents[first:last]
    roots = np.flatnonzero(parents < first)
    above = parents[roots]  # falls: what hangs on a deeper body comes first
    new = np.concatenate(([True], above[1:] != above[:-1]))
    tips = np.flatnonzero(order.last_children[first:last] >= last)
    return Interval(first, last, above[new], roots + first, tips + first)


def outside_of(order: Order, first: int, last: int, most: int, apart: bool = False) -> Outside:
    """Say what a sweep over the bodies first to last - 1 needs of those outside."""
    own = interval(order, first, last)
    inboard = (_outside_apart(order, own) if apart else own.outside_bodies)[::-1].copy()
    before = interval(order, 0, first).open if first else np.zeros(0, np.int64)
    place = np.where(inboard >= 0, np.searchsorted(before, inboard), -1)
    return Outside(inboard, place, own.open, order.last_children[own.open] + 1, most)


def _outside_apart(order: Order, own: Interval) -> Integers:
    """The bodies outside on which an interval hangs, as often as roots hang on them; the world once."""
    above = order.parents[own.roots]
    on_bodies = int(np.count_nonzero(above >= 0))
    apart: Integers = above[: on_bodies + 1]
    return apart


def open_handles(order: Order) -> Integers:
    """Number of bodies before each place that have a child there or later, of all bodies: int64 [n + 1]."""
    numbers = np.arange(order.n)
    begin, end = numbers + 1, order.last_children + 1
    carrying = end > 0
    opened = np.bincount(begin[carrying], minlength=order.n + 2) - np.bincount(end[carrying], minlength=order.n + 2)
    return np.cumsum(opened)[: order.n + 1]


def swept_costs(order: Order, costs: Floats, cuts: Integers, ratio: float) -> Floats:
    """Predicted cost of each body's sweep, given the cuts: bodies that open handles hang on carry these.

    Parameters
    ----------
    costs : array [n]
        Cost of each body without handles, by place.
    cuts : array [P + 1]
    ratio : float
        How many times more a body costs that carries one handle.

    Returns
    -------
    array [n]
    """
    swept = costs.copy()
    for first, last in itertools.pairwise(cuts.tolist()):
        path = first + np.flatnonzero(order.ends[first:last] > last)
        tips = path[order.last_children[path] >= last]
        swept[path] *= 1.0 + (ratio - 1.0) * (len(tips) - np.searchsorted(tips, path))
    return swept


def cut_intervals(order: Order, costs: Floats, size: int, ratio: float | None = None) -> Integers:
    """Cut a depth-first order into intervals of equal cost, at places near by where few handles are open.

    Parameters
    ----------
    order : Order
        Of a tree; chains are cut by `split_chain`.
    costs : array [n]
        Cost of each body without handles, by place.
    size : int
        Number of intervals P, from 1 to n.
    ratio : float, optional
        How many times more a body costs that carries one handle; by default what was measured.

    Returns
    -------
    array [P + 1]
        Interval k has the bodies cuts[k] to cuts[k + 1] - 1, at least one.
    """
    ratio = tuned().tip_ratio if ratio is None else ratio
    handles = open_handles(order)
    swept, best, least = costs, np.zeros(0, np.int64), np.inf
    for _ in range(ROUNDS):
        cuts = move_to_few_handles(split_chain([swept], size, 1.0), swept, handles)
        swept = swept_costs(order, costs, cuts, ratio)
        largest = float(np.add.reduceat(swept, cuts[:-1]).max())
        if largest < least:
            best, least = cuts, largest
    return best


def cut_tree(system: Contents, size: int) -> tuple[Order, Integers]:
    """Number the bodies of a tree depth first, and cut that order into intervals, one for each of so many ranks.

    A tree that is listed depth first keeps its own order, which costs nothing: neither arrays of numbers nor messages
    that put vectors in order. But heaviest children may come first there, so that thousands of bodies stay open; where
    that order leaves more than SPARED bodies open at a cut beyond those that the heaviest child last does, this one is
    taken, as for trees that are not listed depth first.

    Returns
    -------
    (Order, array [P + 1])
        As of `cut_intervals`.
    """
    costs = body_costs(system.joint_types())

    def cut(order: Order) -> tuple[Integers, int]:
        cuts = cut_intervals(order, costs[order.where(0, order.n)], size)
        return cuts, int(open_handles(order)[cuts].max())

    order = Order.of(system)
    cuts, most = cut(order)
    listed = None if order.is_identity else order.as_listed()
    if listed is None:
        return order, cuts
    cuts_as_listed, most_as_listed = cut(listed)
    return (listed, cuts_as_listed) if most_as_listed <= most + SPARED else (order, cuts)


def move_to_few_handles(cuts: Integers, costs: Floats, handles: Integers) -> Integers:
    """Move each cut to where the fewest handles are open within MOVE of a share; of several to the nearest."""
    before = np.concatenate(([0.0], np.cumsum(costs)))
    reach = MOVE * before[-1] / (len(cuts) - 1)
    moved = cuts.copy()
    for k in range(1, len(cuts) - 1):
        target = before[cuts[k]]
        low, high = np.searchsorted(before, (target - reach, target + reach))
        near = np.arange(max(low, moved[k - 1] + 1), min(max(high, cuts[k] + 1), cuts[k + 1]))
        moved[k] = near[np.lexsort((np.abs(before[near] - target), handles[near]))[0]]
    return moved
