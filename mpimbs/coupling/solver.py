"""How the constraint-load equations are to be solved: what a user may choose."""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.errors import InputError

PRECONDITIONERS = ("jacobi", "block-jacobi", "lagged", "dcae", "direct")
EXACT = 1e-12
SHARE = 0.01  # of the integrator's tolerance: what it leaves in the motion is below the integrator's own error
ESTIMATES = ("none", "zero", "first", "second", "fischer")


class LoadSolver(NamedTuple):
    """Settings of the coupling `pcg`. PETSc's options with the prefix `mpimbs_` come on top of them.

    Attributes
    ----------
    preconditioner : str
        "jacobi": the diagonal; "block-jacobi": the blocks of the joints; "lagged": the exact factor of an earlier
        matrix, renewed when iterations grow; "dcae": the butterfly product of the handle equations; "direct": no
        iteration, PETSc's factorization of every matrix.
    estimate : str
        Where the iteration begins: "none" at zero, or a "zero"-, "first"- or "second"-order hold of earlier
        evaluations' loads, or PETSc's "fischer" guess from earlier solutions.
    rtol : float, optional
        The residual over the right-hand side, both accelerations across the separated joints, to be reached; `EXACT`
        by default, in a simulation a share of the integrator's tolerance (`tied_to`).
    most : int
        Iterations allowed.
    """

    preconditioner: str = "lagged"
    estimate: str = "first"
    rtol: float | None = None
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
        if self.rtol is not None and not 0.0 < self.rtol < 1.0:
            raise InputError(f"the tolerance of the constraint loads must lie between 0 and 1, got {self.rtol:g}")
        if self.most < 1:
            raise InputError(f"at least one iteration must be allowed, got {self.most}")
        return self

    def tied_to(self, rtol: float | None) -> LoadSolver:
        """Give the settings with a tolerance that suits the integrator's relative one, if they have none of their own.

        `rtol` is None for a fixed step, of whose error nothing is known.
        """
        if self.rtol is not None:
            return self
        return self._replace(rtol=EXACT if rtol is None else max(EXACT, SHARE * rtol))
