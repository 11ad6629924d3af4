"""What output and checkpoints cost: written by all ranks at once, and through rank 0.

    mpiexec -n 2 python drivers/output_costs.py --folder results

Checkpoints of several sizes are timed by themselves, flush to the disk included. Samples are those of a simulation with
one after every step of one evaluation, into a file; their time has the energies in it, and the flush to the disk at the
end. Memory is the most that a rank has had, above what it had after a short run.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
from mpi4py import MPI

from mpimbs import simulate
from mpimbs.base.sizes import tuned, using
from mpimbs.files import checkpoint
from mpimbs.model import system_from
from mpimbs.parallel.agreement import abort_on_error
from mpimbs.plots.tables import write_tables

WAYS = {"all ranks": 1, "rank 0": 2**39}  # bytes from which on every rank writes its own
STEP = 1e-4  # s


@contextmanager
def written_by(way: str) -> Iterator[None]:
    """Have all ranks write, or rank 0 alone."""
    with using(replace(tuned(), sample_bytes=WAYS[way], checkpoint_bytes=WAYS[way])):
        yield


def checkpoint_costs(comm: MPI.Comm, folder: Path, numbers: int, repeats: int) -> list[dict[str, object]]:
    """Time checkpoints of so many coordinates and as many speeds, in turns."""
    share = numbers * (comm.rank + 1) // comm.size - numbers * comm.rank // comm.size
    vectors = {name: np.random.default_rng(comm.rank).random(share) for name in ("q", "u")}
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(repeats):
        for way in WAYS:
            with written_by(way):
                comm.Barrier()
                began = time.perf_counter()
                reason = checkpoint.write_checkpoint(
                    folder / "costs.checkpoint.h5", 2, {"name": "costs", "time": 0.0}, vectors, comm
                )
                times[way].append(time.perf_counter() - began)
                if reason is not None:
                    raise RuntimeError(reason)
    return [
        {"coordinates": numbers, "written by": way, "minimum_ms": 1e3 * min(values),
         "median_ms": 1e3 * statistics.median(values)}
        for way, values in times.items()
    ]  # fmt: skip


def sample_costs(comm: MPI.Comm, folder: Path, bodies: int, samples: int, way: str) -> dict[str, object]:
    """Simulate with a sample after every step, and give time and memory."""
    system = system_from(f"spatial_chain:{bodies}")
    before = memory()
    with written_by(way):
        began = time.perf_counter()
        result = simulate(
            system, samples * STEP, comm, integrator="petsc:1fe", dt=STEP, every=STEP,
            output=folder / "costs.h5", force=True, progress=True,
        )  # fmt: skip
        whole = time.perf_counter() - began
    size = (folder / "costs.h5").stat().st_size if comm.rank == 0 else 0
    grown = comm.allreduce(memory() - before, MPI.MAX)
    output = comm.allreduce(result.seconds["output"], MPI.MAX)
    return {"bodies": bodies, "samples": samples, "written by": way, "output_s": output, "ms_per_sample":
            1e3 * output / samples, "run_s": whole, "file_MB": size / 1e6, "memory_MB": grown / 1e6}  # fmt: skip


def memory() -> int:
    """Largest memory of this process so far (bytes)."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def table(rows: list[dict[str, object]]) -> str:
    """The rows as text."""
    cells = [list(rows[0])] + [[f"{x:.3g}" if isinstance(x, float) else str(x) for x in row.values()] for row in rows]
    widths = [max(len(row[k]) for row in cells) for k in range(len(cells[0]))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)


def main(
    comm: MPI.Comm,
    folder: Path,
    numbers: tuple[int, ...] = (100, 10**4, 10**6, 10**7),
    bodies: int = 10**5,
    samples: int = 1000,
    repeats: int = 10,
) -> dict[str, object]:
    """Measure both, write the tables, and return them; all ranks call."""
    if comm.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
    comm.Barrier()
    checkpoints = [row for count in numbers for row in checkpoint_costs(comm, folder, count, repeats)]
    sample_costs(comm, folder, bodies, 3, "all ranks")  # compiles, and brings memory up
    rows = [sample_costs(comm, folder, bodies, samples, way) for way in WAYS]
    found: dict[str, object] = {"ranks": comm.size, "checkpoints": checkpoints, "samples": rows}
    if comm.rank == 0:
        for file in (*folder.glob("costs.checkpoint*.h5"), folder / "costs.h5"):
            file.unlink()
        write_tables(folder, "output_costs", found, checkpoints, list(checkpoints[0]))
        print(f"{table(checkpoints)}\n\n{table(rows)}")
    return found


@click.command()
@click.option("--folder", type=Path, default="results", show_default=True)
@click.option("--bodies", type=int, default=10**5, show_default=True)
@click.option("--samples", type=int, default=1000, show_default=True)
@click.option("--repeats", type=int, default=10, show_default=True, help="Checkpoints of each size and way.")
def command(folder: Path, bodies: int, samples: int, repeats: int) -> None:
    """Time output and checkpoints, written by all ranks and by rank 0."""
    with abort_on_error(MPI.COMM_WORLD):
        main(MPI.COMM_WORLD, folder, bodies=bodies, samples=samples, repeats=repeats)


if __name__ == "__main__":
    command()
