"""The checked build: what lies outside an array raises, and says where; fresh rooms hold NaN."""

import subprocess
import sys
from pathlib import Path

import pytest

from mpi_helpers import plain_environment

WIDTHS = {"spans": 12, "loads": 1, "stores": 4, "tuples": 6, "items": 1, "_called": 1}


@pytest.mark.subprocess
def test_overruns_are_caught(tmp_path: Path) -> None:
    """Accesses of all kinds, one past the end and one before the begin of an array of 20; the last within is right."""
    environment = plain_environment() | {"MPIMBS_CHECKED": "1", "MPIMBS_CACHE_DIR": str(tmp_path)}
    script = Path(__file__).with_name("overrun.py")
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    *found, fresh = done.stdout.splitlines()
    assert fresh == "True True", "fresh rooms"
    expected = [(kernel, count, first) for kernel, count in WIDTHS.items() for first in (21 - count, -1)]
    for line, (kernel, count, first) in zip(found, expected, strict=True):
        assert line.startswith(f"OutOfBoundsError {count} numbers from {first} on, of an array of 20: "), line
        assert line.endswith(f"__main__.{kernel}"), line
