"""Time of the inertia matrix, of its inverse, and of what applies them, in one run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from mpimbs.bench.bench import check_seconds
from mpimbs.bench.laps import said, summary, timed_calls
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.compiling import compile_evaluations, compile_joint_space
from mpimbs.dynamics.operators.composites import RECURSIVE
from mpimbs.model import System
from mpimbs.parallel.agreement import first_on_node

MOST_INVERTED = 1024  # degrees of freedom: the inverse takes as many sweeps
_ROUNDS = 5


def bench_inertia(system: System, comm: MPI.Comm, seconds: float = 1.0, **settings: Any) -> dict[str, Any]:
    """Time the inertia matrix at the initial state; all ranks call together.

    What is timed takes turns: the matrix, its phases, the time of writing as many bytes, products with it and its
    inverse, inverse dynamics, and an evaluation.

    Parameters
    ----------
    system : System
    comm : MPI.Comm
    seconds : float
        Wall time to spend on repetitions (s).
    **settings
        See `Dynamics`.

    Returns
    -------
    dict
        system, ranks, n, dof; of the matrix us_min, us_median, us_p90 and repetitions; exchanges: how many messages
        follow one another; others: summaries of "lines" and "rows" (its phases), "recursive" (the other form, on
        several ranks), "writing" (as many bytes), "multiply", "solve" and its parts "factor" and "load sweep", "inverse
        dynamics", "evaluation", and, of small systems on one rank, "inverse".

    Raises
    ------
    InputError
        On all ranks, as `Dynamics`.
    """
    check_seconds(seconds)
    dynamics = Dynamics(system, comm, **settings)
    compile_evaluations(dynamics)
    first_on_node(comm, functools.partial(compile_joint_space, dynamics.lanes))
    q, nu = dynamics.subchain.q, dynamics.subchain.nu
    u = 0.1 * np.sin(np.arange(system.nu))[dynamics.gather_u.part]
    udot, rates = np.empty(nu), np.empty(dynamics.subchain.nq)
    out, like = dynamics.inertia_matrix(q), np.empty((nu, system.nu))
    composites, factor = dynamics.composites, dynamics.factor(q)
    calls: dict[str, Callable[[], object]] = {
        "matrix": lambda: dynamics.inertia_matrix(q, out=out),
        "lines": lambda: composites.at(q),
        "rows": lambda: composites.rows(out),
        "writing": lambda: like.fill(1.0),
        "multiply": lambda: dynamics.multiply(q, u),
        "solve": lambda: dynamics.solve(q, u),
        "factor": lambda: factor.at(q),
        "load sweep": lambda: factor.solve(u, udot),
        "evaluation": lambda: dynamics.evaluate(0.0, q, u, udot, rates),
    }
    if not system.loops:
        calls["inverse dynamics"] = lambda: dynamics.inverse_dynamics(q, u, u)
    if comm.size > 1:
        calls["recursive"] = lambda: dynamics.inertia_matrix(q, form=RECURSIVE, out=out)
    elif nu <= MOST_INVERTED:
        calls["inverse"] = lambda: dynamics.inverse_inertia_matrix(q)
    first = {name: float(timed_calls(dynamics.comm, call, 2).min()) for name, call in calls.items()}
    share = seconds / _ROUNDS / len(calls)
    laps: dict[str, list[np.ndarray]] = {name: [] for name in calls}
    for _ in range(_ROUNDS):
        for name, call in calls.items():
            laps[name].append(timed_calls(dynamics.comm, call, int(np.clip(share / first[name], 2, 1000))))
    found = {name: summary(np.concatenate(parts)) for name, parts in laps.items()}
    figures = {
        "system": system.name,
        "ranks": comm.size,
        "n": system.n_bodies,
        "dof": system.nu,
        "exchanges": composites.exchanges,
        "repetitions": sum(map(len, laps["matrix"])),
        **found.pop("matrix"),
        "others": found,
    }
    dynamics.close()
    return figures


def report_inertia(figures: dict[str, Any]) -> list[str]:
    """Say what `bench_inertia` found, a few lines for a person."""
    bytes_written = 8 * figures["dof"] ** 2
    return [
        f"{figures['system']}: inertia matrix of {figures['dof']} degrees of freedom ({bytes_written / 1e6:.3g} MB), "
        f"{figures['ranks']} ranks, {figures['exchanges']} exchanges: {said(figures)}",
        *(f"{name}: {said(row)}" for name, row in figures["others"].items()),
    ]
