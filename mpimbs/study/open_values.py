"""What is open between groups of the ranks that a tree is divided among, with loops or without: known from the bodies
alone, whatever they weigh. The values that the groups exchange have that form, and made up ones are joined to time it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mpimbs.model import System
from mpimbs.model.arranged import arranged
from mpimbs.model.order import Order, heaviest_last
from mpimbs.partition.intervals import Interval, interval
from mpimbs.spatial.column_lists import Listed, joined_columns, list_bodies
from mpimbs.spatial.columns import SIX, Room, Rooms, block_at, compliance_at
from mpimbs.spatial.fronts import COLUMNS
from mpimbs.spatial.memory import aligned_zeros
from mpimbs.spatial.mixed import (
    LOOP,
    NOISE_COLUMN,
    OPEN_BODY,
    OpenGroup,
    describe,
    row_at,
)
from mpimbs.spatial.mixed_joins import Description, joined_mixed, room_of
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.closing import CLOSE, END, FOLD, MOVE, SETTLE
from mpimbs.sweep.loop_events import Closings, Tree, groups_of
from mpimbs.sweep.loop_table import LoopTable, loops_of
from mpimbs.sweep.structure import BOUNDARY

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

KINDS = (END, MOVE, FOLD, CLOSE, SETTLE)  # of events that are counted
_COUPLED = 0.01  # of made up values: what is not on the diagonal

Shape = tuple[Any, ...]  # of a join: alike ones take as long


class JoinNeeds(NamedTuple):
    """Rooms of a join, and numbers that it keeps and works with."""

    rooms: Rooms
    responses: int
    scratch: int


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


class OpenValues(Protocol):
    """The values of a division, but for their numbers.

    Attributes
    ----------
    pieces : list
        Of the ranks.
    groups : list of RankGroup
    events : array [ranks, kinds]
        Of `KINDS`: how often columns of loops begin, move past a body, are added to others, and are eliminated.
    exchanged : list of dict
        Doubles of what each rank exchanges with others, by these: motions of the far ends of loops.
    doubles : list of int
        Numbers of the values of the pieces, then of the groups.
    """

    pieces: Any
    groups: list[RankGroup]
    events: Integers
    exchanged: list[dict[int, int]]
    doubles: list[int]

    def shape(self, group: RankGroup) -> Shape:
        """What joins are alike in."""
        ...

    def value(self, piece: Any) -> Floats:
        """Make up the value of a piece."""
        ...

    def needs(self, group: RankGroup) -> JoinNeeds:
        """What a join takes."""
        ...


class OpenIntervals:
    """Those of a tree without loops, as in `spatial.columns`; see `OpenValues`.

    Parameters
    ----------
    order : Order
    cuts : array [P + 1]
    """

    def __init__(self, order: Order, cuts: Integers) -> None:
        pieces = [bodies_of(order, *ends) for ends in itertools.pairwise(cuts.tolist())]
        self.pieces = pieces
        self.groups = groups_of_ranks(pieces, lambda left, right: joined_columns(left, right).value)
        self.events = np.zeros((len(pieces), len(KINDS)), np.int64)
        self.exchanged: list[dict[int, int]] = [{} for _ in pieces]
        rooms = [Room(len(piece.inboard), max(1, len(piece.open))) for piece in pieces]
        self.doubles = [room.size() for room in (*rooms, *(group.whole.room for group in self.groups))]

    def shape(self, group: RankGroup) -> Shape:
        """How many bodies hang where, and are open."""
        handles = joined_columns(group.left, group.right).handles
        return len(group.left.inboard), len(group.right.inboard), len(group.whole.open), *sum(handles, ())

    def needs(self, group: RankGroup) -> JoinNeeds:
        """What a join takes."""
        return needs_of(group.left, group.right)

    def value(self, piece: Listed) -> Floats:
        """Give equations of an interval with unit inertias and compliances."""
        return value_of(piece)


def needs_of(left: Listed, right: Listed) -> JoinNeeds:
    """What a join of two intervals takes."""
    joined = joined_columns(left, right)
    rooms = Rooms(left.room, right.room, joined.both, joined.value.room)
    return JoinNeeds(rooms, joined.responses, joined.scratch)


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


class OpenLoops:
    """Those of a system with loops, as in `spatial.mixed`; see `OpenValues`.

    Parameters
    ----------
    system : System
    order : Order
        Of its bodies.
    cuts : array [P + 1]

    Attributes
    ----------
    pieces : list of Description
        Of the ranks.
    """

    def __init__(self, system: System, order: Order, cuts: Integers) -> None:
        numbered = arranged(system, order)
        self._behind, table, parents = system.n_bodies, loops_of(numbered), numbered.parents()
        self._columns = table.constraints
        self.pieces: list[Description] = []
        events: list[list[int]] = []
        for first, last in itertools.pairwise(cuts.tolist()):
            own = interval(order, first, last)
            here = table.within(first, last)
            closings = _closings(own, parents, here)
            ends = order.last_children[own.open] + 1
            found = groups_of(numbered, here, closings, own.open, ends, first)
            self.pieces.append((last, own.hung_on[::-1].tolist(), found))
            events.append(event_counts(closings))
        self.groups = groups_of_ranks(self.pieces, lambda left, right: joined_mixed(left, right).value)
        self.events = np.array(events)
        every = (*self.pieces, *(group.whole for group in self.groups))
        self.doubles = [room_of(piece).size() for piece in every]
        self.exchanged: list[dict[int, int]] = [{} for _ in self.pieces]
        for owners in table.between(cuts).tolist():
            for mine, other in (owners, owners[::-1]):
                self.exchanged[mine][other] = self.exchanged[mine].get(other, 0) + BOUNDARY

    def needs(self, group: RankGroup) -> JoinNeeds:
        """What a join takes."""
        joined = joined_mixed(group.left, group.right)
        rooms = (Room(*room_of(piece)) for piece in (group.left, group.right, joined.value, joined.value))
        return JoinNeeds(Rooms(*rooms), joined.responses, joined.scratch)

    def shape(self, group: RankGroup) -> Shape:
        """How many slots there are, how many columns of which sort in each group; and what is left."""
        left, right, whole = (
            (len(slots), tuple((self._columns_of(own), own.sort) for own in groups))
            for _, slots, groups in (group.left, group.right, group.whole)
        )
        return left, right, whole

    def _columns_of(self, group: OpenGroup) -> int:
        """Columns of a group in use."""
        loop = group.number - self._behind
        return int(self._columns[loop]) if group.sort >= LOOP and loop < len(self._columns) else COLUMNS

    def value(self, piece: Description) -> Floats:
        """Give equations with inertias and compliances near one, of columns that are all coupled a little."""
        room = room_of(piece)
        value, (_, slots, groups) = aligned_zeros(room.size()), piece
        describe(room, value, *piece)
        blocks = [(k, COLUMNS) for k in range(len(slots))]
        blocks += [(room.inboard + k, self._columns_of(group)) for k, group in enumerate(groups)]
        for number, (a, used) in enumerate(blocks):
            for i in range(used):
                row = value[row_at.py_func(room, a, i) :][: ROW * (room.inboard + room.open + 1)].reshape(-1, ROW)
                for other, (b, columns) in enumerate(blocks):
                    sign = -1.0 if number < len(slots) <= other else 1.0
                    row[b, :columns] = sign * _COUPLED
                row[a, i] = 1.0
                row[-1, NOISE_COLUMN] = float(number >= len(slots) and groups[number - len(slots)].sort != OPEN_BODY)
        return value


def _closings(own: Interval, parents: Integers, table: LoopTable) -> Closings:
    """Where the loops of an interval are closed."""
    slots = own.hung_on[::-1]
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
