"""The output file (HDF5): written as a whole or not at all, readable whatever happens to the run.

The samples go to `OUT.part`, flushed now and then in HDF5's single-writer mode, so that they can be read while the run
goes on or after it died; at the end the file gets its timing and its name. Rank 0 writes what the ranks have gathered.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt

from mpimbs.errors import InputError, SimulationError
from mpimbs.model import JOINT_TYPES, System, system_text
from mpimbs.simulation.constraint_record import SeparatedLoads, SolutionSample
from mpimbs.simulation.disk import check_room, claim, flush_to_disk, reason_of

Floats = npt.NDArray[np.float64]
FLUSH_SECONDS = 1.0
FLUSH_BYTES = 2**24
METADATA = 2**18  # bytes that a flush adds to the samples, at the most
COPIED = 2**24  # bytes at a time
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


class OutputError(SimulationError):
    """The output can't be written any more; what was flushed before stays readable."""


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

    Attributes
    ----------
    path : Path
    run : str
        What tells this run from others; also in the file, and in checkpoints.

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
        self.run = uuid.uuid4().hex
        self._prepare(path)
        check_output(path, force)
        try:
            check_room(self._part, METADATA)
            self._file = h5py.File(self._part, "w", libver="latest")
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({reason_of(error)}); choose another place with -o") from None
        _write_model(self._file, system)
        self._file.attrs.update(settings=json.dumps(settings), versions=json.dumps(versions()), status="running")
        self._file.attrs["run"] = self.run
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

    def _prepare(self, path: Path) -> None:
        self.path, self._part = path, part_of(path)
        self._waiting: dict[str, list[Any]] = {}
        self._waiting_bytes = 0
        self._claimed = 0  # bytes of the file
        self._rooms: int | None = None
        self._flushed = -np.inf  # the first sample shows at once

    @classmethod
    def continued(cls, path: Path, run: str, count: int) -> OutputFile:
        """Go on with the output of a run that did not end, behind its first `count` samples.

        They are copied, in slices, to a new file that takes the place of the unfinished one: whatever stands behind
        them, or was being written when the run died, is left out.

        Raises
        ------
        InputError
            There is no such output, it is complete or that of another run, it is damaged, or lacks samples.
        """
        file = cls.__new__(cls)
        file._prepare(path)
        file.run = run
        source = file._part if file._part.exists() else path
        fresh = file._part.with_name(file._part.name + ".new")
        try:
            _copy(source, fresh, run, count)
            fresh.replace(file._part)
            file._file = h5py.File(file._part, "r+", libver="latest")
            file._file.swmr_mode = True
        except FileNotFoundError:
            raise InputError(
                f"{file._part}: there is no such file: the samples before the checkpoint are missing; put it back"
            ) from None
        except (OSError, RuntimeError, KeyError) as error:
            raise InputError(f"{source}: can't be continued ({reason_of(error)})") from None
        finally:
            fresh.unlink(missing_ok=True)
        return file

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn what the file system or HDF5 says into an `OutputError`."""
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            with contextlib.suppress(OSError, RuntimeError, ValueError):
                self._file.close()
            raise OutputError(f"{self._part}: can't be written any more ({reason_of(error)})") from None

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
            with self._writing():
                self._flush()

    def sync(self) -> None:
        """Wait until all samples so far are on the disk; raises `OutputError`."""
        with self._writing():
            self._flush()
            flush_to_disk(self._part)

    def _flush(self) -> None:
        """Bring the samples that wait to the file."""
        self._claim_room()
        for name, values in self._waiting.items():
            data = self._file[name]
            data.resize(len(data) + len(values), axis=0)
            data[-len(values) :] = values
        self._waiting, self._waiting_bytes = {}, 0
        self._file.flush()
        self._flushed = time.monotonic()

    def _claim_room(self) -> None:
        """Claim room for the samples that wait, the chunks that they begin, and the end of the file."""
        if self._rooms is None:
            data = [self._file[name] for name in self._waiting]
            self._rooms = METADATA + sum(8 * int(np.prod(item.chunks)) for item in data)
        end = self._file.id.get_filesize() + self._waiting_bytes + self._rooms
        if end > self._claimed:
            claim(self._file.id.get_vfd_handle(), self._claimed, end)
            self._claimed = end

    def finish(self, status: str, statistics: dict[str, Any]) -> None:
        """Close the file, add the outcome, and give it its name.

        Parameters
        ----------
        status : str
            "complete", or why the run stopped.
        statistics : dict
            Steps, evaluations and seconds by phase; kept as an attribute in JSON.
        """
        self.leave(status, statistics)
        with self._writing():
            self._part.replace(self.path)

    def leave(self, status: str, statistics: dict[str, Any]) -> None:
        """Close the file as `finish` does, but keep it unfinished, to be continued."""
        with self._writing():
            self._flush()
            self._file.close()
            with h5py.File(self._part, "r+", libver="latest") as file:
                file.attrs.update(status=status, statistics=json.dumps(statistics))
            flush_to_disk(self._part)


def _opened(path: Path) -> h5py.File:
    """Open an output file for reading, whether it was closed or its run was killed."""
    try:
        return h5py.File(path, "r", libver="latest")  # which finds at once that the file was cut off
    except OSError as error:
        if "already open for write" not in str(error):
            raise
    return h5py.File(path, "r", libver="latest", swmr=True)


def _copy(source: Path, fresh: Path, run: str, count: int) -> None:
    """Copy an output file up to so many samples, if it is that of the run and has them."""
    with source.open("rb"):  # HDF5 has no error of its own for a file that is not there
        pass
    with _opened(source) as old, h5py.File(fresh, "w", libver="latest") as new:
        if old.attrs.get("run") != run:
            raise InputError(f"{source}: is the output of another run than the checkpoint")
        if old.attrs["status"] == "complete":
            raise InputError(f"{source}: is complete: there is nothing to go on with")
        new.attrs.update({**old.attrs, "status": "running"})
        new.attrs.pop("statistics", None)
        for name, item in old.items():
            if isinstance(item, h5py.Group):
                old.copy(item, new, name)
                continue
            if len(item) < count:
                raise InputError(
                    f"{source}: has {len(item)} samples, the checkpoint comes after {count}; put the file back that "
                    "the run has written, or take an older checkpoint"
                )
            data = new.create_dataset(name, (count, *item.shape[1:]), "f8", maxshape=item.maxshape, chunks=item.chunks)
            data.attrs.update(item.attrs)
            rows = max(1, COPIED // (8 * max(1, int(np.prod(item.shape[1:])))) // item.chunks[0]) * item.chunks[0]
            for lo in range(0, count, rows):
                data[lo : min(lo + rows, count)] = item[lo : min(lo + rows, count)]
    flush_to_disk(fresh)


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
