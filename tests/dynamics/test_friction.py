"""Friction of joints in runs: slides by Coulomb's law, holds without creeping, comes through restarts, in lanes too."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import mpimbs
from mpimbs import Batch, Dynamics, InputError, Simulation, System, simulate
from mpimbs.base.errors import InterruptionError
from mpimbs.model import Event
from mpimbs.stepping.copies_stepper import CopiesStepper
from mpimbs.sweep.grip import RELAXATION
from run.interruptions import differing, disturbed, signalled
from tolerances import assert_close

alone = pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="one process does all of it")
METHODS = pytest.mark.parametrize("integrator", ["dopri5", "dop853", "rosenbrock4", "petsc:bdf"])
MASS, FRICTION, SLOW = 2.0, 3.0, 0.01  # kg, N, m/s
SLACK = RELAXATION * SLOW  # m
INERTIA = {"inertia": (0.1, 0.1, 0.1, 0, 0, 0)}


def slider(**joint: Any) -> System:
    """A block on a level rail."""
    system = System(name="slider", gravity=(0.0, 0.0, -9.81))
    rail = {"type": "prismatic", "axis": (1, 0, 0), "friction": FRICTION, "friction_speed": SLOW}
    system.add(name="block", mass=MASS, **INERTIA, joint=rail | joint)
    return system


def on_a_slope(share: float, **joint: Any) -> System:
    """A block that a share of its friction pulls."""
    system = slider(**joint)
    system.gravity = (share * FRICTION / MASS, 0.0, -9.81)
    return system


@METHODS
@alone
def test_it_holds_without_creeping(integrator: str) -> None:
    """What less than its friction pulls stands on a bent bristle, for as long as may be; the rail carries that."""
    begin, tolerance = ([0.0], [0.0]), {"rtol": 1e-8, "integrator": integrator}
    held = simulate(on_a_slope(0.8), 20.0, every=5.0, state=begin, sample="q,u,load", **tolerance)
    assert np.asarray(held["q"])[1:, 0] == pytest.approx(0.8 * SLACK, rel=1e-5)
    assert abs(np.asarray(held["u"])[1:]).max() < 1e-6  # m/s, a creep would be 8e-3
    load = np.asarray(held["load"])[-1, 0]  # moment, then force
    assert_close("load", load[3], -0.8 * FRICTION, "adaptive steps")
    pulled = simulate(on_a_slope(1.2), 2.0, state=begin, **tolerance)
    late = np.asarray(pulled["t"]) > 1.0
    t, u = np.asarray(pulled["t"])[late], np.asarray(pulled["u"])[late, 0]
    assert np.polyfit(t, u, 1)[0] == pytest.approx(0.2 * FRICTION / MASS, rel=1e-6)


@METHODS
@alone
def test_it_stops_what_slides(integrator: str) -> None:
    """A block stops after the time and way that Coulomb's law says, and rests where the bristle has pulled it back."""
    speed = 1.5
    result = simulate(slider(u=speed), 3.0, rtol=1e-8, integrator=integrator)
    u, t = np.asarray(result["u"])[:, 0], np.asarray(result["t"])
    sliding = t < 0.95 * MASS * speed / FRICTION
    assert_close("u", u[sliding], speed - FRICTION / MASS * t[sliding], "adaptive steps")
    way = MASS * speed**2 / (2 * FRICTION)
    assert way - 1.001 * SLACK <= float(result["q"][-1][0]) <= way
    assert abs(u[-1]) < 1e-5 and result.energy_change < 1e-6


@METHODS
@alone
def test_swings_on_a_spring_die_by_equal_steps(integrator: str) -> None:
    """Each half swing ends 2 F / k nearer to the middle, in a time pi / w; it stays where the spring can't move it."""
    stiffness = 200.0
    step = 2 * FRICTION / stiffness
    system = slider(stiffness=stiffness, q=3.25 * step)
    result = simulate(system, 3.0, every=0.001, rtol=1e-8, integrator=integrator)
    q, u = np.asarray(result["q"])[:, 0], np.asarray(result["u"])[:, 0]
    half = np.pi * np.sqrt(MASS / stiffness)
    ends = q[np.rint(half / 0.001 * np.arange(4)).astype(int)]
    expected = step * np.array([3.25, -2.25, 1.25, -0.25])
    assert abs(ends - expected).max() < 2 * SLACK
    assert abs(q[-1] - ends[-1]) < 2 * SLACK and abs(u[-1]) < 1e-6


def links(**settings: Any) -> System:
    """Six links that rub: some slide, some hold."""
    system = System(name="links", gravity=(0.0, 0.0, -9.81))
    for k in range(6):
        joint = {"type": "revolute", "axis": (0, 1, 0), "position": (0.4, 0.0, 0.0), "q": 0.3 * (-1) ** k}
        joint |= {"friction": 0.2 + 2.0 * (k % 3), "friction_speed": 0.05} | settings
        system.add(name=f"link{k}", mass=0.5, center_of_mass=(0.2, 0, 0), **INERTIA, joint=joint)
    return system


@pytest.mark.parametrize("integrator", ["dopri5", "rosenbrock4", "petsc:bdf"])
def test_a_run_goes_on_with_its_anchors(
    comm: MPI.Comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, integrator: str
) -> None:
    """On the same ranks with the same bits, on one from several to the tolerance."""
    folder, given = comm.bcast(tmp_path), {"every": 0.02, "rtol": 1e-7, "integrator": integrator}
    expected = simulate(links(), 0.6, comm, **given)
    for name in ("same", "other"):
        with signalled(comm, monkeypatch, 40, signal.SIGTERM), pytest.raises(InterruptionError):
            simulate(links(), 0.6, comm, output=folder / f"{name}.h5", signals=True, **given)
    assert mpimbs.restart(folder / "same.checkpoint.h5", comm).status == "complete"
    part = comm.Split(0 if comm.rank == 0 else MPI.UNDEFINED)
    if comm.rank == 0:
        assert mpimbs.restart(folder / "other.checkpoint.h5", part).status == "complete"
        if integrator != "petsc:bdf":  # which begins anew
            assert np.array_equal(mpimbs.load(folder / "same.h5").q, expected.q)
        assert_close("q", mpimbs.load(folder / "other.h5").q, np.asarray(expected.q), "adaptive steps")
        part.Free()


def test_over_ranks_and_with_other_forces_held(comm: MPI.Comm) -> None:
    """Other forces on joints change nothing of where bristles stand: a run with none that are said goes on alike."""
    runs = []
    for held in (False, True):
        with closing(Simulation(links(), comm, rtol=1e-9)) as simulation:
            simulation.run(until=0.2)
            if held:
                simulation.set_torque("link2", 0.0)
            simulation.run(until=0.6)
            runs.append(np.concatenate(simulation.state[:2]))
    assert_close("state", runs[1], runs[0], "adaptive steps")
    one = simulate(links(), 0.6, MPI.COMM_SELF, rtol=1e-9)
    assert_close("ranks", runs[0], np.concatenate([one["q"][-1], one["u"][-1]]), "adaptive steps")


@alone
def test_an_event_leaves_the_anchors() -> None:
    """What is cut off elsewhere does not let go what holds here."""
    system = on_a_slope(0.8)
    system.add(name="other", mass=0.1, **INERTIA, joint={"type": "prismatic", "axis": (0, 1, 0)})
    system.add_event(Event(time=2.0, cut=("other",)))
    first, second = simulate(system, 4.0, every=0.5, rtol=1e-8, state=([0.0, 0.0], [0.0, 0.0])).motion.segments
    assert np.asarray(first["q"])[-1, 0] == pytest.approx(0.84 * SLACK, rel=1e-5)
    assert np.asarray(second["q"])[1:, 0] == pytest.approx(0.8 * SLACK, rel=1e-5)  # it would go 8e-4 m again


@alone
def test_copies_side_by_side(tmp_path: Path) -> None:
    """As each by itself, of which each has other friction, one none; their loads too."""
    systems = [links(friction=friction) for friction in (0.0, 0.4, 1.5, 6.0)]
    systems *= 2
    copies = Batch(systems).simulate(0.6, rtol=1e-9, sample="q,u,load")
    assert copies.lanes > 1
    for k in range(4):
        own = simulate(systems[k], 0.6, rtol=1e-9, sample="q,u,load")
        assert_close("q", np.asarray(copies["q"])[:, k], np.asarray(own["q"]), "adaptive steps")
        assert_close("load", np.asarray(copies["load"])[:, k], np.asarray(own["load"]), "adaptive steps", scale=30.0)


@pytest.mark.parametrize("every", [0.01, 0.001])
def test_copies_go_on_with_their_anchors(
    comm: MPI.Comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: float
) -> None:
    """Side by side, of which the first ones have no friction: with the same bits, on one rank to the tolerance."""
    folder, given = comm.bcast(tmp_path), {"every": every, "rtol": 1e-7}
    systems = [links(friction=0.0 if k < 8 else 0.1 * k) for k in range(16)]
    Batch(systems, comm=comm).simulate(0.3, output=folder / "whole.h5", **given)
    for name in ("same", "other"):
        stop = disturbed(comm, monkeypatch, 5, lambda: signal.raise_signal(signal.SIGTERM), CopiesStepper)
        with stop, pytest.raises(InterruptionError):
            Batch(systems, comm=comm).simulate(0.3, output=folder / f"{name}.h5", signals=True, **given)
    mpimbs.restart(folder / "same.checkpoint.h5", comm)
    if comm.rank == 0:
        mpimbs.restart(folder / "other.checkpoint.h5", MPI.COMM_SELF)
        assert not differing(folder / "whole.h5", folder / "same.h5")
        found, expected = (mpimbs.load(folder / f"{name}.h5").q for name in ("other", "whole"))
        assert_close("q", found, expected, "adaptive steps", comm=MPI.COMM_SELF)


@alone
def test_friction_of_robots(tmp_path: Path) -> None:
    """Sliding joints decelerate as MuJoCo's do; speeds up to which it is viscous, and off, as they are told."""
    mujoco = pytest.importorskip("mujoco")
    path = tmp_path / "rubs.xml"
    path.write_text(
        """<mujoco><option gravity="0 0 0"/><worldbody>
        <body name="a"><joint name="turn" axis="0 1 0" frictionloss="0.4"/>
        <inertial pos="0.3 0 0.1" mass="1" diaginertia="0.1 0.1 0.1"/>
        <body name="b" pos="0.5 0 0"><joint name="slide" type="slide" axis="1 0 0" frictionloss="1.2" damping="0.3"/>
        <inertial pos="0.3 0.1 0" mass="1" diaginertia="0.1 0.1 0.1"/></body></body>
        <body name="c"><joint name="ball" type="ball" frictionloss="1"/>
        <inertial pos="0 0 0.1" mass="1" diaginertia="0.1 0.1 0.1"/></body></worldbody></mujoco>""",
        encoding="utf-8",
    )
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    data.qvel[:2] = 2.0, -1.5
    mujoco.mj_forward(model, data)
    system = mpimbs.read(path)
    assert system.contents.left_out == ("left out: friction of joint: ball",)
    with closing(Dynamics(system)) as dynamics:
        found = dynamics.accelerations(data.qpos, data.qvel)
    assert_close("udot", found[:2], data.qacc[:2], "imported")
    assert mpimbs.read(path, friction=0.02).contents.body(0).joint.friction_speed == (0.02,)
    off = mpimbs.read(f"{path}:friction=off")
    assert off.contents.left_out == ("left out: friction of joint: turn, slide, ball",) and off.contents.body(
        0
    ).joint.friction == (0.0,)
    for wrong in ("on", "-1", "0"):
        with pytest.raises(InputError, match=f"unknown treatment of friction '{wrong}'"):
            mpimbs.read(path, friction=wrong)
