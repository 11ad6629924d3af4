"""How the constraint-load equations are to be solved: what a user may choose."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.errors import InputError

PRECONDITIONERS = ("jacobi", "block-jacobi", "lagged", "dcae", "direct")
ESTIMATES = ("none", "zero", "first", "second", "fischer")


class LoadSolver(NamedTuple):
    """Settings of the coupling `pcg`. PETSc's options with the prefix `mpimbs_` come on top of them.

    Attributes
    ----------
    preconditioner : str
        "jacobi": the diagonal; "block-jacobi": the blocks of the joints; "lagged": the exact factor of an earlier
        matrix, renewed when iterations grow; "dcae": the tree product of the handle equations; "direct": no iteration,
        PETSc's factorization of every matrix.
    estimate : str
        Where the iteration begins: "none" at zero, or a "zero"-, "first"- or "second"-order hold of earlier
        evaluations' loads, or PETSc's "fischer" guess from earlier solutions.
    rtol : float
        The residual over the right-hand side, both accelerations across the separated joints, to be reached.
    most : int
        Iterations allowed.
    """

    preconditioner: str = "lagged"
    estimate: str = "first"
    rtol: float = 1e-12
    most: int = 10_000

    def checked(self) -> LoadSolver:
        """Give the settings if they make sense.

        Raises
        ------
        InputError
        """
        if self.preconditioner not in PRECONDITIONERS:
            raise InputError(
                f"unknown preconditioner '{self.preconditioner}'; choose one of: {', '.join(PRECONDITIONERS)}"
            )
        if self.estimate not in ESTIMATES:
            raise InputError(f"unknown initial estimate '{self.estimate}'; choose one of: {', '.join(ESTIMATES)}")
        if not (np.isfinite(self.rtol) and 0.0 < self.rtol < 1.0):
            raise InputError(f"the tolerance of the constraint loads must lie between 0 and 1, got {self.rtol:g}")
        if self.most < 1:
            raise InputError(f"at least one iteration must be allowed, got {self.most}")
        return self
