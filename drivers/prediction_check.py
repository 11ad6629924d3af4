"""Predicted against measured times of one evaluation, on the ranks that this is started with (two at least).

    mpiexec -n 2 python drivers/prediction_check.py

The cluster is the machine at hand, its messages measured between two ranks; computing is timed on one core. Measured
are 1 rank and all ranks: the least time of an evaluation. No number of the comparison enters the prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpi4py import MPI

from laboratory.command import call, keep, show
from mpimbs.bench.bench import bench
from mpimbs.bench.predict.calibration import SECONDS, Calibration
from mpimbs.bench.predict.cluster import measure_here
from mpimbs.bench.predict.predict import predict
from mpimbs.files.output_layout import versions
from mpimbs.model import system_from
from mpimbs.parallel.agreement import first_ranks, together
from mpimbs.plots.tables import host

SYSTEMS = ("spatial_chain:1024", "spatial_chain:16384", "rope:1024")
COUPLINGS = ("dcae",)


def main(
    systems: Sequence[str] = SYSTEMS,
    couplings: Sequence[str] = COUPLINGS,
    folder: Path = Path("results"),
    rounds: int = 3,
    seconds: float = 0.4,
    share_seconds: float = 2 * SECONDS,
    comm: MPI.Comm = MPI.COMM_WORLD,
) -> dict[str, Any] | None:
    """Measure and predict each system with each coupling, print the table and write it.

    Parameters
    ----------
    systems : sequence of str
        Chains, as `mpimbs bench` takes them.
    couplings : sequence of str
    folder : Path
        Where prediction_check.json goes.
    rounds : int
        Measurements and predictions take turns so often, and the least of each counts: a slow moment meets both.
    seconds : float
        Wall time of each measurement (s).
    share_seconds : float
        Wall time for each share that is timed for a prediction (s).
    comm : MPI.Comm
        Two ranks at least.

    Returns
    -------
    dict or None
        rows (system, coupling, ranks, measured_us, predicted_us, error), cluster, machine, versions; rank 0's.

    Raises
    ------
    InputError
        On all ranks: one rank only, an unknown system or coupling.
    """
    cluster = measure_here(comm)
    rows: list[dict[str, Any]] = []
    for spec in systems:
        system = together(comm, lambda spec=spec: system_from(spec))
        for coupling in couplings:
            found = []
            for _ in range(rounds):
                many = float(bench(system, comm, coupling, seconds)["us_min"])
                with first_ranks(comm, 1) as alone:
                    if alone is not None:
                        one = float(bench(system, alone, coupling, seconds)["us_min"])
                        known = Calibration(system.contents, share_seconds)
                        said = predict(system.contents, (1, comm.size), cluster, coupling, known)
                        found.append([one, many, *(1e6 * prediction.seconds for prediction in said)])
            if comm.rank == 0:
                least = [min(column) for column in zip(*found, strict=True)]
                rows += [row(spec, coupling, *case) for case in zip((1, comm.size), least[:2], least[2:], strict=True)]
    if comm.rank > 0:
        return None
    link = cluster.between_nodes
    show(f"messages: {1e6 * link.end_to_end:.3f} us and {1e9 / link.bandwidth:.3f} ns per byte", rows)
    result = {"rows": rows, "cluster": cluster.model_dump(), "machine": host(), "versions": versions()}
    keep(folder / "prediction_check.json", result)
    return result


def row(spec: str, coupling: str, ranks: int, measured: float, predicted: float) -> dict[str, Any]:
    """Set a prediction beside its measurement (us)."""
    return {
        "system": spec, "coupling": coupling, "ranks": ranks, "measured_us": measured, "predicted_us": predicted,
        "error": predicted / measured - 1.0,
    }  # fmt: skip


if __name__ == "__main__":
    call(main)
