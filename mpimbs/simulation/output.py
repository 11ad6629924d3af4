"""The output file (HDF5): written as a whole or not at all, readable whatever happens to the run.

The samples go to `OUT.part`, flushed now and then in HDF5's single-writer mode, so that they can be read while the run
goes on or after it died; at the end the file gets its timing and its name. Rank 0 writes what the ranks have gathered.
"""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt

from mpimbs.errors import InputError
from mpimbs.model import JOINT_TYPES, System, system_text
from mpimbs.simulation.constraint_record import SeparatedLoads, SolutionSample

Floats = npt.NDArray[np.float64]
FLUSH_SECONDS = 1.0
FLUSH_BYTES = 2**24
DATASETS = ("time", "q", "u", "energy", "constraint_violation", "poses", "loads")  # as `Sample` begins
LOADS = (
    "load on each body by its parent through its inboard joint, reaction and what drives the joint together: moment "
    "about the origin of the body frame, then force, in body frame components; the parent receives the opposite"
)


class Sample(NamedTuple):
    """The whole system at one time, on rank 0; SI units, quaternions w x y z, the model's order."""

    time: float
    q: Floats  # [nq]
    u: Floats  # [nu]
    energy: Floats  # [2]: kinetic, potential (J)
    violation: float  # largest | |quaternion| - 1 | that a step has left, before it was taken away
    poses: Floats | None  # [n, 7]: position (m), quaternion of each body in the inertial frame
    loads: Floats | None  # [n, 6]: moment (N m), force (N) on each body by its parent; see `Dynamics.joint_loads`
    solution: SolutionSample | None  # of the constraint-load equations, where a coupling has them


class OutputFile:
    """Writes samples to an HDF5 file; on rank 0 only.

    Parameters
    ----------
    path : Path
        The file to be.
    system : System
    settings : dict
        Everything that the run was asked for; kept as an attribute in JSON.
    poses, loads : bool
        Whether samples have poses and joint loads.
    force : bool
        Replace an existing file.
    separated : SeparatedLoads, optional
        Samples have the solution of the equations of these.

    Raises
    ------
    InputError
        The file exists (without `force`), or can't be written.
    """

    def __init__(
        self,
        path: Path,
        system: System,
        settings: dict[str, Any],
        poses: bool,
        loads: bool,
        force: bool,
        separated: SeparatedLoads | None = None,
    ) -> None:
        self.path = path
        check_output(path, force)
        self._part = part_of(path)
        try:
            self._file = h5py.File(self._part, "w", libver="latest")
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error}); choose another place with -o") from None
        _write_model(self._file, system)
        self._file.attrs.update(settings=json.dumps(settings), versions=json.dumps(versions()), status="running")
        empty = {
            "time": ((), "s", "time of the sample"),
            "q": ((system.nq,), "rad, m, or quaternion w x y z", "joint coordinates, in the model's order"),
            "u": ((system.nu,), "rad/s or m/s", "generalized speeds, in the model's order"),
            "energy": ((2,), "J", "kinetic, potential (weight from the inertial origin, springs)"),
            "constraint_violation": ((), "1", "largest | |quaternion| - 1 | left by a step, before it was removed"),
        }
        if poses:
            empty["poses"] = ((system.n_bodies, 7), "m, quaternion w x y z", "position and orientation of each body")
        if loads:
            empty["loads"] = ((system.n_bodies, 6), "N m, N m, N m, N, N, N", LOADS)
        if separated is not None:
            empty |= _solution_datasets(self._file["model"], separated)
        for name, (shape, units, meaning) in empty.items():
            rows = max(1, min(1024, 2**17 // max(1, int(np.prod(shape)))))
            data = self._file.create_dataset(name, (0, *shape), "f8", maxshape=(None, *shape), chunks=(rows, *shape))
            data.attrs.update(units=units, description=meaning)
        self._file.swmr_mode = True
        self._waiting: dict[str, list[Any]] = {}
        self._waiting_bytes = 0
        self._flushed = -np.inf  # the first sample shows at once

    def write(self, sample: Sample) -> None:
        """Append a sample; it reaches the file together with others of the same second."""
        values: dict[str, Any] = dict(zip(DATASETS, sample, strict=False))
        if sample.solution is not None:
            values |= sample.solution._asdict()
        for name, value in values.items():
            if value is not None:
                self._waiting.setdefault(name, []).append(value)
                self._waiting_bytes += np.asarray(value).nbytes
        if time.monotonic() - self._flushed > FLUSH_SECONDS or self._waiting_bytes > FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Bring the samples that wait to the file."""
        for name, values in self._waiting.items():
            data = self._file[name]
            data.resize(len(data) + len(values), axis=0)
            data[-len(values) :] = values
        self._waiting, self._waiting_bytes = {}, 0
        self._file.flush()
        self._flushed = time.monotonic()

    def finish(self, status: str, statistics: dict[str, Any]) -> None:
        """Close the file, add the outcome, and give it its name.

        Parameters
        ----------
        status : str
            "complete", or why the run stopped.
        statistics : dict
            Steps, evaluations and seconds by phase; kept as an attribute in JSON.
        """
        self._flush()
        self._file.close()
        with h5py.File(self._part, "r+", libver="latest") as file:
            file.attrs.update(status=status, statistics=json.dumps(statistics))
        with self._part.open("rb+") as raw:
            os.fsync(raw.fileno())
        self._part.replace(self.path)


def part_of(path: Path) -> Path:
    """Where a run keeps its output until it is complete."""
    return path.with_name(path.name + ".part")


def check_output(path: Path, force: bool) -> None:
    """Refuse a place where output can't go.

    Raises
    ------
    InputError
        The file or its unfinished part exists (without `force`), or the folder can't be written.
    """
    if os.path.isdir(path):
        raise InputError(f"{path}: is a folder; give the name of a file with -o")
    for file in (path, part_of(path)):
        if os.path.exists(file) and not force:
            left = "" if file == path else ", left by a run that did not end"
            raise InputError(f"{file}: exists{left}; move it, choose another name with -o, or replace it with --force")
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"{path}: there is no folder {folder}; make it first")
    try:
        with open(part_of(path), "ab"):
            pass
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); choose another place with -o") from None
    if part_of(path).stat().st_size == 0:
        part_of(path).unlink()


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    from importlib import metadata

    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("mpimbs", "numpy", "numba", "mpi4py", "petsc4py", "h5py"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def _solution_datasets(model: h5py.Group, separated: SeparatedLoads) -> dict[str, tuple[tuple[int, ...], str, str]]:
    """Datasets of the constraint-load equations, after what their loads act on was written to the model's group."""
    bodies = model.create_dataset("separated_joint", data=separated.bodies)
    bodies.attrs["description"] = "the constraint load acts on this body through its inboard joint"
    subspaces = model.create_dataset("constraint_subspace", data=separated.subspaces)
    subspaces.attrs["description"] = (
        "what a constraint load of 1 is: moment about the origin of the body frame, then force, in body frame "
        "components (of a universal or planar joint, of a frame between its two steps)"
    )
    unknowns = len(separated.bodies)
    return {
        "iterations": ((), "1", "iterations of an evaluation, on average since the sample before"),
        "residual": ((), "1", "residual of the constraint-load equations over the right-hand side"),
        "condition": ((), "1", "estimated condition number of the constraint-load equations"),
        "constraint_loads": ((unknowns,), "N m or N", "constraint loads at the separated joints, as the model says"),
    }


def _write_model(file: h5py.File, system: System) -> None:
    file.attrs.update(name=system.name, format="mpimbs 1")
    group = file.create_group("model")
    group.attrs["toml"] = system_text(system, functions=True)
    names = [system.name_of(k) for k in range(system.n_bodies)]
    group.create_dataset("body", data=names, dtype=h5py.string_dtype())
    group.create_dataset("parent", data=system.parents())
    group.create_dataset("center_of_mass", data=system.columns().center_of_mass).attrs["units"] = "m, body frame"
    kinds = np.array([kind.name for kind in JOINT_TYPES], dtype=object)[system.joint_types()]
    group.create_dataset("joint_type", data=kinds, dtype=h5py.string_dtype())
    q_offset, u_offset = system.offsets()
    group.create_dataset("q_offset", data=q_offset)
    group.create_dataset("u_offset", data=u_offset)
