"""A motion, the same from memory and from a file, whole and in pieces: of runs, of changing structures, of copies."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from mpimbs import Batch, InputError, Joint, System, kinematics, load, simulate, system_from
from mpimbs.dynamics.quantities import tension
from mpimbs.files.motion import ALL, Motion, MotionSegment
from mpimbs.parts.kinematics import pose_numbers
from mpimbs.plots.quantities import quantities
from mpimbs.view.film import Film
from mpimbs.view.recording import Recording
from run.event_systems import varied

pytestmark = pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="motions are on one rank")
KEPT: dict[str, Any] = {"every": 0.05, "loads": True}


@pytest.mark.cases(1)
@pytest.mark.parametrize("poses", [True, False], ids=["kept", "from q"])
@pytest.mark.parametrize("make", [varied, lambda: system_from("rope:5")], ids=["changing", "rope"])
def test_pieces_are_those_of_the_whole(tmp_path: Path, make: Any, poses: bool) -> None:
    """Read from the file alone, and cut from what was read before."""
    kept = simulate(make(), 0.5, poses=poses, **KEPT)
    simulate(make(), 0.5, output=tmp_path / "out.h5", poses=poses, **KEPT)
    chosen, bodies = np.array([0, 3, 4, len(kept.t) - 1]), np.array([1, 3])
    for again in (False, True):
        motion = load(tmp_path / "out.h5").there
        if again:
            assert np.array_equal(motion.poses, kept.poses) and np.array_equal(motion.loads, kept.loads)
        for found in (motion, kept.there):
            assert found.holds("poses") == poses and found.holds("loads") and not found.holds("residual")
            assert len(found.kept("poses")) == found.system.n_bodies
            for name in ("poses", "loads"):
                whole = getattr(kept, name)
                assert np.array_equal(found.some(name, chosen), whole[chosen])
                assert np.array_equal(found.some(name, ALL, 2), whole[:, 2])
                assert np.array_equal(found.some(name, ALL, bodies), whole[:, bodies])


def test_tension_has_one_name(tmp_path: Path) -> None:
    """Of results, quantities and extremes; of all bodies or those that were kept."""
    whole = simulate("chain:4", 0.2, extremes=True, **KEPT)
    some = simulate("chain:4", 0.2, sample="load:link2,load:link4", output=tmp_path / "some.h5", every=0.05)
    center = whole.there.system.columns().center_of_mass
    assert np.array_equal(whole.tension, tension(whole.loads, center)) and whole.tension.shape == (5, 4)
    assert np.array_equal(some.tension, whole.tension[:, [1, 3]])
    assert np.isnan(some.there.of_all("tension")[:, [0, 2]]).all()
    (drawn,), (moment,) = (quantities(some.there, f"{name}:link4") for name in ("tension", "moment"))
    assert np.array_equal(drawn.values[:, 0], whole.tension[:, 3]) and drawn.unit == "N"
    assert np.array_equal(moment.values[:, 0], np.linalg.norm(whole["link4"].load[:, :3], axis=1))
    least, _, most, _ = whole.extremes["tension"]
    assert (least <= whole.tension.min(axis=0)).all() and (most >= whole.tension.max(axis=0)).all()
    for asked, name in (("loads", "load"), ("poses:link1", "pose:link1")):
        for ours, theirs in zip(quantities(whole.there, asked), quantities(whole.there, name), strict=True):
            assert ours.labels == theirs.labels and np.array_equal(ours.values, theirs.values)
    force, _ = quantities(whole.there, "load")
    assert np.array_equal(force.values, whole.loads[..., 3:].reshape(5, -1)), "all bodies, as of some"


def test_arrays_of_copies(tmp_path: Path) -> None:
    """With an axis more; of the copies in a file one alone, poses from q."""
    batch = Batch.of_parameters("chain:3", {"link1.mass": [1.0, 2.0]})
    results = batch.simulate(0.1, every=0.05), batch.simulate(0.1, every=0.05, output=tmp_path / "out.h5")
    for result in (*results, load(tmp_path / "out.h5")):
        assert re.match(r"Motion\(.* in .*: 2 copies, 3 samples of 0 to 0.1 s\)$", repr(result.motion))
        assert result.poses.shape == (3, 2, 3, 7) and np.array_equal(result.poses[:, 1], result[1].poses)
        assert np.array_equal(result.poses[:, 1], result.there.copy(1).some("poses", np.arange(3)))
        assert result.body("link2").position.shape == (3, 2, 3) and result.parameters["link1.mass"].tolist() == [1, 2]
        moving = kinematics(result[1].system, result.q[:, 1], result.u[:, 1])
        assert np.array_equal(pose_numbers(moving.rotation, moving.position), result.poses[:, 1])
        with pytest.raises(InputError, match="there is no copy 2: give one from 0 to 1"):
            result[2]
        with pytest.raises(InputError, match="is of 2 copies, and one is needed"):
            result.there.one()
    with pytest.raises(InputError, match="is of a run, not of an ensemble"):
        simulate("chain:3", 0.1).there.one("0")


def test_motions_in_memory_are_shown() -> None:
    """Also of a copy that failed, whose bodies are nowhere then."""
    motion = simulate("chain:3", 0.1, **KEPT).there
    film = Film(Recording(motion), tension=True)
    film.draw(0.05)
    assert len(film.figure.axes[0].collections[0].get_paths()) > 10
    samples = {"time": np.array([0.0, 1.0]), "q": motion.q[[0, 0]].copy()}
    samples["q"][1] = np.nan
    failed = Motion("in memory", [MotionSegment(lambda name, at: samples.get(name), lambda _: motion.system, dict)])
    film = Film(Recording(failed))
    film.draw(1.0)
    assert not film.figure.axes[0].collections[0].get_paths()
    film.draw(0.0)
    assert len(film.figure.axes[0].collections[0].get_paths()) > 10
    assert np.isnan(failed.poses[1]).all() and np.isfinite(failed.poses[0]).all()


def test_tension_of_copies_is_along_each_one_s_own_center() -> None:
    systems = []
    for aside in (0.0, 0.7):
        system = System(f"arm {aside}", gravity=(0, -9.81, 0))
        joint = Joint(type="revolute", q=0.4)
        system.add(name="arm", mass=1, center_of_mass=(aside, -1, 0), inertia=(1, 1, 1, 0, 0, 0), joint=joint)
        systems.append(system)
    result = Batch(systems).simulate(0.1, every=0.05, sample="q,load")
    loads, along = result.loads[..., 3:], np.array([[0.0, -1.0, 0.0], [0.7, -1.0, 0.0]])
    expected = -np.einsum("tkni,ki->tkn", loads, along / np.linalg.norm(along, axis=1)[:, None])
    np.testing.assert_allclose(result.tension, expected, rtol=1e-12)
    assert np.array_equal(result.tension[:, 1], result[1].tension)
