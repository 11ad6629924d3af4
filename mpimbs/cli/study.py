"""The commands that measure and predict speed: `mpimbs bench | study | predict`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mpimbs.base.errors import InputError
from mpimbs.base.places import check_folder
from mpimbs.base.settings import LEAVES, SWEEPS
from mpimbs.cli.options import coupling_options, forces_option, gone, note_lanes, read_model, whole_numbers
from mpimbs.cli.words import Command, said_on_root, said_together

if TYPE_CHECKING:
    from mpi4py import MPI

    from mpimbs.model.contents import Contents


SCHEDULE_FILE = "schedule.toml"


@click.command("bench", cls=Command)
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="One JSON object and nothing else.")
@click.option("--seconds", type=float, default=1.0, help="Wall time to spend on repetitions, s.")
@click.option("--batch", type=int, help="Time so many copies side by side instead, against one after the other.")
@click.option("--inertia", is_flag=True, help="Time the inertia matrix, its inverse and products instead.")
@gone("--peers", "`python drivers/versus_peers.py MODEL`, in the sources, compares with them")
@forces_option
@click.pass_obj
@coupling_options
def bench_command(
    comm: MPI.Comm,
    model: str,
    forces: tuple[str, ...],
    as_json: bool,
    batch: int | None,
    inertia: bool,
    seconds: float,
    settings: dict[str, Any],
) -> None:
    """Time one evaluation of forward dynamics of MODEL."""
    from mpimbs.bench.bench import bench, bench_batch, bench_inertia, report, report_inertia

    system = read_model(comm, model, forces)
    if inertia and batch is not None:
        raise InputError("--inertia times the inertia matrix alone: leave out --batch")
    note_lanes(comm, system, settings, batch)
    if inertia:
        figures = bench_inertia(system, comm, seconds, **settings)
        if comm.rank == 0:
            click.echo(json.dumps(figures) if as_json else "\n".join(report_inertia(figures)))
        return
    if batch is None:
        figures = bench(system, comm, seconds=seconds, **settings)
    else:
        figures = bench_batch(system, batch, comm, seconds, settings.get("lanes"))
    if comm.rank > 0:
        return
    if as_json:
        click.echo(json.dumps(figures))
        return
    for line in report(figures):
        click.echo(line)
    if comm.size > (os.cpu_count() or 1):
        click.echo(f"{comm.size} ranks share {os.cpu_count()} cores: these times say nothing about speed-up")


@click.command("study", cls=Command)
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
@gone("--inertia", "`mpimbs bench MODEL --inertia` on each number of ranks times the matrix")
@click.option("--force", is_flag=True, help="Replace a study in the folder.")
@click.pass_obj
def study_command(
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
    from mpimbs.bench.speedup import Plan, default_couplings, default_ranks
    from mpimbs.bench.study import predictor, study, study_lines
    from mpimbs.model.summary import validate

    system = read_model(comm, model)
    said_together(comm, lambda: validate(system))
    chosen = default_couplings(system) if couplings is None else tuple(couplings.split(","))
    counts = default_ranks(comm.size) if ranks is None else tuple(whole_numbers(ranks, "--ranks"))
    plan = Plan(chosen, counts, ("strong",) if collect else tuple(studies.split(",")), seconds)
    beyond = None if predicted is None else predictor(whole_numbers(predicted, "--predict"), cluster, comm)
    table = study(system, model, plan, output, comm, force, beyond, collect, progress=True)
    if comm.rank == 0:
        for line in (*study_lines(table), f"wrote {', '.join(table['files'])}"):
            click.echo(line)


@click.command("predict", cls=Command)
@click.argument("model")
@click.option(
    "--coupling", "couplings", multiple=True, default=("dcae",), help="dcae, assembly, dca, dca-terminal; repeatable."
)
@click.option("--ranks", help="Numbers of ranks, with commas.  [default: powers of two to 4096]")
@click.option(
    "--cluster", default="infiniband", help="infiniband, ethernet, a TOML file, or here: measured on 2 ranks."
)
@gone("--method", "predictions are by LogGP", is_flag=False)
@gone("--inertia", "`mpimbs bench MODEL --inertia` on each number of ranks times the matrix")
@click.option("--seconds", type=float, default=0.12, help="Wall time for each share of MODEL that is timed, s.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object and nothing else.")
@click.option("--find-schedule", is_flag=True, help="Look for the fastest order of an assembly on --ranks P instead.")
@click.option("--leaves", type=click.Choice(LEAVES), default=SWEEPS, help="What it joins: intervals, or single bodies.")
@click.option("-o", "--output", type=Path, help="Folder for prediction.json, .tsv, .png; or schedule.toml and .png.")
@click.option("--force", is_flag=True, help="Replace what is in the folder.")
@click.pass_obj
def predict_command(
    comm: MPI.Comm,
    model: str,
    ranks: str | None,
    cluster: str,
    find_schedule: bool,
    leaves: str,
    as_json: bool,
    output: Path | None,
    force: bool,
    **settings: Any,
) -> None:
    """Predict the time of one evaluation of MODEL on the ranks of a cluster, or find a schedule for them."""
    from mpimbs.bench.predict.cluster import cluster_named
    from mpimbs.bench.predict.predict import PREDICTION_FILES
    from mpimbs.model.summary import validate
    from mpimbs.parallel.agreement import first_ranks
    from mpimbs.plots.partition_pictures import SCHEDULE_PICTURE

    system = read_model(comm, model, need="DIVISION")
    said_together(comm, lambda: validate(system))
    counts = said_together(comm, lambda: None if ranks is None else whole_numbers(ranks, "--ranks"))
    if find_schedule and (as_json or counts is None or len(counts) > 1):
        raise InputError("--find-schedule looks for one on so many ranks: give one number by --ranks, and no --json")
    described = cluster_named(cluster, comm)
    files = (SCHEDULE_FILE, SCHEDULE_PICTURE) if find_schedule else PREDICTION_FILES
    if output is not None:
        said_on_root(comm, lambda: check_folder(output, files, force, instead=", or leave `output` out to write none"))

    def work() -> None:
        with first_ranks(comm, 1) as part:
            if part is None:
                return
            if not find_schedule:
                _predict(system, counts, described, as_json, output=output, **settings)
            elif counts is not None:
                _find_schedule(system, counts[0], leaves, described.between_nodes, output)

    said_together(comm, work)


def _find_schedule(system: Contents, ranks: int, leaves: str, link: Any, output: Path | None) -> None:
    """Look for the schedule by which `assembly` is the fastest; tell it beside balanced and serial, and write it."""
    from mpimbs.bench.schedules import compare_schedules, lines_of_comparison, measure_assembly_costs, write_schedule
    from mpimbs.plots.curves import save
    from mpimbs.plots.partition_pictures import SCHEDULE_PICTURE, draw_schedule

    found = compare_schedules(system, ranks, leaves, measure_assembly_costs(link))
    for line in lines_of_comparison(found):
        click.echo(line)
    if output is not None:
        file = write_schedule(found, output / SCHEDULE_FILE)
        drawn = save(draw_schedule(system.name, found.found["auto"]), output / SCHEDULE_PICTURE)
        click.echo(f"wrote {file}, {drawn}")


def _predict(
    system: Contents,
    ranks: list[int] | None,
    cluster: Any,
    as_json: bool,
    couplings: tuple[str, ...],
    seconds: float,
    output: Path | None,
) -> None:
    """Predict, on one process, and say what was found."""
    from mpimbs.bench.predict import predict
    from mpimbs.bench.predict.calibration import Calibration
    from mpimbs.coupling import coupling_for

    for name in couplings:
        coupling_for(system, name)
    counts = predict.ranks_to_predict(system) if ranks is None else ranks
    calibration, rows = Calibration(system, seconds), list[predict.Prediction]()
    for name in dict.fromkeys(couplings):
        rows += predict.predict(system, counts, cluster, name, calibration)
    found = predict.figures(rows, cluster, calibration)
    files = [] if output is None else predict.write(found, output)
    if as_json:
        click.echo(json.dumps(found))
        return
    for line in (*predict.prediction_lines(found), *(f"wrote {file}" for file in files)):
        click.echo(line)
