"""Inverse dynamics over the tiles of a subchain, and over the limbs and the trunk of a tree: compiled.

The lanes of tiles in sequence are told how they begin to move by those before, and are handed loads by those behind.
Both are joined from what each lane does alone: how it moves while its handle 1 is held (`held_motion`), and what its
bodies need without what hangs beyond, which is added at last (`pass_on`). `plan` is the table of `sweep.tiles.Tiles`,
in whose room for handle equations these stand.
"""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.handles import item
from mpimbs.spatial.lanes import width
from mpimbs.spatial.layout import put_in_sequence, room_side_by_side, side_by_side_from
from mpimbs.spatial.memory import Floats, Integers, assign, read, schema, span
from mpimbs.spatial.tuples import load3, load6, load9, store_numbers
from mpimbs.spatial.vectors import add6, force_inward
from mpimbs.spatial.widths import lanes_only
from mpimbs.sweep.inverse import (
    MOVED,
    carried_on,
    held_motion,
    join_held,
    newton_euler,
    pass_on,
    prescribed_accelerations,
)
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.limb_passes import LIMBS, SLOT, forces_of_trunk, from_slots, give, of_trunk, take, tiles_in
from mpimbs.sweep.motion import joint_places, velocity_terms
from mpimbs.sweep.passes import kind_of, tile_coordinates, tile_of, tile_speeds, tiles_of, work_of
from mpimbs.sweep.sequence import SUBCHAIN, coordinates_of, speeds_of
from mpimbs.sweep.structure import BIAS, JUNCTION, Springs, Structure, Workspace
from mpimbs.sweep.tiles import FIRST_LANE, KEEP_ALL, KIND_OF_TILE, PLAN, U_AT, WIDTH
from mpimbs.sweep.walk import HANDED_ON, clear_gathered

_LOAD = 6  # numbers of what a lane and all behind it hand on


@kernel(inline=True)
def _without_wrenches(work, acting):
    """A workspace without wrenches, but where they are `acting`."""
    return Workspace(work.place, work.bias, work.pivot, span(work.wrench, 0, work.wrench.size * acting), work.junction)


@kernel(inline=True)
def _balance(zero, structure, springs, work, q, u, forces, total, acting, tau, hung=None):
    """Write the generalized forces [nu] of one piece whose steps accelerate; gives what handle 1 is handed.

    `forces` and `tau` may be the same; `total` [nu] is room. Not `acting`: no springs, dampers, torques, wrenches.
    """
    if acting != 0:
        joint_forces(zero, structure, springs, q, u, forces, total)
    none = (zero, zero, zero, zero, zero, zero)
    load1 = newton_euler(zero, structure, work, none, work.bias, BIAS, tau, hung)
    if acting != 0:
        for k in range(tau.size):
            tau[k] -= total[k]
    return load1


# --- tiles


@kernel
def _tile_held(zero, plan, tile, q, u, udot, moving):
    """Place the joints of a tile; where `moving`, find how its lanes move while they are held."""
    kind = kind_of(plan, tile)
    structure = read(kind, KIND_OF_TILE.structure)
    work = work_of(zero, plan, tile, structure)
    joint_places(zero, structure, tile_coordinates(zero, plan, tile, kind, q), work.place)
    if moving:
        given = _accelerations_of(zero, plan, tile, structure, udot)
        held, first = read(plan, PLAN.blocks), tile[FIRST_LANE] * MOVED
        room = room_side_by_side(zero, 0, held, first, MOVED, read(plan, PLAN.lane_room))
        held_motion(zero, structure, work, tile_speeds(zero, plan, tile, structure, u), given, room)
        put_in_sequence(zero, 0, room, held, first, MOVED)


@kernel(inline=True)
def _accelerations_of(zero, plan, tile, structure, udot):
    interleaved, nu = read(plan, PLAN.interleaved), structure.axes.size
    return side_by_side_from(zero, interleaved, udot, tile[U_AT], nu, read(plan, PLAN.udot))


@kernel
def _tile_needed(zero, plan, tile, q, u, udot, forces, tau, acting, chained):
    """What a tile needs, given how its lanes begin to move: its own, and where `chained` what it is handed from behind.

    What each lane hands on goes to `PLAN.responses`, in sequence; or is given as the first of `PLAN.blocks`.
    """
    kind = kind_of(plan, tile)
    structure = read(kind, KIND_OF_TILE.structure)
    work = work_of(zero, plan, tile, structure)
    q, nu = tile_coordinates(zero, plan, tile, kind, q), structure.axes.size
    if read(plan, PLAN.kept) != KEEP_ALL:
        joint_places(zero, structure, q, work.place)
    hung, interleaved, first = read(plan, PLAN.hung), read(plan, PLAN.interleaved), tile[FIRST_LANE]
    lane_room = read(plan, PLAN.lane_room)
    omega = load3(zero, side_by_side_from(zero, hung, read(plan, PLAN.omegas), first * 3, 3, lane_room), 0)
    acceleration = load6(zero, side_by_side_from(zero, hung, read(plan, PLAN.loads), first * 12, 12, lane_room), 0)
    if forces.size > 0:
        forces = side_by_side_from(zero, interleaved, forces, tile[U_AT], nu, read(plan, PLAN.tau))
    speeds = tile_speeds(zero, plan, tile, structure, u)
    udot = _accelerations_of(zero, plan, tile, structure, udot)
    springs, total = read(kind, KIND_OF_TILE.springs), read(plan, PLAN.total)
    room = room_side_by_side(zero, interleaved, tau, tile[U_AT], nu, read(plan, PLAN.tau))
    velocity_terms(zero, structure, _without_wrenches(work, acting), speeds, omega)
    prescribed_accelerations(zero, structure, work, udot, acceleration, work.bias, BIAS)
    load1 = _balance(zero, structure, springs, work, q, speeds, forces, total, acting, room)
    if chained:
        passed = read(plan, PLAN.responses)
        handed = room_side_by_side(zero, 0, passed, first * _LOAD, _LOAD, lane_room)
        store_numbers(zero, handed, 0, load1)
        put_in_sequence(zero, 0, handed, passed, first * _LOAD, _LOAD)
        _hand_on(plan, first, tile[WIDTH])
        behind = side_by_side_from(zero, 0, passed, (first + 1) * _LOAD, _LOAD, lane_room)
        pass_on(zero, structure, work, load6(zero, behind, 0), room)
    else:
        store_numbers(zero, span(read(plan, PLAN.blocks), first * _LOAD, _LOAD * width(zero)), 0, load1)
    put_in_sequence(zero, interleaved, room, tau, tile[U_AT], nu)


@kernel
def _hand_on(plan, first, lanes):
    """Add to what each of some lanes hands on what it is handed from behind."""
    held, passed = read(plan, PLAN.blocks), read(plan, PLAN.responses)
    for lane in range(first + lanes - 1, first - 1, -1):
        at, here = lane * MOVED, load6(0.0, passed, lane * _LOAD)
        behind = load6(0.0, passed, (lane + 1) * _LOAD)
        more = force_inward(load9(0.0, held, at), load3(0.0, held, at + 9), behind)
        store_numbers(0.0, passed, lane * _LOAD, add6(here, more))


@kernel
def _tile_passed(zero, plan, tile, q, tau):
    """Add to the forces of a tile what it is handed from beyond its subchain."""
    kind = kind_of(plan, tile)
    structure = read(kind, KIND_OF_TILE.structure)
    work = work_of(zero, plan, tile, structure)
    if read(plan, PLAN.kept) != KEEP_ALL:
        joint_places(zero, structure, tile_coordinates(zero, plan, tile, kind, q), work.place)
    nu, interleaved = structure.axes.size, read(plan, PLAN.interleaved)
    passed, lane_room = read(plan, PLAN.responses), read(plan, PLAN.lane_room)
    behind = side_by_side_from(zero, 0, passed, (tile[FIRST_LANE] + 1) * _LOAD, _LOAD, lane_room)
    room = side_by_side_from(zero, interleaved, tau, tile[U_AT], nu, read(plan, PLAN.tau))
    pass_on(zero, structure, work, load6(zero, behind, 0), room)
    put_in_sequence(zero, interleaved, room, tau, tile[U_AT], nu)


@kernel
def hold(zero, plan, q, u, udot, joined):
    """Find how the lanes of a subchain move while they are held; where `joined`, all together as the first [MOVED]."""
    count = tiles_of(plan)
    for number in range(count):
        tile = tile_of(plan, number)
        if width(zero) > 1 and tile[WIDTH] > 1:
            _tile_held(zero, plan, tile, q, u, udot, True)
        else:
            _tile_held(0.0, plan, tile, q, u, udot, joined or count > 1)
    if joined:
        held, total = read(plan, PLAN.blocks), read(plan, PLAN.lane_room)
        assign(total, span(held, 0, MOVED))
        for lane in range(1, read(plan, PLAN.omegas).size // 3):
            join_held(0.0, total, item(held, lane, MOVED), total)


@kernel
def need(zero, plan, q, u, udot, forces, tau, acting, omega, acceleration):
    """Write the generalized forces [nu] that a subchain needs, after `hold`; gives the load that handle 1 is handed.

    Parameters
    ----------
    omega, acceleration : tuple
        Of handle 1.
    """
    omegas, given, held = read(plan, PLAN.omegas), read(plan, PLAN.loads), read(plan, PLAN.blocks)
    lanes = omegas.size // 3
    for lane in range(lanes):
        store_numbers(0.0, omegas, 3 * lane, omega)
        store_numbers(0.0, given, 12 * lane, acceleration)
        if lane + 1 < lanes:
            at = lane * MOVED
            place, twist = (load9(0.0, held, at), load3(0.0, held, at + 9)), load6(0.0, held, at + 12)
            omega, acceleration = carried_on(omega, acceleration, place[0], place[1], twist, load6(0.0, held, at + 18))
    passed = read(plan, PLAN.responses)
    for i in range(_LOAD):
        passed[lanes * _LOAD + i] = 0.0
    count = tiles_of(plan)
    for number in range(count - 1, -1, -1):
        tile = tile_of(plan, number)
        if width(zero) > 1 and tile[WIDTH] > 1:
            _tile_needed(zero, plan, tile, q, u, udot, forces, tau, acting, True)
        elif count > 1:
            _tile_needed(0.0, plan, tile, q, u, udot, forces, tau, acting, True)
        else:
            _tile_needed(0.0, plan, tile, q, u, udot, forces, tau, acting, False)
            return load6(0.0, held, 0)
    return load6(0.0, passed, 0)


@kernel
def pass_to(zero, plan, q, tau, load):
    """Add to the forces of a subchain, after `need`, what the load from beyond its handle 2 asks for."""
    passed, lanes = read(plan, PLAN.responses), read(plan, PLAN.omegas).size // 3
    for k in range(lanes * _LOAD):
        passed[k] = 0.0
    store_numbers(0.0, passed, lanes * _LOAD, load)
    _hand_on(plan, 0, lanes)
    for number in range(tiles_of(plan)):
        tile = tile_of(plan, number)
        if width(zero) > 1 and tile[WIDTH] > 1:
            _tile_passed(zero, plan, tile, q, tau)
        else:
            _tile_passed(0.0, plan, tile, q, tau)


# --- trees


class TreePlan(NamedTuple):
    """What inverse dynamics of a tree on one rank is given."""

    structure: Structure  # of the trunk
    springs: Springs
    work: Workspace
    total: Floats  # [nu]: joint forces
    limbs: Integers  # the table of `sweep.limbs.Limbs`; empty where there are none


TREE = schema(TreePlan)


@lanes_only
@kernel
def _place_limbs(zero, limbs, q, u, udot, forces):
    """Take the rank's vectors, place the joints of the limbs, and find how the lanes of stretches move while held."""
    if limbs.size == 0:
        return
    p = read(limbs, LIMBS)
    take(p.q_index, q, p.q)
    take(p.u_index, u, p.u)
    take(p.u_index, udot, p.udot)
    if forces.size > 0:
        take(p.u_index, forces, p.tau)
    for number in range(tiles_in(p.tiles)):
        _tile_held(zero, p.tiles, tile_of(p.tiles, number), p.q, p.u, p.udot, False)
    for number in range(p.stretches.shape[0]):
        row = p.stretches[number]
        here = coordinates_of(row, p.q), speeds_of(row, p.u), speeds_of(row, p.udot)
        hold(zero, read(row, SUBCHAIN), here[0], here[1], here[2], False)


@lanes_only
@kernel
def _turn_limbs(zero, limbs, junction):
    """Take the angular velocities that limbs begin with, which the slots have."""
    if limbs.size == 0:
        return
    p = read(limbs, LIMBS)
    for number in range(tiles_in(p.tiles)):
        from_slots(zero, tile_of(p.tiles, number), p.slots, junction, 3, read(p.tiles, PLAN.omegas), 3)
    for number in range(p.stretches.shape[0]):
        row = p.stretches[number]
        for i in range(3):
            read(read(row, SUBCHAIN), PLAN.turn)[9 + i] = junction[row[SLOT] * JUNCTION + HANDED_ON + i]


@lanes_only
@kernel
def _limbs_needed(zero, limbs, junction, forces, acting):
    """Write what limbs need, where the slots have the accelerations that they begin with, and hand on their loads."""
    if limbs.size == 0:
        return
    p = read(limbs, LIMBS)
    forces = span(p.tau, 0, p.tau.size if forces.size > 0 else 0)
    for number in range(tiles_in(p.tiles)):
        tile, gathered = tile_of(p.tiles, number), read(p.tiles, PLAN.blocks)
        from_slots(zero, tile, p.slots, junction, 6, read(p.tiles, PLAN.loads), 12)
        _tile_needed(zero, p.tiles, tile, p.q, p.u, p.udot, forces, p.tau, acting, False)
        first = tile[FIRST_LANE]
        for lane in range(width(zero)):
            for i in range(_LOAD):
                at = (first * _LOAD) + i * width(zero) + lane
                junction[p.sums[first + lane] * JUNCTION + i] += gathered[at]
    for number in range(p.stretches.shape[0]):
        row = p.stretches[number]
        plan, at = read(row, SUBCHAIN), row[SLOT] * JUNCTION
        given = coordinates_of(row, p.q), speeds_of(row, p.u), speeds_of(row, p.udot), speeds_of(row, forces)
        begin = load3(0.0, read(plan, PLAN.turn), 9), load6(0.0, junction, at + HANDED_ON)
        needed = speeds_of(row, p.tau)
        load1 = need(zero, plan, given[0], given[1], given[2], given[3], needed, acting, begin[0], begin[1])
        store_numbers(0.0, junction, at, add6(load6(0.0, junction, at), load1))


@lanes_only
@kernel
def _give_needed(zero, limbs, tau):
    if limbs.size > 0:
        p = read(limbs, LIMBS)
        give(p.u_index, p.tau, tau)


@kernel(merge=True)
def tree_needs(zero, plan, q, u, udot, forces, root, tau, acting):
    """Write the generalized forces [nu] that a tree on the world needs, whose root accelerates by `root`, 6 numbers."""
    p = read(plan, TREE)
    s, work = p.structure, p.work
    o = (0.0, 0.0, 0.0)
    _place_limbs(zero, p.limbs, q, u, udot, forces)
    own_q, own_u = of_trunk(zero, p.limbs, q, u, False)
    _, accelerations = of_trunk(zero, p.limbs, q, udot, True)
    joint_places(0.0, s, own_q, work.place)
    velocity_terms(0.0, s, _without_wrenches(work, acting), own_u, o)
    _turn_limbs(zero, p.limbs, work.junction)
    prescribed_accelerations(0.0, s, work, accelerations, root, work.bias, BIAS)
    clear_gathered(0.0, work.junction, o + o)
    _limbs_needed(zero, p.limbs, work.junction, forces, acting)
    given, needed = forces_of_trunk(zero, p.limbs, forces), forces_of_trunk(zero, p.limbs, tau)
    _balance(0.0, s, p.springs, work, own_q, own_u, given, p.total, acting, needed, True)
    _give_needed(zero, p.limbs, tau)
