"""What PETSc solves the stages of an implicit step with: the implicit matrix of the system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpimbs.dynamics import Dynamics
from mpimbs.petsc import PETSc

LEFT = 1e-9  # of the residual of a stage, or of its change, by Newton's method
MOST = 20  # of its steps
LEFT_OF_STEPS = 1e-2  # of the residual of each, by GMRES
DIFFERENCE = 1.5e-8  # relative, of the state

Derivative = Callable[[object, float, PETSc.Vec, PETSc.Vec], None]


class Stages:
    """Solves (a - J) x = b for the stages of PETSc's implicit methods; all ranks make it together.

    As PETSc sees it: the equation F(t, x, xdot) = xdot - f(t, x) = 0; a Jacobian that is never formed, whose only
    number is the shift a = 1 / (h g). Of Rosenbrock-W methods a stage is one Newton step by one application of a
    preconditioner, this object, which is the exact inverse. Of the others it is solved by Newton's method to the end:
    each of its steps by GMRES, with differences of f in place of J, and the same preconditioner.

    Parameters
    ----------
    dynamics : Dynamics
    derivative : callable
        f, as PETSc calls it.
    size : int
        Numbers of this rank in the state; what stands behind coordinates and speeds has no part in J.
    """

    def __init__(self, dynamics: Dynamics, derivative: Derivative, size: int) -> None:
        self._matrix, self._derivative = dynamics.implicit_matrix, derivative
        self._comm, self._nq, self._size = dynamics.comm, dynamics.subchain.nq, size
        self._end = self._nq + dynamics.subchain.nu
        self._shift = 1.0
        self._r = np.empty(size)
        self._f = np.empty(size)  # with Newton's method, in the state of J
        self._place: tuple[float, PETSc.Vec] | None = None  # t, x

    def serve(self, ts: PETSc.TS, newton: bool = False) -> None:
        """Make PETSc's integrator take its stages from here; `newton`: solved to the end."""
        own = self._size, None
        empty = PETSc.Mat().createPython((own, own), self, self._comm)
        empty.setUp()
        ts.setIFunction(self._residual_kept if newton else self._residual)
        ts.setIJacobian(self._take_place if newton else self._take_state, empty, empty)
        stages = ts.getSNES()
        solver = stages.getKSP()
        if newton:
            stages.setTolerances(rtol=LEFT, stol=LEFT, max_it=MOST)
            solver.setType(PETSc.KSP.Type.GMRES)
            solver.setPCSide(PETSc.PC.Side.RIGHT)
            solver.setTolerances(rtol=LEFT_OF_STEPS)
        else:
            stages.setType(PETSc.SNES.Type.KSPONLY)
            solver.setType(PETSc.KSP.Type.PREONLY)
        solver.getPC().setType(PETSc.PC.Type.PYTHON)
        solver.getPC().setPythonContext(self)

    def _residual(self, ts: object, t: float, x: PETSc.Vec, xdot: PETSc.Vec, f: PETSc.Vec) -> None:
        self._derivative(ts, t, x, f)
        np.subtract(xdot.array_r, f.array_r, out=f.array)

    def _residual_kept(self, ts: object, t: float, x: PETSc.Vec, xdot: PETSc.Vec, f: PETSc.Vec) -> None:
        self._derivative(ts, t, x, f)
        self._f[:] = f.array_r
        np.subtract(xdot.array_r, f.array_r, out=f.array)

    def _take_state(
        self, ts: object, t: float, x: PETSc.Vec, xdot: PETSc.Vec, shift: float, jacobian: PETSc.Mat, own: PETSc.Mat
    ) -> None:
        self._shift = shift
        self._matrix.at(x.array_r[: self._nq], 1.0 / shift)

    def _take_place(self, ts: object, t: float, x: PETSc.Vec, *given: Any) -> None:
        """The same, of J by differences: about where the residual was asked for last."""
        self._take_state(ts, t, x, *given)
        self._place = t, x.copy(None if self._place is None else self._place[1])

    def mult(self, jacobian: PETSc.Mat, v: PETSc.Vec, y: PETSc.Vec) -> None:
        """Write y = (a - J) v: PETSc calls it."""
        assert self._place is not None
        (t, x), length = self._place, v.norm()
        if length == 0.0:
            y.set(0.0)
            return
        step = DIFFERENCE * np.sqrt(1.0 + x.norm()) / length
        x.axpy(step, v)
        self._derivative(None, t, x, y)
        x.axpy(-step, v)
        y.array[:] = self._shift * v.array_r - (y.array_r - self._f) / step

    def apply(self, preconditioner: object, b: PETSc.Vec, x: PETSc.Vec) -> None:
        """Write x of (a - J) x = b: PETSc calls it."""
        np.multiply(b.array_r, 1.0 / self._shift, out=self._r)
        out = x.array
        self._matrix.solve(self._r[: self._end], out[: self._end])
        out[self._end :] = self._r[self._end :]
