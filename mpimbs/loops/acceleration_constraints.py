"""What all loops of some bodies ask of accelerations, how far they are from closed, and what drives their joints.

A gear is among them: what it asks of the inboard joints of a and b, which have one coordinate each, is

    f_a q_a + f_b q_b + f = 0

Its one column begins on b as a moment or force f_b along the axis of b's joint, which never changes, and likewise on a.
What this does to their parents the events of the walk take back (`loops.closing`).
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import load, store, width
from mpimbs.kernels.memory import span
from mpimbs.kernels.tuples import load3
from mpimbs.kernels.widths import by_number
from mpimbs.loops.loop_joints import (
    CLOSURE,
    CONSTRAINTS,
    DRIVE,
    DRIVE_A,
    DRIVEN,
    END_SIZE,
    GEAR_Q,
    GEAR_U,
    GEARED,
    GEOMETRY,
    MINUS_S,
    MOTION_A,
    MOTION_B,
    POSITION,
    ROOM_OF_A_LANE,
    TURNS,
    VELOCITY,
    close_joint,
    measure_joint,
)
from mpimbs.spatial.rows import ROW, store_row, zero_row
from mpimbs.sweep.structure import BIAS, BOUNDARY, FIRST_Q, FIRST_U
from mpimbs.values.value import SIX


@kernel(inline=True)
def _part(zero, array, number, size):
    """The numbers of one of several items of some size."""
    return span(array, number * size * width(zero), size * width(zero))


@kernel(inline=True)
def _measured(zero, loops, number, measured):
    """Measure a loop joint where that is asked for, or it is driven."""
    row = loops.rows[number]
    if measured or row[DRIVEN] > 0:
        a, b = _part(zero, loops.motions, row[MOTION_A], BOUNDARY), _part(zero, loops.motions, row[MOTION_B], BOUNDARY)
        measure_joint(
            row,
            _part(zero, loops.ends, row[GEOMETRY], 2 * END_SIZE),
            _part(zero, loops.subspaces, row[GEOMETRY], SIX),
            loops.pitch[number],
            _part(zero, loops.drives, number, 6 * DRIVE),
            a,
            b,
            _part(zero, loops.closures, number, CLOSURE),
        )


@kernel(inline=True)
def _lane_of(zero, array, number, size, lane, room):
    """Copy the numbers that a lane has of one of several items."""
    at = number * size * width(zero) + lane
    for i in range(size):
        room[i] = array[at + i * width(zero)]


@kernel
def _measured_in_lanes(zero, loops, number, measured):
    """Measure a loop joint of each lane where that is asked for: there are neither drives nor pitches."""
    if not measured:
        return
    row = loops.rows[number]
    ends, subspace = span(loops.room, 0, 2 * END_SIZE), span(loops.room, 2 * END_SIZE, SIX)
    a, b = span(loops.room, 2 * END_SIZE + SIX, BOUNDARY), span(loops.room, 2 * END_SIZE + SIX + BOUNDARY, BOUNDARY)
    out = span(loops.room, ROOM_OF_A_LANE - CLOSURE, CLOSURE)
    for lane in range(width(zero)):
        _lane_of(zero, loops.ends, row[GEOMETRY], 2 * END_SIZE, lane, ends)
        _lane_of(zero, loops.subspaces, row[GEOMETRY], SIX, lane, subspace)
        _lane_of(zero, loops.motions, row[MOTION_A], BOUNDARY, lane, a)
        _lane_of(zero, loops.motions, row[MOTION_B], BOUNDARY, lane, b)
        measure_joint(row, ends, subspace, 0.0, loops.drives, a, b, out)
        at = number * CLOSURE * width(zero) + lane
        for i in range(POSITION, POSITION + 2 * ROW):
            loops.closures[at + i * width(zero)] = out[i]


_measure = by_number(_measured, _measured_in_lanes)


@kernel(inline=True)
def place_geared(zero, loops, structure, q, u):
    """Write how the joints of gears stand and move where the motions of their ends are."""
    n = width(zero)
    for number in range(loops.geared.shape[0]):
        item, step = loops.geared[number, 0], loops.geared[number, 1]
        store(loops.motions, (item * BOUNDARY + GEAR_Q) * n, load(zero, q, structure.steps[step, FIRST_Q] * n))
        store(loops.motions, (item * BOUNDARY + GEAR_U) * n, load(zero, u, structure.steps[step, FIRST_U] * n))


@kernel(inline=True)
def _close_gear(zero, factors, a, b, out):
    """Write what a gear asks, and how far it is from that."""
    n = width(zero)
    of_a, of_b, offset = load3(zero, factors, 0)
    place = of_a * load(zero, a, GEAR_Q * n) + of_b * load(zero, b, GEAR_Q * n) + offset
    speed = of_a * load(zero, a, GEAR_U * n) + of_b * load(zero, b, GEAR_U * n)
    store_row(zero, out, MINUS_S, zero_row(zero))
    store(out, POSITION * n, place)
    store(out, VELOCITY * n, speed)


@kernel(inline=True)
def close_joints(zero, loops, speeds, places, beside, measured):
    """Write what all loops ask, given the motions of their ends: with their violations where these are
    `measured`, which then take part in what is asked by factors for velocities and positions; and by the factor
    `beside` what is asked beside."""
    n = width(zero)
    for number in range(loops.rows.shape[0]):
        row = loops.rows[number]
        out = _part(zero, loops.closures, number, CLOSURE)
        ends = _part(zero, loops.ends, row[GEOMETRY], 2 * END_SIZE)
        a = _part(zero, loops.motions, row[MOTION_A], BOUNDARY)
        b = _part(zero, loops.motions, row[MOTION_B], BOUNDARY)
        if row[TURNS] == GEARED:
            _close_gear(zero, ends, a, b, out)
        else:
            subspace = _part(zero, loops.subspaces, row[GEOMETRY], SIX)
            close_joint(zero, row, ends, subspace, a, b, loops.root, out)
            _measure(zero, loops, number, measured)
        if measured:
            for k in range(row[CONSTRAINTS] * n):
                out[MINUS_S * n + k] += speeds * out[VELOCITY * n + k] + places * out[POSITION * n + k]
        if beside != 0.0:
            for k in range(row[CONSTRAINTS] * n):
                out[MINUS_S * n + k] += beside * loops.asked[number * ROW * n + k]


@kernel(inline=True)
def drive_joints(loops, bias):
    """Add what drives the loop joints to the loads of the velocity terms [m * BIAS]."""
    for number in range(loops.rows.shape[0]):
        row = loops.rows[number]
        if row[DRIVEN] > 0:
            for end in range(2):
                step = row[MOTION_A + end]
                if step < bias.size // BIAS:
                    for i in range(6):
                        bias[step * BIAS + 6 + i] -= loops.closures[number * CLOSURE + DRIVE_A + ROW * end + i]
