"""The errors that a user can cause or meet, and Ctrl-C; everything else is a bug and ends with a traceback."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

Keys = tuple[str | int, ...]
"""Where something stands in tables: keys, and the numbers of items of lists, from 0 on."""


class InputError(ValueError):
    """Bad input: one line that names the place (file, table), what is wrong, and the remedy.

    Attributes
    ----------
    keys : tuple of str and int
        Of what it is about, in the table that it was found in; none where it is about all of it.
    """

    keys: Keys = ()


def about(keys: Keys, message: str) -> InputError:
    """Make an InputError on what stands under keys of a table."""
    error = InputError(message)
    error.keys = keys
    return error


class SimulationError(RuntimeError):
    """A simulation that had to stop: names the time, the body and the likely cause."""


class LoadNotFiniteError(SimulationError):
    """A function of the state gave no finite numbers: with a smaller step it may."""


class InterruptionError(SimulationError):
    """A simulation that a signal has ended, after it wrote a checkpoint: names the time, and how to go on."""


class HaltError(SimulationError):
    """A function of the user's that was interrupted, or called `sys.exit`: ranks agree on it before they do the same.

    Parameters
    ----------
    told : str
        Where.
    leaves : bool
        By `sys.exit`.
    code : object
        What that was given.
    """

    def __init__(self, told: str, leaves: bool = False, code: Any = None) -> None:
        super().__init__(told, leaves, code if isinstance(code, int | str | None) else str(code))

    @classmethod
    def of(cls, error: KeyboardInterrupt | SystemExit, told: str = "") -> HaltError:
        """Make it of what a function raised, or of a Ctrl-C."""
        return cls(told or str(error), isinstance(error, SystemExit), getattr(error, "code", None))

    def __str__(self) -> str:
        return str(self.args[0])

    @property
    def meant(self) -> KeyboardInterrupt | SystemExit:
        """The error that the function raised, to be raised by all ranks."""
        told, leaves, code = self.args
        error = SystemExit(code) if leaves else KeyboardInterrupt(*[told] if told else [])
        error.__dict__["by all ranks"] = told
        return error


def as_meant(error: SimulationError) -> BaseException:
    """An error as it is raised when all ranks know of it."""
    return error.meant if isinstance(error, HaltError) else error


def by_all_ranks(error: BaseException | None) -> str | None:
    """Give where the program was halted, of an error that all ranks raise (`HaltError`); None of any other."""
    found: str | None = getattr(error, "__dict__", {}).get("by all ranks")
    return found


def not_copied(thing: str, instead: str) -> NoReturn:
    """Refuse to pickle or copy what holds compiled code, messages or an open file."""
    raise TypeError(f"a {thing} can't be pickled or copied: {instead}")


def warn_caller(text: str) -> None:
    """Warn of something, at the line of the user's that called us, however deep we are."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "mpimbs":
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, stacklevel=depth)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Have Python raise a Ctrl-C only behind this block, where it would within: half a sample is none."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # no signal is answered here
        return
    waiting: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: waiting.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if waiting:
        before(*waiting[0])


def interrupted(error: BaseException, t: float, kept: str) -> str:
    """Status of what an interruption, or another error, has stopped at a time (s).

    A Ctrl-C without words gets them: where it stopped, and what is `kept`.
    """
    if isinstance(error, KeyboardInterrupt):
        if not error.args:
            error.args = (f"the simulation has stopped at t = {t:g} s; {kept}",)
        return f"interrupted at t = {t:g} s"
    if isinstance(error, SystemExit):
        return f"interrupted at t = {t:g} s by sys.exit"
    return f"stopped: {type(error).__name__} {error}".rstrip()
