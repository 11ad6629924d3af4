"""Kinematics: joint frames, twists, velocity-dependent terms, poses, the rates of the coordinates. Outward sweeps."""

from __future__ import annotations

import math

import numpy as np

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import absolute, largest, load, sqrt, store, width
from mpimbs.kernels.trigonometry import sincos
from mpimbs.kernels.tuples import load3, load6, load9, load12, load18, store_numbers
from mpimbs.spatial.inertia import symmetric_times
from mpimbs.spatial.vectors import (
    add3,
    add6,
    add_along,
    cross,
    dot3,
    motion_outward,
    multiply,
    normalised,
    quaternion_matrix,
    quaternion_product,
    rotate,
    rotate_back,
    scale3,
    scale6,
    transpose,
    turn_z,
)
from mpimbs.sweep.structure import BIAS, BODY, BOUNDARY, FIRST_Q, FIRST_U, FIXED, LAST_U, PLACE, SLIDES, TURN
from mpimbs.sweep.walk import walk_outward, walk_path_outward

INFINITY = math.inf


@kernel
def make_quaternions_unit(zero, structure, q):
    """Scale every quaternion in `q` [nq] to unit length; return the largest | |quaternion| - 1 | found."""
    w = width(zero)
    deviation = zero
    for step in range(structure.steps.shape[0]):
        if structure.steps[step, TURN] == 4:
            first = structure.steps[step, FIRST_Q]
            square = zero
            for i in range(first, first + 4):
                x = load(zero, q, i * w)
                square = square + x * x
            length = sqrt(square)
            deviation = largest(deviation, absolute(length - 1.0))
            for i in range(first, first + 4):
                store(q, i * w, load(zero, q, i * w) / length)
    return deviation


@kernel
def broken_quaternion(first, q):
    """Give the first of the quaternions in `q` that has no direction, zero or not finite; -1 if all have one.

    `first` holds where each quaternion begins.
    """
    for k in range(first.shape[0]):
        i = first[k]
        square = q[i] * q[i] + q[i + 1] * q[i + 1] + q[i + 2] * q[i + 2] + q[i + 3] * q[i + 3]
        if not 0.0 < square < INFINITY:
            return k
    return -1


@kernel(inline=True)
def load_quaternion(zero, q, first):
    """Load a quaternion, made of unit length: the state may carry its rounding, the kinematics may not."""
    return normalised((load(zero, q, first * width(zero)),) + load3(zero, q, first + 1))


@kernel(inline=True)
def slide(zero, structure, step, q):
    """Translation of a joint (m), in the joint frame: its linear coordinates, and the pitch of its angle."""
    first = structure.steps[step, FIRST_U]
    last = structure.steps[step, LAST_U]
    item = structure.steps[step, FIRST_Q] + structure.steps[step, TURN]
    r = (zero, zero, zero, zero, zero, zero)
    for d in range(first, last):
        axis = structure.axes[d]
        if axis >= 3:
            r = add_along(r, axis, zero, load(zero, q, item * width(zero)))
            item += 1
        elif structure.steps[step, TURN] == 1:
            angle = load(zero, q, structure.steps[step, FIRST_Q] * width(zero))
            r = add_along(r, axis, load(zero, structure.pitch, d * width(zero)), angle)
    return r[3:6]


@kernel(inline=True)
def joint_place(zero, structure, step, q):
    """Frame change from a step's parent to the step, rotation and position, from the joint coordinates."""
    turn = structure.steps[step, TURN]
    first = structure.steps[step, FIRST_Q]
    body = structure.steps[step, BODY] * FIXED
    joint = load9(zero, structure.fixed, body)
    position = load3(zero, structure.fixed, body + 9)
    rotation = joint
    if turn == 1:
        s, c = sincos(load(zero, q, first * width(zero)))
        rotation = turn_z(s, c, joint)
    elif turn == 4:
        rotation = multiply(transpose(quaternion_matrix(load_quaternion(zero, q, first))), joint)
    if structure.steps[step, SLIDES]:
        position = add3(position, rotate_back(joint, slide(zero, structure, step, q)))
    return rotation, position


@kernel
def joint_places(zero, structure, q, place):
    """Write the frame change from each step's parent to the step, from the joint coordinates."""
    for step in range(structure.steps.shape[0]):
        rotation, position = joint_place(zero, structure, step, q)
        store_numbers(zero, place, step * PLACE, rotation)
        store_numbers(zero, place, step * PLACE + 9, position)


@kernel(inline=True)
def joint_twist(zero, structure, step, u):
    """Relative twist S u of a step's joint, in the step's frame."""
    v = (zero, zero, zero, zero, zero, zero)
    for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
        pitch = load(zero, structure.pitch, d * width(zero))
        v = add_along(v, structure.axes[d], pitch, load(zero, u, d * width(zero)))
    return v


@kernel(inline=True)
def chain_frame_change(first_rotation, first_position, rotation, position):
    """Frame change made of a first and a second one."""
    return multiply(rotation, first_rotation), add3(first_position, rotate_back(first_rotation, position))


@kernel(inline=True)
def motion_after(motion, rotation, position, twist):
    """Boundary motion beyond a frame change, given that before it, and the twist of what is beyond relative to that."""
    changed = chain_frame_change(motion[0:9], motion[9:12], rotation, position)
    return changed[0] + changed[1] + add6(motion_outward(rotation, position, motion[12:18]), twist)


@kernel
def join_motion(zero, left, right, out):
    """Write the boundary motion of two chains in sequence. Arrays of BOUNDARY numbers; `out` may be one of them."""
    beyond = load9(zero, right, 0), load3(zero, right, 9), load6(zero, right, 12)
    store_numbers(zero, out, 0, motion_after(load18(zero, left, 0), *beyond))


@kernel(inline=True)
def _turned(zero, structure, step, state, given):
    work, u = given
    r = load9(zero, work.place, step * PLACE)
    omega = add3(rotate(r, state[9:12]), joint_twist(zero, structure, step, u)[0:3])
    return multiply(r, state[0:9]) + omega


@kernel
def relative_turn(zero, structure, work, u, out):
    """Write the boundary turn of a subchain: the rotation from handle 1 to handle 2, and the angular velocity of handle
    2, in its frame, while handle 1 is held. `out` has TURNING numbers."""
    o = zero
    e = zero + 1.0
    held = (e, o, o, o, e, o, o, o, e, o, o, o)
    store_numbers(zero, out, 0, walk_path_outward(zero, structure, structure.path, _turned, held, (work, u)))


@kernel
def turn_along(zero, structure, work, u, path, before, out):
    """Write the turn of the last of a path's steps, given that of what the first hangs on; TURNING numbers both."""
    turn = walk_path_outward(zero, structure, path, _turned, load12(zero, before, 0), (work, u))
    store_numbers(zero, out, 0, turn)


@kernel
def join_turn(zero, left, right, out):
    """Write the boundary turn of two chains in sequence. Arrays of TURNING numbers; `out` may be one of them."""
    r = load9(zero, right, 0)
    omega = add3(rotate(r, load3(zero, left, 9)), load3(zero, right, 9))
    store_numbers(zero, out, 0, multiply(r, load9(zero, left, 0)))
    store_numbers(zero, out, 9, omega)


@kernel(inline=True)
def velocity_acceleration(zero, structure, step, r, position, omega, joint):
    """Velocity-dependent acceleration c of a step with the twist `joint` of its joint, and its angular velocity."""
    linear = rotate(r, cross(omega, cross(omega, position)))
    carried = rotate(r, omega)
    turned = add3(carried, joint[0:3])
    if structure.steps[step, SLIDES]:
        linear = add3(linear, cross(add3(carried, turned), joint[3:6]))
    return cross(carried, joint[0:3]) + linear, turned


@kernel(inline=True)
def _velocity_terms(zero, structure, step, omega, given):
    work, u = given
    r = load9(zero, work.place, step * PLACE)
    position = load3(zero, work.place, step * PLACE + 9)
    joint = joint_twist(zero, structure, step, u)
    c, omega = velocity_acceleration(zero, structure, step, r, position, omega, joint)
    store_numbers(zero, work.bias, step * BIAS, c)
    body = structure.steps[step, BODY] * FIXED
    a = load6(zero, structure.fixed, body + 12)
    h = load3(zero, structure.fixed, body + 18)
    bias = cross(omega, symmetric_times(a, omega)) + cross(omega, cross(omega, h))
    if work.wrench.size > 0:
        bias = add6(bias, scale6(-1.0, load6(zero, work.wrench, step * 6)))
    store_numbers(zero, work.bias, step * BIAS + 6, bias)
    return omega


@kernel
def velocity_terms(zero, structure, work, u, omega):
    """Write each step's velocity-dependent acceleration and bias force, given the angular velocity of handle 1.

    Accelerations are those of the frame's origin (not "spatial" ones), so no linear velocity enters: what a part
    of a system feels doesn't depend on how fast the whole of it moves, in rounding neither. With the parent's w, the
    joint's relative angular velocity j and sliding velocity s, all in the step's frame, and its origin's position r,

        c = (w x j,  w x (w x r) + (2 w + j) x s)         p = (w' x A w',  w' x (w' x h)) - f_external,   w' = w + j

    Parameters
    ----------
    omega : 3-tuple
        Angular velocity of handle 1 in its own frame (rad/s).
    """
    walk_outward(zero, structure, work.junction, _velocity_terms, omega, (work, u))


@kernel(inline=True)
def _moved(zero, structure, step, state, given):
    work, u, out = given
    r = load9(zero, work.place, step * PLACE)
    p = load3(zero, work.place, step * PLACE + 9)
    motion = motion_after(state, r, p, joint_twist(zero, structure, step, u))
    store_numbers(zero, out, step * BOUNDARY, motion)
    return motion


@kernel
def motions(zero, structure, work, u, boundary, out):
    """Write each step's motion: the frame change from the inertial frame to the step's, and its twist, in its frame.

    Parameters
    ----------
    boundary : array [BOUNDARY]
        Motion of handle 1; at rest at the origin, those of a chain's last step are its boundary motion.
    out : array [m * BOUNDARY]
        Rotation from inertial to step components, position of the step's origin in the inertial frame (m), twist.
    """
    walk_outward(zero, structure, work.junction, _moved, load18(zero, boundary, 0), (work, u, out))


@kernel
def coordinate_rates(zero, structure, q, u, rates):
    """Write the rates of the joint coordinates.

    An angle or displacement moves with its generalized speed; a quaternion by qdot = q (0, w) / 2, whose length is a
    constant of the exact motion; a free joint's position by R(q) v.
    """
    w = width(zero)
    for step in range(structure.steps.shape[0]):
        turn = structure.steps[step, TURN]
        item = structure.steps[step, FIRST_Q]
        first = structure.steps[step, FIRST_U]
        last = structure.steps[step, LAST_U]
        if turn == 4:
            omega = load3(zero, u, first)
            r = load(zero, q, item * w)
            v = load3(zero, q, item + 1)
            store(rates, item * w, -0.5 * (v[0] * omega[0] + v[1] * omega[1] + v[2] * omega[2]))
            store(rates, (item + 1) * w, 0.5 * (r * omega[0] + v[1] * omega[2] - v[2] * omega[1]))
            store(rates, (item + 2) * w, 0.5 * (r * omega[1] + v[2] * omega[0] - v[0] * omega[2]))
            store(rates, (item + 3) * w, 0.5 * (r * omega[2] + v[0] * omega[1] - v[1] * omega[0]))
            if last == first + 6:
                rotation = quaternion_matrix(load_quaternion(zero, q, item))
                store_numbers(zero, rates, item + 4, rotate(rotation, load3(zero, u, first + 3)))
        else:
            for d in range(first, last):
                store(rates, (item + d - first) * w, load(zero, u, d * w))


@kernel
def speeds_of_rates(zero, structure, q, rates, u):
    """Write the speeds whose coordinates change at given rates, but for what changes the length of a quaternion."""
    w = width(zero)
    for step in range(structure.steps.shape[0]):
        item = structure.steps[step, FIRST_Q]
        first = structure.steps[step, FIRST_U]
        last = structure.steps[step, LAST_U]
        if structure.steps[step, TURN] == 4:
            r = load(zero, q, item * w)
            v = load3(zero, q, item + 1)
            change = (load(zero, rates, item * w),) + load3(zero, rates, item + 1)
            turned = quaternion_product((r, -v[0], -v[1], -v[2]), change)
            store_numbers(zero, u, first, scale3(2.0 / (r * r + dot3(v, v)), turned[1:4]))
            if last == first + 6:
                rotation = quaternion_matrix(load_quaternion(zero, q, item))
                store_numbers(zero, u, first + 3, rotate_back(rotation, load3(zero, rates, item + 4)))
        else:
            for d in range(first, last):
                store(u, d * w, load(zero, rates, (item + d - first) * w))


@kernel(inline=True)
def _point_motion(zero, motion, step, point):
    """World to step frame components; angular velocity there; position and velocity of a point in the world frame."""
    base = step * BOUNDARY
    to_step = load9(zero, motion, base)
    twist = load6(zero, motion, base + 12)
    omega = twist[0:3]
    position = add3(load3(zero, motion, base + 9), rotate_back(to_step, point))
    return to_step, omega, position, rotate_back(to_step, add3(twist[3:6], cross(omega, point)))


@kernel
def ends_of_springs(zero, motion, steps, points, ends):
    """Write positions and velocities [n * 6] of points of bodies, in the world frame (m, m/s).

    `motion`, `steps` and `points` are as of `motions_of_points`.
    """
    for k in range(steps.size):
        _to_step, _omega, position, velocity = _point_motion(zero, motion, steps[k], load3(zero, points, 3 * k))
        store_numbers(zero, ends, 6 * k, position + velocity)


@kernel
def motions_of_points(zero, motion, steps, frames, points, rotation, position, angular_velocity, velocity):
    """Write poses of bodies and velocities of points of them, in the world frame.

    Parameters
    ----------
    motion : array [m * BOUNDARY]
        As `motions` writes it.
    steps : int64 array [n]
        The step that carries each body.
    frames : array [n * 9]
        Step frame components to body frame components.
    points : array [n * 3]
        In the steps' frames (m).
    rotation : array [n * 9]
        Written: body components to world components.
    position, angular_velocity, velocity : array [n * 3]
        Written, in world components: those of the points (m, rad/s, m/s).
    """
    for k in range(steps.size):
        to_step, omega, place, speed = _point_motion(zero, motion, steps[k], load3(zero, points, 3 * k))
        store_numbers(zero, rotation, 9 * k, transpose(multiply(load9(zero, frames, 9 * k), to_step)))
        store_numbers(zero, position, 3 * k, place)
        store_numbers(zero, angular_velocity, 3 * k, rotate_back(to_step, omega))
        store_numbers(zero, velocity, 3 * k, speed)


@kernel
def add_loads(zero, motion, steps, points, moment, force, wrench):
    """Add moments and forces at points of bodies to the wrenches on the steps; gives the first body whose load is not
    finite, or -1.

    Parameters
    ----------
    motion, steps, points
        As of `motions_of_points`.
    moment, force : array [n * 3]
        World components (N m, N).
    wrench : array [m * 6]
        On each step, at its origin, in its frame (N m, N).
    """
    for k in range(steps.size):
        to_step = load9(zero, motion, steps[k] * BOUNDARY)
        f = rotate(to_step, load3(zero, force, 3 * k))
        n = add3(rotate(to_step, load3(zero, moment, 3 * k)), cross(load3(zero, points, 3 * k), f))
        if not np.isfinite(f[0] + f[1] + f[2] + n[0] + n[1] + n[2]):
            return k
        store_numbers(zero, wrench, 6 * steps[k], add6(load6(zero, wrench, 6 * steps[k]), n + f))
    return -1
