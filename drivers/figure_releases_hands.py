"""A human figure that hangs by both hands, and lets go with the right one, then the left [Yamane & Nakamura, figure 7].

    python drivers/figure_releases_hands.py --folder results

Snapshots beside one another, and the time of one evaluation by the number of connections between hands and world.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import numpy as np
from matplotlib.figure import Figure
from mpi4py import MPI

from laboratory.command import call, keep
from mpimbs.base.arrays import Floats
from mpimbs.base.places import check_folder
from mpimbs.dynamics import Dynamics
from mpimbs.model import System, system_from
from mpimbs.model.connections import Connections, connected
from mpimbs.parts.subchain import Subchain
from mpimbs.plots.curves import save
from mpimbs.run.result import Result
from mpimbs.run.run import simulate

FILES = "figure_releases_hands.json", "figure_releases_hands.png"
HANDS = "right", "left"
ACROSS = (0.0, 1.0, 0.0, 0.0)  # quaternion: half a turn about x, arms upward
DAMPING = 0.2  # N m s/rad, of all joints
GRIP = (0.0, -0.08, 0.0)  # m, in a hand
PAPER = 3.4, 5.0  # ms, on their machine, with none and with both
ROUNDS = 2000  # of evaluations, at the most


def hanging(model: str, releases: tuple[float, float]) -> System:
    """Give a figure with both hands held where they are with the arms upward, until it lets go (s)."""
    figure = system_from(model)
    system = System(f"{figure.name}, hanging", gravity=figure.gravity)
    for body in figure.contents.bodies():
        joint: dict[str, Any] = {}
        if body.joint.kind.nu and body.joint.type != "free":
            joint["damping"] = (DAMPING,) * body.joint.kind.nu
        if body.name.endswith("upper_arm"):
            joint["q"] = ACROSS
        system.add(body, joint=body.joint.model_copy(update=joint))
    whole = Subchain(system.contents)
    rotations, positions = whole.body_poses(whole.q)
    for side, moment in zip(HANDS, releases, strict=True):
        names = [side + "_hand", side + "_forearm"]  # the smaller figure has no hands
        hand = next(name for name in names if system.contents.names.find(name) is not None)
        k = system.contents.index_of(hand)
        place = positions[k] + rotations[k] @ GRIP
        system.add_loop(name=side, type="spherical", bodies=("world", hand), positions=(place, GRIP))
        system.add_event(time=moment, cut=side)
    return system


def main(
    folder: Path,
    model: str = "figure48",
    releases: tuple[float, float] = (0.5, 1.2),
    t_end: float = 1.6,
    snapshots: int = 9,
    seconds: float = 0.5,
    coupling: str = "dcae",
    force: bool = False,
    comm: MPI.Comm = MPI.COMM_SELF,
) -> dict[str, Any]:
    """Simulate, draw, and time evaluations; all ranks call.

    Parameters
    ----------
    folder : Path
        Of what is written.
    model : str
        "figure48" or "figure34".
    releases : (float, float)
        When the right and the left hand let go (s).
    t_end : float
        Simulated time (s).
    seconds : float
        Wall time to spend on the evaluations of each structure (s).
    force : bool
        Replace what an earlier call wrote.

    Returns
    -------
    dict
        What the file has; on rank 0.
    """
    check_folder(folder, FILES, force)
    system = hanging(model, releases)
    result = simulate(system, t_end, comm, every=t_end / 200, coupling=coupling)
    rows = []
    for segment, held in enumerate((HANDS, HANDS[1:], ())):
        state = comm.bcast((result.q[segment][-1], result.u[segment][-1]) if comm.rank == 0 else None)
        now = connected(system.contents, Connections((), held))
        rows.append({"connections": len(held), **_timed(now, coupling, state, seconds, comm)})
    table = {
        "model": model, "ranks": comm.size, "coupling": coupling, "events": result.events, "rows": rows,
        "energy_error": result.energy_error, "steps": result.steps, "paper_ms": list(PAPER),
    }  # fmt: skip
    if comm.rank > 0:
        return {}
    keep(folder / FILES[0], table)
    save(_drawn(system, result, snapshots), folder / FILES[1])
    click.echo(result.summary())
    click.echo("connections  us, least  us, median")
    for row in rows:
        click.echo(f"{row['connections']:11d} {row['us_min']:10.1f} {row['us_median']:11.1f}")
    return table


def _timed(
    system: System, coupling: str, state: tuple[Floats, Floats], seconds: float, comm: MPI.Comm
) -> dict[str, float]:
    """Time of one evaluation (us) of a system in a state."""
    with closing(Dynamics(system, comm, coupling)) as dynamics:
        q, u = state[0][dynamics.gather_q.part].copy(), state[1][dynamics.gather_u.part].copy()
        udot, rates = np.empty_like(u), np.empty_like(q)
        times: list[float] = []
        spent = 0.0
        while len(times) < ROUNDS and comm.bcast(spent < seconds):
            comm.Barrier()
            began = time.perf_counter()
            dynamics.derivative(0.0, q, u, udot, rates)
            times.append(comm.allreduce(time.perf_counter() - began, MPI.MAX))
            spent += times[-1]
    return {"us_min": 1e6 * min(times), "us_median": 1e6 * float(np.median(times))}


def _drawn(system: System, result: Result, count: int) -> Figure:
    """Snapshots from in front, side by side, on what the hands hold as it is then."""
    chosen = np.linspace(0, len(result.t) - 1, count).astype(int)
    figure = Figure(figsize=(1.5 * count, 3.6), layout="constrained")
    places = np.ravel(figure.subplots(1, count, sharex=True, sharey=True))
    parents, centers = system.contents.parents(), system.contents.columns().center_of_mass
    releases = [event["time"] for event in result.events]
    for axes, k in zip(places, chosen.tolist(), strict=True):
        origins = result.poses[k, :, :3]
        tips = origins + _turned(result.poses[k, :, 3:], 2 * centers)
        for body, parent in enumerate(parents.tolist()):
            if parent >= 0:
                axes.plot(*np.stack([origins[parent], origins[body]])[:, [2, 1]].T, color="tab:blue", lw=2)
            if body not in parents:
                axes.plot(*np.stack([origins[body], tips[body]])[:, [2, 1]].T, color="tab:blue", lw=2)
        held = [loop for loop, moment in zip(system.contents.loops, releases, strict=True) if result.t[k] <= moment]
        for loop in held:
            axes.plot(loop.positions[0][2], loop.positions[0][1], "o", color="tab:red", ms=6)
        axes.set_title(f"{result.t[k]:.2f} s", fontsize="medium")
        axes.set_aspect("equal")
        axes.set_xlabel("z (m)")
        axes.grid(alpha=0.3)
    places[0].set_ylabel("y (m)")
    figure.suptitle(f"{system.name}: right hand free from {releases[0]:g} s, left hand from {releases[1]:g} s")
    return figure


def _turned(quaternions: Floats, vectors: Floats) -> Floats:
    from scipy.spatial.transform import Rotation

    return np.asarray(Rotation.from_quat(quaternions[:, [1, 2, 3, 0]]).apply(vectors))


if __name__ == "__main__":
    call(main)
