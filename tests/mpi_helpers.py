"""What parallel tests share: an assert that fails on all ranks together, and jobs that a test starts itself."""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from mpi4py import MPI

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[1]

# For tests that start mpiexec themselves: once is enough, and a job within a job is asking for trouble.
starts_mpiexec = [
    pytest.mark.subprocess,
    pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="starts mpiexec itself"),
    pytest.mark.skipif(shutil.which("mpiexec") is None, reason="there is no mpiexec"),
]


def parallel_assert(condition: object, message: str = "", comm: MPI.Comm = MPI.COMM_WORLD) -> None:
    """Fail on all ranks of `comm` if the condition is false on any, with the messages of those ranks.

    All ranks call it.
    """
    __tracebackhide__ = True
    verdicts = comm.allgather(None if condition else str(message))
    failed = [f"rank {rank} of {comm.size}: {text}" for rank, text in enumerate(verdicts) if text is not None]
    if failed:
        pytest.fail("\n".join(failed))


def measured(comm: MPI.Comm, measure: Callable[[], T], holds: Callable[[T], bool], attempts: int = 8) -> T:
    """Measure until a relation between times holds on all ranks of `comm`, and give what was measured.

    Other work on the cores spoils one measurement or two, but a relation that does not hold fails in all of them. All
    ranks call it.
    """
    __tracebackhide__ = True
    for _ in range(attempts):
        found = measure()
        if comm.allreduce(bool(holds(found)), MPI.LAND):
            return found
    pytest.fail(f"never in {attempts} measurements; rank {comm.rank} of {comm.size} has at last {found}")


def plain_environment() -> dict[str, str]:
    """The environment without what an MPI job sets for its ranks, so that a new job can be started in it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "PMI_", "ORTE_", "HYDRA"))}
    return kept | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def run_job(
    ranks: int, command: Sequence[str], cwd: Path = ROOT, limit: float = 250.0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command under mpiexec and give its exit code and its output, both streams as one text in `stdout`.

    Fails the test if it takes longer than `limit` seconds; the job is ended.
    """
    job = subprocess.Popen(
        ["mpiexec", "-n", str(ranks), *command],
        cwd=cwd,
        env=plain_environment() | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = job.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        job.terminate()  # mpiexec ends its ranks
        output, _ = job.communicate(timeout=20)
        pytest.fail(f"{ranks} ranks still run after {limit:g} s:\n{output}")
    return subprocess.CompletedProcess(job.args, job.returncode, output)
