"""The commands for who writes model files: `mpimbs convert | new`."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mpimbs.base.errors import InputError
from mpimbs.base.places import check_new, replacing
from mpimbs.cli.options import tell_left_out
from mpimbs.cli.words import Command, said_on_root

if TYPE_CHECKING:
    from mpi4py import MPI


def _write(output: Path, suffix: str, text: str, force: bool) -> None:
    if output.suffix != suffix:
        raise InputError(
            f"-o {output}: what is written is no {output.suffix} file; give a name that ends with {suffix}"
        )
    check_new(output, force)
    with replacing(output) as part:
        part.write_text(text, encoding="utf-8")
    click.echo(f"wrote {output}")


@click.command(cls=Command)
@click.argument("name", required=False)
@click.option("-o", "--output", type=Path, required=True, help="File to write, .toml; of the schema .json.")
@click.option("--schema", is_flag=True, help="Write the JSON schema of model files, by which editors complete them.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.pass_obj
def new(comm: MPI.Comm, name: str | None, output: Path, schema: bool, force: bool) -> None:
    """Write a model file to begin with, that runs: a crane, with comments. NAME is what the model is called."""

    def work() -> None:
        if schema:
            from mpimbs.model.text.schema import schema_of_models

            _write(output, ".json", json.dumps(schema_of_models(), indent=1) + "\n", force)
            return
        text = (resources.files("mpimbs.model") / "example.toml").read_text(encoding="utf-8")
        if name is not None:
            text = re.sub(
                '^name = "a crane"', lambda _: f"name = {json.dumps(name, ensure_ascii=False)}", text, flags=re.M
            )
        _write(output, ".toml", text, force)

    said_on_root(comm, work)


@click.command(cls=Command)
@click.argument("model")
@click.option("-o", "--output", type=Path, required=True, help="Model file to write, .toml.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.pass_obj
def convert(comm: MPI.Comm, model: str, output: Path, force: bool) -> None:
    """Write MODEL, a URDF or MJCF file or any other model, as a model file.

    What is left out is told on standard error, by name.
    """

    def work() -> None:
        from mpimbs.model import system_from, write_system

        if output.suffix != ".toml":
            raise InputError(f"-o {output}: what is written is a TOML file; give a name that ends with .toml")
        check_new(output, force)
        system = system_from(model)
        write_system(system, output, force)
        tell_left_out(comm, system.contents)
        click.echo(f"wrote {output}: {system.n_bodies} bodies, {system.nu} degrees of freedom")

    said_on_root(comm, work)
