"""What commands have in common: options of the couplings and of forces, the ranks that work, the model."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpimbs.base.errors import InputError
from mpimbs.base.places import replacing
from mpimbs.base.settings import Field, Settings, remedy_for
from mpimbs.cli.words import KEYS, help_of, said_on_root, said_together
from mpimbs.coupling import COUPLINGS
from mpimbs.coupling.settings import EvaluationSettings

if TYPE_CHECKING:
    from mpi4py import MPI

    from mpimbs.base.arrays import Floats
    from mpimbs.dynamics import Dynamics
    from mpimbs.model.contents import Contents

CHOICES = (*COUPLINGS, "auto")


def setting_options(
    kind: type[Settings], *, leave: Collection[str] = (), must: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add an option for each setting of a class: its name, type, default and words are as declared.

    Parameters
    ----------
    leave : collection of str
        Names of settings that get none.
    must : collection of str
        Names of settings that have to be given, whatever their default.
    """
    fields = [field for field in kind.fields() if field.name not in leave]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        for field in reversed(fields):
            command = _option(field, field.name in must)(command)
        return command

    return decorated


def _option(field: Field, must: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make the option of a setting. None stands for what isn't given: the setting has its default then."""
    name = f"--{field.option.replace('_', '-')}"
    if field.kind is bool:
        return click.option(name, is_flag=True, help=help_of(field))
    required = must or field.default is dataclasses.MISSING
    return click.option(name, type=field.kind, required=required, help=help_of(field))


def given_settings(kind: type[Settings], options: dict[str, Any], leave: Collection[str] = ()) -> dict[str, Any]:
    """Take the settings of a class that were given out of a command's options."""
    given: dict[str, Any] = {}
    for field in kind.fields():
        if field.name in leave:
            continue
        if isinstance(field.kind, type) and issubclass(field.kind, Settings):
            inner = given_settings(field.kind, options)
            value = field.kind(**inner) if inner else None
        else:
            value = options.pop(field.option)
        if value is not None and value is not False:
            given[field.name] = value
    return given


FORMER = {  # keys of --coupling that were options of other names
    "rtol": "load-rtol",
    "most": "load-most",
    **{name: f"augmented-{name}" for name in ("iterations", "tolerance", "accepted")},
}


def coupling_of(text: str) -> dict[str, Any]:
    """Read how subchains are joined, NAME,KEY=VALUE,...: the settings given, by name. The name may be left out.

    Raises
    ------
    InputError
        There is no such key, or its value is of another kind.
    """
    found: dict[str, Any] = {}
    for k, item in enumerate(text.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        field = KEYS.get(key.replace("-", "_"))
        if not equals and (field is None or field.kind is not bool):
            if k > 0:
                raise InputError(f"--coupling {text}: '{item}' is no KEY=VALUE; give the name of a coupling first")
            if not key:
                raise InputError(f"--coupling {text}: the name of a coupling is missing; give one, or leave it out")
            found["coupling"] = key
        elif field is None:
            raise InputError(f"--coupling {text}: there is no key '{key}'; {remedy_for(key, KEYS).replace('`', '')}")
        elif field.name in found:
            raise InputError(f"--coupling {text}: {key} is given twice; leave one of them out")
        elif field.kind is bool:
            if equals:
                raise InputError(f"--coupling {text}: {key} takes no value; give its name alone, or leave it out")
            found[field.name] = True
        else:
            try:
                found[field.name] = field.kind(value)
            except ValueError:
                number = "a whole number" if field.kind is int else "a number"
                raise InputError(f"--coupling {text}: {key} must be {number}, got '{value}'") from None
    return given_settings(EvaluationSettings, dict.fromkeys(("coupling", *KEYS)) | found)


def coupling_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option of how `Dynamics` evaluates; what it leaves without a subchain of its own waits meanwhile.

    The command is given `settings`, those of `EvaluationSettings` that were given by name.
    """

    @functools.wraps(command)
    def coupled(comm: MPI.Comm, coupling: dict[str, Any], **options: Any) -> None:
        settings = coupling
        count = settings["cuts"] + 1 if "cuts" in settings else comm.size

        def work(part: MPI.Comm) -> None:
            name = settings.get("coupling", EvaluationSettings.coupling)
            if name not in CHOICES:
                raise InputError(f"unknown coupling '{name}'; choose one of: {', '.join(CHOICES)}")
            if name == "auto" and "model" not in options:
                raise InputError("--coupling auto: chooses for a run: name the coupling")
            chosen = {"coupling": _chosen(part, settings, options)} if name == "auto" else {}
            command(part, settings=settings | chosen, **options)

        on_first_ranks(comm, count, work)

    optioned: Callable[..., None] = coupled
    for name, field in KEYS.items():
        former, flag = FORMER.get(name, name.replace("_", "-")), field.kind is bool
        instead = f"--coupling {name}{'' if flag else '=...'} does it, alone or behind the name of one"
        optioned = gone(f"--{former}", instead, flag)(optioned)
    return click.option(
        "--coupling",
        metavar="NAME,KEY=VALUE,...",
        callback=lambda context, parameter, text: {} if text is None else coupling_of(text),
        help=f"{EvaluationSettings.fields()[0].setting.text}, or auto, the fastest of them; then how, by the keys "
        f"below.  [default: {EvaluationSettings.coupling}]",
    )(optioned)


def _finite(context: click.Context, parameter: click.Parameter, value: float) -> float:
    if not math.isfinite(value):
        raise InputError(f"--{parameter.name} must be a finite number, got {value:g}")
    return value


def on_first_ranks(comm: MPI.Comm, count: int, work: Callable[[MPI.Comm], None]) -> None:
    """Work on as many ranks as there are subchains; an error of those who work is an error of all."""

    from mpimbs.parallel.agreement import first_ranks

    def action() -> None:
        with first_ranks(comm, count) as part:
            if part is None:
                return
            work(part)
            if part.size < comm.size and part.rank == 0:
                idle = f"{comm.size - part.size} of {comm.size} ranks had nothing to do"
                click.echo(f"{part.size} subchains (cuts={count - 1}): {idle}", err=True)

    said_together(comm, action)


def _chosen(comm: MPI.Comm, settings: dict[str, Any], options: dict[str, Any]) -> str:
    """Name of the coupling that is the best for a model on these ranks; rank 0 says why."""
    from mpimbs.bench.verdict import choose_coupling

    if "solver" in settings:
        raise InputError("options of pcg's solver choose nothing: leave them out, or choose --coupling pcg")
    others = {name: value for name, value in settings.items() if name != "coupling"}
    found = choose_coupling(read_model(comm, options["model"], options["forces"]), comm, **others)
    if comm.rank == 0:
        click.echo(f"--coupling auto: {found.coupling}: {found.why}", err=True)
    return found.coupling


_KNOWN = "png jpg jpeg gif svg pdf mp4 csv tsv txt json xlsx mat npy npz h5 hdf5"
ARRAYS = ".npz"
SAMPLES = ".h5"
_OTHERS = frozenset(f".{name}" for name in _KNOWN.split())
_SAME = {ARRAYS: {ARRAYS}, SAMPLES: {SAMPLES, ".hdf5"}}


def output_option(suffix: str, text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make the option `-o`: the file that a command writes; names that promise another format are refused."""

    def checked(context: click.Context, parameter: click.Parameter, path: Path) -> Path:
        if path.suffix.lower() in _OTHERS - _SAME[suffix]:
            raise InputError(
                f"-o {path}: what is written is no {path.suffix} file; give a name that ends with {suffix}"
            )
        return path

    return click.option("-o", "--output", type=Path, required=True, help=text, callback=checked)


time_option = click.option("--time", type=float, default=0.0, callback=_finite, help="Time, s, for functions of time.")
forces_option = click.option(
    "--forces", multiple=True, help="module:function that adds forces to the System; may be repeated."
)


def read_model(
    comm: MPI.Comm, model: str, forces: tuple[str, ...] = (), *, need: str | None = "EVALUATION"
) -> Contents:
    """Read a model on all ranks, have modules of the user's add their forces, and see whether memory suffices.

    `need` names one of `dynamics.resources`.
    """
    from mpimbs.dynamics import resources
    from mpimbs.model import contents_from
    from mpimbs.parallel.agreement import read_once

    here = resources.ranks_on_node(comm)

    found = read_once(comm, model)

    def action() -> Contents:
        system = with_forces(contents_from(found), forces)
        if need is not None:
            resources.check_memory(system, getattr(resources, need), comm.size, here)
        return system

    system = said_together(comm, action)
    tell_left_out(comm, system)
    return system


def tell_left_out(comm: MPI.Comm, system: Contents) -> None:
    """Say on rank 0 what was not taken over from a robot's file."""
    if comm.rank == 0:
        for line in system.left_out:
            click.echo(line, err=True)


def note_lanes(comm: MPI.Comm, system: Contents, given: dict[str, Any], copies: int | None = None) -> None:
    """Say on rank 0 where lanes that were asked for can't be; `copies` of a batch."""
    lanes, cuts = given.get("lanes"), given.get("cuts")
    if lanes in (None, 1) or comm.rank > 0:
        return
    from mpimbs.partition.chain import width_of
    from mpimbs.partition.division import divide

    with contextlib.suppress(InputError):  # which `Dynamics` raises on all ranks
        width_of(lanes)
        if copies is None:
            width = divide(system, comm.size, cuts, given.get("tip_ratio"), lanes).width
            why = "a rank's share has too few bodies for that many pieces alike"
        else:
            width, why = (lanes if copies >= lanes * comm.size else 1), "a rank has fewer copies"
        if width < lanes:
            click.echo(f"note: lanes={lanes} has no effect: {why}", err=True)


def with_forces(system: Contents, forces: tuple[str, ...]) -> Contents:
    """Have functions, named as module:function, add their forces to a system; gives it back."""
    from mpimbs.forces.modules import add_forces

    for given in forces:
        add_forces(system, given)
    return system


def whole_numbers(text: str, option: str) -> list[int]:
    """Read whole numbers with commas between them."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} '{text}': give whole numbers with commas between them, such as 1,16,256") from None


def write_state(dynamics: Dynamics, output: Path, q: Floats, u: Floats) -> None:
    """Write a state, of which this rank has its part, and the names of its bodies to an .npz file; all ranks call."""
    from mpimbs.run.state import IN_ORDER, names_of

    comm, arrays = dynamics.comm, {"q": dynamics.gather_q(q), "u": dynamics.gather_u(u)}
    names = names_of(dynamics.system) if comm.rank == 0 else None
    write_arrays(comm, output, arrays | {IN_ORDER: names}, {})


def write_arrays(comm: MPI.Comm, output: Path, arrays: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
    """Write arrays that rank 0 has to an .npz file; `shapes` are those of the items of what is not one of numbers."""

    def write() -> None:
        import numpy as np

        with replacing(output) as place, place.open("wb") as file:
            np.savez(file, **{name: values.reshape(-1, *shapes.get(name, ())) for name, values in arrays.items()})
        click.echo(f"wrote {output}")

    said_on_root(comm, write)


def gone(option: str, instead: str, is_flag: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Have an option that there is not, or no more, say what does instead."""

    def refuse(context: click.Context, parameter: click.Parameter, value: object) -> None:
        if value:
            raise InputError(f"there is no {option}: {instead}")

    return click.option(option, is_flag=is_flag, hidden=True, expose_value=False, callback=refuse)
