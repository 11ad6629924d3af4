"""A system as a Pinocchio model.

Cylindrical and planar joints are Pinocchio's composite joints; a fixed body is appended to its parent. Loops are closed
by Pinocchio's contacts. It has none for a hinge: there it holds the point alone, which is enough in a plane mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pinocchio as pin
from scipy.spatial.transform import Rotation

from laboratory.peer import Floats, Peer, check_model, check_need, plain_joint_forces
from mpimbs.model import JOINT_TYPES, System

X, Y, Z = np.eye(3)


def one_axis(axis: Floats, kind: str) -> pin.JointModel:
    """Make the revolute (R) or prismatic (P) joint about an axis: Pinocchio has faster ones for x, y and z."""
    for name, unit in zip("XYZ", (X, Y, Z), strict=True):
        if np.array_equal(axis, unit):
            return getattr(pin, f"JointModel{kind}{name}")()
    return {"R": pin.JointModelRevoluteUnaligned, "P": pin.JointModelPrismaticUnaligned}[kind](axis)


def composite(*parts: pin.JointModel) -> pin.JointModel:
    """Make a joint of several in sequence."""
    joint = pin.JointModelComposite(len(parts))
    for part in parts:
        joint.addJoint(part)
    return joint


# Of each type: the Pinocchio joint from axis and pitch.
JOINTS: dict[str, Callable[[Floats, float], pin.JointModel]] = {
    "revolute": lambda axis, pitch: one_axis(axis, "R"),
    "prismatic": lambda axis, pitch: one_axis(axis, "P"),
    "helical": lambda axis, pitch: pin.JointModelHelicalUnaligned(axis, pitch),
    "cylindrical": lambda axis, pitch: composite(one_axis(axis, "R"), one_axis(axis, "P")),
    "universal": lambda axis, pitch: pin.JointModelUniversal(X, Y),
    "spherical": lambda axis, pitch: pin.JointModelSpherical(),
    "planar": lambda axis, pitch: composite(pin.JointModelPX(), pin.JointModelPY(), pin.JointModelRZ()),
    "free": lambda axis, pitch: pin.JointModelFreeFlyer(),
}
# Where our coordinates and speeds stand among Pinocchio's: quaternion x y z w; free: the linear part first.
Q_ORDER = {"spherical": (3, 0, 1, 2), "free": (6, 3, 4, 5, 0, 1, 2)}
U_ORDER = {"free": (3, 4, 5, 0, 1, 2)}

# How a system with loops is evaluated: the function, what its proximal method begins with, and the most iterations.
# constraintDynamics is as accurate as our own; lcaba, on 321 bodies of `four_bar:160`, to 1e-4 by one iteration and to
# 2e-7 by twenty, of which each takes a fifth as long as the first.
LOOP_WAYS = {
    "constraintDynamics": ("constraintDynamics", 1e-8, 3),
    "lcaba, 20 iterations": ("lcaba", 1e-4, 20),
    "lcaba, 1 iteration": ("lcaba", 1e-6, 1),
}
LOOP_ACCURACY = 1e-12  # at which the iterations end
ROUGH = {"lcaba, 20 iterations": 1e-5, "lcaba, 1 iteration": 1e-3}


def subtrees_together(parent: Sequence[int]) -> list[int]:
    """Order the bodies so that every subtree is contiguous, as Pinocchio's inertia matrix needs them."""
    children: dict[int, list[int]] = {}
    for k, p in enumerate(parent):
        children.setdefault(p, []).append(k)
    order, waiting = [], children.get(-1, [])[::-1]
    while waiting:
        order.append(waiting.pop())
        waiting.extend(children.get(order[-1], [])[::-1])
    return order


class LoopKind(NamedTuple):
    """How Pinocchio closes a loop by a type of joint, and about which axes that turns.

    `axes` gives, of the joint's axis, those in the joint frame [3, nu]; `rest` the rotation at the coordinates `rest`.
    """

    contact: pin.ContactType
    axes: Callable[[Floats], Floats]
    rest: Callable[[Floats, Floats], Rotation]


LOOPS: dict[str, LoopKind] = {
    "fixed": LoopKind(
        pin.ContactType.CONTACT_6D, lambda axis: np.zeros((3, 0)), lambda axis, rest: Rotation.identity()
    ),
    "revolute": LoopKind(
        pin.ContactType.CONTACT_3D, lambda axis: axis[:, None], lambda axis, rest: Rotation.from_rotvec(rest[0] * axis)
    ),
    "spherical": LoopKind(
        pin.ContactType.CONTACT_3D,
        lambda axis: np.eye(3),
        lambda axis, rest: Rotation.from_quat(rest[[1, 2, 3, 0]]),
    ),
}


class PinocchioModel:
    """A system built as a Pinocchio model: bodies, joints, gravity, what closes loops; no loads.

    Attributes
    ----------
    columns : Columns
        Of the system.
    model : pin.Model
    carriers : list of (int, pin.SE3)
        Of each body, its Pinocchio joint and its frame in that joint's.
    ends : list of list of (int, pin.SE3)
        Of each loop, the Pinocchio joints of its two bodies and its frame in theirs.
    contacts : pin.StdVec_RigidConstraintModel
        What closes the loops; of a list of Python `lcaba` would take several times as long.
    q_index, u_index : int array [nq], [nu]
        Where our coordinates and speeds stand among Pinocchio's.
    """

    def __init__(self, system: System) -> None:
        self.columns = c = system.columns()
        self.model = model = pin.Model()
        model.gravity = pin.Motion(np.asarray(system.gravity, dtype=float), np.zeros(3))
        self.carriers = [(0, pin.SE3.Identity())] * c.n
        q_index, u_index = [np.zeros(0, int)] * c.n, [np.zeros(0, int)] * c.n
        for k in subtrees_together(c.parent.tolist()):
            name = JOINT_TYPES[c.joint_type[k]].name
            carrier, placement = self.carriers[c.parent[k]] if c.parent[k] >= 0 else (0, pin.SE3.Identity())
            placement = placement * pin.SE3(pin.Quaternion(*c.rotation[k]).matrix(), c.position[k])
            if name != "fixed":
                joint = JOINTS[name](c.axis[k], float(c.pitch[k]))
                carrier, placement = model.addJoint(carrier, joint, placement, f"{k}"), pin.SE3.Identity()
                added = model.joints[carrier]
                q_index[k] = added.idx_q + np.array(Q_ORDER.get(name, range(added.nq)))
                u_index[k] = added.idx_v + np.array(U_ORDER.get(name, range(added.nv)))
            self.carriers[k] = carrier, placement
            xx, yy, zz, xy, xz, yz = c.inertia[k]
            inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
            model.appendBodyToJoint(carrier, pin.Inertia(c.mass[k], c.center_of_mass[k], inertia), placement)
        self.q_index, self.u_index = np.concatenate(q_index), np.concatenate(u_index)
        model.armature = self.u_of(c.armature)
        self.ends, self.contacts = [], pin.StdVec_RigidConstraintModel()
        for bodies, loop in system.loop_joints:
            carried = [self.carriers[k] if k >= 0 else (0, pin.SE3.Identity()) for k in bodies]
            frames = [
                pin.SE3(pin.Quaternion(*rotation).matrix(), np.array(position))
                for rotation, position in zip(loop.rotations, loop.positions, strict=True)
            ]
            ends = [(carrier, placement * frame) for (carrier, placement), frame in zip(carried, frames, strict=True)]
            self.ends.append(ends)
            world_last = ends if ends[0][0] else ends[::-1]  # lcaba reads beyond its arrays where it comes first
            contact = LOOPS[loop.type].contact
            self.contacts.append(pin.RigidConstraintModel(contact, model, *world_last[0], *world_last[1]))

    def q_of(self, q: Floats) -> Floats:
        """Give our coordinates as Pinocchio's."""
        theirs = np.empty(self.model.nq)
        theirs[self.q_index] = q
        return theirs

    def u_of(self, u: Floats) -> Floats:
        """Give our speeds, accelerations or generalized forces as Pinocchio's."""
        theirs = np.empty(self.model.nv)
        theirs[self.u_index] = u
        return theirs


def memory_needed(nu: int) -> float:
    """Memory of Pinocchio's data (bytes).

    Its `Data` holds the second derivatives of inverse dynamics d2tau_dqdq, d2tau_dvdv, d2tau_dqdv, d2tau_dadq, each a
    tensor of nv^3 doubles that is set to zero on construction, whether they are wanted or not: 4 * 8 nv^3 bytes. The
    rest is some nv x nv matrices, kinematic_hessians (6 nv^2), Fcrb (6 nv for each joint) and jointTorqueRegressor
    (10 nv for each joint); its 360 nv^2 are measured. The wheel of 4.1 takes 570 MB at nv = 256 and 4389 MB at 512;
    this formula gives 561 and 4389.
    """
    return 32.0 * nu**3 + 360.0 * nu**2


def loop_forces(system: System, built: PinocchioModel, q: Floats, u: Floats) -> Floats:
    """Give what springs, dampers and torques at time 0 of loop joints are on the tree's joints (Pinocchio's order)."""
    total = np.zeros(built.model.nv)
    data = built.model.createData()
    pin.computeJointJacobians(built.model, data, q)
    pin.forwardKinematics(built.model, data, q, u)
    for (_, loop), ends in zip(system.loop_joints, built.ends, strict=True):
        if not (loop.driven or any(loop.stiffness) or any(loop.damping)):
            continue
        kind, axis = LOOPS[loop.type], np.array(loop.axis)
        first, second = (data.oMi[carrier].rotation @ placement.rotation for carrier, placement in ends)
        turns = [
            pin.getJointJacobian(built.model, data, carrier, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED)[3:]
            for carrier, _ in ends
        ]
        turn = turns[1] - turns[0]
        axes = kind.axes(axis)
        from_rest = (kind.rest(axis, np.array(loop.rest)).inv() * Rotation.from_matrix(first.T @ second)).as_rotvec()
        torque = loop.torque(0.0) if callable(loop.torque) else loop.torque
        stretch, speed = axes.T @ from_rest, axes.T @ second.T @ turn @ u
        acting = torque - np.array(loop.stiffness) * stretch - np.array(loop.damping) * speed
        total += turn.T @ second @ axes @ acting
    return total


def loop_ways(built: PinocchioModel, state: tuple[Floats, ...]) -> dict[str, Callable[[], Floats]]:
    """Give the ways to evaluate a system with loops, each with data of its own: they would disturb one another's."""
    ways: dict[str, Callable[[], Floats]] = {}
    for way, (name, stiff, most) in LOOP_WAYS.items():
        data, closures = built.model.createData(), pin.StdVec_RigidConstraintData()
        for contact in built.contacts:
            closures.append(contact.createData())
        if name == "lcaba":
            pin.computeJointMinimalOrdering(built.model, data, built.contacts)
        else:
            pin.initConstraintDynamics(built.model, data, built.contacts, closures)
        settings = pin.ProximalSettings(LOOP_ACCURACY, stiff, most)
        ways[way] = partial(getattr(pin, name), built.model, data, *state, built.contacts, closures, settings)
    return ways


def pinocchio_peer(
    system: System, q: Floats, u: Floats, tau: Floats | None = None, memory: float | None = None
) -> Peer:
    """Build a system in Pinocchio at a state; arguments as for `peers.PEERS`.

    What is timed is `pin.aba`, the articulated-body algorithm, with state and forces already in Pinocchio's order: it
    keeps nothing from call to call, so each call does all the work. It gives accelerations only, no rates of the
    coordinates. It works in the frames of the joints or in that of the world: the latter is faster, the former, which
    is the default, more accurate. With loops it is what `LOOP_WAYS` says.

    Raises
    ------
    UnavailableError
    """
    check_model(system, {*JOINTS, "fixed"}, "Pinocchio", LOOPS)
    check_need(memory_needed(system.nu) * (len(LOOP_WAYS) if system.loops else 1), "n^3", memory)
    built = PinocchioModel(system)
    model, theirs = built.model, (built.q_of(q), built.u_of(u))
    loads = built.u_of(plain_joint_forces(built.columns, q, u, tau))
    if system.loops:
        ways = loop_ways(built, (*theirs, loads + loop_forces(system, built, *theirs)))
    else:
        data = model.createData()
        ways = {
            "aba, frames of joints": partial(pin.aba, model, data, *theirs, loads, pin.Convention.LOCAL),
            "aba, world frame": partial(pin.aba, model, data, *theirs, loads, pin.Convention.WORLD),
        }
    return Peer(pin.__version__, ways, lambda udot: udot[built.u_index], ROUGH)
