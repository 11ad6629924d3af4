"""Faults that `faults.py` injects into running jobs, and what must come of each.

It is also the module of a force function that fails, for the option `--forces fault_injection:add_failing_force`, and
of functions that say when events happen.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mpimbs.files.output import part_of
from mpimbs.model import BodyMotion, System

ROUNDING = 1e-9  # relative: 1e-12 of a few steps, amplified by the motion
FORCES = ("--forces", "fault_injection:add_failing_force")
LIMIT = 300.0  # s for one job, or a part of it, where one that is left alone takes 2 to 7
CONTINUED = 75
OUTPUT, CHECKPOINT = Path("out/out.h5"), Path("out/out.checkpoint.h5")


# --- a force that fails -----------------------------------------------------------------------------------------------

# What, the number of the body, and from when on (s).
_KIND, _BODY, _SINCE = os.environ.get("FAULT", "none -1 0").split()
_FAILS_ON, _FAILS_SINCE = int(_BODY), float(_SINCE)


def failing(t: float, motion: BodyMotion) -> tuple[float, float]:
    """No force, until the fault that the variable FAULT names, as "nan 5 0.3"."""
    if motion.body != _FAILS_ON or t < _FAILS_SINCE:
        return 0.0, 0.0
    if _KIND == "error":
        raise ValueError("no such row")
    return 0.0, float(_KIND)


def add_failing_force(system: System) -> None:
    """Have it act on all bodies, one at a time: it fails on the one rank that has the body."""
    system.add_body_force(None, failing)


def apart(t: float, motion: BodyMotion) -> float:
    """Passes zero where the origins of two bodies are 0.21 m apart."""
    return float(np.linalg.norm(motion.position[1] - motion.position[0])) - 0.21


def beat(t: float, motion: BodyMotion) -> float:
    """Passes zero every 0.05 s, between samples."""
    return math.sin(20 * math.pi * t + 1)


# --- jobs -------------------------------------------------------------------------------------------------------------


class HangError(Exception):
    """A job that does not end, or does not begin."""


class Job:
    """mpimbs on so many ranks, in a folder, with a log of its own.

    Parameters
    ----------
    arguments : sequence of str
    small_disk : bool
        Works on a file system of 32 MB of its own, in a name space; all files are copied to `place` at the end.
    fault : str
        The variable FAULT.
    """

    def __init__(
        self, ranks: int, arguments: Sequence[str], place: Path, small_disk: bool = False, fault: str = "none -1 0"
    ) -> None:
        command = ["mpiexec", "-n", str(ranks), sys.executable, "-m", "mpimbs", *arguments]
        path = f"{Path(__file__).parent.resolve()}:{os.environ.get('PYTHONPATH', '')}"
        here = os.environ | {"PYTHONPATH": path.rstrip(":"), "FAULT": fault}
        # More ranks than cores, and jobs beside each other, which must not share the first of them.
        here = {"OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"} | here
        self.log = place / f"log{len(list(place.glob('log*')))}.txt"
        self._ranks, self._began, self._seen = ranks, time.time(), set[int]()
        with self.log.open("w") as log:
            self.launcher = subprocess.Popen(
                ON_SMALL_DISK + command if small_disk else command,
                cwd=place, env=here, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        # What the job sees there, from outside of its name space.
        self.place = Path(f"/proc/{self.launcher.pid}/root{place}/disk") if small_disk else place

    def ranks(self) -> list[int]:
        """The processes of the ranks, as soon as all have begun; fewer, where the job ends before."""
        found: list[int] = []

        def begun() -> bool:
            found[:] = filter(_is_rank, descendants(self.launcher.pid))
            return len(found) == self._ranks

        self._wait(begun)
        self._seen.update(found)
        return found

    def text(self) -> str:
        """What it has printed."""
        return self.log.read_text(errors="replace")

    def running(self) -> bool:
        return self.launcher.poll() is None

    def wait_for_checkpoint(self) -> bool:
        """Wait until this job has written one; False if it ended before."""

        def written() -> bool:
            with contextlib.suppress(OSError):
                return (self.place / CHECKPOINT).stat().st_mtime > self._began
            return False

        self._wait(written)
        return self.running()

    def _wait(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT
        while self.running() and not condition():
            if time.monotonic() > end:
                raise HangError
            time.sleep(0.01)

    def end(self) -> int | None:
        """The exit code, when all processes are gone; None if mpiexec alone stays behind, long after its ranks."""

        def left() -> bool:
            return any(map(alive, self._seen))

        self._wait(lambda: bool(self._seen) and not left())
        end = time.monotonic() + LIMIT / 10
        while self.running() or left():
            if time.monotonic() > end:
                if left():
                    raise HangError
                return None
            time.sleep(0.01)
        return self.launcher.wait()

    def kill(self) -> None:
        """End all that is left of the job."""
        for process in [*self._seen, *descendants(self.launcher.pid)] if self.running() else self._seen:
            if alive(process):
                os.kill(process, signal.SIGKILL)
        self.launcher.kill()
        self.launcher.wait()


# Runs mpiexec on a file system of 32 MB, which nothing else sees, with the files of the folder around it.
ON_SMALL_DISK = ["unshare", "--map-root-user", "--mount", "sh", "-c", """
mkdir -p disk && mount -t tmpfs -o size=32m tmpfs disk && cd disk
tar -C .. --exclude ./disk --exclude './log*' -c . | tar -x
"$@"; code=$?
rm -rf filler ../out; cp -r . ..; exit $code""", "sh"]  # fmt: skip


def mounts_small_disk() -> bool:
    """Whether a file system can be mounted here."""
    probe = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return bool(shutil.which("unshare")) and subprocess.run(probe, capture_output=True).returncode == 0


def descendants(process: int) -> list[int]:
    """Processes that another has started, and those that these have."""
    with contextlib.suppress(OSError):
        children = [int(number) for number in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
        return children + [one for child in children for one in descendants(child)]
    return []


def alive(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    return False


def _is_rank(process: int) -> bool:
    with contextlib.suppress(OSError):
        return b"OMPI_COMM_WORLD_RANK=" in Path(f"/proc/{process}/environ").read_bytes()
    return False


# --- faults -----------------------------------------------------------------------------------------------------------

Inject = Callable[[Job, random.Random, float], None]  # of a job, at once; the seconds of a halt at the most


def send(number: signal.Signals, job: Job, chance: random.Random, halt: float) -> None:
    """A signal to one rank."""
    ranks = job.ranks()
    if ranks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(ranks), number)


def stop_for_a_while(job: Job, chance: random.Random, halt: float) -> None:
    """For a hundredth of the longest time up to all of it."""
    ranks = job.ranks()
    if ranks:
        with contextlib.suppress(ProcessLookupError):
            stopped = chance.choice(ranks)
            os.kill(stopped, signal.SIGSTOP)
            time.sleep(halt * 0.01 ** chance.random())
            os.kill(stopped, signal.SIGCONT)


def kill_launcher(job: Job, chance: random.Random, halt: float) -> None:
    job.ranks()
    job.launcher.kill()


def fill_disk(job: Job, chance: random.Random, halt: float) -> None:
    """No room but for a few bytes that are left of a block."""
    with contextlib.suppress(OSError), (job.place / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(2**12)):
            pass


def limit_file_sizes(job: Job, chance: random.Random, halt: float) -> None:
    """No file may become larger than the output is now."""
    ranks = job.ranks()
    with contextlib.suppress(OSError):
        for process in ranks:
            os.kill(process, signal.SIGSTOP)
        size = part_of(job.place / OUTPUT).stat().st_size
        for process in ranks:
            resource.prlimit(process, resource.RLIMIT_FSIZE, (size, size))
    for process in ranks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def remove_folder(job: Job, chance: random.Random, halt: float) -> None:
    while (job.place / OUTPUT.parent).exists():  # a file may come while others go
        shutil.rmtree(job.place / OUTPUT.parent, ignore_errors=True)


def move_folder(job: Job, chance: random.Random, halt: float) -> None:
    (job.place / OUTPUT.parent).rename(job.place / "moved")


def nothing(job: Job, chance: random.Random, halt: float) -> None:
    """The job itself brings the fault about."""


class Fault(NamedTuple):
    """What happens to a job, and what must come of it."""

    name: str
    inject: Inject
    codes: tuple[int, ...]  # exit codes of mpiexec that are allowed; empty: any but those of mpimbs
    message: str  # a pattern that the log must have
    steps: str = "adaptive"  # which of the subject's settings the chain has; much: fixed, with many samples
    force: str = ""  # how the force function fails
    while_starting: bool = False  # every fourth time, the job meets it before its first checkpoint
    small_disk: bool = False
    tolerance: float = 0.0  # of the complete output on the same ranks, relative; 0: the same bits


def ended_by(name: str) -> str:
    return rf"mpimbs: SIG{name} at t = .* s; go on with: mpimbs restart \S*{CHECKPOINT}"


LOST = rf"mpimbs: \S*{OUTPUT}.part: can't be written any more \(No such file or directory\)"
FORCE = r"mpimbs: the body force 'fault_injection:failing' on body '\w+'"
KILLED = "rank killed"
FAULTS = (
    Fault(KILLED, partial(send, signal.SIGKILL), (), "", while_starting=True),
    Fault("launcher killed", kill_launcher, (-signal.SIGKILL,), "", while_starting=True),
    Fault("SIGTERM to one rank", partial(send, signal.SIGTERM), (CONTINUED,), ended_by("TERM")),
    Fault("SIGINT to one rank", partial(send, signal.SIGINT), (CONTINUED,), ended_by("INT")),
    Fault("SIGUSR2 to one rank", partial(send, signal.SIGUSR2), (CONTINUED,), ended_by("USR2")),
    Fault("SIGUSR1 to one rank", partial(send, signal.SIGUSR1), (0,), rf"s: wrote \S*{CHECKPOINT}\n"),
    Fault("rank halted", stop_for_a_while, (0,), rf"wrote \S*{OUTPUT}"),
    Fault("exception in a force", nothing, (1,), rf"{FORCE} failed at t = .* s: ValueError\('no such row'\)",
          "fixed", "error"),
    Fault("NaN in a force, fixed step", nothing, (1,), rf"{FORCE} is not finite at t = ", "fixed", "nan"),
    Fault("NaN in a force, adaptive step", nothing, (1,), rf"{FORCE} is not finite at t = ", "adaptive",
          "nan", tolerance=ROUNDING),
    Fault("state beyond all numbers", nothing, (1,),  # the witness sees squares that overflow before anything else does
          "mpimbs: (the accelerations are no longer finite|t = .* s: forces or accelerations at body .* are too large|"
          "t = .* s, step .* s: closing the loops leaves places or speeds that are no longer finite|"
          "t = .* s: the state is no longer one|t = .* s, event .*: the state behind it is no longer finite)",
          "fixed", "1e200"),
    Fault("disk full", fill_disk, (1,), rf"mpimbs: \S*{OUTPUT}.part: can't be written any more \(No space left",
          "much", small_disk=True),
    Fault("limit of file sizes", limit_file_sizes, (1,),
          rf"mpimbs: \S*{OUTPUT}.part: can't be written any more \(File too large\)", "much"),
    Fault("output's folder removed", remove_folder, (1,), LOST),
    Fault("output's folder moved", move_folder, (1,), LOST),
)  # fmt: skip
