"""The command line: `mpimbs run | restart | acceleration | inverse | inertia | assemble | settle | bench | ...`.

Alone or under mpiexec.

Exit codes: 0 done; 2 bad input, one message and no traceback; 75 a signal has ended a run that can go on from its
checkpoint; 1 anything else.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpimbs.base.errors import InputError, InterruptionError, SimulationError, by_all_ranks
from mpimbs.base.garbage import many_objects
from mpimbs.base.places import check_new, check_place, current_folder
from mpimbs.base.sizes import VARIABLE
from mpimbs.cli.compile_only import compile_run, compile_usual
from mpimbs.cli.options import (
    SAMPLES,
    coupling_options,
    forces_option,
    given_settings,
    note_lanes,
    on_first_ranks,
    output_option,
    read_model,
    setting_options,
)
from mpimbs.cli.words import Command, lasting_streams, leave_no_escapes, said_on_root, said_together
from mpimbs.coupling.settings import EvaluationSettings
from mpimbs.parallel.launcher import launch_of, refuse_singletons, soon_begun
from mpimbs.stepping.settings import OF_ENSEMBLES, Checkpoints, SimulationSettings

if TYPE_CHECKING:
    from mpi4py import MPI

    from mpimbs.run.result import EnsembleResult, Result


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
    from mpimbs.dynamics.members import members_of_table
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


COUPLED = tuple(field.name for field in EvaluationSettings.fields())  # whose options `coupling_options` adds
TO_BE_CONTINUED = 75  # EX_TEMPFAIL of sysexits.h: try again
# The standard systems of `mpimbs.model.examples.library`, which help names without importing it.
GENERATED = (
    "chain:N, chain16, spatial_chain:N, free_chain:N, rope:N, caterpillar:N, figure, figure34, figure48, crowd:N, "
    "tree:DEPTH:BRANCHING, random_tree:N[:SEED], four_bar:N, four_bar_chain:N, five_bar, coupled_loops, parallelogram, "
    "andrews, boom:N, ring:N, track:N"
)
# The commands as help shows them, each with where it is, if that is not here.
SECTIONS: dict[str, dict[str, str]] = {
    "Simulate": {"run": "", "restart": ""},
    "Look at a run": {"view": "outputs", "plot": "outputs", "export": "outputs"},
    "Ask a model": {
        "acceleration": "evaluation",
        "inverse": "evaluation",
        "inertia": "evaluation",
        "settle": "evaluation",
        "assemble": "evaluation",
        "modes": "evaluation",
    },
    "Models": {"check": "check", "convert": "models", "new": "models"},
    "Speed": {"bench": "study", "study": "study", "predict": "study"},
}
GONE = {
    "ensemble": "`mpimbs run MODEL --parameters TABLE` does it, with the same options",
    "compile": "`mpimbs --compile` does it for what most systems need, `mpimbs run MODEL ... --compile` for a run",
    "tune": f"sizes stand in the environment, {VARIABLE}=most_lane=64,pivot_bytes=8388608; compare by `mpimbs bench`",
    "schedule": "`mpimbs predict MODEL --ranks P --find-schedule -o FOLDER` looks for one",
    "schema": "`mpimbs new --schema -o FILE.json` writes it",
}


class _Group(click.Group):
    """The commands: each is imported when it is asked for, and help shows them by section."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, as help shows them."""
        return [name for names in SECTIONS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, if there is one of that name."""
        place = next((names[cmd_name] for names in SECTIONS.values() if names.get(cmd_name)), "")
        if place and cmd_name not in self.commands:
            module = import_module(f"mpimbs.cli.{place}")
            self.add_command(getattr(module, f"{cmd_name}_command", None) or getattr(module, cmd_name))
        if cmd_name in GONE:
            raise InputError(f"{cmd_name} is no more: {GONE[cmd_name]}")
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all sections, their descriptions below each other."""
        width = max(map(len, self.list_commands(ctx)))
        for title, names in SECTIONS.items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                room = formatter.width - width - 6
                formatter.write_dl(
                    [
                        (name.ljust(width), command.get_short_help_str(room))
                        for name, command in found
                        if command is not None and not command.hidden
                    ]
                )


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog=f"MODEL is a TOML, URDF or MJCF file, or one of: {GENERATED}.",
)
@click.version_option(package_name="mpimbs")
@click.option(
    "--compile",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=compile_usual,
    help="Compile what most systems need, into MPIMBS_CACHE_DIR or the user's cache, and exit.",
)
def cli() -> None:
    """Dynamics of articulated rigid-body systems on distributed memory."""


@cli.command()
@click.argument("model")
@output_option(SAMPLES, "HDF5 file to write.")
@click.option(
    "--state",
    type=Path,
    help=".npz file with q and u to begin with, or the output of a run: its last sample.  [default: the model's "
    "initial state]",
)
@click.option(
    "--parameters",
    type=Path,
    help="Table (.csv, .npz) of copies to simulate and of what they have of their own: a row for each, columns as in "
    "'link1.mass', 'hip.stiffness', 'q:hip', 'gravity[1]'; 'name' is what they are called.",
)
@setting_options(SimulationSettings, leave=COUPLED, must=("t_end",))
@click.option("--pictures", is_flag=True, help="Draw PNG pictures beside the output file.")
@click.option("--compile", "compiled", is_flag=True, help="Compile what this run calls, and end: nothing is simulated.")
@setting_options(Checkpoints)
@forces_option
@click.pass_obj
@coupling_options
def run(
    comm: MPI.Comm,
    model: str,
    state: Path | None,
    parameters: Path | None,
    output: Path,
    pictures: bool,
    compiled: bool,
    forces: tuple[str, ...],
    settings: dict[str, Any],
    **options: Any,
) -> None:
    """Simulate MODEL and write its motion.

    SIGUSR1 writes a checkpoint; SIGTERM, SIGINT and SIGUSR2 write one and end the run with exit code 75.

    Copies go side by side; with loops, given motions, events or implicit steps one after the other on each rank. A copy
    that fails does not end the others. Signals are answered at samples.
    """
    checkpoints = Checkpoints(**given_settings(Checkpoints, options))
    given = settings | given_settings(SimulationSettings, options, COUPLED)
    if parameters is not None:
        asked_too = {"state": state, "pictures": pictures, "compiled": compiled} | {
            n: v for n, v in given.items() if n not in OF_ENSEMBLES
        }
        if other := next((name for name, value in asked_too.items() if value), None):
            raise InputError(f"`{other}` is for a run of one system: leave it out, or `parameters`")
        simulate_table(comm, model, parameters, output, forces, checkpoints, given)
        return
    from mpimbs.run.run import simulate

    asked = said_together(comm, lambda: SimulationSettings.asked(given))
    system = read_model(comm, model, forces)
    note_lanes(comm, system, settings)
    if compiled:
        compile_run(comm, system, asked)
        return
    if pictures := pictures and _check_pictures(comm, output, asked.force):
        asked = replace(asked, poses=True)
    result = simulate(
        system,
        comm=comm,
        output=output,
        progress=True,
        checkpoints=checkpoints,
        signals=True,
        state=state,
        settings=asked,
    )
    _tell(comm, result, output, pictures)


@cli.command("restart")
@click.argument("file", type=Path)
@click.option("--pictures", is_flag=True, help="Draw PNG pictures beside the output file.")
@click.option("--force", is_flag=True, help="Replace existing pictures.")
@forces_option
@click.pass_obj
def restart_command(comm: MPI.Comm, file: Path, pictures: bool, force: bool, forces: tuple[str, ...]) -> None:
    """Go on with the run whose output, or checkpoint, is FILE, on any number of ranks."""
    from mpimbs.run.ensembles.course import ENSEMBLE
    from mpimbs.run.restart import finished, most_ranks, read_checkpoint, restart

    kept = read_checkpoint(file, comm)
    if pictures and kept.header.get("kind") == ENSEMBLE:
        raise InputError("--pictures: are of a run, and this is an ensemble: leave them out, and use mpimbs plot")
    pictures = pictures and _check_pictures(comm, kept.output, force or kept.header["settings"]["force"])
    if (result := finished(kept, comm)) is not None:
        if comm.rank == 0:
            click.echo(f"{kept.output}: is complete: nothing is left to do")
        _tell(comm, result, kept.output, pictures, written=False)
        return

    def work(part: MPI.Comm) -> None:
        _tell(part, restart(kept, part, forces=forces, progress=True, signals=True), kept.output, pictures)

    on_first_ranks(comm, most_ranks(kept) or comm.size, work)


def _check_pictures(comm: MPI.Comm, output: Path, force: bool) -> bool:
    """Refuse pictures whose places are taken, before the run; say whether they can be drawn."""

    def check() -> bool:
        try:
            from mpimbs.plots.pictures import pictures_of
        except Exception as error:  # an installation that is broken, a file of settings that matplotlib can't read
            _tell_no_pictures(error)
            return False
        check_place(output)
        for picture in pictures_of(output).values():
            check_new(picture, force)
        return True

    return bool(comm.bcast(said_on_root(comm, check)))


def _tell_no_pictures(error: Exception) -> None:
    said = (str(error).splitlines() or [type(error).__name__])[0][:200]
    click.echo(f"mpimbs: note: no pictures are drawn ({said}); mpimbs plot draws them from the output", err=True)


def _tell(comm: MPI.Comm, result: Result | EnsembleResult, output: Path, pictures: bool, written: bool = True) -> None:
    """Say how a run went, and draw it; on rank 0."""
    if comm.rank == 0:
        if written:
            click.echo(f"{result.summary()}\nwrote {output}")
        if pictures:
            from mpimbs.plots.pictures import draw_run

            try:
                for picture in draw_run(output):
                    click.echo(f"drew {picture}")
            except Exception as error:  # the run is there, whatever becomes of its pictures
                _tell_no_pictures(error)


def main(arguments: Sequence[str] | None = None, comm: MPI.Comm | None = None) -> None:
    """Run the command line on all ranks of a communicator, and exit.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the process by default.
    comm : MPI.Comm, optional
        All ranks that were started, by default.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if comm is None:
        atexit.register(gc.freeze)  # at its end Python would look at all objects for garbage, for a fifth of a second
    with many_objects(), lasting_streams() as out, _Job(comm, f"mpimbs {words[0]}" if words else "mpimbs") as job:
        code, message = _run(job, words)
        out.flush()
        if out.error is not None and not isinstance(out.error, BrokenPipeError):  # who closes a pipe has read enough
            unwritten = f"mpimbs: standard output can't be written ({out.error.strerror})"
            code, message = code or 1, message or unwritten
        if job.rank == 0 and message:
            print(message, file=sys.stderr, flush=True)
        leave_no_escapes()
        if job.comm is not None:
            job.comm.Barrier()  # the launcher ends the job at the first exit code: the message must be out by then
    sys.exit(code)


class _Job(contextlib.ExitStack):
    """The ranks that run a command line. MPI starts when a command does: help needs none.

    Attributes
    ----------
    comm : MPI.Comm or None
        Once they know of each other.
    rank : int
        This one's; until then what the launcher says. Only rank 0 shows anything.
    """

    def __init__(self, comm: MPI.Comm | None, command: str) -> None:
        super().__init__()
        self._command = command
        self.launch = launch_of(os.environ)
        self._given = self.comm = comm
        self.rank = comm.rank if comm is not None else self.launch.task if self.launch is not None else 0
        self._told = self.enter_context(contextlib.ExitStack())
        self._hush()

    def _hush(self) -> None:
        self._told.close()
        if self.rank > 0:
            self._told.enter_context(contextlib.redirect_stdout(io.StringIO()))

    def start(self, refused: str | None = None) -> MPI.Comm:
        """Start MPI, with all other ranks, and have any error end the whole job from here on.

        `refused`: why this rank won't do what its command line says; then so must the others.
        """
        with soon_begun():
            from mpi4py import MPI

        from mpimbs.parallel.agreement import abort_on_error, alike
        from mpimbs.run.progress import compilation_told

        os.environ["MPLBACKEND"] = "agg"  # pictures are files, whatever a notebook has left for those that it starts
        self.comm = MPI.COMM_WORLD if self._given is None else self._given
        self.rank = self.comm.rank
        self._hush()
        self.enter_context(abort_on_error(self.comm))
        refuse_singletons(MPI.COMM_WORLD)
        alike(self.comm, lambda: {"the command": self._command, "its options": refused and f"refused ({refused})"})
        said_together(self.comm, current_folder)
        self._told.enter_context(compilation_told(self.rank == 0))
        return self.comm


def _run(job: _Job, arguments: list[str]) -> tuple[int, str]:
    """Exit code and message."""
    try:
        try:
            cli.main(arguments, prog_name="mpimbs", standalone_mode=False, obj=job.start)
        except (InputError, click.ClickException) as error:
            if job.comm is None and job.launch is not None:
                job.start(str(error))  # so that one rank speaks, and all end after it
            raise
    except InputError as error:
        return 2, f"mpimbs: {error}"
    except click.exceptions.NoArgsIsHelpError as error:
        return 0, error.format_message()
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "mpimbs"
        return 2, f"mpimbs: {error.format_message().rstrip('.')}; see {command} --help"
    except InterruptionError as error:
        return TO_BE_CONTINUED, f"mpimbs: {error}"
    except SimulationError as error:
        return 1, f"mpimbs: {error}"
    except click.Abort as error:  # as click names a KeyboardInterrupt
        return 128 + signal.SIGINT, f"mpimbs: {error.__cause__ or 'interrupted'}"
    except SystemExit as error:
        if (told := by_all_ranks(error)) is None:
            raise
        return (error.code if isinstance(error.code, int) and error.code else 1), f"mpimbs: {told}"
    return 0, ""
