"""What an evaluation takes of the ranks that a tree, or a system with loops, is divided among: sweeps, messages, joins.

Shares of a tree differ in how much of them is swept in lanes, how many bodies are open and how many loops are closed;
some of them are timed one by one, evenly chosen by their predicted costs, the cheapest and the dearest among them.
Others get the times of the one whose cost is next to theirs, in proportion. What a join takes follows from what is open
and hangs where, which the bodies alone tell, whatever they weigh: values of that form are made up, and joined.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.bench.cost_fit import fit
from mpimbs.bench.predict.trace import Sweeps
from mpimbs.bench.share import Share, time_join
from mpimbs.dynamics.compiling import compile_evaluations
from mpimbs.kernels.memory import aligned_zeros
from mpimbs.loops.closing import CLOSE, COMPRESS, END, FOLD, MOVE
from mpimbs.loops.loop_events import Closings, Tree, groups_of
from mpimbs.loops.loop_table import LoopTable, loops_of
from mpimbs.model.contents import Contents
from mpimbs.model.order.order import Order, arranged, heaviest_last
from mpimbs.partition.balance import LaneCosts
from mpimbs.partition.division import Division
from mpimbs.partition.intervals import Interval, interval
from mpimbs.partition.schedule import Schedule, balanced
from mpimbs.parts.intervals import Intervals
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.structure import BOUNDARY, TURNING
from mpimbs.values.fronts import COLUMNS
from mpimbs.values.joining import joined
from mpimbs.values.value import LOOP, SIX, Description, LoadGroup, block_at, compliance_at, transfer_at, without_loops

KINDS = (END, MOVE, FOLD, CLOSE, COMPRESS)  # of events that are counted
_COUPLED = 0.01  # of made up values: what is not on the diagonal

Shape = tuple[Any, ...]  # of a join: alike ones take as long


class RankGroup(NamedTuple):
    """Two neighbouring groups of ranks, and both: what is open of each."""

    low: int
    high: int
    left: Any
    right: Any
    whole: Any


def groups_of_ranks(pieces: list[Any], both: Callable[[Any, Any], Any]) -> list[RankGroup]:
    """Join the pieces of all ranks as the butterfly does, halved again and again: from the leaves up."""
    found: list[RankGroup] = []

    def group(low: int, high: int) -> Any:
        if high - low == 1:
            return pieces[low]
        middle = low + (high - low + 1) // 2
        left, right = group(low, middle), group(middle, high)
        found.append(RankGroup(low, high, left, right, both(left, right)))
        return found[-1].whole

    group(0, len(pieces))
    return found


class OpenValues:
    """The values of a division, but for their numbers.

    Parameters
    ----------
    order : Order
        Of its bodies.
    cuts : array [P + 1]
    """

    def __init__(self, system: Contents, order: Order, cuts: Integers) -> None:
        bounds = list(itertools.pairwise(cuts.tolist()))
        # doubles of what each rank exchanges with others, by these: motions of the ends elsewhere of loops
        self.exchanged: list[dict[int, int]] = [{} for _ in bounds]
        self._behind, self._columns = system.n_bodies, np.zeros(0, np.int64)
        if system.loops:
            self.pieces, self.events = self._looped(system, order, cuts)
        else:
            self.pieces = [bodies_of(order, *ends) for ends in bounds]  # of the ranks
            # [ranks, kinds]: of `KINDS`: how often columns of loops begin, move past a body, are added to others, and
            # are eliminated
            self.events = np.zeros((len(bounds), len(KINDS)), np.int64)
        self.groups = groups_of_ranks(self.pieces, lambda left, right: joined(left, right).value)
        every = (*self.pieces, *(group.whole for group in self.groups))
        self.doubles = [value.room.size() for value in every]  # numbers of the values of the pieces, then of the groups

    def _looped(self, system: Contents, order: Order, cuts: Integers) -> tuple[list[Description], Integers]:
        """The values of intervals with loops, and events."""
        numbered = arranged(system, order)
        table, parents = loops_of(numbered), numbered.parents()
        self._columns = table.constraints
        pieces: list[Description] = []
        events: list[list[int]] = []
        for first, last in itertools.pairwise(cuts.tolist()):
            own = interval(order, first, last)
            here = table.within(first, last)
            closings = _closings(own, parents, here)
            ends = order.last_children[own.open] + 1
            found = groups_of(numbered, here, closings, own.open, ends, first)
            pieces.append(Description(last, own.outside_bodies[::-1].tolist(), found, True))
            events.append(event_counts(closings))
        for owners in table.between(cuts).tolist():
            for mine, other in (owners, owners[::-1]):
                self.exchanged[mine][other] = self.exchanged[mine].get(other, 0) + BOUNDARY
        return pieces, np.array(events)

    def shape(self, group: RankGroup) -> Shape:
        """The kind of a join: how many slots there are, which groups are open to how many, what hangs."""
        described = [
            (len(slots), tuple((self.columns(own), own.sort, len(own.slots)) for own in groups))
            for _, slots, groups, _ in (group.left, group.right, group.whole)
        ]
        return *described, *joined(group.left, group.right).handles

    def columns(self, group: LoadGroup) -> int:
        """Columns of a group in use."""
        loop = group.number - self._behind
        return int(self._columns[loop]) if group.sort >= LOOP and loop < len(self._columns) else COLUMNS

    def value(self, piece: Description) -> Floats:
        """Make up the value of a piece."""
        return value_of(piece, [self.columns(group) for group in piece.groups])


def bodies_of(order: Order, first: int, last: int) -> Description:
    """Describe the value of an interval without loops."""
    part = interval(order, first, last)
    ends = (order.last_children[part.open] + 1).tolist()
    return without_loops(last, part.outside_bodies[::-1].tolist(), list(zip(part.open.tolist(), ends, strict=True)))


def value_of(piece: Description, columns: Sequence[int] | None = None) -> Floats:
    """Make up a value: inertias and compliances of one, of so many columns in use, which are all coupled a little."""
    room, used = piece.room, columns or [COLUMNS] * len(piece.groups)
    value = aligned_zeros(room.size())

    def write(at: int, rows: int, columns: int, diagonal: float) -> None:
        block = value[at : at + SIX].reshape(6, ROW)
        block[:rows, :columns] = _COUPLED + diagonal * np.eye(rows, columns)

    for slot in range(len(piece.slots)):
        write(block_at.py_func(room, slot), 6, 6, 1.0)
    for number, (_, k) in enumerate(piece.transfers):
        write(transfer_at.py_func(room, number), 6, used[k], 0.0)
    for k, group in enumerate(piece.groups):
        for m, other in enumerate(piece.groups):
            if set(group.slots) & set(other.slots):
                write(compliance_at.py_func(room, k, m), used[k], used[m], float(k == m))
    return value


def _closings(own: Interval, parents: Integers, table: LoopTable) -> Closings:
    """Where the loops of an interval are closed."""
    slots = own.outside_bodies[::-1]
    parent = parents[own.first : own.last] - own.first
    outside = parent < 0
    parent[outside] = -1 - np.searchsorted(slots, parents[own.first : own.last][outside])
    places = np.argsort(heaviest_last(np.maximum(parent, -1))[0])
    return Closings(Tree(parent, places, slots.tolist()), table.bodies, table.gears, own.open - own.first)


def event_counts(closings: Closings) -> list[int]:
    """How often each of `KINDS` is done: to each end, group past each body, pair of groups, loop, and pair."""
    counts = dict.fromkeys(KINDS, 0)
    for event in itertools.chain.from_iterable(closings.by_body.values()):
        if event.kind == MOVE:
            counts[MOVE] += event.numbers[0] * len(event.path)
        elif event.kind in counts:
            counts[event.kind] += len(event.pairs) or 1
    return list(counts.values())


MOST_TIMED = 24  # shares of a division


class IntervalTimes(NamedTuple):
    """Times of the ranks of a division."""

    sweeps: list[Sweeps]  # of every rank
    measured: dict[int, Sweeps]  # of those that were timed
    schedule: Schedule  # by which the intervals are joined
    joins: list[float]  # time of each join (s)
    doubles: list[int]  # of the value of each node
    turns: int  # of a value of the scans of turns and of motions; 0: there is no scan of these
    motions: int
    # doubles that each rank exchanges with others, by these, beside: motions of the ends elsewhere of loops
    exchanged: list[dict[int, int]]
    independent: bool  # whether no rank's bodies hang on those of another: there are no other messages


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
