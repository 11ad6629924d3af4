"""The command that measured sizes, `mpimbs tune`: it says what takes its place."""

from __future__ import annotations

import click

from mpimbs.base.errors import InputError
from mpimbs.base.sizes import VARIABLE
from mpimbs.cli.words import Command


@click.command(cls=Command, hidden=True, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def tune(comm: object, arguments: tuple[str, ...]) -> None:
    """Say what takes its place."""
    raise InputError(
        f"tune is no more: give sizes in the environment, {VARIABLE}=most_lane=64,pivot_bytes=8388608, and compare "
        "by `mpimbs bench`"
    )
