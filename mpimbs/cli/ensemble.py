"""Runs of copies of a system: `mpimbs run --parameters`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpimbs.cli.options import read_model
from mpimbs.stepping.settings import Checkpoints

if TYPE_CHECKING:
    from mpi4py import MPI


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

    system = read_model(comm, model)
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
