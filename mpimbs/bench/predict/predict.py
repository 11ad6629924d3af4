"""The time of one evaluation on P ranks of a described cluster: predicted, not measured.

What a rank computes is timed on this core (`calibration`), what it sends and waits for is written down from the plans
of the real run (`trace`, `traced_couplings`), and the time of all ranks together comes from the LogGP
model (`trace`). Cores are timed with the others idle: where they share caches and bandwidth of memory, shares that
don't fit a core's own cache take longer than predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from mpimbs.base.errors import InputError
from mpimbs.bench.predict.calibration import Calibration, powers_of_two
from mpimbs.bench.predict.cluster import Cluster
from mpimbs.bench.predict.interval_times import IntervalTimes
from mpimbs.bench.predict.trace import Sweeps, Trace, compute_seconds, evaluate
from mpimbs.coupling import coupling_for
from mpimbs.files.output_layout import versions
from mpimbs.model.contents import Contents
from mpimbs.partition.division import as_tree
from mpimbs.plots.curves import new_figure, number_ticks, save
from mpimbs.plots.tables import host, write_tables
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


def traced(system: Contents) -> dict[str, Coupled]:
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


MOST_RANKS, MOST_RANKS_OF_TREES = 4096, 256  # by default
PREDICTION_FILES = ("prediction.json", "prediction.tsv", "prediction.png")


class Prediction(NamedTuple):
    """A predicted evaluation.

    Attributes
    ----------
    coupling : str
        Of the inertia matrix its form.
    ranks : int
    bodies : int
        Of the rank that has the most.
    seconds : float
        From the start of all ranks until the last is done.
    compute : float
        That the rank computes which computes longest (s).
    messages : float
        The rest: messages, and waiting for other ranks (s).
    speed_up : float
        The time predicted for one rank over this one, with the same coupling on a core of the same cluster.
    efficiency : float
        The speed-up over the number of ranks.
    """

    coupling: str
    ranks: int
    bodies: int
    seconds: float
    compute: float
    messages: float
    speed_up: float
    efficiency: float


def predict(
    system: Contents,
    ranks: Iterable[int],
    cluster: Cluster,
    coupling: str = "dcae",
    calibration: Calibration | None = None,
) -> list[Prediction]:
    """Predict the time of one evaluation on several numbers of ranks, on this process alone.

    Parameters
    ----------
    system : Contents
    ranks : iterable of int
    cluster : Cluster
        See `bench.predict.cluster.cluster_named`.
    coupling : str
    calibration : Calibration, optional
        Of the same system: what it has measured is not measured again, whatever the coupling, ranks and cluster.

    Returns
    -------
    list of Prediction
        One for each number of ranks, in the order given.

    Raises
    ------
    InputError
        An unknown coupling, or one of which there are no traces; numbers of ranks that the system can't be divided
        among.
    """
    _check(system, coupling)
    known = Calibration(system) if calibration is None else calibration
    wanted = list(ranks)
    check_counts(wanted)
    for count in wanted:
        known.division(count, coupling)
    one, rows = evaluate(write_traces(known, 1, coupling), cluster), []
    for count in wanted:
        traces = write_traces(known, count, coupling)
        seconds, compute = evaluate(traces, cluster), max(map(compute_seconds, traces)) / cluster.core_speed
        bodies, gain = int(np.diff(known.division(count, coupling).cuts).max()), one / seconds
        rest = max(seconds - compute, 0.0)
        rows.append(Prediction(coupling, count, bodies, seconds, compute, rest, gain, gain / count))
    return rows


def best(
    system: Contents,
    cluster: Cluster,
    couplings: Iterable[str] | None = None,
    ranks: Iterable[int] | None = None,
    calibration: Calibration | None = None,
) -> Prediction:
    """Give the predicted evaluation that takes the least time, over couplings and numbers of ranks.

    Parameters
    ----------
    system, cluster, calibration
        See `predict`.
    couplings : iterable of str, optional
        All that there are traces of, by default.
    ranks : iterable of int, optional
        By default powers of two up to 4096, as far as there are bodies.
    """
    known = Calibration(system) if calibration is None else calibration
    counts = ranks_to_predict(system) if ranks is None else list(ranks)
    chosen = traced(system) if couplings is None else couplings
    rows = [row for name in chosen for row in predict(system, counts, cluster, name, known)]
    return min(rows, key=lambda row: row.seconds)


def check_counts(ranks: Iterable[int]) -> None:
    """Refuse numbers of ranks that are none."""
    for count in ranks:
        if count < 1:
            raise InputError(f"{count} ranks: a prediction is for 1 rank at least; give whole numbers from 1 on")


def ranks_to_predict(system: Contents) -> list[int]:
    """Powers of two up to 4096, as far as there are bodies; of a tree, or with loops, up to 256: shares are timed one
    by one."""
    return powers_of_two(min(MOST_RANKS_OF_TREES if as_tree(system) else MOST_RANKS, system.n_bodies))


def _check(system: Contents, name: str) -> None:
    """Refuse what there are no traces of."""
    coupling_for(system, name)
    known = traced(system)
    if name not in known:
        raise InputError(
            f"coupling '{name}' is not predicted; choose one of: {', '.join(known)}; or measure it with `mpimbs bench`"
        )


# --- what is said of it ----------------------------------------------------------------------------------------------


def figures(rows: Sequence[Prediction], cluster: Cluster, calibration: Calibration) -> dict[str, Any]:
    """Give all that it takes to repeat predictions, as one object for JSON."""
    system = calibration.system
    return {
        "system": system.name,
        "n": system.n_bodies,
        "dof": system.nu,
        "kind": "predicted",
        "rows": [row._asdict() for row in rows],
        "best": min(rows, key=lambda row: row.seconds)._asdict(),
        "settings": {
            "couplings": list(dict.fromkeys(row.coupling for row in rows)),
            "ranks": list(dict.fromkeys(row.ranks for row in rows)),
        },
        "cluster": cluster.model_dump(),
        "machine": host(),
        "versions": versions(),
        "calibration": calibration.record(),
    }


def table_lines(rows: Sequence[Prediction]) -> list[str]:
    """Write predictions as the lines of a table."""
    lines = [
        f"{'coupling':>14s} {'ranks':>6s} {'bodies':>8s} {'us':>10s} {'compute':>10s} {'messages':>10s} "
        f"{'speed-up':>9s} {'efficiency':>10s}"
    ]
    lines += [
        f"{row.coupling:>14s} {row.ranks:6d} {row.bodies:8d} {1e6 * row.seconds:10.4g} {1e6 * row.compute:10.4g} "
        f"{1e6 * row.messages:10.4g} {row.speed_up:9.4g} {row.efficiency:10.3f}"
        for row in rows
    ]
    return lines


def prediction_lines(found: dict[str, Any]) -> list[str]:
    """Say what was predicted, for a person."""
    rows = [Prediction(**row) for row in found["rows"]]
    quickest = Prediction(**found["best"])
    return [
        f"{found['system']}: one evaluation, predicted for the cluster '{found['cluster']['name']}' by LogGP; "
        f"computing measured on one core ({found['machine']['cpu']})",
        *table_lines(rows),
        f"the fastest predicted here: {quickest.coupling} on {quickest.ranks} ranks, {1e6 * quickest.seconds:.4g} us",
    ]


def draw(found: dict[str, Any]) -> Figure:
    """Draw predicted times over the number of ranks, dashed, with what the busiest rank computes of it, dotted."""
    title = f"{found['system']}: one evaluation on '{found['cluster']['name']}'"
    figure, axes = new_figure(title, "ranks", "time (us)")
    rows = [Prediction(**row) for row in found["rows"]]
    for number, name in enumerate(dict.fromkeys(row.coupling for row in rows)):
        mine = sorted((row for row in rows if row.coupling == name), key=lambda row: row.ranks)
        ranks, colour = [row.ranks for row in mine], f"C{number}"
        axes.plot(ranks, [1e6 * row.seconds for row in mine], "o--", color=colour, label=f"{name}, predicted")
        axes.plot(ranks, [1e6 * row.compute for row in mine], ":", color=colour, label=f"{name}, computing")
    axes.set_xscale("log")
    axes.set_yscale("log")
    number_ticks(axes.xaxis, [row.ranks for row in rows])
    number_ticks(axes.yaxis)
    axes.legend()
    return figure


def write(found: dict[str, Any], folder: Path) -> list[Path]:
    """Write predictions as JSON, TSV and a picture in a folder, which is made; gives the files.

    Raises
    ------
    InputError
        The folder can't be written to.
    """
    paths = write_tables(folder, "prediction", found, found["rows"], Prediction._fields)
    return [*paths, save(draw(found), folder / PREDICTION_FILES[-1])]
