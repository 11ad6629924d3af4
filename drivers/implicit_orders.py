"""Linearly implicit methods: their order where it is stiff and where it isn't, stability, and what they do to energy.

    python drivers/implicit_orders.py --folder results order          errors of rods that fall, against steps
    python drivers/implicit_orders.py --folder results stability      a linear spring, up to omega h = 2000
    python drivers/implicit_orders.py --folder results energy         what steps take from a rod that swings

Each prints its table, and writes it as implicit_NAME.json and .tsv, with a picture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from mpimbs.base.arrays import Floats
from mpimbs.model import Body, Joint, System
from mpimbs.plots.curves import new_figure
from mpimbs.run.run import simulate
from stiff_systems import IMPLICIT, Found, Rows, command_of, tip

ONE_STEP = tuple(name for name in IMPLICIT if name != "petsc:bdf")


def falling_rod(links: int, bending: float) -> System:
    """Give a clamped rod of 1 m and 50 g, of a bending stiffness (N m^2), that falls from the horizontal."""
    system = System("rod", gravity=(0, -9.81, 0))
    system.add_rod(name="rod", count=links, length=1, EI=bending, mass_per_length=0.05, joint="revolute", clamped=True)
    return system


def order(
    integrators: Sequence[str] = IMPLICIT,
    steps: Sequence[float] = (0.02, 0.01, 0.005, 0.0025, 0.00125, 0.000625),
    t_end: float = 0.2,
) -> Found:
    """Find errors of the tip of rods that fall, at the end, against steps."""
    figure = Figure(figsize=(10.0, 5.0), layout="constrained")
    rows: Rows = []
    for axes, (kind, n, bending) in zip(
        figure.subplots(1, 2, sharey=True), (("stiff", 32, 0.2), ("not stiff", 4, 2e-4)), strict=True
    ):
        system = falling_rod(n, bending)
        right = tip(simulate(system, t_end, every=t_end, rtol=1e-10, atol=1e-12).q[-1], 1 / n)
        for integrator in integrators:
            errors = [
                float(np.linalg.norm(tip(found.q[-1], 1 / n) - right))
                for found in (simulate(system, t_end, every=t_end, integrator=integrator, dt=dt) for dt in steps)
            ]
            named = {f"{dt * 1e3:g} ms": wrong for dt, wrong in zip(steps, errors, strict=True)}
            rows.append({"rod": kind, "integrator": integrator} | named)
            axes.loglog(np.array(steps) * 1e3, errors, "o-", label=integrator)
        axes.set(title=f"{n} links, EI {bending:g} N m²: {kind}", xlabel="step (ms)")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("error of the tip (m)")
    figure.axes[0].legend()
    return rows, figure


def step_matrix(integrator: str, omega: float) -> Floats:
    """What a step of 1 s makes of an oscillator's q and u / omega [2, 2]."""
    system = System("oscillator", gravity=(0, 0, 0))
    hinge = Joint(type="revolute", stiffness=omega**2)
    system.add(Body(name="wheel", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=hinge))
    columns = []
    for q, u in ((1.0, 0.0), (0.0, omega)):
        result = simulate(
            system, 1.0, integrator=integrator, dt=1.0, every=1.0, state=([1e-3 * q], [1e-3 * u])
        )  # fmt: skip
        columns.append((result.q[-1, 0] * 1e3, result.u[-1, 0] * 1e3 / omega))
    return np.array(columns).T


def stability(integrators: Sequence[str] = (*ONE_STEP, "rk4"), most: float = 2000.0, points: int = 40) -> Found:
    """Find the factor by which a step takes the amplitude of a linear spring's motion, against omega h."""
    figure, axes = new_figure("a step of a linear spring", "omega h", "factor of the amplitude")
    reached = np.geomspace(0.05, most, points)
    rows: Rows = []
    for integrator in integrators:
        factors = np.array([np.abs(np.linalg.eigvals(step_matrix(integrator, omega))).max() for omega in reached])
        grows = factors > 1 + 1e-9
        rows.append({
            "integrator": integrator, "stable to omega h": float(reached[np.argmax(grows)]) if grows.any() else most,
            "largest factor": float(factors.max()), f"factor at {most:g}": float(factors[-1]),
        })  # fmt: skip
        axes.loglog(reached, factors, ".-", label=integrator)
    axes.axhline(1.0, color="0.5", lw=0.8)
    axes.set_ylim(1e-4, 10)
    axes.legend()
    return rows, figure


def energy(
    integrators: Sequence[str] = IMPLICIT, steps: Sequence[float] = (0.01, 0.005, 0.0025), t_end: float = 5.0
) -> Found:
    """Find what steps take from the energy of a rod that swings without dampers."""
    figure, axes = new_figure("energy of a swinging rod", "t (s)", "E - E0 over the weight's, times length")
    system, rows, scale = falling_rod(8, 0.05), Rows(), 0.05 * 9.81
    for integrator in integrators:
        for dt in steps:
            result = simulate(system, t_end, integrator=integrator, dt=dt, every=0.05)
            total = result.energy.sum(axis=1)
            lost = (total - total[0]) / scale
            rows.append({"integrator": integrator, "step, ms": dt * 1e3, "largest change": float(np.abs(lost).max()),
                         "at the end": float(lost[-1])})  # fmt: skip
            axes.plot(result.t, lost, label=f"{integrator}, {dt * 1e3:g} ms", lw=1)
    axes.legend()
    return rows, figure


CASES: dict[str, Callable[..., Found]] = {"order": order, "stability": stability, "energy": energy}


if __name__ == "__main__":
    command_of(__doc__, "implicit", CASES)()
