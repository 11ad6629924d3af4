"""Static equilibrium: downhill in energy first, then pseudo-transient continuation [Kelley & Keyes 1998].

At rest the accelerations are those that would set in, r(q) = udot(q, 0), with loops closed; M r are the forces that
move the system. Coordinates follow without inertia of motion, dq/dT = r, by steps that grow as long as forces fall.

Far away a step is z of (M + T K) z = T M r, K of the springs and of what the loads that hold each body could resist its
turn with at the most: so it leads downhill, by a length of which the energy of hinges bends upward no more than K says
[majorization; Hunter & Lange 2004]. Near an equilibrium it is z of (1 / T - dr/dq) z = r, which becomes Newton's as T
grows: the Jacobian is applied by differences, and preconditioned by the matrix above. A step that would lead uphill, to
where the equilibrium is not stable, is taken downhill instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.arguments import check_kinds
from mpimbs.base.arrays import Floats
from mpimbs.base.errors import SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.operators.implicit_matrix import ImplicitMatrix
from mpimbs.dynamics.operators.tension import Tension
from mpimbs.dynamics.statics.modes import FlutterError, extent_of, modes, units_of_speeds
from mpimbs.parallel.agreement import largest_magnitudes
from mpimbs.parallel.petsc import PREFIX, PETSc

STEPS = 3000  # at the most
BEGIN = 1.0  # of the square of the system's time: the first step
GROWTH = 4.0  # of steps, times what the forces along them have fallen by
SHRINK = 0.2  # of a step that has led too far
LONGEST = 1e15  # the same: beyond, the step is Newton's but for what fades with the next
NOTHING = 2e-14  # rad, and of the size of the system: what coordinates are off by, at the most, for they are rounded
SETTLED = 1e-12  # rad, and of the size of the system: smaller changes are rounding, or soon will be
NEAR = 1e-7  # a change after which the next ones are no smaller is of rounding
DIFFERENCE = 1e-6  # rad, and of the size of the system: of the largest change, for the product with the Jacobian
FARTHEST = 1.0  # rad, and of the size of the system: a step does not move a joint by more
STRAIGHT = 0.03  # of that: a step behind which Newton's method may begin
UNCHANGED = 0.99  # of the force along a step that is left behind it where nothing resists
STALLED = 20  # small steps in sequence that leave no less: what pushes is rounding, along what nothing holds
FALLING = 100  # steps of more than half of `FARTHEST` that nothing resists
ACCURATE = 1e-3  # of the linear solutions
ROOM = 60  # vectors that they keep
PRODUCTS = 600  # in a solution at the most


class _Place(NamedTuple):
    """Coordinates [nq], with loops closed, and what moves the system from there: accelerations, and forces [nu]."""

    q: Floats
    r: Floats
    forces: Floats


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
        The largest change of the last step: rad, and of translations in the size of the system.
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
    time : float
        At which functions of time act (s).
    """

    def __init__(self, dynamics: Dynamics, time: float = 0.0) -> None:
        self._dynamics, self._time = dynamics, time
        self._matrix: ImplicitMatrix = dynamics.inertia.implicit_matrix_of_bodies
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
        solver.setTolerances(rtol=ACCURATE, atol=0.0, max_it=min(PRODUCTS, dynamics.system.nu + ROOM))
        solver.getPC().setType(PETSc.PC.Type.PYTHON)
        solver.getPC().setPythonContext(self)
        solver.setFromOptions()
        self.products = 0

    def find(self, q: npt.ArrayLike, told: Callable[[int, float, float], None] = lambda *_: None) -> Settled:
        """Find an equilibrium near coordinates q [nq].

        Parameters
        ----------
        q : array [nq]
        told : callable, optional
            Called after every step with its number, the largest acceleration and the largest change.

        Raises
        ------
        InputError
            On all ranks: q as of `Dynamics.accelerations`.
        SimulationError
            On all ranks: none is found, or a function of the model failed.
        """
        q, _, _ = self._dynamics.divided.agreed(q, self._still, t=self._time)
        q, _ = self._dynamics.divided.followed(self._time, q.copy(), self._still)
        with self._dynamics.divided.external.motions.resting():
            return self._found(q, told)

    def _found(self, q: Floats, told: Callable[[int, float, float], None]) -> Settled:
        dynamics = self._dynamics
        at = self._place(q if dynamics.loops is None else dynamics.loops.close_places(q))
        farthest, self._units = FARTHEST, units_of_speeds(dynamics, at.q)
        left = self._left(at)
        if not np.isfinite(left):
            raise self._refusal(at.r, "the accelerations at the begin are not finite")
        steepest = self._steepest(at)
        nothing = NOTHING * steepest
        if left <= nothing:
            return Settled(at.q, 0, 0, self._largest(at.r), 0.0)
        gravity = float(np.linalg.norm(dynamics.divided.root[3:])) / extent_of(dynamics, at.q)
        # s^2: of a fall by the system's size, or of its fastest motion, or of what acts.
        square = 1.0 / (gravity or steepest or left)
        step, last, straight, begins, unresisted = BEGIN * square, np.inf, False, STRAIGHT * farthest, 0
        least, stalled = np.inf, 0
        for number in range(1, STEPS + 1):
            z = self._newton(at, step) if straight else self._downhill(at, step)
            change = self._largest(z / self._units)
            force = self._work(z, at.forces) if change <= farthest else 0.0
            near = change <= (NEAR if straight else SETTLED) * farthest  # where signs are of rounding
            moved = self._moved(at.q, z) if near or force > 0.0 else None
            led = moved is not None
            if moved is not None:
                new = self._place(moved)
                left, behind = self._left(new), self._work(z, new.forces)
                told(number, self._largest(new.r), change)
                rounding = step >= LONGEST * square and near and (change <= SETTLED * farthest or change >= 0.5 * last)
                stalled = stalled + 1 if near and left > 0.5 * least else 0
                least = min(left, least) if near else np.inf
                pushed_on = stalled >= STALLED and left * square <= NEAR * farthest
                if (left <= nothing and change <= NEAR * farthest) or rounding or pushed_on:
                    best = new if left <= self._left(at) else at  # the last step may have been of rounding alone
                    return Settled(best.q, number, self.products, self._largest(best.r), change)
                led = near or behind > -force  # not as high up on the other side
            if not led:
                begins = SHRINK * begins if straight else begins
                step *= max(SHRINK, 0.7 * farthest / change) if change > farthest else SHRINK
                straight = False
                continue
            unresisted = unresisted + 1 if change > 0.5 * farthest and behind > UNCHANGED * force else 0
            if unresisted == FALLING:
                raise self._refusal(at.r, "the system falls, or is pulled, on and on")
            if near or behind > -0.5 * force:
                step = min(LONGEST * square, step * GROWTH * max(1.0, force / max(abs(behind), 1e-300)))
            at, last = new, change if straight else np.inf
            straight = near or change <= begins
        raise self._refusal(at.r, f"no equilibrium was found in {STEPS} steps")

    def _moved(self, q: Floats, z: Floats) -> Floats | None:
        """Coordinates after a displacement, with loops closed; none where they don't close any more."""
        loops, moved = self._dynamics.loops, self._dynamics.subchain.displaced(q, z)
        if loops is None:
            return moved
        try:
            return loops.close_places(moved)
        except SimulationError:
            return None

    def _left(self, at: _Place) -> float:
        """The largest acceleration there (rad/s^2), slides in units of the system's size."""
        return self._largest(at.r / self._units)

    def _steepest(self, at: _Place) -> float:
        """By how much the largest acceleration changes along a displacement (1/s^2), in these units.

        So much times `NOTHING` rounded coordinates may leave: by that the loads that balance change.
        """
        signs = np.random.default_rng(self._dynamics.comm.rank).choice((-1.0, 1.0), len(at.r))
        change, loops = self._change(at.q, signs * self._units, DIFFERENCE), self._dynamics.loops
        change = change if loops is None else loops.close_speeds(at.q, change)
        return self._largest(change / self._units)

    def _change(self, q: Floats, z: Floats, h: float) -> Floats:
        """Derivative of the accelerations along a displacement, by a difference over h of it."""
        displaced = self._dynamics.subchain.displaced
        further, behind = self._accelerations(displaced(q, h * z)), self._accelerations(displaced(q, -h * z))
        return (further - behind) / (2.0 * h)

    def _place(self, q: Floats) -> _Place:
        r = self._accelerations(q)
        return _Place(q, r, self._dynamics.inertia.times(q, r))

    def _refusal(self, r: Floats, why: str) -> SimulationError:
        dynamics = self._dynamics
        here = float(np.nan_to_num(np.abs(r), nan=np.inf, posinf=np.inf).max(initial=0.0))
        most, rank = dynamics.comm.allreduce((here, dynamics.comm.rank), MPI.MAXLOC)
        name = ""
        if rank == dynamics.comm.rank and len(r):
            k = int(np.argmax(np.where(np.isfinite(r), np.abs(r), np.inf)))
            body = int(np.searchsorted(dynamics.subchain.columns.u_offset, k, side="right")) - 1
            name = dynamics.subchain.name_of(body)
        name = dynamics.comm.bcast(name, rank)
        return SimulationError(
            f"{why}: the joint of body '{name}' still accelerates by {most:.3g} (rad/s^2, m/s^2); check what holds it"
        )

    def _accelerations(self, q: Floats) -> Floats:
        return self._dynamics.accelerations(q, self._still, t=self._time, warn=False)

    def _take(self, at: _Place, step: float, most: bool) -> None:
        """Make the matrix of a step from a place: by the loads of bodies that are held there."""
        self._at, self._length = at, step
        loads = self._dynamics.joint_loads(at.q, self._still, -at.forces, self._time)
        self._matrix.at(at.q, float(np.sqrt(step)), self._tension.stiffness(loads, most))

    def _downhill(self, at: _Place, step: float) -> Floats:
        """z of (M + T K) z = T M r."""
        self._take(at, step, most=True)
        z = np.empty_like(at.r)
        self._matrix.heavier(step * at.forces, z)
        return z

    def _newton(self, at: _Place, step: float) -> Floats:
        """z of (1 / T - dr/dq) z = r."""
        self._take(at, step, most=False)
        b, z = self._vector.duplicate(), self._vector.duplicate()
        b.setArray(at.r)
        self._solver.solve(b, z)
        found: Floats = z.array_r.copy() if self._solver.converged else np.full_like(at.r, np.inf)
        b.destroy()
        z.destroy()
        return found

    def mult(self, matrix: object, x: PETSc.Vec, y: PETSc.Vec) -> None:
        """Write y = (1 / T - dr/dq) x: PETSc calls it."""
        self.products += 1
        z = x.array_r.copy()
        size = self._largest(z / self._units)
        if not 0.0 < size < np.inf:
            y.set(0.0 if size == 0.0 else np.nan)
            return
        product = z / self._length - self._change(self._at.q, z, DIFFERENCE / size)
        loops = self._dynamics.loops
        y.array[:] = product if loops is None else loops.close_speeds(self._at.q, product)

    def apply(self, preconditioner: object, x: PETSc.Vec, y: PETSc.Vec) -> None:
        """Write y = (M + T K)^-1 T M x: PETSc calls it."""
        forces = self._dynamics.inertia.times(self._at.q, x.array_r.copy())
        z = np.empty_like(forces)
        self._matrix.heavier(self._length * forces, z)
        y.array[:] = z

    def _work(self, z: Floats, forces: Floats) -> float:
        return float(self._dynamics.comm.allreduce(float(z @ forces)))

    def _largest(self, values: Floats) -> float:
        return float(largest_magnitudes(self._dynamics.comm, values)[0])

    def close(self) -> None:
        """Free what PETSc holds; all ranks call."""
        self._solver.destroy()
        self._jacobian.destroy()
        self._vector.destroy()


def settle(dynamics: Dynamics, q: npt.ArrayLike, time: float = 0.0, **given: Any) -> Settled:
    """Find a static equilibrium near coordinates q [nq], at a time (s); all ranks call. See `Equilibrium.find`."""
    check_kinds(settle, {"dynamics": dynamics})
    search = Equilibrium(dynamics, time)
    try:
        return search.find(q, **given)
    finally:
        search.close()


def growth(dynamics: Dynamics, q: Floats) -> float:
    """Rate (1/s) at which the system departs from an equilibrium q [nq]; zero if that is stable. All ranks call."""
    try:
        found = modes(dynamics, q, 1)
        return 0.0 if found.residuals[0] >= 1.0 else max(0.0, -2.0 * np.pi * float(found.frequencies[0]))
    except FlutterError as flutter:
        return flutter.rate
