"""What PETSc solves the stages of a linearly implicit step with: the implicit matrix of the system."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mpimbs.dynamics import Dynamics
from mpimbs.petsc import PETSc

Derivative = Callable[[object, float, PETSc.Vec, PETSc.Vec], None]


class Stages:
    """Solves (a - J) x = b for the stages of PETSc's Rosenbrock-W methods; all ranks make it together.

    As PETSc sees it: the equation F(t, x, xdot) = xdot - f(t, x) = 0; a Jacobian that is never formed, whose only
    number is the shift a = 1 / (h g); one Newton step by one application of a preconditioner, this object, which is the
    exact inverse.

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

    def serve(self, ts: PETSc.TS) -> None:
        """Make PETSc's integrator take its stages from here."""
        own = self._size, None
        empty = PETSc.Mat().createPython((own, own), self, self._comm)
        empty.setUp()
        ts.setIFunction(self._residual)
        ts.setIJacobian(self._take_state, empty, empty)
        ts.getSNES().setType(PETSc.SNES.Type.KSPONLY)
        solver = ts.getSNES().getKSP()
        solver.setType(PETSc.KSP.Type.PREONLY)
        solver.getPC().setType(PETSc.PC.Type.PYTHON)
        solver.getPC().setPythonContext(self)

    def _residual(self, ts: object, t: float, x: PETSc.Vec, xdot: PETSc.Vec, f: PETSc.Vec) -> None:
        self._derivative(ts, t, x, f)
        np.subtract(xdot.array_r, f.array_r, out=f.array)

    def _take_state(
        self, ts: object, t: float, x: PETSc.Vec, xdot: PETSc.Vec, shift: float, jacobian: PETSc.Mat, own: PETSc.Mat
    ) -> None:
        self._shift = shift
        self._matrix.at(x.array_r[: self._nq], 1.0 / shift)

    def apply(self, preconditioner: object, b: PETSc.Vec, x: PETSc.Vec) -> None:
        """Write x of (a - J) x = b: PETSc calls it."""
        np.multiply(b.array_r, 1.0 / self._shift, out=self._r)
        out = x.array
        self._matrix.solve(self._r[: self._end], out[: self._end])
        out[self._end :] = self._r[self._end :]
