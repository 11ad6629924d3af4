"""Inverse dynamics over the tiles of a subchain, and over the subtrees and the trunk of a tree: compiled.

The lanes of tiles in sequence are told how they begin to move by those before, and are handed loads by those behind.
Both are joined from what each lane does alone: how it moves while its handle 1 is held (`held_motion`), and what its
bodies need without what hangs beyond, which is added at last (`pass_on`). `plan` is the table of `parts.tiles.Tiles`,
in whose room for handle equations these stand.
"""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.layout import put_in_sequence, room_side_by_side, side_by_side_from
from mpimbs.kernels.memory import assign, read, schema, span
from mpimbs.kernels.tuples import load3, load6, load9, store_numbers
from mpimbs.kernels.widths import lanes_only
from mpimbs.parts.passes import (
    for_tiles,
    lanes_of,
    of_lanes,
    opened,
    put_of_lanes,
    room_of_lanes,
    tile_coordinates,
    tile_ends,
    tile_forces,
    tile_of,
    tile_omega,
    tile_speeds,
    tile_state,
    work_of,
)
from mpimbs.parts.pieces import SUBCHAIN, coordinates_of, speeds_of
from mpimbs.parts.subtree_passes import (
    SLOT,
    SUBTREES,
    forces_of_trunk,
    from_slots,
    give,
    of_trunk,
    take,
    tiles_in,
    to_slots,
)
from mpimbs.parts.tiles import KEEP_ALL, KIND_OF_TILE, PLAN, TILE
from mpimbs.spatial.vectors import add6, force_inward
from mpimbs.sweep.inverse import (
    MOVED,
    held_motion,
    join_held,
    motion_beyond,
    newton_euler,
    pass_on,
    prescribed_accelerations,
)
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.motion import joint_places, velocity_terms
from mpimbs.sweep.structure import BIAS, JUNCTION, Springs, Structure, Workspace
from mpimbs.sweep.walk import HANDED_ON, clear_gathered
from mpimbs.values.handles import item

_LOAD = 6  # numbers of what a lane and all behind it hand on


@kernel(inline=True)
def _without_wrenches(work, acting):
    """A workspace without wrenches, but where they are `acting`."""
    return Workspace(work.place, work.bias, work.pivot, span(work.wrench, 0, work.wrench.size * acting), work.junction)


@kernel(inline=True)
def _balance(zero, structure, springs, work, q, u, forces, total, acting, tau, onto=None):
    """Write the generalized forces [nu] of one piece whose steps accelerate; gives what handle 1 is handed.

    `forces` and `tau` may be the same; `total` [nu] is room. Not `acting`: no springs, dampers, torques, wrenches.
    """
    if acting != 0:
        joint_forces(zero, structure, springs, q, u, forces, total)
    none = (zero, zero, zero, zero, zero, zero)
    load1 = newton_euler(zero, structure, work, none, work.bias, BIAS, tau, onto)
    if acting != 0:
        for k in range(tau.size):
            tau[k] -= total[k]
    return load1


# --- tiles


@kernel
def _tile_held(zero, plan, number, moving, given):
    """Place the joints of a tile; where `moving`, find how its lanes move while they are held."""
    q, u, udot = given
    tile, kind, structure = opened(zero, plan, number)
    work = work_of(zero, plan, tile, structure)
    q, u = tile_state(zero, plan, tile, kind, structure, q, u)
    joint_places(zero, structure, q, work.place)
    if moving:
        held = read(plan, PLAN.handles.blocks)
        room = room_of_lanes(zero, plan, tile, held, MOVED)
        held_motion(zero, structure, work, u, _accelerations_of(zero, plan, tile, structure, udot), room)
        put_of_lanes(zero, plan, tile, room, held, MOVED)


@kernel(inline=True)
def _accelerations_of(zero, plan, tile, structure, udot):
    return tile_speeds(zero, plan, tile, structure, udot, read(plan, PLAN.udot))


@kernel
def _tile_needed(zero, plan, number, two_handles, given):
    """What a tile needs, given how its lanes begin to move: its own, and what it is handed from behind.

    What each lane hands on goes to `PLAN.responses`. From behind nothing comes to lanes that hang by themselves, nor to
    one alone.
    """
    q, u, udot, forces, tau, acting = given
    tile, kind, structure = opened(zero, plan, number)
    work = work_of(zero, plan, tile, structure)
    q, u = tile_state(zero, plan, tile, kind, structure, q, u)
    nu, interleaved = structure.axes.size, read(plan, PLAN.interleaved)
    if read(plan, PLAN.kept) != KEEP_ALL:
        joint_places(zero, structure, q, work.place)
    omega, ends = tile_omega(zero, plan, tile), tile_ends(zero, plan, tile)
    forces = tile_forces(zero, plan, tile, structure, forces)
    udot = _accelerations_of(zero, plan, tile, structure, udot)
    springs, total = read(kind, KIND_OF_TILE.springs), read(plan, PLAN.total)
    room = room_side_by_side(zero, interleaved, tau, tile[TILE.u], nu, read(plan, PLAN.tau))
    velocity_terms(zero, structure, _without_wrenches(work, acting), u, omega)
    prescribed_accelerations(zero, structure, work, udot, ends[0], work.bias, BIAS)
    load1 = _balance(zero, structure, springs, work, q, u, forces, total, acting, room)
    passed = read(plan, PLAN.responses)
    handed = room_of_lanes(zero, plan, tile, passed, _LOAD)
    store_numbers(zero, handed, 0, load1)
    put_of_lanes(zero, plan, tile, handed, passed, _LOAD)
    if read(plan, PLAN.on_bodies) == 0 and lanes_of(plan) > 1:
        _hand_on(plan, tile[TILE.lane], tile[TILE.width])
        pass_on(zero, structure, work, structure.path, _from_behind(zero, plan, tile), room, span(room, 0, 0))
    put_in_sequence(zero, interleaved, room, tau, tile[TILE.u], nu)


@kernel(inline=True)
def _from_behind(zero, plan, tile):
    """The loads that the lanes of a tile are handed from behind."""
    passed, first = read(plan, PLAN.responses), (tile[TILE.lane] + 1) * _LOAD
    return load6(zero, side_by_side_from(zero, 0, passed, first, _LOAD, read(plan, PLAN.lane_room)), 0)


@kernel
def _hand_on(plan, first, lanes):
    """Add to what each of some lanes hands on what it is handed from behind."""
    held, passed = read(plan, PLAN.handles.blocks), read(plan, PLAN.responses)
    for lane in range(first + lanes - 1, first - 1, -1):
        at, here = lane * MOVED, load6(0.0, passed, lane * _LOAD)
        behind = load6(0.0, passed, (lane + 1) * _LOAD)
        more = force_inward(load9(0.0, held, at), load3(0.0, held, at + 9), behind)
        store_numbers(0.0, passed, lane * _LOAD, add6(here, more))


@kernel
def _tile_passed(zero, plan, number, two_handles, given):
    """Add to the forces of a tile what it is handed from beyond its subchain."""
    q, tau = given
    tile, kind, structure = opened(zero, plan, number)
    work = work_of(zero, plan, tile, structure)
    if read(plan, PLAN.kept) != KEEP_ALL:
        joint_places(zero, structure, tile_coordinates(zero, plan, tile, kind, q), work.place)
    room = tile_speeds(zero, plan, tile, structure, tau, read(plan, PLAN.tau))
    pass_on(zero, structure, work, structure.path, _from_behind(zero, plan, tile), room, span(room, 0, 0))
    put_in_sequence(zero, read(plan, PLAN.interleaved), room, tau, tile[TILE.u], structure.axes.size)


@kernel
def hold(zero, plan, q, u, udot, joined):
    """Find how the lanes of a subchain move while they are held; where `joined`, all together as the first [MOVED]."""
    for_tiles(zero, plan, _tile_held, (q, u, udot), joined, False)
    if joined:
        held, total = read(plan, PLAN.handles.blocks), read(plan, PLAN.lane_room)
        assign(total, span(held, 0, MOVED))
        for lane in range(1, lanes_of(plan)):
            join_held(0.0, total, item(held, lane, MOVED), total)


@kernel
def need(zero, plan, q, u, udot, forces, tau, acting, omega, acceleration):
    """Write the generalized forces [nu] that a subchain needs, after `hold`; gives the load that handle 1 is handed.

    Parameters
    ----------
    omega, acceleration : tuple
        Of handle 1.
    """
    omegas, given, held = read(plan, PLAN.omegas), read(plan, PLAN.loads), read(plan, PLAN.handles.blocks)
    lanes = lanes_of(plan)
    for lane in range(lanes):
        store_numbers(0.0, omegas, 3 * lane, omega)
        store_numbers(0.0, given, 12 * lane, acceleration)
        if lane + 1 < lanes:
            at = lane * MOVED
            place, twist = (load9(0.0, held, at), load3(0.0, held, at + 9)), load6(0.0, held, at + 12)
            omega, acceleration = motion_beyond(
                omega, acceleration, place[0], place[1], twist, load6(0.0, held, at + 18)
            )
    passed = read(plan, PLAN.responses)
    for i in range(_LOAD):
        passed[lanes * _LOAD + i] = 0.0
    for_tiles(zero, plan, _tile_needed, (q, u, udot, forces, tau, acting), False, True)
    return load6(0.0, passed, 0)


@kernel
def pass_to(zero, plan, q, tau, load):
    """Add to the forces of a subchain, after `need`, what the load from beyond its handle 2 asks for."""
    passed, lanes = read(plan, PLAN.responses), lanes_of(plan)
    for k in range(lanes * _LOAD):
        passed[k] = 0.0
    store_numbers(0.0, passed, lanes * _LOAD, load)
    _hand_on(plan, 0, lanes)
    for_tiles(zero, plan, _tile_passed, (q, tau), False, False)


# --- trees


class TreePlan(NamedTuple):
    """Arguments of inverse dynamics of a tree on one rank, in compiled code."""

    structure: Structure  # of the trunk
    springs: Springs
    work: Workspace
    total: Floats  # [nu]: joint forces
    subtrees: Integers  # the table of `parts.lane_subtrees.LaneSubtrees`; empty where there are none


TREE = schema(TreePlan)


@lanes_only
@kernel
def _place_subtrees(zero, subtrees, q, u, udot, forces):
    """Take the rank's vectors, place the joints of the subtrees, and find how the lanes of stretches move while
    held."""
    if subtrees.size == 0:
        return
    p = read(subtrees, SUBTREES)
    take(p.q_index, q, p.q)
    take(p.u_index, u, p.u)
    take(p.u_index, udot, p.udot)
    if forces.size > 0:
        take(p.u_index, forces, p.tau)
    for number in range(tiles_in(p.tiles)):
        _tile_held(zero, p.tiles, number, False, (p.q, p.u, p.udot))
    for number in range(p.stretches.shape[0]):
        row = p.stretches[number]
        here = coordinates_of(row, p.q), speeds_of(row, p.u), speeds_of(row, p.udot)
        hold(zero, read(row, SUBCHAIN), here[0], here[1], here[2], False)


@lanes_only
@kernel
def _turn_subtrees(zero, subtrees, junction):
    """Take the angular velocities that subtrees begin with, which the slots have."""
    if subtrees.size == 0:
        return
    p = read(subtrees, SUBTREES)
    for number in range(tiles_in(p.tiles)):
        from_slots(zero, tile_of(p.tiles, number), p.slots, junction, 3, read(p.tiles, PLAN.omegas), 3)
    for number in range(p.stretches.shape[0]):
        row = p.stretches[number]
        for i in range(3):
            read(read(row, SUBCHAIN), PLAN.handles.turn)[9 + i] = junction[row[SLOT] * JUNCTION + HANDED_ON + i]


@lanes_only
@kernel
def _subtrees_needed(zero, subtrees, junction, forces, acting):
    """Write what subtrees need, where the slots have the accelerations that they begin with, and hand on their
    loads."""
    if subtrees.size == 0:
        return
    p = read(subtrees, SUBTREES)
    forces = span(p.tau, 0, p.tau.size if forces.size > 0 else 0)
    for number in range(tiles_in(p.tiles)):
        tile = tile_of(p.tiles, number)
        from_slots(zero, tile, p.slots, junction, 6, read(p.tiles, PLAN.loads), 12)
        _tile_needed(zero, p.tiles, number, False, (p.q, p.u, p.udot, forces, p.tau, acting))
        to_slots(zero, tile, p.sums, junction, of_lanes(zero, p.tiles, tile, read(p.tiles, PLAN.responses), _LOAD))
    for number in range(p.stretches.shape[0]):
        row = p.stretches[number]
        plan, at = read(row, SUBCHAIN), row[SLOT] * JUNCTION
        given = coordinates_of(row, p.q), speeds_of(row, p.u), speeds_of(row, p.udot), speeds_of(row, forces)
        begin = load3(0.0, read(plan, PLAN.handles.turn), 9), load6(0.0, junction, at + HANDED_ON)
        needed = speeds_of(row, p.tau)
        load1 = need(zero, plan, given[0], given[1], given[2], given[3], needed, acting, begin[0], begin[1])
        store_numbers(0.0, junction, at, add6(load6(0.0, junction, at), load1))


@lanes_only
@kernel
def _give_needed(zero, subtrees, tau):
    if subtrees.size > 0:
        p = read(subtrees, SUBTREES)
        give(p.u_index, p.tau, tau)


@kernel(merge=True)
def tree_needs(zero, plan, q, u, udot, forces, root, tau, acting):
    """Write the generalized forces [nu] that a tree on the world needs, whose root accelerates by `root`, 6 numbers."""
    p = read(plan, TREE)
    s, work = p.structure, p.work
    o = (0.0, 0.0, 0.0)
    _place_subtrees(zero, p.subtrees, q, u, udot, forces)
    own_q, own_u = of_trunk(zero, p.subtrees, q, u, False)
    _, accelerations = of_trunk(zero, p.subtrees, q, udot, True)
    joint_places(0.0, s, own_q, work.place)
    velocity_terms(0.0, s, _without_wrenches(work, acting), own_u, o)
    _turn_subtrees(zero, p.subtrees, work.junction)
    prescribed_accelerations(0.0, s, work, accelerations, root, work.bias, BIAS)
    clear_gathered(0.0, work.junction, o + o)
    _subtrees_needed(zero, p.subtrees, work.junction, forces, acting)
    given, needed = forces_of_trunk(zero, p.subtrees, forces), forces_of_trunk(zero, p.subtrees, tau)
    _balance(0.0, s, p.springs, work, own_q, own_u, given, p.total, acting, needed, True)
    _give_needed(zero, p.subtrees, tau)
