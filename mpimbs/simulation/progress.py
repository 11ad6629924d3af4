"""Progress of a run on rank 0: a bar on a terminal, a line now and then otherwise."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

from tqdm import tqdm

LINE_SECONDS = 10.0


class Progress:
    """Shows simulated time, steps, real-time factor and remaining time; a context manager.

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
        self._bar = tqdm(
            total=t_end,
            initial=t_begin,
            file=self._stream,
            disable=not self._terminal,
            bar_format="{percentage:3.0f}%|{bar}| t = {n:.3g}/{total:g} s [{elapsed}<{remaining}{postfix}]",
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()

    def show(self, t: float, steps: int) -> None:
        """Tell that simulated time `t` (s) is reached after so many steps; cheap, call it after every step."""
        if not (self._terminal or self._lines):
            return
        now = time.monotonic()
        elapsed = max(now - self._began, 1e-9)
        if self._terminal:
            self._bar.set_postfix_str(f"{steps} steps, {(t - self._t_begin) / elapsed:.3g} x real time", refresh=False)
            self._bar.update(t - self._bar.n)
        elif now - self._shown >= LINE_SECONDS:
            self._shown = now
            done = t - self._t_begin
            left = elapsed * (self._t_end - t) / max(done, 1e-300)
            print(
                f"t = {t:.4g} of {self._t_end:g} s, {steps} steps, {done / elapsed:.3g} x real time, "
                f"about {left:.0f} s left",
                file=self._stream,
                flush=True,
            )
