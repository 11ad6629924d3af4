"""Energy and momentum of states or of copies, as many side by side as there are lanes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import load, native_width, shared, width
from mpimbs.kernels.layout import side_by_side_from
from mpimbs.kernels.memory import Table, aligned_zeros, borrowed, read, schema
from mpimbs.kernels.tuples import add_numbers, load3, load18, load_like, store_numbers, zeros_like
from mpimbs.kernels.widths import by_width
from mpimbs.parts.passes import for_tiles, opened, tile_state
from mpimbs.parts.tiles import KIND_OF_TILE, PLAN, TILE
from mpimbs.spatial.vectors import add3, cross, dot3, dot6, rotate_back, scale3
from mpimbs.sweep.added import body_momentum
from mpimbs.sweep.build import Build
from mpimbs.sweep.joint_forces import spring_energy
from mpimbs.sweep.motion import joint_place, joint_twist, motion_after
from mpimbs.sweep.structure import BODY, BOUNDARY, FIRST_U, FIXED, JUNCTION, LAST_U, Springs, Structure
from mpimbs.sweep.walk import place_boundary, walk_outward

TOTALS = 8  # kinetic energy, potential energy, linear momentum 3, angular momentum 3


@kernel(inline=True)
def _rotor_energy(zero, structure, step, u):
    """Kinetic energy (J) of the rotors of a step's joint, which have no part in the momenta."""
    energy = zero
    if structure.armature.size > 0:
        for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
            speed = load(zero, u, d * width(zero))
            energy = energy + 0.5 * load(zero, structure.armature, d * width(zero)) * speed * speed
    return energy


@kernel(inline=True)
def _counted(zero, structure, step, state, given):
    springs, gravity, q, u, found = given
    r, p = joint_place(zero, structure, step, q)
    motion = motion_after(state, r, p, joint_twist(zero, structure, step, u))
    rotation, position, v = motion[0:9], motion[9:12], motion[12:18]
    fixed = structure.steps[step, BODY] * FIXED
    h = load3(zero, structure.fixed, fixed + 18)
    m = load(zero, structure.fixed, (fixed + 21) * width(zero))
    body = body_momentum(zero, structure, step, v)
    linear = rotate_back(rotation, body[3:6])
    angular = add3(rotate_back(rotation, body[0:3]), cross(position, linear))
    kinetic = 0.5 * dot6(v, body) + _rotor_energy(zero, structure, step, u)
    weight = dot3(gravity, add3(scale3(m, position), rotate_back(rotation, h)))
    own = (kinetic, spring_energy(zero, structure, springs, step, q) - weight) + linear + angular
    store_numbers(zero, found, 0, add_numbers(own, load_like(zero, found, 0, own)))
    return motion


@kernel
def totals(zero, structure, springs, gravity, junction, boundary, q, u, found):
    """Write kinetic and potential energy, linear and angular momentum of a piece [TOTALS].

    In J, J (of weight, zero at the inertial origin, and of the springs of joints), N s, and N m s about the inertial
    origin, in the inertial frame.

    Parameters
    ----------
    springs : tuple of arrays
        Stiffness, rest and cross of `Springs`.
    gravity : 3-tuple
        In the inertial frame (m/s^2).
    junction : array [junctions * JUNCTION]
        Room.
    boundary : array [k * BOUNDARY]
        Motions of what the piece hangs on.
    """
    first = load18(zero, boundary, 0)
    for slot in range(1, boundary.size // (BOUNDARY * width(zero))):
        place_boundary(zero, junction, slot, load18(zero, boundary, slot * BOUNDARY))
    store_numbers(zero, found, 0, zeros_like(zero, first[0:TOTALS]))
    walk_outward(zero, structure, junction, _counted, first, (springs, gravity, q, u, found))


# Numbers of a state up to which states stand side by side: a lone one takes as long so as in doubles, as long as what
# stands beside it stays in the caches.
_MOST = 1 << 15


class TotalsPlan(NamedTuple):
    """What is to be known of a piece for the totals of its states."""

    structure: Structure
    springs: Springs
    gravity: Floats  # [3]
    q: Floats  # room for those of states side by side; so are the following
    u: Floats
    boundary: Floats
    found: Floats
    junction: Floats


_PLAN = schema(TotalsPlan)


@kernel(inline=True)
def _of_all_lanes(s):
    """A structure that all lanes have in common."""
    return Structure(s.steps, s.axes, shared(s.fixed), shared(s.pitch), shared(s.armature), s.path, shared(s.added))


@kernel
def _put_beside(zero, values, states, first, room):
    """Put numbers of states, from the first on, side by side, the last ones in all lanes that are left; or the one
    there is in all."""
    w = width(zero)
    count = room.size // w
    for lane in range(w):
        at = min(first + lane, states - 1) * count if values.size > count else 0
        for i in range(count):
            room[i * w + lane] = values[at + i]
    return room


@kernel(inline=True)
def _beside(zero, values, states, first, room):
    if states < width(zero):
        return _put_beside(zero, values, states, first, room)
    count = room.size // width(zero)
    return side_by_side_from(zero, 0, values, first * count, count, room)


@kernel(inline=True)
def _keep(zero, room, states, first, found):
    for lane in range(min(width(zero), states)):
        for i in range(TOTALS):
            found[(first + lane) * TOTALS + i] = room[i * width(zero) + lane]


@kernel(merge=True)
def _of_states(zero, plan, boundary, q, u, found):
    p, boundary, q, u, found = read(plan, _PLAN), borrowed(boundary), borrowed(q), borrowed(u), borrowed(found)
    structure, gravity = _of_all_lanes(p.structure), load3(0.0, p.gravity, 0)
    springs = shared(p.springs.stiffness), shared(p.springs.rest), shared(p.springs.cross)
    states = found.size // TOTALS
    for group in range(0, states, width(zero)):
        first = max(min(group, states - width(zero)), 0)
        if group == 0 or boundary.size > p.boundary.size // width(zero):
            _put_beside(zero, boundary, states, first, p.boundary)
        here, there = _beside(zero, q, states, first, p.q), _beside(zero, u, states, first, p.u)
        totals(zero, structure, springs, gravity, p.junction, p.boundary, here, there, p.found)
        _keep(zero, p.found, states, first, found)


@kernel(inline=True)
def _of_tile(zero, plan, number, two_handles, given):
    gravity, at_rest, q, u, found = given
    tile, kind, structure = opened(zero, plan, number)
    q, u = tile_state(zero, plan, tile, kind, structure, q, u)
    own, room = read(kind, KIND_OF_TILE.springs), read(plan, PLAN.lane_room)
    springs = own.stiffness, own.rest, own.cross
    totals(zero, structure, springs, gravity, read(plan, PLAN.junction), shared(at_rest), q, u, room)
    _keep(zero, room, width(zero), tile[TILE.step] // structure.steps.shape[0], found)


@kernel(merge=True)
def _of_copies(zero, plan, gravity, at_rest, q, u, found):
    given = load3(0.0, gravity, 0), at_rest, borrowed(q), borrowed(u), borrowed(found)
    for_tiles(zero, plan, _of_tile, given, False, False)


# By the number of lanes: totals [states * TOTALS] of states of one piece, and of copies that are systems of their own.
_TOTALS_OF_STATES, TOTALS_OF_COPIES = by_width(_of_states), by_width(_of_copies)


class Totals:
    """Energy and momentum of one piece in states, as many side by side as there are lanes.

    Parameters
    ----------
    made : Build
    structure : Structure
        Of these bodies, with no more than rotors on axes that follow a given motion.
    gravity : array [3]
        m/s^2.
    coordinates, inboard : int
        Coordinates of the piece, bodies that it hangs on.
    """

    def __init__(self, made: Build, structure: Structure, gravity: Floats, coordinates: int, inboard: int) -> None:
        nu = len(structure.axes)
        self._width = native_width() if coordinates + nu <= _MOST else 1
        sizes = coordinates, nu, inboard * BOUNDARY, TOTALS, made.junctions * JUNCTION
        rooms = (aligned_zeros(size * self._width) for size in sizes)
        self._plan = Table(TotalsPlan(structure, made.springs, gravity, *rooms))

    def __call__(self, q: Floats, u: Floats, boundary: Floats) -> Floats:
        """Give them of states [states, TOTALS]; see `totals`.

        Parameters
        ----------
        q, u : array [states, nq], [states, nu]
        boundary : array [k * BOUNDARY], or [states, k * BOUNDARY]
            Motions of the bodies that it hangs on: in all of them, or in each.
        """
        found = np.empty((len(q), TOTALS))
        given = boundary.reshape(-1), q.reshape(-1), u.reshape(-1), found.reshape(-1)
        _TOTALS_OF_STATES[self._width](self._plan.data, *given)
        return found
