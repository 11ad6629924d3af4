"""Layouts of the inertia matrix: where its numbers stand in sparse ones, and PETSc's matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.dynamics.operators.composites import Composites

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

ROWS, SPARSE, UPPER, AIJ, SBAIJ = LAYOUTS = ("rows", "csr", "upper", "aij", "sbaij")


class Pattern(NamedTuple):
    """Where the numbers of this rank's rows stand that are not always zero: as of compressed sparse rows."""

    begins: Integers  # [nu + 1]
    rows: Integers  # [count], by place
    columns: Integers  # [count], by place
    numbers: Integers  # [count]: columns of the matrix


def upper_pattern(parts: Composites) -> Pattern:
    """The pattern of this rank's rows from the diagonal on."""
    mine = np.arange(parts.first, parts.last)
    rows, columns = _runs(mine, mine, parts.ends[mine] - mine)
    numbers = np.sort(np.stack((parts.numbers[rows], parts.numbers[columns])), axis=0)
    return _pattern(parts, rows, columns, *numbers)


def whole_pattern(parts: Composites) -> Pattern:
    """The pattern of this rank's rows."""
    mine, above = np.arange(parts.first, parts.last), np.arange(parts.last)
    begin = np.maximum(above + 1, parts.first)
    columns, rows = _runs(above, begin, np.maximum(np.minimum(parts.ends[: parts.last], parts.last) - begin, 0))
    ahead = _runs(mine, mine, parts.ends[mine] - mine)
    rows, columns = np.concatenate((ahead[0], rows)), np.concatenate((ahead[1], columns))
    return _pattern(parts, rows, columns, parts.numbers[rows], parts.numbers[columns])


def _runs(numbers: Integers, begins: Integers, counts: Integers) -> tuple[Integers, Integers]:
    """Each number as often as its count says, beside so many that follow one another from where it begins."""
    ends = np.cumsum(counts)
    count = int(ends[-1]) if len(ends) else 0
    return np.repeat(numbers, counts), np.arange(count) + np.repeat(begins - ends + counts, counts)


def _pattern(parts: Composites, rows: Integers, columns: Integers, at: Integers, across: Integers) -> Pattern:
    """The pattern of numbers at some places, which are those of the rows `at` and the columns `across`."""
    order = np.lexsort((across, at))
    counts = np.bincount(at - parts.first, minlength=parts.last - parts.first)
    return Pattern(np.concatenate(([0], np.cumsum(counts))), rows[order], columns[order], across[order])


class Shell:
    """What PETSc calls of a shell matrix."""

    def __init__(self, product: Any, solution: Any) -> None:
        self._product, self._solution = product, solution

    def mult(self, matrix: Any, x: Any, y: Any) -> None:
        y.getArray()[:] = self._product(x.getArray(readonly=True))

    multTranspose = mult  # noqa: N815 (PETSc's name)

    def solve(self, matrix: Any, b: Any, x: Any) -> None:
        x.getArray()[:] = self._solution(b.getArray(readonly=True))


def petsc_matrix(comm: MPI.Comm, layout: str, pattern: Pattern, data: Floats, n: int) -> Any:
    """Make a PETSc matrix over the ranks, "aij" or "sbaij", of numbers in a pattern; `n`: of this rank's rows."""
    from mpimbs.parallel.petsc import PETSc

    total = comm.allreduce(n)
    kinds = {AIJ: PETSc.Mat.Type.AIJ, SBAIJ: PETSc.Mat.Type.SBAIJ}
    matrix = PETSc.Mat().create(comm)
    matrix.setSizes(((n, total), (n, total)))
    matrix.setType(kinds[layout])
    matrix.setUp()
    matrix.setPreallocationCSR((pattern.begins.astype(PETSc.IntType), pattern.numbers.astype(PETSc.IntType), data))
    matrix.setOption(PETSc.Mat.Option.SYMMETRIC, True)
    matrix.assemble()
    return matrix
