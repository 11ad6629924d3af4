"""What a simulation is asked for, when it writes checkpoints, and the times of its samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from mpimbs.base.errors import InputError
from mpimbs.base.settings import COUNT, FRACTION, POSITIVE, TIME, OneOf, Setting, Settings, described
from mpimbs.coupling.settings import EvaluationSettings
from mpimbs.stepping.schemes import COUNTING, IF_IT_MATTERS, Accuracy, Named, scheme_of, without_estimate

if TYPE_CHECKING:
    from mpimbs.dynamics.selection import Selection
    from mpimbs.model.contents import Contents

SAMPLES = 200  # by default
TOLERANCES = ("tol", "rtol", "atol")
# Settings of a simulation that ensembles take.
OF_ENSEMBLES = (
    "t_end", "integrator", *TOLERANCES, "dt", "tension", "every", "projection", "stabilisation", "sample", "poses",
    "loads", "force", "lanes", "no_witness",
)  # fmt: skip
MOST_SAMPLES = 1e8
NEVER = math.inf  # s
POSITIONS, VELOCITIES, NONE = PROJECTIONS = ("positions", "velocities", "none")


@dataclass(frozen=True)
class SampleTimes:
    """When samples are taken: at the begin, then at equal distances, and at the end where there is one."""

    every: float  # s
    count: float  # of all samples; infinite where there is no end
    t_end: float  # s

    def at(self, number: int) -> float:
        """Time (s) of a sample, by its number; never behind the last one."""
        if number < self.count - 1:
            return number * self.every if number else 0.0
        return self.t_end if number == self.count - 1 else NEVER


@described
@dataclass(frozen=True, kw_only=True)
class SimulationSettings(EvaluationSettings):
    """The settings of a simulation; its output and its checkpoints keep them."""

    t_end: Annotated[
        float | None,
        Setting(
            "Simulated time", "s", more="A `Simulation` may do without.", noun="the end of the simulation", must=TIME
        ),
    ] = None
    integrator: Annotated[
        str,
        Setting(
            "Integrator: explicit (dopri5, dop853, bs3, rk4), linearly implicit (rosenbrock, rosenbrock2, "
            "rosenbrock4), or of PETSc (petsc:bdf, petsc:arkimex3, ...)",
            noun="integrator",
            must=Named(),
            more="A name in `mpimbs.stepping.schemes.INTEGRATORS`, or any of PETSc's as petsc:NAME.",
        ),
    ] = "dopri5"
    tol: Annotated[
        float | None,
        Setting(
            "Tolerance for the adaptive step, relative and absolute",
            "rad, m, rad/s, m/s",
            default="`rtol` and `atol`",
            noun="the tolerance",
            must=FRACTION,
        ),
    ] = None
    rtol: Annotated[
        float,
        Setting(
            "Relative tolerance of each coordinate and speed, for the adaptive step",
            noun="the relative tolerance",
            must=FRACTION,
        ),
    ] = 1e-8
    atol: Annotated[
        float,
        Setting(
            "Absolute tolerance of each coordinate and speed, for the adaptive step",
            "rad, m, rad/s, m/s",
            noun="the absolute tolerance",
            must=POSITIVE,
        ),
    ] = 1e-8
    dt: Annotated[
        float | None, Setting("A fixed step in place of the adaptive one", "s", noun="the fixed step", must=TIME)
    ] = None
    tension: Annotated[
        str,
        Setting(
            "Whether linearly implicit steps count the stiffness that tension gives to lines",
            more="`auto`: once that would limit them.",
            noun="tension",
            must=OneOf(COUNTING),
        ),
    ] = IF_IT_MATTERS
    every: Annotated[
        float | None,
        Setting(
            "Time between samples",
            "s",
            default=f"a {SAMPLES}th of `t_end`; without that no samples behind the first",
            more="With a fixed step of PETSc's a multiple of it.",
            noun="the time between samples",
            must=TIME,
        ),
    ] = None
    projection: Annotated[
        str | None,
        Setting(
            "What of the loops is closed again after every step",
            default=f"{POSITIONS} where there are loops",
            more="`positions` and velocities, `velocities` alone, or `none`; all but the last close them at the begin "
            "too.",
            noun="projection",
            must=OneOf(PROJECTIONS),
        ),
    ] = None
    stabilisation: Annotated[
        float | None,
        Setting(
            "Time constant with which accelerations let violations of loops decay",
            "s",
            default="they don't",
            noun="the time constant of the stabilisation",
            must=TIME,
        ),
    ] = None
    sample: Annotated[
        str | None,
        Setting(
            "What samples have: q, u, pose, load, power, joint_work, or of one body q:NAME, ...; with commas",
            default="q,u",
            more="With `poses` and `loads` those of all bodies too.",
            noun="what samples have",
        ),
    ] = None
    poses: Annotated[bool, Setting("Keep the poses of the bodies too")] = False
    loads: Annotated[
        bool,
        Setting(
            "Keep the loads through the joints too",
            more="As `Dynamics.joint_loads` gives them; one more evaluation for every sample.",
        ),
    ] = False
    extremes: Annotated[
        bool,
        Setting(
            "Keep the smallest and largest of all steps, between samples too",
            more="Of q, u and kinetic energy, with `loads` of force and moment of the joint loads too; an energy, and "
            "with `loads` an evaluation, more a step.",
        ),
    ] = False
    no_witness: Annotated[
        bool, Setting("Leave out the checks of samples by the equations of motion", more="See `mpimbs.run.witness`.")
    ] = False
    force: Annotated[bool, Setting("Replace an existing output file, and its checkpoints")] = False

    @classmethod
    def asked(cls, given: Mapping[str, Any], base: Self | None = None) -> Self:
        """Give the settings that a user asks for; refused are two tolerances for one, or any where steps are fixed."""
        tol = given.get("tol")
        tolerances = [name for name in TOLERANCES if given.get(name) is not None]
        if tolerances and given.get("dt") is not None:
            raise InputError(f"`{tolerances[0]}` is for adaptive steps, `dt` fixes them: leave one of them out")
        if tol is None:
            return super().asked(given, base)
        if len(tolerances) > 1:
            raise InputError(f"`tol` is `rtol` and `atol`, and `{tolerances[1]}` is given too: leave one of them out")
        return replace(super().asked({**given, "rtol": tol, "atol": tol}, base), tol=None)

    def suited(self, system: Contents) -> Self:
        """Give the settings if they are for a system: loops take some that others don't."""
        given = next((name for name in ("projection", "stabilisation") if getattr(self, name) is not None), None)
        if given is not None and not system.loops.names:
            raise InputError(f"`{given}` is for closed loops, and '{system.name}' has none: leave it out")
        self.selection(system)
        return self

    def selection(self, system: Contents) -> Selection:
        """Which quantities samples have, and of which bodies; InputError if there are none such."""
        from mpimbs.dynamics.selection import Selection

        return Selection.of(system, self.sample, self.poses, self.loads)

    @property
    def accuracy(self) -> Accuracy:
        """The accuracy that the step size follows."""
        return Accuracy(self.rtol, self.atol, self.dt)

    def checked(self) -> Self:
        """Give the settings if they make sense, each by itself and together."""
        super().checked()
        every, dt = self.every, self.dt
        scheme = scheme_of(self.integrator)
        if dt is None and not scheme.adaptive:
            raise InputError(without_estimate(self.integrator))
        if self.t_end is not None:
            self._check_end(self.t_end)
        ratio = 1.0 if dt is None or (every is None and self.t_end is None) else self._between_samples() / dt
        if not scheme.own and (ratio < 0.5 or abs(ratio - round(ratio)) > 1e-6 * ratio):
            raise InputError(
                f"with steps of PETSc's the time between samples ({self._between_samples():g} s) must be a multiple of "
                f"the fixed step ({dt:g} s); change `every` or `dt`, or take `integrator='dopri5'`"
            )
        return self

    def _check_end(self, t_end: float) -> None:
        """Refuse an end before the first step or sample, or after too many of them."""
        every, dt = self.every, self.dt
        if dt is not None and dt > t_end:
            raise InputError(f"the fixed step (`dt={dt:g}`) is beyond the end at {t_end:g} s; give a shorter step")
        if every is not None and every > t_end:
            raise InputError(
                f"the time between samples ({every:g} s) is beyond the end at {t_end:g} s; give a shorter `every`, "
                f"or `every={t_end:g}` for the begin and the end alone"
            )
        if dt is not None and t_end / dt > 1e15:  # which would be lost beside the time
            raise InputError(f"`dt={dt:g}` is too short a step for {t_end:g} s; give a longer one")
        every = self._between_samples()
        if t_end / every > MOST_SAMPLES:
            raise InputError(
                f"the time between samples ({every:g} s) gives more than {MOST_SAMPLES:g} samples in {t_end:g} s; "
                "give a longer `every`"
            )

    def _between_samples(self) -> float:
        """Time between samples (s)."""
        if self.every is not None or self.t_end is None:
            return self.every or NEVER
        every = self.t_end / SAMPLES
        return every if self.dt is None else self.dt * max(1, round(every / self.dt))

    def sample_times(self) -> SampleTimes:
        """Sample times, first 0 and last `t_end`."""
        every = self._between_samples()
        if self.t_end is None:
            return SampleTimes(every, NEVER, NEVER)
        return SampleTimes(every, 1 + math.ceil(self.t_end / every * (1.0 - 1e-9)), self.t_end)


@described
@dataclass(frozen=True)
class Checkpoints(Settings):
    """When checkpoints are written, and where."""

    called: ClassVar[str] = "checkpoints"

    def __post_init__(self) -> None:
        self.checked()

    seconds: Annotated[
        float | None,
        Setting(
            "Wall time between checkpoints",
            "s",
            noun="the time between checkpoints",
            must=TIME,
            option="checkpoint_every",
        ),
    ] = None
    steps: Annotated[
        int | None,
        Setting(
            "Steps between checkpoints",
            noun="the number of steps between checkpoints",
            must=COUNT,
            option="checkpoint_steps",
        ),
    ] = None
    path: Annotated[
        str | Path | None,
        Setting("Where they go", default="OUT.checkpoint.h5 beside the output OUT.h5", option="checkpoint"),
    ] = None
    keep: Annotated[
        int,
        Setting(
            "How many are kept",
            more="The one before the last is OUT.checkpoint.1.h5.",
            noun="the number of checkpoints kept",
            must=COUNT,
            option="checkpoint_keep",
        ),
    ] = 2
