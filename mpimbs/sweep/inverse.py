"""The load that every joint carries, from the accelerations of the bodies; inverse dynamics, which asks for its part
along the motion of the joint.

Accelerations that are summed up from a given `udot` carry the rounding of every joint into all bodies beyond, so that
loads of long chains lose digits, as with any inverse dynamics. Those that the outward sweep passes on do not: there the
`udot` of each joint answers to the acceleration as it was rounded so far. Joint loads of forward dynamics come from
these.
"""

from __future__ import annotations

from mpimbs.spatial.axes import add_along, along
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.lanes import load, store, width
from mpimbs.spatial.tuples import load3, load6, load9, store_numbers
from mpimbs.spatial.vectors import add6, force_inward, motion_outward, scale6
from mpimbs.sweep.added import body_momentum
from mpimbs.sweep.structure import BIAS, FIRST_U, LAST_U, PLACE
from mpimbs.sweep.walk import walk_inward, walk_outward


@kernel
def inverse_dynamics(zero, structure, work, udot, acceleration, loads, tau):
    """Write the generalized forces that given accelerations need: the recursive Newton-Euler algorithm.

    Parameters
    ----------
    udot : array [nu]
        Generalized accelerations (rad/s^2, m/s^2).
    acceleration : 6-tuple
        Acceleration of handle 1, gravity included as -g at the root.
    loads, tau : array [m * 6], [nu]
        Written, as by `newton_euler`.
    """
    prescribed_accelerations(zero, structure, work, udot, acceleration, loads)
    newton_euler(zero, structure, work, (zero, zero, zero, zero, zero, zero), loads, tau)
    add_rotors(zero, structure, udot, tau)


@kernel(inline=True)
def _prescribed(zero, structure, step, a, given):
    work, udot, accelerations = given
    n = width(zero)
    r = load9(zero, work.place, step * PLACE)
    p = load3(zero, work.place, step * PLACE + 9)
    a = add6(motion_outward(r, p, a), load6(zero, work.bias, step * BIAS))
    for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
        a = add_along(a, structure.axes[d], load(zero, structure.pitch, d * n), load(zero, udot, d * n))
    store_numbers(zero, accelerations, step * 6, a)
    return a


@kernel
def prescribed_accelerations(zero, structure, work, udot, acceleration, accelerations):
    """Sweep outward: write the acceleration of every step's origin [m * 6], in its frame, from those of the joints.

    Returns that of the last step; of a chain, A2.
    """
    given = (work, udot, accelerations)
    return walk_outward(zero, structure, work.junction, _prescribed, acceleration, given)


@kernel
def add_rotors(zero, structure, udot, tau):
    """Add to the generalized forces `tau` [nu] what the rotors of the joints need to follow `udot` [nu]."""
    n = width(zero)
    if structure.armature.size > 0:
        for d in range(structure.axes.shape[0]):
            needed = load(zero, structure.armature, d * n) * load(zero, udot, d * n)
            store(tau, d * n, load(zero, tau, d * n) + needed)


@kernel(inline=True)
def _carried(zero, structure, step, f, given):
    work, loads, tau = given
    n = width(zero)
    f = add6(f, body_momentum(zero, structure, step, load6(zero, loads, step * 6)))
    f = add6(f, load6(zero, work.bias, step * BIAS + 6))
    store_numbers(zero, loads, step * 6, f)
    for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
        store(tau, d * n, along(f, structure.axes[d], load(zero, structure.pitch, d * n)))
    return force_inward(load9(zero, work.place, step * PLACE), load3(zero, work.place, step * PLACE + 9), f)


@kernel
def newton_euler(zero, structure, work, load2, loads, tau):
    """Sweep inward: the joint loads f = I A + p + sum over children of X^T f, and of them tau = S^T f.

    Parameters
    ----------
    load2 : 6-tuple
        Load f2 on handle 2, in its frame (N m, N); there -f2 takes the place of the children's loads.
    loads : array [m * 6]
        Given: acceleration of every step's origin, gravity included as -g at the root (rad/s^2, m/s^2). Written in its
        place: load that the step receives through its joint, at its origin, in its frame (N m, N).
    tau : array [nu]
        Written: generalized forces (N m, N).
    """
    walk_inward(zero, structure, work.junction, _carried, scale6(-1.0, load2), (work, loads, tau))
