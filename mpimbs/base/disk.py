"""What a file lies on, and the room that it has there: claimed before HDF5 writes.

A file that HDF5 can't finish brings the process down with it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple


class Mount(NamedTuple):
    """Type of a file system, and the options with which it was mounted; empty if unknown."""

    kind: str = ""
    options: frozenset[str] = frozenset()


def mount_of(path: Path) -> Mount:
    """Find what a file or folder is on."""
    with contextlib.suppress(OSError):
        device = os.stat(path).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            before, _, after = line.partition(" - ")
            if before.split()[2] == number:
                return Mount(after.split()[0], frozenset(f"{before.split()[5]},{after.split()[-1]}".split(",")))
    return Mount()


def claim(handle: int, begin: int, end: int) -> None:
    """Have the file system keep room for these bytes of an open file, or raise an OSError."""
    if end > begin:
        os.posix_fallocate(handle, begin, end - begin)


def check_room(path: Path, size: int) -> None:
    """Raise an OSError if a file of so many bytes can't be written now; leaves it empty otherwise."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        claim(handle, 0, size)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def flush_to_disk(path: Path) -> None:
    """Wait until a file, or what a folder lists, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def reason_of(error: Exception) -> str:
    """Give the operating system's words, out of all that HDF5 wraps them in."""
    text = str(error)
    if "error message = '" in text:
        return text.split("error message = '", 1)[1].split("'", 1)[0]
    return (getattr(error, "strerror", None) or text).splitlines()[0]
