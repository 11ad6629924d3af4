"""Samples of an ensemble, kept in memory on rank 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

Floats = npt.NDArray[np.float64]


class EnsembleSamples:
    """Keeps samples in memory on rank 0, as `Samples` those of a run; all ranks make it together and call."""

    def __init__(self, comm: MPI.Comm, widths: dict[str, int]) -> None:
        self._comm = comm
        self.samples: dict[str, list[Any]] = {}

    def due(self) -> bool:
        """Whether samples have to be written before the next one comes: never."""
        return False

    def add(self, own: dict[str, Floats], common: dict[str, Any], due: bool) -> None:
        """Take a sample: this rank's copies [copies, ...], and what all ranks have."""
        parts = self._comm.gather(own)
        if parts is not None:
            whole = {name: np.concatenate([part[name] for part in parts]) for name in own}
            for name, values in (whole | common).items():
                self.samples.setdefault(name, []).append(values)

    def read(self, name: str, at: tuple[Any, ...] | None = None) -> Floats | None:
        """What samples have under a name, all or at a place of the array."""
        return np.array(self.samples[name])[at or slice(None)] if name in self.samples else None

    def sync(self) -> None:
        """There is nothing to wait for."""

    def close(self, status: str, statistics: dict[str, Any], unfinished: bool = False) -> None:
        """There is nothing to end."""
