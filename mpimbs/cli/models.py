"""The commands for who writes model files: `mpimbs new | schema`."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path

import click
from mpi4py import MPI

from mpimbs.cli.words import Command
from mpimbs.errors import InputError
from mpimbs.filesystem.places import check_new, replacing
from mpimbs.parallel.agreement import on_root


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
@click.option("-o", "--output", type=Path, required=True, help="Model file to write, .toml.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.pass_obj
def new(comm: MPI.Comm, name: str | None, output: Path, force: bool) -> None:
    """Write a model file to begin with, that runs: a crane, with comments. NAME is what the model is called."""

    def work() -> None:
        text = (resources.files("mpimbs.model") / "example.toml").read_text(encoding="utf-8")
        if name is not None:
            text = re.sub(
                '^name = "a crane"', lambda _: f"name = {json.dumps(name, ensure_ascii=False)}", text, flags=re.M
            )
        _write(output, ".toml", text, force)

    on_root(comm, work)


@click.command(cls=Command)
@click.option("-o", "--output", type=Path, help="JSON file to write.  [default: standard output]")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.pass_obj
def schema(comm: MPI.Comm, output: Path | None, force: bool) -> None:
    """Write the JSON schema of model files, by which editors complete and check them."""

    def work() -> None:
        from mpimbs.model.schema import schema_of_models

        text = json.dumps(schema_of_models(), indent=1)
        if output is None:
            click.echo(text)
        else:
            _write(output, ".json", text + "\n", force)

    on_root(comm, work)
