"""The passes of an evaluation over limbs, the closed subtrees that are swept side by side: compiled.

A limb takes its angular velocity and its acceleration from the slot of the body that it hangs on, in the junctions of
the trunk, and hands its articulated inertia and bias force to it. `limbs` is the table of `sweep.limbs.Limbs`, or is
empty; nothing happens then, nor in doubles.
"""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.spatial.compiler import kernel, kernel_overload
from mpimbs.spatial.lanes import Lanes, width
from mpimbs.spatial.memory import Floats, Integers, read, schema
from mpimbs.sweep.passes import tile_gathered, tile_motion, tile_of, tile_outward, tiles_of
from mpimbs.sweep.structure import GATHERED, JUNCTION
from mpimbs.sweep.tiles import FIRST_LANE, PLAN
from mpimbs.sweep.walk import OUTWARD


class LimbsPlan(NamedTuple):
    """What the passes over limbs are given.

    The numbers of the limbs and of the trunk stand in vectors of their own: tile by tile, side by side in lanes, at
    last those of the trunk.
    """

    tiles: Integers  # the table of `sweep.tiles.Tiles`
    q_index: Integers  # [nq and more]: where each coordinate stands in the rank's vectors
    u_index: Integers  # [nu and more]
    q: Floats
    u: Floats
    tau: Floats
    udot: Floats
    rates: Floats
    slots: Integers  # [lanes]: of the body that each lane hangs on
    sums: Integers  # [lanes]: the same; of a lane that repeats another, one that nobody reads
    trunk_q: int  # where the trunk's coordinates begin
    trunk_u: int


LIMBS = schema(LimbsPlan)


@kernel(inline=True)
def _take(index, vector, own):
    for k in range(index.size):
        own[k] = vector[index[k]]


@kernel(inline=True)
def _give(index, own, vector):
    for k in range(index.size):
        vector[index[k]] = own[k]


@kernel(inline=True)
def _from_slots(zero, tile, slots, junction, count, room, numbers):
    """Write the first `count` of the `numbers` that each lane of a tile has in `room`: from what its slot hands on."""
    w = width(zero)
    first = tile[FIRST_LANE]
    for lane in range(w):
        at = slots[first + lane] * JUNCTION + OUTWARD
        for i in range(count):
            room[first * numbers + i * w + lane] = junction[at + i]


@kernel
def _move(zero, limbs, q, u):
    p = read(limbs, LIMBS)
    _take(p.q_index, q, p.q)
    _take(p.u_index, u, p.u)
    for number in range(tiles_of(p.tiles)):
        tile_motion(zero, p.tiles, tile_of(p.tiles, number), p.q, p.u, False)


@kernel
def _gather(zero, limbs, junction, tau):
    p = read(limbs, LIMBS)
    if tau.size > 0:
        _take(p.u_index, tau, p.tau)
        tau = p.tau[0 : p.tau.size]
    omegas, gathered = read(p.tiles, PLAN.omegas), read(p.tiles, PLAN.blocks)
    w = width(zero)
    for number in range(tiles_of(p.tiles) - 1, -1, -1):
        tile = tile_of(p.tiles, number)
        _from_slots(zero, tile, p.slots, junction, 3, omegas, 3)
        tile_gathered(zero, p.tiles, tile, p.q, p.u, tau)
        first = tile[FIRST_LANE]
        for lane in range(w):
            at = p.sums[first + lane] * JUNCTION
            for i in range(GATHERED):
                junction[at + i] += gathered[first * GATHERED + i * w + lane]


@kernel
def _accelerate(zero, limbs, junction, tau, udot, rates):
    p = read(limbs, LIMBS)
    if tau.size > 0:
        tau = p.tau[0 : p.tau.size]
    loads = read(p.tiles, PLAN.loads)
    for number in range(tiles_of(p.tiles)):
        tile = tile_of(p.tiles, number)
        _from_slots(zero, tile, p.slots, junction, 6, loads, 12)
        tile_outward(zero, p.tiles, tile, p.q, p.u, tau, p.udot, p.rates, False)
    _give(p.u_index, p.udot, udot)
    _give(p.q_index, p.rates, rates)


def move_limbs(zero, limbs, q, u):
    """Pass 1: take the rank's state, and the limbs' joint frames."""


@kernel_overload(move_limbs)
def _overload_move_limbs(zero, limbs, q, u):
    if isinstance(zero, Lanes):

        def lanes(zero, limbs, q, u):
            if limbs.size > 0:
                _move(zero, limbs, q, u)

        return lanes
    return lambda zero, limbs, q, u: None


def gather_limbs(zero, limbs, junction, tau):
    """Pass 2: hand what limbs weigh to the bodies that they hang on, whose angular velocities the slots have."""


@kernel_overload(gather_limbs)
def _overload_gather_limbs(zero, limbs, junction, tau):
    if isinstance(zero, Lanes):

        def lanes(zero, limbs, junction, tau):
            if limbs.size > 0:
                _gather(zero, limbs, junction, tau)

        return lanes
    return lambda zero, limbs, junction, tau: None


def accelerate_limbs(zero, limbs, junction, tau, udot, rates):
    """Pass 3: the limbs' accelerations and rates, where the slots have the accelerations of the bodies that they hang
    on; and give the rank's vectors these and the trunk's."""


@kernel_overload(accelerate_limbs)
def _overload_accelerate_limbs(zero, limbs, junction, tau, udot, rates):
    if isinstance(zero, Lanes):

        def lanes(zero, limbs, junction, tau, udot, rates):
            if limbs.size > 0:
                _accelerate(zero, limbs, junction, tau, udot, rates)

        return lanes
    return lambda zero, limbs, junction, tau, udot, rates: None


def of_trunk(zero, limbs, coordinates, speeds, written):
    """Give the trunk's part of vectors like q and u: its own, if there are limbs. `written`: accelerations and rates."""


@kernel_overload(of_trunk)
def _overload_of_trunk(zero, limbs, coordinates, speeds, written):
    if isinstance(zero, Lanes):

        def lanes(zero, limbs, coordinates, speeds, written):
            if limbs.size == 0:
                return coordinates[0 : coordinates.size], speeds[0 : speeds.size]
            p = read(limbs, LIMBS)
            if written:
                return p.rates[p.trunk_q : p.rates.size], p.udot[p.trunk_u : p.udot.size]
            return p.q[p.trunk_q : p.q.size], p.u[p.trunk_u : p.u.size]

        return lanes
    return lambda zero, limbs, coordinates, speeds, written: (coordinates, speeds)


def forces_of_trunk(zero, limbs, tau):
    """Give the trunk's part of the generalized forces, after `gather_limbs`; empty, where none are given."""


@kernel_overload(forces_of_trunk)
def _overload_forces_of_trunk(zero, limbs, tau):
    if isinstance(zero, Lanes):

        def lanes(zero, limbs, tau):
            if limbs.size == 0 or tau.size == 0:
                return tau[0 : tau.size]
            p = read(limbs, LIMBS)
            return p.tau[p.trunk_u : p.tau.size]

        return lanes
    return lambda zero, limbs, tau: tau
