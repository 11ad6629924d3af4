"""Work on the first ranks only, while the others wait without keeping a core busy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from mpi4py import MPI

_NAP = 0.01  # s


@contextmanager
def first_ranks(comm: MPI.Comm, count: int) -> Iterator[MPI.Comm | None]:
    """Give the first ranks a communicator of their own, and None to the others, which wait at the end for them.

    Parameters
    ----------
    comm : MPI.Comm
        All ranks enter and leave together.
    count : int
        How many; at least 1, and at most all, who get `comm` itself.
    """
    count = min(max(count, 1), comm.size)
    if count == comm.size:
        yield comm
        return
    part = comm.Split(0 if comm.rank < count else MPI.UNDEFINED)
    try:
        yield None if part == MPI.COMM_NULL else part
    finally:
        done = comm.Ibarrier()
        while not done.Test():
            time.sleep(_NAP)
        if part != MPI.COMM_NULL:
            part.Free()
