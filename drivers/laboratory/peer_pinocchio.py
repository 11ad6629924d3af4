"""A system as a Pinocchio model.

Cylindrical and planar joints are Pinocchio's composite joints; a fixed body is appended to its parent. Loops are closed
by Pinocchio's contacts. It has none for a hinge: there it holds the point alone, which is enough in a plane mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pinocchio as pin
from scipy.spatial.transform import Rotation

from laboratory.peers import Peer, UnavailableError
from mpimbs.base.arrays import Floats
from mpimbs.dynamics.resources import free_memory
from mpimbs.model import JOINT_TYPES, Columns
from mpimbs.model.contents import Contents

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
        pin.ContactType.CONTACT_3D, lambda axis: np.eye(3), lambda axis, rest: Rotation.from_quat(rest[[1, 2, 3, 0]])
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

    def __init__(self, system: Contents) -> None:
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
        for bodies, loop in system.loops.joints:
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


SHARE = 0.5  # of the free memory that it may take


def check(system: Contents, memory: float | None) -> None:
    """Say what Pinocchio can't take of a system, or that it needs more memory (bytes) than it may take.

    Raises
    ------
    UnavailableError
    """
    columns = system.columns()
    closing = sorted({loop.type for loop in system.loops} - set(LOOPS))
    unknown = sorted({JOINT_TYPES[k].name for k in np.unique(columns.joint_type)} - {*JOINTS, "fixed"})
    for found, what in (
        (closing, f"the model closes loops, and Pinocchio none by a {' nor by a '.join(closing)} joint"),
        (columns.wrenches or columns.added_mass is not None, "the model's wrenches on bodies are not handed to peers"),
        (system.springs, "springs between bodies are not handed to peers"),
        (system.loads.functions, "functions of the state are not handed to peers"),
        (unknown, f"Pinocchio has no {' and no '.join(unknown)} joint"),
    ):
        if found:
            raise UnavailableError(f"not comparable: {what}")
    need = memory_needed(system.nu) * (len(LOOP_WAYS) if system.loops else 1)
    allowed = SHARE * free_memory(swap=False) if memory is None else memory
    if need > allowed:
        shares = f"needs {need / 1e9:.3g} GB of the {allowed / 1e9:.3g} GB it may take"
        raise UnavailableError(f"out of memory (data grow as n^3): {shares}")


def turned(c: Columns) -> npt.NDArray[np.bool_]:
    """Say of each body [n] whether its joint's coordinates begin with a quaternion."""
    return np.array([kind.quaternion for kind in JOINT_TYPES])[c.joint_type]


def rotations(c: Columns, q: Floats) -> Rotation:
    """Give the rotations of all joints with quaternions: body components into those of the joint frame."""
    w_first = q[c.q_offset[:-1][turned(c)][:, None] + np.arange(4)]
    return Rotation.from_quat(w_first[:, [1, 2, 3, 0]].reshape(-1, 4))


def plain_joint_forces(c: Columns, q: Floats, u: Floats, tau: Floats | None = None) -> Floats:
    """Give the generalized forces [nu] (N m, N) of all that acts along joints at time 0 and `tau`, by plain formulas.

    Peers don't have them all, so they get them as numbers: the time of a peer does not contain their evaluation, that
    of this package does.
    """
    loads = c.torque - c.damping * u + (0.0 if tau is None else tau)
    for k, function in c.torque_functions:
        loads[c.u_offset[k] : c.u_offset[k + 1]] += function(0.0)

    # Angles and displacements: -k (q - rest).
    quaternion = turned(c)
    plain_q, plain_u = (~np.repeat(quaternion, np.diff(offset)) for offset in (c.q_offset, c.u_offset))
    loads[plain_u] -= c.stiffness[plain_u] * (q - c.rest)[plain_q]
    loads[plain_u] += _bounded_forces(c, plain_u, q[plain_q], u[plain_u])

    # Quaternions: J^-T K x of the rotation vector x from rest, in body components.
    if quaternion.any():
        rotation = rotations(c, q)
        first = c.u_offset[:-1][quaternion][:, None] + np.arange(3)
        x = (rotations(c, c.rest).inv() * rotation).as_rotvec()
        k = c.stiffness[first][:, :, None] * np.eye(3)
        k[:, [0, 0, 1], [1, 2, 2]] = k[:, [1, 2, 2], [0, 0, 1]] = c.cross_stiffness[first]
        pull = np.einsum("nij,nj->ni", k, x)
        half = np.linalg.norm(x, axis=1, keepdims=True) / 2
        bend = (1 - 1 / np.sinc(half / np.pi) * np.cos(half)) / np.maximum(4 * half**2, 1e-300)
        loads[first] -= pull - np.cross(x, pull) / 2 + bend * np.cross(x, np.cross(x, pull))

        # Positions of free joints: -k (q - rest) along the axes of the joint frame, in body components.
        free = np.diff(c.u_offset)[quaternion] == 6
        if free.any():
            at = c.q_offset[:-1][quaternion][free][:, None] + np.arange(4, 7)
            pull = c.stiffness[first[free] + 3] * (q - c.rest)[at]
            loads[first[free] + 3] -= rotation[free].inv().apply(pull)
    return loads


def _bounded_forces(c: Columns, where: npt.NDArray[np.bool_], q: Floats, u: Floats) -> Floats:
    """Give the forces of stops, servos and friction along some speeds, whose coordinates are q."""
    k, damping, total = c.stop_stiffness[where], c.stop_damping[where], np.zeros(len(u))
    for side, beyond in ((1.0, q - c.upper[where]), (-1.0, c.lower[where] - q)):
        pressed = k * np.maximum(beyond, 0.0)
        total -= side * np.clip(pressed + damping * side * u, 0.0, 10.0 * pressed)
    torque = c.servo_torque.copy()
    for body, function in c.servo_functions:
        torque[c.u_offset[body] : c.u_offset[body + 1]] = function(0.0)
    asked = torque[where] - c.servo_stiffness[where] * q - c.servo_damping[where] * u
    acts = (torque[where] != 0.0) | (c.servo_stiffness[where] != 0.0) | (c.servo_damping[where] != 0.0)
    total += np.where(acts, np.clip(asked, c.servo_least[where], c.servo_most[where]), 0.0)
    friction = c.friction[where]
    return total - np.clip(friction * u / np.where(friction > 0.0, c.friction_speed[where], 1.0), -friction, friction)


def loop_forces(system: Contents, built: PinocchioModel, q: Floats, u: Floats) -> Floats:
    """Give what springs, dampers and torques at time 0 of loop joints are on the tree's joints (Pinocchio's order)."""
    total = np.zeros(built.model.nv)
    data = built.model.createData()
    pin.computeJointJacobians(built.model, data, q)
    pin.forwardKinematics(built.model, data, q, u)
    for (_, loop), ends in zip(system.loops.joints, built.ends, strict=True):
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
    system: Contents, q: Floats, u: Floats, tau: Floats | None = None, memory: float | None = None
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
    check(system, memory)
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
