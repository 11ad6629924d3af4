"""The factored load sweep over the tiles of a subchain: forces of its joints in lanes, between which they are joined.

`factor_sweep` leaves pivots and joins in a state; then, for any forces, `loads_inward` gives (p, c) of the subchain,
and `loads_outward` the accelerations of its joints from (A1, f2) [design, section 12].

Where memory is what takes the time, U and 1 / D are all that is read of a body. Places are made again; and s is not
needed: c is how handle 2 accelerates by the forces alone, handle 1 at rest; and once f2 is known, the sweep that begins
with -f2 finds all u.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import width
from mpimbs.kernels.layout import put_in_sequence, room_side_by_side, side_by_side_from
from mpimbs.kernels.memory import Table, aligned_zeros, assign, read, schema, span
from mpimbs.kernels.tuples import load6, store_numbers
from mpimbs.parts.passes import (
    clear_far_handle,
    for_tiles,
    lanes_inward,
    lanes_of,
    opened,
    put_of_lanes,
    room_of_lanes,
    tile_coordinates,
    tile_of,
    tile_speeds,
    work_of,
)
from mpimbs.parts.tiles import KEEP_ALL, PLAN, TILE, Tiles
from mpimbs.spatial.rows import ROW
from mpimbs.spatial.vectors import scale6
from mpimbs.sweep.inward import inward
from mpimbs.sweep.loads import answered, loaded
from mpimbs.sweep.motion import joint_places
from mpimbs.sweep.structure import Structure
from mpimbs.sweep.walk import walk_inward, walk_outward
from mpimbs.values.handles import RESPONSE, SIZE, combine, item, respond
from mpimbs.values.load_joins import LOADS_JOINED, PAIR, join_loads, keep_join, part_loads


class FactoredPlan(NamedTuple):
    """Arguments of the load sweeps in compiled code."""

    tiles: Integers  # `parts.tiles.TilePlan`, which keeps the pivots at least from one pass to the next
    q: Floats  # [nq]: the state
    armature: Floats  # [nu]: what the pivots hold of rotors and all else
    heavier: int  # whether that is more than the rotors
    still: Floats  # [nu]: zeros
    left: Floats  # [nu]: u of every joint, the lanes of a tile side by side; where all is kept
    joins: Floats  # [lanes * LOADS_JOINED]: of each lane and all outboard of it
    between: Floats  # [lanes * PAIR]: h and r of these
    values: Floats  # [lanes * PAIR]: p and c
    given: Floats  # [lanes * PAIR]: A1 and f2
    outer: Floats  # [PAIR]: of the subchain
    copy: Floats  # [SIZE]
    room: Floats  # [width * PAIR]


FACTORED = schema(FactoredPlan)


class FactoredTiles:
    """The room of the factored load sweep over tiles.

    Parameters
    ----------
    tiles : Tiles
        Its own, which keep their pivots.

    Attributes
    ----------
    plan : int64 array
    q : array [coordinates]
        The state.
    armature : array [speeds]
        What the pivots hold of rotors, and of all else that joints are to be heavier by (kg m^2, kg), if `heavier`.
    block, value, outer : array [SIZE], [PAIR], [PAIR]
        Handle equations of all tiles together; p and c; A1 and f2.
    """

    def __init__(self, tiles: Tiles, coordinates: int, speeds: int) -> None:
        self._tiles = tiles  # it keeps arrays alive
        lanes = tiles.blocks.size // SIZE
        values, self.q, self.armature = aligned_zeros(lanes * PAIR), np.zeros(coordinates), np.zeros(speeds)
        self.block, self.value, self.outer = tiles.blocks[:SIZE], values[:PAIR], aligned_zeros(PAIR)
        plan = FactoredPlan(
            tiles=tiles.plan,
            q=self.q,
            armature=self.armature,
            heavier=0,
            still=np.zeros(speeds),
            left=aligned_zeros(speeds),
            joins=aligned_zeros(lanes * LOADS_JOINED),
            between=aligned_zeros(lanes * PAIR),
            values=values,
            given=aligned_zeros(lanes * PAIR),
            outer=self.outer,
            copy=aligned_zeros(SIZE),
            room=aligned_zeros(tiles.width * PAIR),
        )
        self._table = Table(plan)
        self.plan = self._table.data

    @property
    def heavier(self) -> bool:
        """Whether `armature` is in the pivots, not the rotors alone."""
        return bool(self._table.number("heavier"))

    @heavier.setter
    def heavier(self, wanted: bool) -> None:
        self._table.set("heavier", int(wanted))


@kernel(inline=True)
def _placed(zero, plan, tiles, number, kept):
    """Row, structure and workspace of a tile; the places of its joints are made, unless they are `kept`: again, for
    memory is slower."""
    tile, kind, structure = opened(zero, tiles, number)
    work = work_of(zero, tiles, tile, structure)
    if not kept:
        q = tile_coordinates(zero, tiles, tile, kind, read(plan, FACTORED.q))
        joint_places(zero, structure, q, work.place)
    return tile, structure, work


@kernel
def _tile_factor(zero, tiles, number, two_handles, plan):
    tile, s, work = _placed(zero, plan, tiles, number, False)
    if read(plan, FACTORED.heavier) != 0:
        armature = tile_speeds(zero, tiles, tile, s, read(plan, FACTORED.armature), read(tiles, PLAN.u))
        s = Structure(s.steps, s.axes, s.fixed, s.pitch, armature, s.path, s.added)
    blocks = read(tiles, PLAN.handles.blocks)
    block = room_of_lanes(zero, tiles, tile, blocks, SIZE)
    inward(zero, s, work, read(plan, FACTORED.still), block, two_handles)
    put_of_lanes(zero, tiles, tile, block, blocks, SIZE)


@kernel(inline=True)
def _factored(zero, tiles, number, two_handles, plan):
    _tile_factor(zero, tiles, number, two_handles, plan)
    blocks, responses = read(tiles, PLAN.handles.blocks), read(tiles, PLAN.responses)
    joins, copy, scratch = read(plan, FACTORED.joins), read(plan, FACTORED.copy), read(tiles, PLAN.scratch)
    two = read(tiles, PLAN.tip) == 0
    for lane in lanes_inward(tiles, tile_of(tiles, number)):
        left, right = item(blocks, lane, SIZE), item(blocks, lane + 1, SIZE)
        response = item(responses, lane, RESPONSE)
        respond(left, right, response, scratch, two)
        keep_join(left, right, response, copy, scratch, item(joins, lane, LOADS_JOINED), two)
        combine(left, right, response, left, two)


@kernel
def factor_sweep(zero, plan):
    """Leave the pivots and joins of the state; and the handle equations of the subchain as the first block."""
    tiles = read(plan, FACTORED.tiles)
    for_tiles(zero, tiles, _factored, plan, read(tiles, PLAN.tip) == 0, True)
    clear_far_handle(tiles)


@kernel
def _tile_inward(zero, tiles, number, two_handles, given):
    plan, f = given
    kept = read(tiles, PLAN.kept) == KEEP_ALL
    tile, structure, work = _placed(zero, plan, tiles, number, kept)
    forces = tile_speeds(zero, tiles, tile, structure, f, read(tiles, PLAN.u))
    none = (zero, zero, zero, zero, zero, zero)
    if kept:
        left = span(read(plan, FACTORED.left), tile[TILE.u], structure.axes.size * width(zero))
        inward_given = (zero, work, forces, left, two_handles)
        state = walk_inward(zero, structure, work.junction, loaded, none + none, inward_given)
    else:
        left = read(tiles, PLAN.total)
        p = walk_inward(zero, structure, work.junction, loaded, none + none, (zero, work, forces, left, False))
        outward_given = (zero, work, left, False, none, read(tiles, PLAN.udot))
        state = p[0:6] + walk_outward(zero, structure, work.junction, answered, none, outward_given)
    values = read(plan, FACTORED.values)
    room = room_side_by_side(zero, 0, values, tile[TILE.lane] * PAIR, PAIR, read(plan, FACTORED.room))
    store_numbers(zero, room, 0, state[0:6])
    store_numbers(zero, room, ROW, state[6:12])
    put_of_lanes(zero, tiles, tile, room, values, PAIR)


@kernel(inline=True)
def _loaded(zero, tiles, number, two_handles, given):
    _tile_inward(zero, tiles, number, two_handles, given)
    plan = given[0]
    values, joins, between = read(plan, FACTORED.values), read(plan, FACTORED.joins), read(plan, FACTORED.between)
    for lane in lanes_inward(tiles, tile_of(tiles, number)):
        left, right = item(values, lane, PAIR), item(values, lane + 1, PAIR)
        kept, inner = item(joins, lane, LOADS_JOINED), item(between, lane, PAIR)
        join_loads(left, right, kept, inner, left, read(tiles, PLAN.tip) == 0)


@kernel
def loads_inward(zero, plan, f):
    """Find p and c of the subchain by generalized forces f [nu], as the first of its values."""
    tiles = read(plan, FACTORED.tiles)
    for_tiles(zero, tiles, _loaded, (plan, f), read(tiles, PLAN.tip) == 0, True)


@kernel
def _tile_outward(zero, tiles, number, two_handles, given):
    plan, f, answer = given
    kept = read(tiles, PLAN.kept) == KEEP_ALL
    tile, structure, work = _placed(zero, plan, tiles, number, kept)
    nu, interleaved, first = structure.axes.size, read(tiles, PLAN.interleaved), tile[TILE.lane] * PAIR
    ends = side_by_side_from(zero, 0, read(plan, FACTORED.given), first, PAIR, read(plan, FACTORED.room))
    acceleration, load2 = load6(zero, ends, 0), load6(zero, ends, ROW)
    room = room_side_by_side(zero, interleaved, answer, tile[TILE.u], nu, read(tiles, PLAN.udot))
    if kept:
        left = span(read(plan, FACTORED.left), tile[TILE.u], nu * width(zero))
        outward_given = (zero, work, left, two_handles, load2, room)
        walk_outward(zero, structure, work.junction, answered, acceleration, outward_given)
    else:
        none = (zero, zero, zero, zero, zero, zero)
        forces, left = tile_speeds(zero, tiles, tile, structure, f, read(tiles, PLAN.u)), read(tiles, PLAN.total)
        begin = scale6(-1.0, load2) + none
        walk_inward(zero, structure, work.junction, loaded, begin, (zero, work, forces, left, False))
        walk_outward(zero, structure, work.junction, answered, acceleration, (zero, work, left, False, none, room))
    put_in_sequence(zero, interleaved, room, answer, tile[TILE.u], nu)


@kernel
def loads_outward(zero, plan, f, answer):
    """Write the accelerations [nu] of the joints, given A1 and f2 of the subchain, after `loads_inward` of the same f.

    They may take the place of f.
    """
    tiles = read(plan, FACTORED.tiles)
    joins, between, given = read(plan, FACTORED.joins), read(plan, FACTORED.between), read(plan, FACTORED.given)
    outer = read(plan, FACTORED.outer)
    lanes = lanes_of(tiles)
    two = read(tiles, PLAN.tip) == 0
    load = span(outer, ROW, ROW)
    assign(item(given, 0, PAIR), span(outer, 0, ROW))
    assign(span(given, (lanes - 1) * PAIR + ROW, ROW), load)
    for lane in range(lanes - 1):
        here, following = item(given, lane, PAIR), item(given, lane + 1, PAIR)
        kept, inner = item(joins, lane, LOADS_JOINED), item(between, lane, PAIR)
        part_loads(kept, inner, here, load, following, span(here, ROW, ROW), two)
    for_tiles(zero, tiles, _tile_outward, (plan, f, answer), two, False)
