"""Composite rigid bodies: all that a joint moves, taken as one [Amin-Javaheri & Orin 1989, table 1].

The inertia matrix is M_ij = S_i^T I_j S_j for a degree of freedom i inboard of, or at, j: I_j is the inertia of all
bodies that j moves, together. An outward walk places the joints in the inertial frame, an inward one sums up the
inertias, in inertial components, about the origins of the steps. What both leave of a degree of freedom are the 15
numbers of its `line`: the twist S of its joint and the load I S that it takes to accelerate what it moves by one unit,
both in inertial components, and the point that both are taken about. Those of two ranks meet in `inertia_rows`.
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import store
from mpimbs.kernels.tuples import add_numbers, load3, load6, load9, load12, load_like, store_numbers
from mpimbs.spatial.inertia import momentum, rigid_shifted, rigid_turned
from mpimbs.spatial.vectors import add3, multiply, rotate_back, scale3, sub3
from mpimbs.sweep.handed import begin_handing, hand_to, handed_to, join_handed
from mpimbs.sweep.motion import joint_place
from mpimbs.sweep.structure import BODY, BOUNDARY, FIRST_U, FIXED, JUNCTION, LAST_U
from mpimbs.sweep.walk import place_boundary, walk_inward, walk_outward

# Where the numbers of a line begin; its twist is angular velocity, then velocity of the point; its load moment, force.
TURN_OF, SHIFT_OF, POINT, MOMENT_OF, FORCE_OF, LINE = 0, 3, 6, 9, 12, 15
# Where the numbers of a step's frame begin: rotation from inertial components to its own; its origin, and how far this
# is from that of its parent, both inertial.
_ORIGIN, _SHIFT, FRAME = 9, 12, 15
COMPOSITE = 10  # numbers of a composite: A 6 about a frame's origin, h = m c 3, m; or about its centre of mass, c, m
NOT_OPEN = -1  # which open body a step has, that has none


@kernel(inline=True)
def _twist(structure, frames, step, d):
    """Twist of a degree of freedom about the origin of its step, in inertial components."""
    axis = structure.axes[d]
    if axis < 3:
        along = load3(0.0, frames, step * FRAME + 3 * axis)
        return along + scale3(structure.pitch[d], along)
    return (0.0, 0.0, 0.0) + load3(0.0, frames, step * FRAME + 3 * (axis - 3))


@kernel(inline=True)
def _put(lines, pitch, number, d, vector):
    """Write three numbers of a line."""
    at = number * pitch + d
    store(lines, at, vector[0])
    store(lines, at + pitch, vector[1])
    store(lines, at + 2 * pitch, vector[2])


@kernel(inline=True)
def _placed(zero, structure, step, state, given):
    q, frames, lines, pitch, places = given
    turn, position = joint_place(zero, structure, step, q)
    shift = rotate_back(state[0:9], position)
    rotation, origin = multiply(turn, state[0:9]), add3(state[9:12], shift)
    store_numbers(zero, frames, step * FRAME, rotation + origin + shift)
    for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
        twist = _twist(structure, frames, step, d)
        _put(lines, pitch, TURN_OF, places[d], twist[0:3])
        _put(lines, pitch, SHIFT_OF, places[d], twist[3:6])
        _put(lines, pitch, POINT, places[d], origin)
    return rotation + origin


@kernel
def twists(structure, work, q, boundary, frames, lines, pitch, places):
    """Write twists and points of the lines [LINE, pitch] of the degrees of freedom of one piece.

    Parameters
    ----------
    boundary : array [k * BOUNDARY]
        Motions of the bodies that its steps hang on.
    frames : array [m * FRAME]
        Written, for `composites`.
    places : array [nu]
        Columns of the lines.
    """
    for slot in range(1, boundary.size // BOUNDARY):
        place_boundary(0.0, work.junction, slot, load12(0.0, boundary, slot * BOUNDARY))
    given = (q, frames, lines, pitch, places)
    walk_outward(0.0, structure, work.junction, _placed, load12(0.0, boundary, 0), given)


@kernel(inline=True)
def _composed(zero, structure, step, state, given):
    frames, open_at, beyond, lines, pitch, places = given
    body, at = structure.steps[step, BODY] * FIXED, step * FRAME
    own = load6(0.0, structure.fixed, body + 12), load3(0.0, structure.fixed, body + 18)
    turned = rigid_turned(load9(0.0, frames, at), own[0], own[1])
    state = add_numbers(state, turned[0] + turned[1] + (structure.fixed[body + 21],))
    if open_at[step] != NOT_OPEN:
        state = add_numbers(state, load_like(0.0, beyond, open_at[step] * COMPOSITE, state))
    a, h, m = state[0:6], state[6:9], state[9]
    for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
        load = momentum(a, h, m, _twist(structure, frames, step, d))
        _put(lines, pitch, MOMENT_OF, places[d], load[0:3])
        _put(lines, pitch, FORCE_OF, places[d], load[3:6])
    return rigid_shifted(load3(0.0, frames, at + _SHIFT), a, h, m)


@kernel
def composites(structure, work, frames, open_at, beyond, lines, pitch, places):
    """Write the loads of the lines of one piece, after `twists`.

    Leaves what the bodies outside are handed, in inertial components about their origins, in the slots of the walk.

    Parameters
    ----------
    open_at : array [m]
        Which of the open bodies a step carries.
    beyond : array [h * COMPOSITE]
        What hangs on these from behind, in inertial components about the origins of their steps.
    """
    o = (0.0, 0.0, 0.0)
    given = (frames, open_at, beyond, lines, pitch, places)
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


@kernel
def hand_on(work, first, bodies, motions, out):
    """Write what is handed to bodies outside, as a value of `join_composites`: about the centre of mass.

    Parameters
    ----------
    first : int
        The first body of the piece.
    bodies : array [k]
        Those outside.
    motions : array [k * BOUNDARY]
        Theirs.
    """
    o = (0.0, 0.0, 0.0)
    begin_handing(out, first)
    for slot in range(bodies.size):
        state = load_like(0.0, work.junction, slot * JUNCTION, o + o + o + (0.0,))
        m = state[9]
        c = scale3(1.0 / m if m > 0.0 else 0.0, state[6:9])
        placed = _about(state[0:6], c, m, -1.0) + add3(c, load3(0.0, motions, slot * BOUNDARY + 9)) + (m,)
        hand_to(out, bodies[slot], placed, _add)


@kernel
def take_up(given, bodies, steps, frames, beyond):
    """Write what hangs on open bodies [h * COMPOSITE], for `composites`, of what ranks behind hand on.

    Parameters
    ----------
    given : array
        A value of the scan.
    bodies, steps : array [h]
    """
    o = (0.0, 0.0, 0.0)
    none = o + o + o + (0.0,)
    for k in range(bodies.size):
        store_numbers(0.0, beyond, k * COMPOSITE, none)
        at = handed_to(given, bodies[k], COMPOSITE)
        if at >= 0:
            store_numbers(0.0, beyond, k * COMPOSITE, load_like(0.0, given, at, none))
        state = load_like(0.0, beyond, k * COMPOSITE, none)
        c, m = sub3(state[6:9], load3(0.0, frames, steps[k] * FRAME + _ORIGIN)), state[9]
        store_numbers(0.0, beyond, k * COMPOSITE, _about(state[0:6], c, m, 1.0) + scale3(m, c) + (m,))


@kernel
def join_composites(zero, left, right, out):
    """Join what two groups of ranks in sequence hand on (`sweep.handed`); `out` may be either of them."""
    o = (0.0, 0.0, 0.0)
    join_handed(left, right, out, o + o + o + (0.0,), _add)
