"""The loops of a system as `Dynamics` has them: whether they are closed, what they carry, how well that is known."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError, warn_caller
from mpimbs.closure.geometry import LoopJoints, body_motions
from mpimbs.closure.jacobian import EPSILON, LoopJacobian, TooLargeError
from mpimbs.coupling.intervals import ScheduledAssembly
from mpimbs.dynamics.closing import LARGE
from mpimbs.dynamics.divided import DividedSystem
from mpimbs.dynamics.state_closing import StateClosing
from mpimbs.kernels.memory import addresses_of, sum_at
from mpimbs.parallel.agreement import largest_magnitudes, on_root
from mpimbs.spatial.rows import ROW

if TYPE_CHECKING:
    from mpimbs.closure.redundant_loads import Actuation


OPEN = 1e-6  # of 1 rad, of the size of the system and of its speeds: a state is open, rather than rounded
NEARLY = 1e-12  # rad, of the size of a loop, and of the speeds: closed, whatever the size of the system is
LOST = 1e-9  # of the largest load, what cancels of the loads of redundant constraints without a warning
# of the largest acceleration, of joints or of bodies that loops hold, slides over the size of the system: by how much
# refinement may change what was right
DOUBTFUL = 1e-11
REFINEMENTS = 20  # at the most, of one evaluation: each may gain no more than a digit
GAINED = 0.9  # of the change before, beyond which a further one gains nothing


class CarriedLoads(NamedTuple):
    """The loads that joints and loops carry in a state.

    Attributes
    ----------
    joints : array [n, 6]
        On this rank's bodies through their inboard joints; see `JointLoads.joint_loads`.
    forces : array [nu]
        Along the motion subspaces of these joints, S^T load (N m, N): what drives them, and nothing of what they
        constrain.
    loops : array [loops, 6] or None
        The same on all ranks: moment (N m) about and force (N) at the joint frame's origin on the second body, on that
        body and in its frame; the first receives the opposite. Of least norm, where constraints are redundant and other
        loads would do the same. None of a system without loops.
    """

    joints: Floats
    forces: Floats
    loops: Floats | None


class ClosedLoops(StateClosing):
    """The loops of a system; all ranks call its methods together.

    States are this rank's coordinates [nq] and speeds [nu], as of `Dynamics.accelerations`, InputError as there.

    Parameters
    ----------
    divided : DividedSystem
        Of a system with loops, whose part of this rank is made of intervals.

    Attributes
    ----------
    driven : bool
        Whether springs, dampers or torques act along the joints of any loops.
    powers : array of int
        Addresses of the power of each of those that this rank counts (W), in the last evaluation.
    warned : bool
        Whether evaluations of open states are no longer told; may be set.
    refining : bool or None
        Whether evaluations are refined (`refine`), as that has changed some; None before it has looked; may be set.
    """

    def __init__(self, divided: DividedSystem) -> None:
        super().__init__(divided)
        self.driven = any(loop.acts for _, loop in divided.system.loops.joints)
        told = [part.energies_and_powers() for part in self._parts if self.driven]
        self._energies, self.powers = (addresses_of([each for part in told for each in part[k]]) for k in (0, 1))
        self.warned = self._lost_digits = False
        # Not where couplings iterate, which refine by themselves, nor where one rank's share is evaluated alone.
        direct, shared = isinstance(divided.coupling, ScheduledAssembly), len(divided.cuts) == divided.comm.size + 1
        self._refines = direct and shared
        self.refining = None if self._refines else False

    def opened(self, q: Floats, u: Floats) -> str:
        """Say how far a state leaves loops open, and what to do, if more than numbers of six digits do; else "".

        Positions and speeds, of the size of the system and its fastest body. The same on all ranks.
        """
        divided = self._divided
        whole, speeds = divided.gather_q(q), divided.gather_u(u)

        def looked() -> str:
            if whole is None or speeds is None:
                return ""
            bodies = body_motions(divided.system, whole, speeds)
            gravity = float(np.linalg.norm(divided.system.gravity))
            return LoopJoints(divided.system).opened(bodies, OPEN, gravity)

        told = str(divided.comm.bcast(on_root(divided.comm, looked)))
        remedy = (
            "; close it first: mpimbs assemble, or --close, or from Python `dynamics.loops.nearest_places(q)` and "
            "`dynamics.loops.close_speeds(q, u)`"
        )
        return told and f"the state does not fit together: {told}{remedy}"

    def warn_of_open(self, q: Floats, u: Floats, t: float = 0.0) -> None:
        """Warn of a state that leaves loops open at a time (s), on rank 0, once."""
        q, u = self._divided.followed(t, q, u)
        if self.warned:
            return
        places, speeds = self.measured(q, u)[:, 2:].max(axis=0, initial=0.0)
        if places <= NEARLY and speeds <= NEARLY * self._divided.largest_speed(u):  # nobody needs to look closer
            return
        if told := self.opened(q, u):
            self.warned = True
            if self._divided.comm.rank == 0:
                warn_caller(told)

    def spring_energy(self, q: Floats, u: Floats) -> float:
        """Energy (J) of the springs of those that this rank counts, of arrays that were checked."""
        if not self.driven:
            return 0.0
        self._divided.measure(q, u)
        return float(sum_at(self._energies))

    def power(self) -> float:
        """Power (W) of the dampers and torques of those that this rank counts, in the last evaluation."""
        return float(sum_at(self.powers))

    def refine(self, q: Floats, u: Floats, udot: Floats) -> None:
        """Take away what the accelerations [nu] just found, and the loads, leave of what the loops ask; all ranks call.

        Where constraints hardly differ rounding is a part of the numbers by which they are eliminated. The change of
        accelerations for what is left is right to the same part of itself: iterative refinement, for which neither
        velocities nor forces count, beside which what is left would be rounded. What is right already keeps its bits;
        where anything changes, `refining` is set. Before, evaluations are refined to find out.

        Joints that follow are where they do. Nothing is done with couplings that iterate, which do so themselves.
        """
        if not self._refines:
            return
        divided, part, subchain = self._divided, self._part, self._divided.subchain
        linear = [part.loads, *(loops.joints.loads for loops in self._parts)]
        others = [part.blocks, *(loops.joints.closures for loops in self._parts)]
        kept = [array.copy() for array in others]
        comm, last = divided.comm, np.inf
        divided.between.see(q, u)
        length = divided.scales.length
        unit, weight = divided.units[1], float(np.linalg.norm(divided.root)) / length
        of_bodies = np.array([1.0] * 3 + [length] * 3)
        self.refining = bool(self.refining)
        for _ in range(REFINEMENTS):
            steps = divided.between.prescribed(q, u, udot, divided.root)
            bodies = subchain.of_bodies(steps)
            left, _, _ = part.loop_rows(bodies, np.zeros((len(bodies), 2)), udot, len(self._names))
            comm.Allreduce(MPI.IN_PLACE, left)
            for loops in self._parts:
                loops.asked[:] = left[loops.numbers]
            found = [array.copy() for array in linear]
            change = self._change(q, u, 0.0, 0.0, 1.0)
            sizes = largest_magnitudes(comm, change / unit, udot / unit, bodies[part.looped] / of_bodies)
            most = max(sizes[1], sizes[2], weight)
            much = bool(DOUBTFUL * most < sizes[0] < np.inf and sizes[0] <= GAINED * last)
            last = sizes[0]
            for array, before in zip(linear, found, strict=True):
                array[:] = before + array / LARGE if much else before
            for array, before in zip(others, kept, strict=True):
                array[:] = before
            if not much:
                break
            udot += change
            self.refining = True

    def dropped(self) -> tuple[int, str]:
        """How many constraints, of loops and gears, the last evaluation left out, and a loop of which one was.

        They ask what others make already: as many as are redundant, but where one hardly differs from others. Couplings
        that iterate leave none out. The same on all ranks, which all call.
        """
        comm, part, coupling = self._divided.comm, self._part, self._divided.coupling
        if not isinstance(coupling, ScheduledAssembly):
            return 0, ""
        idle, count = np.zeros(len(self._names), np.int64), 0
        for loops in self._parts:
            joints, owned = loops.joints, loops.owned
            there = np.arange(ROW) < joints.constraints[:, None]
            idle[loops.numbers[owned]] = (there & (joints.loads == 0.0)).sum(axis=1)[owned]
            count += int(joints.constraints[owned].sum())
        comm.Allreduce(MPI.IN_PLACE, idle)
        eliminated = coupling.eliminated(part.blocks)
        left = comm.allreduce(count) - int(comm.allreduce(eliminated, MPI.SUM if part.independent else MPI.MAX))
        return left, self._names[int(idle.argmax())] if left and idle.any() else ""

    # --- what closes a state, where Python does

    def joint_loads(self, q: Floats, u: Floats, tau: Floats, turns: Floats, least: bool = True) -> CarriedLoads:
        """Give the loads of this rank's inboard joints and of all loops.

        After an evaluation, of what it was given; see `Subchain.joint_loads`. All ranks call. Not `least`: where
        constraints are redundant, as the evaluation has found them, unless they hardly differ.
        """
        part, divided = self._part, self._divided
        wrenches, tau = part.by_loops(tau)
        joints, forces = part.joint_loads(q, u, tau, turns, wrenches)
        found = np.zeros((len(self._names), 6))
        for loops in part.loops:
            found[loops.numbers[loops.owned]] = loops.joint_loads()[loops.owned]
        divided.comm.Allreduce(MPI.IN_PLACE, found)
        if not least and not self.refining:
            return CarriedLoads(joints, forces, found)
        moved = np.zeros((divided.system.n_bodies, 6))
        whole = divided.gather_q(q)
        from mpimbs.closure.redundant_loads import redistributed  # which solves with scipy

        told = on_root(divided.comm, lambda: None if whole is None else redistributed(self._constraints, whole, found))
        most = divided.comm.allreduce(float(np.abs(joints).max(initial=0.0)), MPI.MAX)
        if told is not None:
            self._warn_of_lost_digits(found, max(most, float(np.abs(told.loads).max(initial=0.0))))
            found, moved = told
        divided.comm.Bcast(found)
        divided.comm.Bcast(moved)
        return CarriedLoads(joints + moved[divided.bodies], forces, found)

    def _warn_of_lost_digits(self, carried: Floats, most: float) -> None:
        """Warn once where loads [loops, 6] that were found cancel, but for what is no more than `most`; on rank 0."""
        sizes = np.abs(carried).max(axis=1, initial=0.0)
        largest = float(sizes.max(initial=0.0))
        if LOST * most < largest * EPSILON < np.inf and not self._lost_digits:
            self._lost_digits = True
            digits = max(0, int(np.log10(max(most, 1e-300) / (largest * EPSILON))))
            warn_caller(
                f"loads of joints and loops have some {digits} digits alone: constraints of loop "
                f"'{self._names[int(np.argmax(sizes))]}' hardly differ from others, and were found to carry "
                f"{largest:.1e}, where {most:.1e} is the most that bodies receive (N m, N)"
            )

    def actuated(self, q: Floats, needed: Floats, carried: Floats, acting: Any = None) -> Actuation:
        """Give the forces that a motion needs beside what loops carry, and what they carry then; on rank 0.

        See `closure.redundant_loads`.
        """
        from mpimbs.closure.redundant_loads import (
            actuation,  # which solves with scipy
            redistributed,
        )

        found = actuation(self._constraints, q, needed, acting)
        return found._replace(loads=redistributed(self._constraints, q, carried + found.loads).loads)

    @functools.cached_property
    def _constraints(self) -> LoopJacobian:
        try:
            return LoopJacobian(self._divided.system)
        except TooLargeError:
            raise InputError(
                f"the loops of '{self._divided.system.name}' span so many joints that it can't be told which loads "
                "are unique; leave `loads` out"
            ) from None
