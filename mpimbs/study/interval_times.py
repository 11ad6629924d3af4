"""What an evaluation takes of the ranks that a tree, or a system with loops, is divided among: sweeps, messages, joins.

Shares of a tree differ in how much of them is swept in lanes, how many bodies are open and how many loops are closed;
some of them are timed one by one, evenly chosen by their predicted costs, the cheapest and the dearest among them.
Others get the times of the one whose cost is next to theirs, in proportion. What a join takes follows from what is open
and hangs where.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from mpimbs.compiling import compile_evaluations
from mpimbs.instruments.phases import run_interval_joins, run_mixed_joins
from mpimbs.model import System
from mpimbs.model.order import Order
from mpimbs.partition.balance import LaneCosts
from mpimbs.partition.division import Division
from mpimbs.spatial.columns import SIX, Room
from mpimbs.spatial.memory import aligned_zeros
from mpimbs.spatial.mixed import MixedRoom
from mpimbs.study.open_values import OpenIntervals, OpenLoops, OpenValues, RankGroup, Shape
from mpimbs.study.share import Share
from mpimbs.study.trace import Sweeps
from mpimbs.sweep.intervals import Intervals
from mpimbs.sweep.structure import BOUNDARY, TURNING

Floats = npt.NDArray[np.float64]

MOST_TIMED = 24  # shares of a division
_RUNS, _CALLS = 8, 40  # of a join
_RUN = 0.01  # s: of fewer calls, where they take longer


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
    turns, motions : int
        Of a value of the scans of turns and of motions; 0: there is no scan of these.
    exchanged : list of dict
        Doubles that each rank exchanges with others, by these, beside: motions of the far ends of loops.
    independent : bool
        Whether no rank's bodies hang on those of another: there are no other messages.
    """

    sweeps: list[Sweeps]
    measured: dict[int, Sweeps]
    joins: list[list[float]]
    doubles: int
    turns: int
    motions: int
    exchanged: list[dict[int, int]]
    independent: bool


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
    values: OpenValues = OpenLoops(system, order, cuts) if system.loops else OpenIntervals(order, cuts)
    common = values.room if isinstance(values, OpenLoops) else None
    lanes = LaneCosts(system, order, division.width).of(cuts).intervals if ranks > 1 else np.ones(1)
    work = np.column_stack((lanes, values.events.astype(np.float64)))
    measured: dict[int, Sweeps] = {}
    for rank in _chosen(work, values):
        with closing(Share(system, division, rank, room=common)) as share:
            compile_evaluations(share)
            measured[rank] = share.time(seconds)
            part = share.subchains
            assert isinstance(part, Intervals)
            turns, motions = (len(share.subchain.nothing_before(numbers)) for numbers in (TURNING, BOUNDARY))
            hangs, independent, room = part.hangs, part.independent, common or part.room
    return IntervalTimes(
        _of_all(work, values, measured),
        measured,
        [[]] * ranks if independent else _joins(values, ranks, room),
        room.size(),
        turns,
        motions if system.loops and hangs else 0,
        values.exchanged,
        independent,
    )


def _chosen(work: Floats, values: OpenValues) -> list[int]:
    """The ranks that are timed: evenly by what they do, and one of those that exchange the most with others."""
    ranks = len(work)
    even = np.unique(np.linspace(0, ranks - 1, min(ranks, MOST_TIMED)).astype(int))
    most = max(range(ranks), key=lambda rank: sum(values.exchanged[rank].values()))
    chosen = set(np.argsort(work.sum(axis=1), kind="stable")[even].tolist())
    return sorted(chosen | {most} if values.exchanged[most] else chosen)


def _of_all(work: Floats, values: OpenValues, measured: dict[int, Sweeps]) -> list[Sweeps]:
    """Give every rank times, by its cost: of its bodies and of the columns of loops, as measured times have it."""
    known = sorted(measured)
    swept = np.array([measured[rank].motion + measured[rank].inward + measured[rank].outward for rank in known])
    costs = work @ _fitted(work[known], swept)
    ends = np.array([[1.0, sum(sizes.values())] for sizes in values.exchanged])
    placing = ends @ _fitted(ends[known], np.array([measured[rank].placing for rank in known]))
    known.sort(key=lambda rank: costs[rank])
    found = []
    for rank, cost in enumerate(costs.tolist()):
        if rank in measured:
            found.append(measured[rank])
            continue
        nearest = known[int(np.argmin(np.abs(np.log(costs[known]) - np.log(cost))))]
        times, ratio = measured[nearest], cost / float(costs[nearest])
        each = {name: ratio * getattr(times, name) for name in ("motion", "inward", "outward", "moving")}
        found.append(times._replace(placing=float(placing[rank]), **each))
    return found


def _fitted(terms: Floats, seconds: Floats) -> Floats:
    """Time of each of some terms (s), none below zero, by least squares of relative errors where any was taken."""
    some = seconds > 0.0
    if not some.any():
        return np.zeros(terms.shape[1])
    return np.asarray(nnls(terms[some] / seconds[some, None], np.ones(some.sum()))[0], np.float64)


def _joins(values: OpenValues, ranks: int, room: Room | MixedRoom) -> list[list[float]]:
    """Time the joins of the groups of ranks; those of every rank (s)."""
    found: list[list[float]] = [[] for _ in range(ranks)]
    known: dict[Shape, float] = {}
    for group in values.groups:
        shape = values.shape(group)
        if shape not in known:
            known[shape] = time_join(values, group, room)
        for rank in range(group.low, group.high):
            found[rank].append(known[shape])
    return found


def time_join(values: OpenValues, group: RankGroup, room: Room | MixedRoom) -> float:
    """Time a join of two neighbouring groups, up and down (s): the least of some runs."""
    mixed = isinstance(room, MixedRoom)
    scratch, work = (room.scratch(),) * 2 if isinstance(room, MixedRoom) else (2 * SIX, (2 * room.open + 1) * 6)
    sizes = room.size(), room.responses(), scratch, 18 * (room.inboard + room.open), work
    given: list[Any] = [values.value(group.left, room), values.value(group.right, room), *map(aligned_zeros, sizes)]
    run = run_mixed_joins if mixed else run_interval_joins
    count, laps = 1, []
    for _ in range(2 + _RUNS):
        began = time.perf_counter()
        run(count, room.inboard, room.open, *given)
        laps.append((time.perf_counter() - began) / count)
        count = int(np.clip(_RUN / laps[-1], 1, _CALLS))
    return min(laps[1:])
