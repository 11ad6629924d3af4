"""What a simulation gives back."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpimbs.arguments import as_path
from mpimbs.errors import InputError, warn_caller
from mpimbs.filesystem.places import part_of
from mpimbs.simulation.ensembles.result import EnsembleResult, ensemble_in
from mpimbs.simulation.kept_motion import BodyHistory, Floats, KeptMotion, SegmentedMotion, motion_in_file, open_run
from mpimbs.simulation.output import read_statistics
from mpimbs.simulation.output_layout import ENSEMBLE_FORMAT, SEGMENTS
from mpimbs.simulation.projection import loops_told
from mpimbs.simulation.reading import newest
from mpimbs.simulation.rods import RodHistory
from mpimbs.simulation.step_sizes import told
from mpimbs.simulation.witness import witness_told
from mpimbs.sizes import VARIABLE

if TYPE_CHECKING:
    from mpimbs.simulation.samples import Sample

# Of a result, what the output file keeps.
_TOLD = (
    "time", "steps", "rejected", "evaluations", "step_sizes", "seconds", "energy_error", "energy_change",
    "solutions", "loops", "witness", "restarts", "sizes",
)  # fmt: skip


@dataclass(repr=False)
class Result:
    """Outcome of a simulation: the same on every rank, but for the motion, which rank 0 has.

    The motion is arrays, read from the output file when they are first asked for, if there is one: `t`, `q`, `u`,
    `energy`, `equation_residual`, `poses`, `loads`, `loop_violation`, `loop_loads`, `body(name)`, the motion of one
    body, and `rod(name)`, what a rod carries; None on other ranks. Where events change the structure, `q`, `u` and what
    loops have are tuples of arrays, one for each structure; all else has one row for each sample throughout.

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
        Of the constraint loads, where the coupling iterates to find them: unknowns, solutions, total_iterations,
        most_iterations, factorizations, and of the samples the largest_residual and largest_condition.
    loops : dict
        Where there are any: `projection` and `stabilisation` as they were; `moved`, what closing them at the begin has
        changed most; `evaluations` to close them; `left` and `sampled`, the largest violations that steps have left,
        before these were taken away, and those of the samples: of positions (m and rad together) and velocities, each
        with the name of the loop.
    witness : dict
        How many samples were checked by the equations of motion (`checks`), and the largest of what accelerations left
        of these (`motion`) and of the loops (`loops`): relative to their terms, on which body or loop, time (s). Empty
        with `no_witness`.
    peaks : str
        With `extremes`, the largest magnitudes of all steps, and on which bodies.
    extremes : dict of arrays [4, n]
        On rank 0, where no output file was asked for: by quantity (q, u, kinetic_energy, with loads also tension and
        moment of every body) the smallest of each number over all steps, its time, the largest, its time; where events
        change the structure, of the steps since the last one.
    samples : list of Sample
        On rank 0, where no output file was asked for: one after the other.
    restarts : list of dict
        Simulated time (s) and number of ranks of every restart from a checkpoint.
    events : list of dict
        Of each change of structure its `time` (s), what was `cut` and `connected`, the `energy_lost` (J), how far apart
        (m and rad) loops were that were closed by moving bodies (`moved`), and all that in words (`told`).
    sizes : str
        The tuned sizes in use (`mpimbs.sizes`): "package", or a digest of others.
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
    loops: dict[str, Any] = field(default_factory=dict)
    witness: dict[str, Any] = field(default_factory=dict)
    peaks: str = ""
    extremes: dict[str, Floats] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    restarts: list[dict[str, float]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    sizes: str = "package"
    motion: KeptMotion | SegmentedMotion | None = field(default=None, compare=False)

    def __getitem__(self, name: str) -> BodyHistory:
        """The motion of the body of that name, as `body`."""
        return self.body(name)

    def __repr__(self) -> str:
        kept = "" if self.motion is None else f", motion {self.motion.where}"
        return f"Result({self.status}: t = {self.time:g} s, {self.steps} steps{kept})"

    @property
    def t(self) -> Any:
        """Times of the samples [samples], s."""
        return self._of_motion("t")

    @property
    def q(self) -> Any:
        """Coordinates [samples, nq] in the model's order; rad, m, quaternions w x y z."""
        return self._of_motion("q")

    @property
    def u(self) -> Any:
        """Generalized speeds [samples, nu] in the model's order; rad/s, m/s."""
        return self._of_motion("u")

    @property
    def energy(self) -> Any:
        """Kinetic and potential energy [samples, 2], J."""
        return self._of_motion("energy")

    @property
    def equation_residual(self) -> Any:
        """What accelerations left of the equations of motion and of the loops at most so far [samples, 2]; see
        `witness`; None with `no_witness`."""
        return self._of_motion("equation_residual")

    @property
    def poses(self) -> Any:
        """Position (m) and quaternion w x y z of each body in the world [samples, bodies, 7]; from q if not kept."""
        return self._of_motion("poses")

    @property
    def loads(self) -> Any:
        """Loads through the joints [samples, bodies, 6], as of `Dynamics.joint_loads`; None where not kept."""
        return self._of_motion("loads")

    @property
    def loop_violation(self) -> Any:
        """How far loops are from closed [samples, loops, 2], in positions and velocities; None without loops."""
        return self._of_motion("loop_violation")

    @property
    def loop_loads(self) -> Any:
        """Loads of the loops [samples, loops, 6], as of `ClosedLoops`; None where not kept."""
        return self._of_motion("loop_loads")

    def body(self, name: str) -> BodyHistory:
        """Give the motion of one body, on rank 0; InputError with close matches if there is none of that name."""
        if self.motion is None:
            raise InputError(f"body {name!r}: the motion is on rank 0 only")
        return self.motion.body(name)

    def rod(self, name: str) -> RodHistory:
        """Give what a rod carries along it, on rank 0, where loads were kept; InputError if there is no such rod."""
        if self.motion is None:
            raise InputError(f"rod {name!r}: the motion is on rank 0 only")
        return self.motion.rod(name)

    def _of_motion(self, name: str) -> Floats | None:
        return None if self.motion is None else getattr(self.motion, name)

    def to_xarray(self) -> Any:
        """Give the samples as an `xarray.Dataset`, with names and units; on rank 0.

        Dimensions: time, coordinate and speed (the body's name, numbered where its joint has several), and, where poses
        or loads were kept, body. Where events change the structure, q and u are left out.

        Raises
        ------
        InputError
            xarray is not installed, or there is no motion here.
        """
        from mpimbs.simulation.labelled import dataset

        if self.motion is None:
            raise InputError("the motion is on rank 0 only: call `to_xarray` there")
        return dataset(self.motion, {"status": self.status, "steps": self.steps, "rejected": self.rejected})

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from html import escape

        lines = self.summary().split("\n")
        where = [] if self.motion is None else [f"{len(self.motion.t)} samples {self.motion.where}"]
        return f"<b>{escape(self.motion.system.name if self.motion else 'Result')}</b><br>" + "<br>".join(
            escape(line) for line in [*where, *lines]
        )

    def statistics(self) -> dict[str, Any]:
        """What the output file keeps of the run."""
        told = {name: getattr(self, name) for name in _TOLD}
        return told | {"events": self.events} if self.events else told

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
        for event in self.events:
            moved = f", ends moved together by {event['moved']:.3g} (m and rad)" if event["moved"] > 1e-9 else ""
            text += f"\nevent: t = {event['time']:.6g} s, {event['told']}: {event['energy_lost']:.4g} J lost{moved}"
        text += "".join(f"\n{line}" for line in loops_told(self.loops))
        if self.witness:
            text += f"\n{witness_told(self.witness)}"
        if self.sizes != "package":
            text += f"\nsizes: {self.sizes}, by {VARIABLE}"
        if self.peaks:
            text += f"\n{self.peaks}"
        if self.solutions:
            s = self.solutions
            text += (
                f"\nconstraint loads: {s['unknowns']} unknowns, {s['total_iterations'] / max(s['solutions'], 1):.2f} "
                f"iterations per evaluation (at most {s['most_iterations']}), {s['factorizations']} factorizations"
            )
            if s.get("unfinished"):
                text += f"; {s['unfinished']} of {s['solutions']} solutions ended short of the tolerance"
            if "largest_residual" in s:
                text += f"; residual up to {s['largest_residual']:.1e}, condition up to {s['largest_condition']:.1e}"
        return text


def load(path: str | Path) -> Result | EnsembleResult:
    """Give the result of a run that has written an output file; by one process.

    Parameters
    ----------
    path : path
        OUT.h5. Where OUT.h5.part, of a run that was killed or goes on, is newer, that is read up to its last complete
        sample, and a warning says so.

    Returns
    -------
    Result or EnsembleResult
        As `simulate` or `Batch.simulate` gave it, or would give it, on rank 0; its status is "running" where the run
        did not end.

    Raises
    ------
    InputError
        There is no such file, or it is no output file.
    """
    place = as_path("the output", path).absolute()
    if place.exists() and newest(place) != place:
        warn_caller(f"{place}: is older than {part_of(place).name}, of a run that goes on or was killed: that is read")
    return result_of(place)


def result_of(place: Path, run: str | None = None) -> Result | EnsembleResult:
    """Give the result in an output file, as `load`; that of a certain run."""
    with open_run(place, ensembles=True, run=run) as file:
        if file.attrs["format"] == ENSEMBLE_FORMAT:
            return ensemble_in(place, file)
        told = read_statistics(file)
        if not told and len(file["time"]):
            told = {"time": float(file["time"][-1])}
        known = {field.name for field in fields(Result)}
        statistics = {name: value for name, value in told.items() if name in known}
        motion = motion_in_file(place, str(file.attrs["run"]), 1 + len(file.get(SEGMENTS, ())))
        return Result(status=str(file.attrs["status"]), motion=motion, **statistics)


def motion_in(path: str | Path, copy: str | None = None) -> tuple[KeptMotion | SegmentedMotion, str]:
    """Give the motion in an output file, of an ensemble that of a copy, and the status of the run; by one process.

    Raises
    ------
    InputError
        As `load`; or it is of an ensemble without such a copy, or of no ensemble, and a copy was asked for.
    """
    result = load(path)
    if isinstance(result, EnsembleResult):
        if copy is None:
            raise InputError(
                f"{path}: is the output of an ensemble of {result.copies} copies; choose one by its name with `copy`"
            )
        return result[copy], result.status
    if copy is not None:
        raise InputError(f"{path}: is the output of a run, not of an ensemble; leave `copy` out")
    assert result.motion is not None  # of a file
    return result.motion, result.status
