"""The passes of an evaluation over looped tiles, what of bodies with loops is swept in lanes: compiled.

A looped tile takes the motion, the angular velocity and the acceleration of the body that it hangs on from its slot in
the junctions of the trunk, and hands it its articulated inertia and bias force. Each lane closes the loops of its own;
what is left open, a front, is copied to those of the trunk, where its events add and close it, and the loads come back.
In doubles nothing happens.
"""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.base.arrays import Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import width
from mpimbs.kernels.memory import FloatItem, IntegerItem, read, schema, span
from mpimbs.kernels.tuples import load6, store_numbers
from mpimbs.kernels.widths import lanes_only
from mpimbs.loops.closing import LOOPS, ask_of_loops, inward_closing, move_ends, outward_closing
from mpimbs.parts.passes import opened, tile_loaded, tile_rates, tile_speeds, work_of
from mpimbs.parts.pieces import SUBCHAIN, coordinates_of, speeds_of
from mpimbs.parts.subtree_passes import SUBTREES
from mpimbs.parts.tiles import PLAN
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.structure import BOUNDARY, GATHERED, JUNCTION
from mpimbs.sweep.walk import HANDED_ON, clear_gathered
from mpimbs.values.fronts import NOISE_ROW, W_ROWS

# Columns of the rows of looped tiles, behind those of subchains (`parts.pieces`): where its table is.
LOOPED_TILE_AT = 6
# Columns of the rows of copies: address and size of the array written, and of that read; the first of the numbers of a
# motion and how far apart they are, in that written and in that read.
WRITTEN, TAKEN, TO_FIRST, TO_STRIDE, FROM_FIRST, FROM_STRIDE = 0, 2, 4, 5, 6, 7


class LoopedTilePlan(NamedTuple):
    """Arguments of the passes over a looped tile, in compiled code."""

    loops: Integers  # the table of the loops of the lanes
    slot: int  # of the body that it hangs on
    fronts: Integers  # [lanes]: where the front of each lane is copied to, among those of the trunk
    lengths: Integers  # [lanes]: of these
    first_row: int  # of these fronts that is copied: the world has no E
    groups: Integers  # [what is open, lanes]: the group there; -1: none, of a loop that a lane has not


LOOPED_TILE = schema(LoopedTilePlan)
_LOOPED_TILE = IntegerItem(LOOPED_TILE_AT)
_TO, _FROM = FloatItem(WRITTEN), FloatItem(TAKEN)


@kernel(inline=True)
def _to_all(zero, room, junction, slot, count):
    """Give all lanes the first numbers of what a slot hands on."""
    w = width(zero)
    for i in range(count):
        for lane in range(w):
            room[i * w + lane] = junction[slot * JUNCTION + HANDED_ON + i]


@lanes_only
@kernel
def ask_of_looped_tiles(zero, subtrees, junction, measured):
    """Find how the ends of all loops move, where the slots have the motions of what looped tiles hang on, and what the
    loops of looped tiles ask of accelerations."""
    if subtrees.size == 0:
        return
    p = read(subtrees, SUBTREES)
    for number in range(p.looped_tiles.shape[0]):
        row = p.looped_tiles[number]
        looped_tile, tiles = read(read(row, _LOOPED_TILE), LOOPED_TILE), read(row, SUBCHAIN)
        tile, _, structure = opened(zero, tiles, 0)
        _to_all(zero, read(looped_tile.loops, LOOPS.boundary), junction, looped_tile.slot, BOUNDARY)
        u = tile_speeds(zero, tiles, tile, structure, speeds_of(row, p.u), read(tiles, PLAN.u))
        move_ends(
            zero, looped_tile.loops, structure, work_of(zero, tiles, tile, structure), coordinates_of(row, p.q), u
        )
    for number in range(p.copies.shape[0]):
        row = p.copies[number]
        written, from_array = read(row, _TO), read(row, _FROM)
        for i in range(BOUNDARY):
            written[row[TO_FIRST] + i * row[TO_STRIDE]] = from_array[row[FROM_FIRST] + i * row[FROM_STRIDE]]
    for number in range(p.looped_tiles.shape[0]):
        ask_of_loops(zero, read(read(p.looped_tiles[number], _LOOPED_TILE), LOOPED_TILE.loops), measured)


@kernel(inline=True)
def _hand_over(zero, looped_tile, fronts):
    """Copy what is open of each lane to the fronts of the trunk."""
    loops, w = read(looped_tile.loops, LOOPS), width(zero)
    opened = loops.open.shape[0]
    for a in range(opened):
        own, at = loops.open[a, 2], ROW * loops.open[a, 3]
        front = span(loops.fronts, loops.open[a, 1] * w, (W_ROWS + own) * own * w)
        for lane in range(w):
            length, to = looped_tile.lengths[lane], ROW * looped_tile.groups[a * w + lane]
            if to < 0:
                continue
            for i in range(looped_tile.first_row, NOISE_ROW + 1):
                for k in range(loops.used):
                    fronts[looped_tile.fronts[lane] + i * length + to + k] = front[(i * own + at + k) * w + lane]
            for b in range(opened):
                beside, to_beside = ROW * loops.open[b, 3], ROW * looped_tile.groups[b * w + lane]
                for i in range(loops.used if to_beside >= 0 else 0):
                    row = looped_tile.fronts[lane] + (W_ROWS + to + i) * length + to_beside
                    for k in range(loops.used):
                        place = (W_ROWS + min(at + i, beside + k)) * own + max(at + i, beside + k)
                        fronts[row + k] = front[place * w + lane]


@kernel(inline=True)
def _take_loads(zero, looped_tile, fronts):
    """Take the loads of what was open back from the trunk; none of loops that a lane has not."""
    loops, w = read(looped_tile.loops, LOOPS), width(zero)
    for a in range(loops.open.shape[0]):
        own, loop = loops.open[a, 1] + ROW * loops.open[a, 3], loops.open[a, 5]
        for lane in range(w):
            group = looped_tile.groups[a * w + lane]
            for i in range(ROW):
                x = fronts[looped_tile.fronts[lane] + ROW * group + i] if group >= 0 else 0.0
                loops.fronts[(own + i) * w + lane] = x
                loops.loads[(loop * ROW + i) * w + lane] = x


@lanes_only
@kernel
def gather_looped_tiles(zero, subtrees, fronts, junction, tau):
    """Pass 2, behind that of subtrees: hand what looped tiles weigh to the bodies that they hang on, and what is open
    to the fronts of the trunk."""
    if subtrees.size == 0:
        return
    p = read(subtrees, SUBTREES)
    if tau.size > 0:
        tau = span(p.tau, 0, p.tau.size)
    w = width(zero)
    o = (zero, zero, zero, zero, zero, zero)
    for number in range(p.looped_tiles.shape[0]):
        row = p.looped_tiles[number]
        looped_tile, tiles = read(read(row, _LOOPED_TILE), LOOPED_TILE), read(row, SUBCHAIN)
        _to_all(zero, read(tiles, PLAN.omegas), junction, looped_tile.slot, 3)
        given = coordinates_of(row, p.q), speeds_of(row, p.u), speeds_of(row, tau)
        structure, work, total = tile_loaded(zero, tiles, 0, given[0], given[1], given[2])
        clear_gathered(zero, work.junction, o + o + o + o + (zero, zero, zero))
        gathered = read(tiles, PLAN.handles.blocks)
        store_numbers(zero, gathered, 0, inward_closing(zero, looped_tile.loops, structure, work, total))
        for i in range(GATHERED):
            for lane in range(w):
                junction[looped_tile.slot * JUNCTION + i] += gathered[i * w + lane]
        _hand_over(zero, looped_tile, fronts)


@lanes_only
@kernel
def accelerate_looped_tiles(zero, subtrees, fronts, junction):
    """Pass 3, before that of subtrees: the accelerations and rates of looped tiles, where the slots have those of the
    bodies that they hang on, and the fronts of the trunk the loads of what was open."""
    if subtrees.size == 0:
        return
    p = read(subtrees, SUBTREES)
    for number in range(p.looped_tiles.shape[0]):
        row = p.looped_tiles[number]
        looped_tile, tiles = read(read(row, _LOOPED_TILE), LOOPED_TILE), read(row, SUBCHAIN)
        tile, _, structure = opened(zero, tiles, 0)
        work = work_of(zero, tiles, tile, structure)
        _take_loads(zero, looped_tile, fronts)
        loads = read(tiles, PLAN.loads)
        _to_all(zero, loads, junction, looped_tile.slot, 6)
        outward_closing(zero, looped_tile.loops, structure, work, load6(zero, loads, 0), speeds_of(row, p.udot))
        tile_rates(zero, tiles, 0, coordinates_of(row, p.q), speeds_of(row, p.u), coordinates_of(row, p.rates))
