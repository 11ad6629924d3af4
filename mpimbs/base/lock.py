"""Who writes a file: a lock beside it, which the operating system takes away with the process that holds it.

The file OUT.lock stays open, locked by flock, as long as the process writes OUT. Its text says who that is, for people,
and for file systems without locks, or with locks that other nodes don't see.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import socket
import stat
import tempfile
import time
import weakref
from pathlib import Path
from typing import NamedTuple

from mpimbs.base.disk import mount_of
from mpimbs.base.errors import InputError

QUIET = 60.0  # s without a sign of life, of a writer whose locks can't be seen from here
_NAP = 0.1  # s
_LOCAL = frozenset(("nolock", "localflock", "local_lock=all", "local_lock=flock"))  # options of NFS and Lustre


class Owner(NamedTuple):
    """The process that writes a file."""

    host: str
    process: int
    started: str
    ticks: int  # of the kernel's clock when it started: tells processes of one number apart

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}, started {self.started}"


def this_process() -> Owner:
    """Give the owner of files that this process writes."""
    started = datetime.datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    return Owner(socket.gethostname(), os.getpid(), started, _ticks(os.getpid()))


def lock_of(path: Path) -> Path:
    """Where the lock of a file is."""
    return path.with_name(path.name + ".lock")


def owner_of(path: Path) -> Owner | None:
    """Find who writes a file at this moment.

    Raises
    ------
    InputError
        There is a file in the lock's place that is none.
    """
    lock = lock_of(path)
    try:
        handle = _opened(lock, os.O_RDWR)
    except FileNotFoundError:
        return None
    except PermissionError:
        handle = _opened(lock, os.O_RDONLY)
    try:
        return _holder(handle, lock)
    finally:
        os.close(handle)


def refuse_owner(path: Path, setting: str | None = None) -> None:
    """Raise an `InputError` if a process writes a file at this moment; `setting` would name another one."""
    if (owner := owner_of(path)) is not None:
        raise InputError(_said(path, owner, setting))


class Lock:
    """Holds a file for this process, until it is released, forgotten, or the process ends.

    Parameters
    ----------
    path : Path
        The file; its folder must be there.
    patience : float
        How long to wait for another process that is about to end, or only looks who has the lock (s).

    Raises
    ------
    InputError
        Another process writes it, or another run of this one; or the folder can't be written.
    """

    def __init__(self, path: Path, patience: float = 0.5) -> None:
        lock, end = lock_of(path).absolute(), time.monotonic() + patience
        while (handle := _taken(lock)) is None:
            if (owner := owner_of(path)) is not None and time.monotonic() >= end:
                raise InputError(_said(path, owner))
            time.sleep(_NAP)
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"written by": "mpimbs", **this_process()._asdict()}).encode() + b"\n", 0)
        self._handle = handle
        self._release = weakref.finalize(self, _released, lock, handle, os.getpid())

    def show_life(self) -> None:
        """Tell processes that can't see the lock itself that this one still writes."""
        with contextlib.suppress(OSError):
            os.utime(self._handle)

    def release(self) -> None:
        """Let others write the file."""
        self._release()


def _taken(lock: Path) -> int | None:
    """Make and take a lock; None if somebody has it."""
    try:
        handle = _opened(lock, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise InputError(f"{lock}: cannot be written ({error.strerror}); choose another folder") from None
    try:
        free = _holder(handle, lock) is None
        if free and os.path.samestat(os.fstat(handle), os.stat(lock)):  # else its owner has removed it meanwhile
            return handle
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def _released(lock: Path, handle: int, process: int) -> None:
    """Remove a lock, if it is still that of this process."""
    if os.getpid() != process:  # a fork
        return
    with contextlib.suppress(OSError):
        if os.path.samestat(os.fstat(handle), os.stat(lock)):
            lock.unlink()
    os.close(handle)


def _opened(lock: Path, flags: int) -> int:
    if os.path.lexists(lock) and not stat.S_ISREG(os.lstat(lock).st_mode):
        raise InputError(f"{lock}: is no lock of mpimbs; move it")
    return os.open(lock, flags, 0o666)


def _holder(handle: int, lock: Path) -> Owner | None:
    """Find who holds an open lock, and take it if that is nobody."""
    owner = _written(handle, lock)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen = True
    except BlockingIOError:
        return owner or Owner("this or another host", 0, "just now", 0)
    except OSError:  # no locks on this file system
        seen = False
    if owner is None:
        return None
    if owner.host == socket.gethostname():
        return None if seen or _ticks(owner.process) != owner.ticks else owner
    if seen and not mount_of(lock).options & _LOCAL:
        return None
    return owner if _now(lock) - os.fstat(handle).st_mtime < QUIET else None


def _now(lock: Path) -> float:
    """The time (s) on the clock that dates files there: other hosts' clocks may differ from this one's."""
    try:
        with tempfile.TemporaryFile(dir=lock.parent) as fresh:
            return os.fstat(fresh.fileno()).st_mtime
    except OSError:  # nothing can be written there
        return time.time()


def _written(handle: int, lock: Path) -> Owner | None:
    """Read who says to have a lock; None of a new one."""
    text = os.pread(handle, 2**16, 0)
    if not text:
        return None
    try:
        found = json.loads(text)
        del found["written by"]
        return Owner(**found)
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{lock}: is no lock of mpimbs; move it") from None


def _ticks(process: int) -> int:
    """When a process of this host started, by the kernel's clock; -1 if there is none."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return -1


def _said(path: Path, owner: Owner, setting: str | None = None) -> str:
    if owner.host == socket.gethostname() and (owner.process, owner.ticks) == (os.getpid(), _ticks(os.getpid())):
        return (
            f"{path}: is being written by another simulation of this process: close that, or take the `Simulation` in "
            f"a `with` block{'' if setting is None else f', or choose another name with `{setting}`'}"
        )
    gone = f", or remove {lock_of(path).name} if it is gone" if owner.host != socket.gethostname() else ""
    other = "" if setting is None else f", or choose another name with `{setting}`"
    return f"{path}: is being written by {owner}; wait until it ends, or end it{gone}{other}"
