"""Servos and friction of joints: springs, dampers and torques together, no stronger than they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mpimbs.model.columns import Columns
from mpimbs.model.text.table import TimeFunction

Floats = npt.NDArray[np.float64]


class BoundedForces:
    """The servos and the friction of some bodies' joints: torque - stiffness q - damping u each, within its range.

    Friction is a damper with a range: viscous up to the speed that it has, Coulomb's beyond.

    Parameters
    ----------
    columns : Columns

    Attributes
    ----------
    speeds : int64 [m]
        Along which speeds they act, of which several may be the same.
    torque : array [nu]
        Of servos (N m, N); those that are functions as `take` found them last.
    stiffness, damping : array [m]
    free : bool [m]
        Which of them were not at an end of their range when forces were asked for last.
    """

    def __init__(self, columns: Columns) -> None:
        c = columns
        self._functions: list[tuple[int, slice, TimeFunction]] = []
        self.torque, self.speeds = np.zeros(0), np.zeros(0, np.int64)
        self.stiffness, self.damping, self.free = np.zeros(0), np.zeros(0), np.zeros(0, bool)
        if not c.bounded:  # of many bodies nothing is made
            return
        self.torque = c.servo_torque.copy()
        there = c.servo_stiffness + c.servo_damping + abs(self.torque)
        for body, function in c.servo_functions:
            own = slice(*c.u_offset[body : body + 2].tolist())
            there[own] = np.inf
            self._functions.append((body, own, function))
        servos, rubbing = np.flatnonzero(there), np.flatnonzero(c.friction)
        self._servos, friction = servos, c.friction[rubbing]
        self.speeds = np.concatenate([servos, rubbing])
        self._places = c.coordinates_of(self.speeds)
        self.stiffness = np.append(c.servo_stiffness[servos], np.zeros(len(rubbing)))
        self.damping = np.append(c.servo_damping[servos], friction / c.friction_speed[rubbing])
        self._least = np.append(c.servo_least[servos], -friction)
        self._most = np.append(c.servo_most[servos], friction)
        self.free = np.ones(len(self.speeds), bool)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return len(self.speeds) > 0

    def take(self, value: Callable[[int, TimeFunction, int], Floats]) -> None:
        """Take the torques that are functions of time, given what makes so many numbers of the one of a body."""
        for body, own, function in self._functions:
            self.torque[own] = value(body, function, own.stop - own.start)

    def add(self, q: Floats, u: Floats, tau: Floats) -> None:
        """Add them to generalized forces [nu] (N m, N)."""
        asked = -self.stiffness * q[self._places] - self.damping * u[self.speeds]
        asked[: len(self._servos)] += self.torque[self._servos]
        self.free = (asked > self._least) & (asked < self._most)
        np.add.at(tau, self.speeds, np.clip(asked, self._least, self._most))
