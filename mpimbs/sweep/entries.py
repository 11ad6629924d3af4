"""The sweeps as a process calls them: compiled functions of arrays, one set for every number of lanes."""

from __future__ import annotations

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.lanes import zero_lanes
from mpimbs.spatial.memory import borrowed
from mpimbs.spatial.vectors import load3, load6, store6
from mpimbs.sweep.forces import joint_forces
from mpimbs.sweep.inverse import newton_euler, prescribed_accelerations
from mpimbs.sweep.inward import inward
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


@kernel
def _motion1(sequence, q, u):
    motion_of_all(0.0, sequence, borrowed(q), borrowed(u))


@kernel
def _inward1(sequence, q, u, tau, turn):
    inward_of_all(0.0, sequence, borrowed(q), borrowed(u), borrowed(tau), borrowed(turn), False)


@kernel
def _outward1(sequence, q, u, tau, udot, rates):
    outward_of_all(0.0, sequence, borrowed(q), borrowed(u), borrowed(tau), borrowed(udot), borrowed(rates))


@kernel
def _motion2(sequence, q, u):
    motion_of_all(zero_lanes(2), sequence, borrowed(q), borrowed(u))


@kernel
def _inward2(sequence, q, u, tau, turn):
    inward_of_all(zero_lanes(2), sequence, borrowed(q), borrowed(u), borrowed(tau), borrowed(turn), False)


@kernel
def _outward2(sequence, q, u, tau, udot, rates):
    outward_of_all(zero_lanes(2), sequence, borrowed(q), borrowed(u), borrowed(tau), borrowed(udot), borrowed(rates))


@kernel
def _motion4(sequence, q, u):
    motion_of_all(zero_lanes(4), sequence, borrowed(q), borrowed(u))


@kernel
def _inward4(sequence, q, u, tau, turn):
    inward_of_all(zero_lanes(4), sequence, borrowed(q), borrowed(u), borrowed(tau), borrowed(turn), False)


@kernel
def _outward4(sequence, q, u, tau, udot, rates):
    outward_of_all(zero_lanes(4), sequence, borrowed(q), borrowed(u), borrowed(tau), borrowed(udot), borrowed(rates))


@kernel
def _motion8(sequence, q, u):
    motion_of_all(zero_lanes(8), sequence, borrowed(q), borrowed(u))


@kernel
def _inward8(sequence, q, u, tau, turn):
    inward_of_all(zero_lanes(8), sequence, borrowed(q), borrowed(u), borrowed(tau), borrowed(turn), False)


@kernel
def _outward8(sequence, q, u, tau, udot, rates):
    outward_of_all(zero_lanes(8), sequence, borrowed(q), borrowed(u), borrowed(tau), borrowed(udot), borrowed(rates))


@kernel
def _alone1(plan, q, u, tau, udot, rates):
    systems_alone(0.0, plan, borrowed(q), borrowed(u), borrowed(tau), borrowed(udot), borrowed(rates))


@kernel
def _alone2(plan, q, u, tau, udot, rates):
    systems_alone(zero_lanes(2), plan, borrowed(q), borrowed(u), borrowed(tau), borrowed(udot), borrowed(rates))


@kernel
def _alone4(plan, q, u, tau, udot, rates):
    systems_alone(zero_lanes(4), plan, borrowed(q), borrowed(u), borrowed(tau), borrowed(udot), borrowed(rates))


@kernel
def _alone8(plan, q, u, tau, udot, rates):
    systems_alone(zero_lanes(8), plan, borrowed(q), borrowed(u), borrowed(tau), borrowed(udot), borrowed(rates))


# pass 1, 2 and 3 by the number of lanes
ENTRIES = {
    1: (_motion1, _inward1, _outward1),
    2: (_motion2, _inward2, _outward2),
    4: (_motion4, _inward4, _outward4),
    8: (_motion8, _inward8, _outward8),
}

# all of an evaluation of systems of their own
SYSTEMS_ALONE = {1: _alone1, 2: _alone2, 4: _alone4, 8: _alone8}
