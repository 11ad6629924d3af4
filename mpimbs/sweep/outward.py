"""The outward sweep: generalized accelerations from the acceleration of handle 1 and the load on handle 2."""

from __future__ import annotations

from mpimbs.spatial.axes import add_along
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.lanes import load, store, width
from mpimbs.spatial.vectors import add6, dot6, force_inward, load3, load6, load9, motion_outward, store6
from mpimbs.sweep.motion import MOTION
from mpimbs.sweep.structure import BIAS, FIRST_U, JUNCTION, LAST_U, PIVOT, PLACE, SINK, SOURCE


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
    n = width(zero)
    store6(zero, work.junction, MOTION, acceleration)
    a = acceleration
    for step in range(structure.steps.shape[0]):
        source = structure.steps[step, SOURCE]
        if source >= 0:
            a = load6(zero, work.junction, source * JUNCTION + MOTION)
        r = load9(zero, work.place, step * PLACE)
        p = load3(zero, work.place, step * PLACE + 9)
        bias = load6(zero, work.bias, step * BIAS)
        inboard = a
        a = add6(motion_outward(r, p, a), bias)
        first = structure.steps[step, FIRST_U]
        for d in range(first, structure.steps[step, LAST_U]):
            base = d * PIVOT
            column = load6(zero, work.pivot, base)
            u = load(zero, work.pivot, (base + 7) * n)
            if two_handles:
                u = u + dot6(load6(zero, work.pivot, base + 8), load2)
            if d == first:
                # U^T A by U in the parent's frame: ready as soon as the parent's A is, and A is what all wait for
                u = u - dot6(column, bias) - dot6(force_inward(r, p, column), inboard)
            else:
                u = u - dot6(column, a)
            x = u * load(zero, work.pivot, (base + 6) * n)
            store(udot, d * n, x)
            a = add_along(a, structure.axes[d], load(zero, structure.pitch, d * n), x)
        if accelerations is not None:
            store6(zero, accelerations, step * 6, a)
        sink = structure.steps[step, SINK]
        if sink >= 0:
            store6(zero, work.junction, sink * JUNCTION + MOTION, a)
    return a
