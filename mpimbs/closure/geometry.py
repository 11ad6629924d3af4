"""Where loop joints lie in a state: the directions in which they hold, and how far they are from closed.

Of a loop, F_a is the joint frame on the first body and F_b that on the second, which moves in F_a as a child's frame
does in the joint frame on its parent. What of that motion the joint allows is found from its steps: the frame before
its last turn has the free axes among its unit axes, and every other unit axis is a constraint, a moment in N m or a
force in N at F_b's origin. A helical joint holds the force along its axis together with the moment that it turns into.

A gear has one constraint, of coordinates of the tree: its load is told as a moment or force along the axis of the joint
of its second body, on that body.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.model import JOINT_TYPES, Loop
from mpimbs.model.columns import offsets
from mpimbs.model.contents import Contents
from mpimbs.model.gear import Constraint, Gear
from mpimbs.model.joints import JointStep, joint_index
from mpimbs.parts.kinematics import moving
from mpimbs.parts.subchain import Subchain
from mpimbs.sweep.build import matrices_of, turned_to
from mpimbs.sweep.structure import BOUNDARY

_ALONG = {"axis": 2, "z": 2, "x": 0, "y": 1}  # unit axis of the joint frame, its z turned to the axis, that a step has
_TURNS = [tuple(_ALONG[step.align] for step in kind.steps if step.turn == 1) for kind in JOINT_TYPES]
_DEPTH = max(map(len, _TURNS))
_TURN = np.array([turns + (-1,) * (_DEPTH + 1 - len(turns)) for turns in _TURNS])  # [type, turn]: -1 none
_BALL = np.array([kind.quaternion for kind in JOINT_TYPES])
_HELD = np.ones((len(JOINT_TYPES), 6), bool)  # [type, unit axis]: three moments, three forces


def _free_axis(step: JointStep, axis: int) -> int:
    """About or along the step's z; or of a step whose frame is the joint's."""
    return axis if step.align == "z" else axis - 2 + _ALONG[step.align]


for _row, _kind in enumerate(JOINT_TYPES):
    for _step in _kind.steps:
        for _axis in _step.axes:
            _HELD[_row, _free_axis(_step, _axis)] = False
SLOWEST = 1e-20  # rad/s: what moves no faster stands still
RESTING = 1e-6  # nor what moves no faster than this part of a fall by its size
FORCE = 3  # the unit axes from here on are translations, their constraints forces


class Held(NamedTuple):
    """The constraints of all loops in a state, loop by loop; world components."""

    origin: Floats  # [loops, 3]: of F_b, m
    moment: Floats  # [rows, 3]: unit moment about it ...
    force: Floats  # [rows, 3]: ... and force that a constraint takes; one is zero but of a helical joint
    violation: Floats  # [rows]: rad or m, of the motion in that direction that would close the loop, reversed


class LoopFrames(NamedTuple):
    """The frames in which the loads of loop joints stand still; world components."""

    origin: Floats  # [loops, 3]: of F_b, m
    first: Floats  # [loops, 3, 3]: F_a
    frame: Floats  # [loops, 3, 3]: before the joint's last turn; of a ball F_b
    turning: Floats  # [loops, 3, 3]: takes how F_b turns beside F_a to how this frame does


class GearJoints(NamedTuple):
    """The gears of a system."""

    loop: Integers  # [gears]: their numbers among the loops
    row: Integers  # [gears]: their constraints
    speed: Integers  # [gears, 2]: of the joints of both bodies
    coordinate: Integers  # [gears, 2]
    factor: Floats  # [gears, 2]: of these
    offset: Floats  # [gears]

    def place(self, q: Floats) -> Floats:
        """Violation of the gears' equations by coordinates [gears]."""
        return np.asarray((self.factor * q[self.coordinate]).sum(axis=1) - self.offset)

    def terms(self, q: Floats) -> Floats:
        """Magnitude of the terms of the gears' equations [gears]."""
        return np.asarray(np.abs(self.factor * q[self.coordinate]).sum(axis=1) + np.abs(self.offset))

    def rate(self, u: Floats) -> Floats:
        """Rate of violation of the gears' equations [gears]."""
        return np.asarray((self.factor * u[self.speed]).sum(axis=1))


class BodyMotions(NamedTuple):
    """Poses and velocities of all bodies, and at last of the world, world components; what they are made from; and the
    motions of the steps."""

    rotation: Floats  # [n + 1, 3, 3]
    origin: Floats  # [n + 1, 3], m
    omega: Floats  # [n + 1, 3], rad/s
    velocity: Floats  # [n + 1, 3], m/s, of the origin
    q: Floats  # [nq]
    u: Floats  # [nu]
    steps: Floats  # [m, BOUNDARY]


def body_motions(system: Contents | Subchain, q: Floats, u: Floats) -> BodyMotions:
    """Poses and velocities of all bodies of a system in a state."""
    part = system if isinstance(system, Subchain) else Subchain(system)
    steps = part.motions(*part.state(q, u)).reshape(-1, BOUNDARY).copy()
    world = np.eye(3), np.zeros(3), np.zeros(3), np.zeros(3)
    r, p, w, v = (np.concatenate([here, still[None]]) for here, still in zip(moving(part, steps), world, strict=True))
    return BodyMotions(r, p, w, v, q, u, steps)


class LoopJoints:
    """The loop joints of a system as arrays.

    Attributes
    ----------
    names : list of str
    bodies : int64 [loops, 2]
        Numbers of the bodies; -1 the world.
    kind : int64 [loops]
        Row of `JOINT_TYPES`; of a gear that of the joint of its second body.
    first : int64 [loops + 1]
        Where the rows of each loop begin.
    loop, axis : int64 [rows]
        Of each constraint, its loop and its unit axis: 0 to 2 moments about, 3 to 5 forces along x, y, z.
    screw : float [rows]
        Of a force the pitch (m/rad) by which it is a moment, too.
    gears : GearJoints
    """

    def __init__(self, system: Contents) -> None:
        loops = system.loops
        self.names = [loop.name for loop in loops]
        self.bodies = system.loops.ends
        joints = [_as_joint(system, loop) for loop in loops]
        geared = np.array([isinstance(loop, Gear) for loop in loops], bool)
        self._ends = np.where(geared[:, None], self.bodies[:, 1:], self.bodies)
        self.kind = np.array([joint_index(joint.type) for joint in joints], np.int64)
        self._positions = np.array([joint.positions for joint in joints], np.float64).reshape(-1, 2, 3)
        turned = matrices_of(np.array([joint.rotations for joint in joints], np.float64).reshape(-1, 4))
        axis = turned_to(np.array([joint.axis for joint in joints], np.float64).reshape(-1, 3))
        self._turned = turned.reshape(-1, 2, 3, 3)
        self._frames = self._turned @ axis[:, None]
        self._pitch = np.array([joint.pitch for joint in joints], np.float64)
        held = np.where(geared[:, None], ~_HELD[self.kind], _HELD[self.kind])
        self.first = offsets(held.sum(axis=1))
        self.loop, self.axis = np.nonzero(held)
        self.screw = np.where(self.axis == 5, self._pitch[self.loop], 0.0)
        self.gears = self._geared(system, np.flatnonzero(geared))

    def _geared(self, system: Contents, gears: Integers) -> GearJoints:
        q, u = system.offsets()
        given = [(-gear.ratio, gear.offset) for gear in system.loops if isinstance(gear, Gear)]
        ratio, offset = np.array(given).reshape(-1, 2).T
        bodies = self.bodies[gears]
        factor = np.stack((ratio, np.ones(len(gears))), axis=1)
        return GearJoints(gears, self.first[gears], u[bodies], q[bodies], factor, offset)

    def held(self, bodies: BodyMotions) -> Held:
        """The constraints, given where the bodies are."""
        frame, _, place_b, rotation, shift = self._relative(bodies)
        before, reached, angle = self._nearest(rotation, shift)
        from scipy.spatial.transform import Rotation  # takes long to import, and most systems have no loops

        error = Rotation.from_matrix(rotation @ np.swapaxes(reached, 1, 2)).as_rotvec()
        shift[:, 2] -= self._pitch * angle
        moved = np.concatenate([np.einsum("nji,nj->ni", before, value) for value in (error, shift)], axis=1)
        units = np.swapaxes(frame @ before, 1, 2)[self.loop, self.axis % 3]
        is_force = self.axis >= FORCE
        # S = z rotation + pitch z translation, so that C = z force - pitch z moment, made of unit length
        screw = self.screw
        length = np.hypot(1.0, screw)[:, None]
        moment = units * np.where(is_force, -screw, 1.0)[:, None] / length
        force = units * is_force[:, None] / length
        violation = moved[self.loop, self.axis] / length[:, 0]
        violation[self.gears.row] = self.gears.place(bodies.q)
        return Held(place_b, moment, force, violation)

    def frames(self, bodies: BodyMotions) -> LoopFrames:
        """The frames in which the loads of the joints stand still, given where the bodies are."""
        frame, frame_b, place_b, rotation, shift = self._relative(bodies)
        before, _, _ = self._nearest(rotation, shift)
        ball, twice = _BALL[self.kind], _TURN[self.kind, 1] >= 0
        first = np.take_along_axis(frame, np.maximum(_TURN[self.kind, 0], 0)[:, None, None], axis=2)[:, :, 0]
        turning = np.where(twice[:, None, None], first[:, :, None] * first[:, None], 0.0)
        turning[ball] = np.eye(3)
        return LoopFrames(place_b, frame, np.where(ball[:, None, None], frame_b, frame @ before), turning)

    def on_second(self, bodies: BodyMotions) -> Floats:
        """Where the joint frames on the first bodies lie in the second: position (m), quaternion w x y z [loops, 7]."""
        from scipy.spatial.transform import Rotation

        second = self.bodies[:, 1]
        rotation, place = bodies.rotation[self.bodies[:, 0]], self._placed(bodies, 0)[1]
        back = np.swapaxes(bodies.rotation[second], 1, 2)
        turned = Rotation.from_matrix(back @ rotation @ self._turned[:, 0])
        shift = np.einsum("nij,nj->ni", back, place - bodies.origin[second])
        return np.hstack((shift, turned.as_quat(scalar_first=True)))

    def freedoms(self, loop: int) -> list[int]:
        """The unit axes of such a frame that a loop's joint frees, in the order of its stiffness."""
        steps = JOINT_TYPES[self.kind[loop]].steps
        return [_free_axis(step, axis) for step in steps for axis in step.axes]

    def position_violation(self, bodies: BodyMotions) -> Floats:
        """How far each loop is from closed [loops]: norm over its constraints, m and rad together."""
        return self.norms(self.held(bodies).violation)

    def velocity_violation(self, bodies: BodyMotions) -> Floats:
        """How fast each loop opens [loops]: norm over its constraints, m/s and rad/s together."""
        return self.norms(self.rates(bodies, self.held(bodies)))

    def rates(self, bodies: BodyMotions, held: Held) -> Floats:
        """How fast each constraint opens [rows], rad/s or m/s, given what `held` gave there."""
        a, b = self.bodies.T
        turning = bodies.omega[b] - bodies.omega[a]
        first, second = (bodies.velocity[k] + np.cross(bodies.omega[k], held.origin - bodies.origin[k]) for k in (a, b))
        rates = np.einsum("ni,ni->n", held.moment, turning[self.loop])
        rates += np.einsum("ni,ni->n", held.force, (second - first)[self.loop])
        rates[self.gears.row] = self.gears.rate(bodies.u)
        return rates

    def opened(self, bodies: BodyMotions, least: float, gravity: float = 0.0) -> str:
        """Say which loop is open, by how much, or opens how fast; "" where none is by more than a `least` part.

        Of 1 rad and of the largest distance between bodies; speeds, of the largest of a body: rad/s, and that distance
        times it in m/s. What is slow beside a fall (m/s^2) counts as at rest.
        """
        size = float(np.ptp(bodies.origin, axis=0).max()) or 1.0
        slowest = max(SLOWEST, RESTING * np.sqrt(gravity / size))
        fastest = max(np.abs(bodies.omega).max(), np.abs(bodies.velocity).max() / size, slowest)
        units = np.where(self.axis < FORCE, 1.0, size)
        held = self.held(bodies)
        apart, rates = held.violation, self.rates(bodies, held)
        if np.abs(apart / units).max(initial=0.0) > least:
            loop, told = self.worst(np.where(np.abs(apart / units) > least, apart, 0.0))
            return f"loop {loop!r} is open by {told}"
        if np.abs(rates / units).max(initial=0.0) > least * fastest:
            k = self.loop[int(np.argmax(np.abs(rates / units)))]
            loop, told = self.worst(np.where(self.loop == k, rates, 0.0))
            return f"the ends of loop {loop!r} part at {told} per second"
        return ""

    def norms(self, rows: Floats) -> Floats:
        """The norm over each loop's rows [loops]."""
        return np.sqrt(np.bincount(self.loop, rows**2, len(self.names)))

    def worst(self, rows: Floats) -> tuple[str, str]:
        """The loop with the largest norm over its rows, and how far it is from closed, in words."""
        k = int(np.argmax(self.norms(rows)))
        own = slice(self.first[k], self.first[k + 1])
        forces = self.axis[own] >= FORCE
        sizes = {"m": np.linalg.norm(rows[own][forces]), "rad": np.linalg.norm(rows[own][~forces])}
        most = max(sizes.values())
        told = " and ".join(f"{size:.3g} {unit}" for unit, size in sizes.items() if size > 1e-3 * most)
        return self.names[k], told or f"{most:.3g} m and rad"

    def _placed(self, bodies: BodyMotions, end: int) -> tuple[Floats, Floats]:
        """Joint frames [loops, 3, 3] and their origins [loops, 3] on the first or second bodies."""
        body = self._ends[:, end]
        rotation = bodies.rotation[body]
        arm = np.einsum("nij,nj->ni", rotation, self._positions[:, end])
        return rotation @ self._frames[:, end], bodies.origin[body] + arm

    def _relative(self, bodies: BodyMotions) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """F_a, F_b [loops, 3, 3], where F_b's origin is [loops, 3], and F_b in F_a: rotation and shift."""
        (frame, place), (frame_b, place_b) = (self._placed(bodies, end) for end in (0, 1))
        rotation = np.swapaxes(frame, 1, 2) @ frame_b
        return frame, frame_b, place_b, rotation, np.einsum("nji,nj->ni", frame, place_b - place)

    def _nearest(self, rotation: Floats, shift: Floats) -> tuple[Floats, Floats, Floats]:
        """The frame in F_a before the last turn, that after it, nearest to F_b's rotation, and the last angle."""
        loops = np.arange(len(rotation))
        before = reached = np.broadcast_to(np.eye(3), rotation.shape)
        angle = np.zeros(len(rotation))
        for slot in range(_DEPTH):
            here, later = _TURN[self.kind, slot], _TURN[self.kind, slot + 1]
            left = np.swapaxes(reached, 1, 2) @ rotation
            j, k = (here + 1) % 3, (here + 2) % 3
            last = np.arctan2(left[loops, k, j] - left[loops, j, k], left[loops, j, j] + left[loops, k, k])
            # the next axis stays where this turn takes it
            taken = np.arctan2(left[loops, k, later], left[loops, j, later]) - np.where(later == j, 0.0, np.pi / 2)
            angle = np.where(here < 0, angle, np.where(later < 0, last, taken))
            turned = _turns(here, angle)
            before = np.where((here >= 0)[:, None, None], reached, before)
            reached = np.where((here >= 0)[:, None, None], reached @ turned, reached)
        reached = np.where(_BALL[self.kind][:, None, None], rotation, reached)
        # a screw may have turned several times
        pitch = np.where(self._pitch == 0.0, np.inf, self._pitch)
        more = np.where(self._pitch == 0.0, 0.0, np.round((shift[:, 2] / pitch - angle) / (2 * np.pi)))
        return before, reached, angle + 2 * np.pi * more


def _as_joint(system: Contents, loop: Constraint) -> Loop:
    """The joint of a loop; of a gear one as that of its second body, between this and itself."""
    if isinstance(loop, Loop):
        joint: Loop = loop
        return joint
    of_body = system.segments.template(system.index_of(loop.bodies[1])).joint
    given = {key: value for key, value in of_body.given.items() if key in ("type", "axis", "pitch")}
    return Loop(name=loop.name, bodies=loop.bodies, positions=((0.0,) * 3,) * 2, **given)


def _turns(axis: Integers, angle: Floats) -> Floats:
    """Rotations [n, 3, 3] about unit axes by angles."""
    n, j, k = np.arange(len(axis)), (axis + 1) % 3, (axis + 2) % 3
    turned = np.tile(np.eye(3), (len(axis), 1, 1))
    turned[n, j, j] = turned[n, k, k] = np.cos(angle)
    turned[n, k, j], turned[n, j, k] = np.sin(angle), -np.sin(angle)
    return turned
