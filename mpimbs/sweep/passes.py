"""The passes of an evaluation over the tiles of a subchain, compiled: each runs over all tiles, one call.

A pass is given a `zero` of the number type of the lanes; a tile of one lane is swept in doubles. Between the lanes the
handle equations are joined as between ranks. `plan` and its items are those of `sweep.tiles.Tiles`.
"""

from __future__ import annotations

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.handles import SIZE, TRANSFER, join_to_next, spread_loads
from mpimbs.spatial.lanes import width
from mpimbs.spatial.layout import put_in_sequence, room_side_by_side, side_by_side_from
from mpimbs.spatial.memory import assign, fetch_ahead, read, size_of, span
from mpimbs.spatial.tuples import load3, load6
from mpimbs.spatial.widths import lanes_only
from mpimbs.sweep.ahead import inward_after
from mpimbs.sweep.inward import inward
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.motion import coordinate_rates, join_turn, joint_places, relative_turn, velocity_terms
from mpimbs.sweep.outward import outward
from mpimbs.sweep.structure import BIAS, GATHERED, PIVOT, PLACE, TURNING, Workspace
from mpimbs.sweep.tiles import (
    BIAS_ROOM,
    FIRST_LANE,
    KEEP_ALL,
    KEEP_NOTHING,
    KIND,
    KIND_OF_TILE,
    PIVOT_ROOM,
    PLACE_ROOM,
    PLAN,
    Q_AT,
    STEP_AT,
    TILE,
    U_AT,
    WIDTH,
    TileKind,
)

_KIND = size_of(TileKind)


@kernel(inline=True)
def kind_of(plan, tile):
    """The table of what a tile shares with others (`tiles.TileKind`)."""
    table = read(plan, PLAN.kinds)
    return span(table, tile[KIND] * _KIND, _KIND)


@kernel(inline=True)
def work_of(zero, plan, tile, structure):
    """The workspace of a tile."""
    w = width(zero)
    m = structure.steps.shape[0] * w
    wrench = read(plan, PLAN.wrenches)
    if wrench.size > 0:
        wrench = side_by_side_from(
            zero,
            read(plan, PLAN.interleaved),
            wrench,
            tile[STEP_AT] * 6,
            structure.steps.shape[0] * 6,
            read(plan, PLAN.wrench),
        )
    return Workspace(
        span(read(plan, PLAN.place), tile[PLACE_ROOM], m * PLACE),
        span(read(plan, PLAN.bias), tile[BIAS_ROOM], m * BIAS),
        span(read(plan, PLAN.pivot), tile[PIVOT_ROOM], structure.axes.size * w * PIVOT),
        wrench,
        read(plan, PLAN.junction),
    )


@kernel(inline=True)
def tile_of(plan, number):
    """Row of the table of tiles."""
    return span(read(plan, PLAN.tiles), number * TILE, TILE)


@kernel(inline=True)
def tiles_of(plan):
    """Number of tiles."""
    return read(plan, PLAN.tiles).size // TILE


@kernel(inline=True)
def tile_coordinates(zero, plan, tile, kind, q):
    return side_by_side_from(
        zero, read(plan, PLAN.interleaved), q, tile[Q_AT], read(kind, KIND_OF_TILE.coordinates), read(plan, PLAN.q)
    )


@kernel(inline=True)
def tile_speeds(zero, plan, tile, structure, u):
    """Speeds of a tile, side by side."""
    return side_by_side_from(zero, read(plan, PLAN.interleaved), u, tile[U_AT], structure.axes.size, read(plan, PLAN.u))


@kernel(inline=True)
def _fetch_state(plan, number, q, u):
    """Ask for the state of a tile whose turn comes next, if nothing is kept: then the state comes from memory."""
    if read(plan, PLAN.kept) == KEEP_NOTHING and 0 <= number < tiles_of(plan):
        tile = tile_of(plan, number)
        kind = kind_of(plan, tile)
        fetch_ahead(q, tile[Q_AT], read(kind, KIND_OF_TILE.coordinates) * tile[WIDTH])
        fetch_ahead(u, tile[U_AT], read(kind, KIND_OF_TILE.structure.axes).size * tile[WIDTH])


@kernel
def tile_motion(zero, plan, tile, q, u, turning):
    """Pass 1 of a tile; its boundary turns if `turning`."""
    kind = kind_of(plan, tile)
    structure = read(kind, KIND_OF_TILE.structure)
    work = work_of(zero, plan, tile, structure)
    joint_places(zero, structure, tile_coordinates(zero, plan, tile, kind, q), work.place)
    if turning:
        turns = read(plan, PLAN.turns)
        room = room_side_by_side(
            zero, read(plan, PLAN.hung), turns, tile[FIRST_LANE] * TURNING, TURNING, read(plan, PLAN.lane_room)
        )
        relative_turn(zero, structure, work, tile_speeds(zero, plan, tile, structure, u), room)
        put_in_sequence(zero, read(plan, PLAN.hung), room, turns, tile[FIRST_LANE] * TURNING, TURNING)


@kernel
def motion(zero, plan, q, u):
    """Pass 1: the joint frames, and the boundary turn of every lane. With neighbours outboard, that of the subchain."""
    count = tiles_of(plan)
    tip = read(plan, PLAN.tip) != 0
    for number in range(count):
        tile = tile_of(plan, number)
        _fetch_state(plan, number + 1, q, u)
        if width(zero) > 1 and tile[WIDTH] > 1:
            tile_motion(zero, plan, tile, q, u, True)
        else:
            tile_motion(0.0, plan, tile, q, u, not tip or number + 1 < count)
    if not tip:
        turns = read(plan, PLAN.turns)
        total = read(plan, PLAN.turn)
        assign(total, span(turns, 0, TURNING))
        for lane in range(1, turns.size // TURNING):
            join_turn(0.0, total, span(turns, lane * TURNING, TURNING), total)


@kernel
def _spread_omegas(plan, turn):
    """Angular velocity of handle 1 of every lane, from that of the subchain in its boundary turn."""
    turns = read(plan, PLAN.turns)
    omegas = read(plan, PLAN.omegas)
    for i in range(3):
        omegas[i] = turn[9 + i]
    for lane in range(omegas.size // 3 - 1):
        at = lane * TURNING
        for i in range(3):
            s = turns[at + 9 + i]
            for k in range(3):
                s += turns[at + 3 * i + k] * omegas[3 * lane + k]
            omegas[3 * lane + 3 + i] = s


@kernel(inline=True)
def _no_load(zero):
    return (zero, zero, zero, zero, zero, zero)


@lanes_only
@kernel
def go_ahead(zero, plan):
    """Pass 2, while the boundary turn is not known: the inertias, E and W of the leading tile.

    An inward sweep with the loads of the last evaluation, which mean nothing.
    """
    if read(plan, PLAN.leading) < 0:
        return
    tile = tile_of(plan, read(plan, PLAN.leading))
    structure = read(kind_of(plan, tile), KIND_OF_TILE.structure)
    work = work_of(zero, plan, tile, structure)
    block, room = read(plan, PLAN.ahead_block), read(plan, PLAN.eliminated)
    inward(zero, structure, work, read(plan, PLAN.total), _no_load(zero), block, True, room)


@kernel(inline=True)
def tile_loaded(zero, plan, tile, q, u, tau):
    """Structure and workspace of a tile, with velocity terms, and its joint forces."""
    kind = kind_of(plan, tile)
    structure = read(kind, KIND_OF_TILE.structure)
    work = work_of(zero, plan, tile, structure)
    q = tile_coordinates(zero, plan, tile, kind, q)
    u = tile_speeds(zero, plan, tile, structure, u)
    if read(plan, PLAN.kept) != KEEP_ALL:
        joint_places(zero, structure, q, work.place)
    if tau.size > 0:
        tau = side_by_side_from(
            zero, read(plan, PLAN.interleaved), tau, tile[U_AT], structure.axes.size, read(plan, PLAN.tau)
        )
    omega = side_by_side_from(
        zero, read(plan, PLAN.hung), read(plan, PLAN.omegas), tile[FIRST_LANE] * 3, 3, read(plan, PLAN.lane_room)
    )
    velocity_terms(zero, structure, work, u, load3(zero, omega, 0))
    total = read(plan, PLAN.total)
    joint_forces(zero, structure, read(kind, KIND_OF_TILE.springs), q, u, tau, total)
    return structure, work, total


@kernel
def tile_inward(zero, plan, tile, q, u, tau, two_handles):
    """Pass 2 of a tile: the handle equations of its lanes."""
    structure, work, total = tile_loaded(zero, plan, tile, q, u, tau)
    blocks = read(plan, PLAN.blocks)
    block = room_side_by_side(
        zero, read(plan, PLAN.hung), blocks, tile[FIRST_LANE] * SIZE, SIZE, read(plan, PLAN.lane_room)
    )
    inward(zero, structure, work, total, _no_load(zero), block, two_handles)
    put_in_sequence(zero, read(plan, PLAN.hung), block, blocks, tile[FIRST_LANE] * SIZE, SIZE)


@kernel
def tile_gathered(zero, plan, tile, q, u, tau):
    """Pass 2 of a tile whose lanes hang by themselves: what each hands to the body that it hangs on [GATHERED]."""
    structure, work, total = tile_loaded(zero, plan, tile, q, u, tau)
    room = span(read(plan, PLAN.blocks), tile[FIRST_LANE] * GATHERED, tile[WIDTH] * GATHERED)
    inward(zero, structure, work, total, _no_load(zero), room, False, bare=room)


@lanes_only
@kernel
def _go_after(zero, plan, tile, q, u, tau):
    """What `go_ahead` has left of the inward sweep of the leading tile."""
    structure, work, total = tile_loaded(zero, plan, tile, q, u, tau)
    block = read(plan, PLAN.ahead_block)
    inward_after(zero, structure, work, total, read(plan, PLAN.eliminated), block, read(plan, PLAN.udot))
    put_in_sequence(zero, read(plan, PLAN.hung), block, read(plan, PLAN.blocks), tile[FIRST_LANE] * SIZE, SIZE)


@kernel
def inward_sweep(zero, plan, q, u, tau, turn, ahead):
    """Pass 2: velocity terms, joint forces, the handle equations of every lane, joined from the last to the first.

    `ahead` says whether `go_ahead` has done its part of it.
    """
    _spread_omegas(plan, turn)
    blocks = read(plan, PLAN.blocks)
    responses = read(plan, PLAN.responses)
    scratch = read(plan, PLAN.scratch)
    lanes = blocks.size // SIZE
    two = read(plan, PLAN.tip) == 0
    count = tiles_of(plan)
    for number in range(count - 1, -1, -1):
        tile = tile_of(plan, number)
        _fetch_state(plan, number - 1, q, u)
        if ahead and number == read(plan, PLAN.leading):
            _go_after(zero, plan, tile, q, u, tau)
        elif width(zero) > 1 and tile[WIDTH] > 1:
            tile_inward(zero, plan, tile, q, u, tau, True)
        else:
            tile_inward(0.0, plan, tile, q, u, tau, two or number + 1 < count)
        first = tile[FIRST_LANE]
        for lane in range(min(first + tile[WIDTH], lanes - 1) - 1, first - 1, -1):
            join_to_next(blocks, lane, responses, scratch, two)
    if not two and lanes > 1:
        for i in range(TRANSFER, SIZE):
            blocks[i] = 0.0


@kernel
def tile_again(zero, plan, tile, q, u, tau, load):
    """Make again what a tile has not kept from the inward sweep. Where that is all, the load f2 is known by now: the
    sweep with one handle, which begins with -f2, does."""
    kind = kind_of(plan, tile)
    structure = read(kind, KIND_OF_TILE.structure)
    work = work_of(zero, plan, tile, structure)
    q = tile_coordinates(zero, plan, tile, kind, q)
    u = tile_speeds(zero, plan, tile, structure, u)
    joint_places(zero, structure, q, work.place)
    omega = side_by_side_from(
        zero, read(plan, PLAN.hung), read(plan, PLAN.omegas), tile[FIRST_LANE] * 3, 3, read(plan, PLAN.lane_room)
    )
    velocity_terms(zero, structure, work, u, load3(zero, omega, 0))
    if read(plan, PLAN.kept) == KEEP_NOTHING:
        if tau.size > 0:
            tau = side_by_side_from(
                zero, read(plan, PLAN.interleaved), tau, tile[U_AT], structure.axes.size, read(plan, PLAN.tau)
            )
        total = read(plan, PLAN.total)
        joint_forces(zero, structure, read(kind, KIND_OF_TILE.springs), q, u, tau, total)
        inward(zero, structure, work, total, load, read(plan, PLAN.lane_room), False)


@kernel(inline=True)
def tile_rates(zero, plan, tile, q, u, rates):
    """Rates of the coordinates of a tile."""
    kind = kind_of(plan, tile)
    structure = read(kind, KIND_OF_TILE.structure)
    nu, nq = structure.axes.size, read(kind, KIND_OF_TILE.coordinates)
    if read(kind, KIND_OF_TILE.plain):
        for k in range(nu * width(zero)):
            rates[tile[Q_AT] + k] = u[tile[U_AT] + k]
    else:
        q = tile_coordinates(zero, plan, tile, kind, q)
        here = tile_speeds(zero, plan, tile, structure, u)
        room = room_side_by_side(zero, read(plan, PLAN.interleaved), rates, tile[Q_AT], nq, read(plan, PLAN.rates))
        coordinate_rates(zero, structure, q, here, room)
        put_in_sequence(zero, read(plan, PLAN.interleaved), room, rates, tile[Q_AT], nq)


@kernel
def tile_outward(zero, plan, tile, q, u, tau, udot, rates, two_handles):
    """Pass 3 of a tile, given A1 and f2 of its lanes."""
    kind = kind_of(plan, tile)
    structure = read(kind, KIND_OF_TILE.structure)
    work = work_of(zero, plan, tile, structure)
    nu = structure.axes.size
    loads = side_by_side_from(
        zero, read(plan, PLAN.hung), read(plan, PLAN.loads), tile[FIRST_LANE] * 12, 12, read(plan, PLAN.lane_room)
    )
    acceleration = load6(zero, loads, 0)
    load = load6(zero, loads, 6)
    if read(plan, PLAN.kept) != KEEP_ALL:
        tile_again(zero, plan, tile, q, u, tau, load)
    room = room_side_by_side(zero, read(plan, PLAN.interleaved), udot, tile[U_AT], nu, read(plan, PLAN.udot))
    outward(zero, structure, work, acceleration, load, two_handles and read(plan, PLAN.kept) != KEEP_NOTHING, room)
    put_in_sequence(zero, read(plan, PLAN.interleaved), room, udot, tile[U_AT], nu)
    tile_rates(zero, plan, tile, q, u, rates)


@kernel
def systems_alone(zero, plan, q, u, tau, udot, rates):
    """All passes for tiles whose lanes are systems of their own, on the world: one tile after the other."""
    for number in range(tiles_of(plan)):
        tile = tile_of(plan, number)
        if width(zero) > 1 and tile[WIDTH] > 1:
            tile_motion(zero, plan, tile, q, u, False)
            tile_inward(zero, plan, tile, q, u, tau, False)
            tile_outward(zero, plan, tile, q, u, tau, udot, rates, False)
        else:
            tile_motion(0.0, plan, tile, q, u, False)
            tile_inward(0.0, plan, tile, q, u, tau, False)
            tile_outward(0.0, plan, tile, q, u, tau, udot, rates, False)


@kernel
def outward_sweep(zero, plan, q, u, tau, udot, rates):
    """Pass 3: accelerations [nu] and rates of the coordinates [nq], given (A1, f2) of the subchain in the plan."""
    spread_loads(
        read(plan, PLAN.blocks), read(plan, PLAN.responses), read(plan, PLAN.handle_loads), read(plan, PLAN.loads)
    )
    two = read(plan, PLAN.tip) == 0
    count = tiles_of(plan)
    for number in range(count):
        tile = tile_of(plan, number)
        _fetch_state(plan, number + 1, q, u)
        if read(plan, PLAN.kept) == KEEP_NOTHING and number + 1 < count:
            following = tile_of(plan, number + 1)
            fetch_ahead(udot, following[U_AT], following[U_AT] - tile[U_AT])
            fetch_ahead(rates, following[Q_AT], following[Q_AT] - tile[Q_AT])
        if width(zero) > 1 and tile[WIDTH] > 1:
            tile_outward(zero, plan, tile, q, u, tau, udot, rates, True)
        else:
            tile_outward(0.0, plan, tile, q, u, tau, udot, rates, two or number + 1 < count)
