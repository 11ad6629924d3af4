"""The scripts in jobs/ from sbatch to the end, and launchers that don't belong to the MPI library."""

import itertools
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import h5py
import pytest

from local_slurm_test.private import CPUS, MPIEXEC, NODES, SRUN, PrivateSlurm, messages, private_slurm, wait_until
from mpi_helpers import ROOT, starts_mpiexec

pytestmark = starts_mpiexec

SIMULATE = str(ROOT / "jobs" / "simulate.sbatch")
SPEEDUP = str(ROOT / "jobs" / "speedup.sbatch")


@pytest.fixture(scope="module", params=["plain", "isolated"])
def slurm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSlurm]:
    folder = tmp_path_factory.mktemp(f"slurm_{request.param}")
    with private_slurm(folder, request.param == "isolated") as running:
        yield running


def jobs_of(text: str) -> list[str]:
    """The ids that speedup.sbatch names, one a line."""
    return [line.split()[1].rstrip(":") for line in text.splitlines() if line.startswith("job ")]


def test_a_simulation_on_two_nodes(slurm: PrivateSlurm, tmp_path: Path) -> None:
    variables = {"MODEL": "chain:8", "T_END": "0.1", "OUTPUT": "chain.h5"}
    variables |= {"ARGS": "--every 0.05 --dt 0.05 --integrator rk4 --poses"}
    variables |= SRUN if slurm.isolated else MPIEXEC
    job = slurm.submit("--ntasks=2", "--nodes=2", "--ntasks-per-node=1", SIMULATE, cwd=tmp_path, **variables)
    assert slurm.wait(job, tmp_path) == ("COMPLETED", "0:0"), messages(tmp_path)
    with h5py.File(tmp_path / "chain.h5") as run:
        assert run.attrs["status"] == "complete"
        assert json.loads(run.attrs["settings"])["ranks"] == 2
        assert list(run["time"]) == [0, 0.05, 0.1] and run["poses"].shape[:2] == (3, 8)


def test_a_study_of_speed_up(slurm: PrivateSlurm, tmp_path: Path) -> None:
    ranks, couplings = (["2"], ["dcae"]) if slurm.isolated else (["1", "2"], ["dcae"])
    variables = {"MODEL": "chain:8", "RANKS": " ".join(ranks), "COUPLINGS": " ".join(couplings)}
    variables |= {"RANKS_PER_NODE": "1" if slurm.isolated else "2", "FOLDER": "times", "ARGS": "--seconds 0.05"}
    variables |= MPIEXEC if slurm.isolated else SRUN
    submitted = slurm.run("bash", SPEEDUP, "--time=5", cwd=tmp_path, **variables)
    assert submitted.returncode == 0, submitted.stdout
    *measuring, collecting = jobs_of(submitted.stdout)
    assert len(measuring) == 1, "one array, since all tasks need as many nodes"
    assert slurm.wait(collecting, tmp_path) == ("COMPLETED", "0:0"), messages(tmp_path)
    times = tmp_path / "times"
    for coupling, count in itertools.product(couplings, ranks):
        figures = json.loads((times / f"{coupling}-{count}.json").read_text())
        assert (figures["ranks"], figures["coupling"], figures["n"]) == (int(count), coupling, 8)
    assert not list(times.glob("*.part"))
    assert (times / "study.json").exists() and list(times.glob("*.png"))


class ShortJobs(NamedTuple):
    """Jobs under way, that tests look at while the next ones run."""

    folder: Path
    failing: list[str]
    following: str  # a failing one
    serial: str


@pytest.fixture(scope="class")
def short(slurm: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> ShortJobs:
    folder = tmp_path_factory.mktemp("short")
    bad = {"MODEL": "none.toml", "COUPLINGS": "dcae", "RANKS": "1", "FOLDER": "times"}
    simulation = slurm.submit("--ntasks=2", SIMULATE, cwd=folder, **bad)
    measuring, collecting = jobs_of(slurm.run("bash", SPEEDUP, cwd=folder, **bad).stdout)
    both = "mpimbs check chain:8 && mpiexec -n 1 mpimbs check chain:8"
    serial = slurm.submit("--ntasks=4", "--output=serial.txt", "--wrap", both, cwd=folder)
    return ShortJobs(folder, [simulation, measuring], collecting, serial)


@pytest.mark.parametrize("slurm", ["plain"], indirect=True)
class TestOnPlainNodes:
    """What doesn't depend on the network."""

    def test_tasks_that_mpi_does_not_join_are_refused(
        self, slurm: PrivateSlurm, short: ShortJobs, tmp_path: Path
    ) -> None:
        srun = ["srun", "--mpi=none", "-n", "2"]
        # Without this variable Open MPI 4 takes each task for a job of its own, as other MPI libraries do anyway.
        apart = slurm.run(*srun, "env", "-u", "SLURM_NODELIST", "mpimbs", "check", "chain:8", cwd=tmp_path)
        assert apart.returncode == 2, apart.stdout
        assert apart.stdout.count("mpimbs: the launcher started 2 tasks (SLURM_STEP_NUM_TASKS)") == 1, apart.stdout
        assert "chain of 8 bodies" not in apart.stdout
        # As it is, Open MPI 4 itself refuses.
        plain = slurm.run(*srun, "mpimbs", "check", "chain:8", cwd=tmp_path)
        assert plain.returncode != 0 and "chain of 8 bodies" not in plain.stdout, plain.stdout

    def test_more_ranks_than_cpus_are_refused(self, slurm: PrivateSlurm, tmp_path: Path) -> None:
        variables = {"MODEL": "chain:8", "RANKS": f"1 {NODES * CPUS + 1}", "RANKS_PER_NODE": str(CPUS)}
        submitted = slurm.run("bash", SPEEDUP, "--begin=now+60", cwd=tmp_path, **variables)
        assert submitted.returncode == 2 and "the others are withdrawn" in submitted.stdout, submitted.stdout
        (first,) = jobs_of(submitted.stdout)
        assert slurm.wait(first, tmp_path)[0] == "CANCELLED"

    def test_a_run_that_fails_is_a_job_that_fails(self, slurm: PrivateSlurm, short: ShortJobs) -> None:
        for job in short.failing:
            assert slurm.wait(job, short.folder) == ("FAILED", "2:0"), messages(short.folder)
        assert slurm.wait(short.following, short.folder)[0] == "CANCELLED", "a study of measurements that failed"
        assert messages(short.folder).count("none.toml: there is no such file") == 2, messages(short.folder)
        assert not list(short.folder.glob("times/*"))

    def test_one_process_in_a_larger_allocation(self, slurm: PrivateSlurm, short: ShortJobs) -> None:
        assert slurm.wait(short.serial, short.folder) == ("COMPLETED", "0:0")
        assert (short.folder / "serial.txt").read_text().count("8 degrees of freedom") == 2


def test_all_processes_end_with_their_owner(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as owner:
        try:
            with private_slurm(tmp_path, isolated=True, owner=owner.pid) as slurm:
                started = "srun -n 2 sh -c 'touch started; sleep 60'"
                slurm.submit("--nodes=2", "--output=none", "--wrap", started, cwd=tmp_path)
                wait_until((tmp_path / "started").exists)
                marked = f"MPIMBS_PRIVATE_SLURM={tmp_path}".encode()
                daemons, nodes, ranks = NODES + 2, NODES + 1, 2
                assert len(processes_with(marked)) >= daemons + nodes + ranks
                owner.kill()
                owner.wait()
                wait_until(lambda: not processes_with(marked))
        finally:
            owner.kill()


def processes_with(variable: bytes) -> list[int]:
    """Those with a variable in their environment, as it was when they began."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if variable in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:  # it has ended
            continue
    return found
