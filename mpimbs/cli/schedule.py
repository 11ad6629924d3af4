"""The command that looks for the schedule of an assembly: `mpimbs schedule`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mpimbs.base.names import LEAVES, SWEEPS
from mpimbs.base.places import check_folder
from mpimbs.cli.options import read
from mpimbs.cli.words import Command, on_root, together

if TYPE_CHECKING:
    from mpi4py import MPI

SCHEDULE_FILE = "schedule.toml"


@click.command(cls=Command)
@click.argument("model")
@click.option("--ranks", type=click.IntRange(min=1), required=True, help="Number of ranks.")
@click.option("--leaves", type=click.Choice(LEAVES), default=SWEEPS, help="Single bodies, or intervals, each swept.")
@click.option(
    "--cluster", default="infiniband", help="Whose messages: infiniband, ethernet, a TOML file, or here: on 2 ranks."
)
@click.option("-o", "--output", type=Path, help="Folder for schedule.toml, which --schedule takes, and schedule.png.")
@click.option("--force", is_flag=True, help="Replace a schedule in the folder.")
@click.pass_obj
def schedule(
    comm: MPI.Comm, model: str, ranks: int, leaves: str, cluster: str, output: Path | None, force: bool
) -> None:
    """Look for the schedule by which the coupling assembly is the fastest for MODEL, from costs measured here.

    It is told beside `balanced` and `serial`, with its critical path.
    """
    from mpimbs.bench.predict.cluster import cluster_named
    from mpimbs.bench.schedules import compare_schedules, measure_assembly_costs, told, write_schedule
    from mpimbs.parallel.first_ranks import first_ranks
    from mpimbs.plots.axes import save
    from mpimbs.plots.partition_pictures import SCHEDULE_PICTURE, draw_schedule

    system = read(comm, model, need="DIVISION")
    together(comm, system.validate)
    link = cluster_named(cluster, comm).between_nodes
    if output is not None:
        on_root(comm, lambda: check_folder(output, [SCHEDULE_FILE, SCHEDULE_PICTURE], force))

    def work() -> None:
        with first_ranks(comm, 1) as part:
            if part is None:
                return
            found = compare_schedules(system, ranks, leaves, measure_assembly_costs(link))
            for line in told(found):
                click.echo(line)
            if output is not None:
                file = write_schedule(found, output / SCHEDULE_FILE)
                drawn = save(draw_schedule(system.name, found.found["auto"]), output / SCHEDULE_PICTURE)
                click.echo(f"wrote {file}, {drawn}")

    together(comm, work)
