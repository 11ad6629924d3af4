"""The command that turns robots of other programs to model files: `mpimbs convert`."""

from __future__ import annotations

from pathlib import Path

import click
from mpi4py import MPI

from mpimbs.cli.options import tell_left_out
from mpimbs.cli.words import Command
from mpimbs.errors import InputError
from mpimbs.filesystem.places import check_new
from mpimbs.model import is_robot, read_robot, system_from, write_system
from mpimbs.parallel.agreement import on_root


@click.command(cls=Command)
@click.argument("model")
@click.option("-o", "--output", type=Path, required=True, help="Model file to write, .toml.")
@click.option("--free", is_flag=True, help="The first link of a URDF file floats; else it is fixed to the world.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.pass_obj
def convert(comm: MPI.Comm, model: str, output: Path, free: bool, force: bool) -> None:
    """Write MODEL, a URDF or MJCF file or any other model, as a model file.

    What is left out is told on standard error, by name.
    """

    def work() -> None:
        if output.suffix != ".toml":
            raise InputError(f"-o {output}: what is written is a TOML file; give a name that ends with .toml")
        if free and not is_robot(model):
            raise InputError("--free: is about the first link of a URDF file; leave it out")
        check_new(output, force)
        system = read_robot(model, free) if is_robot(model) else system_from(model)
        write_system(system, output, force)
        tell_left_out(comm, system)
        click.echo(f"wrote {output}: {system.n_bodies} bodies, {system.nu} degrees of freedom")

    on_root(comm, work)
