"""Runs for ParaView: VTKHDF files, in which a point and a vertex stand for each body, and a line for each joint.

The format is VTK's own [VTK File Formats, section VTKHDF, version 2.0], poly data that change in time: the points and
their data of all samples stand one behind the other, cells only where the structure changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from mpimbs.closure.geometry import body_motions
from mpimbs.errors import InputError
from mpimbs.simulation.kept_motion import KeptMotion
from mpimbs.study.load_pictures import tension
from mpimbs.study.quantities import Motion, segments_of
from mpimbs.sweep.subchain import Subchain

Floats = npt.NDArray[np.float64]
_CELLS = ("Vertices", "Lines", "Strips", "Polygons")  # in the order of the cell offsets
_VERSION = (2, 0)


def write_vtkhdf(motion: Motion, path: Path) -> None:
    """Write the bodies of a run over time, as points with data, world components.

    The data are `body` (number), `quaternion` (w x y z), `velocity` (m/s, of the origin), `angular_velocity` (rad/s)
    and, where loads were kept, `force` (N), `moment` (N m) and `tension` (N) by the parent. Names of the bodies are the
    field data `body_name`.
    """
    parts = segments_of(motion)
    n, samples = parts[0].system.n_bodies, sum(len(part.t) for part in parts)
    if any(len(part.kept(name)) < n for part in parts for name in ("q", "u", "poses")):
        raise InputError(f"the run {motion.where} kept samples of some bodies alone: q and u of all are needed")
    loads = all(len(part.kept("loads")) == n for part in parts)
    widths = {"quaternion": 4, "velocity": 3, "angular_velocity": 3}
    widths |= {"force": 3, "moment": 3, "tension": 1} if loads else {}
    with h5py.File(path, "w") as file:
        root = file.create_group("VTKHDF")
        root.attrs["Version"] = np.array(_VERSION, np.int64)
        root.attrs.create("Type", b"PolyData", dtype=h5py.string_dtype("ascii", 8))
        points = root.create_dataset("Points", (samples * n, 3), "f8")
        data = root.create_group("PointData")
        data["body"] = np.arange(n)
        for name, width in widths.items():
            data.create_dataset(name, (samples * n, width) if width > 1 else (samples * n,), "f8")
        names = [parts[0].system.name_of(k).encode("ascii", "backslashreplace") for k in range(n)]  # VTK reads no other
        root.create_group("FieldData").create_dataset("body_name", data=names, dtype=h5py.string_dtype("ascii"))
        root["NumberOfPoints"] = np.full(samples, n)
        begin = 0
        for part in parts:
            for found in _samples(part, loads):
                here = slice(begin, begin + n)
                points[here] = found.pop("position")
                for name, values in found.items():
                    data[name][here] = values
                begin += n
        cells = _write_cells(root, parts, n)
        _write_steps(root, np.asarray(motion.t), n, cells, list(widths))


def _samples(part: KeptMotion, loads: bool) -> Iterator[dict[str, Floats]]:
    """What the points have, sample by sample."""
    subchain, center = Subchain(part.system), part.system.columns().center_of_mass
    poses = np.asarray(part.poses)
    for sample, (q, u) in enumerate(zip(np.asarray(part.q), np.asarray(part.u), strict=True)):
        moving, pose = body_motions(subchain, q, u), poses[sample]
        found = {"position": pose[:, :3], "quaternion": pose[:, 3:]}
        found |= {"velocity": moving.velocity[:-1], "angular_velocity": moving.omega[:-1]}
        if loads and part.loads is not None:
            load = part.loads[sample]
            moment, force = (np.einsum("nij,nj->ni", moving.rotation[:-1], load[:, k : k + 3]) for k in (0, 3))
            found |= {"force": force, "moment": moment, "tension": tension(load[None, :, 3:], center)[0]}
        yield found


def _write_cells(root: h5py.Group, parts: list[KeptMotion], n: int) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Write a vertex for each body and a line to its parent; give each part's samples and where its cells begin."""
    lines = []
    for part in parts:
        parents = part.system.parents()
        bodies = np.flatnonzero(parents >= 0)
        lines.append(np.column_stack([parents[bodies], bodies]))
    of_kind = {"Vertices": [np.arange(n)[:, None]], "Lines": lines}
    for kind in _CELLS:
        group, blocks = root.create_group(kind), of_kind.get(kind, [np.zeros((0, 1), np.int64)])
        wanted = [blocks[min(k, len(blocks) - 1)] for k in range(len(parts))]
        repeated = [block for part, block in zip(parts, wanted, strict=True) for _ in range(len(part.t))]
        group["NumberOfCells"] = np.array([len(block) for block in repeated], np.int64)
        group["NumberOfConnectivityIds"] = np.array([block.size for block in repeated], np.int64)
        ends = [np.arange(len(block) + 1) * block.shape[1] for block in blocks]
        group["Offsets"] = np.concatenate(ends).astype(np.int64)
        group["Connectivity"] = np.concatenate([block.ravel() for block in blocks]).astype(np.int64)
    # Before a part's lines: those of the parts before.
    before = np.cumsum([0, *(len(block) for block in lines)])[:-1]
    return [(len(part.t), np.array([0, first, 0, 0])) for part, first in zip(parts, before, strict=True)]


def _write_steps(
    root: h5py.Group, times: Floats, n: int, cells: list[tuple[int, npt.NDArray[np.int64]]], names: list[str]
) -> None:
    """Write where each sample's points, cells and data begin."""
    count = len(times)
    first_point, number = n * np.arange(count), np.arange(count)
    first_cell = np.concatenate([np.tile(first, (samples, 1)) for samples, first in cells])
    steps = root.create_group("Steps")
    steps.attrs["NSteps"] = np.int64(count)
    steps["Values"] = times
    steps["PartOffsets"] = number
    steps["NumberOfParts"] = np.ones(count, np.int64)
    steps["PointOffsets"] = first_point
    steps["CellOffsets"] = first_cell
    steps["ConnectivityIdOffsets"] = 2 * first_cell
    offsets = steps.create_group("PointDataOffsets")
    offsets["body"] = np.zeros(count, np.int64)
    for name in names:
        offsets[name] = first_point
    fields = steps.create_group("FieldDataOffsets")
    fields["body_name"] = np.zeros(count, np.int64)
    sizes = steps.create_group("FieldDataSizes")
    sizes["body_name"] = np.tile(np.array([1, n]), (count, 1))
