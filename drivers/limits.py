"""Where the time of an evaluation goes, against the limits of the machine: a table for each chain.

    python drivers/limits.py spatial_chain:1024 rope:1024 --folder results

Operations and bytes are counted by running the kernels uncompiled; the peak of a core and the bandwidth of its memories
are measured, as are the phases, in lanes and in doubles. With several ranks, all measure at once, each its own chain:
the figures are then those of a core among busy ones. The last row is an evaluation as `Dynamics` makes it. In doubles a
chain alone has but one handle, and neither boundary turn nor joins: its sum and its evaluation leave these out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
from mpi4py import MPI

from mpimbs.compiling import compile_kernels
from mpimbs.errors import InputError
from mpimbs.instruments.limits import as_numbers, describe, limits, markdown, total
from mpimbs.instruments.machine import Machine, measure_core, of_all_ranks
from mpimbs.instruments.phase_costs import counts_of_tile, time_phases
from mpimbs.instruments.phases import TILE_PHASES, TIP, arguments, flat
from mpimbs.model import System, system_from
from mpimbs.parallel.agreement import abort_on_error, first_on_node, together
from mpimbs.spatial.lanes import native_width
from mpimbs.study.bench import bench

SYSTEMS = ("spatial_chain:1024", "rope:1024")
SHORT, LONG = 68, 72  # bodies of the chains that are counted


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
    text = f"{spec}: {size / 1024:.0f} KiB; per body\n\n{markdown(rows, lanes, ['doubles'])}"
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
        time_phases(chain_of(SYSTEMS[0], lanes), lanes, 0.0, 1)
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
