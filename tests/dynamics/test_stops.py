"""Stops that end the ways of joints: against MuJoCo and closed forms, in runs, in implicit steps, at rest."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import mpimbs
from mpimbs import Dynamics, InputError, System, simulate
from mpimbs.model import Joint, read_system, write_system
from run.motions import alike_over_ranks_and_lanes
from tolerances import assert_close

alone = pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="one process does all of it")
BODY = {"mass": 1.0, "inertia": (0.1, 0.1, 0.1, 0, 0, 0), "center_of_mass": (0.5, 0.0, 0.0)}
STOP = {"stop_stiffness": 200.0, "stop_damping": 10.0}  # N m/rad, N m s/rad
INERTIA, WEIGHT = 0.1 + 0.25, 9.81 * 0.5  # about the hinge, kg m^2; N m


def pendulum(**joint: Any) -> System:
    system = System(name="pendulum", gravity=(0.0, 0.0, -9.81))
    ends = {"lower": -1.0, "upper": 0.3} | STOP
    system.add(name="arm", **BODY, joint={"type": "revolute", "axis": (0, 1, 0)} | ends | joint)
    return system


def balance(result: Any) -> float:
    """How far the energy is from what it was at first and the work done since, over the weight's, at the most."""
    energy, work = np.asarray(result["energy"]).sum(axis=1), np.asarray(result["work"][:])
    return float(np.abs(energy - energy[0] - work).max() / WEIGHT)


@pytest.mark.parametrize(
    ("q", "u", "force"),
    [
        (0.0, 3.0, 0.0),
        (0.35, 0.0, -10.0),  # k x
        (0.35, 2.0, -30.0),  # k x + c u
        (0.35, -2.0, 0.0),  # it would pull
        (0.301, 5.0, -2.0),  # on its way in: ten times k x
        (-1.1, -1.0, 30.0),
        (-1.1, 3.0, 0.0),
    ],
)
@alone
def test_the_law(q: float, u: float, force: float) -> None:
    """By hand: of a pendulum, whose inertia and weight are known; the loads that pass the joint have it too."""
    system = pendulum()
    with closing(Dynamics(system)) as dynamics:
        udot = dynamics.accelerations([q], [u])
        assert_close("udot", udot, [(force + WEIGHT * np.cos(q)) / INERTIA], "dense")
        needed = dynamics.inverse_dynamics([q], [u], [0.0])
        assert_close("tau", needed, [-force - WEIGHT * np.cos(q)], "dense")
        assert_close("load", dynamics.joint_loads([q], [u])[0, 1], force, "dense", scale=30.0)


@alone
def test_its_spring_is_that_of_mujoco() -> None:
    """A tendon of MuJoCo with a range of lengths in which it is slack, over a hinge and a slide: without dampers."""
    mujoco = pytest.importorskip("mujoco")
    text = """<mujoco><option gravity="0 0 -9.81"/><worldbody>
      <body name="a"><joint name="turn" axis="0 1 0"/>
        <inertial pos="0.5 0 0" mass="1" diaginertia="0.1 0.1 0.1"/>
        <body name="b" pos="1 0 0"><joint name="slide" type="slide" axis="1 0 0"/>
          <inertial pos="0 0 0" mass="0.5" diaginertia="0.1 0.2 0.3"/></body></body></worldbody>
      <tendon><fixed stiffness="300" springlength="-0.4 0.2"><joint joint="turn" coef="1"/></fixed>
        <fixed stiffness="500" springlength="-0.1 0.1"><joint joint="slide" coef="1"/></fixed></tendon></mujoco>"""
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    system = System(name="two", gravity=(0.0, 0.0, -9.81))
    turn = {"type": "revolute", "axis": (0, 1, 0), "lower": -0.4, "upper": 0.2, "stop_stiffness": 300.0}
    slide = {"type": "prismatic", "axis": (1, 0, 0), "lower": -0.1, "upper": 0.1, "stop_stiffness": 500.0}
    system.add(name="a", **BODY, joint=turn)
    system.add(name="b", mass=0.5, inertia=(0.1, 0.2, 0.3, 0, 0, 0), joint=slide | {"position": (1, 0, 0)})
    rng, pressed = np.random.default_rng(1), 0
    with closing(Dynamics(system)) as dynamics:
        for _ in range(20):
            data.qpos[:], data.qvel[:] = rng.normal(size=2) * (0.5, 0.2), rng.normal(size=2)
            mujoco.mj_forward(model, data)
            pressed += np.count_nonzero(data.qfrc_passive)
            assert_close("udot", dynamics.accelerations(data.qpos, data.qvel), data.qacc, "dense")
    assert 10 < pressed < 40


@pytest.mark.parametrize("integrator", ["dopri5", "dop853", "rosenbrock", "rosenbrock4"])
@alone
def test_it_comes_to_rest_where_the_stop_carries_its_weight(integrator: str) -> None:
    """Its energy is what its dampers have left of it, through all arrivals."""
    result = simulate(pendulum(u=-6.0), 8.0, rtol=1e-8, integrator=integrator)
    assert np.asarray(result["q"]).min() < -1.0  # the other stop first
    x = float(result["q"][-1][0]) - 0.3
    assert x == pytest.approx(WEIGHT * np.cos(0.3 + x) / 200.0, rel=1e-6)
    assert balance(result) < 1e-6 and float(result["work"][-1]) < -1.0


@alone
def test_it_keeps_its_energy_without_damping() -> None:
    """And bounces on; steps that Python takes have the same power as compiled ones."""
    result = simulate(pendulum(stop_damping=0.0), 5.0, rtol=1e-10)
    assert balance(result) < 1e-6
    energy = np.asarray(result["energy"]).sum(axis=1)[(np.asarray(result["q"]) < 0.3)[:, 0]]
    assert np.ptp(energy) < 1e-5 * WEIGHT  # steps over the corner of the force err by some 1e-6, each otherwise
    away = np.flatnonzero(np.asarray(result["q"]) > 0.35)
    assert len(away) > 10 and np.asarray(result["q"])[away[0] :].min() < 0.01 and np.asarray(result["q"]).max() > 0.4
    called = pendulum()
    called.add_joint_force("arm", lambda t, q, u: -0.1 * u)
    damped = simulate(called, 5.0, rtol=1e-9)
    assert balance(damped) < 1e-6 and float(damped["work"][-1]) < -1.0


@alone
def test_stiff_stops_are_taken_by_implicit_steps() -> None:
    """Pressed against a stop of 1e8 N m/rad a pendulum takes the steps that it takes without one that is stiff."""
    stiff = pendulum(upper=0.0, stop_stiffness=1e8, stop_damping=1e5)
    implicit = simulate(stiff, 2.0, rtol=1e-5, integrator="rosenbrock")
    explicit = simulate(stiff, 0.01, rtol=1e-5)
    assert implicit.steps < 500 and explicit.steps / 0.01 > 50 * implicit.steps / 2.0
    assert float(implicit["q"][-1][0]) == pytest.approx(WEIGHT / 1e8, rel=1e-6)


@alone
def test_equilibrium_and_modes() -> None:
    """Settled on the stop, it swings as a spring of its stiffness lets it."""
    system = pendulum()
    (q,) = mpimbs.settle(system)
    assert q - 0.3 == pytest.approx(WEIGHT * np.cos(q) / 200.0, rel=1e-9)
    found = mpimbs.modes(system, [q])
    assert found.squares[0] == pytest.approx((200.0 + WEIGHT * np.sin(q)) / INERTIA, rel=1e-9)


def test_copies_in_lanes_and_runs_over_ranks(comm: MPI.Comm) -> None:
    """Four links that fall on their stops: the same on all ranks, cut or not, and side by side."""
    system = System(name="links", gravity=(0.0, 0.0, -9.81))
    hinge = {"type": "revolute", "axis": (0, 1, 0), "lower": -0.2, "upper": 0.2} | STOP
    system.repeat(8, mpimbs.Body(name="link", **BODY, joint=Joint(position=(1.0, 0.0, 0.0), **hinge)))
    alone = alike_over_ranks_and_lanes(system, comm)
    assert np.asarray(alone["q"]).max() > 0.2


@alone
def test_text_and_units(tmp_path: Path) -> None:
    """They come back from a file, open ways too, and degrees are degrees."""
    system = System(name="u")
    ends = {"lower": [-0.5, -np.inf], "upper": [np.inf, 0.25]}
    joint = {"type": "universal", "stop_stiffness": [10.0, 20.0], "stop_damping": 0.1}
    system.add(name="a", **BODY, joint=joint | ends)
    write_system(system, tmp_path / "u.toml")
    assert read_system(tmp_path / "u.toml").contents.body(0).joint == system.contents.body(0).joint
    text = (tmp_path / "u.toml").read_text(encoding="utf-8")
    assert "inf" in text
    degrees = '[units]\nangle = "deg"\n[[body]]\nname = "a"\nmass = 1\ninertia = [1, 1, 1, 0, 0, 0]\n'
    hinge = 'joint = { type = "revolute", upper = 90, stop_stiffness = 2.0 }\n'
    (tmp_path / "d.toml").write_text(degrees + hinge, encoding="utf-8")
    read = read_system(tmp_path / "d.toml").contents.body(0).joint
    assert read.upper == pytest.approx((np.pi / 2,)) and read.lower == (-np.inf,)
    assert read.stop_stiffness == pytest.approx((2.0 * 180 / np.pi,))


@pytest.mark.parametrize(
    ("joint", "told"),
    [
        ({"type": "spherical", "upper": 1.0, "stop_stiffness": 1.0}, "upper has no meaning for a spherical joint"),
        ({"type": "revolute", "upper": 1.0}, "stop_stiffness is missing"),
        ({"type": "revolute", "stop_stiffness": 1.0}, "stops without an end"),
        ({"type": "revolute", "lower": 1.0, "upper": 0.5, "stop_stiffness": 1.0}, "lower must not be above upper"),
        ({"type": "revolute", "upper": np.nan, "stop_stiffness": 1.0}, "upper must be a finite number"),
        ({"type": "revolute", "upper": -np.inf, "stop_stiffness": 1.0}, "upper must be a finite number"),
        ({"type": "revolute", "upper": 1.0, "stop_stiffness": -1.0}, "stop_stiffness must not be negative"),
        ({"type": "universal", "upper": [1.0], "stop_stiffness": 1.0}, "needs 2 numbers"),
    ],
)
@alone
def test_what_makes_no_sense_is_refused(joint: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Joint(**joint)
