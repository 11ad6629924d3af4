"""The butterfly product of the handle equations as a preconditioner of the constraint-load equations: an exact one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.coupling.constraint_equations import constraint_loads, forced_blocks
from mpimbs.coupling.dcae import EfficientDivideAndConquer
from mpimbs.spatial.handles import SIZE

Floats = npt.NDArray[np.float64]


class ButterflyProduct:
    """Solves the constraint-load equations for any right-hand side by the efficient divide and conquer.

    A context of PETSc's PCPYTHON.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive this.
    table : int64 array
        The equations, as `constraint_equations.form` leaves them.
    count : int
        Subchains of this rank.

    Attributes
    ----------
    blocks : array [count, SIZE]
        The handle equations of which the equations were formed; to be set.
    """

    def __init__(self, comm: MPI.Comm, table: npt.NDArray[np.int64], count: int) -> None:
        self._dcae = EfficientDivideAndConquer(comm, count)
        self._table = table
        self._root = np.zeros(6)
        self._forced = np.zeros((count, SIZE))
        self.blocks = self._forced

    def apply(self, pc: Any, given: Any, out: Any) -> None:
        """Solve for the right-hand side `given`, a vector of PETSc, into `out`; all ranks call."""
        residual = given.array_r
        forced_blocks(self._table, self.blocks.ravel(), residual, self._forced.ravel())
        values = self._dcae.solve(0.0, self._root, self._forced, self._root)
        constraint_loads(self._table, values.ravel(), residual, out.array)

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return self._dcae.seconds

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        self._dcae.close()
