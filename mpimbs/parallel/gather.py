"""Vectors gathered on rank 0, in the model's order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.model.order import Where
from mpimbs.parallel.reorder import Reorder

Floats = npt.NDArray[np.float64]


class Gather:
    """Gathers the rows of an array, of which each rank has some, on rank 0.

    Parameters
    ----------
    comm : MPI.Comm
        Must outlive the plan.
    order : Reorder
        Of the rows.
    width : int
        How many numbers a row has.
    """

    def __init__(self, comm: MPI.Comm, order: Reorder, width: int = 1) -> None:
        self._comm, self._order = comm, order
        self._counts = [width * count for count in order.counts]
        self._whole = np.empty(sum(self._counts)) if comm.rank == 0 else None

    @property
    def part(self) -> Where:
        """Where this rank's rows stand in the whole."""
        return self._order.where

    def __call__(self, part: Floats) -> Floats | None:
        """Give the whole, flat, on rank 0 (a buffer that is used again), None elsewhere. All ranks call."""
        stretch = np.ascontiguousarray(self._order(part))
        self._comm.Gatherv(stretch, (self._whole, self._counts) if self._comm.rank == 0 else None)
        return self._whole

    def everywhere(self, part: Floats) -> Floats:
        """Give the whole, flat, on all ranks; on one it may be the part itself. All ranks call."""
        stretch = self._order(part)
        if self._comm.size == 1:
            return stretch.reshape(-1)
        whole = np.empty(sum(self._counts))
        self._comm.Allgatherv(np.ascontiguousarray(stretch), (whole, self._counts))
        return whole
