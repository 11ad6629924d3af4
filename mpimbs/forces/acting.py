"""Joint forces and body forces on the bodies of a subchain: what their functions are told, and what they give."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numba.core.dispatcher import Dispatcher
from numba.extending import overload

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import LoadNotFiniteError, SimulationError
from mpimbs.forces.calls import ByPython, called, entered, shaped
from mpimbs.kernels.calling import CallBack, call_at, call_back
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Table, read, schema, span
from mpimbs.kernels.tuples import load3, load9, store_numbers
from mpimbs.model import BodyForce, BodyMotion, ForceFunction, JointForce
from mpimbs.model.columns import numbers_of
from mpimbs.model.force_functions import bodies_named
from mpimbs.parts.subchain import Subchain
from mpimbs.spatial.vectors import cross, rotate_back
from mpimbs.sweep.motion import add_loads, motions_of_points
from mpimbs.sweep.structure import ADDED


class JointForcePlan(NamedTuple):
    """Arguments of a joint force in compiled code."""

    entry: int  # address of what calls a compiled function; 0 where Python calls it
    asked: int  # address of what calls it then
    at_q: Integers  # its coordinates, of all
    at_u: Integers
    bounds: Integers  # [(joints + 1) * 2]: where those of each joint begin, among these
    q: Floats  # written
    u: Floats
    values: Floats


class BodyForcePlan(NamedTuple):
    """Arguments of a body force in compiled code."""

    entry: int  # as of a joint force
    asked: int
    numbers: Integers  # [n]: of the bodies, in the model
    steps: Integers  # as `motions_of_points` takes them
    frames: Floats
    points: Floats
    rotation: Floats  # written
    position: Floats
    angular_velocity: Floats
    velocity: Floats
    moment: Floats  # [n * 3]
    force: Floats  # [n * 3]
    # What the force grows less by, as functions give it [n * 36], where that is asked for: else none
    damping: Floats
    stiffness: Floats
    gave: Integers  # [2]: whether it gave the one, and the other, last
    bodies: Integers  # [n]: in the subchain
    room: Floats  # [72]


_JOINT_FORCE, _BODY_FORCE = schema(JointForcePlan), schema(BodyForcePlan)


@kernel
def add_joint_force(plan, t, q, u, tau, power):
    """Add the forces of a function to `tau` [nu], and their power to `power` [1]; gives whether they are finite, and it
    has not failed."""
    f = read(plan, _JOINT_FORCE)
    for i in range(f.at_q.size):
        f.q[i] = q[f.at_q[i]]
    for i in range(f.at_u.size):
        f.u[i] = u[f.at_u[i]]
    good = call_at(f.entry, (t, f.q, f.u, f.bounds, f.values)) if f.entry != 0 else call_back(f.asked, t)
    for i in range(f.at_u.size):
        tau[f.at_u[i]] += f.values[i]
        power[0] += f.values[i] * f.u[i]
        good = good and np.isfinite(f.values[i])
    return good


@kernel
def add_body_force(plan, t, motion, wrench):
    """Add the loads of a function to the wrenches on steps; gives whether they are finite, and it has not failed."""
    f = read(plan, _BODY_FORCE)
    poses, speeds = (f.rotation, f.position), (f.angular_velocity, f.velocity)
    motions_of_points(0.0, motion, f.steps, f.frames, f.points, *poses, *speeds)
    if f.entry != 0:
        good = call_at(f.entry, (t, f.numbers, *poses, *speeds, f.moment, f.force, f.damping, f.stiffness, f.gave))
    else:
        good = call_back(f.asked, t)
    return good and add_loads(0.0, motion, f.steps, f.points, f.moment, f.force, wrench) < 0


@kernel
def add_resistance(plan, which, found):
    """Add the damping (0) or the stiffness (1) that a function gave last, if any, to that of bodies [n * ADDED].

    About the origins of the steps that carry them, in their frames, upper triangles of symmetric parts; not a number of
    one that is not finite, or negative. Gives whether there was any.
    """
    f = read(plan, _BODY_FORCE)
    if f.gave[which] == 0:
        return False
    given = f.damping if which == 0 else f.stiffness
    change, product = span(f.room, 0, 36), span(f.room, 36, 36)
    for body in range(f.bodies.size):
        # What [[R, 0], [-R p x, R]] takes twists of the step to, which are about its origin, in the world, about p.
        frame, p = load9(0.0, f.frames, 9 * body), load3(0.0, f.points, 3 * body)
        for i in range(36):
            change[i] = 0.0
        for i in range(3):
            row = rotate_back(frame, load3(0.0, f.rotation, 9 * body + 3 * i))
            store_numbers(0.0, change, 6 * i, row)
            store_numbers(0.0, change, 18 + 6 * i, cross(p, row) + row)
        first, total = 36 * body, 0.0
        for i in range(36):
            total += given[first + i]
        for i in range(6):
            total = total if given[first + 7 * i] >= 0.0 else np.nan
            for j in range(6):
                product[6 * i + j] = 0.0
                for k in range(6):
                    product[6 * i + j] += given[first + 6 * i + k] * change[6 * k + j]
        at, wrong = f.bodies[body] * ADDED, total - total
        for i in range(6):
            for j in range(i, 6):
                for k in range(6):
                    found[at] += 0.5 * (change[6 * k + i] * product[6 * k + j] + change[6 * k + j] * product[6 * k + i])
                found[at] += wrong
                at += 1
    return True


class _Acting:
    """A force function on some bodies of a subchain.

    Parameters
    ----------
    bodies : array [n]
        Numbers of the bodies in the subchain.
    make_entry : callable
        Makes what compiled code calls, of the function and whether it is vectorized.
    """

    _told: list[Floats]  # what the function is told, and gives
    _found: list[Floats]

    def __init__(
        self,
        force: ForceFunction,
        subchain: Subchain,
        bodies: Integers,
        make_entry: Callable[[Dispatcher, bool], Dispatcher],
    ) -> None:
        self._function = force.function
        self.vectorized = force.vectorized
        self._entry = make_entry(force.function, force.vectorized) if isinstance(force.function, Dispatcher) else None
        self._numbers = bodies + subchain.first
        self._title = f"the {force.kind} '{force.name}'"
        self.called = CallBack(self._call)  # calls the function in Python
        self._name_of = subchain.system.name_of

    @property
    def by_python(self) -> ByPython | None:
        """The function, if Python calls it."""
        return None if self.compiled else ByPython(self._call, self._told, self._found)

    def _call(self, t: float) -> None:
        """Call the function at a time (s), of what the rooms of `table` hold, and write to them.

        Raises
        ------
        SimulationError
            The function failed; `LoadNotFiniteError`: it gave no finite numbers.
        """
        raise NotImplementedError

    def _compile(self, together: tuple[Any, ...], looped: tuple[Any, ...]) -> None:
        """Have numba compile its function for what it is given at once, or in a loop; nothing is called."""
        if self._entry is None:
            return
        compiled: Any = self._function if self.vectorized else self._entry
        with contextlib.suppress(Exception):  # the first call finds the same, and tells of it
            compiled.compile(tuple(numba.typeof(value) for value in (together if self.vectorized else looped)))

    def _looped(self, *arguments: Any) -> bool:
        """Call a compiled function for one body after the other in a compiled loop; say whether that went well.

        Where it did not, the same loop in Python serves, and finds the body on which the function fails.
        """
        try:
            if self._entry is not None:
                self._entry(*arguments)
        except Exception:
            self._entry = None
        return self._entry is not None

    @property
    def compiled(self) -> bool:
        """Whether compiled code calls the function."""
        return self._entry is not None

    def __bool__(self) -> bool:
        """Whether it acts on anything here."""
        return len(self._numbers) > 0

    def _on(self, k: int) -> str:
        """The function on one of the bodies, as the subject of a message."""
        return f"{self._title} on {bodies_named(self._numbers[k : k + 1], self._name_of)}"

    def _on_all(self) -> str:
        """The function on all of the bodies."""
        return f"{self._title} on {bodies_named(self._numbers, self._name_of)}"


class ActingJointForce(_Acting):
    """A joint force on the joints of a subchain; see `System.add_joint_force`."""

    def __init__(self, force: JointForce, subchain: Subchain) -> None:
        c = subchain.columns
        bodies = force.on(subchain.first, subchain.last)
        bodies = bodies[np.diff(c.u_offset)[bodies] > 0]
        super().__init__(force, subchain, bodies, _entry_of_joints)
        self._at_q, q_begins = numbers_of(c.q_offset, bodies)
        self._at_u, u_begins = numbers_of(c.u_offset, bodies)
        self._ends = u_begins[1:]
        self._bounds = np.stack((q_begins, u_begins), axis=1)
        self._q, self._u, self._values = (np.zeros(len(at)) for at in (self._at_q, self._at_u, self._at_u))
        self._told, self._found = [self._q, self._u], [self._values]

    def table(self, compiled: bool) -> Table:
        """Give what it takes in compiled code (`JointForcePlan`): called there, if it is `compiled`."""
        bounds, rooms = self._bounds.ravel(), (self._q, self._u)
        entry = entered(self._entry, 0.0, *rooms, bounds, self._values) if compiled else 0
        return Table(JointForcePlan(entry, self.called.address, self._at_q, self._at_u, bounds, *rooms, self._values))

    def compile(self) -> None:
        """Compile the function, if that is numba's to do."""
        q, u = np.empty(len(self._at_q)), np.empty(len(self._at_u))
        rows = self._rows(q, u) if self.vectorized else ()  # which joints of several types have not
        self._compile((0.0, *rows), (0.0, q, u, self._bounds.ravel(), u))

    def _rows(self, q: Floats, u: Floats) -> tuple[Floats, Floats]:
        """The numbers of joints of one type, a row for each."""
        return q.reshape(len(self._ends), -1), u.reshape(len(self._ends), -1)

    def add(self, t: float, q: Floats, u: Floats, tau: Floats) -> None:
        """Add the generalized forces to `tau` [nu]; errors as of `_call`."""
        self._q[:], self._u[:] = q[self._at_q], u[self._at_u]
        self._call(t)
        tau[self._at_u] += self._values

    def _call(self, t: float) -> None:
        values = (self._all_at_once if self.vectorized else self._one_by_one)(t, self._q.copy(), self._u.copy())
        finite = np.isfinite(values)
        if not finite.all():
            k = int(np.searchsorted(self._ends, np.argmin(finite), side="right"))
            mine = values[slice(*self._bounds[k : k + 2, 1])]
            raise LoadNotFiniteError(f"{self._on(k)} is not finite at t = {t:g} s: {mine}")
        self._values[:] = values

    def _all_at_once(self, t: float, q: Floats, u: Floats) -> Floats:
        q, u = self._rows(q, u)
        return shaped(self._on_all, t, called(self._on_all, t, self._function, q, u), u.shape).ravel()

    def _one_by_one(self, t: float, q: Floats, u: Floats) -> Floats:
        values = np.empty(len(u))
        if self._looped(t, q, u, self._bounds.ravel(), values):
            return values
        for k, ((q0, u0), (q1, u1)) in enumerate(itertools.pairwise(self._bounds.tolist())):
            what = functools.partial(self._on, k)
            values[u0:u1] = shaped(what, t, called(what, t, self._function, q[q0:q1], u[u0:u1]), (u1 - u0,))
        return values


@functools.lru_cache  # compiled once in a process
def _entry_of_joints(function: Dispatcher, vectorized: bool) -> Dispatcher:
    """Make what calls a joint force for all joints, with flat arrays; `bounds` as of `JointForcePlan`."""
    if vectorized:

        @numba.njit
        def entry(t, q, u, bounds, values):
            n = bounds.size // 2 - 1
            rows = q.reshape((n, q.size // n)), u.reshape((n, u.size // n))
            values.reshape((n, u.size // n))[:, :] = function(t, rows[0], rows[1])
            return True

    else:

        @numba.njit
        def entry(t, q, u, bounds, values):
            for k in range(bounds.size // 2 - 1):
                first, last = bounds[2 * k + 1], bounds[2 * k + 3]
                values[first:last] = function(t, q[bounds[2 * k] : bounds[2 * k + 2]], u[first:last])
            return True

    return entry


@functools.lru_cache
def _entry_of_bodies(function: Dispatcher, vectorized: bool) -> Dispatcher:
    """Make what calls a body force for all bodies, with flat arrays."""
    if vectorized:

        @numba.njit
        def entry(t, body, rotation, position, omega, velocity, moment, force, damping, stiffness, gave):
            n = body.size
            places = rotation.reshape((n, 3, 3)), position.reshape((n, 3))
            given = function(t, BodyMotion(body, places[0], places[1], omega.reshape((n, 3)), velocity.reshape((n, 3))))
            moment.reshape((n, 3))[:, :] = given[0]
            force.reshape((n, 3))[:, :] = given[1]
            gave[0] = keep_resistance(given_beside(given, 2), damping)
            gave[1] = keep_resistance(given_beside(given, 3), stiffness)
            return True

    else:

        @numba.njit
        def entry(t, body, rotation, position, omega, velocity, moment, force, damping, stiffness, gave):
            for k in range(body.size):
                own = slice(3 * k, 3 * k + 3)
                turned = rotation[9 * k : 9 * k + 9].reshape((3, 3))
                given = function(t, BodyMotion(body[k], turned, position[own], omega[own], velocity[own]))
                moment[own] = given[0]
                force[own] = given[1]
            return True

    return entry


def keep_resistance(values: Any, room: Floats) -> bool:
    """Keep damping or stiffness that a function gave, for all or for each, where there is room [n * 36]; say whether
    there is any."""
    if values is None or not room.size:
        return False
    room.reshape(-1, 6, 6)[:] = values
    return True


@overload(keep_resistance)
def _keep_compiled(values, room):
    """Loops take numba a fraction of the time that slices do; what has another shape is no number, which is told."""
    if isinstance(values, types.NoneType):
        return lambda values, room: False

    def of_each(values, room):
        fits = values.shape == (room.size // 36, 6, 6)
        for k in range(room.size // 36):
            for i in range(6):
                for j in range(6):
                    room[36 * k + 6 * i + j] = values[k, i, j] if fits else np.nan
        return room.size > 0

    def of_all(values, room):
        fits = values.shape == (6, 6)
        for k in range(room.size // 36):
            for i in range(6):
                for j in range(6):
                    room[36 * k + 6 * i + j] = values[i, j] if fits else np.nan
        return room.size > 0

    return of_each if values.ndim == 3 else of_all


def given_beside(given: Any, k: int) -> Any:
    """Give what a function gave beside moment and force, if anything."""
    return given[k] if len(given) > k else None


@overload(given_beside, prefer_literal=True)
def _given_compiled(given, k):
    number = k.literal_value
    return (lambda given, k: given[number]) if len(given) > number else (lambda given, k: None)


class ActingBodyForce(_Acting):
    """A body force on the bodies of a subchain; see `System.add_body_force`."""

    def __init__(self, force: BodyForce, subchain: Subchain) -> None:
        bodies = force.on(subchain.first, subchain.last)
        super().__init__(force, subchain, bodies, _entry_of_bodies)
        n = len(bodies)
        self._steps, frames = subchain.carriers(bodies)
        centered = isinstance(force.point, str)
        points = subchain.columns.center_of_mass[bodies] if centered else np.tile(force.point, (n, 1))
        self._points = np.einsum("nji,nj->ni", frames, points).ravel()
        self._frames = frames.ravel()
        self._bodies = np.ascontiguousarray(bodies, np.int64)
        self._resistance, self._gave = np.zeros((2, 0)), np.zeros(2, np.int64)
        numbers = subchain.system.numbers_in_model(self._numbers)
        self._motion = BodyMotion(numbers, np.empty((n, 3, 3)), *(np.empty((n, 3)) for _ in range(3)))
        self._flat = [values.reshape(-1) for values in self._motion[1:]]
        self._moment, self._force = np.zeros((2, n, 3))
        self._told, self._found = self._flat, [self._moment, self._force]
        self._tables: list[Table] = []

    def compile(self) -> None:
        """Compile the function, if that is numba's to do."""
        values = np.empty(3 * len(self._numbers))
        self._compile((0.0, self._motion), (0.0, *self._all_of(values, values)))

    def _all_of(self, moment: Floats, force: Floats) -> tuple[Any, ...]:
        """Arguments of what compiled code calls, behind the time, which writes moment and force [n * 3]."""
        return (self._motion.body, *self._flat, moment, force, *self._resistance, self._gave)

    def table(self, compiled: bool) -> Table:
        """Give what it takes in compiled code (`BodyForcePlan`): called there, if it is `compiled`."""
        moment, force = self._moment.reshape(-1), self._force.reshape(-1)
        entry = entered(self._entry, 0.0, *self._all_of(moment, force)) if compiled else 0
        places = self._motion.body, self._steps, self._frames, self._points
        rotation, position, omega, velocity = self._flat
        given = *places, rotation, position, omega, velocity, moment, force
        resists = self._resistance[0], self._resistance[1], self._gave
        table = Table(BodyForcePlan(entry, self.called.address, *given, *resists, self._bodies, np.empty(72)))
        self._tables.append(table)
        return table

    def resisting(self) -> Table:
        """Have what it gives of damping and stiffness kept from now on; gives where `add_resistance` finds it."""
        if not self._resistance.size:
            self._resistance = np.zeros((2, 36 * len(self._numbers)))
            for table in self._tables:
                for name, room in zip(("damping", "stiffness"), self._resistance, strict=True):
                    table.set(name, room)
        return self._tables[0] if self._tables else self.table(False)

    def add(self, t: float, motion: Floats, wrench: Floats) -> None:
        """Add the loads to the wrenches on the steps [m * 6], given their motions; errors as of `_call`."""
        motions_of_points(0.0, motion, self._steps, self._frames, self._points, *self._flat)
        self._call(t)
        moment, force = self._moment.reshape(-1), self._force.reshape(-1)
        add_loads(0.0, motion, self._steps, self._points, moment, force, wrench)

    def _call(self, t: float) -> None:
        moment, force = (self._all_at_once if self.vectorized else self._one_by_one)(t)
        self._moment[:], self._force[:] = moment, force
        for bad in np.flatnonzero(~np.isfinite(moment + force).all(axis=1)).tolist():
            values = f"moment {moment[bad]}, force {force[bad]}"
            raise LoadNotFiniteError(f"{self._on(bad)} is not finite at t = {t:g} s: {values}")

    def _all_at_once(self, t: float) -> tuple[Floats, Floats]:
        given = called(self._on_all, t, self._function, self._motion)
        beside = given[2:] if isinstance(given, tuple | list) and len(given) in (3, 4) else ()
        for k, (name, value) in enumerate(zip(("damping", "stiffness"), (*beside, None, None), strict=False)):
            self._gave[k] = keep_resistance(self._resisting(t, value, name), self._resistance[k])
        given = given[:2] if beside else given
        return _moment_and_force(self._on_all, t, given, (len(self._numbers), 3))

    def _resisting(self, t: float, given: Any, name: str) -> Floats | None:
        """Damping or stiffness [n, 6, 6] of what the function gave, one for each body or for all; None for none."""
        if given is None:
            return None
        n = len(self._numbers)
        found = np.broadcast_to(given, (n, 6, 6)) if np.shape(given) == (6, 6) else given
        found = shaped(self._on_all, t, found, (n, 6, 6), f" as {name}")
        worst = np.diagonal(found, axis1=1, axis2=2).min(axis=1, initial=0.0)
        for wrong, what in ((~np.isfinite(found).all(axis=(1, 2)), "is not finite"), (worst < 0.0, "is negative")):
            if wrong.any():
                raise SimulationError(f"{self._on(int(np.argmax(wrong)))}: its {name} {what} at t = {t:g} s")
        return found

    def _one_by_one(self, t: float) -> tuple[Floats, Floats]:
        moment, force = np.empty((2, len(self._numbers), 3))
        if self._looped(t, *self._all_of(moment.reshape(-1), force.reshape(-1))):
            return moment, force
        for k, fields in enumerate(zip(*self._motion, strict=True)):
            what = functools.partial(self._on, k)
            given = called(what, t, self._function, BodyMotion(*fields))
            moment[k], force[k] = _moment_and_force(what, t, given, (3,))
        return moment, force


def _moment_and_force(what: Callable[[], str], t: float, given: Any, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Moment and force of what a function gave, as contiguous arrays of a shape."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        gave = "nothing" if given is None else f"a {type(given).__name__}"
        raise SimulationError(f"{what()} gave {gave} at t = {t:g} s, needs a moment and a force")
    parts = zip(given, (" as moment", " as force"), strict=True)
    moment, force = (np.ascontiguousarray(shaped(what, t, value, shape, part)) for value, part in parts)
    return moment, force
