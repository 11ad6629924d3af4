"""Room on the disk, claimed before HDF5 writes there: a file that HDF5 can't finish brings the process down with it."""

from __future__ import annotations

import os
from pathlib import Path


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
    """What the operating system said, out of all that HDF5 wraps it in."""
    text = str(error)
    if "error message = '" in text:
        return text.split("error message = '", 1)[1].split("'", 1)[0]
    return (getattr(error, "strerror", None) or text).splitlines()[0]
