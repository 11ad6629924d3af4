"""What PETSc solves the stages of an implicit step with: the implicit matrix of the system, and Newton's method."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.operators.tension import Tension
from mpimbs.parallel.petsc import Arrays, PETSc
from mpimbs.stepping.schemes import IF_IT_MATTERS
from mpimbs.sweep.structure import ADDED

LEFT = 1e-9  # of the residual of a stage, or of its change
MOST = 20  # steps
LEFT_OF_STEPS = 1e-2  # of the residual of each, by GMRES
DIFFERENCE = 1.5e-8  # relative, of the state
UNCOUNTED = 2.0**300  # a unit of what counts as nothing


class Newton:
    """Solves F(x) = a x - f(x) + constants = 0 with the help of (a - J)^-1 for a J that leaves a part of f' out.

    Each step is solved by GMRES, with differences of f, in units in which all that moves counts alike: angles are in
    radians, displacements in lengths of the system, speeds in changes of these over the step; the work that is
    integrated beside them counts as nothing. So neither the units of a model nor its weight decide on what is solved.
    All ranks make it together; PETSc calls it.

    Parameters
    ----------
    stages : PETSc.SNES
        Whose steps it solves, and says when they end.
    comm : MPI.Comm
    base : array
        Units of this rank's numbers, of speeds times a time (s).
    speeds : slice
        Where the speeds are; behind them what counts as nothing and f does not depend on.
    evaluate : callable
        Writes f of a vector x into another one.
    precondition : callable
        Writes (a - J)^-1 b of a vector b into another one.
    """

    def __init__(
        self,
        stages: PETSc.SNES,
        comm: MPI.Comm,
        base: Floats,
        speeds: slice,
        evaluate: Callable[[PETSc.Vec, PETSc.Vec], None],
        precondition: Callable[[PETSc.Vec, PETSc.Vec], None],
    ) -> None:
        self._base, self._speeds, self._evaluate, self._precondition = base, speeds, evaluate, precondition
        self._stages, self._shift, self._begun = stages, 1.0, -1.0
        own = len(base), None
        self._units = PETSc.Vec().createMPI(own, comm=comm)
        self._units.setArray(base)
        self._b, self._x, self._room, self._other = (self._units.duplicate() for _ in range(4))
        self._place, self._f = self._units.duplicate(), self._units.duplicate()
        self._matrix = PETSc.Mat().createPython((own, own), _Calls(mult=self._times), comm)
        self._matrix.setUp()
        self._gmres = PETSc.KSP().create(comm=comm)
        self._gmres.setOperators(self._matrix)
        self._gmres.setType(PETSc.KSP.Type.GMRES)
        self._gmres.setPCSide(PETSc.PC.Side.RIGHT)
        self._gmres.setTolerances(rtol=LEFT_OF_STEPS)
        self._gmres.getPC().setType(PETSc.PC.Type.PYTHON)
        self._gmres.getPC().setPythonContext(_Calls(apply=self._approximately))
        stages.setTolerances(rtol=LEFT, stol=LEFT, max_it=MOST)
        stages.setConvergenceTest(self._ended)
        solver = stages.getKSP()
        solver.setType(PETSc.KSP.Type.PREONLY)
        solver.getPC().setType(PETSc.PC.Type.PYTHON)
        solver.getPC().setPythonContext(_Calls(apply=self._solve))

    def at(self, x: PETSc.Vec, f: Floats, shift: float) -> None:
        """Take differences about a state, in which f is known, with that a from here on."""
        self._shift = shift
        x.copy(self._place)
        self._f.setArray(f)
        units = self._base.copy()
        units[self._speeds] *= shift
        self._units.setArray(units)
        if self._begun < 0.0:
            self._begun = self._size(self._stages.getFunction()[0])

    def close(self) -> None:
        """Free what PETSc holds, which holds this in turn; all ranks call."""
        held = (self._units, self._b, self._x, self._room, self._other, self._place, self._f)
        for thing in (self._gmres, self._matrix, self._stages, *held):
            thing.destroy()

    def _solve(self, _: object, b: PETSc.Vec, x: PETSc.Vec) -> None:
        """Write x of (a - f') x = b."""
        self._b.pointwiseDivide(b, self._units)
        self._b.scale(1.0 / self._shift)
        self._gmres.solve(self._b, self._x)
        x.pointwiseMult(self._x, self._units)

    def _times(self, _: object, v: PETSc.Vec, y: PETSc.Vec) -> None:
        """Write y = (1 - f' / a) v, both in units."""
        length, x, moved = v.norm(), self._place, self._room
        if length == 0.0:
            y.set(0.0)
            return
        moved.pointwiseDivide(x, self._units)
        step = DIFFERENCE * np.sqrt(1.0 + moved.norm()) / length
        moved.pointwiseMult(v, self._units)
        moved.aypx(step, x)
        self._evaluate(moved, self._other)
        self._other.axpy(-1.0, self._f)
        y.pointwiseDivide(self._other, self._units)
        y.aypx(-1.0 / (self._shift * step), v)

    def _approximately(self, _: object, b: PETSc.Vec, x: PETSc.Vec) -> None:
        """Write an x of (1 - J / a) x = b, both in units."""
        self._room.pointwiseMult(b, self._units)
        self._room.scale(self._shift)
        self._precondition(self._room, self._other)
        x.pointwiseDivide(self._other, self._units)

    def _ended(self, stages: PETSc.SNES, step: int, _: tuple[float, float, float]) -> int | None:
        """Say whether a stage is solved, or can't be."""
        reasons = PETSc.SNES.ConvergedReason
        rtol, _, stol, _ = stages.getTolerances()
        left = self._size(stages.getFunction()[0])
        if not np.isfinite(left):
            return reasons.DIVERGED_FNORM_NAN
        if step == 0:
            self._begun = -1.0  # in units of this stage, which `at` is told next
            return reasons.CONVERGED_FNORM_ABS if left == 0.0 else None
        moves = self._size(stages.getSolutionUpdate()) > stol * self._size(stages.getSolution())
        if left > rtol * self._begun and moves:
            return None
        behind = slice(self._speeds.stop, None)
        with stages.getSolution() as x:
            x[behind] -= stages.getFunction()[0].array_r[behind] / self._shift
        return reasons.CONVERGED_FNORM_RELATIVE

    def _size(self, vector: PETSc.Vec) -> float:
        """Norm of a vector in units."""
        self._room.pointwiseDivide(vector, self._units)
        return float(self._room.norm())


class _Calls:
    """What PETSc calls of an object in Python."""

    def __init__(self, **calls: Callable[..., Any]) -> None:
        self.__dict__.update(calls)


LOOKED = 16  # steps, after which it is seen again whether tension counts
MATTERS = 4e-3  # of a body's inertia, what tension adds: without that, motions grow by 1e-4 of theirs a step

Floats = npt.NDArray[np.float64]
Derivative = Callable[[object, float, PETSc.Vec, PETSc.Vec], None]


class Stages:
    """Solves (a - J) x = b for the stages of PETSc's implicit methods; all ranks make it together.

    As PETSc sees it: the equation F(t, x, xdot) = xdot - f(t, x) = 0; a Jacobian that is never formed, whose only
    number is the shift a = 1 / (h g). Of Rosenbrock-W methods a stage is one Newton step by one application of a
    preconditioner, this object, which is the exact inverse. Of the others it is solved by Newton's method to the end:
    each of its steps by GMRES, with differences of f in place of J, and the same preconditioner [`newton`].

    Parameters
    ----------
    dynamics : Dynamics
    derivative : callable
        f, as PETSc calls it.
    loads : callable
        Gives what the bodies receive through their joints [n, 6] in the state for which f was asked last.
    arrays : Arrays
        Of what PETSc solves with.
    size : int
        Numbers of this rank in the state; what stands behind coordinates and speeds has no part in J.
    tension : str
        Whether J counts the tension of lines: "on", "off", or "auto": once that matters for the steps.
    memory : list of int, optional
        Go on from that of another one.

    Attributes
    ----------
    memory : list of int
        Whether the tension of lines counts, and how many steps were begun.
    times : (float, float)
        Of the last two stages of Newton's method (s).
    """

    def __init__(
        self,
        dynamics: Dynamics,
        derivative: Derivative,
        loads: Callable[[], Floats],
        arrays: Arrays,
        size: int,
        tension: str = IF_IT_MATTERS,
        memory: list[int] | None = None,
    ) -> None:
        self._dynamics, self._derivative, self._loads, self._arrays = dynamics, derivative, loads, arrays
        self.memory, self._looks = memory or [int(tension == "on"), 0], tension == IF_IT_MATTERS
        self._comm, self._nq, self._size = dynamics.comm, dynamics.subchain.nq, size
        self._end = self._nq + dynamics.subchain.nu
        self._shift, self._matrix = 1.0, dynamics.inertia.implicit_matrix
        self.times = np.nan, np.nan
        self._resists = any(force.vectorized for force in dynamics.system.body_forces)
        self._f = np.empty(size)  # with Newton's method, in the state of J
        self._newton: Newton | None = None

    def serve(self, ts: PETSc.TS, newton: bool = False) -> None:
        """Make PETSc's integrator take its stages from here; `newton`: solved to the end."""
        own = self._size, None
        empty = PETSc.Mat().createPython((own, own), self, self._comm)
        empty.setUp()
        ts.setIFunction(self._residual_kept if newton else self._residual)
        ts.setIJacobian(self._take_place if newton else self._take_state, empty, empty)
        stages = ts.getSNES()
        if newton:
            dynamics, behind = self._dynamics, np.full(self._size - self._end, UNCOUNTED)
            base = np.concatenate([*dynamics.divided.units, behind])
            speeds = slice(self._nq, self._end)
            self._newton = Newton(stages, self._comm, base, speeds, self._evaluate, self._precondition)
            return
        solver = stages.getKSP()
        stages.setType(PETSc.SNES.Type.KSPONLY)
        solver.setType(PETSc.KSP.Type.PREONLY)
        solver.getPC().setType(PETSc.PC.Type.PYTHON)
        solver.getPC().setPythonContext(self)

    def _residual(self, ts: object, t: float, x: PETSc.Vec, xdot: PETSc.Vec, f: PETSc.Vec) -> None:
        self._derivative(ts, t, x, f)
        out = self._arrays(f)[0]
        np.subtract(self._arrays.read(xdot), out, out=out)

    def _residual_kept(self, ts: object, t: float, x: PETSc.Vec, xdot: PETSc.Vec, f: PETSc.Vec) -> None:
        self._derivative(ts, t, x, f)
        if t != self.times[1]:
            self.times = self.times[1], t
        out = self._arrays(f)[0]
        self._f[:] = out
        np.subtract(self._arrays.read(xdot), out, out=out)

    def _take_state(
        self, ts: object, t: float, x: PETSc.Vec, xdot: PETSc.Vec, shift: float, jacobian: PETSc.Mat, own: PETSc.Mat
    ) -> None:
        """Take J where f was asked for just now, once a step, or a step of Newton's method."""
        self._shift, step = shift, 1.0 / shift
        dynamics = self._dynamics
        stiffness, damping = self._resistance()
        tension = self._stiffness_of_tension(step)
        if tension is not None:
            stiffness = tension if stiffness is None else stiffness + tension
        alone = stiffness is None and damping is None
        self._matrix = dynamics.inertia.implicit_matrix if alone else dynamics.inertia.implicit_matrix_of_bodies
        self._matrix.at(self._arrays.read(x)[: self._nq], step, stiffness, damping)

    def _resistance(self) -> list[Floats | None]:
        """Give the stiffness and the damping of forces on bodies, each there on all ranks or on none."""
        if not self._resists:
            return [None, None]
        found = self._dynamics.external.resistance()[::-1]
        if self._comm.size > 1:
            there = np.array([values is not None for values in found])
            self._comm.Allreduce(MPI.IN_PLACE, there, MPI.LOR)
            none = np.zeros((self._dynamics.subchain.n_bodies, ADDED))
            found = [none if any_rank and own is None else own for own, any_rank in zip(found, there, strict=True)]
        return found

    def _stiffness_of_tension(self, step: float) -> Floats | None:
        """Give the stiffness of tension, if it counts."""
        counts, begun = self.memory
        looks = self._looks and begun % LOOKED == 0
        found = self._tension.stiffness(self._loads()) if counts or looks else None
        if looks and found is not None:
            counts = int(self._comm.allreduce(self._tension.share(step, found), MPI.MAX) > MATTERS)
        self.memory[:] = counts, begun + 1
        return found if counts else None

    @functools.cached_property
    def _tension(self) -> Tension:
        return Tension(self._dynamics.subchain)

    def _take_place(self, ts: object, t: float, x: PETSc.Vec, xdot: PETSc.Vec, shift: float, *given: Any) -> None:
        """The same, of J by differences: about where the residual was asked for last."""
        assert self._newton is not None
        self._take_state(ts, t, x, xdot, shift, *given)
        self._newton.at(x, self._f, shift)

    def _evaluate(self, x: PETSc.Vec, f: PETSc.Vec) -> None:
        """Write f(t, x) at the time of the stage."""
        self._derivative(None, self.times[1], x, f)

    def apply(self, preconditioner: object, b: PETSc.Vec, x: PETSc.Vec) -> None:
        """Write x of (a - J) x = b: PETSc calls it."""
        self._precondition(b, x)

    def _precondition(self, b: PETSc.Vec, x: PETSc.Vec) -> None:
        step, given, out = 1.0 / self._shift, self._arrays.read(b), self._arrays(x)[0]
        self._matrix.solve(given, out, step)
        if self._end < self._size:
            np.multiply(step, given[self._end :], out=out[self._end :])
        x.stateIncrease()

    def close(self) -> None:
        """Free what Newton's method holds; all ranks call."""
        if self._newton is not None:
            self._newton.close()
