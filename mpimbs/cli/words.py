"""Messages of the library in the words of the command line.

They name settings as Python does, between backticks: `every`, `force=True`, `coupling='dcae'`, `cuts=5`; a command says
--every, --force, --coupling dcae, --coupling cuts=5 instead. Names that it has no option for are left as they are.
And the streams that they are written to, of which one that breaks ends no command.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import os
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from mpimbs.base.errors import InputError, SimulationError
from mpimbs.base.settings import Field, single
from mpimbs.coupling.settings import EvaluationSettings
from mpimbs.stepping.settings import Checkpoints, SimulationSettings

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")
PATIENCE = 2.0  # s, after which someone wonders

# Python's names of settings, and those among the options.
_OPTIONS = {field.path: field.option for kind in (SimulationSettings, Checkpoints) for field in single(kind.fields())}

# What stands behind the name in the value of --coupling, and the paths of these settings in Python.
KEYS = {field.name: field for field in single(EvaluationSettings.fields()) if field.name != "coupling"}
_PATHS = {field.path: name for name, field in KEYS.items()}


class Command(click.Command):
    """A command whose errors speak of its options, and whose help has the keys of --coupling apart."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read its arguments; of what stands behind a robot's file, asked for as an option, say so."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from mpimbs.model.robots.reading import BEHIND_NAME, FREE

            key = error.option_name.removeprefix("--")
            if key not in (FREE, *BEHIND_NAME) or all(parameter.name != "model" for parameter in self.params):
                raise
            value = f"={BEHIND_NAME[key]}" if key in BEHIND_NAME else ""
            raise InputError(f"there is no --{key}: give FILE:{key}{value} as MODEL, of a robot's file") from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the keys of --coupling."""
        super().format_options(ctx, formatter)
        if any(parameter.name == "coupling" for parameter in self.params):
            with formatter.section("Keys of --coupling, such as --coupling pcg,cuts=15,preconditioner=jacobi"):
                formatter.write_dl([(name, help_of(field)) for name, field in KEYS.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run it on the ranks of its job, which starts only now: help needs no MPI. Word what goes wrong."""
        if callable(ctx.obj):
            ctx.obj = ctx.obj()
        try:
            return super().invoke(ctx)
        except (InputError, SimulationError) as error:
            raise type(error)(worded(str(error), self)) from None


def help_of(field: Field) -> str:
    """Say what a setting is, with its unit and default, in the words of the command line."""
    setting = field.setting
    default = re.sub("`([^`.]*)`", lambda found: f"--{found[1].replace('_', '-')}", field.default_words)
    text = f"{setting.text}{f', {setting.unit}' if setting.unit else ''}."
    return f"{text}  [default: {default}]" if default and field.kind is not bool else text


def said_together(comm: MPI.Comm, action: Callable[[], T]) -> T:
    """`agreement.together`, imported when a command works: it needs MPI, and knows of kernels."""
    from mpimbs.parallel import agreement

    return agreement.together(comm, action)


def said_on_root(comm: MPI.Comm, action: Callable[[], T]) -> T | None:
    """`agreement.on_root`, likewise."""
    return said_together(comm, lambda: action() if comm.rank == 0 else None)


@contextmanager
def told_when_long(what: str) -> Iterator[None]:
    """Say on standard error what a block does, if it takes long."""
    timer = threading.Timer(PATIENCE, click.echo, (f"mpimbs: {what} ...",), {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def worded(message: str, command: click.Command) -> str:
    """Put the options of a command into a message in place of Python's names."""
    shown = (each for each in command.params if isinstance(each, click.Option) and not each.hidden)
    options = {option.name: option.opts[0] for option in shown}

    def reword(found: re.Match[str]) -> str:
        if found[1].startswith("mpimbs.restart("):
            return _restart(found[1]) or found[0]
        name, _, value = found[1].partition("=")
        option = options.get(known := _OPTIONS.get(name, name)) or options.get(f"{known}s")  # of some several are taken
        if name in _PATHS and "coupling" in options:
            option = f"--coupling {_PATHS[name]}"
        if option is None or value in ("", "True"):
            return option or found[0]
        return f"{option}{'=' if ' ' in option else ' '}{value.strip(chr(39))}"

    return re.sub("`([^`]*)`", reword, message)


def _restart(said: str) -> str | None:
    """The command for `mpimbs.restart('out.checkpoint.h5', comm, forces=['water:add'])`, where one does as much."""
    try:
        call = ast.parse(said, mode="eval").body
    except SyntaxError:  # of a path with a backtick in it
        return None
    if not isinstance(call, ast.Call) or any(key.arg != "forces" for key in call.keywords):
        return None
    forces = [given for key in call.keywords for given in ast.literal_eval(key.value)]
    words = (word for given in forces for word in ("--forces", given))
    return shlex.join(["mpimbs", "restart", ast.literal_eval(call.args[0]), *words])


class Stream:
    """A text stream whose first error ends what is written there, and not the command."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream  # None: closed before the start
        self.error: OSError | None = None  # why it can't be written any more

    def write(self, text: str) -> int:
        """Write, while that is possible."""
        if self.error is None and self._stream is not None:
            try:
                return self._stream.write(text)
            except OSError as error:
                self._end(error)
        return len(text)

    def flush(self) -> None:
        """Flush, while that is possible."""
        if self.error is None and self._stream is not None:
            try:
                self._stream.flush()
            except OSError as error:
                self._end(error)

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream is not None and self._stream.isatty()

    def _end(self, error: OSError) -> None:
        self.error = error
        with contextlib.suppress(OSError):  # what waits in its buffer goes nowhere, rather than raise at the exit
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def leave_no_escapes() -> None:
    """Keep colorama, which numba wakes where it is installed, from writing an escape sequence when the process ends: in
    the middle of other ranks' lines, or behind a table in JSON."""
    if "colorama" in sys.modules:
        atexit.unregister(sys.modules["colorama"].initialise.reset_all)


@contextlib.contextmanager
def lasting_streams() -> Iterator[Stream]:
    """Put such streams in the place of standard output, which is given, and of standard error."""
    with contextlib.redirect_stdout(Stream(sys.stdout)) as out, contextlib.redirect_stderr(Stream(sys.stderr)):
        yield out
