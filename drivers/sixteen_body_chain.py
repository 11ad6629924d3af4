"""The sixteen-body chain of Duan & Anderson, section 5: five cases of cuts, checked against an independent reference.

    mpiexec -n 2 python drivers/sixteen_body_chain.py --coupling pcg --folder results

The cases have 0, 1, 3, 7 and 15 cuts, on any number of ranks: a rank owns several subchains where there are more cuts;
where there are fewer, the ranks left over wait. The reference is Pinocchio's articulated-body algorithm integrated by
scipy's DOP853, twice, with tolerances 1e-12 and 1e-13: the chain is chaotic, and where the two part the reference has
nothing more to say. Figures 9 and 10 of the paper are drawn from the case of 3 cuts, as there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from mpi4py import MPI

from laboratory.command import call, keep, show
from mpimbs.base.arrays import Floats
from mpimbs.model import system_from
from mpimbs.parallel.agreement import first_ranks
from mpimbs.plots.curves import new_figure, save
from mpimbs.plots.motions import draw_subchains
from mpimbs.plots.pictures import draw_coordinates, draw_energy, motion_of
from mpimbs.run.run import simulate

CASES = (0, 1, 3, 7, 15)  # cuts
DRAWN = 3
AGREEMENT = 1e-7  # rad: what a case must keep while the reference is converged
CONVERGED = 1e-8  # rad: the references agree so far
SHOWN = ("cuts", "ranks", "steps", "evaluations", "energy_change", "difference", "agrees")
HORIZON = 2.5  # how far the references are followed, in units of the simulated time


def reference(times: Floats, tolerance: float) -> Floats:
    """Joint angles [times, 16] (rad) of the chain by Pinocchio and DOP853; nothing of this package is used."""
    import pinocchio as pin
    from scipy.integrate import solve_ivp

    model = pin.Model()
    model.gravity.linear = np.array([0.0, -9.81, 0.0])
    body = pin.Inertia(1.0, np.array([0.0, -1.0, 0.0]), np.eye(3))
    joint = 0
    for k in range(16):
        place = pin.SE3(np.eye(3), np.array([0.0, -2.0 if k else 0.0, 0.0]))
        joint = model.addJoint(joint, pin.JointModelRZ(), place, f"joint{k + 1}")
        model.appendBodyToJoint(joint, body, pin.SE3.Identity())
    data = model.createData()
    start = np.concatenate([np.full(12, 0.1745), np.full(4, -0.1745), np.zeros(16)])

    def rate(t: float, y: Floats) -> Floats:
        return np.concatenate([y[16:], pin.aba(model, data, y[:16], y[16:], np.zeros(16))])

    solution = solve_ivp(rate, (0.0, times[-1]), start, "DOP853", times, rtol=tolerance, atol=tolerance)
    return solution.y[:16].T


def main(
    folder: Path = Path("results"),
    t_end: float = 10.0,
    tolerance: float = 1e-11,
    integrator: str = "dop853",
    coupling: str = "dcae",
    samples: int = 500,
    comm: MPI.Comm = MPI.COMM_WORLD,
) -> dict[str, Any] | None:
    """Run the cases and compare them with the reference.

    Parameters
    ----------
    folder : Path
        Where outputs, pictures and the table go.
    t_end : float
        Simulated time (s).
    tolerance : float
        Relative and absolute tolerance of the runs.
    integrator : str
        An adaptive integrator of `mpimbs run`.
    coupling : str
        What joins the subchains.
    samples : int
        How many are compared and drawn.
    comm : MPI.Comm
        Its ranks; a case uses the first of them, one for each subchain at the most.

    Returns
    -------
    dict or None
        The table, on rank 0.
    """
    if comm.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
    comm.Barrier()
    for cuts in CASES:
        with first_ranks(comm, cuts + 1) as part:
            if part is not None:
                simulate(
                    system_from("chain16"), t_end, part, integrator=integrator, rtol=tolerance, atol=tolerance,
                    every=t_end / samples, output=case_file(folder, cuts), force=True, poses=True, tip_ratio=1.0,
                    progress=True, coupling=coupling, cuts=cuts,
                )  # fmt: skip
    if comm.rank > 0:
        return None
    table = compare(folder)
    keep(folder / "sixteen_body_chain.json", table)
    draw(folder, DRAWN)
    until = table["reference_converged_until"]
    title = f"reference converged to {CONVERGED:g} rad until t = {until:.4g} s; cases end at t = {t_end:g} s"
    show(f"{title}; they agree to {AGREEMENT:g} rad", table["cases"], *SHOWN)
    return table


def case_file(folder: Path, cuts: int) -> Path:
    """Output file of a case."""
    return folder / f"chain16_{cuts}_cuts.h5"


def compare(folder: Path) -> dict[str, Any]:
    """Largest differences of the joint angles from the reference while it is converged, case by case."""
    with h5py.File(case_file(folder, CASES[0]), "r") as run:
        times = run["time"][:]
    longer = np.linspace(0.0, HORIZON * times[-1], 4 * len(times))[1:]
    longer = np.append(times, longer[longer > times[-1]])
    best, other = reference(longer, 1e-13), reference(longer, 1e-12)
    spread = np.abs(best - other).max(axis=1)
    until = int(np.argmax(np.append(spread, np.inf) > CONVERGED))
    converged, best = min(until, len(times)), best[: len(times)]
    figure, axes = new_figure("Sixteen-body chain: differences of joint angles", "time (s)", "largest difference (rad)")
    axes.semilogy(longer[1:], spread[1:], "k--", label="reference, tolerance 1e-12 against 1e-13")
    cases = []
    for cuts in CASES:
        with h5py.File(case_file(folder, cuts), "r") as run:
            difference = np.abs(run["q"][:] - best).max(axis=1)
            statistics, settings = (json.loads(run.attrs[name]) for name in ("statistics", "settings"))
        ranks = settings["ranks"]
        axes.semilogy(times[1:], difference[1:], label=f"{cuts} cuts, {ranks} ranks", lw=1.0)
        worst = float(difference[:converged].max())
        names = ("steps", "rejected", "evaluations", "energy_change", "seconds", "solutions")
        row = {
            "cuts": cuts,
            "ranks": ranks,
            "coupling": settings["coupling"],
            "difference": worst,
            "agrees": worst <= AGREEMENT,
        }
        cases.append(row | {name: statistics[name] for name in names})
    axes.axhline(AGREEMENT, color="tab:red", lw=0.8)
    axes.legend()
    save(figure, folder / "sixteen_body_chain_differences.png")
    return {"t_end": float(times[-1]), "reference_converged_until": float(longer[until - 1]), "cases": cases}


def draw(folder: Path, cuts: int) -> None:
    """Draw figures 9 and 10 of the paper and the energy, from a case."""
    motion = motion_of(case_file(folder, cuts))
    save(draw_coordinates(motion), folder / "figure9_coordinates.png")
    save(draw_energy(motion), folder / "sixteen_body_chain_energy.png")
    with h5py.File(case_file(folder, cuts), "r") as run:
        bounds = json.loads(run.attrs["settings"])["cuts"]
    save(draw_subchains(motion, bounds), folder / "figure10_motion.png")


if __name__ == "__main__":
    table = call(main)
    sys.exit(table is not None and not all(row["agrees"] for row in table["cases"]))
