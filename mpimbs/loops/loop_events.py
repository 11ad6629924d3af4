"""Where the columns of loops begin, travel and end in a tree: the events of its walks, found at set-up."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Integers
from mpimbs.loops.closing import BEGIN, CLOSE, COMPRESS, END, FOLD, MOVE, REACT
from mpimbs.loops.loop_table import AT_WORLD, ELSEWHERE, LoopTable
from mpimbs.model.contents import Contents
from mpimbs.sweep.build import Build
from mpimbs.values.value import LOOP, OPEN_BODY, TO_WORLD, LoadGroup


class Tree(NamedTuple):
    """The tree that the bodies of an interval make."""

    parent: Integers  # [n]: -1 - k of the body k outside
    places: Integers  # [n]: of each body in the depth-first order
    slots: list[int]  # the bodies outside; -1 the world


class LoopEvent(NamedTuple):
    """An event, of fronts by their numbers."""

    kind: int
    front: int
    numbers: tuple[int, ...] = ()
    other: int = -1
    pairs: tuple[tuple[int, int], ...] = ()
    path: tuple[int, ...] = ()  # bodies, from the one inboard on


@dataclass
class _Front:
    """The columns open at a body: which group each loop has."""

    number: int
    groups: dict[int, int] = field(default_factory=dict)
    most: int = 0

    def group_of(self, loop: int) -> int:
        """The group of a loop's columns, the first that is free."""
        if loop not in self.groups:
            used = set(self.groups.values())
            self.groups[loop] = next(k for k in range(len(used) + 1) if k not in used)
            self.most = max(self.most, self.groups[loop] + 1)
        return self.groups[loop]


class FromLoopedTile(NamedTuple):
    """The columns that a looped tile's lane hands to the body that it hangs on."""

    place: int  # where it begins in the depth-first order
    parent: int  # the body that it hangs on, and that which the walk inward comes to last before it; -1: none
    behind: int
    # those that are open, in the order of their groups: any numbers below zero of loops that no joint here closes
    loops: list[int]


class _Handed(NamedTuple):
    """A front on its way inward: along the bodies of a path, from the body that it begins at."""

    front: _Front
    path: list[int]
    place: int  # of what hands it on
    behind: int  # it is there once the walk has gone past the first step of this body; -1: from the begin on


class Closings:
    """The events of a tree with loops.

    Parameters
    ----------
    ends : array [loops, 2]
        The bodies of each loop; AT_WORLD, or ELSEWHERE.
    gears : array
        Which of the loops are gears: they act on the joints of their bodies, past which they are closed.
    open_bodies : array
        Bodies on which others hang elsewhere: what acts on them is open, too, numbered behind the loops; behind these
        is what is left of several loops to the world.
    looped_tiles : sequence of FromLoopedTile, optional
        What lanes hand over, whose bodies are none of the tree's.

    Attributes
    ----------
    by_body : dict of int to list of LoopEvent
        What is done when the walk inward has gone past the first step of a body; -1: before it begins.
    of_looped_tiles : list of int
        The fronts that lanes hand over: written before the walk begins, and never by `BEGIN`.
    fronts : list of _Front
    closed_at : dict of int to int
        Of each loop that is closed here, the body: -1 - k of the body k outside.
    open : list of (slot, loop, group, front)
        What is left.
    """

    def __init__(
        self,
        tree: Tree,
        ends: Integers,
        gears: Integers,
        open_bodies: Integers,
        looped_tiles: Sequence[FromLoopedTile] = (),
    ) -> None:
        self._tree, self._loops = tree, len(ends)
        self._geared: dict[int, list[int]] = {}  # of bodies, the ends of gears on them
        for loop, end in itertools.product(gears.tolist(), range(2)):
            self._geared.setdefault(int(ends[loop, end]), []).append(2 * loop + end)
        ends = np.concatenate((ends, np.stack((open_bodies, np.full(len(open_bodies), ELSEWHERE)), axis=1)))
        self._to_world = {int(loop) for loop in np.flatnonzero((ends == AT_WORLD).any(axis=1))}
        self._numbered = self.behind_bodies = len(ends)
        self.compressed_at: list[int] = []
        self.by_body: dict[int, list[LoopEvent]] = {}
        self.fronts: list[_Front] = []
        self.closed_at: dict[int, int] = {}
        self.open: list[tuple[int, int, int, int]] = []
        self._begin: dict[int, list[int]] = {}
        for loop, body in zip(*(part.tolist() for part in np.nonzero(ends >= 0)), strict=True):
            self._begin.setdefault(int(ends[loop, body]), []).append(2 * loop + body)
        self._firsts: dict[int, list[LoopEvent]] = {}  # how fronts begin that nothing is handed to
        self.grounded: set[int] = set()  # fronts of the world
        self._met = set(self._to_world)  # loops whose ends have come together
        self.of_looped_tiles: list[int] = []
        handed: dict[int, list[_Handed]] = {}
        for looped_tile in looped_tiles:
            front = _Front(
                len(self.fronts), {loop: group for group, loop in enumerate(looped_tile.loops)}, len(looped_tile.loops)
            )
            self.fronts.append(front)
            self.of_looped_tiles.append(front.number)
            if looped_tile.loops:
                handed.setdefault(looped_tile.parent, []).append(
                    _Handed(front, [], looped_tile.place, looped_tile.behind)
                )
        self._walk(handed)

    def _walk(self, handed: dict[int, list[_Handed]]) -> None:
        tree = self._tree
        waiting = dict.fromkeys((*self._begin, *(body for body in handed if body >= 0)), True)
        heap = [-int(tree.places[body]) for body in waiting]
        heapq.heapify(heap)
        bodies = np.empty(len(tree.places), np.int64)
        bodies[tree.places] = np.arange(len(tree.places))
        while heap:
            body = int(bodies[-heapq.heappop(heap)])
            on = self._pass(body, handed.pop(body, []))
            if on is None:
                continue
            parent = int(tree.parent[body])
            handed.setdefault(parent, []).append(on)
            if parent >= 0 and parent not in waiting:
                waiting[parent] = True
                heapq.heappush(heap, -int(tree.places[parent]))
        for slot in range(len(tree.slots)):
            front = self._gather(-1 - slot, handed.pop(-1 - slot, []), [])
            if front is not None:
                if tree.slots[slot] == AT_WORLD:
                    self.grounded.add(front.number)
                self.open += [(slot, loop, group, front.number) for loop, group in sorted(front.groups.items())]

    def _pass(self, body: int, handed: list[_Handed]) -> _Handed | None:
        """Pass the columns on from a body to its parent."""
        own = self._begin.get(body, [])
        goes_on = len(handed) == 1 and not own and not self._geared_on(handed[0].path)
        if goes_on and not self._closes(body, handed[0].front):
            return _Handed(handed[0].front, [body, *handed[0].path], int(self._tree.places[body]), body)
        front = self._gather(body, handed, own)
        if front is None or not front.groups:
            return None
        return _Handed(front, [body], int(self._tree.places[body]), body)

    def _geared_on(self, path: list[int]) -> list[int]:
        """The ends of gears on the body that a path leads from."""
        return self._geared.get(path[-1], []) if path else []

    def _closes(self, body: int, front: _Front) -> bool:
        return any(self._is_complete(body, loop) for loop in front.groups)

    def _is_complete(self, body: int, loop: int) -> bool:
        """Whether a loop can be closed at a body: a loop to the world waits until that is it [design, section 12], a
        gear until the joints of its bodies are eliminated."""
        grounded = body < 0 and self._tree.slots[-1 - body] == AT_WORLD
        return self._has_met(body, loop) and (grounded or loop not in self._to_world)

    def _has_met(self, body: int, loop: int) -> bool:
        """Whether both ends of a loop have come in at a body, and a gear's have past the joints that it acts on."""
        return loop in self._met and all(loop != end // 2 for end in self._geared.get(body, ()))

    def _gather(self, body: int, handed: list[_Handed], own: list[int]) -> _Front | None:
        """The front of a body, of what is handed to it and begins at it."""
        if not handed and not own:
            return None
        handed = sorted(handed, key=lambda each: -each.place)
        if handed and body >= 0 and handed[0].front.number not in self.of_looped_tiles:  # what comes in first goes on
            front, begins = handed[0].front, []
        else:
            front = _Front(len(self.fronts))
            self.fronts.append(front)
            begins = [LoopEvent(BEGIN, front.number)]
        if not handed:
            self._firsts[front.number] = begins + self._ends_at(front, own)
        for number, (other, path, _, behind) in enumerate(handed):
            events = self._firsts.pop(other.number, []) + (begins if number == 0 else [])
            if path:
                used = 1 + max(other.groups.values())
                events.append(LoopEvent(MOVE, other.number, (used,), path=tuple(path)))
            for end in self._geared_on(path):
                events.append(LoopEvent(REACT, other.number, (other.groups[end // 2], end, path[-1])))
            events += self._ends_at(front, own) if number == 0 else []
            if other is not front:
                pairs = []
                for loop, group in other.groups.items():
                    if loop in front.groups:
                        self._met.add(loop)
                    pairs.append((group, front.group_of(loop)))
                events.append(LoopEvent(FOLD, front.number, other=other.number, pairs=tuple(pairs)))
            for loop in [loop for loop in front.groups if self._is_complete(body, loop)]:
                events.append(LoopEvent(CLOSE, front.number, (front.groups.pop(loop), body, loop)))
                self.closed_at[loop] = body
            worldly = [loop for loop in front.groups if loop in self._to_world and self._has_met(body, loop)]
            if body >= 0 and len(worldly) > 1:
                events.append(self._compress(front, body, worldly))
            self.by_body.setdefault(behind, []).extend(events)
        return front

    def _ends_at(self, front: _Front, own: list[int]) -> list[LoopEvent]:
        """The columns that begin at the body of a front."""
        events = []
        for end in own:
            loop = end // 2
            if loop in front.groups:
                self._met.add(loop)
            events.append(LoopEvent(END, front.number, (front.group_of(loop), end)))
        return events

    def _compress(self, front: _Front, body: int, loops: list[int]) -> LoopEvent:
        """Bring what is left of loops to the world into one group.

        What is eliminated there ties the body to the world, and all that is open beside it: other loops are from now on
        as those to the world are, which a motion of all their bodies does not leave as they are.
        """
        pairs = [(front.groups.pop(loop), loop if loop < self._loops else -1) for loop in loops]
        front.groups[self._numbered] = pairs[0][0]
        self._to_world.update(loop for loop in front.groups if loop < self._loops or loop >= self.behind_bodies)
        self._met.add(self._numbered)
        self._numbered += 1
        self.compressed_at.append(body)
        return LoopEvent(COMPRESS, front.number, (body,), pairs=tuple(pairs))

    def is_to_world(self, loop: int) -> bool:
        """Whether a number is that of a loop to the world, or of what is left of some."""
        return loop in self._to_world

    @property
    def open_groups(self) -> list[int]:
        """The groups that are open in the end, by their numbers here, in the order of the value's groups."""
        return sorted({loop for _, loop, _, _ in self.open})

    @property
    def slotted(self) -> Integers:
        """The bodies here at which loops are closed."""
        return np.unique([body for body in (*self.closed_at.values(), *self.compressed_at) if body >= 0]).astype(
            np.int64
        )


def closings_of(
    ends: Integers,
    gears: Integers,
    made: Build,
    inboard: Integers,
    open_bodies: Integers,
    looped_tiles: Sequence[FromLoopedTile] = (),
) -> Closings:
    """Find where loops are closed, given the bodies of each, which are gears, the bodies outside [k], -1 the world, and
    the open bodies; and what looped tiles hand over."""
    places = np.empty(len(made.order), np.int64)
    places[made.order] = np.arange(len(made.order))
    return Closings(Tree(made.parent, places, inboard.tolist()), ends, gears, open_bodies, looped_tiles)


def groups_of(
    system: Contents, table: LoopTable, closings: Closings, opened: Integers, ends: Integers, first: int
) -> list[LoadGroup]:
    """Say what the value of an interval has open.

    Parameters
    ----------
    table : LoopTable
        The loops of which an end is in the interval.
    closings : Closings
        Of these.
    opened, ends : array [h]
        The open bodies, and the body behind the last child of each; see `interval.Outside`.
    first : int
        The first body of the interval.
    """
    found = []
    behind = system.n_bodies
    for loop in closings.open_groups:
        slots = tuple(slot for slot, other, _, _ in closings.open if other == loop)
        if loop < len(table):
            number, missing = behind + int(table.numbers[loop]), int((table.bodies[loop] == ELSEWHERE).sum())
            sort = TO_WORLD if closings.is_to_world(loop) else LOOP
            found.append(LoadGroup(number, missing, slots, sort))
        elif loop < closings.behind_bodies:
            k = loop - len(table)
            found.append(LoadGroup(int(opened[k]), int(ends[k]), slots, OPEN_BODY))
        else:
            number = behind + len(system.loops) + first + loop - closings.behind_bodies
            found.append(LoadGroup(number, 0, slots, TO_WORLD))
    return found
