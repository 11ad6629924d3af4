"""How long a schedule is predicted to take: what an assembly costs, and the critical path of its steps.

Sweeps of leaves, joins by the number of handles and messages are measured, or the package's. Counts of handles are
enough to predict a join: how many bodies of two neighbours are open, on how many bodies outside they hang, how many
loops of each are not closed yet. `OpenHandles` has them for all groups of neighbouring leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.loops.loop_table import LoopTable
from mpimbs.model.order.order import Order
from mpimbs.partition.intervals import interval
from mpimbs.partition.schedule import JOIN, RECEIVE_LOADS, RECEIVE_VALUE, SEND_LOADS, SEND_VALUE, SPREAD, Schedule
from mpimbs.values.value import Room

DOUBLE = 8  # bytes
MOTION_SHARE, INWARD_SHARE, OUTWARD_SHARE = 0.25, 0.5, 0.25  # of a sweep's time, about
CLOSED = 6  # columns that are eliminated where a loop is closed


class AssemblyCosts(NamedTuple):
    """Seconds; the defaults were measured on one core of an AMD EPYC with AVX-512; messages are of the clusters."""

    body: float = 75e-9  # of the sweeps of a body of cost 1 (`partition.balance`)
    leaf: float = 0.4e-6  # of a leaf, beside those of its bodies
    # up and down: of a join; of each component that is hung on an open body; of a product of 6x6 matrices there; of a
    # solution with six right-hand sides
    join: float = 0.126e-6
    hang: float = 0.019e-6
    product: float = 9.6e-9
    solution: float = 0.113e-6
    row: float = 1.2e-9  # of a row of eight numbers in the elimination of a column of a loop
    latency: float = 1.1e-6  # of a message: on the way; of the core, at either end; of each of its bytes
    overhead: float = 0.2e-6
    byte: float = 0.08e-9

    def message(self, doubles: Any) -> Any:
        """Seconds from one rank to the other, of a message of so many doubles, or of several."""
        return self.latency + 2 * self.overhead + DOUBLE * doubles * self.byte


PACKAGE_COSTS = AssemblyCosts()


class OpenHandles(NamedTuple):
    """Open handles of every group of neighbouring leaves, from leaf i to the one before j: [leaves + 1, leaves + 1]."""

    open: Integers  # bodies with children behind it
    outside: Integers  # bodies outside on which it hangs, the world left out
    grounded: Integers  # 1 where something of it hangs on the world
    loops: Integers  # loops of which one end is in it; none in a system without
    mixed: bool  # whether the system has loops

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


SWEPT_IN, SWEPT_OUT = -2, -1  # kinds of what a rank does beside the steps of a schedule
UP = 0.75  # of the time of a join, about
TURN = 14  # doubles of a turn in the scan, about


class Done(NamedTuple):
    """Something that a rank has done."""

    kind: int  # of `schedule.Step`, or SWEPT_IN, SWEPT_OUT
    node: int  # -1 is all that a rank owns
    rank: int
    seconds: float  # when it was done
    waited: bool = False  # whether it had to wait for a message


class Predicted(NamedTuple):
    """A schedule's predicted time (s), from a state to the accelerations, and its critical path, from the begin on."""

    seconds: float
    path: list[Done]

    def through(self) -> list[int]:
        """The joins of the critical path on the way up."""
        return [done.node for done in self.path if done.kind == JOIN]


class Joins:
    """Predicts joins of a schedule's nodes, each once.

    Parameters
    ----------
    handles : OpenHandles
        Of the schedule's leaves.
    """

    def __init__(self, handles: OpenHandles, costs: AssemblyCosts) -> None:
        self._handles, self._costs = handles, np.array(costs)
        self._known: dict[tuple[int, ...], float] = {}

    def seconds(self, i: int, m: int, j: int) -> float:
        """Time of a join of leaves i to m - 1 with leaves m to j - 1, up and down (s)."""
        h = self._handles
        numbers = h.open[i, m], h.open[m, j], h.outside[m, j], h.grounded[m, j]
        key = tuple(map(int, (*numbers, h.loops[i, m], h.loops[m, j], h.loops[i, j])))
        if key not in self._known:
            self._known[key] = float(join_seconds(self._costs, *key))
        return self._known[key]


def time_schedule(
    schedule: Schedule, leaves: Floats | Sequence[float], handles: OpenHandles, costs: AssemblyCosts
) -> Predicted:
    """Predict what a schedule takes: every rank does its steps in sequence, and waits for messages.

    Parameters
    ----------
    leaves : array [leaves]
        Time of the sweeps of each (s).
    """
    size, joins = schedule.size, Joins(handles, costs)
    swept = np.bincount(schedule.owners, leaves, minlength=size)
    steps, spans, count = schedule.steps, schedule.spans, len(schedule.owners)
    scan = (size - 1).bit_length() * costs.message(TURN)
    now = (np.maximum.accumulate(MOTION_SHARE * swept) + scan + INWARD_SHARE * swept).tolist()
    done = [[Done(SWEPT_IN, -1, rank, time)] for rank, time in enumerate(now)]
    took = [joins.seconds(spans[left][0], spans[left][1], spans[right][1]) for left, right, _ in schedule.joins]
    of_groups = handles.doubles
    doubles = [int(of_groups[span]) for span in spans]
    numbers = [6 * int(handles.open[span] + handles.outside[span] + handles.loops[span] + 1) for span in spans]
    arrived: dict[tuple[int, int, int, int], tuple[float, int]] = {}
    waiting: dict[tuple[int, int, int, int], int] = {}
    sources: dict[tuple[int, int], tuple[int, int]] = {}  # where in `done` what a rank waited for was sent
    at, ready = [0] * size, list(range(size))
    while ready:
        rank = ready.pop()
        while at[rank] < len(steps[rank]):
            kind, node, other = steps[rank][at[rank]]
            waited = False
            if kind in (JOIN, SPREAD):
                now[rank] += took[node - count] * (UP if kind == JOIN else 1.0 - UP)
            elif kind in (SEND_VALUE, SEND_LOADS):
                now[rank] += costs.overhead
                message = RECEIVE_VALUE if kind == SEND_VALUE else RECEIVE_LOADS, node, rank, other
                size_of = doubles[node] if kind == SEND_VALUE else numbers[node]
                there = now[rank] + costs.message(size_of) - 2 * costs.overhead
                arrived[message] = there, len(done[rank])
                if message in waiting:
                    ready.append(waiting.pop(message))
            else:
                message = kind, node, other, rank
                if message not in arrived:
                    waiting[message] = rank
                    break
                time, sent = arrived[message]
                waited = time > now[rank]
                sources[rank, len(done[rank])] = other, sent
                now[rank] = max(now[rank], time) + costs.overhead
            done[rank].append(Done(kind, node, rank, now[rank], waited))
            at[rank] += 1
    ends = [time + OUTWARD_SHARE * sweep for time, sweep in zip(now, swept, strict=True)]
    last = int(np.argmax(ends))
    path = [Done(SWEPT_OUT, -1, last, ends[last])]
    rank, number = last, len(done[last]) - 1
    while number >= 0:
        found = done[rank][number]
        path.append(found)
        rank, number = sources[rank, number] if found.waited else (rank, number - 1)
    return Predicted(float(ends[last]), path[::-1])
