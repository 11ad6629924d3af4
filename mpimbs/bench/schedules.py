"""Schedules of an assembly compared: what they are predicted to take, and their critical paths, from measured costs."""

from __future__ import annotations

import itertools
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.bench.cost_fit import fit
from mpimbs.bench.laps import least
from mpimbs.bench.predict.cluster import Link
from mpimbs.bench.predict.interval_times import value_of
from mpimbs.bench.share import time_join
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.compiling import compile_evaluations
from mpimbs.model import system_from
from mpimbs.model.contents import Contents
from mpimbs.model.order.order import Order, arranged
from mpimbs.partition.division import divide_tree
from mpimbs.partition.schedule import JOIN, RECEIVE_LOADS, RECEIVE_VALUE
from mpimbs.partition.schedule_file import Laid, schedule_text
from mpimbs.partition.schedule_search import AUTO, BALANCED, BODIES, SERIAL, Found, Search
from mpimbs.partition.schedule_times import SWEPT_IN, AssemblyCosts, hang_products
from mpimbs.values.joining import joined
from mpimbs.values.value import without_loops

_OPEN, _COMPONENTS = (0, 1, 2, 3, 4), (0, 1, 2)  # of the joins that are timed: bodies of the left, new of the right
_BODIES = 256  # of the chain that is timed
_CALLS = 200
MOST_TOLD = 40  # nodes that are told one by one


class Compared(NamedTuple):
    """Schedules of a system on so many ranks, by name: "auto", "balanced", "serial"."""

    system: Contents
    order: Order
    found: dict[str, Found]

    @property
    def best(self) -> Laid:
        """The one that was found, over the bodies."""
        return Laid(self.order, self.found[AUTO].bounds, self.found[AUTO].schedule)


def compare_schedules(system: Contents, ranks: int, leaves: str, costs: AssemblyCosts) -> Compared:
    """Look for the best schedule of a system; errors as of `divide_tree`.

    Parameters
    ----------
    leaves : str
        As of `base.settings.LEAVES`.
    """
    divided = divide_tree(system, ranks)
    order = divided.order or Order.of(system)
    search = Search(system, order, ranks, divided.width, leaves == BODIES, costs)
    found = {kind: search.of(kind, divided.cuts) for kind in (BALANCED, SERIAL)}
    return Compared(system, order, {AUTO: search.best(divided.cuts)} | found)


def measure_assembly_costs(link: Link) -> AssemblyCosts:
    """Measure what joins and sweeps take on this core; messages are those of a link of a cluster.

    Joins of systems with loops are the package's.
    """
    rows, times = [], []
    for opened, new in itertools.product(_OPEN, _COMPONENTS):
        for outside in range(min(opened, 2) + 1):
            left = without_loops(50, [-1], [(10 + k, 200) for k in range(opened)])
            right = without_loops(100, [10 + k for k in range(outside)] or [-1], [(60 + k, 300) for k in range(new)])
            both = joined(left, right)
            products = sum(hang_products.py_func(before, more) for before, more in both.handles)
            rows.append([1, len(both.handles), products, sum(1 + before + more for before, more in both.handles)])
            times.append(time_join(both, value_of(left), value_of(right)))
    chain = system_from(f"spatial_chain:{_BODIES}")
    with closing(Dynamics(chain, MPI.COMM_SELF, lanes=1)) as dynamics:
        compile_evaluations(dynamics)
        q, u = dynamics.subchain.q, dynamics.subchain.u
        udot, rates = np.empty(len(u)), np.empty(len(q))
        body = least(lambda: dynamics.derivative.evaluate(0.0, q, u, udot, rates), 0.0, _CALLS) / _BODIES
    join, hang, product, solution = fit(rows, times).tolist()
    return AssemblyCosts(
        body=body,
        join=join,
        hang=hang,
        product=product,
        solution=solution,
        latency=link.latency,
        overhead=0.5 * link.overheads,
        byte=1.0 / link.bandwidth,
    )


def lines_of_comparison(compared: Compared) -> list[str]:
    """Say what the schedules are predicted to take, and what the best one is."""
    best = compared.found[AUTO]
    schedule, named = best.schedule, arranged(compared.system, compared.order)
    size, leaves = schedule.size, len(schedule.owners)
    times = ", ".join(f"{name} {1e6 * found.predicted.seconds:.2f}" for name, found in compared.found.items())
    lines = [
        f"{compared.system.name} on {size} rank{'s' if size > 1 else ''}: {leaves} leaves, {schedule.depth()} joins "
        f"deep; predicted us: {times}"
    ]
    bounds = best.bounds.tolist()
    for leaf in range(min(leaves, MOST_TOLD)):
        first, last = bounds[leaf], bounds[leaf + 1] - 1
        lines.append(
            f"leaf {leaf}: rank {schedule.owners[leaf]}, {last - first + 1} bodies, {named.name_of(first)} to "
            f"{named.name_of(last)}"
        )
    for number, (left, right, ranks) in enumerate(schedule.joins[:MOST_TOLD]):
        lines.append(f"join {leaves + number}: {left} and {right}, by rank{_ranks(ranks)}")
    if max(leaves, len(schedule.joins)) > MOST_TOLD:
        lines.append(f"... of {leaves} leaves and {len(schedule.joins)} joins")
    return [*lines, critical_path(best)]


def _ranks(ranks: tuple[int, ...]) -> str:
    if len(ranks) > 2 and ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        return f"s {ranks[0]} to {ranks[-1]}"
    return f"{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def critical_path(found: Found) -> str:
    """Name the critical path: who sweeps, what is joined, which messages are waited for, up and down."""
    words: list[str] = []
    for done in found.predicted.path:
        if done.kind == SWEPT_IN:
            words.append(f"rank {done.rank} sweeps")
        elif done.kind == JOIN:
            words.append(f"join {done.node}")
        elif done.waited and done.kind in (RECEIVE_VALUE, RECEIVE_LOADS):
            words.append(f"{'value' if done.kind == RECEIVE_VALUE else 'loads'} of {done.node} to rank {done.rank}")
    if len(words) > MOST_TOLD:
        words = [*words[: MOST_TOLD // 2], "...", *words[-MOST_TOLD // 2 :]]
    last = found.predicted.path[-1].rank
    return f"critical path, {1e6 * found.predicted.seconds:.2f} us: {', '.join(words)}, rank {last} sweeps outward"


def write_schedule(compared: Compared, place: Path) -> Path:
    """Write the file of the best schedule."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(schedule_text(compared.system, compared.best), encoding="utf-8")
    return place
