"""The outward sweep: generalized accelerations from the acceleration of handle 1 and the load on handle 2."""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import load, store, width
from mpimbs.kernels.tuples import load3, load6, load9
from mpimbs.spatial.axes import add_along
from mpimbs.spatial.vectors import add6, dot6, force_inward, motion_outward
from mpimbs.sweep.structure import BIAS, FIRST_U, LAST_U, PIVOT, PLACE
from mpimbs.sweep.walk import keep, keep_nothing, walk_outward


@kernel(inline=True)
def answered_with(zero, own, structure, work, step, inboard, bias, given_u, load2, two_handles, udot):
    """Acceleration of a step, given its parent's; writes qdd = (u + s^T f2 - U^T A) / D of its joint.

    `own` is a zero of the number type of the bodies. u of freedom d stands at d * stride + offset of an array: these
    three are `given_u`. `bias` may be None.
    """
    left, stride, offset = given_u
    n, m = width(zero), width(own)
    r, p = load9(own, work.place, step * PLACE), load3(own, work.place, step * PLACE + 9)
    a = motion_outward(r, p, inboard)
    if bias is not None:
        a = add6(a, bias)
    first = structure.steps[step, FIRST_U]
    for d in range(first, structure.steps[step, LAST_U]):
        base = d * PIVOT
        column = load6(own, work.pivot, base)
        u = load(zero, left, (d * stride + offset) * n)
        if two_handles:
            u = u + dot6(load6(own, work.pivot, base + 8), load2)
        if d == first:
            # U^T A by U in the parent's frame: ready as soon as the parent's A is, and A is what all wait for
            if bias is not None:
                u = u - dot6(column, bias)
            u = u - dot6(force_inward(r, p, column), inboard)
        else:
            u = u - dot6(column, a)
        x = u * load(own, work.pivot, (base + 6) * m)
        store(udot, d * n, x)
        a = add_along(a, structure.axes[d], load(own, structure.pitch, d * m), x)
    return a


@kernel(inline=True)
def accelerated(zero, structure, step, inboard, given):
    """Give a step its acceleration from its parent's: what a walk outward visits steps by."""
    work, load2, two_handles, udot, kept, room = given
    bias = load6(zero, work.bias, step * BIAS)
    given_u = (work.pivot, PIVOT, 7)
    a = answered_with(zero, zero, structure, work, step, inboard, bias, given_u, load2, two_handles, udot)
    kept(zero, room, step, a)
    return a


@kernel
def outward(zero, structure, work, acceleration, load2, two_handles, udot, accelerations=None):
    """Sweep outward: qdd = (u + s^T f2 - U^T A) / D, one axis after the other [design, section 3].

    Parameters
    ----------
    acceleration : 6-tuple
        Acceleration A1 of handle 1, gravity included as -g at the root (rad/s^2, m/s^2).
    load2 : 6-tuple
        Load f2 on handle 2, in its frame (N m, N).
    two_handles : bool
        False where nothing is outboard, so that f2 = 0; a constant of the caller.
    udot : array [nu]
        Written: generalized accelerations (rad/s^2, m/s^2).
    accelerations : array [m * 6], optional
        Written: acceleration of every step's origin, in its frame.

    Returns
    -------
    6-tuple
        Acceleration of the last step's origin, in its frame; of a chain, A2.
    """
    if accelerations is None:
        given = (work, load2, two_handles, udot, keep_nothing, udot)
        return walk_outward(zero, structure, work.junction, accelerated, acceleration, given)
    given = (work, load2, two_handles, udot, keep, accelerations)
    return walk_outward(zero, structure, work.junction, accelerated, acceleration, given)
