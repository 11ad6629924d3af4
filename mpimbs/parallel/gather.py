"""Vectors gathered on rank 0 and scattered from it, rank by rank in order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

Floats = npt.NDArray[np.float64]


class Gather:
    """Gathers each rank's part of a vector on rank 0, and scatters it.

    Parameters
    ----------
    comm : MPI.Comm
        Must outlive the plan.
    counts : array [P]
        Length of every rank's part.
    """

    def __init__(self, comm: MPI.Comm, counts: npt.NDArray[np.int64]) -> None:
        self._comm = comm
        self._counts = [int(n) for n in counts]
        starts = np.concatenate([[0], np.cumsum(counts)])
        self.part = slice(int(starts[comm.rank]), int(starts[comm.rank + 1]))
        self._whole = np.empty(int(starts[-1])) if comm.rank == 0 else None

    def __call__(self, part: Floats) -> Floats | None:
        """Give the whole vector on rank 0 (a buffer that is used again), None elsewhere. All ranks call."""
        self._comm.Gatherv(np.ascontiguousarray(part), (self._whole, self._counts) if self._comm.rank == 0 else None)
        return self._whole
