"""Distributed arrays that all ranks write at once, or rank 0 slice by slice: it never holds them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.base.disk import mount_of
from mpimbs.base.sizes import tuned

# File systems that keep apart what several nodes write next to each other; others may write back whole pages.
_COHERENT = ("lustre", "gpfs", "beegfs", "ceph", "wekafs", "panfs", "ocfs2", "gfs2", "orangefs", "pvfs2")


class SharedFile:
    """Opens a file on every rank, if all may write there; all ranks make it together.

    They may if they are on one node, or the file is on a parallel file system and is the same one for all of them.

    Parameters
    ----------
    path : Path
        Of a file that rank 0 has made.
    """

    def __init__(self, comm: MPI.Comm, path: Path) -> None:
        self._handle = None
        self.usable = False  # the same on all ranks; of a single rank False: there is nobody else to write
        if comm.size == 1:
            return
        with contextlib.suppress(OSError):
            self._handle = os.open(path, os.O_WRONLY)
        own = None if self._handle is None else os.fstat(self._handle)
        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        alone = node.size == comm.size
        node.Free()
        # A device has another number on each node, so that it tells files of one node apart alone.
        seen = None if own is None else (own.st_dev if alone else 0, own.st_ino)
        found = comm.allgather((seen, alone or mount_of(path).kind in _COHERENT))
        self.usable = all(number is not None and fine and number == found[0][0] for number, fine in found)
        if not self.usable:
            self.close()

    def write(self, pieces: Iterable[tuple[int, Floats]]) -> None:
        """Write contiguous arrays at places in the file (bytes from its begin); raises an OSError."""
        assert self._handle is not None
        for place, piece in pieces:
            left = piece.view(np.uint8).data
            while left.nbytes:
                count = os.pwrite(self._handle, left, place)
                left, place = left[count:], place + count

    def sync(self) -> None:
        """Wait until what this rank has written is on the disk; raises an OSError."""
        if self._handle is not None:
            os.fsync(self._handle)

    def close(self) -> None:
        """Close this rank's handle."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


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
    """

    def __init__(self, comm: MPI.Comm, count: int, unit: int = 1) -> None:
        self._comm = comm
        self._most = max(1, tuned().slice_numbers // unit) * unit  # columns of a slice
        self.counts: list[int] = comm.allgather(count)  # those of every rank
        self._starts = np.concatenate([[0], np.cumsum(self.counts)])
        # this rank's, in the whole
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
