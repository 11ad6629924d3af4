"""What jobs that meet faults leave in their output and their checkpoint, read and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fault_injection import CHECKPOINT, OUTPUT
from mpimbs.base.errors import InputError
from mpimbs.files.checkpoint import read_header
from mpimbs.files.output import part_of


def read(place: Path) -> dict[str, np.ndarray]:
    """The samples of an output, complete or not, of all of its segments."""
    part, found = part_of(place / OUTPUT), {}

    def take(name: str, item: Any) -> None:
        if name.rpartition("/")[2] in ("time", "q", "u"):
            found[name] = item[()]

    with h5py.File(part if part.exists() else place / OUTPUT, "r", libver="latest", swmr=True) as file:
        file.visititems(take)
        return found | {"status": np.array(file.attrs["status"])}


def count_of(samples: dict[str, np.ndarray]) -> int:
    """Samples of all segments."""
    return sum(len(values) for name, values in samples.items() if name.endswith("time"))


def complete(place: Path) -> bool:
    return (place / OUTPUT).exists() and read(place)["status"] == "complete"


def difference(ours: dict[str, np.ndarray], whole: dict[str, np.ndarray]) -> float:
    """Largest difference of states, over the largest state; infinite if samples are missing or twice there."""
    if ours.keys() != whole.keys() or any(ours[name].shape != whole[name].shape for name in whole):
        return np.inf
    if not all(np.array_equal(ours[name], whole[name]) for name in whole if name.endswith("time")):
        return np.inf
    states = [name for name in whole if name.endswith(("q", "u")) and whole[name].size]
    return max(float(np.max(np.abs(ours[name] - whole[name])) / np.max(np.abs(whole[name]))) for name in states)


def unreadable(place: Path) -> str:
    """What is wrong with the last checkpoint, and with the samples before it."""
    try:
        header = read_header(place / CHECKPOINT)
        kept, samples = header["count"], read(place)
    except (InputError, OSError, KeyError) as error:
        return str(error)
    if (found := count_of(samples)) < kept or not all(
        np.isfinite(part).all() for name, part in samples.items() if name.endswith(("q", "u"))
    ):
        return f"{found} samples are left, the checkpoint comes after {kept}; or some are not finite"
    return ""
