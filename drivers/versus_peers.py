"""Time of one evaluation of forward dynamics by this package and by its peers, of any models.

    pip install pin
    python drivers/versus_peers.py --folder results
    python drivers/versus_peers.py figure figure48 tree:9:2 caterpillar:1024 crowd:64 --folder results
    python drivers/versus_peers.py four_bar:10 four_bar:40 four_bar:160 --folder results

Each pair of this package and a peer runs in one process, in turns, on one core, and only where their accelerations
agree: see `laboratory.peers.compare`. Where a peer gives no figure (memory, time, disagreement), the table and the bars
say why. What a peer evaluates roughly by nature, as Pinocchio's lcaba does closed loops, is timed all the same: the
table says how far it is off.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from laboratory.command import call, keep
from laboratory.peers import AGREEMENT, OURS, PEERS, compare_apart
from mpimbs.base.errors import InputError
from mpimbs.dynamics.resources import free_memory
from mpimbs.model import system_from
from mpimbs.plots.curves import new_figure, number_ticks, save
from mpimbs.plots.tables import host

MODELS = tuple(f"spatial_chain:{n}" for n in (16, 36, 64, 256, 512, 1024, 4096))
COLOURS = {OURS: "tab:blue", "pinocchio": "tab:orange"}


def main(
    models: Sequence[str] = MODELS,
    folder: Path = Path("results"),
    peers: Sequence[str] = tuple(PEERS),
    seconds: float = 1.0,
    memory: float | None = None,
    limit: float = 300.0,
) -> dict[str, Any]:
    """Time this package and its peers on each of some models.

    Parameters
    ----------
    models : sequence of str
        As `mpimbs run` takes them.
    folder : Path
        Where versus_peers.json and versus_peers.png go.
    peers : sequence of str
        Keys of `PEERS`.
    seconds : float
        Wall time for the repetitions of one pair on one model (s).
    memory : float, optional
        What a peer may take (bytes); half of what is free by default.
    limit : float
        Wall time for one pair on one model, set-up included (s).

    Returns
    -------
    dict
        The table: settings, machine, rows (one for each model and program of each pair; with a reason in place of the
        figures where a peer gives none).
    """
    if unknown := set(peers) - set(PEERS):
        raise InputError(f"unknown peer '{min(unknown)}'; there are: {', '.join(PEERS)}")
    bodies = {model: system_from(model).n_bodies for model in models}  # a bad name ends here
    asked = {"models": list(models), "peers": list(peers), "seconds": seconds, "memory": memory, "limit": limit}
    table: dict[str, Any] = {"settings": asked | {"agreement": AGREEMENT}, "machine": machine(), "rows": []}
    folder.mkdir(parents=True, exist_ok=True)
    print(f"| MODEL | bodies | {OURS} | {' | '.join(peers)} |\n|{'---|' * (3 + len(peers))}")
    for model, n in bodies.items():
        for pair in [[name] for name in peers] or [[]]:
            found = compare_apart(model, seconds, pair, memory, limit)
            of_all = {"model": model, "n": n, "against": pair}
            table["rows"] += [{**of_all, "program": name, **row} for name, row in found.items()]
        cells = [_cell(quickest(table, model, name)) for name in (OURS, *peers)]
        print(f"| `{model}` | {n} | {' | '.join(cells)} |", flush=True)
    keep(folder / "versus_peers.json", table)
    save(draw(table), folder / "versus_peers.png")
    return table


def quickest(table: dict[str, Any], model: str, program: str) -> dict[str, Any]:
    """Give the row of a program on a model; of several, as this package has, the fastest; or one with the reason."""
    rows = [row for row in table["rows"] if (row["model"], row["program"]) == (model, program)]
    return min(rows, key=lambda row: row.get("us_min", np.inf))


def _cell(row: dict[str, Any]) -> str:
    if "reason" in row:
        return row["reason"].split(":")[0]
    ratio = "" if row["program"] == OURS else f", {row['ratio']:.3g} times"
    rough = f", to {row['difference']:.0e}" if row["difference"] > AGREEMENT else ""
    return f"{row['us_min']:.4g} us{ratio}{rough}"


def draw(table: dict[str, Any]) -> Figure:
    """Draw the times on each model as bars, one for each program; those of peers with their times over ours."""
    models, peers = table["settings"]["models"], table["settings"]["peers"]
    figure, axes = new_figure(
        "one evaluation of forward dynamics, one core", "", "least time (us)", 2.0 + 1.6 * len(models)
    )
    width = 0.8 / (1 + len(peers))
    for number, name in enumerate((OURS, *peers)):
        rows = {place: quickest(table, model, name) for place, model in enumerate(models)}
        known = {place: row for place, row in rows.items() if "reason" not in row}
        left = width * (number - 0.5 * len(peers))
        heights = [row["us_min"] for row in known.values()]
        colour = COLOURS.get(name, "tab:gray")
        bars = axes.bar([place + left for place in known], heights, width, color=colour, label=name)
        if name != OURS:
            axes.bar_label(bars, [f"x {row['ratio']:.3g}" for row in known.values()], fontsize=8)
        for place, row in rows.items():
            if "reason" in row:
                axes.text(place + left, 0.02, f"{name}: {row['reason'].split(':')[0]}", rotation=90, fontsize=8,
                          ha="center", va="bottom", transform=axes.get_xaxis_transform(), color=colour)  # fmt: skip
    axes.set_yscale("log")
    number_ticks(axes.yaxis)
    axes.set_xticks(range(len(models)), [f"{model}\n{quickest(table, model, OURS)['n']} bodies" for model in models])
    axes.set(xlabel=table["machine"]["cpu"], xlim=(-0.6, len(models) - 0.4))
    axes.legend()
    return figure


def machine() -> dict[str, Any]:
    """Say what the figures were measured on."""
    versions = {name: metadata.version(name) for name in ("numpy", "numba")}
    return {
        **host(), "free_memory": free_memory(swap=False), "python": platform.python_version(), **versions,
    }  # fmt: skip


if __name__ == "__main__":
    call(main)
