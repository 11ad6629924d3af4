"""Loads from outside that change with time, pose or motion: torques and wrenches as functions of time, joint forces,
servos, friction, tendons, body forces, springs between bodies, fluids; and what drives joints that follow motions."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.forces.acting import ActingBodyForce, ActingJointForce
from mpimbs.forces.at_once import Acting, ActingAtOnce
from mpimbs.forces.calls import ByPython, checked_values, servos_of_time, torques_over_time
from mpimbs.forces.motions import GivenMotions
from mpimbs.forces.springs import ActingSprings, MakeExchange
from mpimbs.forces.tendons import ActingTendons
from mpimbs.forces.wrenches import ActingWrenches
from mpimbs.kernels.memory import Table
from mpimbs.loops.loops import Loops
from mpimbs.parts.subchain import Subchain
from mpimbs.sweep.along_joints import Bounded


class ExternalLoads:
    """Evaluates the model's functions and its wrenches for the bodies of a subchain.

    Parameters
    ----------
    cuts : array [P + 1]
        Rank r owns bodies cuts[r] to cuts[r + 1] - 1.
    make_exchange : callable
        Makes what springs between ranks need; see `ActingSprings`.
    loops : sequence of Loops
        Those of the subchain's intervals.
    motions : GivenMotions, optional
        What joints of the subchain follow; made here by default.
    """

    def __init__(
        self,
        subchain: Subchain,
        cuts: Integers,
        make_exchange: MakeExchange,
        loops: Sequence[Loops] = (),
        motions: GivenMotions | None = None,
    ) -> None:
        self.motions = motions = GivenMotions(subchain) if motions is None else motions
        self._subchain, system = subchain, subchain.system
        self._loops = [(part, loop, torque) for part in loops for loop, torque in part.torques.items()]
        self._of_loops, self._time = [np.zeros(part.freedoms(loop)) for part, loop, _ in self._loops], np.nan
        self._torques, self._speeds = torques_over_time(subchain)
        # Servos and friction of the joints here, with those over time, which alone are added.
        self.bounded = Bounded.of(subchain.columns)
        self._servos, self._driven = servos_of_time(subchain, self.bounded)
        self._wrenches = ActingWrenches(subchain)
        joint_forces = (ActingJointForce(force, subchain) for force in system.loads.joint_forces)
        body_forces = (ActingBodyForce(force, subchain) for force in system.loads.body_forces)
        self._joint_forces = [force for force in joint_forces if force]
        self._body_forces = [force for force in body_forces if force]
        self.resists = any(force.vectorized for force in system.loads.body_forces)  # on any rank: may give damping
        self.springs = ActingSprings(subchain, cuts, make_exchange) if system.springs else None
        self.tendons = ActingTendons(subchain, cuts, make_exchange) if system.loads.tendons else None
        # What added masses take beside their accelerations, as `Subchain.wrenches`, in which it is [m * 6].
        self.fluid = np.zeros(subchain.wrenches.size if subchain.columns.added_mass is not None else 0)
        # Body forces, springs or fluids act on the system, here or elsewhere: `apply` needs the motion of handle 1; of
        # several ranks for the power of wrenches, too.
        wrenched = len(cuts) > 2 and system.has_given_wrenches(0, system.n_bodies)
        self.moved = bool(system.loads.body_forces or system.springs or wrenched)
        self.moved |= system.has_added_mass(0, system.n_bodies)
        # `apply` finds the motions of the steps, and gives them.
        self.needs_motions = bool(self._body_forces or self.springs or self.fluid.size)
        self.wrenches = bool(self._wrenches) or self.needs_motions  # or body forces, or springs act
        acts = bool(self._torques or self._servos or self._joint_forces or self.tendons or self.wrenches or self.moved)
        self.any = acts or bool(self._loops or motions)  # there is anything to do
        self._acting: ActingAtOnce | None = None
        if acts:
            acting = Acting(
                subchain, self._torques, self._speeds, self._servos, self._driven, self.bounded, self._joint_forces,
                self._body_forces, self._wrenches, self.springs, self.tendons, self.fluid,
            )  # fmt: skip
            self._acting = ActingAtOnce(acting)
        self.at_once = None if self._loops or motions else self._acting  # where that is all that acts

    def compile(self) -> None:
        """Compile those of the forces' functions that are numba's to compile; none is called."""
        if self._acting is not None:
            self._acting.compile()
        forces: list[ActingJointForce | ActingBodyForce] = [*self._joint_forces, *self._body_forces]
        for force in forces:
            force.compile()
        if self.springs is not None:
            self.springs.compile()

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        for between in self._between:
            between.exchange.close()

    @property
    def _between(self) -> list[ActingSprings | ActingTendons]:
        """What has messages."""
        return [between for between in (self.springs, self.tendons) if between is not None]

    @property
    def clocks(self) -> list[Floats]:
        """Where time spent in messages is counted [1] each (s)."""
        return [between.exchange.clock for between in self._between]

    def spring_energy(self, motion: Floats) -> float:
        """Potential energy (J) of the springs that this rank counts, whose steps move so; all ranks call."""
        return self.springs.energy(motion) if self.springs is not None else 0.0

    def apply(self, t: float, q: Floats, u: Floats, boundary: Floats, tau: Floats) -> Floats | None:
        """Add the functions of joints to `tau` [nu] and set the wrenches, at time `t` (s).

        Where there are springs or tendons, all ranks call. `boundary` [BOUNDARY] is the motion of handle 1; where
        neither springs nor body forces act, its rotation will do. Of a state that is not finite no function is told:
        `tau` is not finite then. Gives the motions of the steps [m * BOUNDARY], used again, where these are needed.

        Raises
        ------
        SimulationError
            A function failed or gave no finite numbers; names body and time.
        """
        motion = None if self._acting is None else self._acting(t, q, u, boundary, tau)
        self._on_loops(t)
        for (part, loop, _), torque in zip(self._loops, self._of_loops, strict=True):
            part.set_torque(loop, torque)
        self.motions.drive(t, tau)
        return motion if self.needs_motions else None

    def _on_loops(self, t: float) -> None:
        self._time = t
        for (part, loop, torque), room in zip(self._loops, self._of_loops, strict=True):
            title = f"the torque function of loop '{self._subchain.system.loops[int(part.numbers[loop])].name}'"
            room[:] = checked_values(title, t, torque, len(room))

    @functools.cached_property
    def by_python(self) -> list[ByPython]:
        """All functions that Python calls."""
        found = [] if self._acting is None else self._acting.by_python
        found = found + ([ByPython(self._on_loops, [], self._of_loops)] if self._loops else [])
        return found + ([] if self.motions.by_python is None else [self.motions.by_python])

    def keep(self) -> None:
        """Keep what these were told and gave last, for their `gives_other`."""
        last = self._time if self._acting is None else float(self._acting.time[0])
        for each in self.by_python:
            each.keep(self.motions.time if each is self.motions.by_python else last)

    @property
    def kept(self) -> Floats:
        """All that these keep, for others of the same functions and bodies; may be set."""
        return np.concatenate([np.zeros(0), *(each.kept for each in self.by_python)])

    @kept.setter
    def kept(self, numbers: Floats) -> None:
        at = 0
        for each in self.by_python:
            each.kept = numbers[at : at + len(each.kept)].copy()
            at += len(each.kept)

    @functools.cached_property
    def resisting(self) -> list[Table]:
        """Where compiled code finds the damping and the stiffness that vectorized body forces give on bodies here; kept
        since this is asked for."""
        return [body_force.resisting() for body_force in self._body_forces if body_force.vectorized]
