"""The same quantities by Pinocchio, for every joint type: an oracle that shares no dynamics with the package.

Joint springs, dampers and torques, which Pinocchio doesn't know, are added by the plain formulas of `dense`.
Cylindrical and planar joints are Pinocchio's composite joints; a fixed body is appended to its parent.

Where joints have several axes (universal, spherical, planar) the accelerations lose digits exponentially
along a chain: of spherical joints they are right to 1e-12 for 8 to 16 bodies, 1e-8 for 32 and not for 64.
So `dense` is the reference for long chains; a test by Pinocchio keeps to a dozen bodies.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pinocchio as pin

from mpimbs.model import JOINT_TYPES, System
from oracles.dense import Array, at_time, generalized_forces, spring_energy

X, Y, Z = np.eye(3)


def composite(*parts: pin.JointModel) -> pin.JointModel:
    joint = pin.JointModelComposite(len(parts))
    for part in parts:
        joint.addJoint(part)
    return joint


# Of each type: the Pinocchio joint from axis and pitch.
JOINTS: dict[str, Callable[[Array, float], pin.JointModel]] = {
    "revolute": lambda axis, pitch: pin.JointModelRevoluteUnaligned(axis),
    "prismatic": lambda axis, pitch: pin.JointModelPrismaticUnaligned(axis),
    "helical": lambda axis, pitch: pin.JointModelHelicalUnaligned(axis, pitch),
    "cylindrical": lambda axis, pitch: composite(
        pin.JointModelRevoluteUnaligned(axis), pin.JointModelPrismaticUnaligned(axis)
    ),
    "universal": lambda axis, pitch: pin.JointModelUniversal(X, Y),
    "spherical": lambda axis, pitch: pin.JointModelSpherical(),
    "planar": lambda axis, pitch: composite(pin.JointModelPX(), pin.JointModelPY(), pin.JointModelRZ()),
    "free": lambda axis, pitch: pin.JointModelFreeFlyer(),
}
# Where our coordinates and speeds stand among Pinocchio's: quaternion x y z w; free: the linear part first.
Q_ORDER = {"spherical": (3, 0, 1, 2), "free": (6, 3, 4, 5, 0, 1, 2)}
U_ORDER = {"free": (3, 4, 5, 0, 1, 2)}


def depth_first(parent: Sequence[int]) -> list[int]:
    """The bodies with every subtree contiguous, as Pinocchio's inertia matrix needs them."""
    children: dict[int, list[int]] = {}
    for k, p in enumerate(parent):
        children.setdefault(p, []).append(k)
    order, waiting = [], children.get(-1, [])[::-1]
    while waiting:
        order.append(waiting.pop())
        waiting.extend(children.get(order[-1], [])[::-1])
    return order


def supports(system: System) -> bool:
    """Whether Pinocchio has everything that the system uses: all but loops."""
    return not len(system.loops)


class PinocchioOracle:
    """A system built as a Pinocchio model; every array is in our order and our conventions."""

    supports = staticmethod(supports)

    def __init__(self, system: System) -> None:
        if not supports(system):
            raise ValueError("the Pinocchio oracle has no loops")
        self.columns = c = system.columns()
        self.model = model = pin.Model()
        model.gravity = pin.Motion(np.asarray(system.gravity, dtype=float), np.zeros(3))
        n = len(c.parent)
        self.carriers = [(0, pin.SE3.Identity())] * n  # per body, its joint and its frame in that joint's
        q_index, u_index = [np.zeros(0, int)] * n, [np.zeros(0, int)] * n
        self.static_potential = 0.0  # of bodies fixed to the world, which Pinocchio leaves out
        for k in depth_first(c.parent.tolist()):
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
            if carrier == 0:
                self.static_potential -= c.mass[k] * model.gravity.linear @ placement.act(c.center_of_mass[k])
        self.q_index, self.u_index = np.concatenate(q_index), np.concatenate(u_index)
        self.data = model.createData()

    def q_of(self, q: Array) -> Array:
        """Our coordinates as Pinocchio's."""
        theirs = np.empty(self.model.nq)
        theirs[self.q_index] = q
        return theirs

    def u_of(self, u: Array) -> Array:
        """Our speeds, accelerations or generalized forces as Pinocchio's."""
        theirs = np.empty(self.model.nv)
        theirs[self.u_index] = u
        return theirs

    def body_forces(self, q: Array, t: float) -> pin.StdVec_Force:
        """The bodies' wrenches summed in the frame of each Pinocchio joint."""
        forces = [pin.Force.Zero() for _ in range(self.model.njoints)]
        pin.forwardKinematics(self.model, self.data, self.q_of(q))
        for k, wrench in self.columns.wrenches:
            carrier, placement = self.carriers[k]
            world = (self.data.oMi[carrier] * placement).rotation
            turned = world.T if wrench.frame == "world" else np.eye(3)
            moment, force = turned @ at_time(wrench.moment, t), turned @ at_time(wrench.force, t)
            forces[carrier] += placement.act(pin.Force(force, moment + np.cross(wrench.point, force)))
        vector = pin.StdVec_Force()
        vector.extend(forces)
        return vector

    def accelerations(self, q: Array, u: Array, tau: Array | None = None, t: float = 0.0) -> Array:
        """Generalized accelerations [nu] by the articulated-body algorithm."""
        total = self.u_of(generalized_forces(self.columns, q, u, tau, t))
        loads = self.body_forces(q, t)
        return pin.aba(self.model, self.data, self.q_of(q), self.u_of(u), total, loads)[self.u_index]

    def inverse_dynamics(self, q: Array, u: Array, udot: Array, t: float = 0.0) -> Array:
        """The extra `tau` [nu] that gives `udot`, by the recursive Newton-Euler algorithm."""
        loads = self.body_forces(q, t)
        args = self.q_of(q), self.u_of(u), self.u_of(udot), loads
        total = pin.rnea(self.model, self.data, *args)[self.u_index]
        return total - generalized_forces(self.columns, q, u, None, t)

    def mass_matrix(self, q: Array) -> Array:
        """Joint-space inertia matrix [nu, nu] by the composite-rigid-body algorithm."""
        upper = np.triu(pin.crba(self.model, self.data, self.q_of(q)))
        return (upper + np.triu(upper, 1).T)[np.ix_(self.u_index, self.u_index)]

    def kinetic_energy(self, q: Array, u: Array) -> float:
        """Kinetic energy, J."""
        return float(pin.computeKineticEnergy(self.model, self.data, self.q_of(q), self.u_of(u)))

    def potential_energy(self, q: Array) -> float:
        """Gravity (zero at the world's origin) and joint springs, J."""
        gravity = pin.computePotentialEnergy(self.model, self.data, self.q_of(q))
        return float(gravity + self.static_potential + spring_energy(self.columns, np.asarray(q)))
