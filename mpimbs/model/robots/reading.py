"""Robots from files: which format it is, by the file's root element, and the system that it becomes."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

from mpimbs.base.arguments import as_path
from mpimbs.base.errors import InputError
from mpimbs.base.places import note_input
from mpimbs.model.robots.assembling import assembled, lines_left_out
from mpimbs.model.robots.mjcf import read_mjcf
from mpimbs.model.robots.robot import Robot, RobotJoint
from mpimbs.model.robots.urdf import read_urdf
from mpimbs.model.system import System
from mpimbs.model.text.toml import at

ROBOTS = (".urdf", ".xml", ".mjcf", ".xacro", ".sdf")


def is_robot(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a robot's, by its name."""
    return Path(path).suffix.lower() in ROBOTS


def read_robot(path: str | os.PathLike[str], free: bool = False) -> System:
    """Read a robot from a URDF or MJCF file; `left_out` of the system says what was left out.

    Parameters
    ----------
    path : path
    free : bool
        The first link of a URDF file floats; else it is fixed to the world. MJCF files say so themselves.

    Raises
    ------
    InputError
        The file can't be read, or describes no valid system; the message names file, item and remedy.
    """
    place = as_path("the robot's file", path)
    with at(f"{place}: "):
        robot = robot_in(place, free)
        system = assembled(robot)
        if not system.n_bodies:
            raise InputError(_why_nothing(robot, free))
        system.validate()
    system.left_out = tuple(lines_left_out(robot))
    return system


def _why_nothing(robot: Robot, free: bool) -> str:
    """Why no link of a robot is a body."""
    if any(link.mass for link in robot.links):
        fixed = "; its first link is fixed to the world: let it float (`free`)" if not free else ""
        return f"nothing that moves has mass{fixed}"
    names = ", ".join(repr(link.name) for link in robot.links[:4])
    more = ", ..." if len(robot.links) > 4 else ""
    return f"no link has mass ({names}{more}): give them <inertial> with mass and inertia"


def _refuse_xacro(path: Path, root: ElementTree.Element) -> None:
    """Refuse what xacro makes a robot of: links and joints with names in braces, or none yet."""
    moving = [node for item in root if item.tag in ("link", "joint") for node in item.iter()]
    named = any("${" in value for node in moving for value in node.attrib.values())
    if path.suffix.lower() == ".xacro" or named or not (moving or all("xacro" not in node.tag for node in root)):
        raise InputError("is a xacro file: write what it makes with xacro FILE > robot.urdf first")


def robot_in(path: Path, free: bool = False) -> Robot:
    """Read what a URDF or MJCF file describes; the arguments are those of `read_robot`, errors don't name the file."""
    note_input(path)
    try:
        root = ElementTree.fromstring(path.read_bytes())
    except FileNotFoundError:
        raise InputError("there is no such file; check its name") from None
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}") from None
    except ElementTree.ParseError as error:
        raise InputError(f"is not valid XML: {error}; correct or complete the file there") from None
    if root.tag == "robot":
        _refuse_xacro(path, root)
        robot = read_urdf(path, root)
        if free:
            robot.links[0].joints = [RobotJoint("root", "free")]
        return robot
    if root.tag == "sdf":
        raise InputError("is SDF, which is not read: convert it to URDF or MJCF first")
    if root.tag != "mujoco":
        raise InputError(f"is neither URDF nor MJCF: its root is <{root.tag}>, not <robot> or <mujoco>")
    if free:
        raise InputError("is MJCF, which says itself what is free: give a body a <freejoint/>")
    return read_mjcf(path)
