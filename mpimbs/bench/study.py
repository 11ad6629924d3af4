"""A whole study of speed: measure or collect, predict, fit, advise, write."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mpi4py import MPI

from mpimbs.base.errors import InputError, SimulationError
from mpimbs.base.places import check_folder
from mpimbs.bench.laps import disturbance
from mpimbs.bench.predict.calibration import Calibration
from mpimbs.bench.predict.cluster import Cluster, cluster_named
from mpimbs.bench.predict.predict import predict
from mpimbs.bench.speedup import Plan, collect, cores_of, evaluations_per_second, heading, measure_plan
from mpimbs.bench.speedup_report import STUDY_FILES, write
from mpimbs.bench.verdict import add_speedups, advice, fits, trusted
from mpimbs.coupling import unavailable
from mpimbs.model import System, system_text
from mpimbs.parallel.agreement import on_root, together
from mpimbs.parallel.first_ranks import first_ranks

Row = dict[str, Any]
RTOL = 1e-8
_MOST_TEXT = 100_000  # characters of a model that the study keeps

Predictor = Callable[[System, Sequence[str], MPI.Comm], tuple[list[Row], list[str]]]


def study(
    system: System,
    spec: str,
    plan: Plan,
    folder: Path,
    comm: MPI.Comm,
    force: bool = False,
    predictor: Predictor | None = None,
    collected: Path | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Measure a plan on the ranks that there are, or collect what was measured, and write what it comes to.

    Parameters
    ----------
    system : System
    spec : str
        How the user named it.
    plan : Plan
    folder : Path
        Where study.json, study.tsv and pictures go.
    comm : MPI.Comm
        All ranks call.
    force : bool
        Replace a study that is there.
    predictor : callable, optional
        Gives rows for numbers of ranks beyond those measured, and says what it left out; on all ranks.
    collected : Path, optional
        A folder with measurements of `mpimbs bench --json`: nothing is measured then.
    progress : bool
        Tell on standard error, on rank 0, which point comes.

    Returns
    -------
    dict
        What study.json holds; on all ranks.

    Raises
    ------
    InputError
        On all ranks: the plan makes no sense for the system, the study is there already, nothing could be measured.
    """
    plan, left_out = together(comm, lambda: plan.checked(system))
    on_root(comm, lambda: check_folder(folder, STUDY_FILES, force))
    settings: Row = {**plan._asdict(), "rtol": RTOL, "collected": None if collected is None else str(collected)}
    if collected is None:
        plan, lacking = together(comm, plan.available)
        rows, notes = _measured(system, plan, comm, progress)
        notes = left_out + lacking + notes
    else:
        rows = comm.bcast(on_root(comm, lambda: _of_one_model(collect(collected), system)))
        notes = left_out
    if predictor is not None:
        beyond, refused = predictor(system, plan.couplings, comm)
        rows, notes = rows + beyond, notes + refused
    add_speedups(rows)
    cores = cores_of(comm)
    best = min((row for row in rows if not row["predicted"]), key=lambda row: row["us_min"])
    per_second = None
    if collected is None and (lacking_petsc := unavailable("pcg")):  # so does what integrates
        notes.append(f"evaluations per simulated second: {lacking_petsc}")
    elif collected is None:
        per_second = evaluations_per_second(system, comm, best["coupling"], best["ranks"])
    table = {
        **heading(system, spec, comm, cores),
        "settings": settings,
        "model_text": system_text(system, functions=True)[:_MOST_TEXT],
        "points": rows,
        "fits": fits(rows, system.n_bodies),
        "evaluations_per_simulated_second": per_second,
        "notes": notes,
        "disturbed": _disturbed(rows),
        "advice": advice(rows, per_second, RTOL),
    }
    table["files"] = [str(path) for path in on_root(comm, lambda: write(folder, table)) or ()]
    return table


def _measured(system: System, plan: Plan, comm: MPI.Comm, progress: bool) -> tuple[list[Row], list[str]]:
    """Measure a plan that can be; gives rows, and notes of what was left out."""
    rows, notes = measure_plan(system, plan, comm, _teller(comm, progress))
    if not rows:
        raise InputError(
            "nothing could be measured: " + "; ".join(notes or ["there are fewer ranks than `ranks` says"])
        )
    return rows, notes


def predictor(ranks: Sequence[int], cluster: str, comm: MPI.Comm) -> Predictor:
    """Give a predictor for a cluster, by the recursion of `study.loggp`; all ranks call, and call it.

    Parameters
    ----------
    ranks : sequence of int
        Numbers of ranks to predict.
    cluster : str
        As for `study.cluster.cluster_named`.

    Raises
    ------
    InputError
        On all ranks: there is no such cluster.
    """
    described = cluster_named(cluster, comm)

    def rows(system: System, couplings: Sequence[str], comm: MPI.Comm) -> tuple[list[Row], list[str]]:
        found: list[tuple[list[Row], list[str]]] = []

        def on_the_first() -> None:
            with first_ranks(comm, 1) as part:
                if part is not None:
                    found.append(_predicted(system, couplings, ranks, described))

        together(comm, on_the_first)
        return comm.bcast(found[0] if found else None)

    return rows


def _predicted(
    system: System, couplings: Sequence[str], ranks: Sequence[int], cluster: Cluster
) -> tuple[list[Row], list[str]]:
    """Rows for what can be divided among so many ranks, and notes of the rest."""
    calibration = Calibration(system)
    rows: list[Row] = []
    refused: dict[str, list[str]] = {}  # by reason, couplings
    for name in couplings:
        counts = []
        for count in ranks:
            try:
                calibration.division(count, name)
                counts.append(count)
            except InputError as error:
                refused.setdefault(f"{count} ranks, predicted: {error}", []).append(name)
        of_all = {"study": "strong", "predicted": True, "oversubscribed": False, "cluster": cluster.name}
        of_all |= {"coupling": name, "n": system.n_bodies, "dof": system.nu}
        try:
            predicted = predict(system, counts, cluster, name, calibration=calibration) if counts else []
        except (InputError, SimulationError) as error:  # there are no traces; the motion of constraint loads ends
            refused.setdefault(f"any ranks, predicted: {error}", []).append(name)
            continue
        rows += [
            {**of_all, "ranks": row.ranks, "us_min": 1e6 * row.seconds, "us_median": 1e6 * row.seconds}
            for row in predicted
        ]
    return rows, [f"{', '.join(names)} on {reason}" for reason, names in refused.items()]


def _of_one_model(rows: list[Row], system: System) -> list[Row]:
    for row in rows:
        if (row["n"], row["system"]) != (system.n_bodies, system.name):
            raise InputError(
                f"'{row['file']}' was measured for '{row['system']}' with {row['n']} bodies, not for '{system.name}' "
                f"with {system.n_bodies}: collect the measurements of one model"
            )
    return rows


def _teller(comm: MPI.Comm, progress: bool) -> Callable[[int, int, str], None]:
    def tell(done: int, of: int, what: str) -> None:
        if progress and comm.rank == 0:
            print(f"{done} of {of} done; measuring {what}", file=sys.stderr, flush=True)

    return tell


def report(table: dict[str, Any]) -> list[str]:
    """Say what a study found: its points, fits and advice, for a person."""
    lines = ["study  coupling       ranks    bodies         us   ns/body speed-up   eff."]
    for row in table["points"]:
        remark = "  predicted" if row["predicted"] else "  more ranks than cores" if row["oversubscribed"] else ""
        gain = f"{row['speedup']:9.2f}{row['efficiency']:7.2f}" if "speedup" in row else ""
        lines.append(
            f"{row['study']:7s}{row['coupling']:14s}{row['ranks']:6d}{row['n']:10d} {row['us_min']:10.4g}"
            f" {1e3 * row['us_min'] / row['n']:9.4g}{gain}{remark}"
        )
    lines += [_said_of_fit(coupling, fit) for coupling, fit in table["fits"].items()]
    lines += [f"left out: {note}" for note in table["notes"]]
    if table["disturbed"]:
        lines.append(table["disturbed"])
    return [*lines, table["advice"]]


def _disturbed(rows: Sequence[Row]) -> str:
    """Say of how many points the times were disturbed, and how the worst was; nothing where none was."""
    found = [row for row in trusted(rows) if disturbance(row)]
    if not found:
        return ""
    worst = max(found, key=lambda row: row["us_median"] / row["us_min"])
    where = f"the worst {worst['coupling']} on {worst['ranks']} rank(s), {worst['n']} bodies"
    return f"{len(found)} of {len(trusted(rows))} points, {where}, {disturbance(worst)}"


def _said_of_fit(coupling: str, fit: Row) -> str:
    if fit["coefficients"] is None:
        return f"{coupling}: no fit of t = {fit['model']}: {fit['why']}"
    numbers = ", ".join(f"{name} {value:.3g}" for name, value in fit["coefficients"].items())
    within = f"within {100 * fit['largest_relative_error']:.0f} % of {fit['points']} measured points"
    poor = "; A POOR FIT: the model does not hold here, or other work disturbed the times; don't build on it"
    return f"{coupling}: t = {fit['model']}; {numbers}; {within}{poor if fit['poor'] else ''}"
