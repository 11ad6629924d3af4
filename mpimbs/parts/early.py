"""The rest of an inward sweep of which I, E, W, U, D and s were found early, before the velocities were known.

Now p and u come by a sweep over the loads alone, and c is A2 while A1 = 0 and f2 = 0: an outward sweep. That, and what
goes through memory between the two, is the price of not waiting.
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import store, width
from mpimbs.kernels.tuples import load3, load6, load9, load21
from mpimbs.spatial.inertia import apply
from mpimbs.spatial.rows import ROW
from mpimbs.spatial.vectors import add6, force_inward
from mpimbs.sweep.inward import outward
from mpimbs.sweep.loads import pushed
from mpimbs.sweep.structure import BIAS, ELIMINATED, FIRST_U, LAST_U, PIVOT, PLACE
from mpimbs.sweep.walk import walk_inward
from mpimbs.values.handles import COMPLIANCE, EXTRA, INERTIA


@kernel(inline=True)
def _load_moved(zero, structure, step, force, given):
    work, tau, eliminated = given
    force = add6(force, load6(zero, work.bias, step * BIAS + 6))
    for d in range(structure.steps[step, LAST_U] - 1, structure.steps[step, FIRST_U] - 1, -1):
        _, force = pushed(zero, zero, structure, work, d, force, tau, (work.pivot, PIVOT, 7))
    # p <- p + I c, to the parent's frame
    inertia = load21(zero, eliminated, step * ELIMINATED)
    r, p = load9(zero, work.place, step * PLACE), load3(zero, work.place, step * PLACE + 9)
    return force_inward(r, p, add6(force, apply(inertia, load6(zero, work.bias, step * BIAS))))


@kernel(inline=True)
def inward_after(zero, structure, work, tau, eliminated, block, udot):
    """Sweep inward the loads of a chain with two handles, after `inward` with others: u, p and c.

    Parameters
    ----------
    structure, work : Structure, Workspace
        `velocity_terms` has written the bias since; all else is as `inward` left it.
    tau : array [nu]
        Generalized forces (N m, N).
    eliminated : array [m * ELIMINATED]
        Of `inward`.
    block : array [SIZE]
        Handle equations of `inward`, with p and c to be written.
    udot : array [nu]
        Overwritten.
    """
    n = width(zero)
    o = (zero, zero, zero, zero, zero, zero)
    force = walk_inward(zero, structure, work.junction, _load_moved, o, (work, tau, eliminated))
    c = outward(zero, structure, work, o, o, False, udot)
    for i in range(6):
        store(block, (INERTIA + i * ROW + EXTRA) * n, force[i])
        store(block, (COMPLIANCE + i * ROW + EXTRA) * n, c[i])
