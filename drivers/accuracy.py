"""Relative error of the accelerations against extended precision, for any systems and numbers of ranks.

    mpiexec -n 4 python drivers/accuracy.py spatial_chain:16 spatial_chain:1024 --folder results

The reference is the package's serial sweep, uncompiled, in numbers of 40 digits: it shows the rounding of each number
of ranks, not a mistake in the equations, which the tests look for with other programs. States are moving ones, drawn
at random.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.dynamics import Dynamics
from mpimbs.model import System, system_from
from mpimbs.parallel.agreement import abort_on_error
from mpimbs.study.extended import ExtendedSweeps

Floats = npt.NDArray[np.float64]
SYSTEMS = ("spatial_chain:16", "spatial_chain:1024", "spatial_chain:16384")


def moving_state(system: System) -> tuple[Floats, Floats, Floats]:
    """A state in which everything moves: the model's q, bent further by up to 0.3 rad, with random u and tau."""
    draw = np.random.default_rng(16)
    columns = system.columns()
    q = columns.q.copy()
    single = np.isin(np.arange(system.nq), system.offsets()[0][:-1][np.diff(system.offsets()[0]) == 1])
    q[single] += draw.uniform(-0.3, 0.3, int(single.sum()))
    return q, draw.normal(size=system.nu), draw.normal(size=system.nu)


def main(
    systems: Sequence[str] = SYSTEMS, folder: Path = Path("results"), comm: MPI.Comm = MPI.COMM_WORLD
) -> list[dict[str, Any]] | None:
    """Compare each system on 1, 2, 4, ... ranks with extended precision.

    Parameters
    ----------
    systems : sequence of str
        As `mpimbs run` takes them.
    folder : Path
        Where the table goes.
    comm : MPI.Comm
        Its ranks; a case uses the first of them.

    Returns
    -------
    list of dict or None
        system, ranks, error (largest difference over the largest acceleration); on rank 0.
    """
    counts = [2**k for k in range(comm.size.bit_length()) if 2**k <= comm.size]
    rows = []
    for spec in systems:
        system = system_from(spec)
        q, u, tau = moving_state(system)
        exact = None
        if comm.rank == 0:
            exact = np.array([float(x) for x in ExtendedSweeps(system, q, u).accelerations(tau)])
        for count in counts:
            part = comm.Split(0 if comm.rank < count else MPI.UNDEFINED)
            if part != MPI.COMM_NULL:
                dynamics = Dynamics(system, part)
                mine = dynamics.gather_u.part
                udot = dynamics.gather_u(dynamics.accelerations(q[dynamics.gather_q.part], u[mine], tau[mine]))
                if exact is not None and udot is not None:
                    error = float(np.abs(udot - exact).max() / np.abs(exact).max())
                    rows.append({"system": spec, "ranks": count, "error": error})
                    print(f"{spec:24s} {count:3d} ranks   {error:.1e}", flush=True)
                dynamics.close()
                part.Free()
            comm.Barrier()
    if comm.rank > 0:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "accuracy.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return rows


@click.command(help=__doc__)
@click.argument("systems", nargs=-1)
@click.option("--folder", type=Path, default=Path("results"), show_default=True)
def _command(systems: tuple[str, ...], folder: Path) -> None:
    with abort_on_error(MPI.COMM_WORLD):
        main(systems or SYSTEMS, folder)


if __name__ == "__main__":
    _command()
