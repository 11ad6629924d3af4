"""An evaluation of a chain against the limits of the machine: in lanes, and in doubles.

    python drivers/limits.py spatial_chain:1024 rope:1024 --folder results

Operations are counted by running the kernels uncompiled; the peak of a core and the bandwidth of its memories are
measured, as is an evaluation. It can't take less than its instructions at the rate of fused multiply-adds, nor less
than it takes to read or write once each number that it works on. The larger of the two is its limit. In doubles a chain
alone has but one handle, and no joins of lanes, which are not counted. With several ranks, all measure at once, each
its own chain: the figures are then those of a core among busy ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from laboratory.command import call, keep
from laboratory.counting import Counts
from laboratory.machine import Machine, measure_core
from laboratory.sweeps import PIECE, TIP, chain, counts_per_body, flat
from mpimbs.base.errors import InputError
from mpimbs.bench.bench import bench
from mpimbs.dynamics.compiling import compile_kernels
from mpimbs.model import System, system_from
from mpimbs.parallel.agreement import first_on_node, together
from mpimbs.plots.tables import markdown

SYSTEMS = ("spatial_chain:1024", "rope:1024")
SHORT, LONG = 4, 8  # bodies of the chains that are counted


def chain_of(spec: str, bodies: int | None = None) -> System:
    """Make the chain that a text such as "rope:1024" names, or one of the same kind with another number of bodies."""
    name, _, count = spec.partition(":")
    system = system_from(f"{name}:{count if bodies is None else bodies}")
    if not system.contents.is_chain:
        raise InputError(f"'{spec}' is not a chain; name one such as {SYSTEMS[0]}")
    return system


def limits_of(spec: str, machine: Machine, seconds: float) -> list[dict[str, Any]]:
    """Count and time one chain, in lanes and in doubles; all figures are per body."""
    system = chain_of(spec)
    n = system.n_bodies
    counts = counts_per_body(chain_of(spec, SHORT).contents, chain_of(spec, LONG).contents)
    size = sum(part.nbytes for part in flat(chain(system.contents)) if isinstance(part, np.ndarray))
    rows = []
    for lanes, sweeps in ((machine.width, PIECE), (1, TIP)):
        total = sum((counts[name] for name in sweeps), Counts())
        least = machine.least_time(total.instructions * n, size, lanes > 1) / n
        figures = bench(system, MPI.COMM_SELF, seconds=seconds, lanes=lanes)
        row = {"system": spec, "lanes": figures["lanes"], "operations": total.operations, "bytes": size / n}
        took = figures["ns_per_body_min"]
        rows.append(row | {"level": machine.level(size), "ns_limit": least, "ns": took, "share": least / took})
    return rows


def main(
    systems: Sequence[str] = SYSTEMS,
    folder: Path = Path("results"),
    seconds: float = 0.5,
    comm: MPI.Comm = MPI.COMM_WORLD,
) -> dict[str, Any] | None:
    """Measure the machine, count and time each chain, print the table and write it.

    Parameters
    ----------
    systems : sequence of str
        Generators of chains with one argument, as `mpimbs run` takes them.
    folder : Path
        Where limits.json goes.
    seconds : float
        Wall time of each measurement of an evaluation (s).
    comm : MPI.Comm
        Its ranks all measure at once.

    Returns
    -------
    dict or None
        machine, rows (of each system in lanes and in doubles: system, lanes, operations, bytes, level of memory that
        holds these, ns_limit, ns, share of the limit that is reached; per body); rank 0's.

    Raises
    ------
    InputError
        On all ranks: a system that is not a chain.
    """
    together(comm, lambda: [chain_of(spec) for spec in systems])
    first_on_node(comm, lambda: (measure_core(0.0), compile_kernels()))
    comm.Barrier()
    machine = measure_core()
    rows = []
    for spec in systems:
        comm.Barrier()
        rows += together(comm, lambda spec=spec: limits_of(spec, machine, seconds))
    if comm.rank > 0:
        return None
    rates = ", ".join(f"{level} {rate:.0f}" for level, rate in machine.bandwidth.items())
    print(
        f"a core{'' if comm.size == 1 else f' of {comm.size} busy ones'}: {machine.lanes:.1f} GFLOP/s of multiply-adds "
        f"in registers of {machine.width} doubles, {machine.doubles:.1f} on single doubles; GB/s: {rates}\n"
    )
    print(markdown([{name: f"{x:.3g}" if isinstance(x, float) else str(x) for name, x in row.items()} for row in rows]))
    result = {"machine": asdict(machine), "rows": rows}
    keep(folder / "limits.json", result)
    return result


if __name__ == "__main__":
    call(main)
