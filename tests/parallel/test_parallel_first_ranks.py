"""Work on the first ranks while the others wait."""

import pytest
from mpi4py import MPI

from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError
from mpimbs.parallel.agreement import first_ranks


@pytest.mark.parametrize("count", [-1, 0, 1, 2, 3, 99])
def test_the_first_ranks_work(comm: MPI.Comm, count: int) -> None:
    size = min(max(count, 1), comm.size)
    with first_ranks(comm, count) as part:
        if part is not None:
            assert part.size == size and part.rank == comm.rank
            assert part.allreduce(1) == size
    parallel_assert((part is not None) == (comm.rank < size), "who works", comm)


def test_an_error_of_those_who_work_lets_the_others_go(comm: MPI.Comm) -> None:
    seen = False
    try:
        with first_ranks(comm, 1) as part:
            if part is not None:
                raise InputError("bad")
    except InputError:
        seen = True
    parallel_assert(seen == (comm.rank == 0), f"seen: {seen}", comm)
