"""The butterfly product of the handle equations as a preconditioner of the constraint-load equations: an exact one."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mpimbs.coupling.pcg.constraint_equations import constraint_loads, forced_blocks
from mpimbs.coupling.pcg.load_equations import LoadEquations

Floats = npt.NDArray[np.float64]


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

    Attributes
    ----------
    blocks : array
        The handle equations of which the equations were formed; to be set.
    """

    def __init__(self, exact: Butterflied, equations: LoadEquations, shape: tuple[int, ...]) -> None:
        self._exact, self._equations = exact, equations
        self._root = np.zeros(6)
        self._forced = np.zeros(shape)
        self.blocks = self._forced

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
