"""A system as a Pinocchio model.

Cylindrical and planar joints are Pinocchio's composite joints; a fixed body is appended to its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pinocchio as pin

from mpimbs.instruments.peer import Floats, Peer, check_model, check_need, plain_joint_forces
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


class PinocchioModel:
    """A system without loops built as a Pinocchio model: bodies, joints, gravity; no loads.

    Attributes
    ----------
    columns : Columns
        Of the system.
    model : pin.Model
    carriers : list of (int, pin.SE3)
        Of each body, its Pinocchio joint and its frame in that joint's.
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


def pinocchio_peer(
    system: System, q: Floats, u: Floats, tau: Floats | None = None, memory: float | None = None
) -> Peer:
    """Build a system in Pinocchio at a state; arguments as for `peers.PEERS`.

    What is timed is `pin.aba`, the articulated-body algorithm, with state and forces already in Pinocchio's order: it
    keeps nothing from call to call, so each call does all the work. It gives accelerations only, no rates of the
    coordinates. It works in the frames of the joints or in that of the world: the latter is faster, the former, which
    is the default, more accurate.

    Raises
    ------
    UnavailableError
    """
    check_model(system, {*JOINTS, "fixed"}, "Pinocchio")
    check_need(memory_needed(system.nu), "n^3", memory)
    built = PinocchioModel(system)
    loads = plain_joint_forces(built.columns, q, u, tau)
    state = built.model, built.model.createData(), built.q_of(q), built.u_of(u), built.u_of(loads)
    return Peer(
        version=pin.__version__,
        ways={
            "aba, frames of joints": partial(pin.aba, *state, pin.Convention.LOCAL),
            "aba, world frame": partial(pin.aba, *state, pin.Convention.WORLD),
        },
        in_our_order=lambda udot: udot[built.u_index],
    )
