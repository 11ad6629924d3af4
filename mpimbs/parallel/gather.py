"""Vectors gathered on rank 0, in the model's order."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.arguments import array_of, doubles
from mpimbs.model.order.order import Where
from mpimbs.parallel.agreement import together
from mpimbs.parallel.reorder import Reorder

Floats = npt.NDArray[np.float64]


class Gather:
    """Gathers the rows of an array, of which each rank has some, on rank 0.

    Parameters
    ----------
    comm : MPI.Comm
        Must outlive the plan.
    order : Reorder
        Of the rows.
    width : int, optional
        How many numbers a row has; without, each is one number.
    """

    def __init__(self, comm: MPI.Comm, order: Reorder, width: int | None = None) -> None:
        self._comm, self._order, self._width = comm, order, width
        self._counts = [(width or 1) * count for count in order.counts]

    @property
    def part(self) -> Where:
        """Where this rank's rows stand in the whole."""
        return self._order.where

    def __call__(self, part: npt.ArrayLike) -> Floats | None:
        """Give the whole, flat, on rank 0, None elsewhere; of the ranks' parts [rows, ...]. All call.

        Raises
        ------
        InputError
            On all ranks: the part of one is of another shape, or holds no real numbers.
        """
        stretch = self._stretch(part)
        whole = np.empty(sum(self._counts)) if self._comm.rank == 0 else None
        self._comm.Gatherv(stretch, None if whole is None else (whole, self._counts))
        return whole

    def everywhere(self, part: npt.ArrayLike) -> Floats:
        """Give the whole, flat, on all ranks, of what `__call__` takes. All ranks call."""
        stretch, whole = self._stretch(part), np.empty(sum(self._counts))
        self._comm.Allgatherv(stretch, (whole, self._counts))
        return whole

    def _stretch(self, part: npt.ArrayLike) -> Floats:
        """What this rank adds to the whole."""
        rows, given = self._order.rows, array_of(part)
        shape: tuple[int, ...] = (rows,) if self._width is None else (rows, self._width)
        if given.shape[:1] == (rows,) and given.size == math.prod(shape):
            shape = given.shape
        checked = together(self._comm, lambda: doubles("what is gathered", given, shape, finite=False))
        return np.ascontiguousarray(self._order(checked))
