"""A study of speed as files: JSON with all that is needed to repeat it, a TSV table, PNG pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mpimbs.bench.cost_fit import ButterflyModel
from mpimbs.bench.verdict import trusted
from mpimbs.plots.axes import new_figure, number_ticks, save
from mpimbs.plots.tables import write_tables

Row = dict[str, Any]
COLUMNS = (
    *("study", "predicted", "oversubscribed", "cluster", "coupling", "ranks", "n", "dof", "lanes", "cuts"),
    *("us_min", "us_median", "ns_per_body_min", "speedup", "efficiency", "repetitions"),
)
_SIZE = (9.0, 5.0)
PICTURES = ("strong", "speedup", "weak", "size")
STUDY_FILES = ("study.json", "study.tsv", *(f"study_{name}.png" for name in PICTURES))


def write(folder: Path, table: dict[str, Any]) -> list[Path]:
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
