"""Operation counts of the divide and conquer, and figures 3 to 6 of Critchley, Anderson & Binani with them.

    python drivers/operation_counts.py --folder results

Operations of a body and of a join are counted by running the kernels with a counting number type, for three kinds of
chains: revolute, which is the paper's, spherical, and mixed; spare columns of registers are left out. Those of the
inertia matrix stand beside the tables of Amin-Javaheri & Orin. Nothing is timed: the figures are theoretical as the
paper's are, multiplications and additions of the processor that has the most to do, without communication. Divisions,
roots, sines and cosines are printed beside; the paper leaves them out.

Two things differ from the paper's figures. Their curve of RCRP is not drawn, since the paper doesn't give its counts.
And the paper's counts are of bodies described by Denavit and Hartenberg's parameters, whose rotations have a zero; ours
are of any frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from laboratory.command import call, keep
from laboratory.counting import Counts
from laboratory.inertia_operations import inertia_operations
from laboratory.operations import PAPER, OperationCounts, OperationModel, arithmetic, models, operations_of
from mpimbs.base.errors import InputError
from mpimbs.model import Body, Joint, System, system_from
from mpimbs.plots.curves import new_figure, save
from mpimbs.plots.tables import markdown

MIXED = ("revolute", "universal", "spherical", "prismatic", "cylindrical")
INERTIA_SIZES = (8, 36, 128, 512)  # hinges
MANY = tuple(2**k for k in range(11))
FEW = tuple(range(1, 17))
PARTS = {
    "body swept at the tip": lambda c: c.tip,
    "body swept, both handles": lambda c: c.piece,
    "dcae: join, both handles": lambda c: c.join,
    "dcae: join at the tip": lambda c: c.join_tip,
    "dca: leaf": lambda c: c.leaf,
    "dca: join": lambda c: c.assembly,
    "dca: body, leaf and join": lambda c: c.leaf + c.assembly,
    "dcae: level of ranks": lambda c: models(c)["dcae"].level,
    "dca: level of ranks": lambda c: models(c)["dca"].level,
}
PAPER_PARTS = {
    "body swept at the tip": PAPER["aba"].alone,
    "body swept, both handles": PAPER["dcae"].body,
    "dca: body, leaf and join": PAPER["dca"].body,
    "dcae: level of ranks": PAPER["dcae"].level,
    "dca: level of ranks": PAPER["dca"].level,
}
FIGURES = {
    "figure3": ("DCA against serial O(n)", ("aba", "dca"), True),
    "figure4": ("DCA with an O(n) terminal subsystem", ("aba", "dca", "dca-terminal"), False),
    "figure5": ("DCAe, balanced, against DCA and serial O(n)", ("aba", "dca", "dcae"), True),
    "figure6": ("DCAe, balanced, against DCA and serial O(n)", ("aba", "dca", "dcae-even", "dcae"), False),
}
LABELS = {
    "aba": "serial O(n)", "dca": "DCA", "dca-terminal": "DCA, O(n) terminal", "dcae-even": "DCAe, equal shares",
    "dcae": "DCAe, balanced",
}  # fmt: skip
COLOURS = {name: f"C{k}" for k, name in enumerate(LABELS)}


def mixed_chain(periods: int) -> System:
    """Make a chain of links whose joints are those of `MIXED`, again and again."""
    system = System(f"mixed chain of {periods * len(MIXED)} bodies")
    links = [
        Body(name=kind, mass=1, center_of_mass=(0, -1, 0), inertia=(1, 1, 1, 0, 0, 0),
             joint=Joint.model_validate({"type": kind, "position": (0, -2, 0)}))
        for kind in MIXED
    ]  # fmt: skip
    system.repeat(periods, *links)
    return system


def chains() -> dict[str, tuple[System, System]]:
    """Two chains of each kind, to be counted: their difference is a period of the joints, or two bodies."""
    pairs = {name: (system_from(f"{spec}:4"), system_from(f"{spec}:6")) for name, spec in
             (("revolute", "spatial_chain"), ("spherical", "rope"))}  # fmt: skip
    return pairs | {"mixed": (mixed_chain(1), mixed_chain(2))}


def main(
    folder: Path = Path("results"), n: int = 1024, many: Sequence[int] = (), few: Sequence[int] = ()
) -> dict[str, Any]:
    """Count, print the table, draw the figures and write all numbers.

    Parameters
    ----------
    folder : Path
        Where pictures and operation_counts.json go.
    n : int
        Bodies of the chain in the figures.
    many, few : sequence of int
        Numbers of processors in figures 3 and 5, and in figures 4 and 6; up to n of `MANY` and `FEW` by default.

    Returns
    -------
    dict
        What is written: n; counts (by kind of chain, then part); inertia (by n, then form); paper (by part); by source,
        then algorithm: models (coefficients), fewest (processors that take fewer operations than one alone), gain (with
        each of processors, which are `many`); figures.

    Raises
    ------
    InputError
        More processors than bodies, or less than one.
    """
    many, few = ([p for p in known if p <= n] if asked == () else asked for asked, known in ((many, MANY), (few, FEW)))
    for p in (*many, *few):
        if not 1 <= p <= n:
            raise InputError(f"processors: {p} for a chain of {n} bodies; choose numbers from 1 to {n}")
    counted = {name: operations_of(*(system.contents for system in pair)) for name, pair in chains().items()}
    matrices = {str(size): inertia_operations(size)._asdict() for size in INERTIA_SIZES}
    sources = {"ours": models(counted["revolute"]), "paper": PAPER}
    table = {
        "n": n,
        "counts": {kind: {part: _numbers(of(c)) for part, of in PARTS.items()} for kind, c in counted.items()},
        "inertia": {size: {form: _numbers(c) for form, c in forms.items()} for size, forms in matrices.items()},
        "paper": {part: _numbers(c) for part, c in PAPER_PARTS.items() if c},
        "models": {source: {k: _coefficients(m) for k, m in of.items()} for source, of in sources.items()},
        "fewest": {source: {k: fewest(m, of["aba"], n) for k, m in of.items()} for source, of in sources.items()},
        "processors": [int(p) for p in many],
        "gain": {
            source: {k: [arithmetic(of["aba"](n)) / arithmetic(m(n, p)) for p in many] for k, m in of.items()}
            for source, of in sources.items()
        },
        "figures": {},
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, (title, algorithms, wide) in FIGURES.items():
        processors = [int(p) for p in (many if wide else few)]
        curves = {
            source: {k: [arithmetic(of[k](n, p)) for p in processors] for k in algorithms}
            for source, of in sources.items()
        }
        table["figures"][name] = {"processors": processors, "operations": curves}
        save(draw(f"{title}: chain of {n} bodies", processors, curves, wide), folder / f"operations_{name}.png")
    keep(folder / "operation_counts.json", table)
    for kind, c in counted.items():
        print(f"{kind} chain, multiplications + additions\n\n{table_of(c, kind == 'revolute')}\n")
    forms_of = [{"n": n} | {form: _sum(c) for form, c in forms.items()} for n, forms in matrices.items()]
    print(f"inertia matrix of a chain of n hinges, multiplications + additions\n\n{markdown(forms_of)}\n")
    print(report(table))
    return table


def fewest(model: OperationModel, serial: OperationModel, n: int) -> int | None:
    """Fewest processors with which an algorithm takes fewer operations than the serial one on one; None for none."""
    least = arithmetic(serial(n))
    return next((p for p in range(2, n + 1) if arithmetic(model(n, p)) < least), None)


def draw(
    title: str, processors: Sequence[int], curves: Mapping[str, Mapping[str, Sequence[float]]], wide: bool
) -> Figure:
    """Draw operations against processors: ours solid, the paper's dashed."""
    figure, axes = new_figure(title, "processors", "multiplications and additions")
    for source, styles in (("ours", {"ls": "-", "lw": 2.0}), ("paper", {"ls": "--", "lw": 1.0})):
        for k, operations in curves[source].items():
            axes.plot(processors, operations, color=COLOURS[k], label=f"{LABELS[k]}, {source}", **styles)
    axes.set_xscale("log" if wide else "linear", **({"base": 2} if wide else {}))
    axes.set_xlim(min(processors), max(processors))
    axes.set_yscale("log" if wide else "linear")
    if not wide:
        axes.set_ylim(0, 2 * max(curves["ours"]["aba"]))
    axes.legend()
    return figure


def table_of(counted: OperationCounts, paper: bool) -> str:
    """Lay out the counts of one kind of chain in Markdown: ours, and the paper's."""
    rows = []
    for part, of in PARTS.items():
        c = of(counted)
        row = {"": part, "here": _sum(c), "divisions": f"{c.divisions:.3g}"}
        row |= {"roots": f"{c.square_roots:.3g}", "sines with cosines": f"{c.sine_cosines:.3g}"}
        published = PAPER_PARTS.get(part)
        rows.append(row | ({"paper": _sum(published) if published else ""} if paper else {}))
    return markdown(rows)


def report(table: Mapping[str, Any]) -> str:
    """Lay out in Markdown what each algorithm gains on how many processors, over the serial one on one."""
    rows = []
    for k, label in LABELS.items():
        for source in ("ours", "paper") if k != "aba" else ():
            row = {f"{table['n']} bodies": label, "counts": source, "fewest": str(table["fewest"][source][k] or "none")}
            row["tip"] = f"{table['models'][source][k]['tip_ratio']:.2f}"
            gains = zip(table["processors"], table["gain"][source][k], strict=True)
            rows.append(row | {f"p = {p}": f"{gain:.3g}" for p, gain in gains})
    return (
        "operations of the serial algorithm over those of the busiest of p processors; fewest: processors with which "
        f"it gains; tip: how many times more bodies the last one has\n\n{markdown(rows)}"
    )


def _sum(counts: Counts) -> str:
    return f"{counts.multiplications:.0f} + {counts.additions:.0f}"


def _numbers(counts: Counts) -> dict[str, float]:
    return {
        name: getattr(counts, name)
        for name in ("multiplications", "additions", "divisions", "square_roots", "sine_cosines", "arc_tangents")
    }


def _coefficients(model: OperationModel) -> dict[str, Any]:
    found: dict[str, Any] = {"tip_ratio": model.tip_ratio, "alone": _numbers(model.alone)}
    if model.body:
        found |= {name: _numbers(getattr(model, name)) for name in ("body", "level", "constant")}
    return found


if __name__ == "__main__":
    call(main)
