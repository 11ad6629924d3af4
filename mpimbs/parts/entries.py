"""The sweeps as a process calls them: compiled functions of arrays, one set for every number of lanes."""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import borrowed
from mpimbs.kernels.tuples import load3, load6, load9, load18, store_numbers
from mpimbs.kernels.widths import by_width
from mpimbs.parts.passes import systems_alone
from mpimbs.spatial.vectors import rotate
from mpimbs.sweep.inverse import newton_euler
from mpimbs.sweep.inward import inward, outward
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.motion import coordinate_rates, joint_places, load_quaternion, motions, velocity_terms
from mpimbs.sweep.structure import BIAS, BOUNDARY, FIRST_Q, TURN, TURNING
from mpimbs.sweep.walk import place_boundary


@kernel
def move(structure, work, q, u, boundary, motion):
    """Write the motions of the steps of one piece [m * BOUNDARY], given those of what it hangs on [k * BOUNDARY]."""
    joint_places(0.0, structure, q, work.place)
    for slot in range(1, boundary.size // BOUNDARY):
        place_boundary(0.0, work.junction, slot, load18(0.0, boundary, slot * BOUNDARY))
    motions(0.0, structure, work, u, boundary, motion)


@kernel
def displace(structure, q, move, moved):
    """Write the coordinates [nq] after a displacement along the speeds [nu] (rad, m), quaternions of unit length."""
    coordinate_rates(0.0, structure, q, move, moved)
    for k in range(q.size):
        moved[k] += q[k]
    for step in range(structure.steps.shape[0]):
        if structure.steps[step, TURN] == 4:
            first = structure.steps[step, FIRST_Q]
            store_numbers(0.0, moved, first, load_quaternion(0.0, moved, first))


@kernel(inline=True)
def _velocities(structure, work, q, u, turns):
    joint_places(0.0, structure, q, work.place)
    for slot in range(1, turns.size // TURNING):
        place_boundary(0.0, work.junction, slot, load3(0.0, turns, slot * TURNING + 9))
    velocity_terms(0.0, structure, work, u, load3(0.0, turns, 9))


@kernel(inline=True)
def _put_loads(work, steps, given):
    """Add loads from behind [h * 6] to those on steps that the velocity terms have."""
    for k in range(steps.size):
        for i in range(6):
            work.bias[steps[k] * BIAS + 6 + i] -= given[6 * k + i]


@kernel
def joint_loads(structure, springs, work, q, u, tau, turns, given, outer, outer_loads, loads, total, udot, block):
    """Write the load [m * 6] that each step of one piece receives through its joint, at its origin, in its frame.

    Accelerations are solved for once more, as one piece, of which are known turns [k * TURNING] and accelerations
    `given` [k * 6] of the bodies that it hangs on, and what acts from behind [h * 6] on the steps `outer`; see
    `sweep.inverse`. `total`, `udot` [nu] and `block` [SIZE] are room.
    """
    o = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    _velocities(structure, work, q, u, turns)
    _put_loads(work, outer, outer_loads)
    joint_forces(0.0, structure, springs, q, u, tau, total)
    inward(0.0, structure, work, total, block, False)
    for slot in range(1, turns.size // TURNING):
        place_boundary(0.0, work.junction, slot, load6(0.0, given, 6 * slot))
    outward(0.0, structure, work, load6(0.0, given, 0), o, False, udot, loads)
    newton_euler(0.0, structure, work, o, loads, 6, total)


@kernel
def loads_of_bodies(loads, carriers, frames, found):
    """Write loads [n * 6] in the frames of bodies, of those of the steps [m * 6] that carry them.

    `frames` [n * 9] turn what is seen from these steps.
    """
    for body in range(carriers.size):
        at, turn = carriers[body] * 6, load9(0.0, frames, 9 * body)
        store_numbers(0.0, found, 6 * body, rotate(turn, load3(0.0, loads, at)))
        store_numbers(0.0, found, 6 * body + 3, rotate(turn, load3(0.0, loads, at + 3)))


@kernel(merge=True)
def _alone(zero, plan, q, u, tau, udot, rates):
    systems_alone(zero, plan, borrowed(q), borrowed(u), borrowed(tau), borrowed(udot), borrowed(rates))
    return True


# By the number of lanes: all of an evaluation of systems of their own; as `march` calls it, it tells that it is done.
SYSTEMS_ALONE = by_width(_alone)
