"""The border between the order in which ranks have bodies and that of the model: numbers brought over, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.arguments import array_of, doubles
from mpimbs.base.arrays import Floats, Integers
from mpimbs.model.contents import Contents
from mpimbs.model.order.order import Order, Where, coordinates_at
from mpimbs.parallel.agreement import together


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
        block = self._block(part)
        whole = np.empty(sum(self._counts)) if self._comm.rank == 0 else None
        self._comm.Gatherv(block, None if whole is None else (whole, self._counts))
        return whole

    def everywhere(self, part: npt.ArrayLike) -> Floats:
        """Give the whole, flat, on all ranks, of what `__call__` takes. All ranks call."""
        block, whole = self._block(part), np.empty(sum(self._counts))
        self._comm.Allgatherv(block, (whole, self._counts))
        return whole

    def _block(self, part: npt.ArrayLike) -> Floats:
        """Give the block that this rank adds to the whole."""
        rows, given = self._order.rows, array_of(part)
        shape: tuple[int, ...] = (rows,) if self._width is None else (rows, self._width)
        if given.shape[:1] == (rows,) and given.size == math.prod(shape):
            shape = given.shape
        checked = together(self._comm, lambda: doubles("what is gathered", given, shape, finite=False))
        return np.ascontiguousarray(self._order(checked))


class _Side(NamedTuple):
    """The rows that pass a rank's side of the border, rank after rank, and how many of each rank's."""

    rows: Integers
    counts: Integers  # [P]


class Reorder:
    """Brings rows of which each rank has some into the model's order, of which each rank gets a block; and back.

    Where the ranks' rows are such blocks already nothing is done.

    Parameters
    ----------
    comm : MPI.Comm
        Must outlive it.
    counts : P ints
        How many rows the block of each rank has.
    where : array, optional
        Where this rank's rows stand in the model's order; on all ranks, or on none: those of its block.
    """

    def __init__(self, comm: MPI.Comm, counts: Iterable[int], where: Integers | None = None) -> None:
        self._comm = comm
        self.counts = [int(count) for count in counts]
        self._begin, self._places = sum(self.counts[: comm.rank]), where

    @property
    def where(self) -> Where:
        """Where this rank's rows stand in the model's order."""
        return slice(self._begin, self._begin + self.count) if self._places is None else self._places

    @property
    def count(self) -> int:
        """How many rows this rank's block has."""
        return self.counts[self._comm.rank]

    @property
    def rows(self) -> int:
        """How many rows this rank has."""
        return self.count if self._places is None else len(self._places)

    def __call__(self, rows: Floats) -> Floats:
        """Give this rank's block [count, ...], from its rows [n, ...]; all ranks call."""
        return rows if self._places is None else self._moved(rows, *self._sides)

    def back(self, block: Floats) -> Floats:
        """Give this rank's rows [n, ...], from its block [count, ...]; all ranks call."""
        return block if self._places is None else self._moved(block, *self._sides[::-1])

    @cached_property
    def _sides(self) -> tuple[_Side, _Side]:
        """The rows of this rank, by the rank in whose block they are; and those of its block, by whose they are."""
        comm, where = self._comm, np.asarray(self._places)
        owners = np.searchsorted(np.cumsum(self.counts), where, side="right")
        mine = _Side(np.argsort(owners, kind="stable"), np.bincount(owners, minlength=comm.size))
        counts = np.empty_like(mine.counts)
        comm.Alltoall(mine.counts, counts)
        places = np.empty(counts.sum(), np.int64)
        comm.Alltoallv((where[mine.rows], mine.counts), (places, counts))
        return mine, _Side(places - self._begin, counts)

    def _moved(self, rows: Floats, here: _Side, there: _Side) -> Floats:
        going = np.ascontiguousarray(rows, np.float64)[here.rows]
        came, moved = np.empty((2, len(there.rows), *going.shape[1:]))
        width = int(np.prod(going.shape[1:]))
        self._comm.Alltoallv((going, width * here.counts), (came, width * there.counts))
        moved[there.rows] = came
        return moved


def to_model_order(
    comm: MPI.Comm, system: Contents, order: Order | None, cuts: Integers, first: int, last: int
) -> dict[str, Reorder]:
    """Plan how vectors like q and u, and a row for each body, come into the model's order: by "q", "u" and "body".

    Parameters
    ----------
    comm : MPI.Comm
        Must outlive the plans.
    system : Contents
        The model, in its own order.
    order : Order, optional
        In which its bodies are divided among the ranks; its own by default.
    cuts : array [P + 1]
        Rank r has the bodies at the places cuts[r] to cuts[r + 1] - 1.
    first, last : int
        This rank those at first to last - 1.
    """
    if order is None or order.is_identity:
        ends = dict(zip(("q", "u"), system.offsets_of(cuts), strict=True)) | {"body": cuts}
        return {name: Reorder(comm, np.diff(end)) for name, end in ends.items()}
    places = (*coordinates_at(system, order, first, last), order.where(first, last))
    sizes = {"q": system.nq, "u": system.nu, "body": system.n_bodies}
    return {
        name: Reorder(comm, np.diff(np.arange(comm.size + 1) * size // comm.size), np.asarray(where))
        for (name, size), where in zip(sizes.items(), places, strict=True)
    }
