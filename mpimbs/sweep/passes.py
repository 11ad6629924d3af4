"""The passes of an evaluation over the tiles of a subchain, compiled: each runs over all tiles, one call.

A pass is given a `zero` of the number type of the lanes; a tile of one lane is swept in doubles. Between the lanes the
handle equations are joined as between ranks. `plan` and its items are those of `sweep.tiles.Tiles`.
"""

from __future__ import annotations

from mpimbs.spatial.compiler import kernel, kernel_overload
from mpimbs.spatial.handles import SIZE, TRANSFER, join_to_next, spread_loads
from mpimbs.spatial.lanes import Lanes, width
from mpimbs.spatial.layout import interleave, separate
from mpimbs.spatial.memory import assign, fetch_ahead, floats, integers
from mpimbs.spatial.vectors import load3, load6
from mpimbs.sweep.ahead import inward_after
from mpimbs.sweep.inward import inward
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.motion import coordinate_rates, join_turn, joint_places, relative_turn, velocity_terms
from mpimbs.sweep.outward import outward
from mpimbs.sweep.structure import BIAS, PIVOT, PLACE, TURNING, Springs, Structure, Workspace
from mpimbs.sweep.tiles import (
    ALL,
    BIAS_ROOM,
    FIRST_LANE,
    KIND,
    KIND_ITEMS,
    NOTHING,
    PIVOT_ROOM,
    PLACE_ROOM,
    PLAN_ITEMS,
    Q_AT,
    STEP_AT,
    TILE,
    U_AT,
    WIDTH,
)

STEPS, AXES, FIXED, PITCH, STIFFNESS, REST, DAMPING, TORQUE, COORDINATES, PLAIN = range(0, 2 * len(KIND_ITEMS), 2)
TILES, KINDS, TIP, KEPT, PLACES, BIASES, PIVOTS, JUNCTIONS, WRENCH, WRENCHES = range(0, 20, 2)
QS, US, TAUS, TOTALS, UDOTS, RATES, TURNS, OMEGAS, BLOCKS, RESPONSES, LOADS = range(20, 42, 2)
TURN, HANDLE_LOADS, LANE_ROOM, SCRATCH, LEADING, ELIMINATED, AHEAD_BLOCK = range(42, 2 * len(PLAN_ITEMS), 2)
_KIND = 2 * len(KIND_ITEMS)


def _side_by_side(zero, sequence, first, stride, room):
    """Numbers of a tile's lanes, `stride` of each, interleaved in `room`; of one lane, where they stand."""


@kernel_overload(_side_by_side)
def _overload_side_by_side(zero, sequence, first, stride, room):
    if isinstance(zero, Lanes):

        def lanes(zero, sequence, first, stride, room):
            interleave(zero, sequence, first, stride, stride, room)
            return room

        return lanes
    return lambda zero, sequence, first, stride, room: sequence[first : first + stride]


def _room(zero, sequence, first, stride, room):
    """Where a tile's lanes write `stride` numbers each: in `room`, or of one lane, where they are to stand."""


@kernel_overload(_room)
def _overload_room(zero, sequence, first, stride, room):
    if isinstance(zero, Lanes):
        return lambda zero, sequence, first, stride, room: room
    return lambda zero, sequence, first, stride, room: sequence[first : first + stride]


def _put(zero, room, sequence, first, stride):
    """Bring what the lanes wrote in `_room` to where it is to stand."""


@kernel_overload(_put)
def _overload_put(zero, room, sequence, first, stride):
    if isinstance(zero, Lanes):
        return lambda zero, room, sequence, first, stride: separate(zero, room, stride, sequence, first, stride)
    return lambda zero, room, sequence, first, stride: None


@kernel(inline=True)
def _kind(plan, tile):
    table = integers(plan, KINDS)
    return table[tile[KIND] * _KIND : (tile[KIND] + 1) * _KIND]


@kernel(inline=True)
def _structure(kind):
    steps = integers(kind, STEPS)
    return Structure(
        steps.reshape((steps.size // 8, 8)), integers(kind, AXES), floats(kind, FIXED), floats(kind, PITCH)
    )


@kernel(inline=True)
def _work(zero, plan, tile, structure):
    w = width(zero)
    m = structure.steps.shape[0] * w
    wrench = floats(plan, WRENCHES)
    if wrench.size > 0:
        wrench = _side_by_side(zero, wrench, tile[STEP_AT] * 6, structure.steps.shape[0] * 6, floats(plan, WRENCH))
    return Workspace(
        floats(plan, PLACES)[tile[PLACE_ROOM] : tile[PLACE_ROOM] + m * PLACE],
        floats(plan, BIASES)[tile[BIAS_ROOM] : tile[BIAS_ROOM] + m * BIAS],
        floats(plan, PIVOTS)[tile[PIVOT_ROOM] : tile[PIVOT_ROOM] + structure.axes.size * w * PIVOT],
        wrench,
        floats(plan, JUNCTIONS),
    )


@kernel(inline=True)
def _tile(plan, number):
    return integers(plan, TILES)[number * TILE : (number + 1) * TILE]


@kernel(inline=True)
def _count(plan):
    return plan[TILES + 1] // TILE


@kernel(inline=True)
def _coordinates(zero, plan, tile, kind, q):
    return _side_by_side(zero, q, tile[Q_AT], kind[COORDINATES], floats(plan, QS))


@kernel(inline=True)
def _speeds(zero, plan, tile, structure, u):
    return _side_by_side(zero, u, tile[U_AT], structure.axes.size, floats(plan, US))


@kernel(inline=True)
def _fetch_state(plan, number, q, u):
    """Ask for the state of a tile whose turn comes next, if nothing is kept: then the state comes from memory."""
    if plan[KEPT] == NOTHING and 0 <= number < _count(plan):
        tile = _tile(plan, number)
        kind = _kind(plan, tile)
        fetch_ahead(q, tile[Q_AT], kind[COORDINATES] * tile[WIDTH])
        fetch_ahead(u, tile[U_AT], kind[AXES + 1] * tile[WIDTH])


@kernel
def _tile_motion(zero, plan, tile, q, u, turning):
    kind = _kind(plan, tile)
    structure = _structure(kind)
    work = _work(zero, plan, tile, structure)
    joint_places(zero, structure, _coordinates(zero, plan, tile, kind, q), work.place)
    if turning:
        turns = floats(plan, TURNS)
        room = _room(zero, turns, tile[FIRST_LANE] * TURNING, TURNING, floats(plan, LANE_ROOM))
        relative_turn(zero, structure, work, _speeds(zero, plan, tile, structure, u), room)
        _put(zero, room, turns, tile[FIRST_LANE] * TURNING, TURNING)


@kernel
def motion(zero, plan, q, u):
    """Pass 1: the joint frames, and the boundary turn of every lane. With neighbours outboard, that of the subchain."""
    count = _count(plan)
    tip = plan[TIP] != 0
    for number in range(count):
        tile = _tile(plan, number)
        _fetch_state(plan, number + 1, q, u)
        if width(zero) > 1 and tile[WIDTH] > 1:
            _tile_motion(zero, plan, tile, q, u, True)
        else:
            _tile_motion(0.0, plan, tile, q, u, not tip or number + 1 < count)
    if not tip:
        turns = floats(plan, TURNS)
        total = floats(plan, TURN)
        assign(total, turns[0:TURNING])
        for lane in range(1, turns.size // TURNING):
            join_turn(0.0, total, turns[lane * TURNING : (lane + 1) * TURNING], total)


@kernel
def _spread_omegas(plan, turn):
    """Angular velocity of handle 1 of every lane, from that of the subchain in its boundary turn."""
    turns = floats(plan, TURNS)
    omegas = floats(plan, OMEGAS)
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
def _springs(kind):
    return Springs(floats(kind, STIFFNESS), floats(kind, REST), floats(kind, DAMPING), floats(kind, TORQUE))


@kernel(inline=True)
def _no_load(zero):
    return (zero, zero, zero, zero, zero, zero)


@kernel
def _tile_ahead(zero, plan, tile):
    """Inward sweep with the loads of the last evaluation, which mean nothing: for the inertias, E and W."""
    structure = _structure(_kind(plan, tile))
    work = _work(zero, plan, tile, structure)
    block, room = floats(plan, AHEAD_BLOCK), floats(plan, ELIMINATED)
    inward(zero, structure, work, floats(plan, TOTALS), _no_load(zero), block, True, room)


def go_ahead(zero, plan):
    """Pass 2, while the boundary turn is not known: the inertias of the leading tile."""


@kernel_overload(go_ahead)
def _overload_go_ahead(zero, plan):
    if isinstance(zero, Lanes):

        def lanes(zero, plan):
            if plan[LEADING] >= 0:
                _tile_ahead(zero, plan, _tile(plan, plan[LEADING]))

        return lanes
    return lambda zero, plan: None


@kernel(inline=True)
def _loaded(zero, plan, tile, q, u, tau):
    """Structure and workspace of a tile, with velocity terms, and its joint forces."""
    kind = _kind(plan, tile)
    structure = _structure(kind)
    work = _work(zero, plan, tile, structure)
    q = _coordinates(zero, plan, tile, kind, q)
    u = _speeds(zero, plan, tile, structure, u)
    if plan[KEPT] != ALL:
        joint_places(zero, structure, q, work.place)
    if tau.size > 0:
        tau = _side_by_side(zero, tau, tile[U_AT], structure.axes.size, floats(plan, TAUS))
    omega = _side_by_side(zero, floats(plan, OMEGAS), tile[FIRST_LANE] * 3, 3, floats(plan, LANE_ROOM))
    velocity_terms(zero, structure, work, u, load3(zero, omega, 0))
    total = floats(plan, TOTALS)
    joint_forces(zero, structure, _springs(kind), q, u, tau, total)
    return structure, work, total


@kernel
def _tile_inward(zero, plan, tile, q, u, tau, two_handles):
    structure, work, total = _loaded(zero, plan, tile, q, u, tau)
    blocks = floats(plan, BLOCKS)
    block = _room(zero, blocks, tile[FIRST_LANE] * SIZE, SIZE, floats(plan, LANE_ROOM))
    inward(zero, structure, work, total, _no_load(zero), block, two_handles)
    _put(zero, block, blocks, tile[FIRST_LANE] * SIZE, SIZE)


@kernel
def _tile_after(zero, plan, tile, q, u, tau):
    """What `_tile_ahead` has left of the inward sweep."""
    structure, work, total = _loaded(zero, plan, tile, q, u, tau)
    block = floats(plan, AHEAD_BLOCK)
    inward_after(zero, structure, work, total, floats(plan, ELIMINATED), block, floats(plan, UDOTS))
    _put(zero, block, floats(plan, BLOCKS), tile[FIRST_LANE] * SIZE, SIZE)


def go_after(zero, plan, tile, q, u, tau):
    """What `go_ahead` has left of the inward sweep of the leading tile."""


@kernel_overload(go_after)
def _overload_go_after(zero, plan, tile, q, u, tau):
    if isinstance(zero, Lanes):
        return lambda zero, plan, tile, q, u, tau: _tile_after(zero, plan, tile, q, u, tau)
    return lambda zero, plan, tile, q, u, tau: None


@kernel
def inward_sweep(zero, plan, q, u, tau, turn, ahead):
    """Pass 2: velocity terms, joint forces, the handle equations of every lane, joined from the last to the first.

    `ahead` says whether `go_ahead` has done its part of it.
    """
    _spread_omegas(plan, turn)
    blocks = floats(plan, BLOCKS)
    responses = floats(plan, RESPONSES)
    scratch = floats(plan, SCRATCH)
    lanes = blocks.size // SIZE
    two = plan[TIP] == 0
    count = _count(plan)
    for number in range(count - 1, -1, -1):
        tile = _tile(plan, number)
        _fetch_state(plan, number - 1, q, u)
        if ahead and number == plan[LEADING]:
            go_after(zero, plan, tile, q, u, tau)
        elif width(zero) > 1 and tile[WIDTH] > 1:
            _tile_inward(zero, plan, tile, q, u, tau, True)
        else:
            _tile_inward(0.0, plan, tile, q, u, tau, two or number + 1 < count)
        first = tile[FIRST_LANE]
        for lane in range(min(first + tile[WIDTH], lanes - 1) - 1, first - 1, -1):
            join_to_next(blocks, lane, responses, scratch, two)
    if not two and lanes > 1:
        for i in range(TRANSFER, SIZE):
            blocks[i] = 0.0


@kernel
def _again(zero, plan, tile, q, u, tau, load):
    """Make again what a tile has not kept from the inward sweep. Where that is all, the load f2 is known by now: the
    sweep with one handle, which begins with -f2, does."""
    kind = _kind(plan, tile)
    structure = _structure(kind)
    work = _work(zero, plan, tile, structure)
    q = _coordinates(zero, plan, tile, kind, q)
    u = _speeds(zero, plan, tile, structure, u)
    joint_places(zero, structure, q, work.place)
    omega = _side_by_side(zero, floats(plan, OMEGAS), tile[FIRST_LANE] * 3, 3, floats(plan, LANE_ROOM))
    velocity_terms(zero, structure, work, u, load3(zero, omega, 0))
    if plan[KEPT] == NOTHING:
        if tau.size > 0:
            tau = _side_by_side(zero, tau, tile[U_AT], structure.axes.size, floats(plan, TAUS))
        total = floats(plan, TOTALS)
        joint_forces(zero, structure, _springs(kind), q, u, tau, total)
        inward(zero, structure, work, total, load, floats(plan, LANE_ROOM), False)


@kernel
def _tile_outward(zero, plan, tile, q, u, tau, udot, rates, two_handles):
    kind = _kind(plan, tile)
    structure = _structure(kind)
    work = _work(zero, plan, tile, structure)
    nu = structure.axes.size
    nq = kind[COORDINATES]
    loads = _side_by_side(zero, floats(plan, LOADS), tile[FIRST_LANE] * 12, 12, floats(plan, LANE_ROOM))
    acceleration = load6(zero, loads, 0)
    load = load6(zero, loads, 6)
    if plan[KEPT] != ALL:
        _again(zero, plan, tile, q, u, tau, load)
    room = _room(zero, udot, tile[U_AT], nu, floats(plan, UDOTS))
    outward(zero, structure, work, acceleration, load, two_handles and plan[KEPT] != NOTHING, room)
    _put(zero, room, udot, tile[U_AT], nu)
    if kind[PLAIN]:
        for k in range(nu * width(zero)):
            rates[tile[Q_AT] + k] = u[tile[U_AT] + k]
    else:
        q = _coordinates(zero, plan, tile, kind, q)
        here = _speeds(zero, plan, tile, structure, u)
        room = _room(zero, rates, tile[Q_AT], nq, floats(plan, RATES))
        coordinate_rates(zero, structure, q, here, room)
        _put(zero, room, rates, tile[Q_AT], nq)


@kernel
def systems_alone(zero, plan, q, u, tau, udot, rates):
    """All passes for tiles whose lanes are systems of their own, on the world: one tile after the other."""
    for number in range(_count(plan)):
        tile = _tile(plan, number)
        if width(zero) > 1 and tile[WIDTH] > 1:
            _tile_motion(zero, plan, tile, q, u, False)
            _tile_inward(zero, plan, tile, q, u, tau, False)
            _tile_outward(zero, plan, tile, q, u, tau, udot, rates, False)
        else:
            _tile_motion(0.0, plan, tile, q, u, False)
            _tile_inward(0.0, plan, tile, q, u, tau, False)
            _tile_outward(0.0, plan, tile, q, u, tau, udot, rates, False)


@kernel
def outward_sweep(zero, plan, q, u, tau, udot, rates):
    """Pass 3: accelerations [nu] and rates of the coordinates [nq], given (A1, f2) of the subchain in the plan."""
    spread_loads(floats(plan, BLOCKS), floats(plan, RESPONSES), floats(plan, HANDLE_LOADS), floats(plan, LOADS))
    two = plan[TIP] == 0
    count = _count(plan)
    for number in range(count):
        tile = _tile(plan, number)
        _fetch_state(plan, number + 1, q, u)
        if plan[KEPT] == NOTHING and number + 1 < count:
            following = _tile(plan, number + 1)
            fetch_ahead(udot, following[U_AT], following[U_AT] - tile[U_AT])
            fetch_ahead(rates, following[Q_AT], following[Q_AT] - tile[Q_AT])
        if width(zero) > 1 and tile[WIDTH] > 1:
            _tile_outward(zero, plan, tile, q, u, tau, udot, rates, True)
        else:
            _tile_outward(0.0, plan, tile, q, u, tau, udot, rates, two or number + 1 < count)
