"""How the augmented Lagrangian equations are to be solved: what a user may choose."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar

from mpimbs.base.settings import COUNT, FRACTION, POSITIVE, Setting, Settings, described

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
