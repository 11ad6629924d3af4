"""How fast stiff lines are followed: against PyElastica, against explicit steps, and with a million links.

    pip install pyelastica
    python drivers/stiff_speeds.py --folder results pendulum         a flexible pendulum, beside PyElastica
    python drivers/stiff_speeds.py --folder results rope             a rope of steel, by implicit and explicit steps
    mpiexec -n 2 python drivers/stiff_speeds.py --folder results long    steps of 10^3 to 10^6 links, on 1 .. n ranks

All of a table is measured in one run. Each is printed, and written as stiff_NAME.json and .tsv.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.errors import InputError
from mpimbs.dynamics import Dynamics
from mpimbs.model import System
from mpimbs.plots.tables import host, markdown, write_tables
from mpimbs.run.result import Result
from mpimbs.run.run import simulate
from mpimbs.stepping.integrators import make_integrator
from mpimbs.stepping.schemes import Accuracy

Floats = npt.NDArray[np.float64]
Rows = list[dict[str, Any]]
Settings = dict[str, Any]


def tip(angles: Floats, length: float) -> Floats:
    """Where a line of some length (m) in a plane ends [samples, 2], m, of the angles of its joints [samples, links]."""
    turned = np.cumsum(angles, axis=1)
    found: Floats = length * np.stack((np.cos(turned).mean(axis=1), np.sin(turned).mean(axis=1)), 1)
    return found


def farthest(found: Floats, right: Floats) -> float:
    """Largest distance of places [samples, 2]."""
    return float(np.linalg.norm(found - right, axis=1).max())


def stepping(result: Result) -> float:
    """Wall time without set-up (s)."""
    return sum(result.seconds[part] for part in ("sweep", "coupling", "communication", "integration", "output"))


# --- beside PyElastica ------------------------------------------------------------------------------------------------

PENDULUM = {"length": 1.0, "diameter": 0.01, "density": 1100.0, "youngs_modulus": 5e6}
GRAVITY = 9.80665


def elastica(n: int, t_end: float, samples: int, stiffer: float = 1.0) -> tuple[Floats, int, float]:
    """Let PyElastica swing the pendulum: places of its tip [samples, 2], steps, and seconds after the first step.

    `stiffer`: how many times less it stretches and shears than its material.
    """
    try:
        import elastica as ea
    except ImportError:
        raise InputError("PyElastica is not installed: pip install 'mpimbs[peers]'") from None

    class Simulator(ea.BaseSystemCollection, ea.Constraints, ea.Forcing):  # type: ignore[misc]
        pass

    class Hinge(ea.ConstraintBase):  # type: ignore[misc]
        def constrain_values(self, system: Any, time: float) -> None:
            system.position_collection[..., 0] = 0.0

        def constrain_rates(self, system: Any, time: float) -> None:
            system.velocity_collection[..., 0] = 0.0

    simulator, length, modulus = Simulator(), PENDULUM["length"], PENDULUM["youngs_modulus"]
    rod = ea.CosseratRod.straight_rod(
        n, np.zeros(3), np.array([1.0, 0, 0]), np.array([0, 0, 1.0]), length, PENDULUM["diameter"] / 2,
        PENDULUM["density"], youngs_modulus=modulus, shear_modulus=modulus / 1.5,
    )  # fmt: skip
    rod.shear_matrix *= stiffer
    simulator.append(rod)
    simulator.constrain(rod).using(Hinge, constrained_position_idx=(0,))
    simulator.add_forcing_to(rod).using(ea.GravityForces, acc_gravity=np.array([0, -GRAVITY, 0]))
    simulator.finalize()
    stepper, between = ea.PositionVerlet(), round(t_end / samples / (0.002 * length / n) * stiffer**0.5)
    dt, t, found = np.float64(t_end / samples / between), np.float64(0.0), np.zeros((samples, 2))
    begun = 0.0
    for sample in range(samples):
        for _ in range(between):
            t = stepper.step(simulator, t, dt)
            begun = begun or perf_counter()  # the first one compiles
        found[sample] = rod.position_collection[:2, -1]
    return found, samples * between, perf_counter() - begun


def pendulum(links: int = 50, t_end: float = 1.0, samples: int = 50, stiffer: float = 25.0) -> Rows:
    """Swing PyElastica's flexible pendulum, from the horizontal, by its steps and by ours.

    It stretches, our links don't: a second one that stretches `stiffer` times less shows that the motion is the same;
    a third of four times as many elements how far it is from its own limit. Errors are of the tip: of ours against our
    own steps of 1e-8. Set-up is not counted.
    """
    system = System("pendulum", gravity=(0, -GRAVITY, 0))
    system.add_rod(name="rod", count=links, joint="revolute", **PENDULUM)
    ways: dict[str, Settings] = {
        "dopri5, 1e-8": {"rtol": 1e-8, "atol": 1e-8},
        "ra34pw2, 2 ms": {"integrator": "ra34pw2", "dt": 0.002},
        "ra34pw2, 5 ms": {"integrator": "ra34pw2", "dt": 0.005},
        "2m, 4 ms": {"integrator": "2m", "dt": 0.004},
    }
    ours, rows = {}, Rows()
    for way, settings in ways.items():
        result = simulate(system, t_end, every=t_end / samples, **settings)
        ours[way] = tip(result.q, 1.0)[1:], result.steps, stepping(result)
    theirs = elastica(links, t_end, samples)
    right, exact = elastica(4 * links, t_end, samples)[0], ours["dopri5, 1e-8"][0]
    rows.append({"program": "PyElastica", "steps": theirs[1], "seconds": theirs[2], "times faster": 1.0,
                 "error, m": farthest(theirs[0], right), "to PyElastica, m": 0.0})  # fmt: skip
    for way, (found, steps, seconds) in ours.items():
        rows.append({"program": way, "steps": steps, "seconds": seconds, "times faster": theirs[2] / seconds,
                     "error, m": farthest(found, exact), "to PyElastica, m": farthest(found, theirs[0])})  # fmt: skip
    stiff = elastica(links, t_end, samples, stiffer)
    rows.append({"program": f"PyElastica, {stiffer:g} times less stretch", "steps": stiff[1], "seconds": stiff[2],
                 "times faster": theirs[2] / stiff[2], "error, m": farthest(stiff[0], exact),
                 "to PyElastica, m": farthest(stiff[0], theirs[0])})  # fmt: skip
    return rows


# --- a rope of steel --------------------------------------------------------------------------------------------------


def rope(links: int = 1024, t_end: float = 0.05, wanted: float = 1e-4) -> Rows:
    """Swing a rope of 10 m and 10 mm, of the bending stiffness of steel wire, at 2 rad/s from the horizontal.

    Errors are those of its tip at the end, against the first explicit run. Of explicit ones the fastest counts that is
    right to `wanted` (m), however loose its tolerance: stability limits its steps. Set-up is not counted.
    """
    system = System("rope", gravity=(0, -9.81, 0))
    system.add_rod(
        name="rope", count=links, length=10, diameter=0.01, density=7850, youngs_modulus=2e11, joint="revolute"
    )
    turning = np.zeros(links)
    turning[0] = 2.0
    explicit = [("dopri5", 1e-5), ("dopri5", 1e-2), ("bs3", 1e-2)]
    tried: list[Settings] = [{"integrator": name, "rtol": given, "atol": given} for name, given in explicit]
    tried += [{"integrator": name, "dt": t_end / n} for name in ("ra34pw2", "2m") for n in (4, 8, 16)]
    rows, right = Rows(), None
    for way in tried:
        result = simulate(system, t_end, every=t_end, state=(np.zeros(links), turning), **way)
        found = tip(result.q[-1:], 10.0)
        right = found if right is None else right
        rows.append({
            "integrator": way["integrator"],
            "asked": f"{way['dt'] * 1e3:g} ms" if "dt" in way else f"{way['rtol']:g}",
            "steps": result.steps, "error, m": farthest(found, right), "simulated s a second": t_end / stepping(result),
        })  # fmt: skip
    best = max(row["simulated s a second"] for row in rows[: len(explicit)] if row["error, m"] < wanted)
    return [{**row, "times the best explicit": row["simulated s a second"] / best} for row in rows]


# --- many links -------------------------------------------------------------------------------------------------------


def long(
    sizes: Sequence[int] = (1024, 16384, 131072, 1048576), steps: int = 5, comm: MPI.Comm = MPI.COMM_WORLD
) -> Rows:
    """Take steps of ra34pw2 of a hanging rope, on all numbers of ranks that are powers of two; all ranks call."""
    rows = Rows()
    for n in sizes:
        system = System("long", gravity=(0, -9.81, 0))
        system.add_rod(name="rope", count=n, length=n / 100, EI=98, mass_per_length=0.6, joint="revolute")
        alone = 0.0
        for ranks in (2**k for k in range(comm.size.bit_length()) if 2**k <= comm.size):
            part = comm.Split(int(comm.rank < ranks), comm.rank)
            if comm.rank < ranks:
                spent, evaluation = _seconds_a_step(system, part, steps)
                alone = alone or spent
                rows.append({"links": n, "ranks": ranks, "s a step": spent, "ns a link": spent / n * 1e9,
                             "evaluations": spent / evaluation, "times one rank": alone / spent})  # fmt: skip
            part.Free()
            comm.Barrier()
    return rows


def _seconds_a_step(system: System, comm: MPI.Comm, steps: int) -> tuple[float, float]:
    """Least time of a step, and of an evaluation (s)."""
    dynamics = Dynamics(system, comm)
    q, u = dynamics.subchain.state(dynamics.subchain.q, dynamics.subchain.u)
    udot, rates, times = np.empty_like(u), np.empty_like(q), []
    integrator = make_integrator(dynamics, q, u, "ra34pw2", Accuracy(dt=1e-3))
    for action in (
        lambda: integrator.step_towards(1.0),
        lambda: dynamics.evaluate_unforced(q, u, udot, rates),
    ):
        action()
        laps = []
        for _ in range(steps):
            comm.Barrier()
            begun = perf_counter()
            action()
            comm.Barrier()
            laps.append(perf_counter() - begun)
        times.append(min(laps))
    integrator.close()
    dynamics.close()
    return times[0], times[1]


CASES: dict[str, Callable[..., Rows]] = {"pendulum": pendulum, "rope": rope, "long": long}


def main(case: str, folder: Path, **options: Any) -> Rows:
    """Measure one of `CASES` with options of its own; give the table, which is printed and written."""
    rows = CASES[case](**options)
    if options.get("comm", MPI.COMM_WORLD).rank == 0:
        write_tables(folder, f"stiff_{case}", {"case": case, "rows": rows, **host()}, rows, list(rows[0]))
        click.echo(markdown(rows))
    return rows


@click.command(help=__doc__)
@click.argument("cases", nargs=-1, required=True, type=click.Choice(list(CASES)))
@click.option("--folder", type=Path, default=Path("results"), show_default=True)
def _command(cases: tuple[str, ...], folder: Path) -> None:
    for case in cases:
        main(case, folder)


if __name__ == "__main__":
    _command()
