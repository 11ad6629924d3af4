"""How ranks fail together."""

import sys
import time

import numpy as np
import pytest
from mpi4py import MPI

from mpi_helpers import parallel_assert, run_job, starts_mpiexec
from mpimbs.errors import InputError
from mpimbs.parallel.agreement import abort_on_error, first_on_node, on_root, together


def test_together_gives_each_rank_its_result(comm: MPI.Comm) -> None:
    parallel_assert(together(comm, lambda: 10 * comm.rank) == 10 * comm.rank, "result of another rank", comm)


@pytest.mark.parametrize("bad", ["first", "last", "all"])
def test_together_raises_everywhere(comm: MPI.Comm, bad: str) -> None:
    """Bad input on one rank is raised on all, with the message of the lowest rank that found some."""
    lowest = comm.size - 1 if bad == "last" else 0
    failing = bad == "all" or comm.rank == lowest

    def action() -> None:
        if failing:
            raise InputError(f"bad input on rank {comm.rank}")

    message = "nothing raised"
    try:
        together(comm, action)
    except InputError as error:
        message = str(error)
    parallel_assert(message == f"bad input on rank {lowest}", message, comm)


def test_on_root(comm: MPI.Comm) -> None:
    """Only rank 0 acts; what it finds is raised everywhere."""
    acted = []
    result = on_root(comm, lambda: acted.append(comm.rank) or "done")  # type: ignore[func-returns-value]
    expected = ([0], "done") if comm.rank == 0 else ([], None)
    parallel_assert((acted, result) == expected, f"acted {acted}, got {result}", comm)

    def bad() -> None:
        raise InputError("no such file")

    raised = False
    try:
        on_root(comm, bad)
    except InputError:
        raised = True
    parallel_assert(raised, "nothing raised", comm)


def test_first_on_node(comm: MPI.Comm) -> None:
    """The first rank of the node has ended its action before any other begins; each acts once."""
    spans: list[tuple[float, float]] = []

    def action() -> None:
        began = time.monotonic()
        time.sleep(0.05)
        spans.append((began, time.monotonic()))

    first_on_node(comm, action)
    parallel_assert(len(spans) == 1, f"acted {len(spans)} times", comm)
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    everyone = node.allgather(spans[0])
    parallel_assert(all(began >= everyone[0][1] for began, _ in everyone[1:]), f"begin and end: {everyone}", comm)
    node.Free()


def test_abort_on_error_passes_results_and_exits(comm: MPI.Comm) -> None:
    with abort_on_error(comm):
        value = np.ones(1)
    with pytest.raises(SystemExit), abort_on_error(comm):
        sys.exit(3)
    parallel_assert(value[0] == 1.0, "block left early", comm)


ABORTING = """
from mpi4py import MPI
from mpimbs.parallel.agreement import abort_on_error
comm = MPI.COMM_WORLD
with abort_on_error(comm):
    if comm.rank == 1:
        raise RuntimeError("the reason")
    comm.Barrier()
"""


class TestAborts:
    pytestmark = starts_mpiexec

    def test_abort_on_error_ends_waiting_ranks(self) -> None:
        job = run_job(3, [sys.executable, "-c", ABORTING], limit=30)
        assert job.returncode != 0, job.stdout
        assert "[rank 1 of 3]" in job.stdout and "RuntimeError: the reason" in job.stdout, job.stdout

    def test_abort_on_error_on_one_rank(self) -> None:
        script = ABORTING.replace("comm.rank == 1", "True")
        job = run_job(1, [sys.executable, "-c", script], limit=30)
        assert job.returncode == 1, job.stdout
        assert "[rank 0 of 1]" in job.stdout and "RuntimeError: the reason" in job.stdout, job.stdout


def test_an_error_of_the_first_on_a_node_is_one_of_all(comm: MPI.Comm) -> None:
    def action() -> None:
        raise InputError("not for anybody")

    with pytest.raises(InputError, match="not for anybody"):
        first_on_node(comm, action)
    comm.Barrier()
