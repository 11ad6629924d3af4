"""What a `Dynamics` knows of the space of generalized speeds: the inertia matrix, formed and applied, and Jacobians.

M is formed from composite inertias, rank by rank its rows [Amin-Javaheri & Orin 1989]. It is applied without being
formed: M v is inverse dynamics of accelerations v at rest, M^-1 f forward dynamics of forces f at rest, where nothing
else acts; both are O(n) sweeps, over any ranks. Loops are open here: M is that of the spanning tree.
"""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from numba.core.errors import NumbaError

from mpimbs.base.arguments import check_array, choose
from mpimbs.base.errors import InputError
from mpimbs.base.names import DOUBLING, FORMS
from mpimbs.closure.jacobian import LoopJacobian, TooLargeError
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
from mpimbs.dynamics.operators.inverse import NO_FORCES, InverseSweeps, required_forces, sweeps_of
from mpimbs.dynamics.operators.jacobians import Jacobians
from mpimbs.model import System
from mpimbs.parallel.agreement import together
from mpimbs.parallel.gather import Gather
from mpimbs.sweep.inertia.inertia_alone import alone

if TYPE_CHECKING:
    import scipy.sparse

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class JointSpace(Jacobians):
    """The inertia matrix of a system, what applies it, and Jacobians: methods of `Dynamics`; all ranks call together.

    Vectors and rows are the rank's own part, in the order of its vectors; columns are in that of all ranks' parts, one
    after the other: `gather_u` brings what is gathered into the model's order.
    """

    # --- the matrix

    def inertia_matrix(
        self: Any, q: Floats, form: str = DOUBLING, layout: str = ROWS, out: Floats | None = None
    ) -> Any:
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
        if layout == ROWS and form in FORMS and (found := self._matrix_at_once(q, out)) is not None:
            return found
        choose("form", form, FORMS)
        choose("layout", layout, LAYOUTS)
        q = self._coordinates(q)
        out, heavier = self._checked(out), self._heavier
        if layout == ROWS:
            return self._rows_of(self.inertia_times, q, out) if heavier else self.composites.matrix(q, form, out)
        pattern = self._pattern(layout in (UPPER, SBAIJ))
        if heavier:
            numbers, first = self.composites.numbers, self.composites.first
            rows = self._rows_of(self.inertia_times, q)
            data = rows[numbers[pattern.rows] - first, numbers[pattern.columns]]
        else:
            self.composites.at(q, form)
            data = self.composites.entries(pattern.rows, pattern.columns)
        if layout in (UPPER, SPARSE):
            shape = (self.subchain.nu, self.system.nu)
            import scipy.sparse

            return scipy.sparse.csr_array((data, pattern.numbers, pattern.begins), shape)
        return petsc_matrix(self.comm, layout, pattern, data, self.subchain.nu)

    @functools.cached_property
    def _heavier(self: Any) -> bool:
        """Whether bodies have added mass."""
        return bool(self.system.has_added_mass(0, self.system.n_bodies))

    @functools.cached_property
    def _in_one_call(self: Any) -> bool:
        """Whether one call of compiled code gives the inertia matrix."""
        return self.comm.size == 1 and not self._heavier

    def _matrix_at_once(self: Any, q: Any, out: Any) -> Floats | None:
        """Give the inertia matrix on one rank, of arrays that nobody has looked at; None where that comes first."""
        if not self._in_one_call or self.system.changes != self._changes:
            return None
        parts = self.composites
        if out is None:
            out = parts.room()
        try:
            return out if alone(parts.plan, q, out) else None
        except (TypeError, NumbaError):
            return None

    def inverse_inertia_matrix(self: Any, q: Floats) -> Floats:
        """Give the inverse of the inertia matrix: this rank's rows [nu, nu of all].

        On one rank by load sweeps of eight columns at a time, on several by one for each column. Arguments and
        InputError as of `inertia_matrix`.
        """
        q = self._coordinates(q)
        if self.comm.size == 1:
            return self.composites.inverse(q)
        factor = self._factored(q)
        return self._rows_of(lambda _, force: factor.solve(force), q)

    def _rows_of(self: Any, apply: Any, q: Floats, out: Floats | None = None) -> Floats:
        """Give this rank's rows of a matrix that is applied in a state, `apply(q, v)`, column by column."""
        first, last = self.composites.first, self.composites.last
        found = np.empty((last - first, self.system.nu)) if out is None else out
        unit = np.zeros(last - first)
        for column in range(self.system.nu):
            here = first <= column < last
            if here:
                unit[column - first] = 1.0
            found[:, column] = apply(q, unit)
            if here:
                unit[column - first] = 0.0
        return found

    def gather_rows(self: Any, rows: Floats) -> Floats | None:
        """Give a matrix [nu of all, nu of all] of which each rank has its rows, on rank 0, in the model's order; None
        elsewhere. All ranks call."""
        columns = self.comm.gather(np.arange(self.system.nu)[self.gather_u.part])
        whole = Gather(self.comm, self.model_order["u"], self.system.nu)(rows)
        if whole is None:
            return None
        found = np.empty((self.system.nu, self.system.nu))
        found[:, np.concatenate(columns)] = whole.reshape(found.shape)
        return found

    # --- applied

    def multiply(self: Any, q: Floats, v: Floats) -> Floats:
        """Give M v [nu] without forming M: inverse dynamics at rest.

        `q`, `v` [nu]: this rank's parts. InputError as of `accelerations`.
        """
        if (found := self.needed_at_once(q, self._still, v, False)) is not None:
            return found
        q, v = self._pair(q, v, "v")
        return self.inertia_times(q, v)

    def solve(self: Any, q: Floats, f: Floats) -> Floats:
        """Give M^-1 f [nu] without forming M; `factor` gives more of them in one state.

        InputError as of `accelerations`.
        """
        q, f = self._pair(q, f, "f")
        return self._factored(q).solve(f)

    def factor(self: Any, q: Floats, armature: Floats | None = None) -> Factor:
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

    def inertia_operator(self: Any, q: Floats, inverse: bool = False) -> scipy.sparse.linalg.LinearOperator:
        """Give M, or its inverse, in a state as a scipy operator on this rank's vectors; all ranks apply it together.

        On several ranks products are of the parts: an iteration that takes norms needs `inertia_shell`.
        """
        q, n = self._coordinates(q).copy(), self.subchain.nu
        apply = self.factor(q).solve if inverse else functools.partial(self.inertia_times, q)
        product = functools.partial(_applied, apply)
        import scipy.sparse.linalg

        return scipy.sparse.linalg.LinearOperator((n, n), matvec=product, rmatvec=product, dtype=np.float64)

    def inertia_shell(self: Any, q: Floats, inverse: bool = False) -> Any:
        """Give M, or its inverse, in a state as a PETSc shell matrix over the ranks; it can be solved with, too."""
        from mpimbs.parallel.petsc import PETSc

        q, n = self._coordinates(q).copy(), self.subchain.nu
        both = functools.partial(self.inertia_times, q), self.factor(q).solve
        applied = [functools.partial(_applied, apply) for apply in both]
        given = Shell(*applied[:: -1 if inverse else 1])
        shell = PETSc.Mat().createPython(((n, self.system.nu),) * 2, given, self.comm)
        shell.setOption(PETSc.Mat.Option.SPD, True)
        shell.setUp()
        return shell

    def loop_jacobian(self: Any, q: Floats) -> scipy.sparse.csr_array:
        """Give the Jacobian of what the loops constrain [constraints, nu], this rank's columns: J u is how fast their
        ends part.

        Rows are those of the loops in the model's order, each as many as its joint constrains: turns (rad) and shifts
        (m) in the frame that `ClosedLoops.violations` measures in.

        Raises
        ------
        InputError
            On all ranks: q as of `accelerations`; no loops, or such that span more joints than are looked at.
        """
        q = self._coordinates(q)

        def made() -> LoopJacobian:
            if not self.system.loops:
                raise InputError(f"system '{self.system.name}' has no loops")
            try:
                return LoopJacobian(self.system)
            except TooLargeError:
                raise InputError(
                    "the loops span too many joints to write their Jacobian down; `loops.close_speeds` needs none"
                ) from None

        loops = together(self.comm, made)
        where = self.comm.allgather((np.arange(self.system.nq)[self.gather_q.part], q))
        whole = np.empty(self.system.nq)
        for places, own in where:
            whole[places] = own
        here = loops.at(whole)
        import scipy.sparse

        scaled = scipy.sparse.diags_array(1.0 / here.rows) @ here.whole @ scipy.sparse.diags_array(1.0 / here.columns)
        return scipy.sparse.csr_array(scaled.tocsc()[:, np.arange(self.system.nu)[self.gather_u.part]])

    def loop_responses(self: Any, q: Floats) -> Floats:
        """Give M^-1 J^T [nu, constraints]: this rank's accelerations by unit loads of what loops constrain.

        Arguments and InputError as of `loop_jacobian`.
        """
        q = self._coordinates(q)
        rows = self.loop_jacobian(q).toarray()
        factor = self._factored(q)
        return np.array([factor.solve(row) for row in rows]).reshape(rows.shape).T

    # --- implicit steps

    @functools.cached_property
    def implicit_matrix(self: Any) -> ImplicitMatrix:
        """What linearly implicit steps are solved with; made when first asked for, by all ranks together."""
        return ImplicitMatrix(self)

    @functools.cached_property
    def implicit_matrix_of_bodies(self: Any) -> ImplicitMatrix:
        """The same, that counts what acts on bodies too: the tension of lines, fluids, the ground."""
        return ImplicitMatrix(self, of_bodies=True)

    # --- how

    @functools.cached_property
    def composites(self: Any) -> Composites:
        """What the ranks know of the inertias that each joint moves; made when first asked for."""
        return Composites(self)

    def _pattern(self: Any, upper: bool) -> Pattern:
        made: dict[bool, Pattern] = self.__dict__.setdefault("_patterns", {})
        if upper not in made:
            made[upper] = (upper_pattern if upper else whole_pattern)(self.composites)
        return made[upper]

    def _coordinates(self: Any, q: Floats) -> Floats:
        coordinates: Floats = self.agreed(q, np.zeros(self.subchain.nu))[0]
        return coordinates

    def _checked(self: Any, out: Floats | None) -> Floats | None:
        if out is not None:
            together(self.comm, lambda: check_array("out", out, (self.subchain.nu, self.system.nu)))
        return out

    def _pair(self: Any, q: Floats, vector: Floats, name: str) -> tuple[Floats, Floats]:
        q, _, given = self.agreed(q, np.zeros(self.subchain.nu), vector, name)
        return q, given

    def inertia_times(self: Any, q: Floats, v: Floats) -> Floats:
        """Give M v [nu], of arrays that were checked: they are read by address."""
        still = self._still
        if self.inverse_sweeps:
            found: Floats = self.inverse_sweeps(q, still, v, still, acting=False)
            return found
        boundary = self.boundary_motion(q, still)
        return required_forces(self.comm, self.subchain, q, still, v, still, boundary, np.zeros(6), at_rest=True)

    @functools.cached_property
    def _still(self: Any) -> Floats:
        return np.zeros(self.subchain.nu)

    @functools.cached_property
    def inverse_sweeps(self: Any) -> InverseSweeps | None:
        """What sweeps inverse dynamics, where it is one call; made when first asked for."""
        return sweeps_of(self, self.root)

    def needed_at_once(self: Any, q: Any, u: Any, udot: Any, acting: bool) -> Floats | None:
        """Give the generalized forces [nu] that accelerations need, of arrays that nobody has looked at, on one rank.

        None where these have to be looked at first, or there are several ranks, or other ways. `acting` as of
        `InverseSweeps`.
        """
        sweeps = self.inverse_sweeps
        if sweeps is None or self.comm.size > 1 or self.system.changes != self._changes:
            return None
        tau = np.empty(self.subchain.nu)
        try:
            return tau if sweeps.needed(sweeps.plan, q, u, udot, NO_FORCES, tau, int(acting)) else None
        except (TypeError, NumbaError):
            return None

    @functools.cached_property
    def factors(self: Any) -> Factors:
        """What makes factors, and what they share; made when first asked for, by all ranks together."""
        return Factors(self)

    @functools.cached_property
    def _factor(self: Any) -> Factor:
        factor: Factor = self.factors.make()
        return factor

    def _factored(self: Any, q: Floats) -> Factor:
        """Give the factors of a state, for the time being."""
        self._factor.at(q)
        return self._factor

    def answer_at_rest(self: Any, q: Floats, tau: Floats) -> Floats:
        """Give the accelerations [nu] by generalized forces [nu] alone, without speeds or anything else that acts.

        Arrays are read by address. One evaluation with `tau`; where springs or torques act along joints at rest, less
        one without.
        """
        if self._tree is not self:
            opened: Floats = self._tree.answer_at_rest(q, tau)
            return opened
        still, rates = np.zeros(self.subchain.nu), np.empty(self.subchain.nq)
        root, self.root[:] = self.root.copy(), 0.0
        try:
            found = []
            for given in (tau, still) if self._pushed else (tau,):
                udot = np.empty(self.subchain.nu)
                self.evaluate_unforced(q, still, udot, rates, given)
                found.append(udot)
        finally:
            self.root[:] = root
        return found[0] - found[1] if self._pushed else found[0]

    @functools.cached_property
    def _pushed(self: Any) -> bool:
        """Whether springs or torques of the model act along joints at rest, on any rank."""
        springs = self.subchain.springs
        return bool(self.comm.allreduce(bool(springs.stiffness.any() or springs.torque.any()), MPI.LOR))

    @functools.cached_property
    def _tree(self: Any) -> Any:
        """Dynamics of the same bodies on the same ranks, with loops opened."""
        if not self.system.loops:
            return self
        opened = copy.deepcopy(self.system)
        for held in (opened.loops, opened.loop_bodies, opened.loop_names):
            held.clear()
        return self.alike(opened)

    def alike(self: Any, system: System) -> Any:
        """Give the dynamics of a system of as many bodies, divided among the ranks as this one is.

        By `dcae`, whichever coupling this one has: its equations of joints or bodies are solved as they stand, where
        others iterate, or hold what may be larger.
        """
        division, rank = self.division, self.comm.rank

        class Alike(type(self)):  # type: ignore[misc]
            def divide(self, *given: Any) -> Any:
                return division, rank

        return Alike(system, self.comm)


def _applied(apply: Any, v: Floats) -> Floats:
    found: Floats = apply(np.require(v, np.float64, ["C", "W"]).reshape(-1))
    return found
