"""Launchers that don't belong to the MPI library: what is refused, and what is legal."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpi_helpers import ROOT, plain_environment, run_job, starts_mpiexec
from mpimbs.base.errors import InputError
from mpimbs.parallel import launcher
from mpimbs.parallel.launcher import let_jobs_start, refuse_singletons, soon_begun

ALONE: Any = SimpleNamespace(size=1)
BATCH = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURM_NPROCS": "8", "SLURM_PROCID": "0"}
STEP = BATCH | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"}
HYDRA = {"PMI_SIZE": "4", "PMI_RANK": "0"}

LEGAL = {
    "no launcher": {},
    "a batch script": BATCH,
    "srun -n 1": STEP | {"SLURM_STEP_NUM_TASKS": "1"},
    "mpiexec -n 1 of Open MPI": OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "1"},
    "mpiexec -n 1 of MPICH": HYDRA | {"PMI_SIZE": "1"},
    "mpiexec -n 1 on another node, by a step of daemons": STEP | OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "1"},
    "mpiexec -n 1 by a step of proxies": STEP | HYDRA | {"PMI_SIZE": "1"},
    "a mpiexec -n 1 within another's environment": OPEN_MPI | HYDRA | {"PMI_SIZE": "1"},
    "jobs on purpose": STEP | {"MPIMBS_SINGLETONS": "1"},
    "no number": {"PMI_SIZE": ""},
}
REFUSED = {
    "srun --mpi=none": (STEP, "SLURM_STEP_NUM_TASKS"),
    "srun --mpi=pmi2": (STEP | HYDRA | {"PMI_JOBID": "7.0"}, "PMI_SIZE"),
    "mpiexec of Open MPI": (OPEN_MPI, "OMPI_COMM_WORLD_SIZE"),
    "mpiexec of MPICH": (HYDRA, "PMI_SIZE"),
    "mpiexec in an allocation": (BATCH | OPEN_MPI, "OMPI_COMM_WORLD_SIZE"),
    "mpiexec by a step of one daemon": (STEP | OPEN_MPI | {"SLURM_STEP_NUM_TASKS": "1"}, "OMPI_COMM_WORLD_SIZE"),
    "a rank unknown": ({"OMPI_COMM_WORLD_SIZE": "4"}, "OMPI_COMM_WORLD_SIZE"),
}


@pytest.mark.parametrize("case", LEGAL)
def test_what_is_legal(case: str) -> None:
    refuse_singletons(ALONE, LEGAL[case], interactive=False)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    environment, variable = REFUSED[case]
    with pytest.raises(InputError, match=rf"4 tasks \({variable}\), but each has a communicator of 1 rank"):
        refuse_singletons(ALONE, environment, interactive=False)


@pytest.mark.parametrize("case", REFUSED)
def test_ranks_that_know_each_other(case: str) -> None:
    several: Any = SimpleNamespace(size=2)
    refuse_singletons(several, REFUSED[case][0], interactive=False)


def test_the_shell_of_srun_pty_is_no_task() -> None:
    refuse_singletons(ALONE, STEP, interactive=True)
    with pytest.raises(InputError):
        refuse_singletons(ALONE, OPEN_MPI, interactive=True)


@pytest.mark.parametrize("variable", ["OMPI_MCA_ess", "OMPI_MCA_pmix"])
def test_jobs_of_a_process_that_has_begun_mpi(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What MPI has told the process alone is told to no job that it starts; what the user has set is."""
    environment: Any = ctypes.CDLL(None)
    environment.getenv.restype = ctypes.c_char_p
    name = variable.encode()
    monkeypatch.delenv(variable, raising=False)
    before = environment.getenv(name)
    environment.setenv(name, b"singleton", 1)
    try:
        let_jobs_start()
        assert environment.getenv(name) is None
        monkeypatch.setenv(variable, "mine")
        let_jobs_start()
        assert environment.getenv(name) == b"mine"
    finally:
        monkeypatch.undo()
        if before is not None:
            environment.setenv(name, before, 1)


@pytest.mark.parametrize(
    "variable",
    [
        *("OMPI_COMM_WORLD_RANK", "OMPI_MCA_orte_jobfam_session_dir", "PMIX_RANK", "PMI_FD", "MV2_COMM_WORLD_RANK"),
        *("PRTE_LAUNCHED", "SLURM_STEP_ID", "FLUX_JOB_ID", "PALS_APID"),
    ],
)
def test_ranks_of_launchers_begin_as_they_do(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mpi4py.MPI")
    before = dict(os.environ)
    with soon_begun({variable: "0", "HOME": "/"}):
        assert os.environ == before
    with soon_begun({"HOME": "/", "SLURM_JOB_ID": "7", "OMPI_MCA_btl_tcp_if_include": "eth0"}):
        assert "OMPI_MCA_ess_singleton_isolated" in os.environ
    assert os.environ == before


@pytest.mark.parametrize("rank", ["SLURM_PROCID", "PMI_RANK"])
def test_the_others_leave_silently(rank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setattr(launcher, "time", SimpleNamespace(sleep=naps.append))
    environment = STEP | (HYDRA if rank == "PMI_RANK" else {}) | {rank: "3"}
    with pytest.raises(SystemExit) as left:
        refuse_singletons(ALONE, environment, interactive=False)
    assert left.value.code == 2 and len(naps) == 1


class TestUnderMpiexec:
    """Ranks of a real mpiexec that MPI doesn't join."""

    pytestmark = starts_mpiexec

    def test_one_message_and_no_work(self, tmp_path: Path) -> None:
        # Without what Open MPI tells its ranks, but with their number, each is a job of its own.
        script = (
            "import os, runpy, sys\n"
            "for name in list(os.environ):\n"
            "    if name.startswith(('PMIX_', 'OMPI_MCA_ess', 'OMPI_MCA_orte', 'OMPI_COMM_WORLD_LOCAL')):\n"
            "        del os.environ[name]\n"
            "sys.argv = ['mpimbs', 'check', 'chain:8']\n"
            "runpy.run_module('mpimbs', run_name='__main__')\n"
        )
        job = run_job(2, [sys.executable, "-c", script], tmp_path, PYTHONPATH=str(ROOT))
        assert job.returncode == 2, job.stdout
        assert job.stdout.count("mpimbs: the launcher started 2 tasks (OMPI_COMM_WORLD_SIZE)") == 1, job.stdout
        assert "chain of 8 bodies" not in job.stdout

    def test_a_process_that_began_soon_starts_a_job(self, tmp_path: Path) -> None:
        script = (
            "import subprocess, sys\n"
            "from mpimbs.parallel.launcher import soon_begun\n"
            "with soon_begun():\n"
            "    from mpi4py import MPI\n"
            "assert MPI.COMM_WORLD.size == 1 and MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED).size == 1\n"
            "rank = 'from mpi4py import MPI; print(MPI.COMM_WORLD.size)'\n"
            "job = ['mpiexec', '-n', '2', sys.executable, '-c', rank]\n"
            "sys.exit(subprocess.run(job, stdin=subprocess.DEVNULL).returncode)\n"
        )
        environment = plain_environment() | {"PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-c", script]
        told = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
        assert told.returncode == 0 and "".join(told.stdout.split()) == "22", told.stdout + told.stderr
