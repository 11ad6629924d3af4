"""Robots from URDF and MJCF files: accelerations of MuJoCo and Pinocchio, what is drawn and left out, bad files."""

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import mpimbs
from driver_modules import driver
from mpimbs.base.errors import InputError
from mpimbs.closure.report import loop_report
from mpimbs.dynamics import Dynamics
from mpimbs.model import (
    Gear,
    Loop,
    System,
    read_robot,
    read_system,
    system_from,
    system_from_text,
    system_text,
    write_system,
)
from mpimbs.model.robots.reading import robot_in
from mpimbs.parallel.agreement import read_once
from mpimbs.parts.kinematics import kinematics
from mpimbs.parts.subchain import Subchain
from mpimbs.run.run import simulate
from tolerances import TOLERANCE, assert_close

alone = pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="rank 0 reads robots, and it alone")

MJCF = """
<mujoco model="zoo">
  <compiler angle="degree"/>
  <option gravity="0 1 -9"/>
  <default><geom density="700"/><joint armature="0.01"/><default class="soft"><joint damping="0.3"/></default></default>
  <asset><material name="red" rgba="1 0 0 1"/></asset>
  <worldbody>
    <geom type="plane" size="1 1 1"/>
    <body name="cart" pos="0 0 2">
      <joint name="x" type="slide" axis="1 0 0"/> <joint name="z" type="slide" axis="0 0 1" ref="0.5"/>
      <joint name="pitch" axis="0 1 0" ref="20" pos="0.1 0 0" stiffness="3" springref="7"/>
      <geom type="box" size="0.2 0.1 0.05" material="red"/>
      <body name="hip" pos="0 0.1 -0.1" quat="0.9 0.1 0.2 0.3" childclass="soft">
        <joint name="hip_x" axis="1 0 0" armature="0"/> <joint name="hip_z" axis="0 0 1" ref="-15" armature="0"/>
        <joint name="hip_y" axis="0 1 0" armature="0"/>
        <geom type="capsule" size="0.04" fromto="0 0 0 0.1 0 -0.4"/>
        <body name="skew" pos="0.1 0 -0.4">
          <joint name="skew_1" axis="1 2 0" pos="0 0 0.05" armature="0"/>
          <joint name="skew_2" axis="0 1 1" armature="0"/>
          <geom type="cylinder" size="0.03 0.2" pos="0 0.2 -0.2"/>
        </body>
      </body>
      <body name="telescope" pos="0 -0.2 0">
        <joint name="turn" axis="0 0 1" armature="0"/> <joint name="reach" type="slide" axis="1 0 0" armature="0"/>
        <geom type="sphere" size="0.1" pos="0.2 0 0"/>
        <body name="plate" pos="0.1 0.1 0"><geom type="ellipsoid" size="0.1 0.1 0.02"/>
          <body name="ball" pos="0 0.1 0"><joint name="ball" type="ball" stiffness="2" damping="0.1"/>
            <geom type="capsule" size="0.02 0.1" pos="0 0 0.2"/></body>
          <body name="screw" pos="0 -0.1 0"><joint name="slip" type="slide"/> <joint name="spin"/>
            <inertial pos="0.1 0 0" quat="0.5 0.5 0.5 0.5" mass="2" diaginertia="0.1 0.2 0.25"/></body>
        </body>
      </body>
    </body>
    <body name="drone" pos="1 2 3" quat="0.5 0.5 0.5 0.5"><freejoint name="fly"/>
      <geom type="box" size="0.1 0.2 0.3" pos="0.1 0 0"/>
      <replicate count="2" offset="0.2 0 0"><body name="rotor"><joint damping="0.1" range="0 10" limited="true"/>
        <geom size="0.05" pos="0.1 0 0.1"/></body></replicate>
    </body>
  </worldbody>
  <equality>
    <connect name="pin" body1="skew" body2="ball" anchor="0.1 0.2 0.3"/>
    <weld name="bolt" body1="cart" body2="plate"/>
    <weld name="glue" body1="drone" active="false" relpose="1 2 3 0.5 0.5 0.5 0.5"/>
    <joint name="gear" joint1="turn" joint2="reach"/>
  </equality>
  <actuator><motor name="push" joint="x"/></actuator>
</mujoco>
"""

URDF = """
<robot name="arm">
  <material name="blue"><color rgba="0 0 1 1"/></material>
  <link name="base"><inertial><mass value="5"/>
    <inertia ixx="0.2" iyy="0.2" izz="0.2" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="column"><inertial><origin xyz="0 0.1 0.2" rpy="0.1 0.2 0.3"/><mass value="3"/>
    <inertia ixx="0.1" iyy="0.2" izz="0.15" ixy="0.01" ixz="0.02" iyz="-0.01"/></inertial>
    <visual><origin xyz="0 0 0.2" rpy="0 1.5707963267948966 0"/><material name="blue"/>
      <geometry><cylinder radius="0.1" length="0.4"/></geometry></visual>
    <visual><geometry><mesh filename="package://parts/none.stl" scale="1 2 3"/></geometry></visual>
    <collision><geometry><sphere radius="1"/></geometry></collision></link>
  <link name="wrist_roll"/> <link name="wrist_pitch"/>
  <link name="hand"><inertial><origin xyz="0 0 0.1"/><mass value="1"/>
    <inertia ixx="0.01" iyy="0.01" izz="0.002" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="tool"><inertial><origin xyz="0.3 0 0"/><mass value="0.2"/>
    <inertia ixx="0" iyy="0" izz="0" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="finger"><inertial><origin xyz="0 0.02 0"/><mass value="0.1"/>
    <inertia ixx="1e-5" iyy="1e-5" izz="1e-5" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="antenna"/>
  <joint name="slew" type="continuous"><origin xyz="0 0 0.1" rpy="0.3 0 0"/><parent link="base"/><child link="column"/>
    <axis xyz="0 0 2"/><dynamics damping="0.5" friction="0.1"/></joint>
  <joint name="roll" type="revolute"><origin xyz="0.1 0 0.5" rpy="0 0.4 0"/><parent link="column"/>
    <child link="wrist_roll"/><axis xyz="1 0 0"/><limit lower="-1" upper="1" effort="1" velocity="1"/></joint>
  <joint name="pitch" type="continuous"><parent link="wrist_roll"/><child link="wrist_pitch"/>
    <axis xyz="0 1 0"/></joint>
  <joint name="yaw" type="continuous"><origin xyz="0 0 0.05" rpy="0 0 0.7"/><parent link="wrist_pitch"/>
    <child link="hand"/><axis xyz="0 0 1"/></joint>
  <joint name="flange" type="fixed"><origin xyz="0 0 0.2" rpy="1 2 3"/><parent link="hand"/><child link="tool"/></joint>
  <joint name="grip" type="prismatic"><parent link="tool"/><child link="finger"/><axis xyz="0 1 0"/>
    <mimic joint="yaw"/><limit lower="0" upper="1" effort="1" velocity="1"/></joint>
  <joint name="wave" type="continuous"><parent link="hand"/><child link="antenna"/></joint>
</robot>
"""


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    pytest.importorskip("mujoco")
    (tmp_path / "zoo.xml").write_text(MJCF)
    return tmp_path / "zoo.xml"


@pytest.fixture
def arm(tmp_path: Path) -> Path:
    (tmp_path / "arm.urdf").write_text(URDF)
    return tmp_path / "arm.urdf"


@alone
def test_mjcf_accelerates_as_in_mujoco(zoo: Path) -> None:
    for seed in range(4):
        assert driver("imported_robots").mujoco_difference(zoo, seed).difference < TOLERANCE["imported"][0]


@alone
@pytest.mark.parametrize("free", [False, True])
def test_urdf_accelerates_as_in_pinocchio(arm: Path, free: bool) -> None:
    arm.write_text(URDF.replace('name="wave" type="continuous"', 'name="wave" type="fixed"'))  # it has no mass
    for seed in range(4):
        assert driver("imported_robots").pinocchio_difference(arm, free, seed).difference < TOLERANCE["imported"][0]


SPHERICAL = """
<robot name="doll" xmlns:drake="http://drake.mit.edu"><link name="stand"/>
  <link name="arm"><inertial><origin xyz="0.1 0 -0.3" rpy="0.2 0 0.1"/><mass value="2"/>
    <inertia ixx="0.03" iyy="0.04" izz="0.02" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <link name="hand"><inertial><origin xyz="0 0 -0.1"/><mass value="0.5"/>
    <inertia ixx="0.003" iyy="0.004" izz="0.002" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="shoulder" type="spherical"><parent link="stand"/><child link="arm"/><origin xyz="0 0 1" rpy="1 2 3"/>
    <dynamics damping="0.3"/></joint>
  <joint name="wrist" type="spherical"><parent link="arm"/><child link="hand"/><origin xyz="0 0.1 -0.6"/></joint>
</robot>
"""


@alone
def test_spherical_joints_of_dialects_accelerate_as_in_mujoco(tmp_path: Path) -> None:
    """As Bullet, Isaac and MuJoCo spell them; as Drake does, they are the same."""
    pytest.importorskip("mujoco")
    path = tmp_path / "doll.urdf"
    path.write_text(SPHERICAL)
    for seed in range(4):
        assert driver("imported_robots").mujoco_difference(path, seed).difference < TOLERANCE["imported"][0]
    found = read_robot(path)
    assert not found.contents.left_out and found.contents.nu == 6
    path.write_text(SPHERICAL.replace('"spherical"', '"ball"').replace("joint", "drake:joint"))
    assert system_text(read_robot(path)) == system_text(found) and not read_robot(path).contents.left_out


TURNTABLE = """<mujoco model="a turntable without mass of its own"><worldbody>
 <body name="table"><joint name="turn" axis="0 0 1" armature="0.2" damping="0.1"/>
  <body name="plate" pos="0.2 0 0.1"><geom type="box" size=".2 .1 .05" mass="4"/></body>
  <body name="arm" pos="0 0 0.2"><joint name="shoulder" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .5 0 0"
   size=".03" mass="1"/>
   <body name="load" pos=".5 0 0"><joint name="wrist" axis="0 1 0"/>
    <geom type="box" size=".05 .05 .05" mass="2"/></body>
  </body></body></worldbody></mujoco>"""
STAGES = """<mujoco model="a base of two parts on three joints"><worldbody>
 <body name="base"><joint name="x" type="slide" axis="1 0 0"/><joint name="y" type="slide" axis="0 1 0"/>
  <joint name="yaw" axis="0 0 1"/>
  <body name="column" pos="-.1 0 .5"><geom type="cylinder" size=".1 .2" mass="30"/>
   <body name="lift" pos="0 0 .3"><joint name="up" type="slide" axis="0 0 1"/>
    <geom type="cylinder" size=".1 .2" mass="20"/></body></body>
  <body name="wheels" pos="0 0 .1"><geom type="box" size=".3 .2 .1" mass="100"/></body></body></worldbody></mujoco>"""


@alone
@pytest.mark.parametrize(("text", "speeds", "mass"), [(TURNTABLE, 3, 7.0), (STAGES, 4, 150.0)], ids=["table", "stages"])
def test_a_link_without_mass_at_the_top(tmp_path: Path, text: str, speeds: int, mass: float) -> None:
    """Its joints stand once, and no link is lost."""
    (tmp_path / "robot.xml").write_text(text)
    system = system_from(tmp_path / "robot.xml")
    assert system.nu == speeds and sum(body.mass for body in system.contents.bodies()) == pytest.approx(mass, rel=1e-12)
    pytest.importorskip("mujoco")
    for seed in range(3):
        assert (
            driver("imported_robots").mujoco_difference(tmp_path / "robot.xml", seed).difference
            < TOLERANCE["imported"][0]
        )


def read_text(tmp_path: Path, body: str) -> System:
    """The system of an MJCF text."""
    pytest.importorskip("mujoco")
    (tmp_path / "robot.xml").write_text(f"<mujoco>{body}</mujoco>")
    return system_from(tmp_path / "robot.xml")


ARMS = """<default><geom type="capsule" fromto="0 0 0 1 0 0" size=".05"/><joint axis="0 1 0"/></default><worldbody>
 <body name="a"><joint name="joint2"/><geom mass="1"/></body>
 <body name="b" pos="0 1 0"><joint name="jb"/><geom mass="2"/></body>
 <body name="c" pos="0 2 0"><joint/><geom mass="3"/></body>
</worldbody><equality><joint name="tie" joint1="joint2" joint2="jb" polycoef="0 2 0 0 0"/></equality>"""


@alone
def test_what_a_file_switches_off_is_told(tmp_path: Path) -> None:
    for flag in ("equality", "constraint"):
        assert not read_text(tmp_path, f'<option><flag {flag}="disable"/></option>{ARMS}').contents.loops
        assert "the file switches all off" in " ".join(read_robot(tmp_path / "robot.xml").contents.left_out)


@alone
def test_a_name_is_that_of_one_joint(tmp_path: Path) -> None:
    """An unnamed joint, the third, beside one that is called joint2."""
    system = read_text(tmp_path, ARMS)
    (gear,) = system.contents.loops
    assert gear.bodies == ("b", "a") and isinstance(gear, Gear) and gear.ratio == 2.0


@alone
def test_a_weld_is_closed_as_it_lies_and_holds_what_it_holds(tmp_path: Path) -> None:
    bodies = """<worldbody><body name="a" pos="0 0 1"><joint type="hinge" axis="0 1 0"/>
      <inertial pos="0.1 0 0" mass="1" diaginertia="0.01 0.02 0.02"/></body>
    <body name="b" pos="0.5 0 1" euler="0 0 40"><freejoint/>
      <inertial pos="0 0 0" mass="1" diaginertia="0.01 0.02 0.02"/></body></worldbody>"""
    for torque, kind in (("", "fixed"), ('torquescale="0"', "spherical")):
        weld = f'<equality><weld name="glue" body1="a" body2="b" anchor="0.1 0 0" {torque}/></equality>'
        system = read_text(tmp_path, bodies + weld)
        (loop,) = system.contents.loops
        assert loop.bodies == ("a", "b") and isinstance(loop, Loop) and loop.type == kind
        with closing(Dynamics(system)) as dynamics:
            assert dynamics.loops is not None
            assert dynamics.loops.violations(dynamics.subchain.q, dynamics.subchain.u).max() < 1e-15
        assert loop.positions[1][0] == pytest.approx(0.1)


@alone
def test_what_is_not_taken_from_a_file_is_told(tmp_path: Path) -> None:
    """Armature of a free joint, which MuJoCo has along the world's axes; keyframes; bodies that are captured."""
    text = """<default><joint armature="0.1"/></default><worldbody>
      <body name="base"><joint type="free"/><geom type="box" size=".1 .2 .3"/></body>
      <body name="target" mocap="true"><geom type="sphere" size=".1"/></body></worldbody>
      <keyframe><key name="home" qpos="0 0 1 1 0 0 0"/></keyframe>"""
    system = read_text(tmp_path, text)
    assert not np.any(system.contents.body(0).joint.armature)
    told = " ".join(read_robot(tmp_path / "robot.xml").contents.left_out)
    for part in ("armature of free joint", "keyframe", "motion capture of body"):
        assert part in told


@alone
def test_rotors_of_actuators_are_those_of_mujoco(tmp_path: Path) -> None:
    """Of version 4 on: gear squared times theirs, of each; those of tendons are told."""
    mujoco = pytest.importorskip("mujoco")
    text = """<worldbody><body name="a"><joint name="j" axis="0 1 0" armature="0.1" damping="0.3"/>
    <geom type="capsule" fromto="0 0 0 1 0 0" size=".05" mass="1"/></body></worldbody><actuator>
    <motor joint="j" gear="10" armature="0.01" damping="0.02"/>
    <motor joint="j" gear="-2" armature="0.05"/></actuator>"""
    model = mujoco.MjModel.from_xml_string(f"<mujoco>{text}</mujoco>")
    data = mujoco.MjData(model)
    data.qvel[:] = 1.0
    mujoco.mj_forward(model, data)
    system = read_text(tmp_path, text)
    joint = system.contents.body(0).joint
    assert joint.armature == pytest.approx((0.1 + 100 * 0.01 + 4 * 0.05,))
    assert joint.damping == pytest.approx(-data.qfrc_passive)
    with closing(Dynamics(system)) as dynamics:
        assert_close("udot", dynamics.accelerations(np.zeros(1), np.ones(1)), data.qacc, "imported")


@alone
def test_random_robots_are_as_their_peers_have_them() -> None:
    """More of them by the driver."""
    found = driver("random_robots").main(20)
    assert not found["wrong"]
    assert min(found["counts"][kind, "right"] for kind in ("mjcf", "urdf")) > 5


@alone
def test_elements_that_are_not_read_are_told(arm: Path) -> None:
    more = '<loop_joint name="pin"/><gazebo reference="hand"/><transmission name="t"/></robot>'
    arm.write_text(URDF.replace("</robot>", more).replace("</joint></robot>", "<safety_controller/></joint></robot>"))
    told = set(read_robot(arm).contents.left_out)
    assert {"left out: <loop_joint>: pin", "left out: <gazebo>: hand", "left out: <transmission>: t"} <= told


@alone
def test_joints_of_one_link_are_few_types(zoo: Path) -> None:
    system = read_robot(zoo)
    kinds = {body.name: body.joint.type for body in system.contents.bodies()}
    assert kinds == {
        "x": "prismatic", "z": "prismatic", "cart": "revolute", "hip_x+hip_z": "universal", "hip": "revolute",
        "skew_1": "revolute", "skew": "revolute", "turn": "revolute", "telescope": "prismatic", "plate": "fixed",
        "ball": "spherical", "slip": "prismatic", "screw": "revolute",
        "drone": "free", "rotor0": "revolute", "rotor1": "revolute",
    }  # fmt: skip
    names = ["x", "z", "pitch", "hip_x", "hip_z", "hip_y", "skew_1", "skew_2", "turn", "reach", "ball", "slip", "spin"]
    assert [joint.name for joint in system.contents.coordinates] == [
        *names,
        "fly",
        "joint14",
        "joint15",
    ]  # as in the file
    assert [joint[2:4] for joint in system.contents.coordinates[-3:]] == [(16, 15), (23, 21), (24, 22)]
    assert system.gravity == (0, 1, -9)
    cart = system.contents.body(system.contents.index_of("cart"))
    assert cart.joint.q == pytest.approx(np.radians([20])) and cart.joint.rest == pytest.approx(np.radians([7]))
    assert cart.joint.stiffness == (3,) and cart.joint.armature == (0.01,)
    assert system.contents.body(1).joint.q == (0.5,) and system.contents.body(0).mass == 0
    handed = MJCF.replace('type="slide" axis="0 0 1" ref="0.5"', 'type="slide" axis="0 0 -1"')
    handed = handed.replace('<joint name="slip" type="slide"/> <joint name="spin"/>', '<joint/> <joint type="slide"/>')
    zoo.write_text(handed)  # in the order in which the coordinates of one joint are
    kinds = {body.name: body.joint.type for body in read_robot(zoo).contents.bodies()}
    assert (kinds["cart"], kinds["screw"]) == ("planar", "cylindrical")


@alone
def test_loops_hold_where_mujoco_has_them(zoo: Path) -> None:
    system = read_robot(zoo)
    found = [(loop.name, loop.type, loop.bodies) for loop in system.contents.loops.all]
    assert found == [
        ("pin", "spherical", ("skew", "ball")), ("bolt", "fixed", ("cart", "plate")),
        ("gear", "gear", ("telescope", "turn")), ("glue", "fixed", ("drone", "world")),
    ]  # fmt: skip
    # MuJoCo has closed them in the initial position.
    assert loop_report(system.contents).position_violation.size < TOLERANCE["closed"][0]


GRIPPER = """
<robot name="gripper">
  <link name="palm"/>
  <link name="left"><inertial><origin xyz="0.02 0 0.1"/><mass value="0.3"/>
    <inertia ixx="0.002" iyy="0.002" izz="0.001" ixy="0" ixz="0.0002" iyz="0"/></inertial></link>
  <link name="right"><inertial><origin xyz="0.03 0 0.1"/><mass value="0.2"/>
    <inertia ixx="0.001" iyy="0.0015" izz="0.001" ixy="0" ixz="0" iyz="0.0001"/></inertial></link>
  <link name="tip"><inertial><origin xyz="0 0 0.05"/><mass value="0.1"/>
    <inertia ixx="0.001" iyy="0.001" izz="0.001" ixy="0" ixz="0" iyz="0"/></inertial></link>
  <joint name="close" type="revolute"><parent link="palm"/><child link="left"/><axis xyz="0 1 0"/>
    <limit lower="0" upper="1" effort="1" velocity="1"/></joint>
  <joint name="follow" type="revolute"><origin xyz="0.1 0 0"/><parent link="palm"/><child link="right"/>
    <axis xyz="0 1 0"/><limit lower="-1" upper="0" effort="1" velocity="1"/>
    <mimic joint="close" multiplier="-0.8" offset="0.1"/></joint>
  <joint name="slide" type="prismatic"><origin xyz="0 0 0.2"/><parent link="left"/><child link="tip"/>
    <axis xyz="1 0 1"/><limit lower="0" upper="1" effort="1" velocity="1"/><mimic joint="close" multiplier="0.05"/>
  </joint>
</robot>
"""


@alone
def test_joints_that_mimic_others_accelerate_as_in_pinocchio(tmp_path: Path) -> None:
    pin = pytest.importorskip("pinocchio")
    (tmp_path / "gripper.urdf").write_text(GRIPPER)
    model = pin.buildModelFromXML(GRIPPER, mimic=True)
    data, q, u = model.createData(), np.array([0.3]), np.array([2.0])
    inertia, forces = pin.crba(model, data, q), pin.nonLinearEffects(model, data, q, u)
    expected = -forces[0] / inertia[0, 0]
    system = read_robot(tmp_path / "gripper.urdf")
    ratios, offsets = np.zeros(3), np.zeros(3)
    for name, ratio, offset in (("left", 1.0, 0.0), ("right", -0.8, 0.1), ("tip", 0.05, 0.0)):
        ratios[system.contents.index_of(name)], offsets[system.contents.index_of(name)] = ratio, offset
    with closing(Dynamics(system)) as dynamics:
        found = dynamics.accelerations(ratios * q + offsets, ratios * u)
    assert_close("accelerations", found, ratios * expected, "pinocchio")


def read_robot_text(path: Path, text: str) -> System:
    path.write_text(text)
    return read_robot(path)


@alone
def test_what_gears_take_over(zoo: Path, arm: Path) -> None:
    zoo.write_text(MJCF.replace('joint2="reach"', 'joint2="hip_x" polycoef="0.5 2 0 0 0"'))
    gear = next(loop for loop in read_robot(zoo).contents.loops if isinstance(loop, Gear))
    assert gear.of == "hip_x", "whose joint is not gathered with others, then"
    zoo.write_text(MJCF.replace('joint2="reach"', 'joint2="reach" polycoef="0.5 2 1 0 0"'))
    assert "left out: equality of a joint alone, or not linear: gear" in read_robot(zoo).contents.left_out
    zoo.write_text(MJCF.replace('joint2="reach"', 'joint2="reach" polycoef="0.5 2 0 0 0"'))
    gear = next(loop for loop in read_robot(zoo).contents.loops if isinstance(loop, Gear))
    assert (gear.joint, gear.of, gear.ratio) == ("turn", "telescope", 2.0)
    arm.write_text(URDF.replace('<mimic joint="yaw"/>', '<mimic joint="yow"/>'))
    assert (
        "left out: mimic of what is no joint: grip after yow; did you mean 'yaw'?" in read_robot(arm).contents.left_out
    )
    arm.write_text(URDF.replace('<mimic joint="yaw"/>', '<mimic joint="yaw" multiplier="0" offset="0.2"/>'))
    still = read_robot(arm)
    assert "left out: motion, for it mimics another with multiplier 0, of joint: grip" in still.contents.left_out
    assert still.nu == read_robot_text(arm, URDF).nu - 1
    assert tuple(still.contents.body(still.contents.index_of("finger")).joint.position) == pytest.approx(
        (0.0, 0.2, 0.0), abs=1e-15
    )


@alone
def test_gears_count_from_references(tmp_path: Path) -> None:
    """MuJoCo's y - y0 = c0 + c1 (x - x0), with the references of both joints."""
    text = ARMS.replace('"joint2"/>', '"joint2" ref="0.3"/>', 1).replace('"jb"/>', '"jb" ref="0.2"/>', 1)
    system = read_text(tmp_path, '<compiler angle="radian"/>' + text.replace("0 2 0 0 0", "0.5 2 0 0 0"))
    (gear,) = system.contents.loops
    assert isinstance(gear, Gear) and gear.offset == pytest.approx(0.3 + 0.5 - 2.0 * 0.2, abs=1e-15)


@alone
def test_parts_that_are_no_body_by_themselves_add_up(arm: Path) -> None:
    """Of inertia beyond the triangle inequality, fixed to another at a distance: as in Pinocchio."""
    arm.write_text(
        URDF.replace('name="wave" type="continuous"', 'name="wave" type="fixed"').replace(
            'ixx="0" iyy="0" izz="0"', 'ixx="0.001" iyy="0.001" izz="0.004"'
        )
    )
    assert driver("imported_robots").pinocchio_difference(arm, False, 0).difference < TOLERANCE["imported"][0]


# Inertias that no rigid body has, which peers compute with: a moment above the sum of the others; a link without mass.
ODD = """<robot name="odd"><link name="base"/>
<link name="rod"><inertial><origin xyz="0 0 .2" rpy="1 2 3"/><mass value="1"/>
<inertia ixx="0.01" iyy="0.02" izz="0.05" ixy="0.001" ixz="0" iyz="0"/></inertial></link>
<link name="wheel"><inertial><mass value="0"/>
<inertia ixx="1e-3" iyy="2e-3" izz="2e-3" ixy="0" ixz="0" iyz="0"/></inertial></link>
<link name="tip"><inertial><origin xyz="0 .1 0"/><mass value="0.2"/>
<inertia ixx="1e-3" iyy="2e-3" izz="2e-3" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="hinge" type="continuous"><parent link="base"/><child link="rod"/><axis xyz="0 1 0"/></joint>
<joint name="turn" type="continuous"><parent link="rod"/><child link="wheel"/><origin xyz="0 0 .4"/><axis xyz="1 1 0"/>
</joint><joint name="slide" type="prismatic"><parent link="wheel"/><child link="tip"/><axis xyz="0 0 1"/>
<limit lower="-1" upper="1" effort="1" velocity="1"/></joint></robot>"""


def _matrix(inertia: tuple[float, ...]) -> Any:
    xx, yy, zz, xy, xz, yz = inertia
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


@alone
@pytest.mark.parametrize("free", [False, True])
def test_inertias_of_no_rigid_body_are_taken_as_they_stand(tmp_path: Path, free: bool) -> None:
    """And told, all at once, by how much; a model file keeps that they are."""
    path = tmp_path / "odd.urdf"
    path.write_text(ODD.replace('<link name="base"/>', f'<link name="base">{INERTIAL}</link>') if free else ODD)
    for seed in range(3):
        assert driver("imported_robots").pinocchio_difference(path, free, seed).difference < TOLERANCE["imported"][0]
    system = read_robot(path, free)
    told = r"taken as it stands: inertia of no rigid body: rod \([\d.]+ % beyond\), wheel \(without mass\)"
    assert re.fullmatch(told, system.contents.left_out[0])
    write_system(system, tmp_path / "odd.toml")
    assert read_system(tmp_path / "odd.toml").contents.body(1).inertia == system.contents.body(1).inertia
    mended = read_robot(f"{path}:inertia=repair", free)
    assert mended.contents.left_out[0].startswith("mended: inertia of no rigid body: rod (")
    rod = next(k for k in range(mended.n_bodies) if mended.contents.name_of(k) == "rod")
    low, middle, high = mended.contents.body(rod).principal_moments
    assert high == pytest.approx(low + middle, rel=1e-9)
    before, after = (_matrix(of.contents.body(rod).inertia) for of in (system, mended))
    source, near = np.random.default_rng(5), np.linalg.norm(after - before)
    for _ in range(200):  # of others of rigid bodies none is nearer
        moments, axes = np.linalg.eigh(after + 0.3 * near * (lambda m: m + m.T)(source.uniform(-1, 1, (3, 3))))
        if moments[2] <= moments[0] + moments[1]:
            assert np.linalg.norm(axes @ np.diag(moments) @ axes.T - before) >= near
    with pytest.raises(InputError, match="body 'rod': inertia is of no rigid body"):
        read_robot(path, free, inertia="refuse")
    with pytest.raises(InputError, match="unknown treatment of inertias 'mend'"):
        read_robot(path, inertia="mend")
    with pytest.raises(InputError, match="take it as it stands by `unphysical = true`"):
        System().add(name="rod", mass=1, inertia=(1, 1, 3, 0, 0, 0), joint={"type": "fixed"})


INERTIAL = '<inertial><mass value="2"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
PLAIN = f"""<robot name="plain"><link name="base"/><link name="rod">{INERTIAL}</link>
<joint name="hinge" type="continuous"><parent link="base"/><child link="rod"/><axis xyz="0 1 0"/></joint></robot>"""
UNFORMED = {
    "dashes in comments": PLAIN.replace('<link name="base"/>', '<!-- --- base --- --><link name="base"/>'),
    "a declaration that is not at the begin": "\n<?xml version='1.0'?>" + PLAIN,
    "prefixes that are not declared (xacro)": PLAIN.replace(
        "</robot>", "<gazebo><xacro:note>a:b</xacro:note></gazebo></robot>"
    ),
    "what stands behind </robot>": PLAIN + "\n</robot>",
}


@alone
@pytest.mark.parametrize("what", UNFORMED)
def test_xml_that_others_read_is_read(tmp_path: Path, what: str) -> None:
    path = tmp_path / "r.urdf"
    path.write_text(UNFORMED[what], encoding="utf-8")
    system = read_robot(path)
    assert system.contents.left_out[0] == f"taken as it stands: XML that is not well formed: {what}"
    assert system.nu == 1 and system.contents.body(0).mass == 2
    path.write_text(PLAIN.replace("</link>", "</lnk>"), encoding="utf-8")
    with pytest.raises(InputError, match="is not valid XML: mismatched tag"):
        read_robot(path)


@alone
def test_a_fault_of_what_is_drawn_stops_nothing(tmp_path: Path) -> None:
    mesh = '<visual><geometry><mesh filename="a.stl" scale=".001"/></geometry></visual>'
    path = tmp_path / "r.urdf"
    path.write_text(PLAIN.replace(INERTIAL, INERTIAL + mesh), encoding="utf-8")
    told = "left out: picture: link 'rod': visual scale must be 3 finite numbers, got '.001'"
    assert told in read_robot(path).contents.left_out


POSED = """<mujoco model="posed"><worldbody><body name="torso" pos="0 0 1"><freejoint name="root"/>
<geom type="box" size=".1 .2 .3" pos=".1 0 0" mass="3"/>
<body name="arm" pos="0 .1 0"><joint name="ball" type="ball"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/>
<body name="hand" pos=".3 0 0"><joint name="hinge" axis="0 1 0" range="-30 60" limited="true" frictionloss=".2"/>
<geom type="capsule" fromto="0 0 0 .2 0 0" size=".02"/></body></body></body></worldbody>
<actuator><motor name="motor" joint="hinge"/></actuator>
<keyframe><key name="home"/><key name="flying" qpos="1 2 3 .6 .8 0 0 .8 0 .6 0 .4" qvel="1 2 3 .1 .2 .3 .4 .5 .6 .7"/>
</keyframe></mujoco>"""


@alone
def test_a_keyframe_is_where_it_begins(tmp_path: Path) -> None:
    """All poses and velocities are those of MuJoCo; behind the file's name it serves every command."""
    mujoco = pytest.importorskip("mujoco")
    path = tmp_path / "posed.xml"
    path.write_text(POSED, encoding="utf-8")
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 1)
    mujoco.mj_forward(model, data)
    system = system_from(f"{path}:keyframe=flying")
    found = kinematics(system, *system.contents.initial_state(0, 3))
    for k in range(3):
        twist = np.zeros(6)
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, k + 1, twist, 0)
        assert_close("position", found.position[k], data.xpos[k + 1], "imported")
        assert_close("angular velocity", found.angular_velocity[k], twist[:3], "imported")
        assert_close("velocity", found.velocity[k], twist[3:], "imported")
    hinge = system.contents.coordinates[-1]
    assert (hinge.name, hinge.kind, hinge.q, hinge.u, hinge.friction) == ("hinge", "hinge", 11, 9, 0.2)
    assert hinge.limits == pytest.approx(np.radians([-30, 60])) and hinge.actuators == ("motor",)
    assert "left out: keyframe (to begin with one, FILE:keyframe=NAME): home" in system.contents.left_out
    with pytest.raises(InputError, match="has no keyframe 'fly'; did you mean 'flying'"):
        read_robot(path, keyframe="fly")
    with pytest.raises(InputError, match="'hom' behind the name of a robot's file is none of `free`"):
        read_robot(f"{path}:hom")


@alone
def test_samples_beyond_limits_are_told(tmp_path: Path) -> None:
    """The worst first, by how much and when; of a file as of memory; nothing where joints keep to them, or stops do."""
    limited = 'type="revolute"><limit lower="-0.2" upper="0.5" effort="1" velocity="1"/>'
    weight = INERTIAL.replace("<mass", '<origin xyz="0.5 0 0"/><mass')
    path = tmp_path / "r.urdf"
    path.write_text(PLAIN.replace(INERTIAL, weight).replace('type="continuous">', limited), encoding="utf-8")
    stopped = simulate(read_robot(path), 1.0, every=0.01)
    assert np.asarray(stopped["q"]).max() < 1.0 and stopped.limits == ""
    system = system_from(f"{path}:limits=off")
    assert "left out: limit of joint: hinge" in system.contents.left_out
    kept = simulate(system, 1.0, every=0.01)
    angle = kept.q[:, 0] - 0.5
    worst = int(np.argmax(angle))
    expected = f"beyond limits, which are left out: 'hinge' by {angle[worst]:.3g} (t = {kept.t[worst]:.4g} s)"
    assert angle[worst] > 1 and kept.limits == expected and expected in kept.summary()
    assert simulate(system, 1.0, every=0.01, output=tmp_path / "o.h5").limits == expected
    assert simulate(system, 0.1, every=0.01).limits == ""
    assert simulate(system, 1.0, every=0.01, sample="pose").limits == ""


ACTUATED = """<mujoco><compiler angle="radian"/><worldbody><body name="a">
  <joint name="a" axis="0 1 0" stiffness="3" springref="0.4" damping="0.2"/>
  <inertial pos="0.3 0 0.1" mass="1" diaginertia="0.1 0.1 0.1"/>
  <body name="b" pos="0.5 0 0"><joint name="b" axis="0 1 0"/><joint name="c" axis="1 0 0"/>
    <inertial pos="0.3 0.1 0" mass="1" diaginertia="0.1 0.1 0.1"/>
    <body name="d" pos="0.5 0 0"><joint name="d" type="slide" axis="0 0 1"/>
      <inertial pos="0 0.1 0" mass="0.4" diaginertia="0.1 0.1 0.1"/></body></body></body></worldbody>
  <keyframe><key name="pushed" ctrl="0.1 -0.2 0.3 0.4 0.5"/></keyframe><actuator>
  <motor name="motor" joint="a" gear="3" ctrlrange="-1 1"/> <position name="servo" joint="a" kp="10" kv="2"/>
  <velocity name="speed" joint="b" kv="3" gear="-2"/> <motor name="lift" joint="d" gear="4"/>
  <general name="general" joint="c" gainprm="2" biastype="affine" biasprm="1 -2 -3" gear="0.5"/>
  </actuator></mujoco>"""


@pytest.mark.parametrize("how", ["numbers", "functions", "keyframe", "rows", "table"])
@alone
def test_actuators_are_those_of_mujoco(tmp_path: Path, how: str) -> None:
    """Motors, servos and general ones with controls beyond their range, as numbers, functions of time, a keyframe's."""
    mujoco = pytest.importorskip("mujoco")
    path = tmp_path / "actuated.xml"
    path.write_text(ACTUATED, encoding="utf-8")
    model = mujoco.MjModel.from_xml_path(str(path))
    data, t = mujoco.MjData(model), 0.7
    told: dict[str, Any] = {"motor": 1.7, "servo": 0.3, "speed": -1.0, "lift": 0.2}
    if how == "keyframe":
        mujoco.mj_resetDataKeyframe(model, data, 0)
        system = read_robot(f"{path}:keyframe=pushed")
    else:
        for name, value in told.items():
            data.ctrl[model.actuator(name).id] = value
        if how == "functions":
            told = {name: lambda at, value=value: value * at / t for name, value in told.items()}
        if how == "rows":
            told = {name: [[0.0, 0.0], [2 * t, 2 * value]] for name, value in told.items()}
        if how == "table":
            rows = [f"{2 * t * k},{','.join(str(2 * k * value) for value in told.values())}" for k in (0, 1)]
            (tmp_path / "walk.csv").write_text("\n".join([f"time,{','.join(told)}", *rows]), encoding="utf-8")
            system = system_from(f"{path}:controls={tmp_path}/walk.csv")
        else:
            system = read_robot(path, controls=told)
        if how in ("rows", "table"):
            system = system_from_text(system_text(system), "as a restart has it")
    rng = np.random.default_rng(3)
    with closing(Dynamics(system)) as dynamics:
        for _ in range(4):
            data.qpos[:], data.qvel[:] = rng.normal(size=4), rng.normal(size=4)
            mujoco.mj_forward(model, data)
            assert np.abs(data.qfrc_actuator).min() > 0.0
            found = dynamics.accelerations(data.qpos, data.qvel, t=t)
            assert_close("udot", found, data.qacc, "imported", scale=np.abs(data.qacc).max())
    off = read_robot(path, actuators="off")
    assert "left out: actuator: motor, servo, speed, lift, general" in off.contents.left_out
    assert off.contents.body(0).joint.stiffness == (3.0,) and system.contents.body(0).joint.stiffness == (13.0,)
    with pytest.raises(InputError, match="controls: there is no actuator 'lifts'; did you mean 'lift'"):
        read_robot(path, controls={"lifts": 1.0})
    with pytest.raises(InputError, match="controls: 'lift' must be a finite number"):
        read_robot(path, controls={"lift": "up"})
    with pytest.raises(InputError, match="controls: 'lift' must be in order of time: row 2 is at 0 s, after 1 s"):
        read_robot(path, controls={"lift": [[1, 0], [0, 1]]})
    table = tmp_path / "table.csv"
    for text, message in (
        ("t,lift\n0,1", "no column 'time'"),
        ("time,lift\n0,1\n0,2", "line 3: the time 0 s is not after"),
    ):
        table.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=message):
            read_robot(f"{path}:controls={table}")


@alone
def test_ranges_of_the_forces_of_actuators_are_those_of_mujoco(tmp_path: Path) -> None:
    """Of motors and of servos; of joints too, where one actuator drives them; of a second servo it is told."""
    mujoco = pytest.importorskip("mujoco")
    path = tmp_path / "weak.xml"
    weak = """<motor name="motor" joint="a" gear="3" ctrlrange="-1 1" forcerange="-0.4 0.5"/>
      <general name="general" joint="b" gainprm="-2" biastype="affine" biasprm="0.3 0 0" forcerange="-1 1"/>
      <motor name="lift" joint="d" gear="-4"/>
      <position name="servo" joint="c" kp="5" kv="1" gear="-1.5" forcerange="-2 1"/>
      <velocity name="brake" joint="a" kv="2" forcerange="-0.3 0.6"/></actuator>"""
    text = re.sub(r"<keyframe>.*</keyframe>", "", ACTUATED)
    text = text.partition("<actuator>")[0].replace('name="d" type', 'name="d" actuatorfrcrange="-1 2" type')
    path.write_text(f"{text}<actuator>{weak}</mujoco>", encoding="utf-8")
    model = mujoco.MjModel.from_xml_path(str(path))
    data, rng, at_ends = mujoco.MjData(model), np.random.default_rng(4), set()
    for value in (-3.0, -0.2, 0.05, 0.3, 3.0):
        told = {"motor": value, "general": value, "lift": value, "servo": 2 * value, "brake": -value}
        for name, control in told.items():
            data.ctrl[model.actuator(name).id] = control
        data.qpos[:] = rng.normal(size=4)
        data.qvel[:] = rng.normal(size=4)
        mujoco.mj_forward(model, data)
        system = read_robot(path, controls=told)
        with closing(Dynamics(system)) as dynamics:
            found = dynamics.accelerations(data.qpos, data.qvel)
        assert_close("udot", found, data.qacc, "imported", scale=np.abs(data.qacc).max())
        reached = model.actuator_forcerange == data.actuator_force[:, None]
        at_ends |= {tuple(place) for place in np.argwhere(reached).tolist()}
    assert not [line for line in system.contents.left_out if "range" in line] and len(at_ends) >= 7
    path.write_text(f"{text}<actuator>{weak}".replace("</actuator>", f"{BESIDE}</actuator></mujoco>"), encoding="utf-8")
    told_of = [line for line in read_robot(path).contents.left_out if "range" in line]
    assert told_of == ["left out: range of the force of actuator, beside another of its joint: second"]


BESIDE = '<position name="second" joint="c" kp="1" forcerange="-2 2"/>'


@alone
def test_actuators_that_are_left_out_are_told(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    path = tmp_path / "odd.xml"
    odd = """<motor name="pulled" tendon="cord"/> <intvelocity name="winds" joint="a" kp="1" actrange="-1 1"/>
      <position name="weak" joint="b" kp="5" forcerange="-2 2"/> <muscle name="flesh" joint="c"/>
      <general name="bends" joint="d" gaintype="affine" gainprm="1 2"/>
      <general name="flees" joint="d" biastype="affine" biasprm="0 3"/></actuator>
      <tendon><spatial name="cord"><site site="s"/><site site="t"/></spatial></tendon>"""
    sites = '<worldbody><site name="s"/><site name="t" pos="1 0 0"/>'
    text = ACTUATED.replace("<worldbody>", sites).replace("</actuator>", odd).replace('ctrl="0.1 -0.2 0.3 0.4 0.5"', "")
    path.write_text(text, encoding="utf-8")
    assert set(read_robot(path).contents.left_out) >= {
        "left out: actuator of no single hinge or slide, or fixed tendon: pulled",
        "left out: actuator with a state of its own: winds, flesh",
        "left out: actuator whose gain or bias is not linear: bends",
        "left out: actuator whose force grows with what it moves: flees",
    }


@alone
def test_weights_that_are_compensated(tmp_path: Path) -> None:
    """Of a part, of more than all, of a link that is merged into another, of one on the world."""
    mujoco = pytest.importorskip("mujoco")
    path = tmp_path / "lifted.xml"
    inertial = '<inertial pos="0 0.1 0" mass="0.3" diaginertia="0 0 0"/>'
    light = f'<body gravcomp="0.7" pos="0.1 0 0.2" euler="10 20 30">{inertial}</body>'
    text = ACTUATED.replace('<body name="a"', f'{light}<body name="a" gravcomp="0.4"').replace(
        '<body name="d"', f'{light}<body name="d" gravcomp="1.5"'
    )
    path.write_text(text.replace("<worldbody>", '<option gravity="1 2 -9"/><worldbody>'), encoding="utf-8")
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    system = read_robot(path)
    assert not system.contents.left_out or "gravity" not in " ".join(system.contents.left_out)
    data.qpos[:], data.qvel[:] = (0.3, -0.2, 0.5, 0.1), (0.2, 0.1, -0.4, 0.3)
    mujoco.mj_forward(model, data)
    assert np.abs(data.qfrc_gravcomp).min() > 0.0
    with closing(Dynamics(system)) as dynamics:
        assert_close("udot", dynamics.accelerations(data.qpos, data.qvel), data.qacc, "imported")


LIMITED = """<mujoco><compiler angle="radian"/><worldbody><body name="a" pos="0.1 0.2 1" euler="0.3 0.2 -0.5">
  <joint name="turn" axis="0 1 0" pos="0 0.1 0.2" ref="0.2" range="-0.4 0.6" armature="0.03"/>
  <inertial pos="0.5 0 0.1" mass="1" diaginertia="0.1 0.1 0.1"/>
  <body name="b" pos="1 0 0" euler="0.1 0 0.4">
    <joint name="slide" type="slide" axis="1 0 0" range="-0.1 0.3" solreflimit="0.05 0.7"/>
    <joint name="roll" axis="1 0 0" range="-1 1" solreflimit="-900 -40"/>
    <joint name="open" axis="0 0 1"/>
    <inertial pos="0 0.2 0" mass="0.5" diaginertia="0.1 0.2 0.2"/></body>
  <body name="ball"><joint name="shoulder" type="ball" range="0 1"/>
    <inertial pos="0 0 0.1" mass="0.2" diaginertia="0.01 0.01 0.01"/></body></body></worldbody></mujoco>"""


@alone
def test_stops_keep_joints_to_limits(tmp_path: Path) -> None:
    """By the inertia that MuJoCo says each feels, with its time constants; of balls they are left out, and told."""
    mujoco = pytest.importorskip("mujoco")
    path = tmp_path / "limited.xml"
    path.write_text(LIMITED, encoding="utf-8")
    model = mujoco.MjModel.from_xml_path(str(path))
    system = read_robot(path)
    columns = system.contents.columns(0, system.n_bodies)
    felt = model.dof_M0[:4]
    most = 0.95 * np.array([0.02, 0.05 * 0.7])
    assert_close("stiffness", columns.stop_stiffness[:4], felt * [*most**-2.0, 900.0, 0.0], "imported")
    assert_close("damping", columns.stop_damping[:4], felt * [2 / 0.019, 2 / 0.0475, 40.0, 0.0], "imported")
    assert_close("lower", columns.lower[:3], model.jnt_range[:3, 0], "imported")
    assert_close("upper", columns.upper[:3], model.jnt_range[:3, 1], "imported")
    assert np.isinf(columns.upper[3:]).all() and not columns.stop_stiffness[3:].any()
    assert system.contents.left_out == ("left out: limit of joint of several axes: shoulder",)
    written = tmp_path / "limited.toml"
    write_system(system, written)
    assert np.array_equal(
        read_system(written).contents.columns(0, system.n_bodies).stop_stiffness, columns.stop_stiffness
    )
    off = read_robot(path, limits="off")
    assert "left out: limit of joint: turn, slide, roll" in off.contents.left_out
    assert not off.contents.columns(0, off.n_bodies).stop_stiffness.any()
    with pytest.raises(InputError, match="unknown treatment of limits 'of'; choose one of: on, off"):
        read_robot(f"{path}:limits=of")


@alone
def test_limits_without_a_way_are_none(tmp_path: Path) -> None:
    """Both zero, or not given, as programs write them that have none; the wrong way round, which is told."""
    path = tmp_path / "r.urdf"
    for ends, told in (
        ('lower="0" upper="0"', ()),
        ("", ()),
        ('lower="1" upper="-1"', ("upper is not above its lower",)),
    ):
        limited = f'type="revolute"><limit {ends} effort="1" velocity="1"/>'
        path.write_text(PLAIN.replace('type="continuous">', limited), encoding="utf-8")
        system = read_robot(path)
        assert not system.contents.body(0).joint.stopped
        assert all(text in " ".join(system.contents.left_out) for text in told)
    path.write_text(
        PLAIN.replace('type="continuous">', 'type="revolute"><limit lower="0.5" upper="1" effort="1" velocity="1"/>'),
        encoding="utf-8",
    )
    assert "begins beyond its limits, to which stops push it back: hinge by 0.5" in read_robot(path).contents.left_out


@alone
def test_the_first_link_floats_by_name(tmp_path: Path) -> None:
    path = tmp_path / "r.urdf"
    path.write_text(PLAIN.replace('<link name="base"/>', f'<link name="base">{INERTIAL}</link>'), encoding="utf-8")
    assert system_from(path).nu == 1 and system_from(f"{path}:free").nu == 7
    with pytest.raises(InputError, match="is URDF, which has no keyframes"):
        read_robot(path, keyframe="home")


@alone
def test_the_first_link_begins_in_a_pose(arm: Path) -> None:
    """Turned about z by a right angle, 2 m above the origin: by name or from Python, quaternions of any length."""
    turned = (0.1, 0.2, 2.0, 2.0, 0.0, 0.0, 2.0)
    lifted, found = read_robot(f"{arm}:free=0,0,2"), read_robot(arm, free=turned)
    assert lifted.contents.body(0).joint.q == (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0)
    assert system_text(found) == system_text(read_robot(f"{arm}:free={','.join(map(str, turned))}"))
    assert system_text(found) == system_text(mpimbs.read(arm, free=np.array(turned)))
    part = Subchain(found.contents)
    _, rotation, position, *_ = kinematics(part, part.q)
    assert_close("position", position[0], np.array(turned[:3]), "imported")
    assert_close("x axis", rotation[0][:, 0], np.array([0.0, 1.0, 0.0]), "imported")
    assert mpimbs.read("chain:3", free=np.False_).contents.n_bodies == 3
    for bad in ("", "1", "1,2", "a,b,c", "0,0,nan", "0,0,1,0,0,0,0"):
        with pytest.raises(InputError, match="free: give where the first link begins"):
            read_robot(f"{arm}:free={bad}")
        if bad:
            with pytest.raises(InputError, match="free: give where the first link begins"):
                read_robot(arm, free=bad)


@alone
def test_what_is_left_out_is_told_by_name(zoo: Path, arm: Path) -> None:
    assert set(read_robot(zoo).contents.left_out) == {"left out: contacts: of 10 geoms"}
    assert set(read_robot(arm).contents.left_out) == {
        "left out: contacts: of 1 collision shapes",
        "left out: joint that carries no mass: wave",
    }


@alone
def test_what_is_drawn_is_kept(zoo: Path, arm: Path, tmp_path: Path) -> None:
    system = read_robot(zoo)
    (box,) = system.contents.body(system.contents.index_of("cart")).geometry
    assert (box.kind, box.size, box.color) == ("box", (0.4, 0.2, 0.1), (1, 0, 0, 1))
    capsule = system.contents.body(system.contents.index_of("hip")).geometry[0]
    assert capsule.kind == "capsule" and capsule.size == pytest.approx((0.04, np.hypot(0.1, 0.4)))
    cylinder, mesh = read_robot(arm).contents.body(0).geometry
    assert (cylinder.size, cylinder.color, cylinder.position) == ((0.1, 0.4), (0, 0, 1, 1), (0, 0, 0.2))
    assert cylinder.rotation == pytest.approx((0.5**0.5, 0, 0.5**0.5, 0))
    assert mesh.size == (1, 2, 3) and mesh.file.endswith("/parts/none.stl")
    write_system(system, tmp_path / "zoo.toml")
    again = read_system(tmp_path / "zoo.toml")
    assert (
        list(again.contents.bodies()) == list(system.contents.bodies())
        and again.contents.loops == system.contents.loops
    )


@alone
def test_a_mesh_is_found_in_a_package(tmp_path: Path) -> None:
    folder = tmp_path / "parts" / "meshes"
    folder.mkdir(parents=True)
    (folder / "a.stl").write_text("solid")
    text = URDF.replace("package://parts/none.stl", "package://parts/meshes/a.stl")
    (tmp_path / "parts" / "arm.urdf").write_text(text)
    mesh = read_robot(tmp_path / "parts" / "arm.urdf").contents.body(0).geometry[1]
    assert mesh.file == str(folder / "a.stl")


def test_rank_0_reads_for_all(comm: MPI.Comm, arm: Path) -> None:
    path = comm.bcast(str(arm))
    system = read_once(comm, path)
    if comm.size > 1:
        assert list(system.bodies()) == list(system_from(path).contents.bodies())
        assert system.left_out == system_from(path).contents.left_out
        assert system.coordinates == system_from(path).contents.coordinates
    else:
        assert system == path


REFUSED = [
    (URDF.replace("</robot>", ""), "is not valid XML"),
    ("<sdf/>", "is SDF, which is not read: convert it to URDF or MJCF first"),
    ('<robot xmlns:xacro="http://www.ros.org/wiki/xacro"><xacro:arm/></robot>', "is a xacro file: write what it makes"),
    ('<robot name="r"><link name="a"/><link name="b"/><joint name="j" type="fixed"><parent link="a"/><child link="b"/>'
     "</joint></robot>", "no link has mass ('a', 'b'): give them <inertial>"),
    ("<robot/>", "has no links"),
    (URDF.replace('child link="hand"', 'child link="hnd"'),
     "joint 'yaw': child 'hnd' is no link; did you mean 'hand'?"),
    (URDF.replace('parent link="base"', 'parent link="hand"'), "lies on itself"),
    (URDF.replace('parent link="tool"', 'parent link="hand"').replace('child link="tool"', 'child link="finger"'),
     "link 'finger': is the child of two joints"),
    (URDF.replace('<link name="antenna"/>', '<link name="antenna"/><link name="other"/>'),
     "has 2 roots, 'base', 'other'"),
    (URDF.replace('type="continuous"', 'type="hinge"'), "joint 'slew': unknown type 'hinge'"),
    (URDF.replace('xyz="0 0 2"', 'xyz="0 0 0"'), "joint 'slew' axis must not be zero"),
    (URDF.replace('<mass value="3"/>', '<mass value="heavy"/>'),
     "link 'column': inertial value must be 1 finite number"),
    (URDF.replace('ixx="0.1"', 'ixx="-1"'), "body 'column': inertia must be positive semidefinite"),
    (URDF.replace('<link name="antenna"/>', '<link name="hand"/>'), "two links or two joints have one name"),
]  # fmt: skip


@alone
@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_bad_robots_are_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.urdf"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_robot(path)
    assert str(error.value).startswith(f"{path}: ") and message in str(error.value)


FLOATING = """<robot name="r"><link name="base"/><link name="middle"/>
<link name="end"><inertial><origin xyz="0.1 0.2 0.3"/><mass value="1"/>
<inertia ixx="1" iyy="1.5" izz="2" ixy="0.1" ixz="0" iyz="0"/></inertial></link>
<joint name="first" type="FIRST"><parent link="base"/><child link="middle"/><axis xyz="1 2 3"/></joint>
<joint name="second" type="SECOND"><parent link="middle"/><child link="end"/><axis xyz="0 1 0"/>
<origin xyz="0.3 0 0"/></joint></robot>"""


@alone
@pytest.mark.parametrize(
    ("first", "second"),
    [("fixed", "continuous"), ("fixed", "prismatic"), ("continuous", "continuous"), ("continuous", "fixed")],
)
def test_a_base_without_mass_may_not_float_on_joints(tmp_path: Path, first: str, second: str) -> None:
    path = tmp_path / "r.urdf"
    path.write_text(FLOATING.replace("FIRST", first).replace("SECOND", second))
    assert read_robot(path).n_bodies == (2 if first == second else 1)
    with pytest.raises(InputError, match=r"r\.urdf: system 'r': nothing resists the joint of body 'base'"):
        read_robot(path, free=True)
    path.write_text(FLOATING.replace("FIRST", "fixed").replace("SECOND", "fixed"))
    assert read_robot(path, free=True).nu == 6


@alone
def test_a_hinge_through_a_point_mass_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.urdf"
    text = FLOATING.replace("FIRST", "fixed").replace("SECOND", "continuous")
    path.write_text(re.sub("<inertia [^>]*>", "", text).replace("0.1 0.2 0.3", "0 0.2 0"))  # a point of the axis
    with pytest.raises(InputError, match="nothing resists the joint of body 'end'"):
        read_robot(path)


@alone
def test_parallel_axes_need_something_between(tmp_path: Path) -> None:
    path = tmp_path / "r.xml"

    def read(one: str = "", two: str = 'axis="0 0 1"') -> int:
        path.write_text(
            f"""<mujoco><worldbody><body name="a"><joint name="one" axis="0 0 1" {one}/><joint name="two" {two}/>
            <geom type="box" size="1 2 3"/></body></worldbody></mujoco>"""
        )
        return read_robot(path).nu

    with pytest.raises(InputError, match="nothing resists the joint of body 'one'"):
        read()
    others = {"one": 'armature="0.1"'}, {"two": 'armature="0.1"'}, {"two": 'pos="1 0 0"'}, {"two": 'axis="0 1 1"'}
    assert [read(**other) for other in others] == [2, 2, 2, 2]


@alone
def test_mujoco_says_what_is_bad(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    (tmp_path / "bad.xml").write_text("<mujoco><worldbody><body><joint/></body></worldbody></mujoco>")
    with pytest.raises(InputError, match=r"bad.xml: is refused by MuJoCo: .*mass"):
        read_robot(tmp_path / "bad.xml")
    with pytest.raises(InputError, match="there is no such file"):
        robot_in(tmp_path / "none.xml")


@alone
def test_what_is_held_in_the_zoo_moves_as_in_mujoco(tmp_path: Path, zoo: Path) -> None:
    """By a dense solution of its rows: points, bodies that are held as they lie, in which sites, gears."""
    pytest.importorskip("mujoco")
    held = driver("imported_robots").mujoco_held_difference
    assert held(zoo).difference < TOLERANCE["imported"][0]
    parts = '<freejoint/><geom type="box" size=".1 .2 .3"/><site name="{0}" pos=".1 0 .2"/>'
    bodies = "".join(f'<body name="{n}" pos="{x} 0 0">{parts.format(n)}</body>' for x, n in enumerate("ab"))
    for equality in (
        '<weld body1="a" body2="b" anchor="0.3 0 0"/>', '<weld body1="a" body2="b" relpose="1 0.2 0 0.5 0.5 0.5 0.5"/>',
        '<connect site1="a" site2="b"/>', '<weld site1="a" site2="b"/>',
        '<weld body1="a" anchor="0 1 0" torquescale="0"/>',
        '<connect body1="a" body2="b" anchor="0 0 1"/><weld body1="b" active="false"/>',
    ):  # fmt: skip
        read_text(tmp_path, f"<worldbody>{bodies}</worldbody><equality>{equality}</equality>")
        assert held(tmp_path / "robot.xml").difference < TOLERANCE["imported"][0], equality


@alone
@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('axis="0 1 0"', 'axis="0 inf 0"', "joint 'turn': jnt_axis is not finite"),
        ('euler="0 30 0"', 'euler="0 nan 0"', "body 'arm': body_quat is not finite"),
        ('gear="3"', 'gear="1e300"', "actuator 'push': actuator_gear is not finite, or beyond 1e[+]100"),
        ('stiffness="2"', 'stiffness="inf"', "joint 'turn': jnt_stiffness is not finite"),
        ('polycoef="0 2 0 0 0"', 'polycoef="0 2 nan 0 0"', "equality 'follow': eq_data is not finite"),
    ],
)
def test_numbers_that_are_none_are_refused(tmp_path: Path, before: str, after: str, words: str) -> None:
    """MuJoCo takes them as they stand; most ended as a traceback, those of an equality left it out."""
    pytest.importorskip("mujoco")
    text = """<mujoco><worldbody><body name="arm" euler="0 30 0"><joint name="turn" axis="0 1 0" stiffness="2"/>
    <geom type="box" size="1 1 1"/><body><joint name="slide" type="slide"/><geom type="box" size="1 1 1"/></body></body>
    </worldbody><actuator><motor name="push" joint="turn" gear="3"/></actuator><equality>
    <joint name="follow" joint1="slide" joint2="turn" polycoef="0 2 0 0 0"/></equality></mujoco>"""
    (tmp_path / "arm.xml").write_text(text)
    assert read_robot(tmp_path / "arm.xml").nu == 2
    (tmp_path / "arm.xml").write_text(text.replace(before, after))
    with pytest.raises(InputError, match=rf"arm.xml: {words}"):
        read_robot(tmp_path / "arm.xml")


@alone
def test_looks_that_are_none_are_left_out(tmp_path: Path) -> None:
    """A geom without mass is a look alone; of one with mass the body says it."""
    pytest.importorskip("mujoco")
    text = """<mujoco><worldbody><body name="arm"><joint axis="0 1 0"/><geom type="box" size="1 1 1"/>
    <geom name="look" type="box" size="1 1 1" pos="0 0 nan" mass="0"/></body></worldbody></mujoco>"""
    (tmp_path / "arm.xml").write_text(text)
    system = read_robot(tmp_path / "arm.xml")
    assert "left out: shape that is not finite: look" in system.contents.left_out
    assert [shape.size for shape in system.contents.body(0).geometry] == [(2.0, 2.0, 2.0)]
    (tmp_path / "arm.xml").write_text(text.replace(' mass="0"', ""))
    with pytest.raises(InputError, match=r"refused by MuJoCo|body 'arm': body_ipos is not finite"):
        read_robot(tmp_path / "arm.xml")
