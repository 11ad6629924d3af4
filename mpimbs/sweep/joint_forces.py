"""Joint forces of the model: springs, dampers, constant torques, stops, servos, friction; the energy of the springs."""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import load, sqrt, store, width
from mpimbs.kernels.trigonometry import atan2
from mpimbs.kernels.tuples import load3, store_numbers
from mpimbs.spatial.vectors import add3, cross, dot3, quaternion_matrix, quaternion_product, rotate_back, scale3, sub3
from mpimbs.sweep.along_joints import add_bounded, add_stops
from mpimbs.sweep.motion import load_quaternion
from mpimbs.sweep.structure import FIRST_Q, FIRST_U, LAST_U, TURN

TINY = 1e-300  # added to a square, against 0 / 0


@kernel(inline=True)
def rotation_vector(q):
    """Rotation vector (rad), of length a at most pi, of a quaternion of any length; and (a / 2) / tan(a / 2).

    The angle is that of the squared quaternion, (w^2 - n^2, 2 w n), which is the same for q and -q; no branch.
    """
    v = q[1:4]
    n = sqrt(dot3(v, v) + TINY)
    angle = atan2(2.0 * q[0] * n, q[0] * q[0] - n * n)
    return scale3(angle / n, v), 0.5 * angle * q[0] / n


@kernel(inline=True)
def spring_moment(x, pull, half):
    """The moment of a spring that turns a body back, J^-T K x: minus the gradient of x . K x / 2 is this, reversed.

    J takes the rate of a rotation vector to the angular velocity in the body's components. Where K is one number times
    1, K x is along x, and nothing is added to it.

    Parameters
    ----------
    x : 3-tuple
        Rotation vector from rest (rad), of length a.
    pull : 3-tuple
        K x (N m).
    half : number
        (a / 2) / tan(a / 2).
    """
    across = cross(x, pull)
    bent = scale3((1.0 - half) / (dot3(x, x) + TINY), cross(x, across))
    return add3(pull, sub3(bent, scale3(0.5, across)))


@kernel(inline=True)
def twisted(zero, q, rest, item):
    """`rotation_vector` from rest of the quaternion that begins at `item`, in body components."""
    w = width(zero)
    r = load3(zero, rest, item + 1)
    back = (load(zero, rest, item * w), -r[0], -r[1], -r[2])
    return rotation_vector(quaternion_product(back, (load(zero, q, item * w),) + load3(zero, q, item + 1)))


@kernel(inline=True)
def deflection(zero, structure, step, q, rest):
    """Deflection of a step's joint from rest: one number per degree of freedom, six at most.

    An angle or displacement: the difference of coordinates. A quaternion: the rotation vector from rest, in body
    components; a free joint's position: the difference in the joint frame.
    """
    w = width(zero)
    item = structure.steps[step, FIRST_Q]
    count = structure.steps[step, LAST_U] - structure.steps[step, FIRST_U]
    linear = (zero, zero, zero)
    if structure.steps[step, TURN] == 4:
        if count == 6:
            linear = sub3(load3(zero, q, item + 4), load3(zero, rest, item + 4))
        return twisted(zero, q, rest, item)[0] + linear
    first = zero
    second = zero
    if count > 0:
        first = load(zero, q, item * w) - load(zero, rest, item * w)
    if count > 1:
        second = load(zero, q, (item + 1) * w) - load(zero, rest, (item + 1) * w)
    return (first, second, zero) + linear


@kernel(inline=True)
def _sprung(zero, stiffness, first):
    """Whether any of three degrees of freedom has a spring, in any lane."""
    total = 0.0
    for i in range(3 * width(zero)):
        total = total + abs(stiffness[first * width(zero) + i])
    return total != 0.0


@kernel(inline=True)
def _turned_by(zero, springs, first, x):
    """K x (N m) of a ball's rotation vector from rest, with all of K."""
    k = load3(zero, springs.stiffness, first)
    pull = (k[0] * x[0], k[1] * x[1], k[2] * x[2])
    if springs.cross.size == 0:
        return pull
    c = load3(zero, springs.cross, first)
    return add3(pull, (c[0] * x[1] + c[1] * x[2], c[0] * x[0] + c[2] * x[2], c[1] * x[0] + c[2] * x[1]))


@kernel(inline=True)
def _subtract(zero, total, first, pull):
    """Subtract a spring's pull from three generalized forces."""
    store_numbers(zero, total, first, sub3(load3(zero, total, first), pull))


@kernel
def joint_forces(zero, structure, springs, q, u, tau, total):
    """Write the generalized forces: `tau`, all but functions of the model that acts along joints.

    Angle or displacement: -k (q - rest). Quaternion: `spring_moment` of the rotation vector from rest. A free joint's
    position: -R^T K (r - rest).

    Parameters
    ----------
    tau, total : array [nu]
        Given and resulting generalized forces (N m, N); may be the same array.
    """
    w = width(zero)
    for d in range(structure.axes.shape[0]):
        x = zero
        if tau.size > 0:
            x = load(zero, tau, d * w)
        if springs.damping.size > 0:
            x = x + load(zero, springs.torque, d * w) - load(zero, springs.damping, d * w) * load(zero, u, d * w)
        store(total, d * w, x)
    if springs.stop_stiffness.size > 0:
        add_stops(zero, structure, springs, q, u, total)
    if springs.servo_torque.size > 0:
        add_bounded(zero, structure, springs, q, u, total)
    if springs.stiffness.size == 0:
        return
    for step in range(structure.steps.shape[0]):
        first = structure.steps[step, FIRST_U]
        last = structure.steps[step, LAST_U]
        item = structure.steps[step, FIRST_Q]
        if structure.steps[step, TURN] != 4:
            for d in range(first, last):
                j = (item + d - first) * w
                stretched = load(zero, q, j) - load(zero, springs.rest, j)
                store(total, d * w, load(zero, total, d * w) - load(zero, springs.stiffness, d * w) * stretched)
            continue
        if _sprung(zero, springs.stiffness, first):
            x, half = twisted(zero, q, springs.rest, item)
            _subtract(zero, total, first, spring_moment(x, _turned_by(zero, springs, first, x), half))
        if last == first + 6 and _sprung(zero, springs.stiffness, first + 3):
            k = load3(zero, springs.stiffness, first + 3)
            x = sub3(load3(zero, q, item + 4), load3(zero, springs.rest, item + 4))
            rotation = quaternion_matrix(load_quaternion(zero, q, item))
            _subtract(zero, total, first + 3, rotate_back(rotation, (k[0] * x[0], k[1] * x[1], k[2] * x[2])))


@kernel(inline=True)
def spring_energy(zero, structure, springs, step, q):
    """Energy (J) held by the springs of a step's joint: stiffness, rest and cross of `Springs`."""
    (stiffness, rest, cross), energy = springs, zero
    if stiffness.size == 0:
        return energy
    first = structure.steps[step, FIRST_U]
    x = deflection(zero, structure, step, q, rest)
    for d in range(first, structure.steps[step, LAST_U]):
        energy = energy + 0.5 * load(zero, stiffness, d * width(zero)) * x[d - first] * x[d - first]
    if structure.steps[step, TURN] == 4 and cross.size > 0:
        c = load3(zero, cross, first)
        energy = energy + c[0] * x[0] * x[1] + c[1] * x[0] * x[2] + c[2] * x[1] * x[2]
    return energy
