"""Turns of processes that compile the same kernel: one does, the others wait for what it writes.

Jobs that start at once on cold caches would compile the same for a minute, each for itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

PATIENCE = 600.0  # s for one kernel, of which the slowest takes half a minute; then it is compiled here too
_NAP = 0.05  # s
_LOCKS = "compiling.lock"  # a byte of it for each kernel


class Turns:
    """Takes and gives back turns, one at a time, while any block of `meant` is open."""

    def __init__(self) -> None:
        self._blocks, self._said = 0, False
        self._file: int | None = None  # open while this process compiles a kernel

    @contextlib.contextmanager
    def meant(self) -> Iterator[None]:
        """Wait in this block for others that compile what is missing here."""
        self._blocks += 1
        try:
            yield
        finally:
            self._blocks -= 1
            if not self._blocks:
                self.end()

    def begin(self, folder: Path, name: str) -> bool:
        """Wait until nobody else compiles a kernel for a folder, and have others wait; False where nobody waits."""
        if not self._blocks or self._file is not None:  # within another kernel, whose turn it is
            return False
        try:
            file = os.open(folder / _LOCKS, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return False
        place = int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "big") >> 1
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            except (BlockingIOError, PermissionError):  # as systems name it
                self._say(folder)
                time.sleep(_NAP)
            except OSError:  # no locks on this file system
                break
            else:
                self._file = file
                return True
        os.close(file)
        return False

    def end(self) -> None:
        """Let others go on."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _say(self, folder: Path) -> None:
        if not self._said:
            self._said = True
            sys.stderr.write(f"mpimbs: another process compiles kernels into {folder.parent}: waiting for it\n")
            sys.stderr.flush()


COMPILING = Turns()
