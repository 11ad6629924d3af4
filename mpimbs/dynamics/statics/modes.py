"""Modes: the lowest natural frequencies of a system about an equilibrium, and their shapes.

With M the inertia matrix and K the stiffness, the derivative of the forces that hold the system still by displacements
along its speeds, K x = w^2 M x. Dampers are left out. K is never asked of anybody: it is found by differences of order
eight of inverse dynamics (of trees) or of accelerations (where loops are closed, on displacements that they allow).

Where K is positive definite the largest 1 / w^2 of M x = (1 / w^2) K x are found: of rods and chains M is far worse
conditioned than K. By dense matrices; of large trees by Lanczos, with K^-1 by conjugate gradients. Near to K is what
springs make of it, where all joints have some; else the matrix of implicit steps, which counts the tension of lines
too, of a very long step. So they take some iterations, a thousand links or a million.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg
from scipy.sparse.linalg import LinearOperator, cg, eigsh

from mpimbs.base.arguments import check_kinds
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.closure.geometry import FORCE
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.operators.tension import Tension
from mpimbs.parallel.agreement import on_root
from mpimbs.parallel.gather import Gather
from mpimbs.parallel.largest import greatest

Floats = npt.NDArray[np.float64]

DENSE = 1000  # speeds, beyond which K and M are not formed where Lanczos will do
MOST = 4000  # speeds, beyond which they never are
REACH = 0.05  # rad and m, of the differences, summed over the joints
WEIGHTS = (4 / 5, -1 / 5, 4 / 105, -1 / 280)  # of differences over 1, 2, 3, 4 steps to either side
STILL = 1e-6  # rad, and of the size of the system, to the equilibrium
LONG = 1e3  # s, of a step whose matrix is nearly that of the stiffness
SOLVED = 1e-13  # of K x = b, relative
ROUNDS = 2  # of conjugate gradients, times the number of speeds


class Modes(NamedTuple):
    """The lowest modes of a system, in the model's order; the same on all ranks."""

    squares: Floats  # [modes]: 1/s^2, of angular frequencies; negative where the equilibrium is not stable
    shapes: Floats  # [modes, nu]: speeds of each, of kinetic energy 1/2 J

    @property
    def frequencies(self) -> Floats:
        """Hz [modes]; of what grows its rate over 2 pi, as a negative number (1/s)."""
        found: Floats = np.sign(self.squares) * np.sqrt(np.abs(self.squares)) / (2 * np.pi)
        return found


def modes(dynamics: Dynamics, q: npt.ArrayLike, count: int = 10) -> Modes:
    """Find the lowest modes about an equilibrium; all ranks call.

    Functions of the model are taken at time 0, joints that follow given motions stay where they are then.

    Parameters
    ----------
    dynamics : Dynamics
    q : array [nq]
        This rank's coordinates.
    count : int
        How many modes, at the most.

    Raises
    ------
    InputError
        On all ranks: the state is no equilibrium, or none; no such number of modes; nothing can move;
        a system with loops, or one that is not stable,
        that is too large.
    SimulationError
        On all ranks: a function of the model failed, or an iteration does not converge.
    """
    check_kinds(modes, {"dynamics": dynamics, "count": count})
    if count < 1:
        raise InputError(f"count must be a number of modes from 1 on, got {count}")
    q, still, _ = dynamics.agreed(q, np.zeros(dynamics.subchain.nu))
    q, _ = dynamics.followed(0.0, q.copy(), still)
    space = _Displacements(dynamics, q)
    n, looped = dynamics.system.nu, dynamics.loops is not None
    if looped and n > MOST:
        raise InputError(
            f"system '{dynamics.system.name}' has loops and {n} speeds; modes of such have {MOST} at the most"
        )
    with dynamics.external.motions.resting():
        if n > DENSE and not looped:
            try:
                return _by_lanczos(space, count)
            except SimulationError:  # not stable, perhaps
                if n > MOST:
                    raise
        return _dense(space, count)


def units_of(dynamics: Dynamics, q: Floats) -> Floats:
    """Give what changes along this rank's speeds are measured by [nu]: 1 rad, or the size of the system (m).

    That is the longest edge of a box around the origins and centres of mass of all bodies in a state; 1 m of a point.
    All ranks call.
    """
    subchain = dynamics.subchain
    rotations, origins = dynamics.poses(q, np.zeros(subchain.nu))
    centers = origins + np.einsum("nij,nj->ni", rotations, subchain.columns.center_of_mass)
    points = np.concatenate((origins, centers))
    ends = greatest(dynamics.comm, np.stack((points.max(axis=0), -points.min(axis=0))))
    size = float(ends.sum(axis=0).max())
    return np.where(subchain.structure.axes >= FORCE, size or 1.0, 1.0)


class _Displacements:
    """A system near a state: whole vectors are in the model's order, the same on all ranks."""

    def __init__(self, dynamics: Dynamics, q: Floats) -> None:
        self.dynamics, self._q = dynamics, q
        self._part = dynamics.gather_u.part
        self.nu = dynamics.system.nu
        self._units = self.whole(units_of(dynamics, q))
        self.moving = np.flatnonzero(self.whole(np.where(dynamics.subchain.columns.prescribed, 0.0, 1.0)))
        if not len(self.moving):
            raise InputError(f"system '{dynamics.system.name}' has no modes: nothing can move")

    def whole(self, part: Floats) -> Floats:
        """Put the ranks' parts of a vector together."""
        gathered = self.dynamics.gather_u(part)
        found = np.empty(self.nu) if gathered is None else gathered
        self.dynamics.comm.Bcast(found)
        return found

    def gathered(self, rows: Floats) -> Floats | None:
        """Put rows [nu here, any] together, on rank 0."""
        found = Gather(self.dynamics.comm, self.dynamics.model_order["u"], rows.shape[1])(rows)
        return None if found is None else found.reshape(-1, rows.shape[1])

    def holding(self, q: Floats) -> Floats:
        """Forces that hold these coordinates still; this rank's."""
        still = np.zeros(self.dynamics.subchain.nu)
        return self.dynamics.inverse_dynamics(q, still, still)

    def accelerated(self, q: Floats) -> Floats:
        """Accelerations from rest, reversed; this rank's."""
        return -self.dynamics.accelerations(q, np.zeros(self.dynamics.subchain.nu))

    def change(self, of: Callable[[Floats], Floats], along: Floats) -> Floats:
        """Derivative of something [nu] of this rank along a whole displacement."""
        size = float(np.abs(along).sum())
        if size == 0.0:
            return np.zeros(self.dynamics.subchain.nu)
        step, part = REACH / 4 / size, along[self._part]
        displaced = self.dynamics.subchain.displaced
        sides = (
            weight * (of(displaced(self._q, k * step * part)) - of(displaced(self._q, -k * step * part)))
            for k, weight in enumerate(WEIGHTS, 1)
        )
        return sum(sides, np.zeros(len(part))) / step

    def here(self, of: Callable[[Floats], Floats]) -> Floats:
        """Something [nu] of this rank in the state itself."""
        return of(self._q)

    def multiplied(self, vector: Floats) -> Floats:
        """M times a whole vector."""
        return self.whole(self.dynamics.multiply(self._q, vector[self._part]))

    def softened(self) -> Callable[[Floats], Floats]:
        """Give about K^-1 of whole vectors: what springs and the tension of lines make of K, and nearly no M."""
        dynamics, still = self.dynamics, np.zeros(self.dynamics.subchain.nu)
        matrix, tension = dynamics.implicit_matrix_of_bodies, Tension(dynamics.subchain)
        matrix.at(self._q, LONG, tension.stiffness(dynamics.joint_loads(self._q, still)))

        def product(vector: Floats) -> Floats:
            found = np.empty_like(still)
            matrix.heavier(LONG**2 * vector[self._part], found)
            return self.whole(found)

        return product

    def inertia_matrix(self) -> Floats | None:
        """M of the spanning tree, on rank 0."""
        return self.dynamics.gather_rows(self.dynamics.inertia_matrix(self._q))

    def allowed(self) -> Floats:
        """A basis of the displacements that joints and loops allow [nu, any]."""
        free = np.eye(self.nu)[:, self.moving]
        if self.dynamics.loops is None:
            return free
        rows = self.gathered(self.dynamics.loop_jacobian(self._q).toarray().T)
        basis = on_root(
            self.dynamics.comm,
            lambda: None if rows is None else free @ scipy.linalg.null_space(rows[self.moving].T, rcond=1e-10),
        )
        found: Floats = self.dynamics.comm.bcast(basis)
        if not found.shape[1]:
            raise InputError(f"system '{self.dynamics.system.name}' has no modes: its loops leave nothing to move")
        return found

    def refuse(self, away: Floats) -> None:
        """Refuse a state that is so far [nu] from an equilibrium."""
        k = int(np.argmax(np.abs(away) / self._units))
        if abs(away[k]) > STILL * self._units[k]:
            system = self.dynamics.system
            body = system.name_of(int(np.searchsorted(system.offsets()[1], k, side="right")) - 1)
            raise InputError(
                f"the state is no equilibrium: the joint of body '{body}' is about {abs(away[k]):.2g} (rad or m) away "
                "from one; settle it first"
            )


def _dense(space: _Displacements, count: int) -> Modes:
    basis, looped = space.allowed(), space.dynamics.loops is not None
    of = space.accelerated if looped else space.holding
    # Of loops M times the accelerations, along what they allow.
    changes = space.gathered(np.array([space.change(of, along) for along in basis.T]).T)
    force = space.gathered(space.here(of)[:, None])
    inertia = space.inertia_matrix()

    def solve() -> Modes | None:
        if inertia is None or changes is None or force is None:
            return None
        stiffness, rest = (basis.T @ (inertia @ x if looped else x) for x in (changes, force[:, 0]))
        return _lowest(space, basis, 0.5 * (stiffness + stiffness.T), basis.T @ inertia @ basis, rest, count)

    found: Modes = space.dynamics.comm.bcast(on_root(space.dynamics.comm, solve))
    return found


def _lowest(
    space: _Displacements, basis: Floats, stiffness: Floats, inertia: Floats, rest: Floats, count: int
) -> Modes:
    """The lowest modes of dense matrices, on displacements in a basis; `rest` are the forces that hold the state."""
    n = len(stiffness)
    count = min(count, n)
    try:
        stable = scipy.linalg.cho_factor(stiffness)
    except scipy.linalg.LinAlgError:
        space.refuse(basis @ (rest / np.abs(stiffness).max(initial=1e-300)))
        squares, vectors = scipy.linalg.eigh(stiffness, inertia, subset_by_index=(0, count - 1))
    else:
        space.refuse(basis @ scipy.linalg.cho_solve(stable, rest))
        inverses, vectors = scipy.linalg.eigh(inertia, stiffness, subset_by_index=(n - count, n - 1))
        squares, vectors = 1.0 / inverses[::-1], vectors[:, ::-1]
    energies = np.einsum("ik,ij,jk->k", vectors, inertia, vectors, optimize=True)
    return Modes(squares, (basis @ (vectors / np.sqrt(energies))).T)


def _by_lanczos(space: _Displacements, count: int) -> Modes:
    moving, n = space.moving, len(space.moving)

    def embedded(vector: Floats) -> Floats:
        found = np.zeros(space.nu)
        found[moving] = np.ravel(vector)
        return found

    def operator(product: Callable[[Floats], Floats]) -> LinearOperator:
        return LinearOperator((n, n), matvec=product, dtype=np.float64)

    stiffness = operator(lambda x: space.whole(space.change(space.holding, embedded(x)))[moving])
    inertia = operator(lambda x: space.multiplied(embedded(x))[moving])
    softened = space.softened()
    near = operator(lambda x: softened(embedded(x))[moving])

    def solution(b: Floats) -> Floats:
        found, failed = cg(stiffness, np.ravel(b), rtol=SOLVED, atol=0.0, maxiter=ROUNDS * n, M=near)
        if failed or found @ np.ravel(b) < 0.0:
            raise SimulationError(
                "K x = b does not converge: the equilibrium is not stable, or something moves freely; modes of such "
                f"systems are found with up to {MOST} speeds"
            )
        return found

    space.refuse(embedded(solution(space.whole(space.here(space.holding))[moving])))
    start = np.random.default_rng(0).uniform(0.5, 1.0, n)
    given: dict[str, Any] = {"M": stiffness, "Minv": operator(solution), "which": "LA", "v0": start}
    inverses, vectors = eigsh(inertia, min(count, n - 1), **given)
    order = np.argsort(inverses)[::-1]
    vectors = np.array([embedded(vector) for vector in vectors[:, order].T])
    energies = np.array([vector @ space.multiplied(vector) for vector in vectors])
    return Modes(1.0 / inverses[order], vectors / np.sqrt(energies)[:, None])
