"""Jobs that meet a signal, a dead or halted rank, a full disk: each ends or goes on as documented."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest

from mpi_helpers import ROOT, plain_environment, run_job, starts_mpiexec
from mpimbs.files.checkpoint import read_header
from mpimbs.files.output import part_of
from mpimbs.model import system_from
from mpimbs.run.run import simulate
from tolerances import assert_close

pytestmark = starts_mpiexec

MPIMBS = [sys.executable, "-m", "mpimbs"]
HERE = {"PYTHONPATH": str(ROOT)}
T_END, DT, EVERY = 0.5, 1e-4, 0.01
RUN = f"run chain:6 --t-end {T_END} --dt {DT} --every {EVERY} --integrator 4 -o out.h5 --checkpoint-steps 200".split()
LONG = ["1000" if word == str(T_END) else word for word in RUN]


class Job:
    """A job under mpiexec that a test disturbs."""

    def __init__(self, ranks: int, arguments: list[str], folder: Path) -> None:
        self._ranks = ranks
        self.log = folder / "log.txt"
        with self.log.open("w") as log:
            self.launcher = subprocess.Popen(
                ["mpiexec", "-n", str(ranks), *MPIMBS, *arguments],
                cwd=folder, env=plain_environment() | HERE, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def ranks(self) -> list[int]:
        """The processes of the ranks, in their order."""
        found: dict[int, int] = {}
        self.wait_until(lambda: len(self._find(found)) == self._ranks)
        return [found[rank] for rank in sorted(found)]

    def _find(self, found: dict[int, int]) -> dict[int, int]:
        for process in Path(f"/proc/{self.launcher.pid}/task/{self.launcher.pid}/children").read_text().split():
            for entry in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
                if entry.startswith(b"OMPI_COMM_WORLD_RANK="):
                    found[int(entry.split(b"=")[1])] = int(process)
        return found

    def wait_until(self, condition: Callable[[], bool], limit: float = 30.0) -> None:
        end = time.monotonic() + limit
        while not condition():
            assert time.monotonic() < end and self.launcher.poll() is None, self.text()
            time.sleep(0.02)

    def end(self, limit: float = 20.0) -> int:
        """Exit code; fails if the job goes on."""
        return self.launcher.wait(timeout=limit)

    def text(self) -> str:
        return self.log.read_text(errors="replace")


@contextmanager
def running(ranks: int, arguments: list[str], folder: Path, ready: Callable[[], bool] | None = None) -> Iterator[Job]:
    """A job that has come so far, by default to its first checkpoint; it is ended if the test leaves it."""
    job = Job(ranks, arguments, folder)
    try:
        job.wait_until(ready or (folder / "out.checkpoint.h5").exists)
        yield job
    finally:
        if job.launcher.poll() is None:
            job.launcher.terminate()
            job.launcher.wait(timeout=60)


def samples(path: Path) -> int:
    """Number of samples that can be read from an output file."""
    with h5py.File(path, "r", libver="latest", swmr=True) as file:
        assert np.isfinite(file["q"][:]).all()
        return len(file["time"])


@pytest.mark.long
def test_a_rank_halts_for_a_while_then_dies_and_others_go_on(tmp_path: Path) -> None:
    """On another number of ranks: the output is that of a run left alone, without a gap or a double sample."""
    with running(2, RUN, tmp_path) as job:
        _, last = job.ranks()
        os.kill(last, signal.SIGSTOP)
        time.sleep(0.2)
        before = read_header(tmp_path / "out.checkpoint.h5")["time"]
        os.kill(last, signal.SIGCONT)
        job.wait_until(lambda: read_header(tmp_path / "out.checkpoint.h5")["time"] > before)
        os.kill(last, signal.SIGKILL)
        assert job.end() != 0
    kept = read_header(tmp_path / "out.checkpoint.h5")
    assert samples(part_of(tmp_path / "out.h5")) >= kept["count"] > 0
    done = run_job(1, [*MPIMBS, "restart", "out.checkpoint.h5"], tmp_path, **HERE)
    assert done.returncode == 0, done.stdout
    result = simulate(system_from("chain:6"), T_END, dt=DT, every=EVERY, integrator="rk4")
    with h5py.File(tmp_path / "out.h5") as file:
        assert file.attrs["status"] == "complete" and json.loads(file.attrs["statistics"])["steps"] == result.steps
        assert np.array_equal(file["time"], result.t)
        for name in ("q", "u"):
            assert_close(name, file[name], result.motion.array(name), "runs on ranks")


def test_signals_to_all_ranks_and_to_one(tmp_path: Path) -> None:
    """USR1 to mpiexec, which hands it on: a checkpoint, and on. INT to one rank: one, and all end with code 75."""
    checkpoint, before = tmp_path / "out.checkpoint.h5", tmp_path / "out.checkpoint.1.h5"
    seldom = [*LONG[:-1], "1000000000"]
    with running(3, seldom, tmp_path, part_of(tmp_path / "out.h5").exists) as job:
        ranks = job.ranks()
        job.wait_until(lambda: all(handles(rank, signal.SIGUSR1) for rank in ranks))
        job.launcher.send_signal(signal.SIGUSR1)
        job.wait_until(checkpoint.exists)
        os.kill(ranks[2], signal.SIGINT)
        assert job.end() == 75
    assert job.text().count("mpimbs: SIGINT at t = ") == 1 and f"go on with: mpimbs restart {checkpoint}" in job.text()
    assert "Traceback" not in job.text() and read_header(checkpoint)["time"] > read_header(before)["time"]
    assert samples(part_of(tmp_path / "out.h5")) == read_header(checkpoint)["count"]


BUSY = """
import collections, itertools
from mpimbs.run.keeper import Signals
with Signals(True):
    print("ready", flush=True)
    collections.deque(itertools.repeat(0), maxlen=0)  # never comes back to Python, as a rank that waits in MPI
"""


def test_a_second_signal_ends_a_process_that_waits() -> None:
    busy = subprocess.Popen([sys.executable, "-c", BUSY], env=plain_environment() | HERE, stdout=subprocess.PIPE)
    try:
        assert busy.stdout is not None and busy.stdout.readline() == b"ready\n"
        busy.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            busy.wait(timeout=0.1)
        busy.send_signal(signal.SIGTERM)
        assert busy.wait(timeout=60) == -signal.SIGTERM
    finally:
        busy.kill()
        busy.communicate()


def handles(process: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    status = Path(f"/proc/{process}/status").read_text()
    caught = int(status.split("SigCgt:")[1].split()[0], 16)
    return bool(caught >> (number - 1) & 1)


OWN_DISK = ["unshare", "--map-root-user", "--mount"]
FULL = {  # how the script is started, what it does before the job, what the run says
    True: (OWN_DISK, "mount -t tmpfs -o size=10m tmpfs disk", "No space left on device"),
    False: ([], "ulimit -f 10240", "File too large"),  # blocks of 1024 bytes
}


@pytest.mark.long
def test_a_full_disk(tmp_path: Path) -> None:
    """A disk of 10 MB in a name space of its own, or a limit of file sizes where that is not allowed: the run says so
    and ends; what it wrote before is good."""
    mounts = subprocess.run([*OWN_DISK, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode == 0
    alone, narrow, reason = FULL[mounts]
    other = {"chain:6": "chain:200", "200": "50", str(EVERY): str(2 * DT), "out.h5": "disk/out.h5"}
    often = [other.get(word, word) for word in [*LONG, "--poses"]]
    script = f'mkdir disk; {narrow}; mpiexec -n 2 "$@"; echo "code $?"; cp -r disk kept'
    done = subprocess.run(
        [*alone, "bash", "-c", script, "--", *MPIMBS, *often],
        cwd=tmp_path, env=plain_environment() | HERE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=250,
    )  # fmt: skip
    assert "\ncode 1\n" in done.stdout, done.stdout
    told = f"mpimbs: {tmp_path}/disk/out.h5.part: can't be written any more ({reason})"
    assert done.stdout.count(told) == 1, done.stdout
    assert f"go on with: mpimbs restart {tmp_path}/disk/out.checkpoint.h5" in done.stdout
    assert "Traceback" not in done.stdout and "SEGV" not in done.stdout, done.stdout
    kept = tmp_path / "kept"
    count = read_header(kept / "out.checkpoint.h5")["count"]
    assert samples(part_of(kept / "out.h5")) >= count > 10
