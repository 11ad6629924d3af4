"""Runs that are interrupted after some steps, and output files compared bit by bit."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpimbs.stepping.copies_stepper import CopiesStepper
from mpimbs.stepping.integrator import Integrator


def contents(path: Path) -> dict[str, Any]:
    """All of an output file, but for what differs from run to run: how long it took, and its name."""
    with h5py.File(path, "r") as file:
        found: dict[str, Any] = {}
        file.visititems(lambda name, item: found.update({name: item[()]} if isinstance(item, h5py.Dataset) else {}))
        found |= {f"attribute {name}": value for name, value in file.attrs.items() if name != "run"}
    statistics = json.loads(found.pop("attribute statistics"))
    del statistics["seconds"], statistics["restarts"]
    return found | statistics


def differing(a: Path, b: Path) -> list[str]:
    """Names of what is not the same, bit by bit, in two output files."""
    ours, theirs = contents(a), contents(b)
    return [name for name in ours | theirs if not _same(ours.get(name), theirs.get(name))]


def _same(one: Any, other: Any) -> bool:
    """Whether two arrays, or other things, are the same; what is not a number as well."""
    return np.array_equal(one, other, equal_nan=getattr(one, "dtype", None) == np.float64)


@contextmanager
def disturbed(
    comm: MPI.Comm,
    monkeypatch: pytest.MonkeyPatch,
    steps: int,
    action: Callable[[], None],
    stepper: type[Integrator] | type[CopiesStepper] = Integrator,
) -> Iterator[None]:
    """Do something on the last rank before the last of so many steps."""
    original: Any = stepper.step_towards
    taken = []

    def step_towards(self: Any, target: float, *_: float) -> bool:
        taken.append(target)
        if len(taken) == steps and comm.rank == comm.size - 1:
            action()
        reached: bool = original(self, target)
        return reached

    with monkeypatch.context() as patch:
        patch.setattr(stepper, "step_towards", step_towards)
        yield


def signalled(
    comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch, steps: int, number: signal.Signals
) -> AbstractContextManager[None]:
    """Send a signal to the last rank so that all have it after so many steps."""
    return disturbed(comm, monkeypatch, steps, lambda: signal.raise_signal(number))
