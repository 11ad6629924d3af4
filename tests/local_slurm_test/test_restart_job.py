"""jobs/restart.sbatch: chains under a real time limit, scancel, signals at bad moments; mostly jobs that sleep."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest

from local_slurm_test.private import MPIEXEC, SRUN, PrivateSlurm, messages, private_slurm, wait_until
from mpi_helpers import ROOT, run_job, starts_mpiexec

pytestmark = starts_mpiexec

RESTART = str(ROOT / "jobs" / "restart.sbatch")
LAUNCHERS = {"mpiexec": MPIEXEC, "srun": SRUN}
ON_ONE_NODE = ("--ntasks=2", "--nodes=1")
STEPS = "--every 0.05 --dt 0.01 --integrator petsc:euler"
RUN = {"MODEL": "chain:8", "T_END": "8", "OUTPUT": "chain.h5", "ARGS": STEPS, "FORCES": "slow:add"}
SAMPLES = 161
# Forces that are zero, and take time: without work for the processor, every rank having one.
SLOW = """
import os
import time
from pathlib import Path

job = int(os.environ.get("SLURM_RESTART_COUNT", 0))
seconds = float(os.environ.get("STEP_SECONDS", 0)) if job < 2 else 0.0


def wait(t, motion):
    time.sleep(seconds)
    return 0.0, 0.0


def add(system):
    system.add_body_force(["link1", "link8"], wait)
    if "PAUSE" in os.environ and job == 0:
        Path("pauses").touch()
        time.sleep(10)
"""


class Started(NamedTuple):
    """Jobs that run beside the tests, and a SLURM for more."""

    slurm: PrivateSlurm
    chains: dict[str, tuple[str, Path]]  # by launcher: the job, its folder
    whole: dict[str, np.ndarray]  # the samples of the same simulation, never interrupted


def samples(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path) as run:
        assert run.attrs["status"] == "complete"
        return {name: run[name][:] for name in ("time", "q", "u")}


def check_whole(folder: Path, whole: dict[str, np.ndarray]) -> None:
    """The output has no gap and no double sample, and the bits of a run that was never interrupted."""
    found = samples(folder / "chain.h5")
    assert len(found["time"]) == SAMPLES
    for name, values in whole.items():
        assert np.array_equal(found[name], values), name


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with private_slurm(tmp_path_factory.mktemp("slurm")) as slurm:
        chains = {}
        for name, launcher in LAUNCHERS.items():
            folder = tmp_path_factory.mktemp(name)
            (folder / "slow.py").write_text(SLOW)
            # A step takes so long that the first two jobs can't get to the end in their minute.
            variables = RUN | launcher | {"STEP_SECONDS": "0.1", "EVERY": "900"}
            limit = ("--time=1", "--signal=B:USR2@40")
            chains[name] = slurm.submit(*ON_ONE_NODE, *limit, RESTART, cwd=folder, **variables), folder
        folder = tmp_path_factory.mktemp("whole")
        (folder / "slow.py").write_text(SLOW)
        command = [sys.executable, "-m", "mpimbs", "run", "chain:8", "--t-end", "8", "-o", "chain.h5", *STEPS.split()]
        done = run_job(2, [*command, "--forces", "slow:add"], folder, PYTHONPATH=str(ROOT))
        assert done.returncode == 0, done.stdout
        yield Started(slurm, chains, samples(folder / "chain.h5"))


def test_scancel_and_the_next_job(started: Started, tmp_path: Path) -> None:
    """The job is gone within `KillWait`; another one goes on from its last checkpoint."""
    (tmp_path / "slow.py").write_text(SLOW)
    slurm, variables = started.slurm, RUN | MPIEXEC | {"EVERY": "0.5"}
    job = slurm.submit(*ON_ONE_NODE, RESTART, cwd=tmp_path, **variables, STEP_SECONDS="0.1")
    wait_until((tmp_path / "chain.checkpoint.h5").exists)
    assert slurm.run("scancel", job, cwd=tmp_path).returncode == 0
    assert slurm.wait(job, tmp_path, 20)[0] == "CANCELLED"
    assert (tmp_path / "chain.h5.part").exists() and not (tmp_path / "chain.h5").exists()
    job = slurm.submit(*ON_ONE_NODE, RESTART, cwd=tmp_path, **variables)
    assert slurm.wait(job, tmp_path) == ("COMPLETED", "0:0"), messages(tmp_path)
    check_whole(tmp_path, started.whole)


def test_a_job_that_is_told_to_end_and_the_next_one(started: Started, tmp_path: Path) -> None:
    """By a signal to the script alone: it writes a checkpoint. The next job has another number of ranks."""
    slurm, variables = started.slurm, RUN | SRUN | {"T_END": "1"}
    (tmp_path / "slow.py").write_text(SLOW)
    job = slurm.submit(*ON_ONE_NODE, RESTART, cwd=tmp_path, **variables, STEP_SECONDS="0.1")
    wait_until((tmp_path / "chain.h5.part").exists)
    assert slurm.run("scancel", "--signal=TERM", "--batch", job, cwd=tmp_path).returncode == 0
    assert slurm.wait(job, tmp_path) == ("FAILED", "75:0"), messages(tmp_path)
    assert "SIGUSR2 at t = " in messages(tmp_path) and not (tmp_path / "chain.h5").exists()
    job = slurm.submit("--ntasks=1", RESTART, cwd=tmp_path, **variables)
    assert slurm.wait(job, tmp_path) == ("COMPLETED", "0:0"), messages(tmp_path)
    assert len(samples(tmp_path / "chain.h5")["time"]) == 21
    with h5py.File(tmp_path / "chain.h5") as run:
        assert [again["ranks"] for again in json.loads(run.attrs["statistics"])["restarts"]] == [1]


def test_a_signal_to_ranks_that_do_not_listen_yet(started: Started, tmp_path: Path) -> None:
    """They die of it, and the job is requeued."""
    (tmp_path / "slow.py").write_text(SLOW)
    variables = RUN | MPIEXEC | {"T_END": "1", "PAUSE": "1"}
    job = started.slurm.submit(*ON_ONE_NODE, RESTART, cwd=tmp_path, **variables)
    wait_until((tmp_path / "pauses").exists)
    assert started.slurm.run("scancel", "--signal=USR2", "--batch", job, cwd=tmp_path).returncode == 0
    assert started.slurm.wait(job, tmp_path) == ("COMPLETED", "0:0"), messages(tmp_path)
    assert len(samples(tmp_path / "chain.h5")["time"]) == 21
    assert messages(tmp_path).count("DUE TO JOB REQUEUE") == 1


@pytest.mark.last
@pytest.mark.time_limit(200)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_chain_of_jobs_under_a_time_limit(started: Started, launcher: str) -> None:
    """Of one minute: SLURM tells each job of it, which writes a checkpoint and is requeued, until t = T_END."""
    job, folder = started.chains[launcher]
    assert started.slurm.wait(job, folder, 150) == ("COMPLETED", "0:0"), messages(folder)
    text = messages(folder)
    # Twice where jobs begin quickly; a slow machine needs another one.
    assert text.count("DUE TO JOB REQUEUE") in (2, 3) and "DUE TO TIME LIMIT" not in text, text
    check_whole(folder, started.whole)
