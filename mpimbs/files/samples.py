"""Samples of a running system or of copies, kept in memory: each rank has its part, until rank 0 gets them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.files.slices import Slices


class Samples:
    """Keeps samples in memory, those before a `sync` on rank 0; all ranks make it together and call.

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
        self._slices = {name: Slices(comm, width, math.prod(shapes[name][1:])) for name, width in widths.items()}
        self._rows: dict[str, list[Any]] = {name: [] for name in shapes}
        self._own: dict[str, list[Floats]] = {name: [] for name in widths}  # of several ranks, what waits
        self.all = [*before, self]  # those of the structures so far

    def next(self, widths: dict[str, int], shapes: dict[str, tuple[int, ...]], begin: Any) -> Samples:
        """Give what keeps the samples of another structure, behind these."""
        self.sync()
        return Samples(self._comm, widths, shapes, self.all)

    def due(self, count: int) -> bool:
        """Whether samples have to be written with the next ones: never."""
        return False

    def add(self, own: dict[str, Floats], common: dict[str, Any], due: bool) -> None:
        """Take samples: this rank's blocks of them, and what all ranks have, by quantity [samples, ...]."""
        count, whole = len(common["time"]), common
        if self._comm.size == 1:  # of one rank blocks are the whole
            whole = common | own
        else:
            for name, values in own.items():
                self._own[name].extend(np.asarray(values, np.float64).reshape(count, -1))
        for name, values in whole.items() if self._comm.rank == 0 else ():
            self._rows[name].extend(np.asarray(values, np.float64).reshape(count, *self._shapes[name]))

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
        """Bring what waits to rank 0."""
        for name, plan in self._slices.items():
            rows = self._own[name]
            if rows:
                self._own[name], whole = [], np.empty((len(rows) if self._comm.rank == 0 else 0, sum(plan.counts)))

                def take(where: slice, columns: slice, piece: Floats, whole: Floats = whole) -> None:
                    whole[where, columns] = piece

                plan.collect(rows, take)
                self._rows[name].extend(whole.reshape(len(whole), *self._shapes[name]))

    def close(self, status: str, statistics: dict[str, Any], unfinished: bool = False) -> None:
        """There is nothing to end."""
