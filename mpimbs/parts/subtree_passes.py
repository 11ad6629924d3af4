"""The passes of an evaluation over subtrees, what of an interval's bodies is swept in lanes: compiled.

A subtree takes its angular velocity and its acceleration from the slot of the body that it hangs on, in the junctions
of the trunk, and hands its articulated inertia and bias force to it. `subtrees` is the table of
`parts.lane_subtrees.LaneSubtrees`, or is empty; nothing happens then, nor in doubles.
"""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import implement, width
from mpimbs.kernels.memory import Rows, assign, read, schema, span
from mpimbs.kernels.widths import lanes_only
from mpimbs.parts.open_bodies import open_body
from mpimbs.parts.passes import (
    inward_sweep,
    motion,
    of_lanes,
    outward_sweep,
    tile_gathered,
    tile_motion,
    tile_of,
    tile_outward,
    tiles_of,
)
from mpimbs.parts.pieces import SUBCHAIN, coordinates_of, speeds_of
from mpimbs.parts.tiles import PLAN, TILE
from mpimbs.spatial.rows import ROW
from mpimbs.spatial.six import six_rows, write_six
from mpimbs.sweep.structure import GATHERED, JUNCTION, TURNING
from mpimbs.sweep.walk import HANDED_ON
from mpimbs.values.handles import COMPLIANCE, EXTRA, INERTIA, TRANSFER
from mpimbs.values.value import compliance_at, transfer_at

# Columns of the rows of stretches, behind those of subchains (`parts.pieces`).
SLOT, IS_OPEN = 6, 7


class SubtreesPlan(NamedTuple):
    """Arguments of the passes over subtrees in lanes, in compiled code.

    The numbers of the subtrees and of the trunk stand in vectors of their own: tile by tile, side by side in lanes, at
    last those of the trunk.
    """

    tiles: Integers  # of closed subtrees side by side, the table of `parts.tiles.Tiles`; empty if there are none
    slots: Integers  # [lanes]: of the body that each of these hangs on
    sums: Integers  # [lanes]: the same; of a lane that repeats another, one that nobody reads
    stretches: Rows  # [count, 8]: columns as of subchains, and the two above
    looped_tiles: Rows  # [count, 8]: see `parts.looped_passes`; behind these
    copies: Rows  # [any, 8]: of motions to where loops have their ends elsewhere; see there
    turn: Floats  # [TURNING]: room
    q_index: Integers  # [nq and more]: where each coordinate stands in the rank's vectors
    u_index: Integers  # [nu and more]
    q: Floats
    u: Floats
    tau: Floats
    udot: Floats
    rates: Floats
    trunk_q: int  # where the trunk's coordinates begin
    trunk_u: int


SUBTREES = schema(SubtreesPlan)


@kernel(inline=True)
def take(index, vector, own):
    """Take the subtrees' numbers, and then the trunk's, from a vector of the rank."""
    for k in range(index.size):
        own[k] = vector[index[k]]


@kernel(inline=True)
def give(index, own, vector):
    """Give a vector of the rank the numbers of the subtrees and the trunk."""
    for k in range(index.size):
        vector[index[k]] = own[k]


@kernel(inline=True)
def _tail(vector, first):
    return span(vector, first, vector.size - first)


@kernel(inline=True)
def tiles_in(tiles):
    """Number of tiles of a table that may be empty."""
    return tiles_of(tiles) if tiles.size > 0 else 0


@kernel(inline=True)
def from_slots(zero, tile, slots, junction, count, room, numbers):
    """Write the first `count` of the `numbers` that each lane of a tile has in `room`: from what its slot hands on."""
    w = width(zero)
    first = tile[TILE.lane]
    for lane in range(w):
        at = slots[first + lane] * JUNCTION + HANDED_ON
        for i in range(count):
            room[first * numbers + i * w + lane] = junction[at + i]


@kernel(inline=True)
def to_slots(zero, tile, slots, junction, numbers):
    """Add to what slots have gathered the numbers of a tile's lanes, side by side."""
    w = width(zero)
    for lane in range(w):
        at = slots[tile[TILE.lane] + lane] * JUNCTION
        for i in range(numbers.size // w):
            junction[at + i] += numbers[i * w + lane]


@kernel(inline=True)
def _add_block(block, junction, at):
    """Add [I | p] of handle equations to what a slot has gathered."""
    for i in range(6):
        for j in range(i, 6):
            junction[at] += block[INERTIA + i * ROW + j]
            at += 1
    for i in range(6):
        junction[at + i] += block[INERTIA + i * ROW + EXTRA]


@lanes_only
@kernel
def move_subtrees(zero, subtrees, q, u, value):
    """Pass 1: take the rank's state, and the subtrees' joint frames; the turn of the open body of one goes to
    `value`."""
    if subtrees.size == 0:
        return
    p = read(subtrees, SUBTREES)
    take(p.q_index, q, p.q)
    take(p.u_index, u, p.u)
    for number in range(tiles_in(p.tiles)):
        tile_motion(zero, p.tiles, number, False, (p.q, p.u))
    for number in range(p.looped_tiles.shape[0]):
        row = p.looped_tiles[number]
        tile_motion(zero, read(row, SUBCHAIN), 0, False, (coordinates_of(row, p.q), speeds_of(row, p.u)))
    for number in range(p.stretches.shape[0]):
        row = p.stretches[number]
        plan = read(row, SUBCHAIN)
        motion(zero, plan, coordinates_of(row, p.q), speeds_of(row, p.u))
        if row[IS_OPEN]:
            assign(open_body(value, 0, TURNING), read(plan, PLAN.handles.turn))


@lanes_only
@kernel
def gather_subtrees(zero, subtrees, junction, tau, room, value):
    """Pass 2: hand what subtrees weigh to the bodies that they hang on, whose angular velocities the slots have; what
    the open body of one takes goes to `value`."""
    if subtrees.size == 0:
        return
    p = read(subtrees, SUBTREES)
    if tau.size > 0:
        take(p.u_index, tau, p.tau)
        tau = span(p.tau, 0, p.tau.size)
    for number in range(tiles_in(p.tiles) - 1, -1, -1):
        tile = tile_of(p.tiles, number)
        from_slots(zero, tile, p.slots, junction, 3, read(p.tiles, PLAN.omegas), 3)
        tile_gathered(zero, p.tiles, number, (p.q, p.u, tau))
        handed = of_lanes(zero, p.tiles, tile, read(p.tiles, PLAN.handles.blocks), GATHERED)
        to_slots(zero, tile, p.sums, junction, handed)
    for number in range(p.stretches.shape[0]):
        row = p.stretches[number]
        plan = read(row, SUBCHAIN)
        at = row[SLOT] * JUNCTION
        for i in range(3):
            p.turn[9 + i] = junction[at + HANDED_ON + i]
        inward_sweep(zero, plan, coordinates_of(row, p.q), speeds_of(row, p.u), speeds_of(row, tau), p.turn, False)
        block = read(plan, PLAN.handles.blocks)
        _add_block(block, junction, at)
        if row[IS_OPEN]:
            write_six(value, transfer_at(room, 0), six_rows(block, TRANSFER))
            write_six(value, compliance_at(room, 0, 0), six_rows(block, COMPLIANCE))


@lanes_only
@kernel
def accelerate_subtrees(zero, subtrees, junction, tau, load, udot, rates):
    """Pass 3: the subtrees' accelerations and rates, where the slots have the accelerations of the bodies that they
    hang on, and `load` acts on the open body of one; and give the rank's vectors these and the trunk's."""
    if subtrees.size == 0:
        return
    p = read(subtrees, SUBTREES)
    if tau.size > 0:
        tau = span(p.tau, 0, p.tau.size)
    for number in range(tiles_in(p.tiles)):
        from_slots(zero, tile_of(p.tiles, number), p.slots, junction, 6, read(p.tiles, PLAN.loads), 12)
        tile_outward(zero, p.tiles, number, False, (p.q, p.u, tau, p.udot, p.rates))
    for number in range(p.stretches.shape[0]):
        row = p.stretches[number]
        plan = read(row, SUBCHAIN)
        handles = read(plan, PLAN.handles.loads)
        at = row[SLOT] * JUNCTION + HANDED_ON
        assign(handles, span(junction, at, 6))
        if row[IS_OPEN]:
            assign(span(handles, 6, 6), load)
        accelerations, changes = speeds_of(row, p.udot), coordinates_of(row, p.rates)
        given = coordinates_of(row, p.q), speeds_of(row, p.u), speeds_of(row, tau)
        outward_sweep(zero, plan, given[0], given[1], given[2], accelerations, changes)
    give(p.u_index, p.udot, udot)
    give(p.q_index, p.rates, rates)


def of_trunk(zero, subtrees, coordinates, speeds, written):
    """Give the trunk's part of vectors like q and u, its own if there are subtrees; of rates and accelerations if
    `written`."""


def _of_trunk(zero, subtrees, coordinates, speeds, written):
    if subtrees.size == 0:
        return span(coordinates, 0, coordinates.size), span(speeds, 0, speeds.size)
    p = read(subtrees, SUBTREES)
    if written:
        return _tail(p.rates, p.trunk_q), _tail(p.udot, p.trunk_u)
    return _tail(p.q, p.trunk_q), _tail(p.u, p.trunk_u)


implement(of_trunk, lambda zero, subtrees, coordinates, speeds, written: (coordinates, speeds), _of_trunk)


def forces_of_trunk(zero, subtrees, tau):
    """Give the trunk's part of the generalized forces, after `gather_subtrees`; empty, where none are given."""


def _forces_of_trunk(zero, subtrees, tau):
    if subtrees.size == 0 or tau.size == 0:
        return span(tau, 0, tau.size)
    p = read(subtrees, SUBTREES)
    return _tail(p.tau, p.trunk_u)


implement(forces_of_trunk, lambda zero, subtrees, tau: tau, _forces_of_trunk)
