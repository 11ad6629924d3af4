"""PETSc matrices of the constraint-load equations.

One is distributed, its values are written in place by compiled code, and its pattern is made once. The other is the
butterfly product of the handle equations, as a preconditioner: an exact one.
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.coupling.pcg.constraint_equations import constraint_loads, forced_blocks
from mpimbs.coupling.pcg.load_equations import LoadEquations
from mpimbs.parallel.petsc import PETSc


class Butterflied(Protocol):
    """The efficient divide and conquer as a function of handle equations."""

    @property
    def seconds(self) -> float: ...

    def product(self, blocks: Floats, root: Floats) -> Floats:
        """Find the boundary values of this rank's pieces, as `coupling.base.Solve`; all ranks call."""
        ...

    def close(self) -> None: ...


class ButterflyProduct:
    """Solves the constraint-load equations for any right-hand side by the efficient divide and conquer.

    A context of PETSc's PCPYTHON.

    Parameters
    ----------
    exact : Butterflied
        Its own; closed with it.
    equations : LoadEquations
        As `form` leaves them.
    shape : tuple of int
        Of the handle equations of this rank's pieces.
    """

    def __init__(self, exact: Butterflied, equations: LoadEquations, shape: tuple[int, ...]) -> None:
        self._exact, self._equations = exact, equations
        self._root = np.zeros(6)
        self._forced = np.zeros(shape)
        self.blocks = self._forced  # the handle equations of which the equations were formed; to be set

    def apply(self, pc: Any, given: Any, out: Any) -> None:
        """Solve for the right-hand side `given`, a vector of PETSc, into `out`; all ranks call."""
        residual = given.array_r
        forced_blocks(self._equations.table, self.blocks.reshape(-1), residual, self._forced.reshape(-1))
        values = self._exact.product(self._forced, self._root)
        constraint_loads(self._equations.table, values.reshape(-1), residual, out.array)

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return self._exact.seconds

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        self._exact.close()


_LIBRARY = ctypes.CDLL(PETSc.__file__)  # what it is linked to can be found through it
_INT = ctypes.c_int64 if np.dtype(PETSc.IntType).itemsize == 8 else ctypes.c_int32


def _call(name: str, *arguments: Any) -> None:
    code = getattr(_LIBRARY, name)(*arguments)
    if code:
        raise PETSc.Error(code)


class PatternMatrix:
    """A matrix of a fixed pattern whose values can be written in place.

    Parameters
    ----------
    starts, columns : array [rows + 1], [entries]
        The rows of this process: where they start, and their columns in ascending order.
    begin : int
        The first of these rows.
    blocks : array
        Sizes of the diagonal blocks, for `vpbjacobi`.
    more : float
        Part of the diagonal that is added to it in `near`.

    Attributes
    ----------
    mat : PETSc.Mat
    near : PETSc.Mat
        What a preconditioner is made of: the same, or one with a larger diagonal.
    diagonal, beside : array
        The values of columns of this process, and of others', row by row in ascending order. After a change call
        `changed`.
    """

    def __init__(
        self, comm: Any, starts: Integers, columns: Integers, begin: int, blocks: Integers, more: float
    ) -> None:
        rows = len(starts) - 1
        own = (columns >= begin) & (columns < begin + rows)
        number = np.repeat(np.arange(rows), np.diff(starts))
        inside, outside = (np.bincount(number[which], minlength=rows) for which in (own, ~own))
        self.mat = PETSc.Mat().create(comm=comm)
        self.mat.setSizes(((rows, None), (rows, None)))
        self.mat.setType("aij")
        kind = PETSc.IntType
        self.mat.setPreallocationNNZ((inside.astype(kind), outside.astype(kind)))
        # Said aloud: a rank without rows would not be taken to be preallocated, and wait in a collective of its own.
        self.mat.setOption(PETSc.Mat.Option.NEW_NONZERO_ALLOCATION_ERR, True)
        self.mat.setValuesCSR(starts.astype(kind), columns.astype(kind), (columns == begin + number).astype(float))
        self.mat.assemble()
        self.mat.setOption(PETSc.Mat.Option.NO_OFF_PROC_ENTRIES, True)
        self.mat.setOption(PETSc.Mat.Option.NEW_NONZERO_LOCATIONS, False)
        self.mat.setOption(PETSc.Mat.Option.SYMMETRIC, True)
        self.mat.setOption(PETSc.Mat.Option.SPD, True)
        sizes = blocks[blocks > 0].astype(kind)
        self._more, self.near = more, self.mat.duplicate(copy=True) if more else self.mat
        self._diagonal = self.mat.createVecLeft()
        for mat in (self.mat, self.near):
            handle = ctypes.c_void_p(mat.handle)
            _call("MatSetVariableBlockSizes", handle, _INT(len(sizes)), sizes.ctypes.data_as(ctypes.c_void_p))
        if comm.size > 1:
            parts = [ctypes.c_void_p() for _ in range(3)]
            _call("MatMPIAIJGetSeqAIJ", self._handle, *(ctypes.byref(part) for part in parts))
            self.diagonal = self._values(parts[0], int(inside.sum()))
            self.beside = self._values(parts[1], int(outside.sum()))
        else:
            self.diagonal = self._values(self._handle, int(inside.sum()))
            self.beside = np.zeros(0)

    @property
    def _handle(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.mat.handle)

    @staticmethod
    def _values(matrix: ctypes.c_void_p, count: int) -> Floats:
        if count == 0:
            return np.zeros(0)
        pointer = ctypes.POINTER(ctypes.c_double)()
        _call("MatSeqAIJGetArray", matrix, ctypes.byref(pointer))
        values = np.ctypeslib.as_array(pointer, (count,))
        _call("MatSeqAIJRestoreArray", matrix, ctypes.byref(pointer))
        return values

    def mult(self, shell: PETSc.Mat, x: PETSc.Vec, y: PETSc.Vec) -> None:
        """Multiply, as the context of a shell."""
        self.mat.mult(x, y)

    def changed(self) -> None:
        """Tell PETSc that the values were changed; all ranks call."""
        self.mat.assemble()
        self.mat.stateIncrease()  # the same on all ranks; assembly alone counts only where there are rows
        if self._more:
            self.mat.copy(self.near, PETSc.Mat.Structure.SAME_NONZERO_PATTERN)
            self.mat.getDiagonal(self._diagonal)
            self._diagonal.scale(1.0 + self._more)
            self.near.setDiagonal(self._diagonal)
            self.near.stateIncrease()

    def close(self) -> None:
        """Free what PETSc holds."""
        self._diagonal.destroy()
        if self.near is not self.mat:
            self.near.destroy()
        self.mat.destroy()
