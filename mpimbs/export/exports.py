"""Runs for other programs: tables, arrays, scenes, and files for ParaView, by the suffix of the file's name."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mpimbs.base.errors import InputError
from mpimbs.dynamics.quantities import DECLARED, SYSTEM
from mpimbs.export.vtkhdf import write_shapes, write_vtkhdf
from mpimbs.files.motion import Motion
from mpimbs.model.text.table import suggest
from mpimbs.plots.quantities import Histories, quantities
from mpimbs.view.scene import Instances, Scene, bounds

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
