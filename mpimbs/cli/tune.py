"""The command that measures what the package was tuned for: `mpimbs tune`."""

from __future__ import annotations

from pathlib import Path

import click
from mpi4py import MPI

from mpimbs.cli.words import Command
from mpimbs.errors import InputError
from mpimbs.filesystem.places import check_new, replacing
from mpimbs.parallel.agreement import on_root
from mpimbs.sizes import VARIABLE, tuned


@click.command(cls=Command)
@click.option("-o", "--output", type=Path, help=f"TOML file to write, for {VARIABLE}.  [default: none]")
@click.option("--seconds", type=float, default=0.12, help="Wall time for each of some hundred times, s.")
@click.option("--force", is_flag=True, help="Replace an existing output file.")
@click.pass_obj
def tune(comm: MPI.Comm, output: Path | None, seconds: float, force: bool) -> None:
    """Measure the sizes that the package was tuned for on this machine, on 1 rank."""
    from mpimbs.study.tuning import file_text, report
    from mpimbs.study.tuning import tune as measure

    def work() -> None:
        if comm.size > 1:
            raise InputError(f"{comm.size} ranks would be in one another's way: start `mpimbs tune` on 1")
        tuned()
        if output is not None:
            if output.suffix != ".toml":
                raise InputError(f"-o {output}: what is written is a TOML file; give a name that ends with .toml")
            check_new(output, force)
        measured = measure(seconds)
        for line in report(measured):
            click.echo(line)
        if output is not None:
            with replacing(output) as place:
                place.write_text(file_text(measured), encoding="utf-8")
            click.echo(f"wrote {output}; `export {VARIABLE}={output.absolute()}` on all nodes uses it")

    on_root(comm, work)
