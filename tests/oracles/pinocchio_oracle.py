"""The same quantities by Pinocchio, for every joint type: an oracle that shares no dynamics with the package.

The model is built by `laboratory.peer_pinocchio`. Joint springs, dampers and torques, which Pinocchio doesn't
know, are added by the plain formulas of `dense`.

Where joints have several axes (universal, spherical, planar) the accelerations lose digits exponentially
along a chain: of spherical joints they are right to 1e-12 for 8 to 16 bodies, 1e-8 for 32 and not for 64.
So `dense` is the reference for long chains; a test by Pinocchio keeps to a dozen bodies.
"""

import numpy as np
import pinocchio as pin

from laboratory.peer_pinocchio import PinocchioModel
from mpimbs.model import JOINT_TYPES, System
from mpimbs.model.contents import Contents
from mpimbs.model.system import contents_of
from oracles.dense import Array, at_time, generalized_forces, spring_energy


def supports(system: System | Contents) -> bool:
    """Whether Pinocchio has everything that the system uses: all but loops and tendons."""
    return not len(contents_of(system).loops) and not contents_of(system).loads.tendons


class PinocchioOracle(PinocchioModel):
    """A system built as a Pinocchio model; every array is in our order and our conventions."""

    supports = staticmethod(supports)

    def __init__(self, system: System | Contents) -> None:
        if not supports(system):
            raise ValueError("the Pinocchio oracle has no loops")
        super().__init__(contents_of(system))
        c, gravity = self.columns, self.model.gravity.linear
        self.static_potential = -sum(  # of bodies fixed to the world, which Pinocchio leaves out
            c.mass[k] * gravity @ placement.act(c.center_of_mass[k])
            for k, (carrier, placement) in enumerate(self.carriers)
            if carrier == 0
        )
        self.data = self.model.createData()

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

    def joint_loads(self, q: Array, u: Array, tau: Array | None = None, t: float = 0.0) -> Array:
        """Load [n, 6] on each body by its parent: moment about the body's origin, then force, in its frame.

        By the recursive Newton-Euler algorithm from its own accelerations. NaN for fixed joints, which it merges.
        """
        udot = self.u_of(self.accelerations(q, u, tau, t))
        pin.rnea(self.model, self.data, self.q_of(q), self.u_of(u), udot, self.body_forces(q, t))
        loads = np.full((self.columns.n, 6), np.nan)
        for k, (carrier, _) in enumerate(self.carriers):
            if JOINT_TYPES[self.columns.joint_type[k]].name != "fixed":
                loads[k] = np.concatenate((self.data.f[carrier].angular, self.data.f[carrier].linear))
        return loads

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
