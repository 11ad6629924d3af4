"""Joints of one link that follow one another, gathered to joints of the types that a `System` has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpimbs.model.joints import joint_type
from mpimbs.model.robots.robot import Floats, Pose, RobotJoint

_PARALLEL = 1e-9  # sine or cosine of an angle below which axes count as parallel or perpendicular; m for points
_SINGLE = {"hinge": "revolute", "slide": "prismatic", "ball": "spherical", "free": "free", "planar": "planar"}


class JointGroup(NamedTuple):
    """One or several joints of a link that are one joint of a `System`.

    Attributes
    ----------
    type : str
        Name of a row of `JOINT_TYPES`.
    joints : tuple of RobotJoint
        In the order of the coordinates.
    frame : Pose
        Of the joint in the frame of the link, at the reference position.
    """

    type: str
    joints: tuple[RobotJoint, ...]
    frame: Pose

    @property
    def name(self) -> str:
        """The joints' names."""
        return "+".join(joint.name for joint in self.joints)

    # With q - r for each coordinate and its reference, a link is at  frame exp(a1 (q1 - r1)) ... exp(ak (qk - rk)),
    # a body at  base exp(a1 q1) ... exp(ak qk):  all but the last r go into the base, the last into the body.

    @property
    def base(self) -> Pose:
        """The frame of the joint where all coordinates are 0, in the frame of the link at the reference position."""
        pose = self.frame
        for joint in self.joints[:-1]:
            pose = pose @ self._moved(joint).inverse
        return pose

    @property
    def body(self) -> Pose:
        """The frame of the body in that of the link."""
        return self.frame @ self._moved(self.joints[-1])

    def _moved(self, joint: RobotJoint) -> Pose:
        """How far the reference value of a joint's coordinate moves."""
        axis = self.frame.rotation.T @ joint.axis
        if joint.kind == "hinge":
            return Pose(turned(axis, joint.reference), np.zeros(3))
        return Pose(np.eye(3), joint.reference * axis)

    def unmoved(self) -> Floats:
        """What the joint leaves where it is, as columns of homogeneous vectors in the frame of the link [4, k].

        A point p that moves neither with the joint is (p, 1), a direction that it doesn't turn (d, 0).
        """
        axis, anchor = self.joints[-1].axis, self.frame.position
        kinds = {joint.kind for joint in self.joints}
        found = np.eye(4)[:, :0]
        if kinds == {"slide"}:
            return np.eye(4)[:, :3]
        if self.type == "revolute":
            found = np.stack([np.append(axis, 0.0), np.append(anchor, 1.0)], axis=1)
        elif self.type in ("planar", "cylindrical"):
            found = np.append(axis, 0.0)[:, None]
        elif self.type in ("universal", "spherical"):
            found = np.append(anchor, 1.0)[:, None]
        return found

    def fields(self) -> dict[str, Any]:
        """The fields of the `Joint`, but for where it lies."""
        kind = joint_type(self.type)
        found: dict[str, Any] = {"type": self.type}
        if kind.takes_axis:
            found["axis"] = self.joints[0].axis
        for name in ("stiffness", "damping", "armature"):
            values = [value for joint in self.joints for value in getattr(joint, name)]
            if any(values):
                found[name] = values if len(values) > 1 else values * kind.nu
        for name in ("q", "rest"):
            given = [getattr(joint, name) for joint in self.joints]
            if any(value is not None for value in given):
                found[name] = [number for value in given for number in ((0.0,) if value is None else value)]
        return found


def turned(axis: Floats, angle: float) -> Floats:
    """The rotation about a unit axis by an angle (rad): [3, 3]."""
    from scipy.spatial.transform import Rotation

    return np.asarray(Rotation.from_rotvec(angle * np.asarray(axis)).as_matrix())


def grouped(joints: Sequence[RobotJoint]) -> Iterator[JointGroup]:
    """Gather the joints of a link: as many at a time as there is a type for."""
    rest = list(joints)
    while rest:
        for count in (3, 2, 1):
            group = _together(rest[:count]) if count <= len(rest) else None
            if group is not None:
                yield group
                rest = rest[count:]
                break


def _together(joints: list[RobotJoint]) -> JointGroup | None:
    """The one joint that several are; None if there is no such type."""
    kinds, axes = [joint.kind for joint in joints], [joint.axis for joint in joints]
    last = joints[-1]
    if len(joints) == 1:
        rotation = _upright(last.axis) if last.kind == "planar" else np.eye(3)
        return JointGroup(_SINGLE[last.kind], (last,), Pose(rotation, last.anchor))
    if kinds == ["slide", "slide", "hinge"] and _perpendicular(axes):
        first, second = joints[:2] if np.cross(axes[0], axes[1]) @ axes[2] > 0 else joints[1::-1]
        frame = Pose(np.stack([first.axis, second.axis, last.axis], axis=1), last.anchor)
        return JointGroup("planar", (first, second, last), frame)
    if sorted(kinds) == ["hinge", "slide"] and np.abs(axes[0] - axes[1]).max() < _PARALLEL:
        hinge, slide = sorted(joints, key=lambda joint: joint.kind)
        return JointGroup("cylindrical", (hinge, slide), Pose(np.eye(3), hinge.anchor))
    if kinds == ["hinge", "hinge"] and _perpendicular(axes):
        normal, apart = np.cross(axes[0], axes[1]), joints[1].anchor - joints[0].anchor
        if abs(apart @ normal) < _PARALLEL:
            center = joints[0].anchor + (apart @ axes[0]) * axes[0]
            return JointGroup("universal", tuple(joints), Pose(np.stack([*axes, normal], axis=1), center))
    return None


def _perpendicular(axes: list[Floats]) -> bool:
    products = np.stack(axes) @ np.stack(axes).T
    return bool(np.allclose(products, np.eye(len(axes)), rtol=0, atol=_PARALLEL))


def _upright(axis: Floats) -> Floats:
    """A rotation whose z is an axis."""
    from scipy.spatial.transform import Rotation

    if np.allclose(axis, (0.0, 0.0, 1.0)):
        return np.eye(3)
    return np.asarray(Rotation.align_vectors([axis], [[0.0, 0.0, 1.0]])[0].as_matrix())
