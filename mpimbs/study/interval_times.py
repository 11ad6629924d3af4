"""What an evaluation takes of the ranks that a tree is divided among: their sweeps, messages and joins.

Shares of a tree differ in how much of them is swept in lanes and how many bodies are open; some of them are timed one
by one, evenly chosen by their predicted costs, the cheapest and the dearest among them. Others get the times of the one
whose cost is next to theirs, in proportion. What a join takes follows from how many bodies are open and hang where.
"""

from __future__ import annotations

import itertools
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
from mpimbs.partition.intervals import interval
from mpimbs.partition.schedule import Schedule, balanced
from mpimbs.spatial.column_lists import Listed, joined_columns, list_bodies
from mpimbs.spatial.columns import SIX, Room, Rooms, block_at, compliance_at
from mpimbs.spatial.memory import aligned_zeros
from mpimbs.spatial.rows import ROW
from mpimbs.study.share import Share
from mpimbs.study.trace import Sweeps
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
    schedule : Schedule
        By which the intervals are joined.
    joins : list of float
        Time of each join (s).
    doubles : list of int
        Of the value of each node.
    turns : int
        Of a value of the scan of turns.
    """

    sweeps: list[Sweeps]
    measured: dict[int, Sweeps]
    schedule: Schedule
    joins: list[float]
    doubles: list[int]
    turns: int


def time_intervals(system: System, division: Division, seconds: float, coupling: str = "dcae") -> IntervalTimes:
    """Time the shares of a tree, and their joins.

    Parameters
    ----------
    system : System
    division : Division
        Into one interval for each rank.
    seconds : float
        Wall time for each share (s).
    coupling : str
        As of `Share`.
    """
    cuts, ranks = division.cuts, len(division.cuts) - 1
    order = Order.of(system) if division.order is None else division.order
    costs = LaneCosts(system, order, division.width).of(cuts).intervals if ranks > 1 else np.ones(1)
    chosen = np.argsort(costs)[np.unique(np.linspace(0, ranks - 1, min(ranks, MOST_TIMED)).astype(int))]
    measured: dict[int, Sweeps] = {}
    for rank in chosen.tolist():
        with closing(Share(system, division, rank, coupling)) as share:
            compile_evaluations(share)
            measured[rank] = share.time(seconds)
            turns = len(share.subchain.nothing_before(TURNING))
    return IntervalTimes(_of_all(costs, measured), measured, *_joins(order, cuts.tolist()), turns)


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


def _joins(order: Order, cuts: list[int]) -> tuple[Schedule, list[float], list[int]]:
    """The schedule of a butterfly over the ranks' intervals, the time of each of its joins (s), and the numbers of the
    values of its nodes."""
    schedule = balanced([1] * (len(cuts) - 1))
    known: dict[Shape, float] = {}
    times = []
    values = [bodies_of(order, first, last) for first, last in itertools.pairwise(cuts)]
    doubles = [Room(len(value.inboard), max(1, len(value.open))).size() for value in values]
    for left, right, _ in schedule.joins:
        joined = joined_columns(values[left], values[right])
        shape = len(values[left].inboard), len(values[right].inboard), len(joined.value.open), *sum(joined.handles, ())
        if shape not in known:
            known[shape] = time_join(values[left], values[right])
        times.append(known[shape])
        values.append(joined.value)
        doubles.append(joined.value.room.size())
    return schedule, times, doubles


def time_join(left: Listed, right: Listed) -> float:
    """Time a join of two intervals in sequence, up and down (s): the least of some runs."""
    joined = joined_columns(left, right)
    rooms = Rooms(left.room, right.room, joined.both, joined.value.room)
    boundary = (6 * (room.inboard + room.open) for room in (rooms.left, rooms.right, rooms.out))
    sizes = rooms.out.size(), joined.responses, joined.scratch, *boundary
    given = value_of(left), value_of(right), *map(aligned_zeros, sizes)
    laps = []
    for run in range(1 + _RUNS):
        began = time.perf_counter()
        run_interval_joins(_CALLS if run else 1, rooms, *given)
        laps.append((time.perf_counter() - began) / _CALLS)
    return min(laps[1:])


def bodies_of(order: Order, first: int, last: int) -> Listed:
    """The bodies of an interval's value."""
    part = interval(order, first, last)
    ends = (order.last_children[part.open] + 1).tolist()
    return Listed(last, part.hung_on[::-1].tolist(), list(zip(part.open.tolist(), ends, strict=True)))


def value_of(bodies: Listed) -> Floats:
    """Give equations of an interval with unit inertias and compliances, as in `spatial.columns`."""
    room = bodies.room
    value = aligned_zeros(room.size())
    list_bodies(room, value, bodies)
    block, compliance = block_at.py_func, compliance_at.py_func
    units = [block(room, k) for k in range(room.inboard)] + [compliance(room, k, k) for k in range(room.open)]
    for at in units:
        value[at : at + SIX].reshape(6, ROW)[:, :6] = np.eye(6)
    return value
