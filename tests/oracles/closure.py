"""Closed loops by plain formulas on the motion of the tree as the dense oracle gives it: what is open, what is free."""

import copy
from collections.abc import Iterator

import numpy as np

from mpimbs.model import Loop, System
from oracles.dense import Array, inverse_dynamics, kinematics, mass_matrix, rotation_of


def opened(system: System) -> System:
    """The tree of a system, without its loops."""
    tree = copy.copy(system)
    tree.loops = []
    return tree


AXES_HELD = {"fixed": [0, 1, 2], "revolute": [2], "spherical": []}  # those that both frames of a joint have in common
TURNS_HELD = {"fixed": (1, 1, 1), "revolute": (1, 1, 0), "spherical": (0, 0, 0)}


def relative_motion(system: System, q: Array, u: Array) -> Iterator[tuple[Loop, Array, Array, Array, Array]]:
    """Of each loop the second frame in the first: rotation, place (m), angular velocity, velocity (rad/s, m/s)."""
    motion = kinematics(opened(system), q, u)

    def end(k: int, position: tuple[float, ...], rotation: tuple[float, ...]) -> tuple[Array, Array, Array, Array]:
        turned = rotation_of(np.array(rotation))
        if k < 0:
            return turned, np.array(position), np.zeros(3), np.zeros(3)
        place = motion.origin[k] + motion.rotation[k] @ position
        speed = motion.com_velocity[k] + np.cross(motion.omega[k], place - motion.com[k])
        return motion.rotation[k] @ turned, place, motion.omega[k], speed

    for loop, ends in zip(system.loops, system.loop_bodies, strict=True):
        first, second = (end(*given) for given in zip(ends, loop.positions, loop.rotations, strict=True))
        components, apart = first[0].T, second[1] - first[1]
        drift = second[3] - first[3] - np.cross(first[2], apart)
        yield loop, components @ second[0], components @ apart, components @ (second[2] - first[2]), components @ drift


def violations(system: System, q: Array, u: Array) -> tuple[Array, Array]:
    """How far loops are from closed: what each joint holds, positions and speeds [loops, 6], turns before places.

    Of hinges about z, ball joints and fixed ones, in the joint frame on the first body.
    """
    found = np.zeros((2, len(system.loops), 6))
    for row, (loop, turned, place, turning, drift) in enumerate(relative_motion(system, q, u)):
        assert loop.type != "revolute" or loop.axis == (0, 0, 1)
        lean = sum((np.cross(np.eye(3)[k], turned[:, k]) for k in AXES_HELD[loop.type]), np.zeros(3))
        found[0, row] = *lean, *place
        found[1, row] = *(TURNS_HELD[loop.type] * turning), *drift
    return found[0], found[1]


def free_motions(system: System, q: Array) -> Array:
    """The speeds that keep all loops closed: an orthonormal basis [nu, mobility]."""
    columns = [violations(system, q, unit)[1].ravel() for unit in np.eye(system.nu)]
    _, sizes, directions = np.linalg.svd(np.array(columns).T)
    return directions[np.count_nonzero(sizes > 1e-9 * sizes[0]) :].T


def accelerations_at_rest(system: System, q: Array, tau: Array) -> Array:
    """Accelerations where nothing moves, by the motions that loops leave: what acts on them, over their inertia."""
    tree, free, still = opened(system), free_motions(system, q), np.zeros(system.nu)
    acting = free.T @ (tau - inverse_dynamics(tree, q, still, still))
    return free @ np.linalg.solve(free.T @ mass_matrix(tree, q) @ free, acting)
