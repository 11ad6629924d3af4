"""The largest of what ranks have; of NaN and a number MPI_MAX gives either, so that one rank's NaN would be lost."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

Floats = npt.NDArray[np.float64]


def greatest(comm: MPI.Comm, numbers: npt.ArrayLike) -> Floats:
    """Give the greatest of each number among all ranks, infinite where any has none (NaN); all ranks call."""
    found = np.array(numbers, np.float64)
    found[np.isnan(found)] = np.inf
    if comm.size > 1:
        comm.Allreduce(MPI.IN_PLACE, found, MPI.MAX)
    return found


def largest(comm: MPI.Comm, *vectors: Floats) -> Floats:
    """Give the largest magnitude in each vector among all ranks, infinite where one has a NaN; all ranks call."""
    return greatest(comm, [np.abs(vector).max(initial=0.0) for vector in vectors])
