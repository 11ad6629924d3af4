"""The loops of an interval of bodies, made ready for its walks: their tables, and what was found of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mpimbs.model.contents import Contents
from mpimbs.spatial.columns import SIX
from mpimbs.spatial.fronts import COLUMNS, front_size, kept_size
from mpimbs.spatial.memory import Table, aligned, aligned_zeros
from mpimbs.spatial.mixed import MixedRoom, OpenGroup
from mpimbs.spatial.rows import ROW
from mpimbs.spatial.settling import settled_size
from mpimbs.sweep.build import Build
from mpimbs.sweep.closing import BEGIN, CLOSE, END, FOLD, MOVE, SETTLE, LoopsPlan
from mpimbs.sweep.loop_events import Closings, groups_of
from mpimbs.sweep.loop_joints import (
    CLOSURE,
    DRIVE,
    DRIVE_A,
    ENERGY,
    MINUS_S,
    POSITION,
    TORQUE,
    VELOCITY,
    WORLD_IS_A,
    WORLD_IS_B,
    ClosingJoints,
)
from mpimbs.sweep.loop_table import AT_WORLD, ELSEWHERE, LoopTable
from mpimbs.sweep.structure import BOUNDARY, FIRST_U, LAST_U, SINK

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


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
        self._drives = np.ascontiguousarray(table.drives).ravel()
        self._rows = self._joint_rows(table, made, m)
        joints = ClosingJoints(
            rows=self._rows,
            ends=table.ends(made).ravel(),
            subspaces=aligned(table.subspaces.ravel()),
            pitch=table.pitch,
            drives=self._drives,
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
        return MixedRoom(len(self.boundary) // BOUNDARY, len(self.closings.open_groups))

    @property
    def open_sizes(self) -> list[int]:
        """How many columns of each open group may be in use."""
        constraints = self._loop_table.constraints
        return [int(constraints[loop]) if loop < len(constraints) else COLUMNS for loop in self.closings.open_groups]

    @property
    def open_bodies(self) -> list[int]:
        """Which of the open groups are those of the open bodies."""
        first, last = len(self._loop_table), self.closings.behind_bodies
        return [k for k, loop in enumerate(self.closings.open_groups) if first <= loop < last]

    def groups(self, opened: Integers, ends: Integers, first: int) -> list[OpenGroup]:
        """What the value of the interval has open, which begins with body `first`; see `interval.Outside`."""
        return groups_of(self._system, self._loop_table, self.closings, opened, ends, first)

    def _open_rows(self) -> Integers:
        groups, fronts = self.closings.open_groups, self.closings.fronts
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

    @property
    def owned(self) -> npt.NDArray[np.bool_]:
        """Which of the loops are told here where two ranks have an end: those whose second body is here [n]."""
        first, second = self._loop_table.bodies.T
        return (second >= 0) | ((second == AT_WORLD) & (first >= 0))

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
        acting = np.einsum("neik,nk->nei", columns, self.loads.reshape(-1, ROW))
        acting += measured[:, DRIVE_A : DRIVE_A + 2 * ROW].reshape(-1, 2, ROW)[:, :, :6]
        acting = acting.reshape(-1, 2, 2, 3)
        return np.einsum("neij,nepj->nepi", self._frames, acting).reshape(-1, 2, 6)

    def energy_and_power(self) -> tuple[float, float]:
        """Energy of springs (J), and power of dampers and torques (W), of the loops that this interval counts.

        Of each loop one does: that with its first body, or where that is the world the second.
        """
        measured = self.closures[: len(self._loop_table) * CLOSURE].reshape(-1, CLOSURE)
        bodies = self._loop_table.bodies
        counted = (bodies[:, 0] >= 0) | ((bodies[:, 0] == AT_WORLD) & (bodies[:, 1] >= 0))
        energy, power = measured[counted, ENERGY : ENERGY + 2].sum(axis=0).tolist()
        return energy, power

    @property
    def torques(self) -> dict[int, Any]:
        """The loops whose torque is a function of time (s)."""
        return self._loop_table.torques

    def freedoms(self, loop: int) -> int:
        """Degrees of freedom of a loop's joint."""
        return 6 - int(self._loop_table.constraints[loop])

    def set_torque(self, loop: int, torque: Floats) -> None:
        """Set the torques on a loop's freedoms."""
        rows = self._drives.reshape(-1, 6, DRIVE)[loop]
        rows[: len(torque), TORQUE] = torque

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
        world, elsewhere = table.bodies == AT_WORLD, table.bodies == ELSEWHERE
        steps = np.where(table.bodies >= 0, made.body_step[np.maximum(table.bodies, 0)], m)
        rows[:, :2] = np.where(elsewhere, m + 1 + np.arange(len(table))[:, None], steps)
        rows[:, 2:4] = np.stack((table.turns, table.constraints), axis=1)
        rows[:, 4] = np.where(world[:, 0], WORLD_IS_A, np.where(world[:, 1], WORLD_IS_B, 0))
        rows[:, 5] = table.pitch != 0.0
        rows[:, 6] = table.driven
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
                grounded = int(event.front in closings.grounded)
                if event.kind == MOVE:
                    steps = [
                        step
                        for on in event.path
                        for step in range(int(made.first_step[on]), int(made.body_step[on]) + 1)
                    ]
                    for step in steps:
                        for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
                            column_at[d] = columns
                            columns += ROW * event.numbers[0]
                    found.append((MOVE, *front, len(paths), len(steps), ROW * event.numbers[0], 0, 0))
                    paths += steps
                elif event.kind == FOLD:
                    other = lengths[event.other]
                    pairs = [number for pair in event.pairs for number in pair]
                    found.append((FOLD, *front, int(where[event.other]), other, len(groups), len(pairs), grounded))
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
                    found.append((CLOSE, *front, group, slot, kept, loop, grounded))
                    kept += kept_size.py_func(length // ROW)
                elif event.kind == END:
                    group, end = event.numbers
                    loop, second = end // 2, end % 2
                    none, unit = count * CLOSURE, count * CLOSURE + ROW
                    if loop < count:
                        base = loop * CLOSURE
                        alone = self._loop_table.bodies[loop, 1 - second] == AT_WORLD
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
