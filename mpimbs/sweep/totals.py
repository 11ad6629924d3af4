"""Energy and momentum of the bodies of a piece: one walk outward."""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import load, width
from mpimbs.kernels.tuples import add_numbers, load3, load18, load_like, store_numbers, zeros_like
from mpimbs.spatial.vectors import add3, cross, dot3, dot6, rotate_back, scale3
from mpimbs.sweep.added import body_momentum
from mpimbs.sweep.joint_forces import spring_energy
from mpimbs.sweep.motion import joint_place, joint_twist, motion_after
from mpimbs.sweep.structure import BODY, BOUNDARY, FIRST_U, FIXED, LAST_U
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
