"""Augmented Lagrangian with projections: the test cases of Malczyk & Fraczek (2012), and mechanisms that are harder.

    python drivers/augmented_loops.py --folder results

Section 4 of the paper: a single loop of five bars, and two coupled loops, fall for 10 s from rest, integrated to 1e-6
as by ode45; with and without projections, by the coupling `augmented` and beside it by `dcae`. The paper's figures,
which show where the bars begin, are not at hand: taken are bars that begin symmetric, the first at 135 degrees, on
pivots 0.4 m apart: 0.2, 0.4, 0.4 and 0.2 m, where 0.2 m is the paper's characteristic length, each of 1 kg and
0.25 kg m^2, as it says. They pass again and again through positions in which all bars lie in one line. Then a Bricard
mechanism, whose six hinges are constraints enough to hold it, and do not; and a parallelogram that folds flat, where
its motion branches.

Written are tables, and pictures: violations, energies, and what iterations change against the penalty.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from laboratory.command import call, keep, show
from mpimbs.base.errors import SimulationError
from mpimbs.base.places import check_folder
from mpimbs.coupling import Lagrangian
from mpimbs.coupling.augmented.coupling import AugmentedLagrangian
from mpimbs.dynamics import Dynamics
from mpimbs.files.motion import Motion
from mpimbs.model import Body, Joint, System, system_from
from mpimbs.plots.curves import new_figure, save
from mpimbs.run.run import simulate

FILES = (
    "augmented_loops.json",
    *(f"augmented_{what}_{case}.png" for case in ("five_bar", "coupled_loops") for what in ("violations", "energy")),
    "augmented_convergence.png",
)
LENGTH, INERTIA = 0.2, 0.25  # m, kg m^2: of the paper's bars
PENALTIES = tuple(10.0**k for k in range(3, 10))
ITERATIONS = 10
SHOWN = ("positions", "velocities", "energy", "steps", "iterations", "most", "unfinished", "us_a_step", "stopped")
Row = dict[str, Any]
WAYS: dict[str, Row] = {
    "augmented, projected": {"coupling": "augmented"},
    "augmented, not projected": {"coupling": "augmented", "projection": "none"},
    "augmented, stabilised": {"coupling": "augmented", "projection": "none", "stabilisation": 1.0},
    "dcae, projected": {},
    "dcae, not projected": {"projection": "none"},
}


def bars(name: str) -> System:
    """A generator's bars, with the lengths, masses and inertias of the paper."""
    given = system_from(name)
    system = System(given.name, given.gravity)
    for body in given.contents.bodies():
        place = tuple(LENGTH * x for x in body.joint.position)
        changes = {
            "mass": 1.0, "inertia": (INERTIA,) * 3 + (0.0,) * 3,
            "center_of_mass": tuple(LENGTH * x for x in body.center_of_mass),
            "joint": body.joint.model_copy(update={"position": place}),
        }  # fmt: skip
        system.add(body.model_copy(update=changes))
    for loop in given.contents.loops:
        places = tuple(tuple(LENGTH * x for x in place) for place in loop.positions)
        system.add_loop(loop.model_copy(update={"positions": places}))
    return system


def bricard() -> System:
    """Six hinges along the edges of a cube of 1 m, five rods of 1 kg and the ground: one degree of freedom."""
    points = np.array([[0, 0, 0], [1, 0, 0], [1, -1, 0], [1, -1, 1], [0, -1, 1], [0, 0, 1]], float)
    axes = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]], float)
    system, parent, before = System("Bricard mechanism"), "world", np.zeros(3)
    for k in range(5):
        along = points[k + 1] - points[k]
        inertia = np.where(along == 0.0, 1 / 12, 1e-4)
        system.add(Body(
            name=f"rod{k + 1}", parent=parent, mass=1.0, center_of_mass=tuple(0.5 * along),
            inertia=(*inertia, 0.0, 0.0, 0.0),
            joint=Joint(type="revolute", axis=tuple(axes[k]), position=tuple(before)),
        ))  # fmt: skip
        parent, before = f"rod{k + 1}", along
    system.add_loop(
        name="last", type="revolute", bodies=(parent, "world"), axis=tuple(axes[5]),
        positions=(tuple(before), tuple(points[5])),
    )  # fmt: skip
    return system


def main(folder: Path, t_end: float = 10.0, samples: int = 1000, force: bool = False) -> dict[str, list[Row]]:
    """Make all tables and pictures, on one process.

    Parameters
    ----------
    folder : Path
        Of what is written.
    t_end : float
        Simulated time (s).
    force : bool
        Replace what an earlier call wrote.

    Returns
    -------
    dict of str to list of dict
        The tables: "runs", "convergence".
    """
    check_folder(folder, FILES, force)
    for coupling in ("augmented", "dcae"):  # compiles
        simulate("five_bar", 0.01, MPI.COMM_SELF, coupling=coupling)
    cases: dict[str, Callable[[], System]] = {
        "five_bar": lambda: bars("five_bar"), "coupled_loops": lambda: bars("coupled_loops"), "bricard": bricard,
        "parallelogram": lambda: system_from("four_bar:1"),
    }  # fmt: skip
    runs: list[Row] = []
    for case, make in cases.items():
        drawn: dict[str, Motion] = {}
        for way, settings in WAYS.items():
            runs.append({"case": case, "way": way, **_run(make(), t_end, samples, settings, way, drawn)})
        if case in ("five_bar", "coupled_loops"):
            _draw_motions(folder, case, drawn)
    convergence = [row for case, make in cases.items() for row in _convergence(case, make())]
    _draw_convergence(folder / FILES[-1], convergence)
    tables = {"runs": runs, "convergence": convergence}
    keep(folder / FILES[0], tables)
    show("runs", runs, "case", "way", *SHOWN)
    show("errors, by the penalty", convergence, "case", "penalty", "error")
    return tables


def _run(system: System, t_end: float, samples: int, given: Row, way: str, drawn: dict[str, Motion]) -> Row:
    """A run, or what ended it."""
    accuracy = {"rtol": 1e-6, "atol": 1e-6, "every": t_end / samples}
    try:
        result = simulate(system, t_end, MPI.COMM_SELF, **accuracy, **given)
    except SimulationError as error:
        return {"stopped": str(error)}
    assert result.motion is not None
    drawn[way] = result.motion
    positions, velocities = result.loop_violation.max(axis=(0, 1))
    solved = result.solutions
    q = np.asarray(result.q)
    return {
        "positions": float(positions), "velocities": float(velocities), "energy": float(result.energy_error),
        "steps": result.steps, "evaluations": result.evaluations,
        "iterations": solved["total_iterations"] / solved["solutions"] if solved else 0.0,
        "most": solved.get("most_iterations", 0), "factorizations": solved.get("factorizations", 0),
        "unfinished": solved.get("unfinished", 0),
        "to_close": result.loops["evaluations"], "us_a_step": 1e6 * sum(result.seconds.values()) / result.steps,
        "final": [float(x) for x in q[-1]],
    }  # fmt: skip


def _convergence(case: str, system: System) -> list[Row]:
    """What every iteration changes, by the penalty; and how far the result is from that of dcae."""
    rows = []
    random = np.random.default_rng(1)
    with closing(Dynamics(system)) as reference:
        assert reference.loops is not None
        q = reference.loops.close_places(reference.subchain.displaced(reference.subchain.q, np.full(system.nu, 0.02)))
        u = reference.loops.close_speeds(q, random.normal(size=system.nu))
        expected = reference.accelerations(q, u)
    for penalty in PENALTIES:
        with closing(Dynamics(system, coupling="augmented", lagrangian=Lagrangian(penalty))) as dynamics:
            error = float(np.abs(dynamics.accelerations(q, u) - expected).max() / np.abs(expected).max())
        asked = Lagrangian(penalty, iterations=ITERATIONS, tolerance=1e-300)
        with closing(Dynamics(system, coupling="augmented", lagrangian=asked)) as dynamics:
            with suppress(SimulationError):  # all iterations were made
                dynamics.accelerations(q, u)
            assert isinstance(dynamics.divided.coupling, AugmentedLagrangian)
            rows.append(
                {"case": case, "penalty": penalty, "changes": dynamics.divided.coupling.changes, "error": error}
            )
    return rows


def _draw_motions(folder: Path, case: str, drawn: dict[str, Motion]) -> None:
    violations, axes = new_figure(f"{case}: violation of positions", "t (s)", "m and rad")
    energy, energy_axes = new_figure(f"{case}: energy", "t (s)", "E - E0 (J)")
    for name, motion in drawn.items():
        assert motion.loop_violation is not None
        axes.semilogy(motion.t, motion.loop_violation[:, :, 0].max(axis=1) + 1e-17, label=name)
        total = motion.energy.sum(axis=1)
        energy_axes.plot(motion.t, total - total[0], label=name)
    for what, figure, one in (("violations", violations, axes), ("energy", energy, energy_axes)):
        if drawn:
            one.legend()
        save(figure, folder / f"augmented_{what}_{case}.png")


def _draw_convergence(path: Path, rows: list[Row]) -> None:
    figure, axes = new_figure(
        "five_bar: what an iteration changes, by the penalty", "iteration", "of the accelerations"
    )
    for row in rows:
        if row["case"] == "five_bar":
            changes = np.array(row["changes"]) + 1e-18
            axes.semilogy(np.arange(1, len(changes) + 1), changes, marker="o", label=f"{row['penalty']:.0e}")
    axes.legend(title="penalty")
    save(figure, path)


if __name__ == "__main__":
    call(main)
