"""Tendons over joints of MJCF: springs, dampers, actuators and their ranges as in MuJoCo; equalities; what is told."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import mpimbs
from mpimbs import Dynamics, simulate
from mpimbs.model import system_from_text, system_text
from tolerances import assert_close

mujoco = pytest.importorskip("mujoco")
pytestmark = pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="one process does all of it")
LINK = '<inertial pos="0.2 0 0.05" mass="0.5" diaginertia="0.02 0.03 0.02"/>'
HAND = """<mujoco><option gravity="0 1 -9.81"><flag constraint="{constraint}"/></option><worldbody>
<body name="palm"><joint name="turn" axis="0 0 1" ref="0.2"/>{link}
<body name="a" pos="0.3 0 0"><joint name="a" axis="0 1 0"/>{link}
<body name="b" pos="0.3 0 0"><joint name="b" axis="0 1 0" springref="0.1" stiffness="2"/>{link}</body></body>
<body name="c" pos="0 0.3 0"><joint name="c" type="slide" axis="1 0 0"/>{link}</body>
<body name="d" pos="0 0 0.3"><joint name="d1" axis="1 0 0"/><joint name="d2" axis="0 1 0"/>{link}</body>
</body></worldbody>
<tendon><fixed name="bend" stiffness="3" damping="0.4" springlength="0.15">
<joint joint="a" coef="0.5"/><joint joint="b" coef="-1"/></fixed>
<fixed name="all"><joint joint="turn" coef="1.5"/><joint joint="c" coef="2"/><joint joint="b" coef="0.3"/></fixed>
<fixed name="free"><joint joint="a" coef="1"/></fixed>{more}</tendon>
<actuator>{actuators}</actuator>{equality}</mujoco>"""
ACTUATORS = """<general name="pull" tendon="all" gear="1.3" gainprm="4" biastype="affine" biasprm="0.5 -6 -0.7"
 forcelimited="true" forcerange="-2 3" ctrllimited="true" ctrlrange="-1 1"/>
<motor name="motor" tendon="free" gear="-2" ctrllimited="true" ctrlrange="-1 1"/>
<position name="hold" tendon="bend" kp="5" kv="0.3"/>"""
CONTROLS = {"pull": 0.7, "motor": 0.4, "hold": -0.2}


def written(path: Path, **given: str) -> Path:
    fields = {"constraint": "disable", "link": LINK, "more": "", "actuators": "", "equality": ""} | given
    path.write_text(HAND.format(**fields), encoding="utf-8")
    return path


def test_springs_dampers_and_actuators(tmp_path: Path) -> None:
    """In random states, in which ranges are reached at both ends, or at none."""
    more = '<fixed name="two" stiffness="1"><joint joint="d1" coef="2"/><joint joint="d2" coef="-0.5"/></fixed>'
    path = written(tmp_path / "hand.xml", actuators=ACTUATORS, more=more)  # whose joints are not gathered to one, then
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    data.ctrl[:] = [CONTROLS[model.actuator(k).name] for k in range(model.nu)]
    system = mpimbs.read(path, controls=CONTROLS)
    assert (
        set(system.contents.loads.tendons) == {"bend", "pull", "motor", "hold", "two"} and not system.contents.left_out
    )
    random, ends = np.random.default_rng(5), set()
    with closing(Dynamics(system)) as dynamics:
        for _ in range(12):
            data.qpos[:], data.qvel[:] = random.uniform(-1, 1, model.nq), random.uniform(-1, 1, model.nv)
            mujoco.mj_forward(model, data)
            ends.add(float(data.actuator_force[0]) if data.actuator_force[0] in (-2.0, 3.0) else 0.0)
            found = dynamics.accelerations(data.qpos, data.qvel)
            assert_close("udot", found, data.qacc, "imported", scale=float(abs(data.qacc).max()))
    assert ends == {-2.0, 0.0, 3.0}
    assert system_from_text(system_text(system), "hand").contents.loads.tendons == system.contents.loads.tendons


def test_a_run_beside_mujoco(tmp_path: Path) -> None:
    """Over a second, with a control over time."""
    path = written(tmp_path / "hand.xml", actuators=ACTUATORS)
    rows = [[0.0, 0.0], [0.5, 0.6], [1.0, -0.4]]
    result = simulate(mpimbs.read(path, controls=CONTROLS | {"hold": rows}), 1.0, rtol=1e-9)
    model = mujoco.MjModel.from_xml_path(str(path))
    model.opt.timestep, model.opt.integrator = 1e-4, mujoco.mjtIntegrator.mjINT_RK4
    data = mujoco.MjData(model)
    for _ in range(10_000):
        controls = CONTROLS | {"hold": np.interp(data.time, *np.transpose(rows))}
        data.ctrl[:] = [controls[model.actuator(k).name] for k in range(model.nu)]
        mujoco.mj_step(model, data)
    assert_close("q", np.asarray(result["q"])[-1], data.qpos, "adaptive steps")
    assert result.energy_change < 1e-6


LAGGING = """<general name="slow" joint="a" gainprm="1.5" dyntype="filter" dynprm="0.1" ctrllimited="true"
 ctrlrange="-0.5 0.5"/><general name="fast" joint="b" gainprm="0.8" dyntype="filterexact" dynprm="0.02"/>
<general name="other" joint="b" gainprm="0.3" dyntype="filter" dynprm="0.2"/>
<general name="first" joint="d1" dyntype="filter" dynprm="0.05"/>
<general name="second" joint="d2" dyntype="filter" dynprm="0.05"/>
<general name="pull" tendon="all" gainprm="2" biastype="affine" biasprm="0 -6 -0.7" dyntype="filter" dynprm="0.3"
 forcelimited="true" forcerange="-0.2 0.3"/>"""
SLOWLY = {"slow": [[0.0, 0.0], [0.5, 1.0], [1.0, -1.0]], "fast": 0.6, "other": -0.7, "first": 0.2, "second": -0.3}


def test_actuators_that_follow_with_a_lag(tmp_path: Path) -> None:
    """Beside MuJoCo for a second: of numbers and rows, within ranges, several on a joint, on gathered joints."""
    key = '<keyframe><key name="pulled" act="0 0 0.4 0 0 0.1"/></keyframe>'
    path = written(tmp_path / "slow.xml", actuators=LAGGING, equality=key)
    system = mpimbs.read(path, controls=SLOWLY | {"pull": 0.5}, keyframe="pulled")
    assert system.contents.left_out == () and system.n_bodies == 5
    result = simulate(system, 1.0, rtol=1e-9)
    model = mujoco.MjModel.from_xml_path(str(path))
    model.opt.timestep, model.opt.integrator = 1e-4, mujoco.mjtIntegrator.mjINT_RK4
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    for _ in range(10_000):
        slow = np.interp(data.time + 5e-5, *np.transpose(SLOWLY["slow"]))  # which stands still for a step
        controls = SLOWLY | {"slow": slow, "pull": 0.5}
        data.ctrl[:] = [controls[model.actuator(k).name] for k in range(model.nu)]
        mujoco.mj_step(model, data)
    assert_close("q", np.asarray(result["q"])[-1], data.qpos, "adaptive steps")
    other = mpimbs.read(path, controls={"fast": lambda t: t}).contents.left_out
    assert "left out: actuator with a state of its own, whose control is a function: fast" in other


def test_equalities_hold_as_softly_as_mujoco_does(tmp_path: Path) -> None:
    """A tendon alone, against a spring, and two to one another: they come to where they are held, as MuJoCo's do."""
    equality = '<equality><tendon tendon1="bend" polycoef="0.1 0 0 0 0"/>'
    equality += '<tendon tendon1="all" tendon2="free" polycoef="-0.2 0.7 0 0 0"/></equality>'
    path = written(tmp_path / "held.xml", equality=equality, constraint="enable")
    text = path.read_text().replace('gravity="0 1 -9.81"', 'gravity="0 0 0"')
    path.write_text(text.replace("<joint name", '<joint damping="0.5" name'), encoding="utf-8")
    system = mpimbs.read(path)
    assert system.contents.left_out == ()
    turn, a, b, c = np.asarray(simulate(system, 20.0, integrator="rosenbrock4", rtol=1e-6)["q"])[-1][:4]
    assert 0.5 * a - b == pytest.approx(0.1, abs=0.01)  # not at 0.15, where the spring has it
    begin = 1.5 * np.radians(0.2)  # of the tendon in the file's position
    assert 1.5 * turn + 2.0 * c + 0.3 * b == pytest.approx(begin - 0.2 + 0.7 * a, abs=1e-6)  # which nothing pulls
    model = mujoco.MjModel.from_xml_path(str(path))
    model.opt.timestep = 1e-3
    data = mujoco.MjData(model)
    for _ in range(20_000):
        mujoco.mj_step(model, data)
    assert abs(data.qpos[:4] - [turn, a, b, c]).max() < 0.01  # whose stiffness depends on how far they are off


def test_limits_and_slack(tmp_path: Path) -> None:
    """Pulled against a limit a tendon comes to rest where MuJoCo's does; a spring with slack pulls beyond it alone."""
    more = '<fixed name="tight" limited="true" range="-0.3 0.2"><joint joint="turn" coef="1.5"/>'
    more += '<joint joint="c" coef="2"/></fixed>'
    more += (
        '<fixed name="loose" stiffness="4" damping="0.3" springlength="-0.2 0.1"><joint joint="a" coef="1"/></fixed>'
    )
    motors = '<motor name="pull" tendon="all" gear="1"/>'
    path = written(tmp_path / "hand.xml", more=more, actuators=motors, constraint="enable")
    text = path.read_text().replace('gravity="0 1 -9.81"', 'gravity="0 0 0"')
    path.write_text(text.replace("<joint name", '<joint damping="0.5" name'), encoding="utf-8")
    system = mpimbs.read(path, controls={"pull": 3.0})
    assert system.contents.left_out == () and {"tight", "loose"} < set(system.contents.loads.tendons)
    result = simulate(system, 20.0, integrator="rosenbrock4", rtol=1e-6)
    ours = np.asarray(result["q"])[-1][:4]
    model = mujoco.MjModel.from_xml_path(str(path))
    model.opt.timestep = 1e-3
    data = mujoco.MjData(model)
    data.ctrl[:] = 3.0
    for _ in range(20_000):
        mujoco.mj_step(model, data)
    assert abs(data.qpos[:4] - ours).max() < 0.01  # whose stiffness depends on how far they are beyond
    assert 0.2 < 1.5 * ours[0] + 2.0 * ours[3] < 0.22
    off = mpimbs.read(path, limits="off").contents
    assert off.left_out == ("left out: limit of tendon: tight",) and "loose" in off.loads.tendons
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT
    data.ctrl[:] = 0.0
    random = np.random.default_rng(6)
    with closing(Dynamics(mpimbs.read(path, limits="off"))) as dynamics:
        for a in (-0.5, 0.0, 0.4):  # below, in and above the slack
            data.qpos[:], data.qvel[:] = random.uniform(-1, 1, model.nq), random.uniform(-1, 1, model.nv)
            data.qpos[1] = a
            mujoco.mj_forward(model, data)
            found = dynamics.accelerations(data.qpos, data.qvel)
            assert_close("udot", found, data.qacc, "imported", scale=float(abs(data.qacc).max()))


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    """Tendons through space, and with friction."""
    more = '<spatial name="rope"><site site="s1"/><site site="s2"/></spatial>'
    more += '<fixed name="tight" frictionloss="0.1"><joint joint="a" coef="1"/></fixed>'
    site = '<site name="s{}" pos="0 0 {}"/>'
    path = written(tmp_path / "hand.xml", more=more, constraint="enable")
    text = path.read_text().replace('<body name="palm">', site.format(1, 1) + '<body name="palm">' + site.format(2, 0))
    path.write_text(text, encoding="utf-8")
    told = mpimbs.read(path).contents.left_out
    assert told == ("left out: tendon through space: rope", "left out: friction of tendon: tight")
