"""Vectors that pass through rank 0 slice by slice, so that it never holds the whole: for files in the model's order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

Floats = npt.NDArray[np.float64]
SLICE = 2**20  # numbers


class Slices:
    """Moves a distributed vector, rank after rank, to rank 0 and back.

    Parameters
    ----------
    comm : MPI.Comm
        Must outlive the plan; all ranks make it and call its methods together.
    count : int
        Length of this rank's part.
    """

    def __init__(self, comm: MPI.Comm, count: int) -> None:
        self._comm = comm
        self.counts: list[int] = comm.allgather(count)

    def collect(self, part: Floats, take: Callable[[Floats], None]) -> None:
        """Have rank 0 take the slices in their order; `take` must not raise, since others wait to be received."""
        comm = self._comm
        for rank, lo, hi in self._slices():
            if rank == comm.rank == 0:
                take(part[lo:hi])
            elif comm.rank == rank:
                comm.Send(np.ascontiguousarray(part[lo:hi]), 0)
            elif comm.rank == 0:
                piece = np.empty(hi - lo)
                comm.Recv(piece, rank)
                take(piece)

    def spread(self, give: Callable[[int, int], Floats]) -> Floats:
        """Return this rank's part of what rank 0 gives: the numbers from a place in the whole to another."""
        comm = self._comm
        mine = np.empty(self.counts[comm.rank])
        at = 0
        for rank, lo, hi in self._slices():
            if comm.rank == 0:
                piece = np.ascontiguousarray(give(at, at + hi - lo), np.float64)
                if rank == 0:
                    mine[lo:hi] = piece
                else:
                    comm.Send(piece, rank)
            elif comm.rank == rank:
                comm.Recv(mine[lo:hi], 0)
            at += hi - lo
        return mine

    def _slices(self) -> Iterator[tuple[int, int, int]]:
        """Rank, and begin and end of a slice in its part."""
        for rank, count in enumerate(self.counts):
            for lo in range(0, count, SLICE):
                yield rank, lo, min(lo + SLICE, count)
