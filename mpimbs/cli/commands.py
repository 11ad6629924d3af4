"""The command line: `mpimbs run | restart | acceleration | inverse | inertia | assemble | settle | bench | ...`.

Alone or under mpiexec.

Exit codes: 0 done; 2 bad input, one message and no traceback; 75 a signal has ended a run that can go on from its
checkpoint; 1 anything else.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpimbs.base.errors import InputError, InterruptionError, SimulationError, by_all_ranks
from mpimbs.base.places import check_folder, check_new, check_place, current_folder
from mpimbs.base.sizes import VARIABLE
from mpimbs.cli.ensemble import simulate_table
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
from mpimbs.cli.streams import lasting_streams, leave_no_escapes
from mpimbs.cli.words import Command, said_on_root, said_together
from mpimbs.coupling import COUPLINGS
from mpimbs.coupling.settings import EvaluationSettings
from mpimbs.parallel.launcher import launch_of, refuse_singletons
from mpimbs.stepping.settings import OF_ENSEMBLES, Checkpoints, SimulationSettings

if TYPE_CHECKING:
    from mpi4py import MPI

    from mpimbs.model import System
    from mpimbs.run.result import EnsembleResult, Result

COUPLED = tuple(field.name for field in EvaluationSettings.fields())  # whose options `coupling_options` adds
TO_BE_CONTINUED = 75  # EX_TEMPFAIL of sysexits.h: try again
TELLING = 1e8  # bytes, beyond which `check` speaks of memory
MOST_SPRINGS = 10  # that `check` tells of one by one
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
    "Models": {"check": "", "convert": "models", "new": "models"},
    "Speed": {"compile": "ahead", "bench": "study", "study": "study", "predict": "study"},
}
GONE = {
    "ensemble": "`mpimbs run MODEL --parameters TABLE` does it, with the same options",
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
def cli() -> None:
    """Dynamics of articulated rigid-body systems on distributed memory."""


@cli.command()
@click.argument("model")
@output_option(SAMPLES, "HDF5 file to write.")
@click.option("--state", type=Path, help=".npz file with q and u to begin with.  [default: the model's initial state]")
@click.option(
    "--parameters",
    type=Path,
    help="Table (.csv, .npz) of copies to simulate and of what they have of their own: a row for each, columns as in "
    "'link1.mass', 'hip.stiffness', 'q:hip', 'gravity[1]'; 'name' is what they are called.",
)
@setting_options(SimulationSettings, leave=COUPLED, must=("t_end",))
@click.option("--pictures", is_flag=True, help="Draw PNG pictures beside the output file.")
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
    forces: tuple[str, ...],
    settings: dict[str, Any],
    **options: Any,
) -> None:
    """Simulate MODEL and write its motion.

    SIGUSR1 writes a checkpoint; SIGTERM, SIGINT and SIGUSR2 write one and end the run with exit code 75.

    Copies go side by side; with loops, given motions or an implicit integrator one after the other on each rank. A copy
    that fails does not end the others. Signals are answered at samples.
    """
    checkpoints = Checkpoints(**given_settings(Checkpoints, options))
    given = settings | given_settings(SimulationSettings, options, COUPLED)
    if parameters is not None:
        asked_too = {"state": state, "pictures": pictures} | {n: v for n, v in given.items() if n not in OF_ENSEMBLES}
        if other := next((name for name, value in asked_too.items() if value), None):
            raise InputError(f"`{other}` is for a run of one system: leave it out, or `parameters`")
        simulate_table(comm, model, parameters, output, forces, checkpoints, given)
        return
    from mpimbs.run.run import simulate
    from mpimbs.run.state import MOVING, read_state

    asked = said_together(comm, lambda: SimulationSettings.asked(given))
    system = read_model(comm, model, forces)
    note_lanes(comm, system, settings)
    if pictures := pictures and _check_pictures(comm, output, asked.force):
        asked = replace(asked, poses=True)
    begin = said_together(comm, lambda: read_state(state, system, MOVING) if state else None)
    result = simulate(
        system,
        comm=comm,
        output=output,
        progress=True,
        checkpoints=checkpoints,
        signals=True,
        state=begin,
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


@cli.command()
@click.argument("model")
@click.option(
    "--accuracy",
    is_flag=True,
    help="Measure what accelerations leave of the equations of motion, and, without loops, what the couplings lose.",
)
@click.option("--ranks", type=click.IntRange(min=1), help="Say which bodies each of so many ranks would own.")
@click.option("--pictures", type=Path, help="Folder for a picture of that, partition.png.")
@click.option("--force", is_flag=True, help="Replace an existing picture.")
@click.option("--coordinates", is_flag=True, help="Say of each body which of q and u are its joint's.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object of what the model is, and nothing else.")
@click.pass_obj
def check(
    comm: MPI.Comm,
    model: str,
    accuracy: bool,
    ranks: int | None,
    pictures: Path | None,
    force: bool,
    coordinates: bool,
    as_json: bool,
) -> None:
    """Validate MODEL, say what it is, and warn of couplings that are unfit for it."""
    from mpimbs.bench.accuracy import fitness
    from mpimbs.coupling import unavailable
    from mpimbs.dynamics.resources import ranks_on_node

    system = read_model(comm, model, need=None)
    said_together(comm, system.validate)
    if as_json:
        if accuracy or coordinates or ranks is not None or pictures is not None:
            more = "--accuracy, --coordinates, --ranks and --pictures"
            raise InputError(f"--json: gives what the model is; leave {more} out")
        if comm.rank == 0:
            click.echo(json.dumps(_facts(system)))
        return
    here = ranks_on_node(comm)
    owned = said_on_root(comm, lambda: _owned(system, ranks, pictures, force))
    measured = said_on_root(comm, lambda: fitness(system)) if accuracy and not system.loops else None
    residual = _residual(system, comm) if accuracy else ""
    if comm.rank == 0:
        for line in (*_description(system, comm.size, here), *(owned or ())):
            click.echo(line)
        for row in measured or ():
            better = "--coupling dcae" if row.coupling != "dcae" else "--lanes 1, which is the serial sweep"
            verdict = "" if row.fit else f"  UNFIT: choose {better}"
            click.echo(f"{row.coupling:13s} {row.shape:9s} differs from the serial sweep by {row.error:.1e}{verdict}")
        for name in () if measured is None else COUPLINGS:
            if reason := unavailable(name):
                click.echo(f"{name:13s} left out: {reason}")
        if residual:
            click.echo(residual)
        for line in _coordinates(system) if coordinates else ():
            click.echo(line)


def _residual(system: System, comm: MPI.Comm) -> str:
    """Say what accelerations leave of the equations of motion in the initial state, closed; all ranks call."""
    from mpimbs.dynamics import Dynamics
    from mpimbs.dynamics.compiling import compile_evaluations
    from mpimbs.stepping.projection import closed

    with contextlib.closing(Dynamics(system, comm)) as dynamics:
        compile_evaluations(dynamics, checked=True)
        q, u = dynamics.followed(0.0, dynamics.subchain.q, dynamics.subchain.u)
        found = dynamics.residual(*(closed(dynamics, q, u) if dynamics.loops is not None else (q, u)))
        wrong = found.judged(dynamics.coupling)
        return f"note: {wrong}" if wrong else found.told()


def _coordinates(system: System) -> Iterator[str]:
    """Name the body of each coordinate and speed, in the order of vectors, with the units."""
    from mpimbs.model import JOINT_TYPES

    q, u = (offsets.tolist() for offsets in system.offsets())
    joints = {at: name for name, _, at in system.coordinates}
    for k, kind in enumerate(system.joint_types().tolist()):
        joint = JOINT_TYPES[kind]
        parts = (("q", q, joint.q_units), ("u", u, joint.u_units))
        places = (
            f"{name}[{at[k]}{f':{at[k + 1]}' if len(units) > 1 else ''}] ({', '.join(units)})"
            for name, at, units in parts
            if units
        )
        named = ", ".join(joints[at] for at in range(u[k], u[k + 1]) if at in joints)
        title = f"body '{system.name_of(k)}', {joint.name}{f' ({named})' if named else ''}"
        yield f"{title}: {', '.join(places) or 'no coordinates'}"


def _facts(system: System) -> dict[str, Any]:
    """What a model is, as plain numbers and texts."""
    from mpimbs.closure.report import loop_report
    from mpimbs.forces.motions import initial_motion

    return asdict(system.summary()) | (
        {"closure": loop_report(system, initial_motion(system)).numbers()} if system.loops else {}
    )


def _owned(system: System, ranks: int | None, pictures: Path | None, force: bool) -> list[str]:
    """Say which bodies each of so many ranks would own, and draw it in a folder; nothing where neither is asked for."""
    if ranks is None:
        if pictures is not None:
            raise InputError("--pictures: what is drawn is which rank owns what; say of how many with --ranks")
        return []
    from mpimbs.partition.shares import shares, table_of_shares

    found = shares(system, ranks)
    if pictures is None:
        return table_of_shares(system, *found)
    from mpimbs.plots.axes import save
    from mpimbs.plots.partition_pictures import PARTITION_FILE, draw_partition

    check_folder(pictures, [PARTITION_FILE], force, "pictures")
    drawn = save(draw_partition(system, *found), pictures / PARTITION_FILE)
    return [*table_of_shares(system, *found), f"drew {drawn}"]


def _description(system: System, ranks: int, here: int) -> Iterator[str]:
    """What a model is, what it leaves to defaults, what it takes of memory, and what is rarely meant."""
    from mpimbs.bench.accuracy import notes
    from mpimbs.bench.motionless import motionless
    from mpimbs.dynamics.resources import EVALUATION, SIMULATION, free_memory, gigabytes
    from mpimbs.model.summary import comma_list, nothing_acts

    found = system.summary()
    kinds = ", ".join(f"{count} {name}" for name, count in found.joint_types.items())
    opened = " with its loops opened" if found.loops else ""
    freedoms = f"{found.degrees_of_freedom} degrees of freedom{opened}"
    yield f"{found.name}: {found.topology} of {found.bodies} bodies, {freedoms}"
    yield f"joints: {kinds}; longest branch: {found.depth} bodies; mass: {found.total_mass:.6g} kg"
    yield f"gravity: {' '.join(f'{g:g}' for g in found.gravity)} m/s^2"
    yield from _springs(system)
    yield from _loops(system)
    yield from (f"event: {event.told}" for event in system.events)
    if found.default_axes:
        yield f"axis left out, so z of the joint frame: {comma_list(found.default_axes)}"
    evaluation, simulation, left = EVALUATION.of(system, ranks), SIMULATION.of(system, ranks), free_memory()
    if simulation * here > min(left, TELLING):
        each = f"on each of {ranks} ranks" if ranks > 1 else "on 1 rank"
        yield (
            f"memory: about {gigabytes(evaluation)} for an evaluation, {gigabytes(simulation)} to simulate, {each}; "
            f"this machine has {gigabytes(left)} left"
        )
        if simulation * here > left:
            yield f"note: too large to {'evaluate' if evaluation * here > left else 'simulate'} here on {ranks} rank(s)"
    never = [] if nothing_acts(system) else motionless(system)
    if never:
        yield (
            f"note: these joints never move, whatever the others do: {comma_list(never)}; if that isn't meant, look at "
            "gravity, axis, q and u"
        )
    for warning in (*found.warnings, *notes(system)):
        yield f"note: {warning}"


def _loops(system: System) -> Iterator[str]:
    """The loops of a system, as they begin."""
    if system.loops:
        from mpimbs.closure.report import loop_report, told_loops
        from mpimbs.forces.motions import initial_motion

        yield from told_loops(loop_report(system, initial_motion(system)))


def _springs(system: System) -> Iterator[str]:
    """The springs between bodies of a system, as they begin."""
    from mpimbs.forces.springs import initial_springs
    from mpimbs.model.summary import comma_list

    found = initial_springs(system) if system.springs else []
    for spring, length, tension in found[:MOST_SPRINGS]:
        between = " to ".join(map(repr, spring.bodies))
        yield f"spring {spring.name!r}: {between}, length {length:.6g} m, tension {tension:.6g} N"
    more = found[MOST_SPRINGS:]
    if more:
        (shortest, longest), (least, most) = ((min(v), max(v)) for v in list(zip(*more, strict=True))[1:])
        yield f"{len(more)} more springs: length {shortest:.6g} to {longest:.6g} m, tension {least:.6g} to {most:.6g} N"
    at_one = [repr(spring.name) for spring, length, _ in found if length == 0 and spring.has_force_at_zero]
    if at_one:
        yield (
            f"note: the points of spring {comma_list(at_one)} coincide, where it has no direction and no force; begin "
            "with them apart, or give rest = 0"
        )


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
    with lasting_streams() as out, _Job(comm, f"mpimbs {words[0]}" if words else "mpimbs") as job:
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
