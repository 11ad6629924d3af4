"""Exports of runs: what is read back by VTK, USD, pyarrow, csv and numpy is what the run has kept; bad requests."""

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from scipy.spatial.transform import Rotation

from mpimbs.base.errors import InputError
from mpimbs.export.exports import COLUMNS, export
from mpimbs.files.motion import Motion
from mpimbs.model import Joint, System, system_from
from mpimbs.plots.pictures import motion_of
from mpimbs.plots.quantities import quantities
from mpimbs.run.run import simulate
from run.event_systems import varied
from tolerances import assert_close

pytestmark = pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="one process reads outputs")
KEPT: dict[str, Any] = {"every": 0.05, "poses": True, "loads": True}
OF_THE_WHOLE = ("energy", "work", "step_size", "constraint_violation", "equation_residual")


@pytest.fixture(params=["changing", "closed"])
def motion(request: pytest.FixtureRequest, tmp_path: Path) -> Motion:
    """That of a structure that changes twice, and of one with loops."""
    system = varied() if request.param == "changing" else system_from("coupled_loops")
    simulate(system, 0.5 if request.param == "changing" else 0.1, output=tmp_path / "out.h5", **KEPT)
    return motion_of(tmp_path / "out.h5")


def written(motion: Motion, folder: Path, suffix: str, *texts: str) -> Path:
    path = folder / f"out{suffix}"
    export(motion, path, path, texts)
    return path


def test_vtk_reads_back_poses_velocities_and_loads(motion: Motion, tmp_path: Path) -> None:
    reading = pytest.importorskip("vtkmodules.vtkIOHDF")
    vtk_to_numpy = pytest.importorskip("vtkmodules.util.numpy_support").vtk_to_numpy
    readers = {suffix: reading.vtkHDFReader() for suffix in (".vtkhdf", ".shapes.vtkhdf")}
    n = motion.system.n_bodies
    for suffix, reader in readers.items():
        reader.SetFileName(str(written(motion, tmp_path, suffix)))
        reader.UpdateInformation()
        assert reader.GetNumberOfSteps() == len(motion.t)
    parts = [(part, k) for part in motion.segments for k in range(len(part.t))]
    for step, (part, k) in enumerate(parts):
        for reader in readers.values():
            reader.SetStep(step)
            reader.Update()
            names = reader.GetOutputDataObject(0).GetFieldData().GetAbstractArray("body_name")
            assert [names.GetValue(b) for b in range(n)] == [part.system.name_of(b) for b in range(n)]
        drawn, shapes = (reader.GetOutputDataObject(0) for reader in readers.values())
        data, own = (
            {name: vtk_to_numpy(of.GetArray(name)) for name in of.keys()}  # noqa: SIM118
            for of in (drawn.GetPointData(), shapes.GetPointData())
        )
        np.testing.assert_array_equal(vtk_to_numpy(drawn.GetPoints().GetData()), part.poses[k, :, :3])
        np.testing.assert_array_equal(data["quaternion"], part.poses[k, :, 3:])
        np.testing.assert_array_equal(data["body"], np.arange(n))
        assert part.loads is not None
        assert_close(
            "force", np.linalg.norm(data["force"], axis=1), np.linalg.norm(part.loads[k, :, 3:], axis=1), "dense"
        )
        lines = vtk_to_numpy(drawn.GetLines().GetConnectivityArray()).reshape(-1, 2)
        parents = part.system.parents()
        assert {(a, b) for a, b in lines} == {(int(parents[b]), b) for b in range(n) if parents[b] >= 0}
        assert drawn.GetNumberOfVerts() == n
        body, points = own["body"], vtk_to_numpy(shapes.GetPoints().GetData()).astype(float)
        turn, arm = Rotation.from_quat(data["quaternion"][body], scalar_first=True), points - part.poses[k, body, :3]
        if step == 0:
            fixed, faces = turn.inv().apply(arm), vtk_to_numpy(shapes.GetPolys().GetConnectivityArray()).reshape(-1, 3)
            assert set(body) == set(range(n)) and (body[faces] == body[faces[:, :1]]).all()
        assert_close("points of the surfaces, as the bodies see them", turn.inv().apply(arm), fixed, "single")
        velocity = data["velocity"][body] + np.cross(data["angular_velocity"][body], arm)
        assert_close("their velocities", own["velocity"], velocity, "single")
        assert_close("tension", own["tension"], data["tension"][body], "single")


def test_usd_reads_back_where_surfaces_are(motion: Motion, tmp_path: Path) -> None:
    usd = pytest.importorskip("pxr.Usd")
    from pxr import UsdGeom

    stage = usd.Stage.Open(str(written(motion, tmp_path, ".usd")))
    assert stage.GetEndTimeCode() == stage.GetTimeCodesPerSecond() * motion.t[-1]
    assert UsdGeom.GetStageUpAxis(stage) == "Y" and UsdGeom.GetStageMetersPerUnit(stage) == 1.0
    sample = len(motion.t) // 2
    code, poses = stage.GetTimeCodesPerSecond() * motion.t[sample], np.asarray(motion.poses)[sample]
    seen = set()
    for prim in (prim for prim in stage.Traverse() if prim.IsA(UsdGeom.PointInstancer)):
        instancer = UsdGeom.PointInstancer(prim)
        surface = UsdGeom.Mesh(stage.GetPrimAtPath(instancer.GetPrototypesRel().GetTargets()[0]))
        points = np.pad(np.array(surface.GetPointsAttr().Get()), ((0, 0), (0, 1)), constant_values=1.0)
        names = UsdGeom.PrimvarsAPI(instancer).GetPrimvar("body").Get()
        places = np.array(instancer.ComputeInstanceTransformsAtTime(code, code))
        for name, place, scale in zip(names, places, instancer.GetScalesAttr().Get(), strict=True):
            body = motion.system.index_of(name)
            # a link begins with half a ball about the joint
            nearest = np.linalg.norm((points @ place)[:, :3] - poses[body, :3], axis=1).min()
            assert abs(nearest - scale[0]) < 0.2 * scale[0], name
            seen.add(body)
    assert seen == set(range(len(poses)))


def test_velocities_are_those_of_the_positions(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    simulate(system_from("spatial_chain:3"), 2e-3, output=tmp_path / "out.h5", every=1e-3, rtol=1e-12, atol=1e-12)
    motion = motion_of(tmp_path / "out.h5")
    with h5py.File(written(motion, tmp_path, ".vtkhdf")) as file:
        points, velocities = (file[f"VTKHDF/{name}"][:].reshape(3, 3, 3) for name in ("Points", "PointData/velocity"))
    assert_close("velocity", velocities[1], (points[2] - points[0]) / 2e-3, "difference of exports")


def test_tables_have_names_and_units(motion: Motion, tmp_path: Path) -> None:
    with written(motion, tmp_path, ".csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    name = motion.system.name_of(motion.system.n_bodies - 1)
    body, t = motion.body(name), np.asarray(motion.t)
    position = [float(row["value"]) for row in rows if row["name"] == f"{name} y" and row["kind"] == "position"]
    np.testing.assert_array_equal(position, body.position[:, 1])
    force = [row for row in rows if row["name"] == f"{name} z" and row["kind"] == "force at the joint"]
    assert body.load is not None and force[0]["unit"] == "N" and [float(row["time"]) for row in force] == t.tolist()
    np.testing.assert_array_equal([float(row["value"]) for row in force], body.load[:, 5])
    assert {row["quantity"] for row in rows} == {"q", "u", "load", "pose", "violation", "loop_load", *OF_THE_WHOLE}


def test_parquet_is_the_same_table(motion: Motion, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = ("energy", f"q:{motion.system.name_of(0)}")
    table = parquet.read_table(written(motion, tmp_path, ".parquet", *texts))
    with written(motion, tmp_path, ".csv", *texts).open() as file:
        rows = list(csv.DictReader(file))
    assert table.num_rows == len(rows)
    for name in COLUMNS:
        theirs = [row[name] for row in rows]
        ours = table[name].to_pylist()
        np.testing.assert_array_equal(ours, [float(x) for x in theirs] if name in ("time", "value") else theirs)


def test_arrays_are_those_of_the_run(motion: Motion, tmp_path: Path) -> None:
    with np.load(written(motion, tmp_path, ".npz")) as arrays:
        parts = motion.segments
        np.testing.assert_array_equal(arrays["time"], motion.t)
        for number, part in enumerate(parts):
            behind = f"_{number}" if len(parts) > 1 else ""
            if len(part.t):
                np.testing.assert_array_equal(arrays[f"q{behind}"], part.q)
                np.testing.assert_array_equal(arrays[f"poses{behind}"], part.poses)
            assert arrays[f"q_offset{behind}"][-1] == part.system.nq
        assert list(arrays["body"]) == [motion.system.name_of(k) for k in range(motion.system.n_bodies)]


def test_runs_that_kept_some_bodies(tmp_path: Path) -> None:
    """Their columns are those of the whole run; what needs all bodies is refused."""
    for name, sample in (("all", "q,u,poses,loads"), ("some", "q:b,q:d,pose:c,load:d")):
        system = System("four")
        for letter in "abcd":
            joint = Joint(type="spherical" if letter == "b" else "revolute", position=(0, -1, 0))
            system.add(name=letter, mass=1, center_of_mass=(0, -1, 0), inertia=(1, 1, 1, 0, 0, 0), joint=joint)
        simulate(system, 0.1, output=tmp_path / f"{name}.h5", every=0.05, sample=sample)
    whole, some = (motion_of(tmp_path / f"{name}.h5") for name in ("all", "some"))
    for text in ("q:d", "q:d,b", "pose:c", "load:d", "energy"):
        for ours, theirs in zip(quantities(some, text), quantities(whole, text), strict=True):
            assert list(ours.labels) == list(theirs.labels)
            np.testing.assert_array_equal(ours.values, theirs.values)
    with written(some, tmp_path, ".csv").open() as file:
        assert {row["quantity"] for row in csv.DictReader(file)} == {"q", "load", "pose", *OF_THE_WHOLE}
    with np.load(written(some, tmp_path, ".npz")) as arrays:
        assert arrays["kept_q"].tolist() == [1, 3] and arrays["q"].shape == (3, 5)
    with pytest.raises(InputError, match="q and u of all are needed"):
        written(some, tmp_path, ".vtkhdf")
    with pytest.raises(InputError, match=r"body 'a': .* has kept no q of it"):
        quantities(some, "q:a")
    with pytest.raises(InputError, match="has kept no u"):
        quantities(some, "u")


@pytest.mark.parametrize(
    ("suffix", "texts", "message"),
    [
        (".txt", (), "no format has the suffix '.txt'"),
        (".vtkhdf", ("energy",), "takes the whole run; leave energy out"),
        (".csv", ("speed",), "quantity 'speed': unknown"),
    ],
)
def test_bad_requests(tmp_path: Path, suffix: str, texts: tuple[str, ...], message: str) -> None:
    simulate(system_from("chain:2"), 0.01, output=tmp_path / "out.h5")
    motion = motion_of(tmp_path / "out.h5")
    with pytest.raises(InputError, match=message):
        written(motion, tmp_path, suffix, *texts)


@pytest.mark.parametrize(("suffix", "library"), [(".usd", "pxr"), (".parquet", "pyarrow")])
def test_what_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, library: str
) -> None:
    simulate(system_from("chain:2"), 0.01, output=tmp_path / "out.h5")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=rf"a {suffix} file needs \S+: pip install 'mpimbs\[{suffix[1:]}\]'"):
        written(motion_of(tmp_path / "out.h5"), tmp_path, suffix)
