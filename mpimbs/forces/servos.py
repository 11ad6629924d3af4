"""Servos of joints: springs, dampers and torques together, no stronger than they are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpimbs.model.columns import Columns
from mpimbs.model.text.table import TimeFunction

Floats = npt.NDArray[np.float64]


class Servos:
    """The servos of some bodies' joints: what each asks for, within its range.

    Parameters
    ----------
    columns : Columns

    Attributes
    ----------
    speeds : array [m]
        Along which speeds they act.
    functions : list of (int, function)
        Local body and the function of time that is the torque of its servos.
    torque : array [nu]
        N m, N; who calls sets those that are functions.
    free : bool [m]
        Which of them were not at an end of their range when forces were asked for last.
    """

    def __init__(self, columns: Columns) -> None:
        c = columns
        self.functions, self.torque, self.speeds = list[tuple[int, TimeFunction]](), np.zeros(0), np.zeros(0, np.int64)
        self.stiffness, self.damping, self.free = np.zeros(0), np.zeros(0), np.zeros(0, bool)
        if not c.servoed:  # of many bodies nothing is made
            return
        self.functions, self.torque = c.servo_functions, c.servo_torque.copy()
        there = c.servo_stiffness + c.servo_damping + abs(self.torque)
        for body, _ in self.functions:
            there[c.u_offset[body] : c.u_offset[body + 1]] = np.inf
        self.speeds = np.flatnonzero(there)
        self._places = c.coordinates_of(self.speeds)
        given = c.servo_stiffness, c.servo_damping, c.servo_least, c.servo_most
        self.stiffness, self.damping, self._least, self._most = (values[self.speeds] for values in given)
        self.free = np.ones(len(self.speeds), bool)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return len(self.speeds) > 0

    def forces(self, q: Floats, u: Floats) -> Floats:
        """Generalized forces [m] (N m, N)."""
        asked = self.torque[self.speeds] - self.stiffness * q[self._places] - self.damping * u[self.speeds]
        self.free = (asked > self._least) & (asked < self._most)
        found: Floats = np.clip(asked, self._least, self._most)
        return found
