"""Which of the loads of loops that do the same is told where constraints are redundant: that of least norm.

The norm is of moments, and of forces times the size of the loop: the same loads in whatever units.

What the loops' joints do to the motion is J^T m, of the loads m that their constraints carry. Where constraints are
redundant other loads do the same; that of least norm, J J^+ m, is the part of any of them in the range of J. The
motion stays as it is; what the tree's joints carry changes with the loads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import lsmr

from mpimbs.closure.geometry import BodyMotions, Held
from mpimbs.closure.jacobian import LoopJacobian

Floats = npt.NDArray[np.float64]

DENSE = 1000  # constraints of loops that hang together, up to which their Jacobian is decomposed
DEPENDENT = 1e-9  # singular values, of the largest, of combinations of constraints that say nothing new
ITERATED = 1e-14  # beyond
ROUNDS = 20  # times as many iterations as there are constraints, at the most


class Redistribution(NamedTuple):
    """What loads of least norm are, and what they change in the joints of the tree."""

    loads: Floats  # [loops, 6]: moment about and force at the joint's origin on the second body, in that body's frame
    joints: Floats  # [n, 6]: to be added to what bodies receive through their inboard joints; at their origins, in them


def of_least_norm(jacobian: csr_array, loads: Floats) -> Floats:
    """The part of loads of constraints [rows] in the range of their Jacobian [rows, nu], in whatever units of speed."""
    rows, nu = jacobian.shape
    below = np.full(nu, jacobian.nnz)
    edges = np.ones(jacobian.nnz), jacobian.indices + rows, np.append(jacobian.indptr, below)
    _, cluster = connected_components(csr_array(edges, shape=(rows + nu, rows + nu)), directed=False)
    found = np.empty_like(loads)
    order = np.argsort(cluster[:rows], kind="stable")
    for some in np.split(order, np.flatnonzero(np.diff(cluster[order])) + 1):
        part = jacobian[some]
        part = part[:, np.unique(part.indices)]
        found[some] = _projected(part, loads[some])
    return found


def _projected(jacobian: csr_array, loads: Floats) -> Floats:
    if not loads.any() or not jacobian.nnz:
        return np.zeros_like(loads)
    if len(loads) > DENSE:
        most = ROUNDS * len(loads)
        return np.asarray(jacobian @ lsmr(jacobian, loads, atol=ITERATED, btol=ITERATED, conlim=0, maxiter=most)[0])
    left, values, _ = np.linalg.svd(jacobian.toarray(), full_matrices=False)
    basis = left[:, values > DEPENDENT * values.max(initial=0.0)]
    return np.asarray(basis @ (basis.T @ loads))


def redistributed(constraints: LoopJacobian, q: Floats, loads: Floats) -> Redistribution:
    """Give the loads of least norm that do what given ones [loops, 6] do, in a state of a whole system.

    Parameters
    ----------
    constraints : LoopJacobian
    q : array [nq]
        In the model's order.
    loads : array [loops, 6]
        As in `Redistribution`.
    """
    here = constraints.at(q)
    held = here.held
    bodies, joints = constraints.bodies(q), constraints.joints
    turned = bodies.rotation[joints.bodies[:, 1]]
    world = np.einsum("nij,npj->npi", turned, loads.reshape(-1, 2, 3))[joints.loop]
    carried = np.einsum("ni,ni->n", held.moment, world[:, 0]) + np.einsum("ni,ni->n", held.force, world[:, 1])
    least = of_least_norm(here.whole, carried / here.rows) * here.rows
    change = of_constraints(joints.loop, held, least - carried)
    local = np.einsum("nji,npj->npi", turned, change.reshape(-1, 2, 3)).reshape(-1, 6)
    return Redistribution(loads + local, _through_joints(constraints, bodies, held.origin, change))


def of_constraints(loop: npt.NDArray[np.int64], held: Held, carried: Floats) -> Floats:
    """Moments and forces [loops, 6] of what constraints carry; world components."""
    found = np.zeros((len(held.origin), 6))
    np.add.at(found, loop, carried[:, None] * np.concatenate((held.moment, held.force), axis=1))
    return found


def _through_joints(constraints: LoopJacobian, bodies: BodyMotions, origin: Floats, loads: Floats) -> Floats:
    """What the tree's joints carry more [n, 6] so that loads of loops [loops, 6], world components, move nothing."""
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
