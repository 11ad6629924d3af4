"""Static equilibrium, by pseudo-transient continuation that ends in Newton's method [Kelley & Keyes 1998].

At rest the accelerations are those that would set in, r(q) = udot(q, 0), with loops closed. Coordinates follow them
without inertia of motion, dq/dT = G r, downhill in energy, by linearly implicit steps: (1 / T - dr/dq) z = r. The steps
T grow as r falls; without bound they are Newton's. The Jacobian is applied by differences, and preconditioned by the
sweep: dr/dq is about -M^-1 K, K by the springs of the joints and the tension of lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.dynamics import Dynamics
from mpimbs.errors import SimulationError
from mpimbs.implicit_matrix import ImplicitMatrix
from mpimbs.modes import modes
from mpimbs.petsc import PREFIX, PETSc
from mpimbs.tension import Tension

Floats = npt.NDArray[np.float64]

STEPS = 300  # at the most
BEGIN = 0.1  # s^2: the first step
GROWTH = 4.0  # of steps, times what the accelerations have fallen by
SHRINK = 0.2  # of a step that has led too far
LONGEST = 1e10  # s^2: beyond, the step is Newton's but for what fades with the next
NOTHING = 1e-13  # of 1 m/s^2 or gravity, and so many rad/s^2: accelerations that are rounding
SETTLED = 1e-12  # rad, and m of a system of 1 m: smaller changes are rounding, or soon will be
NEAR = 1e-7  # a change after which the next ones are no smaller is of rounding
DIFFERENCE = 1e-6  # rad, m: of the largest change, for the product with the Jacobian
FARTHEST = 0.5  # rad, and m of a system of 1 m: a step does not move a joint by more
ACCURATE = 1e-6  # of the linear solutions
ROOM = 60  # vectors that they keep
PRODUCTS = 600  # in a solution at the most


class Settled(NamedTuple):
    """An equilibrium.

    Attributes
    ----------
    q : array [nq]
        This rank's coordinates.
    steps, products : int
        Steps taken, and products with the Jacobian in all.
    acceleration : float
        The largest acceleration left (rad/s^2, m/s^2).
    change : float
        The largest change of the last step (rad, m).
    """

    q: Floats
    steps: int
    products: int
    acceleration: float
    change: float


class Equilibrium:
    """Looks for static equilibria of a system; all ranks make it together and call.

    Joints that follow given motions stay where they are at the time.

    Parameters
    ----------
    dynamics : Dynamics
    time : float
        At which functions of time act (s).
    """

    def __init__(self, dynamics: Dynamics, time: float = 0.0) -> None:
        self._dynamics, self._time = dynamics, time
        self._matrix: ImplicitMatrix = dynamics.implicit_matrix_of_bodies
        self._tension = Tension(dynamics.subchain)
        nu = dynamics.subchain.nu
        self._still = np.zeros(nu)
        self._vector = PETSc.Vec().createMPI((nu, dynamics.system.nu), comm=dynamics.comm)
        shape = ((nu, dynamics.system.nu),) * 2
        self._jacobian = PETSc.Mat().createPython(shape, self, comm=dynamics.comm)
        self._jacobian.setUp()
        self._solver = solver = PETSc.KSP().create(comm=dynamics.comm)
        solver.setOptionsPrefix(PREFIX + "settle_")
        solver.setOperators(self._jacobian)
        solver.setType(PETSc.KSP.Type.FGMRES)
        solver.setGMRESRestart(ROOM)
        solver.setTolerances(rtol=ACCURATE, atol=0.0, max_it=PRODUCTS)
        solver.getPC().setType(PETSc.PC.Type.PYTHON)
        solver.getPC().setPythonContext(self)
        solver.setFromOptions()
        self.products = 0

    def find(self, q: Floats, told: Callable[[int, float, float], None] = lambda *_: None) -> Settled:
        """Find an equilibrium near coordinates q [nq].

        Parameters
        ----------
        q : array [nq]
        told : callable, optional
            Called after every step with its number, the largest acceleration and the largest change.

        Raises
        ------
        SimulationError
            On all ranks: none is found, or a function of the model failed.
        """
        q, _ = self._dynamics.followed(self._time, q, self._still)
        with self._dynamics.external.motions.resting():
            return self._found(q, told)

    def _found(self, q: Floats, told: Callable[[int, float, float], None]) -> Settled:
        dynamics = self._dynamics
        q = self._moved(q, self._still)
        size = 1.0 if dynamics.loops is None else dynamics.loops.size()
        r, step, last = self._accelerations(q), BEGIN, np.inf
        nothing = NOTHING * max(1.0, float(np.linalg.norm(dynamics.system.gravity)))
        if self._largest(r) <= nothing:
            return Settled(q, 0, 0, self._largest(r), 0.0)
        for number in range(1, STEPS + 1):
            z = self._step(q, r, step)
            change = self._largest(z)
            if not np.isfinite(change):
                break
            if change > FARTHEST * size:
                step *= max(SHRINK, 0.7 * FARTHEST * size / change)
                continue
            new = self._moved(q, z)
            r_new = self._accelerations(new)
            told(number, self._largest(r_new), change)
            rounding = change <= SETTLED * size or (change <= NEAR * size and change >= 0.5 * last)
            if self._largest(r_new) <= nothing or (step >= LONGEST and rounding):
                return Settled(new, number, self.products, self._largest(r_new), change)
            fallen = self._norm(r) / max(self._norm(r_new), 1e-300)
            bent = change > SHRINK * FARTHEST * size  # far from where it is straight
            if bent and fallen < 0.1:
                step *= SHRINK
                continue
            step = min(LONGEST, step * (min(max(fallen, 0.5), 1.5) if bent else GROWTH * max(fallen, 1.0)))
            q, r, last = new, r_new, change
        raise self._refusal(r)

    def _moved(self, q: Floats, z: Floats) -> Floats:
        """Coordinates after a displacement, with loops closed."""
        loops, moved = self._dynamics.loops, self._dynamics.subchain.displaced(q, z)
        return moved if loops is None else loops.close_places(moved)

    def _refusal(self, r: Floats) -> SimulationError:
        dynamics = self._dynamics
        largest, rank = dynamics.comm.allreduce((self._largest_here(r), dynamics.comm.rank), MPI.MAXLOC)
        name = ""
        if rank == dynamics.comm.rank and len(r):
            k = int(np.argmax(np.where(np.isfinite(r), np.abs(r), np.inf)))
            body = int(np.searchsorted(dynamics.subchain.columns.u_offset, k, side="right")) - 1
            name = dynamics.subchain.name_of(body)
        name = dynamics.comm.bcast(name, rank)
        return SimulationError(
            f"no equilibrium was found in {STEPS} steps: the joint of body '{name}' still accelerates by {largest:.3g} "
            "(rad/s^2, m/s^2); is the system free to fall, or pulled with nothing that holds it?"
        )

    def _accelerations(self, q: Floats) -> Floats:
        return self._dynamics.accelerations(q, self._still, t=self._time)

    def _step(self, q: Floats, r: Floats, step: float) -> Floats:
        """z of (1 / T - dr/dq) z = r."""
        self._q, self._r, self._length = q, r, step
        dynamics = self._dynamics
        loads = dynamics.joint_loads(q, self._still, t=self._time)
        self._matrix.at(q, float(np.sqrt(step)), self._tension.stiffness(loads))
        b, z = self._vector.duplicate(), self._vector.duplicate()
        b.setArray(r)
        self._solver.solve(b, z)
        found: Floats = z.array_r.copy()
        b.destroy()
        z.destroy()
        return found

    def mult(self, matrix: object, x: PETSc.Vec, y: PETSc.Vec) -> None:
        """Write y = (1 / T - dr/dq) x: PETSc calls it."""
        self.products += 1
        z = x.array_r.copy()
        size = self._largest(z)
        if size == 0.0:
            y.set(0.0)
            return
        h = DIFFERENCE / size
        ahead = self._accelerations(self._dynamics.subchain.displaced(self._q, h * z))
        behind = self._accelerations(self._dynamics.subchain.displaced(self._q, -h * z))
        y.array[:] = z / self._length - (ahead - behind) / (2.0 * h)

    def apply(self, preconditioner: object, x: PETSc.Vec, y: PETSc.Vec) -> None:
        """Write y = (M + T K)^-1 T M x: PETSc calls it."""
        forces = self._dynamics.inertia_times(self._q, x.array_r.copy())
        z = np.empty_like(forces)
        self._matrix.heavier(self._length * forces, z)
        y.array[:] = z

    def _norm(self, r: Floats) -> float:
        return float(np.sqrt(self._dynamics.comm.allreduce(float(r @ r))))

    def _largest(self, values: Floats) -> float:
        return float(self._dynamics.comm.allreduce(self._largest_here(values), MPI.MAX))

    @staticmethod
    def _largest_here(values: Floats) -> float:
        return float(np.abs(values).max(initial=0.0)) if np.isfinite(values).all() else np.inf

    def close(self) -> None:
        """Free what PETSc holds; all ranks call."""
        self._solver.destroy()
        self._jacobian.destroy()
        self._vector.destroy()


def settle(dynamics: Dynamics, q: Floats, **given: Any) -> Settled:
    """Find a static equilibrium near coordinates q [nq]; all ranks call. See `Equilibrium.find`."""
    search = Equilibrium(dynamics)
    try:
        return search.find(q, **given)
    finally:
        search.close()


def growth(dynamics: Dynamics, q: Floats) -> float:
    """Rate (1/s) at which the system departs from an equilibrium q [nq]; zero if that is stable. All ranks call."""
    return max(0.0, -2.0 * np.pi * float(modes(dynamics, q, 1).frequencies[0]))
