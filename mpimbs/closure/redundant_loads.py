"""Which loads are told of those that do the same: of redundant constraints, and of joints that are actuated.

Of the loads of loops that of least norm is told.
The norm is of moments, and of forces times the size of the loop: the same loads in whatever units.

What the loops' joints do to the motion is J^T m, of the loads m that their constraints carry. Where constraints are
redundant other loads do the same; that of least norm, J J^+ m, is the part of any of them in the range of J. The
motion stays as it is; what the tree's joints carry changes with the loads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
from scipy.sparse import block_array, csr_array, eye_array
from scipy.sparse.linalg import splu

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError
from mpimbs.closure.geometry import FORCE, BodyMotions, Held
from mpimbs.closure.jacobian import LoopJacobian

INDEPENDENT = 1e-10  # of the largest, and of the one that rows are scaled to, singular values that count
LEFT = 1e-7  # of the largest force, what actuators that can do the work leave by rounding
MOST = 4000  # speeds, and constraints, whose matrices are formed


class Actuation(NamedTuple):
    """Forces that make a motion."""

    tau: Floats  # [nu]: N m, N
    loads: Floats  # [loops, 6]: what loops carry beside, as `CarriedLoads.loops`
    unique: bool  # whether no other forces of these joints do the same


def actuation(
    constraints: LoopJacobian, q: Floats, needed: Floats, acting: npt.NDArray[np.bool_] | None = None
) -> Actuation:
    """Give the forces that a motion needs, in a state of a whole system with loops.

    Parameters
    ----------
    q : array [nq]
        In the model's order.
    needed : array [nu]
        Forces along the joints of the spanning tree that the motion needs, beside what acts.
    acting : bool array [nu], optional
        Which speeds have actuators; all by default.

    Raises
    ------
    InputError
        Those joints can't make the motion; or the system is too large.
    """
    bodies, nu = constraints.bodies(q), len(needed)
    here = constraints.at(q, bodies)
    if max(here.whole.shape) > MOST:
        raise InputError(f"inverse dynamics through loops is for up to {MOST} speeds and as many constraints of loops")
    size = float(np.ptp(bodies.origin, axis=0).max()) or 1.0
    units = np.where(constraints.subchain.structure.axes >= FORCE, size, 1.0)
    rows = here.whole.toarray() * (units / here.columns)  # constraints by speeds, in these units
    force, idle = needed * units, np.zeros(nu, bool) if acting is None else ~acting
    multipliers, least = np.zeros(len(rows)), INDEPENDENT * max(1.0, float(np.linalg.norm(rows, 2)))
    free = np.eye(len(rows))  # combinations of loads that are left
    if idle.any():
        passive = rows[:, idle].T
        multipliers = _least(passive, force[idle], least)
        left, largest = force[idle] - passive @ multipliers, np.abs(force).max(initial=0.0)
        if np.abs(left).max(initial=0.0) > LEFT * largest:
            k = int(np.flatnonzero(idle)[int(np.argmax(np.abs(left)))])
            body = int(np.searchsorted(constraints.system.offsets()[1], k, side="right")) - 1
            name, lacking = constraints.system.name_of(body), left[int(np.argmax(np.abs(left)))] / units[k]
            raise InputError(
                f"the joints that are actuated can't make this motion: that of body '{name}' lacks a force of "
                f"{lacking:.4g} (N m or N); name more joints"
            )
        free = null_space(passive)
    given = rows[:, ~idle].T @ free
    shared = bool(given.size) and float(np.linalg.norm(given, 2)) > least
    if shared:
        multipliers = multipliers + free @ _least(given, (force - rows.T @ multipliers)[~idle], least)
    tau = (force - rows.T @ multipliers) / units
    tau[idle] = 0.0
    joints = constraints.joints
    world = of_constraints(joints.loop, here.held, here.rows * multipliers).reshape(-1, 2, 3)
    loads = np.einsum("nji,npj->npi", bodies.rotation[joints.bodies[:, 1]], world).reshape(-1, 6)
    return Actuation(tau, loads, not shared)


def null_space(matrix: Floats) -> Floats:
    """An orthonormal basis of the displacements [columns, any] that rows scaled to about one say nothing of.

    Rows that are all rounding hold nothing: a joint that is doubled by a coaxial one has no others.
    """
    largest = float(np.linalg.norm(matrix, 2)) if matrix.size else 0.0
    if largest <= INDEPENDENT:
        return np.eye(matrix.shape[1])
    found: Floats = scipy.linalg.null_space(matrix, rcond=INDEPENDENT * max(1.0, 1.0 / largest))
    return found


def _least(matrix: Floats, right: Floats, least: float) -> Floats:
    """The solution of least squares and norm, without singular values up to the least that counts."""
    largest = float(np.linalg.norm(matrix, 2)) if matrix.size else 0.0
    if largest <= least:
        return np.zeros(matrix.shape[1])
    found: Floats = scipy.linalg.lstsq(matrix, right, cond=least / largest, lapack_driver="gelsd")[0]
    return found


GIVING = 1e-12  # how much constraints give way, beside rows scaled to about one
ROUNDS = 20
SPARSE = 300  # numbers, below which dense factors take less time


class Redistribution(NamedTuple):
    """Loop loads of least norm, and the changes that they make in the joints of the tree."""

    loads: Floats  # [loops, 6]: moment about and force at the joint's origin on the second body, in that body's frame
    joints: Floats  # [n, 6]: to be added to what bodies receive through their inboard joints; at their origins, in them


def of_least_norm(jacobian: csr_array, loads: Floats) -> Floats:
    """The part of loads of constraints [rows] in the range of their Jacobian [rows, nu], in whatever units of speed.

    It is what least squares J x = loads meet. What they leave, r, and x are of  r + J x = loads,  J^T r = GIVING (x - x
    before),  whose factors serve for all rounds: the method of multipliers, which decides on no rank.
    """
    rows, nu = jacobian.shape
    across: Any = (jacobian.toarray() if rows + nu < SPARSE else jacobian).T
    beyond, x, left = loads, np.zeros(nu), float(np.linalg.norm(across @ loads))
    if not left:
        return np.zeros_like(loads)
    if rows + nu < SPARSE:
        matrix: Any = np.block([[np.eye(rows), across.T], [across, -GIVING * np.eye(nu)]])
        solve: Callable[[Floats], Any] = functools.partial(scipy.linalg.lu_solve, scipy.linalg.lu_factor(matrix))
    else:
        matrix = block_array([[eye_array(rows), jacobian], [across, -GIVING * eye_array(nu)]], format="csc")
        solve = splu(matrix).solve
    for _ in range(ROUNDS):
        right = np.concatenate([loads, -GIVING * x])
        found = solve(right)
        found += solve(right - matrix @ found)
        last, left = left, float(np.linalg.norm(across @ found[:rows]))
        if left >= last:
            break
        beyond, x = found[:rows], found[rows:]
    return loads - beyond


def redistributed(constraints: LoopJacobian, q: Floats, loads: Floats) -> Redistribution:
    """Give the loads of least norm that do what given ones [loops, 6] do, in a state of a whole system.

    Parameters
    ----------
    q : array [nq]
        In the model's order.
    loads : array [loops, 6]
        As in `Redistribution`.
    """
    bodies, joints = constraints.bodies(q), constraints.joints
    here = constraints.at(q, bodies)
    held = here.held
    turned = bodies.rotation[joints.bodies[:, 1]]
    world = np.einsum("nij,npj->npi", turned, loads.reshape(-1, 2, 3))[joints.loop]
    carried = np.einsum("ni,ni->n", held.moment, world[:, 0]) + np.einsum("ni,ni->n", held.force, world[:, 1])
    least = of_least_norm(here.whole, carried / here.rows) * here.rows
    change = of_constraints(joints.loop, held, least - carried)
    local = np.einsum("nji,npj->npi", turned, change.reshape(-1, 2, 3)).reshape(-1, 6)
    return Redistribution(loads + local, _through_joints(constraints, bodies, held.origin, change))


def of_constraints(loop: Integers, held: Held, carried: Floats) -> Floats:
    """Moments and forces [loops, 6] of what constraints carry; world components."""
    found = np.zeros((len(held.origin), 6))
    np.add.at(found, loop, carried[:, None] * np.concatenate((held.moment, held.force), axis=1))
    return found


def _through_joints(constraints: LoopJacobian, bodies: BodyMotions, origin: Floats, loads: Floats) -> Floats:
    """Give the loads [n, 6] by which the tree's joints balance loads of loops [loops, 6], in world components."""
    about_world = loads.copy()
    about_world[:, :3] += np.cross(origin, loads[:, 3:])
    pair, parent = constraints.joints.bodies, constraints.system.parents()
    about_world[constraints.joints.gears.loop] = 0.0  # which act along joints, and not on bodies
    beyond = np.zeros((len(parent) + 1, 6))  # on all bodies from each on, about the world's origin; at last the world
    np.add.at(beyond, pair[:, 1], about_world)
    np.add.at(beyond, pair[:, 0], -about_world)
    if not about_world.any():
        return beyond[:-1]
    for body in np.flatnonzero(parent >= 0)[::-1].tolist():
        beyond[parent[body]] += beyond[body]
    carried = -beyond[:-1]
    carried[:, :3] -= np.cross(bodies.origin[:-1], carried[:, 3:])
    return np.einsum("nji,npj->npi", bodies.rotation[:-1], carried.reshape(-1, 2, 3)).reshape(-1, 6)
