"""How couplings appear in the traces of an evaluation: their messages, and what they compute. `TRACED` has them all."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from mpimbs.coupling import LoadSolver
from mpimbs.coupling.estimates import ORDERS
from mpimbs.partition.division import as_tree
from mpimbs.partition.schedule import balanced
from mpimbs.spatial.assembly import ASSEMBLY
from mpimbs.spatial.columns import SIX
from mpimbs.spatial.condensing import SIDE
from mpimbs.spatial.handles import SIZE
from mpimbs.spatial.rows import ROW
from mpimbs.study.absolute_costs import AUGMENTED
from mpimbs.study.calibration import Calibration
from mpimbs.study.constraint_load_costs import ConstraintLoadCosts, measure_solutions
from mpimbs.study.interval_times import IntervalTimes
from mpimbs.study.replay import RTOL
from mpimbs.study.trace import Sweeps, Trace


class Case(NamedTuple):
    """An evaluation of which there is a trace, and the weight of its time in the mean evaluation."""

    weight: float
    iterations: int = 0
    factorizations: int = 0


class TracedCoupling(Protocol):
    """What a coupling does between the inward and the outward sweeps.

    `coupling` is the name by which `Dynamics` evaluates the sweeps that go with it; `staged` says whether phases are
    called from Python one by one.
    """

    @property
    def coupling(self) -> str: ...

    @property
    def staged(self) -> bool: ...

    def cases(self, calibration: Calibration, ranks: int) -> list[Case]:
        """The evaluations of which the mean one is made up."""
        ...

    def solve(self, trace: Trace, calibration: Calibration, sweeps: Sweeps, case: Case) -> None:
        """Write what the coupling does on a rank."""
        ...


class ButterflyTrace(NamedTuple):
    """One butterfly of so many doubles, with a join at every level; and one more with the world, where that is one."""

    coupling: str
    doubles: int
    joins_world: bool = False

    @property
    def staged(self) -> bool:
        """No: an evaluation is one call."""
        return False

    def cases(self, calibration: Calibration, ranks: int) -> list[Case]:
        """All evaluations are the same."""
        return [Case(1.0)]

    def solve(self, trace: Trace, calibration: Calibration, sweeps: Sweeps, case: Case) -> None:
        """See `TracedCoupling`."""
        trace.compute(sweeps.coupling)
        trace.butterfly(self.doubles, calibration.join(self.coupling))
        if self.joins_world and trace.size > 1:
            trace.compute(calibration.join(self.coupling))


class IntervalTrace(NamedTuple):
    """The balanced schedule of intervals: what a join takes depends on what is open."""

    coupling: str = "dcae"
    staged: bool = False

    def cases(self, calibration: Calibration, ranks: int) -> list[Case]:
        """All evaluations are the same."""
        return [Case(1.0)]

    def solve(self, trace: Trace, calibration: Calibration, sweeps: Sweeps, case: Case) -> None:
        """See `TracedCoupling`."""
        times = calibration.of_tree(trace.size, self.coupling)
        trace.compute(sweeps.coupling)
        if not times.independent:
            trace.assembly(times.schedule, times.doubles, times.joins)


class AugmentedTrace(NamedTuple):
    """Bodies condensed on every rank, then over ranks: once the matrix, and in each iteration a right-hand side.

    Of a chain: a group of ranks leaves the two bodies that it shares with others, those at an end of the chain one.
    """

    coupling: str = AUGMENTED
    staged: bool = True

    def cases(self, calibration: Calibration, ranks: int) -> list[Case]:
        """All evaluations are the same."""
        return [Case(1.0, calibration.absolute.iterations, 1)]

    def solve(self, trace: Trace, calibration: Calibration, sweeps: Sweeps, case: Case) -> None:
        """See `TracedCoupling`."""
        costs, tree = calibration.absolute, balanced([1] * trace.size)
        first, last = calibration.division(trace.size, self.coupling).cuts[trace.rank : trace.rank + 2].tolist()
        kept = [SIDE * ((begin > 0) + (end < trace.size)) for begin, end in tree.spans]
        trace.sum_of_all()  # whether the matrix is that of the state before
        trace.compute(case.factorizations * costs.factor(last - first))
        joins = trace.size - 1
        trace.assembly(tree, [n * n for n in kept], [costs.join] * joins, [0] * len(kept))
        for _ in range(case.iterations):
            trace.compute(costs.iteration(last - first))
            trace.assembly(tree, kept, [costs.spread] * joins, kept)
            trace.sum_of_all()


class ConstraintLoadTrace:
    """Halo of the equations, iterations of PETSc's cg with its products and sums over all ranks, halo of the loads.

    Counted as PETSc 3.18 does it with the norm of the residual itself: two sums where the iteration begins with an
    estimate, one where it does not, and three in each iteration. A factor is the whole system's, on every rank: its
    matrix and every right-hand side are gathered by messages of all ranks to all. Times are means along a motion.
    """

    coupling = "dcae"  # of the sweeps
    staged = True

    def __init__(self, solver: LoadSolver) -> None:
        self._solver = solver

    def _costs(self, calibration: Calibration) -> ConstraintLoadCosts:
        name = f"pcg, {self._solver.preconditioner}, {self._solver.estimate}"
        if name not in calibration.costs:
            calibration.costs[name] = measure_solutions(calibration.system, self._solver)
        found: ConstraintLoadCosts = calibration.costs[name]
        return found

    def cases(self, calibration: Calibration, ranks: int) -> list[Case]:
        """One and three iterations, beyond which time goes on to grow evenly; and a factorization, where there are."""
        costs = self._costs(calibration)
        if ranks == 1:
            return [Case(1.0)]
        if self._solver.preconditioner == "direct":
            return [Case(1.0, 0, 1)]
        more = 0.5 * (float(costs.iterations(costs.loads * (ranks - 1))) - 1.0)
        renewed = costs.factorizations
        cases = [Case(1.0 - more - renewed, 1), Case(more, 3), Case(renewed, 1, 1)]
        return [case for case in cases if case.weight != 0.0]

    def solve(self, trace: Trace, calibration: Calibration, sweeps: Sweeps, case: Case) -> None:
        """See `TracedCoupling`."""
        costs = self._costs(calibration)
        if trace.size == 1:
            trace.compute(costs.alone)
            return
        loads, unknowns = round(costs.loads), costs.loads * (trace.size - 1)
        estimated = self._solver.estimate in ORDERS
        trace.compute(0.5 * costs.once)
        trace.halo(SIX, 2 * SIX)
        trace.compute(0.5 * costs.once)
        if estimated and self._solver.preconditioner in ("jacobi", "block-jacobi"):  # is the estimate of any use?
            trace.halo(loads, loads, 1)
            trace.sum_of_all()
            trace.sum_of_all()
        for _ in range(case.factorizations):
            trace.gather_from_all(3 * loads * loads)
            trace.compute(costs.factor(unknowns))
        if case.iterations == 0:
            self._precondition(trace, calibration, costs, unknowns, loads)
        else:
            if estimated:
                trace.halo(loads, loads, 1)
                trace.sum_of_all()
            trace.sum_of_all()
        for _ in range(case.iterations):
            self._precondition(trace, calibration, costs, unknowns, loads)
            trace.sum_of_all()
            trace.halo(loads, loads, 1)
            trace.compute(costs.iteration)
            trace.sum_of_all()
            trace.sum_of_all()
        trace.halo(ROW, ROW, teller=1)  # the first rank has no separated joint

    def _precondition(
        self, trace: Trace, calibration: Calibration, costs: ConstraintLoadCosts, unknowns: float, loads: int
    ) -> None:
        kind = self._solver.preconditioner
        if kind in ("lagged", "direct"):
            trace.gather_from_all(loads)
            trace.compute(costs.precondition(unknowns))
            return
        trace.compute(costs.precondition(loads))
        if kind == "dcae":
            trace.butterfly(SIZE, calibration.join("dcae"))


def _constraint_loads(solver: LoadSolver | None) -> TracedCoupling:
    return ConstraintLoadTrace((solver or LoadSolver()).tied_to(RTOL).checked())


# A coupling that joins by one butterfly is one line: its name and the doubles of its messages.
TRACED: dict[str, Callable[[LoadSolver | None], TracedCoupling]] = {
    "dcae": lambda solver: ButterflyTrace("dcae", SIZE),
    "pcg": _constraint_loads,
    "dca": lambda solver: ButterflyTrace("dca", ASSEMBLY, joins_world=True),
    "dca-terminal": lambda solver: ButterflyTrace("dca-terminal", ASSEMBLY, joins_world=True),
    "assembly": lambda solver: IntervalTrace("assembly"),
    AUGMENTED: lambda solver: AugmentedTrace(),
}


# What serves trees, and systems with loops.
TRACED_OF_TREES: dict[str, Callable[[LoadSolver | None], TracedCoupling]] = {
    "dcae": lambda solver: IntervalTrace(),
    "assembly": lambda solver: IntervalTrace("assembly"),
}


def _place_loops(trace: Trace, times: IntervalTimes, sweeps: Sweeps) -> None:
    """Write what a rank does to find the motions that its loops need of elsewhere, as `evaluation.Evaluation` does."""
    if times.motions:
        trace.compute(sweeps.moving)
        trace.scan(times.motions)
    trace.compute(sweeps.placing)
    trace.exchange(times.exchanged[trace.rank])


def write_traces(traced: TracedCoupling, calibration: Calibration, ranks: int, case: Case) -> list[Trace]:
    """Write the traces of all ranks of one evaluation, in the order of `pipeline`."""
    traces, alone = [], as_tree(calibration.system) and calibration.of_tree(ranks).independent
    for rank, sweeps in enumerate(calibration.sweeps(ranks, traced.coupling, traced.staged)):
        trace = Trace(rank, ranks, alone)
        trace.compute(sweeps.call + sweeps.motion)
        trace.scan(calibration.scanned(ranks, traced.coupling))
        if calibration.system.loops:
            _place_loops(trace, calibration.of_tree(ranks), sweeps)
        trace.compute(sweeps.inward)
        traced.solve(trace, calibration, sweeps, case)
        trace.compute(sweeps.outward)
        traces.append(trace)
    return traces
