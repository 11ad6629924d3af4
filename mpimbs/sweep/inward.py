"""The inward sweep: articulated-body inertias, and with them the handle equations of a subchain in their mixed form.

    f1 = I A1 - E f2 + p,    A2 = E^T A1 + W f2 + c

Joint axes are eliminated one at a time in the frame of their step. `far` carries (E, W, c): E as six rows, W as the upper
triangle of a symmetric matrix, c a 6-vector. Without an outboard handle this is the articulated-body algorithm: the
caller says so by the constant `two_handles`, and the lines about `far` fall away when the kernel is compiled.
"""

from __future__ import annotations

from mpimbs.spatial.axes import along, component
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.inertia import add_body, add_outer, add_symmetric, apply, inertia_inward, row
from mpimbs.spatial.lanes import load, store, width
from mpimbs.spatial.vectors import add6, force_inward, load3, load6, load9, scale6, store3, store6
from mpimbs.sweep.structure import BIAS, FIRST_U, FIXED, JUNCTION, LAST_U, PIVOT, PLACE, SINK, SOURCE


@kernel(inline=True)
def load_symmetric(zero, array, base):
    """Load a symmetric 6x6 matrix, 21 numbers."""
    low = load6(zero, array, base) + load6(zero, array, base + 6)
    return low + load6(zero, array, base + 12) + load3(zero, array, base + 18)


@kernel(inline=True)
def store_symmetric(zero, array, base, i):
    """Store a symmetric 6x6 matrix, 21 numbers."""
    store6(zero, array, base, i[0:6])
    store6(zero, array, base + 6, i[6:12])
    store6(zero, array, base + 12, i[12:18])
    store3(zero, array, base + 18, i[18:21])


@kernel(inline=True)
def load_rows(zero, array, base):
    """Load a 6x6 matrix as six rows, 36 numbers."""
    return (
        load6(zero, array, base),
        load6(zero, array, base + 6),
        load6(zero, array, base + 12),
        load6(zero, array, base + 18),
        load6(zero, array, base + 24),
        load6(zero, array, base + 30),
    )


@kernel(inline=True)
def _far_row(far, axis, pitch):
    """s = E^T S of the axis about to be eliminated."""
    s = component(far[0], axis)
    if axis < 3:
        return add6(s, scale6(pitch, component(far[0], axis + 3)))
    return s


@kernel
def _eliminate_far(far, column, reciprocal, u, s):
    """E <- E - U s^T / D,  W <- W + s s^T / D,  c <- c + s u / D  [design, section 3]."""
    e, w, c = far
    z = scale6(-reciprocal, s)
    rows = (
        add6(e[0], scale6(column[0], z)),
        add6(e[1], scale6(column[1], z)),
        add6(e[2], scale6(column[2], z)),
        add6(e[3], scale6(column[3], z)),
        add6(e[4], scale6(column[4], z)),
        add6(e[5], scale6(column[5], z)),
    )
    return rows, add_outer(w, reciprocal, s), add6(c, scale6(u * reciprocal, s))


@kernel(inline=True)
def _mix(a, x, b, y, c, z):
    """Combination a x + b y + c z of three rows."""
    return add6(add6(scale6(a, x), scale6(b, y)), scale6(c, z))


@kernel
def _far_inward(far, r, p, bias):
    """Add the velocity terms, c <- c + E^T c_joint, and move E to the parent's frame, E <- X^T E."""
    e, w, c = far
    c = add6(
        c,
        add6(
            _mix(bias[0], e[0], bias[1], e[1], bias[2], e[2]),
            _mix(bias[3], e[3], bias[4], e[4], bias[5], e[5]),
        ),
    )
    l0 = _mix(r[0], e[3], r[3], e[4], r[6], e[5])
    l1 = _mix(r[1], e[3], r[4], e[4], r[7], e[5])
    l2 = _mix(r[2], e[3], r[5], e[4], r[8], e[5])
    a0 = add6(_mix(r[0], e[0], r[3], e[1], r[6], e[2]), add6(scale6(p[1], l2), scale6(-p[2], l1)))
    a1 = add6(_mix(r[1], e[0], r[4], e[1], r[7], e[2]), add6(scale6(p[2], l0), scale6(-p[0], l2)))
    a2 = add6(_mix(r[2], e[0], r[5], e[1], r[8], e[2]), add6(scale6(p[0], l1), scale6(-p[1], l0)))
    return (a0, a1, a2, l0, l1, l2), w, c


@kernel
def _eliminate(inertia, force, column, reciprocal, u):
    """I <- I - U U^T / D,  p <- p + U u / D  [articulated-body algorithm; Critchley 2007, eq. 44-47]."""
    return add_outer(inertia, -reciprocal, column), add6(force, scale6(u * reciprocal, column))


@kernel
def _inertia_inward(inertia, force, r, p, bias):
    """Add the velocity terms, p <- p + I c, and move I and p to the parent's frame."""
    return inertia_inward(r, p, inertia), force_inward(r, p, add6(force, apply(inertia, bias)))


@kernel(inline=True)
def no_far(zero):
    """Equations of handle 2 at the outboard end itself: E = 1, W = 0, c = 0."""
    o = zero
    e = zero + 1.0
    n = (o, o, o, o, o, o)
    low = ((e, o, o, o, o, o), (o, e, o, o, o, o), (o, o, e, o, o, o))
    return low + ((o, o, o, e, o, o), (o, o, o, o, e, o), (o, o, o, o, o, e)), n + n + n + (o, o, o), n


@kernel(inline=True)
def _clear_junction(zero, junction, slot):
    for i in range(27):
        store(junction, (slot * JUNCTION + i) * width(zero), zero)


@kernel(inline=True)
def inward(zero, structure, work, tau, two_handles):
    """Sweep inward: the handle equations of the subchain [design, section 3; Critchley 2007, eq. 44-71].

    Leaves U, 1 / D, u and s of every degree of freedom in the workspace, for the outward sweep.

    Parameters
    ----------
    zero : T
        A zero of the number type.
    structure, work : Structure, Workspace
        `joint_places` and `velocity_terms` have written the places and the bias.
    tau : array [nu]
        Generalized forces (N m, N).
    two_handles : bool
        False for a subchain or tree with nothing outboard; a constant of the caller.

    Returns
    -------
    (I, p, far)
        In the frame of handle 1: 21-tuple (kg m^2, kg m, kg), 6-tuple (N m, N), and (E, W, c), which has a meaning with
        two handles only.
    """
    n = width(zero)
    _clear_junction(zero, work.junction, 0)
    for step in range(structure.steps.shape[0]):
        if structure.steps[step, SINK] >= 0:
            _clear_junction(zero, work.junction, structure.steps[step, SINK])
    force = (zero, zero, zero, zero, zero, zero)
    inertia = force + force + force + (zero, zero, zero)
    no_force = force
    no_inertia = inertia
    far = no_far(zero)
    for step in range(structure.steps.shape[0] - 1, -1, -1):
        sink = structure.steps[step, SINK]
        if sink >= 0:
            inertia = add_symmetric(inertia, load_symmetric(zero, work.junction, sink * JUNCTION))
            force = add6(force, load6(zero, work.junction, sink * JUNCTION + 21))
        a = load6(zero, structure.fixed, step * FIXED + 12)
        h = load3(zero, structure.fixed, step * FIXED + 18)
        inertia = add_body(inertia, a, h, load(zero, structure.fixed, (step * FIXED + 21) * n))
        force = add6(force, load6(zero, work.bias, step * BIAS + 6))
        for d in range(structure.steps[step, LAST_U] - 1, structure.steps[step, FIRST_U] - 1, -1):
            axis = structure.axes[d]
            pitch = load(zero, structure.pitch, d * n)
            # U = I S,  D = S^T U,  u = tau - S^T p
            column = row(inertia, axis)
            if axis < 3:
                column = add6(column, scale6(pitch, row(inertia, axis + 3)))
            reciprocal = 1.0 / along(column, axis, pitch)
            u = load(zero, tau, d * n) - along(force, axis, pitch)
            store6(zero, work.pivot, d * PIVOT, column)
            store(work.pivot, (d * PIVOT + 6) * n, reciprocal)
            store(work.pivot, (d * PIVOT + 7) * n, u)
            inertia, force = _eliminate(inertia, force, column, reciprocal, u)
            if two_handles:
                s = _far_row(far, axis, pitch)
                store6(zero, work.pivot, d * PIVOT + 8, s)
                far = _eliminate_far(far, column, reciprocal, u, s)
        r = load9(zero, work.place, step * PLACE)
        p = load3(zero, work.place, step * PLACE + 9)
        bias = load6(zero, work.bias, step * BIAS)
        inertia, force = _inertia_inward(inertia, force, r, p, bias)
        if two_handles:
            far = _far_inward(far, r, p, bias)
        source = structure.steps[step, SOURCE]
        if source >= 0:
            total = add_symmetric(inertia, load_symmetric(zero, work.junction, source * JUNCTION))
            store_symmetric(zero, work.junction, source * JUNCTION, total)
            load_total = add6(force, load6(zero, work.junction, source * JUNCTION + 21))
            store6(zero, work.junction, source * JUNCTION + 21, load_total)
            inertia = no_inertia
            force = no_force
    return load_symmetric(zero, work.junction, 0), load6(zero, work.junction, 21), far
