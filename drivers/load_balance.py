"""Load balance and timings of the divide and conquer: figures 7 and 8 of Critchley, Anderson & Binani, measured here.

    mpiexec -n 2 python drivers/load_balance.py --folder results

Figure 7: time of an evaluation against the share of bodies on the terminal subsystem, the last rank's, on as many
ranks as are started; for DCAe in lanes and as the paper has it, one body after the other, and for the DCA whose
terminal subsystem alone is swept. The optimum is put beside the share that is the default. Figure 8: 200 consecutive
evaluations of chains of 128, 256 and 1024 bodies by each algorithm, on 1, 2, 4, ... ranks.

The paper's machine had four processors. Where this one has fewer cores, figure 7 has a curve for four ranks that is
put together from its parts, and says so: the shares of an inner rank and of the last one, each timed alone, the slower
of them, and the joins. In figure 8 ranks beyond the cores are timed all the same, and marked: their times say nothing
about speed-up.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from laboratory.command import call, keep, show
from mpimbs.base.errors import InputError
from mpimbs.bench.bench import bench
from mpimbs.bench.predict.calibration import Calibration, Share
from mpimbs.bench.speedup import cores_of, default_ranks
from mpimbs.coupling import coupling_named
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.compiling import compile_evaluations
from mpimbs.model import System, system_from
from mpimbs.parallel.agreement import first_ranks, together
from mpimbs.plots.curves import new_figure, save

SIZES = (128, 256, 1024)
SOLVES = 200
PARTS = 4  # ranks of the curves that are put together, where there are fewer cores
SHARES = (0.05, 0.2, 0.35, 0.45, 0.5, 0.55, 0.6, 0.65, 0.75, 0.85, 0.92, 0.96, 0.98)
PAPER = {2: 0.75, 4: 0.5}  # optimal share on the terminal subsystem [Critchley 2007, figure 7]


class Algorithm(NamedTuple):
    """A coupling, and in how many lanes; None for the default."""

    name: str
    coupling: str
    lanes: int | None


ALGORITHMS = (
    Algorithm("DCAe, lanes", "dcae", None),
    Algorithm("DCAe", "dcae", 1),
    Algorithm("DCA, terminal O(n)", "dca-terminal", 1),
    Algorithm("DCA", "dca", None),
)


def main(
    folder: Path = Path("results"),
    sizes: Sequence[int] = SIZES,
    shares: Sequence[float] = SHARES,
    kind: str = "spatial_chain",
    seconds: float = 0.2,
    comm: MPI.Comm = MPI.COMM_WORLD,
) -> dict[str, Any] | None:
    """Measure both figures, and write table and pictures.

    Parameters
    ----------
    folder : Path
        Where load_balance.json and the pictures go.
    sizes : sequence of int
        Bodies of the chains; figure 7 is that of the last.
    shares : sequence of float
        Of the bodies on the last rank.
    kind : str
        Generator of the chains.
    seconds : float
        Wall time for each point of figure 7 (s).
    comm : MPI.Comm
        Its ranks.

    Returns
    -------
    dict or None
        balance: rows (algorithm, ranks, share, us_min), optima (algorithm, ranks, share, us_min, default_share,
        default_us_min, paper); timings: rows (algorithm, ranks, bodies, ms, oversubscribed); on rank 0.

    Raises
    ------
    InputError
        On all ranks: shares that are none, too few bodies.
    """
    together(comm, lambda: check(sizes, shares, comm.size))
    cores = cores_of(comm)
    counts = default_ranks(comm.size)
    chains = [system_from(f"{kind}:{n}") for n in sizes]
    balance, optima = [], []
    for ranks in (count for count in counts if count > 1):
        with first_ranks(comm, ranks) as part:
            if part is not None:
                for algorithm in ALGORITHMS[:3]:
                    rows, optimum = measure_balance(chains[-1], algorithm, shares, seconds, part)
                    balance += rows
                    optima.append({**optimum, "paper": PAPER.get(ranks), "oversubscribed": ranks > cores})
    if max(cores, comm.size) < PARTS:
        with first_ranks(comm, 1) as part:
            if part is not None:
                for algorithm in ALGORITHMS[:3]:
                    rows, optimum = compose_balance(chains[-1], algorithm, shares, seconds, PARTS)
                    balance += rows
                    optima.append({**optimum, "paper": PAPER.get(PARTS), "oversubscribed": False})
    timings = []
    for ranks in counts:
        with first_ranks(comm, ranks) as part:
            if part is not None:
                for chain in chains:
                    for algorithm in ALGORITHMS:
                        ms = 1e3 * time_solves(chain, algorithm, part)
                        row = {"algorithm": algorithm.name, "ranks": ranks, "bodies": chain.n_bodies, "ms": ms}
                        timings.append({**row, "oversubscribed": ranks > cores})
    if comm.rank > 0:
        return None
    table = {"kind": kind, "cores": cores, "balance": balance, "optima": optima, "timings": timings}
    keep(folder / "load_balance.json", table)
    show("share of the bodies on the terminal subsystem: the best beside the default; the paper's optimum", optima)
    show(f"ms of {SOLVES} consecutive evaluations; oversubscribed: more ranks than cores", timings)
    if balance:
        draw_balance(table, chains[-1].n_bodies, folder)
    draw_timings(table, folder)
    return table


def check(sizes: Sequence[int], shares: Sequence[float], ranks: int) -> None:
    """Refuse shares that are none, and chains with fewer bodies than ranks."""
    if not shares or not all(0.0 < share < 1.0 for share in shares):
        raise InputError(f"shares of the bodies lie between 0 and 1, got {', '.join(map(str, shares))}")
    if not sizes or min(sizes) < 4 * ranks:
        raise InputError(f"chains of {min(sizes, default=0)} bodies on {ranks} ranks: give each rank four at least")


def ratio_of(share: float, ranks: int) -> float:
    """How many times more bodies the last rank gets than another, for its share of all."""
    return share * (ranks - 1) / (1.0 - share)


def measure_balance(
    chain: System, algorithm: Algorithm, shares: Sequence[float], seconds: float, comm: MPI.Comm
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Time an evaluation for each share on the last rank, and for the default: rows, the best beside the default."""
    rows = []
    for share in (None, *shares):
        ratio = None if share is None else ratio_of(share, comm.size)
        figures = bench(chain, comm, algorithm.coupling, seconds, tip_ratio=ratio, lanes=algorithm.lanes)
        with closing(Dynamics(chain, comm, algorithm.coupling, tip_ratio=ratio, lanes=algorithm.lanes)) as dynamics:
            got = float(dynamics.divided.cuts[-1] - dynamics.divided.cuts[-2]) / chain.n_bodies
        rows.append({"algorithm": algorithm.name, "ranks": comm.size, "share": got, "us_min": figures["us_min"]})
    return _with_best(rows)


def _with_best(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows but the first, which is that of the default; and the best of them beside the default."""
    default, chosen = rows[0], rows[1:]
    best = min(chosen, key=lambda row: row["us_min"])
    return chosen, {**best, "default_share": default["share"], "default_us_min": default["us_min"]}


def compose_balance(
    chain: System, algorithm: Algorithm, shares: Sequence[float], seconds: float, ranks: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Put the same together for ranks that there are no cores for, from the shares of an inner rank and of the last."""
    strategy = coupling_named(algorithm.coupling)
    joins = (ranks - 1).bit_length() * Calibration(chain.contents).join(algorithm.coupling)
    rows = []
    for share in (None, *shares):
        ratio = None if share is None else ratio_of(share, ranks)
        division = strategy.divide(chain.contents, ranks, None, ratio, algorithm.lanes)
        parts = []
        for number in (ranks // 2, ranks - 1):
            with closing(Share(chain.contents, division, number, algorithm.coupling)) as part:
                compile_evaluations(part)
                parts.append(sum(part.time(seconds)))
        got = float(division.cuts[-1] - division.cuts[-2]) / chain.n_bodies
        us = 1e6 * (max(parts) + joins)
        rows.append({"algorithm": f"{algorithm.name}, from parts", "ranks": ranks, "share": got, "us_min": us})
    return _with_best(rows)


def time_solves(chain: System, algorithm: Algorithm, comm: MPI.Comm, runs: int = 7) -> float:
    """Seconds of `SOLVES` consecutive evaluations, the least of some runs, of the slowest rank."""
    with closing(Dynamics(chain, comm, algorithm.coupling, lanes=algorithm.lanes)) as dynamics:
        compile_evaluations(dynamics)
        dynamics.derivative.timed = False
        q = dynamics.subchain.q
        u = 0.1 * np.sin(np.arange(chain.nu))[dynamics.gather_u.part]
        udot, rates = np.empty(len(u)), np.empty(len(q))
        times = []
        for _ in range(runs):
            comm.Barrier()
            began = time.perf_counter()
            for _ in range(SOLVES):
                dynamics.derivative(0.0, q, u, udot, rates)
            times.append(comm.allreduce(time.perf_counter() - began, MPI.MAX))
    return min(times)


def draw_balance(table: dict[str, Any], bodies: int, folder: Path) -> None:
    """Draw figure 7."""
    figure, axes = new_figure(f"{table['kind']}:{bodies}", "share of the bodies on the last rank, %", "us (minimum)")
    for name, ranks in dict.fromkeys((row["algorithm"], row["ranks"]) for row in table["balance"]):
        rows = [row for row in table["balance"] if (row["algorithm"], row["ranks"]) == (name, ranks)]
        axes.plot(
            [100 * r["share"] for r in rows], [r["us_min"] for r in rows], "o-", ms=4, label=f"{name}, {ranks} ranks"
        )
    axes.set_yscale("log")
    axes.legend(fontsize="small")
    save(figure, folder / "load_balance_figure7.png")


def draw_timings(table: dict[str, Any], folder: Path) -> None:
    """Draw figure 8: bars for each algorithm and number of ranks, in groups of the same chain."""
    figure, axes = new_figure(f"{table['kind']}: {SOLVES} consecutive evaluations", "bodies", "ms")
    rows = [row for row in table["timings"] if not row["oversubscribed"]]
    sizes = list(dict.fromkeys(row["bodies"] for row in rows))
    cases = list(dict.fromkeys((row["algorithm"], row["ranks"]) for row in rows))
    width = 0.8 / len(cases)
    for number, (name, ranks) in enumerate(cases):
        heights = [
            next(r["ms"] for r in rows if (r["algorithm"], r["ranks"], r["bodies"]) == (name, ranks, n)) for n in sizes
        ]
        places = np.arange(len(sizes)) - 0.4 + (number + 0.5) * width
        axes.bar(places, heights, width, label=f"{name}, {ranks} {'rank' if ranks == 1 else 'ranks'}")
    axes.set_xticks(np.arange(len(sizes)), [str(n) for n in sizes])
    axes.set_yscale("log")
    axes.legend(fontsize="small")
    save(figure, folder / "load_balance_figure8.png")


if __name__ == "__main__":
    call(main)
