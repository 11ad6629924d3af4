"""When a run writes checkpoints, where, and what it does when a signal asks for one, or to end after it.

A signal sets a flag: ranks agree between steps.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from mpi4py import MPI

from mpimbs.base.errors import InputError, InterruptionError, SimulationError
from mpimbs.base.lock import refuse_owner
from mpimbs.base.places import absolute_path, check_place, check_writable, part_of
from mpimbs.files.checkpoint import glance, kept_files, older, restart_call
from mpimbs.stepping.settings import Checkpoints

CHECKPOINT, STOP = 1, 2  # what is asked for, in bits
GOES_ON = signal.SIGUSR1
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2, signal.SIGHUP)


class _Action(ctypes.Structure):
    """`struct sigaction` of the C library on Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * (1024 // (8 * ctypes.sizeof(ctypes.c_ulong)))),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


_RESETHAND = -0x80000000  # SA_RESETHAND: the handler holds for one signal


def _hold_once(number: signal.Signals) -> None:
    """Have the operating system take the handler away with the first signal.

    Python runs a handler between two of its instructions, where a rank that waits in MPI for another never comes.
    """
    if sys.platform != "linux":
        return
    library, action = ctypes.CDLL(None), _Action()
    if library.sigaction(int(number), None, ctypes.byref(action)) == 0:
        action.flags |= _RESETHAND
        library.sigaction(int(number), ctypes.byref(action), None)


class Signals:
    """Takes signals while it is entered; a context manager.

    SIGUSR1 asks for a checkpoint; SIGTERM, SIGINT, SIGUSR2 and SIGHUP, which `nohup` keeps from it, ask for one and the
    end. From the first of these on, the operating system ends the process at the same one, and soon at each of them,
    whatever the process waits for by then.

    Parameters
    ----------
    enabled : bool
        Without, nothing is changed, and nothing asked for.
    """

    def __init__(self, enabled: bool) -> None:
        # Python runs handlers in the main thread only.
        self.enabled = enabled and threading.current_thread() is threading.main_thread()
        self._asked = 0
        self._before: dict[signal.Signals, Callable[[int, FrameType | None], Any] | int | None] = {}
        self.received = ""  # name of the signal that asked for the end, on the rank that got it

    def __enter__(self) -> Signals:
        if self.enabled:
            for number in (GOES_ON, *ENDS):
                if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                    continue
                self._before[number] = signal.signal(number, self._take)
                if number != GOES_ON:
                    _hold_once(number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before = {}

    def _take(self, number: int, frame: FrameType | None) -> None:
        if number == GOES_ON:
            self._asked |= CHECKPOINT
            return
        self._asked |= STOP
        self.received = signal.Signals(number).name
        for other in self._before.keys() & ENDS:
            signal.signal(other, signal.SIG_DFL)

    def asked(self) -> int:
        """Give what was asked for since the last call, in bits; an end stays asked for."""
        asked, self._asked = self._asked, self._asked & STOP
        return asked


MANY = 2**31
_DUE = 4  # of the clock of rank 0, beside the bits of signals


def place_of(checkpoints: Checkpoints, output: Path | None) -> Path:
    """Where the checkpoints of a run go.

    Raises
    ------
    InputError
        There is no output, no folder, or their names are those of the output.
    """
    if output is None:
        raise InputError("a checkpoint continues an output file: give `output`, or leave checkpoints out")
    if checkpoints.path is None:
        return output.parent / f"{output.stem}.checkpoint.h5"
    path = absolute_path(checkpoints.path)
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}; make it first")
    theirs = {os.path.realpath(file) for file in (output, part_of(output), part_of(part_of(output)))}
    if not path.suffix or theirs & {os.path.realpath(file) for file in _files(path, checkpoints.keep)}:
        raise InputError(f"{path}: give checkpoints a name of their own, such as {output.stem}.checkpoint.h5")
    return path


def _files(path: Path, keep: int) -> list[Path]:
    """All that may be written at a place."""
    aged = [older(path, age) for age in range(keep)]
    return aged + [part_of(file) for file in aged]


def check_free(path: Path, keep: int, force: bool) -> None:
    """Refuse a place that isn't free for a new run's checkpoints, or can't be written.

    Parameters
    ----------
    path : Path
        What `place_of` gave.
    keep : int
        How many are kept.
    force : bool
        Checkpoints of an earlier run may be removed, by `clear`.

    Raises
    ------
    InputError
    """
    for file in (*_files(path, keep), *kept_files(path)):
        check_place(file, "checkpoints.path")
    refuse_owner(path, "checkpoints.path")
    for file in kept_files(path):
        found = glance(file)
        if not force:
            how = "" if found is None else f"go on with that by {restart_call(file, found)}, "
            raise InputError(
                f"{file}: exists, left by an earlier run; {how}move it, choose another name, or replace it with "
                "`force=True`"
            )
    check_writable(path, "checkpoints.path")


def clear(path: Path) -> None:
    """Remove the checkpoints at a place."""
    for file in kept_files(path):
        file.unlink()


class Keeper:
    """Writes checkpoints of a run when they are due or asked for; all ranks make it together and call.

    Parameters
    ----------
    path : Path or None
        Where they go; None: nowhere.
    write : callable
        Writes one, and gives None or the reason why not, the same on all ranks.
    going_on : callable
        Says how to go on from it, on rank 0.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        checkpoints: Checkpoints,
        path: Path | None,
        signals: Signals,
        write: Callable[[], str | None],
        going_on: Callable[[], str],
    ) -> None:
        self._comm = comm
        self._checkpoints, self._path = checkpoints, path
        self._signals = signals
        self._write, self._going_on = write, going_on
        self._steps = 0  # at the last one
        self._last = time.monotonic()
        self.seconds = 0.0  # wall time spent on them (s)

    def asked(self) -> int:
        """Give what this rank asks for, in bits: by signals, and on rank 0 by the clock."""
        every, asked = self._checkpoints.seconds, self._signals.asked()
        due = every is not None and self._comm.rank == 0 and time.monotonic() - self._last >= every
        return asked | _DUE if due else asked

    def begin(self, steps: int) -> None:
        """The run begins, or goes on, after so many steps."""
        self._steps, self._last = steps, time.monotonic()

    def steps_left(self, steps: int) -> int:
        """How many steps there are, after so many, to the next checkpoint that is due by their number."""
        every = self._checkpoints.steps
        return MANY if every is None else max(every - (steps - self._steps), 1)

    def hint(self) -> str:
        """How to go on, where there is a checkpoint; all ranks call."""
        there = self._comm.rank == 0 and self._path is not None and self._path.exists()
        return self._comm.bcast(f"; go on with: {self._going_on()}" if there else "")

    def after_step(self, requests: int, t: float, steps: int) -> None:
        """Write a checkpoint where one is due after so many steps, or any rank asks for it; all ranks call.

        Raises
        ------
        InterruptionError
            On all ranks: a signal has ended the run, and the checkpoint is there.
        SimulationError
            On all ranks: a signal has ended the run, and the checkpoint can't be written.
        """
        every = self._checkpoints.steps
        if not requests and (every is None or steps - self._steps < every):
            return
        reason = self._try() if self._path is not None else "there is no output that it could continue"
        self._steps, self._last = steps, time.monotonic()
        if requests & STOP:
            received = next(name for name in self._comm.allgather(self._signals.received) if name)
            if reason is not None:
                raise SimulationError(f"{received} at t = {t:g} s, and {self._failure(reason)}")
            raise InterruptionError(f"{received} at t = {t:g} s{self.hint()}")
        if reason is not None and self._comm.rank == 0:
            print(f"mpimbs: t = {t:g} s: {self._failure(reason)}; the run goes on", file=sys.stderr, flush=True)
        elif requests & CHECKPOINT and self._comm.rank == 0:
            print(f"mpimbs: t = {t:g} s: wrote {self._path}", file=sys.stderr, flush=True)

    def _try(self) -> str | None:
        began = time.perf_counter()
        reason = self._write()
        self.seconds += time.perf_counter() - began
        return reason

    def _failure(self, reason: str) -> str:
        return f"the checkpoint {self._path} could not be written ({reason})"
