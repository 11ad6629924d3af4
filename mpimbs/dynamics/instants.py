"""States of a system that are sampled: what quantities are computed from, each part when it is first asked for."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.dynamics.dynamics import Dynamics
from mpimbs.dynamics.loops import CarriedLoads
from mpimbs.parallel.agreement import together
from mpimbs.parts.kinematics import pose_numbers


def sampled_energies(dynamics: Dynamics, q: Floats, u: Floats) -> Floats:
    """Give kinetic and potential energy (J) of the whole system in states [states, 2]; all ranks call.

    As `Dynamics.energy_and_momentum`, of this rank's part of states [states, nq], [states, nu], which are doubles,
    finite, and not looked at.
    """
    comm, subchain, external, loops = dynamics.comm, dynamics.subchain, dynamics.divided.external, dynamics.loops
    if comm.size == 1 and external.springs is None and (loops is None or not loops.driven):
        return subchain.energies(q, u)
    found = np.empty((len(q), 2))
    for k, state in enumerate(zip(q, u, strict=True)):
        boundary = dynamics.divided.evaluation.boundary_motion(*state)
        found[k] = subchain.energies(q[k : k + 1], u[k : k + 1], boundary)
        found[k, 1] += external.spring_energy(subchain.room_of_motions)
        found[k, 1] += 0.0 if loops is None else loops.spring_energy(*state)
    if comm.size > 1:
        comm.Allreduce(MPI.IN_PLACE, found)
    return found


class StateAt:
    """A state at a time, as `quantities.Instant` has it; all ranks make it together and look.

    Parameters
    ----------
    t : float
        s.
    q, u : array [nq], [nu]
        This rank's part.
    held : array [nu], optional
        Forces on joints on top of the model's (N m, N).
    """

    def __init__(self, dynamics: Dynamics, t: float, q: Floats, u: Floats, held: Floats | None = None) -> None:
        self._dynamics, self.t, self.q, self.u, self._held = dynamics, t, q, u, held
        self.columns = dynamics.subchain.columns

    @cached_property
    def energy(self) -> Floats:
        return self._dynamics.energy_and_momentum(self.q, self.u)[:2]

    @property
    def poses(self) -> Floats:
        return pose_numbers(*self._dynamics.poses(self.q, self.u))

    @property
    def joint_loads(self) -> Floats:
        return self.carried.joints

    @property
    def joint_forces(self) -> Floats:
        return self.carried.forces

    @property
    def loop_loads(self) -> Floats:
        assert self.carried.loops is not None
        return self.carried.loops

    @cached_property
    def carried(self) -> CarriedLoads:
        """The loads that joints and loops carry: an evaluation."""
        dynamics, given = self._dynamics, (self.q, self.u, self._held, self.t)
        return together(dynamics.comm, lambda: dynamics.loads.joints_and_loops(*given))

    @cached_property
    def measured(self) -> Floats:
        """How far loops are from closed, in two ways [loops, 4]; see `StateClosing.apart`."""
        assert self._dynamics.loops is not None and self.energy is not None  # which checks the state
        return self._dynamics.loops.measured(self.q, self.u)

    @cached_property
    def violations(self) -> Floats:
        return self.measured[:, :2]
