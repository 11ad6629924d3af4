"""The command line: `mpimbs run | acceleration | bench | check | predict`, alone or under mpiexec.

Exit codes: 0 done; 2 bad input, one message and no traceback; 1 anything else.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from mpi4py import MPI

from mpimbs.coupling import COUPLINGS, LoadSolver
from mpimbs.coupling.solver import ESTIMATES, PRECONDITIONERS
from mpimbs.dynamics import Dynamics
from mpimbs.errors import InputError, SimulationError
from mpimbs.model import GENERATORS, System, system_from
from mpimbs.model.force_modules import add_forces
from mpimbs.parallel.agreement import abort_on_error, on_root, together
from mpimbs.parallel.first_ranks import first_ranks
from mpimbs.parallel.launcher import refuse_singletons

_GENERATED = ", ".join(":".join((name, *maker.arguments)) for name, maker in GENERATORS.items())


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog=f"MODEL is a TOML file or one of: {_GENERATED}.",
)
@click.version_option(package_name="mpimbs")
def cli() -> None:
    """Dynamics of articulated rigid-body systems on distributed memory."""


def _coupling_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `Dynamics`; what they leave without a subchain of its own waits meanwhile."""

    @functools.wraps(command)
    def coupled(
        comm: MPI.Comm,
        cuts: int | None,
        preconditioner: str | None,
        estimate: str | None,
        load_rtol: float | None,
        **settings: Any,
    ) -> None:
        given: dict[str, Any] = {"preconditioner": preconditioner, "estimate": estimate, "rtol": load_rtol}
        given = {name: value for name, value in given.items() if value is not None}
        solver = LoadSolver(**given) if given else None
        count = comm.size if cuts is None else cuts + 1

        def work() -> None:
            with first_ranks(comm, count) as part:
                if part is None:
                    return
                if settings["coupling"] == "auto":
                    settings["coupling"] = _chosen(part, cuts, solver, **settings)
                command(part, cuts=cuts, solver=solver, **settings)
                if part.size < comm.size and part.rank == 0:
                    idle = f"{comm.size - part.size} of {comm.size} ranks had nothing to do"
                    click.echo(f"{part.size} subchains (--cuts {cuts}): {idle}", err=True)

        together(comm, work)  # an error of those who work is an error of all

    for option in _COUPLING_OPTIONS:
        coupled = option(coupled)
    return coupled


def _chosen(
    comm: MPI.Comm,
    cuts: int | None,
    solver: LoadSolver | None,
    *,
    model: str,
    forces: tuple[str, ...],
    tip_ratio: float | None,
    lanes: int | None,
    overlap: bool,
    **others: Any,
) -> str:
    """Name of the coupling that is the best for a model on these ranks; rank 0 says why."""
    from mpimbs.study.choice import choose_coupling

    if solver is not None:
        raise InputError("options of pcg's solver choose nothing: leave them out, or choose --coupling pcg")
    found = choose_coupling(_read(comm, model, forces), comm, tip_ratio, lanes, cuts, overlap)
    if comm.rank == 0:
        click.echo(f"--coupling auto: {found.coupling}: {found.why}", err=True)
    return found.coupling


_forces_option = click.option(
    "--forces", multiple=True, help="module:function that adds forces to the System; may be repeated."
)

_COUPLING_OPTIONS = (
    click.option("--load-rtol", type=float, help="pcg: tolerance of the constraint loads."),
    click.option("--estimate", help=f"pcg: where iterations begin, {', '.join(ESTIMATES)}."),
    click.option("--preconditioner", help=f"pcg: {', '.join(PRECONDITIONERS)}."),
    click.option("--overlap", is_flag=True, help="Sweep inertias while velocities are on the way: for slow networks."),
    click.option("--cuts", type=int, help="Number of cut joints.  [default: one less than ranks]"),
    click.option("--tip-ratio", type=float, help="How many times more bodies the last subchain gets."),
    click.option(
        "--lanes", type=int, help="Pieces of a subchain swept side by side: 1, 2, 4 or 8.  [default: the faster]"
    ),
    click.option("--coupling", default="dcae", help=f"How subchains are joined: {', '.join(COUPLINGS)}, auto."),
)


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
@click.option("--force", is_flag=True, help="Replace an existing output file.")
@_forces_option
@click.pass_obj
@_coupling_options
def run(comm: MPI.Comm, model: str, t_end: float, output: Path, pictures: bool, poses: bool, **settings: Any) -> None:
    """Simulate MODEL and write its motion."""
    from mpimbs.simulation.run import simulate

    system = _read(comm, model, settings.pop("forces"))
    result = simulate(system, t_end, comm, output=output, poses=poses or pictures, progress=True, **settings)
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
@_forces_option
@click.pass_obj
@_coupling_options
def acceleration(
    comm: MPI.Comm, model: str, state: Path | None, output: Path, loads: bool, force: bool, **settings: Any
) -> None:
    """Evaluate forward dynamics of MODEL once."""
    from mpimbs.simulation.output import check_output, part_of
    from mpimbs.simulation.state import initial_state, read_state

    system = _read(comm, model, settings.pop("forces"))
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
@click.option("--json", "as_json", is_flag=True, help="One JSON object and nothing else.")
@click.option("--seconds", type=float, default=1.0, help="Wall time to spend on repetitions, s.")
@click.option("--batch", type=int, help="Time so many copies side by side instead, against one after the other.")
@click.option("--peers", is_flag=True, help="Compare with other programs too, on 1 rank: Pinocchio, Drake.")
@_forces_option
@click.pass_obj
@_coupling_options
def bench(
    comm: MPI.Comm, model: str, as_json: bool, peers: bool, batch: int | None, seconds: float, **settings: Any
) -> None:
    """Time one evaluation of forward dynamics of MODEL."""
    from mpimbs.study.bench import bench as measure
    from mpimbs.study.bench import bench_batch, report
    from mpimbs.study.peers import compare, sentences

    system = _read(comm, model, settings.pop("forces"))
    compared = compare(system, seconds, comm=comm) if peers else {}
    if batch is None:
        figures = measure(system, comm, seconds=seconds, **settings)
    else:
        figures = bench_batch(system, batch, comm, seconds, settings["lanes"])
    if peers:
        figures["peers"] = compared
    if comm.rank > 0:
        return
    if as_json:
        click.echo(json.dumps(figures))
        return
    for line in report(figures) + sentences(compared):
        click.echo(line)
    if comm.size > (os.cpu_count() or 1):
        click.echo(f"{comm.size} ranks share {os.cpu_count()} cores: these times say nothing about speed-up")


@cli.command()
@click.argument("model")
@click.option(
    "--accuracy", is_flag=True, help="Measure what the couplings lose to rounding, in three poses, on rank 0."
)
@click.pass_obj
def check(comm: MPI.Comm, model: str, accuracy: bool) -> None:
    """Validate MODEL, say what it is, and warn of couplings that are unfit for it."""
    from mpimbs.study.accuracy import fitness, notes

    system = _read(comm, model)
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


@cli.command()
@click.argument("model")
@click.option("-o", "--output", type=Path, required=True, help="Folder for study.json, study.tsv and pictures.")
@click.option("--couplings", help="Couplings to compare.  [default: all; dca up to 10000 bodies]")
@click.option("--ranks", help="Numbers of ranks to measure, of those started.  [default: powers of two]")
@click.option(
    "--studies", default="strong,weak,size", help="strong: more ranks; weak: more of both; size: more bodies."
)
@click.option("--seconds", type=float, default=0.3, help="Wall time for each point, s.")
@click.option("--predict", "predicted", help="Numbers of ranks to predict too, such as 16,64,256,1024.")
@click.option("--cluster", default="infiniband", help="For what cluster, as for `mpimbs predict`.")
@click.option("--collect", type=Path, help="Draw what `bench --json` wrote into this folder; measure nothing.")
@click.option("--force", is_flag=True, help="Replace a study in the folder.")
@click.pass_obj
def study(
    comm: MPI.Comm,
    model: str,
    output: Path,
    couplings: str | None,
    ranks: str | None,
    studies: str,
    seconds: float,
    predicted: str | None,
    cluster: str,
    collect: Path | None,
    force: bool,
) -> None:
    """Study the speed of MODEL: against ranks, bodies and couplings."""
    from mpimbs.study.speedup import Plan, default_couplings, default_ranks
    from mpimbs.study.study import predictor, report
    from mpimbs.study.study import study as whole

    system = _read(comm, model)
    together(comm, system.validate)
    chosen = default_couplings(system) if couplings is None else tuple(couplings.split(","))
    counts = default_ranks(comm.size) if ranks is None else tuple(_numbers(ranks, "--ranks"))
    plan = Plan(chosen, counts, ("strong",) if collect else tuple(studies.split(",")), seconds)
    beyond = None if predicted is None else predictor(_numbers(predicted, "--predict"), cluster, comm)
    table = whole(system, model, plan, output, comm, force, beyond, collect, progress=True)
    if comm.rank == 0:
        for line in (*report(table), f"wrote {', '.join(table['files'])}"):
            click.echo(line)


@cli.command()
@click.argument("model")
@click.option(
    "--coupling", "couplings", multiple=True, default=("dcae",), help=f"{', '.join(COUPLINGS)}; may be repeated."
)
@click.option("--ranks", help="Numbers of ranks, with commas.  [default: powers of two to 4096]")
@click.option(
    "--cluster", default="infiniband", help="infiniband, ethernet, a TOML file, or here: measured on 2 ranks."
)
@click.option("--method", default="loggp", help="loggp, or simgrid where it is installed.")
@click.option("--preconditioner", help=f"pcg: {', '.join(PRECONDITIONERS)}.")
@click.option("--estimate", help=f"pcg: where iterations begin, {', '.join(ESTIMATES)}.")
@click.option("--seconds", type=float, default=0.12, help="Wall time for each share of MODEL that is timed, s.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object and nothing else.")
@click.option("-o", "--output", type=Path, help="Folder for prediction.json, .tsv and .png.")
@click.pass_obj
def predict(comm: MPI.Comm, model: str, ranks: str | None, cluster: str, as_json: bool, **settings: Any) -> None:
    """Predict the time of one evaluation of MODEL on the ranks of a cluster."""
    from mpimbs.study.cluster import cluster_named

    system = _read(comm, model)
    together(comm, system.validate)
    counts = together(comm, lambda: None if ranks is None else _numbers(ranks, "--ranks"))
    described = cluster_named(cluster, comm)

    def work() -> None:
        with first_ranks(comm, 1) as part:
            if part is not None:
                _predict(system, counts, described, as_json, **settings)

    together(comm, work)


def _predict(
    system: System,
    ranks: list[int] | None,
    cluster: Any,
    as_json: bool,
    couplings: tuple[str, ...],
    method: str,
    seconds: float,
    preconditioner: str | None,
    estimate: str | None,
    output: Path | None,
) -> None:
    """Predict, on one process, and say what was found."""
    from mpimbs.study import predict as study
    from mpimbs.study.calibration import Calibration

    given: dict[str, Any] = {"preconditioner": preconditioner, "estimate": estimate}
    chosen = {name: value for name, value in given.items() if value is not None}
    solver = LoadSolver(**chosen) if chosen else None
    calibration = Calibration(system, seconds)
    counts = study.default_ranks(system) if ranks is None else ranks
    rows = []
    for name in dict.fromkeys(couplings):
        its_own = solver if name == "pcg" or len(couplings) == 1 else None
        rows += study.predict(system, counts, cluster, name, method, its_own, calibration)
    found = study.figures(rows, cluster, calibration, solver)
    files = [] if output is None else study.write(found, output)
    if as_json:
        click.echo(json.dumps(found))
        return
    for line in (*study.report(found), *(f"wrote {file}" for file in files)):
        click.echo(line)


def _numbers(text: str, option: str) -> list[int]:
    """Read whole numbers with commas between them."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{option} '{text}': give whole numbers with commas between them, such as 1,16,256") from None


def _read(comm: MPI.Comm, model: str, forces: tuple[str, ...] = ()) -> System:
    def action() -> System:
        system = system_from(model)
        for given in forces:
            add_forces(system, given)
        return system

    return together(comm, action)


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
    except SimulationError as error:
        return 1, f"mpimbs: {error}"
    return 0, ""


if __name__ == "__main__":
    main()
