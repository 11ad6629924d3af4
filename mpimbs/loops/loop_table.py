"""The loops of a system as arrays: which bodies, how the joint turns, the loads that it transmits, its frames."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats, Integers
from mpimbs.loops.loop_joints import (
    ABOUT_X_AND_Y,
    ABOUT_Z,
    ANGLE,
    AXIS,
    BALL,
    CROSS_SPRING,
    DAMPING,
    DRIVE,
    END_SIZE,
    GEARED,
    NOT,
    REST,
    SLID_ABOUT_Z,
    SPRING,
    TORQUE,
)
from mpimbs.model import Loop
from mpimbs.model.contents import Contents
from mpimbs.model.gear import Constraint, Gear
from mpimbs.model.joints import JointType
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.build import matrices_of, turned_to
from mpimbs.values.value import SIX

AT_WORLD = -1
ELSEWHERE = -2  # an end on a body of another rank
ABOUT_AXIS, ALONG_AXIS = 2, 5  # unit axes of the joints of gears

_TURNS = {(0,): NOT, (1,): ABOUT_Z, (4,): BALL, (1, 1): ABOUT_X_AND_Y, (0, 1): SLID_ABOUT_Z}
_DIRECTIONS = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0)}


def load_subspace(motion: Floats) -> Floats:
    """Orthonormal basis of the loads that do no work on motions [6, k]: moments, then forces [6, 6 - k].

    Of unit axes where the motions are.
    """
    from scipy.linalg import qr  # takes 0.1 s: where it is needed

    across = np.eye(6) - motion @ np.linalg.pinv(motion)
    basis, _, _ = qr(across, pivoting=True)
    return np.asarray(basis[:, : 6 - motion.shape[1]], np.float64)


def motion_subspace(kind: JointType, pitch: float) -> Floats:
    """Motions that a joint frees [6, nu], in a frame in which all are constant: z is its own axis, if it takes one."""
    free = []
    for step in kind.steps:
        axes = turned_to(np.array([_DIRECTIONS.get(step.align, (0.0, 0.0, 1.0))]))[0]
        for axis in step.axes:
            column = np.zeros(6)
            column[axis // 3 * 3 :][:3] = axes[:, axis % 3]
            if axis < 3:
                column[3:] = pitch * axes[:, axis]
            free.append(column)
    return np.array(free).reshape(-1, 6).T


def _drives(loop: Loop) -> Floats:
    """The freedoms of a loop joint, if any is driven, in T [nu, DRIVE]; see `loops.loop_joints`."""
    if not loop.acts:
        return np.zeros((0, DRIVE))
    kind, rows = loop.kind, np.zeros((loop.kind.nu, DRIVE))
    rows[:, SPRING], rows[:, DAMPING] = loop.stiffness, loop.damping
    if loop.cross_stiffness:
        rows[:, CROSS_SPRING] = loop.cross_stiffness
    rows[:, TORQUE] = 0.0 if callable(loop.torque) else loop.torque
    rows[:, AXIS] = np.abs(motion_subspace(kind, 0.0)).argmax(axis=0)
    at_q = at_u = turned = 0
    for step in kind.steps:
        for axis in step.axes:
            row = rows[at_u]
            if step.turn == 4:
                row[REST:ANGLE], row[ANGLE] = loop.rest[:4], 2
            else:
                row[REST], row[ANGLE] = loop.rest[at_q], turned if axis < 3 else 0
                turned += axis < 3
                at_q += 1
            at_u += 1
    return rows


class LoopTable:
    """Some loops of a system.

    Parameters
    ----------
    loops : sequence of Loop or Gear
    bodies : array [n, 2]
        The numbers of their bodies; -1 the world.
    lengths : array [n]
        What makes of a moment a force like others (m): columns of pure moments are so many times as large, so that
        compliances compare.
    slides : bool array [n, 2]
        Of gears, which of their joints slide.
    """

    def __init__(
        self, loops: Sequence[Constraint], bodies: Integers, lengths: Floats, slides: npt.NDArray[np.bool_]
    ) -> None:
        n = len(loops)
        joints = [(number, loop) for number, loop in enumerate(loops) if isinstance(loop, Loop)]
        there = np.array([number for number, _ in joints], np.int64)
        self.bodies, self.numbers, self.lengths = bodies, np.arange(n), lengths
        # The largest length of all loops of the system (m): in its terms moments and forces compare.
        self.lever = float(lengths.max(initial=0.0)) or 1.0
        # `turns`: how the joint turns (`loops.loop_joints`).
        self.pitch, self.turns, self.constraints = np.zeros(n), np.full(n, GEARED), np.ones(n, np.int64)
        self.pitch[there] = [loop.pitch for _, loop in joints]
        self.turns[there] = [_TURNS[tuple(step.turn for step in loop.kind.steps)] for _, loop in joints]
        self.constraints[there] = [6 - loop.kind.nu for _, loop in joints]
        # C, none of a gear; and how much larger than of length 1 its columns are.
        self.subspaces, self.scales = np.zeros((n, 6, ROW)), np.ones((n, ROW))
        bases: dict[tuple[str, float], Floats] = {}
        for number, loop in joints:
            length = lengths[number]
            key = loop.type, loop.pitch / length
            if key not in bases:
                bases[key] = load_subspace(motion_subspace(loop.kind, loop.pitch / length))
            columns = bases[key] * np.repeat((length, 1.0), 3)[:, None]
            self.scales[number, : columns.shape[1]] = np.linalg.norm(columns, axis=0)
            self.subspaces[number, :, : columns.shape[1]] = columns
        self.driven, self.drives = np.zeros(n, np.int64), np.zeros((n, 6, DRIVE))
        self.torques = {number: loop.torque for number, loop in joints if callable(loop.torque)}
        for number, loop in joints:
            rows = _drives(loop)
            self.driven[number] = len(rows)
            self.drives[number, : len(rows)] = rows
        self.positions, self._from_body = np.zeros((n, 2, 3)), np.tile(np.eye(3), (n, 2, 1, 1))
        self.positions[there] = np.array([loop.positions for _, loop in joints]).reshape(-1, 2, 3)
        turned = matrices_of(np.array([loop.rotations for _, loop in joints]).reshape(-1, 4))
        axes = turned_to(np.array([loop.axis for _, loop in joints]).reshape(-1, 3))
        to_body = turned.reshape(-1, 2, 3, 3) @ axes[:, None]  # joint to body components
        self._from_body[there] = np.swapaxes(to_body, -1, -2)
        # Of a gear f_a, f_b, f, and the unit axes of its joints.
        self.factors, self.axes = np.zeros((n, 3)), np.where(slides, ALONG_AXIS, ABOUT_AXIS)
        for number, gear in enumerate(loops):
            if isinstance(gear, Gear):
                self.scales[number, 0] = 1.0 if slides[number, 1] else lengths[number]
                self.factors[number] = self.scales[number, 0] * np.array((-gear.ratio, 1.0, -gear.offset))

    @property
    def gears(self) -> Integers:
        """Which are gears."""
        return np.flatnonzero(self.turns == GEARED)

    def __len__(self) -> int:
        return len(self.bodies)

    def between(self, cuts: Integers) -> Integers:
        """The owners of both bodies of each loop that leads from one to another [k, 2]; cuts as of `Division`."""
        owners = np.searchsorted(cuts, self.bodies[(self.bodies >= 0).all(axis=1)], side="right") - 1
        found: Integers = owners[owners[:, 0] != owners[:, 1]]
        return found

    def within(self, first: int, last: int) -> LoopTable:
        """Give the loops with an end on the bodies first to last - 1, which are counted from 0 then."""
        here = (self.bodies >= first) & (self.bodies < last)
        bodies = np.where(here, self.bodies - first, np.where(self.bodies < 0, self.bodies, ELSEWHERE))
        return self.some(np.flatnonzero(here.any(axis=1)), bodies)

    def some(self, some: Integers, bodies: Integers) -> LoopTable:
        """Some of these [k], given other numbers of the bodies of all [n, 2]."""
        found: LoopTable = object.__new__(LoopTable)
        names = (
            "driven",
            "drives",
            "pitch",
            "turns",
            "constraints",
            "subspaces",
            "scales",
            "lengths",
            "positions",
            "factors",
            "axes",
            "_from_body",
            "numbers",
        )
        for name in names:
            setattr(found, name, getattr(self, name)[some])
        found.bodies, found.lever = bodies[some], self.lever
        places = {int(number): place for place, number in enumerate(some)}
        found.torques = {places[number]: torque for number, torque in self.torques.items() if number in places}
        return found

    def frames(self, of_bodies: Floats) -> Floats:
        """Step frame to body frame components at the ends [n, 2, 3, 3], given those of all bodies; of those elsewhere
        motions are the body's."""
        here = self.bodies >= 0
        return np.where(here[..., None, None], of_bodies[np.where(here, self.bodies, 0)], np.eye(3))

    def geometry(self, of_bodies: Floats) -> tuple[Floats, Floats]:
        """The numbers of the ends [n, 2 * END_SIZE], in the frames of the steps that carry them, and C [n, 6 * 8]."""
        frames = self.frames(of_bodies)
        found = np.empty((len(self), 2, END_SIZE))
        found[..., :9] = (self._from_body @ frames).reshape(len(self), 2, 9)
        found[..., 9:] = np.einsum("nkji,nkj->nki", frames, self.positions)
        found[self.gears] = 0.0
        found[self.gears, 0, :3] = self.factors[self.gears]
        return found.reshape(-1, 2 * END_SIZE), self.subspaces.reshape(-1, SIX)


def loops_of(system: Contents) -> LoopTable:
    """All loops of a system, of its bodies by number."""
    bodies = system.loops.ends
    lengths, slides = np.zeros(len(bodies)), np.zeros((len(bodies), 2), bool)
    for number, pair in enumerate(bodies.tolist()):
        if isinstance(system.loops[number], Gear):
            slides[number] = [system.segments.template(body).joint.kind.q_units == ("m",) for body in pair]
        radii = [_radius(system, body) for body in pair if body >= 0]
        lengths[number] = max(radii)
    lengths[lengths == 0.0] = lengths.max(initial=0.0) or _reach(system)
    return LoopTable(system.loops, bodies, lengths, slides)


def _reach(system: Contents) -> float:
    """How far ends of loops are from the origins of bodies (m), 1 where nothing has any extent."""
    arms = [
        math.dist(place, (0.0, 0.0, 0.0))
        for loop, ends in zip(system.loops, system.loops.ends.tolist(), strict=True)
        for place, body in zip(getattr(loop, "positions", ()), ends, strict=False)
        if body >= 0
    ]
    return max(arms, default=0.0) or 1.0


def _radius(system: Contents, body: int) -> float:
    """Radius of gyration of a body about its origin (m), 0 of one without mass."""
    made = system.segments.template(body)
    if not made.mass:
        return 0.0
    center = np.array(made.center_of_mass)
    xx, yy, zz = made.inertia[:3]
    return float(np.sqrt(0.5 * (xx + yy + zz) / made.mass + center @ center))
