"""Schedules of an assembly beside the tables of Yamane & Nakamura, and what a schedule that is found gains.

    mpiexec -n 2 python drivers/assembly_schedules.py --folder results

Measured on the ranks that are there, and predicted beyond from costs that are measured first. Table 1: chains of 8, 16
and 32 links on spherical joints; with *, one link moved from each of the two middle parts to the ends. Table 2: human
figures. Then operations of a join by its handles, and the predicted gain of `auto` on 1 to 1024 ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from laboratory.command import call, keep, show
from laboratory.sweeps import count
from mpimbs.base.places import check_folder
from mpimbs.bench.bench import bench
from mpimbs.bench.predict.cluster import cluster_named
from mpimbs.bench.predict.interval_times import value_of
from mpimbs.bench.schedules import compare_schedules, measure_assembly_costs
from mpimbs.model import System, system_from
from mpimbs.model.order.order import Order
from mpimbs.parallel.agreement import first_ranks, on_root, together
from mpimbs.partition.schedule_search import AUTO, BALANCED, LEAVES, SERIAL, Search
from mpimbs.partition.schedule_times import AssemblyCosts
from mpimbs.values.joining import joined
from mpimbs.values.joins import join_values, spread_values
from mpimbs.values.value import without_loops

FILE = "assembly_schedules.json"
# ms, Pentium III of 1 GHz, Myrinet: by links, or degrees of freedom, and processes; 0 is 4 processes with *.
PAPER = {
    "rope:8": {1: 1.31, 2: 0.984, 4: 0.897}, "rope:16": {1: 2.75, 2: 1.87, 4: 1.70, 8: 1.57, 0: 1.58},
    "rope:32": {1: 6.08, 2: 3.93, 4: 3.39, 8: 2.90, 0: 3.16},
    "figure34": {1: 3.66, 2: 2.49, 4: 2.22}, "figure48": {1: 4.85, 2: 2.93, 4: 2.49},
}  # fmt: skip
MODELS = ("spatial_chain:64", "spatial_chain:1024", "figure48", "random_tree:1000", "tree:8:2", "four_bar_chain:100")
UNEVEN = 0


def main(
    folder: Path,
    models: Sequence[str] = MODELS,
    seconds: float = 0.3,
    most: int = 1024,
    force: bool = False,
    comm: MPI.Comm = MPI.COMM_SELF,
) -> dict[str, Any]:
    """Make all tables; all ranks call.

    Parameters
    ----------
    folder : Path
        Of what is written.
    models : sequence of str
        For which schedules are compared.
    seconds : float
        Wall time of each measurement (s).
    most : int
        Ranks up to which times are predicted.
    force : bool
        Replace what an earlier call wrote.

    Returns
    -------
    dict
        The tables, on rank 0: "paper", "operations", "gains".
    """
    on_root(comm, lambda: check_folder(folder, [FILE], force))
    link = cluster_named("infiniband").between_nodes
    costs = on_root(comm, lambda: measure_assembly_costs(link))
    tables = {
        "paper": [row for name in PAPER for row in _beside_the_paper(name, costs, seconds, comm)],
        "operations": operations(),
        "gains": on_root(comm, lambda: [row for name in models for row in _gains(name, costs, most)]),
    }
    if comm.rank > 0:
        return {}
    keep(folder / FILE, tables)
    show("an evaluation: the paper's, and ours as measured and predicted", tables["paper"])
    show("operations of a join, by the handles of the left and the right", tables["operations"])
    show("predicted us, and what the schedule that is found gains", tables["gains"])
    return tables


def _beside_the_paper(name: str, costs: AssemblyCosts | None, seconds: float, comm: MPI.Comm) -> list[dict[str, Any]]:
    """A row for each number of processes of the paper and kind of leaves."""
    system, rows = system_from(name), []
    for ranks, paper in PAPER[name].items():
        for leaves in LEAVES:
            measured = None if ranks == UNEVEN or ranks > comm.size else _measured(system, ranks, leaves, seconds, comm)
            if comm.rank > 0:
                continue
            assert costs is not None
            predicted = _uneven(system, leaves, costs) if ranks == UNEVEN else _predicted(system, ranks, leaves, costs)
            processes = "4*" if ranks == UNEVEN else str(ranks)
            rows.append(
                {"model": name, "ranks": processes, "leaves": leaves, "paper_ms": paper}
                | {f"{kind}, measured us": (measured or {}).get(kind) for kind in (BALANCED, AUTO)}
                | {f"{kind}, predicted us": predicted.get(kind) for kind in (BALANCED, AUTO)}
            )
    return rows


def _measured(system: System, ranks: int, leaves: str, seconds: float, comm: MPI.Comm) -> dict[str, float] | None:
    def work() -> dict[str, float] | None:
        with first_ranks(comm, ranks) as part:
            if part is None:
                return None
            return {
                kind: bench(system, part, "assembly", seconds, schedule=kind, leaves=leaves)["us_min"]
                for kind in (BALANCED, AUTO)
            }

    return together(comm, work)


def _predicted(system: System, ranks: int, leaves: str, costs: AssemblyCosts) -> dict[str, float]:
    found = compare_schedules(system.contents, ranks, leaves, costs).found
    return {kind: 1e6 * one.predicted.seconds for kind, one in found.items()}


def _uneven(system: System, leaves: str, costs: AssemblyCosts) -> dict[str, float]:
    """The balanced schedule on 4 ranks, with a link less on each of the middle ones."""
    each = system.n_bodies // 4
    cuts = np.cumsum([0, each + 1, each - 1, each - 1, each + 1])
    search = Search(system.contents, Order.of(system.contents), 4, 1, leaves == "bodies", costs)
    return {BALANCED: 1e6 * search.of(BALANCED, cuts).predicted.seconds}


def operations() -> list[dict[str, int]]:
    """Operations of a join up and down, by the handles of the part that goes on and of the one that is hung on it."""
    rows = []
    for handles in range(1, 5):
        for new in range(3):
            left = without_loops(50, [-1], [(10 + k, 200) for k in range(handles)])
            right = without_loops(100, [10], [(60 + k, 300) for k in range(new)])
            found = joined(left, right)
            (rows_of, lists), one, other = found.tables(), value_of(left), value_of(right)
            sizes = found.work, found.value.room.size(), found.kept, found.scratch
            work, out, kept, scratch = (np.zeros(size) for size in sizes)
            split, end = len(found.up), len(rows_of)
            up = count(join_values, rows_of, 0, split, lists, one, other, work, out, kept, scratch)
            rooms = found.value.room, left.room, right.room
            outer, *each = (np.zeros(6 * (room.inboard + room.open)) for room in rooms)
            down = count(spread_values, rows_of, split, end, lists, other, kept, outer, *each, scratch)
            both = up + down
            rows.append(
                {"left": handles, "right": new, "multiplications": round(both.multiplications)}
                | {"additions": round(both.additions)}
            )
    return rows


def _gains(name: str, costs: AssemblyCosts, most: int) -> list[dict[str, Any]]:
    system, rows = system_from(name), []
    ranks = 1
    while ranks <= min(most, system.n_bodies):
        found = _predicted(system, ranks, "sweeps", costs)
        rows.append(
            {"model": name, "ranks": ranks} | found | {"gain": min(found[BALANCED], found[SERIAL]) / found[AUTO]}
        )
        ranks *= 2 if ranks < 4 else 4
    return rows


if __name__ == "__main__":
    call(main)
