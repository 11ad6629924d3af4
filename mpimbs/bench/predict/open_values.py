"""What is open between groups of the ranks that a tree is divided among, with loops or without: known from the bodies
alone, whatever they weigh. The values that the groups exchange have that form, and made up ones are joined to time it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.memory import aligned_zeros
from mpimbs.loops.closing import CLOSE, COMPRESS, END, FOLD, MOVE
from mpimbs.loops.loop_events import Closings, Tree, groups_of
from mpimbs.loops.loop_table import LoopTable, loops_of
from mpimbs.model.contents import Contents
from mpimbs.model.order.arranged import arranged
from mpimbs.model.order.order import Order, heaviest_last
from mpimbs.partition.intervals import Interval, interval
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.structure import BOUNDARY
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

    Attributes
    ----------
    pieces : list of Description
        Of the ranks.
    groups : list of RankGroup
    events : array [ranks, kinds]
        Of `KINDS`: how often columns of loops begin, move past a body, are added to others, and are eliminated.
    exchanged : list of dict
        Doubles of what each rank exchanges with others, by these: motions of the ends elsewhere of loops.
    doubles : list of int
        Numbers of the values of the pieces, then of the groups.
    """

    def __init__(self, system: Contents, order: Order, cuts: Integers) -> None:
        bounds = list(itertools.pairwise(cuts.tolist()))
        self.exchanged: list[dict[int, int]] = [{} for _ in bounds]
        self._behind, self._columns = system.n_bodies, np.zeros(0, np.int64)
        if system.loops:
            self.pieces, self.events = self._looped(system, order, cuts)
        else:
            self.pieces = [bodies_of(order, *ends) for ends in bounds]
            self.events = np.zeros((len(bounds), len(KINDS)), np.int64)
        self.groups = groups_of_ranks(self.pieces, lambda left, right: joined(left, right).value)
        every = (*self.pieces, *(group.whole for group in self.groups))
        self.doubles = [value.room.size() for value in every]

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
