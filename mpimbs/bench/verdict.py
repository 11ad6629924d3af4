"""What a study of speed comes to: fits of the cost models, speed-up and efficiency, and one line of advice.

And the choice of a coupling for a model on the ranks that there are, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.errors import InputError
from mpimbs.bench.accuracy import ASSEMBLED, LONG
from mpimbs.bench.bench import bench
from mpimbs.bench.cost_fit import (
    ButterflyModel,
    Point,
    butterfly_terms,
    fit_butterfly_model,
    fit_cost_model,
    fit_power_law,
    load_terms,
)
from mpimbs.coupling import COUPLINGS, UNCOMPARED, unavailable
from mpimbs.model.contents import Contents

Row = dict[str, Any]
_POOR = 0.25  # relative error of a fit that says nothing


def trusted(rows: Sequence[Row]) -> list[Row]:
    """Rows whose times say something: measured, and not with more ranks than cores."""
    return [row for row in rows if not row["predicted"] and not row["oversubscribed"]]


def add_speedups(rows: Sequence[Row]) -> None:
    """Add "speedup" and "efficiency" to the rows of the study "strong": against the fastest coupling on one rank."""
    alone = [row["us_min"] for row in rows if row["study"] == "strong" and row["ranks"] == 1]
    for row in rows:
        if row["study"] == "strong" and alone:
            row["speedup"] = min(alone) / row["us_min"]
            row["efficiency"] = row["speedup"] / row["ranks"]


def fits(rows: Sequence[Row], n: int) -> dict[str, Row]:
    """Fit a cost model to the trusted rows of each coupling.

    Parameters
    ----------
    rows : sequence of dict
        With coupling, ranks, n, dof, us_min; for constraint loads cuts and solutions too.
    n : int
        Bodies for which the number of ranks of least time is given.

    Returns
    -------
    dict of dict
        By coupling: model, points (those measured), coefficients (s), largest_relative_error, poor (whether that is
        above a quarter), and for butterflies best_ranks: None where only one number of ranks was measured, since the
        cost of a level is not known then. Where there are no more points than coefficients that they tell of,
        coefficients is None, and why says so: any such curve meets them.
    """
    found = {}
    good = trusted(rows)
    for coupling in dict.fromkeys(row["coupling"] for row in good):
        own = [row for row in good if row["coupling"] == coupling]
        found[coupling] = _fit_loads(own) if any("solutions" in row for row in own) else _fit_butterfly(own, n)
    return found


def _fitted(name: str, terms: Sequence[npt.ArrayLike], seconds: Sequence[float], make: Callable[[], Any]) -> Row:
    """A fit and how good it is, where the points tell of it.

    Parameters
    ----------
    name : str
        The model as a formula.
    terms : sequence of array
        What the coefficients are multiplied by, of every point.
    seconds : sequence of float
    make : callable
        Gives the fitted model, a tuple of numbers.
    """
    rows = np.array(terms, np.float64)
    points, told = len(np.unique(rows, axis=0)), int(np.linalg.matrix_rank(rows / np.array(seconds)[:, None]))
    found: Row = {"model": name, "points": points}  # studies have points in common
    if points <= told:
        why = f"such a curve meets any {points} point(s); measure more numbers of ranks or bodies"
        return {**found, "coefficients": None, "why": why}
    model = make()
    error = float(np.abs(rows @ np.array(model[-rows.shape[1] :]) / np.array(seconds) - 1.0).max())
    return {**found, "coefficients": model._asdict(), "largest_relative_error": error, "poor": error > _POOR}


def _fit_butterfly(rows: Sequence[Row], n: int) -> Row:
    points = [(row["n"], row["ranks"], 1e-6 * row["us_min"]) for row in rows]
    terms, seconds = [butterfly_terms(*point[:2]) for point in points], [point[2] for point in points]
    fit = _fitted("C0 + C1 n / P + C2 ceil(log2 P)", terms, seconds, lambda: fit_butterfly_model(points))
    if fit["coefficients"] is not None:
        several = len({row["ranks"] for row in rows}) > 1
        fit["best_ranks"] = ButterflyModel(**fit["coefficients"]).best_ranks(n) if several else None
    return fit


def _fit_loads(rows: Sequence[Row]) -> Row:
    """Equation 23; one subchain alone has no loads to solve for."""
    loads = [row.get("solutions", {}) for row in rows]
    iterating = [(s["unknowns"], s["iterations"]) for s in loads if s.get("unknowns") and s.get("iterations")]
    gamma = fit_power_law(*zip(*iterating, strict=True)).exponent if len({m for m, _ in iterating}) > 1 else 0.0
    points = [
        Point(row["dof"], s.get("unknowns", 0), row["cuts"] + 1, row["ranks"], 1e-6 * row["us_min"])
        for row, s in zip(rows, loads, strict=True)
    ]
    terms, seconds = [load_terms(*point[:4], gamma) for point in points], [point.seconds for point in points]
    name = "C1 n / R + C2 n m / (N R) + m^gamma (C3 N / R + C4 log2 R)"
    return _fitted(name, terms, seconds, lambda: fit_cost_model(points, gamma))


def advice(rows: Sequence[Row], per_second: float | None, rtol: float) -> str:
    """Say in one line which coupling on how many ranks, and how long a simulated second takes then.

    Parameters
    ----------
    rows : sequence of dict
        Those of the study "strong", measured and predicted.
    per_second : float, optional
        Evaluations per simulated second at the tolerance `rtol`.
    """
    strong = [row for row in rows if row["study"] == "strong"]
    best = min(trusted(strong), key=lambda row: row["us_min"], default=None)
    if best is None:
        return "no advice: nothing was measured within the cores"
    line = f"choose --coupling {best['coupling']} on {best['ranks']} rank(s): {best['us_min']:.4g} us an evaluation"
    line += _per_simulated_second(best, per_second)
    if per_second is not None:
        line += f" (rtol {rtol:g}, {per_second:.4g} evaluations)"
    predicted = min((row for row in strong if row["predicted"]), key=lambda row: row["us_min"], default=None)
    if predicted is not None and predicted["us_min"] < best["us_min"]:
        line += (
            f"; predicted for the cluster '{predicted['cluster']}': {predicted['coupling']} on {predicted['ranks']} "
            f"ranks, {predicted['us_min']:.4g} us{_per_simulated_second(predicted, per_second)}"
        )
    return line


def _per_simulated_second(row: Row, per_second: float | None) -> str:
    return "" if per_second is None else f", {1e-6 * row['us_min'] * per_second:.3g} s per simulated second"


_SECONDS = 0.05  # s for each coupling


class Choice(NamedTuple):
    """A coupling, and why it was chosen."""

    coupling: str
    why: str


def choose_coupling(system: Contents, comm: MPI.Comm, **settings: Any) -> Choice:
    """Choose the coupling that is the fastest on these ranks: measured, a moment for each; all ranks call.

    On one rank with one subchain there is nothing to join, and nothing is measured: the sweep is the fastest. What
    loses digits in long chains is left out.

    Parameters
    ----------
    system, comm, **settings
        As for `Dynamics`, but for the coupling and its solver.

    Raises
    ------
    InputError
        On all ranks: none solves the system.
    """
    if comm.size == 1 and not settings.get("cuts"):
        return Choice("dcae", "one subchain, swept in O(n): nothing to join")
    found: dict[str, float] = {}
    left_out: dict[str, str] = {}
    refusal: InputError | None = None
    for name in COUPLINGS:
        if name in UNCOMPARED:
            continue
        if name in ASSEMBLED and system.n_bodies > LONG:
            left_out[name] = f"loses digits beyond {LONG} bodies"
            continue
        if unavailable(name):
            left_out[name] = "needs petsc4py"
            continue
        try:
            figures = bench(system, comm, name, _SECONDS, **settings)
        except InputError as error:
            left_out[name] = "refused"
            refusal = refusal or error
            continue
        found[name] = comm.bcast(figures["us_median"])
    if not found:
        raise refusal or InputError("no coupling solves this system")
    best = min(found, key=lambda name: found[name])
    others = [f"{name} {us:.4g}" for name, us in found.items() if name != best]
    others += [f"{name} {reason}" for name, reason in left_out.items()]
    why = f"{found[best]:.4g} us an evaluation on {comm.size} ranks, measured"
    return Choice(best, f"{why} ({'; '.join(others)})" if others else why)
