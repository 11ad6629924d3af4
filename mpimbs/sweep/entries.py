"""The sweeps as a process calls them: compiled functions of arrays, one set for every number of lanes."""

from __future__ import annotations

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import borrowed
from mpimbs.spatial.tuples import load3, load6, store_numbers
from mpimbs.spatial.widths import by_width
from mpimbs.sweep.inverse import newton_euler, prescribed_accelerations
from mpimbs.sweep.inward import inward
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.motion import joint_places, motions, velocity_terms
from mpimbs.sweep.outward import outward
from mpimbs.sweep.passes import systems_alone


@kernel
def move(structure, work, q, u, boundary, motion):
    """Write the motions of the steps of one piece [m * BOUNDARY], given that of handle 1 [BOUNDARY]."""
    joint_places(0.0, structure, q, work.place)
    motions(0.0, structure, work, u, boundary, motion)


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
def prescribe(structure, work, q, u, udot, turn, acceleration, accelerations, far):
    """Write the acceleration of every step [m * 6] of one piece that moves by `udot`, and of handle 2, `far` [6].

    Given the turn [TURNING] and the acceleration [6] of handle 1.
    """
    joint_places(0.0, structure, q, work.place)
    velocity_terms(0.0, structure, work, u, load3(0.0, turn, 9))
    a = prescribed_accelerations(0.0, structure, work, udot, load6(0.0, acceleration, 0), accelerations)
    store_numbers(0.0, far, 0, a)


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
def _alone(zero, plan, q, u, tau, udot, rates):
    systems_alone(zero, plan, borrowed(q), borrowed(u), borrowed(tau), borrowed(udot), borrowed(rates))


# By the number of lanes: all of an evaluation of systems of their own.
SYSTEMS_ALONE = by_width(_alone)
