"""Runs as scenes of USD, for Blender, Omniverse and usdview: the surfaces of the viewer, moved by time samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mpimbs.base.errors import InputError
from mpimbs.files.motion import Motion
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
