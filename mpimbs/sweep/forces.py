"""Joint forces of the model: springs, dampers, constant torques; and the energy that the springs hold."""

from __future__ import annotations

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.lanes import atan2, load, sqrt, store, width
from mpimbs.spatial.vectors import (
    dot3,
    load3,
    quaternion_matrix,
    quaternion_product,
    rotate_back,
    scale3,
    sub3,
)
from mpimbs.sweep.motion import load_quaternion
from mpimbs.sweep.structure import FIRST_Q, FIRST_U, LAST_U, TURN


@kernel(inline=True)
def rotation_vector(q):
    """Rotation vector (rad) of a unit quaternion, of length at most pi."""
    v = q[1:4]
    n = sqrt(dot3(v, v))
    if n < 1e-12:
        return scale3(2.0 / q[0], v)
    if q[0] < 0.0:
        return scale3(-2.0 * atan2(n, -q[0]) / n, v)
    return scale3(2.0 * atan2(n, q[0]) / n, v)


@kernel(inline=True)
def deflection(zero, structure, step, q, rest):
    """Deflection of a step's joint from rest: one number per degree of freedom, six at most.

    An angle or displacement: the difference of coordinates. A quaternion: the rotation vector from rest, in body
    components; a free joint's position: the difference in the joint frame.
    """
    w = width(zero)
    turn = structure.steps[step, TURN]
    item = structure.steps[step, FIRST_Q]
    count = structure.steps[step, LAST_U] - structure.steps[step, FIRST_U]
    linear = (zero, zero, zero)
    if turn == 4:
        r = load_quaternion(zero, rest, item)
        angular = rotation_vector(quaternion_product((r[0], -r[1], -r[2], -r[3]), load_quaternion(zero, q, item)))
        if count == 6:
            linear = sub3(load3(zero, q, item + 4), load3(zero, rest, item + 4))
        return angular + linear
    first = zero
    second = zero
    if count > 0:
        first = load(zero, q, item * w) - load(zero, rest, item * w)
    if count > 1:
        second = load(zero, q, (item + 1) * w) - load(zero, rest, (item + 1) * w)
    return (first, second, zero) + linear


@kernel
def joint_forces(zero, structure, springs, q, u, tau, total):
    """Write the generalized forces: `tau`, constant torque, spring and damper of every degree of freedom.

    Angle or displacement: -k (q - rest). Quaternion: -k times the rotation vector from rest, which for one isotropic
    k is the gradient of k |rotation vector|^2 / 2. A free joint's position: -R^T K (r - rest).

    Parameters
    ----------
    tau, total : array [nu]
        Given and resulting generalized forces (N m, N); may be the same array.
    """
    w = width(zero)
    for step in range(structure.steps.shape[0]):
        first = structure.steps[step, FIRST_U]
        last = structure.steps[step, LAST_U]
        stretched = deflection(zero, structure, step, q, springs.rest)
        force = stretched
        if last - first == 6:
            k = load3(zero, springs.stiffness, first + 3)
            rotation = quaternion_matrix(load_quaternion(zero, q, structure.steps[step, FIRST_Q]))
            pull = (k[0] * stretched[3], k[1] * stretched[4], k[2] * stretched[5])
            force = stretched[0:3] + rotate_back(rotation, pull)
        for d in range(first, last):
            j = d - first
            x = load(zero, tau, d * w) + load(zero, springs.torque, d * w)
            x = x - load(zero, springs.damping, d * w) * load(zero, u, d * w)
            if j >= 3:
                x = x - force[j]
            else:
                x = x - load(zero, springs.stiffness, d * w) * force[j]
            store(total, d * w, x)


@kernel
def spring_energy(zero, structure, springs, q):
    """Energy (J) held by the springs of the joints."""
    energy = zero
    for step in range(structure.steps.shape[0]):
        first = structure.steps[step, FIRST_U]
        stretched = deflection(zero, structure, step, q, springs.rest)
        for d in range(first, structure.steps[step, LAST_U]):
            x = stretched[d - first]
            energy = energy + 0.5 * load(zero, springs.stiffness, d * width(zero)) * x * x
    return energy
