"""Poses and velocities of bodies in the world frame, and loads given in it as wrenches on steps: for body forces."""

from __future__ import annotations

import numpy as np

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.vectors import (
    add3,
    add6,
    cross,
    load3,
    load6,
    load9,
    motion_outward,
    multiply,
    rotate,
    rotate_back,
    store3,
    store6,
    store9,
    transpose,
)
from mpimbs.sweep.motion import MOTION, POSE, chain_frame_change, joint_twist
from mpimbs.sweep.structure import BOUNDARY, JUNCTION, PLACE, SINK, SOURCE


@kernel
def motions(zero, structure, work, u, boundary, out):
    """Write each step's motion: the frame change from the inertial frame to the step's, and its twist, in its frame.

    Parameters
    ----------
    boundary : array [BOUNDARY]
        Motion of handle 1.
    out : array [m * BOUNDARY]
        Rotation from inertial to step components, position of the step's origin in the inertial frame, twist.
    """
    rotation = load9(zero, boundary, 0)
    position = load3(zero, boundary, 9)
    twist = load6(zero, boundary, 12)
    store6(zero, work.junction, MOTION, twist)
    store9(zero, work.junction, POSE, rotation)
    store3(zero, work.junction, POSE + 9, position)
    for step in range(structure.steps.shape[0]):
        source = structure.steps[step, SOURCE]
        if source >= 0:
            twist = load6(zero, work.junction, source * JUNCTION + MOTION)
            rotation = load9(zero, work.junction, source * JUNCTION + POSE)
            position = load3(zero, work.junction, source * JUNCTION + POSE + 9)
        r = load9(zero, work.place, step * PLACE)
        p = load3(zero, work.place, step * PLACE + 9)
        rotation, position = chain_frame_change(rotation, position, r, p)
        twist = add6(motion_outward(r, p, twist), joint_twist(zero, structure, step, u))
        store9(zero, out, step * BOUNDARY, rotation)
        store3(zero, out, step * BOUNDARY + 9, position)
        store6(zero, out, step * BOUNDARY + 12, twist)
        sink = structure.steps[step, SINK]
        if sink >= 0:
            store6(zero, work.junction, sink * JUNCTION + MOTION, twist)
            store9(zero, work.junction, sink * JUNCTION + POSE, rotation)
            store3(zero, work.junction, sink * JUNCTION + POSE + 9, position)


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
        base = steps[k] * BOUNDARY
        to_step = load9(zero, motion, base)
        twist = load6(zero, motion, base + 12)
        point = load3(zero, points, 3 * k)
        omega = twist[0:3]
        store9(zero, rotation, 9 * k, transpose(multiply(load9(zero, frames, 9 * k), to_step)))
        store3(zero, position, 3 * k, add3(load3(zero, motion, base + 9), rotate_back(to_step, point)))
        store3(zero, angular_velocity, 3 * k, rotate_back(to_step, omega))
        store3(zero, velocity, 3 * k, rotate_back(to_step, add3(twist[3:6], cross(omega, point))))


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
        store6(zero, wrench, 6 * steps[k], add6(load6(zero, wrench, 6 * steps[k]), n + f))
    return -1
