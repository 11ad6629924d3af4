"""URDF, the robots of ROS: a small reader, of what moves and what is drawn."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.model.geometry import Shape
from mpimbs.model.robots.robot import HERE, JointKind, Pose, Robot, RobotGear, RobotJoint, RobotLink, quaternion_of
from mpimbs.model.text.table import suggest

_KINDS: dict[str, JointKind | None] = {
    "fixed": None, "revolute": "hinge", "continuous": "hinge", "prismatic": "slide", "floating": "free",
    "planar": "planar", "spherical": "ball", "ball": "ball",  # of Bullet, Isaac and MuJoCo; of Drake
}  # fmt: skip
_GYRATION = 1e-8  # m, radius below which an inertia is the rounding of a point mass
_READ = {  # of the children of each element; all others are told
    "robot": {"link", "joint", "material"},
    "link": {"inertial", "visual", "collision"},
    "joint": {"origin", "parent", "child", "axis", "limit", "dynamics", "mimic"},
}
_PACKAGES = "ROS_PACKAGE_PATH"  # environment variable: folders of packages


def read_urdf(path: Path, root: ElementTree.Element) -> Robot:
    """Read a robot from a parsed URDF file; its first link is fixed to the world.

    Raises
    ------
    InputError
        The file describes no robot: names, numbers, or how links hang together.
    """
    return _Urdf(path, root).robot()


class _Urdf:
    """A URDF file."""

    def __init__(self, path: Path, root: ElementTree.Element) -> None:
        self._path = path
        self._name = root.get("name") or path.stem
        self._links = {_named(item, "link"): item for item in root.findall("link")}
        joints = root.findall("{*}joint")  # as <drake:joint>, too
        self._joints = {_named(item, "joint"): item for item in joints}
        if len(self._links) < len(root.findall("link")) or len(self._joints) < len(joints):
            raise InputError("two links or two joints have one name; give each its own")
        self._colors = {
            name: color
            for item in root.findall("material")
            if (name := item.get("name")) and (color := _color(item)) is not None
        }
        self._root = root

    def robot(self) -> Robot:
        """Make the robot of the file."""
        robot = Robot(self._name)
        numbers: dict[str, int] = {}
        above = self._above()
        for name in self._in_order(above):
            joint = above.get(name)
            link = self._link(name, robot)
            if joint is not None:
                link.parent = numbers[self._end(joint, "parent")]
                link.pose, link.joints = self._placed(joint, robot)
            numbers[name] = len(robot.links)
            robot.links.append(link)
        for item in (self._root, *self._links.values(), *self._joints.values()):
            kind = item.tag.rpartition("}")[2]
            for inner in (
                inner for inner in item if inner.tag not in _READ[kind] and inner not in self._joints.values()
            ):
                of = "" if item is self._root else f" of {kind} {item.get('name')}"
                robot.leave_out(f"<{inner.tag}>", (inner.get("name") or inner.get("reference") or "unnamed") + of)
        touching = sum(len(item.findall("collision")) for item in self._links.values())
        if touching:
            robot.leave_out("contacts", f"of {touching} collision shapes")
        return robot

    def _end(self, joint: ElementTree.Element, which: str) -> str:
        end = joint.find(which)
        name = "" if end is None else end.get("link", "")
        if name not in self._links:
            title = f"joint {joint.get('name')!r}: {which}"
            raise InputError(f"{title} {name!r} is no link{suggest(name, self._links)}")
        return name

    def _above(self) -> dict[str, ElementTree.Element]:
        """The joint that each link lies on."""
        above: dict[str, ElementTree.Element] = {}
        for name, joint in self._joints.items():
            child = self._end(joint, "child")
            if child in above:
                other = above[child].get("name")
                raise InputError(f"link {child!r}: is the child of two joints, {other!r} and {name!r}; leave one out")
            above[child] = joint
        return above

    def _in_order(self, above: dict[str, ElementTree.Element]) -> list[str]:
        """All links, each after its parent, depth first."""
        roots = [name for name in self._links if name not in above]
        if not roots:
            raise InputError("has no root: every link is the child of a joint" if self._links else "has no links")
        if len(roots) > 1:
            raise InputError(
                f"has {len(roots)} roots, {', '.join(map(repr, roots[:4]))}: a robot has one; put the others on it"
            )
        children: dict[str, list[str]] = {name: [] for name in self._links}
        for child, joint in above.items():
            children[self._end(joint, "parent")].append(child)
        order, waiting = [], list(roots)
        while waiting:
            order.append(waiting.pop())
            waiting += reversed(children[order[-1]])
        if len(order) < len(self._links):
            lost = next(name for name in self._links if name not in set(order))
            raise InputError(f"link {lost!r}: lies on itself, by way of its joints; put it on the root {roots[0]!r}")
        return order

    def _link(self, name: str, robot: Robot) -> RobotLink:
        item = self._links[name]
        link = RobotLink(name, -1, HERE)
        inertial = item.find("inertial")
        if inertial is not None:
            title, pose = f"link {name!r}: inertial", _origin(inertial)
            mass, inertia = inertial.find("mass"), inertial.find("inertia")
            link.mass = 0.0 if mass is None else _number(mass, "value", title)
            link.center = pose.position
            if inertia is not None:
                xx, yy, zz, xy, xz, yz = (
                    _number(inertia, key, title, 0.0) for key in ("ixx", "iyy", "izz", "ixy", "ixz", "iyz")
                )
                own = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
                if np.abs(own).max() > _GYRATION**2 * link.mass:
                    link.inertia = pose.rotation @ own @ pose.rotation.T
        for visual in item.findall("visual"):
            try:
                shape = self._shape(visual, name)
            except InputError as error:  # a fault of what is drawn alone
                robot.leave_out("picture", str(error))
            else:
                link.shapes += [] if shape is None else [shape]
        return link

    def _moves(self, joint: ElementTree.Element, robot: Robot) -> list[RobotJoint]:
        """The joint, where it is not fixed; what can't be taken over of it is noted."""
        name, kind = joint.get("name", ""), joint.get("type", "")
        if kind not in _KINDS:
            raise InputError(f"joint {name!r}: unknown type {kind!r}{suggest(kind, _KINDS)}")
        moves = _KINDS[kind]
        if moves is None:
            return []
        title = f"joint {name!r}"
        made = RobotJoint(name, moves) if moves in ("free", "ball") else RobotJoint(name, moves, _axis(joint, title))
        dynamics = joint.find("dynamics")
        if dynamics is not None:
            made.damping = (_number(dynamics, "damping", title, 0.0),)
            made.friction = _number(dynamics, "friction", title, 0.0)
        if (limit := joint.find("limit")) is not None and kind in ("revolute", "prismatic"):
            ends = _number(limit, "lower", title, 0.0), _number(limit, "upper", title, 0.0)
            if ends[0] < ends[1]:
                made.limits = ends
            elif any(ends):  # both zero: as programs write them that have none
                robot.leave_out("limit of joint, whose upper is not above its lower", name)
        return [made]

    def _placed(self, joint: ElementTree.Element, robot: Robot) -> tuple[Pose, list[RobotJoint]]:
        """Where a joint lies, and how it moves: one that mimics another with multiplier 0 stays where that puts it."""
        pose, moves, mimic = _origin(joint), self._moves(joint, robot), joint.find("mimic")
        if mimic is None or not moves:
            return pose, moves
        (made,) = moves
        title, of = f"joint {made.name!r}: mimic", mimic.get("joint", "")
        ratio, offset = _number(mimic, "multiplier", title, 1.0), _number(mimic, "offset", title, 0.0)
        if made.kind not in ("hinge", "slide"):
            robot.leave_out("mimic of a joint of several axes", made.name)
        elif not ratio:
            robot.leave_out("motion, for it mimics another with multiplier 0, of joint", made.name)
            return pose @ made.moved(offset), []
        elif of not in self._joints:
            robot.leave_out("mimic of what is no joint", f"{made.name} after {of}{suggest(of, self._joints)}")
        else:
            robot.gears.append(RobotGear(f"{made.name} after {of}", made.name, of, ratio, offset))
        return pose, moves

    def _shape(self, visual: ElementTree.Element, link: str) -> Shape | None:
        geometry = visual.find("geometry")
        if geometry is None or not len(geometry):
            return None
        shape, title = geometry[0], f"link {link!r}: visual"
        given: dict[str, Any] = {"kind": shape.tag}
        if shape.tag == "box":
            given["size"] = _numbers(shape.get("size", ""), 3, f"{title} size")
        elif shape.tag == "sphere":
            given["size"] = [_number(shape, "radius", title)]
        elif shape.tag in ("cylinder", "capsule"):
            given["size"] = [_number(shape, "radius", title), _number(shape, "length", title)]
        elif shape.tag == "mesh":
            given["size"] = _numbers(shape.get("scale", "1 1 1"), 3, f"{title} scale")
            given["file"] = self._file(shape.get("filename", ""))
        else:
            return None
        pose, material = _origin(visual), visual.find("material")
        color = None if material is None else _color(material) or self._colors.get(material.get("name", ""))
        return Shape(position=pose.position, rotation=quaternion_of(pose), color=color, **given)

    def _file(self, name: str) -> str:
        """Where a mesh is, if it is found: in a package, in a folder above the file's, or where it says."""
        inner = name.removeprefix("file://")
        if not inner.startswith(("package://", "model://")):
            return str((self._path.parent / inner).absolute())
        inner = inner.split("://", 1)[1]
        above = self._path.absolute().parents
        known = [Path(folder) for folder in os.environ.get(_PACKAGES, "").split(":") if folder]
        places = [folder / inner for folder in (*known, *above)]
        # A package's folder may have another name than the package: look beside the file.
        places += [folder / inner.split("/", 1)[-1] for folder in above]
        return str(next((place for place in places if place.is_file()), places[0]))


def _named(item: ElementTree.Element, kind: str) -> str:
    name = item.get("name")
    if not name:
        raise InputError(f"a {kind} has no name; give it one")
    return name


def _number(item: ElementTree.Element, key: str, title: str, default: float | None = None) -> float:
    text = item.get(key)
    if text is None and default is not None:
        return default
    return _numbers(text or "", 1, f"{title} {key}")[0]


def _numbers(text: str, count: int, title: str) -> list[float]:
    try:
        found = [float(part) for part in text.split()]
    except ValueError:
        found = []
    if len(found) != count or not all(map(math.isfinite, found)):
        raise InputError(f"{title} must be {count} finite number{'s' if count > 1 else ''}, got {text!r}")
    return found


def _origin(item: ElementTree.Element) -> Pose:
    """The pose of an <origin>: xyz, and rpy, turned about the fixed x, then y, then z."""
    origin = item.find("origin")
    if origin is None:
        return HERE
    title = f"origin of {item.tag} {item.get('name', '')!r}:"
    x, y, z = _numbers(origin.get("rpy", "0 0 0"), 3, f"{title} rpy")
    position = np.array(_numbers(origin.get("xyz", "0 0 0"), 3, f"{title} xyz"))
    return Pose(_about(2, z) @ _about(1, y) @ _about(0, x) if any((x, y, z)) else HERE.rotation, position)


def _about(axis: int, angle: float) -> Floats:
    """The rotation about a coordinate axis (rad), exactly the identity for none."""
    i, j = (axis + 1) % 3, (axis + 2) % 3
    matrix = np.eye(3)
    matrix[i, i] = matrix[j, j] = np.cos(angle)
    matrix[j, i], matrix[i, j] = np.sin(angle), -np.sin(angle)
    return matrix


def _axis(joint: ElementTree.Element, title: str) -> Floats:
    item = joint.find("axis")
    axis = np.array([1.0, 0.0, 0.0] if item is None else _numbers(item.get("xyz", ""), 3, f"{title} axis"))
    length = np.linalg.norm(axis)
    if not length:
        raise InputError(f"{title} axis must not be zero")
    return np.asarray(axis / length)


def _color(material: ElementTree.Element) -> Sequence[float] | None:
    item = material.find("color")
    if item is None:
        return None
    return [min(max(part, 0.0), 1.0) for part in _numbers(item.get("rgba", ""), 4, "color rgba")]
