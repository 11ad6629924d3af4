"""Whether something resists every joint of a robot: where nothing does, no accelerations are right.

So it is with a link without inertia that its own joint moves as the joints on it do, such as a floating base without
mass that carries a hinge: the base may turn about the hinge's axis as it likes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpimbs.base.errors import InputError
from mpimbs.model.robots.joint_groups import JointGroup
from mpimbs.model.robots.robot import Floats, Pose, Robot, RobotLink

_NOTHING = 1e-11  # of what would resist with all joints beyond locked: what rounding leaves of nothing


def check_resistance(
    links: Sequence[RobotLink], groups: Sequence[JointGroup | None], moving: set[int], robot: Robot
) -> None:
    """Refuse links, with their joints, of which one moves against nothing, in the reference position.

    Where nothing would even with all joints beyond locked, as at a hinge through a point mass, it is told alone.

    Parameters
    ----------
    links : sequence of RobotLink
        Each after the one that it lies on.
    groups : sequence of JointGroup or None
        By what each link moves.
    moving : set of int
        The links that carry mass.
    robot : Robot
        Which notes what is told.

    Raises
    ------
    InputError
    """
    locked = [_inertia(link) for link in links]  # of all that lies on a link, its joints locked
    joined = [inertia.copy() for inertia in locked]  # articulated inertia [Featherstone 2008, eq. 7.23]
    for number in sorted(moving, reverse=True):
        link, group = links[number], groups[number]
        own = joined[number]
        if group is not None:
            axes = _axes(group)  # S
            armature = [value for joint in group.joints for value in joint.armature]
            rotors = np.diag(np.broadcast_to(armature, axes.shape[1])) if any(armature) else 0.0
            pivot = axes.T @ own @ axes + rotors  # D = S^T I S
            scale = np.sqrt(np.diag(axes.T @ locked[number] @ axes + rotors))
            if not scale.all():
                robot.leave_out(
                    "resistance (nothing has inertia there: its accelerations mean nothing) at joint", group.name
                )
            elif np.linalg.eigvalsh(pivot / np.outer(scale, scale))[0] < _NOTHING:
                raise InputError(
                    f"joint {group.name!r}: nothing resists it: link {link.name!r} has no inertia of its own, and "
                    "joints on it move it the same way; give the link mass and inertia, or fix one of these joints"
                )
            else:
                own = own - own @ axes @ np.linalg.solve(pivot, axes.T @ own)
        if link.parent >= 0:
            back = _transform(link.pose.inverse)
            joined[link.parent] += back.T @ own @ back
            locked[link.parent] += back.T @ locked[number] @ back


def _inertia(link: RobotLink) -> Floats:
    """The spatial inertia [6, 6] of a link in its frame."""
    across = _cross(link.center)
    return np.block([
        [link.inertia - link.mass * across @ across, link.mass * across],
        [-link.mass * across, link.mass * np.eye(3)],
    ])  # fmt: skip


def _axes(group: JointGroup) -> Floats:
    """The motions that joints allow, in the frame of their link [6, n]."""
    found: list[Floats] = []
    for joint in group.joints:
        turn, slide = {
            "hinge": (joint.axis[None], np.zeros((0, 3))),
            "slide": (np.zeros((0, 3)), joint.axis[None]),
            "ball": (np.eye(3), np.zeros((0, 3))),
            "free": (np.eye(3), np.eye(3)),
            "planar": (joint.axis[None], group.frame.rotation.T[:2]),
        }[joint.kind]
        found += [np.append(axis, np.cross(joint.anchor, axis)) for axis in turn]
        found += [np.append(np.zeros(3), axis) for axis in slide]
    return np.stack(found, axis=1)


def _transform(pose: Pose) -> Floats:
    """What takes motions of the frame in which a pose is told to its own [6, 6]; `pose` is that of the outer in it."""
    turn = pose.rotation
    return np.block([[turn, np.zeros((3, 3))], [_cross(pose.position) @ turn, turn]])


def _cross(vector: Floats) -> Floats:
    """The matrix of the cross product with a vector [3, 3]."""
    x, y, z = vector
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
