"""Runs for ParaView: VTKHDF files of poly data that change in time, of the bodies as points or as surfaces.

As points each body has a vertex, and each joint a line; surfaces are those that the viewer shows. (One file for both
would be a collection, of which VTK 9.7 reads no names of bodies.) The format is VTK's own [VTK File Formats, section
VTKHDF, version 2.0]: the points and their data of all samples stand one behind the other, cells only where the
structure changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError
from mpimbs.files.motion import Motion
from mpimbs.model.contents import Contents
from mpimbs.parts.kinematics import kinematics
from mpimbs.parts.subchain import Subchain
from mpimbs.view.scene import Scene, bounds

_CELLS = {"Vertices": 1, "Lines": 2, "Strips": 1, "Polygons": 3}  # points of each, in the order of the cell offsets
_VERSION = (2, 0)
SIDES = 8  # corners of a circle: every sample has all points


def write_vtkhdf(motion: Motion, path: Path) -> None:
    """Write the bodies of a run over time, as points with data, world components.

    The data are `body` (number), `quaternion` (w x y z), `velocity` (m/s, of the origin), `angular_velocity` (rad/s)
    and, where loads were kept, `force` (N), `moment` (N m) and `tension` (N) by the parent. Names of the bodies are the
    field data `body_name`.
    """
    parts, loads = motion.segments, _has_loads(motion)
    n = parts[0].system.n_bodies
    with h5py.File(path, "w") as file:
        bodies = _PolyData(file, motion.t, n, "f8")
        bodies.keep("body", np.arange(n))
        bodies.keep_names(parts[0].system)
        for sample, found in enumerate(_samples(parts, loads)):
            bodies.put(sample, found.pop("position"), found)
        lines = [_to_parents(part) for part in parts]
        bodies.end([len(part.t) for part in parts], {"Vertices": [np.arange(n)[:, None]], "Lines": lines})


def write_shapes(motion: Motion, path: Path) -> None:
    """Write the surfaces of a run's bodies over time, in single precision.

    The data of their points are `body` (number), `color`, `velocity` (m/s) and, where loads were kept, `tension` (N).
    Names of the bodies are the field data `body_name`.
    """
    system, loads = motion.system, _has_loads(motion)
    scene = Scene(system, size=float(np.linalg.norm(np.subtract(*bounds(motion.poses[..., :3])))), sides=SIDES)
    counts = [len(batch.surface.vertices) for batch in scene.batches]
    pairs = list(zip(scene.batches, counts, strict=True))
    body = np.concatenate([np.repeat(batch.bodies, count) for batch, count in pairs])
    with h5py.File(path, "w") as file:
        shapes = _PolyData(file, motion.t, len(body), "f4")
        shapes.keep("body", body)
        shapes.keep("color", np.concatenate([np.repeat(b.color, count, axis=0) for b, count in pairs]).astype(np.uint8))
        shapes.keep_names(system)
        for sample, found in enumerate(_samples(motion.segments, loads)):
            poses = np.hstack([found["position"], found["quaternion"]])
            points = np.concatenate([batch.vertices(poses).reshape(-1, 3) for batch in scene.batches])
            turning = np.cross(found["angular_velocity"][body], points - found["position"][body])
            data = {"velocity": found["velocity"][body] + turning}
            shapes.put(sample, points, data | ({"tension": found["tension"][body]} if loads else {}))
        shapes.end([len(motion.t)], {"Polygons": [scene.faces]})


def _to_parents(part: Motion) -> Integers:
    """The bodies that have one, behind their parents [n, 2]."""
    parents = part.system.parents()
    bodies = np.flatnonzero(parents >= 0)
    return np.column_stack([parents[bodies], bodies])


def _has_loads(motion: Motion) -> bool:
    """Whether loads were kept of all bodies.

    Raises
    ------
    InputError
        Not even q and u were.
    """
    parts = motion.segments
    n = parts[0].system.n_bodies
    if any(len(part.kept(name)) < n for part in parts for name in ("q", "u", "poses")):
        raise InputError(f"the run {motion.where} kept samples of some bodies alone: q and u of all are needed")
    return all(len(part.kept("loads")) == n for part in parts)


def _samples(parts: list[Motion], loads: bool) -> Iterator[dict[str, Floats]]:
    """Give the quantities of the bodies, sample by sample."""
    for part in parts:
        subchain, poses, pulls = Subchain(part.system), part.poses, part.tension
        for sample, (q, u) in enumerate(zip(part.q, part.u, strict=True)):
            _, rotation, _, omega, velocity = kinematics(subchain, q, u)
            found = {"position": poses[sample, :, :3], "quaternion": poses[sample, :, 3:]}
            found |= {"velocity": velocity, "angular_velocity": omega}
            if loads:
                moment, force = (np.einsum("nij,nj->ni", rotation, part.loads[sample, :, k : k + 3]) for k in (0, 3))
                found |= {"force": force, "moment": moment, "tension": pulls[sample]}
            yield found


class _PolyData:
    """Poly data in a file, with as many points in every sample.

    Parameters
    ----------
    times : array [samples]
        s
    count : int
        Number of points.
    kind : str
        Of the numbers that change.
    """

    def __init__(self, file: h5py.File, times: Floats, count: int, kind: str) -> None:
        self._times, self._count, self._kind = times, count, kind
        self._group = group = file.create_group("VTKHDF")
        group.attrs["Version"] = np.array(_VERSION, np.int64)
        group.attrs.create("Type", b"PolyData", dtype=h5py.string_dtype("ascii", 8))
        group["NumberOfPoints"] = np.full(len(times), count)
        self._points = group.create_dataset("Points", (len(times) * count, 3), kind)
        self._data = group.create_group("PointData")
        self._kept: set[str] = set()
        self._names = 0

    def keep(self, name: str, values: npt.NDArray[np.generic]) -> None:
        """Write data that the points have in every sample alike."""
        self._data[name] = values
        self._kept.add(name)

    def keep_names(self, system: Contents) -> None:
        """Write the names of all bodies, as field data."""
        self._names = n = system.n_bodies
        names = [system.name_of(k).encode("ascii", "backslashreplace") for k in range(n)]  # VTK reads no other
        fields = self._group.create_group("FieldData")
        fields.create_dataset("body_name", data=names, dtype=h5py.string_dtype("ascii"))

    def put(self, sample: int, points: Floats, data: dict[str, Floats]) -> None:
        """Write the points [n, 3] of a sample, and what they have [n, ...]."""
        here = slice(sample * self._count, (sample + 1) * self._count)
        self._points[here] = points
        for name, values in data.items():
            if name not in self._data:
                self._data.create_dataset(name, (len(self._points), *values.shape[1:]), self._kind)
            self._data[name][here] = values

    def end(self, counts: list[int], cells: dict[str, list[Integers]]) -> None:
        """Write the cells, of all samples or of each part, of which there are so many samples; and where all begins."""
        count, cell_offsets = len(self._times), self._write_cells(counts, cells)
        steps = self._group.create_group("Steps")
        steps.attrs["NSteps"] = np.int64(count)
        steps["Values"] = self._times
        steps["PartOffsets"] = np.arange(count)
        steps["NumberOfParts"] = np.ones(count, np.int64)
        steps["PointOffsets"] = first_point = self._count * np.arange(count)
        steps["CellOffsets"] = cell_offsets
        steps["ConnectivityIdOffsets"] = cell_offsets * np.array(list(_CELLS.values()))
        offsets = steps.create_group("PointDataOffsets")
        for name in self._data:
            offsets[name] = np.zeros(count, np.int64) if name in self._kept else first_point
        steps.create_group("FieldDataOffsets")["body_name"] = np.zeros(count, np.int64)
        steps.create_group("FieldDataSizes")["body_name"] = np.tile(np.array([1, self._names]), (count, 1))

    def _write_cells(self, counts: list[int], cells: dict[str, list[Integers]]) -> Integers:
        """Give where the cells of each sample begin [samples, kinds]."""
        begins = np.zeros((sum(counts), len(_CELLS)), np.int64)
        for column, (kind, width) in enumerate(_CELLS.items()):
            blocks = cells.get(kind, [np.zeros((0, width), np.int64)])
            lengths = np.array([len(block) for block in blocks])
            block_of = np.repeat(np.minimum(np.arange(len(counts)), len(blocks) - 1), counts)
            begins[:, column] = np.cumsum([0, *lengths])[block_of]
            group = self._group.create_group(kind)
            group["NumberOfCells"] = lengths[block_of]
            group["NumberOfConnectivityIds"] = width * lengths[block_of]
            ends = [width * np.arange(length + 1) for length in lengths.tolist()]
            group["Offsets"] = np.concatenate(ends).astype(np.int64)
            group["Connectivity"] = np.concatenate([block.ravel() for block in blocks]).astype(np.int64)
        return begins
