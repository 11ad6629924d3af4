"""Energy and momentum of the bodies of a subchain, from their motions."""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import load, width
from mpimbs.kernels.tuples import load3, load6, load9
from mpimbs.spatial.vectors import add3, cross, dot3, dot6, rotate_back, scale3
from mpimbs.sweep.added import body_momentum
from mpimbs.sweep.structure import BODY, BOUNDARY, FIXED


@kernel
def rotor_energy(zero, structure, u):
    """Kinetic energy (J) of the rotors of the joints, which have no part in the momenta."""
    energy = zero
    if structure.armature.size > 0:
        for d in range(structure.axes.shape[0]):
            speed = load(zero, u, d * width(zero))
            energy = energy + 0.5 * load(zero, structure.armature, d * width(zero)) * speed * speed
    return energy


@kernel
def totals(zero, structure, gravity, motion):
    """Kinetic energy, potential energy of weight, linear and angular momentum.

    Parameters
    ----------
    gravity : 3-tuple
        In the inertial frame (m/s^2).
    motion : array [m * BOUNDARY]
        As `sweep.motion.motions` writes it.

    Returns
    -------
    (kinetic, potential, linear, angular)
        J, J (zero at the inertial origin), N s and N m s about the inertial origin, in the inertial frame.
    """
    kinetic = zero
    potential = zero
    linear = (zero, zero, zero)
    angular = (zero, zero, zero)
    for step in range(structure.steps.shape[0]):
        fixed = structure.steps[step, BODY] * FIXED
        h = load3(zero, structure.fixed, fixed + 18)
        m = load(zero, structure.fixed, (fixed + 21) * width(zero))
        rotation = load9(zero, motion, step * BOUNDARY)
        position = load3(zero, motion, step * BOUNDARY + 9)
        v = load6(zero, motion, step * BOUNDARY + 12)
        body = body_momentum(zero, structure, step, v)
        kinetic = kinetic + 0.5 * dot6(v, body)
        potential = potential - dot3(gravity, add3(scale3(m, position), rotate_back(rotation, h)))
        here = rotate_back(rotation, body[3:6])
        linear = add3(linear, here)
        angular = add3(angular, add3(rotate_back(rotation, body[0:3]), cross(position, here)))
    return kinetic, potential, linear, angular
