"""Where the columns of loops begin, travel and end in a tree: the events of its walks, found at set-up."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mpimbs.model.contents import Contents
from mpimbs.spatial.fronts import COLUMNS, front_size, kept_size, settled_size
from mpimbs.spatial.memory import Table, aligned_zeros
from mpimbs.spatial.mixed import LOOP, OPEN_BODY, TO_WORLD, MixedRoom, OpenGroup
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.build import Build
from mpimbs.sweep.closing import BEGIN, CLOSE, END, FOLD, MOVE, SETTLE, LoopsPlan
from mpimbs.sweep.loop_joints import CLOSURE, MINUS_S, POSITION, SIX, VELOCITY, WORLD_IS_A, WORLD_IS_B, ClosingJoints
from mpimbs.sweep.loop_table import ELSEWHERE, WORLD, LoopTable
from mpimbs.sweep.structure import BOUNDARY, FIRST_U, LAST_U, SINK

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Outside(Protocol):
    """What is asked of `interval.Outside`."""

    @property
    def open(self) -> Integers: ...

    @property
    def ends(self) -> Integers: ...


class Tree(NamedTuple):
    """How the bodies of an interval hang together.

    Attributes
    ----------
    parent : array [n]
        -1 - k of the body k outside.
    places : array [n]
        Of each body in the depth-first order.
    slots : list of int
        The bodies outside; -1 the world.
    """

    parent: Integers
    places: Integers
    slots: list[int]


class _Event(NamedTuple):
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


class _Handed(NamedTuple):
    """A front on its way inward: along the bodies of a path, from the body that it begins at."""

    front: _Front
    path: list[int]


class Closings:
    """The events of a tree with loops.

    Parameters
    ----------
    tree : Tree
    ends : array [loops, 2]
        The bodies of each loop; WORLD, or ELSEWHERE.
    open_bodies : array
        Bodies on which others hang elsewhere: what acts on them is open, too, numbered behind the loops; behind these
        is what is left of several loops to the world.

    Attributes
    ----------
    by_body : dict of int to list of _Event
        What is done when the walk inward has gone past the first step of a body.
    fronts : list of _Front
    closed_at : dict of int to int
        Of each loop that is closed here, the body: -1 - k of the body k outside.
    open : list of (slot, loop, group, front)
        What is left.
    """

    def __init__(self, tree: Tree, ends: Integers, open_bodies: Integers) -> None:
        self._tree, self._loops = tree, len(ends)
        ends = np.concatenate((ends, np.stack((open_bodies, np.full(len(open_bodies), ELSEWHERE)), axis=1)))
        self._to_world = {int(loop) for loop in np.flatnonzero((ends == WORLD).any(axis=1))}
        self._numbered = self.behind_bodies = len(ends)
        self.settled_at: list[int] = []
        self.by_body: dict[int, list[_Event]] = {}
        self.fronts: list[_Front] = []
        self.closed_at: dict[int, int] = {}
        self.open: list[tuple[int, int, int, int]] = []
        self._begin: dict[int, list[int]] = {}
        for loop, body in zip(*(part.tolist() for part in np.nonzero(ends >= 0)), strict=True):
            self._begin.setdefault(int(ends[loop, body]), []).append(2 * loop + body)
        self._firsts: dict[int, list[_Event]] = {}  # how fronts begin that nothing is handed to
        self._met: set[int] = set()  # loops whose ends have come together
        self._walk()

    def _walk(self) -> None:
        tree, handed = self._tree, dict[int, list[_Handed]]()
        heap = [-int(tree.places[body]) for body in self._begin]
        heapq.heapify(heap)
        bodies = np.empty(len(tree.places), np.int64)
        bodies[tree.places] = np.arange(len(tree.places))
        waiting = dict.fromkeys(self._begin, True)
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
                self.open += [(slot, loop, group, front.number) for loop, group in sorted(front.groups.items())]

    def _pass(self, body: int, handed: list[_Handed]) -> _Handed | None:
        """What goes on from a body to its parent."""
        own = self._begin.get(body, [])
        if len(handed) == 1 and not own and not self._closes(body, handed[0].front):
            return _Handed(handed[0].front, [body, *handed[0].path])
        front = self._gather(body, handed, own)
        return _Handed(front, [body]) if front is not None and front.groups else None

    def _closes(self, body: int, front: _Front) -> bool:
        return any(self._is_complete(body, loop) for loop in front.groups)

    def _is_complete(self, body: int, loop: int) -> bool:
        """Whether a loop can be closed at a body: a loop to the world waits until that is it [design, section 12]."""
        if loop in self._to_world:
            return body < 0 and self._tree.slots[-1 - body] == WORLD
        return loop in self._met

    def _gather(self, body: int, handed: list[_Handed], own: list[int]) -> _Front | None:
        """The front of a body, of what is handed to it and begins at it."""
        if not handed and not own:
            return None
        front = _Front(len(self.fronts))
        self.fronts.append(front)
        begins = [_Event(BEGIN, front.number)]
        for end in own:
            loop = end // 2
            begins.append(_Event(END, front.number, (front.group_of(loop), end)))
        if not handed:
            self._firsts[front.number] = begins
        for number, (other, path) in enumerate(handed):
            events = self._firsts.pop(other.number, [])
            events += begins if number == 0 else []
            events.append(_Event(MOVE, other.number, path=tuple(path)))
            pairs = []
            for loop, group in other.groups.items():
                if loop in front.groups:
                    self._met.add(loop)
                pairs.append((group, front.group_of(loop)))
            events.append(_Event(FOLD, front.number, other=other.number, pairs=tuple(pairs)))
            for loop in [loop for loop in front.groups if self._is_complete(body, loop)]:
                events.append(_Event(CLOSE, front.number, (front.groups.pop(loop), body, loop)))
                self.closed_at[loop] = body
            if body >= 0 and len(worldly := [loop for loop in front.groups if loop in self._to_world]) > 1:
                events.append(self._settle(front, body, worldly))
            self.by_body[path[0]] = events
        return front

    def _settle(self, front: _Front, body: int, loops: list[int]) -> _Event:
        """Bring what is left of loops to the world into one group."""
        pairs = [(front.groups.pop(loop), loop if loop < self._loops else -1) for loop in loops]
        front.groups[self._numbered] = pairs[0][0]
        self._to_world.add(self._numbered)
        self._numbered += 1
        self.settled_at.append(body)
        return _Event(SETTLE, front.number, (body,), pairs=tuple(pairs))

    def is_to_world(self, loop: int) -> bool:
        """Whether a number is that of a loop to the world, or of what is left of some."""
        return loop in self._to_world

    @property
    def slotted(self) -> Integers:
        """The bodies here at which loops are closed."""
        return np.unique([body for body in (*self.closed_at.values(), *self.settled_at) if body >= 0]).astype(np.int64)


def closings_of(table: LoopTable, made: Build, inboard: Integers, open_bodies: Integers) -> Closings:
    """Find where the loops of a table are closed, given the bodies outside [k], -1 the world, and the open bodies."""
    places = np.empty(len(made.order), np.int64)
    places[made.order] = np.arange(len(made.order))
    return Closings(Tree(made.parent, places, inboard.tolist()), table.bodies, open_bodies)


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


class Loops:
    """The loops of an interval of bodies, made ready for its walks.

    Parameters
    ----------
    system : Contents
    table : LoopTable
        All loops of which an end is here.
    made : Build
        The trunk, with slots for the bodies at which loops are closed (`closed_at`).
    closings : Closings
    slots : array
        The bodies outside.
    """

    def __init__(self, system: Contents, table: LoopTable, made: Build, closings: Closings, slots: Integers) -> None:
        self.closings, self._loop_table, self._system = closings, table, system
        self._where = np.zeros(0, np.int64)
        count, m = len(table), len(made.structure.steps)
        self._frames = table.frames(made)
        self.loads = aligned_zeros(count * ROW)
        self.boundary = np.zeros(len(slots) * BOUNDARY)
        self.boundary.reshape(-1, BOUNDARY)[:, [0, 4, 8]] = 1.0
        self.closures = aligned_zeros(count * CLOSURE + ROW + SIX)
        self.closures[-SIX:] = np.eye(6, ROW).ravel()
        self.motions = np.zeros((m + 1 + count) * BOUNDARY)  # behind the steps the world, and of each loop the far end
        self.motions.reshape(-1, BOUNDARY)[m:, [0, 4, 8]] = 1.0
        self.aim = np.zeros(2)
        self.root = np.array([0.0, 0.0, 0.0, *(-g for g in system.gravity)])
        self._rows = self._joint_rows(table, made, m)
        joints = ClosingJoints(
            rows=self._rows,
            ends=table.ends(made).ravel(),
            subspaces=_aligned(table.subspaces),
            pitch=table.pitch,
            motions=self.motions,
            closures=self.closures,
            root=self.root,
        )
        events, first_event, paths, groups, column_at, columns, fronts, kept = self._events(made, count)
        self._table = Table(
            LoopsPlan(
                joints,
                events=events,
                first_event=first_event,
                paths=paths,
                groups=groups,
                column_at=column_at,
                columns=aligned_zeros(columns),
                fronts=aligned_zeros(fronts),
                kept=aligned_zeros(kept),
                loads=self.loads,
                boundary=self.boundary,
                open=self._open_rows(),
                aim=self.aim,
            )
        )
        self.plan = self._table.data

    @property
    def open_groups(self) -> list[int]:
        """What is open in the end, by the numbers of `Closings`, as the value has its groups."""
        return sorted({loop for _, loop, _, _ in self.closings.open})

    @property
    def far(self) -> Integers:
        """Which of the loops have an end elsewhere."""
        return np.flatnonzero((self._loop_table.bodies == ELSEWHERE).any(axis=1))

    def near_motion(self, loop: int) -> Floats:
        """Motion of the body, in its frame, of the end here of a loop whose other one is elsewhere [BOUNDARY]."""
        near = 1 - int(np.flatnonzero(self._loop_table.bodies[loop] == ELSEWHERE)[0])
        found, frame = self.motions.reshape(-1, BOUNDARY)[self._rows[loop, near]].copy(), self._frames[loop, near]
        found[:9] = (frame @ found[:9].reshape(3, 3)).ravel()
        found[12:] = (found[12:].reshape(2, 3) @ frame.T).ravel()
        return found

    def place_far(self, loop: int, motion: Floats) -> None:
        """Say how the other end moves."""
        far = int(np.flatnonzero(self._loop_table.bodies[loop] == ELSEWHERE)[0])
        self.motions.reshape(-1, BOUNDARY)[self._rows[loop, far]] = motion

    def room(self) -> MixedRoom:
        """Room that the value of the interval needs."""
        return MixedRoom(len(self.boundary) // BOUNDARY, len(self.open_groups))

    @property
    def open_sizes(self) -> list[int]:
        """How many columns of each open group may be in use."""
        constraints = self._loop_table.constraints
        return [int(constraints[loop]) if loop < len(constraints) else COLUMNS for loop in self.open_groups]

    @property
    def open_bodies(self) -> list[int]:
        """Which of the open groups are those of the open bodies."""
        first, last = len(self._loop_table), self.closings.behind_bodies
        return [k for k, loop in enumerate(self.open_groups) if first <= loop < last]

    def groups(self, outside: Outside, first: int) -> list[OpenGroup]:
        """What the value of the interval has open, which begins with body `first`."""
        table, found = self._loop_table, []
        behind = self._system.n_bodies
        for loop in self.open_groups:
            bits = sum(1 << slot for slot, other, _, _ in self.closings.open if other == loop)
            if loop < len(table):
                number, missing = behind + int(table.numbers[loop]), int((table.bodies[loop] == ELSEWHERE).sum())
                sort = TO_WORLD if self.closings.is_to_world(loop) else LOOP
                found.append(OpenGroup(number, missing, bits, sort))
            elif loop < self.closings.behind_bodies:
                k = loop - len(table)
                found.append(OpenGroup(int(outside.open[k]), int(outside.ends[k]), bits, OPEN_BODY))
            else:
                number = behind + len(self._system.loops) + first + loop - self.closings.behind_bodies
                found.append(OpenGroup(number, 0, bits, TO_WORLD))
        return found

    def _open_rows(self) -> Integers:
        groups, fronts = self.open_groups, self.closings.fronts
        rows = np.zeros((len(self.closings.open), 8), np.int64)
        for row, (slot, loop, group, front) in zip(rows, self.closings.open, strict=True):
            row[:5] = slot, self._where[front], ROW * fronts[front].most, group, groups.index(loop)
            row[5] = loop if loop < len(self._loop_table) else -1
        return rows

    def violations(self) -> Floats:
        """How far from closed the loops were when they were last measured, in positions and velocities [n, 2].

        Norms over what their joints constrain (m and rad, m/s and rad/s, together).
        """
        measured = self.closures[: len(self._loop_table) * CLOSURE].reshape(-1, CLOSURE)
        found = [measured[:, at : at + ROW] / self._loop_table.scales for at in (POSITION, VELOCITY)]
        return np.linalg.norm(np.stack(found, axis=1), axis=2)

    def joint_loads(self) -> Floats:
        """Loads of the loop joints that an evaluation found [n, 6]: see `loops.ClosedLoops.loads`."""
        load = self._acting()[:, 1]
        load[:, :3] -= np.cross(self._loop_table.positions[:, 1], load[:, 3:])
        return load

    def wrenches(self) -> tuple[Integers, Floats]:
        """The bodies here [k] on which loops act, and the loads on them that an evaluation found [k, 6].

        Moments (N m) about, and forces (N) at, the bodies' origins, in their frames; a body for each end that it has.
        """
        here = self._loop_table.bodies >= 0
        return self._loop_table.bodies[here], self._acting()[here]

    def _acting(self) -> Floats:
        """What loops do at the origins of their two bodies, in the frames of these [n, 2, 6]."""
        measured = self.closures[: len(self._loop_table) * CLOSURE].reshape(-1, CLOSURE)
        columns = measured[:, : 2 * SIX].reshape(-1, 2, 6, ROW)
        acting = np.einsum("neik,nk->nei", columns, self.loads.reshape(-1, ROW)).reshape(-1, 2, 2, 3)
        return np.einsum("neij,nepj->nepi", self._frames, acting).reshape(-1, 2, 6)

    def farthest(self) -> float:
        """How far a step that carries an end is from the world's origin (m), as last measured."""
        return float(np.abs(self.motions.reshape(-1, BOUNDARY)[:, 9:12]).max())

    @property
    def numbers(self) -> Integers:
        """Which loops of the system these are [n]."""
        return self._loop_table.numbers

    @staticmethod
    def _joint_rows(table: LoopTable, made: Build, m: int) -> Integers:
        rows = np.zeros((len(table), 8), np.int64)
        world, elsewhere = table.bodies == WORLD, table.bodies == ELSEWHERE
        steps = np.where(table.bodies >= 0, made.body_step[np.maximum(table.bodies, 0)], m)
        rows[:, :2] = np.where(elsewhere, m + 1 + np.arange(len(table))[:, None], steps)
        rows[:, 2:4] = np.stack((table.turns, table.constraints), axis=1)
        rows[:, 4] = np.where(world[:, 0], WORLD_IS_A, np.where(world[:, 1], WORLD_IS_B, 0))
        rows[:, 5] = table.pitch != 0.0
        return rows

    def _events(
        self, made: Build, count: int
    ) -> tuple[Integers, Integers, Integers, Integers, Integers, int, int, int]:
        """The tables of events, and the room that they need."""
        closings, structure = self.closings, made.structure
        lengths = [ROW * front.most for front in closings.fronts]
        where, at = np.full(len(lengths), -1), _Rooms()
        m = len(structure.steps)
        found: list[tuple[int, ...]] = []
        paths: list[int] = []
        groups: list[int] = []
        column_at = np.zeros(len(structure.axes), np.int64)
        columns = kept = 0
        numbers = np.zeros(m + 1, np.int64)  # events of each step
        bodies = sorted(closings.by_body, key=lambda body: -int(made.first_step[body]))
        for body in bodies:
            before = len(found)
            for event in closings.by_body[body]:
                length = lengths[event.front]
                size = front_size.py_func(length // ROW)
                if event.kind == BEGIN:
                    where[event.front] = at.take(size)
                front = int(where[event.front]), length
                if event.kind == MOVE:
                    steps = [
                        step
                        for on in event.path
                        for step in range(int(made.first_step[on]), int(made.body_step[on]) + 1)
                    ]
                    for step in steps:
                        for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
                            column_at[d] = columns
                            columns += length
                    found.append((MOVE, *front, len(paths), len(steps), 0, 0, 0))
                    paths += steps
                elif event.kind == FOLD:
                    other = lengths[event.other]
                    pairs = [number for pair in event.pairs for number in pair]
                    found.append((FOLD, *front, int(where[event.other]), other, len(groups), len(pairs), 0))
                    groups += pairs
                    at.give(int(where[event.other]), front_size.py_func(other // ROW))
                elif event.kind == SETTLE:
                    on = event.numbers[0]
                    pairs = [number for pair in event.pairs for number in pair]
                    slot = int(structure.steps[made.body_step[on], SINK])
                    found.append((SETTLE, *front, len(groups), slot, kept, len(pairs), 0))
                    groups += pairs
                    kept += settled_size.py_func(length // ROW)
                elif event.kind == CLOSE:
                    group, on, loop = event.numbers
                    loop = loop if loop < count else -1
                    slot = int(structure.steps[made.body_step[on], SINK]) if on >= 0 else -1 - on
                    found.append((CLOSE, *front, group, slot, kept, loop, 0))
                    kept += kept_size.py_func(length // ROW)
                elif event.kind == END:
                    group, end = event.numbers
                    loop, second = end // 2, end % 2
                    none, unit = count * CLOSURE, count * CLOSURE + ROW
                    if loop < count:
                        base = loop * CLOSURE
                        alone = self._loop_table.bodies[loop, 1 - second] == WORLD
                        found.append(
                            (END, *front, group, base + second * SIX, base + MINUS_S if second or alone else none, 0, 0)
                        )
                    else:
                        found.append((END, *front, group, unit, none, 0, 0))
                else:
                    found.append((BEGIN, *front, 0, 0, 0, 0, 0))
            numbers[int(made.first_step[body])] += len(found) - before
        first_event = np.zeros(m + 1, np.int64)
        first_event[:m] = np.cumsum(numbers[:m][::-1])[::-1]
        events = np.array(found, np.int64).reshape(-1, 8)
        self._where = where
        return (
            events,
            first_event,
            np.array(paths, np.int64),
            np.array(groups, np.int64),
            column_at,
            columns,
            at.size,
            kept,
        )


def _aligned(values: Floats) -> Floats:
    room = aligned_zeros(values.size)
    room[:] = values.ravel()
    return room
