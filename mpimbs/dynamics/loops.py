"""The loops of a system as `Dynamics` has them: how far they are from closed, what closes them, what they carry.

States are coordinates of the spanning tree; integration lets loops drift apart. What brings them back are changes of
least kinetic energy: of the speeds, - M^-1 J^T m with J u = 0 afterwards, and of the coordinates by Newton's method
with the same matrices [design, section 13; paper 003, section 3]. An evaluation gives M^-1 J^T m beside the
accelerations where the loops are asked for so much more: asked for a multiple so large that the accelerations are
nothing beside it, it gives the change alone.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError, SimulationError, warn_caller
from mpimbs.closure.geometry import LoopJoints, body_motions
from mpimbs.closure.jacobian import EPSILON, LoopJacobian, TooLargeError, displacements
from mpimbs.coupling.intervals import ScheduledAssembly
from mpimbs.dynamics.divided import DividedSystem
from mpimbs.dynamics.operators.inverse import prescribed
from mpimbs.loops.closing import FOUND
from mpimbs.parallel.agreement import greatest, on_root
from mpimbs.parts.intervals import Intervals
from mpimbs.spatial.rows import ROW

if TYPE_CHECKING:
    from mpimbs.closure.redundant_loads import Actuation


LARGE = 2.0**300  # beside it accelerations are nothing, and no number is too large
NOT_LARGE = 2.0**100  # what is less beside it is of accelerations
ROUNDING = 1e-15  # rad, and m of the size of a loop and of how far it is from the origin: closer loops don't close
CLOSED = 1e-12  # the same: closed enough
ROUNDS = 60  # of Newton's method at the most
ALIKE = 1e-7  # rad, and m in lengths of the system: so near to closed a step is the least one to its square
CONVERGED = 1e-10  # the same: of the last step to the nearest closed state
FARTHEST = 16.0  # times as far as loops allow of the way there
SMALLEST_SHARE = 2.0**-10  # of its step
OPEN = 1e-6  # of 1 rad, of the size of the system and of its speeds: a state is open, rather than rounded
NEARLY = 1e-12  # rad, of the size of a loop, and of the speeds: closed, whatever the size of the system is
LOST = 1e-9  # of the largest load, what cancels of the loads of redundant constraints without a warning
DOUBTFUL = 1e-11  # of the largest acceleration: by how much refinement may change accelerations that were right
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


class ClosedLoops:
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
    evaluations : int
        Of the sweeps, to close loops.
    warned : bool
        Whether evaluations of open states are no longer told; may be set.
    refining : bool
        Whether evaluations are refined (`refine`), for that has changed some; may be set.
    """

    def __init__(self, divided: DividedSystem) -> None:
        part = divided.subchains
        assert isinstance(part, Intervals)
        self._divided, self._part, self._parts = divided, part, part.loops
        self._names = [loop.name for loop in divided.system.loops]
        self.driven = any(loop.acts for _, loop in divided.system.loops.joints)
        self.evaluations, self.refining = 0, False
        self.warned = self._lost_digits = False
        # Not where couplings iterate, which refine by themselves, nor where one rank's share is evaluated alone.
        direct, shared = isinstance(divided.coupling, ScheduledAssembly), len(divided.cuts) == divided.comm.size + 1
        self._refines = direct and shared

    @property
    def numbers(self) -> Integers:
        """Which loops of the system have an end on this rank [n]; one may be on two ranks."""
        return np.concatenate([np.zeros(0, np.int64), *(part.numbers for part in self._parts)])

    def violations(self, q: Floats, u: Floats) -> Floats:
        """Measure how far loops are from closed, in positions and in velocities [loops, 2], all of the system's.

        Norms over what their joints constrain: m and rad, m/s and rad/s, together; infinite where they can't be
        measured. The same on all ranks.
        """
        return self.apart(q, u)[0]

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
        places, speeds = self._measured(q, u)[:, 2:].max(axis=0, initial=0.0)
        if places <= NEARLY and speeds <= NEARLY * self._divided.largest_speed(u):  # nobody needs to look closer
            return
        if told := self.opened(q, u):
            self.warned = True
            if self._divided.comm.rank == 0:
                warn_caller(told)

    def _state(self, q: Floats, u: Floats) -> tuple[Floats, Floats]:
        return self._divided.agreed(q, u)[:2]

    def apart(self, q: Floats, u: Floats, checked: bool = False) -> tuple[Floats, Floats]:
        """Give `violations`, and the same with meters in units of the loops' sizes: rad, and rad/s [loops, 2] each.

        `checked`: whether the state is known to be one, here as below; it is read by address then.
        """
        found = self._measured(*((q, u) if checked else self._state(q, u)))
        return found[:, :2], found[:, 2:]

    def _measured(self, q: Floats, u: Floats) -> Floats:
        """Measure both of `apart` [loops, 4]."""
        self._divided.measure(q, u)
        found = np.zeros((len(self._names), 4))
        for part in self._parts:
            found[part.numbers] = part.apart()
        return greatest(self._divided.comm, found)

    def roundings(self, q: Floats) -> Floats:
        """How much of positions in units of the loops' sizes [loops] is rounding, as last measured; all ranks call."""
        far = (part.farthest() for part in self._parts)
        farthest = max((size for size in far if np.isfinite(size)), default=0.0)
        ends = greatest(self._divided.comm, np.array([farthest, np.abs(q).max(initial=0.0)]))
        found = np.zeros(len(self._names))
        for part in self._parts:
            found[part.numbers] = part.roundings(*ends)
        return greatest(self._divided.comm, found) * ROUNDING

    def spring_energy(self, q: Floats, u: Floats) -> float:
        """Energy (J) of the springs of those that this rank counts."""
        if not self.driven:
            return 0.0
        self._divided.measure(*self._state(q, u))
        return sum(part.energy_and_power()[0] for part in self._parts)

    @functools.cached_property
    def winds(self) -> bool:
        """Whether springs act along angles of loops' joints, on any rank."""
        return bool(self._divided.comm.allreduce(any(part.winds for part in self._parts), MPI.LOR))

    def count_turns(self, q: Floats, u: Floats) -> None:
        """Take angles along loops' joints from here on nearest to those in a state: so turns are counted.

        Of arrays that were checked; all ranks call. From rest at first, by half a turn to either side.
        """
        if self.winds:
            self._divided.measure(q, u)
            for part in self._parts:
                part.count_turns()

    @property
    def wound(self) -> dict[str, list[float]]:
        """Angles from rest (rad), turns counted, of loops with springs along these, by name; all ranks ask together."""
        if not self.winds:
            return {}
        found: dict[int, list[float]] = {}
        for angles in self._divided.comm.allgather([part.wound for part in self._parts]):
            for part in angles:
                found |= part
        return {self._names[k]: found[k] for k in sorted(found)}

    def wind(self, angles: Mapping[str, Sequence[float]]) -> None:
        """Take angles nearest to those that `wound` gave."""
        given = {k: angles[name] for k, name in enumerate(self._names) if name in angles}
        for part in self._parts:
            part.wind(given)

    def power(self) -> float:
        """Power (W) of the dampers and torques of those that this rank counts, in the last evaluation."""
        return sum(part.energy_and_power()[1] for part in self._parts)

    def stabilise(self, time: float) -> None:
        """Ask of accelerations that violations decay with a time constant (s) [Baumgarte 1972]; 0: no longer."""
        self._stabilised = (2.0 / time, 1.0 / time**2) if time else (0.0, 0.0)
        self._aim(*self._stabilised)

    _stabilised = (0.0, 0.0)

    def _aim(self, speeds: float, places: float, beside: float = 0.0) -> None:
        for part in self._parts:
            part.aim[:FOUND] = speeds, places, beside

    def _change(self, q: Floats, u: Floats, speeds: float, places: float, beside: float = 0.0) -> Floats:
        """The change of least kinetic energy that takes violations of velocities or positions away, or what is asked
        beside [nu]."""
        udot, rates = np.empty_like(u), np.empty_like(q)
        self._aim(LARGE * speeds, LARGE * places, LARGE * beside)
        iterative = self._divided.coupling.iterative
        usual = 0.0 if iterative is None else iterative.contradiction
        try:
            if iterative is not None:  # open loops contradict one another, until they are closed
                iterative.contradiction = 1.0
            self._divided.evaluate_unforced(q, u, udot, rates)
        finally:
            if iterative is not None:
                iterative.contradiction = usual
            self._aim(*self._stabilised)
        return np.where(np.abs(udot) < NOT_LARGE, 0.0, udot / LARGE)

    def refine(self, q: Floats, u: Floats, udot: Floats) -> None:
        """Take away what the accelerations [nu] just found, and the loads, leave of what the loops ask; all ranks call.

        Where constraints hardly differ rounding is a part of the numbers by which they are eliminated. The change of
        accelerations for what is left is right to the same part of itself: iterative refinement, for which neither
        velocities nor forces count, beside which what is left would be rounded. What is right already keeps its bits;
        where anything changes, `refining` is set.

        Joints that follow are where they do. Nothing is done with couplings that iterate, which do so themselves.
        """
        if not self._refines:
            return
        divided, part, subchain = self._divided, self._part, self._divided.subchain
        linear = [part.loads, *(loops.joints.loads for loops in self._parts)]
        others = [part.blocks, *(loops.joints.closures for loops in self._parts)]
        kept = [array.copy() for array in others]
        comm, boundary, last = divided.comm, divided.boundary_motion(q, u), np.inf
        for _ in range(REFINEMENTS):
            steps, _ = prescribed(comm, subchain, q, u, udot, boundary, divided.root)
            bodies = subchain.of_bodies(steps)
            left, _, _ = part.loop_rows(bodies, np.zeros((len(bodies), 2)), udot, len(self._names))
            comm.Allreduce(MPI.IN_PLACE, left)
            for loops in self._parts:
                loops.asked[:] = left[loops.numbers]
            found = [array.copy() for array in linear]
            change = self._change(q, u, 0.0, 0.0, 1.0)
            sizes = np.array([np.abs(change).max(initial=0.0), np.abs(udot).max(initial=0.0)])
            comm.Allreduce(MPI.IN_PLACE, sizes, MPI.MAX)
            much = bool(sizes[0] > DOUBTFUL * max(sizes[1], float(np.linalg.norm(divided.root))))
            much = much and bool(sizes[0] <= GAINED * last)
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

    def close_speeds(self, q: Floats, u: Floats, checked: bool = False) -> Floats:
        """Give the speeds [nu] nearest to `u` that the loops allow, by kinetic energy; `checked` as of `apart`."""
        q, u = (q, u) if checked else self._state(q, u)
        self.evaluations += 1
        try:
            return u + self._change(q, u, 1.0, 0.0)
        except SimulationError:  # what redundant constraints leave is rounding, which nothing takes away
            if self._measured(q, u)[:, 3].max(initial=0.0) <= CLOSED * self._divided.largest_speed(u):
                return u
            raise

    def close_places(
        self, q: Floats, measured: Floats | None = None, nearest: bool = False, checked: bool = False
    ) -> Floats:
        """Give coordinates [nq] near `q` with which the loops are closed, by Newton's method.

        A state that is closed to rounding stays as it is, wherever it stands. `measured`: of positions there, in units
        of the loops' sizes [loops], where `apart` just gave them. `nearest`: each step leads back towards `q`, see
        `nearest_places`. `checked` as of `apart`.

        Raises
        ------
        SimulationError
            On all ranks: it does not converge; with the loop that is farthest from closed, and its distance.
        """
        subchain = self._divided.subchain
        u = self._divided.still
        given = q if checked else self._state(q, u)[0]
        q = given.copy()
        begin, change, share, last = q, u, 1.0, np.inf
        if measured is None:
            measured = self._measured(q, u)[:, 2]
        rounding = self.roundings(q)
        for _ in range(ROUNDS):
            apart = measured / rounding
            most = float(apart.max(initial=0.0))
            closed = most <= 1.0 or (most <= CLOSED / ROUNDING and most > 0.5 * last)
            if closed and np.isfinite(most):
                return q
            if not most < last and share > SMALLEST_SHARE:  # too far: a part of the way
                share *= 0.5
            elif not np.isfinite(most):
                break
            else:
                begin, last, share = q, most, min(1.0, 4.0 * share)
                self.evaluations += 1
                try:
                    way = self._way(q, given) if nearest else u
                    change = way + self._change(q, way, float(nearest), 1.0)
                except SimulationError:  # what redundant constraints leave is rounding, which nothing takes away
                    if most <= CLOSED / ROUNDING:
                        return q
                    raise
            q = subchain.displaced(begin, share * change)
            measured = self._measured(q, u)[:, 2]
        left = self._measured(q, u)[:, 0]
        worst = int(np.argmax(np.where(np.isfinite(apart), apart, np.inf)))
        raise SimulationError(
            f"the loops don't close: the ends of loop {self._names[worst]!r} stay {left[worst]:.3g} apart (m and "
            "rad); check the positions of its joint on both bodies and the initial coordinates, or whether its links "
            "are long enough"
        )

    def nearest_places(self, given: Floats) -> Floats:
        """Give the closed coordinates [nq] that are nearest to `given` ones by kinetic energy.

        A step of Newton's method is the least one alone: wrong by its square, and where loops are open that of
        whichever of redundant constraints is left in, of which it is another on other ranks. So each step begins with
        the way back to where the first one began, and once the loops are closed they move as they allow, until nothing
        leads nearer. It is a local minimum; where steps don't lead there, what they reach. Raises as `close_places`.
        """
        try:
            q = self.close_places(given, nearest=True)
        except SimulationError:
            q = self.close_places(given)
        units, comm = self._divided.units[1], self._divided.comm
        best, move, least, share = q, np.zeros(len(units)), np.inf, 1.0
        for _ in range(ROUNDS):
            way = self._way(q, given)
            if self._divided.largest_speed(way) <= ALIKE:
                return q
            self.evaluations += 1
            try:
                allowed = way + self._change(q, way, 1.0, 0.0)
            except SimulationError:  # of redundant constraints, or a singular position
                break
            most = self._divided.largest_speed(allowed)
            if least <= CONVERGED and not most <= 0.5 * least:
                break
            if most < least:
                before, now = move / units, allowed / units
                square, product = comm.allreduce(np.array([before @ before, before @ now]))
                share *= square / (square - product) if square > product else 1.0  # [Barzilai & Borwein 1988]
                best, move, least, share = q, allowed, most, min(share, FARTHEST)
            elif share > SMALLEST_SHARE:
                share *= 0.5
            else:
                break
            try:
                q = self.close_places(self._divided.subchain.displaced(best, share * move))
            except SimulationError:
                q = best
        return best

    def _way(self, q: Floats, given: Floats) -> Floats:
        """The displacement [nu] (rad, m) from coordinates to `given` ones."""
        return displacements(self._divided.subchain.columns, q, given)

    def joint_loads(self, q: Floats, u: Floats, tau: Floats, turns: Floats) -> CarriedLoads:
        """Give the loads of this rank's inboard joints and of all loops.

        After an evaluation, of what it was given; see `Subchain.joint_loads`. All ranks call.
        """
        part, divided = self._part, self._divided
        joints, forces = part.joint_loads(q, u, part.geared(tau), turns, part.loop_wrenches())
        found = np.zeros((len(self._names), 6))
        for loops in part.loops:
            found[loops.numbers[loops.owned]] = loops.joint_loads()[loops.owned]
        divided.comm.Allreduce(MPI.IN_PLACE, found)
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
