"""How ranks fail together: what is foreseen is agreed on; any other error ends the job, and never hangs it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from mpi4py import MPI

from mpimbs.errors import InputError, SimulationError
from mpimbs.spatial.compiler import many_objects

T = TypeVar("T")


def together(comm: MPI.Comm, action: Callable[[], T]) -> T:
    """Run an action that may find bad input or fail, and raise on all ranks if it does on any of them.

    Parameters
    ----------
    comm : MPI.Comm
        Every rank calls, with an action that raises before or after all of its communication.
    action : callable
        Its result is returned.

    Raises
    ------
    InputError, SimulationError
        On all ranks, that of the lowest rank that found one.
    """
    if comm.size == 1:
        return action()
    result, mine = None, None
    try:
        result = action()
    except (InputError, SimulationError) as error:
        mine = type(error), str(error)
    failed = np.array(mine is not None)
    comm.Allreduce(MPI.IN_PLACE, failed, MPI.LOR)  # 1 us; a gathering of objects takes 10
    if failed:
        kind, message = next(failure for failure in comm.allgather(mine) if failure is not None)
        raise kind(message)
    return result  # type: ignore[return-value]


def on_root(comm: MPI.Comm, action: Callable[[], T]) -> T | None:
    """Run an action on rank 0 only; bad input found there is raised on all ranks. Other ranks get None."""
    return together(comm, lambda: action() if comm.rank == 0 else None)


@contextmanager
def abort_on_error(comm: MPI.Comm) -> Iterator[None]:
    """End the whole job if an exception leaves this block on any rank, with a traceback that names the rank."""
    try:
        yield
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        sys.stdout.flush()
        sys.stderr.write(f"[rank {comm.rank} of {comm.size}] {traceback.format_exc()}")
        sys.stderr.flush()
        if comm.size == 1:
            sys.exit(1)
        comm.Abort(1)


def first_on_node(comm: MPI.Comm, action: Callable[[], None]) -> None:
    """Run an action on the first rank of every node, then on the others: compile once, then load."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        try:
            if node.rank == 0:
                with many_objects():
                    action()
        finally:
            node.Barrier()  # the others find the same error themselves
        if node.rank > 0:
            action()
    finally:
        node.Free()
