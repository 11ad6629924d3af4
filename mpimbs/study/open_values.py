"""What is open between groups of the ranks that a tree is divided among, with loops or without: known from the bodies
alone, whatever they weigh. The values that the groups exchange have that form, and made up ones are joined to time it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mpimbs.model import System
from mpimbs.model.arranged import arranged
from mpimbs.model.order import Order, heaviest_last
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
from mpimbs.spatial.fronts import COLUMNS
from mpimbs.spatial.memory import aligned_zeros
from mpimbs.spatial.mixed import (
    LOOP,
    OPEN_BODY,
    SCALE_COLUMN,
    MixedRoom,
    OpenGroup,
    describe,
    row_at,
)
from mpimbs.spatial.mixed_joins import Description, joined
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
    groups : list of RankGroup
    events : array [ranks, kinds]
        Of `KINDS`: how often columns of loops begin, move past a body, are added to others, and are eliminated.
    exchanged : list of dict
        Doubles of what each rank exchanges with others, by these: motions of the far ends of loops.
    """

    groups: list[RankGroup]
    events: Integers
    exchanged: list[dict[int, int]]

    def shape(self, group: RankGroup) -> Shape:
        """What joins are alike in."""
        ...

    def value(self, piece: Any, room: Any) -> Floats:
        """Make up the value of a piece."""
        ...


class OpenIntervals:
    """Those of a tree without loops, as in `spatial.columns`; see `OpenValues`.

    Parameters
    ----------
    order : Order
    cuts : array [P + 1]
    """

    def __init__(self, order: Order, cuts: Integers) -> None:
        self._order = order
        pieces = [interval(order, *ends) for ends in itertools.pairwise(cuts.tolist())]
        self.groups = groups_of_ranks(pieces, lambda left, right: join(order, left, right).whole)
        self.events = np.zeros((len(pieces), len(KINDS)), np.int64)
        self.exchanged: list[dict[int, int]] = [{} for _ in pieces]

    def shape(self, group: RankGroup) -> Shape:
        """How many bodies hang where, and are open."""
        both = join(self._order, group.left, group.right)
        left, right = group.left, group.right
        return len(left.hung_on), len(left.open), len(both.hung), len(both.passing), len(right.open)

    def value(self, piece: Interval, room: Room) -> Floats:
        """Give equations of an interval with unit inertias and compliances."""
        value = aligned_zeros(room.size())
        inboard, opened = piece.hung_on[::-1], piece.open
        value[[LAST, INBOARD, OPEN, HANGS_ON]] = piece.last, len(inboard), len(opened), 0
        block, compliance = block_at.py_func, compliance_at.py_func
        units = [block(room, k) for k in range(len(inboard))] + [compliance(room, k, k) for k in range(len(opened))]
        for at in units:
            value[at : at + SIX].reshape(6, ROW)[:, :6] = np.eye(6)
        for k, body in enumerate(inboard.tolist()):
            value[inboard_at.py_func(room, k)] = body
        ends = self._order.last_children[opened] + 1
        for k, (body, end) in enumerate(zip(opened.tolist(), ends.tolist(), strict=True)):
            value[open_at.py_func(room, k)], value[end_at.py_func(room, k)] = body, end
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
        self.groups = groups_of_ranks(self.pieces, joined)
        self.events = np.array(events)
        self.exchanged: list[dict[int, int]] = [{} for _ in self.pieces]
        for owners in table.between(cuts).tolist():
            for mine, other in (owners, owners[::-1]):
                self.exchanged[mine][other] = self.exchanged[mine].get(other, 0) + BOUNDARY

    @functools.cached_property
    def room(self) -> MixedRoom:
        """Room that the values of all groups need."""
        every = self.pieces + [group.whole for group in self.groups]
        return MixedRoom(*(max(len(piece[part]) for piece in every) for part in (1, 2)))

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

    def value(self, piece: Description, room: MixedRoom) -> Floats:
        """Give equations with inertias and compliances near one, of columns that are all coupled a little."""
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
                row[-1, SCALE_COLUMN] = float(number >= len(slots) and groups[number - len(slots)].sort != OPEN_BODY)
        return value


def _closings(own: Interval, parents: Integers, table: LoopTable) -> Closings:
    """Where the loops of an interval are closed."""
    slots = own.hung_on[::-1]
    parent = parents[own.first : own.last] - own.first
    outside = parent < 0
    parent[outside] = -1 - np.searchsorted(slots, parents[own.first : own.last][outside])
    places = np.argsort(heaviest_last(np.maximum(parent, -1))[0])
    return Closings(Tree(parent, places, slots.tolist()), table.bodies, own.open - own.first)


def event_counts(closings: Closings) -> list[int]:
    """How often each of `KINDS` is done: to each end, group past each body, pair of groups, loop, and pair."""
    counts = dict.fromkeys(KINDS, 0)
    for event in itertools.chain.from_iterable(closings.by_body.values()):
        if event.kind == MOVE:
            counts[MOVE] += event.numbers[0] * len(event.path)
        elif event.kind in counts:
            counts[event.kind] += len(event.pairs) or 1
    return list(counts.values())
