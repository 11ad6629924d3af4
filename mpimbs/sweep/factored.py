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

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.handles import RESPONSE, SIZE, TRANSFER, combine, item, respond
from mpimbs.spatial.lanes import width
from mpimbs.spatial.layout import put_in_sequence, room_side_by_side, side_by_side_from
from mpimbs.spatial.load_joins import LOADS_JOINED, PAIR, join_loads, keep_join, part_loads
from mpimbs.spatial.memory import Floats, Integers, Table, aligned_zeros, assign, read, schema, span
from mpimbs.spatial.rows import ROW
from mpimbs.spatial.tuples import load6, store_numbers
from mpimbs.spatial.vectors import scale6
from mpimbs.sweep.inward import inward
from mpimbs.sweep.loads import answered, loaded
from mpimbs.sweep.motion import joint_places
from mpimbs.sweep.passes import kind_of, tile_coordinates, tile_of, tile_speeds, tiles_of, work_of
from mpimbs.sweep.structure import Structure
from mpimbs.sweep.tiles import FIRST_LANE, KEEP_ALL, KIND_OF_TILE, PLAN, U_AT, WIDTH, Tiles
from mpimbs.sweep.walk import walk_inward, walk_outward


class FactoredPlan(NamedTuple):
    """What the passes are given."""

    tiles: Integers  # `sweep.tiles.TilePlan`, which keeps the pivots at least from one pass to the next
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
    coordinates, speeds : int

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
        self._table.set_number("heavier", int(wanted))


@kernel(inline=True)
def _heavier(zero, plan, tiles, tile):
    """Structure of a tile with the inertias that the pivots hold."""
    s = read(kind_of(tiles, tile), KIND_OF_TILE.structure)
    if read(plan, FACTORED.heavier) != 0:
        armature = tile_speeds(zero, tiles, tile, s, read(plan, FACTORED.armature))
        return Structure(s.steps, s.axes, s.fixed, s.pitch, armature, s.path, s.added)
    return s


@kernel(inline=True)
def _place(zero, plan, tile, structure, work):
    """Write the places of a tile's joints."""
    tiles = read(plan, FACTORED.tiles)
    q = tile_coordinates(zero, tiles, tile, kind_of(tiles, tile), read(plan, FACTORED.q))
    joint_places(zero, structure, q, work.place)


@kernel(inline=True)
def _ready(zero, plan, tile):
    """Structure and workspace of a tile, whose places are made again where they are not kept: memory is slower."""
    tiles = read(plan, FACTORED.tiles)
    structure = read(kind_of(tiles, tile), KIND_OF_TILE.structure)
    work = work_of(zero, tiles, tile, structure)
    if read(tiles, PLAN.kept) != KEEP_ALL:
        _place(zero, plan, tile, structure, work)
    return structure, work


@kernel
def _tile_factor(zero, plan, tile, two_handles):
    tiles = read(plan, FACTORED.tiles)
    structure = _heavier(zero, plan, tiles, tile)
    work = work_of(zero, tiles, tile, structure)
    _place(zero, plan, tile, structure, work)
    blocks = read(tiles, PLAN.blocks)
    block = room_side_by_side(zero, 0, blocks, tile[FIRST_LANE] * SIZE, SIZE, read(tiles, PLAN.lane_room))
    none = (zero, zero, zero, zero, zero, zero)
    inward(zero, structure, work, read(plan, FACTORED.still), none, block, two_handles)
    put_in_sequence(zero, 0, block, blocks, tile[FIRST_LANE] * SIZE, SIZE)


@kernel
def factor_sweep(zero, plan):
    """Leave the pivots and joins of the state; and the handle equations of the subchain as the first block."""
    tiles = read(plan, FACTORED.tiles)
    blocks, responses, scratch = read(tiles, PLAN.blocks), read(tiles, PLAN.responses), read(tiles, PLAN.scratch)
    joins, copy = read(plan, FACTORED.joins), read(plan, FACTORED.copy)
    lanes = blocks.size // SIZE
    two = read(tiles, PLAN.tip) == 0
    count = tiles_of(tiles)
    for number in range(count - 1, -1, -1):
        tile = tile_of(tiles, number)
        if width(zero) > 1 and tile[WIDTH] > 1:
            _tile_factor(zero, plan, tile, True)
        else:
            _tile_factor(0.0, plan, tile, two or number + 1 < count)
        first = tile[FIRST_LANE]
        for lane in range(min(first + tile[WIDTH], lanes - 1) - 1, first - 1, -1):
            left, right = item(blocks, lane, SIZE), item(blocks, lane + 1, SIZE)
            response = item(responses, lane, RESPONSE)
            respond(left, right, response, scratch, two)
            keep_join(left, right, response, copy, scratch, item(joins, lane, LOADS_JOINED), two)
            combine(left, right, response, left, two)
    if not two:
        for i in range(TRANSFER, SIZE):
            blocks[i] = 0.0


@kernel
def _tile_inward(zero, plan, tile, f, two_handles):
    tiles = read(plan, FACTORED.tiles)
    structure, work = _ready(zero, plan, tile)
    forces = tile_speeds(zero, tiles, tile, structure, f)
    none = (zero, zero, zero, zero, zero, zero)
    if read(tiles, PLAN.kept) == KEEP_ALL:
        left = span(read(plan, FACTORED.left), tile[U_AT], structure.axes.size * width(zero))
        inward_given = (zero, work, forces, left, two_handles)
        state = walk_inward(zero, structure, work.junction, loaded, none + none, inward_given)
    else:
        left = read(tiles, PLAN.total)
        p = walk_inward(zero, structure, work.junction, loaded, none + none, (zero, work, forces, left, False))
        outward_given = (zero, work, left, False, none, read(tiles, PLAN.udot))
        state = p[0:6] + walk_outward(zero, structure, work.junction, answered, none, outward_given)
    values = read(plan, FACTORED.values)
    room = room_side_by_side(zero, 0, values, tile[FIRST_LANE] * PAIR, PAIR, read(plan, FACTORED.room))
    store_numbers(zero, room, 0, state[0:6])
    store_numbers(zero, room, ROW, state[6:12])
    put_in_sequence(zero, 0, room, values, tile[FIRST_LANE] * PAIR, PAIR)


@kernel
def loads_inward(zero, plan, f):
    """Find p and c of the subchain by generalized forces f [nu], as the first of its values."""
    tiles = read(plan, FACTORED.tiles)
    values, joins, between = read(plan, FACTORED.values), read(plan, FACTORED.joins), read(plan, FACTORED.between)
    lanes = values.size // PAIR
    two = read(tiles, PLAN.tip) == 0
    count = tiles_of(tiles)
    for number in range(count - 1, -1, -1):
        tile = tile_of(tiles, number)
        if width(zero) > 1 and tile[WIDTH] > 1:
            _tile_inward(zero, plan, tile, f, True)
        else:
            _tile_inward(0.0, plan, tile, f, two or number + 1 < count)
        first = tile[FIRST_LANE]
        for lane in range(min(first + tile[WIDTH], lanes - 1) - 1, first - 1, -1):
            left, right = item(values, lane, PAIR), item(values, lane + 1, PAIR)
            join_loads(left, right, item(joins, lane, LOADS_JOINED), item(between, lane, PAIR), left, two)


@kernel
def _tile_outward(zero, plan, tile, f, answer, two_handles):
    tiles = read(plan, FACTORED.tiles)
    structure, work = _ready(zero, plan, tile)
    nu = structure.axes.size
    ends = side_by_side_from(
        zero, 0, read(plan, FACTORED.given), tile[FIRST_LANE] * PAIR, PAIR, read(plan, FACTORED.room)
    )
    acceleration, load2 = load6(zero, ends, 0), load6(zero, ends, ROW)
    room = room_side_by_side(zero, read(tiles, PLAN.interleaved), answer, tile[U_AT], nu, read(tiles, PLAN.udot))
    if read(tiles, PLAN.kept) == KEEP_ALL:
        left = span(read(plan, FACTORED.left), tile[U_AT], nu * width(zero))
        given = (zero, work, left, two_handles, load2, room)
        walk_outward(zero, structure, work.junction, answered, acceleration, given)
    else:
        none = (zero, zero, zero, zero, zero, zero)
        forces, left = tile_speeds(zero, tiles, tile, structure, f), read(tiles, PLAN.total)
        begin = scale6(-1.0, load2) + none
        walk_inward(zero, structure, work.junction, loaded, begin, (zero, work, forces, left, False))
        walk_outward(zero, structure, work.junction, answered, acceleration, (zero, work, left, False, none, room))
    put_in_sequence(zero, read(tiles, PLAN.interleaved), room, answer, tile[U_AT], nu)


@kernel
def loads_outward(zero, plan, f, answer):
    """Write the accelerations [nu] of the joints, given A1 and f2 of the subchain, after `loads_inward` of the same f.

    They may take the place of f.
    """
    tiles = read(plan, FACTORED.tiles)
    joins, between, given = read(plan, FACTORED.joins), read(plan, FACTORED.between), read(plan, FACTORED.given)
    outer = read(plan, FACTORED.outer)
    lanes = given.size // PAIR
    two = read(tiles, PLAN.tip) == 0
    load = span(outer, ROW, ROW)
    assign(item(given, 0, PAIR), span(outer, 0, ROW))
    assign(span(given, (lanes - 1) * PAIR + ROW, ROW), load)
    for lane in range(lanes - 1):
        here, following = item(given, lane, PAIR), item(given, lane + 1, PAIR)
        kept, inner = item(joins, lane, LOADS_JOINED), item(between, lane, PAIR)
        part_loads(kept, inner, here, load, following, span(here, ROW, ROW), two)
    count = tiles_of(tiles)
    for number in range(count):
        tile = tile_of(tiles, number)
        if width(zero) > 1 and tile[WIDTH] > 1:
            _tile_outward(zero, plan, tile, f, answer, True)
        else:
            _tile_outward(0.0, plan, tile, f, answer, two or number + 1 < count)
