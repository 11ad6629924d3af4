"""Time of one evaluation of forward dynamics by this package and by its peers: against bodies, or of any models.

    pip install pin drake
    python drivers/versus_peers.py --folder results
    python drivers/versus_peers.py --folder results --models figure,figure48,tree:9:2,caterpillar:1024,crowd:64
    python drivers/versus_peers.py --folder results --models four_bar:10,four_bar:40,four_bar:160 --peer pinocchio

Each pair of this package and a peer runs in one process, in turns, on one core, and only where their accelerations
agree: see `laboratory.peers.compare`. A peer that gives no figure at one size (memory, time, disagreement) is
not asked for larger ones, and the picture says why it stops. Of models in a list, all peers are asked for each: a table
and bars. What a peer evaluates roughly by nature, as Pinocchio's lcaba does closed loops, is timed all the same: the
table says how far it is off.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from laboratory.peers import AGREEMENT, OURS, PEERS, compare_apart
from mpimbs.dynamics.resources import free_memory
from mpimbs.model import system_from
from mpimbs.plots.axes import new_figure, number_ticks, save
from mpimbs.plots.tables import host

SIZES = (*(2**k for k in range(4, 15)), 2**16, 2**18, 2**20)
STYLES = {OURS: ("tab:blue", "o"), "pinocchio": ("tab:orange", "s"), "drake": ("tab:green", "^")}


def main(
    folder: Path = Path("results"),
    model: str = "spatial_chain",
    sizes: Sequence[int] = SIZES,
    peers: Sequence[str] = tuple(PEERS),
    seconds: float = 1.0,
    memory: float | None = None,
    limit: float = 300.0,
) -> dict[str, Any]:
    """Time this package and its peers at each size, as far as each peer goes.

    Parameters
    ----------
    folder : Path
        Where table and picture go.
    model : str
        A generator of `mpimbs run` whose one argument is the size.
    sizes : sequence of int
        Ascending.
    peers : sequence of str
        Keys of `PEERS`.
    seconds : float
        Wall time for the repetitions of one pair at one size (s).
    memory : float, optional
        What a peer may take (bytes); half of what is free by default.
    limit : float
        Wall time for one pair at one size, set-up included (s).

    Returns
    -------
    dict
        The table: settings, machine, rows (one for each size and program of each pair), and where each peer stopped.
    """
    sizes = [int(n) for n in sizes]
    for n in sizes:
        system_from(f"{model}:{n}")  # a bad name ends here
    table = begun(folder, {"model": model, "sizes": sizes}, peers, seconds, memory, limit) | {"stops": {}}
    for n in sizes:
        standing = [name for name in peers if name not in table["stops"]]
        for pair in [[name] for name in standing] or [[]]:
            found = compare_apart(f"{model}:{n}", seconds, pair, memory, limit)
            table["rows"] += [
                {"n": n, "program": name, "against": pair, **row} for name, row in found.items() if "reason" not in row
            ]
            for name, row in found.items():
                if "reason" in row and (name in pair or not pair):
                    table["stops"][name] = {"n": n, "reason": row["reason"]}
        print(line(table, n, peers), flush=True)
        if OURS in table["stops"]:
            break
    for name, stop in table["stops"].items():
        print(f"{name} stops at n = {stop['n']}: {stop['reason']}")
    (folder / "versus_peers.json").write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    save(draw(table), folder / "versus_peers.png")
    return table


def begun(
    folder: Path, asked: dict[str, Any], peers: Sequence[str], seconds: float, memory: float | None, limit: float
) -> dict[str, Any]:
    """Make the folder; give the table without rows, of what is asked for and how it is timed."""
    folder.mkdir(parents=True, exist_ok=True)
    timed = {"peers": list(peers), "seconds": seconds, "memory": memory, "limit": limit, "agreement": AGREEMENT}
    return {"settings": asked | timed, "machine": machine(), "rows": []}


def of_models(
    models: Sequence[str],
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
    folder, peers, seconds, memory, limit
        See `main`; table and picture are versus_peers_models.json and .png.

    Returns
    -------
    dict
        The table: settings, machine, rows (one for each model and program of each pair; with a reason in place of the
        figures where a peer gives none).
    """
    bodies = {model: system_from(model).n_bodies for model in models}  # a bad name ends here
    table = begun(folder, {"models": list(models)}, peers, seconds, memory, limit)
    print(f"| MODEL | bodies | {OURS} | {' | '.join(peers)} |\n|{'---|' * (3 + len(peers))}")
    for model, n in bodies.items():
        for pair in [[name] for name in peers] or [[]]:
            found = compare_apart(model, seconds, pair, memory, limit)
            of_all = {"model": model, "n": n, "against": pair}
            table["rows"] += [{**of_all, "program": name, **row} for name, row in found.items()]
        cells = [_cell(quickest(table, model, name)) for name in (OURS, *peers)]
        print(f"| `{model}` | {n} | {' | '.join(cells)} |", flush=True)
    (folder / "versus_peers_models.json").write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    save(draw_models(table), folder / "versus_peers_models.png")
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


def draw_models(table: dict[str, Any]) -> Figure:
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
        colour = STYLES.get(name, ("tab:gray",))[0]
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


def best(table: dict[str, Any], program: str) -> dict[int, dict[str, Any]]:
    """Give the rows of a program by size; of several at one size, as this package has, the fastest."""
    rows: dict[int, dict[str, Any]] = {}
    for row in table["rows"]:
        if row["program"] == program and row["us_min"] < rows.get(row["n"], {"us_min": np.inf})["us_min"]:
            rows[row["n"]] = row
    return rows


def line(table: dict[str, Any], n: int, peers: Sequence[str]) -> str:
    """Write the line of the table for one size."""
    ours = best(table, OURS).get(n)
    text = f"n = {n:8d}  {OURS} " + (f"{ours['us_min']:10.4g} us" if ours else " " * 12 + "-")
    for name in peers:
        row = best(table, name).get(n)
        figures = f"{row['us_min']:9.4g} us = {row['ratio']:5.3g} x ours" if row else f"{'-':>9s}{'':17s}"
        text += f"   {name} {figures}"
    return text.rstrip()


def draw(table: dict[str, Any]) -> Figure:
    """Draw time against size, and the times of the peers over ours in the same run; each peer as far as it goes."""
    figure = Figure(figsize=(8.0, 8.0), layout="constrained")
    times, ratios = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    last = {}
    for name in (OURS, *table["settings"]["peers"]):
        rows = best(table, name)
        if not rows:
            continue
        colour, marker = STYLES.get(name, ("tab:gray", "d"))
        look: dict[str, Any] = {"color": colour, "marker": marker, "ms": 5, "lw": 1.8 if name == OURS else 1.2}
        times.loglog(list(rows), [row["us_min"] for row in rows.values()], label=title(name, rows), **look)
        if name != OURS:
            ratios.loglog(list(rows), [row["ratio"] for row in rows.values()], **look)
            last[name] = (max(rows), rows[max(rows)]["us_min"])
    # The slowest one's note is above the curves, the others' are below.
    order = sorted(last, key=lambda name: last[name][1] / last[name][0], reverse=True)
    for place, name in enumerate(name for name in order if name in table["stops"]):
        note = table["stops"][name]
        reason = note["reason"].split(":")[0].replace("^2", "²").replace("^3", "³")
        spot: dict[str, Any] = {"xytext": (0.03, 0.70), "ha": "left"}
        if place:
            spot = {"xytext": (0.52, 0.06 + 0.12 * (place - 1)), "ha": "left"}
        times.annotate(
            f"{name} stops before n = {note['n']}:\n{reason}", last[name], textcoords="axes fraction", va="bottom",
            color=STYLES.get(name, ("tab:gray",))[0], fontsize=9,
            arrowprops={"arrowstyle": "->", "color": "0.4", "shrinkB": 5}, **spot,
        )  # fmt: skip
    ratios.axhline(1.0, color=STYLES[OURS][0], lw=1.8)
    ratios.text(0.99, 1.05, "as fast as mpimbs", transform=ratios.get_yaxis_transform(), ha="right", va="bottom",
                color=STYLES[OURS][0], fontsize=9)  # fmt: skip
    times.set(title=f"{table['settings']['model']}: one evaluation of forward dynamics, one core",
              ylabel="least time (us)")  # fmt: skip
    ratios.set(xlabel=f"number of bodies ({table['machine']['cpu']})", ylabel="time over that of mpimbs")
    ratios.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ratios.yaxis.set_major_formatter("{x:g}")
    ratios.yaxis.set_minor_formatter(NullFormatter())
    for axes in (times, ratios):
        axes.grid(alpha=0.3)
    times.legend(loc="upper left")
    return figure


def title(name: str, rows: dict[int, dict[str, Any]]) -> str:
    """Name a program, its version and the ways in which it was called."""
    ways = dict.fromkeys(row["way"] for row in rows.values())
    return f"{name} {next(iter(rows.values()))['version']}" + ("" if name == OURS else f" ({' / '.join(ways)})")


@click.command(help=__doc__)
@click.option("--folder", type=Path, default=Path("results"), show_default=True)
@click.option("--model", default="spatial_chain", show_default=True, help="A generator whose argument is the size.")
@click.option("--sizes", help="Numbers of bodies, ascending, with commas.  [default: 16, 32, ... 16384, then to 2^20]")
@click.option("--models", help="Models, with commas, instead of the sizes of one generator.")
@click.option("--peer", "peers", multiple=True, type=click.Choice(list(PEERS)), help="One of them; may be repeated.")
@click.option("--seconds", type=float, default=1.0, show_default=True, help="For one pair at one size.")
@click.option("--memory", type=float, help="What a peer may take, bytes.  [default: half of what is free]")
@click.option("--limit", type=float, default=300.0, show_default=True, help="Time limit of one pair at one size, s.")
def _command(model: str, sizes: str | None, models: str | None, peers: tuple[str, ...], **settings: Any) -> None:
    wanted = peers or tuple(PEERS)
    if models is not None:
        of_models(models.split(","), peers=wanted, **settings)
        return
    chosen = SIZES if sizes is None else [int(n) for n in sizes.split(",")]
    main(model=model, sizes=chosen, peers=wanted, **settings)


if __name__ == "__main__":
    _command()
