"""How the constraint-load equations are to be solved: what a user may choose."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar

from mpimbs.base.settings import COUNT, FRACTION, OneOf, Setting, Settings, described

PRECONDITIONERS = ("jacobi", "block-jacobi", "lagged", "dcae", "direct")
EXACT = 1e-12
SHARE = 0.01  # of the integrator's tolerance: what it leaves in the motion is below the integrator's own error
ESTIMATES = ("none", "zero", "first", "second", "fischer")


@described
@dataclass(frozen=True)
class LoadSolver(Settings):
    """Settings of the coupling `pcg`. PETSc's options with the prefix `mpimbs_` come on top of them."""

    called: ClassVar[str] = "solver"

    preconditioner: Annotated[
        str,
        Setting(
            f"pcg: {', '.join(PRECONDITIONERS)}",
            noun="preconditioner",
            must=OneOf(PRECONDITIONERS),
            more='"jacobi": the diagonal; "block-jacobi": the blocks of the joints; "lagged": the exact factor of an '
            'earlier matrix, renewed when iterations grow; "dcae": the butterfly product of the handle equations; '
            '"direct": no iteration, PETSc\'s factorization of every matrix.',
        ),
    ] = "lagged"
    estimate: Annotated[
        str,
        Setting(
            f"pcg: where iterations begin, {', '.join(ESTIMATES)}",
            noun="initial estimate",
            must=OneOf(ESTIMATES),
            more='At zero ("none"), or a "zero"-, "first"- or "second"-order hold of earlier evaluations\' loads, or '
            'PETSc\'s "fischer" guess from earlier solutions.',
        ),
    ] = "first"
    rtol: Annotated[
        float | None,
        Setting(
            "pcg: tolerance of the constraint loads",
            default=f"{EXACT:g}; in a simulation with adaptive steps {SHARE:g} times `rtol`",
            noun="the tolerance of the constraint loads",
            must=FRACTION,
            more="To be reached by the residual over the right-hand side, both accelerations across separated joints.",
        ),
    ] = None
    most: Annotated[int, Setting("pcg: iterations allowed", noun="the number of iterations allowed", must=COUNT)] = (
        10_000
    )

    def tied_to(self, rtol: float | None) -> LoadSolver:
        """Give the settings with a tolerance that suits the integrator's relative one, if they have none of their own.

        `rtol` is None for a fixed step, of whose error nothing is known.
        """
        if self.rtol is not None:
            return self
        return dataclasses.replace(self, rtol=EXACT if rtol is None else max(EXACT, SHARE * rtol))
