"""The load that every joint carries, from the accelerations of the bodies; inverse dynamics, which asks for its part
along the motion of the joint.

Accelerations that are summed up from a given `udot` carry the rounding of every joint into all bodies beyond, so that
loads of long chains lose digits, as with any inverse dynamics. Those that the outward sweep passes on do not: there the
`udot` of each joint answers to the acceleration as it was rounded so far. Joint loads of forward dynamics come from
these.
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import load, store, width
from mpimbs.kernels.tuples import load3, load6, load9, load18, store_numbers
from mpimbs.spatial.vectors import (
    add3,
    add6,
    add_along,
    along,
    cross,
    force_inward,
    motion_outward,
    rotate,
    scale3,
    scale6,
)
from mpimbs.sweep.added import body_momentum
from mpimbs.sweep.motion import chain_frame_change, joint_twist, motion_after, velocity_acceleration
from mpimbs.sweep.structure import BIAS, FIRST_U, LAST_U, PLACE
from mpimbs.sweep.walk import walk_inward, walk_inward_onto, walk_outward, walk_path_inward, walk_path_outward

MOVED = 24  # how a subchain moves, held at handle 1: rotation 9, position 3, twist 6, acceleration 6 of handle 2
PASSED = 18  # rotation 9, position 3 of handle 2; the load that handle 1 is handed 6


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
    prescribed_accelerations(zero, structure, work, udot, acceleration, loads, 6)
    newton_euler(zero, structure, work, (zero, zero, zero, zero, zero, zero), loads, 6, tau)
    add_rotors(zero, structure, udot, tau)


@kernel(inline=True)
def _prescribed(zero, structure, step, a, given):
    work, udot, accelerations, stride = given
    n = width(zero)
    r = load9(zero, work.place, step * PLACE)
    p = load3(zero, work.place, step * PLACE + 9)
    a = add6(motion_outward(r, p, a), load6(zero, work.bias, step * BIAS))
    for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
        a = add_along(a, structure.axes[d], load(zero, structure.pitch, d * n), load(zero, udot, d * n))
    store_numbers(zero, accelerations, step * stride, a)
    return a


@kernel
def prescribed_accelerations(zero, structure, work, udot, acceleration, accelerations, stride):
    """Sweep outward: write the acceleration of every step's origin, in its frame, from those of the joints.

    `accelerations` [m * stride] may be those that depend on velocities. Returns that of the last step; of a chain, A2.
    """
    given = (work, udot, accelerations, stride)
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
def _load_inward(zero, structure, step, f, given):
    work, loads, stride, tau = given
    n = width(zero)
    f = add6(f, body_momentum(zero, structure, step, load6(zero, loads, step * stride)))
    f = add6(f, load6(zero, work.bias, step * BIAS + 6))
    store_numbers(zero, loads, step * stride, f)
    for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
        store(tau, d * n, along(f, structure.axes[d], load(zero, structure.pitch, d * n)))
    return force_inward(load9(zero, work.place, step * PLACE), load3(zero, work.place, step * PLACE + 9), f)


@kernel
def newton_euler(zero, structure, work, load2, loads, stride, tau, onto=None):
    """Sweep inward: the joint loads f = I A + p + sum over children of X^T f, and of them tau = S^T f.

    Returns what handle 1 is handed, f1.

    Parameters
    ----------
    load2 : 6-tuple
        Load f2 on handle 2, in its frame (N m, N); there -f2 takes the place of the children's loads.
    loads : array [m * stride]
        Given: acceleration of every step's origin, gravity included as -g at the root (rad/s^2, m/s^2). Written in its
        place: load that the step receives through its joint, at its origin, in its frame (N m, N).
    tau : array [nu]
        Written: generalized forces (N m, N).
    onto : optional
        Anything: the slots hold already what hangs on their bodies, and is not among the steps.
    """
    given = (work, loads, stride, tau)
    if onto is None:
        return walk_inward(zero, structure, work.junction, _load_inward, scale6(-1.0, load2), given)
    return walk_inward_onto(zero, structure, work.junction, _load_inward, scale6(-1.0, load2), given)


@kernel(inline=True)
def _held(zero, structure, step, state, given):
    work, u, udot = given
    n = width(zero)
    r = load9(zero, work.place, step * PLACE)
    p = load3(zero, work.place, step * PLACE + 9)
    joint = joint_twist(zero, structure, step, u)
    c, _ = velocity_acceleration(zero, structure, step, r, p, state[12:15], joint)
    a = add6(motion_outward(r, p, state[18:24]), c)
    for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
        a = add_along(a, structure.axes[d], load(zero, structure.pitch, d * n), load(zero, udot, d * n))
    return motion_after(state[0:18], r, p, joint) + a


@kernel
def held_motion(zero, structure, work, u, udot, out):
    """Write how handle 2 of a subchain moves while handle 1 is held [MOVED]."""
    o, e = zero, zero + 1.0
    none = (o, o, o, o, o, o)
    held = (e, o, o, o, e, o, o, o, e, o, o, o) + none + none
    store_numbers(zero, out, 0, walk_path_outward(zero, structure, structure.path, _held, held, (work, u, udot)))


@kernel(inline=True)
def motion_beyond(omega, acceleration, rotation, position, twist, held):
    """Angular velocity and acceleration of handle 2, given those of handle 1, and how it moves while that is held.

    With R and r of handle 2, and its angular and linear velocity w', v' then: w = R w1 + w',
    A = X A1 + A' + (R w1 x w', R (w1 x (w1 x r)) + 2 R w1 x v').
    """
    turned = rotate(rotation, omega)
    linear = rotate(rotation, cross(omega, cross(omega, position)))
    bent = cross(turned, twist[0:3]) + add3(linear, scale3(2.0, cross(turned, twist[3:6])))
    a = add6(add6(motion_outward(rotation, position, acceleration), held), bent)
    return add3(turned, twist[0:3]), a


@kernel
def join_held(zero, left, right, out):
    """Write how two chains in sequence move, held at the first one's handle 1. Arrays of MOVED numbers; `out` may be
    one of them."""
    r, p = load9(zero, right, 0), load3(zero, right, 9)
    before, twist = load18(zero, left, 0), load6(zero, right, 12)
    _, a = motion_beyond(before[12:15], load6(zero, left, 18), r, p, twist, load6(zero, right, 18))
    store_numbers(zero, out, 0, motion_after(before, r, p, twist) + a)


@kernel
def join_passed(zero, left, right, out):
    """Write the frame change of two chains in sequence, and the load that they receive at the first one's handle 1.

    Arrays of PASSED numbers; `out` may be one of them.
    """
    r, p = load9(zero, left, 0), load3(zero, left, 9)
    load1 = add6(load6(zero, left, 12), force_inward(r, p, load6(zero, right, 12)))
    rotation, position = chain_frame_change(r, p, load9(zero, right, 0), load3(zero, right, 9))
    store_numbers(zero, out, 0, rotation)
    store_numbers(zero, out, 9, position)
    store_numbers(zero, out, 12, load1)


@kernel
def accelerations_along(zero, structure, work, path, udot, accelerations, stride):
    """Write the accelerations of the steps of a path, as `prescribed_accelerations`, where handle 1 has none."""
    given = (work, udot, accelerations, stride)
    walk_path_outward(zero, structure, path, _prescribed, (zero, zero, zero, zero, zero, zero), given)


@kernel(inline=True)
def _passed_on(zero, structure, step, f, given):
    work, tau, loads = given
    n = width(zero)
    if loads.size > 0:
        store_numbers(zero, loads, 6 * step, add6(load6(zero, loads, 6 * step), f))
    for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
        more = along(f, structure.axes[d], load(zero, structure.pitch, d * n))
        store(tau, d * n, load(zero, tau, d * n) + more)
    return force_inward(load9(zero, work.place, step * PLACE), load3(zero, work.place, step * PLACE + 9), f)


@kernel
def pass_on(zero, structure, work, path, passed, tau, loads):
    """Add to generalized forces `tau` [nu] what carries a load `passed` to the last step of a path (N m, N).

    To the loads of the steps [m * 6], too, if they are there. Returns what the first step passes on.
    """
    return walk_path_inward(zero, structure, path, _passed_on, passed, (work, tau, loads))
