"""The sweeps inward and outward: articulated-body inertias and handle equations of a subchain; accelerations.

Inward, the handle equations are found in their mixed form:

    f1 = I A1 - E f2 + p,    A2 = E^T A1 + W f2 + c

Joint axes are eliminated one at a time in the frame of their step: the articulated-body algorithm, for I and p. With
an outboard handle, which the caller asks for by the constant `two_handles`, further loops over the pivots that the
first one kept give E, c and W. They need no inertia, and all columns of E are treated alike: those loops compute with
whole rows, or in lanes with a few columns at a time, whatever fits the registers (`spatial.rows`).
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import load, store, width
from mpimbs.kernels.tuples import load3, load6, load9, store_numbers
from mpimbs.spatial.inertia import (
    add_applied_from_ball,
    add_applied_from_hinge,
    add_outer,
    apply,
    inertia_inward,
    inertia_inward_from_ball,
    inertia_inward_from_hinge,
    row,
)
from mpimbs.spatial.rows import (
    ROW,
    add_products,
    add_row,
    columns_of_part,
    no_products,
    scale_row,
    store_column,
    store_products,
    store_row,
    store_symmetric,
    unit_rows,
    zero_row,
)
from mpimbs.spatial.vectors import add6, add_along, along, component, dot6, force_inward, motion_outward, scale6
from mpimbs.sweep.added import add_inertia
from mpimbs.sweep.structure import BIAS, FIRST_U, LAST_U, PIVOT, PLACE, SLIDES, TURN
from mpimbs.sweep.walk import keep, keep_nothing, walk_inward, walk_inward_onto, walk_outward, walk_path_inward
from mpimbs.values.handles import COMPLIANCE, EXTRA, INERTIA, TRANSFER


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


@kernel(inline=True)
def mix(a, x, b, y, c, z):
    """Combination a x + b y + c z of three rows."""
    return add_row(add_row(scale_row(a, x), scale_row(b, y)), scale_row(c, z))


@kernel(inline=True)
def _add_outer_rows(rows, x, z):
    """Matrix plus x z^T, by rows."""
    return (
        add_row(rows[0], scale_row(x[0], z)),
        add_row(rows[1], scale_row(x[1], z)),
        add_row(rows[2], scale_row(x[2], z)),
        add_row(rows[3], scale_row(x[3], z)),
        add_row(rows[4], scale_row(x[4], z)),
        add_row(rows[5], scale_row(x[5], z)),
    )


@kernel(inline=True)
def rows_inward(r, p, e):
    """Move a transfer to the parent's frame, X^T E: `force_inward` of every column."""
    l0 = mix(r[0], e[3], r[3], e[4], r[6], e[5])
    l1 = mix(r[1], e[3], r[4], e[4], r[7], e[5])
    l2 = mix(r[2], e[3], r[5], e[4], r[8], e[5])
    a0 = add_row(mix(r[0], e[0], r[3], e[1], r[6], e[2]), add_row(scale_row(p[1], l2), scale_row(-p[2], l1)))
    a1 = add_row(mix(r[1], e[0], r[4], e[1], r[7], e[2]), add_row(scale_row(p[2], l0), scale_row(-p[0], l2)))
    a2 = add_row(mix(r[2], e[0], r[5], e[1], r[8], e[2]), add_row(scale_row(p[0], l1), scale_row(-p[1], l0)))
    return (a0, a1, a2, l0, l1, l2)


@kernel(inline=True)
def _rows_inward_from_hinge(r, p, e):
    """`rows_inward` where row 2 vanishes, as the elimination of a rotation about z leaves it."""
    l0 = mix(r[0], e[3], r[3], e[4], r[6], e[5])
    l1 = mix(r[1], e[3], r[4], e[4], r[7], e[5])
    l2 = mix(r[2], e[3], r[5], e[4], r[8], e[5])
    a0 = add_row(mix(r[0], e[0], r[3], e[1], p[1], l2), scale_row(-p[2], l1))
    a1 = add_row(mix(r[1], e[0], r[4], e[1], p[2], l0), scale_row(-p[0], l2))
    a2 = add_row(mix(r[2], e[0], r[5], e[1], p[0], l1), scale_row(-p[1], l0))
    return (a0, a1, a2, l0, l1, l2)


@kernel(inline=True)
def _add_outer_rows_of_hinge(e, u, z):
    """`_add_outer_rows` with -u in place of x, but for row 2, which is not wanted."""
    return (
        add_row(e[0], scale_row(-u[0], z)),
        add_row(e[1], scale_row(-u[1], z)),
        e[2],
        add_row(e[3], scale_row(-u[3], z)),
        add_row(e[4], scale_row(-u[4], z)),
        add_row(e[5], scale_row(-u[5], z)),
    )


@kernel(inline=True)
def spaced(spacing, d):
    """Where s of a degree of freedom stands: so many numbers apart, from an offset on."""
    return d * spacing[0] + spacing[1]


@kernel(inline=True)
def transferred(zero, structure, step, state, given):
    """Take columns of E, and c, from a step to its parent: what a walk inward along a path visits steps by.

    `given` is the workspace, the first of the columns, where s of the degrees of freedom is kept, and where in it: a
    kernel that says so, as `spaced` does, and what this is given.
    """
    work, first, room, place, places = given
    c = state[0]
    e = state[1:7]
    n = width(zero)
    r = load9(zero, work.place, step * PLACE)
    p = load3(zero, work.place, step * PLACE + 9)
    bias = load6(zero, work.bias, step * BIAS)
    first_u = structure.steps[step, FIRST_U]
    if _is_hinge(structure, step):
        # as below; row 2 of E - U s^T / D vanishes, and so does the turn of its c
        base = first_u * PIVOT
        store_row(zero, room, place(places, first_u) + first, e[2])
        z = scale_row(load(zero, work.pivot, (base + 6) * n), e[2])
        c = add_row(c, scale_row(load(zero, work.pivot, (base + 7) * n), z))
        e = _add_outer_rows_of_hinge(e, load6(zero, work.pivot, base), z)
        c = add_row(c, add_row(scale_row(bias[0], e[0]), scale_row(bias[1], e[1])))
        c = add_row(c, mix(bias[3], e[3], bias[4], e[4], bias[5], e[5]))
        return (c,) + _rows_inward_from_hinge(r, p, e)
    for d in range(structure.steps[step, LAST_U] - 1, first_u - 1, -1):
        base = d * PIVOT
        axis = structure.axes[d]
        # s = E^T S
        s = component(e, axis)
        if axis < 3 and structure.steps[step, SLIDES]:
            s = add_row(s, scale_row(load(zero, structure.pitch, d * n), component(e, axis + 3)))
        store_row(zero, room, place(places, d) + first, s)
        # E <- E - U s^T / D,  c <- c + s u / D  [design, section 3]
        z = scale_row(load(zero, work.pivot, (base + 6) * n), s)
        e = _add_outer_rows(e, scale6(-1.0, load6(zero, work.pivot, base)), z)
        c = add_row(c, scale_row(load(zero, work.pivot, (base + 7) * n), z))
    # c <- c + E^T c_joint,  E <- X^T E
    c = add_row(c, mix(bias[0], e[0], bias[1], e[1], bias[2], e[2]))
    c = add_row(c, mix(bias[3], e[3], bias[4], e[4], bias[5], e[5]))
    return (c,) + rows_inward(r, p, e)


@kernel
def transfer(zero, structure, work, path, room, stride, offset, block, first):
    """Sweep inward over a path once more, over what `inward` left: columns of E, of s and of c from `first` on.

    `path` is as of `walk_path_inward`; s of degree of freedom d is written at `d * stride + offset` of `room`.
    """
    state = (zero_row(zero),) + unit_rows(zero, first)
    given = (work, first, room, spaced, (stride, offset))
    state = walk_path_inward(zero, structure, path, transferred, state, given)
    e = state[1:7]
    store_row(zero, block, TRANSFER + first, e[0])
    store_row(zero, block, TRANSFER + ROW + first, e[1])
    store_row(zero, block, TRANSFER + 2 * ROW + first, e[2])
    store_row(zero, block, TRANSFER + 3 * ROW + first, e[3])
    store_row(zero, block, TRANSFER + 4 * ROW + first, e[4])
    store_row(zero, block, TRANSFER + 5 * ROW + first, e[5])
    store_column(zero, block, COMPLIANCE + first * ROW + EXTRA, state[0])


@kernel
def _compliance(zero, structure, work, block):
    """Sum W = s s^T / D over the degrees of freedom of the path."""
    w = no_products(zero)
    for number in range(structure.path.size):
        step = structure.path[number]
        for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
            reciprocal = load(zero, work.pivot, (d * PIVOT + 6) * width(zero))
            w = add_products(zero, w, reciprocal, work.pivot, d * PIVOT + 8)
    store_products(zero, block, COMPLIANCE, w)


@kernel(inline=True)
def far_handle(zero, structure, work, block):
    """Add what handle 2 takes to the handle equations, E, W and c, and keep s: over what `inward` left."""
    for first in range(0, 6, columns_of_part(zero)):
        transfer(zero, structure, work, structure.path, work.pivot, PIVOT, 8, block, first)
    _compliance(zero, structure, work, block)


@kernel(inline=True)
def _eliminate(zero, work, d, column, diagonal, u, inertia, force):
    """I <- I - U U^T / D,  p <- p + U u / D; keeps U, 1 / D, u [Critchley 2007, eq. 44-47]."""
    n = width(zero)
    reciprocal = 1.0 / diagonal
    store_numbers(zero, work.pivot, d * PIVOT, column)
    store(work.pivot, (d * PIVOT + 6) * n, reciprocal)
    store(work.pivot, (d * PIVOT + 7) * n, u)
    return add_outer(inertia, -reciprocal, column), add6(force, scale6(u * reciprocal, column))


@kernel(inline=True)
def _is_hinge(structure, step):
    """Whether a step is a hinge, the commonest joint: its axis is z alone, about which nothing is left behind it."""
    return structure.steps[step, TURN] == 1 and structure.steps[step, SLIDES] == 0 and structure.armature.size == 0


@kernel(inline=True)
def _with_rotor(zero, structure, d, diagonal):
    """D of a freedom: S^T U and the inertia of its rotor, for which something of I S is left behind."""
    if structure.armature.size > 0:
        return diagonal + load(zero, structure.armature, d * width(zero))
    return diagonal


@kernel(inline=True)
def articulated(zero, structure, step, state, given):
    """Take I and p from a step to its parent: what a walk inward visits steps by."""
    work, tau, kept, room = given
    n = width(zero)
    inertia = add_inertia(zero, structure, step, state[0:21])
    force = add6(state[21:27], load6(zero, work.bias, step * BIAS + 6))
    r = load9(zero, work.place, step * PLACE)
    p = load3(zero, work.place, step * PLACE + 9)
    bias = load6(zero, work.bias, step * BIAS)
    first = structure.steps[step, FIRST_U]
    # U = I S,  D = S^T U + rotor,  u = tau - S^T p;  then p <- p + I c, and I and p to the parent's frame
    if _is_hinge(structure, step):
        column = row(inertia, 2)
        u = load(zero, tau, first * n) - force[2]
        inertia, force = _eliminate(zero, work, first, column, column[2], u, inertia, force)
        kept(zero, room, step, inertia)
        force = force_inward(r, p, add_applied_from_hinge(force, inertia, bias))
        return inertia_inward_from_hinge(r, p, inertia) + force
    for d in range(structure.steps[step, LAST_U] - 1, first - 1, -1):
        axis = structure.axes[d]
        pitch = load(zero, structure.pitch, d * n)
        column = row(inertia, axis)
        if axis < 3:
            column = add6(column, scale6(pitch, row(inertia, axis + 3)))
        diagonal = _with_rotor(zero, structure, d, along(column, axis, pitch))
        u = load(zero, tau, d * n) - along(force, axis, pitch)
        inertia, force = _eliminate(zero, work, d, column, diagonal, u, inertia, force)
    kept(zero, room, step, inertia)
    if structure.steps[step, TURN] == 4 and structure.armature.size == 0:
        force = force_inward(r, p, add_applied_from_ball(force, inertia, bias))
        return inertia_inward_from_ball(r, p, inertia) + force
    force = force_inward(r, p, add6(force, apply(inertia, bias)))
    return inertia_inward(r, p, inertia) + force


@kernel(inline=True)
def write_gathered(zero, state, block):
    """Write [I | p] of what an inward sweep has handed to a body outside, 27 numbers, in handle equations."""
    store_symmetric(zero, block, INERTIA, state[0:21])
    force = state[21:27]
    for i in range(6):
        store(block, (INERTIA + i * ROW + EXTRA) * width(zero), force[i])


@kernel
def inward(zero, structure, work, tau, block, two_handles, eliminated=None, bare=None, onto=None):
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
    block : array [SIZE]
        Written: the handle equations, as in `values.handles`; with one handle, I and p only.
    eliminated : array [m * ELIMINATED], optional
        Written: I after the elimination of every step's axes, in the frame of the step, for `sweep.loads.inward_after`.
    bare : array [GATHERED], optional
        Written in place of `block`, with one handle: the 27 numbers of I and p.
    onto : optional
        Anything: the slots hold already what hangs on their bodies, and is not among the steps.
    """
    none = (zero, zero, zero, zero, zero, zero)
    state = none + none + none + none + (zero, zero, zero)
    if onto is not None:
        given = (work, tau, keep_nothing, tau)
        state = walk_inward_onto(zero, structure, work.junction, articulated, state, given)
    elif eliminated is None:
        given = (work, tau, keep_nothing, tau)
        state = walk_inward(zero, structure, work.junction, articulated, state, given)
    else:
        given = (work, tau, keep, eliminated)
        state = walk_inward(zero, structure, work.junction, articulated, state, given)
    if bare is None:
        write_gathered(zero, state, block)
    else:
        store_numbers(zero, bare, 0, state)
    if two_handles:
        far_handle(zero, structure, work, block)
