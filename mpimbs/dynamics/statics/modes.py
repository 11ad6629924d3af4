"""Modes: the lowest natural frequencies of a system about an equilibrium, and their shapes.

With M the inertia matrix and K the stiffness, K x = w^2 M x on the displacements x that loops allow. Dampers are left
out. K is exact (`stiffness`); only functions of the user are differentiated by differences.

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
from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.closure.geometry import FORCE
from mpimbs.closure.jacobian import LoopJacobian
from mpimbs.closure.redundant_loads import null_space
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.operators.tension import Tension
from mpimbs.dynamics.statics.stiffness import Stiffness
from mpimbs.parallel.agreement import greatest, on_root
from mpimbs.parallel.reorder import Gather

DENSE = 1000  # speeds, beyond which K and M are not formed where Lanczos will do
MOST = 4000  # speeds, beyond which they never are
SYMMETRIC = 1e-9  # of the largest entry of K, what differs by rounding from that across the diagonal
PAIRED = 1e-6  # of the largest square, what rounding makes complex of two that are equal
ROUNDED = 1.5e-14  # of the largest number of K, times their number, that sums of rounded terms may leave
DOUBTFUL = 1e-6  # of a function's largest derivative, an error that is told
STILL = 1e-6  # rad, and of the size of the system, to the equilibrium
FAR = 1e6  # of the same units: as far as a force that hardly anything resists goes
LONG = 1e3  # times the time of a fall by the system's size, of a step whose matrix is nearly that of the stiffness
SOLVED = 1e-13  # of K x = b, relative
ROUNDS = 2  # of conjugate gradients, times the number of speeds


class Modes(NamedTuple):
    """The lowest modes of a system, in the model's order; the same on all ranks."""

    squares: Floats  # [modes]: 1/s^2, of angular frequencies; negative where the equilibrium is not stable
    shapes: Floats  # [modes, nu]: speeds of each, of kinetic energy 1/2 J
    residuals: Floats  # [modes]: of K x - w^2 M x, of the square: what that may be off by; 1 or more: it may be zero
    told: tuple[str, ...] = ()  # what the numbers leave out, in words

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
    q, still, _ = dynamics.divided.agreed(q, np.zeros(dynamics.subchain.nu))
    q, _ = dynamics.divided.followed(0.0, q.copy(), still)
    if dynamics.loops is not None and (wrong := dynamics.loops.opened(q, still)):
        raise InputError(wrong)
    space = _Displacements(dynamics, q)
    n, looped = dynamics.system.nu, dynamics.loops is not None
    if looped and n > MOST:
        raise InputError(
            f"system '{dynamics.system.name}' has loops and {n} speeds; modes of such have {MOST} at the most"
        )
    with dynamics.divided.external.motions.resting():
        if n > DENSE and not looped:
            try:
                return _by_lanczos(space, count)
            except SimulationError:  # not stable, perhaps
                if n > MOST:
                    raise
        return _dense(space, count)


def units_of_speeds(dynamics: Dynamics, q: Floats) -> Floats:
    """Give what changes along this rank's speeds are measured by [nu]: 1 rad, or the size of the system (m).

    That is the longest edge of a box around the origins and centres of mass of all bodies in a state:
    `size_of`. All ranks call.
    """
    return _units(dynamics, extent_of(dynamics, q))


def _units(dynamics: Dynamics, size: float) -> Floats:
    return np.where(dynamics.subchain.structure.axes >= FORCE, size, 1.0)


def extent_of(dynamics: Dynamics, q: Floats) -> float:
    """Give the longest edge (m) of a box around the origins and centres of mass of all bodies in a state; all call.

    Of a point the length that the system has from its model alone.
    """
    subchain = dynamics.subchain
    rotations, origins = dynamics.poses(q, np.zeros(subchain.nu))
    centers = origins + np.einsum("nij,nj->ni", rotations, subchain.columns.center_of_mass)
    points = np.concatenate((origins, centers))
    ends = greatest(dynamics.comm, np.stack((points.max(axis=0), -points.min(axis=0))))
    return float(ends.sum(axis=0).max()) or dynamics.divided.scales.length


class FlutterError(InputError):
    """An equilibrium from which a system departs swinging, at a `rate` (1/s), so that it has no real frequencies."""

    rate = 0.0


class _Displacements:
    """A system near a state: whole vectors are in the model's order, the same on all ranks."""

    def __init__(self, dynamics: Dynamics, q: Floats) -> None:
        self.dynamics, self._q = dynamics, q
        self._part = dynamics.gather_u.part
        self.nu, system = dynamics.system.nu, dynamics.system
        size = extent_of(dynamics, q)
        self._units = self.whole(_units(dynamics, size))
        still = np.zeros(dynamics.subchain.nu)
        loads = None if dynamics.loops is None else dynamics.loads.joints_and_loops(q, still).loops
        whole = dynamics.gather_q(q)
        self.whole_q = whole  # on rank 0
        self._stiffness = on_root(
            dynamics.comm, lambda: None if whole is None else Stiffness(system, whole, loads, size)
        )
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
        found = Gather(self.dynamics.comm, self.dynamics.divided.model_order["u"], rows.shape[1])(rows)
        return None if found is None else found.reshape(-1, rows.shape[1])

    def holding(self, q: Floats) -> Floats:
        """Forces that hold these coordinates still; this rank's."""
        still = np.zeros(self.dynamics.subchain.nu)
        return self.dynamics.inverse_dynamics(q, still, still)

    def accelerated(self, q: Floats) -> Floats:
        """Accelerations from rest, reversed; this rank's."""
        return -self.dynamics.accelerations(q, np.zeros(self.dynamics.subchain.nu), warn=False)

    def stretched(self, vector: Floats) -> Floats:
        """K times a whole vector."""
        found = on_root(self.dynamics.comm, lambda: self._stiffness @ vector if self._stiffness else None)
        found = np.empty(self.nu) if found is None else found
        self.dynamics.comm.Bcast(found)
        return found

    def stiffness_of(self, basis: Floats) -> Floats | None:
        """K on displacements in a basis [any, any], on rank 0."""
        return None if self._stiffness is None else basis.T @ (self._stiffness @ basis)

    def told(self) -> tuple[str, ...]:
        """Say what differs by side, or is doubtful."""
        found = []
        if self._stiffness is not None:
            slack, doubt = self._stiffness.slack, self._stiffness.doubt
            if slack:
                ropes = f"{len(slack)} ropes are" if len(slack) > 1 else "1 rope is"
                found.append(
                    f"{ropes} at rest length ({slack[0]!r}): frequencies differ by side, these are of slack ones"
                )
            if doubt.error > DOUBTFUL:
                found.append(
                    f"the stiffness of {doubt.function} was found by differences, which differ by {doubt.error:.1e} "
                    "of its largest: it may have a corner here"
                )
        told: tuple[str, ...] = self.dynamics.comm.bcast(tuple(found))
        return told

    def here(self, of: Callable[[Floats], Floats]) -> Floats:
        """Something [nu] of this rank in the state itself."""
        return of(self._q)

    def multiplied(self, vector: Floats) -> Floats:
        """M times a whole vector."""
        return self.whole(self.dynamics.inertia.multiply(self._q, vector[self._part]))

    def softened(self) -> Callable[[Floats], Floats]:
        """Give about K^-1 of whole vectors: what springs and the tension of lines make of K, and nearly no M."""
        dynamics, still = self.dynamics, np.zeros(self.dynamics.subchain.nu)
        matrix, tension = dynamics.inertia.implicit_matrix_of_bodies, Tension(dynamics.subchain)
        fall = float(np.linalg.norm(dynamics.divided.root[3:]))
        long = LONG * np.sqrt(extent_of(dynamics, self._q) / fall) if fall else LONG
        matrix.at(self._q, long, tension.stiffness(dynamics.joint_loads(self._q, still)))

        def product(vector: Floats) -> Floats:
            found = np.empty_like(still)
            matrix.heavier(long**2 * vector[self._part], found)
            return self.whole(found)

        return product

    def inertia_matrix(self) -> Floats | None:
        """M of the spanning tree, on rank 0."""
        return self.dynamics.inertia.gather_rows(self.dynamics.inertia_matrix(self._q))

    def allowed(self) -> Floats | None:
        """A basis of the displacements that joints and loops allow [nu, any], in units of the system; on rank 0."""
        system, whole = self.dynamics.system, self.whole_q

        def basis() -> Floats | None:
            if whole is None:
                return None
            if not system.loops:
                return np.diag(self._units)[:, self.moving]
            here = LoopJacobian(system).at(whole)
            free = null_space(here.matrix.toarray()[:, self.moving])
            if not free.shape[1]:
                raise InputError(f"system '{system.name}' has no modes: its loops leave nothing to move")
            found = np.zeros((self.nu, free.shape[1]))
            found[self.moving] = here.columns[self.moving, None] * free
            return found

        return on_root(self.dynamics.comm, basis)

    def refuse(self, away: Floats) -> None:
        """Refuse a state that is so far [nu] from an equilibrium."""
        k = int(np.argmax(np.abs(away) / self._units))
        if abs(away[k]) > STILL * self._units[k]:
            system = self.dynamics.system
            body = system.name_of(int(np.searchsorted(system.offsets()[1], k, side="right")) - 1)
            if abs(away[k]) > FAR * self._units[k]:
                raise InputError(
                    f"the state is no equilibrium, nor is one near: nothing resists what acts on the joint of body "
                    f"'{body}'; give it a spring, or what holds it"
                )
            raise InputError(
                f"the state is no equilibrium: the joint of body '{body}' is about {abs(away[k]):.2g} (rad or m) away "
                "from one; settle it first"
            )


def _dense(space: _Displacements, count: int) -> Modes:
    basis, looped = space.allowed(), space.dynamics.loops is not None
    # Of loops M times the accelerations, along what they allow.
    force = space.gathered(space.here(space.accelerated if looped else space.holding)[:, None])
    inertia = space.inertia_matrix()
    told = space.told()

    def solve() -> Modes | FlutterError | None:
        if basis is None or inertia is None or force is None:
            return None
        rest, stiffness = (inertia @ force if looped else force)[:, 0], space.stiffness_of(basis)
        assert stiffness is not None
        try:
            return _lowest(space, basis, stiffness, basis.T @ inertia @ basis, basis.T @ rest, count, told)
        except FlutterError as flutter:  # with its rate, for all ranks
            return flutter

    found: Modes | FlutterError = space.dynamics.comm.bcast(on_root(space.dynamics.comm, solve))
    if isinstance(found, FlutterError):
        raise found
    return found


def _lowest(
    space: _Displacements,
    basis: Floats,
    stiffness: Floats,
    inertia: Floats,
    rest: Floats,
    count: int,
    told: tuple[str, ...],
) -> Modes:
    """The lowest modes of dense matrices, on displacements in a basis; `rest` are the forces that hold the state."""
    n, most = len(stiffness), np.abs(stiffness).max(initial=1e-300)
    count, apart = min(count, n), np.abs(stiffness - stiffness.T).max(initial=0.0) / most
    symmetric = 0.5 * (stiffness + stiffness.T)
    try:
        stable = scipy.linalg.cho_factor(symmetric)
    except scipy.linalg.LinAlgError:
        stable = None
    space.refuse(basis @ (rest / most if stable is None else scipy.linalg.cho_solve(stable, rest)))
    if apart > SYMMETRIC:  # forces that follow what they act on have no energy
        squares, vectors = _of_forces_that_follow(space, stiffness, inertia, apart)
        squares, vectors = squares[:count], vectors[:, :count]
        told = (*told, f"forces that follow bodies make the stiffness unsymmetric, by {apart:.1e} of its largest entry")
    elif stable is None:
        squares, vectors = scipy.linalg.eigh(symmetric, inertia, subset_by_index=(0, count - 1))
    else:
        inverses, vectors = scipy.linalg.eigh(inertia, symmetric, subset_by_index=(n - count, n - 1))
        squares, vectors = 1.0 / inverses[::-1], vectors[:, ::-1]
    energies = np.einsum("ik,ij,jk->k", vectors, inertia, vectors, optimize=True)
    vectors = vectors / np.sqrt(energies)
    left = stiffness @ vectors - inertia @ vectors * squares
    if apart <= SYMMETRIC and stable is not None:
        residuals = np.sqrt(np.einsum("ik,ik->k", left, scipy.linalg.cho_solve(stable, left)) / squares)
    else:
        off = np.sqrt(np.einsum("ik,ik->k", left, scipy.linalg.solve(inertia, left, assume_a="pos")))
        off += ROUNDED * n * most * np.einsum("ik,ik->k", vectors, vectors)  # where nothing holds, K is rounding
        residuals = off / np.maximum(np.abs(squares), 1e-300)
    return Modes(squares, (basis @ vectors).T, residuals, told)


def _of_forces_that_follow(
    space: _Displacements, stiffness: Floats, inertia: Floats, apart: float
) -> tuple[Floats, Floats]:
    """All modes of a stiffness that is not symmetric, the lowest first."""
    found, vectors = scipy.linalg.eig(stiffness, inertia)
    order = np.argsort(found.real)
    found, vectors = found[order], vectors[:, order]
    if np.abs(found.imag).max() > PAIRED * np.abs(found).max():
        rates = np.abs(np.sqrt(-found.astype(complex)).real)
        worst = int(np.argmax(np.where(found.imag != 0.0, rates, 0.0)))
        error = FlutterError(
            f"the equilibrium is not stable: forces that follow bodies, by which the stiffness is not symmetric "
            f"({apart:.1e} of its largest entry), make '{space.dynamics.system.name}' flutter at "
            f"{abs(np.sqrt(-found[worst]).imag) / (2 * np.pi):.4g} Hz, growing at {rates[worst]:.4g} 1/s; it has no "
            "real frequencies"
        )
        error.rate = float(rates[worst])
        raise error
    return found.real, vectors.real


def _by_lanczos(space: _Displacements, count: int) -> Modes:
    moving, n = space.moving, len(space.moving)

    def embedded(vector: Floats) -> Floats:
        found = np.zeros(space.nu)
        found[moving] = np.ravel(vector)
        return found

    def operator(product: Callable[[Floats], Floats]) -> LinearOperator:
        return LinearOperator((n, n), matvec=product, dtype=np.float64)

    stiffness = operator(lambda x: space.stretched(embedded(x))[moving])
    inertia = operator(lambda x: space.multiplied(embedded(x))[moving])
    x, y = np.random.default_rng(1).uniform(-1.0, 1.0, (2, n))
    there, back = float(x @ stiffness.matvec(y)), float(y @ stiffness.matvec(x))
    if abs(there - back) > SYMMETRIC * max(abs(there), abs(back)):
        raise SimulationError(
            "forces that follow bodies make the stiffness unsymmetric; modes of such systems are found with up to "
            f"{MOST} speeds"
        )
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
    squares, vectors = 1.0 / inverses[order], np.array([embedded(vector) for vector in vectors[:, order].T])
    energies = np.array([vector @ space.multiplied(vector) for vector in vectors])
    vectors /= np.sqrt(energies)[:, None]
    residuals = []
    for square, vector in zip(squares, vectors, strict=True):
        left = (space.stretched(vector) - square * space.multiplied(vector))[moving]
        residuals.append(np.sqrt(max(0.0, left @ solution(left)) / square) if left.any() else 0.0)
    return Modes(squares, vectors, np.array(residuals), space.told())
