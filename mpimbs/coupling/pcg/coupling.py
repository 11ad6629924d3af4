"""Constraint-load coupling: the loads at the separated joints by PETSc's preconditioned conjugate gradients.

The hybrid algorithm of Duan & Anderson (2000): subchains by O(n) sweeps, joined by the equations of the constraint
loads (`constraint_equations`), which an iteration solves that begins with an estimate from earlier evaluations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import SimulationError
from mpimbs.coupling.base import CouplingState, Iterative, at_time
from mpimbs.coupling.pcg.constraint_equations import boundary_values, form
from mpimbs.coupling.pcg.estimates import ORDERS, Hold
from mpimbs.coupling.pcg.load_equations import LoadEquations
from mpimbs.coupling.pcg.petsc_matrix import Butterflied, ButterflyProduct, PatternMatrix
from mpimbs.coupling.settings import EXACT, LoadSolver
from mpimbs.parallel.petsc import OWN_OPTIONS, PREFIX, PETSc
from mpimbs.parts.intervals import Intervals
from mpimbs.parts.part import SeparablePart

_INEXACT = ("jacobi", "block-jacobi")
_CONDITION_STEPS = 300
ALMOST = 1e-5  # of the diagonal: what makes of a singular matrix one that has a factor, whose rounding does no harm
# Of the right-hand side: by how much redundant constraints may contradict one another. What steps open loops by does so
# by less; where no accelerations are allowed it is a thousandth or more.
CONTRADICTION = 1e-4
_NOTHING = 1e-25  # rad/s^2, m/s^2: what is left of the right-hand side of a chain that falls freely
_NEVER = 1e200  # of the right-hand side, which may be next to nothing while the estimate is not
_ASTRAY = (
    PETSc.KSP.ConvergedReason.DIVERGED_INDEFINITE_MAT,
    PETSc.KSP.ConvergedReason.DIVERGED_INDEFINITE_PC,
    PETSc.KSP.ConvergedReason.DIVERGED_BREAKDOWN,
)
SHORT = 10.0  # times the tolerance: more is left, beside rounding, of equations that contradict one another
MULTIPLIERS = 6  # steps
CLEARLY = 10.0  # times as much is left by these as was before them: then that was better
RENEWED = 2  # iterations beyond which a factor is too old
_COUNTS = ("iterations", "solutions", "total_iterations", "most_iterations", "factorizations")
ORDERED: dict[str, str] = {}  # orderings that PETSc's options have, by their names
_ARRAYS = ("times", "loads", "factored_diagonal", "factored_beside")  # of its state


class SolutionParts(NamedTuple):
    """The parts of a solution: right-hand side, a vector to write to, the matrix, and what solves."""

    right: PETSc.Vec
    work: PETSc.Vec
    matrix: PatternMatrix
    ksp: PETSc.KSP


class ConstraintLoads:
    """The constraint-load equations over the ranks of a communicator, and their solution.

    Parameters
    ----------
    part : SeparablePart
        That of this rank.
    exact : Butterflied, optional
        The efficient divide and conquer of the same parts, for the preconditioner "dcae"; closed with this.

    Attributes
    ----------
    plan : None
        There is no one call of compiled code.
    unknowns : int
        Constraint loads of all ranks.
    joints : LoadEquations
        Of this rank, with the loads that were found.
    iterations : int
        Of the last solution.
    solutions, total_iterations, most_iterations, factorizations : int
        Solutions so far, their iterations, the most for one of them, and how many were or began with a factorization.
    contradiction : float
        See `Iterative`.
    """

    plan: Integers | None = None

    def __init__(self, comm: MPI.Comm, part: SeparablePart, solver: LoadSolver, exact: Butterflied | None) -> None:
        self._comm = comm
        self._solver = solver
        self.joints = LoadEquations(comm, part, isinstance(part, Intervals) and part.has_loops)
        rows = comm.allgather(self.joints.rows)
        self.unknowns = sum(rows)
        begin = sum(rows[: comm.rank])
        pattern, more = (self.joints.starts, self.joints.columns), ALMOST if self.joints.singular else 0.0
        self._matrix = PatternMatrix(comm, *pattern, begin, self.joints.sizes, more)
        self.joints.write_to(self._matrix.diagonal, self._matrix.beside)
        self._right, self._solution = (
            PETSc.Vec().createWithArray(array, comm=comm) for array in (self.joints.right, self.joints.solution)
        )
        self._check = self._right.duplicate()
        self._product: ButterflyProduct | None = None
        if exact is not None:
            self._product = ButterflyProduct(exact, self.joints, part.blocks.shape)
        # Of the right-hand side. Of equations that may contradict one another no less will do: what conjugate gradients
        # make of those leads loads astray that are free, beside which all others are rounded.
        self._asked = EXACT if self.joints.singular else solver.rtol or EXACT
        self._guesses = 0
        self._orderings: dict[str, str] = {}  # by options
        self._factor = self._make_factor()
        self._ksp = self._make_ksp()
        self._hold = Hold(ORDERS.get(solver.estimate, 0), self.joints.rows)
        self._values = np.zeros(part.loads.shape)
        self._factored = (np.zeros(0), np.zeros(0))  # values of the matrix whose factor is kept
        self._renew = True  # there is no factor yet
        self.contradiction = CONTRADICTION
        self.iterations = 0
        self.solutions = self.total_iterations = self.most_iterations = self.factorizations = 0

    def _make_factor(self) -> PETSc.KSP:
        """A direct solution: every rank factors the whole matrix, which is small, and of a chain banded."""
        ksp = PETSc.KSP().create(comm=self._comm)
        ksp.setOptionsPrefix(PREFIX + "direct_")
        ksp.setOperators(self._matrix.mat, self._matrix.near)
        if self.joints.singular:  # the factor is only almost that of the matrix
            self._iterate(ksp)
        else:
            ksp.setType("preonly")
        self._set_factor(ksp.getPC())
        ksp.setFromOptions()
        return ksp

    def _set_factor(self, pc: PETSc.PC) -> None:
        """Choose the factorization: of a matrix that is a band as it stands, or else has to be put in order."""
        ordering = "natural" if self.joints.is_band else "qmd"
        if self._comm.size == 1:
            pc.setType("lu")
            pc.setFactorOrdering(ordering)
            return
        pc.setType("redundant")  # which asks PETSc's options for the ordering, when it is first set up
        name = pc.getOptionsPrefix() + "redundant_pc_factor_mat_ordering_type"
        if name in OWN_OPTIONS or not PETSc.Options().hasName(name):
            OWN_OPTIONS.add(name)
            self._orderings[name] = ordering

    def _set_orderings(self) -> None:
        """Have PETSc's options say by which orderings these equations are factored: others may have been there."""
        for name, ordering in self._orderings.items():
            if ORDERED.get(name) != ordering:
                ORDERED[name] = PETSc.Options()[name] = ordering

    def _iterate(self, ksp: PETSc.KSP) -> None:
        """Have conjugate gradients solve the equations to the tolerance of the solver."""
        ksp.setType("cg")
        ksp.setNormType(PETSc.KSP.NormType.UNPRECONDITIONED)
        ksp.setTolerances(rtol=self._asked, atol=_NOTHING, divtol=_NEVER, max_it=self._solver.most)

    def _make_ksp(self) -> PETSc.KSP:
        solver = self._solver
        ksp = PETSc.KSP().create(comm=self._comm)
        ksp.setOptionsPrefix(PREFIX)
        ksp.setOperators(
            self._steady_operator() if solver.estimate == "fischer" else self._matrix.mat, self._matrix.near
        )
        self._iterate(ksp)
        ksp.setConvergenceHistory(length=min(solver.most, 1000) + 1, reset=True)
        pc = ksp.getPC()
        if solver.preconditioner == "jacobi":
            pc.setType("jacobi")
        elif solver.preconditioner == "block-jacobi":
            pc.setType("vpbjacobi")
        elif solver.preconditioner == "dcae":
            pc.setType("python")
            pc.setPythonContext(self._product)
        else:
            self._set_factor(pc)
        if solver.estimate == "fischer":
            self._use_fischer_guess(ksp)
        else:
            ksp.setInitialGuessNonzero(solver.estimate != "none")
        ksp.setFromOptions()
        if ksp.getType() != "cg" and not PETSc.Options(PREFIX).hasName("ksp_norm_type"):
            ksp.setNormType(PETSc.KSP.NormType.DEFAULT)  # some know no other
        return ksp

    def _use_fischer_guess(self, ksp: PETSc.KSP) -> None:
        """Have PETSc guess from the next solutions; it forgets the last ones when the number to keep changes."""
        most = int(np.clip(self.unknowns // 2, 2, 10))
        self._guesses = most if self._guesses != most else most - 1
        ksp.setUseFischerGuess(1, self._guesses)

    def _steady_operator(self) -> PETSc.Mat:
        """The matrix in a shell that never seems to change: PETSc's guesses begin anew with every change."""
        shell = PETSc.Mat().createPython(self._matrix.mat.getSizes(), self._matrix, comm=self._comm)
        shell.setUp()
        return shell

    def parts(self) -> SolutionParts:
        """Give what the last solution was made of, to be timed or looked at."""
        direct = self._solver.preconditioner == "direct"
        return SolutionParts(self._right, self._check, self._matrix, self._factor if direct else self._ksp)

    @property
    def iterative(self) -> Iterative | None:
        """Itself, where there are any constraint loads."""
        return self if self.unknowns else None

    def statistics(self) -> dict[str, int]:
        """Unknowns, solutions, iterations of all, most iterations of one, factorizations."""
        names = ("unknowns", "solutions", "total_iterations", "most_iterations", "factorizations")
        return {name: getattr(self, name) for name in names}

    def state(self) -> CouplingState:
        """Give the state that earlier solutions leave to the next.

        PETSc's own guesses can't be read: with the estimate "fischer" all begins anew, here as after `go_on`.
        """
        numbers = {name: getattr(self, name) for name in _COUNTS} | {"kept": self._hold.kept}
        if self._solver.estimate == "fischer":
            self._begin_anew()
            return CouplingState(numbers, {})
        parts = zip(_ARRAYS, (self._hold.times, self._hold.values, *self._factored), strict=True)
        return CouplingState(numbers, {name: values.ravel().copy() for name, values in parts})

    def _begin_anew(self) -> None:
        """Make PETSc's solvers anew: without guesses, factors and errors of before."""
        for solver in (self._ksp, self._factor):
            solver.destroy()
        self._guesses = 0
        self._ksp, self._factor = self._make_ksp(), self._make_factor()
        self._renew = True

    def go_on(self, state: CouplingState) -> None:
        """Go on from what others left; all ranks call, after which the next solution is that of the same bits.

        Without arrays, where subchains or ranks are others, from its counts only: nothing else is known then.
        """
        for name in _COUNTS:
            setattr(self, name, state.numbers[name])
        if not state.arrays:
            return
        times, loads, *factored = (state.arrays[name] for name in _ARRAYS)
        hold, hold.kept = self._hold, state.numbers["kept"]
        hold.times[:], hold.values[:] = times, loads.reshape(hold.values.shape)
        if self._comm.allreduce(factored[0].size, MPI.SUM):
            self._matrix.diagonal[:], self._matrix.beside[:] = factored
            self._matrix.changed()
            self._keep_factored()
            self._set_orderings()
            self._ksp.getPC().setReusePreconditioner(False)
            self._ksp.setUp()
            self._ksp.getPC().setUp()
            self._renew = False

    def _keep_factored(self) -> None:
        """Keep the values of the matrix that is about to be factored, from which a restart makes the factor again."""
        self._factored = (self._matrix.diagonal.copy(), self._matrix.beside.copy())

    @property
    def seconds(self) -> float:
        """Time spent in messages of our own so far (s); those within PETSc are not known."""
        return self.joints.seconds + (self._product.seconds if self._product is not None else 0.0)

    def close(self) -> None:
        """Free what PETSc and MPI hold, before the communicator is."""
        for thing in (self._ksp, self._factor, self._right, self._solution, self._check):
            thing.destroy()
        self._matrix.close()
        if self._product is not None:
            self._product.close()
        self.joints.close()

    def solve(self, t: float, q: Floats, blocks: Floats, root: Floats) -> Floats:
        """Find the boundary values of this rank's pieces; see `Coupling.solve`. All ranks call.

        Raises
        ------
        SimulationError
            On all ranks: the iteration does not converge, or only says so.
        """
        form(self.joints.table, q, blocks.reshape(-1), root)
        if self.unknowns:
            self._matrix.changed()
            self._right.stateIncrease()
            if self._product is not None:
                self._product.blocks = blocks
            self._solve(t)
        boundary_values(self.joints.table, root, self._values.reshape(-1))
        return self._values

    def _solve(self, t: float) -> None:
        """Solve the equations as formed; the solution stands in the table."""
        solver, hold, before = self._solver, self._hold, self.factorizations
        self._set_orderings()
        known = solver.estimate in ORDERS and np.isfinite(t)
        if known:
            hold.estimate(t, self.joints.solution)
        elif solver.estimate in ORDERS:
            self.joints.solution[:] = 0.0
        self._solution.stateIncrease()
        anew = solver.estimate in ORDERS and hold.kept == 0  # nothing is known yet
        if solver.preconditioner == "direct" or (solver.preconditioner in _INEXACT and (anew or self._off_track())):
            reason, _ = self._run(self._factor)
            finite = bool(np.isfinite(self._solution.norm()))  # which a factorization does not ask
            reason, self.iterations = reason if finite else -1, 0
            self.factorizations += 1
        else:
            if solver.preconditioner == "lagged":
                renewed = anew or self._renew or self.iterations > RENEWED
                self._ksp.getPC().setReusePreconditioner(not renewed)
                self.factorizations += renewed
                self._renew = False
                if renewed:
                    self._keep_factored()
                    self._ksp.getPC().setUp()  # else PETSc would not, where the estimate is a solution
            reason, self.iterations = self._run(self._ksp)
            if reason < 0 and solver.estimate == "fischer":  # solutions that say nothing new
                self._use_fischer_guess(self._ksp)
                reason, self.iterations = self._run(self._ksp)
            self.total_iterations += self.iterations
            self.most_iterations = max(self.most_iterations, self.iterations)
        self.solutions += 1
        failed = reason < 0
        if self.joints.singular and (failed := not (left := self.residual()) <= SHORT * self._asked):
            failed = not self._nearly(left) <= self.contradiction
            self.factorizations = before + 1  # of this solution, however it began
        if failed:
            self._fail(t)
        elif known:
            hold.remember(t, self.joints.solution)

    def _nearly(self, left: float) -> float:
        """Solve equations again, of which the solution that is there leaves too much, `left`; gives what is left then.

        First from there on, with a factor of their own: rounding, or that of others, may have led astray. What leaves
        too much still seems to contradict itself, and is solved as nearly as it can be, by the method of multipliers
        [Hestenes 1969]: each step solves equations whose diagonal is larger by `ALMOST`, for what is left. What
        contradicts goes into loads that are free, by which nothing accelerates; of all else that share over an
        eigenvalue is left by each.
        """
        for again, most in ((self._solve_on, 1.0), (self._solve_by_multipliers, CLEARLY), (self._solve_on, 1.0)):
            before = self.joints.solution.copy()
            again(self._right, self._solution)
            if (found := self.residual()) > most * left:
                self.joints.solution[:] = before
                self._solution.stateIncrease()
            else:
                left = found
            if left <= SHORT * self._asked:
                break
        return left

    def _solve_on(self, right: PETSc.Vec, solution: PETSc.Vec) -> None:
        self._factor.setInitialGuessNonzero(True)
        self._factor.solve(right, solution)
        self._factor.setInitialGuessNonzero(False)

    def _solve_by_multipliers(self, right: PETSc.Vec, solution: PETSc.Vec) -> None:
        ksp = PETSc.KSP().create(comm=self._comm)
        ksp.setOperators(self._matrix.mat, self._matrix.near)
        ksp.setPC(self._factor.getPC())
        ksp.setType("richardson")
        ksp.setNormType(PETSc.KSP.NormType.NONE)
        ksp.setTolerances(max_it=MULTIPLIERS)
        solution.set(0.0)
        ksp.solve(right, solution)
        ksp.destroy()

    def _run(self, ksp: PETSc.KSP) -> tuple[int, int]:
        """Solve; gives why it ended, and iterations."""
        ksp.solve(self._right, self._solution)
        return ksp.getConvergedReason(), ksp.getIterationNumber()

    def _off_track(self) -> bool:
        """Whether the estimate is worse than none: something has changed at once, such as a load from outside."""
        if self._solver.estimate not in ORDERS:
            return False
        return self.residual() > 1.0

    def _fail(self, t: float) -> None:
        """Say why there is no solution; a state that is not finite is left to the integrator, which sees it too."""
        left = self.residual()
        self._hold.forget()
        self.joints.solution[:] = np.nan
        self._solution.stateIncrease()
        if not np.isfinite(self._right.norm()):
            self._begin_anew()  # a factor that broke down stays broken
            return
        history = self._ksp.getConvergenceHistory()
        steps = ", ".join(f"{value:.1e}" for value in history[:: max(1, len(history) // 8)])
        met = f", residuals (rad/s^2, m/s^2) {steps}" if steps else ""
        condition = self.condition()
        others = [name for name in ("lagged", "direct") if name != self._solver.preconditioner]
        choices = ", ".join(f"`solver.preconditioner='{name}'`" for name in others)
        remedy = f"choose {choices}, fewer `cuts`, or `coupling='dcae'`"
        if self.joints.singular:
            remedy = (
                "constraints of loops are redundant, or hardly differ, which no preconditioner mends: "
                "choose `coupling='dcae'`, which leaves out what others make"
            )
        raise SimulationError(
            f"the constraint loads do not converge{at_time(t)}: {self.iterations} iterations of {self.unknowns} "
            f"unknowns{met}; condition about {condition:.1e}; {left:.1e} of the equations is left; {remedy}"
        )

    def residual(self) -> float:
        """Residual of what stands in the place of the solution, over the right-hand side; all ranks call."""
        if not self.unknowns:
            return 0.0
        self._matrix.mat.mult(self._solution, self._check)
        self._check.aypx(-1.0, self._right)
        size = self._right.norm()
        return float(self._check.norm() / size) if size > 0.0 else 0.0

    def condition(self) -> float:
        """Estimate the condition number of the equations as last formed, by a run of plain CG; all ranks call.

        From below: close after as many iterations as there are unknowns, of which so many are made at the most.
        """
        if not self.unknowns:
            return 1.0
        ksp = PETSc.KSP().create(comm=self._comm)
        ksp.setOperators(self._matrix.mat)
        ksp.setType("cg")
        ksp.getPC().setType("none")
        ksp.setComputeSingularValues(True)
        ksp.setTolerances(rtol=1e-10, max_it=_CONDITION_STEPS)
        solution = self._right.duplicate()
        ksp.solve(self._right, solution)
        reason = ksp.getConvergedReason()  # of what broke PETSc has not written all that it would take, and never ends
        broke = reason in (*_ASTRAY, PETSc.KSP.ConvergedReason.DIVERGED_NANORINF)
        largest, smallest = (1.0, 0.0) if broke else ksp.computeExtremeSingularValues()
        solution.destroy()
        ksp.destroy()
        return float(largest / smallest) if smallest > 0.0 else np.inf
