"""What loops add to the walks over a tree: columns that travel inward, and are eliminated where a loop is closed.

Events are what is to be done once the walk inward has gone past a step, or before the walk outward comes to it. They
are found at set-up (`sweep.loops`); here they are done.
"""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.fronts import (
    C_ROW,
    COLUMNS,
    KEPT,
    SCALE_ROW,
    W_ROWS,
    add_end,
    add_freedom,
    clear_front,
    dot_rows,
    eliminate,
    fold,
    found_loads,
    ground,
)
from mpimbs.spatial.memory import Floats, Integers, Rows, read, schema, span
from mpimbs.spatial.mixed import C_COLUMN, SCALE_COLUMN, row_at
from mpimbs.spatial.rows import ROW, load_row, store_row
from mpimbs.spatial.settling import settle, settled_loads, settled_size
from mpimbs.spatial.tuples import load18
from mpimbs.sweep.inward import articulated, transferred
from mpimbs.sweep.loop_joints import (
    CLOSURE,
    CONSTRAINTS,
    MINUS_S,
    POSITION,
    ROOT,
    VELOCITY,
    ClosingJoints,
    close_joints,
    drive_joints,
)
from mpimbs.sweep.motion import motions
from mpimbs.sweep.outward import accelerated
from mpimbs.sweep.structure import BOUNDARY, FIRST_U, JUNCTION, LAST_U, PIVOT
from mpimbs.sweep.walk import (
    HANDED_ON,
    keep_nothing,
    place_boundary,
    walk_inward_onto,
    walk_outward,
    walk_path_inward,
)

# Columns of the rows of events: what is done, to which front, of what length; then
#   END      the group, where its columns E are, and its c
#   MOVE     the path: its first step in `paths`, how many they are; how many columns there are so far
#   FOLD     which front is added, and its length; which groups: the first in `groups`, how many numbers
#   CLOSE    the group, the slot of the body, where what is kept begins, the loop (-1: none)
#   SETTLE   where groups, each with its loop, begin in `groups`; the slot, where what is kept begins, how many numbers
KIND, FRONT, LENGTH, FIRST, SECOND, THIRD, FOURTH, GROUNDED = range(8)  # the last: whether the body is the world
BEGIN, END, MOVE, FOLD, CLOSE, SETTLE = range(6)
# What is asked of the loops: accelerations that keep them closed, or changes that close them, scaled.
ACCELERATIONS, SPEEDS, PLACES = range(3)


class LoopsPlan(NamedTuple):
    """What the walks over a tree with loops are given beside its steps."""

    joints: ClosingJoints
    events: Rows  # [events, 8]: the columns above, in the order of the walk inward
    first_event: Integers  # [m + 1]: of each step, from the last step on
    paths: Integers
    groups: Integers
    column_at: Integers  # [nu]: where s of a degree of freedom is kept
    columns: Floats  # s
    fronts: Floats
    kept: Floats
    loads: Floats  # [loops * ROW]: of the loop joints, in terms of C
    boundary: Floats  # [k * BOUNDARY]: motions of the inboard bodies, absolute
    open: (
        Rows  # [any, 8]: what is open in the end: the slot, the front, its length, the group in it, that of the value,
    )
    # which open body it is, or loop (-1: none)
    aim: Floats  # [2]: factors of the violations of velocity and position in what is asked of the accelerations


LOOPS = schema(LoopsPlan)


@kernel(inline=True)
def listed(places, d):
    """Where s of a degree of freedom stands, from a list."""
    return places[d]


@kernel(inline=True)
def _move(loops, structure, work, front, length, used, path):
    """Move the first columns of a front inward along a path, over what the walk has left."""
    for first in range(0, used, ROW):
        state = (
            load_row(front, C_ROW * length + first),
            load_row(front, first),
            load_row(front, length + first),
            load_row(front, 2 * length + first),
            load_row(front, 3 * length + first),
            load_row(front, 4 * length + first),
            load_row(front, 5 * length + first),
        )
        given = (work, first, loops.columns, listed, loops.column_at)
        state = walk_path_inward(0.0, structure, path, transferred, state, given)
        store_row(0.0, front, C_ROW * length + first, state[0])
        store_row(0.0, front, first, state[1])
        store_row(0.0, front, length + first, state[2])
        store_row(0.0, front, 2 * length + first, state[3])
        store_row(0.0, front, 3 * length + first, state[4])
        store_row(0.0, front, 4 * length + first, state[5])
        store_row(0.0, front, 5 * length + first, state[6])
    for number in range(path.size):
        step = path[number]
        for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
            s = span(loops.columns, loops.column_at[d], used)
            add_freedom(front, length, s, work.pivot[d * PIVOT + 6])


@kernel(inline=True)
def _front(loops, event):
    length = event[LENGTH]
    return span(loops.fronts, event[FRONT], (W_ROWS + length) * length), length


@kernel(inline=True)
def _kept(loops, event, length):
    return span(loops.kept, event[THIRD], COLUMNS * (KEPT + length))


@kernel(inline=True)
def _close_inward(loops, structure, work, first, last):
    """Do events on the way inward."""
    for number in range(first, last):
        event = loops.events[number]
        kind = event[KIND]
        front, length = _front(loops, event)
        if kind == MOVE:
            path = span(loops.paths, event[FIRST], event[SECOND])
            _move(loops, structure, work, front, length, event[THIRD], path)
        elif kind == FOLD:
            other_length = event[SECOND]
            other = span(loops.fronts, event[FIRST], (W_ROWS + other_length) * other_length)
            groups = span(loops.groups, event[THIRD], event[FOURTH])
            fold(front, length, groups, other, other_length)
            if event[GROUNDED] != 0:
                ground(front, length, groups, loops.joints.root)
        elif kind == CLOSE:
            bare = span(work.junction, event[SECOND] * JUNCTION, 27)
            eliminate(front, length, event[FIRST], bare, _kept(loops, event, length), event[GROUNDED] != 0)
        elif kind == SETTLE:
            groups = span(loops.groups, event[FIRST], event[FOURTH])
            bare = span(work.junction, event[SECOND] * JUNCTION, 27)
            settle(front, length, groups, bare, span(loops.kept, event[THIRD], settled_size(length // ROW)))
        elif kind == BEGIN:
            clear_front(front, length)
        else:
            closures = loops.joints.closures
            add_end(front, length, event[FIRST], closures[event[SECOND] :], closures[event[THIRD] :])


@kernel(inline=True)
def _note_loads(loops, loop, x, group):
    if loop >= 0:
        for i in range(ROW):
            loops.loads[loop * ROW + i] = x[ROW * group + i]


@kernel(inline=True)
def _close_outward(loops, structure, work, first, last):
    """Find what loads are, on the way outward: the events in reverse. A front's are where its first row was."""
    for number in range(last - 1, first - 1, -1):
        event = loops.events[number]
        kind = event[KIND]
        x, length = _front(loops, event)
        if kind == MOVE:
            for at in range(event[FIRST], event[FIRST] + event[SECOND]):
                step = loops.paths[at]
                for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
                    work.pivot[d * PIVOT + 7] += dot_rows(loops.columns, loops.column_at[d], x, 0, event[THIRD])
        elif kind == FOLD:
            for at in range(event[THIRD], event[THIRD] + event[FOURTH], 2):
                for i in range(ROW):
                    loops.fronts[event[FIRST] + ROW * loops.groups[at] + i] = x[ROW * loops.groups[at + 1] + i]
        elif kind == CLOSE:
            acceleration = span(work.junction, event[SECOND] * JUNCTION + HANDED_ON, 6)
            kept = _kept(loops, event, length)
            found_loads(kept, length, event[FIRST], acceleration, x, event[GROUNDED] != 0)
            _note_loads(loops, event[FOURTH], x, event[FIRST])
        elif kind == SETTLE:
            groups = span(loops.groups, event[FIRST], event[FOURTH])
            acceleration = span(work.junction, event[SECOND] * JUNCTION + HANDED_ON, 6)
            kept = span(loops.kept, event[THIRD], settled_size(length // ROW))
            settled_loads(kept, length, groups, acceleration, x)
            for at in range(0, groups.size, 2):
                _note_loads(loops, groups[at + 1], x, groups[at])


@kernel(inline=True)
def _articulated_and_closed(zero, structure, step, state, given):
    work, tau, loops = given
    state = articulated(zero, structure, step, state, (work, tau, keep_nothing, tau))
    first, last = loops.first_event[step + 1], loops.first_event[step]
    if last > first:
        _close_inward(loops, structure, work, first, last)
    return state


@kernel(inline=True)
def _closed_and_accelerated(zero, structure, step, inboard, given):
    work, udot, loops, none = given
    first, last = loops.first_event[step + 1], loops.first_event[step]
    if last > first:
        _close_outward(loops, structure, work, first, last)
    return accelerated(zero, structure, step, inboard, (work, none, False, udot, keep_nothing, udot))


@kernel
def ask_of_loops(plan, structure, work, u, ends_only):
    """Find what loop joints ask of accelerations, given the motions of the inboard bodies; or only how ends move."""
    loops = read(plan, LOOPS)
    joints = loops.joints
    for slot in range(1, loops.boundary.size // BOUNDARY):
        place_boundary(0.0, work.junction, slot, load18(0.0, loops.boundary, slot * BOUNDARY))
    motions(0.0, structure, work, u, loops.boundary, joints.motions)
    if ends_only:
        return
    close_joints(joints)
    for number in range(joints.rows.shape[0]):
        at = number * CLOSURE
        for k in range(joints.rows[number, CONSTRAINTS]):
            joints.closures[at + MINUS_S + k] += joints.closures[at + ROOT + k] + (
                loops.aim[0] * joints.closures[at + VELOCITY + k] + loops.aim[1] * joints.closures[at + POSITION + k]
            )


@kernel
def drive_loops(plan, work):
    """Add what drives the loop joints, after `velocity_terms`."""
    loops = read(plan, LOOPS)
    drive_joints(loops.joints, work.bias)


@kernel
def inward_closing(plan, structure, work, tau):
    """Sweep inward as `inward`, and close loops; returns I and p of what hangs on the first inboard body."""
    loops = read(plan, LOOPS)
    o = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    state = o + o + o + o + (0.0, 0.0, 0.0)
    return walk_inward_onto(0.0, structure, work.junction, _articulated_and_closed, state, (work, tau, loops))


@kernel
def write_mixed(plan, work, room, value):
    """Write the equations of an interval with loops into its value (`spatial.mixed`)."""
    loops = read(plan, LOOPS)
    behind = ROW * (room.inboard + room.open)
    for at in range(row_at(room, 0, 0), row_at(room, room.inboard + room.open, 0)):
        value[at] = 0.0
    for slot in range(loops.boundary.size // BOUNDARY):
        gathered = span(work.junction, slot * JUNCTION, 27)
        number = 0
        for i in range(6):
            for k in range(i, 6):
                value[row_at(room, slot, i) + ROW * slot + k] = gathered[number]
                value[row_at(room, slot, k) + ROW * slot + i] = gathered[number]
                number += 1
            value[row_at(room, slot, i) + behind + C_COLUMN] = gathered[21 + i]
    for number in range(loops.open.shape[0]):
        slot, length, group, block = (
            loops.open[number, 0],
            loops.open[number, 2],
            loops.open[number, 3],
            loops.open[number, 4],
        )
        front = span(loops.fronts, loops.open[number, 1], (W_ROWS + length) * length)
        block += room.inboard
        for k in range(COLUMNS):
            d = ROW * group + k
            row = row_at(room, block, k)
            for i in range(6):
                value[row_at(room, slot, i) + ROW * block + k] -= front[i * length + d]
                value[row + ROW * slot + i] += front[i * length + d]
            value[row + behind + C_COLUMN] += front[C_ROW * length + d]
            value[row + behind + SCALE_COLUMN] += front[SCALE_ROW * length + d]
            for other in range(loops.open.shape[0]):
                if loops.open[other, 1] == loops.open[number, 1]:
                    to = row + ROW * (room.inboard + loops.open[other, 4])
                    at = (W_ROWS + d) * length + ROW * loops.open[other, 3]
                    for i in range(COLUMNS):
                        value[to + i] += front[at + i]


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
def outward_closing(plan, structure, work, acceleration, udot):
    """Sweep outward as `outward`, and find the loads of the loops."""
    loops = read(plan, LOOPS)
    o = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    given = (work, udot, loops, o)
    walk_outward(0.0, structure, work.junction, _closed_and_accelerated, acceleration, given)
