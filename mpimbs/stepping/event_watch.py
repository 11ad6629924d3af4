"""Events by functions of the state: watched from step to step, and found within a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.evaluation import NOTHING
from mpimbs.forces.calls import called, shaped
from mpimbs.model import BodyMotion, Event
from mpimbs.parallel.agreement import on_root
from mpimbs.sweep.motion import motions_of_points

SHAPE = 18  # numbers of a motion: rotation 9, position, angular velocity, velocity


class MotionsOfBodies:
    """Gives the motions of the origins of some bodies; all ranks make it together and call.

    Parameters
    ----------
    bodies : array [n]
        Their numbers in the model, each once.
    """

    def __init__(self, dynamics: Dynamics, bodies: Integers) -> None:
        self._dynamics, self._bodies = dynamics, bodies
        mine = dynamics.bodies
        order = np.argsort(mine)
        place = np.minimum(np.searchsorted(mine, bodies, sorter=order), max(len(mine) - 1, 0))
        self._rows = np.flatnonzero(mine[order[place]] == bodies) if len(mine) else np.zeros(0, np.int64)
        local = order[place[self._rows]] if len(mine) else np.zeros(0, np.int64)
        n = len(self._rows)
        self._steps, frames = dynamics.subchain.carriers(local)
        self._frames, self._points = frames.ravel(), np.zeros(3 * n)
        self._own = [np.empty(9 * n), *(np.empty(3 * n) for _ in range(3))]
        self._sized = list(zip(self._own, (9, 3, 3, 3), strict=True))
        self._whole = np.zeros((len(bodies), SHAPE))

    def __call__(self, q: Floats, u: Floats) -> BodyMotion:
        """Give the motions in a state, of which this is this rank's part; the same on all ranks, and used again."""
        if len(self._bodies):
            steps = self._dynamics.divided.step_motions(q, u, NOTHING).reshape(-1)
            motions_of_points(0.0, steps, self._steps, self._frames, self._points, *self._own)
        if self._dynamics.comm.size > 1:
            self._whole[:] = 0.0
            self._whole[self._rows] = np.hstack([values.reshape(len(self._rows), n) for values, n in self._sized])
            self._dynamics.comm.Allreduce(MPI.IN_PLACE, self._whole)
            parts = np.split(self._whole, (9, 12, 15), axis=1)
        else:
            parts = self._own
        turns, *vectors = parts
        return BodyMotion(self._bodies, turns.reshape(-1, 3, 3), *(vector.reshape(-1, 3) for vector in vectors))


CLOSE = 1e-10  # of a step, to which a moment is found in it, but for the rounding of times
SMALLEST = 1e-300  # of values

Values = Callable[[float, Floats, Floats], Floats]
"""The values of functions at a time (s) in a state, of which this rank has a part; the same on all ranks."""


class EventWatch:
    """Sees which functions pass zero; all ranks make it together and call.

    Parameters
    ----------
    events : sequence of Event
        Those by functions.
    functions : sequence of callable
    armed : sequence of bool
        Which of them have something to do.
    signs : array [events], optional
        Where these were last: -1 or 1, 0 where that is not known.
    """

    def __init__(
        self,
        dynamics: Dynamics,
        events: Sequence[Event],
        functions: Sequence[Callable[..., Any]],
        armed: Sequence[bool],
        signs: Sequence[int] | None = None,
    ) -> None:
        self._comm = dynamics.comm
        self._events, self._functions, self._armed = events, functions, np.array(armed, bool)
        self.signs = np.zeros(len(events), np.int64) if signs is None else np.array(signs, np.int64)
        numbers = [np.array([dynamics.system.index_of(name) for name in e.bodies], np.int64) for e in events]
        bodies = np.unique(np.concatenate([np.zeros(0, np.int64), *numbers]))
        self._rows = [np.searchsorted(bodies, own) for own in numbers]
        self._motions = MotionsOfBodies(dynamics, bodies)

    def values(self, t: float, q: Floats, u: Floats) -> Floats:
        """The values of the functions [events] at time `t` (s); called on rank 0, the same on all ranks.

        Raises
        ------
        SimulationError
            On all ranks: a function failed, or gave no finite number.
        """
        if not len(self._events):
            return np.zeros(0)
        motions = self._motions(q, u)
        found = on_root(self._comm, lambda: np.array([self._value(k, t, motions) for k in range(len(self._events))]))
        values = np.zeros(len(self._events)) if found is None else found
        self._comm.Bcast(values)
        return values

    def _value(self, k: int, t: float, motions: BodyMotion) -> float:
        def what() -> str:
            return f"the function of the event ({self._events[k].told})"

        rows = self._rows[k]
        own = BodyMotion(
            motions.body[rows],
            motions.rotation[rows],
            motions.position[rows],
            motions.angular_velocity[rows],
            motions.velocity[rows],
        )
        value = float(shaped(what, t, called(what, t, self._functions[k], own), ()))
        if not np.isfinite(value):
            raise SimulationError(f"{what()} is not finite at t = {t:g} s")
        return value

    def begin(self, t: float, q: Floats, u: Floats, passed: Sequence[int] = ()) -> None:
        """See where the functions are at a begin, but for those that have just `passed` zero: they are beyond it."""
        before = self.signs.copy()
        self.signs[:] = np.sign(self.values(t, q, u))
        self.signs[list(passed)] = -before[list(passed)]

    def crossed(self, t: float, q: Floats, u: Floats) -> list[int]:
        """Which of the functions with something to do have reached or passed zero since the call before."""
        signs = np.sign(self.values(t, q, u)).astype(np.int64)
        found = np.flatnonzero((signs * self.signs <= 0) & (self.signs != 0) & self._armed).tolist()
        if not found:
            self.signs = np.where(signs == 0, self.signs, signs)
        return found


class EventSearch:
    """Finds in a step at which moment the first of some functions passes zero.

    Parameters
    ----------
    which : sequence of int
        The functions that pass zero in the step, of those whose values are given.
    signs : sequence of int
        Of these before.
    """

    def __init__(self, values: Values, which: Sequence[int], signs: Sequence[int]) -> None:
        self._values, self._which, self._signs = values, list(which), np.array(signs, np.float64)
        self.passed: list[int] = []  # which pass zero at that moment

    def __call__(self, at: Callable[[float], tuple[Floats, Floats]], begin: float, end: float) -> float:
        """Find it between the times where a step begins and ends (s): the first where one has passed, to `CLOSE`.

        Chords of the functions lead there, whose end that stays loses weight; every third time the interval is halved.

        Parameters
        ----------
        at : callable
            Gives a state at a time in the step.
        """

        def left_at(t: float) -> Floats:
            """Give what the functions have left before zero; all ranks call."""
            q, u = at(t)
            return self._values(t, q.copy(), u.copy())[self._which] * self._signs

        low, high = left_at(begin), left_at(end)
        low = np.where(low > 0.0, low, np.maximum(np.abs(high), SMALLEST))  # it has just passed zero, to rounding
        if not (high <= 0.0).any():  # nor is it there at the end, for no more than rounding
            self.passed = self._which
            return end
        stayed = count = 0
        close = max(CLOSE * (end - begin), 4.0 * np.spacing(end))
        while end - begin > close:
            count += 1
            passing = high <= 0.0  # one of them at least
            weights = 0.5 ** max(stayed - 1, 0), 0.5 ** max(-stayed - 1, 0)  # of what is ahead, of what is behind
            shares = weights[0] * low[passing] / (weights[0] * low[passing] - weights[1] * high[passing])
            share = float(shares.min()) if count % 3 else 0.5
            margin = 0.25 * close / (end - begin)
            middle = begin + float(np.clip(share, margin, 1.0 - margin)) * (end - begin)
            if not begin < middle < end:
                break
            found = left_at(middle)
            if (found <= 0.0).any():
                end, high, stayed = middle, found, max(stayed, 0) + 1
            else:
                begin, low, stayed = middle, found, min(stayed, 0) - 1
        self.passed = [k for k, value in zip(self._which, high.tolist(), strict=True) if value <= 0.0]
        return end
