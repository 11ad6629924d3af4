"""The command line: `mpimbs run | restart | acceleration | bench | check | predict`, alone or under mpiexec.

Exit codes: 0 done; 2 bad input, one message and no traceback; 75 a signal has ended a run that can go on from its
checkpoint; 1 anything else.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from mpi4py import MPI

from mpimbs.cli_options import coupling_options, forces_option, on_first_ranks, read, with_forces
from mpimbs.cli_study import bench, predict, study
from mpimbs.dynamics import Dynamics
from mpimbs.errors import InputError, InterruptionError, SimulationError
from mpimbs.model import GENERATORS, system_from_text
from mpimbs.parallel.agreement import abort_on_error, on_root, together
from mpimbs.parallel.launcher import refuse_singletons

if TYPE_CHECKING:
    from mpimbs.simulation.run import Result

TO_BE_CONTINUED = 75  # EX_TEMPFAIL of sysexits.h: try again
_GENERATED = ", ".join(":".join((name, *maker.arguments)) for name, maker in GENERATORS.items())


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog=f"MODEL is a TOML file or one of: {_GENERATED}.",
)
@click.version_option(package_name="mpimbs")
def cli() -> None:
    """Dynamics of articulated rigid-body systems on distributed memory."""


for _command in (bench, study, predict):
    cli.add_command(_command)


@cli.command()
@click.argument("model")
@click.option("--t-end", type=float, required=True, help="Simulated time, s.")
@click.option("-o", "--output", type=Path, required=True, help="HDF5 file to write.")
@click.option("--integrator", default="5dp", help="Explicit integrator of PETSc TS.")
@click.option("--rtol", type=float, default=1e-8, help="Relative tolerance of the adaptive step.")
@click.option("--atol", type=float, default=1e-8, help="Absolute tolerance of the adaptive step.")
@click.option("--dt", type=float, help="A fixed step, s, in place of the adaptive one.")
@click.option("--every", type=float, help="Time between samples, s.  [default: a 200th of --t-end]")
@click.option("--poses", is_flag=True, help="Write the poses of the bodies too.")
@click.option("--loads", is_flag=True, help="Write the loads through the joints too.")
@click.option("--pictures", is_flag=True, help="Draw PNG pictures beside the output file.")
@click.option("--force", is_flag=True, help="Replace an existing output file, and its checkpoints.")
@click.option("--checkpoint-every", type=float, help="Wall time between checkpoints, s.")
@click.option("--checkpoint-steps", type=int, help="Steps between checkpoints.")
@click.option("--checkpoint", type=Path, help="Where they go.  [default: OUT.checkpoint.h5 beside the output]")
@click.option("--checkpoint-keep", type=int, default=2, help="How many are kept.")
@forces_option
@click.pass_obj
@coupling_options
def run(
    comm: MPI.Comm,
    model: str,
    t_end: float,
    output: Path,
    pictures: bool,
    poses: bool,
    checkpoint_every: float | None,
    checkpoint_steps: int | None,
    checkpoint: Path | None,
    checkpoint_keep: int,
    **settings: Any,
) -> None:
    """Simulate MODEL and write its motion.

    SIGUSR1 writes a checkpoint; SIGTERM, SIGINT and SIGUSR2 write one and end the run with exit code 75.
    """
    from mpimbs.simulation.keeper import Checkpoints
    from mpimbs.simulation.run import simulate

    system = read(comm, model, settings.pop("forces"))
    checkpoints = Checkpoints(checkpoint_every, checkpoint_steps, checkpoint, checkpoint_keep)
    settings |= {"output": output, "poses": poses or pictures, "checkpoints": checkpoints}
    result = simulate(system, t_end, comm, progress=True, signals=True, **settings)
    _tell(comm, result, output, pictures)


@cli.command()
@click.argument("file", type=Path)
@click.option("--pictures", is_flag=True, help="Draw PNG pictures beside the output file; they need its --poses.")
@forces_option
@click.pass_obj
def restart(comm: MPI.Comm, file: Path, pictures: bool, forces: tuple[str, ...]) -> None:
    """Go on with a run from its checkpoint FILE, on any number of ranks, into the same output."""
    from mpimbs.simulation.restart import most_ranks, output_of, read_checkpoint
    from mpimbs.simulation.restart import restart as go_on

    kept = read_checkpoint(file, comm)
    if pictures and not kept.header["settings"]["poses"]:
        raise InputError(f"{file}: its run writes no poses, which pictures need: leave --pictures out")

    system = (
        together(comm, lambda: with_forces(system_from_text(kept.header["model"], file), forces)) if forces else None
    )

    def work(part: MPI.Comm) -> None:
        _tell(part, go_on(kept, part, system=system, progress=True, signals=True), output_of(kept), pictures)

    on_first_ranks(comm, most_ranks(kept) or comm.size, work)


def _tell(comm: MPI.Comm, result: Result, output: Path, pictures: bool) -> None:
    """Say how a run went, and draw it; on rank 0."""
    if comm.rank == 0:
        click.echo(f"{result.summary()}\nwrote {output}")
        if pictures:
            from mpimbs.study.pictures import draw_run

            for picture in draw_run(output):
                click.echo(f"drew {picture}")


@cli.command()
@click.argument("model")
@click.option(
    "--state", type=Path, help=".npz file with q, u and optionally tau.  [default: the model's initial state]"
)
@click.option("-o", "--output", type=Path, required=True, help=".npz file to write: udot, in the model's joint order.")
@click.option("--loads", is_flag=True, help="Write the loads through the joints too.")
@click.option("--force", is_flag=True, help="Replace an existing output file.")
@forces_option
@click.pass_obj
@coupling_options
def acceleration(
    comm: MPI.Comm, model: str, state: Path | None, output: Path, loads: bool, force: bool, **settings: Any
) -> None:
    """Evaluate forward dynamics of MODEL once."""
    from mpimbs.simulation.output import check_output, part_of
    from mpimbs.simulation.state import initial_state, read_state

    system = read(comm, model, settings.pop("forces"))
    whole = together(comm, lambda: read_state(state, system) if state else initial_state(system))
    dynamics = Dynamics(system, comm, **settings)
    on_root(comm, lambda: check_output(output, force))
    dynamics.compile()
    mine_u = dynamics.gather_u.part
    mine = whole.q[dynamics.gather_q.part], whole.u[mine_u], whole.tau[mine_u]
    parts, gathers = {"udot": dynamics.accelerations(*mine)}, {"udot": dynamics.gather_u}
    if loads:
        parts["loads"], gathers["loads"] = dynamics.joint_loads(*mine), dynamics.gather_bodies(6)
    if not comm.allreduce(all(bool(np.isfinite(part).all()) for part in parts.values()), MPI.LAND):
        raise SimulationError("the accelerations are not finite: the state is beyond the range of numbers")
    results: dict[str, Any] = {name: gathers[name](part) for name, part in parts.items()}
    if comm.rank == 0:
        unfinished = part_of(output)
        with unfinished.open("wb") as file:
            np.savez(file, **{name: r.reshape(-1, *parts[name].shape[1:]) for name, r in results.items()})
        unfinished.replace(output)
        click.echo(f"wrote {output}")
    dynamics.close()


@cli.command()
@click.argument("model")
@click.option(
    "--accuracy", is_flag=True, help="Measure what the couplings lose to rounding, in three poses, on rank 0."
)
@click.pass_obj
def check(comm: MPI.Comm, model: str, accuracy: bool) -> None:
    """Validate MODEL, say what it is, and warn of couplings that are unfit for it."""
    from mpimbs.study.accuracy import fitness, notes

    system = read(comm, model)
    together(comm, system.validate)
    measured = on_root(comm, lambda: fitness(system)) if accuracy else None
    if comm.rank == 0:
        found = system.summary()
        kinds = ", ".join(f"{count} {name}" for name, count in found.joint_types.items())
        click.echo(
            f"{found.name}: {found.topology} of {found.bodies} bodies, {found.degrees_of_freedom} degrees of freedom"
        )
        click.echo(f"joints: {kinds}; longest branch: {found.depth} bodies; mass: {found.total_mass:.6g} kg")
        for warning in (*found.warnings, *notes(system)):
            click.echo(f"note: {warning}")
        for row in measured or ():
            verdict = "" if row.fit else "  UNFIT: choose --coupling dcae"
            click.echo(f"{row.coupling:13s} {row.shape:9s} differs from the serial sweep by {row.error:.1e}{verdict}")


def main(arguments: Sequence[str] | None = None, comm: MPI.Comm | None = None) -> None:
    """Run the command line on all ranks of a communicator, and exit.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the process by default.
    comm : MPI.Comm, optional
        All ranks that were started, by default.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    with abort_on_error(comm):
        code, message = _run(comm, list(sys.argv[1:] if arguments is None else arguments))
        if comm.rank == 0 and message:
            print(message, file=sys.stderr, flush=True)
        sys.stdout.flush()
        comm.Barrier()  # the launcher ends the job at the first exit code: the message must be out by then
    sys.exit(code)


def _run(comm: MPI.Comm, arguments: list[str]) -> tuple[int, str]:
    """Exit code and message."""
    try:
        refuse_singletons(MPI.COMM_WORLD)
        printed = contextlib.nullcontext() if comm.rank == 0 else contextlib.redirect_stdout(io.StringIO())
        with printed:  # only rank 0 shows help and version
            cli.main(arguments, prog_name="mpimbs", standalone_mode=False, obj=comm)
    except InputError as error:
        return 2, f"mpimbs: {error}"
    except click.exceptions.NoArgsIsHelpError as error:
        return 0, error.format_message()
    except click.ClickException as error:
        return 2, f"mpimbs: {error.format_message().rstrip('.')}; see mpimbs --help"
    except InterruptionError as error:
        return TO_BE_CONTINUED, f"mpimbs: {error}"
    except SimulationError as error:
        return 1, f"mpimbs: {error}"
    return 0, ""


if __name__ == "__main__":
    main()
