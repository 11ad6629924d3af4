"""Samples of a running system or of copies, kept in memory on rank 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.parallel.reorder import Gather, Reorder


class Samples:
    """Keeps samples in memory on rank 0; all ranks make it together and call.

    Parameters
    ----------
    comm : MPI.Comm
        Must outlive it.
    widths : dict of str to int
        How many numbers of a sample this rank has, by quantity: blocks of the model's order.
    shapes : dict of str to tuple of int
        What shape the whole sample of a quantity has; see `SampleTable`.
    before : sequence of Samples
        Those of the structures before.
    """

    def __init__(
        self, comm: MPI.Comm, widths: dict[str, int], shapes: dict[str, tuple[int, ...]], before: Sequence[Samples] = ()
    ) -> None:
        self._comm, self._shapes = comm, shapes
        self._gathers = {name: Gather(comm, Reorder(comm, comm.allgather(width))) for name, width in widths.items()}
        self._rows: dict[str, list[Any]] = {name: [] for name in shapes}
        self.all = [*before, self]  # those of the structures so far

    def next(self, widths: dict[str, int], shapes: dict[str, tuple[int, ...]], begin: Any) -> Samples:
        """Give what keeps the samples of another structure, behind these."""
        return Samples(self._comm, widths, shapes, self.all)

    def due(self) -> bool:
        """Whether samples have to be written before the next one comes: never."""
        return False

    def add(self, own: dict[str, Floats], common: dict[str, Any], due: bool) -> None:
        """Take a sample: this rank's blocks of it, and what all ranks have, by quantity."""
        alone = self._comm.size == 1  # of one rank blocks are the whole
        whole = common | (own if alone else {name: gather(own[name].ravel()) for name, gather in self._gathers.items()})
        if self._comm.rank == 0:
            for name, shape in self._shapes.items():
                values = whole[name]
                self._rows[name].append(np.array(values, np.float64).reshape(shape) if shape else float(values))

    def read(self, count: int, name: str, at: tuple[Any, ...] | None = None) -> Floats | None:
        """Give the first samples of a name, all or at a place of the array; None if there are none."""
        if name not in self._shapes:
            return None
        rows, *rest = at or (slice(None),)
        kept = self._rows[name][:count]
        chosen = kept[rows] if isinstance(rows, slice) else [kept[k] for k in rows]
        return np.array(chosen).reshape(len(chosen), *self._shapes[name])[(slice(None), *rest)]

    def put_extremes(self, found: dict[str, Floats]) -> dict[str, Floats]:
        """Give rank 0 the extremes of all steps: four rows of every rank's numbers, by quantity."""
        parts = self._comm.gather(found)
        return {} if parts is None else {name: np.hstack([part[name] for part in parts]) for name in found}

    def sync(self) -> None:
        """There is nothing to wait for."""

    def close(self, status: str, statistics: dict[str, Any], unfinished: bool = False) -> None:
        """There is nothing to end."""
