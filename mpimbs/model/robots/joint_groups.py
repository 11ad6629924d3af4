"""Joints of one link that follow one another, gathered to joints of the types that a `System` has, in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
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
        """How far the reference value of a joint's coordinate moves, in the frame of the joint."""
        return replace(joint, axis=self.frame.rotation.T @ joint.axis).moved(joint.reference)

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
        if np.cross(axes[0], axes[1]) @ axes[2] < 0:
            return None  # the other way round, and coordinates are in the file's order
        return JointGroup("planar", tuple(joints), Pose(np.stack(axes, axis=1), last.anchor))
    if kinds == ["hinge", "slide"] and np.abs(axes[0] - axes[1]).max() < _PARALLEL:
        return JointGroup("cylindrical", tuple(joints), Pose(np.eye(3), joints[0].anchor))
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
