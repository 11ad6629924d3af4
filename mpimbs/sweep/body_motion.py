"""Poses and velocities of bodies in the world frame, and loads given in it as wrenches on steps: for body forces and
springs between bodies."""

from __future__ import annotations

import numpy as np

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.tuples import load3, load6, load9, store_numbers
from mpimbs.spatial.vectors import add3, add6, cross, multiply, rotate, rotate_back, transpose
from mpimbs.sweep.structure import BOUNDARY


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
