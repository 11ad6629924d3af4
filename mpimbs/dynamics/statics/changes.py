"""How loads on bodies change with displacements, as matrices of twists: what `stiffness` puts together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpimbs.base.arrays import Floats, cross_matrix

SERIES = 0.2  # rad, below which what the springs of balls divide by their angle is summed


def wrench_of(at: Floats, force: Floats) -> Floats:
    """Moments and forces [..., 6] of forces at points."""
    return np.concatenate((np.cross(at, force), force), axis=-1)


def velocity(at: Floats) -> Floats:
    """Give the matrix that takes a twist to the velocity of a point [3, 6]."""
    return np.hstack((-cross_matrix(at), np.eye(3)))


def moved_about(at: Floats, load: Floats) -> Floats:
    """Moments and forces at a point [6, any] as those about the point of all twists."""
    found = load.copy()
    found[:3] += cross_matrix(at) @ load[3:]
    return found


def of_force(at: Floats, force: Floats) -> Floats:
    """How a force that stays changes with its point, by the twist of that [6, 6]."""
    found = np.zeros((6, 6))
    found[:3] = -cross_matrix(force) @ velocity(at)
    return found


def ball_stiffness(diagonal: Sequence[float] | Floats, cross: Sequence[float] | Floats) -> Floats:
    """The matrix of a ball's spring [3, 3], of xx, yy, zz, and xy, xz, yz where any are given."""
    found = np.diag(np.asarray(diagonal, float))
    if len(cross):
        found[[0, 0, 1], [1, 2, 2]] = found[[1, 2, 2], [0, 0, 1]] = cross
    return found


def of_ball(x: Floats, matrix: Floats) -> tuple[Floats, Floats]:
    """The moment by which the spring K of a ball turns a body back from a rotation vector x [3], and its derivative by
    turns of the body [3, 3]; body components. See `sweep.joint_forces.spring_moment`."""
    a, pull, twist = float(np.linalg.norm(x)), matrix @ x, cross_matrix(x)
    if a < SERIES:
        c = 1 / 12 + a**2 / 720 + a**4 / 30240 + a**6 / 1209600
        slope = 1 / 360 + a**2 / 7560 + a**4 / 201600 + a**6 / 5987520
    else:
        half = 0.5 * a / np.tan(0.5 * a)
        c = (1.0 - half) / a**2
        slope = -2.0 * c / a**2 - (half / a - 0.25 * a / np.sin(0.5 * a) ** 2) / a**3
    inverse = np.eye(3) + 0.5 * twist + c * twist @ twist  # takes turns of the body to changes of x
    bent = twist @ twist @ pull
    changed = (
        inverse.T @ matrix + 0.5 * cross_matrix(pull) - c * (cross_matrix(twist @ pull) + twist @ cross_matrix(pull))
    )
    return inverse.T @ pull, (changed + slope * np.outer(bent, x)) @ inverse
