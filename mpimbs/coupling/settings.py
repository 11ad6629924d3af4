"""How evaluations are made: what a user of `Dynamics` may choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from mpimbs.base.names import BALANCED, LEAVES, SCHEDULES, SWEEPS
from mpimbs.base.settings import OneOf, Setting, Settings, described
from mpimbs.coupling import COUPLINGS
from mpimbs.coupling.augmented.lagrangian import Lagrangian
from mpimbs.coupling.pcg.solver import LoadSolver


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
