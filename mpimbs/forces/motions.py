"""Joints that follow given motions: where they are at a time, and what makes the sweeps have them there.

An axis that follows is, to the sweeps, one with a rotor of an inertia beside which all others vanish, driven by that
inertia times the acceleration that is wanted: the pivot is then as good as infinite, what hangs on the joint passes it
whole, and the acceleration is the wanted one to rounding. So couplings, lanes and ranks know nothing of it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import HaltError, InputError, SimulationError
from mpimbs.forces.calls import ByPython, called, shaped
from mpimbs.forces.modules import function_of
from mpimbs.model.contents import Contents
from mpimbs.model.motion import Motion, TableMotion
from mpimbs.parts.subchain import Subchain
from mpimbs.sweep.along_joints import Stops
from mpimbs.sweep.structure import HELD

EPSILON = float(np.finfo(float).eps)
SMALLEST = 1e-12  # rad/s or m/s, rad or m, of a jump: other loads move an axis that is held by less
ROUNDING = 1e-9  # the same, of the value itself
LEAP = 4.0  # times what the speeds of a step lead to: farther is a jump
NEARBY = 10.0 ** np.arange(-15, 10)  # s, over which derivatives are looked at, from where numbers tell any
DIFFERS = 1e-3  # a share by which a derivative is another one
TELLS = 0.1  # of that, what rounding may make of a difference


class GivenMotions:
    """The motions that joints of a subchain follow.

    Raises
    ------
    InputError
        There is no such function; names the body.
    """

    def __init__(self, subchain: Subchain) -> None:
        c = subchain.columns
        self._subchain = subchain
        self._joints = [
            (
                body,
                _function(motion, f"body '{subchain.name_of(body)}': motion {motion!r}"),
                slice(*c.q_offset[body : body + 2]),
                slice(*c.u_offset[body : body + 2]),
            )
            for body, motion in c.motions
        ]
        self._stops = Stops.of(c)
        self._rests = False
        self.time = np.nan  # that was asked for last
        self._found = [np.zeros((3, speeds.stop - speeds.start)) for *_, speeds in self._joints]  # then

    def __bool__(self) -> bool:
        """Whether there are any here."""
        return bool(self._joints)

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """Let them stay where they are at the time, without speed or acceleration, for statics."""
        before, self._rests = self._rests, True
        self.forget()
        try:
            yield
        finally:
            self._rests = before
            self.forget()

    def forget(self) -> None:
        """Ask the functions again, even at the time that was asked for last."""
        self.time = np.nan

    @functools.cached_property
    def by_python(self) -> ByPython | None:
        """The functions that Python calls, if any."""
        asks = not all(isinstance(function, TableMotion) for _, function, *_ in self._joints)
        return ByPython(self._ask, [], self._found) if asks else None

    def follow(self, t: float, q: Floats, u: Floats) -> tuple[Floats, Floats]:
        """Give coordinates and speeds of these bodies with those of the joints that follow as they are at time `t` (s).

        Raises
        ------
        SimulationError
            A function failed, gave no finite numbers, or its table says nothing of that time.
        """
        if not self._joints:
            return q, u
        self.forget()
        q, u = q.copy(), u.copy()
        for (_, _, places, speeds), (value, velocity, _) in zip(self._joints, self._at(t), strict=True):
            q[places], u[speeds] = value, velocity
        return q, u

    def drive(self, t: float, tau: Floats) -> None:
        """Set what makes them follow among the generalized forces [nu] of an evaluation; raises as `follow`."""
        for (_, _, _, speeds), (_, _, acceleration) in zip(self._joints, self._at(t), strict=True):
            tau[speeds] = HELD * acceleration

    def forces(self, q: Floats, u: Floats, through: Floats) -> Floats:
        """Give the generalized forces [nu] that drive the joints which follow, at the time asked for last.

        `through` [nu] is what passes the joints: that, and what turns the rotors, less what springs, dampers and
        torques and stops of the model do.
        """
        c, found = self._subchain.columns, self._found
        forces, stops = np.zeros(len(u)), np.zeros(len(u))
        stops[self._stops.speeds] = self._stops.forces(q, u)
        for (_, _, places, speeds), (_, _, acceleration) in zip(self._joints, found, strict=True):
            other = (
                c.torque[speeds] - c.damping[speeds] * u[speeds] - c.stiffness[speeds] * (q[places] - c.rest[places])
            ) + stops[speeds]
            forces[speeds] = through[speeds] + c.armature[speeds] * acceleration - other
        return forces

    def jump(self, begin: float, end: float, u: Floats) -> str | None:
        """Name a joint that changes between two times (s) by what its speeds or accelerations don't account for.

        `u` [nu]: the speeds that integration found at the end.
        """
        if not self._joints:
            return None
        step, (before, after) = end - begin, ([value.copy() for value in self._at(t)] for t in (begin, end))
        for (body, _, _, speeds), old, new in zip(self._joints, before, after, strict=True):
            place, speed, acceleration = np.maximum(np.abs(old), np.abs(new))
            moved, faster, _ = np.abs(new - old)
            leaps = moved > LEAP * step * (speed + step * acceleration) + ROUNDING * place + SMALLEST
            missed = np.abs(u[speeds] - new[1])
            bursts = missed > 0.5 * np.maximum(faster, step * acceleration) + ROUNDING * speed + SMALLEST
            if np.any(leaps | bursts):
                return self._subchain.name_of(body)
        return None

    def inconsistent(self, t: float) -> str | None:
        """Name a joint whose velocity or acceleration behind a time (s) is not the derivative of what it is of."""
        for body, function, places, speeds in self._joints:
            value = functools.partial(self._value, body=body, function=function, places=places, speeds=speeds)
            if self._fits(t, value) is False:
                return self._subchain.name_of(body)
        return None

    @staticmethod
    def _fits(t: float, value: Callable[[float], Floats]) -> bool | None:
        """Whether what a motion gives behind a time (s) are derivatives of one another; None where numbers don't tell.

        They are if differences say so over two distances in sequence: near enough for the motion, whatever its own time
        is, and too far for rounding. Of what rests at first nothing is told.
        """
        before = found = None
        moves: npt.NDArray[np.bool_] | bool = True
        for step in NEARBY[1e4 * EPSILON * abs(t) < NEARBY]:
            try:
                with np.errstate(all="ignore"):
                    ends = value(t + step), value(t + 2 * step)
            except HaltError:
                raise
            except SimulationError:  # a table ends
                break
            change, mean = (ends[1] - ends[0])[:2] / step, 0.5 * (ends[0] + ends[1])[1:]
            size = np.abs(mean) + np.abs(change)
            rounding = 8 * EPSILON * np.maximum(*np.abs(ends))[:2] / step
            moves = moves & (size > 0.0)
            tells = moves & (rounding <= TELLS * DIFFERS * size)
            if not tells.any():
                before = None
                continue
            fits = bool((np.abs(change - mean) <= DIFFERS * size)[tells].all())
            if fits and before:
                return True
            before, found = fits, False
        return found

    def _at(self, t: float) -> list[Floats]:
        """Coordinates, speeds and accelerations of each joint [3, nu]."""
        if self.time != t:
            self._ask(t)
        return self._found

    def _ask(self, t: float) -> None:
        self.forget()  # until all are found
        for room, joint in zip(self._found, self._joints, strict=True):
            room[:] = self._value(t, *joint)
        self.time = t

    def _value(self, t: float, body: int, function: Callable[..., Any], places: slice, speeds: slice) -> Floats:
        def what() -> str:
            return f"the motion of body '{self._subchain.name_of(body)}'"

        given = called(what, t, function)
        if not isinstance(given, tuple | list | np.ndarray) or len(given) != 3:
            raise SimulationError(f"{what()} gave {given!r} at t = {t:g} s, needs value, velocity and acceleration")
        count = (speeds.stop - speeds.start,)
        parts = zip(given, (" as value", " as velocity", " as acceleration"), strict=True)
        found = np.array([shaped(what, t, value, count, part) for value, part in parts])
        if not np.isfinite(found).all():
            raise SimulationError(f"{what()} is not finite at t = {t:g} s: {found.tolist()}")
        if self._rests:
            found[1:] = 0.0
        return found


def _function(motion: Motion, where: str) -> Callable[..., Any]:
    if isinstance(motion, str):
        return function_of(motion, where)
    return motion if callable(motion) else TableMotion(motion)


def initial_motion(system: Contents) -> tuple[Floats, Floats]:
    """Give the coordinates and speeds with which a system begins, of joints that follow those of their motion.

    Raises
    ------
    InputError, SimulationError
        A motion can't be found.
    """
    begin = system.initial_state(0, system.n_bodies)
    return GivenMotions(Subchain(system)).follow(0.0, *begin) if system.has_motions else begin


def check_covered(system: Contents, t_end: float) -> None:
    """Refuse tables of motions that say nothing of a part of a run from 0 to `t_end` (s).

    Raises
    ------
    InputError
    """
    for segment in system.segments:
        for place, body in enumerate(segment.bodies):
            motion = body.joint.motion
            if not isinstance(motion, tuple) or (motion[0][0] <= 0.0 and t_end <= motion[-1][0]):
                continue
            raise InputError(
                f"body '{system.name_of(segment.first + place)}': motion goes from {motion[0][0]:g} to "
                f"{motion[-1][0]:g} s, and the run from 0 to {t_end:g} s; give rows for all of it"
            )
