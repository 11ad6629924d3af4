"""Gears in the dense oracle: coordinates that are coupled, and loops, all at once."""

import copy

import numpy as np

from mpimbs.model import Gear, System
from mpimbs.model.contents import Contents
from mpimbs.model.system import contents_of
from oracles.dense import Array, Snapshot, dense_accelerations
from oracles.loops import carriers, closures, independent, joint_inertia, opened, with_multipliers


def gear_rows(system: System | Contents) -> Array:
    """What gears ask of the speeds of the tree, rows u = 0 [gears, nu]."""
    first = contents_of(system).offsets()[1]
    gears = [loop for loop in contents_of(system).loops if isinstance(loop, Gear)]
    rows = np.zeros((len(gears), system.nu))
    for row, gear in zip(rows, gears, strict=True):
        row[first[contents_of(system).index_of(gear.joint)]] += 1.0
        row[first[contents_of(system).index_of(gear.of)]] -= gear.ratio
    return rows


def geared(system: System | Contents, q: Array, u: Array, tau: Array) -> tuple[Array, Array]:
    """Accelerations [nu] of a tree with gears, and with loops that nothing drives, in a state that the loops allow; and
    the forces of the gears on the joints that follow [gears], which are unique."""
    tree, looped, gears = opened(system), copy.copy(contents_of(system)), gear_rows(system)
    joints = contents_of(system).loops.joints
    looped.loops = contents_of(system).loops.holding([loop for _, loop in joints], [ends for ends, _ in joints])
    state = Snapshot(tree, q, u)
    loops, inertia = closures(looped, state), joint_inertia(state, carriers(state))
    rows = np.vstack([gears, *(loop.rows() for loop in loops)])
    right = np.concatenate([np.zeros(len(gears)), *(loop.right_side() for loop in loops)])
    combined, _ = independent(rows)
    free = dense_accelerations(tree, q, u, tau, 0.0)
    udot, part = with_multipliers(inertia, combined.T @ rows, inertia @ free, combined.T @ right)
    return udot, (combined @ part)[: len(gears)].astype(float)
