"""The command line of a driver, an option for each parameter of its `main`, by its name, default and description; and
what it keeps."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import click
from mpi4py import MPI

from mpimbs.base.errors import InputError
from mpimbs.parallel.agreement import abort_on_error
from mpimbs.plots.tables import markdown

UNNAMED = ("system", "systems", "models", "places")  # what is given without a name, as many as wanted


class _Several(click.ParamType):
    """Values of one type with commas between them."""

    name = "LIST"

    def __init__(self, of: type) -> None:
        self._of = of

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return tuple(map(self._of, value.split(","))) if isinstance(value, str) else value
        except ValueError:
            return self.fail(f"{value!r} is no list of {self._of.__name__}s with commas between them", param, ctx)


def call(main: Callable[..., Any]) -> Any:
    """Call a driver's `main` as the command line says, and give what it returns; an error on one rank ends the job.

    Its parameters are of types that a text says, or sequences of these. A communicator is that of all ranks.
    """
    taken, hints, told = dict(inspect.signature(main).parameters), get_type_hints(main), _described(main)
    alone = taken.pop("comm", None) is None
    options = [_option(parameter, hints[name], told.get(name)) for name, parameter in taken.items()]
    found, comm = list[Any](), MPI.COMM_SELF if alone else MPI.COMM_WORLD

    def work(**given: Any) -> None:
        kept = {name: value for name, value in given.items() if value not in ((), None)}  # else as `main` has it
        with abort_on_error(comm):
            try:
                found.append(main(**kept) if alone else main(**kept, comm=comm))
            except InputError as error:  # on all ranks
                if comm.rank == 0:
                    click.echo(f"Error: {error}", err=True)
                found.append(error)

    text = re.sub("\n\n    ", "\n\n\b\n    ", main.__globals__["__doc__"])  # commands stay as they stand
    try:
        click.Command(None, params=options, callback=work, help=text).main()
    except SystemExit as error:
        if error.code or not found:  # asked for help
            raise
    if isinstance(found[0], InputError):
        sys.exit(2)
    return found[0]


def keep(place: Path, found: Any) -> None:
    """Write what a driver has found as JSON; its folder is made."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def show(title: str, rows: Sequence[dict[str, Any]], *columns: str) -> None:
    """Print rows as a table, all of their columns or some; what a row doesn't have stays empty."""
    print(f"{title}\n\n{markdown([{name: row.get(name) for name in columns or row} for row in rows])}\n", flush=True)


def _option(parameter: inspect.Parameter, hint: Any, told: str | None) -> click.Parameter:
    name, default = parameter.name, parameter.default
    several = get_origin(hint) is not None and type(None) not in get_args(hint)
    of = next((part for part in get_args(hint) if part is not type(None)), hint)
    if name in UNNAMED and of is not int:
        return click.Argument([name], type=of, nargs=-1 if several else 1, required=default is parameter.empty)
    must, flag = default is parameter.empty, of is bool
    shown = ",".join(map(str, default)) if several and not must and default else not flag and default != ()
    given: dict[str, Any] = {} if flag else {"type": _Several(of) if several else of}
    given |= {} if must else {"default": default, "show_default": shown}
    return click.Option([f"--{name.replace('_', '-')}"], is_flag=flag, required=must, help=told, **given)


def _described(function: Callable[..., Any]) -> dict[str, str]:
    """What a docstring says of parameters."""
    _, _, text = (inspect.getdoc(function) or "").partition("Parameters\n----------\n")
    found: dict[str, str] = {}
    for names, words in re.findall(r"^(\w[^\n:]*)(?: : [^\n]*)?\n((?: {4}[^\n]*\n?)+)", text, re.MULTILINE):
        found |= dict.fromkeys(names.strip().split(", "), " ".join(words.split()))
    return found
