"""The passes of an evaluation over all subchains or intervals of a process, one after the other from the root outward:
compiled. The table of each begins with its `Handles`."""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.base.arrays import Floats
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Rows, assign, read, schema, span
from mpimbs.parts.interval_passes import inward_of_interval, measure_interval, motion_of_interval, outward_of_interval
from mpimbs.parts.open_bodies import join_open_turns
from mpimbs.parts.passes import inward_sweep, motion, outward_sweep, sweep_early
from mpimbs.parts.pieces import SUBCHAIN, coordinates_of, speeds_of
from mpimbs.sweep.motion import join_turn
from mpimbs.sweep.structure import HANDLES, Handles
from mpimbs.values.handles import item


class SequencePlan(NamedTuple):
    """Arguments of the passes over pieces in sequence, in compiled code."""

    handles: Handles  # of all together; blocks and loads as of each, one behind the other
    turns: Floats  # of every subchain's handle 1, or of the open bodies before each interval: values of the scan
    rows: Rows  # [count, 8]: `parts.pieces`


SEQUENCE = schema(SequencePlan)


@kernel(inline=True)
def _motion(zero, part, q, u, motion, join):
    sequence = read(part, SEQUENCE)
    total, turns = sequence.handles.turn, sequence.turns
    for number in range(sequence.rows.shape[0]):
        row = sequence.rows[number]
        plan = read(row, SUBCHAIN)
        motion(zero, plan, coordinates_of(row, q), speeds_of(row, u))
        turn = read(plan, HANDLES.turn)
        if number == 0:
            assign(total, turn)
        else:
            joined = item(turns, number, total.size)
            join(0.0, total, turn, joined)
            assign(total, joined)


@kernel(inline=True)
def _inward(zero, part, q, u, tau, before, early, inward, join):
    sequence = read(part, SEQUENCE)
    turns, count = sequence.turns, sequence.rows.shape[0]
    size = sequence.handles.blocks.size // count
    assign(turns, before)
    for number in range(count):
        row = sequence.rows[number]
        plan = read(row, SUBCHAIN)
        here = item(turns, number, before.size)
        inward(zero, plan, coordinates_of(row, q), speeds_of(row, u), speeds_of(row, tau), here, early)
        assign(item(sequence.handles.blocks, number, size), span(read(plan, HANDLES.blocks), 0, size))
        if number + 1 < count:
            join(0.0, here, read(plan, HANDLES.turn), item(turns, number + 1, before.size))


@kernel(inline=True)
def _outward(zero, part, q, u, tau, udot, rates, outward):
    sequence = read(part, SEQUENCE)
    for number in range(sequence.rows.shape[0]):
        row = sequence.rows[number]
        plan = read(row, SUBCHAIN)
        loads = read(plan, HANDLES.loads)
        assign(loads, item(sequence.handles.loads, number, loads.size))
        found = speeds_of(row, udot), coordinates_of(row, rates)
        outward(zero, plan, coordinates_of(row, q), speeds_of(row, u), speeds_of(row, tau), found[0], found[1])


@kernel(merge=True)
def motion_of_all(zero, part, q, u):
    """Pass 1: the joint frames, and the boundary turn of all subchains together."""
    _motion(zero, part, q, u, motion, join_turn)


@kernel(merge=True)
def motion_of_intervals(zero, part, q, u):
    """Pass 1: the joint frames, and the turns of the open bodies of all intervals together."""
    _motion(zero, part, q, u, motion_of_interval, join_open_turns)


@kernel(merge=True)
def early_of_all(zero, part):
    """Pass 2, while the turn is not known: the early sweep."""
    rows = read(part, SEQUENCE.rows)
    for number in range(rows.shape[0]):
        sweep_early(zero, read(rows[number], SUBCHAIN))


@kernel(merge=True)
def inward_of_all(zero, part, q, u, tau, before, early):
    """Pass 2: the handle equations of every subchain, given the turn of the first one's handle 1 [TURNING].

    `early` says whether `early_of_all` has done its part of it.
    """
    _inward(zero, part, q, u, tau, before, early, inward_sweep, join_turn)


@kernel(merge=True)
def inward_of_intervals(zero, part, q, u, tau, before, early):
    """Pass 2: the equations of every interval, given the turns of the open bodies before the first one."""
    _inward(zero, part, q, u, tau, before, early, inward_of_interval, join_open_turns)


@kernel(merge=True)
def outward_of_all(zero, part, q, u, tau, udot, rates):
    """Pass 3: accelerations and rates of the coordinates, given (A1, f2) of every subchain in the table."""
    _outward(zero, part, q, u, tau, udot, rates, outward_sweep)


@kernel(merge=True)
def outward_of_intervals(zero, part, q, u, tau, udot, rates):
    """Pass 3: accelerations and rates of the coordinates, given the boundary values of every interval in the table."""
    _outward(zero, part, q, u, tau, udot, rates, outward_of_interval)


@kernel(merge=True)
def measure_intervals(zero, part, q, u, ends_only):
    """Measure how far the loops are from closed in a state: what `loops.loop_joints` writes of them; or only find how
    their ends move."""
    rows = read(part, SEQUENCE.rows)
    for number in range(rows.shape[0]):
        row = rows[number]
        measure_interval(zero, read(row, SUBCHAIN), coordinates_of(row, q), speeds_of(row, u), ends_only)
