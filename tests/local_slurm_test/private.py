"""A private SLURM for tests: started in a scratch folder, and all its processes ended whatever happens."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mpi_helpers import ROOT, plain_environment

HERE = Path(__file__).parent
NODES = 4
CPUS = 2  # of a node
REFUSED = 3  # exit code of up.bash
MPIEXEC = {"MPIMBS_LAUNCHER": "mpiexec"}
SRUN = {"MPIMBS_LAUNCHER": "srun", "MPIMBS_SRUN_MPI": "pmix"}


class PrivateSlurm:
    """A running one: commands go through it as on its login node."""

    def __init__(self, folder: Path, isolated: bool) -> None:
        self.folder = folder
        self.isolated = isolated

    def run(self, *command: str, cwd: Path, limit: float = 30.0, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command there; both streams are one text in `stdout`."""
        return _run([HERE / "exec.bash", self.folder, *command], cwd, limit, self._environment() | variables)

    def submit(self, *command: str, cwd: Path, **variables: str) -> str:
        """Submit a job by sbatch, and give its id."""
        done = self.run("sbatch", "--parsable", *command, cwd=cwd, **variables)
        assert done.returncode == 0, done.stdout
        return done.stdout.strip()

    def wait(self, job: str, cwd: Path, limit: float = 60.0) -> tuple[str, str]:
        """Wait for the end of a job, and give its state and its exit code, as in ("FAILED", "2:0")."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            shown = self.run("scontrol", "show", "job", "--oneliner", job, cwd=cwd).stdout
            found = dict(field.split("=", 1) for field in shown.split() if "=" in field)
            if found.get("JobState") not in ("PENDING", "RUNNING", "COMPLETING"):
                return found.get("JobState", shown), found.get("ExitCode", "")
            time.sleep(0.2)
        pytest.fail(f"job {job} has not ended after {limit:g} s: {shown}")

    def _environment(self) -> dict[str, str]:
        """That of a user: this Python's folder first on PATH, and nothing of a SLURM that is around the tests."""
        kept = {k: v for k, v in plain_environment().items() if not k.startswith(("SLURM_", "SBATCH_", "SRUN_"))}
        kept |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        if not self.isolated:  # ranks on several nodes of one host name: Open MPI 4 must not take them for neighbours
            kept |= {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo"}
        return kept


@contextmanager
def private_slurm(folder: Path, isolated: bool = False, owner: int | None = None) -> Iterator[PrivateSlurm]:
    """Start one, and end all its processes when the block is left, or when the owner (this process) is gone."""
    missing = [tool for tool in ("munged", "slurmctld", "slurmd", "sbatch") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"SLURM is not installed: there is no {missing[0]} (.ci/slurm installs it)")
    if os.geteuid() != 0:
        pytest.skip("only root can start a private SLURM")
    options = ["--nodes", NODES, "--cpus", CPUS, "--port", _free_ports(NODES + 1), "--owner", owner or os.getpid()]
    try:
        started = _run([HERE / "up.bash", folder, *options, *["--isolated"] * isolated], ROOT, 60)
        if started.returncode == REFUSED:
            pytest.skip(started.stdout.strip())
        assert started.returncode == 0, started.stdout
        yield PrivateSlurm(folder, isolated)
    finally:
        stopped = _run([HERE / "down.bash", folder], ROOT, 30)
    assert stopped.returncode == 0, stopped.stdout


def _run(
    command: list[object], cwd: Path, limit: float, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=plain_environment() if environment is None else environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit,
    )


def _free_ports(count: int) -> int:
    """The first of so many ports in sequence that nobody listens on."""
    for first in range(26817, 60000, 100):
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    pytest.fail("no free ports")


def messages(folder: Path) -> str:
    """What the jobs that were submitted in a folder have printed."""
    return "\n".join(f"{file.name}:\n{file.read_text()}" for file in sorted(folder.glob("*.out")))


def wait_until(condition: Callable[[], bool], limit: float = 20.0) -> None:
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"not so after {limit:g} s"
        time.sleep(0.1)
