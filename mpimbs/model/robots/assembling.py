"""From a `Robot` to a `System`: fixed links without mass are merged, joints of one link gathered or put apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.model.body import Body, Loop
from mpimbs.model.contents import JointRead
from mpimbs.model.gear import Gear
from mpimbs.model.geometry import Shape
from mpimbs.model.joint import Joint
from mpimbs.model.joints import joint_type
from mpimbs.model.names import WORLD
from mpimbs.model.robots.actuation import actuate, of_several
from mpimbs.model.robots.robot import (
    HERE,
    Controls,
    Pose,
    Robot,
    RobotJoint,
    RobotLink,
    RobotLoop,
    Servo,
    matrix_of,
    quaternion_of,
)
from mpimbs.model.spring import Tendon
from mpimbs.model.system import System

_PARALLEL = 1e-9  # sine or cosine of an angle below which axes count as parallel or perpendicular; m for points
_SINGLE = {"hinge": "revolute", "slide": "prismatic", "ball": "spherical", "free": "free", "planar": "planar"}


class JointGroup(NamedTuple):
    """One or several joints of a link that are one joint of a `System`."""

    type: str  # name of a row of `JOINT_TYPES`
    joints: tuple[RobotJoint, ...]  # in the order of the coordinates
    frame: Pose  # of the joint in the frame of the link, at the reference position

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
        if any(joint.felt for joint in self.joints):
            ends = [joint.limits if joint.felt and joint.limits else (-np.inf, np.inf) for joint in self.joints]
            found["lower"], found["upper"] = map(list, zip(*ends, strict=True))
            for name, k in (("stop_stiffness", 0), ("stop_damping", 1)):
                found[name] = [joint.felt * joint.stops[k] for joint in self.joints]
        if any(joint.friction_speed for joint in self.joints):
            found["friction"] = [joint.friction if joint.friction_speed else 0.0 for joint in self.joints]
            found["friction_speed"] = [joint.friction_speed for joint in self.joints]
        if any(joint.servo for joint in self.joints):
            servos = [joint.servo or Servo() for joint in self.joints]
            for name in Servo._fields:
                found[f"servo_{name}"] = of_several([getattr(servo, name) for servo in servos])
        torque = of_several([joint.torque for joint in self.joints])
        if callable(torque) or any(torque):
            found["torque"] = torque
        for name in ("q", "u", "rest"):
            given = [getattr(joint, name) for joint in self.joints]
            if any(value is not None for value in given):
                found[name] = [number for value in given for number in ((0.0,) if value is None else value)]
        return found


def grouped(joints: Sequence[RobotJoint], alone: Container[str] = ()) -> Iterator[JointGroup]:
    """Gather the joints of a link: as many at a time as there is a type for, none of those that have to stay alone."""
    rest = list(joints)
    while rest:
        for count in (3, 2, 1):
            free = count == 1 or not any(joint.name in alone for joint in rest[:count])
            group = _together(rest[:count]) if free and count <= len(rest) else None
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


_LEAST = 1e-15  # kg, and kg m^2: below it a link counts as without mass


def assembled(robot: Robot, controls: Controls | None = None) -> System:
    """Make the system of a robot; what it can't take over is noted in `robot.left_out`, where joints are in `order`.

    Raises
    ------
    InputError
        A link is of no rigid body, nothing resists a joint, or a control is of no actuator.
    """
    actuate(robot, controls)
    robot.feel_limits()
    robot.rub()
    links, groups, last = _single_jointed(_gathered(robot), robot)
    _merge(links, groups)
    moving = _moving(links, groups, robot)
    system = System(robot.name, robot.gravity)
    carriers = [(WORLD, HERE)] * len(links)  # of each link: a body, and the link's frame in the body's
    shapes: dict[str, list[Shape]] = {WORLD: []}
    made: list[tuple[str, dict[str, object]]] = []
    moved_by: dict[str, str] = {}  # of joints that are no part of others, the bodies
    for number, link in enumerate(links):
        on, place = carriers[link.parent] if link.parent >= 0 else (WORLD, HERE)
        here, group = place @ link.pose, groups[number]
        if number not in moving or (group is None and (on == WORLD or _massless(link))):
            carriers[number] = on, here
            shapes[on] += [_placed(shape, here) for shape in link.shapes]
            continue
        base, body = (here @ group.base, group.body) if group else (here, HERE)
        own = body.inverse
        carriers[number] = link.name, own
        shapes[link.name] = [_placed(shape, own) for shape in link.shapes]
        joint = {"type": "fixed"} if group is None else group.fields()
        robot.order += group.joints if group else ()
        if group and group.type in ("revolute", "prismatic"):
            moved_by[group.name] = link.name
        joint |= {"position": base.position, "rotation": quaternion_of(base)}
        fields = {"mass": link.mass, "center_of_mass": (own @ Pose(np.eye(3), link.center)).position}
        fields |= {"inertia": _six(own.rotation @ link.inertia @ own.rotation.T), "parent": on}
        made.append((link.name, fields | {"joint": joint}))
    bodies, refused = [], []
    for name, given in made:
        joint = Joint(**given.pop("joint"))  # type: ignore[arg-type]
        try:
            bodies.append(_body(robot, name=name, geometry=tuple(shapes[name]), joint=joint, **given))
        except InputError as error:
            refused.append(str(error))
    if refused:
        raise InputError("; ".join(refused))
    for each in bodies:
        system.add(each)
    system.contents.coordinates = tuple(_coordinates(robot))
    for loop in robot.loops:
        _close(system, loop, robot, [carriers[k] for k in last])
    _add_gears(system, robot, moved_by)
    _add_tendons(system, robot, moved_by)
    for number, center, mass in robot.lifted:
        name, frame = carriers[last[number]]
        if name != WORLD:
            point = (frame @ Pose(np.eye(3), center)).position
            system.add_wrench(name, force=-mass * np.asarray(robot.gravity), point=point, frame="world")
    return system


def _body(robot: Robot, **given: Any) -> Body:
    """A body, whose inertia may be of no rigid one: what is taken as it stands is noted."""
    try:
        return Body(**given)
    except InputError:
        if robot.inertias == "refuse":
            raise
        body = Body(**given, unphysical=True)
    *others, largest = body.principal_moments
    told = f"{100 * (largest / sum(others) - 1.0):.2g} % beyond" if body.mass else "without mass"
    if robot.inertias == "keep" or not body.mass:
        robot.take("taken as it stands: inertia of no rigid body", f"{body.name} ({told})")
        return body
    robot.take("mended: inertia of no rigid body", f"{body.name} ({told})")
    return Body(**given | {"inertia": _nearest(body.inertia)})


def _nearest(inertia: tuple[float, ...]) -> tuple[float, ...]:
    """The inertia of a rigid body, a flat one, that is nearest to one of none, in the norm of Frobenius.

    That has the same principal axes; of moments a <= b < c - a the nearest with a + b = c is a third of what c is
    beyond from each.
    """
    xx, yy, zz, xy, xz, yz = inertia
    moments, axes = np.linalg.eigh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    beyond = moments[2] - moments[0] - moments[1]
    return _six(axes @ np.diag(moments + beyond / 3.0 * np.array([1.0, 1.0, -1.0])) @ axes.T)


def _coordinates(robot: Robot) -> Iterator[JointRead]:
    """Each joint, and where its coordinates and speeds begin."""
    q = u = 0
    for joint in robot.order:
        yield JointRead(joint.name, joint.kind, q, u, joint.limits, joint.friction, joint.actuators)
        nq, nu = {"free": (7, 6), "ball": (4, 3), "planar": (3, 3)}.get(joint.kind, (1, 1))
        q, u = q + nq, u + nu


def _add_gears(system: System, robot: Robot, bodies: dict[str, str]) -> None:
    """Add the gears to the system, given the bodies of joints that are no part of others."""
    for gear in robot.gears:
        if gear.joint not in bodies or gear.of not in bodies:
            robot.leave_out("gear of a joint that is left out", gear.name)
        elif not gear.ratio:
            robot.leave_out("gear of ratio zero", gear.name)
        else:
            given = gear._asdict() | {"joint": bodies[gear.joint], "of": bodies[gear.of]}
            system.add_gear(Gear(**given))


def _add_tendons(system: System, robot: Robot, bodies: dict[str, str]) -> None:
    """Add the tendons to the system, each by a name of its own; `bodies` as in `_add_gears`."""
    for tendon in (*robot.tendons, *robot.tendon_limits):
        if any(joint not in bodies for joint in tendon.over):
            robot.leave_out("tendon over a joint that is left out", tendon.name)
            continue
        name = tendon.name
        while name in system.contents.loads.tendons:
            name += "_"
        given = {key: value for key, value in tendon._asdict().items() if key != "over"} | {"name": name}
        joints = tuple(bodies[joint] for joint in tendon.over)
        system.add_tendon(Tendon(**given, joints=joints, ratios=tuple(tendon.over.values())))


def _gathered(robot: Robot) -> list[RobotLink]:
    """The links with the joints of those before them that are there for nothing else: such are left without joints."""
    links = [replace(link, joints=list(link.joints)) for link in robot.links]
    ends = {number for loop in robot.loops for number in loop.links}
    children = Counter(link.parent for link in links)
    for number, link in enumerate(links):
        if link.parent < 0:
            continue
        before = links[link.parent]
        plain = before.joints and all(joint.kind in ("hinge", "slide") for joint in before.joints)
        if not plain or before.shapes or link.parent in ends or children[link.parent] > 1 or not _massless(before):
            continue
        own = link.pose.inverse
        moved = [
            replace(joint, axis=own.rotation @ joint.axis, anchor=(own @ Pose(np.eye(3), joint.anchor)).position)
            for joint in before.joints
        ]
        links[number] = replace(link, pose=before.pose @ link.pose, parent=before.parent, joints=moved + link.joints)
        links[link.parent] = replace(before, joints=[])
    return links


def _single_jointed(given: list[RobotLink], robot: Robot) -> tuple[list[RobotLink], list[JointGroup | None], list[int]]:
    """Put a link for each joint between; give all of them, their joints, and where each link of the robot is."""
    taken = {WORLD} | {link.name for link in given}
    alone = {joint for tendon in (*robot.tendons, *robot.tendon_limits) for joint in tendon.over}
    alone.update(joint for gear in robot.gears for joint in (gear.joint, gear.of))
    links: list[RobotLink] = []
    groups: list[JointGroup | None] = []
    last: list[int] = []
    for link in given:
        found: list[JointGroup | None] = [*grouped(link.joints, alone)]
        *before, own = found or [None]
        parent, pose = last[link.parent] if link.parent >= 0 else -1, link.pose
        for group in before:
            name = _free_name(group.name if group else "", taken)
            links.append(RobotLink(name, parent, pose))
            groups.append(group)
            parent, pose = len(links) - 1, HERE
        name = _free_name(robot.name, taken) if link.name == WORLD else link.name
        links.append(replace(link, name=name, parent=parent, pose=pose))
        groups.append(own)
        last.append(len(links) - 1)
    return links, groups, last


def _free_name(name: str, taken: set[str]) -> str:
    """A name that no link has."""
    candidates = iter([name, *(f"{name}_{k}" for k in range(2, len(taken) + 3))])
    found = next(candidate for candidate in candidates if candidate and candidate not in taken)
    taken.add(found)
    return found


def _massless(link: RobotLink) -> bool:
    return link.mass < _LEAST and not (np.abs(link.inertia) > _LEAST).any()


def _moving(links: list[RobotLink], groups: list[JointGroup | None], robot: Robot) -> set[int]:
    """The links that are not left out: those that carry mass."""
    heavy = [not _massless(link) for link in links]
    for number in range(len(links) - 1, -1, -1):
        if heavy[number] and links[number].parent >= 0:
            heavy[links[number].parent] = True
    for number, group in enumerate(groups):
        if group is not None and not heavy[number]:
            robot.leave_out("joint that carries no mass", group.name)
    return {number for number in range(len(links)) if heavy[number]}


def _merge(links: list[RobotLink], groups: list[JointGroup | None]) -> None:
    """Add fixed links to what they lie on where either is no rigid body by itself; that carries what is on them."""
    for number in range(len(links) - 1, -1, -1):
        link = links[number]
        if groups[number] is not None or link.parent < 0 or _massless(link):
            continue
        if not (_is_body(link) and _is_body(links[link.parent])):
            _add(links[link.parent], link)
            link.mass, link.inertia = 0.0, np.zeros((3, 3))
    for link in links:  # on what is left of them nothing lies
        while link.parent >= 0 and groups[link.parent] is None and _massless(above := links[link.parent]):
            link.parent, link.pose = above.parent, above.pose @ link.pose


def _add(before: RobotLink, link: RobotLink) -> None:
    """Add a link's mass and inertia to those of the one that it is fixed to."""
    turn, place = link.pose
    added = link.mass, turn @ link.center + place, turn @ link.inertia @ turn.T
    parts = [(before.mass, before.center, before.inertia), added]
    before.mass = sum(mass for mass, _, _ in parts)
    before.center = sum((mass * center for mass, center, _ in parts), np.zeros(3)) / (before.mass or 1.0)
    before.inertia = np.zeros((3, 3))
    for mass, center, inertia in parts:
        away = center - before.center
        before.inertia = before.inertia + inertia + mass * (away @ away * np.eye(3) - np.outer(away, away))


def _is_body(link: RobotLink) -> bool:
    try:
        Body(name=link.name, mass=link.mass, inertia=_six(link.inertia), joint=Joint(type="fixed"))
    except InputError:
        return False
    return True


def _close(system: System, loop: RobotLoop, robot: Robot, carriers: list[tuple[str, Pose]]) -> None:
    """Add a loop to the system."""
    ends = [carriers[k] if k >= 0 else (WORLD, HERE) for k in loop.links]
    frames = [frame @ pose for (_, frame), pose in zip(ends, loop.poses, strict=True)]
    bodies = ends[0][0], ends[1][0]
    if bodies[0] == bodies[1]:
        robot.leave_out("loop between links that are one body", loop.name)
        return
    system.add_loop(
        Loop(
            name=loop.name,
            type=loop.type,
            bodies=bodies,
            positions=[frame.position for frame in frames],
            rotations=[quaternion_of(frame) for frame in frames],
            active=loop.active,
        )
    )


def _placed(shape: Shape, frame: Pose) -> Shape:
    """A shape of a link, in the frame of the body that carries it."""
    pose = frame @ Pose(matrix_of(shape.rotation), np.array(shape.position))
    return shape.model_copy(
        update={"position": tuple(pose.position.tolist()), "rotation": tuple(quaternion_of(pose).tolist())}
    )


def _six(inertia: Floats) -> tuple[float, ...]:
    """A matrix [3, 3] as xx yy zz xy xz yz."""
    return tuple(float(inertia[i, j]) for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)))


def lines_left_out(robot: Robot) -> Iterator[str]:
    """Say what was left out of a robot: a line for each kind."""
    for kind, names in robot.taken.items():
        yield f"{kind}: {', '.join(names)}"
    for kind, names in robot.left_out.items():
        yield f"left out: {kind}: {', '.join(names)}"
