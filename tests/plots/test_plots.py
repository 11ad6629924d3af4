"""Pictures of runs: that nothing is left out, blank, mirrored or off the page; ticks that can be read."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import image
from mpi4py import MPI

from mpimbs.base.errors import InputError
from mpimbs.dynamics.quantities import tension
from mpimbs.files.motion import Motion
from mpimbs.model import Joint, System, system_from
from mpimbs.plots.curves import COLOURED, NAMED
from mpimbs.plots.motions import View, views
from mpimbs.plots.pictures import draw_coordinates, draw_loads, draw_quantities, draw_run, motion_of
from mpimbs.plots.quantities import quantities
from mpimbs.run.run import simulate

INERTIA = (0.1, 0.1, 0.1, 0, 0, 0)


def ink(path: Path) -> float:
    """Share of a picture's pixels that are not white."""
    picture = image.imread(path)
    assert min(picture.shape[:2]) >= 500
    return float(np.mean(np.any(picture[..., :3] < 0.99, axis=2)))


@pytest.mark.cases(1)
@pytest.mark.parametrize(
    ("spec", "kept"), [("spatial_chain:100", "poses loads"), ("chain:4", ""), ("rope:5", "poses"), ("figure", "loads")]
)
def test_pictures_of_a_run(tmp_path: Path, spec: str, kept: str) -> None:
    path = tmp_path / "run.h5"
    settings: dict[str, Any] = dict.fromkeys(kept.split(), True)
    simulate(system_from(spec), 0.05, MPI.COMM_SELF, output=path, every=0.01, **settings)
    drawn = draw_run(path)
    kinds = ["coordinates", *["motion"] * ("poses" in kept), "energy", *["loads"] * ("loads" in kept), "overview"]
    assert drawn == [path.with_name(f"run_{kind}.png") for kind in kinds]
    for picture in drawn:
        assert ink(picture) > 0.01, f"{picture.name} is blank"


def mixed() -> System:
    """A joint with each unit, and one body that has no extent."""
    system = System("mixed", gravity=(0, 0, -9.81))
    body: dict[str, Any] = {"mass": 1.0, "inertia": INERTIA}
    system.add(name="cart", parent="world", joint=Joint(type="prismatic", axis=(1, 0, 0), u=0.5), **body)
    system.add(name="mast", joint=Joint(type="universal", position=(0, 0, 0.2), q=(0.1, 0.2)), **body)
    system.add(name="screw", joint=Joint(type="cylindrical", axis=(0, 0, 1), position=(0, 0, 1)), **body)
    ball = Joint(type="spherical", position=(0, 1, 0))
    system.add(name="ball", center_of_mass=(0, 0.5, 0), joint=ball, **body)
    system.add(name="drifter", parent="world", joint=Joint(type="free", u=(0, 0, 0, 1, 2, 3)), **body)
    return system


@pytest.fixture
def mixed_file(tmp_path: Path) -> Path:
    simulate(mixed(), 0.1, MPI.COMM_SELF, output=tmp_path / "run.h5", every=0.01, poses=True, loads=True)
    return tmp_path / "run.h5"


# --- coordinates -----------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed_motion(mixed_file: Path) -> Motion:
    return motion_of(mixed_file)


def test_what_needs_no_model_reads_none(mixed_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpimbs.files.motion.system_from_text", None)
    motion = motion_of(mixed_file)
    assert draw_quantities(motion, ["energy"])._suptitle.get_text().startswith("mixed: energy")
    assert repr(motion).startswith("Motion(mixed in ")


def test_coordinates_have_names_and_units(mixed_motion: Motion) -> None:
    q = np.asarray(mixed_motion.q)
    angles, displacements, turns = quantities(mixed_motion, "q")
    assert list(angles.labels) == ["mast x", "mast y", "screw"] and angles.unit == "rad"
    assert list(displacements.labels) == ["cart", "screw", *(f"drifter {k}" for k in "xyz")]
    assert list(turns.labels) == [f"{name} {k}" for name in ("ball", "drifter") for k in "wxyz"]
    np.testing.assert_array_equal(angles.values, q[:, 1:4])
    np.testing.assert_array_equal(displacements.values, q[:, [0, 4, 13, 14, 15]])
    np.testing.assert_array_equal(turns.values, q[:, 5:13])


def test_quantities_are_of_the_bodies_that_are_named(mixed_motion: Motion) -> None:
    turning, sliding = quantities(mixed_motion, "u:drifter,cart")
    assert list(sliding.labels) == ["drifter x", "drifter y", "drifter z", "cart"] and sliding.unit == "m/s"
    assert turning.labels[2] == "drifter z" and turning.unit == "rad/s"
    force, moment = quantities(mixed_motion, "load:ball")
    np.testing.assert_array_equal(np.hstack([moment.values, force.values]), mixed_motion.body("ball").load)
    place, _ = quantities(mixed_motion, "pose:mast")
    np.testing.assert_array_equal(place.values, mixed_motion.body("mast").position)
    (energy,) = quantities(mixed_motion, "energy")
    np.testing.assert_allclose(energy.values[:, 2], energy.values[:, :2].sum(axis=1))
    axes = draw_quantities(mixed_motion, ["q:mast", "energy"]).axes
    assert [part.get_ylabel() for part in axes] == ["angles (rad)", "energy (J)"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("torque", "quantity 'torque': unknown"),
        ("q:mats", "unknown body 'mats'; did you mean 'mast'"),
        ("energy:mast", "quantity 'energy': is of the whole system; leave mast out"),
        ("violation", "closes no loop"),
    ],
)
def test_quantities_that_are_not_there(mixed_motion: Motion, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        quantities(mixed_motion, text)


def test_what_does_not_change_is_said_and_drawn_once(tmp_path: Path) -> None:
    """A figure that falls as it stands."""
    simulate("figure", 0.1, output=tmp_path / "run.h5")
    angles, displacements, _ = draw_coordinates(motion_of(tmp_path / "run.h5")).axes
    assert len(angles.lines) == 1 and re.search(r" and 10 more\nstay at 0$", angles.lines[0].get_label())
    assert angles.get_title(loc="right") == "nothing changes here"
    assert [line.get_label() for line in displacements.lines] == ["pelvis x, pelvis z\nstay at 0", "pelvis y"]
    assert np.ptp(displacements.lines[1].get_ydata()) == pytest.approx(0.5 * 9.81 * 0.1**2)


@pytest.mark.parametrize("n", [NAMED // 4 + 1, COLOURED, 500])
def test_many_quaternions_are_drawn_as_angles(tmp_path: Path, n: int) -> None:
    """One curve for each joint, from the model's zero: together the rope's begin at 1 rad; 500 are a map."""
    simulate(system_from(f"rope:{n}"), 1e-3, MPI.COMM_SELF, output=tmp_path / "run.h5", every=1e-3)
    axes, *others = draw_coordinates(motion_of(tmp_path / "run.h5")).axes
    if n > COLOURED:
        np.testing.assert_allclose(axes.collections[0].get_array().reshape(400, -1)[:, 0], 1 / n)
        assert others[0].get_xlabel() == "angles of quaternions (rad)"
    else:
        assert len(axes.lines) == n and axes.get_ylabel() == "angles of quaternions (rad)"
        assert axes.lines[0].get_ydata()[0] == pytest.approx(1 / n)
    if n > NAMED:
        names = [label.get_text() for label in (axes if n > COLOURED else others[0]).get_yticklabels()]
        assert (names[0], names[-1]) == ("link1", f"link{n}")


# --- motion ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gravity", "extents", "expected"),
    [
        ((0, 0, -9.81), (2, 1, 3), [View(0, 2, False, "from the side"), View(0, 1, False, "from above")]),
        ((0, -9.81, 0), (2, 1, 0), [View(0, 1, False, "from the side")]),
        ((0, -9.81, 0), (2, 1, 3), [View(2, 1, False, "from the side"), View(2, 0, False, "from above")]),
        ((0, -9.81, 0), (3, 1, 2), [View(0, 1, False, "from the side"), View(0, 2, True, "from above")]),
        ((0, 0, -9.81), (2, 1, 0), [View(0, 1, False, "from above")]),
        ((0, 0, 9.81), (2, 1, 3), [View(0, 2, True, "from the side"), View(0, 1, True, "from above")]),
        ((-1.6, 0, 0), (5, 1, 0), [View(1, 0, False, "from the side")]),
        ((0, 0, 0), (0, 3, 1), [View(1, 2, False, "")]),
        ((0, 0, 0), (2, 3, 1), [View(0, 1, False, ""), View(0, 2, False, "")]),
    ],
)
def test_views(gravity: tuple[float, ...], extents: tuple[float, ...], expected: list[View]) -> None:
    """Gravity points down; a pan is seen from above; what is deep is seen from two sides, and never mirrored."""
    assert views(gravity, np.array(extents, float)) == expected


# --- loads -----------------------------------------------------------------------------------------------------------


def test_tension_is_the_pull_along_a_body() -> None:
    loads = np.array([[[1, 1, 1, 1.0, 5.0, 0.0], [1, 1, 1, 0.0, -3.0, 4.0], [1, 1, 1, 3.0, 0.0, -4.0]]])
    center = np.array([[0.0, -2.0, 0.0], [0.0, -0.1, 0.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(tension(loads, center), [[5.0, -3.0, 5.0]], err_msg="pull, push, no direction")


@pytest.mark.parametrize("n", [3, 40])
def test_loads_of_a_hanging_chain(tmp_path: Path, n: int) -> None:
    """At rest a joint carries what hangs on it, and no moment: curves for a few bodies, a map for many."""
    system = System("hanging", gravity=(0, 0, -10.0))
    link: dict[str, Any] = {"mass": 2.0, "inertia": INERTIA, "center_of_mass": (0, 0, -0.5)}
    hinge: dict[str, Any] = {"type": "revolute", "axis": (1, 0, 0)}
    system.add(name="link", parent="world", joint=Joint(**hinge), **link)
    for k in range(1, n):
        system.add(name=f"link{k}", joint=Joint(position=(0, 0, -1), **hinge), **link)
    simulate(system, 0.1, MPI.COMM_SELF, output=tmp_path / "run.h5", every=0.02, poses=True, loads=True)
    figure = draw_loads(motion_of(tmp_path / "run.h5"))
    weights = 20.0 * np.arange(n, 0, -1)
    if n == 3:
        pull, moment = figure.axes
        np.testing.assert_allclose([line.get_ydata()[-1] for line in pull.lines], weights)
        assert pull.get_ylabel() == "tension (N)" and moment.get_ylim() == (-1.0, 1.0), "no noise"
    else:
        pull, beside, _bar, moment = figure.axes[:4]
        shown = pull.collections[0].get_array().reshape(n, -1)
        np.testing.assert_allclose(shown, np.broadcast_to(weights[:, None], shown.shape))
        np.testing.assert_allclose(beside.lines[0].get_xdata(), weights)
        (none,) = moment.lines
        assert not none.get_ydata().any() and none.get_label().endswith("stay at 0"), "rounding is drawn as zero"
        names = [label.get_text() for label in pull.get_yticklabels()]
        assert (names[0], names[-1]) == ("link", f"link{n - 1}") and pull.yaxis_inverted()


# --- ticks -----------------------------------------------------------------------------------------------------------
