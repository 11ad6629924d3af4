"""What PETSc solves the stages of its implicit steps with: Newton's method, helped by the matrix of linear steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.dynamics import Dynamics
from mpimbs.parallel.petsc import Arrays, PETSc
from mpimbs.stepping.stage_matrix import StageMatrix

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
    """The functions of an object that PETSc calls."""

    def __init__(self, **calls: Callable[..., Any]) -> None:
        self.__dict__.update(calls)


Derivative = Callable[[object, float, PETSc.Vec, PETSc.Vec], None]


class Stages:
    """Solves the stages of PETSc's implicit methods; all ranks make it together.

    As PETSc sees it: the equation F(t, x, xdot) = xdot - f(t, x) = 0; a Jacobian that is never formed, whose only
    number is the shift a = 1 / (h g). A stage is solved by Newton's method to the end: each of its steps by GMRES, with
    differences of f in place of f', and the exact inverse of a - J as preconditioner [`stage_matrix`].

    Parameters
    ----------
    derivative : callable
        f, as PETSc calls it.
    arrays : Arrays
        Of what PETSc solves with.
    size : int
        Numbers of this rank in the state; what stands behind coordinates and speeds has no part in J.
    """

    def __init__(
        self, dynamics: Dynamics, derivative: Derivative, matrix: StageMatrix, arrays: Arrays, size: int
    ) -> None:
        self._dynamics, self._derivative, self._matrix, self._arrays = dynamics, derivative, matrix, arrays
        self._comm, self._nq, self._nu, self._size = dynamics.comm, dynamics.subchain.nq, dynamics.subchain.nu, size
        self._shift, self._time = 1.0, np.nan
        self._f = np.empty(size)  # in the state of J
        self._newton: Newton | None = None

    def serve(self, ts: PETSc.TS) -> None:
        """Make PETSc's integrator take its stages from here."""
        own = self._size, None
        empty = PETSc.Mat().createPython((own, own), self, self._comm)
        empty.setUp()
        ts.setIFunction(self._residual)
        ts.setIJacobian(self._take_place, empty, empty)
        end = self._nq + self._nu
        base = np.concatenate([*self._dynamics.divided.units, np.full(self._size - end, UNCOUNTED)])
        speeds = slice(self._nq, end)
        self._newton = Newton(ts.getSNES(), self._comm, base, speeds, self._evaluate, self._precondition)

    def _residual(self, ts: object, t: float, x: PETSc.Vec, xdot: PETSc.Vec, f: PETSc.Vec) -> None:
        self._derivative(ts, t, x, f)
        self._time = t
        out = self._arrays(f)[0]
        self._f[:] = out
        np.subtract(self._arrays.read(xdot), out, out=out)

    def _take_place(self, ts: object, t: float, x: PETSc.Vec, xdot: PETSc.Vec, shift: float, *given: Any) -> None:
        """Take J, and f' by differences, about where the residual was asked for last: once a Newton step."""
        assert self._newton is not None
        self._shift = shift
        self._matrix.look(1.0 / shift)
        state = self._arrays.read(x)
        self._matrix.at(state[: self._nq], state[self._nq : self._nq + self._nu], 1.0 / shift)
        self._newton.at(x, self._f, shift)

    def _evaluate(self, x: PETSc.Vec, f: PETSc.Vec) -> None:
        """Write f(t, x) at the time of the stage."""
        self._derivative(None, self._time, x, f)

    def _precondition(self, b: PETSc.Vec, x: PETSc.Vec) -> None:
        """Write x of (a - J) x = b."""
        self._matrix.solve(self._arrays.read(b), self._arrays(x)[0], 1.0 / self._shift)
        x.stateIncrease()

    def close(self) -> None:
        """Free what Newton's method holds; all ranks call."""
        if self._newton is not None:
            self._newton.close()
