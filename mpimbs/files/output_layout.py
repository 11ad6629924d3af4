"""What is in an output file (HDF5): the model, datasets with units, one row a sample, loads at separated joints."""

from __future__ import annotations

import functools
import json
import platform
from dataclasses import dataclass
from typing import Any, NamedTuple

import h5py
import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.sizes import tuned
from mpimbs.coupling import Iterative
from mpimbs.dynamics.members import Members
from mpimbs.dynamics.quantities import QUANTITIES
from mpimbs.dynamics.selection import SampleTable
from mpimbs.model import JOINT_TYPES, system_text
from mpimbs.model.connections import Connections
from mpimbs.model.contents import Contents


class SolutionSample(NamedTuple):
    """The constraint-load equations at one time: the numbers on every rank, of the loads those at its own joints."""

    iterations: float  # mean of an evaluation since the sample before
    residual: float  # over the right-hand side
    condition: float  # estimated condition number
    constraint_loads: Floats  # [unknowns]: N m, N


class SeparatedLoads(NamedTuple):
    """The separated joints on which constraint loads act."""

    bodies: Integers  # [unknowns]: the load acts on this body of the model through its inboard joint
    subspaces: Floats  # [unknowns, 6]: what a load of 1 is; see `SeparatedJoints`


@dataclass
class ConstraintState:
    """The state that samples of constraint loads leave to the next: solutions and iterations, largest numbers."""

    before: tuple[int, int] = (0, 0)
    largest_residual: float = 0.0
    largest_condition: float = 0.0


class ConstraintRecord:
    """Takes samples of a coupling by constraint loads; all ranks make it together and call.

    Parameters
    ----------
    system : Contents
        As the coupling's joints count its bodies.
    """

    def __init__(self, comm: MPI.Comm, coupling: Iterative, system: Contents) -> None:
        self._comm, self._coupling, self._system = comm, coupling, system
        self.state = ConstraintState()

    def separated_loads(self) -> SeparatedLoads:
        """Give the joints on which the loads of all ranks act; the same on every rank."""
        joints = self._coupling.joints
        parts = self._comm.allgather((self._system.numbers_in_model(joints.bodies), joints.subspaces))
        return SeparatedLoads(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def largest(self) -> dict[str, float]:
        """Largest residual and condition number of the samples so far."""
        return {name: getattr(self.state, name) for name in ("largest_residual", "largest_condition")}

    @property
    def unknowns(self) -> int:
        """Number of constraint loads at this rank's joints."""
        return len(self._coupling.joints.bodies)

    def take(self) -> SolutionSample:
        """Give the equations of the last evaluation."""
        coupling, state = self._coupling, self.state
        found = coupling.statistics()
        now = found["solutions"], found["total_iterations"]
        solutions, iterations = (after - before for after, before in zip(now, state.before, strict=True))
        residual, condition = coupling.residual(), coupling.condition()
        largest = max(state.largest_residual, residual), max(state.largest_condition, condition)
        self.state = ConstraintState(now, *largest)
        return SolutionSample(
            iterations / max(solutions, 1), residual, condition, coupling.joints.solution[: self.unknowns]
        )


FORMAT, ENSEMBLE_FORMAT = "mpimbs 1", "mpimbs ensemble 1"
SAMPLED = "model/sampled"  # group of the bodies of what samples have of some alone
# Of each number of a quantity, over all steps; the magnitudes are those of the joint loads, for each body.
EXTREMES = ("smallest", "time of the smallest", "largest", "time of the largest")
KINETIC, MAGNITUDES = "kinetic_energy", ("tension", "moment")
# How a file is opened where ranks write: what is large begins on pages of its own. HDF5's own lock is left out: a
# reader would hold it against the run's end, and some file systems have none; `base.lock` keeps other runs away.
PAGED: dict[str, Any] = {
    "libver": "latest", "locking": False, "alignment_threshold": 2**16, "alignment_interval": 2**12,
}  # fmt: skip
SEGMENTS = "segments"  # group of what comes after the first change of structure, by numbers from 1 on
CHUNK = 2**17  # numbers, if a row has no more
ROWS = 1024  # of a chunk, at the most


def lay_out(
    file: h5py.File,
    system: Contents,
    settings: dict[str, Any],
    table: SampleTable,
    extremes: bool = False,
    separated: SeparatedLoads | None = None,
    members: Members | None = None,
) -> None:
    """Write what an output file begins with: attributes, the model, and the datasets without rows.

    Parameters
    ----------
    file : File
        Empty.
    system : Contents
        Of copies the first.
    settings : dict
        Everything that the run was asked for; kept as an attribute in JSON.
    table : SampleTable
        What samples have.
    extremes : bool
        Whether there are extremes of all steps.
    separated : SeparatedLoads or None
        Samples have the solution of the equations of these.
    members : Members, optional
        Of an ensemble, the copies.
    """
    kind = FORMAT if members is None else ENSEMBLE_FORMAT
    file.attrs.update(name=system.name, format=kind, status="running", sizes=tuned().told())
    file.attrs.update(settings=json.dumps(settings), versions=json.dumps(versions()))
    write_model(file, system)
    for name, bodies in table.selection.partial.items():
        data = file.create_dataset(f"{SAMPLED}/{name}", data=bodies)
        data.attrs["description"] = f"numbers of the bodies of which samples have {name}"
    if members is not None:
        _write_copies(file.create_group("copies"), members)
    _lay_out_samples(file, system, table, extremes, separated, ROWS)


def lay_out_segment(
    group: h5py.Group,
    system: Contents,
    now: Connections,
    time: float,
    table: SampleTable,
    extremes: bool,
    separated: SeparatedLoads | None,
    samples: float,
) -> None:
    """Write what a segment begins with, as `lay_out` does of the first.

    Parameters
    ----------
    system, now : Contents, Connections
        As it holds together now.
    time : float
        From when on (s).
    samples : float
        How many there may be, at the most.
    """
    group.attrs["begin"] = time
    model = group.create_group("model")
    cut = [system.name_of(k) for k in now.cut]
    for name, held in (("cut", cut), ("loop", list(now.loops))):
        model.create_dataset(name, data=held, shape=(len(held),), dtype=h5py.string_dtype())
    kept = [frame for _, frame in now.kept]
    model.create_dataset("kept", data=[name for name, _ in now.kept], shape=(len(kept),), dtype=h5py.string_dtype())
    frames = model.create_dataset("kept_frame", data=np.array(kept, float).reshape(-1, 7))
    frames.attrs["units"] = "m, 1"
    frames.attrs["description"] = (
        "joint frame on the second body of loops held as they lay: position, quaternion w x y z"
    )
    _write_joints(model, system)
    _lay_out_samples(group, system, table, extremes, separated, int(max(1, min(samples, ROWS))))


def _write_copies(group: h5py.Group, members: Members) -> None:
    """Write which copies there are."""
    text, systems = h5py.string_dtype(), members.systems
    group.create_dataset("name", data=list(members.names), dtype=text)
    group.create_dataset("model", data=[system_text(s, functions=True) for s in systems], dtype=text)
    if any(s.loads.modules for s in systems):
        group.create_dataset("before_forces", data=[s.loads.before_modules or "" for s in systems], dtype=text)
    if (table := members.table) is not None:
        data = group.create_dataset("parameters", data=table.values)
        data.attrs["columns"] = list(table.columns)


def _lay_out_samples(
    file: h5py.Group, system: Contents, table: SampleTable, extremes: bool, separated: SeparatedLoads | None, most: int
) -> None:
    """Write datasets without rows, of which `most` are a chunk."""
    if separated is not None:
        _write_separated(file["model"], separated)
    for each in table.quantities:
        shape = table.shapes[each.name]
        rows = max(1, min(most, CHUNK // max(1, int(np.prod(shape)))))
        limits = tuple(number or None for number in shape)  # no parts without columns: none are of any number
        chunks = (rows, *(max(1, number) for number in shape))
        data = make_dataset(file, each.name, (0, *shape), maxshape=(None, *limits), chunks=chunks)
        data.attrs.update(units=each.unit, description=each.about)
    if extremes:
        sizes = {"q": system.nq, "u": system.nu, KINETIC: 1}
        sizes |= dict.fromkeys(MAGNITUDES, system.n_bodies) if "loads" in table.shapes else {}
        for name, size in sizes.items():
            data = file.create_dataset(f"extremes/{name}", (len(EXTREMES), size), "f8", fillvalue=np.nan)
            unit = "J" if name == KINETIC else QUANTITIES[name].unit
            data.attrs.update(units=f"{unit}; of times s", rows=EXTREMES)


def make_dataset(file: h5py.File, name: str, shape: tuple[int, ...], **options: Any) -> h5py.Dataset:
    """Make a dataset of doubles whose parts have a place in the file as soon as it has their rows."""
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    return file.create_dataset(name, shape, "f8", dcpl=creation, **options)


@functools.cache  # one file after the other is read for them
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


def _write_separated(model: h5py.Group, separated: SeparatedLoads) -> None:
    """Write what the constraint loads act on to the model's group."""
    bodies = model.create_dataset("separated_joint", data=separated.bodies)
    bodies.attrs["description"] = "the constraint load acts on this body through its inboard joint"
    subspaces = model.create_dataset("constraint_subspace", data=separated.subspaces)
    subspaces.attrs["description"] = (
        "what a constraint load of 1 is: moment about the origin of the body frame, then force, in body frame "
        "components (of a universal or planar joint, of a frame between its two steps)"
    )


def write_model(file: h5py.File, system: Contents) -> None:
    """Write what moves: its text, names, and joints."""
    group = file.create_group("model")
    group.attrs["toml"] = system_text(system, functions=True)
    names = [system.name_of(k) for k in range(system.n_bodies)]
    group.create_dataset("body", data=names, dtype=h5py.string_dtype())
    group.create_dataset("center_of_mass", data=system.columns().center_of_mass).attrs["units"] = "m, body frame"
    _write_joints(group, system)
    if system.loops:
        loops = [loop.name for loop in system.loops]
        group.create_dataset("loop", data=loops, dtype=h5py.string_dtype())


def _write_joints(group: h5py.Group, system: Contents) -> None:
    group.create_dataset("parent", data=system.parents())
    kinds = np.array([kind.name for kind in JOINT_TYPES], dtype=object)[system.joint_types()]
    group.create_dataset("joint_type", data=kinds, dtype=h5py.string_dtype())
    q_offset, u_offset = system.offsets()
    group.create_dataset("q_offset", data=q_offset)
    group.create_dataset("u_offset", data=u_offset)
