"""A robot as files of others describe it: links, several joints each, loops, and what can't be taken over.

Every link has a frame of its own. A pose is that of the link's frame at the reference position, in which each joint's
coordinate has its reference value.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, cross_matrix
from mpimbs.model.geometry import Shape
from mpimbs.model.over_time import Lagged, OverTime
from mpimbs.model.text import table
from mpimbs.model.text.table import TimeFunction

STOP_TIME = 0.02  # s: by which joints come back from beyond their limits, critically damped; as in MuJoCo
JointKind = Literal["hinge", "slide", "ball", "free", "planar"]

Control = float | TimeFunction | Sequence[Sequence[float]]
"""What an actuator is told: a number, a function of time (s), or rows of a time (s) and a number."""
Controls = Mapping[str, Control] | str | os.PathLike[str]
"""Controls by the names of actuators; or a table of them over time."""


class Pose(NamedTuple):
    """A frame in another: its axes as columns [3, 3], its origin [3] (m)."""

    rotation: Floats
    position: Floats

    def __matmul__(self, inner: Pose) -> Pose:
        """The pose of a frame that lies in this one."""
        return Pose(self.rotation @ inner.rotation, self.rotation @ inner.position + self.position)

    @property
    def inverse(self) -> Pose:
        """The outer frame in the inner one."""
        return Pose(self.rotation.T, -self.rotation.T @ self.position)


UNBOUNDED = (-np.inf, np.inf)  # a range without ends
HERE = Pose(np.eye(3), np.zeros(3))


def matrix_of(quaternion: tuple[float, ...] | Floats) -> Floats:
    """The rotation [3, 3] of a quaternion w x y z."""
    from scipy.spatial.transform import Rotation

    w, x, y, z = quaternion
    if (x, y, z) == (0.0, 0.0, 0.0):
        return np.eye(3)
    return np.asarray(Rotation.from_quat([x, y, z, w]).as_matrix())


def quaternion_of(pose: Pose) -> Floats:
    """The rotation of a pose as a quaternion w x y z."""
    if (pose.rotation == HERE.rotation).all():  # as most are: robots have thousands
        return np.array([1.0, 0.0, 0.0, 0.0])
    from scipy.spatial.transform import Rotation

    found = Rotation.from_matrix(pose.rotation).as_quat()[[3, 0, 1, 2]]
    return np.asarray(found if found[0] >= 0 else -found)


class Servo(NamedTuple):
    """What a joint's servo asks for, and its range: as `servo_...` of `Joint`."""

    stiffness: float = 0.0
    damping: float = 0.0
    torque: float | TimeFunction = 0.0
    least: float = -np.inf
    most: float = np.inf


@dataclass
class RobotJoint:
    """A joint of a link, in the link's frame at the reference position."""

    name: str
    kind: JointKind
    # [3]: unit vector of a hinge or slide, normal of a planar joint; a point of the axis, or the center (m)
    axis: Floats = field(default_factory=lambda: np.array([0.0, 0.0, 1.0]))
    anchor: Floats = field(default_factory=lambda: np.zeros(3))  # [3]
    reference: float = 0.0  # coordinate of a hinge or slide in the reference position (rad, m)
    q: tuple[float, ...] | None = None  # initial coordinates, and those at which springs carry no load
    rest: tuple[float, ...] | None = None
    stiffness: tuple[float, ...] = (0.0,)  # of each free axis
    damping: tuple[float, ...] = (0.0,)
    armature: tuple[float, ...] = (0.0,)
    u: tuple[float, ...] | None = None  # initial speeds
    limits: tuple[float, float] | None = None  # least and largest coordinate of a hinge or slide (rad, m)
    # stiffness (1/s^2) and damping (1/s) of what keeps it there, by the inertia that the joint feels
    stops: tuple[float, float] = (1.0 / STOP_TIME**2, 2.0 / STOP_TIME)
    felt: float = 0.0  # that inertia, at the reference position (kg m^2, kg); 0 where nothing keeps it to its limits
    # Coulomb's (N m, N), and up to which speed (rad/s, m/s) it is viscous: 0 where it is left out
    friction: float = 0.0
    friction_speed: float = 0.0
    actuators: tuple[str, ...] = ()  # what drives it
    torque: float | TimeFunction = 0.0  # what these do to it beside springs and dampers (N m, N)
    servo: Servo | None = None  # what one of them does whose force has a range, and a spring or damper

    def moved(self, distance: float) -> Pose:
        """How far a hinge or slide moves what is on it, by a part of its coordinate (rad, m), from its anchor."""
        if not distance:
            return HERE
        from scipy.spatial.transform import Rotation

        if self.kind == "hinge":
            return Pose(np.asarray(Rotation.from_rotvec(distance * self.axis).as_matrix()), np.zeros(3))
        return Pose(np.eye(3), distance * self.axis)


@dataclass
class RobotLink:
    """A rigid body of a robot."""

    name: str
    parent: int  # number of the link that it lies on, one before it; -1 the world
    pose: Pose = HERE  # its frame in that of the parent
    # from the parent to it, one after the other; none where it is fixed
    joints: list[RobotJoint] = field(default_factory=list)
    mass: float = 0.0  # kg
    center: Floats = field(default_factory=lambda: np.zeros(3))  # [3]: center of mass (m)
    # [3, 3]: about the center of mass, in the axes of the link (kg m^2)
    inertia: Floats = field(default_factory=lambda: np.zeros((3, 3)))
    shapes: list[Shape] = field(default_factory=list)  # in the frame of the link


class RobotLoop(NamedTuple):
    """A loop between two links: a ball joint ("spherical") or a weld ("fixed"); -1 is the world."""

    name: str
    type: Literal["spherical", "fixed"]
    links: tuple[int, int]
    poses: tuple[Pose, Pose]  # of the joint in the frames of the links
    active: bool = True


class RobotGear(NamedTuple):
    """A hinge or slide that follows another: its coordinate is ratio times that of the other, and offset."""

    name: str
    joint: str
    of: str
    ratio: float
    offset: float
    active: bool = True


class RobotTendon(NamedTuple):
    """A servo along a sum of coordinates of hinges and slides, each times a ratio; as `Tendon` of the model."""

    name: str
    over: dict[str, float]  # the ratios, by joints
    stiffness: float = 0.0
    damping: float = 0.0
    rest: float = 0.0
    force: float | TimeFunction = 0.0
    least: float = -np.inf
    most: float = np.inf
    lower: float = -np.inf
    upper: float = np.inf
    stop_stiffness: float = 0.0
    stop_damping: float = 0.0


def within(value: float, ends: Sequence[float]) -> float:
    """Give a value, or the end of its range that it is beyond; what is no number as it is."""
    return ends[0] if value < ends[0] else ends[1] if value > ends[1] else value


class RobotActuator(NamedTuple):
    """An actuator of a hinge or slide, or of a tendon: its force is gain c + bias[0] + bias[1] length + bias[2] speed.

    Of its control c it takes what is within its range, of that force what is within its strength. Length and speed are
    `gear` times the joint's coordinate and speed, and so is the joint's force the actuator's, as in MuJoCo's "actuation
    model".
    """

    name: str
    joint: str
    gear: float
    gain: float
    bias: tuple[float, float, float]
    control: Control = 0.0
    range: tuple[float, float] = UNBOUNDED
    strength: tuple[float, float] = UNBOUNDED
    over: dict[str, float] | None = None  # of a tendon, which the joint is then: the ratios, by joints
    lag: float = 0.0  # s, with which it follows its control
    begin: float = 0.0  # what of a control it begins with

    def no_stronger(self, least: float, most: float) -> RobotActuator:
        """Give one whose force stays within a range: of no spring, damper or lag by the range of its control."""
        if any(self.bias[1:]) or not self.gain or self.lag:
            first, last = (within(end, (least, most)) for end in self.strength)
            return self._replace(strength=(first, last))
        ends = sorted(((least - self.bias[0]) / self.gain, (most - self.bias[0]) / self.gain))
        first, last = (within(end, ends) for end in self.range)
        return self._replace(range=(first, last))

    def lagging(self) -> RobotActuator:
        """Give one whose control is what it makes of its own, with its lag: of a number or rows."""
        rows = self.control if isinstance(self.control, OverTime) else OverTime([(0.0, table.number(self.control))])
        followed = rows.within(self.range)
        return self._replace(control=Lagged((followed, self.lag, (self.begin,))), range=UNBOUNDED)

    @property
    def grows(self) -> bool:
        """Whether its force grows with what it moves, as that of no spring and damper does."""
        return max(self.bias[1:]) > 0.0


@dataclass
class Robot:
    """A robot as the file of another program describes it."""

    name: str
    gravity: tuple[float, ...] = (0.0, 0.0, -9.81)  # m/s^2
    links: list[RobotLink] = field(default_factory=list)
    loops: list[RobotLoop] = field(default_factory=list)
    gears: list[RobotGear] = field(default_factory=list)
    tendons: list[RobotTendon] = field(default_factory=list)
    tendon_limits: list[RobotTendon] = field(default_factory=list)
    actuators: list[RobotActuator] = field(default_factory=list)
    # links whose weight is compensated, where (their centers of mass [3], m), and of how much mass (kg)
    lifted: list[tuple[int, Floats, float]] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)  # what can't be taken over: by kind, the names
    # what is taken as it stands though it can't be right, or mended: likewise
    taken: dict[str, list[str]] = field(default_factory=dict)
    inertias: str = "keep"  # "keep", "repair" or "refuse": what is done with inertias of no rigid body
    limits: str = "off"  # "on" or "off": whether stops keep joints and tendons to their limits; whether actuators act
    actuation: str = "off"
    friction_speed: float = 0.0  # of the friction of all joints (rad/s, m/s); 0 where it is left out
    # the joints in the order in which the system made of it has their coordinates
    order: list[RobotJoint] = field(default_factory=list)

    def feel_limits(self) -> None:
        """Find the inertias that joints with limits feel, or note that these are left out.

        Of a joint it is that of all that hangs on it at the reference position, along its axis, and its rotor's: its
        entry of the diagonal of M.
        """
        limited = [
            (k, joint, joint.limits) for k, link in enumerate(self.links) for joint in link.joints if joint.limits
        ]
        if self.limits == "off":
            for _, joint, _ in limited:
                self.leave_out("limit of joint", joint.name)
            for tendon in self.tendon_limits:
                self.leave_out("limit of tendon", tendon.name)
            self.tendon_limits = []
            return
        poses: list[Pose] = []
        for link in self.links:
            poses.append((poses[link.parent] if link.parent >= 0 else HERE) @ link.pose)
        composite = [_about_origin(link, pose) for link, pose in zip(self.links, poses, strict=True)]
        for number in range(len(self.links) - 1, -1, -1):
            link = self.links[number]
            if link.parent >= 0:
                composite[link.parent] += composite[number]
        for number, joint, (least, most) in limited:
            rotation, position = poses[number]
            axis, anchor = rotation @ joint.axis, rotation @ joint.anchor + position
            turning, sliding = (axis, cross_matrix(anchor) @ axis) if joint.kind == "hinge" else (np.zeros(3), axis)
            twist = np.concatenate([turning, sliding])
            joint.felt = float(twist @ composite[number] @ twist) + joint.armature[0]
            here = joint.q[0] if joint.q else 0.0
            if beyond := max(here - most, least - here, 0.0):
                self.take("begins beyond its limits, to which stops push it back", f"{joint.name} by {beyond:.3g}")

    def rub(self) -> None:
        """Let friction act in joints that have any, or note that it is left out."""
        for joint in (joint for link in self.links for joint in link.joints if joint.friction):
            if self.friction_speed and joint.kind in ("hinge", "slide"):
                joint.friction_speed = self.friction_speed
            else:
                self.leave_out("friction of joint", joint.name)

    def leave_out(self, kind: str, name: str) -> None:
        """Note what can't be taken over."""
        self.left_out.setdefault(kind, []).append(name)

    def take(self, kind: str, name: str) -> None:
        """Note what is taken as it stands, or mended."""
        self.taken.setdefault(kind, []).append(name)


def _about_origin(link: RobotLink, pose: Pose) -> Floats:
    """The inertia [6, 6] of a link in a pose, about the origin of that frame; angular parts first."""
    across, found = cross_matrix(pose.rotation @ link.center + pose.position), np.zeros((6, 6))
    found[:3, :3] = pose.rotation @ link.inertia @ pose.rotation.T + link.mass * across.T @ across
    found[:3, 3:], found[3:, :3] = link.mass * across, link.mass * across.T
    found[3:, 3:] = link.mass * HERE.rotation
    return found
