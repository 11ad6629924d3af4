"""Runs for other programs: tables, arrays, scenes, and files for ParaView, by the suffix of the file's name.

Files for ParaView are VTKHDF, poly data that change in time [VTK File Formats, section VTKHDF, version 2.0]: the points
and their data of all samples stand one behind the other, cells only where the structure changes. As points each body
has a vertex, and each joint a line; surfaces are those that the viewer shows. (One file for both would be a collection,
of which VTK 9.7 reads no names of bodies.)
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError
from mpimbs.dynamics.quantities import DECLARED, SYSTEM
from mpimbs.files.motion import Motion
from mpimbs.model.contents import Contents
from mpimbs.model.text.table import suggest
from mpimbs.parts.kinematics import kinematics
from mpimbs.parts.subchain import Subchain
from mpimbs.plots.quantities import Histories, quantities
from mpimbs.view.scene import Instances, Scene, bounds

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


RATE = 24.0  # time codes a second, as programs for films have them


def write_usd(motion: Motion, path: Path) -> None:
    """Write a run as a scene: for each surface an instancer, with the places of all bodies that have it (m, s)."""
    try:
        from pxr import Usd, UsdGeom
    except ImportError:
        raise InputError("a .usd file needs usd-core: pip install 'mpimbs[usd]', or write .vtkhdf") from None
    poses = motion.of_all("poses")
    if poses is None:
        raise InputError(f"the run {motion.where} holds neither poses nor all of q: let samples have q or poses")
    system, drawn, times = motion.system, motion.kept("poses"), motion.t
    scene = Scene(system, bodies=drawn, size=float(np.linalg.norm(np.subtract(*bounds(poses[:, drawn, :3])))))
    stage = Usd.Stage.CreateInMemory(".usdc")
    UsdGeom.SetStageMetersPerUnit(stage, 1.0)
    upright = UsdGeom.Tokens.z if abs(system.gravity[2]) > abs(system.gravity[1]) else UsdGeom.Tokens.y
    UsdGeom.SetStageUpAxis(stage, upright)
    stage.SetTimeCodesPerSecond(RATE)
    stage.SetStartTimeCode(RATE * times[0])
    stage.SetEndTimeCode(RATE * times[-1])
    stage.SetDefaultPrim(UsdGeom.Xform.Define(stage, "/run").GetPrim())
    for number, batch in enumerate(scene.batches):
        instancer = _instancer(stage, f"/run/shape{number}", batch, [system.name_of(k) for k in batch.bodies.tolist()])
        _move(instancer, batch, RATE * times, poses)
    whole = path.with_name(f"{path.name}.usdc")  # USD looks at the suffix
    stage.GetRootLayer().Export(str(whole))
    whole.replace(path)


def _instancer(stage: Any, place: str, batch: Instances, names: list[str]) -> Any:
    from pxr import Sdf, UsdGeom, Vt

    instancer, mesh = UsdGeom.PointInstancer.Define(stage, place), UsdGeom.Mesh.Define(stage, f"{place}/surface")
    vertices, faces = batch.surface
    mesh.CreatePointsAttr(Vt.Vec3fArray.FromNumpy(vertices.astype(np.float32)))
    mesh.CreateFaceVertexCountsAttr(Vt.IntArray(len(faces), 3))
    mesh.CreateFaceVertexIndicesAttr(Vt.IntArray.FromNumpy(faces.ravel().astype(np.int32)))
    mesh.CreateSubdivisionSchemeAttr(UsdGeom.Tokens.none)
    instancer.CreatePrototypesRel().AddTarget(mesh.GetPath())
    instancer.CreateProtoIndicesAttr(Vt.IntArray(len(names), 0))
    instancer.CreateScalesAttr(Vt.Vec3fArray.FromNumpy(batch.scale.astype(np.float32)))
    values, kinds = UsdGeom.PrimvarsAPI(instancer), Sdf.ValueTypeNames
    colors = Vt.Vec3fArray.FromNumpy((batch.color / 255.0).astype(np.float32))
    values.CreatePrimvar("displayColor", kinds.Color3fArray, UsdGeom.Tokens.vertex).Set(colors)
    values.CreatePrimvar("body", kinds.StringArray, UsdGeom.Tokens.vertex).Set(names)
    return instancer


def _move(instancer: Any, batch: Instances, codes: Any, poses: Any) -> None:
    from pxr import Vt

    positions, orientations = instancer.CreatePositionsAttr(), instancer.CreateOrientationsfAttr()
    for code, pose in zip(codes.tolist(), poses, strict=True):
        place, turn = (values.astype(np.float32) for values in batch.placed(pose))
        positions.Set(Vt.Vec3fArray.FromNumpy(place), code)
        orientations.Set(Vt.QuatfArray.FromNumpy(turn[:, [1, 2, 3, 0]]), code)


COPY = "copy"  # the first column, of an ensemble
COLUMNS = ("time", "quantity", "kind", "name", "unit", "value")


class Format(NamedTuple):
    """A format: how it is written, and whether it takes some quantities only."""

    write: Callable[[Any, Path, Sequence[str]], None]
    takes_quantities: bool
    about: str


def export(motion: Motion, path: Path, part: Path, texts: Sequence[str] = ()) -> None:
    """Write a run in another format, that of a file's suffix.

    Parameters
    ----------
    motion : Motion
        Of an ensemble tables have a column more, arrays a dimension.
    path, part : Path
        What the file is called, and where it is written.
    texts : sequence of str
        Of tables: the quantities, such as "q:hip,knee"; all that was kept by default.

    Raises
    ------
    InputError
        There is no such format, it takes no quantities, or a library is missing.
    """
    format_of(path, texts).write(motion, part, texts)


def format_of(path: Path, texts: Sequence[str] = ()) -> Format:
    """The format of a file's suffix; see `export`."""
    found = FORMATS.get("".join(path.suffixes[-2:]).lower()) or FORMATS.get(path.suffix.lower())
    if found is None:
        raise InputError(f"{path}: no format has the suffix {path.suffix!r}{suggest(path.suffix, FORMATS)}")
    if texts and not found.takes_quantities:
        raise InputError(f"{path}: a {path.suffix} file takes the whole run; leave {', '.join(texts)} out")
    return found


def _chosen(motion: Motion, texts: Sequence[str]) -> Iterator[tuple[str, Histories]]:
    """Quantities with what each is of: those that texts name, or all that was kept."""
    if not texts:
        kept = [each for each in DECLARED if each.kinds and each.derived is None]
        texts = [
            each.asked_for for each in kept if (len(motion.kept(each.name)) if each.chosen else motion.holds(each.name))
        ]
    for text in texts:
        yield from ((text.partition(":")[0], history) for history in quantities(motion, text))


def _columns(motion: Motion, texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The columns of long tables, a block for each kind of numbers: value by value, time by time."""
    if motion.names:
        for name in motion.names:
            yield from ({COPY: name} | block for block in _columns(motion.copy(name), texts))
        return
    t = motion.t
    for what, history in _chosen(motion, texts):
        count = len(history.labels)
        yield {
            "time": np.repeat(t, count),
            "quantity": what,
            "kind": history.name,
            "name": np.tile(np.array(history.labels, dtype=object), len(t)),
            "unit": history.unit,
            "value": history.values.ravel(),
        }


def _write_csv(motion: Motion, path: Path, texts: Sequence[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(_heads(motion))
        for block in _columns(motion, texts):
            what, kind, unit = (block[name] for name in ("quantity", "kind", "unit"))
            copy = (block[COPY],) if COPY in block else ()
            rows = zip(block["time"].tolist(), block["name"], block["value"].tolist(), strict=True)
            writer.writerows((*copy, time, what, kind, name, unit, value) for time, name, value in rows)


def _heads(motion: Motion) -> tuple[str, ...]:
    return (COPY, *COLUMNS) if motion.names else COLUMNS


def _write_parquet(motion: Motion, path: Path, texts: Sequence[str]) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError("a .parquet file needs pyarrow: pip install 'mpimbs[parquet]', or write .csv") from None
    word = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    types = {name: pyarrow.float64() if name in ("time", "value") else word for name in _heads(motion)}
    schema = pyarrow.schema(list(types.items()))
    with parquet.ParquetWriter(path, schema) as writer:
        for block in _columns(motion, texts):
            size = len(block["time"])
            arrays = [
                pyarrow.array([value] * size if isinstance(value, str) else value, types[name])
                for name, value in block.items()
            ]
            writer.write_table(pyarrow.table(arrays, schema=schema))


def _write_npz(motion: Motion, path: Path, texts: Sequence[str]) -> None:
    system, parts = motion.system, motion.segments
    names = [system.name_of(k) for k in range(system.n_bodies)]
    arrays: dict[str, Any] = {"body": names}
    for each in DECLARED:
        if each.of == SYSTEM and (values := motion.array(each.name)) is not None:
            arrays[each.name] = values
    if motion.names:
        arrays |= {f"parameter {name}": values for name, values in motion.parameters.items()}
        arrays["name"] = list(motion.names)
    for number, part in enumerate(parts):
        behind = f"_{number}" if len(parts) > 1 else ""  # the structure changes, and with it what they have
        q_offset, u_offset = part.system.offsets()
        arrays |= {f"q_offset{behind}": q_offset, f"u_offset{behind}": u_offset}
        arrays[f"loop{behind}"] = [loop.name for loop in part.system.loops]
        arrays |= {f"kept_{each.name}{behind}": part.kept(each.name) for each in DECLARED if each.chosen}  # of bodies
        for each in DECLARED:
            if each.of != SYSTEM and (values := part.array(each.name)) is not None and len(values):
                arrays[f"{each.name}{behind}"] = values
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _of_one(write: Callable[[Motion, Path], None]) -> Callable[[Motion, Path, Sequence[str]], None]:
    """Give the writer of one motion, for a file that has no place for several."""
    return lambda motion, path, texts: write(motion.one(), path)


FORMATS = {
    ".vtkhdf": Format(_of_one(write_vtkhdf), False, "poly data for ParaView"),
    ".shapes.vtkhdf": Format(_of_one(write_shapes), False, "the surfaces of the bodies, for ParaView"),
    ".usd": Format(_of_one(write_usd), False, "a scene of what the viewer shows"),
    ".csv": Format(_write_csv, True, "a long table"),
    ".parquet": Format(_write_parquet, True, "the same table, compressed"),
    ".npz": Format(_write_npz, False, "arrays of numpy"),
}
