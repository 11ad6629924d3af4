"""Standard output and error that may be full or closed: a command goes on without them, and says so at its end."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO


class Stream:
    """A text stream whose first error ends what is written there, and not the command."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream  # None: closed before the start
        self.error: OSError | None = None  # why it can't be written any more

    def write(self, text: str) -> int:
        """Write, while that is possible."""
        if self.error is None and self._stream is not None:
            try:
                return self._stream.write(text)
            except OSError as error:
                self._end(error)
        return len(text)

    def flush(self) -> None:
        """Flush, while that is possible."""
        if self.error is None and self._stream is not None:
            try:
                self._stream.flush()
            except OSError as error:
                self._end(error)

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def _end(self, error: OSError) -> None:
        self.error = error
        with contextlib.suppress(OSError):  # what waits in its buffer goes nowhere, rather than raise at the exit
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def leave_no_escapes() -> None:
    """Keep colorama, which numba wakes where it is installed, from writing an escape sequence when the process ends: in
    the middle of other ranks' lines, or behind a table in JSON."""
    if "colorama" in sys.modules:
        atexit.unregister(sys.modules["colorama"].initialise.reset_all)


@contextlib.contextmanager
def lasting_streams() -> Iterator[Stream]:
    """Put such streams in the place of standard output, which is given, and of standard error."""
    with contextlib.redirect_stdout(Stream(sys.stdout)) as out, contextlib.redirect_stderr(Stream(sys.stderr)):
        yield out
