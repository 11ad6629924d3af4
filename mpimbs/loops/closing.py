"""What loops add to the walks over a tree: columns that travel inward, and are eliminated where a loop is closed.

Events are what is to be done once the walk inward has gone past a step, or before the walk outward comes to it. They
are found at set-up (`loops.loops`); here they are done.
"""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import load, store, width
from mpimbs.kernels.memory import Rows, read, schema, span
from mpimbs.kernels.tuples import load3, load6, load9, load18
from mpimbs.kernels.widths import by_number
from mpimbs.loops.acceleration_constraints import close_joints, drive_joints, place_geared
from mpimbs.loops.loop_joints import ClosingJoints
from mpimbs.spatial.rows import (
    ROW,
    add_row,
    columns_of_part,
    load_columns,
    load_row,
    multiply_rows,
    scale_row,
    store_row,
    write_row,
)
from mpimbs.spatial.six import EXTRA
from mpimbs.spatial.vectors import dot6, force_inward
from mpimbs.sweep.inward import accelerated, articulated, transferred
from mpimbs.sweep.motion import motions
from mpimbs.sweep.structure import BIAS, BOUNDARY, FIRST_U, JUNCTION, LAST_U, PIVOT, PLACE
from mpimbs.sweep.walk import HANDED_ON, keep_nothing, place_boundary, walk_inward_onto, walk_outward, walk_path_inward
from mpimbs.values import fronts, lane_fronts
from mpimbs.values.compression import compress, compressed_loads, compressed_size
from mpimbs.values.fronts import C_ROW, COLUMNS, KEPT, NOISE_ROW, W_ROWS
from mpimbs.values.value import SIX, block_at, compliance_at, noise_at, transfer_at

# Columns of the rows of events: what is done, to which front, of what length; then
#   END      the group, where its columns E are, and its c
#   MOVE     the path: its first step in `paths`, how many they are; how many columns there are so far
#   FOLD     which front is added, and its length; which groups: the first in `groups`, how many numbers
#   CLOSE    the group, the slot of the body, where what is kept begins, the loop (-1: none)
#   COMPRESS where groups, each with its loop, begin in `groups`; the slot, where what is kept begins, how many numbers
#   REACT    the group, the step that it was moved past, where its columns E on that are
KIND, FRONT, LENGTH, FIRST, SECOND, THIRD, FOURTH, GROUNDED = range(8)  # the last: whether the body is the world
BEGIN, END, MOVE, FOLD, CLOSE, COMPRESS, REACT = range(7)
# Of `aim`: factors of what is asked of the loops beside accelerations that keep them closed; and how many columns were
# eliminated in an evaluation, redundant ones are not.
SPEEDS, PLACES, BESIDE, FOUND = range(4)


class LoopsPlan(NamedTuple):
    """Arguments about loops of the walks over a tree, beside its steps."""

    joints: ClosingJoints
    events: Rows  # [events, 8]: the columns above, in the order of the walk inward
    first_event: Integers  # [m + 1]: of each step, from the last step on; those before the first of them begin the walk
    paths: Integers
    groups: Integers
    column_at: Integers  # [nu]: where s of a degree of freedom is kept
    columns: Floats  # s
    fronts: Floats
    kept: Floats
    loads: Floats  # [loops * ROW]: of the loop joints, in terms of C
    boundary: Floats  # [k * BOUNDARY]: motions of the inboard bodies, absolute
    # what is open in the end: the slot, the front, its length, the group in it, which of all that is open it is, which
    # loop (-1: none), which block E it has
    open: Rows  # [any, 8]
    used: int  # columns of a group that any loop uses
    aim: Floats  # [4]: as above; of the violations of velocity and position, of what is asked beside
    lever: Floats  # [1]: what makes of a moment a force like others (m)


LOOPS = schema(LoopsPlan)


_clear_front = by_number(fronts.clear_front, lane_fronts.clear_front_lanes)
_add_end = by_number(fronts.add_end, lane_fronts.add_end_lanes)
_fold = by_number(fronts.fold, lane_fronts.fold_lanes)
_dot = by_number(fronts.dot_rows, lane_fronts.dot_lanes)
_add_unseen = by_number(fronts.add_unseen, lane_fronts.add_unseen_lanes)
_add_freedom = by_number(fronts.add_freedom, lane_fronts.add_freedom_lanes)
_eliminate = by_number(fronts.eliminate, lane_fronts.eliminate_lanes)
_found_loads = by_number(fronts.found_loads, lane_fronts.found_loads_lanes)


@kernel(inline=True)
def listed(places, d):
    """Where s of a degree of freedom stands, from a list."""
    return places[d]


@kernel(inline=True)
def _items(zero, array, first, count):
    return span(array, first * width(zero), count * width(zero))


@kernel(inline=True)
def _square(a):
    return multiply_rows(a, a)


@kernel(inline=True)
def _size(loops, state):
    """Squares of what columns could do to joints, of which s is what they do: moments, and forces at the lever."""
    moment = add_row(add_row(_square(state[1]), _square(state[2])), _square(state[3]))
    force = add_row(add_row(_square(state[4]), _square(state[5])), _square(state[6]))
    return add_row(moment, scale_row(loops.lever[0] ** 2, force))


@kernel(inline=True)
def _ease(zero, loops, structure, work, path):
    """Sum of 1 / D over a path, of moments; that of sliding joints at the lever."""
    total = zero
    for number in range(path.size):
        step = path[number]
        for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
            reciprocal = load(zero, work.pivot, (d * PIVOT + 6) * width(zero))
            total = total + (reciprocal if structure.axes[d] < 3 else reciprocal * (1.0 / loops.lever[0] ** 2))
    return total


@kernel(inline=True)
def _move(zero, loops, structure, work, front, length, moved, path):
    """Move the first columns of a front inward along a path, over what the walk has left."""
    ease = _ease(zero, loops, structure, work, path)
    for first in range(0, moved, columns_of_part(zero) if width(zero) > 1 else ROW):
        if first % ROW >= loops.used:
            continue
        state = (
            load_columns(zero, front, C_ROW * length + first),
            load_columns(zero, front, first),
            load_columns(zero, front, length + first),
            load_columns(zero, front, 2 * length + first),
            load_columns(zero, front, 3 * length + first),
            load_columns(zero, front, 4 * length + first),
            load_columns(zero, front, 5 * length + first),
        )
        given = (work, first, loops.columns, listed, loops.column_at)
        size = _size(loops, state)
        state = walk_path_inward(zero, structure, path, transferred, state, given)
        _add_unseen(zero, front, first, length, scale_row(ease, add_row(size, _size(loops, state))))
        store_row(zero, front, C_ROW * length + first, state[0])
        store_row(zero, front, first, state[1])
        store_row(zero, front, length + first, state[2])
        store_row(zero, front, 2 * length + first, state[3])
        store_row(zero, front, 3 * length + first, state[4])
        store_row(zero, front, 4 * length + first, state[5])
        store_row(zero, front, 5 * length + first, state[6])
    for number in range(path.size):
        step = path[number]
        for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
            s = _items(zero, loops.columns, loops.column_at[d], moved)
            reciprocal = load(zero, work.pivot, (d * PIVOT + 6) * width(zero))
            _add_freedom(zero, front, length, s, reciprocal, loops.used)


@kernel(inline=True)
def _react(loops, work, event, front, length):
    """Let the parent of a step take back what the first column of a group does to both: what is left acts along the
    joint alone, and E^T A + W x + c is the joint's acceleration."""
    step, at, d = event[SECOND], event[THIRD], ROW * event[FIRST]
    c = loops.joints.closures
    e = (c[at], c[at + ROW], c[at + 2 * ROW], c[at + 3 * ROW], c[at + 4 * ROW], c[at + 5 * ROW])
    r, p = load9(0.0, work.place, step * PLACE), load3(0.0, work.place, step * PLACE + 9)
    # E <- E - X^T e,  c <- c - e^T c_joint
    moved = force_inward(r, p, e)
    for i in range(6):
        front[i * length + d] -= moved[i]
    front[C_ROW * length + d] -= dot6(load6(0.0, work.bias, step * BIAS), e)


@kernel(inline=True)
def _front(zero, loops, event):
    length = event[LENGTH]
    return _items(zero, loops.fronts, event[FRONT], (W_ROWS + length) * length), length


@kernel(inline=True)
def _kept(zero, loops, event, length):
    return _items(zero, loops.kept, event[THIRD], COLUMNS * (KEPT + length))


@kernel(inline=True)
def _compress(zero, loops, work, event, front, length):
    groups = span(loops.groups, event[FIRST], event[FOURTH])
    bare = span(work.junction, event[SECOND] * JUNCTION, 27)
    kept = span(loops.kept, event[THIRD], compressed_size(length // ROW, groups.size // 2))
    loops.aim[FOUND] += compress(front, length, groups, bare, kept, loops.lever[0])


@kernel(inline=True)
def _compressed_loads(zero, loops, work, event, x, length):
    groups = span(loops.groups, event[FIRST], event[FOURTH])
    acceleration = span(work.junction, event[SECOND] * JUNCTION + HANDED_ON, 6)
    kept = span(loops.kept, event[THIRD], compressed_size(length // ROW, groups.size // 2))
    compressed_loads(kept, length, groups, acceleration, x)
    for at in range(0, groups.size, 2):
        _note_loads(zero, loops, groups[at + 1], x, groups[at])


@kernel(inline=True)
def _close_inward(zero, loops, structure, work, first, last):
    """Do events on the way inward."""
    for number in range(first, last):
        event = loops.events[number]
        kind = event[KIND]
        front, length = _front(zero, loops, event)
        if kind == MOVE:
            path = span(loops.paths, event[FIRST], event[SECOND])
            _move(zero, loops, structure, work, front, length, event[THIRD], path)
        elif kind == FOLD:
            other_length = event[SECOND]
            other = _items(zero, loops.fronts, event[FIRST], (W_ROWS + other_length) * other_length)
            groups = span(loops.groups, event[THIRD], event[FOURTH])
            grounded = event[GROUNDED] != 0
            _fold(zero, front, length, groups, other, other_length, grounded, loops.joints.root, loops.used)
        elif kind == CLOSE:
            bare = _items(zero, work.junction, event[SECOND] * JUNCTION, 27)
            kept = _kept(zero, loops, event, length)
            grounded = event[GROUNDED] != 0
            found = _eliminate(zero, front, length, event[FIRST], bare, kept, grounded, loops.used)
            loops.aim[FOUND] += found
        elif kind == COMPRESS:
            if width(zero) == 1:
                _compress(zero, loops, work, event, front, length)
        elif kind == REACT:
            if width(zero) == 1:
                _react(loops, work, event, front, length)
        elif kind == BEGIN:
            _clear_front(zero, front, length, loops.used)
        else:
            closures = loops.joints.closures
            acting = _items(zero, closures, event[SECOND], SIX)
            _add_end(zero, front, length, event[FIRST], acting, _items(zero, closures, event[THIRD], ROW), loops.used)


@kernel(inline=True)
def _note_loads(zero, loops, loop, x, group):
    if loop >= 0:
        n = width(zero)
        for i in range(ROW * n):
            loops.loads[loop * ROW * n + i] = x[ROW * group * n + i]


@kernel(inline=True)
def _add_loads(zero, loops, structure, work, event, x):
    """Add what loads do at the joints of a path to their u."""
    n = width(zero)
    for at in range(event[FIRST], event[FIRST] + event[SECOND]):
        step = loops.paths[at]
        for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
            place = (d * PIVOT + 7) * n
            total = _dot(zero, loops.columns, loops.column_at[d], x, event[THIRD], loops.used)
            store(work.pivot, place, load(zero, work.pivot, place) + total)


@kernel(inline=True)
def _close_outward(zero, loops, structure, work, first, last):
    """Find what loads are, on the way outward: the events in reverse. A front's are where its first row was."""
    n = width(zero)
    for number in range(last - 1, first - 1, -1):
        event = loops.events[number]
        kind = event[KIND]
        x, length = _front(zero, loops, event)
        if kind == MOVE:
            _add_loads(zero, loops, structure, work, event, x)
        elif kind == FOLD:
            for at in range(event[THIRD], event[THIRD] + event[FOURTH], 2):
                to, of = (event[FIRST] + ROW * loops.groups[at]) * n, ROW * loops.groups[at + 1] * n
                for i in range(ROW * n):
                    loops.fronts[to + i] = x[of + i]
        elif kind == CLOSE:
            acceleration = _items(zero, work.junction, event[SECOND] * JUNCTION + HANDED_ON, 6)
            kept = _kept(zero, loops, event, length)
            _found_loads(zero, kept, length, event[FIRST], acceleration, x, event[GROUNDED] != 0, loops.used)
            _note_loads(zero, loops, event[FOURTH], x, event[FIRST])
        elif kind == COMPRESS and width(zero) == 1:
            _compressed_loads(zero, loops, work, event, x, length)


@kernel(inline=True)
def _articulated_and_closed(zero, structure, step, state, given):
    work, tau, loops = given
    state = articulated(zero, structure, step, state, (work, tau, keep_nothing, tau))
    first, last = loops.first_event[step + 1], loops.first_event[step]
    if last > first:
        _close_inward(zero, loops, structure, work, first, last)
    return state


@kernel(inline=True)
def _closed_and_accelerated(zero, structure, step, inboard, given):
    work, udot, loops, none = given
    first, last = loops.first_event[step + 1], loops.first_event[step]
    if last > first:
        _close_outward(zero, loops, structure, work, first, last)
    return accelerated(zero, structure, step, inboard, (work, none, False, udot, keep_nothing, udot))


@kernel
def move_ends(zero, plan, structure, work, q, u):
    """Find how the steps move that carry ends of loops, given the motions of the inboard bodies."""
    loops = read(plan, LOOPS)
    for slot in range(1, loops.boundary.size // (BOUNDARY * width(zero))):
        place_boundary(zero, work.junction, slot, load18(zero, loops.boundary, slot * BOUNDARY))
    motions(zero, structure, work, u, loops.boundary, loops.joints.motions)
    place_geared(zero, loops.joints, structure, q, u)


@kernel
def ask_of_loops(zero, plan, measured):
    """Find what loop joints ask of accelerations, given how all ends move; their violations too, if `measured`."""
    loops = read(plan, LOOPS)
    speeds, places = loops.aim[SPEEDS], loops.aim[PLACES]
    loops.aim[FOUND] = 0.0
    measured = measured or speeds != 0.0 or places != 0.0
    close_joints(zero, loops.joints, speeds, places, loops.aim[BESIDE], measured)


@kernel
def drive_loops(plan, work):
    """Add what drives the loop joints, after `velocity_terms`."""
    loops = read(plan, LOOPS)
    drive_joints(loops.joints, work.bias)


@kernel
def inward_closing(zero, plan, structure, work, tau):
    """Sweep inward as `inward`, and close loops; returns I and p of what hangs on the first inboard body."""
    loops = read(plan, LOOPS)
    o = (zero, zero, zero, zero, zero, zero)
    state = o + o + o + o + (zero, zero, zero)
    _close_inward(zero, loops, structure, work, 0, loops.first_event[structure.steps.shape[0]])
    return walk_inward_onto(zero, structure, work.junction, _articulated_and_closed, state, (work, tau, loops))


@kernel
def write_value(plan, work, room, value):
    """Write the equations of an interval with loops into its value (`values.value`)."""
    loops = read(plan, LOOPS)
    for at in range(transfer_at(room, 0), value.size):
        value[at] = 0.0
    value[noise_at(room, room.open)] = loops.aim[FOUND]
    for slot in range(loops.boundary.size // BOUNDARY):
        gathered, block = span(work.junction, slot * JUNCTION, 27), block_at(room, slot)
        number = 0
        for i in range(6):
            for k in range(i, 6):
                value[block + i * ROW + k] = gathered[number]
                value[block + k * ROW + i] = gathered[number]
                number += 1
            value[block + i * ROW + EXTRA] = gathered[21 + i]
    for number in range(loops.open.shape[0]):
        length, group, block = loops.open[number, 2], loops.open[number, 3], loops.open[number, 4]
        front = span(loops.fronts, loops.open[number, 1], (W_ROWS + length) * length)
        transfer, own = transfer_at(room, loops.open[number, 6]), compliance_at(room, block, block)
        for i in range(6):
            write_row(value, transfer + i * ROW, load_row(front, i * length + ROW * group))
        for k in range(COLUMNS):
            d = ROW * group + k
            value[own + k * ROW + EXTRA] += front[C_ROW * length + d]
            value[noise_at(room, block) + k] += front[NOISE_ROW * length + d]
            for other in range(loops.open.shape[0]):
                if loops.open[other, 1] == loops.open[number, 1]:
                    to = compliance_at(room, block, loops.open[other, 4]) + k * ROW
                    at = (W_ROWS + d) * length + ROW * loops.open[other, 3]
                    write_row(value, to, add_row(load_row(value, to), load_row(front, at)))


@kernel
def read_open_loads(plan, room, values):
    """Take loads of what is open from the boundary values of an interval to where the walk outward finds them."""
    loops = read(plan, LOOPS)
    for number in range(loops.open.shape[0]):
        row = loops.open[number]
        for i in range(COLUMNS):
            x = values[6 * (room.inboard + row[4]) + i]
            loops.fronts[row[1] + ROW * row[3] + i] = x
            if row[5] >= 0:
                loops.loads[row[5] * ROW + i] = x


@kernel
def outward_closing(zero, plan, structure, work, acceleration, udot):
    """Sweep outward as `outward`, and find the loads of the loops."""
    loops = read(plan, LOOPS)
    o = (zero, zero, zero, zero, zero, zero)
    given = (work, udot, loops, o)
    walk_outward(zero, structure, work.junction, _closed_and_accelerated, acceleration, given)
    _close_outward(zero, loops, structure, work, 0, loops.first_event[structure.steps.shape[0]])
