"""A range of bodies as columns of numbers: what the sweeps read.

A few template bodies and the template of every body make `Columns`, without a loop over bodies, and each column only
when it is asked for, so that a rank expands its own part of a system of millions of bodies in well under a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mpimbs.base.arrays import Floats, Integers
from mpimbs.model.body import Body, Wrench
from mpimbs.model.joints import joint_index
from mpimbs.model.motion import Motion
from mpimbs.model.order.segments import counts
from mpimbs.model.text.table import TimeFunction


def _along_speeds(name: str) -> cached_property[Floats]:
    """A column of what joints have of that name, a number for each speed."""

    return cached_property(lambda self: self._of_speeds([getattr(joint, name) for joint in self._joints]))


def _of_joints(name: str, *shape: int) -> cached_property[Floats]:
    """A column of what joints have of that name, a row for each body."""
    return cached_property(lambda self: self._column([getattr(joint, name) for joint in self._joints], *shape))


def _of_bodies(name: str, *shape: int) -> cached_property[Floats]:
    """A column of what bodies have of that name, a row for each."""
    return cached_property(lambda self: self._column([getattr(body, name) for body in self._bodies], *shape))


class Columns:
    """The bodies `first` to `first + n - 1` of a system, one row for each; SI units, quaternions w x y z.

    Parameters
    ----------
    first : int
        Index in the system of the first body of the columns.
    parents : function
        Gives the index in the system of each body's parent, int64 [n].
    bodies : sequence of Body
        The templates.
    rows : int64 [n]
        Which template each body follows.
    torques : mapping of int to function or tuple of floats
        What drives the joints of single local bodies in place of what their templates say.
    wrenches : iterable of (int, Wrench)
        What acts on single local bodies in addition.
    shifts : (int64 [m], float [m, 3])
        Local bodies whose joints lie elsewhere than their templates say, and by how much (m).

    Attributes
    ----------
    first : int
        Index in the system of the first body here.
    parent : int64 [n]
        Index in the system of each body's parent; -1 is the world.
    joint_type : int8 [n]
        Row of `JOINT_TYPES`.
    axis : float [n, 3]
        Unit axis of the joint in the joint frame; z for types that take none.
    pitch : float [n]
        m/rad; 0 for types that take none.
    position, rotation : float [n, 3], float [n, 4]
        Origin (m) and unit quaternion of the joint frame in the parent's frame, at q = 0.
    mass : float [n]
        kg.
    center_of_mass : float [n, 3]
        m, body frame (origin at the inboard joint).
    inertia : float [n, 6]
        xx yy zz xy xz yz about the center of mass, body axes, kg m^2.
    added_mass : float [n, 6, 6], optional
        What the bodies are heavier by in a fluid, body frame (kg m^2, kg m, kg), where any template here has some. Of
        bodies that are told apart a mass alone, which tells them: their numbers from 1 on.
    q_offset, u_offset : int64 [n + 1]
        Body k of these owns `q[q_offset[k]:q_offset[k + 1]]`, and u likewise; both start at 0.
    q, rest : float [nq]
        Initial coordinates, and those at which the springs carry no load; rad, m or quaternions.
    u, stiffness, damping, armature, torque : float [nu]
        Initial speeds (rad/s, m/s), and of each free axis the spring (N m/rad, N/m), the damper (N m s/rad, N
        s/m), the rotor (kg m^2, kg) and the constant actuation (N m, N), which is 0 where a function of time stands in
        its place.
    cross_stiffness : float [nu]
        xy, xz, yz of the stiffness about each ball, in the places of its first three speeds (N m/rad).
    lower, upper, stop_stiffness, stop_damping : float [nu]
        Where the way of each coordinate ends (rad, m; infinite where it doesn't), and of the stops there the stiffness
        (N m/rad, N/m) and the damping (N m s/rad, N s/m).
    servo_stiffness, servo_damping, servo_torque, servo_least, servo_most : float [nu]
        Of servos, as of the joints' tables; `servo_torque` is 0 where a function of time stands in its place.
    friction, friction_speed : float [nu]
        N m, N; and rad/s, m/s.
    servo_functions : list of (int, function)
        Local body and the function of time that its servos have in place of `servo_torque`.
    prescribed : bool [nu]
        Whether an axis follows a given motion.
    motions : list of (int, motion)
        Local body and what its joint follows.
    torque_functions : list of (int, function)
        Local body and the function of time that drives its joint.
    wrenches : list of (int, Wrench)
        Local body and what acts on it; a body may come several times.
    """

    def __init__(
        self,
        first: int,
        parents: Callable[[], Integers],
        bodies: Sequence[Body],
        rows: Integers,
        torques: Mapping[int, TimeFunction | tuple[float, ...]],
        wrenches: Iterable[tuple[int, Wrench]],
        shifts: tuple[Integers, Floats],
        numbers: Integers | None = None,
    ) -> None:
        self.first, self._numbers = first, numbers  # of bodies that are told apart by it, see `Contents.apart`
        self._parents, self._bodies, self._rows = parents, bodies, rows
        self._torques, self._wrenches, self._shifts = dict(torques), list(wrenches), shifts
        self._joints = [body.joint for body in bodies]

    @property
    def n(self) -> int:
        """Number of bodies."""
        return len(self._rows)

    @cached_property
    def alike(self) -> Integers:
        """A number for each body, the same only where joints and bodies are: int64 [n]."""
        shifted, _ = self._shifts
        if self._numbers is not None:
            return self._numbers - self._numbers.min(initial=0)
        if not len(shifted):
            return self._rows
        numbers = self._rows.copy()
        numbers[shifted] = len(self._bodies) + np.arange(len(shifted))
        return numbers

    def some(self, chosen: Integers) -> Columns:
        """The columns of some of these bodies, int64 [k], as they are by themselves: without loads of single bodies."""
        shifted, shifts = self._shifts
        place = np.searchsorted(shifted, chosen)
        here = np.flatnonzero(place < np.searchsorted(shifted, chosen, "right"))
        moved = here, shifts[place[here]]
        numbers = None if self._numbers is None else self._numbers[chosen]
        rows = self._rows[chosen]
        return Columns(self.first, lambda: self.parent[chosen], self._bodies, rows, {}, (), moved, numbers)

    @cached_property
    def parent(self) -> Integers:
        return self._parents()

    @cached_property
    def joint_type(self) -> NDArray[np.int8]:
        return np.array([joint_index(joint.type) for joint in self._joints], np.int8)[self._rows]

    axis, pitch, rotation = _of_joints("axis", 3), _of_joints("pitch"), _of_joints("rotation", 4)

    @cached_property
    def position(self) -> Floats:
        position = self._column([joint.position for joint in self._joints], 3)
        shifted, shifts = self._shifts
        position[shifted] += shifts
        return position

    mass, center_of_mass, inertia = _of_bodies("mass"), _of_bodies("center_of_mass", 3), _of_bodies("inertia", 6)

    @cached_property
    def added_mass(self) -> Floats | None:
        if self._numbers is not None:
            told = np.zeros((self.n, 6, 6))
            told[:, [3, 4, 5], [3, 4, 5]] = self._numbers[:, None] + 1
            return told
        if not any(body.added_mass for body in self._bodies):
            return None
        nothing = ((0.0,) * 6,) * 6
        return self._column([body.added_mass or nothing for body in self._bodies], 6, 6)

    @cached_property
    def q_offset(self) -> Integers:
        return offsets(self._nq[self._rows])

    @cached_property
    def u_offset(self) -> Integers:
        return offsets(self._nu[self._rows])

    @cached_property
    def q(self) -> Floats:
        return _joined([joint.q for joint in self._joints])[numbers_of(offsets(self._nq), self._rows)[0]]

    @cached_property
    def rest(self) -> Floats:
        return _joined([joint.rest for joint in self._joints])[numbers_of(offsets(self._nq), self._rows)[0]]

    u, stiffness, damping, armature = map(_along_speeds, ("u", "stiffness", "damping", "armature"))
    lower, upper = map(_along_speeds, ("lower", "upper"))
    stop_stiffness, stop_damping = map(_along_speeds, ("stop_stiffness", "stop_damping"))
    servo_stiffness, servo_damping = map(_along_speeds, ("servo_stiffness", "servo_damping"))
    servo_least, servo_most = map(_along_speeds, ("servo_least", "servo_most"))
    friction, friction_speed = map(_along_speeds, ("friction", "friction_speed"))

    @cached_property
    def cross_stiffness(self) -> Floats:
        given = [(joint.cross_stiffness + (0.0,) * joint.kind.nu)[: joint.kind.nu] for joint in self._joints]
        return self._of_speeds(given)

    @cached_property
    def rubbing(self) -> Floats:
        """Damping by friction at low speeds [nu] (N m s/rad, N s/m)."""
        return np.divide(self.friction, self.friction_speed, out=np.zeros_like(self.friction), where=self.friction > 0)

    @property
    def stopped(self) -> bool:
        """Whether any template has stops: without a look at all bodies."""
        return any(joint.stopped for joint in self._joints)

    @property
    def bounded(self) -> bool:
        """Whether any template has servos or friction: without a look at all bodies."""
        return any(joint.bounded for joint in self._joints)

    @cached_property
    def servo_torque(self) -> Floats:
        return self._of_speeds([_constant(joint.servo_torque, joint.kind.nu) for joint in self._joints])

    @cached_property
    def servo_functions(self) -> list[tuple[int, TimeFunction]]:
        torques = [joint.servo_torque for joint in self._joints]
        given = _where([callable(torque) for torque in torques], self._rows)
        found = ((k, torques[self._rows[k]]) for k in given)
        return [(k, torque) for k, torque in found if callable(torque)]

    def coordinates_of(self, speeds: Integers) -> Integers:
        """Which coordinates have these speeds as their rates, of joints without a quaternion."""
        plain = np.flatnonzero(np.diff(self.q_offset) == np.diff(self.u_offset))
        place = np.empty(self.u_offset[-1], np.int64)
        place[numbers_of(self.u_offset, plain)[0]] = numbers_of(self.q_offset, plain)[0]
        return place[speeds]

    @cached_property
    def torque(self) -> Floats:
        torque = self._of_speeds([_constant(joint.torque, joint.kind.nu) for joint in self._joints])
        for k, own in self._torques.items():
            torque[self.u_offset[k] : self.u_offset[k + 1]] = 0.0 if callable(own) else own
        return torque

    @cached_property
    def torque_functions(self) -> list[tuple[int, TimeFunction]]:
        given = _where([callable(joint.torque) for joint in self._joints], self._rows)
        driven = {k: self._joints[self._rows[k]].torque for k in given} | self._torques
        return [(k, torque) for k, torque in sorted(driven.items(), key=lambda item: item[0]) if callable(torque)]

    @cached_property
    def prescribed(self) -> NDArray[np.bool_]:
        return np.repeat(np.array([joint.motion is not None for joint in self._joints], bool), self._nu)[
            numbers_of(offsets(self._nu), self._rows)[0]
        ]

    @cached_property
    def motions(self) -> list[tuple[int, Motion]]:
        given = _where([joint.motion is not None for joint in self._joints], self._rows)
        found = ((k, self._joints[self._rows[k]].motion) for k in given)
        return [(k, motion) for k, motion in found if motion is not None]

    @cached_property
    def wrenches(self) -> list[tuple[int, Wrench]]:
        pushed = _where([bool(body.wrench) for body in self._bodies], self._rows)
        given = [(k, wrench) for k in pushed for wrench in self._bodies[self._rows[k]].wrench]
        return sorted(given + self._wrenches, key=lambda item: item[0])

    @cached_property
    def _nq(self) -> Integers:
        return counts(self._bodies)[0]

    @cached_property
    def _nu(self) -> Integers:
        return counts(self._bodies)[1]

    def _of_speeds(self, blocks: Sequence[tuple[float, ...]]) -> Floats:
        return _joined(blocks)[numbers_of(offsets(self._nu), self._rows)[0]]

    def _column(self, values: Sequence[object], *shape: int) -> Floats:
        return np.array(values, np.float64).reshape(len(self._bodies), *shape).take(self._rows, axis=0)


def offsets(sizes: Integers) -> Integers:
    """Return where each of the blocks of these sizes begins, and at last where all end: int64 [n + 1]."""
    return np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))


def initial_state(bodies: Sequence[Body], rows: Integers) -> tuple[Floats, Floats]:
    """Return the initial coordinates q and speeds u of expanded bodies; arguments as of `Columns`."""
    q_index, u_index = (numbers_of(offsets(sizes), rows)[0] for sizes in counts(bodies))
    joints = [body.joint for body in bodies]
    return _joined([joint.q for joint in joints])[q_index], _joined([joint.u for joint in joints])[u_index]


def _constant(torque: tuple[float, ...] | TimeFunction, count: int) -> tuple[float, ...]:
    """The constant part of a torque: nothing where it is a function of time."""
    return (0.0,) * count if callable(torque) else torque


def _joined(blocks: Sequence[tuple[float, ...]]) -> Floats:
    return np.array([value for block in blocks for value in block], np.float64)


def numbers_of(offset: Integers, chosen: Integers) -> tuple[Integers, Integers]:
    """Return where the numbers of chosen blocks stand in the vector of all blocks, and where they go in one of these.

    Parameters
    ----------
    offset : int64 [blocks + 1]
        Where each block begins, as `offsets` gives it.
    chosen : int64 [n]

    Returns
    -------
    (int64 [numbers], int64 [n + 1])
    """
    sizes = np.diff(offset)[chosen]
    begins = offsets(sizes)
    return np.arange(begins[-1]) + np.repeat(offset[chosen] - begins[:-1], sizes), begins


def _where(selected: Sequence[bool], rows: Integers) -> list[int]:
    """Return the bodies whose template is selected."""
    if not any(selected):
        return []
    return np.flatnonzero(np.array(selected, bool)[rows]).tolist()
