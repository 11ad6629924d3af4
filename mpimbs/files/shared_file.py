"""A file of rank 0 into which the other ranks write too: each its own bytes, at places that rank 0 has laid out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.disk import mount_of

Floats = npt.NDArray[np.float64]
# File systems that keep apart what several nodes write next to each other; others may write back whole pages.
_COHERENT = ("lustre", "gpfs", "beegfs", "ceph", "wekafs", "panfs", "ocfs2", "gfs2", "orangefs", "pvfs2")


class SharedFile:
    """Opens a file on every rank, if all may write there; all ranks make it together.

    They may if they are on one node, or the file is on a parallel file system and is the same one for all of them.

    Parameters
    ----------
    comm : MPI.Comm
    path : Path
        Of a file that rank 0 has made.

    Attributes
    ----------
    usable : bool
        The same on all ranks; of a single rank False: there is nobody else to write.
    """

    def __init__(self, comm: MPI.Comm, path: Path) -> None:
        self._handle = None
        self.usable = False
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
