"""The passes of an evaluation over all subchains of a process, one after the other from the root outward: compiled."""

from __future__ import annotations

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.handles import SIZE
from mpimbs.spatial.memory import assign, floats, integers
from mpimbs.sweep.motion import join_turn
from mpimbs.sweep.passes import BLOCKS, HANDLE_LOADS, TURN, go_ahead, inward_sweep, motion, outward_sweep
from mpimbs.sweep.structure import TURNING

# Items of the table of a sequence; rows: address and size of each subchain's plan, where its q and u begin, nq and nu.
SEQUENCE_ITEMS = ("rows", "turn", "turns", "blocks", "loads")
ROWS, TOTAL_TURN, TURNS, ALL_BLOCKS, ALL_LOADS = range(0, 2 * len(SEQUENCE_ITEMS), 2)
Q_BEGIN, U_BEGIN, Q_COUNT, U_COUNT = range(2, 6)
COLUMNS = 6


@kernel(inline=True)
def _row(rows, number):
    return rows[number * COLUMNS : (number + 1) * COLUMNS]


@kernel(inline=True)
def _coordinates(row, q):
    return q[row[Q_BEGIN] : row[Q_BEGIN] + row[Q_COUNT]]


@kernel(inline=True)
def _speeds(row, u):
    return u[row[U_BEGIN] : row[U_BEGIN] + row[U_COUNT]]


@kernel(merge=True)
def motion_of_all(zero, sequence, q, u):
    """Pass 1: the joint frames, and the boundary turn of all subchains together."""
    rows = integers(sequence, ROWS)
    total = floats(sequence, TOTAL_TURN)
    for number in range(rows.size // COLUMNS):
        row = _row(rows, number)
        plan = integers(row, 0)
        motion(zero, plan, _coordinates(row, q), _speeds(row, u))
        turn = floats(plan, TURN)
        if number == 0:
            assign(total, turn)
        else:
            join_turn(0.0, total, turn, total)


@kernel(merge=True)
def ahead_of_all(zero, sequence):
    """Pass 2, while the turn is not known: the inertias of what may go ahead of the velocities."""
    rows = integers(sequence, ROWS)
    for number in range(rows.size // COLUMNS):
        go_ahead(zero, integers(_row(rows, number), 0))


@kernel(merge=True)
def inward_of_all(zero, sequence, q, u, tau, turn, ahead):
    """Pass 2: the handle equations of every subchain, given the turn of the first one's handle 1 [TURNING].

    `ahead` says whether `ahead_of_all` has done its part of it.
    """
    rows = integers(sequence, ROWS)
    turns = floats(sequence, TURNS)
    blocks = floats(sequence, ALL_BLOCKS)
    assign(turns, turn)
    count = rows.size // COLUMNS
    for number in range(count):
        row = _row(rows, number)
        plan = integers(row, 0)
        here = turns[number * TURNING : (number + 1) * TURNING]
        forces = _speeds(row, tau) if tau.size > 0 else tau
        inward_sweep(zero, plan, _coordinates(row, q), _speeds(row, u), forces, here, ahead)
        block = floats(plan, BLOCKS)
        for i in range(SIZE):
            blocks[number * SIZE + i] = block[i]
        if number + 1 < count:
            join_turn(0.0, here, floats(plan, TURN), turns[(number + 1) * TURNING : (number + 2) * TURNING])


@kernel(merge=True)
def outward_of_all(zero, sequence, q, u, tau, udot, rates):
    """Pass 3: accelerations and rates of the coordinates, given (A1, f2) of every subchain in the table."""
    rows = integers(sequence, ROWS)
    loads = floats(sequence, ALL_LOADS)
    for number in range(rows.size // COLUMNS):
        row = _row(rows, number)
        plan = integers(row, 0)
        given = floats(plan, HANDLE_LOADS)
        for i in range(12):
            given[i] = loads[number * 12 + i]
        forces = _speeds(row, tau) if tau.size > 0 else tau
        accelerations, changes = _speeds(row, udot), _coordinates(row, rates)
        outward_sweep(zero, plan, _coordinates(row, q), _speeds(row, u), forces, accelerations, changes)
