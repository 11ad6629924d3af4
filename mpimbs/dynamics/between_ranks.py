"""Inverse dynamics of what a rank has as one piece, in doubles, and what ranks hand one another for it: compiled.

Accelerations go outward, from the bodies on which others hang to these, loads inward, each by a scan over the ranks, in
inertial components: first what a rank's own bodies do while those that they hang on are held, then what these add.
Chains, trees and systems with loops, whose loads act on bodies as given wrenches do, differ in nothing here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Table, read, schema
from mpimbs.kernels.tuples import load3, load6, load9, store_numbers
from mpimbs.parallel.scan import Scan, scan, scanned
from mpimbs.parts.entries import move
from mpimbs.parts.open_bodies import (
    HEAD,
    OWN,
    UNHELD,
    BoundaryPlan,
    Scans,
    boundary_plan,
    join_open_accelerations,
    join_open_reaches,
    none_open,
    open_value,
    see_boundary,
)
from mpimbs.parts.subchain import AT_REST, Subchain
from mpimbs.spatial.vectors import add3, add6, cross, dot3, multiply, rotate, rotate_back, sub3
from mpimbs.sweep.handed import begin_handing, hand_to, handed_to, join_handed, nothing_handed
from mpimbs.sweep.inverse import accelerations_along, add_rotors, newton_euler, pass_on, prescribed_accelerations
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.motion import joint_places, velocity_terms
from mpimbs.sweep.structure import BOUNDARY, JUNCTION, PLACE, Workspace
from mpimbs.sweep.walk import place_boundary

_HANDED = 9  # numbers that a body is handed: its position 3, a load about it 6
_NONE = np.zeros(0)


class BetweenPlan(NamedTuple):
    """What a rank's bodies have to do with those of others."""

    alone: int  # whether nothing hangs between ranks
    motions: BoundaryPlan  # scan of motions
    boundary: Floats  # [k * BOUNDARY], written: motions of the bodies inboard
    first: int
    inboard: Integers  # [k]
    outer: Integers  # [h]: bodies on which others hang
    path: Integers  # steps out to these, and how many of them carry each [h]
    reach: Integers
    outward: Integers  # scan of accelerations of open bodies
    inward: Integers  # scan of loads that bodies outside are handed, backward
    value: Floats  # what the former is given
    handed: Floats  # and the latter
    given: Floats  # [k * 6], written: accelerations of the bodies inboard


BETWEEN = schema(BetweenPlan)


@kernel
def see_others(plan, structure, work, q, u):
    """Find the motions of the bodies inboard in a state, and how those of `outer` lie beside them; all ranks call."""
    p = read(plan, BETWEEN)
    if p.alone == 0:
        see_boundary(structure, work, p.motions, q, u, p.boundary)


@kernel
def see_motions(plan, structure, work, q, u, motion):
    """Write the motions of all steps [m * BOUNDARY], as `see_others`; all ranks call."""
    see_others(plan, structure, work, q, u)
    move(structure, work, q, u, read(plan, BETWEEN.boundary), motion)


@kernel(inline=True)
def _rotation(p, k):
    """Rotation of an outer body's step from inertial components."""
    return multiply(load9(0.0, p.motions.held, p.motions.outer[k] * BOUNDARY), load9(0.0, p.boundary, 0))


@kernel(inline=True)
def _place(p, k, rest):
    """Write the position of an outer body where a scan outward is given it, and what else is given."""
    there = load3(0.0, p.motions.held, p.motions.outer[k] * BOUNDARY + 9)
    position = add3(load3(0.0, p.boundary, 9), rotate_back(load9(0.0, p.boundary, 0), there))
    store_numbers(0.0, p.value, HEAD + k * (OWN + UNHELD) + OWN, position + rest)


@kernel(inline=True)
def _before(p, k):
    """Where a scan outward has what is known of a body inboard, behind its position; -1 of the world."""
    before = p.motions.before[k]
    return HEAD + before * (OWN + UNHELD) + OWN + 3 if before >= 0 else -1


@kernel(inline=True)
def _turned(r, a):
    return rotate(r, a[0:3]) + rotate(r, a[3:6])


@kernel(inline=True)
def _turned_back(r, a):
    return rotate_back(r, a[0:3]) + rotate_back(r, a[3:6])


@kernel
def _hand_outward(p, accelerations, root):
    """Find the accelerations of the bodies inboard, by those of the outer ones while these have none; all call."""
    for k in range(p.outer.size):
        _place(p, k, _turned_back(_rotation(p, k), load6(0.0, accelerations, 6 * p.motions.outer[k])))
    scan(p.outward, join_open_accelerations, p.value)
    for k in range(p.inboard.size):
        at, found = _before(p, k), root
        if at >= 0:
            free = add6(root, load6(0.0, scanned(p.outward), at))
            found = _turned(load9(0.0, p.boundary, k * BOUNDARY), free)
        store_numbers(0.0, p.given, 6 * k, found)


@kernel(inline=True)
def _add_load(value, at, other):
    arm, force = sub3(other[0:3], load3(0.0, value, at)), other[6:9]
    moment = add3(add3(load3(0.0, value, at + 3), other[3:6]), cross(arm, force))
    store_numbers(0.0, value, at + 3, moment + add3(load3(0.0, value, at + 6), force))


@kernel(inline=True)
def _add_magnitude(value, at, other):
    """As of loads, of the magnitudes of a moment and a force: the first two numbers in place of a load."""
    arm = sub3(other[0:3], load3(0.0, value, at))
    value[at + 3] += other[3] + dot3(arm, arm) ** 0.5 * other[4]
    value[at + 4] += other[4]


@kernel
def _join_loads(zero, left, right, out):
    join_handed(left, right, out, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), _add_load)


@kernel
def _join_magnitudes(zero, left, right, out):
    join_handed(left, right, out, (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), _add_magnitude)


@kernel
def _hand_inward(p, junction):
    """Find what the outer bodies are handed from behind, by what the slots of a walk have been handed; all call."""
    begin_handing(p.handed, p.first)
    for k in range(p.inboard.size):
        load = _turned_back(load9(0.0, p.boundary, k * BOUNDARY), load6(0.0, junction, k * JUNCTION))
        hand_to(p.handed, p.inboard[k], load3(0.0, p.boundary, k * BOUNDARY + 9) + load, _add_load)
    scan(p.inward, _join_loads, p.handed)


@kernel(inline=True)
def _from_behind(p, k):
    """What an outer body is handed, in the frame of its step."""
    value = scanned(p.inward)
    at = handed_to(value, p.outer[k], _HANDED)
    return _turned(_rotation(p, k), load6(0.0, value, at + 3)) if at >= 0 else (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@kernel
def prescribe(structure, work, plan, q, u, udot, root, at_rest, accelerations):
    """Write the acceleration of every step [m * 6] of one piece that moves by `udot`, after `see_others`; all call.

    The root's acceleration is `root`, 6 numbers. `at_rest`: without speeds, and nothing else acts.
    """
    p = read(plan, BETWEEN)
    joint_places(0.0, structure, q, work.place)
    if at_rest:
        for i in range(work.bias.size):
            work.bias[i] = 0.0
    else:
        for slot in range(1, p.inboard.size):
            place_boundary(0.0, work.junction, slot, load3(0.0, p.boundary, slot * BOUNDARY + PLACE))
        velocity_terms(0.0, structure, work, u, load3(0.0, p.boundary, PLACE))
    if p.alone == 0:
        accelerations_along(0.0, structure, work, p.path, udot, accelerations, 6)
        _hand_outward(p, accelerations, root)
    else:
        for k in range(p.inboard.size):
            store_numbers(0.0, p.given, 6 * k, root)
    for slot in range(1, p.inboard.size):
        place_boundary(0.0, work.junction, slot, load6(0.0, p.given, 6 * slot))
    prescribed_accelerations(0.0, structure, work, udot, load6(0.0, p.given, 0), accelerations, 6)


@kernel
def forces_of_part(structure, springs, work, plan, q, u, udot, forces, acting, loads, total, tau):
    """Write the generalized forces [nu] that given accelerations need, after `prescribe`; all ranks call.

    Where things are `acting`, beside `forces`, springs, dampers and torques. `loads` [m * 6] are the accelerations, and
    become the joints' loads; `total` [nu] is room.
    """
    p, f = read(plan, BETWEEN), (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    newton_euler(0.0, structure, work, f, loads, 6, tau)
    if p.alone == 0:
        _hand_inward(p, work.junction)
        for k in range(p.outer.size - 1, -1, -1):
            begin = p.reach[k - 1] if k > 0 else 0
            f = pass_on(0.0, structure, work, p.path[begin : p.reach[k]], add6(f, _from_behind(p, k)), tau, loads)
    add_rotors(0.0, structure, udot, tau)
    if acting:
        joint_forces(0.0, structure, springs, q, u, forces, total)
        for d in range(tau.size):
            tau[d] -= total[d]


@kernel
def _reaches(plan, own, begin, given):
    """Write magnitudes of the accelerations of the bodies inboard [k * 2], by those of all steps [m * 2]; all call."""
    p = read(plan, BETWEEN)
    if p.alone == 0:
        for k in range(p.outer.size):
            at = 2 * p.motions.outer[k]
            _place(p, k, (own[at], own[at + 1]))
        scan(p.outward, join_open_reaches, p.value)
    for k in range(p.inboard.size):
        given[2 * k], given[2 * k + 1] = begin[0], begin[1]
        at = -1 if p.alone != 0 else _before(p, k)
        if at >= 0:  # the world's acceleration is a force on all alike: it turns nothing
            given[2 * k] += scanned(p.outward)[at]
            given[2 * k + 1] += scanned(p.outward)[at + 1]


@kernel
def _magnitudes(plan, received, behind):
    """Write magnitudes of what outer bodies are handed [h * 2], by what those inboard are [k * 2]; all call."""
    p = read(plan, BETWEEN)
    if p.alone != 0:
        return
    begin_handing(p.handed, p.first)
    for k in range(p.inboard.size):
        load = received[2 * k], received[2 * k + 1], 0.0, 0.0, 0.0, 0.0
        hand_to(p.handed, p.inboard[k], load3(0.0, p.boundary, k * BOUNDARY + 9) + load, _add_magnitude)
    scan(p.inward, _join_magnitudes, p.handed)
    value = scanned(p.inward)
    for k in range(p.outer.size):
        at = handed_to(value, p.outer[k], _HANDED)
        for i in range(2):
            behind[2 * k + i] = value[at + 3 + i] if at >= 0 else 0.0


class BetweenRanks:
    """What a rank's bodies have to do with those of others, and inverse dynamics by it; all ranks make it and call.

    Arrays are the rank's own parts, read by address. Of all that is asked `see` comes first, in the same state.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive this.
    subchain : Subchain
        The rank's bodies as one piece.
    motions : Scans, optional
        The scan of motions; none where no bodies hang on those of other ranks.

    Attributes
    ----------
    plan : int64 array
        What the kernels of this module are given.
    """

    def __init__(self, comm: MPI.Comm, subchain: Subchain, motions: Scans | None = None) -> None:
        self._subchain, self._scans, outside = subchain, list[Scan](), subchain.outside
        inboard, alone = np.ascontiguousarray(subchain.inboard), motions is None or comm.size == 1
        self._boundary = np.tile(AT_REST, (len(inboard), 1))
        value, handed, plans = _NONE, _NONE, [np.zeros(0, np.int64)] * 2
        path = reach = plans[0]
        if not alone:
            path, reach = subchain.path_out(subchain.made)
            most = comm.allreduce(max(subchain.most_open, len(inboard)), MPI.MAX) + 1
            value, handed = open_value(outside, subchain.last, UNHELD), nothing_handed(most, _HANDED)
            before = none_open(subchain.first, outside.most, UNHELD)
            self._scans = [Scan(comm, before), Scan(comm, handed.copy(), backward=True)]
            plans = [each.plan for each in self._scans]
        self._table = Table(
            BetweenPlan(
                alone=int(alone),
                motions=boundary_plan(subchain, None if alone else motions),
                boundary=self._boundary.reshape(-1),
                first=subchain.first,
                inboard=inboard,
                outer=np.ascontiguousarray(outside.open),
                path=path,
                reach=reach,
                outward=plans[0],
                inward=plans[1],
                value=value,
                handed=handed,
                given=np.zeros(6 * len(inboard)),
            )
        )
        self.plan = self._table.data

    def see(self, q: Floats, u: Floats) -> Floats:
        """Give the motions of the bodies inboard in a state [k, BOUNDARY]. Used again."""
        see_others(self.plan, self._subchain.structure, self._subchain.work, q, u)
        return self._boundary

    def prescribed(self, q: Floats, u: Floats, udot: Floats, root: Floats, work: Workspace | None = None) -> Floats:
        """Give the accelerations [m, 6] of the steps that move by `udot` [nu], in their frames.

        Parameters
        ----------
        root : array [6]
            Acceleration of the root: -g.
        work : Workspace, optional
            With the wrenches that act, in place of those set last.
        """
        subchain = self._subchain
        found = np.empty((len(subchain.structure.steps), 6))
        given = q, u, udot, tuple(root.tolist()), False
        prescribe(subchain.structure, work or subchain.work, self.plan, *given, found.reshape(-1))
        return found

    def forces(
        self, q: Floats, u: Floats, udot: Floats, forces: Floats, loads: Floats, work: Workspace | None = None
    ) -> Floats:
        """Give the generalized forces [nu] that accelerations need, after `prescribed`, with the same `work`.

        Beside springs, dampers and torques of the model, and `forces` [nu]. `loads` [m, 6] are the accelerations of the
        steps; what these receive through their joints takes their place.
        """
        made, tau = self._subchain.made, np.empty(self._subchain.nu)
        given = q, u, udot, forces, True, loads.reshape(-1), np.empty_like(tau), tau
        forces_of_part(self._subchain.with_rotors, made.springs, work or self._subchain.work, self.plan, *given)
        return tau

    def reaches(self, own: Floats, begin: Floats) -> Floats:
        """Give magnitudes of the accelerations of the bodies inboard [k, 2]; see `sweep.magnitudes`.

        By those of the steps [m, 2] while these have none, and of the root [2].
        """
        given = np.empty((len(self._boundary), 2))
        _reaches(self.plan, own.reshape(-1), begin, given.reshape(-1))
        return given

    def magnitudes_behind(self, received: Floats) -> Floats:
        """Give magnitudes of what the outer bodies are handed [h, 2], by what those inboard are [k, 2]."""
        behind = np.zeros((len(self._subchain.outer), 2))
        _magnitudes(self.plan, received.reshape(-1), behind.reshape(-1))
        return behind

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        for each in self._scans:
            each.close()
