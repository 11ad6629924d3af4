"""What an evaluation takes of the ranks that a tree, or a system with loops, is divided among: sweeps, messages, joins.

Shares of a tree differ in how much of them is swept in lanes, how many bodies are open and how many loops are closed;
some of them are timed one by one, evenly chosen by their predicted costs, the cheapest and the dearest among them.
Others get the times of the one whose cost is next to theirs, in proportion. What a join takes follows from what is open
and hangs where.
"""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.bench.cost_fit import fit
from mpimbs.bench.predict.open_values import OpenValues, Shape
from mpimbs.bench.predict.trace import Sweeps
from mpimbs.bench.share import Share, time_join
from mpimbs.dynamics.compiling import compile_evaluations
from mpimbs.model.contents import Contents
from mpimbs.model.order.order import Order
from mpimbs.partition.balance import LaneCosts
from mpimbs.partition.division import Division
from mpimbs.partition.schedule import Schedule, balanced
from mpimbs.parts.intervals import Intervals
from mpimbs.sweep.structure import BOUNDARY, TURNING
from mpimbs.values.joining import joined

MOST_TIMED = 24  # shares of a division


class IntervalTimes(NamedTuple):
    """Times of the ranks of a division.

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
    turns, motions : int
        Of a value of the scans of turns and of motions; 0: there is no scan of these.
    exchanged : list of dict
        Doubles that each rank exchanges with others, by these, beside: motions of the ends elsewhere of loops.
    independent : bool
        Whether no rank's bodies hang on those of another: there are no other messages.
    """

    sweeps: list[Sweeps]
    measured: dict[int, Sweeps]
    schedule: Schedule
    joins: list[float]
    doubles: list[int]
    turns: int
    motions: int
    exchanged: list[dict[int, int]]
    independent: bool


def time_intervals(system: Contents, division: Division, seconds: float, coupling: str = "dcae") -> IntervalTimes:
    """Time the shares of a tree, and their joins.

    Parameters
    ----------
    division : Division
        Into one interval for each rank.
    seconds : float
        Wall time for each share (s).
    """
    cuts, ranks = division.cuts, len(division.cuts) - 1
    order = Order.of(system) if division.order is None else division.order
    values = OpenValues(system, order, cuts)
    lanes = LaneCosts(system, order, division.width).of(cuts).intervals if ranks > 1 else np.ones(1)
    work = np.column_stack((lanes, values.events.astype(np.float64)))
    measured: dict[int, Sweeps] = {}
    for rank in _chosen(work, values):
        with closing(Share(system, division, rank, coupling)) as share:
            compile_evaluations(share)
            measured[rank] = share.time(seconds)
            part = share.divided.subchains
            assert isinstance(part, Intervals)
            turns, motions = (len(share.subchain.nothing_before(numbers)) for numbers in (TURNING, BOUNDARY))
            hangs, independent = part.hangs, part.independent
    return IntervalTimes(
        _of_all(work, values, measured),
        measured,
        balanced([1] * ranks),
        [] if independent else _joins(values),
        values.doubles,
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
    costs = work @ fit(work[known], swept)
    ends = np.array([[1.0, sum(sizes.values())] for sizes in values.exchanged])
    placing = ends @ fit(ends[known], [measured[rank].placing for rank in known])
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


def _joins(values: OpenValues) -> list[float]:
    """Time the joins of the groups of ranks (s)."""
    known: dict[Shape, float] = {}
    for group in values.groups:
        shape = values.shape(group)
        if shape not in known:
            given = values.value(group.left), values.value(group.right)
            known[shape] = time_join(joined(group.left, group.right), *given)
    return [known[values.shape(group)] for group in values.groups]
