"""The outward sweep: generalized accelerations from the acceleration of handle 1 and the load on handle 2."""

from __future__ import annotations

from mpimbs.spatial.axes import add_along
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.lanes import load, store, width
from mpimbs.spatial.tuples import load3, load6, load9
from mpimbs.spatial.vectors import add6, dot6, force_inward, motion_outward
from mpimbs.sweep.structure import BIAS, FIRST_U, LAST_U, PIVOT, PLACE
from mpimbs.sweep.walk import keep, keep_nothing, walk_outward


@kernel(inline=True)
def accelerated(zero, structure, step, inboard, given):
    """Give a step its acceleration from its parent's: what a walk outward visits steps by."""
    work, load2, two_handles, udot, kept, room = given
    n = width(zero)
    r = load9(zero, work.place, step * PLACE)
    p = load3(zero, work.place, step * PLACE + 9)
    bias = load6(zero, work.bias, step * BIAS)
    a = add6(motion_outward(r, p, inboard), bias)
    first = structure.steps[step, FIRST_U]
    for d in range(first, structure.steps[step, LAST_U]):
        base = d * PIVOT
        column = load6(zero, work.pivot, base)
        u = load(zero, work.pivot, (base + 7) * n)
        if two_handles:
            u = u + dot6(load6(zero, work.pivot, base + 8), load2)
        if d == first:  # noqa: SIM108
            # U^T A by U in the parent's frame: ready as soon as the parent's A is, and A is what all wait for
            u = u - dot6(column, bias) - dot6(force_inward(r, p, column), inboard)
        else:
            u = u - dot6(column, a)
        x = u * load(zero, work.pivot, (base + 6) * n)
        store(udot, d * n, x)
        a = add_along(a, structure.axes[d], load(zero, structure.pitch, d * n), x)
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
