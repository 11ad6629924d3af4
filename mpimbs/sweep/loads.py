"""The factored load sweep: the inverse inertia matrix times generalized forces, over what an inward sweep has left.

U and 1 / D of every degree of freedom are kept, so that nothing of inertias is done again [design, section 12]: inward
u = f - S^T p, p <- p + U u / D, and outward qdd = (u - U^T A) / D, without speeds or weight. The numbers of the forces
may be lanes, each of them forces of its own, over the same bodies in doubles.

The rest of an inward sweep of which I, E, W, U, D and s were found early, before the velocities were known, is one of
loads alone too: p and u, while c is A2 with A1 = 0 and f2 = 0, an outward sweep. That, and what goes through memory
between the two, is the price of not waiting.
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import load, store, width, zero_lanes
from mpimbs.kernels.tuples import load3, load6, load9, load21
from mpimbs.spatial.inertia import apply
from mpimbs.spatial.rows import ROW, load_row, transposed_rows, write_row
from mpimbs.spatial.vectors import add6, along, force_inward, scale6
from mpimbs.sweep.inward import answered_with, inward, outward
from mpimbs.sweep.motion import joint_places
from mpimbs.sweep.structure import BIAS, ELIMINATED, FIRST_U, LAST_U, PIVOT, PLACE, Structure
from mpimbs.sweep.walk import walk_inward, walk_outward
from mpimbs.values.handles import COMPLIANCE, EXTRA, INERTIA


@kernel(inline=True)
def pushed(zero, own, structure, work, d, p, f, room):
    """u / D and p <- p + U u / D of a freedom, with u = f - S^T p, which is written at d * stride + offset of an array:
    these three are `room`. `own` is a zero of the number type of the bodies."""
    left, stride, offset = room
    n, m = width(zero), width(own)
    u = load(zero, f, d * n) - along(p, structure.axes[d], load(own, structure.pitch, d * m))
    store(left, (d * stride + offset) * n, u)
    x = u * load(own, work.pivot, (d * PIVOT + 6) * m)
    return x, add6(p, scale6(x, load6(own, work.pivot, d * PIVOT)))


@kernel(inline=True)
def loaded(zero, structure, step, state, given):
    """Take p and, with two handles, c = A2 of handle 1 at rest from a step to its parent: what a walk visits steps by.

    `given` is a zero of the number type of the bodies, the workspace, the forces, where u is kept, `two_handles`.
    """
    own, work, f, left, two_handles = given
    p, c = state[0:6], state[6:12]
    for d in range(structure.steps[step, LAST_U] - 1, structure.steps[step, FIRST_U] - 1, -1):
        x, p = pushed(zero, own, structure, work, d, p, f, (left, 1, 0))
        if two_handles:  # c <- c + s u / D
            c = add6(c, scale6(x, load6(own, work.pivot, d * PIVOT + 8)))
    return force_inward(load9(own, work.place, step * PLACE), load3(own, work.place, step * PLACE + 9), p) + c


@kernel(inline=True)
def answered(zero, structure, step, inboard, given):
    """Give a step its acceleration from its parent's: what a walk outward visits steps by.

    `given` is as for `loaded`, with the load f2, and where the accelerations of the joints go.
    """
    own, work, left, two_handles, load2, answer = given
    return answered_with(zero, own, structure, work, step, inboard, None, (left, 1, 0), load2, two_handles, answer)


@kernel
def factor(structure, work, q, still, block):
    """Leave U and 1 / D of one piece in a state, for `answers`; `still` [nu] are zeros, `block` [SIZE] is room."""
    joint_places(0.0, structure, q, work.place)
    for i in range(work.bias.size):
        work.bias[i] = 0.0
    inward(0.0, structure, work, still, block, False)


@kernel
def answers(zero, structure, work, junction, f, left, answer):
    """Write accelerations [nu] by generalized forces f [nu], after `factor`; `junction` and `left` [nu] are room."""
    none = (zero, zero, zero, zero, zero, zero)
    walk_inward(zero, structure, junction, loaded, none + none, (0.0, work, f, left, False))
    walk_outward(zero, structure, junction, answered, none, (0.0, work, left, False, none, answer))


@kernel
def inverse_rows(structure, work, junction, numbers, steps, room, out):
    """Write the inverse of the inertia matrix [n * n] of one piece, after `factor`: eight columns at a time.

    What comes behind their bodies depth first carries none of their loads, and has its numbers from its own columns:
    the matrix is symmetric.

    Parameters
    ----------
    numbers, steps : array [n]
        Of each place of a depth-first order the degree of freedom, and the step behind its own.
    room : array [3 * n * ROW]
    """
    n = numbers.size
    zero = zero_lanes(ROW)
    f, left, answer = room[0 : n * ROW], room[n * ROW : 2 * n * ROW], room[2 * n * ROW :]
    for i in range(f.size):
        f[i] = 0.0
    s = structure
    for begin in range(0, n, ROW):
        end = min(begin + ROW, n)
        for place in range(begin, end):
            f[numbers[place] * ROW + place - begin] = 1.0
        whole = Structure(s.steps[0 : steps[end - 1]], s.axes, s.fixed, s.pitch, s.armature, s.path, s.added)
        answers(zero, whole, work, junction, f, left, answer)
        for place in range(begin, end):
            f[numbers[place] * ROW + place - begin] = 0.0
        for i in range(0, end, ROW):
            _write_answers(answer, numbers, n, i, begin, end, out)


@kernel(inline=True)
def _in_sequence(numbers, i):
    apart = 0
    for r in range(1, ROW):  # each of them: bodies of three freedoms may change places within
        apart |= numbers[i + r] - numbers[i] - r
    return apart == 0


@kernel
def _write_answers(answer, numbers, n, i, begin, end, out):
    """Write numbers of eight rows, from place i on, in the columns from place `begin` on, and the same mirrored."""
    if i + ROW <= begin and end == begin + ROW and _in_sequence(numbers, i) and _in_sequence(numbers, begin):
        row, column = numbers[i], numbers[begin]
        tile = (
            load_row(answer, row * ROW),
            load_row(answer, (row + 1) * ROW),
            load_row(answer, (row + 2) * ROW),
            load_row(answer, (row + 3) * ROW),
            load_row(answer, (row + 4) * ROW),
            load_row(answer, (row + 5) * ROW),
            load_row(answer, (row + 6) * ROW),
            load_row(answer, (row + 7) * ROW),
        )
        mirrored = transposed_rows(tile)
        for r in range(ROW):
            write_row(out, (row + r) * n + column, tile[r])
            write_row(out, (column + r) * n + row, mirrored[r])
    else:
        for place in range(i, min(i + ROW, end)):
            row = numbers[place]
            for other in range(max(place, begin), end):
                number = answer[row * ROW + other - begin]
                out[row * n + numbers[other]] = number
                out[numbers[other] * n + row] = number


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
