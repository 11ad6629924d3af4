"""Progress of a run on rank 0: a bar on a terminal, a line now and then otherwise; and a word while kernels compile."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import numpy as np
from numba.core import event

from mpimbs.kernels.kernel_cache import cache_folder

if TYPE_CHECKING:
    from tqdm import tqdm

KIND = "numba:compile"


class _Listener(event.Listener):
    """Told by numba of everything that it compiles; of what it finds in its cache it tells nothing."""

    said = False

    def on_start(self, event: event.Event) -> None:
        ours = event.data["dispatcher"].py_func.__module__.startswith("mpimbs.")  # not a force of the user's
        if ours and not self.said:
            self.said = True
            print(
                "compiling the kernels for this processor, once: 10 to 30 s; later runs load them from "
                f"{cache_folder().parent}",
                file=sys.stderr,
                flush=True,
            )

    def on_end(self, event: event.Event) -> None:
        pass


LISTENER = _Listener()  # one for the process: it speaks once


@contextmanager
def compilation_told(wanted: bool) -> Iterator[None]:
    """Say in this block, once in a process, that kernels are being compiled, if they are not in the cache.

    Parameters
    ----------
    wanted : bool
        On rank 0, where there is someone to read it; rank 0 is the one on its node that compiles.
    """
    if not wanted:
        yield
        return
    with event.install_listener(KIND, LISTENER):
        yield


LINE_SECONDS = 10.0
JOB_SECONDS = 60.0  # in a job of SLURM, whose lines are kept


class Stepping(Protocol):
    """A run as it is shown; see `Integrator`."""

    @property
    def time(self) -> float: ...
    @property
    def steps(self) -> int: ...
    @property
    def rejected(self) -> int: ...
    @property
    def step_size(self) -> float: ...


def _bar(**given: Any) -> tqdm[Any]:
    """Make a bar whose lock is one of threads: that of processes leaves a semaphore where a pool ends its workers."""
    from tqdm import tqdm  # for a terminal alone: it takes as long as a short run

    class Bar(tqdm):
        pass

    Bar.set_lock(threading.RLock())
    return Bar(**given)


class Progress:
    """Shows simulated time, steps, speed and remaining time; a context manager.

    Parameters
    ----------
    t_end : float
        Simulated time at the end (s).
    enabled : bool
        False on all ranks but the one that shows it.
    stream : file, optional
        Standard error by default.
    t_begin : float
        Simulated time at which this part of the run begins (s).
    """

    def __init__(self, t_end: float, enabled: bool, stream: TextIO | None = None, t_begin: float = 0.0) -> None:
        self._t_begin, self._t_end = t_begin, t_end
        self._stream = stream or sys.stderr
        self._began = self._shown = time.monotonic()
        self._terminal = enabled and self._stream.isatty()
        self._lines = enabled and not self._terminal
        self._pause = max(JOB_SECONDS, LINE_SECONDS) if "SLURM_JOB_ID" in os.environ else LINE_SECONDS
        self._bar: tqdm[Any] | None = None
        if self._terminal:
            self._bar = _bar(
                total=t_end,
                initial=t_begin,
                file=self._stream,
                bar_format="{percentage:3.0f}%|{bar}| t = {n:.3g}/{total:g} s [{elapsed}{postfix}]",
            )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def note(self, text: str) -> None:
        """Tell something beside."""
        if self._bar is not None:
            self._bar.write(f"mpimbs: note: {text}", file=self._stream)
        elif self._lines:
            print(f"mpimbs: note: {text}", file=self._stream, flush=True)

    def show(self, run: Stepping) -> None:
        """Tell how far a run is; cheap, call it after every step."""
        if self._bar is None and not self._lines:
            return
        now = time.monotonic()
        if self._bar is not None:
            self._bar.set_postfix_str(self._told(now, run), refresh=False)
            self._bar.update(run.time - self._bar.n)
        elif now - self._shown >= self._pause:
            self._shown = now
            text = f"t = {run.time:.4g} of {self._t_end:g} s, {self._told(now, run)}"
            print(text, file=self._stream, flush=True)

    def _told(self, now: float, run: Stepping) -> str:
        elapsed = max(now - self._began, 1e-9)
        done = run.time - self._t_begin
        left = elapsed * ((self._t_end - run.time) / done) if done > 0.0 else np.inf
        return (
            f"{run.steps} steps, {run.rejected} rejected, next {run.step_size:.2g} s, "
            f"{done / elapsed:.3g} s simulated per s, {duration(left)} left"
        )


def duration(seconds: float) -> str:
    """A time in the two units that suit it, for a person."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    if seconds < 100 * 3600:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours} h {minutes} min"
    days = seconds / 86400
    return f"{days:.0f} days" if days < 1000 else "years"
