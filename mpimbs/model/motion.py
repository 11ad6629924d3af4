"""Motions that joints are made to follow: functions of time, or tables of values at times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.model.joints import JointType
from mpimbs.model.over_time import checked_rows

MotionFunction = Callable[[float], Any]
"""A function of time (s) that returns coordinates, speeds and accelerations of a joint: three numbers or lists."""

Motion = str | MotionFunction | tuple[tuple[float, ...], ...]
"""What a joint follows: a function, one of a module as text module:function, or rows of a time (s) and coordinates."""


def checked_motion(value: Any, kind: JointType) -> Motion | None:
    """Return the motion of a joint of a type; ValueError if it is none."""
    if value is None:
        return None
    if not kind.nu:
        raise ValueError("has nothing to move in a fixed joint; leave it out")
    if kind.quaternion:
        raise ValueError(f"is not for {kind.name} joints; use joints about single axes, one on the other")
    if callable(value):
        return value
    if isinstance(value, str):
        if not all(value.partition(":")):
            raise ValueError(
                f"must be module:function, such as hand:wave for the function wave of hand.py, got {value!r}"
            )
        return value
    if not isinstance(value, list | tuple | np.ndarray) or len(value) < 2:
        raise ValueError(
            f"must be a function, module:function, or two or more rows of a time and values, got {value!r}"
        )
    return checked_rows(value, kind.nq, f"of the {kind.name} joint {' '.join(kind.q_units)}")


class TableMotion:
    """The motion through the rows of a table: a cubic spline, with continuous accelerations.

    Its ends are those of a cubic through the first and the last four rows; through three rows goes a parabola, through
    two a straight line.

    Parameters
    ----------
    rows : sequence of rows
        Times (s), ascending, and coordinates.
    """

    def __init__(self, rows: tuple[tuple[float, ...], ...]) -> None:
        from scipy.interpolate import CubicSpline  # takes 0.2 s: where it is needed

        values = np.array(rows)
        self._times = values[:, 0]
        self._coefficients = CubicSpline(self._times, values[:, 1:]).c  # [4, rows - 1, nq]

    def __call__(self, t: float) -> tuple[Floats, Floats, Floats]:
        """Give coordinates, speeds and accelerations at a time (s); ValueError where the table says nothing of it."""
        first, last = self._times[0], self._times[-1]
        slack = 1e-12 * (last - first)
        if not first - slack <= t <= last + slack:
            raise ValueError(f"its table goes from {first:g} to {last:g} s")
        k = min(max(int(np.searchsorted(self._times, t, "right")) - 1, 0), len(self._times) - 2)
        s, (a, b, c, d) = t - self._times[k], self._coefficients[:, k]
        return ((a * s + b) * s + c) * s + d, (3 * a * s + 2 * b) * s + c, 6 * a * s + 2 * b
