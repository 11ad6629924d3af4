"""What an assembly takes: sweeps of its leaves, joins by the number of handles, messages. Measured, or the package's.

Counts of handles are enough to predict a join: how many bodies of two neighbours are open, on how many bodies outside
they hang, how many loops of each are not closed yet. `OpenHandles` has them for all groups of neighbouring leaves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mpimbs.base.arrays import Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.loops.loop_table import LoopTable
from mpimbs.model.order.order import Order
from mpimbs.partition.intervals import interval
from mpimbs.values.value import Room

DOUBLE = 8  # bytes
MOTION_SHARE, INWARD_SHARE, OUTWARD_SHARE = 0.25, 0.5, 0.25  # of a sweep's time, about
CLOSED = 6  # columns that are eliminated where a loop is closed


class AssemblyCosts(NamedTuple):
    """Seconds; the defaults were measured on one core of an AMD EPYC with AVX-512; messages as those of the clusters.

    Attributes
    ----------
    body : float
        Of the sweeps of a body of cost 1 (`partition.balance`).
    leaf : float
        Of a leaf, beside those of its bodies.
    join, hang, product, solution : float
        Up and down: of a join; of each component that is hung on an open body; of a product of 6x6 matrices there; of a
        solution with six right-hand sides.
    row : float
        Of a row of eight numbers in the elimination of a column of a loop.
    latency, overhead, byte : float
        Of a message: on the way; of the core, at either end; of each of its bytes.
    """

    body: float = 75e-9
    leaf: float = 0.4e-6
    join: float = 0.126e-6
    hang: float = 0.019e-6
    product: float = 9.6e-9
    solution: float = 0.113e-6
    row: float = 1.2e-9
    latency: float = 1.1e-6
    overhead: float = 0.2e-6
    byte: float = 0.08e-9

    def message(self, doubles: Any) -> Any:
        """Seconds from one rank to the other, of a message of so many doubles, or of several."""
        return self.latency + 2 * self.overhead + DOUBLE * doubles * self.byte


PACKAGE_COSTS = AssemblyCosts()


class OpenHandles(NamedTuple):
    """Open handles of every group of neighbouring leaves, from leaf i to the one before j: [leaves + 1, leaves + 1].

    Attributes
    ----------
    open : int64 array
        Bodies with children behind it.
    outside : int64 array
        Bodies outside on which it hangs, the world left out.
    grounded : int64 array
        1 where something of it hangs on the world.
    loops : int64 array
        Loops of which one end is in it; none in a system without.
    mixed : bool
        Whether the system has loops.
    """

    open: Integers
    outside: Integers
    grounded: Integers
    loops: Integers
    mixed: bool

    def of_groups(self, ends: Integers) -> OpenHandles:
        """Give the open handles of the groups that begin at some leaves, each as a leaf."""
        where = np.ix_(ends, ends)
        return OpenHandles(self.open[where], self.outside[where], self.grounded[where], self.loops[where], self.mixed)

    @property
    def doubles(self) -> Integers:
        """Numbers of the value of each group [leaves + 1, leaves + 1]."""
        slots: Any = self.outside + self.grounded
        opened: Any = self.open + self.loops
        return np.asarray(Room(slots, opened, opened, int(self.mixed)).size())


def count_handles(order: Order, bounds: Integers, loops: LoopTable | None = None) -> OpenHandles:
    """Count the handles of all groups of the leaves that begin at some places of an order.

    Parameters
    ----------
    bounds : array [leaves + 1]
    loops : LoopTable, optional
        Of the system in that order.
    """
    count = len(bounds)
    opened, outside, grounded, crossing = (np.zeros((count, count), np.int64) for _ in range(4))
    if order.is_chain:
        for k in range(1, count - 1):
            opened[:k, k] = 1
            outside[k, k + 1 :] = 1
        grounded[0, 1:] = 1
    else:
        keys = np.sort((order.parents + 1) * (order.n + 1) + np.arange(order.n))
        for k, place in enumerate(bounds[:-1].tolist()):
            tips = interval(order, 0, place).open if place else np.zeros(0, np.int64)
            opened[: k + 1, k] = len(tips) - np.searchsorted(tips, bounds[: k + 1])
            bodies = np.append(tips, -1)
            children = keys[np.minimum(np.searchsorted(keys, (bodies + 1) * (order.n + 1) + place), order.n - 1)]
            following = np.where(children // (order.n + 1) == bodies + 1, children % (order.n + 1), order.n)
            outside[k] = np.searchsorted(np.sort(following[:-1]), bounds)
            grounded[k] = following[-1] < bounds
    if loops is not None:
        crossing = _crossing(np.searchsorted(bounds, loops.bodies, side="right") - 1, count)
    return OpenHandles(opened, outside, grounded, crossing, loops is not None)


def _crossing(ends: Integers, count: int) -> Integers:
    """Loops of which one end is in a group of leaves, by the leaves of their ends [loops, 2], -1 the world."""
    low, high = np.sort(ends, axis=1).T
    grounded = low < 0
    inside, both, alone = np.zeros(count + 1), np.zeros((count + 1, count + 1)), np.zeros(count + 1)
    np.add.at(inside, np.concatenate((low[~grounded], high[~grounded])) + 1, 1)
    np.add.at(both, (low[~grounded], high[~grounded] + 1), 1)
    np.add.at(alone, high[grounded] + 1, 1)
    within = np.cumsum(np.cumsum(both[::-1], axis=0)[::-1], axis=1)[:count, :count]
    counts, of_world = np.cumsum(inside)[:count], np.cumsum(alone)[:count]
    found = counts[None, :] - counts[:, None] - 2 * within
    found[1:] += of_world[None, :] - of_world[1:, None]  # what hangs on the world closes those to it
    return np.triu(found).astype(np.int64)


@kernel(inline=True)
def hang_products(before, new):
    """Products of 6x6 matrices of a component hung on one of so many open bodies, with so many of its own."""
    count = before + new
    return 3 + new + 3 * count + count * (count + 1) // 2


@kernel
def join_seconds(costs, before, new, slots_right, grounded, loops_left, loops_right, loops_both):
    """Predict a join, up and down (s).

    Parameters
    ----------
    costs : array
        `AssemblyCosts`.
    before, new : int
        Open bodies of the left and of the right.
    slots_right, grounded : int
        Bodies outside on which the right hangs, the world left out; whether it hangs on that.
    loops_left, loops_right, loops_both : int
        Open loops of each and of both.
    """
    outside = min(before, slots_right)
    passing = slots_right - outside + grounded
    h, n = before + loops_left, new + loops_right if passing == 0 else 0
    seconds = costs[2]
    for _ in range(outside):
        seconds += costs[3] + costs[4] * hang_products(h, n) + costs[5] * (1 + h + n)
        h, n = h + n, 0
    closed = max(0, (loops_left + loops_right - loops_both + 1) // 2)
    return seconds + costs[6] * closed * CLOSED * 6 * (h + n) ** 2
