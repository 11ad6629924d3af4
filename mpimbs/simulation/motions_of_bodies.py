"""Motions of some bodies of a running system, wherever they are, on all ranks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.dynamics import Dynamics
from mpimbs.evaluation import NOTHING
from mpimbs.model import BodyMotion
from mpimbs.sweep.structure import PLACE

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


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
        self._steps, self._frames = dynamics.subchain.carriers(local)

    def __call__(self, q: Floats, u: Floats) -> BodyMotion:
        """Give the motions in a state, of which this is this rank's part; the same on all ranks."""
        found = np.zeros((len(self._bodies), PLACE + 6))
        steps = self._dynamics.step_motions(q, u, NOTHING)[self._steps]
        to_world = np.swapaxes(steps[:, :9].reshape(-1, 3, 3), 1, 2)
        rotation = to_world @ np.swapaxes(self._frames, 1, 2)
        turning, moving = (np.einsum("nij,nj->ni", to_world, steps[:, k : k + 3]) for k in (PLACE, PLACE + 3))
        found[self._rows] = np.hstack([rotation.reshape(-1, 9), steps[:, 9:PLACE], turning, moving])
        self._dynamics.comm.Allreduce(MPI.IN_PLACE, found)
        parts = found[:, 9:PLACE], found[:, PLACE : PLACE + 3], found[:, PLACE + 3 :]
        return BodyMotion(self._bodies, found[:, :9].reshape(-1, 3, 3), *(np.ascontiguousarray(p) for p in parts))
