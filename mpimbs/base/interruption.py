"""Ctrl-C: kept waiting while a file is being written, and told of with what it has stopped."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


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
