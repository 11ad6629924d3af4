"""Augmented Lagrangian iterations as the paper has them: 7 accelerations of each body, Euler parameters, all at once.

Malczyk & Fraczek (2012), eq. 1 to 10, of hinges: matrices of the whole system, dense, with the norm of each body's
Euler parameters as one more constraint. Positions are those of the centers of mass in the world.
"""

import numpy as np
from scipy.spatial.transform import Rotation

from mpimbs.model import System
from mpimbs.model.contents import Contents
from mpimbs.model.system import contents_of
from oracles.dense import Array, Snapshot, cross_matrix
from oracles.loops import opened


def _hinges(system: System | Contents, at: Snapshot) -> list[tuple[int, int, Array, Array]]:
    """Of each joint: its two bodies, -1 the world; its place and its axis, in the world."""
    c, k = at.columns, at.kinematics
    found = [(int(c.parent[b]), b, k.origin[b], at.joint_frame[b] @ c.axis[b]) for b in range(at.n)]
    for loop, (a, b) in zip(contents_of(system).loops, system.contents.loops.ends.tolist(), strict=True):
        to_body = Rotation.from_quat(np.roll(loop.rotations[1], -1)).as_matrix()
        origin, rotation = (k.origin[b], k.rotation[b]) if b >= 0 else (np.zeros(3), np.eye(3))
        place = origin + rotation @ np.array(loop.positions[1])
        found.append((a, b, place, rotation @ to_body @ np.array(loop.axis)))
    return found


def iterate(
    system: System | Contents, q: Array, u: Array, tau: Array, penalty: float, count: int
) -> tuple[Array, Array]:
    """Accelerations of the joints [nu] after so many iterations, and how much the norms of Euler parameters change."""
    at = Snapshot(opened(system), q, u)
    k, n, c = at.kinematics, at.n, at.columns
    rotation, omega = k.rotation.astype(float), k.omega.astype(float)
    bodies = contents_of(system).bodies()
    masses, tensors, about_origin = np.zeros(n), np.zeros((n, 3, 3)), np.zeros(n)
    parameters, rates = np.zeros((n, 4)), np.zeros((n, 4))
    left = np.zeros((n, 3, 4))
    for b, body in enumerate(bodies):
        xx, yy, zz, xy, xz, yz = body.inertia
        masses[b], tensors[b] = body.mass, [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]
        arm = np.array(body.center_of_mass)
        about_origin[b] = (np.trace(tensors[b]) + 2.0 * body.mass * arm @ arm) / 3.0
        e = np.roll(Rotation.from_matrix(rotation[b]).as_quat(), 1)
        left[b] = np.column_stack((-e[1:], e[0] * np.eye(3) - cross_matrix(e[1:]).astype(float)))
        parameters[b], rates[b] = e, 0.5 * left[b].T @ (rotation[b].T @ omega[b])
    of_mass, of_inertia = penalty * masses.mean(), penalty * about_origin.mean()
    mass, force = np.zeros((7 * n, 7 * n)), np.zeros(7 * n)
    for b in range(n):
        place, turn, w = slice(7 * b, 7 * b + 3), slice(7 * b + 3, 7 * b + 7), rotation[b].T @ omega[b]
        mass[place, place], mass[turn, turn] = masses[b] * np.eye(3), 4.0 * left[b].T @ tensors[b] @ left[b]
        force[place] = masses[b] * np.array(system.gravity)
        force[turn] = -2.0 * left[b].T @ np.cross(w, tensors[b] @ w)
    rows, asked, weights, freed = [], [], [], []
    for number, (a, b, point, axis) in enumerate(_hinges(system, at)):
        shift, turned = np.zeros((3, 7 * n)), np.zeros((3, 7 * n))
        centripetal, whirl, relative = np.zeros(3), np.zeros(3), np.zeros(3)
        for body, sign in ((a, -1.0), (b, 1.0)):
            if body >= 0:
                arm = (point - k.com[body]).astype(float)
                spin = sign * rotation[body] @ (2.0 * left[body])
                shift[:, 7 * body : 7 * body + 3] = sign * np.eye(3)
                shift[:, 7 * body + 3 : 7 * body + 7] = -cross_matrix(arm).astype(float) @ spin
                turned[:, 7 * body + 3 : 7 * body + 7] = spin
                centripetal += sign * np.cross(omega[body], np.cross(omega[body], arm))
                relative += sign * omega[body]
        if a >= 0:
            whirl = np.cross(omega[a], relative)
        axis = axis.astype(float)
        across = np.linalg.svd(axis[None])[2][1:]
        rows += [shift, across @ turned]
        asked += [-centripetal, across @ whirl]
        weights += [np.full(3, of_mass), np.full(2, of_inertia)]
        if number < n:
            freed.append((axis @ turned, axis @ whirl))
            force += tau[number] * freed[-1][0]
    for b in range(n):
        row = np.zeros((1, 7 * n))
        row[0, 7 * b + 3 : 7 * b + 7] = parameters[b]
        rows, asked, weights = [*rows, row], [*asked, [-rates[b] @ rates[b]]], [*weights, [of_inertia]]
    jacobian, right, weight = np.concatenate(rows), np.concatenate(asked), np.concatenate(weights)
    matrix, multipliers = mass + jacobian.T @ (weight[:, None] * jacobian), np.zeros(len(right))
    for _ in range(count):
        found = np.linalg.solve(matrix, force + jacobian.T @ (weight * right - multipliers))
        multipliers += weight * (jacobian @ found - right)
    norms = jacobian[-n:] @ found - right[-n:]
    assert c.u_offset[-1] == n, "hinges alone"
    return np.array([row @ found - given for row, given in freed]), norms
