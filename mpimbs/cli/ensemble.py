"""The command that simulates copies of a system: `mpimbs ensemble`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click
from mpi4py import MPI

from mpimbs.cli.options import SAMPLES, forces_option, given_settings, output_option, read, setting_options
from mpimbs.model.library import parameters_in
from mpimbs.parallel.agreement import together
from mpimbs.simulation.settings import OF_ENSEMBLES, Checkpoints, SimulationSettings

_OTHERS = tuple(field.name for field in SimulationSettings.fields() if field.name not in OF_ENSEMBLES)


@click.command()
@click.argument("model")
@click.option(
    "--parameters",
    type=Path,
    required=True,
    help="Table (.csv, .npz) of what the copies have of their own: a row for each, columns as in 'link1.mass', "
    "'hip.stiffness', 'q:hip', 'gravity[1]'; 'name' is what they are called.",
)
@output_option(SAMPLES, "HDF5 file to write.")
@setting_options(SimulationSettings, leave=_OTHERS, must=("t_end",))
@setting_options(Checkpoints)
@forces_option
@click.pass_obj
def ensemble(
    comm: MPI.Comm, model: str, parameters: Path, output: Path, forces: tuple[str, ...], **options: Any
) -> None:
    """Simulate copies of MODEL that differ as a table says, and write their motion.

    They go side by side; with loops, given motions or an implicit integrator one after the other on each rank. A copy
    that fails does not end the others. Signals as for run; they are answered at samples.
    """
    together(comm, lambda: import_module("mpimbs.petsc"))  # which may be missing on one node alone
    from mpimbs.members import members_of_table
    from mpimbs.simulation.ensembles.ensemble import simulate_copies

    checkpoints = Checkpoints(**given_settings(Checkpoints, options))
    system = read(comm, model)
    found: Any = model if parameters_in(model) else system
    result = simulate_copies(
        lambda: members_of_table(found, parameters, forces),
        comm,
        output=output,
        progress=True,
        checkpoints=checkpoints,
        signals=True,
        given=given_settings(SimulationSettings, options, _OTHERS),
    )
    if comm.rank == 0:
        click.echo(f"{result.summary()}\nwrote {output}")
