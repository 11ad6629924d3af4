"""The evaluations of a simulation, recorded to be played again: for couplings that make use of what was before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.evaluation import Acted
from mpimbs.dynamics.state_derivative import StateDerivative

MOST = 200  # evaluations
ROOM = 2**27  # bytes that they may take
RTOL = 1e-8  # of the simulation


class _Recorder:
    """Stands in for a `StateDerivative`, and keeps what it is asked for."""

    compiled = None  # Python is asked

    def __init__(self, derivative: StateDerivative) -> None:
        self.recorded = derivative
        self.asked: list[tuple[float, Floats, Floats]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.recorded, name)

    def evaluate(
        self, t: float, q: Floats, u: Floats, udot: Floats, rates: Floats, held: Floats | None = None
    ) -> Acted:
        self.asked.append((t, q.copy(), u.copy()))
        return self.recorded.evaluate(t, q, u, udot, rates, held)


def record(dynamics: Dynamics, q: Floats, u: Floats) -> list[tuple[float, Floats, Floats]]:
    """Simulate for some steps, and give time (s), coordinates and speeds of every evaluation; all ranks call.

    Parameters
    ----------
    q, u : array [nq], [nu]
        This rank's part of the initial state.
    """
    from mpimbs.stepping.integrators import make_integrator
    from mpimbs.stepping.schemes import Accuracy

    recorder = _Recorder(dynamics.derivative)
    largest = max(dynamics.comm.allgather(q.nbytes + u.nbytes))
    count = int(np.clip(ROOM // max(largest, 1), 2, MOST))
    dynamics.derivative = cast(StateDerivative, recorder)
    try:
        stepper = make_integrator(dynamics, q, u, "dopri5", Accuracy(RTOL, RTOL))
        recorder.asked.clear()  # the trial of the first step
        while len(recorder.asked) < count:
            stepper.step_towards(np.inf)
        stepper.close()
    finally:
        dynamics.derivative = recorder.recorded
    return recorder.asked[:count]


def player(dynamics: Dynamics, q: Floats, u: Floats, udot: Floats) -> tuple[Callable[[], None], Callable[[], None]]:
    """Give a function that evaluates the next of the recorded states, and one that begins with the first again.

    Parameters
    ----------
    q, u : array [nq], [nu]
        This rank's part of the initial state.
    udot : array [nu]
        Written at every evaluation: generalized accelerations.
    """
    states = record(dynamics, q, u)
    rates = np.empty(len(q))
    at = 0

    def evaluate() -> None:
        nonlocal at
        t, q, u = states[at]
        at = (at + 1) % len(states)
        dynamics.derivative.evaluate(t, q, u, udot, rates)

    def begin() -> None:
        nonlocal at
        at = 0

    return evaluate, begin
