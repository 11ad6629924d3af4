"""Initial estimates of constraint loads: holds over the times of earlier evaluations."""

from __future__ import annotations

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import assign

ORDERS = {"zero": 0, "first": 1, "second": 2}


LARGEST_SUM = 50.0  # of weights without their signs; within the stages of a step it is 11 at the most for first order


@kernel
def _weight(times, points, t, i):
    weight = 1.0
    for k in range(points):
        if k != i:
            weight *= (t - times[k]) / (times[i] - times[k])
    return weight


@kernel
def extrapolate(times, values, kept, order, t, out):
    """Write the polynomial through the last `order` + 1 values at time `t` (Lagrange).

    Through fewer, if fewer are kept, or if times so close to each other are to say so much about one further away that
    they would multiply the errors of the values.
    """
    points = min(kept, order + 1)
    while points > 1:
        total = 0.0
        for i in range(points):
            total += abs(_weight(times, points, t, i))
        if total <= LARGEST_SUM:
            break
        points -= 1
    out[:] = 0.0
    for i in range(points):
        weight = _weight(times, points, t, i)
        for k in range(out.size):
            out[k] += weight * values[i, k]


@kernel
def remember(times, values, kept, t, value):
    """Put a value and its time before the others, in the place of one of the same time; returns how many are kept.

    An evaluation of a rejected step is replaced as soon as there is a newer one of its time; times may go back.
    """
    last = min(kept, times.size - 1)
    for k in range(kept):
        if abs(times[k] - t) <= 1e-14 * abs(t):
            last = k
            break
    for k in range(last, 0, -1):
        times[k] = times[k - 1]
        assign(values[k], values[k - 1])
    times[0] = t
    assign(values[0], value)
    return max(kept, last + 1)


class Hold:
    """A hold of some order: loads of earlier evaluations, extrapolated over their actual times [Duan & Anderson, 1].

    Parameters
    ----------
    order : int
        0, 1 or 2.
    count : int
        Loads of this rank.
    """

    def __init__(self, order: int, count: int) -> None:
        self._order = order
        self.times = np.zeros(order + 1)  # [order + 1]: those that are kept (s; N m, N), and how many: `kept`
        self.values = np.zeros((order + 1, count))  # [order + 1, count]
        self.kept = 0

    def forget(self) -> None:
        """Begin anew: what comes has nothing to do with what was."""
        self.kept = 0

    def estimate(self, t: float, out: Floats) -> None:
        """Write the estimate for time `t` (s) [count]; zeros where nothing is known."""
        extrapolate(self.times, self.values, self.kept, self._order, t, out)

    def remember(self, t: float, loads: Floats) -> None:
        """Keep the loads [count] of an evaluation at time `t` (s)."""
        self.kept = int(remember(self.times, self.values, self.kept, t, loads))
