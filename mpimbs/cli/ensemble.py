"""Runs of copies of a system: `mpimbs run --parameters`, and its name of before, `mpimbs ensemble`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpimbs.cli.options import SAMPLES, forces_option, given_settings, output_option, read, setting_options
from mpimbs.cli.words import Command
from mpimbs.stepping.settings import OF_ENSEMBLES, Checkpoints, SimulationSettings

if TYPE_CHECKING:
    from mpi4py import MPI

_OTHERS = tuple(field.name for field in SimulationSettings.fields() if field.name not in OF_ENSEMBLES)


def simulate_table(
    comm: MPI.Comm,
    model: str,
    parameters: Path,
    output: Path,
    forces: tuple[str, ...],
    checkpoints: Checkpoints,
    given: dict[str, Any],
) -> None:
    """Simulate the copies of a model that a table tells of, with the settings that were given; all ranks call."""
    from mpimbs.dynamics.copies.members import members_of_table
    from mpimbs.model.examples.library import parameters_in
    from mpimbs.run.ensembles.ensemble import simulate_copies

    system = read(comm, model)
    found: Any = model if parameters_in(model) else system
    result = simulate_copies(
        lambda: members_of_table(found, parameters, forces),
        comm,
        output=output,
        progress=True,
        checkpoints=checkpoints,
        signals=True,
        given=given,
    )
    if comm.rank == 0:
        click.echo(f"{result.summary()}\nwrote {output}")


@click.command(cls=Command, hidden=True)
@click.argument("model")
@click.option("--parameters", type=Path, required=True, help="Table (.csv, .npz) of what the copies have of their own.")
@output_option(SAMPLES, "HDF5 file to write.")
@setting_options(SimulationSettings, leave=_OTHERS, must=("t_end",))
@setting_options(Checkpoints)
@forces_option
@click.pass_obj
def ensemble(
    comm: MPI.Comm, model: str, parameters: Path, output: Path, forces: tuple[str, ...], **options: Any
) -> None:
    """Do what `mpimbs run --parameters` does."""
    if comm.rank == 0:
        click.echo("note: mpimbs ensemble is called mpimbs run now, with the same options", err=True)
    checkpoints = Checkpoints(**given_settings(Checkpoints, options))
    given = given_settings(SimulationSettings, options, _OTHERS)
    simulate_table(comm, model, parameters, output, forces, checkpoints, given)
