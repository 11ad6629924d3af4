"""Relative error of the accelerations against extended precision: couplings, shapes, lengths, numbers of ranks.

    mpiexec -n 16 python drivers/accuracy.py --folder results
    mpiexec -n 4 python drivers/accuracy.py spatial_chain:16384 --couplings dcae --shapes bent

The reference is the package's serial sweep, uncompiled, in numbers of 40 digits: it shows the rounding of each
coupling, not a mistake in the equations, which the tests look for with other programs. Speeds and forces are drawn at
random; chains are straight, bent at random, or folded like a rule; "resting" ones are folded, at rest, under their
weight alone. The divide and conquer over single bodies (dca) is known to lose digits in long chains [Critchley 2007,
p. 4].
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from laboratory.command import call, keep
from laboratory.extended import ExtendedSweeps
from mpimbs.base.errors import InputError
from mpimbs.bench.accuracy import SHAPES, accelerations, relative_error, shaped_state
from mpimbs.bench.predict.calibration import powers_of_two
from mpimbs.coupling import COUPLINGS
from mpimbs.model import system_from
from mpimbs.parallel.agreement import first_ranks, together
from mpimbs.plots.curves import new_figure, save

SYSTEMS = tuple(f"{kind}:{n}" for kind in ("chain", "spatial_chain") for n in (16, 64, 256, 1024, 4096))


def main(
    systems: Sequence[str] = SYSTEMS,
    folder: Path = Path("results"),
    couplings: Sequence[str] = tuple(COUPLINGS),
    shapes: Sequence[str] = SHAPES,
    comm: MPI.Comm = MPI.COMM_WORLD,
) -> list[dict[str, Any]] | None:
    """Compare each coupling with extended precision, on 1, 2, 4, ... ranks.

    Parameters
    ----------
    systems : sequence of str
        As `mpimbs run` takes them.
    folder : Path
        Where accuracy.json and accuracy.png go.
    couplings, shapes : sequence of str
    comm : MPI.Comm
        Its ranks; a case uses the first of them.

    Returns
    -------
    list of dict or None
        system, bodies, shape, coupling, ranks, error (largest difference over the largest acceleration); on rank 0.

    Raises
    ------
    InputError
        On all ranks: an unknown coupling, shape or system.
    """
    together(comm, lambda: check(couplings))
    counts = powers_of_two(comm.size)
    rows = []
    for spec in systems:
        system = together(comm, lambda spec=spec: system_from(spec))
        for shape in shapes:
            state = together(comm, lambda system=system, shape=shape: shaped_state(system.contents, shape))
            exact = np.zeros(0)
            with first_ranks(comm, 1) as alone:
                if alone is not None:
                    sweeps = ExtendedSweeps(system.contents, state.q, state.u)
                    exact = sweeps.accelerations(state.tau).astype(np.float64)
            for count in (count for count in counts if count <= system.n_bodies):
                with first_ranks(comm, count) as part:
                    for coupling in couplings if part is not None else ():
                        udot = accelerations(system.contents, state, part, coupling)
                        if comm.rank == 0:
                            error = relative_error(udot, exact)
                            case = {"system": spec, "bodies": system.n_bodies, "shape": shape}
                            rows.append({**case, "coupling": coupling, "ranks": count, "error": error})
                            print(f"{spec:20s} {shape:9s} {coupling:13s} {count:3d} ranks  {error:.1e}", flush=True)
    if comm.rank > 0:
        return None
    keep(folder / "accuracy.json", rows)
    draw(rows, folder / "accuracy.png")
    return rows


def check(couplings: Sequence[str]) -> None:
    """Refuse couplings that there are none of."""
    for name in couplings:
        if name not in COUPLINGS:
            raise InputError(f"unknown coupling '{name}'; choose of: {', '.join(COUPLINGS)}")


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the largest error over the numbers of ranks against the bodies: a curve for each coupling, kind, shape."""
    figure, axes = new_figure(
        "rounding of the accelerations, the worst of all numbers of ranks", "bodies", "relative error"
    )
    colours = {name: f"C{k}" for k, name in enumerate(COUPLINGS)}
    styles = {"straight": ":", "bent": "--", "folded": "-.", "resting": "-"}
    cases: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in rows:
        worst = cases.setdefault((row["coupling"], row["shape"], row["system"].partition(":")[0]), {})
        worst[row["bodies"]] = max(worst.get(row["bodies"], 1e-17), row["error"])
    for (coupling, shape, kind), worst in cases.items():
        marker = "o" if kind.startswith("spatial") else "s"
        axes.loglog(
            list(worst), list(worst.values()), styles[shape], color=colours[coupling], marker=marker, ms=4,
            label=f"{coupling}, {kind}, {shape}",
        )  # fmt: skip
    figure.legend(loc="outside right upper", fontsize=6)
    save(figure, path)


if __name__ == "__main__":
    call(main)
