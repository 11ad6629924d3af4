"""How evaluations are made, and how equations between subchains are solved: what a user of `Dynamics` may choose."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar

from mpimbs.base.settings import (
    BALANCED,
    COUNT,
    FRACTION,
    LEAVES,
    POSITIVE,
    SCHEDULES,
    SWEEPS,
    OneOf,
    Setting,
    Settings,
    described,
)

COUPLINGS = ("dcae", "pcg", "dca", "dca-terminal", "assembly", "augmented")
LOOPED = ("dcae", "pcg", "assembly", "augmented")  # couplings that close loops
WITH_GEARS = ("dcae", "assembly")  # those that have gears among them
# Left out where couplings are compared: what by default joins as dcae does; what sweeps nothing, and is no faster.
UNCOMPARED = ("assembly", "augmented")
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
            more="To be reached by the residual over the right-hand side, both accelerations across separated joints; "
            f"{EXACT:g} whatever is given where loops are among the unknowns.",
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


ACCEPTED = 1e-4


@described
@dataclass(frozen=True)
class Lagrangian(Settings):
    """Settings of the coupling `augmented`."""

    called: ClassVar[str] = "lagrangian"

    penalty: Annotated[
        float,
        Setting(
            "augmented: penalty of constraints, in mean masses and mean moments of inertia of the bodies",
            noun="the penalty of constraints",
            must=POSITIVE,
            more="Of translations the former, of rotations the latter, about the bodies' origins. More means fewer "
            "iterations, until rounding has its say: 1e5 to 1e7 are usual, 1e3 to 1e9 possible.",
        ),
    ] = 1e6
    iterations: Annotated[
        int, Setting("augmented: iterations allowed", noun="the number of iterations allowed", must=COUNT)
    ] = 50
    tolerance: Annotated[
        float,
        Setting(
            "augmented: change of the accelerations that ends the iteration, of the largest",
            noun="the tolerance of the accelerations",
            must=FRACTION,
            more="Angular ones count times a mean radius of gyration. Where all are small beside a fall, of "
            "that. The last change is more than what is left.",
        ),
    ] = 1e-12
    accepted: Annotated[
        float | None,
        Setting(
            "augmented: change that is accepted where all iterations are used up",
            default=f"none beyond the tolerance; in a simulation {ACCEPTED:g}",
            noun="the change that is accepted",
            must=FRACTION,
            more="Close to singular positions, where constraints hardly tell whether they depend on one another, "
            "iterations progress slowly. How many solutions ended so is counted.",
        ),
    ] = None

    def in_a_simulation(self) -> Lagrangian:
        """Give the settings for one, which passes through singular positions."""
        return self if self.accepted is not None else dataclasses.replace(self, accepted=ACCEPTED)


@described
@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(Settings):
    """How a system is divided among ranks, swept, and joined again.

    What depends on the system or the ranks is checked where it is divided, the name of the coupling where it is found.
    """

    coupling: Annotated[str, Setting(f"How subchains are joined: {', '.join(COUPLINGS)}")] = "dcae"
    lanes: Annotated[
        int | None,
        Setting(
            "Pieces of a subchain swept side by side: 1, 2, 4 or 8",
            default="the faster",
            more="In the lanes of a SIMD register; by default as many as the processor has, where that is faster.",
        ),
    ] = None
    tip_ratio: Annotated[
        float | None,
        Setting(
            "How many times more bodies the last subchain gets",
            default="a measured ratio",
            more="Its sweep is cheaper.",
        ),
    ] = None
    cuts: Annotated[
        int | None,
        Setting("Number of cut joints", default="one less than ranks", more="Each rank has one subchain then."),
    ] = None
    overlap: Annotated[
        bool,
        Setting(
            "Sweep inertias while velocities are on the way: for slow networks",
            more="Those of the largest tile in lanes, before the last message of the scan of velocities is waited for: "
            "for messages that take longer than about half of that sweep. Accelerations differ by rounding. Without "
            "effect for trees, and for the couplings `dca` and `dca-terminal`.",
        ),
    ] = False
    schedule: Annotated[
        str | None,
        Setting(
            f"In which order the coupling assembly joins its leaves: {', '.join(SCHEDULES)}, or a TOML file",
            default=BALANCED,
            more="`mpimbs predict --find-schedule` makes files.",
        ),
    ] = None
    leaves: Annotated[
        str | None,
        Setting(
            f"What the coupling assembly joins: {' or '.join(LEAVES)}",
            default=SWEEPS,
            more="Single bodies, or intervals of bodies, each swept.",
            noun="kind of leaves",
            must=OneOf(LEAVES),
        ),
    ] = None
    solver: Annotated[LoadSolver | None, Setting("How the coupling `pcg` solves")] = None
    lagrangian: Annotated[Lagrangian | None, Setting("How the coupling `augmented` iterates")] = None
