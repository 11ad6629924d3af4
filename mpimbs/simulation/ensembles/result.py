"""What an ensemble gives back: the motion of its copies, and which of them failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.errors import InputError
from mpimbs.model import System, system_from_text
from mpimbs.model.table import suggest
from mpimbs.simulation.kept_motion import KeptMotion, RunFile, shared
from mpimbs.simulation.output import read_statistics
from mpimbs.simulation.step_sizes import told

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
MOST_TOLD = 5  # failed copies in a summary


class KeptCopies:
    """Samples of all copies as arrays, each read when it is first asked for.

    Parameters
    ----------
    where : str
        Where the samples are, in words.
    read : callable
        Gives what samples have under a name of the output file; None if they don't.
    names : sequence of str
    system : callable
        Gives the system of a copy, by its number.
    partial : callable
        See `KeptMotion`.
    parameters : dict of arrays [copies]
        By column of the table that has made the copies differ.
    """

    def __init__(
        self,
        where: str,
        read: Callable[[str], Floats | None],
        names: Sequence[str],
        system: Callable[[int], System],
        partial: Callable[[], dict[str, Integers]],
        parameters: dict[str, Floats],
    ) -> None:
        self.where, self._read, self.names = where, read, tuple(names)
        self._system, self._partial, self.parameters = system, partial, parameters
        self._found: dict[str, Floats | None] = {}

    def array(self, name: str) -> Floats | None:
        """What samples have under a name of the output file, kept once it was read."""
        if name not in self._found:
            self._found[name] = shared(self._read(name))
        return self._found[name]

    @cached_property
    def system(self) -> System:
        """That of the first copy; of an output file without the forces that are functions."""
        return self._system(0)

    def copy(self, copy: int | str) -> KeptMotion:
        """Give the motion of a copy, by number or name; InputError if there is none."""
        k = self.number(copy)

        def read(name: str) -> Floats | None:
            found = self.array(name)
            return found if found is None or name == "time" else found[:, k]

        return KeptMotion(f"{self.where}, copy {self.names[k]}", read, partial(self._system, k), self._partial)

    def number(self, copy: int | str) -> int:
        """Number of a copy that is given by number or name."""
        if isinstance(copy, str):
            if copy not in self.names:
                raise InputError(f"unknown copy {copy!r}{suggest(copy, self.names)}")
            return self.names.index(copy)
        if not -len(self.names) <= copy < len(self.names):
            raise InputError(f"there is no copy {copy}: give one from 0 to {len(self.names) - 1}")
        return copy % len(self.names)


@dataclass(repr=False)
class EnsembleResult:
    """Outcome of an ensemble: the same on every rank, but for the motion, which rank 0 has.

    The motion is arrays with a dimension more than those of a run: `t` [samples], `q` [samples, copies, nq], `u`,
    `energy` [samples, copies, 2] and, where they were kept, `poses`; NaN of a copy behind the time at which it failed.
    `result["name"]`, or `result[3]`, is the motion of a copy as `simulate` has it.

    Attributes
    ----------
    status : str
        "complete", or why the run stopped.
    copies : int
    lanes : int
        Copies side by side; 1: one after the other.
    time : float
        Simulated time reached (s).
    steps, rejected, evaluations : int
        Of the rank that has taken the most: those of all of its copies at once, or of copies with steps of their own
        the sum.
    step_sizes : dict
        Of rank 0; see `Result`.
    seconds : dict of str to float
        Wall time of this rank by phase (s).
    failed : dict of str to (float, str)
        By name the copies that failed: at which time (s), and why.
    restarts : list of dict
        Simulated time (s) and number of ranks of every restart from a checkpoint.
    """

    status: str = "complete"
    copies: int = 0
    lanes: int = 1
    time: float = 0.0
    steps: int = 0
    rejected: int = 0
    evaluations: int = 0
    step_sizes: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: dict[str, tuple[float, str]] = field(default_factory=dict)
    restarts: list[dict[str, float]] = field(default_factory=list)
    kept: KeptCopies | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"EnsembleResult({self.status}: t = {self.time:g} s, {self.copies} copies{failed})"

    def __getitem__(self, copy: int | str) -> KeptMotion:
        """The motion of a copy, by number or name."""
        return self._motion.copy(copy)

    @property
    def _motion(self) -> KeptCopies:
        if self.kept is None:
            raise InputError("the motion is on rank 0 only: look at it there")
        return self.kept

    @property
    def names(self) -> tuple[str, ...]:
        """What the copies are called."""
        return self._motion.names

    @property
    def parameters(self) -> dict[str, Floats]:
        """By column of the table that has made the copies differ, what each had [copies]."""
        return self._motion.parameters

    @property
    def t(self) -> Floats | None:
        """Times of the samples [samples], s."""
        return self._motion.array("time")

    @property
    def q(self) -> Floats | None:
        """Coordinates [samples, copies, nq] in the model's order; rad, m, quaternions w x y z."""
        return self._motion.array("q")

    @property
    def u(self) -> Floats | None:
        """Generalized speeds [samples, copies, nu] in the model's order; rad/s, m/s."""
        return self._motion.array("u")

    @property
    def energy(self) -> Floats | None:
        """Kinetic and potential energy [samples, copies, 2], J."""
        return self._motion.array("energy")

    @property
    def poses(self) -> Floats | None:
        """Position (m) and quaternion of each body [samples, copies, bodies, 7]; None where not kept."""
        return self._motion.array("poses")

    def statistics(self) -> dict[str, Any]:
        """What the output file keeps of the run."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("status", "kept")}

    def summary(self) -> str:
        """A few lines for a person."""
        phases = ", ".join(f"{name} {value:.3g}" for name, value in self.seconds.items())
        how = f"({self.lanes} side by side)" if self.lanes > 1 else "(one after the other)"
        lines = [
            f"{self.status}: t = {self.time:g} s, {self.copies} copies {how}, {self.steps} steps, {self.rejected} "
            f"rejected, {self.evaluations} evaluations",
            *([told(self.step_sizes)] if self.step_sizes else []),
            f"seconds: {phases}",
        ]
        for name, (t, reason) in list(self.failed.items())[:MOST_TOLD]:
            lines.append(f"copy {name} failed at t = {t:.6g} s: {reason}")
        if len(self.failed) > MOST_TOLD:
            lines.append(f"{len(self.failed) - MOST_TOLD} more of {self.copies} copies failed")
        return "\n".join(lines)


class EnsembleSamples:
    """Keeps samples in memory on rank 0, as `Samples` those of a run; all ranks make it together and call."""

    def __init__(self, comm: MPI.Comm, widths: dict[str, int]) -> None:
        self._comm = comm
        self.samples: dict[str, list[Any]] = {}

    def due(self) -> bool:
        """Whether samples have to be written before the next one comes: never."""
        return False

    def add(self, own: dict[str, Floats], common: dict[str, Any], due: bool) -> None:
        """Take a sample: this rank's copies [copies, ...], and what all ranks have."""
        parts = self._comm.gather(own)
        if parts is not None:
            whole = {name: np.concatenate([part[name] for part in parts]) for name in own}
            for name, values in (whole | common).items():
                self.samples.setdefault(name, []).append(values)

    def read(self, name: str) -> Floats | None:
        """What samples have under a name."""
        return np.array(self.samples[name]) if name in self.samples else None

    def sync(self) -> None:
        """There is nothing to wait for."""

    def close(self, status: str, statistics: dict[str, Any], unfinished: bool = False) -> None:
        """There is nothing to end."""


def copies_in_file(path: Path, run: str) -> KeptCopies:
    """Give the motion of an ensemble in its output file."""
    kept = RunFile(path, run)
    with kept.open() as file:
        names = file["copies/name"].asstr()[:].tolist()
        parameters = _parameters(file)
    return KeptCopies(f"in {path}", partial(kept.read, ""), names, partial(_system, kept), kept.partial, parameters)


def ensemble_in(path: Path, file: h5py.File) -> EnsembleResult:
    """Give the result that an open output file has."""
    found = read_statistics(file)
    if not found and len(file["time"]):
        found = {"time": float(file["time"][-1]), "copies": len(file["copies/name"])}
    return EnsembleResult(status=str(file.attrs["status"]), kept=copies_in_file(path, str(file.attrs["run"])), **found)


def _system(kept: RunFile, copy: int) -> System:
    with kept.open() as file:
        models = file["copies/model"].asstr()
        return system_from_text(models[copy % len(models)], kept.path)


def _parameters(file: h5py.File) -> dict[str, Floats]:
    if "copies/parameters" not in file:
        return {}
    data = file["copies/parameters"]
    return {str(name): data[:, k] for k, name in enumerate(data.attrs["columns"])}
