"""A whole study of speed: measure or collect, predict, fit, advise, write."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from mpimbs.base.errors import InputError, SimulationError
from mpimbs.base.places import check_folder
from mpimbs.bench.cost_fit import ButterflyModel
from mpimbs.bench.laps import disturbance
from mpimbs.bench.predict.calibration import Calibration
from mpimbs.bench.predict.cluster import Cluster, cluster_named
from mpimbs.bench.predict.predict import check_counts, predict
from mpimbs.bench.speedup import Plan, collect, cores_of, evaluations_per_second, heading, measure_plan
from mpimbs.bench.verdict import add_speedups, advice, fits, trusted
from mpimbs.coupling import unavailable
from mpimbs.model import system_text
from mpimbs.model.contents import Contents
from mpimbs.parallel.agreement import first_ranks, on_root, together
from mpimbs.plots.curves import new_figure, number_ticks, save
from mpimbs.plots.tables import write_tables

Row = dict[str, Any]

COLUMNS = (
    *("study", "predicted", "oversubscribed", "cluster", "coupling", "ranks", "n", "dof", "lanes", "cuts"),
    *("us_min", "us_median", "ns_per_body_min", "speedup", "efficiency", "repetitions"),
)
_SIZE = (9.0, 5.0)
PICTURES = ("strong", "speedup", "weak", "size")
STUDY_FILES = ("study.json", "study.tsv", *(f"study_{name}.png" for name in PICTURES))


def write_study(folder: Path, table: dict[str, Any]) -> list[Path]:
    """Write study.json, study.tsv and the pictures for which there are points; give their paths.

    Parameters
    ----------
    folder : Path
        Made if there is none.
    table : dict
        With "model", "bodies", "points" and "fits".
    """
    paths = write_tables(folder, "study", table, table["points"], COLUMNS)
    draw = {"strong": draw_times, "speedup": draw_speedups, "weak": draw_weak, "size": draw_sizes}
    for name in PICTURES:
        rows = [row for row in table["points"] if row["study"] == ("strong" if name == "speedup" else name)]
        if rows:
            paths.append(save(draw[name](table, rows), folder / f"study_{name}.png"))
    return paths


def _curves(rows: Sequence[Row]) -> list[tuple[str, str, list[Row]]]:
    """Coupling, kind ("measured", "oversubscribed", "predicted") and rows of each curve."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        kind = "predicted" if row["predicted"] else "oversubscribed" if row["oversubscribed"] else "measured"
        found.setdefault((row["coupling"], kind), []).append(row)
    return [(*key, sorted(own, key=lambda row: (row["ranks"], row["n"]))) for key, own in found.items()]


_STYLES = {
    "measured": {"marker": "o", "linestyle": "-"},
    "oversubscribed": {"marker": "o", "linestyle": "", "markerfacecolor": "none"},
    "predicted": {"marker": ".", "linestyle": "--"},
}
_SAID = {"measured": "", "oversubscribed": ", more ranks than cores", "predicted": ", predicted"}


def _draw(axes: Any, rows: Sequence[Row], x: str, y: str, by: str = "") -> None:
    """Draw a curve for each coupling, kind, and value of `by`."""
    colours = _colours(rows)
    for coupling, kind, own in _curves(rows):
        for value in dict.fromkeys(row.get(by) for row in own):
            chosen = [row for row in own if row.get(by) == value and row.get(y) is not None]
            label = f"{coupling}{f', {by}: {value}' if by else ''}{_SAID[kind]}"
            width = 1.0 if not by or value == own[0].get(by) else 2.5
            style: dict[str, Any] = {**_STYLES[kind], "color": colours[coupling], "lw": width, "label": label}
            axes.plot([row[x] for row in chosen], [row[y] for row in chosen], **style)
    axes.set_xscale("log")
    number_ticks(axes.xaxis, [row[x] for row in rows])


def _colours(rows: Sequence[Row]) -> dict[str, str]:
    """The colour of each coupling."""
    return {name: f"C{k}" for k, name in enumerate(dict.fromkeys(row["coupling"] for row in rows))}


def _legend(figure: Any) -> None:
    """Beside the curves, of which there may be a dozen, and never over them."""
    figure.legend(loc="outside right upper", fontsize="small")


def _title(table: dict[str, Any], text: str) -> str:
    return re.sub(r"\s+", " ", f"{table['model']}: {text}")


def draw_times(table: dict[str, Any], rows: Sequence[Row]) -> Any:
    """Time of an evaluation against the number of ranks, and the butterflies' cost model where that was fitted."""
    title = _title(table, "time of an evaluation")
    figure, axes = new_figure(title, "ranks", "us (minimum)", *_SIZE)
    _draw(axes, rows, "ranks", "us_min")
    ranks = np.unique([row["ranks"] for row in trusted(rows)])
    for coupling, fit in table["fits"].items():
        if fit.get("best_ranks"):
            model = ButterflyModel(**fit["coefficients"])
            times = [1e6 * model(table["bodies"], int(p)) for p in ranks]
            label = f"fit, {coupling}{', poor' if fit['poor'] else ''}"
            axes.plot(ranks, times, ":", color=_colours(rows)[coupling], lw=1.5, label=label)
    axes.set_yscale("log")
    number_ticks(axes.yaxis)
    _legend(figure)
    return figure


def draw_speedups(table: dict[str, Any], rows: Sequence[Row]) -> Any:
    """Speed-up against the number of ranks, over the fastest coupling on one."""
    figure, axes = new_figure(_title(table, "speed-up over the fastest on 1 rank"), "ranks", "speed-up", *_SIZE)
    _draw(axes, rows, "ranks", "speedup")
    ranks = np.unique([row["ranks"] for row in rows])
    gains = [row["speedup"] for row in rows if "speedup" in row]
    axes.set_yscale("log")
    if gains:  # the ideal one goes on beyond them: for thousands of ranks there would be little room for the rest
        axes.set_ylim(min(gains) / 1.5, max(gains) * 2.0)
    axes.plot(ranks, ranks, "k:", lw=1.0, label="ideal")
    number_ticks(axes.yaxis)
    _legend(figure)
    return figure


def draw_weak(table: dict[str, Any], rows: Sequence[Row]) -> Any:
    """Time of an evaluation against the number of ranks, with as many bodies on each."""
    figure, axes = new_figure(_title(table, f"{table['bodies']} bodies a rank"), "ranks", "us (minimum)", *_SIZE)
    _draw(axes, rows, "ranks", "us_min")
    axes.set_ylim(bottom=0.0)
    _legend(figure)
    return figure


def draw_sizes(table: dict[str, Any], rows: Sequence[Row]) -> Any:
    """Time per body against the number of bodies, on the fewest and on the most ranks."""
    figure, axes = new_figure(_title(table, "time per body"), "bodies", "ns per body (minimum)", *_SIZE)
    _draw(axes, rows, "n", "ns_per_body_min", by="ranks")
    axes.set_yscale("log")
    number_ticks(axes.yaxis)
    _legend(figure)
    return figure


RTOL = 1e-8
_MOST_TEXT = 100_000  # characters of a model that the study keeps

Predictor = Callable[[Contents, Sequence[str], MPI.Comm], tuple[list[Row], list[str]]]


def study(
    system: Contents,
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
    spec : str
        How the user named it.
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
    table["files"] = [str(path) for path in on_root(comm, lambda: write_study(folder, table)) or ()]
    return table


def _measured(system: Contents, plan: Plan, comm: MPI.Comm, progress: bool) -> tuple[list[Row], list[str]]:
    """Measure a plan that can be; gives rows, and notes of what was left out."""
    rows, notes = measure_plan(system, plan, comm, _teller(comm, progress))
    if not rows:
        raise InputError(
            "nothing could be measured: " + "; ".join(notes or ["there are fewer ranks than `ranks` says"])
        )
    return rows, notes


def predictor(ranks: Sequence[int], cluster: str, comm: MPI.Comm) -> Predictor:
    """Give a predictor for a cluster, by the recursion of `predict.trace.evaluate`; all ranks call, and call it.

    Parameters
    ----------
    ranks : sequence of int
        Numbers of ranks to predict.
    cluster : str
        As for `bench.predict.cluster.cluster_named`.

    Raises
    ------
    InputError
        On all ranks: there is no such cluster, or no such number of ranks.
    """
    check_counts(ranks)
    described = cluster_named(cluster, comm)

    def rows(system: Contents, couplings: Sequence[str], comm: MPI.Comm) -> tuple[list[Row], list[str]]:
        found: list[tuple[list[Row], list[str]]] = []

        def on_the_first() -> None:
            with first_ranks(comm, 1) as part:
                if part is not None:
                    found.append(_predicted(system, couplings, ranks, described))

        together(comm, on_the_first)
        return comm.bcast(found[0] if found else None)

    return rows


def _predicted(
    system: Contents, couplings: Sequence[str], ranks: Sequence[int], cluster: Cluster
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


def _of_one_model(rows: list[Row], system: Contents) -> list[Row]:
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


def study_lines(table: dict[str, Any]) -> list[str]:
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
