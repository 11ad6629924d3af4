"""Time of one evaluation, by phase: the number that every study of speed-up rests on."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from mpi4py import MPI

from mpimbs.dynamics import Dynamics
from mpimbs.errors import InputError
from mpimbs.model import System


def bench(
    system: System,
    comm: MPI.Comm,
    coupling: str = "dcae",
    seconds: float = 1.0,
    tip_ratio: float | None = None,
    lanes: int | None = None,
) -> dict[str, Any]:
    """Time one evaluation of forward dynamics at a moving state; all ranks call together.

    Speeds are u_k = 0.1 sin(k), so that the velocity terms are at work. An evaluation begins when the last rank is
    ready and ends when the slowest one is done.

    Parameters
    ----------
    system : System
    comm : MPI.Comm
    coupling : str
    seconds : float
        Wall time to spend on repetitions (s).
    tip_ratio, lanes : optional
        See `Dynamics`.

    Returns
    -------
    dict
        ranks, n (bodies), dof, repetitions, us_min, us_median, ns_per_body_min, and phases: mean time per evaluation of
        the slowest rank in each phase (us).

    Raises
    ------
    InputError
        On all ranks, as `Dynamics`.
    """
    if not 0.0 <= seconds < np.inf:
        raise InputError(f"seconds to spend must be a number from 0 on, got {seconds:g}; give --seconds")
    dynamics = Dynamics(system, comm, coupling, tip_ratio, lanes)
    dynamics.compile()
    own = dynamics.comm
    q = dynamics.subchain.q
    u = 0.1 * np.sin(np.arange(system.nu))[dynamics.gather_u.part]
    udot, rates = np.empty(len(u)), np.empty(len(q))

    def once() -> float:
        own.Barrier()
        began = time.perf_counter()
        dynamics.derivative(0.0, q, u, udot, rates)
        return time.perf_counter() - began

    trial = own.allreduce(min(once() for _ in range(5)), MPI.MAX)
    count = int(np.clip(seconds / max(trial, 1e-7), 10, 100_000))
    before = dynamics.seconds()
    laps = np.array([once() for _ in range(count)])
    own.Allreduce(MPI.IN_PLACE, laps, MPI.MAX)
    phases = {
        name: 1e6 * own.allreduce((value - before[name]) / count, MPI.MAX) for name, value in dynamics.seconds().items()
    }
    dynamics.close()
    return {
        "system": system.name,
        "coupling": coupling,
        "ranks": comm.size,
        "n": system.n_bodies,
        "dof": system.nu,
        "repetitions": count,
        "us_min": 1e6 * float(laps.min()),
        "us_median": 1e6 * float(np.median(laps)),
        "ns_per_body_min": 1e9 * float(laps.min()) / system.n_bodies,
        "phases": phases,
    }
