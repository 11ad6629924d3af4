"""Where the time of an evaluation goes, against the limits of the machine: a table for each chain.

    python drivers/limits.py spatial_chain:1024 rope:1024 --folder results

Operations and bytes are counted by running the kernels uncompiled; the peak of a core and the bandwidth of its memories
are measured, as are the phases, in lanes and in doubles. With several ranks, all measure at once, each its own chain:
the figures are then those of a core among busy ones.

A phase can't take less than its instructions at the rate of fused multiply-adds, nor less than its bytes at the
bandwidths of the memories that hold what it works on. The larger of the two is its limit. Phases follow each other:
the limit of an evaluation is the sum of theirs. The last row is an evaluation as `Dynamics` makes it. In doubles a
chain alone has but one handle, and neither boundary turn nor joins: its sum and its evaluation leave these out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from mpi4py import MPI

from laboratory.counting import ARC_TANGENT, SINE_COSINE, Counts
from laboratory.machine import Machine, measure_core, of_all_ranks
from laboratory.phase_costs import counts_of_tile, time_phases
from laboratory.phases import TILE_PHASES, TIP, arguments, flat
from mpimbs.base.errors import InputError
from mpimbs.bench.bench import bench
from mpimbs.dynamics.compiling import compile_kernels
from mpimbs.kernels.lanes import native_width
from mpimbs.model import System, system_from
from mpimbs.parallel.agreement import abort_on_error, first_on_node, together
from mpimbs.plots.tables import markdown

SYSTEMS = ("spatial_chain:1024", "rope:1024")
SHORT, LONG = 68, 72  # bodies of the chains that are counted


class Limit(NamedTuple):
    """One phase, per body.

    Attributes
    ----------
    phase : str
    counts : Counts
    bytes_moved : float
        Between the kernel and the memories that hold what it works on.
    level : str
        The outermost of these; empty for a sum of phases.
    at_peak, at_bandwidth : float
        ns: least time of the instructions, and of the bytes.
    least : float
        The limit (ns).
    measured : dict
        ns, by the name of the measurement.
    """

    phase: str
    counts: Counts
    bytes_moved: float
    level: str
    at_peak: float
    at_bandwidth: float
    least: float
    measured: dict[str, float]

    def share(self, name: str) -> float:
        """Share of the limit that a measurement reaches; 1 is the best that the machine can do."""
        return self.least / self.measured[name]


def limits(
    counts: Mapping[str, Counts], machine: Machine, measured: Mapping[str, Mapping[str, float]], bodies: int
) -> list[Limit]:
    """Put counts, peak, bandwidth and times together.

    Parameters
    ----------
    counts : mapping
        Per body, by phase.
    machine : Machine
        One core.
    measured : mapping of mappings
        By the name of a measurement, ns per body by phase; phases may be missing.
    bodies : int
        Length of the chain, which says how much a phase touches: times are taken of each alone, over and over.
    """
    rows = []
    for phase, count in counts.items():
        moved = count.bytes_moved(machine.width)
        size = 8 * count.touched * bodies
        at_peak = 2.0 * count.instructions * machine.ranks / machine.lanes.maximum
        at_bandwidth = machine.least_time(moved, size)
        times = {name: times[phase] for name, times in measured.items() if phase in times}
        rows.append(
            Limit(phase, count, moved, machine.level(size), at_peak, at_bandwidth, max(at_peak, at_bandwidth), times)
        )
    return rows


def total(phase: str, rows: Sequence[Limit], measured: Mapping[str, float]) -> Limit:
    """Sum of phases under a name of its own, with its own measurements (ns)."""
    counts = sum((row.counts for row in rows), Counts())
    moved, at_peak, at_bandwidth, least = (
        sum(getattr(row, name) for row in rows) for name in ("bytes_moved", "at_peak", "at_bandwidth", "least")
    )
    return Limit(phase, counts, moved, "", at_peak, at_bandwidth, least, dict(measured))


def as_numbers(rows: Sequence[Limit]) -> list[dict[str, Any]]:
    """Give rows as plain dictionaries, for a JSON file."""
    return [
        {
            "phase": row.phase,
            "counts": vars(row.counts),
            "operations": row.counts.operations,
            "bytes": row.bytes_moved,
            "level": row.level,
            "ns_at_peak": row.at_peak,
            "ns_at_bandwidth": row.at_bandwidth,
            "ns_limit": row.least,
            "ns_measured": row.measured,
            "share_of_limit": {name: row.share(name) for name in row.measured},
        }
        for row in rows
    ]


def told(rows: Sequence[Limit], best: str, other: str) -> str:
    """Lay out the limits as a table in Markdown, per body; `best` and `other` are measurements, one with its share."""
    table = []
    for row in rows:
        mine, theirs = row.measured.get(best), row.measured.get(other)
        table.append({
            "phase": row.phase, "operations": f"{row.counts.operations:.0f}", "bytes": f"{row.bytes_moved:.0f}",
            "limit, ns": _time(row.least), f"{best}, ns": "" if mine is None else _time(mine),
            "share": "" if mine is None else f"{100 * row.share(best):.0f} %",
            f"{other}, ns": "" if theirs is None else _time(theirs),
        })  # fmt: skip
    return markdown(table)


def _time(ns: float) -> str:
    return f"{ns:.0f}" if ns >= 100 else f"{ns:.1f}" if ns >= 10 else f"{ns:.2f}"


def describe(machine: Machine) -> str:
    """Say what the machine can do, in a few lines."""
    m = machine
    lines = [
        f"{'one core' if m.ranks == 1 else f'{m.ranks} cores at once'}: {m.lanes.maximum:.1f} GFLOP/s of fused "
        f"multiply-adds in registers of {m.width} doubles, {m.doubles.maximum:.1f} on single doubles; "
        f"{m.in_flight:.1f} under way at once, {m.frequency():.2f} GHz if each takes 4 cycles"
    ]
    for level, size in m.sizes.items():
        lines.append(
            f"{level}, {size / 1024:.0f} KiB: {m.triad[level].maximum:.0f} GB/s a = b + s c, "
            f"{m.copy[level].maximum:.0f} GB/s a = b (median {m.triad[level].median:.0f}, {m.copy[level].median:.0f})"
        )
    lines.append(f"a sine with its cosine is taken for {SINE_COSINE} operations, an arc tangent for {ARC_TANGENT}")
    return "\n".join(lines)


def chain_of(spec: str, bodies: int | None = None) -> System:
    """Make the chain that a text such as "rope:1024" names, or one of the same kind with another number of bodies."""
    name, _, count = spec.partition(":")
    return system_from(f"{name}:{count if bodies is None else bodies}")


def check(spec: str, width: int) -> None:
    """Refuse what can't be swept as one tile of so many lanes, or is too short."""
    try:
        arguments(chain_of(spec), width)
    except ValueError as error:
        raise InputError(f"'{spec}': {error}; name a chain such as {SYSTEMS[0]}") from None


def limits_of(spec: str, machine: Machine, seconds: float) -> dict[str, Any]:
    """Count and time one chain; `machine` is this core."""
    system, width = chain_of(spec), machine.width
    counts = counts_of_tile(chain_of(spec, SHORT), chain_of(spec, LONG), system.n_bodies // width, width)
    size = sum(part.nbytes for part in flat(arguments(system, width)) if isinstance(part, np.ndarray))
    lanes = f"{width} lanes"
    measured = {lanes: time_phases(system, width, seconds), "doubles": time_phases(system, 1, seconds)}
    rows = limits(counts, machine, measured, system.n_bodies)
    sums = {
        name: sum(times[phase] for phase in phases)
        for (name, times), phases in zip(measured.items(), (TILE_PHASES, TIP), strict=True)
    }
    users = {name: evaluation(system, count, seconds) for name, count in ((lanes, width), ("doubles", 1))}
    rows += [total("sum", rows, sums), total("evaluation", rows, users)]
    text = f"{spec}: {size / 1024:.0f} KiB; per body\n\n{told(rows, lanes, 'doubles')}"
    return {"system": spec, "bytes": size, "rows": as_numbers(rows), "table": text}


def evaluation(system: System, lanes: int, seconds: float) -> float:
    """Time an evaluation as users get it, on this rank alone: ns per body."""
    return float(bench(system, MPI.COMM_SELF, seconds=5 * seconds, lanes=lanes)["ns_per_body_min"])


def main(
    systems: Sequence[str] = SYSTEMS,
    folder: Path = Path("results"),
    seconds: float = 0.05,
    comm: MPI.Comm = MPI.COMM_WORLD,
) -> dict[str, Any] | None:
    """Measure the machine, count and time each chain, print the tables and write them.

    Parameters
    ----------
    systems : sequence of str
        Generators of chains with one argument, as `mpimbs run` takes them.
    folder : Path
        Where limits.json goes.
    seconds : float
        Wall time for each phase (s).
    comm : MPI.Comm
        Its ranks all measure at once.

    Returns
    -------
    dict or None
        machine, all_ranks (its sum over the ranks), systems (system, bytes, rows, table); rank 0's.

    Raises
    ------
    InputError
        On all ranks: a system that is not a chain, or whose bodies can't be swept as one tile of lanes.
    """
    together(comm, lambda: [check(spec, native_width()) for spec in systems])
    first_on_node(comm, _compile)
    machine = measure_core(comm)
    whole = of_all_ranks(machine, comm)
    found = []
    for spec in systems:
        comm.Barrier()
        found.append(together(comm, lambda spec=spec: limits_of(spec, machine, seconds)))
    if comm.rank > 0:
        return None
    print("\n".join(describe(m) for m in ((machine, whole) if comm.size > 1 else (machine,))))
    for case in found:
        print(f"\n{case['table']}", flush=True)
    result = {"machine": asdict(machine), "all_ranks": asdict(whole), "systems": found}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "limits.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _compile() -> None:
    measure_core(runs=1)
    for lanes in (1, native_width()):
        time_phases(chain_of(SYSTEMS[0], lanes), lanes, 0.0)
        compile_kernels(lanes=lanes)


@click.command(help=__doc__)
@click.argument("systems", nargs=-1)
@click.option("--folder", type=Path, default=Path("results"), show_default=True)
@click.option("--seconds", type=float, default=0.05, show_default=True, help="Wall time for each phase, s.")
def _command(systems: tuple[str, ...], folder: Path, seconds: float) -> None:
    with abort_on_error(MPI.COMM_WORLD):
        main(systems or SYSTEMS, folder, seconds)


if __name__ == "__main__":
    _command()
