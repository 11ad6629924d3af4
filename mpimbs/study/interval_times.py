"""What an evaluation takes of the ranks that a tree is divided among: their sweeps, messages and joins.

Shares of a tree differ in how much of them is swept in lanes and how many bodies are open; some of them are timed one
by one, evenly chosen by their predicted costs, the cheapest and the dearest among them. Others get the times of the one
whose cost is next to theirs, in proportion. What a join takes follows from how many bodies are open and hang where.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.compiling import compile_evaluations
from mpimbs.instruments.phases import run_interval_joins
from mpimbs.model import System
from mpimbs.model.order import Order
from mpimbs.partition.balance import LaneCosts
from mpimbs.partition.division import Division
from mpimbs.partition.intervals import Interval, interval, join
from mpimbs.spatial.columns import (
    HANGS_ON,
    INBOARD,
    LAST,
    OPEN,
    SIX,
    Room,
    block_at,
    compliance_at,
    end_at,
    inboard_at,
    open_at,
)
from mpimbs.spatial.memory import aligned_zeros
from mpimbs.spatial.rows import ROW
from mpimbs.study.share import Share
from mpimbs.study.trace import Sweeps
from mpimbs.sweep.intervals import Intervals
from mpimbs.sweep.structure import TURNING

Floats = npt.NDArray[np.float64]

MOST_TIMED = 24  # shares of a division
_RUNS, _CALLS = 8, 40  # of a join

Shape = tuple[int, ...]  # of a join: how many bodies hang where, and are open


class IntervalTimes(NamedTuple):
    """What the ranks of a division do.

    Attributes
    ----------
    sweeps : list of Sweeps
        Of every rank.
    measured : dict of int to Sweeps
        Of those that were timed.
    joins : list of list of float
        Time of the join at each level that a rank takes part in, from the leaves up (s), of every rank.
    doubles : int
        Of a value that is exchanged at a level.
    turns : int
        Of a value of the scan of turns.
    """

    sweeps: list[Sweeps]
    measured: dict[int, Sweeps]
    joins: list[list[float]]
    doubles: int
    turns: int


def time_intervals(system: System, division: Division, seconds: float) -> IntervalTimes:
    """Time the shares of a tree, and their joins.

    Parameters
    ----------
    system : System
    division : Division
        Into one interval for each rank.
    seconds : float
        Wall time for each share (s).
    """
    cuts, ranks = division.cuts, len(division.cuts) - 1
    order = Order.of(system) if division.order is None else division.order
    costs = LaneCosts(system, order, division.width).of(cuts).intervals if ranks > 1 else np.ones(1)
    chosen = np.argsort(costs)[np.unique(np.linspace(0, ranks - 1, min(ranks, MOST_TIMED)).astype(int))]
    measured: dict[int, Sweeps] = {}
    for rank in chosen.tolist():
        with closing(Share(system, division, rank)) as share:
            compile_evaluations(share)
            measured[rank] = share.time(seconds)
            assert isinstance(share.subchains, Intervals) and isinstance(share.subchains.room, Room)  # without loops
            room, turns = share.subchains.room, len(share.subchain.nothing_before(TURNING))
    joins = _joins(order, cuts.tolist(), room)
    return IntervalTimes(_of_all(costs, measured), measured, joins, room.size(), turns)


def _of_all(costs: Floats, measured: dict[int, Sweeps]) -> list[Sweeps]:
    """Give every rank times, by its cost."""
    ranks = sorted(measured, key=lambda rank: costs[rank])
    known = np.log(costs[ranks])
    found = []
    for rank, cost in enumerate(costs.tolist()):
        nearest = rank if rank in measured else ranks[int(np.argmin(np.abs(known - np.log(cost))))]
        times, ratio = measured[nearest], cost / float(costs[nearest])
        each = {name: ratio * getattr(times, name) for name in ("motion", "inward", "outward")}
        found.append(times._replace(**each))
    return found


def _joins(order: Order, cuts: list[int], room: Room) -> list[list[float]]:
    """Time the joins of the groups of ranks, halved again and again as by the butterfly; those of every rank (s)."""
    found: list[list[float]] = [[] for _ in cuts[1:]]
    known: dict[Shape, float] = {}

    def group(low: int, high: int) -> Interval:
        if high - low == 1:
            return interval(order, cuts[low], cuts[high])
        middle = low + (high - low + 1) // 2
        left, right = group(low, middle), group(middle, high)
        joined = join(order, left, right)
        shape = len(left.hung_on), len(left.open), len(joined.hung), len(joined.passing), len(right.open)
        if shape not in known:
            known[shape] = time_join(order, left, right, room)
        for rank in range(low, high):
            found[rank].append(known[shape])
        return joined.whole

    group(0, len(cuts) - 1)
    return found


def time_join(order: Order, left: Interval, right: Interval, room: Room) -> float:
    """Time a join of two intervals in sequence, up and down (s): the least of some runs."""
    sizes = room.size(), room.responses(), 2 * SIX, 18 * (room.inboard + room.open), (2 * room.open + 1) * 6
    given = value_of(order, left, room), value_of(order, right, room), *map(aligned_zeros, sizes)
    laps = []
    for run in range(1 + _RUNS):
        began = time.perf_counter()
        run_interval_joins(_CALLS if run else 1, room.inboard, room.open, *given)
        laps.append((time.perf_counter() - began) / _CALLS)
    return min(laps[1:])


def value_of(order: Order, part: Interval, room: Room) -> Floats:
    """Give equations of an interval with unit inertias and compliances, as in `spatial.columns`."""
    value = aligned_zeros(room.size())
    inboard, opened = part.hung_on[::-1], part.open
    value[[LAST, INBOARD, OPEN, HANGS_ON]] = part.last, len(inboard), len(opened), 0
    block, compliance = block_at.py_func, compliance_at.py_func
    units = [block(room, k) for k in range(len(inboard))] + [compliance(room, k, k) for k in range(len(opened))]
    for at in units:
        value[at : at + SIX].reshape(6, ROW)[:, :6] = np.eye(6)
    for k, body in enumerate(inboard.tolist()):
        value[inboard_at.py_func(room, k)] = body
    ends = order.last_children[opened] + 1
    for k, (body, end) in enumerate(zip(opened.tolist(), ends.tolist(), strict=True)):
        value[open_at.py_func(room, k)], value[end_at.py_func(room, k)] = body, end
    return value
