"""The sweeps as a process calls them: compiled functions of arrays, one set for every number of lanes."""

from __future__ import annotations

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import borrowed
from mpimbs.spatial.vectors import load3, load6, store6
from mpimbs.spatial.widths import by_width
from mpimbs.sweep.inverse import newton_euler, prescribed_accelerations
from mpimbs.sweep.inward import inward
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.motion import joint_places, velocity_terms
from mpimbs.sweep.outward import outward
from mpimbs.sweep.passes import systems_alone
from mpimbs.sweep.sequence import inward_of_all, motion_of_all, outward_of_all


@kernel
def places(structure, work, q):
    """Write the joint frames of one piece."""
    joint_places(0.0, structure, q, work.place)


@kernel
def move(structure, work, u, turn):
    """Write the velocity terms of one piece, given the turn of handle 1 [TURNING]."""
    velocity_terms(0.0, structure, work, u, load3(0.0, turn, 9))


@kernel
def joint_loads(structure, springs, work, q, u, tau, turn, handle_loads, loads, total, udot, block):
    """Write the load [m * 6] that each step of one piece receives through its joint, at its origin, in its frame.

    Accelerations are solved for once more, as one piece between handles whose A1 and f2 are known; see `sweep.inverse`.
    `total`, `udot` [nu] and `block` [SIZE] are room.
    """
    load2 = load6(0.0, handle_loads, 6)
    joint_places(0.0, structure, q, work.place)
    velocity_terms(0.0, structure, work, u, load3(0.0, turn, 9))
    joint_forces(0.0, structure, springs, q, u, tau, total)
    inward(0.0, structure, work, total, load2, block, False)
    outward(0.0, structure, work, load6(0.0, handle_loads, 0), load2, False, udot, loads)
    newton_euler(0.0, structure, work, load2, loads, total)


@kernel
def prescribe(structure, work, udot, acceleration, accelerations, far):
    """Write the acceleration of every step [m * 6] of one piece that moves by `udot`, and of handle 2, `far` [6]."""
    a = prescribed_accelerations(0.0, structure, work, udot, load6(0.0, acceleration, 0), accelerations)
    store6(0.0, far, 0, a)


@kernel
def required_forces(structure, springs, work, q, u, forces, load2, loads, total, tau):
    """Write the generalized forces [nu] beside `forces`, springs, dampers and torques that given accelerations need.

    `loads` [m * 6] are the accelerations, and become the joints' loads; `total` [nu] is room.
    """
    newton_euler(0.0, structure, work, load6(0.0, load2, 0), loads, tau)
    joint_forces(0.0, structure, springs, q, u, forces, total)
    for d in range(tau.size):
        tau[d] -= total[d]


@kernel(merge=True)
def _motion(zero, sequence, q, u):
    motion_of_all(zero, sequence, borrowed(q), borrowed(u))


@kernel(merge=True)
def _inward(zero, sequence, q, u, tau, turn):
    inward_of_all(zero, sequence, borrowed(q), borrowed(u), borrowed(tau), borrowed(turn), False)


@kernel(merge=True)
def _outward(zero, sequence, q, u, tau, udot, rates):
    outward_of_all(zero, sequence, borrowed(q), borrowed(u), borrowed(tau), borrowed(udot), borrowed(rates))


@kernel(merge=True)
def _alone(zero, plan, q, u, tau, udot, rates):
    systems_alone(zero, plan, borrowed(q), borrowed(u), borrowed(tau), borrowed(udot), borrowed(rates))


# By the number of lanes: passes 1, 2 and 3; all of an evaluation of systems of their own.
MOTION, INWARD, OUTWARD = by_width(_motion), by_width(_inward), by_width(_outward)
SYSTEMS_ALONE = by_width(_alone)
