"""What the coupling `augmented` takes on one core: its parts, timed on one process, as lines over the bodies."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.compiling import compile_evaluations
from mpimbs.dynamics import Dynamics
from mpimbs.model import System, system_from
from mpimbs.spatial.condensing import (
    SIDE,
    add_condensed,
    clear_front,
    condense_right,
    eliminate_front,
    expand_solution,
)
from mpimbs.study.constraint_load_costs import Line
from mpimbs.study.trace import Sweeps
from mpimbs.sweep.structure import TURNING

AUGMENTED = "augmented"
_CALLS, _FEWEST, _SECONDS = 200, 10, 0.3  # of evaluations; s


class AbsoluteCosts(NamedTuple):
    """Seconds of the parts of an evaluation.

    Attributes
    ----------
    call, motion, inward, outward : Line
        As of `trace.Sweeps`, by the bodies of a rank.
    factor, iteration : Line
        Condensing the matrix of a rank's bodies; and an iteration with it.
    iterations : int
        Of a solution.
    join, spread : float
        Condensing the matrix where two ranks are joined; and what an iteration does there, both ways.
    turns : int
        Doubles of a message of the scan of turns.
    """

    call: Line
    motion: Line
    inward: Line
    outward: Line
    factor: Line
    iteration: Line
    iterations: int
    join: float
    spread: float
    turns: int

    def sweeps(self, bodies: int) -> Sweeps:
        """Times of a rank's sweeps; without its coupling."""
        call, motion, inward, outward = (line(bodies) for line in self[:4])
        return Sweeps(call, motion, inward, 0.0, outward)


def measure_absolute(system: System) -> AbsoluteCosts:
    """Time evaluations of a chain, and of a single body: what they take in between is proportional."""
    (alone, _, turns), (whole, iterations, _) = _timed(system_from("chain:1")), _timed(system)
    more = max(system.n_bodies - 1, 1)
    each = [max(many - one, 0.0) / more for one, many in zip(alone, whole, strict=True)]
    lines = [Line(max(one - slope, 0.0), slope) for one, slope in zip(alone, each, strict=True)]
    call, motion, inward, outward, factor, iteration = lines
    return AbsoluteCosts(call, motion, inward, outward, factor, iteration, iterations, *_time_join(), turns)


def _timed(system: System) -> tuple[list[float], int, int]:
    """Least seconds of call, motion, inward, outward, factor, iteration; iterations; doubles of a turn."""
    with closing(Dynamics(system, MPI.COMM_SELF, AUGMENTED)) as dynamics:
        compile_evaluations(dynamics)
        share, coupling = dynamics.subchain, dynamics.coupling
        q, u = share.q, 0.1 * np.sin(np.arange(share.nu))
        udot, rates = np.empty(share.nu), np.empty(share.nq)
        moved = q.copy()
        found: tuple[list[list[float]], list[list[float]]] = [], []
        began = time.perf_counter()
        while len(found[0]) < _FEWEST or (len(found[0]) < _CALLS and time.perf_counter() - began < _SECONDS):
            moved[-1] = q[-1] + 1e-9 * len(found[0])  # another state, whose matrix is condensed; then the same again
            for rows in found:
                before, solved, at = (
                    dynamics.laps.copy(),
                    coupling.statistics()["total_iterations"],
                    time.perf_counter(),
                )
                dynamics.evaluate(0.0, moved, u, udot, rates)
                spent, laps = time.perf_counter() - at, dynamics.laps - before
                iterations = coupling.statistics()["total_iterations"] - solved
                rows.append([max(spent - laps.sum(), 0.0), *laps])
        call, motion, inward, condensed, outward = np.min(found[0], axis=0).tolist()
        iterated = float(np.min(found[1], axis=0)[3])
        parts = [call, motion, inward, outward, max(condensed - iterated, 0.0), iterated / iterations]
        return parts, iterations, len(share.nothing_before(TURNING))


def _time_join() -> tuple[float, float]:
    """Time a join of two pieces of a chain that leave two bodies each: of the matrix, and of a right-hand side (s)."""
    size, gone, left, right = 3 * SIDE, SIDE, np.array([1, 0]), np.array([0, 2])
    piece, rest = np.eye(2 * SIDE).ravel(), np.zeros(4 * SIDE * SIDE)
    front, factor, x = np.zeros(size * size), np.zeros(gone * size), np.zeros(size)

    def join() -> None:
        clear_front(front, size)
        add_condensed(front, size, left, piece)
        add_condensed(front, size, right, piece)
        eliminate_front(front, size, gone, factor, rest)

    def spread() -> None:
        condense_right(factor, size, gone, x)
        expand_solution(factor, size, gone, x)

    return _least(join), _least(spread)


def _least(call: Callable[[], None]) -> float:
    laps = []
    for _ in range(_CALLS):
        began = time.perf_counter()
        call()
        laps.append(time.perf_counter() - began)
    return min(laps)
