"""How couplings appear in the traces of an evaluation: their messages, and what they compute. `TRACED` has them all."""

from __future__ import annotations

from collections.abc import Callable

from mpimbs.bench.predict.calibration import Calibration
from mpimbs.bench.predict.interval_times import IntervalTimes
from mpimbs.bench.predict.trace import Sweeps, Trace
from mpimbs.model import System
from mpimbs.partition.division import as_tree
from mpimbs.values.assembly import ASSEMBLY
from mpimbs.values.handles import SIZE

Coupled = Callable[[str, Trace, Calibration, Sweeps], None]  # a rank, between the inward and the outward sweeps


def _butterfly(doubles: int, joins_world: bool = False) -> Coupled:
    """One butterfly of so many doubles, with a join at every level; and one more with the world, where that is one."""

    def write(coupling: str, trace: Trace, calibration: Calibration, sweeps: Sweeps) -> None:
        trace.compute(sweeps.coupling)
        trace.butterfly(doubles, calibration.join(coupling))
        if joins_world and trace.size > 1:
            trace.compute(calibration.join(coupling))

    return write


def _intervals(coupling: str, trace: Trace, calibration: Calibration, sweeps: Sweeps) -> None:
    """The balanced schedule of intervals: what a join takes depends on what is open."""
    times = calibration.of_tree(trace.size, coupling)
    trace.compute(sweeps.coupling)
    if not times.independent:
        trace.assembly(times.schedule, times.doubles, times.joins)


TRACED: dict[str, Coupled] = {
    "dcae": _butterfly(SIZE),
    "dca": _butterfly(ASSEMBLY, joins_world=True),
    "dca-terminal": _butterfly(ASSEMBLY, joins_world=True),
    "assembly": _intervals,
}
# What serves trees, and systems with loops.
TRACED_OF_TREES: dict[str, Coupled] = {"dcae": _intervals, "assembly": _intervals}


def traced(system: System) -> dict[str, Coupled]:
    """The couplings that there are traces of, for a system."""
    return TRACED_OF_TREES if as_tree(system) else TRACED


def _place_loops(trace: Trace, times: IntervalTimes, sweeps: Sweeps) -> None:
    """Write what a rank does to find the motions that its loops need of elsewhere, as `evaluation.Evaluation` does."""
    if times.motions:
        trace.compute(sweeps.moving)
        trace.scan(times.motions)
    trace.compute(sweeps.placing)
    trace.exchange(times.exchanged[trace.rank])


def write_traces(calibration: Calibration, ranks: int, coupling: str = "dcae") -> list[Trace]:
    """Write the traces of all ranks of one evaluation, in the order of `pipeline`."""
    system, traces = calibration.system, []
    alone = as_tree(system) and calibration.of_tree(ranks).independent
    for rank, sweeps in enumerate(calibration.sweeps(ranks, coupling)):
        trace = Trace(rank, ranks, alone)
        trace.compute(sweeps.call + sweeps.motion)
        trace.scan(calibration.scanned(ranks, coupling))
        if system.loops:
            _place_loops(trace, calibration.of_tree(ranks), sweeps)
        trace.compute(sweeps.inward)
        traced(system)[coupling](coupling, trace, calibration, sweeps)
        trace.compute(sweeps.outward)
        traces.append(trace)
    return traces
