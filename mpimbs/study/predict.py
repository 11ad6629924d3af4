"""The time of one evaluation on P ranks of a described cluster: predicted, not measured.

What a rank computes is timed on this core (`calibration`), what it sends and waits for is written down from the plans
of the real run (`trace`, `traced_couplings`), and the time of all ranks together comes from the LogGP model (`loggp`)
or SimGrid (`simgrid`). Cores are timed with the others idle: where they share caches and bandwidth of memory, shares
that don't fit a core's own cache take longer than predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from matplotlib.figure import Figure

from mpimbs.coupling import LoadSolver, coupling_for
from mpimbs.errors import InputError
from mpimbs.model import System
from mpimbs.model.summary import refuse_loops
from mpimbs.model.table import suggest
from mpimbs.partition.division import as_tree
from mpimbs.simulation.output_layout import versions
from mpimbs.study import loggp, simgrid
from mpimbs.study.axes import new_figure, number_ticks, save
from mpimbs.study.calibration import Calibration, powers_of_two
from mpimbs.study.cluster import Cluster
from mpimbs.study.tables import host, write_tables
from mpimbs.study.trace import Trace, compute_seconds
from mpimbs.study.traced_couplings import TRACED, TRACED_OF_TREES, TracedCoupling, write_traces

MOST_RANKS, MOST_RANKS_OF_TREES = 4096, 256  # by default
PREDICTION_FILES = ("prediction.json", "prediction.tsv", "prediction.png")

METHODS: dict[str, Callable[[Sequence[Trace], Cluster], float]] = {
    "loggp": loggp.evaluate,
    "simgrid": simgrid.evaluate,
}


class Prediction(NamedTuple):
    """A predicted evaluation.

    Attributes
    ----------
    coupling : str
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
    method : str
    """

    coupling: str
    ranks: int
    bodies: int
    seconds: float
    compute: float
    messages: float
    speed_up: float
    efficiency: float
    method: str


def predict(
    system: System,
    ranks: Iterable[int],
    cluster: Cluster,
    coupling: str = "dcae",
    method: str = "loggp",
    solver: LoadSolver | None = None,
    calibration: Calibration | None = None,
) -> list[Prediction]:
    """Predict the time of one evaluation for several numbers of ranks, on this process alone.

    Parameters
    ----------
    system : System
    ranks : iterable of int
    cluster : Cluster
        See `study.cluster.cluster_named`.
    coupling : str
    method : str
        "loggp" or "simgrid".
    solver : LoadSolver, optional
        How the coupling `pcg` solves.
    calibration : Calibration, optional
        Of the same system: what it has measured is not measured again, whatever the coupling, ranks and cluster.

    Returns
    -------
    list of Prediction
        One for each number of ranks, in the order given.

    Raises
    ------
    InputError
        An unknown coupling or method, a solver that makes no sense, a method that is not installed, numbers of ranks
        that the system can't be divided among.
    """
    evaluate = method_named(method)
    traced = _traced(system, coupling, solver)
    known = Calibration(system) if calibration is None else calibration
    wanted = list(ranks)
    for count in wanted:
        if count < 1:
            raise InputError(f"{count} ranks: a prediction is for 1 rank at least; correct `ranks`")
        known.division(count, traced.coupling)
    one = _mean(traced, known, cluster, 1, evaluate)[0]
    rows = []
    for count in wanted:
        seconds, compute = _mean(traced, known, cluster, count, evaluate)
        bodies = int(np.diff(known.division(count, traced.coupling).cuts).max())
        gain = one / seconds
        rows.append(
            Prediction(
                coupling, count, bodies, seconds, compute, max(seconds - compute, 0.0), gain, gain / count, method
            )
        )
    return rows


def best(
    system: System,
    cluster: Cluster,
    couplings: Iterable[str] | None = None,
    ranks: Iterable[int] | None = None,
    method: str = "loggp",
    calibration: Calibration | None = None,
) -> Prediction:
    """Give the predicted evaluation that takes the least time, over couplings and numbers of ranks.

    Parameters
    ----------
    system, cluster, method, calibration
        See `predict`.
    couplings : iterable of str, optional
        All that there are traces of, by default.
    ranks : iterable of int, optional
        By default powers of two up to 4096, as far as there are bodies.
    """
    known = Calibration(system) if calibration is None else calibration
    counts = ranks_to_predict(system) if ranks is None else list(ranks)
    traced = _traced_couplings(system)
    chosen = traced if couplings is None else couplings
    rows = [row for name in chosen for row in predict(system, counts, cluster, name, method, None, known)]
    return min(rows, key=lambda row: row.seconds)


def ranks_to_predict(system: System) -> list[int]:
    """Powers of two up to 4096, as far as there are bodies; of a tree, or with loops, up to 256: shares are timed one
    by one."""
    return powers_of_two(min(MOST_RANKS_OF_TREES if as_tree(system) else MOST_RANKS, system.n_bodies))


def method_named(name: str) -> Callable[[Sequence[Trace], Cluster], float]:
    """Give what finds the time of traces; InputError if there is none of that name."""
    if name not in METHODS:
        raise InputError(f"unknown method '{name}'{suggest(name, METHODS)}")
    if name == "simgrid":
        simgrid.smpirun()
    return METHODS[name]


def _traced(system: System, name: str, solver: LoadSolver | None) -> TracedCoupling:
    coupling_for(system, name, solver)
    known = _traced_couplings(system)
    if name not in known:
        refuse_loops(
            system,
            f"coupling '{name}' is predicted without loops only; choose `coupling='dcae'`, or measure it with "
            "`mpimbs bench`",
        )
        of_trees = "" if system.is_chain else " for trees"
        raise InputError(f"coupling '{name}' is not predicted{of_trees}; choose one of: {', '.join(known)}")
    return known[name](solver)


def _traced_couplings(system: System) -> dict[str, Callable[[LoadSolver | None], TracedCoupling]]:
    return TRACED_OF_TREES if as_tree(system) else TRACED


def _mean(
    traced: TracedCoupling,
    calibration: Calibration,
    cluster: Cluster,
    ranks: int,
    evaluate: Callable[[Sequence[Trace], Cluster], float],
) -> tuple[float, float]:
    """Seconds of the mean evaluation, and those that the busiest rank computes."""
    seconds = compute = 0.0
    for case in traced.cases(calibration, ranks):
        traces = write_traces(traced, calibration, ranks, case)
        seconds += case.weight * evaluate(traces, cluster)
        compute += case.weight * max(map(compute_seconds, traces)) / cluster.core_speed
    return seconds, compute


# --- what is said of it ----------------------------------------------------------------------------------------------


class Calibrated(Protocol):
    """What was measured of a system, for predictions."""

    system: System

    def record(self) -> dict[str, Any]: ...


def figures(
    rows: Sequence[Prediction],
    cluster: Cluster,
    calibration: Calibrated,
    solver: LoadSolver | None = None,
    what: str = "one evaluation",
) -> dict[str, Any]:
    """Give all that it takes to repeat predictions of something, as one object for JSON."""
    system = calibration.system
    found = versions()
    if any(row.method == "simgrid" for row in rows):
        found["simgrid"] = simgrid.version()
    return {
        "system": system.name,
        "n": system.n_bodies,
        "dof": system.nu,
        "what": what,
        "kind": "predicted",
        "rows": [row._asdict() for row in rows],
        "best": min(rows, key=lambda row: row.seconds)._asdict(),
        "settings": {
            "couplings": list(dict.fromkeys(row.coupling for row in rows)),
            "ranks": list(dict.fromkeys(row.ranks for row in rows)),
            "method": rows[0].method,
            "solver": solver.data() if solver else None,
        },
        "cluster": cluster.model_dump(),
        "machine": host(),
        "versions": found,
        "calibration": calibration.record(),
    }


def lines_of(rows: Sequence[Prediction]) -> list[str]:
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


def report(found: dict[str, Any]) -> list[str]:
    """Say what was predicted, for a person."""
    rows = [Prediction(**row) for row in found["rows"]]
    quickest = Prediction(**found["best"])
    return [
        f"{found['system']}: {found['what']}, predicted for the cluster '{found['cluster']['name']}' by "
        f"{rows[0].method}; computing measured on one core ({found['machine']['cpu']})",
        *lines_of(rows),
        f"the fastest predicted here: {quickest.coupling} on {quickest.ranks} ranks, {1e6 * quickest.seconds:.4g} us",
    ]


def draw(found: dict[str, Any]) -> Figure:
    """Draw predicted times over the number of ranks, dashed, with what the busiest rank computes of it, dotted."""
    title = f"{found['system']}: {found['what']} on '{found['cluster']['name']}'"
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
