"""What a file lies on."""

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
