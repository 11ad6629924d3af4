"""Section 5 of Duan & Anderson: a chain joined by constraint loads, its iterations and times against the cuts.

    mpiexec -n 2 python drivers/constraint_load_study.py --folder results

Figures 9 and 10 are drawn from the sixteen-body chain with 3 cuts, and the growth of its iterations is found for
several tolerances, of which the paper does not name its own. Iterations per evaluation are counted in simulations with
an adaptive step, for every preconditioner and initial estimate; gamma is the exponent of their growth with the number m
of constraint loads. Figure 11 is the time of an evaluation against the cuts, measured on one rank and on all, with the
fit of equation 23; what that says of one rank for each subchain is drawn beside as a prediction.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from mpi4py import MPI

from laboratory.command import call, keep, show
from mpimbs.bench.bench import bench
from mpimbs.bench.cost_fit import CostModel, Point, fit_cost_model, fit_power_law
from mpimbs.coupling import LoadSolver
from mpimbs.coupling.settings import ESTIMATES, PRECONDITIONERS
from mpimbs.model import System, system_from
from mpimbs.parallel.agreement import first_ranks
from mpimbs.plots.curves import new_figure, save
from mpimbs.plots.motions import draw_subchains
from mpimbs.plots.pictures import draw_coordinates, motion_of
from mpimbs.run.run import simulate

SYSTEMS = ("chain:16", "chain:128", "chain:1024", "spatial_chain:1024")
CUTS = (1, 3, 7, 15, 31, 63)
PAPER = LoadSolver("jacobi", "zero")
ITERATIVE = [LoadSolver(p, estimate) for p in PRECONDITIONERS if p != "direct" for estimate in ESTIMATES]
TIMED = (PAPER, LoadSolver())
PAPER_GAMMA = 0.739
PAPER_CUTS = (1, 3, 7, 15)
TOLERANCES = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12)
LONGER = 10.0  # the sixteen-body chain is simulated for so many times the time of the others


def main(
    systems: Sequence[str] = SYSTEMS,
    folder: Path = Path("results"),
    cuts: Sequence[int] = CUTS,
    t_end: float = 1.0,
    rtol: float = 1e-8,
    seconds: float = 0.3,
    tolerances: Sequence[float] = TOLERANCES,
    comm: MPI.Comm = MPI.COMM_WORLD,
) -> dict[str, Any] | None:
    """Run the study.

    Parameters
    ----------
    systems : sequence of str
        Chains, as `mpimbs run` takes them.
    folder : Path
        Where output, pictures and tables go.
    cuts : sequence of int
        Numbers of cuts; those are left out for which a chain is too short.
    t_end, rtol : float
        Simulated time (s) and tolerance of the simulations in which iterations are counted.
    seconds : float
        Wall time for each time that is measured (s).
    tolerances : sequence of float
        Those of the constraint loads with which the paper's chain is run.
    comm : MPI.Comm
        Its ranks; a case uses the first of them, one for each subchain at the most.

    Returns
    -------
    dict or None
        The tables, on rank 0.
    """
    if comm.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
    comm.Barrier()
    draw_motion(folder, LONGER * t_end, comm)
    paper = vary_tolerance(LONGER * t_end, tolerances, comm)
    tables: list[dict[str, Any]] = []
    for spec in systems:
        system = system_from(spec)
        possible = [count for count in cuts if count < system.n_bodies]
        iterations = count_iterations(system, possible, t_end, rtol, comm, ITERATIVE)
        times = measure_times(system, possible, seconds, comm)
        if comm.rank == 0:
            fits = fit_times(system, times, iterations)
            tables.append(
                {"system": spec, "n": system.n_bodies, "iterations": iterations, "times": times, "fits": fits}
            )
            draw_iterations(folder, tables[-1])
            draw_times(folder, tables[-1])
    if comm.rank > 0:
        return None
    table = {"t_end": t_end, "rtol": rtol, "ranks": comm.size, "paper": paper, "systems": tables}
    keep(folder / "constraint_load_study.json", table)
    title = f"chain16, {PAPER.preconditioner}, {PAPER.estimate}-order hold; the paper's gamma: {PAPER_GAMMA}"
    show(title, [row | {f"{c} cuts": y for c, y in zip(row["cuts"], row["iterations"], strict=True)} for row in paper],
         "tolerance", *(f"{c} cuts" for c in PAPER_CUTS), "gamma", "gamma_from_3_cuts")  # fmt: skip
    for part in tables:
        spec, rows = part["system"], part["iterations"]
        show(f"{spec}: iterations of an evaluation at rtol {rtol:g}, by cuts, and their growth m^gamma", [
            {"preconditioner": p, "estimate": e}
            | {str(r["cuts"]): r["iterations"] for r in rows if (r["preconditioner"], r["estimate"]) == (p, e)}
            | {"gamma": gamma(rows, p, e)}
            for p, e in dict.fromkeys((row["preconditioner"], row["estimate"]) for row in rows)
        ])  # fmt: skip
        show(f"{spec}: us of an evaluation, without lanes", part["times"])
        show(f"{spec}: equation 23", [{"solver": solver} | fit for solver, fit in part["fits"].items()])
    return table


def draw_motion(folder: Path, t_end: float, comm: MPI.Comm) -> None:
    """Simulate the sixteen-body chain with 3 cuts by constraint loads, and draw figures 9 and 10."""
    output = folder / "constraint_loads_3_cuts.h5"
    with first_ranks(comm, 4) as part:
        if part is not None:
            simulate(
                system_from("chain16"), t_end, part, coupling="pcg", cuts=3, tip_ratio=1.0, output=output, force=True,
                poses=True,
            )  # fmt: skip
    if comm.rank == 0:
        motion = motion_of(output)
        save(draw_coordinates(motion), folder / "constraint_loads_figure9.png")
        with h5py.File(output, "r") as run:
            bounds = json.loads(run.attrs["settings"])["cuts"]
        save(draw_subchains(motion, bounds), folder / "constraint_loads_figure10.png")


def vary_tolerance(t_end: float, tolerances: Sequence[float], comm: MPI.Comm) -> list[dict[str, Any]]:
    """Count the iterations of the paper's solver on the paper's chain: rows of tolerance, iterations, gamma.

    With 1 cut the loads of a plane chain are two, and found in two iterations: gamma_from_3_cuts leaves this case out.
    """
    rows = []
    for tolerance in tolerances:
        solver = dataclasses.replace(PAPER, rtol=tolerance)
        found = count_iterations(system_from("chain16"), PAPER_CUTS, t_end, 1e-6, comm, [solver])
        if comm.rank == 0:
            m, y = ([row[name] for row in found] for name in ("m", "iterations"))
            rows.append({
                "tolerance": tolerance, "cuts": list(PAPER_CUTS), "iterations": y,
                "gamma": fit_power_law(m, y).exponent, "gamma_from_3_cuts": fit_power_law(m[1:], y[1:]).exponent,
            })  # fmt: skip
    return rows


def count_iterations(
    system: System, cuts: Sequence[int], t_end: float, rtol: float, comm: MPI.Comm, solvers: Sequence[LoadSolver]
) -> list[dict[str, Any]]:
    """Count iterations of simulations: rows of solver, cuts, m, and per evaluation iterations and factorizations.

    The rows are complete on rank 0.
    """
    rows = []
    for solver, count in itertools.product(solvers, cuts):
        with first_ranks(comm, count + 1) as part:
            if part is None:
                continue
            result = simulate(
                system, t_end, part, coupling="pcg", cuts=count, solver=solver, rtol=rtol, atol=rtol, every=t_end
            )  # fmt: skip
        solved = result.solutions
        rows.append({
            "preconditioner": solver.preconditioner, "estimate": solver.estimate, "cuts": count,
            "m": solved["unknowns"], "iterations": solved["total_iterations"] / solved["solutions"],
            "factorizations": solved["factorizations"] / solved["solutions"],
            "evaluations": solved["solutions"], "condition": solved["largest_condition"],
        })  # fmt: skip
    return rows


def measure_times(system: System, cuts: Sequence[int], seconds: float, comm: MPI.Comm) -> list[dict[str, Any]]:
    """Time an evaluation on one rank and on all, by the paper's solver, the default one, and DCAe, without lanes."""
    rows = []
    for ranks, count in itertools.product(sorted({1, comm.size}), (0, *cuts)):
        if ranks > count + 1:
            continue
        with first_ranks(comm, ranks) as part:
            if part is None:
                continue
            for solver in (*TIMED, None):
                coupling = "pcg" if solver else "dcae"
                found = bench(system, part, coupling, seconds, lanes=1, cuts=count, solver=solver)
                rows.append({
                    "solver": solver.preconditioner if solver else "(dcae)", "ranks": ranks, "cuts": count,
                    "m": found["solutions"]["unknowns"] if solver else 0,
                    "us_median": found["us_median"], "us_min": found["us_min"], "phases": found["phases"],
                })  # fmt: skip
    return rows


def gamma(rows: Sequence[dict[str, Any]], preconditioner: str, estimate: str) -> float:
    """Exponent of the growth of iterations with m; not a number where fewer than two cases iterate."""
    chosen = [
        row
        for row in rows
        if (row["preconditioner"], row["estimate"]) == (preconditioner, estimate) and row["iterations"] > 0
    ]
    if len(chosen) < 2:
        return float("nan")
    return fit_power_law([row["m"] for row in chosen], [row["iterations"] for row in chosen]).exponent


def fit_times(
    system: System, times: Sequence[dict[str, Any]], iterations: Sequence[dict[str, Any]]
) -> dict[str, dict[str, float]]:
    """Fit equation 23 to the times of each solver, with the gamma of its iterations."""
    fits = {}
    for solver in TIMED:
        points = [
            Point(system.nu, row["m"], row["cuts"] + 1, row["ranks"], 1e-6 * row["us_median"])
            for row in times
            if row["solver"] == solver.preconditioner
        ]
        model = fit_cost_model(points, gamma(iterations, solver.preconditioner, solver.estimate))
        worst = max(abs(model(*point[:4]) / point.seconds - 1.0) for point in points)
        fits[solver.preconditioner] = model._asdict() | {"largest_relative_error": worst}
    return fits


def name_of(table: dict[str, Any]) -> str:
    """Name of a system in names of files."""
    return str(table["system"]).replace(":", "_")


def draw_iterations(folder: Path, table: dict[str, Any]) -> None:
    """Draw iterations against m for every preconditioner, with zero-order hold, and the fit of the paper's."""
    rows = table["iterations"]
    figure, axes = new_figure(f"{table['system']}: iterations per evaluation", "constraint loads m", "iterations")
    for preconditioner in dict.fromkeys(row["preconditioner"] for row in rows):
        chosen = [r for r in rows if (r["preconditioner"], r["estimate"]) == (preconditioner, PAPER.estimate)]
        exponent = gamma(rows, preconditioner, PAPER.estimate)
        x, y = ([row[name] for row in chosen] for name in ("m", "iterations"))
        axes.loglog(x, y, "o-", label=f"{preconditioner}: gamma {exponent:.3f}")
    x = np.array(sorted({row["m"] for row in rows}))
    first = next(r for r in rows if (r["preconditioner"], r["estimate"]) == (PAPER.preconditioner, PAPER.estimate))
    axes.loglog(x, first["iterations"] * (x / x[0]) ** PAPER_GAMMA, "k--", label=f"slope of the paper: {PAPER_GAMMA}")
    axes.legend()
    save(figure, folder / f"constraint_load_iterations_{name_of(table)}.png")


def draw_times(folder: Path, table: dict[str, Any]) -> None:
    """Draw figure 11: times against the cuts, measured, fitted and, for a rank to each subchain, predicted."""
    figure, axes = new_figure(f"{table['system']}: time of an evaluation", "cuts", "us (median)", 9.0, 6.0)
    nu = system_from(table["system"]).nu
    shown = dict.fromkeys((row["solver"], row["ranks"]) for row in table["times"])
    for colour, (solver, ranks) in enumerate(shown):
        rows = [row for row in table["times"] if (row["solver"], row["ranks"]) == (solver, ranks)]
        x = [row["cuts"] for row in rows]
        axes.plot(x, [row["us_median"] for row in rows], "o", color=f"C{colour}", label=f"{solver}, ranks: {ranks}")
        if solver in table["fits"]:
            model = _model(table["fits"][solver])
            fitted = [1e6 * model(nu, row["m"], row["cuts"] + 1, ranks) for row in rows]
            axes.plot(x, fitted, "-", color=f"C{colour}", label="equation 23")
            if ranks == 1:
                alone = [1e6 * model(nu, row["m"], row["cuts"] + 1, row["cuts"] + 1) for row in rows]
                axes.plot(x, alone, ":", color=f"C{colour}", label="a rank for each subchain (predicted)")
    axes.set_xscale("symlog", linthresh=1)
    axes.set_yscale("log")
    axes.legend(fontsize="small")
    save(figure, folder / f"constraint_load_figure11_{name_of(table)}.png")


def _model(fit: dict[str, float]) -> CostModel:
    return CostModel(*(fit[name] for name in CostModel._fields))


if __name__ == "__main__":
    call(main)
