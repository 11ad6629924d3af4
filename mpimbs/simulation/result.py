"""What a simulation gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mpimbs.simulation.samples import Floats, Sample
from mpimbs.simulation.step_sizes import told

# Of a result, what the output file keeps.
_TOLD = (
    "time", "steps", "rejected", "evaluations", "step_sizes", "seconds", "energy_error", "energy_change",
    "solutions", "restarts",
)  # fmt: skip


@dataclass
class Result:
    """Outcome of a simulation: the same on every rank, but for the samples, which rank 0 has.

    Attributes
    ----------
    status : str
        "complete", or why the run stopped.
    time : float
        Simulated time reached (s).
    steps, rejected, evaluations : int
        Steps taken and rejected, evaluations of the state derivative.
    step_sizes : dict
        `fixed` (s); or of adaptive steps that no sample has shortened `smallest`, `largest`, `median` (s), and
        `shortened`, how many were; `limited_by`: "accuracy", "stability" or "samples"; `share_of_stable`, the median
        share of the largest stable step, where that was found; `rate` (1/s) and `body` of the fastest motion.
    seconds : dict of str to float
        Wall time of this rank by phase (s).
    energy_error : float
        Largest |E - E0 - W| of the samples (J), with the total energy E and the work W of dampers, joint torques,
        wrenches and functions: what the integration does wrong.
    energy_change : float
        The same over the largest kinetic energy (or change of potential energy, or work, if that is more).
    solutions : dict of str to float
        Of the constraint-load equations, where the coupling has them: unknowns, solutions, total_iterations,
        most_iterations, factorizations, and of the samples the largest_residual and largest_condition.
    peaks : str
        With `extremes`, the largest magnitudes of all steps, and on which bodies.
    extremes : dict of arrays [4, n]
        On rank 0, where no output file was asked for: by quantity (q, u, kinetic_energy, with loads also tension and
        moment of every body) the smallest of each number over all steps, its time, the largest, its time.
    samples : list of Sample
        On rank 0, where no output file was asked for.
    restarts : list of dict
        Simulated time (s) and number of ranks of every restart from a checkpoint.
    """

    status: str = "complete"
    time: float = 0.0
    steps: int = 0
    rejected: int = 0
    evaluations: int = 0
    step_sizes: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    energy_error: float = 0.0
    energy_change: float = 0.0
    solutions: dict[str, float] = field(default_factory=dict)
    peaks: str = ""
    extremes: dict[str, Floats] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    restarts: list[dict[str, float]] = field(default_factory=list)

    def statistics(self) -> dict[str, Any]:
        """What the output file keeps of the run."""
        return {name: getattr(self, name) for name in _TOLD}

    def summary(self) -> str:
        """A few lines for a person."""
        phases = ", ".join(f"{name} {value:.3g}" for name, value in self.seconds.items())
        relative = f", {self.energy_change:.2e} of the largest kinetic energy" if self.energy_change else ""
        text = (
            f"{self.status}: t = {self.time:g} s, {self.steps} steps, {self.rejected} rejected, "
            f"{self.evaluations} evaluations\n"
            + (f"{told(self.step_sizes)}\n" if self.step_sizes else "")
            + f"seconds: {phases}\n"
            f"energy: balance |E - E0 - W| up to {self.energy_error:.2e} J{relative}"
        )
        if self.peaks:
            text += f"\n{self.peaks}"
        if self.solutions:
            s = self.solutions
            text += (
                f"\nconstraint loads: {s['unknowns']} unknowns, {s['total_iterations'] / max(s['solutions'], 1):.2f} "
                f"iterations per evaluation (at most {s['most_iterations']}), {s['factorizations']} factorizations; "
                f"residual up to {s['largest_residual']:.1e}, condition up to {s['largest_condition']:.1e}"
            )
        return text
