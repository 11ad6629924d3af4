"""The passes of an evaluation over all subchains of a process, one after the other from the root outward: compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.handles import SIZE, item
from mpimbs.spatial.memory import Floats, IntegerItem, Integers, Rows, assign, read, schema, span
from mpimbs.sweep.motion import join_turn
from mpimbs.sweep.passes import go_ahead, inward_sweep, motion, outward_sweep
from mpimbs.sweep.structure import TURNING, Handles
from mpimbs.sweep.tiles import PLAN

# Columns of the rows of subchains, or of intervals: address and size of the plan, where q and u begin, nq and nu.
PLAN_AT, PLAN_SIZE, Q_BEGIN, U_BEGIN, Q_COUNT, U_COUNT = range(6)


class SequencePlan(NamedTuple):
    """What the passes over subchains in sequence are given."""

    handles: Handles
    turns: Floats  # [count * TURNING]: of every subchain's handle 1
    rows: Rows  # [count, 8]: the columns above


SEQUENCE = schema(SequencePlan)
SUBCHAIN = IntegerItem(PLAN_AT)


def sequence_rows(pieces: Sequence[tuple[Integers, int, int]]) -> Integers:
    """Give the rows of pieces in sequence, from the plan, nq and nu of each."""
    rows = np.zeros((len(pieces), 8), np.int64)
    at_q = at_u = 0
    for row, (plan, nq, nu) in zip(rows, pieces, strict=True):
        row[[PLAN_AT, PLAN_SIZE]] = plan.ctypes.data, plan.size
        row[[Q_BEGIN, U_BEGIN, Q_COUNT, U_COUNT]] = at_q, at_u, nq, nu
        at_q, at_u = at_q + nq, at_u + nu
    return rows


@kernel(inline=True)
def coordinates_of(row, q):
    """A subchain's part of a vector of coordinates."""
    return span(q, row[Q_BEGIN], row[Q_COUNT])


@kernel(inline=True)
def speeds_of(row, u):
    """A subchain's part of a vector of speeds, or of an empty one."""
    if u.size == 0:
        return span(u, 0, 0)
    return span(u, row[U_BEGIN], row[U_COUNT])


@kernel(merge=True)
def motion_of_all(zero, part, q, u):
    """Pass 1: the joint frames, and the boundary turn of all subchains together."""
    sequence = read(part, SEQUENCE)
    total = sequence.handles.turn
    for number in range(sequence.rows.shape[0]):
        row = sequence.rows[number]
        plan = read(row, SUBCHAIN)
        motion(zero, plan, coordinates_of(row, q), speeds_of(row, u))
        turn = read(plan, PLAN.turn)
        if number == 0:
            assign(total, turn)
        else:
            join_turn(0.0, total, turn, total)


@kernel(merge=True)
def ahead_of_all(zero, part):
    """Pass 2, while the turn is not known: the inertias of what may go ahead of the velocities."""
    rows = read(part, SEQUENCE.rows)
    for number in range(rows.shape[0]):
        go_ahead(zero, read(rows[number], SUBCHAIN))


@kernel(merge=True)
def inward_of_all(zero, part, q, u, tau, turn, ahead):
    """Pass 2: the handle equations of every subchain, given the turn of the first one's handle 1 [TURNING].

    `ahead` says whether `ahead_of_all` has done its part of it.
    """
    sequence = read(part, SEQUENCE)
    turns = sequence.turns
    assign(turns, turn)
    count = sequence.rows.shape[0]
    for number in range(count):
        row = sequence.rows[number]
        plan = read(row, SUBCHAIN)
        here = item(turns, number, TURNING)
        forces = speeds_of(row, tau)
        inward_sweep(zero, plan, coordinates_of(row, q), speeds_of(row, u), forces, here, ahead)
        block = read(plan, PLAN.blocks)
        assign(item(sequence.handles.blocks, number, SIZE), span(block, 0, SIZE))
        if number + 1 < count:
            join_turn(0.0, here, read(plan, PLAN.turn), item(turns, number + 1, TURNING))


@kernel(merge=True)
def outward_of_all(zero, part, q, u, tau, udot, rates):
    """Pass 3: accelerations and rates of the coordinates, given (A1, f2) of every subchain in the table."""
    sequence = read(part, SEQUENCE)
    for number in range(sequence.rows.shape[0]):
        row = sequence.rows[number]
        plan = read(row, SUBCHAIN)
        assign(read(plan, PLAN.handle_loads), item(sequence.handles.loads, number, 12))
        forces = speeds_of(row, tau)
        accelerations, changes = speeds_of(row, udot), coordinates_of(row, rates)
        outward_sweep(zero, plan, coordinates_of(row, q), speeds_of(row, u), forces, accelerations, changes)
