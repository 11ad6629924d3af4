"""A study of the inertia matrix: measured on the ranks that there are, predicted beyond, and written."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from mpi4py import MPI

from mpimbs.composites import DOUBLING, FORMS, RECURSIVE
from mpimbs.errors import InputError
from mpimbs.filesystem.places import check_folder
from mpimbs.model import System
from mpimbs.parallel.agreement import on_root, together
from mpimbs.parallel.first_ranks import first_ranks
from mpimbs.study.bench_inertia import bench_inertia
from mpimbs.study.cluster import cluster_named
from mpimbs.study.predict_inertia import InertiaTimes, predict_inertia
from mpimbs.study.speedup import cores_of, heading
from mpimbs.study.speedup_report import STUDY_FILES, write
from mpimbs.study.verdict import add_speedups

Row = dict[str, Any]


def study_inertia(
    system: System,
    spec: str,
    ranks: Sequence[int],
    folder: Path,
    comm: MPI.Comm,
    seconds: float = 0.3,
    force: bool = False,
    predicted: Sequence[int] = (),
    cluster: str = "infiniband",
) -> dict[str, Any]:
    """Measure the inertia matrix in both its forms on so many of the ranks, predict it for others, and write that.

    Parameters
    ----------
    system, spec, folder, comm, force
        As of `study.study.study`.
    ranks, predicted : sequence of int
        Numbers of ranks to measure, those that there are, and to predict.
    seconds : float
        Wall time for each number of ranks (s).
    cluster : str
        As for `study.cluster.cluster_named`.

    Returns
    -------
    dict
        What study.json holds, for `study.study.report`; on all ranks.

    Raises
    ------
    InputError
        On all ranks: no number of ranks can be measured, the study is there already, there is no such cluster.
    """
    on_root(comm, lambda: check_folder(folder, STUDY_FILES, force))
    counts = [count for count in ranks if 1 <= count <= min(comm.size, system.n_bodies)]
    if not counts:
        raise InputError(f"`ranks` has none that could be measured: give some from 1 to {comm.size}")
    described, cores, rows = cluster_named(cluster, comm) if predicted else None, cores_of(comm), list[Row]()
    of_all = {"study": "strong", "n": system.n_bodies, "dof": system.nu}
    for count in counts:
        found = comm.bcast(together(comm, functools.partial(_measured, system, count, comm, seconds)))
        for form in FORMS[: 1 + (count > 1)]:
            own = found if form == DOUBLING else found["others"][RECURSIVE]
            times = {name: own[name] for name in ("us_min", "us_median")}
            more = {"predicted": False, "oversubscribed": count > cores, "coupling": form, "ranks": count}
            rows.append({**of_all, **more, **times, "ns_per_body_min": 1e3 * own["us_min"] / system.n_bodies})
    rows += comm.bcast(on_root(comm, lambda: _predicted(system, predicted, described, of_all)))
    add_speedups(rows)
    best = min((row for row in rows if not row["predicted"]), key=lambda row: row["us_min"])
    advice = f"the fastest measured: {best['coupling']} on {best['ranks']} ranks, {best['us_min']:.4g} us"
    table = {
        **heading(system, spec, comm, cores),
        "what": "the inertia matrix",
        "points": rows,
        "fits": {},
        "notes": [],
        "disturbed": "",
        "advice": advice,
    }
    table["files"] = [str(path) for path in comm.bcast(on_root(comm, lambda: write(folder, table))) or ()]
    return table


def _measured(system: System, ranks: int, comm: MPI.Comm, seconds: float) -> Row | None:
    with first_ranks(comm, ranks) as part:
        return None if part is None else bench_inertia(system, part, seconds)


def _predicted(system: System, ranks: Sequence[int], cluster: Any, of_all: Row) -> list[Row]:
    counts = [count for count in ranks if count <= system.n_bodies]
    if not counts:
        return []
    with closing(InertiaTimes(system)) as times:
        found = [row for form in FORMS for row in predict_inertia(system, counts, cluster, form, times=times)]
    more = {"predicted": True, "oversubscribed": False, "cluster": cluster.name}
    return [
        {**of_all, **more, "coupling": row.coupling, "ranks": row.ranks}
        | dict.fromkeys(("us_min", "us_median"), 1000000.0 * row.seconds)
        for row in found
    ]
