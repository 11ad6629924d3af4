"""The augmented Lagrangian equations of a rank's bodies: accelerations of all bodies, and what joints carry.

Every step is a body with the acceleration A of its origin, [I | p] and, across its joint, e = A - X A' - c: what the
joint adds to the acceleration of its parent (all in the step's frame). The joint carries the load w, on the step; along
the axes that it frees w is given. Of each constrained direction the load is a multiplier, approached by iteration from
zero [Malczyk & Fraczek 2012, eq. 6 to 10],

    w <- w - P e        P = sum of penalty C C^T / (C^T C) over the constrained directions C
    I A + p = w - R e - sum over children X^T (w - R e) + loops

with the inertia R of rotors along freed axes. A loop joint is the same between any two bodies: l <- l - penalty v for
v = E_a^T A_a + E_b^T A_b - s, as `loops.loop_joints` gives E and s. Inserting the multipliers leaves symmetric positive
definite equations between bodies and their parents, K = M + F^T penalty F, which are condensed (`values.condensing`)
once, and solved in every iteration for the change of the accelerations: so that rounding is corrected as violations
are.

An axis that follows a given motion is constrained as well: its c has the acceleration that it is to have.

With Euler parameters r, of which r^T r = 1 is one more constraint of every body [eq. 5, 8], the equations of a body are
7 x 7. In place of their second derivatives stand here their parts along 2 L^T, the angular acceleration, and along r
itself. The latter is in no joint, and in no inertia; its own constraint alone determines it, at once: -r'^T r'. It is
left out, and what is left is the same iteration.
"""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Rows, read, schema, span
from mpimbs.kernels.tuples import load3, load6, load9, store_numbers
from mpimbs.parts.bodies.absolute import motion_across
from mpimbs.spatial.rows import ROW
from mpimbs.spatial.vectors import add6, add_along, along, force_inward, scale6, sub6
from mpimbs.sweep.added import add_inertia, body_momentum
from mpimbs.sweep.structure import BIAS, FIRST_U, HELD, LAST_U, PLACE, Structure, Workspace
from mpimbs.values.condensing import (
    SIDE,
    SQUARE,
    add_condensed,
    begin_front,
    condense_right,
    eliminate_front,
    expand_solution,
)

# Columns of the rows of nodes: two that are assembled (-1: none); how many elements; bodies that are eliminated, and
# all; where what follows begins in `listed`; where the factor begins.
NODE_LEFT, NODE_RIGHT, ELEMENT_COUNT, GONE, BODIES, LISTED_AT, FACTOR_AT = range(7)
# `listed` has of a node its bodies; of each node that is assembled, and of each element, their places among these.
# Columns of the rows of loops: which closure, the accelerations of both ends, constraints.
CLOSURE_OF, END_A, END_B, CONSTRAINTS = range(4)


class AugmentedPlan(NamedTuple):
    """Arguments of a rank's iteration in compiled code."""

    structure: Structure
    work: Workspace
    total: Floats  # [nu]: forces of the joints
    parents: Integers  # [m]
    accelerations: Floats  # [numbers * 6]: of the steps, of bodies outside, of the world
    changes: Floats  # [numbers * 6]: right-hand side, then the change of the accelerations
    loads: Floats  # [m * 6]: w
    weights: Floats  # [kinds * 2 * 36]: P and R
    weight_of: Integers  # [m]: which of these
    length: Floats  # [1]: m, what makes of an angular acceleration one like others
    loops: Rows  # [own loops, 8]: the columns above
    ends: Floats  # [own loops * 2 * 6 * ROW]: E of a and b, none of the world
    asked: Floats  # [own loops * ROW]: s
    penalties: Floats  # [own loops * ROW]
    multipliers: Floats  # [all loops here * ROW]
    nodes: Rows  # [nodes, 8]: the columns above; children before parents, each subtree contiguous
    listed: Integers
    factors: Floats
    stack: Floats  # what is left of nodes; in the end of the whole
    front: Floats
    room: Floats  # numbers of the largest front, and four squares


AUGMENTED = schema(AugmentedPlan)


@kernel(inline=True)
def _add_block(front, size, row, column, block, sign):
    """Add a block [6, 6] where a body's rows meet another's columns, or the transpose below the diagonal."""
    for i in range(SIDE):
        for j in range(SIDE):
            x = sign * block[SIDE * i + j]
            if row <= column:
                front[(SIDE * row + i) * size + SIDE * column + j] += x
            else:
                front[(SIDE * column + j) * size + SIDE * row + i] += x


@kernel
def _add_step(plan, step, own, parent, size):
    """Add a body and its inboard joint to the front: I + D, -D X, X^T D X with D = P + R."""
    front, room = read(plan, AUGMENTED.front), read(plan, AUGMENTED.room)
    structure, place = read(plan, AUGMENTED.structure), read(plan, AUGMENTED.work.place)
    d, x, dx, xdx = (
        span(room, 0, SQUARE),
        span(room, SQUARE, SQUARE),
        span(room, 2 * SQUARE, SQUARE),
        span(room, 3 * SQUARE, SQUARE),
    )
    weights = read(plan, AUGMENTED.weights)
    at = read(plan, AUGMENTED.weight_of)[step] * 2 * SQUARE
    for i in range(SQUARE):
        d[i] = weights[at + i] + weights[at + SQUARE + i]
    o = (0.0, 0.0, 0.0)
    inertia = add_inertia(0.0, structure, step, o + o + o + o + o + o + o)
    at, k = SIDE * own, 0
    for i in range(SIDE):
        for j in range(i, SIDE):
            front[(at + i) * size + at + j] += inertia[k]
            k += 1
    _add_block(front, size, own, own, d, 1.0)
    if parent < 0:
        return
    # X = [R 0; -R [p]x, R]
    for i in range(SQUARE):
        x[i] = 0.0
    r, p = load9(0.0, place, step * PLACE), load3(0.0, place, step * PLACE + 9)
    for i in range(3):
        row = (r[3 * i], r[3 * i + 1], r[3 * i + 2])
        for j in range(3):
            x[SIDE * i + j] = x[SIDE * (3 + i) + 3 + j] = row[j]
        x[SIDE * (3 + i)] = row[2] * p[1] - row[1] * p[2]
        x[SIDE * (3 + i) + 1] = row[0] * p[2] - row[2] * p[0]
        x[SIDE * (3 + i) + 2] = row[1] * p[0] - row[0] * p[1]
    for i in range(SQUARE):
        dx[i] = xdx[i] = 0.0
    for i in range(SIDE):
        for k in range(SIDE):
            s = d[SIDE * i + k]
            for j in range(SIDE):
                dx[SIDE * i + j] += s * x[SIDE * k + j]
    for k in range(SIDE):
        for i in range(SIDE):
            s = x[SIDE * k + i]
            for j in range(SIDE):
                xdx[SIDE * i + j] += s * dx[SIDE * k + j]
    _add_block(front, size, own, parent, dx, -1.0)
    _add_block(front, size, parent, parent, xdx, 1.0)


@kernel
def _add_loop(plan, loop, a, b, size):
    """Add a loop joint to the front: E penalty E^T between its two bodies; -1 the world."""
    front, block = read(plan, AUGMENTED.front), span(read(plan, AUGMENTED.room), 0, SQUARE)
    ends, penalties = read(plan, AUGMENTED.ends), read(plan, AUGMENTED.penalties)
    held = read(plan, AUGMENTED.loops)[loop, CONSTRAINTS]
    at_a = loop * 2 * SIDE * ROW
    at_b = at_a + SIDE * ROW
    for pair in range(3):
        row, column = (a, b)[pair % 2], (a, b, b)[pair]
        if row < 0 or column < 0:
            continue
        left, right = (at_a, at_b)[pair % 2], (at_a, at_b, at_b)[pair]
        for i in range(SIDE):
            for j in range(SIDE):
                s = 0.0
                for k in range(held):
                    s += penalties[loop * ROW + k] * ends[left + ROW * i + k] * ends[right + ROW * j + k]
                block[SIDE * i + j] = s
        _add_block(front, size, row, column, block, 1.0)


@kernel
def factor_equations(plan):
    """Condense K over the nodes of the rank; gives whether it is positive definite. What is left stands in `stack`."""
    nodes, listed, stack = read(plan, AUGMENTED.nodes), read(plan, AUGMENTED.listed), read(plan, AUGMENTED.stack)
    front, factors = read(plan, AUGMENTED.front), read(plan, AUGMENTED.factors)
    steps, top, sound = read(plan, AUGMENTED.parents).size, 0, True
    for number in range(nodes.shape[0]):
        node = nodes[number]
        bodies, gone = node[BODIES], node[GONE]
        size, at = SIDE * bodies, node[LISTED_AT] + bodies
        begin_front(front, size)
        if node[NODE_LEFT] >= 0:
            kept_left = nodes[node[NODE_LEFT], BODIES] - nodes[node[NODE_LEFT], GONE]
            kept_right = nodes[node[NODE_RIGHT], BODIES] - nodes[node[NODE_RIGHT], GONE]
            top -= SQUARE * (kept_left * kept_left + kept_right * kept_right)
            left, right = (
                span(stack, top, SQUARE * kept_left * kept_left),
                span(stack, top + SQUARE * kept_left * kept_left, SQUARE * kept_right * kept_right),
            )
            add_condensed(front, size, span(listed, at, kept_left), left)
            add_condensed(front, size, span(listed, at + kept_left, kept_right), right)
            at += kept_left + kept_right
        for _ in range(node[ELEMENT_COUNT]):
            one, other, what = listed[at], listed[at + 1], listed[at + 2]
            at += 3
            if what < steps:
                _add_step(plan, what, one, other, size)
            else:
                _add_loop(plan, what - steps, one, other, size)
        left_over = SIDE * (bodies - gone)
        own = span(factors, node[FACTOR_AT], SIDE * gone * size)
        sound = eliminate_front(front, size, SIDE * gone, own, span(stack, top, left_over * left_over)) and sound
        top += left_over * left_over
    return sound


@kernel(inline=True)
def _gather(variables, numbers, room):
    for k in range(variables.size):
        store_numbers(0.0, room, SIDE * k, load6(0.0, numbers, SIDE * variables[k]))


@kernel(inline=True)
def _scatter(variables, room, numbers):
    for k in range(variables.size):
        store_numbers(0.0, numbers, SIDE * variables[k], load6(0.0, room, SIDE * k))


@kernel
def condense(plan):
    """Take what the right-hand side of all that is eliminated here does to the rest: in `changes`, body by body."""
    nodes, listed, room = read(plan, AUGMENTED.nodes), read(plan, AUGMENTED.listed), read(plan, AUGMENTED.room)
    factors, changes = read(plan, AUGMENTED.factors), read(plan, AUGMENTED.changes)
    for number in range(nodes.shape[0]):
        node = nodes[number]
        size, gone = SIDE * node[BODIES], SIDE * node[GONE]
        if gone > 0:
            variables = span(listed, node[LISTED_AT], node[BODIES])
            _gather(variables, changes, room)
            condense_right(span(factors, node[FACTOR_AT], gone * size), size, gone, room)
            _scatter(variables, room, changes)


@kernel
def expand(plan):
    """Solve for all that was eliminated here, given the rest: in `changes`."""
    nodes, listed, room = read(plan, AUGMENTED.nodes), read(plan, AUGMENTED.listed), read(plan, AUGMENTED.room)
    factors, changes = read(plan, AUGMENTED.factors), read(plan, AUGMENTED.changes)
    for number in range(nodes.shape[0] - 1, -1, -1):
        node = nodes[number]
        size, gone = SIDE * node[BODIES], SIDE * node[GONE]
        if gone > 0:
            variables = span(listed, node[LISTED_AT], node[BODIES])
            _gather(variables, changes, room)
            expand_solution(span(factors, node[FACTOR_AT], gone * size), size, gone, room)
            _scatter(span(listed, node[LISTED_AT], node[GONE]), room, changes)


@kernel
def begin(plan):
    """Begin an iteration: no accelerations but the world's, no multipliers; along freed axes loads are given."""
    structure, total = read(plan, AUGMENTED.structure), read(plan, AUGMENTED.total)
    accelerations, changes = read(plan, AUGMENTED.accelerations), read(plan, AUGMENTED.changes)
    loads, multipliers = read(plan, AUGMENTED.loads), read(plan, AUGMENTED.multipliers)
    per_square = 1.0 / read(plan, AUGMENTED.length)[0] ** 2
    for i in range(changes.size - SIDE):
        accelerations[i] = 0.0
    for i in range(multipliers.size):
        multipliers[i] = 0.0
    for step in range(structure.steps.shape[0]):
        w = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
            pitch = structure.pitch[d]
            turned = pitch * per_square
            w = add_along(w, structure.axes[d], turned, total[d] / (1.0 + pitch * turned))
        store_numbers(0.0, loads, SIDE * step, w)


@kernel(inline=True)
def _follows(structure, d):
    """Whether an axis follows a given motion: it is constrained, not freed."""
    return structure.armature.size > 0 and structure.armature[d] >= HELD


@kernel(inline=True)
def _loaded(weights, at, across, w):
    """Loads, less a matrix times what a joint adds."""
    return (
        w[0] - _dot(weights, at, across),
        w[1] - _dot(weights, at + 6, across),
        w[2] - _dot(weights, at + 12, across),
        w[3] - _dot(weights, at + 18, across),
        w[4] - _dot(weights, at + 24, across),
        w[5] - _dot(weights, at + 30, across),
    )


@kernel(inline=True)
def _dot(weights, at, v):
    low = weights[at] * v[0] + weights[at + 1] * v[1] + weights[at + 2] * v[2]
    return low + (weights[at + 3] * v[3] + weights[at + 4] * v[4] + weights[at + 5] * v[5])


@kernel
def advance(plan, first):
    """Add the changes to the accelerations, and what they violate to the loads; write the right-hand side of the next.

    `first`: there are none yet.

    Returns
    -------
    (float, float, int)
        The largest change and the largest acceleration of any step (m/s^2, angular ones times the length), and which
        step has changed most.
    """
    structure, work = read(plan, AUGMENTED.structure), read(plan, AUGMENTED.work)
    parents, weight_of = read(plan, AUGMENTED.parents), read(plan, AUGMENTED.weight_of)
    accelerations, changes = read(plan, AUGMENTED.accelerations), read(plan, AUGMENTED.changes)
    loads, weights = read(plan, AUGMENTED.loads), read(plan, AUGMENTED.weights)
    steps, length = parents.size, read(plan, AUGMENTED.length)[0]
    change, most, where = 0.0, 0.0, 0
    for i in range(changes.size - SIDE):  # all but the world's
        if not first:
            unit = length if i % SIDE < 3 else 1.0
            x = unit * abs(changes[i])
            accelerations[i] += changes[i]
            if i < SIDE * steps:
                if not x <= change:
                    change, where = x, i // SIDE
                most = max(most, unit * abs(accelerations[i]))
        changes[i] = 0.0
    for step in range(steps):
        across = motion_across(work.place, work.bias, parents, step, accelerations)
        at = weight_of[step] * 2 * SQUARE
        w = load6(0.0, loads, SIDE * step)
        violated = across
        for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
            pitch = structure.pitch[d]
            if pitch != 0.0 and not _follows(structure, d):  # no unit axis: P is blind to it to rounding only
                across_it = pitch / length**2
                turned = along(violated, structure.axes[d], across_it) / (1.0 + pitch * across_it)
                violated = add_along(violated, structure.axes[d], pitch, -turned)
        if not first:
            w = _loaded(weights, at, violated, w)
            store_numbers(0.0, loads, SIDE * step, w)
        driven = _loaded(weights, at + SQUARE, across, w) if structure.armature.size > 0 else w
        w = _loaded(weights, at, violated, driven)
        inert = body_momentum(0.0, structure, step, load6(0.0, accelerations, SIDE * step))
        inert = add6(inert, load6(0.0, work.bias, step * BIAS + 6))
        own = add6(load6(0.0, changes, SIDE * step), sub6(w, inert))
        store_numbers(0.0, changes, SIDE * step, own)
        parent = SIDE * parents[step]
        r, p = load9(0.0, work.place, step * PLACE), load3(0.0, work.place, step * PLACE + 9)
        on_parent = add6(load6(0.0, changes, parent), scale6(-1.0, force_inward(r, p, w)))
        store_numbers(0.0, changes, parent, on_parent)
    _advance_loops(plan, first)
    return change, most, where


@kernel
def _advance_loops(plan, first):
    """Advance the loop joints, as `advance` does those of the tree."""
    rows, ends, asked = read(plan, AUGMENTED.loops), read(plan, AUGMENTED.ends), read(plan, AUGMENTED.asked)
    accelerations, changes = read(plan, AUGMENTED.accelerations), read(plan, AUGMENTED.changes)
    multipliers, penalties = read(plan, AUGMENTED.multipliers), read(plan, AUGMENTED.penalties)
    for loop in range(rows.shape[0]):
        a, b = SIDE * rows[loop, END_A], SIDE * rows[loop, END_B]
        at_a = loop * 2 * SIDE * ROW
        at_b = at_a + SIDE * ROW
        for k in range(rows[loop, CONSTRAINTS]):
            v = -asked[loop * ROW + k]
            for i in range(SIDE):
                v += ends[at_a + ROW * i + k] * accelerations[a + i] + ends[at_b + ROW * i + k] * accelerations[b + i]
            v *= penalties[loop * ROW + k]
            own = rows[loop, CLOSURE_OF] * ROW + k
            if not first:
                multipliers[own] -= v
            load = multipliers[own] - v
            for i in range(SIDE):
                changes[a + i] += ends[at_a + ROW * i + k] * load
                changes[b + i] += ends[at_b + ROW * i + k] * load
