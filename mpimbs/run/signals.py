"""Signals that ask a run for a checkpoint, or to end after one. Only a flag is set: ranks agree between steps."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

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

    Attributes
    ----------
    enabled : bool
    received : str
        Name of the signal that asked for the end, on the rank that got it.
    """

    def __init__(self, enabled: bool) -> None:
        # Python runs handlers in the main thread only.
        self.enabled = enabled and threading.current_thread() is threading.main_thread()
        self._asked = 0
        self._before: dict[signal.Signals, Callable[[int, FrameType | None], Any] | int | None] = {}
        self.received = ""

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
