"""What is in an output file (HDF5): the model, and datasets with their units, one row a sample."""

from __future__ import annotations

import json
import platform
from typing import Any

import h5py
import numpy as np

from mpimbs.base.sizes import tuned
from mpimbs.dynamics.selection import Selection
from mpimbs.files.constraint_record import SeparatedLoads
from mpimbs.model import JOINT_TYPES, System, system_text
from mpimbs.model.connections import Connections

FORMAT, ENSEMBLE_FORMAT = "mpimbs 1", "mpimbs ensemble 1"
LOADS = (
    "load on each body by its parent through its inboard joint, reaction and what drives the joint together: moment "
    "about the origin of the body frame, then force, in body frame components; the parent receives the opposite"
)
RESIDUAL = (
    "largest so far in a sample that was checked: generalized force that accelerations leave over, relative to those "
    "that act on that joint; acceleration that they leave along a constraint of a loop, relative to its terms"
)
LOOP_VIOLATION = "how far each loop is from closed: norm over what its joint holds, of positions and of velocities"
NEWTONS = "N m, N m, N m, N, N, N"
LOOP_LOADS = (
    "load on the second body of each loop by its joint, reaction and what drives the joint together: moment about the "
    "origin of the joint's frame there, then force, in the components of that body's frame; the first receives the "
    "opposite; where constraints are redundant, of all that do the same the one of least norm"
)
PER_ITEM = {
    "poses": 7,
    "loads": 6,
    "loop_violation": 2,
    "loop_loads": 6,
}  # numbers of a body or loop, where there are such datasets
SELECTED = {  # units and meanings
    "q": ("rad, m, or quaternion w x y z", "joint coordinates, in the model's order"),
    "u": ("rad/s or m/s", "generalized speeds, in the model's order"),
    "poses": ("m, quaternion w x y z", "position and orientation of each body"),
    "loads": (NEWTONS, LOADS),
}
SAMPLED = "model/sampled"  # group of the bodies of what samples have of some alone
# Of each number of a quantity, over all steps; the magnitudes are those of the joint loads, for each body.
EXTREMES = ("smallest", "time of the smallest", "largest", "time of the largest")
KINETIC, MAGNITUDES = "kinetic_energy", ("tension", "moment")
UNIT_OF = {"q": "rad, m, or quaternion w x y z", "u": "rad/s or m/s", KINETIC: "J", "tension": "N", "moment": "N m"}
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
    system: System,
    settings: dict[str, Any],
    selection: Selection,
    extremes: bool,
    separated: SeparatedLoads | None,
    witness: bool,
) -> None:
    """Write what an output file begins with: attributes, the model, and the datasets without rows.

    Parameters
    ----------
    file : File
        Empty.
    system : System
    settings : dict
        Everything that the run was asked for; kept as an attribute in JSON.
    selection : Selection
        What samples have.
    extremes : bool
        Whether there are extremes of all steps.
    separated : SeparatedLoads or None
        Samples have the solution of the equations of these.
    witness : bool
        Whether samples are checked.
    """
    file.attrs.update(name=system.name, format=FORMAT, status="running")
    file.attrs.update(settings=json.dumps(settings), versions=json.dumps(versions()), sizes=tuned().told())
    write_model(file, system)
    write_selection(file, selection)
    _lay_out_samples(file, system, selection, extremes, separated, witness, ROWS)


def lay_out_segment(
    group: h5py.Group,
    system: System,
    now: Connections,
    time: float,
    selection: Selection,
    extremes: bool,
    separated: SeparatedLoads | None,
    witness: bool,
    samples: float,
) -> None:
    """Write what a segment begins with, as `lay_out` does of the first.

    Parameters
    ----------
    system, now : System, Connections
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
    _lay_out_samples(group, system, selection, extremes, separated, witness, int(max(1, min(samples, ROWS))))


def _lay_out_samples(
    file: h5py.Group,
    system: System,
    selection: Selection,
    extremes: bool,
    separated: SeparatedLoads | None,
    witness: bool,
    most: int,
) -> None:
    """Write datasets without rows."""
    empty = {
        "time": ((), "s", "time of the sample"),
        "energy": ((2,), "J", "kinetic, potential (weight from the inertial origin, springs)"),
        "work": ((), "J", "done so far by dampers, joint torques, wrenches and functions: energy changes by it"),
        "step_size": ((), "s", "of the step that follows, if the next sample does not shorten it"),
        "constraint_violation": ((), "1", "largest | |quaternion| - 1 | left by a step, before it was removed"),
    }
    if witness:
        empty["equation_residual"] = ((2,), "1", RESIDUAL)
    for name in selection.bodies:
        shape = (selection.number(name, system), *((PER_ITEM[name],) if name in PER_ITEM else ()))
        empty[name] = (shape, *SELECTED[name])
    loads = "loads" in selection.bodies
    if system.loops:
        each = (len(system.loops), PER_ITEM["loop_violation"])
        empty["loop_violation"] = (each, "m and rad together, m/s and rad/s together", LOOP_VIOLATION)
    if system.loops and loads:
        empty["loop_loads"] = ((len(system.loops), PER_ITEM["loop_loads"]), NEWTONS, LOOP_LOADS)
    if separated is not None:
        empty |= _solution_datasets(file["model"], separated)
    make_rows(file, empty, most)
    if extremes:
        sizes = {"q": system.nq, "u": system.nu, KINETIC: 1}
        sizes |= dict.fromkeys(MAGNITUDES, system.n_bodies) if loads else {}
        for name, size in sizes.items():
            data = file.create_dataset(f"extremes/{name}", (len(EXTREMES), size), "f8", fillvalue=np.nan)
            data.attrs.update(units=f"{UNIT_OF[name]}; of times s", rows=EXTREMES)


def make_rows(file: h5py.Group, empty: dict[str, tuple[tuple[int, ...], str, str]], most: int = ROWS) -> None:
    """Make datasets without rows: of each the shape of a row, the units and the meaning; `most` rows are a chunk."""
    for name, (shape, units, meaning) in empty.items():
        rows = max(1, min(most, CHUNK // max(1, int(np.prod(shape)))))
        limits = tuple(number or None for number in shape)  # no parts without columns: none are of any number
        chunks = (rows, *(max(1, number) for number in shape))
        data = make_dataset(file, name, (0, *shape), maxshape=(None, *limits), chunks=chunks)
        data.attrs.update(units=units, description=meaning)


def write_selection(file: h5py.File, selection: Selection) -> None:
    """Write of which bodies samples have what they have of some alone."""
    for name, bodies in selection.partial.items():
        data = file.create_dataset(f"{SAMPLED}/{name}", data=bodies)
        data.attrs["description"] = f"numbers of the bodies of which samples have {name}"


def make_dataset(file: h5py.File, name: str, shape: tuple[int, ...], **options: Any) -> h5py.Dataset:
    """Make a dataset of doubles whose parts have a place in the file as soon as it has their rows."""
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    return file.create_dataset(name, shape, "f8", dcpl=creation, **options)


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


def write_model(file: h5py.File, system: System) -> None:
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


def _write_joints(group: h5py.Group, system: System) -> None:
    group.create_dataset("parent", data=system.parents())
    kinds = np.array([kind.name for kind in JOINT_TYPES], dtype=object)[system.joint_types()]
    group.create_dataset("joint_type", data=kinds, dtype=h5py.string_dtype())
    q_offset, u_offset = system.offsets()
    group.create_dataset("q_offset", data=q_offset)
    group.create_dataset("u_offset", data=u_offset)
