"""Locks: who holds one is found and named, those of processes that are gone are taken over, on any file system."""

import errno
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mpi_helpers import ROOT, plain_environment
from mpimbs.base import lock as lock_module
from mpimbs.base.disk import Mount
from mpimbs.base.errors import InputError
from mpimbs.base.lock import QUIET, Lock, lock_of, owner_of, refuse_owner

HOLDS = """
import sys, time
from pathlib import Path
from mpimbs.base.lock import Lock
held = Lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(100)
"""


@contextmanager
def another(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the lock of a file."""
    command = [sys.executable, "-c", HOLDS, str(path)]
    environment = plain_environment() | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


def test_a_process_holds_a_file_until_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "out.h5"
    with another(path) as process:
        owner = owner_of(path)
        assert owner is not None and (owner.host, owner.process) == (socket.gethostname(), process.pid)
        assert json.loads(lock_of(path).read_text())["process"] == process.pid
        named = rf"out\.h5: is being written by process {process.pid} on {socket.gethostname()}, started 20..-.*wait"
        with pytest.raises(InputError, match=named) as error:
            Lock(path, patience=0.0)
        assert "remove" not in str(error.value)  # what would let two processes write
        with pytest.raises(InputError, match="choose another name with `output`"):
            refuse_owner(path, "output")
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert lock_of(path).exists() and owner_of(path) is None
        held = Lock(path, patience=0.0)
        own = owner_of(path)
        assert own is not None and own.process == os.getpid()
        held.release()
    assert not list(tmp_path.iterdir())


def test_a_second_run_of_one_process_is_refused_and_a_forgotten_one_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "out.h5"
    first = Lock(path)
    with pytest.raises(InputError, match="is being written by another simulation of this process"):
        Lock(path, patience=0.0)
    assert owner_of(path) is not None
    del first
    assert owner_of(path) is None and not list(tmp_path.iterdir())


def test_one_waits_for_a_process_that_is_about_to_end(tmp_path: Path) -> None:
    path = tmp_path / "out.h5"
    with another(path) as process:
        subprocess.Popen([sys.executable, "-c", f"import os, time; time.sleep(0.3); os.kill({process.pid}, 9)"])
        began = time.monotonic()
        Lock(path, patience=30.0).release()
        assert 0.1 < time.monotonic() - began < 20


def test_a_lock_that_was_removed_by_hand_stays_that_of_the_next(tmp_path: Path) -> None:
    path = tmp_path / "out.h5"
    first = Lock(path)
    lock_of(path).unlink()
    second = Lock(path)
    first.release()
    assert lock_of(path).exists() and owner_of(path) is not None
    second.release()
    assert not list(tmp_path.iterdir())


def written(path: Path, age: float = 0.0, **changes: object) -> None:
    """The lock that another process has left."""
    owner = {**lock_module.this_process()._asdict(), **changes}
    lock_of(path).write_text(json.dumps({"written by": "mpimbs", **owner}))
    os.utime(lock_of(path), (time.time() - age,) * 2)


def no_locks(handle: int, operation: int) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


CASES = {  # locks of the file system, what the lock's text says, whether it is taken over
    "no locks, alive": ("none", {}, 0.0, False),
    "no locks, another since": ("none", {"ticks": 1}, 0.0, True),
    "no locks, gone": ("none", {"process": 2**22 + 1}, 0.0, True),
    "no locks, another host": ("none", {"host": "far"}, 0.0, False),
    "no locks, another host, silent": ("none", {"host": "far"}, 2 * QUIET, True),
    "locks of one host, this one": ("local", {}, 0.0, True),
    "locks of one host, another": ("local", {"host": "far"}, 0.0, False),
    "locks of one host, another, silent": ("local", {"host": "far"}, 2 * QUIET, True),
    "locks of all hosts": ("global", {"host": "far"}, 0.0, True),
}


@pytest.mark.parametrize("case", CASES)
def test_file_systems_without_locks_or_with_those_of_one_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    locks, text, age, free = CASES[case]
    path = tmp_path / "out.h5"
    written(path, age, **text)
    if locks == "none":
        monkeypatch.setattr(fcntl, "flock", no_locks)
    elif locks == "local":
        monkeypatch.setattr(lock_module, "mount_of", lambda path: Mount("lustre", frozenset(("rw", "localflock"))))
    if free:
        Lock(path, patience=0.0).release()
        assert not list(tmp_path.iterdir())
        return
    by = "process" if text else "another simulation of this process"
    with pytest.raises(InputError, match=f"is being written by {by}") as error:
        Lock(path, patience=0.0)
    assert ("remove out.h5.lock if it is gone" in str(error.value)) == ("host" in text)
    assert lock_of(path).exists()


def test_a_clock_that_goes_wrong_lets_nobody_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of life are as old as the clock that dates them says, whatever the clock of this host."""
    path = tmp_path / "out.h5"
    written(path, 0.0, host="far")
    monkeypatch.setattr(fcntl, "flock", no_locks)
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() + 10 * QUIET)
    with pytest.raises(InputError, match="is being written by process"):
        Lock(path, patience=0.0)
    assert list(tmp_path.iterdir()) == [lock_of(path)]


@pytest.mark.parametrize("text", ["precious", '{"a": 1}'])
def test_a_file_in_the_place_of_a_lock_is_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "out.h5"
    lock_of(path).write_text(text)
    for action in (Lock, owner_of):
        with pytest.raises(InputError, match=re.escape("out.h5.lock: is no lock of mpimbs; move it")):
            action(path)
    assert lock_of(path).read_text() == text
