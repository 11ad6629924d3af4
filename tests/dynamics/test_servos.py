"""Servos of joints, which have a range, and friction: by hand, against MuJoCo, in runs, in implicit steps, at rest."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import mpimbs
from mpimbs import Dynamics, InputError, System, simulate
from mpimbs.base.errors import InterruptionError
from mpimbs.model import Joint, read_system, system_from_text, system_text, write_system
from run.interruptions import signalled
from run.motions import alike_over_ranks_and_lanes
from tolerances import assert_close

alone = pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="one process does all of it")
BODY = {"mass": 1.0, "inertia": (0.1, 0.1, 0.1, 0, 0, 0), "center_of_mass": (0.5, 0.0, 0.0)}
SERVO = {
    "servo_stiffness": 50.0, "servo_damping": 4.0, "servo_torque": -25.0, "servo_least": -9.0, "servo_most": 6.0
}  # fmt: skip
INERTIA, WEIGHT = 0.1 + 0.25, 9.81 * 0.5  # about the hinge, kg m^2; N m


def arm(**joint: Any) -> System:
    system = System(name="arm", gravity=(0.0, 0.0, -9.81))
    system.add(name="arm", **BODY, joint={"type": "revolute", "axis": (0, 1, 0)} | SERVO | joint)
    return system


@pytest.mark.parametrize(
    ("q", "u", "force"),
    [(-0.5, 0.0, 0.0), (-0.4, 0.5, -7.0), (0.0, 0.0, -9.0), (-0.7, 0.0, 6.0), (-0.7, 1.5, 4.0), (-0.4, -9.0, 6.0)],
)
@alone
def test_the_law(q: float, u: float, force: float) -> None:
    """By hand: of a pendulum, whose inertia and weight are known; the loads that pass the joint have it too."""
    with closing(Dynamics(arm())) as dynamics:
        assert_close("udot", dynamics.accelerations([q], [u]), [(force + WEIGHT * np.cos(q)) / INERTIA], "dense")
        assert_close("tau", dynamics.inverse_dynamics([q], [u], [0.0]), [-force - WEIGHT * np.cos(q)], "dense")
        assert_close("load", dynamics.joint_loads([q], [u])[0, 1], force, "dense", scale=30.0)
        assert not dynamics.divided.external.any  # all of it is compiled


@pytest.mark.parametrize("integrator", ["dopri5", "rosenbrock4"])
@alone
def test_it_holds_what_it_can_and_keeps_its_energy(integrator: str) -> None:
    """It comes to rest where it carries the weight; one that is too weak is overcome."""
    result = simulate(arm(q=1.0), 6.0, rtol=1e-8, integrator=integrator)
    q = float(result["q"][-1][0])
    assert 50.0 * (-0.5 - q) == pytest.approx(-WEIGHT * np.cos(q), rel=1e-6)
    assert result.energy_change < 1e-6 and float(result["work"][-1]) > 1.0
    weak = simulate(arm(q=0.5, servo_least=-1.0, servo_most=1.0), 3.0, rtol=1e-8, integrator=integrator)
    assert float(weak["q"][-1][0]) > 1.0 and weak.energy_change < 1e-6


@alone
def test_stiff_servos_are_taken_by_implicit_steps() -> None:
    """Held by one of 1e6 N m/rad, or by the end of its range, it takes steps as without one that is stiff."""
    stiff = arm(servo_stiffness=1e6, servo_damping=1e4, servo_torque=0.0, servo_least=-1e3, servo_most=1e3)
    held = simulate(stiff, 2.0, rtol=1e-5, integrator="rosenbrock")
    explicit = simulate(stiff, 0.01, rtol=1e-5)
    assert held.steps < 500 and explicit.steps / 0.01 > 20 * held.steps / 2.0
    assert float(held["q"][-1][0]) == pytest.approx(WEIGHT / 1e6, rel=1e-6)
    falls = {"servo_stiffness": 1e6, "servo_damping": 1e4, "servo_torque": 0.0, "servo_least": -1.0, "servo_most": 1.0}
    pushed = {"servo_stiffness": 0.0, "servo_damping": 0.0, "servo_torque": -1.0}
    fallen = [simulate(arm(**one), 0.5, rtol=1e-8, integrator="rosenbrock4") for one in (falls, falls | pushed)]
    assert fallen[0].steps < 1.5 * fallen[1].steps
    assert float(fallen[0]["q"][-1][0]) == pytest.approx(float(fallen[1]["q"][-1][0]), rel=1e-5)


@alone
def test_equilibrium_and_modes() -> None:
    """Within its range it is a spring; at an end of it a torque, and the pendulum hangs elsewhere."""
    (q,) = mpimbs.settle(arm())
    assert 50.0 * (-0.5 - q) == pytest.approx(-WEIGHT * np.cos(q), rel=1e-8)
    assert mpimbs.modes(arm(), [q]).squares[0] == pytest.approx((50.0 + WEIGHT * np.sin(q)) / INERTIA, rel=1e-8)
    weak = arm(servo_least=-1.0)
    (q,) = mpimbs.settle(weak, [1.0])
    assert WEIGHT * np.cos(q) == pytest.approx(1.0, rel=1e-8)
    assert mpimbs.modes(weak, [q]).squares[0] == pytest.approx(WEIGHT * np.sin(q) / INERTIA, rel=1e-8)


@pytest.mark.parametrize("torque", [-25.0, [[0.0, -25.0], [0.2, 25.0], [0.3, 0.0]]])
def test_copies_in_lanes_and_runs_over_ranks(comm: MPI.Comm, torque: Any) -> None:
    """Eight links that rub, whose servos come to their ends: the same on all ranks, cut or not, and side by side."""
    system = System(name="links", gravity=(0.0, 0.0, -9.81))
    servo = SERVO | {"servo_torque": torque, "friction": 0.5, "friction_speed": 0.1}
    joint = Joint(position=(1.0, 0.0, 0.0), type="revolute", axis=(0, 1, 0), **servo)
    system.repeat(8, mpimbs.Body(name="link", **BODY, joint=joint))
    alone = alike_over_ranks_and_lanes(system, comm)
    assert alone.energy_change < 1e-6


def test_a_run_goes_on_without_being_told(comm: MPI.Comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By implicit steps, whose matrix knows which servos are at their ends: with the same bits."""
    folder = comm.bcast(tmp_path)
    system = system_from_text(system_text(arm(q=1.0, servo_torque=[[0.0, -25.0], [0.2, 25.0]])), "servo")
    part = comm.Split(0 if comm.rank == 0 else MPI.UNDEFINED)
    if comm.rank:
        return
    given = {"every": 0.01, "rtol": 1e-6, "integrator": "rosenbrock4"}
    expected = simulate(system, 0.4, part, **given)
    stop = signalled(part, monkeypatch, 12, signal.SIGTERM)
    with stop, pytest.raises(InterruptionError):
        simulate(system, 0.4, part, output=folder / "out.h5", signals=True, **given)
    assert mpimbs.restart(folder / "out.checkpoint.h5", part).status == "complete"
    assert np.array_equal(mpimbs.load(folder / "out.h5").q, expected.q)
    part.Free()


@alone
def test_text_and_units(tmp_path: Path) -> None:
    """They come back from a file, without ends and over time, too, and degrees are degrees."""
    system = System(name="u")
    servo = {"servo_torque": [[0.0, 1.0, 2.0], [1.0, 3.0, 4.0]], "servo_stiffness": 3.0, "servo_most": [np.inf, 7.0]}
    system.add(name="a", **BODY, joint={"type": "universal"} | servo)
    write_system(system, tmp_path / "u.toml")
    joint = read_system(tmp_path / "u.toml").contents.body(0).joint
    assert joint == system.contents.body(0).joint and joint.servo_least == (-np.inf, -np.inf)
    text = '[units]\nangle = "deg"\ntime = "ms"\n[[body]]\nname = "a"\nmass = 1\ninertia = [1, 1, 1, 0, 0, 0]\n'
    text += 'joint = { type = "revolute", servo_stiffness = 2.0, servo_torque = [[0, 1], [1000, 2]] }\n'
    read = system_from_text(text, "degrees").contents.body(0).joint
    assert read.servo_stiffness == pytest.approx((2.0 * 180 / np.pi,))
    assert callable(read.servo_torque) and read.servo_torque(0.5) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("joint", "told"),
    [
        ({"type": "spherical", "servo_stiffness": 1.0}, "servo_stiffness has no meaning for a spherical joint"),
        ({"type": "free", "servo_torque": [[0.0] * 7]}, "servo_torque has no meaning for a free joint"),
        ({"type": "revolute", "friction": 1.0}, "friction_speed is missing"),
        ({"type": "revolute", "servo_damping": -1.0}, "servo_damping must not be negative"),
        ({"type": "revolute", "servo_least": 1.0, "servo_most": 0.5}, "servo_least must not be above servo_most"),
        ({"type": "revolute", "servo_most": -np.inf}, "servo_most must be a finite number"),
        ({"type": "revolute", "servo_torque": 1.0, "motion": [[0, 0], [1, 1]]}, "follows a motion"),
    ],
)
@alone
def test_what_makes_no_sense_is_refused(joint: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Joint(**joint)


@alone
def test_functions_that_fail_are_named() -> None:
    with pytest.raises(mpimbs.base.errors.SimulationError, match="servo_torque of body 'arm' is not finite"):
        simulate(arm(servo_torque=lambda t: np.nan), 0.1)
