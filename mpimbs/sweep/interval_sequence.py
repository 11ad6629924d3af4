"""The passes of an evaluation over all intervals of a process, one after the other: compiled."""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.handles import item
from mpimbs.spatial.memory import Floats, Rows, assign, read, schema
from mpimbs.sweep.interval_passes import inward_of_interval, measure_interval, motion_of_interval, outward_of_interval
from mpimbs.sweep.open_bodies import join_open_turns
from mpimbs.sweep.sequence import SUBCHAIN, coordinates_of, speeds_of
from mpimbs.sweep.structure import HANDLES, Handles


class IntervalsPlan(NamedTuple):
    """What the passes over intervals in sequence are given."""

    handles: Handles  # of all together; as of each, one behind the other
    turns: Floats  # of the open bodies before each interval, values of the scan
    rows: Rows  # [count, 8]: as of `sweep.sequence`


INTERVALS = schema(IntervalsPlan)


@kernel(merge=True)
def motion_of_intervals(zero, part, q, u):
    """Pass 1: the joint frames, and the turns of the open bodies of all intervals together."""
    sequence = read(part, INTERVALS)
    total, turns = sequence.handles.turn, sequence.turns
    for number in range(sequence.rows.shape[0]):
        row = sequence.rows[number]
        plan = read(row, SUBCHAIN)
        motion_of_interval(zero, plan, coordinates_of(row, q), speeds_of(row, u))
        turn = read(plan, HANDLES.turn)
        if number == 0:
            assign(total, turn)
        else:
            joined = item(turns, number, total.size)
            join_open_turns(0.0, total, turn, joined)
            assign(total, joined)


@kernel(merge=True)
def inward_of_intervals(zero, part, q, u, tau, before, ahead):
    """Pass 2: the equations of every interval, given the turns of the open bodies before the first one."""
    sequence = read(part, INTERVALS)
    turns, count = sequence.turns, sequence.rows.shape[0]
    assign(turns, before)
    for number in range(count):
        row = sequence.rows[number]
        plan = read(row, SUBCHAIN)
        here = item(turns, number, before.size)
        forces = speeds_of(row, tau)
        inward_of_interval(zero, plan, coordinates_of(row, q), speeds_of(row, u), forces, here, ahead)
        value = read(plan, HANDLES.blocks)
        assign(item(sequence.handles.blocks, number, value.size), value)
        if number + 1 < count:
            join_open_turns(0.0, here, read(plan, HANDLES.turn), item(turns, number + 1, before.size))


@kernel(merge=True)
def outward_of_intervals(zero, part, q, u, tau, udot, rates):
    """Pass 3: accelerations and rates of the coordinates, given the boundary values of every interval in the table."""
    sequence = read(part, INTERVALS)
    for number in range(sequence.rows.shape[0]):
        row = sequence.rows[number]
        plan = read(row, SUBCHAIN)
        loads = read(plan, HANDLES.loads)
        assign(loads, item(sequence.handles.loads, number, loads.size))
        forces = speeds_of(row, tau)
        accelerations, changes = speeds_of(row, udot), coordinates_of(row, rates)
        outward_of_interval(zero, plan, coordinates_of(row, q), speeds_of(row, u), forces, accelerations, changes)


@kernel(merge=True)
def measure_intervals(zero, part, q, u, ends_only):
    """Measure how far the loops are from closed in a state: what `sweep.loop_joints` writes of them; or only find how
    their ends move."""
    sequence = read(part, INTERVALS)
    for number in range(sequence.rows.shape[0]):
        row = sequence.rows[number]
        measure_interval(zero, read(row, SUBCHAIN), coordinates_of(row, q), speeds_of(row, u), ends_only)
