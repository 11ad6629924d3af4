"""Servos and friction of joints: springs, dampers and torques together, no stronger than they are."""

from __future__ import annotations

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
    functions : list of (int, function)
        Local body and the function of time that is the torque of its servos.
    torque : array [nu]
        Of servos (N m, N); who calls sets those that are functions.
    stiffness, damping : array [m]
    free : bool [m]
        Which of them were not at an end of their range when forces were asked for last.
    """

    def __init__(self, columns: Columns) -> None:
        c = columns
        self.functions, self.torque, self.speeds = list[tuple[int, TimeFunction]](), np.zeros(0), np.zeros(0, np.int64)
        self.stiffness, self.damping, self.free = np.zeros(0), np.zeros(0), np.zeros(0, bool)
        if not c.bounded:  # of many bodies nothing is made
            return
        self.functions, self.torque = c.servo_functions, c.servo_torque.copy()
        there = c.servo_stiffness + c.servo_damping + abs(self.torque)
        for body, _ in self.functions:
            there[c.u_offset[body] : c.u_offset[body + 1]] = np.inf
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

    def add(self, q: Floats, u: Floats, tau: Floats) -> None:
        """Add them to generalized forces [nu] (N m, N)."""
        asked = -self.stiffness * q[self._places] - self.damping * u[self.speeds]
        asked[: len(self._servos)] += self.torque[self._servos]
        self.free = (asked > self._least) & (asked < self._most)
        np.add.at(tau, self.speeds, np.clip(asked, self._least, self._most))
