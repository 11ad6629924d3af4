"""What the coupling `pcg` takes on one core: its parts, timed on one process with several cuts; needs petsc4py."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.compiling import compile_evaluations
from mpimbs.coupling import LoadSolver
from mpimbs.dynamics import Dynamics
from mpimbs.model import System
from mpimbs.study.cost_fit import PowerLaw, fit_power_law
from mpimbs.study.replay import record
from mpimbs.study.trace import Sweeps

CUTS = (1, 3, 7, 15)
LARGE, CUTS_OF_LARGE = 100_000, (1, 7)  # bodies from which on fewer are measured, for their time
_FEWEST, _MOST, _SECONDS = 2, 6, 0.5  # rounds of the recorded motion, and their time (s)
_COUNTED = ("solutions", "total_iterations", "factorizations")
_CALLS = 300


class Line(NamedTuple):
    """Seconds for a number of unknowns: fixed + each * unknowns."""

    fixed: float
    each: float

    def __call__(self, unknowns: float) -> float:
        return self.fixed + self.each * unknowns


class ConstraintLoadCosts(NamedTuple):
    """Seconds of the parts of a solution, and how many iterations and factorizations it takes.

    Attributes
    ----------
    loads : float
        Constraint loads of a joint.
    alone : float
        A call of the coupling without cuts.
    once : float
        What a solution takes beside iterations and factorizations, with one joint: forming the equations, boundary
        values, calls from Python.
    iteration : float
        An iteration with one joint, without the preconditioner and without messages.
    precondition, factor : Line
        Applying the preconditioner, and making it, by the unknowns that a rank has of it.
    iterations : PowerLaw
        Iterations of a solution, by all unknowns; a mean along a motion.
    factorizations : float
        Of a solution; a mean.
    """

    loads: float
    alone: float
    once: float
    iteration: float
    precondition: Line
    factor: Line
    iterations: PowerLaw
    factorizations: float


class _Sample(NamedTuple):
    """What was measured with one number of cuts."""

    unknowns: int
    seconds: float
    iterations: float
    factorizations: float
    precondition: float
    factor: float
    iteration: float


def measure_solutions(system: System, solver: LoadSolver) -> ConstraintLoadCosts:
    """Time solutions along a motion, with several numbers of cuts on this process.

    Parameters
    ----------
    system : System
        A chain.
    solver : LoadSolver
    """
    alone, _, _, _ = _along_motion(system, solver, 0)
    chosen = CUTS if system.n_bodies <= LARGE else CUTS_OF_LARGE
    samples = [_sample(system, solver, cuts) for cuts in chosen if system.is_chain and cuts < system.n_bodies]
    if not samples:
        return ConstraintLoadCosts(0.0, alone, 0.0, 0.0, Line(0.0, 0.0), Line(0.0, 0.0), PowerLaw(0.0, 0.0), 0.0)
    one = samples[0]
    unknowns = [s.unknowns for s in samples]
    iterations = [s.iterations for s in samples]
    if len(samples) > 1 and min(iterations) > 0.0:
        law = fit_power_law(unknowns, iterations)
    else:
        law = PowerLaw(iterations[-1], 0.0)
    factorizations = float(np.mean([s.factorizations for s in samples]))
    spent = one.iterations * (one.iteration + one.precondition) + one.factorizations * one.factor
    return ConstraintLoadCosts(
        loads=one.unknowns / CUTS[0],
        alone=alone,
        once=max(one.seconds - spent, 0.0),
        iteration=one.iteration,
        precondition=_line(unknowns, [s.precondition for s in samples]),
        factor=_line(unknowns, [s.factor for s in samples]),
        iterations=law,
        factorizations=factorizations,
    )


def _line(unknowns: list[int], seconds: list[float]) -> Line:
    """Fit a line by least squares of the relative errors, nowhere below zero."""
    if len(unknowns) < 2:
        return Line(seconds[0], 0.0)
    each, fixed = np.polyfit(unknowns, seconds, 1, w=1.0 / np.maximum(seconds, 1e-9))
    if fixed < 0.0:
        return Line(0.0, float(np.mean(np.array(seconds) / unknowns)))
    return Line(float(fixed), max(float(each), 0.0))


def _along_motion(
    system: System, solver: LoadSolver, cuts: int, then: Callable[[Any], Any] = lambda coupling: None
) -> tuple[float, float, float, Any]:
    """Mean seconds, iterations and factorizations of a solution along a motion; and what `then` finds afterwards."""
    with contextlib.closing(Dynamics(system, MPI.COMM_SELF, "pcg", cuts=cuts, solver=solver)) as dynamics:
        compile_evaluations(dynamics)
        share = dynamics.subchain
        u = 0.1 * np.sin(np.arange(share.nu))
        states = record(dynamics, share.q, u)
        udot, rates = np.empty(share.nu), np.empty(share.nq)
        settled = settling(len(states))
        found = dict.fromkeys(_COUNTED, 0)
        laps: list[list[float]] = []
        began = time.perf_counter()
        while len(laps) < _FEWEST or (len(laps) < _MOST and time.perf_counter() - began < _SECONDS):
            laps.append([])
            for k, (t, q, u) in enumerate(states):
                if k == settled:
                    before = dynamics.coupling.statistics()
                already = Sweeps(0.0, *dynamics.laps).coupling
                dynamics.derivative(t, q, u, udot, rates)
                laps[-1].append(Sweeps(0.0, *dynamics.laps).coupling - already)
            after = dynamics.coupling.statistics()
            found = {name: found[name] + after[name] - before[name] for name in _COUNTED}
        solutions = max(found["solutions"], 1)
        seconds = float(np.min(laps, axis=0)[settled:].mean())
        each = found["total_iterations"] / solutions, found["factorizations"] / solutions
        return seconds, *each, then(dynamics.coupling)


def settling(states: int) -> int:
    """How many evaluations at the begin of a recorded motion are not counted: what was known before is of its end."""
    return states // 4


def _sample(system: System, solver: LoadSolver, cuts: int) -> _Sample:
    seconds, iterations, factorizations, (unknowns, precondition, factor, iteration) = _along_motion(
        system, solver, cuts, _parts
    )
    return _Sample(unknowns, seconds, iterations, factorizations, precondition, factor, iteration)


def _parts(coupling: Any) -> tuple[int, float, float, float]:
    """Unknowns; seconds of the preconditioner, of a factorization, and of the rest of an iteration."""
    right, work, matrix, ksp = coupling.parts()
    other = work.duplicate()
    ksp.setUp()
    pc = ksp.getPC()
    call = _least(right.stateIncrease)  # of petsc4py
    precondition = _least(lambda: pc.apply(right, work)) - call

    def renew() -> None:
        matrix.changed()
        pc.setReusePreconditioner(False)
        pc.setUp()

    factor = _least(renew, _CALLS // 10) - _least(matrix.changed)
    product = _least(lambda: matrix.mat.mult(right, work)) - call
    dot, sum_ = _least(lambda: right.dot(work)) - call, _least(lambda: other.axpy(0.5, work)) - call
    other.destroy()
    iteration = max(product, 0.0) + 3.0 * max(dot, 0.0) + 3.0 * max(sum_, 0.0)
    return coupling.unknowns, max(precondition, 0.0), max(factor, 0.0), iteration


def _least(call: Callable[[], Any], count: int = _CALLS, runs: int = 5) -> float:
    """Seconds of one call among many, in the fastest of some runs."""
    call()
    laps = []
    for _ in range(runs):
        began = time.perf_counter()
        for _ in range(count):
            call()
        laps.append((time.perf_counter() - began) / count)
    return min(laps)
