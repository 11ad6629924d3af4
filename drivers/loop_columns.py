"""What the columns of a loop over all ranks cost: a track against the same chain without its loop.

    mpiexec -n 2 python drivers/loop_columns.py track:1024 track:16384 --folder results

Measured on one rank and on those that this is started with, as `mpimbs bench` does; predicted to 1024 ranks of a
cluster, as `mpimbs predict` does. The chain is swept in lanes, as ever; a loop over all bodies leaves none to be swept
so.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from mpi4py import MPI

from mpimbs.base.errors import InputError
from mpimbs.base.places import check_folder
from mpimbs.bench.bench import bench
from mpimbs.bench.predict.calibration import SECONDS, Calibration
from mpimbs.bench.predict.cluster import cluster_named
from mpimbs.bench.predict.predict import predict
from mpimbs.bench.predict.trace import DOUBLE
from mpimbs.model import System, system_from
from mpimbs.parallel.agreement import abort_on_error, on_root, together
from mpimbs.parallel.first_ranks import first_ranks
from mpimbs.plots.tables import host, markdown

FILE = "loop_columns.json"
MODELS = ("track:1024", "track:16384")
RANKS = (1, 2, 4, 16, 64, 256, 1024)


def main(
    folder: Path,
    models: Sequence[str] = MODELS,
    ranks: Sequence[int] = RANKS,
    cluster: str = "infiniband",
    seconds: float = 1.0,
    share_seconds: float = 2 * SECONDS,
    force: bool = False,
    comm: MPI.Comm = MPI.COMM_WORLD,
) -> list[dict[str, Any]]:
    """Measure and predict models with and without their loops; all ranks call.

    Parameters
    ----------
    folder : Path
        Of what is written.
    models : sequence of str
        Chains with loops, as `mpimbs bench` takes them.
    ranks : sequence of int
        Numbers of ranks to predict for.
    cluster : str
        As `mpimbs predict` takes it.
    seconds : float
        Wall time of each measurement (s).
    share_seconds : float
        Wall time for each share that is timed for a prediction (s).
    force : bool
        Replace what an earlier call wrote.
    comm : MPI.Comm

    Returns
    -------
    list of dict
        A row for each model, number of ranks and kind, "measured" or "predicted": us with the loops, us of the chain
        without, ratio; and of what is predicted with the loops, on the rank that computes the longest, us of sweeps, of
        placing: finding the motions of the far ends of loops, of joins, and of messages and waiting; bytes of the
        largest message of a value. On all ranks.

    Raises
    ------
    InputError
        On all ranks: a model that is no chain with loops.
    """
    on_root(comm, lambda: check_folder(folder, (FILE,), force))
    rows: list[dict[str, Any]] = []
    for model in models:
        looped, chain = together(comm, lambda model=model: with_and_without_loops(model))
        for count in sorted({1, comm.size}):
            with first_ranks(comm, count) as part:
                if part is not None:
                    rows.append(_measured(model, looped, chain, part, seconds))
        with first_ranks(comm, 1) as alone:
            if alone is not None:
                rows += _predicted(model, looped, chain, ranks, cluster, share_seconds)
    found: list[dict[str, Any]] = comm.bcast(rows)
    if comm.rank == 0:
        text = json.dumps({"cluster": cluster, "machine": host(), "rows": found}, indent=1)
        (folder / FILE).write_text(text + "\n", encoding="utf-8")
        _tell(found)
    return found


def with_and_without_loops(model: str) -> tuple[System, System]:
    """Give a chain with loops, and the same without.

    Raises
    ------
    InputError
        It is another system.
    """
    system = system_from(model)
    if not system.loops or not system.is_chain:
        raise InputError(f"{model}: is no chain with a loop; give a model such as track:1024")
    chain = copy.deepcopy(system)
    for listed in (chain.loops, chain.loop_bodies, chain.loop_names):
        listed.clear()
    return system, chain


def _measured(model: str, looped: System, chain: System, comm: MPI.Comm, seconds: float) -> dict[str, Any]:
    us, chain_us = (float(bench(system, comm, "dcae", seconds)["us_min"]) for system in (looped, chain))
    return {
        "model": model,
        "kind": "measured",
        "ranks": comm.size,
        "us": us,
        "chain_us": chain_us,
        "ratio": us / chain_us,
    }


def _predicted(
    model: str, looped: System, chain: System, ranks: Sequence[int], cluster: str, seconds: float
) -> list[dict[str, Any]]:
    described, calibration = cluster_named(cluster), Calibration(looped, seconds)
    counts = [count for count in ranks if count <= looped.n_bodies]
    pairs = zip(
        predict(looped, counts, described, calibration=calibration),
        predict(chain, counts, described, calibration=Calibration(chain, seconds)),
        strict=True,
    )
    rows = []
    for one, other in pairs:
        times = calibration.of_tree(one.ranks)
        each = list(zip(times.schedule.joins, times.joins, strict=True)) if times.joins else []
        joined = [sum(seconds for join, seconds in each if rank in join.ranks) for rank in range(one.ranks)]
        sweeps, joins = max(zip(times.sweeps, joined, strict=True), key=lambda found: sum(found[0]) + found[1])
        placing = sweeps.moving + sweeps.placing
        rows.append({
            "model": model, "kind": "predicted", "ranks": one.ranks, "us": 1e6 * one.seconds,
            "chain_us": 1e6 * other.seconds, "ratio": one.seconds / other.seconds,
            "sweeps_us": 1e6 * (sum(sweeps) - placing), "placing_us": 1e6 * placing, "joins_us": 1e6 * joins,
            "messages_us": 1e6 * one.messages, "bytes": DOUBLE * max(times.doubles) if one.ranks > 1 else 0,
        })  # fmt: skip
    return rows


def _tell(rows: list[dict[str, Any]]) -> None:
    parts = {
        "us": "with the loop", "chain_us": "without", "ratio": "ratio", "sweeps_us": "sweeps", "placing_us": "placing",
        "joins_us": "joins", "messages_us": "messages", "bytes": "bytes",
    }  # fmt: skip
    table = [
        {"MODEL": f"`{row['model']}`", "ranks": row["ranks"], "": row["kind"]}
        | {title: row.get(part) for part, title in parts.items()}
        for row in rows
    ]
    click.echo(markdown(table))


@click.command(help=__doc__)
@click.argument("models", nargs=-1)
@click.option("--folder", type=Path, required=True)
@click.option("--cluster", default="infiniband", show_default=True)
@click.option("--seconds", default=1.0, show_default=True, help="Wall time of each measurement, s.")
@click.option("--force", is_flag=True, help="Replace what is in the folder.")
def _command(models: tuple[str, ...], folder: Path, **options: Any) -> None:
    with abort_on_error(MPI.COMM_WORLD):
        main(folder, models or MODELS, **options)


if __name__ == "__main__":
    _command()
