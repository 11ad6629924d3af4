"""The inertia matrix of a system over the ranks: formed, applied, factored; and the Jacobian of its loops.

M is formed from composite inertias, rank by rank its rows [Amin-Javaheri & Orin 1989]. It is applied without being
formed: M v is inverse dynamics of accelerations v at rest, M^-1 f forward dynamics of forces f at rest, where nothing
else acts; both are O(n) sweeps, over any ranks. Loops are open here: M is that of the spanning tree.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from numba.core.errors import NumbaError

from mpimbs.base.arguments import check_array, choose
from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.base.settings import DOUBLING, FORMS
from mpimbs.closure.jacobian import LoopJacobian, TooLargeError
from mpimbs.dynamics.divided import DividedSystem
from mpimbs.dynamics.operators.composites import (
    LAYOUTS,
    ROWS,
    SBAIJ,
    SPARSE,
    UPPER,
    Composites,
    Pattern,
    Shell,
    petsc_matrix,
    upper_pattern,
    whole_pattern,
)
from mpimbs.dynamics.operators.factor import Factor, Factors
from mpimbs.dynamics.operators.implicit_matrix import ImplicitMatrix
from mpimbs.dynamics.operators.inverse import InverseDynamics
from mpimbs.parallel.agreement import together
from mpimbs.parallel.reorder import Gather
from mpimbs.sweep.inertia.inertia_alone import alone

if TYPE_CHECKING:
    import scipy.sparse


class InertiaMatrix:
    """The inertia matrix of a system over the ranks, and what applies it; all ranks call together.

    Vectors and rows are the rank's own part, in the order of its vectors; columns are in that of all ranks' parts, one
    after the other.

    Parameters
    ----------
    divided : DividedSystem
    inverse : InverseDynamics
        Of the same system.
    """

    def __init__(self, divided: DividedSystem, inverse: InverseDynamics) -> None:
        self._divided, self._inverse = divided, inverse
        self._comm, self._subchain, self._system = divided.comm, divided.subchain, divided.system
        self._patterns: dict[bool, Pattern] = {}
        self._still = divided.still

    # --- the matrix

    def matrix(self, q: Floats, form: str = DOUBLING, layout: str = ROWS, out: Floats | None = None) -> Any:
        """Give the joint-space inertia matrix M [nu, nu of all]: this rank's rows [Amin-Javaheri & Orin 1989].

        Parameters
        ----------
        q : array [nq]
        form : str
            How ranks learn what hangs on their bodies behind them: "doubling", in ceil(log2 P) exchanges, or
            "recursive", one after the other. With added mass columns are found one by one.
        layout : str
            "rows": dense. Without the zeros between branches: "csr", a `scipy.sparse.csr_array` of these rows, "upper",
            of their part from the diagonal on, "aij", "sbaij": PETSc matrices over the ranks, the second one symmetric.
        out : array [nu, nu of all], optional
            Written and given back, of "rows": best one that was given before, whose rows begin where cache lines do.

        Returns
        -------
        array, scipy.sparse.csr_array or PETSc.Mat
            kg m^2, kg m, kg: by the units of the speeds.

        Raises
        ------
        InputError
            On all ranks: q as of `accelerations`; an unknown form or layout.
        """
        if layout == ROWS and form in FORMS and self._in_one_call and self._system.changes == self._divided.changes:
            parts = self.composites  # of arrays that nobody has looked at
            at_once = parts.room() if out is None else out
            try:
                if alone(parts.plan, q, at_once):
                    return at_once
            except (TypeError, NumbaError):  # which are told below
                pass
        choose("form", form, FORMS)
        choose("layout", layout, LAYOUTS)
        q = self._divided.coordinates(q)
        out, heavier = self._checked(out), self._heavier
        if layout == ROWS:
            return self._rows_of(self.times, q, out) if heavier else self.composites.matrix(q, form, out)
        pattern = self._pattern(layout in (UPPER, SBAIJ))
        if heavier:
            numbers, first = self.composites.numbers, self.composites.first
            rows = self._rows_of(self.times, q)
            data = rows[numbers[pattern.rows] - first, numbers[pattern.columns]]
        else:
            self.composites.at(q, form)
            data = self.composites.entries(pattern.rows, pattern.columns)
        if layout in (UPPER, SPARSE):
            shape = (self._subchain.nu, self._system.nu)
            import scipy.sparse

            return scipy.sparse.csr_array((data, pattern.numbers, pattern.begins), shape)
        return petsc_matrix(self._comm, layout, pattern, data, self._subchain.nu)

    @functools.cached_property
    def _heavier(self) -> bool:
        """Whether bodies have added mass."""
        return bool(self._system.has_added_mass(0, self._system.n_bodies))

    @functools.cached_property
    def _in_one_call(self) -> bool:
        """Whether one call of compiled code gives the inertia matrix."""
        return self._comm.size == 1 and not self._heavier

    def inverse_matrix(self, q: Floats) -> Floats:
        """Give the inverse of the inertia matrix: this rank's rows [nu, nu of all].

        On one rank by load sweeps of eight columns at a time, on several by one for each column. Arguments and
        InputError as of `matrix`.
        """
        q = self._divided.coordinates(q)
        if self._comm.size == 1:
            return self.composites.inverse(q)
        factor = self.factored(q)
        return self._rows_of(lambda _, force: factor.solve(force), q)

    def _rows_of(self, apply: Any, q: Floats, out: Floats | None = None) -> Floats:
        """Give this rank's rows of a matrix that is applied in a state, `apply(q, v)`, column by column."""
        first, last = self.composites.first, self.composites.last
        found = np.empty((last - first, self._system.nu)) if out is None else out
        unit = np.zeros(last - first)
        for column in range(self._system.nu):
            here = first <= column < last
            if here:
                unit[column - first] = 1.0
            found[:, column] = apply(q, unit)
            if here:
                unit[column - first] = 0.0
        return found

    def gather_rows(self, rows: Floats) -> Floats | None:
        """Give a matrix [nu of all, nu of all] of which each rank has its rows, on rank 0, in the model's order; None
        elsewhere. All ranks call."""
        columns = self._comm.gather(np.arange(self._system.nu)[self._divided.gather_u.part])
        whole = Gather(self._comm, self._divided.model_order["u"], self._system.nu)(rows)
        if whole is None or columns is None:
            return None
        found = np.empty((self._system.nu, self._system.nu))
        found[:, np.concatenate(columns)] = whole.reshape(found.shape)
        return found

    # --- applied

    def multiply(self, q: Floats, v: Floats) -> Floats:
        """Give M v [nu] without forming M: inverse dynamics at rest.

        `q`, `v` [nu]: this rank's parts. InputError as of `accelerations`.
        """
        if (found := self._inverse.at_once(q, self._still, v, False)) is not None:
            return found
        q, v = self._divided.pair(q, v, "v")
        return self.times(q, v)

    def solve(self, q: Floats, f: Floats) -> Floats:
        """Give M^-1 f [nu] without forming M; `factor` gives more of them in one state.

        InputError as of `accelerations`.
        """
        q, f = self._divided.pair(q, f, "f")
        return self.factored(q).solve(f)

    def factor(self, q: Floats, armature: Floats | None = None) -> Factor:
        """Factor M in a state: what `solve` of that then gives for one vector takes far less than an evaluation.

        Of chains, and of trees on one rank; of other systems it takes an evaluation. It may be factored again in
        another state, by its `at`; several may be kept. What nobody keeps any more is freed.

        Parameters
        ----------
        q : array [nq]
        armature : array [nu], optional
            Added to the diagonal of M (kg m^2, kg), as of implicit steps, this rank's part.

        Raises
        ------
        InputError
            On all ranks: q as of `accelerations`; armature of another size.
        """
        factor = self.factors.make()
        factor.at(q, armature)
        return factor

    def operator(self, q: Floats, inverse: bool = False) -> scipy.sparse.linalg.LinearOperator:
        """Give M, or its inverse, in a state as a scipy operator on this rank's vectors; all ranks apply it together.

        On several ranks products are of the parts: an iteration that takes norms needs `inertia_shell`.
        """
        q, n = self._divided.coordinates(q).copy(), self._subchain.nu
        apply = self.factor(q).solve if inverse else functools.partial(self.times, q)
        product = functools.partial(_applied, apply)
        import scipy.sparse.linalg

        return scipy.sparse.linalg.LinearOperator((n, n), matvec=product, rmatvec=product, dtype=np.float64)

    def shell(self, q: Floats, inverse: bool = False) -> Any:
        """Give M, or its inverse, in a state as a PETSc shell matrix over the ranks; it can be solved with, too."""
        from mpimbs.parallel.petsc import PETSc

        q, n = self._divided.coordinates(q).copy(), self._subchain.nu
        both = functools.partial(self.times, q), self.factor(q).solve
        applied = [functools.partial(_applied, apply) for apply in both]
        given = Shell(*applied[:: -1 if inverse else 1])
        shell = PETSc.Mat().createPython(((n, self._system.nu),) * 2, given, self._comm)
        shell.setOption(PETSc.Mat.Option.SPD, True)
        shell.setUp()
        return shell

    def loop_jacobian(self, q: Floats) -> scipy.sparse.csr_array:
        """Give the Jacobian of what the loops constrain [constraints, nu], this rank's columns: J u is how fast their
        ends part.

        Rows are those of the loops in the model's order, each as many as its joint constrains: turns (rad) and shifts
        (m) in the frame that `ClosedLoops.violations` measures in.

        Raises
        ------
        InputError
            On all ranks: q as of `accelerations`; no loops, or such that span more joints than are looked at.
        """
        q = self._divided.coordinates(q)

        def made() -> LoopJacobian:
            if not self._system.loops:
                raise InputError(f"system '{self._system.name}' has no loops")
            try:
                return LoopJacobian(self._system)
            except TooLargeError:
                raise InputError(
                    "the loops span too many joints to write their Jacobian down; `dynamics.loops.close_speeds` needs "
                    "none"
                ) from None

        loops = together(self._comm, made)
        where = self._comm.allgather((np.arange(self._system.nq)[self._divided.gather_q.part], q))
        whole = np.empty(self._system.nq)
        for places, own in where:
            whole[places] = own
        here = loops.at(whole)
        import scipy.sparse

        scaled = scipy.sparse.diags_array(1.0 / here.rows) @ here.whole @ scipy.sparse.diags_array(1.0 / here.columns)
        return scipy.sparse.csr_array(scaled.tocsc()[:, np.arange(self._system.nu)[self._divided.gather_u.part]])

    def loop_responses(self, q: Floats) -> Floats:
        """Give M^-1 J^T [nu, constraints]: this rank's accelerations by unit loads of what loops constrain.

        Arguments and InputError as of `loop_jacobian`.
        """
        q = self._divided.coordinates(q)
        rows = self.loop_jacobian(q).toarray()
        factor = self.factored(q)
        return np.array([factor.solve(row) for row in rows]).reshape(rows.shape).T

    # --- implicit steps

    @functools.cached_property
    def implicit_matrix(self) -> ImplicitMatrix:
        """The matrix of linearly implicit steps; made when first asked for, by all ranks together."""
        return ImplicitMatrix(self._divided, self.factors)

    @functools.cached_property
    def implicit_matrix_of_bodies(self) -> ImplicitMatrix:
        """The matrix of implicit steps with what acts on bodies too: the tension of lines, fluids, the ground."""
        return ImplicitMatrix(self._divided, self.factors, of_bodies=True)

    # --- how

    @functools.cached_property
    def composites(self) -> Composites:
        """The composite inertias that each joint moves, as the ranks know them; made when first asked for."""
        return Composites(self._divided)

    def _pattern(self, upper: bool) -> Pattern:
        if upper not in self._patterns:
            self._patterns[upper] = (upper_pattern if upper else whole_pattern)(self.composites)
        return self._patterns[upper]

    def _checked(self, out: Floats | None) -> Floats | None:
        if out is not None:
            together(self._comm, lambda: check_array("out", out, (self._subchain.nu, self._system.nu)))
        return out

    def times(self, q: Floats, v: Floats) -> Floats:
        """Give M v [nu], of arrays that were checked: they are read by address."""
        return self._inverse.at_rest(q, v)

    @functools.cached_property
    def factors(self) -> Factors:
        """The maker of factors, and of what they share; made when first asked for, by all ranks together."""
        return Factors(self._divided)

    @functools.cached_property
    def _factor(self) -> Factor:
        return self.factors.make()

    def factored(self, q: Floats) -> Factor:
        """Give the factors of a state, for the time being."""
        self._factor.at(q)
        return self._factor

    def close(self) -> None:
        """Free what MPI holds."""
        for name in ("composites", "factors", "implicit_matrix", "implicit_matrix_of_bodies"):
            if name in self.__dict__:
                self.__dict__[name].close()


def _applied(apply: Any, v: Floats) -> Floats:
    found: Floats = apply(np.require(v, np.float64, ["C", "W"]).reshape(-1))
    return found
