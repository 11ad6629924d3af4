"""The power of all that a system's energy does not hold: dampers, torques, wrenches, functions, driven joints.

Integrated beside the state, it is their work W, and what a simulation does wrong to the energy is E - E0 - W.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.evaluation import Acted
from mpimbs.sweep.along_joints import Bounded, Stops
from mpimbs.sweep.structure import PLACE

ROUNDING = 1e-12  # of the potential energy: less is not motion


class Power:
    """Gives the power of such loads on this rank's bodies; all ranks make it together and call.

    Weight, springs and inertia have none here: what they take is in the potential and the kinetic energy.

    Parameters
    ----------
    driven : bool
        Whether forces are held on the joints.
    """

    def __init__(self, dynamics: Dynamics, driven: bool = False) -> None:
        self._dynamics = dynamics
        c = dynamics.subchain.columns
        self.damping = c.damping if c.damping.any() else None
        self.torque = c.torque if c.torque.any() else None
        stops = Stops.of(c)
        self.stops = stops if stops.speeds.size else None
        bounded = Bounded.of(c, constant=True)
        self.bounded = bounded if bounded.speeds.size else None
        self._room = np.empty(dynamics.subchain.nu)
        subchain, system = dynamics.subchain, dynamics.subchain.system
        at_once = dynamics.divided.external.at_once is not None  # which tells the power of what acts so
        functions = system.loads.functions or c.torque_functions or c.servo_functions
        motions = dynamics.divided.external.motions
        self._free = ~c.prescribed if motions else None
        own = any(acting is not None for acting in (self.damping, self.torque, self.stops, self.bounded))
        called = bool(functions or system.loads.tendons)
        mine = own or called or bool(motions)
        dampers = any(spring.dissipates for spring in system.springs.values())
        wrenched = dampers or system.has_given_wrenches(subchain.first, subchain.last)
        facts = np.array([mine, wrenched, c.bounded and bool(c.friction.any())])
        dynamics.comm.Allreduce(MPI.IN_PLACE, facts, MPI.LOR)
        self.loops = dynamics.loops if dynamics.loops is not None and dynamics.loops.driven else None
        facts[0] |= self.loops is not None
        # `grips`: any joint has friction; `overflows`: there are others than forces that are held, of which numpy may
        # warn that they grow without bound; `any`: there are any such loads; all on any rank.
        self._wrenched, self.grips = bool(facts[1]), bool(facts[2])
        self.overflows = bool(facts.any())
        self.any = driven or self.overflows
        # This rank has none but those that are held, dampers, constant torques, stops, servos and friction of joints,
        # and what tells its power as it acts (`forces.at_once`).
        self.compiled = not (motions or ((called or self._wrenched) and not at_once))

    def recalled(self, ranks: list[list[float]]) -> Floats:
        """This rank's numbers of the work (J, W), of those of each rank that `StepMemory.work` has; or nothing."""
        if not self.any:
            return np.zeros(0)
        comm = self._dynamics.comm
        if len(ranks) == comm.size:
            return np.array(ranks[comm.rank])
        found = np.sum(ranks, axis=0) if ranks else np.zeros(2)
        return found if comm.rank == 0 else np.zeros_like(found)

    def __call__(self, q: Floats, u: Floats, acted: Acted) -> float:
        """Power (W) in a state, of what acted in its evaluation."""
        power = 0.0
        if self.damping is not None:
            np.multiply(self.damping, u, out=self._room)
            power -= float(self._room @ u)
        if self.torque is not None:
            power += float(self.torque @ u)
        for acting in (self.stops, self.bounded):
            if acting is not None:
                power += float(acting.forces(q, u) @ u[acting.speeds])
        if self._free is not None:
            power += float(acted.forces[self._free] @ u[self._free]) if acted.forces.size else np.nan
        elif acted.forces.size:
            power += float(acted.forces.dot(u))
        if self._dynamics.divided.follows:  # on any rank
            power += float(self._dynamics.loads.driving(q, u, acted) @ u)
        if self.loops is not None:
            power += self.loops.power()
        if self._wrenched:
            twists = self._dynamics.divided.step_motions(q, u, acted)[:, PLACE:]
            wrenches = self._dynamics.subchain.wrenches
            if wrenches.size:
                fluid = self._dynamics.divided.external.fluid
                power += float(np.vdot(wrenches.reshape(-1, 6), twists))
                power -= float(np.vdot(fluid.reshape(-1, 6), twists)) if fluid.size else 0.0
            if self._dynamics.divided.external.springs:
                power += self._dynamics.divided.external.springs.conservative_power
        return power


@dataclass
class Balance:
    """Compares the energy of samples with the work done so far."""

    change: float = 0.0  # largest |E - E0 - W| (J), with the total energy E and the work W
    first: tuple[float, float] | None = None  # total and potential energy of the first (J)
    moved: float = 0.0  # the most energy that was there to go wrong, and what of it is rounding (J)
    rounding: float = 0.0

    def take(self, energy: Sequence[float], work: float) -> None:
        """Take a sample: kinetic and potential energy, and the work so far (J)."""
        kinetic, potential = energy
        total = kinetic + potential
        if self.first is None:
            self.first = total, potential
        self.moved = max(self.moved, kinetic, abs(potential - self.first[1]), abs(work))
        self.rounding = max(self.rounding, ROUNDING * abs(potential))
        self.change = max(self.change, abs(total - self.first[0] - work))

    @property
    def relative(self) -> float:
        """The largest change over the energy that was there to go wrong (J): the largest kinetic energy, change of
        potential energy, or work, whichever is the most. 0 at rest, where all that moves is rounding."""
        return self.change / self.moved if self.moved > self.rounding else 0.0
