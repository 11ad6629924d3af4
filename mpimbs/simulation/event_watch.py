"""Events by functions of the state: watched from step to step, and found within a step by PETSc's event handling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mpimbs.dynamics import Dynamics
from mpimbs.errors import SimulationError
from mpimbs.forces.calls import called, shaped
from mpimbs.model import BodyMotion, Event
from mpimbs.parallel.agreement import on_root
from mpimbs.petsc import PETSc
from mpimbs.simulation.motions_of_bodies import MotionsOfBodies

Floats = npt.NDArray[np.float64]
CLOSE = 1e-10  # s, to which a moment is found
BY_VALUES = 10  # evaluations, before intervals are halved: at zeros of higher order the values mislead
SMALLEST = 1e-300  # of values: moments count, not values

Values = Callable[[float, Floats, Floats], Floats]
"""The values of functions at a time (s) in a state, of which this rank has a part; the same on all ranks."""


class EventWatch:
    """Sees which functions pass zero; all ranks make it together and call.

    Parameters
    ----------
    dynamics : Dynamics
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
    """Finds in a step at which moment the first of some functions passes zero [PETSc: TSSetEventHandler].

    Parameters
    ----------
    values : callable
    which : sequence of int
        The functions that pass zero in the step, of those whose values are given.
    signs : sequence of int
        Of these before.
    """

    def __init__(self, values: Values, which: Sequence[int], signs: Sequence[int]) -> None:
        self._values, self._which, self._signs = values, list(which), list(signs)
        self.passed: list[int] = []

    def __call__(self, ts: PETSc.TS, vector: PETSc.Vec, end: float, ends: tuple[int, int]) -> None:
        """Integrate from the step's begin to the moment, or to the `end` (s) of the step if there is none.

        Parameters
        ----------
        ts : TS
            At the begin of the step, with steps as they are given.
        vector : Vec
            Its state.
        ends : (int, int)
            Where coordinates and speeds end in it.
        """
        begin = ts.getTime()
        brackets = [_Bracket(begin, end, sign) for sign in self._signs]

        def handle(ts: object, t: float, x: PETSc.Vec, out: Floats) -> None:
            q, u = np.split(x.array_r[: ends[1]], ends[:1])
            values = self._values(t, q.copy(), u.copy())[self._which]
            out[:] = [bracket.told(t, value) for bracket, value in zip(brackets, values.tolist(), strict=True)]

        def after(ts: object, events: npt.NDArray[np.int32], *_: Any) -> None:
            self.passed = [self._which[k] for k in events.tolist()]

        ts.setEventHandler([0] * len(brackets), [True] * len(brackets), handle, after)
        ts.setEventTolerances(tol=SMALLEST)
        ts.setMaxTime(end)
        ts.setExactFinalTime(PETSc.TS.ExactFinalTime.MATCHSTEP)
        ts.setTimeStep(end - begin)
        ts.solve(vector)
        self.passed = self.passed or self._which  # what passes zero for no more than rounding has passed it at the end


class _Bracket:
    """The moment of one function: between which times it is, and what PETSc is told of its value."""

    def __init__(self, begin: float, end: float, sign: int) -> None:
        self._begin, self._end, self._sign = begin, end, sign
        self._told, self._count = 0.0, 0

    def told(self, t: float, value: float) -> float:
        """Take the value at a time `t` (s); gives what leads PETSc there: nothing once that is near enough."""
        before = value * self._sign > 0
        self._count += 1
        if self._count == 1 and not before:  # it has just passed zero, to rounding
            self._count, before, value = BY_VALUES, True, float(self._sign)
        if before:
            self._begin = max(self._begin, t)
        else:
            self._end = min(self._end, t)
        if self._end - self._begin <= CLOSE:
            return 0.0
        if self._count > BY_VALUES:
            return self._told if before else -self._told
        if before:
            self._told = value
        return value
