"""The passes of an evaluation over the tiles of a subchain, compiled: each runs over all tiles, one call.

A pass is given a `zero` of the number type of the lanes; a tile of one lane is swept in doubles. Between the lanes the
handle equations are joined as between ranks. `plan` and its items are those of `parts.tiles.Tiles`.
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import width
from mpimbs.kernels.layout import put_in_sequence, room_side_by_side, side_by_side_from
from mpimbs.kernels.memory import assign, prefetch, read, size_of, span
from mpimbs.kernels.tuples import load3, load6, store_numbers
from mpimbs.kernels.widths import lanes_only
from mpimbs.parts.tiles import KEEP_ALL, KEEP_NOTHING, KIND_OF_TILE, PLAN, TILE, TileKind
from mpimbs.spatial.vectors import add6, scale6
from mpimbs.sweep.inward import inward, outward
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.loads import inward_after
from mpimbs.sweep.motion import coordinate_rates, join_turn, joint_places, relative_turn, velocity_terms
from mpimbs.sweep.structure import BIAS, GATHERED, PIVOT, PLACE, TURNING, Workspace
from mpimbs.values.handles import SIZE, TRANSFER, join_to_next, spread_loads

_KIND = size_of(TileKind)
_TILE = len(TILE)


# --- what a tile has


@kernel(inline=True)
def tile_of(plan, number):
    """Row of the table of tiles."""
    return span(read(plan, PLAN.tiles), number * _TILE, _TILE)


@kernel(inline=True)
def tiles_of(plan):
    """Number of tiles."""
    return read(plan, PLAN.tiles).size // _TILE


@kernel(inline=True)
def lanes_of(plan):
    """Number of lanes of all tiles."""
    return read(plan, PLAN.omegas).size // 3


@kernel(inline=True)
def lanes_inward(plan, tile):
    """The lanes of a tile that have one behind them, from the last to the first."""
    return range(min(tile[TILE.lane] + tile[TILE.width], lanes_of(plan) - 1) - 1, tile[TILE.lane] - 1, -1)


@kernel(inline=True)
def opened(zero, plan, number):
    """Row, kind (`tiles.TileKind`) and structure of a tile."""
    tile = tile_of(plan, number)
    kind = span(read(plan, PLAN.kinds), tile[TILE.kind] * _KIND, _KIND)
    return tile, kind, read(kind, KIND_OF_TILE.structure)


@kernel(inline=True)
def work_of(zero, plan, tile, structure):
    """The workspace of a tile."""
    m, nu = structure.steps.shape[0], structure.axes.size * width(zero)
    wrench = read(plan, PLAN.wrenches)
    if wrench.size > 0:
        interleaved, room = read(plan, PLAN.interleaved), read(plan, PLAN.wrench)
        wrench = side_by_side_from(zero, interleaved, wrench, tile[TILE.step] * 6, m * 6, room)
    return Workspace(
        span(read(plan, PLAN.place), tile[TILE.place], m * width(zero) * PLACE),
        span(read(plan, PLAN.bias), tile[TILE.bias], m * width(zero) * BIAS),
        span(read(plan, PLAN.pivot), tile[TILE.pivot], nu * PIVOT),
        wrench,
        read(plan, PLAN.junction),
    )


@kernel(inline=True)
def tile_coordinates(zero, plan, tile, kind, q):
    """Coordinates of a tile, side by side."""
    count, room = read(kind, KIND_OF_TILE.coordinates), read(plan, PLAN.q)
    return side_by_side_from(zero, read(plan, PLAN.interleaved), q, tile[TILE.q], count, room)


@kernel(inline=True)
def tile_speeds(zero, plan, tile, structure, u, room):
    """Speeds of a tile, or what else its joints have each one of, side by side."""
    return side_by_side_from(zero, read(plan, PLAN.interleaved), u, tile[TILE.u], structure.axes.size, room)


@kernel(inline=True)
def tile_state(zero, plan, tile, kind, structure, q, u):
    """Coordinates and speeds of a tile, side by side."""
    q = tile_coordinates(zero, plan, tile, kind, q)
    return q, tile_speeds(zero, plan, tile, structure, u, read(plan, PLAN.u))


@kernel(inline=True)
def tile_forces(zero, plan, tile, structure, tau):
    """Generalized forces of a tile, side by side, where any are given."""
    if tau.size > 0:
        tau = tile_speeds(zero, plan, tile, structure, tau, read(plan, PLAN.tau))
    return tau


@kernel(inline=True)
def of_lanes(zero, plan, tile, numbers, count):
    """So many numbers of each lane of a tile, side by side, of those of all lanes."""
    first, room = tile[TILE.lane] * count, read(plan, PLAN.lane_room)
    return side_by_side_from(zero, read(plan, PLAN.on_bodies), numbers, first, count, room)


@kernel(inline=True)
def room_of_lanes(zero, plan, tile, numbers, count):
    """Where a tile writes so many numbers of each lane, for `put_of_lanes`."""
    first, room = tile[TILE.lane] * count, read(plan, PLAN.lane_room)
    return room_side_by_side(zero, read(plan, PLAN.on_bodies), numbers, first, count, room)


@kernel(inline=True)
def put_of_lanes(zero, plan, tile, room, numbers, count):
    """Bring what a tile wrote of each lane to those of all lanes."""
    put_in_sequence(zero, read(plan, PLAN.on_bodies), room, numbers, tile[TILE.lane] * count, count)


@kernel(inline=True)
def tile_omega(zero, plan, tile):
    """Angular velocities of handles 1 of a tile's lanes."""
    return load3(zero, of_lanes(zero, plan, tile, read(plan, PLAN.omegas), 3), 0)


@kernel(inline=True)
def tile_ends(zero, plan, tile):
    """A1 and f2 of a tile's lanes."""
    loads = of_lanes(zero, plan, tile, read(plan, PLAN.loads), 12)
    return load6(zero, loads, 0), load6(zero, loads, 6)


# --- all tiles


@kernel(inline=True)
def for_tiles(zero, plan, visit, given, two, inward):
    """Visit all tiles, outward or inward: those in lanes with a zero of these, those of one lane with a double.

    A visit is a kernel that is told whether anything hangs outboard of the tile: `two` says so of the last.

        visit(zero, plan, number, two_handles, given)
    """
    count = tiles_of(plan)
    for k in range(count):
        number = count - 1 - k if inward else k
        if width(zero) > 1 and tile_of(plan, number)[TILE.width] > 1:
            visit(zero, plan, number, True, given)
        else:
            visit(0.0, plan, number, two or number + 1 < count, given)


@kernel(inline=True)
def _fetch_state(zero, plan, number, q, u):
    """Ask for the state of a tile whose turn comes next, if nothing is kept: then the state comes from memory."""
    if read(plan, PLAN.kept) == KEEP_NOTHING and 0 <= number < tiles_of(plan):
        tile, kind, structure = opened(zero, plan, number)
        prefetch(q, tile[TILE.q], read(kind, KIND_OF_TILE.coordinates) * tile[TILE.width])
        prefetch(u, tile[TILE.u], structure.axes.size * tile[TILE.width])


@kernel
def tile_motion(zero, plan, number, turning, given):
    """Pass 1 of a tile; its boundary turns if `turning`."""
    q, u = given
    tile, kind, structure = opened(zero, plan, number)
    work = work_of(zero, plan, tile, structure)
    joint_places(zero, structure, tile_coordinates(zero, plan, tile, kind, q), work.place)
    if turning:
        turns = read(plan, PLAN.turns)
        room = room_of_lanes(zero, plan, tile, turns, TURNING)
        relative_turn(zero, structure, work, tile_speeds(zero, plan, tile, structure, u, read(plan, PLAN.u)), room)
        put_of_lanes(zero, plan, tile, room, turns, TURNING)


@kernel(inline=True)
def _motion(zero, plan, number, turning, given):
    _fetch_state(zero, plan, number + 1, given[0], given[1])
    tile_motion(zero, plan, number, turning, given)


@kernel
def motion(zero, plan, q, u):
    """Pass 1: the joint frames, and the boundary turn of every lane. With neighbours outboard, that of the subchain."""
    two = read(plan, PLAN.tip) == 0
    for_tiles(zero, plan, _motion, (q, u), two, False)
    if two:
        turns = read(plan, PLAN.turns)
        total = read(plan, PLAN.handles.turn)
        assign(total, span(turns, 0, TURNING))
        for lane in range(1, lanes_of(plan)):
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


@lanes_only
@kernel
def sweep_early(zero, plan):
    """Pass 2, while the boundary turn is not known: the inertias, E and W of the leading tile.

    An inward sweep with the loads of the last evaluation, which mean nothing.
    """
    if read(plan, PLAN.leading) < 0:
        return
    tile, _, structure = opened(zero, plan, read(plan, PLAN.leading))
    work = work_of(zero, plan, tile, structure)
    block, room = read(plan, PLAN.early_block), read(plan, PLAN.eliminated)
    inward(zero, structure, work, read(plan, PLAN.total), block, True, room)


@kernel(inline=True)
def _tile_loaded(zero, plan, number, q, u, tau, placed, loaded):
    """Structure and workspace of a tile, with velocity terms, and its joint forces if `loaded`; unless they are
    `placed`, its joints are."""
    tile, kind, structure = opened(zero, plan, number)
    work = work_of(zero, plan, tile, structure)
    q, u = tile_state(zero, plan, tile, kind, structure, q, u)
    if not placed:
        joint_places(zero, structure, q, work.place)
    velocity_terms(zero, structure, work, u, tile_omega(zero, plan, tile))
    total = read(plan, PLAN.total)
    if loaded:
        tau = tile_forces(zero, plan, tile, structure, tau)
        joint_forces(zero, structure, read(kind, KIND_OF_TILE.springs), q, u, tau, total)
    return structure, work, total


@kernel(inline=True)
def tile_loaded(zero, plan, number, q, u, tau):
    """Structure and workspace of a tile, with velocity terms, and its joint forces."""
    return _tile_loaded(zero, plan, number, q, u, tau, read(plan, PLAN.kept) == KEEP_ALL, True)


@kernel
def tile_inward(zero, plan, number, two_handles, given):
    """Pass 2 of a tile: the handle equations of its lanes."""
    structure, work, total = tile_loaded(zero, plan, number, given[0], given[1], given[2])
    tile, blocks = tile_of(plan, number), read(plan, PLAN.handles.blocks)
    block = room_of_lanes(zero, plan, tile, blocks, SIZE)
    inward(zero, structure, work, total, block, two_handles)
    put_of_lanes(zero, plan, tile, block, blocks, SIZE)


@kernel
def tile_gathered(zero, plan, number, given):
    """Pass 2 of a tile whose lanes hang by themselves: what each hands to the body that it hangs on [GATHERED]."""
    structure, work, total = tile_loaded(zero, plan, number, given[0], given[1], given[2])
    room = room_of_lanes(zero, plan, tile_of(plan, number), read(plan, PLAN.handles.blocks), GATHERED)
    inward(zero, structure, work, total, room, False, bare=room)


@lanes_only
@kernel
def _go_after(zero, plan, number, q, u, tau):
    """What `sweep_early` has left of the inward sweep of the leading tile."""
    structure, work, total = tile_loaded(zero, plan, number, q, u, tau)
    block = read(plan, PLAN.early_block)
    inward_after(zero, structure, work, total, read(plan, PLAN.eliminated), block, read(plan, PLAN.udot))
    put_of_lanes(zero, plan, tile_of(plan, number), block, read(plan, PLAN.handles.blocks), SIZE)


@kernel(inline=True)
def _inward(zero, plan, number, two_handles, given):
    q, u, tau, early = given
    _fetch_state(zero, plan, number - 1, q, u)
    if early and number == read(plan, PLAN.leading):
        _go_after(zero, plan, number, q, u, tau)
    else:
        tile_inward(zero, plan, number, two_handles, (q, u, tau))
    blocks, responses, scratch = read(plan, PLAN.handles.blocks), read(plan, PLAN.responses), read(plan, PLAN.scratch)
    for lane in lanes_inward(plan, tile_of(plan, number)):
        join_to_next(blocks, lane, responses, scratch, read(plan, PLAN.tip) == 0)


@kernel
def inward_sweep(zero, plan, q, u, tau, turn, early):
    """Pass 2: velocity terms, joint forces, the handle equations of every lane, joined from the last to the first.

    `early` says whether `sweep_early` has done its part of it.
    """
    _spread_omegas(plan, turn)
    for_tiles(zero, plan, _inward, (q, u, tau, early), read(plan, PLAN.tip) == 0, True)
    clear_far_handle(plan)


@kernel(inline=True)
def clear_far_handle(plan):
    """Clear what the joins of lanes have left of handle 2 of a subchain that has none."""
    blocks = read(plan, PLAN.handles.blocks)
    if read(plan, PLAN.tip) != 0 and lanes_of(plan) > 1:
        for i in range(TRANSFER, SIZE):
            blocks[i] = 0.0


@kernel
def tile_again(zero, plan, number, q, u, tau, load):
    """Make again what a tile has not kept from the inward sweep. Where that is all, the load f2 is known by now: the
    sweep with one handle does, in which f2 acts where the path to handle 2 ends."""
    nothing = read(plan, PLAN.kept) == KEEP_NOTHING
    structure, work, total = _tile_loaded(zero, plan, number, q, u, tau, False, nothing)
    if nothing:
        end = 6  # where nothing is outboard the load is zero
        if structure.path.size > 0:
            end += structure.path[structure.path.size - 1] * BIAS
        force = load6(zero, work.bias, end)
        store_numbers(zero, work.bias, end, add6(force, scale6(-1.0, load)))
        inward(zero, structure, work, total, read(plan, PLAN.lane_room), False)
        store_numbers(zero, work.bias, end, force)


@kernel(inline=True)
def tile_rates(zero, plan, number, q, u, rates):
    """Rates of the coordinates of a tile."""
    tile, kind, structure = opened(zero, plan, number)
    if read(kind, KIND_OF_TILE.plain):
        for k in range(structure.axes.size * width(zero)):
            rates[tile[TILE.q] + k] = u[tile[TILE.u] + k]
    else:
        q, here = tile_state(zero, plan, tile, kind, structure, q, u)
        nq, interleaved = read(kind, KIND_OF_TILE.coordinates), read(plan, PLAN.interleaved)
        room = room_side_by_side(zero, interleaved, rates, tile[TILE.q], nq, read(plan, PLAN.rates))
        coordinate_rates(zero, structure, q, here, room)
        put_in_sequence(zero, interleaved, room, rates, tile[TILE.q], nq)


@kernel
def tile_outward(zero, plan, number, two_handles, given):
    """Pass 3 of a tile, given A1 and f2 of its lanes."""
    q, u, tau, udot, rates = given
    tile, _, structure = opened(zero, plan, number)
    work = work_of(zero, plan, tile, structure)
    nu, interleaved = structure.axes.size, read(plan, PLAN.interleaved)
    acceleration, load = tile_ends(zero, plan, tile)
    if read(plan, PLAN.kept) != KEEP_ALL:
        tile_again(zero, plan, number, q, u, tau, load)
    room = room_side_by_side(zero, interleaved, udot, tile[TILE.u], nu, read(plan, PLAN.udot))
    outward(zero, structure, work, acceleration, load, two_handles and read(plan, PLAN.kept) != KEEP_NOTHING, room)
    put_in_sequence(zero, interleaved, room, udot, tile[TILE.u], nu)
    tile_rates(zero, plan, number, q, u, rates)


@kernel(inline=True)
def _alone(zero, plan, number, two_handles, given):
    tile_motion(zero, plan, number, False, given[0:2])
    tile_inward(zero, plan, number, False, given[0:3])
    tile_outward(zero, plan, number, False, given)


@kernel
def systems_alone(zero, plan, q, u, tau, udot, rates):
    """All passes for tiles whose lanes are systems of their own, on the world: one tile after the other."""
    for_tiles(zero, plan, _alone, (q, u, tau, udot, rates), False, False)


@kernel(inline=True)
def _outward(zero, plan, number, two_handles, given):
    q, u, _, udot, rates = given
    _fetch_state(zero, plan, number + 1, q, u)
    if read(plan, PLAN.kept) == KEEP_NOTHING and number + 1 < tiles_of(plan):
        tile, following = tile_of(plan, number), tile_of(plan, number + 1)
        prefetch(udot, following[TILE.u], following[TILE.u] - tile[TILE.u])
        prefetch(rates, following[TILE.q], following[TILE.q] - tile[TILE.q])
    tile_outward(zero, plan, number, two_handles, given)


@kernel
def outward_sweep(zero, plan, q, u, tau, udot, rates):
    """Pass 3: accelerations [nu] and rates of the coordinates [nq], given (A1, f2) of the subchain in the plan."""
    loads = read(plan, PLAN.loads)
    spread_loads(read(plan, PLAN.handles.blocks), read(plan, PLAN.responses), read(plan, PLAN.handles.loads), loads)
    for_tiles(zero, plan, _outward, (q, u, tau, udot, rates), read(plan, PLAN.tip) == 0, False)
