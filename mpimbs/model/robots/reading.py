"""Robots from files: which format it is, by the file's root element, and the system that it becomes."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mpimbs.base.arguments import as_path
from mpimbs.base.errors import InputError
from mpimbs.base.places import note_input
from mpimbs.model.summary import validate
from mpimbs.model.system import System
from mpimbs.model.text.toml import at

if TYPE_CHECKING:  # what reads them is imported with the first robot
    from xml.etree import ElementTree

    from mpimbs.model.robots.robot import Controls, Robot, RobotJoint

_NAMED = re.compile(
    r"(?P<file>.*?\.(?:urdf|xml|mjcf|xacro|sdf))(?::(?P<more>(?:controls=[^:]*|[^/:]*)(?::(?:controls=[^:]*|[^/:]*))*))?",
    re.IGNORECASE | re.DOTALL,
)
_COMMENT, _DECLARATION = re.compile(r"<!--.*?-->", re.DOTALL), re.compile(r"<\?xml\b.*?\?>", re.DOTALL)
_TAG, _TAGS = re.compile(r"<([A-Za-z_][\w.:-]*)"), re.compile(r"<[^<>]*>")
_PREFIX = re.compile(r"[<\s/]([A-Za-z_][\w.-]*):[A-Za-z_]")
FREE, KEYFRAME, INERTIA, LIMITS, ACTUATORS, CONTROLS = "free", "keyframe", "inertia", "limits", "actuators", "controls"
FRICTION, CREEPS = "friction", 0.01  # rad/s and m/s, up to which friction is viscous
# What may stand behind a file's name, beside `FREE`, and an example of each.
BEHIND_NAME = {
    KEYFRAME: "NAME", INERTIA: "repair", LIMITS: "off", ACTUATORS: "off", CONTROLS: "TABLE.csv", FRICTION: "off",
}  # fmt: skip
INERTIAS, SWITCH = ("keep", "repair", "refuse"), ("on", "off")
Free = bool | Sequence[Any]


def is_robot(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a robot's, by its name, behind which may stand how it begins."""
    return _NAMED.fullmatch(os.fspath(path)) is not None


def read_robot(
    path: str | os.PathLike[str],
    free: Free = False,
    keyframe: str = "",
    inertia: str = "",
    limits: str = "",
    actuators: str = "",
    controls: Controls | None = None,
    friction: str | float = "",
) -> System:
    """Read a robot from a URDF or MJCF file; `left_out` of the system says what was left out.

    Parameters
    ----------
    path : path
        Behind its name may stand the others: "go2.urdf:free", "go2.urdf:free=0,0,0.4", "dog.xml:keyframe=home",
        "arm.urdf:inertia=repair", "arm.urdf:limits=off", "arm.urdf:friction=off", "dog.xml:actuators=off",
        "dog.xml:controls=walk.csv".
    free : bool or sequence of float
        The first link of a URDF file floats, and begins where the world is, or at x y z (m), turned by a quaternion
        w x y z if that follows; else it is fixed to the world. MJCF files say so themselves.
    keyframe : str
        Of an MJCF file, the one whose coordinates and speeds its joints begin with.
    inertia : {"keep", "repair", "refuse"}
        Of no rigid body: kept as it stands, which is the default, or replaced by the nearest of one, or refused.
    limits : {"on", "off"}
        Whether stops keep joints to the limits that the file gives them, as they do by default: springs and dampers
        that bring back the inertia that a joint feels within some 0.02 s, or as `solref` of MJCF says.
    actuators : {"on", "off"}
        Whether actuators of an MJCF file act, as they do by default: those of hinges and slides that have no states.
    controls : dict of str to float, function of time (s) or rows; or path, optional
        Of actuators by name; or a table (.csv, .npz) with a column `time` (s) and one for each of some actuators,
        linear between its rows, and constant before and behind. What is not there is as in the keyframe, or 0.
    friction : float or "off"
        Up to which speed (rad/s, m/s) the friction of hinges and slides is viscous, 0.01 by default; or whether it is
        left out.

    Raises
    ------
    InputError
        The file can't be read, or describes no valid system; the message names file, item and remedy.
    """
    from mpimbs.model.robots.assembling import assembled, lines_left_out

    place = as_path("the robot's file", path)
    if named := _NAMED.fullmatch(str(place)):
        place = Path(named["file"])
        asked = keyframe, inertia, limits, actuators, controls, friction
        given: dict[str, Any] = dict(zip(BEHIND_NAME, asked, strict=True))
        free = _begins(place, named["more"] or "", given) or free
        keyframe, inertia, limits, actuators, controls, friction = given.values()
    with at(f"{place}: "):
        for what, value, known in (
            ("inertias", inertia, INERTIAS), (LIMITS, limits, SWITCH), (ACTUATORS, actuators, SWITCH)
        ):  # fmt: skip
            if value and value not in known:
                raise InputError(f"unknown treatment of {what} {value!r}; choose one of: {', '.join(known)}")
        robot = robot_in(place, free, keyframe)
        robot.inertias = inertia or INERTIAS[0]
        robot.limits, robot.actuation = limits or SWITCH[0], actuators or SWITCH[0]
        robot.friction_speed = _speed(friction)
        system = assembled(robot, controls)
        if not system.n_bodies:
            raise InputError(_why_nothing(robot, floats(free)))
        validate(system.contents)
    system.contents.left_out = tuple(lines_left_out(robot))
    return system


def _speed(friction: str | float) -> float:
    """Up to which speed friction is viscous; 0 where it is left out."""
    if friction in ("", "off"):
        return 0.0 if friction else CREEPS
    try:
        found = float(friction)
    except ValueError:
        found = 0.0
    if not 0.0 < found < np.inf:
        raise InputError(f"unknown treatment of friction {friction!r}; give a speed (rad/s, m/s), or 'off'")
    return found


def _begins(place: Path, more: str, given: dict[str, Any]) -> Free:
    """Read what stands behind a file's name into what is given; say whether the robot is free, and where it begins."""
    free: Free = False
    for item in filter(None, more.split(":")):
        key, equals, value = item.partition("=")
        if key == FREE:
            free = value.split(",") if equals else True
        elif key in given and equals:
            given[key] = value
        else:
            known = ", ".join(
                [f"`{FREE}`, `{FREE}=X,Y,Z`", *(f"`{key}={value}`" for key, value in BEHIND_NAME.items())]
            )
            raise InputError(f"{place}: {item!r} behind the name of a robot's file is none of {known}")
    return free


def floats(free: Free) -> bool:
    """Whether a first link floats."""
    return bool(np.size(free) > 1 or free)


def _root(free: Free) -> RobotJoint:
    """The joint of a first link that floats."""
    from mpimbs.model.robots.robot import RobotJoint

    if isinstance(free, bool | np.bool_):
        return RobotJoint("root", "free")
    try:
        numbers = list(map(float, np.ravel(free)))
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) not in (3, 7) or not np.isfinite(numbers).all() or (len(numbers) == 7 and not any(numbers[3:])):
        raise InputError(
            f"free: give where the first link begins, x,y,z (m) or x,y,z,qw,qx,qy,qz, got {np.ravel(free).tolist()}"
        )
    turn = np.array(numbers[3:] or (1.0, 0.0, 0.0, 0.0))
    return RobotJoint("root", "free", q=(*(turn / np.linalg.norm(turn)).tolist(), *numbers[:3]))


def _why_nothing(robot: Robot, free: bool) -> str:
    """Why no link of a robot is a body."""
    if any(link.mass for link in robot.links):
        fixed = "" if free else "; its first link is fixed to the world: let it float by FILE:free, or `free=True`"
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


def _parsed(data: bytes) -> tuple[ElementTree.Element, list[str]]:
    """The root element of a file, and what had to be mended to read it, which readers of robots let pass."""
    from xml.etree import ElementTree

    try:
        return ElementTree.fromstring(data), []
    except ElementTree.ParseError as error:
        wrong = error
    text, told = data.decode("utf-8", errors="replace"), []
    if any("--" in comment[4:-3] for comment in _COMMENT.findall(text)):
        told.append("dashes in comments")
    text = _COMMENT.sub("", text)
    if not text.startswith("<?xml") and _DECLARATION.search(text):
        told.append("a declaration that is not at the begin")
    text = _DECLARATION.sub("", text)
    if root := _TAG.search(text):
        declared = {*re.findall(r"xmlns:([\w.-]+)", text), "xml", "xmlns"}
        names = [name for tag in _TAGS.findall(text) for name in _PREFIX.findall(tag)]
        if missing := sorted(set(names) - declared):
            told.append(f"prefixes that are not declared ({', '.join(missing)})")
            text = text[: root.end()] + "".join(f' xmlns:{name}="{name}"' for name in missing) + text[root.end() :]
        before, end, behind = text.partition(f"</{root[1]}>")
        if behind.strip():
            told.append(f"what stands behind </{root[1]}>")
        text = before + end
    try:
        return ElementTree.fromstring(text), told
    except ElementTree.ParseError:
        raise InputError(f"is not valid XML: {wrong}; correct or complete the file there") from None


def robot_in(path: Path, free: Free = False, keyframe: str = "") -> Robot:
    """Read what a URDF or MJCF file describes; the arguments are those of `read_robot`, errors don't name the file."""
    note_input(path)
    try:
        root, mended = _parsed(path.read_bytes())
    except FileNotFoundError:
        raise InputError("there is no such file; check its name") from None
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}") from None
    robot = _robot_of(path, root, free, keyframe)
    for what in mended:
        robot.take("taken as it stands: XML that is not well formed", what)
    return robot


def _robot_of(path: Path, root: ElementTree.Element, free: Free, keyframe: str) -> Robot:
    if root.tag == "robot":
        if keyframe:
            raise InputError("is URDF, which has no keyframes: leave it out")
        from mpimbs.model.robots.urdf import read_urdf

        _refuse_xacro(path, root)
        robot = read_urdf(path, root)
        if floats(free):
            robot.links[0].joints = [_root(free)]
        return robot
    if root.tag == "sdf":
        raise InputError("is SDF, which is not read: convert it to URDF or MJCF first")
    if root.tag != "mujoco":
        raise InputError(f"is neither URDF nor MJCF: its root is <{root.tag}>, not <robot> or <mujoco>")
    if floats(free):
        raise InputError("is MJCF, which says itself what is free: give a body a <freejoint/>")
    from mpimbs.model.robots.mjcf import read_mjcf

    return read_mjcf(path, keyframe)
