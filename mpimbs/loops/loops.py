"""The loops of an interval of bodies, made ready for its walks: their tables, and what was found of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.memory import Table, aligned, aligned_zeros, rows_of
from mpimbs.loops.apart import ActingLoops, MeasuredLoops, add_what_loops_do, numbers_at
from mpimbs.loops.closing import LoopsPlan
from mpimbs.loops.event_tables import EventTables
from mpimbs.loops.loop_events import Closings, groups_of
from mpimbs.loops.loop_joints import (
    ANGLE,
    AXIS,
    CLOSURE,
    DRIVE,
    DRIVE_A,
    DRIVE_B,
    ENERGY,
    GEARED,
    GEOMETRY,
    MINUS_S,
    ROOM_OF_A_LANE,
    SPRING,
    TORQUE,
    WORLD_IS_A,
    WORLD_IS_B,
    WOUND,
    ClosingJoints,
)
from mpimbs.loops.loop_table import AT_WORLD, ELSEWHERE, LoopTable
from mpimbs.model.contents import Contents
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.build import Build, different_rows
from mpimbs.sweep.structure import BOUNDARY
from mpimbs.values.fronts import COLUMNS
from mpimbs.values.value import SIX, LoadGroup


class LoopJointArrays(NamedTuple):
    """The joints of some loops as evaluations leave them."""

    # [n, CLOSURE]: what each asks, see `loops.loop_joints`; of ends elsewhere in the frame of the body
    closures: Floats
    loads: Floats  # [n, ROW]: written by whoever finds them: what each carries, in terms of C
    bodies: Integers  # [n, 2]: by their numbers here; AT_WORLD, or ELSEWHERE
    constraints: Integers  # [n]
    scales: Floats  # [n, ROW]: how much larger than of length 1 the columns of C are
    moments: npt.NDArray[np.bool_]  # [n, ROW]: which of them are moments alone


class LoopArrays:
    """The arrays of the loops of some bodies, swept in doubles or side by side in lanes, and what walks are given.

    Parameters
    ----------
    tables : sequence of LoopTable
        Of each lane all loops of which an end is on its bodies, in the same order.
    made : Build
        The bodies, with slots for those at which loops are closed (`Closings.slotted`).
    closings : Closings
        Of the first lane, as of any other.
    steps : array [lanes, n]
        Steps that carry the bodies that the tables number; -1 of a body that is not among these.
    frames : array [n, 3, 3]
        Of all these, step to body components.
    slots : int
        Bodies outside.
    aim : array [4]
        See `closing.LoopsPlan`.
    real : sequence of slices, optional
        Which of the loops of each lane there are; all by default.

    Attributes
    ----------
    plan : int64 array
        What the walks are given (`loops.closing`).
    lanes : list of Loops
        What is told of each lane's.
    events : EventTables
    fronts : array
        Where walks keep what is open.
    far_item : int
        Where the motion of the end elsewhere of the first loop is, among all.
    """

    def __init__(
        self,
        system: Contents,
        tables: Sequence[LoopTable],
        made: Build,
        closings: Closings,
        steps: Integers,
        frames: Floats,
        slots: int,
        aim: Floats,
        real: Sequence[slice] = (),
    ) -> None:
        first, n, count, m = tables[0], len(tables), len(tables[0]), len(made.structure.steps)
        rows = _joint_rows(first, steps[0], m)
        geared = _geared(first, steps[0], rows, m + 1 + count)
        # Behind the steps stand the world, of each loop the end elsewhere, and the ends of gears.
        motions = np.zeros((m + 1 + count + len(geared), BOUNDARY, n))
        boundary = np.zeros((slots, BOUNDARY, n))
        motions[m:, [0, 4, 8]] = boundary[:, [0, 4, 8]] = 1.0
        closures = aligned_zeros((count * CLOSURE + ROW + SIX) * n)
        closures[-SIX * n :] = np.repeat(np.eye(6, ROW).ravel(), n)
        for gear in first.gears.tolist():  # never in lanes
            for end, axis in enumerate(first.axes[gear].tolist()):
                closures[gear * CLOSURE + end * SIX + axis * ROW] = first.factors[gear, end]
        geometry = [_side_by_side(parts) for parts in zip(*(table.geometry(frames) for table in tables), strict=True)]
        different, rows[:, GEOMETRY] = different_rows(np.concatenate(geometry, axis=1))
        ends, subspaces = np.split(different, [geometry[0].shape[1]], axis=1)
        loads, asked = aligned_zeros(count * ROW * n), aligned_zeros(count * ROW * n)
        drives = np.ascontiguousarray(first.drives).ravel()
        self._motions, self.far_item = aligned(motions.ravel()), m + 1
        self.events = EventTables(closings, made, first.bodies)
        self.boundary = aligned(boundary.ravel())
        joints = ClosingJoints(
            rows=rows,
            ends=aligned(ends.ravel()),
            subspaces=aligned(subspaces.ravel()),
            pitch=first.pitch,
            drives=drives,
            motions=self._motions,
            geared=geared,
            closures=closures,
            asked=asked,
            root=np.array([0.0, 0.0, 0.0, *(-g for g in system.gravity)]),
            room=np.zeros(ROOM_OF_A_LANE),
        )
        events, self.fronts = self.events, aligned_zeros(self.events.fronts * n)
        self._table = Table(
            LoopsPlan(
                joints,
                events=events.events,
                first_event=events.first_event,
                paths=events.paths,
                groups=events.groups,
                column_at=events.column_at,
                columns=aligned_zeros(events.columns * n),
                fronts=self.fronts,
                kept=aligned_zeros(events.kept * n),
                loads=loads,
                boundary=self.boundary,
                open=_open_rows(closings, events, count),
                used=int(first.constraints.max(initial=1)) if n > 1 else COLUMNS,
                aim=aim,
                lever=np.array([first.lever]),
            )
        )
        self.plan = self._table.data
        self.lanes = [
            Loops(
                table.some(np.arange(count)[there], table.bodies),
                closings,
                rows[there],
                steps[lane],
                frames,
                _lane(closures, lane, n)[: count * CLOSURE].reshape(-1, CLOSURE)[there],
                _lane(loads, lane, n).reshape(-1, ROW)[there],
                _lane(asked, lane, n).reshape(-1, ROW)[there],
                _lane(self._motions, lane, n).reshape(-1, BOUNDARY),
                _lane(self.boundary, lane, n),
                drives,
                aim,
            )
            for lane, (table, there) in enumerate(zip(tables, real or [slice(None)] * n, strict=True))
        ]

    def motion_at(self, lane: int, item: int) -> tuple[Floats, int, int]:
        """Where a motion stands: the array, the first of its numbers, how far apart they are."""
        n = len(self.lanes)
        return self._motions, item * BOUNDARY * n + lane, n


def _lane(array: Floats, lane: int, lanes: int) -> Floats:
    return array.reshape(-1, lanes)[:, lane]


def _side_by_side(arrays: tuple[Floats, ...]) -> Floats:
    """Rows of numbers of all lanes, from those of each."""
    return np.stack(arrays, axis=2).reshape(len(arrays[0]), arrays[0].shape[1] * len(arrays))


def _joint_rows(table: LoopTable, steps: Integers, m: int) -> Integers:
    rows = np.zeros((len(table), 8), np.int64)
    world, far = table.bodies == AT_WORLD, ends_here(table.bodies, steps) == ELSEWHERE
    carried = np.where(table.bodies >= 0, steps[np.maximum(table.bodies, 0)], m)
    rows[:, :2] = np.where(far, m + 1 + np.arange(len(table))[:, None], carried)
    rows[:, 2:4] = np.stack((table.turns, table.constraints), axis=1)
    rows[:, 4] = np.where(world[:, 0], WORLD_IS_A, np.where(world[:, 1], WORLD_IS_B, 0))
    rows[:, 5] = table.pitch != 0.0
    rows[:, 6] = table.driven
    return rows


def _geared(table: LoopTable, steps: Integers, rows: Integers, behind: int) -> Integers:
    """The ends of gears here, as of `ClosingJoints`; in the rows of joints their motions are from `behind` on."""
    found = np.zeros((0, 8), np.int64)
    for gear in table.gears.tolist():
        for end, body in enumerate(ends_here(table.bodies, steps)[gear].tolist()):
            if body >= 0:
                rows[gear, end] = behind + len(found)
                found = np.append(found, [[rows[gear, end], steps[body], 0, 0, 0, 0, 0, 0]], axis=0)
    return found


def _open_rows(closings: Closings, events: EventTables, count: int) -> Integers:
    groups = closings.open_groups
    transfers = sorted((groups.index(loop), slot) for slot, loop, _, _ in closings.open)
    rows = np.zeros((len(closings.open), 8), np.int64)
    for row, (slot, loop, group, front) in zip(rows, closings.open, strict=True):
        row[:5] = slot, events.where[front], events.lengths[front], group, groups.index(loop)
        row[5] = loop if 0 <= loop < count else -1
        row[6] = transfers.index((row[4], slot))
    return rows


def ends_here(bodies: Integers, steps: Integers) -> Integers:
    """The bodies of loops [n, 2]; ELSEWHERE where no step of these carries them."""
    return np.where((bodies >= 0) & (steps[np.maximum(bodies, 0)] < 0), ELSEWHERE, bodies)


class Loops:
    """The loops of a lane, or of those swept in doubles: their arrays, and the views that Python reads and writes.

    Parameters
    ----------
    rows : array [n, 8]
        Of the joints.
    steps : array
        As of a lane of `LoopArrays`.
    frames : array [bodies, 3, 3]
    closures, loads, motions : array [n, CLOSURE], [n, ROW], [any, BOUNDARY]
        What evaluations write.
    asked : array [n, ROW]
        What is asked of accelerations beside that they keep loops closed, in terms of C.
    boundary : array [k * BOUNDARY]
        Motions of the bodies outside, written before.
    drives, aim : array
        As of the plan.
    """

    def __init__(
        self,
        table: LoopTable,
        closings: Closings,
        rows: Integers,
        steps: Integers,
        frames: Floats,
        closures: Floats,
        loads: Floats,
        asked: Floats,
        motions: Floats,
        boundary: Floats,
        drives: Floats,
        aim: Floats,
    ) -> None:
        self.closings, self._loop_table = closings, table
        self._rows, self._frames = rows, table.frames(frames)
        self._measured, self._loads, self._motions = closures, loads, motions
        self.asked, self.boundary, self._drives, self.aim = asked, boundary, drives, aim
        here = ends_here(table.bodies, steps)
        self._here = here >= 0
        self._worldly = here == AT_WORLD

    @property
    def joints(self) -> LoopJointArrays:
        """Their joints."""
        table = self._loop_table
        moments = np.logical_not(table.subspaces[:, 3:].any(axis=1))
        return LoopJointArrays(self._measured, self._loads, table.bodies, table.constraints, table.scales, moments)

    @property
    def far(self) -> Integers:
        """Which of the loops have an end elsewhere."""
        return np.flatnonzero((self._loop_table.bodies == ELSEWHERE).any(axis=1))

    def near_motion(self, loop: int) -> tuple[Floats, Floats]:
        """Where the motion of the end here of a loop is whose other one is elsewhere [BOUNDARY]; and what turns it into
        the frame of the body."""
        near = 1 - self._far_end(loop)
        frame = np.eye(3) if loop in self._loop_table.gears else self._frames[loop, near]
        return self._motions[self._rows[loop, near]], frame

    def far_motion(self, loop: int) -> Floats:
        """Where the motion of the end elsewhere is to be written [BOUNDARY], in the frame of its body."""
        return self._motions[self._rows[loop, self._far_end(loop)]]

    def _far_end(self, loop: int) -> int:
        return int(np.flatnonzero(self._loop_table.bodies[loop] == ELSEWHERE)[0])

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

    def groups(self, opened: Integers, ends: Integers, first: int, system: Contents) -> list[LoadGroup]:
        """Give the open groups of the value of the interval, which begins with body `first`; see `interval.Outside`."""
        return groups_of(system, self._loop_table, self.closings, opened, ends, first)

    def measured(self) -> MeasuredLoops:
        """Give where they are measured."""
        table, measured, motions = self._loop_table, self._measured, self._motions[:, 9:12]
        strides = [stride // motions.itemsize for stride in motions.strides]
        first, size = numbers_at(measured[:1])  # of each loop the same, some way behind
        columns = first + measured.strides[0] * np.arange(len(table)), size, measured.strides[1] // measured.itemsize
        loops = np.stack(np.broadcast_arrays(*columns, table.numbers), axis=1)
        drives = self._drives.reshape(-1, 6, DRIVE)
        windings = [
            (*numbers_at(drives[loop, freedom, WOUND:][:1]), *numbers_at(measured[loop, ENERGY + 2 + freedom :][:1]))
            for loop, freedom in zip(*self._winding, strict=True)
        ]
        lengths = np.broadcast_to(table.lengths[:, None], table.scales.shape)
        units = np.stack((table.scales, lengths), axis=1)
        factors, geared = np.abs(table.factors) / table.lengths[:, None], table.turns == GEARED
        by_coordinates, by_neither = np.where(geared, (factors[:, :2].sum(axis=1), factors[:, 2]), 0.0)
        roundings = np.stack((by_coordinates, by_neither, np.where(geared, 0.0, 1.0 / table.lengths)), axis=1)
        return MeasuredLoops(
            rows_of(loops.tolist()),
            rows_of([(*numbers_at(motions), *strides[::-1])]),
            rows_of(windings),
            units.ravel(),
            roundings.ravel(),
        )

    def joint_loads(self) -> Floats:
        """Loads of the loop joints that an evaluation found [n, 6]: see `JointLoads.joints_and_loops`."""
        load = np.zeros((len(self._loop_table), 6))
        add_what_loops_do(self._on_second.data, load.reshape(-1), np.zeros(0))
        load[:, :3] -= np.cross(self._loop_table.positions[:, 1], load[:, 3:])
        return load

    @functools.cached_property
    def _on_second(self) -> Table:
        """Where it stands what they carry, of each on its second body, in the frame of that."""
        numbers = np.arange(len(self._loop_table))
        ends = self._carried(numbers, np.full_like(numbers, SIX), np.full_like(numbers, DRIVE_B - SIX), numbers)
        return Table(ActingLoops(ends, np.ascontiguousarray(self._frames[:, 1]).ravel(), rows_of([])))

    @property
    def owned(self) -> npt.NDArray[np.bool_]:
        """Which of the loops are told here where two ranks have an end: those whose second body is here [n]."""
        found: npt.NDArray[np.bool_] = self._here[:, 1] | (self._worldly[:, 1] & self._here[:, 0])
        return found

    def acting(self, made: Build, speeds: Integers, first: int) -> ActingLoops:
        """Give where it stands what they carry, and on what it acts of some bodies as one piece, among which these
        begin with the `first`; `speeds` says where those of each begin."""
        table, frames = self._loop_table, self._frames
        loop, end = np.nonzero(self._acts)
        bodies = first + table.bodies[loop, end]
        turns = np.swapaxes(made.body_frame[bodies], 1, 2) @ frames[loop, end]
        ends = self._carried(loop, end * SIX, DRIVE_A + end * (ROW - SIX), made.body_step[bodies])
        gear, end = np.nonzero(self._here & (table.turns == GEARED)[:, None])
        on = speeds[first + table.bodies[gear, end]]
        gears = self._carried(gear, end * SIX + table.axes[gear, end] * ROW, np.zeros_like(end), on)
        return ActingLoops(ends, turns.ravel(), gears)

    def _carried(self, loop: Integers, number: Integers, driven: Integers, on: Integers) -> Integers:
        """Rows of `ActingLoops`: of loops, from a number of what is measured on."""
        found = []
        for numbers, first in ((self._measured, number), (self._loads, 0)):
            begin, stride = numbers_at(numbers[:1])[0], numbers.strides[1] // numbers.itemsize
            size = (numbers.shape[1] - first - 1) * stride + 1
            found += [begin + loop * numbers.strides[0] + first * numbers.strides[1], size, stride]
        at, size, stride, carried, count, apart = found
        columns = np.broadcast_arrays(at, size, stride, driven, carried, count, apart, on)
        return np.ascontiguousarray(np.stack(columns, axis=1), np.int64)

    @functools.cached_property
    def _acts(self) -> npt.NDArray[np.bool_]:
        """Which ends are of bodies here, and not of gears [n, 2]."""
        return self._here & (self._loop_table.turns != GEARED)[:, None]

    @property
    def ends(self) -> Integers:
        """The bodies here on which loops act, not gears [k]: one for each end that it has."""
        found: Integers = self._loop_table.bodies[self._acts]
        return found

    def rows(self, accelerations: Floats, magnitudes: Floats, of_joints: Floats) -> tuple[Floats, Floats]:
        """Give what is left of the equations that the joints ask of accelerations, and its magnitude [n, ROW] each.

        What of them this side has: of a loop with an end elsewhere the rest is there. After an evaluation.

        Parameters
        ----------
        accelerations : array [bodies, 6]
            Of the bodies at their origins, in their frames.
        magnitudes : array [bodies, 2]
            Of these (`sweep.magnitudes`).
        of_joints : array [bodies]
            The first of the accelerations of their inboard joints.
        """
        table, gears = self._loop_table, self._loop_table.turns == GEARED
        left, most = np.zeros((len(table), ROW)), np.zeros((len(table), ROW))
        columns = self._measured[:, : 2 * SIX].reshape(-1, 2, 6, ROW)
        for end in (0, 1):
            here = self._here[:, end] & ~gears
            bodies, asked = table.bodies[here, end], columns[here, end]
            seen = accelerations[bodies].reshape(-1, 2, 3) @ self._frames[here, end]  # in the frame of the step
            left[here] += np.einsum("nij,ni->nj", asked, seen.reshape(-1, 6))
            lengths = np.linalg.norm(asked.reshape(-1, 2, 3, ROW), axis=2)
            most[here] += np.einsum("nkj,nk->nj", lengths, magnitudes[bodies])
            here = self._here[:, end] & gears
            bodies, factors = table.bodies[here, end], table.factors[here, end]
            left[here, 0] += factors * of_joints[bodies]
            most[here, 0] += np.abs(factors) * magnitudes[bodies, table.axes[here, end] // 3]
        asked = self._measured[self.owned, MINUS_S : MINUS_S + ROW]
        left[self.owned] += asked
        most[self.owned] += np.abs(asked)
        beyond = np.arange(ROW) >= table.constraints[:, None]
        left[beyond], most[beyond] = 0.0, 0.0
        return left, most

    @property
    def largest_loads(self) -> Floats:
        """The largest number of what each carries [n], in terms of C."""
        beyond = np.arange(ROW) >= self._loop_table.constraints[:, None]
        return np.abs(np.where(beyond, 0.0, self._loads)).max(axis=1, initial=0.0)

    def driven_by(self) -> float:
        """Sum of the magnitudes of what drives the joints, moments over the loops' lengths (N)."""
        drives = np.abs(self._measured[:, DRIVE_A : DRIVE_A + 2 * ROW]).reshape(-1, 2, ROW)
        moments = drives[:, :, :3].sum(axis=(1, 2)) / self._loop_table.lengths
        return float(moments.sum() + drives[:, :, 3:].sum())

    def energies_and_powers(self) -> tuple[list[Floats], list[Floats]]:
        """Where the energy of springs (J), and the power of dampers and torques (W), of each driven loop stands that
        this interval counts [1].

        Of each loop one does: that with its first body, or where that is the world the second.
        """
        counted = (self._here[:, 0] | (self._worldly[:, 0] & self._here[:, 1])) & (self._loop_table.driven > 0)
        numbers = np.flatnonzero(counted).tolist()
        energies, powers = ([self._measured[k, at : at + 1] for k in numbers] for at in (ENERGY, ENERGY + 1))
        return energies, powers

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

    @functools.cached_property
    def _winding(self) -> tuple[Integers, Integers]:
        """The loops and freedoms that turn about an axis against a spring, and the numbers of these."""
        rows = self._drives.reshape(-1, 6, DRIVE)[: len(self._loop_table)]
        turns = (rows[:, :, SPRING] != 0.0) & (rows[:, :, AXIS] < 3) & (rows[:, :, ANGLE] < 2)
        loop, freedom = np.nonzero(turns & (self._loop_table.turns != GEARED)[:, None])
        return loop, freedom

    @property
    def winds(self) -> bool:
        """Whether springs act along any angles."""
        return len(self._winding[0]) > 0

    @property
    def wound(self) -> dict[int, list[float]]:
        """Angles from rest (rad), turns counted, of the freedoms of loops that this interval tells, by number."""
        loop, freedom = self._winding
        values = self._drives.reshape(-1, 6, DRIVE)[:, :, WOUND]
        mine = np.unique(loop[self.owned[loop]]).tolist()
        return {int(self.numbers[k]): values[k, freedom[loop == k]].tolist() for k in mine}

    def wind(self, angles: Mapping[int, Sequence[float]]) -> None:
        """Take angles nearest to given ones, of loops by number."""
        loop, freedom = self._winding
        for k in np.unique(loop).tolist():
            if (given := angles.get(int(self.numbers[k]))) is not None:
                self._drives.reshape(-1, 6, DRIVE)[k, freedom[loop == k], WOUND] = given

    @property
    def numbers(self) -> Integers:
        """Which loops of the system these are [n]."""
        return self._loop_table.numbers
