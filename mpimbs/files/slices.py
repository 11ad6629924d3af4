"""Distributed arrays that pass through rank 0 slice by slice, so that it never holds the whole: for files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.sizes import tuned

Floats = npt.NDArray[np.float64]


class Slices:
    """Moves rows, of which each rank has its own columns, rank after rank to rank 0, and a vector back.

    Parameters
    ----------
    comm : MPI.Comm
        Must outlive the plan; all ranks make it and call its methods together.
    count : int
        Number of this rank's columns.
    unit : int
        So many columns stay together.

    Attributes
    ----------
    counts : list of int
        Those of every rank.
    columns : slice
        This rank's, in the whole.
    """

    def __init__(self, comm: MPI.Comm, count: int, unit: int = 1) -> None:
        self._comm = comm
        self._most = max(1, tuned().slice_numbers // unit) * unit  # columns of a slice
        self.counts: list[int] = comm.allgather(count)
        self._starts = np.concatenate([[0], np.cumsum(self.counts)])
        self.columns = slice(int(self._starts[comm.rank]), int(self._starts[comm.rank + 1]))

    def collect(self, part: Sequence[Floats], take: Callable[[slice, slice, Floats], None]) -> None:
        """Have rank 0 take the slices: their rows and columns in the whole, and the numbers of these.

        Parameters
        ----------
        part : rows
            As many on every rank: this rank's columns of each.
        take : callable
            Must not raise, since others wait to be received. Gets the columns in their order where there is one row.
        """
        comm = self._comm
        for rank, rows, columns in self._slices(len(part)):
            if comm.rank not in (rank, 0):
                continue
            start = self._starts[rank]
            piece = np.empty((rows.stop - rows.start, columns.stop - columns.start))
            if comm.rank == rank:
                for row, values in zip(piece, part[rows], strict=True):
                    row[:] = values[columns.start - start : columns.stop - start]
                if rank > 0:
                    comm.Send(piece, 0)
            else:
                comm.Recv(piece, rank)
            if comm.rank == 0:
                take(rows, columns, piece)

    def spread(self, give: Callable[[int, int], Floats]) -> Floats:
        """Return this rank's part of what rank 0 gives: numbers of a vector, from a place in the whole to another."""
        comm = self._comm
        mine = np.empty(self.counts[comm.rank])
        for rank, _, columns in self._slices(1):
            if comm.rank == 0:
                piece = np.ascontiguousarray(give(columns.start, columns.stop), np.float64)
                if rank > 0:
                    comm.Send(piece, rank)
            elif comm.rank == rank:
                piece = np.empty(columns.stop - columns.start)
                comm.Recv(piece, 0)
            if comm.rank == rank:
                mine[columns.start - self.columns.start : columns.stop - self.columns.start] = piece
        return mine

    def _slices(self, count: int) -> Iterator[tuple[int, slice, slice]]:
        """Rank, rows and columns of every slice of so many rows: some whole rows of a rank, or a part of one."""
        for rank, width in enumerate(self.counts):
            if width == 0:
                continue
            many = max(1, self._most // width)
            for row in range(0, count, many):
                rows = slice(row, min(row + many, count))
                for lo in range(0, width, self._most):
                    begin, end = (int(self._starts[rank]) + at for at in (lo, min(lo + self._most, width)))
                    yield rank, rows, slice(begin, end)
