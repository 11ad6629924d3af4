"""Closed loops over a long time: how far they drift apart, and what happens to the energy, with and without projection.

    python drivers/closed_loops.py four_bar:1 --t-end 1000 --folder results

The same motion with fixed steps, its loops closed after every step in positions and velocities, in velocities alone,
not at all, and not at all but with stabilisation. A table, and the violations and the energy drawn side by side.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from mpi4py import MPI

from mpimbs.base.errors import SimulationError
from mpimbs.base.places import check_folder
from mpimbs.files.motion import Motion
from mpimbs.model import system_from
from mpimbs.plots.axes import new_figure, save
from mpimbs.run.run import simulate

FILES = "closed_loops.json", "violations.png", "energy.png"
Drawn = dict[str, Motion]


def ways(stabilisation: float) -> dict[str, dict[str, Any]]:
    """Settings by what they are called."""
    return {
        "positions": {"projection": "positions"},
        "velocities": {"projection": "velocities"},
        "none": {"projection": "none"},
        "stabilisation": {"projection": "none", "stabilisation": stabilisation},
    }


def main(
    folder: Path,
    model: str = "four_bar:1",
    t_end: float = 1000.0,
    dt: float = 0.005,
    samples: int = 1000,
    stabilisation: float = 0.05,
    force: bool = False,
    comm: MPI.Comm = MPI.COMM_SELF,
) -> list[dict[str, Any]]:
    """Simulate a model in all ways, and compare; all ranks call.

    Parameters
    ----------
    folder : Path
        Of what is written.
    model : str
        A system with loops that are closed where it begins.
    t_end, dt : float
        Simulated time and step (s).
    samples : int
    stabilisation : float
        Its time constant (s).
    force : bool
        Replace what an earlier call wrote.
    comm : MPI.Comm

    Returns
    -------
    list of dict
        A row for each way; on rank 0.
    """
    check_folder(folder, FILES, force)
    every = dt * max(1, round(t_end / dt / samples))
    rows, drawn = [], Drawn()
    for name, settings in ways(stabilisation).items():
        try:
            result = simulate(system_from(model), t_end, comm, dt=dt, every=every, **settings)
        except SimulationError as error:
            rows.append({"way": name, "stopped": str(error)})
            continue
        if result.motion is None:
            continue
        drawn[name] = result.motion
        violation = result.loop_violation.max(axis=(0, 1))
        rows.append({
            "way": name, "positions": float(violation[0]), "velocities": float(violation[1]),
            "energy": result.energy_error, "steps": result.steps, "evaluations": result.evaluations,
            "evaluations_to_close": result.loops["evaluations"], "seconds": sum(result.seconds.values()),
            "seconds_to_close": result.seconds["projection"],
        })  # fmt: skip
    if comm.rank == 0:
        (folder / FILES[0]).write_text(json.dumps(rows, indent=1), encoding="utf-8")
        _draw(folder, model, drawn)
        _tell(rows)
    return rows if comm.rank == 0 else []


def _draw(folder: Path, model: str, drawn: Drawn) -> None:
    violations, axes = new_figure(f"{model}: violation of positions", "t (s)", "m and rad")
    energy, energy_axes = new_figure(f"{model}: energy", "t (s)", "E - E0 (J)")
    for name, motion in drawn.items():
        assert motion.loop_violation is not None
        axes.semilogy(motion.t, motion.loop_violation[:, :, 0].max(axis=1) + 1e-17, label=name)
        total = motion.energy.sum(axis=1)
        energy_axes.plot(motion.t, total - total[0], label=name)
    for one, figure, file in ((axes, violations, FILES[1]), (energy_axes, energy, FILES[2])):
        if drawn:
            one.legend()
        save(figure, folder / file)


def _tell(rows: list[dict[str, Any]]) -> None:
    click.echo("projection      positions velocities  energy, J   seconds, to close  evaluations, to close")
    for row in rows:
        if "stopped" in row:
            click.echo(f"{row['way']:15s} {row['stopped']}")
            continue
        click.echo(
            f"{row['way']:15s} {row['positions']:9.1e} {row['velocities']:10.1e} {row['energy']:10.1e} "
            f"{row['seconds']:9.2f} {row['seconds_to_close']:9.2f} {row['evaluations']:11d} "
            f"{row['evaluations_to_close']:10d}"
        )


@click.command()
@click.argument("model", default="four_bar:1")
@click.option("--folder", type=Path, required=True)
@click.option("--t-end", default=1000.0, help="Simulated time, s.")
@click.option("--dt", default=0.005, help="Step, s.")
@click.option("--samples", default=1000)
@click.option("--stabilisation", default=0.05, help="Time constant, s.")
@click.option("--force", is_flag=True, help="Replace what is in the folder.")
def command(folder: Path, **options: Any) -> None:
    """Compare the ways in which loops of MODEL stay closed."""
    main(folder, **options)


if __name__ == "__main__":
    command()
