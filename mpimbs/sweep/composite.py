"""Composite rigid bodies: all that a joint moves, taken as one [Amin-Javaheri & Orin 1989, table 1].

The inertia matrix is M_ij = S_i^T I_j S_j for a degree of freedom i inboard of, or at, j: I_j is the inertia of all
bodies that j moves, together. An outward walk places the joints in the inertial frame, an inward one sums up the
inertias, in the frames of the steps. What both leave of a degree of freedom are the 15 numbers of its `line`: the twist
S of its joint and the load I S that it takes to accelerate what it moves by one unit, both in inertial components, and
the point that both are taken about. Those of two ranks meet in `sweep.inertia_rows`.
"""

from __future__ import annotations

from mpimbs.spatial.axes import add_along
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.inertia import momentum, rigid_inward
from mpimbs.spatial.memory import assign, span
from mpimbs.spatial.tuples import add_numbers, load3, load6, load9, load_like, store_numbers
from mpimbs.spatial.vectors import add3, rotate_back, scale3, sub3
from mpimbs.sweep.structure import BODY, BOUNDARY, FIRST_U, FIXED, JUNCTION, LAST_U, PLACE
from mpimbs.sweep.walk import walk_inward

# Where the numbers of a line begin; its twist is angular velocity, then velocity of the point; its load moment, force.
TURN_OF, SHIFT_OF, POINT, MOMENT_OF, FORCE_OF, LINE = 0, 3, 6, 9, 12, 15
COMPOSITE = 10  # numbers of a composite: A 6 about a frame's origin, h = m c 3, m; or about its centre of mass, c, m
OUTER = 1 + COMPOSITE  # numbers of one that hangs on a body: which, and its own
NOT_OPEN = -1  # which open body a step has, that has none


@kernel(inline=True)
def _placed_line(lines, pitch, d, rotation, point, twist, load):
    """Write the line of a degree of freedom, of numbers in the frame of its step."""
    found = (
        rotate_back(rotation, twist[0:3])
        + rotate_back(rotation, twist[3:6])
        + point
        + rotate_back(rotation, load[0:3])
        + rotate_back(rotation, load[3:6])
    )
    for k in range(LINE):
        lines[k * pitch + d] = found[k]


@kernel(inline=True)
def _composed(zero, structure, step, state, given):
    work, motion, open_at, beyond, lines, pitch, places = given
    body = structure.steps[step, BODY] * FIXED
    own = load6(0.0, structure.fixed, body + 12) + load3(0.0, structure.fixed, body + 18)
    state = add_numbers(state, own + (structure.fixed[body + 21],))
    if open_at[step] != NOT_OPEN:
        state = add_numbers(state, load_like(0.0, beyond, open_at[step] * COMPOSITE, state))
    a, h, m = state[0:6], state[6:9], state[9]
    at = step * BOUNDARY
    rotation, point = load9(0.0, motion, at), load3(0.0, motion, at + 9)
    for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
        twist = add_along((0.0, 0.0, 0.0, 0.0, 0.0, 0.0), structure.axes[d], structure.pitch[d], 1.0)
        _placed_line(lines, pitch, places[d], rotation, point, twist, momentum(a, h, m, twist))
    return rigid_inward(load9(0.0, work.place, step * PLACE), load3(0.0, work.place, step * PLACE + 9), a, h, m)


@kernel
def composites(structure, work, motion, open_at, beyond, lines, pitch, places):
    """Write the lines [LINE, pitch] of the degrees of freedom of one piece, whose steps are placed.

    Leaves what the bodies outside are handed, in their frames, in the slots of the walk.

    Parameters
    ----------
    motion : array [m * BOUNDARY]
        As `sweep.motion.motions` writes it.
    open_at : array [m]
        Which of the open bodies a step carries.
    beyond : array [h * COMPOSITE]
        What hangs on these from behind, in the frames of their steps.
    places : array [nu]
        Columns of the lines.
    """
    o = (0.0, 0.0, 0.0)
    given = (work, motion, open_at, beyond, lines, pitch, places)
    walk_inward(0.0, structure, work.junction, _composed, o + o + o + (0.0,), given)


@kernel(inline=True)
def _about(a, c, m, sign):
    """A about another point, of that about the centre of mass `c` away (sign 1), or back (sign -1)."""
    s = sign * m
    x, y, z = s * c[0] * c[0], s * c[1] * c[1], s * c[2] * c[2]
    return (a[0] + y + z, a[1] - s * c[0] * c[1], a[2] - s * c[0] * c[2]) + (
        a[3] + x + z,
        a[4] - s * c[1] * c[2],
        a[5] + x + y,
    )


@kernel(inline=True)
def _add(out, at, other):
    """Add a composite to another, both about their centres of mass [Amin-Javaheri & Orin 1989, table 1]."""
    o = (0.0, 0.0, 0.0)
    mine = load_like(0.0, out, at, o + o + o + (0.0,))
    m = mine[9] + other[9]
    share = other[9] / m if m > 0.0 else 0.0
    apart = sub3(other[6:9], mine[6:9])
    a = _about(add_numbers(mine[0:6], other[0:6]), apart, share * mine[9], 1.0)
    store_numbers(0.0, out, at, a + add3(mine[6:9], scale3(share, apart)) + (m,))


@kernel(inline=True)
def _entry(value, body):
    """Where a value has what is handed to a body: nothing, if there was no entry of it."""
    count = int(value[1])
    for k in range(count):
        if value[2 + k * OUTER] == body:
            return 2 + k * OUTER
    at = 2 + count * OUTER
    for i in range(OUTER):
        value[at + i] = 0.0
    value[at] = body
    value[1] = count + 1
    return at


@kernel
def hand_on(work, first, bodies, frames, out):
    """Write what is handed to bodies outside, as a value of `join_composites`: inertial, about the centre of mass.

    Parameters
    ----------
    first : int
        The first body of the piece.
    bodies : array [k]
        Those outside.
    frames : array [k * BOUNDARY]
        Their motions.
    """
    o = (0.0, 0.0, 0.0)
    out[0], out[1] = first, 0.0
    for slot in range(bodies.size):
        state = load_like(0.0, work.junction, slot * JUNCTION, o + o + o + (0.0,))
        rotation = load9(0.0, frames, slot * BOUNDARY)
        turned = rigid_inward(rotation, o, state[0:6], state[6:9], state[9])
        m = turned[9]
        c = scale3(1.0 / m if m > 0.0 else 0.0, turned[6:9])
        placed = _about(turned[0:6], c, m, -1.0) + add3(c, load3(0.0, frames, slot * BOUNDARY + 9)) + (m,)
        _add(out, _entry(out, bodies[slot]) + 1, placed)


@kernel
def take_up(given, bodies, frames, beyond):
    """Write what hangs on open bodies [h * COMPOSITE], in the frames of their steps, of what ranks behind hand on.

    Parameters
    ----------
    given : array [2 + any * OUTER]
        A value of the scan.
    bodies : array [h]
    frames : array [h * BOUNDARY]
        Motions of their steps.
    """
    o = (0.0, 0.0, 0.0)
    none = o + o + o + (0.0,)
    for k in range(bodies.size):
        store_numbers(0.0, beyond, k * COMPOSITE, none)
        for number in range(int(given[1])):
            own = span(given, 2 + number * OUTER, OUTER)
            if int(own[0]) == bodies[k]:
                _add(beyond, k * COMPOSITE, load_like(0.0, own, 1, none))
        state = load_like(0.0, beyond, k * COMPOSITE, none)
        r = load9(0.0, frames, k * BOUNDARY)
        back = (r[0], r[3], r[6], r[1], r[4], r[7], r[2], r[5], r[8])
        c, m = sub3(state[6:9], load3(0.0, frames, k * BOUNDARY + 9)), state[9]
        a = _about(state[0:6], c, m, 1.0)
        store_numbers(0.0, beyond, k * COMPOSITE, rigid_inward(back, o, a, scale3(m, c), m))


@kernel
def join_composites(zero, left, right, out):
    """Join what two groups of ranks in sequence hand on; `out` may be either of them.

    A value is the first body of the group, how many bodies outside are handed something, and of each OUTER numbers;
    then room for as many. What hangs on a body of the left goes with all that is open there, to the body that this
    hangs on: the first of those outside.
    """
    if left[1] == 0.0:
        assign(out, right)
        return
    o = (0.0, 0.0, 0.0)
    none = o + o + o + (0.0,)
    first, own, behind = left[0], int(left[1]), int(right[1])
    room = (out.size - 2) // 2
    # In the room at the end: neither of the two is read there.
    count = own
    for k in range(own * OUTER):
        out[2 + room + k] = left[2 + k]
    least = 0
    for k in range(own):
        if left[2 + k * OUTER] < left[2 + least * OUTER]:
            least = k
    for number in range(behind):
        body = right[2 + number * OUTER]
        place = least if body >= first else count
        for k in range(own):
            if left[2 + k * OUTER] == body:
                place = k
        at = 2 + room + place * OUTER
        if place == count:
            for i in range(OUTER):
                out[at + i] = right[2 + number * OUTER + i]
            count += 1
        else:
            _add(out, at + 1, load_like(0.0, right, 2 + number * OUTER + 1, none))
    out[0], out[1] = first, count
    for k in range(count * OUTER):
        out[2 + k] = out[2 + room + k]
