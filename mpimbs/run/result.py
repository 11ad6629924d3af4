"""What a simulation or an ensemble gives back: the motion, and how it went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mpimbs.base.arguments import as_path
from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError, warn_caller
from mpimbs.base.places import part_of
from mpimbs.base.sizes import VARIABLE
from mpimbs.dynamics.quantities import CALLED, DECLARED, OF_JOINTS, PER_BODY, SYSTEM, Q, Quantity, U
from mpimbs.files.motion import Motion, Sampled
from mpimbs.files.output import read_statistics
from mpimbs.files.output_layout import ENSEMBLE_FORMAT, SEGMENTS
from mpimbs.files.reading import newest, open_run
from mpimbs.model.columns import numbers_of
from mpimbs.model.contents import JointRead
from mpimbs.run.witness import witness_told
from mpimbs.stepping.projection import loops_told
from mpimbs.stepping.step_sizes import steps_in_words

_DIMENSIONS = {Q: "coordinate", U: "speed", PER_BODY: "body"}


def dataset(motion: Motion, attributes: dict[str, Any]) -> Any:
    """Give the samples as an `xarray.Dataset`.

    Raises
    ------
    InputError
        xarray is not installed.
    """
    try:
        import xarray
    except ImportError:
        raise InputError("xarray is not installed: pip install mpimbs[xarray]") from None
    found = xarray.Dataset(attrs={"name": motion.system.name, **attributes})
    found["time"] = ("time", motion.t, {"units": "s"})
    for each in DECLARED:
        if each.of not in (SYSTEM, *_DIMENSIONS) or each.name == "time" or each.derived is not None:
            continue
        values = motion.array(each.name)
        if values is None or isinstance(values, tuple):
            continue
        # Of two quantities of bodies one may be kept of fewer: what was not kept is not a number.
        labels = {} if each.of == SYSTEM else {_DIMENSIONS[each.of]: _labels(motion, each)}
        labels |= {_PARTS.get(each.name, each.name + "_part"): list(each.parts)} if each.parts else {}
        array = xarray.DataArray(values, {"time": motion.t, **labels}, ["time", *labels])
        found = found.merge({each.name: array.assign_attrs(units=each.unit, description=each.about)}, join="outer")
    return found


_PARTS = {"energy": "form", "poses": "pose", "loads": "component"}  # what dimensions of parts are called


def _labels(motion: Motion, quantity: Quantity) -> list[str]:
    """Give the names of the rows of a quantity."""
    system, bodies = motion.system, motion.kept(quantity.name)
    if quantity.of not in OF_JOINTS:
        return [system.name_of(k) for k in bodies.tolist()]
    counts = np.diff(system.offsets()[OF_JOINTS.index(quantity.of)])[bodies]
    return [
        system.name_of(k) if count == 1 else f"{system.name_of(k)}[{number}]"
        for k, count in zip(bodies.tolist(), counts.tolist(), strict=True)
        for number in range(count)
    ]


_MOST_TOLD = 5  # failed copies in a summary


@dataclass(repr=False)
class Outcome(Sampled):
    """The results of runs and ensembles: what both have."""

    _not_kept: ClassVar[tuple[str, ...]] = ("status", "motion")  # in the output file
    status: str = "complete"
    time: float = 0.0
    steps: int = 0
    rejected: int = 0
    evaluations: int = 0
    step_sizes: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    restarts: list[dict[str, float]] = field(default_factory=list)
    motion: Motion | None = field(default=None, compare=False)

    def array(self, name: str) -> Any:
        """As of `Motion`; None where there is no motion."""
        return None if self.motion is None else self.motion.array(name)

    @property
    def there(self) -> Motion:
        """The motion; InputError on other ranks than 0."""
        if self.motion is None:
            raise InputError("the motion is on rank 0 only: look at it there")
        return self.motion

    def _begin_of_summary(self, copies: str = "") -> str:
        phases = ", ".join(f"{name} {value:.3g}" for name, value in self.seconds.items())
        return (
            f"{self.status}: t = {self.time:g} s, {copies}{self.steps} steps, {self.rejected} rejected, "
            f"{self.evaluations} evaluations\n"
            + (f"{steps_in_words(self.step_sizes)}\n" if self.step_sizes else "")
            + f"seconds: {phases}"
        )

    def statistics(self) -> dict[str, Any]:
        """Give the numbers of the run that the output file keeps."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in self._not_kept}


@dataclass(repr=False)
class Result(Outcome):
    """Outcome of a simulation: the same on every rank, but for the motion, which rank 0 has.

    The motion is arrays, read from the output file when they are first asked for, if there is one: `t` and those of
    `Sampled`, `body(name)`, the motion of one body, and `rod(name)`, what a rod carries; None on other ranks. Where
    events change the structure, `q`, `u` and what loops have are tuples of arrays, one for each structure; all else has
    one row for each sample throughout.

    Attributes
    ----------
    status : str
        "complete", or why the run stopped.
    time : float
        Simulated time reached (s).
    steps, rejected, evaluations : int
        Steps taken and rejected, evaluations of the state derivative.
    step_sizes : dict
        `fixed` (s); or of adaptive steps that no sample has shortened `smallest`, `largest`, `mean` (s), and
        `shortened`, how many were; `limited_by`: "accuracy", "stability" or "samples"; `share_of_stable`, the mean
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
        of these (`motion`) and of the loops (`loops`): relative to their terms, on which body or loop, time (s). The
        most constraints that were left out, for others make them (`dropped`), a loop of which one was, time (s). Empty
        with `no_witness`.
    peaks : str
        With `extremes`, the largest magnitudes of all steps, and on which bodies.
    extremes : dict of arrays [4, n]
        On rank 0, where no output file was asked for, or as `load` gives them: by quantity (q, u, kinetic_energy, with
        loads also tension and moment of every body) the smallest of each number over all steps, its time, the largest,
        its time; where events change the structure, of the steps since the last one.
    restarts : list of dict
        Simulated time (s) and number of ranks of every restart from a checkpoint.
    events : list of dict
        Of each change of structure its `time` (s), what was `cut` and `connected`, the `energy_lost` (J), how far apart
        (m and rad) loops were that were closed by moving bodies (`moved`), and all that in words (`told`).
    limits : str
        Of a robot's file, which samples are beyond the limits of joints, that nothing keeps them to, and by how much.
    sizes : str
        The tuned sizes in use (`mpimbs.base.sizes`): "package", or a digest of others.
    motion : Motion
        On rank 0.
    """

    _not_kept: ClassVar[tuple[str, ...]] = (*Outcome._not_kept, "peaks", "limits", "extremes")
    energy_error: float = 0.0
    energy_change: float = 0.0
    solutions: dict[str, float] = field(default_factory=dict)
    loops: dict[str, Any] = field(default_factory=dict)
    witness: dict[str, Any] = field(default_factory=dict)
    peaks: str = ""
    limits: str = ""
    extremes: dict[str, Floats] = field(default_factory=dict, compare=False)
    events: list[dict[str, Any]] = field(default_factory=list)
    sizes: str = "package"

    def __repr__(self) -> str:
        kept = "" if self.motion is None else f", motion {self.motion.where}"
        return f"Result({self.status}: t = {self.time:g} s, {self.steps} steps{kept})"

    def to_xarray(self) -> Any:
        """Give the samples as an `xarray.Dataset`, with names and units; on rank 0.

        Dimensions: time, coordinate and speed (the body's name, numbered where its joint has several), and, where poses
        or loads were kept, body. Where events change the structure, q and u are left out.

        Raises
        ------
        InputError
            xarray is not installed, or there is no motion here.
        """

        return dataset(self.there, {"status": self.status, "steps": self.steps, "rejected": self.rejected})

    def _repr_html_(self) -> str:
        """Give the HTML that a notebook shows."""
        from html import escape

        lines = self.summary().split("\n")
        where = [] if self.motion is None else [f"{len(self.motion.t)} samples {self.motion.where}"]
        return f"<b>{escape(self.motion.system.name if self.motion else 'Result')}</b><br>" + "<br>".join(
            escape(line) for line in [*where, *lines]
        )

    def statistics(self) -> dict[str, Any]:
        """Give the numbers of the run that the output file keeps."""
        found = super().statistics()
        return found if self.events else {name: value for name, value in found.items() if name != "events"}

    def summary(self) -> str:
        """A few lines for a person."""
        relative = f", {self.energy_change:.2e} of the largest kinetic energy" if self.energy_change else ""
        text = f"{self._begin_of_summary()}\nenergy: balance |E - E0 - W| up to {self.energy_error:.2e} J{relative}"
        for event in self.events:
            moved = f", ends moved together by {event['moved']:.3g} (m and rad)" if event["moved"] > 1e-9 else ""
            text += f"\nevent: t = {event['time']:.6g} s, {event['told']}: {event['energy_lost']:.4g} J lost{moved}"
        text += "".join(f"\n{line}" for line in loops_told(self.loops))
        if self.witness:
            text += f"\n{witness_told(self.witness)}"
        if self.sizes != "package":
            text += f"\nsizes: {self.sizes}, by {VARIABLE}"
        if self.limits:
            text += f"\n{self.limits}"
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


def beyond_limits(joints: Sequence[JointRead], motion: Motion) -> str:
    """Say which samples are beyond the limits that a robot's file gives joints, where no stops are; "" if none.

    Of joints whose coordinates were kept, of one structure alone.
    """
    if isinstance(q := motion.array("q"), tuple) or q is None or not len(q):
        return ""
    kept = motion.kept("q")
    begins, counts = motion.system.offsets()[0], np.diff(motion.system.offsets()[0])
    columns = np.full(motion.system.nq, -1)
    columns[numbers_of(begins, kept)[0]] = np.arange(int(counts[kept].sum()))
    stopped = motion.system.columns(0, motion.system.n_bodies).stop_stiffness > 0.0
    found = []
    for joint in joints:
        if joint.limits is not None and not stopped[joint.u] and (column := columns[joint.q]) >= 0:
            least, most = joint.limits
            over = np.maximum(q[:, column] - most, least - q[:, column])
            row = int(np.argmax(over))
            if over[row] > _ROUNDED * (abs(least) + abs(most)):
                found.append((float(over[row] / max(most - least, _ROUNDED)), joint.name, over[row], motion.t[row]))
    told = [f"'{name}' by {by:.3g} (t = {t:.4g} s)" for _, name, by, t in sorted(found, reverse=True)]
    more = f", and {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
    return f"beyond limits, which are left out: {', '.join(told[:_MOST_TOLD])}{more}" if told else ""


_ROUNDED = 1e-6  # of limits, that samples may be beyond


@dataclass(repr=False)
class EnsembleResult(Outcome):
    """Outcome of an ensemble: the same on every rank, but for the motion, which rank 0 has.

    The motion is arrays with a dimension more than those of a run: `t` [samples], `q` [samples, copies, nq], `u`,
    `energy` [samples, copies, 2], `poses` and so on; NaN of a copy behind the time at which it failed.
    `result["name"]`, or `result[3]`, is the motion of a copy as `simulate` has it.

    Attributes
    ----------
    status, time, seconds, restarts, motion
        As of `Result`.
    steps, rejected, evaluations : int
        Of the rank that has taken the most: those of all of its copies at once, or of copies with steps of their own
        the sum.
    step_sizes : dict
        Of rank 0; see `Result`.
    copies : int
    lanes : int
        Copies side by side; 1: one after the other.
    failed : dict of str to (float, str)
        By name the copies that failed: at which time (s), and why.
    witness : dict
        As of `Result`, of all copies together, whose names stand before the bodies'; of how many copies (`copies`).
    events : dict of str to list of dict
        By name of the copies that had any; as of `Result`.
    """

    copies: int = 0
    lanes: int = 1
    failed: dict[str, tuple[float, str]] = field(default_factory=dict)
    witness: dict[str, Any] = field(default_factory=dict)
    events: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"EnsembleResult({self.status}: t = {self.time:g} s, {self.copies} copies{failed})"

    def __getitem__(self, name: int | str) -> Any:
        """The motion of a copy, by number or name; or of a quantity the samples of all, as `Motion.column`."""
        if name in CALLED and name not in self.names:
            return self.there.column(str(name))
        return self.there.copy(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the copies."""
        return self.there.names

    @property
    def parameters(self) -> dict[str, Floats]:
        """By column of the table that has made the copies differ, what each had [copies]."""
        return self.there.parameters

    def summary(self) -> str:
        """A few lines for a person."""
        how = f"({self.lanes} side by side)" if self.lanes > 1 else "(one after the other)"
        lines = [self._begin_of_summary(f"{self.copies} copies {how}, ")]
        if self.witness:
            lines.append(witness_told(self.witness))
        if self.events:
            count = sum(map(len, self.events.values()))
            lines.append(f"{count} events in {len(self.events)} of {self.copies} copies")
        for name, (t, reason) in list(self.failed.items())[:_MOST_TOLD]:
            lines.append(f"copy {name} failed at t = {t:.6g} s: {reason}")
        if len(self.failed) > _MOST_TOLD:
            lines.append(f"{len(self.failed) - _MOST_TOLD} more of {self.copies} copies failed")
        return "\n".join(lines)


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
    with open_run(place, run) as file:
        ensemble = file.attrs["format"] == ENSEMBLE_FORMAT
        found = read_statistics(file)
        if not found and len(file["time"]):
            found = {"time": float(file["time"][-1])} | ({"copies": len(file["copies/name"])} if ensemble else {})
        names, parameters = file["copies/name"].asstr()[:].tolist() if ensemble else (), {}
        if ensemble and (table := file.get("copies/parameters")) is not None:
            parameters = {str(name): table[:, k] for k, name in enumerate(table.attrs["columns"])}
        structures = 1 + len(file.get(SEGMENTS, ()))
        last = file if structures == 1 else file[f"{SEGMENTS}/{structures - 1}"]
        if file.attrs["status"] != "running":
            found["extremes"] = {name: rows[:] for name, rows in last.get("extremes", {}).items()}
        motion = Motion.in_file(place, str(file.attrs["run"]), structures, names, parameters)
        kind: type[Result | EnsembleResult] = EnsembleResult if ensemble else Result
        known = {each.name for each in fields(kind)}
        told = {name: value for name, value in found.items() if name in known}
        return kind(status=str(file.attrs["status"]), motion=motion, **told)
