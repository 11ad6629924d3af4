"""Motions of some bodies of a running system, wherever they are, on all ranks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.evaluation import NOTHING
from mpimbs.model import BodyMotion
from mpimbs.sweep.body_motion import motions_of_points

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
SHAPE = 18  # numbers of a motion: rotation 9, position, angular velocity, velocity


class MotionsOfBodies:
    """Gives the motions of the origins of some bodies; all ranks make it together and call.

    Parameters
    ----------
    dynamics : Dynamics
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
            steps = self._dynamics.step_motions(q, u, NOTHING).reshape(-1)
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
