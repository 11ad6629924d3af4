"""The tables of the events of a walk with loops: what `loop_events` found, as the walk reads it."""

from __future__ import annotations

import numpy as np

from mpimbs.base.arrays import Integers
from mpimbs.loops.closing import BEGIN, CLOSE, COMPRESS, END, FOLD, MOVE, REACT
from mpimbs.loops.loop_events import Closings, LoopEvent
from mpimbs.loops.loop_joints import CLOSURE, MINUS_S
from mpimbs.loops.loop_table import AT_WORLD
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.build import Build
from mpimbs.sweep.structure import FIRST_U, LAST_U, SINK
from mpimbs.values.compression import compressed_size
from mpimbs.values.fronts import front_size, kept_size
from mpimbs.values.value import SIX


class _Rooms:
    """Room that is used again once it is free, by its size."""

    def __init__(self) -> None:
        self._free: dict[int, list[int]] = {}
        self.size = 0

    def take(self, size: int) -> int:
        """Where room of a size begins."""
        if free := self._free.get(size):
            return free.pop()
        self.size += size
        return self.size - size

    def give(self, at: int, size: int) -> None:
        """Give room back."""
        self._free.setdefault(size, []).append(at)


class EventTables:
    """The events of a walk, and the room that they need.

    Parameters
    ----------
    made : Build
        With slots for the bodies at which loops are closed.
    ends : array [loops, 2]
        The bodies of those whose joints are here, as of `Closings`.

    Attributes
    ----------
    events, first_event, paths, groups, column_at
        As of `closing.LoopsPlan`.
    columns, fronts, kept : int
        Numbers that these arrays have.
    where, lengths : list of int
        Of each front, where it is and how many columns it has.
    """

    def __init__(self, closings: Closings, made: Build, ends: Integers) -> None:
        self._closings, self._made, self._ends = closings, made, ends
        self.lengths = [ROW * front.most for front in closings.fronts]
        self.where = [-1] * len(self.lengths)
        self._rooms = _Rooms()
        for front in closings.of_looped_tiles:
            self.where[front] = self._rooms.take(front_size.py_func(closings.fronts[front].most))
        m = len(made.structure.steps)
        self._found: list[tuple[int, ...]] = []
        self._paths: list[int] = []
        self._groups: list[int] = []
        self.column_at = np.zeros(len(made.structure.axes), np.int64)
        self.columns = self.kept = 0
        self.first_event = np.zeros(m + 1, np.int64)
        step_of = {body: int(made.first_step[body]) if body >= 0 else m for body in closings.by_body}
        for body in sorted(closings.by_body, key=lambda body: -step_of[body]):
            before = len(self._found)
            for event in closings.by_body[body]:
                self._add(event)
            self.first_event[step_of[body]] += len(self._found) - before
        self.first_event[:] = np.cumsum(self.first_event[::-1])[::-1]
        self.events = np.array(self._found, np.int64).reshape(-1, 8)
        self.paths, self.groups = np.array(self._paths, np.int64), np.array(self._groups, np.int64)
        self.fronts = self._rooms.size

    def _slot(self, body: int) -> int:
        if body < 0:
            return -1 - body
        return int(self._made.structure.steps[self._made.body_step[body], SINK])

    def _paired(self, pairs: tuple[tuple[int, int], ...]) -> tuple[int, int]:
        """Keep pairs; where they begin, and how many numbers they are."""
        self._groups += [number for pair in pairs for number in pair]
        return len(self._groups) - 2 * len(pairs), 2 * len(pairs)

    def _add(self, event: LoopEvent) -> None:
        closings, made, structure, count = self._closings, self._made, self._made.structure, len(self._ends)
        length = self.lengths[event.front]
        if event.kind == BEGIN:
            self.where[event.front] = self._rooms.take(front_size.py_func(length // ROW))
        front = self.where[event.front], length
        grounded = int(event.front in closings.grounded)
        if event.kind == MOVE:
            steps = [step for on in event.path for step in range(int(made.first_step[on]), int(made.body_step[on]) + 1)]
            for step in steps:
                for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
                    self.column_at[d] = self.columns
                    self.columns += ROW * event.numbers[0]
            self._found.append((MOVE, *front, len(self._paths), len(steps), ROW * event.numbers[0], 0, 0))
            self._paths += steps
        elif event.kind == FOLD:
            at, other = self.where[event.other], self.lengths[event.other]
            self._found.append((FOLD, *front, at, other, *self._paired(event.pairs), grounded))
            if event.other not in closings.of_looped_tiles:
                self._rooms.give(at, front_size.py_func(other // ROW))
        elif event.kind == COMPRESS:
            first, size = self._paired(event.pairs)
            self._found.append((COMPRESS, *front, first, self._slot(event.numbers[0]), self.kept, size, 0))
            self.kept += compressed_size.py_func(length // ROW, len(event.pairs))
        elif event.kind == CLOSE:
            group, on, loop = event.numbers
            noted = loop if 0 <= loop < count else -1
            self._found.append((CLOSE, *front, group, self._slot(on), self.kept, noted, grounded))
            self.kept += kept_size.py_func(length // ROW)
        elif event.kind == REACT:
            group, end, body = event.numbers
            acting = end // 2 * CLOSURE + end % 2 * SIX
            self._found.append((REACT, *front, group, int(made.body_step[body]), acting, 0, 0))
        elif event.kind == END:
            group, end = event.numbers
            loop, second = end // 2, end % 2
            acting, asked = count * CLOSURE + ROW, count * CLOSURE  # of an open body: the unit matrix, nothing
            if loop < count:
                acting = loop * CLOSURE + second * SIX
                if second or self._ends[loop, 1 - second] == AT_WORLD:
                    asked = loop * CLOSURE + MINUS_S
            self._found.append((END, *front, group, acting, asked, 0, 0))
        else:
            self._found.append((BEGIN, *front, 0, 0, 0, 0, 0))
