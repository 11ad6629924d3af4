"""Time of one evaluation, by phase, the number that every study of speed-up rests on; and of the inertia matrix."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.errors import InputError
from mpimbs.bench.accuracy import relative_error
from mpimbs.bench.laps import PhaseLaps, disturbance, said, summary, take_turns
from mpimbs.bench.predict.trace import RTOL, player
from mpimbs.coupling import solver_for
from mpimbs.coupling.settings import EvaluationSettings
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.compiling import compile_evaluations, compile_joint_space
from mpimbs.dynamics.operators.composites import RECURSIVE
from mpimbs.model import ModelLike
from mpimbs.parallel.agreement import first_on_node
from mpimbs.parts.intervals import Intervals
from mpimbs.parts.lane_subtrees import Swept
from mpimbs.run.ensembles.batch import Batch

MOST_INVERTED = 1024  # degrees of freedom: the inverse takes as many sweeps


def bench_inertia(system: ModelLike, comm: MPI.Comm, seconds: float = 1.0, **settings: Any) -> dict[str, Any]:
    """Time the inertia matrix at the initial state; all ranks call together.

    What is timed takes turns: the matrix, its phases, the time of writing as many bytes, products with it and its
    inverse, inverse dynamics, and an evaluation.

    Parameters
    ----------
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
    first_on_node(comm, functools.partial(compile_joint_space, dynamics.divided.lanes))
    whole, q, nu = dynamics.system, dynamics.subchain.q, dynamics.subchain.nu
    u = 0.1 * np.sin(np.arange(whole.nu))[dynamics.gather_u.part]
    udot, rates = np.empty(nu), np.empty(dynamics.subchain.nq)
    out, like = dynamics.inertia_matrix(q), np.empty((nu, whole.nu))
    composites, factor = dynamics.inertia.composites, dynamics.inertia.factor(q)
    calls: dict[str, Callable[[], object]] = {
        "matrix": lambda: dynamics.inertia_matrix(q, out=out),
        "lines": lambda: composites.at(q),
        "rows": lambda: composites.rows(out),
        "writing": lambda: like.fill(1.0),
        "multiply": lambda: dynamics.inertia.multiply(q, u),
        "solve": lambda: dynamics.inertia.solve(q, u),
        "factor": lambda: factor.at(q),
        "load sweep": lambda: factor.solve(u, udot),
        "evaluation": lambda: dynamics.derivative.evaluate(0.0, q, u, udot, rates),
    }
    if not whole.loops:
        calls["inverse dynamics"] = lambda: dynamics.inverse_dynamics(q, u, u)
    if comm.size > 1:
        calls["recursive"] = lambda: dynamics.inertia_matrix(q, form=RECURSIVE, out=out)
    elif nu <= MOST_INVERTED:
        calls["inverse"] = lambda: dynamics.inertia.inverse_matrix(q)
    laps = take_turns(dynamics.comm, calls, seconds)[0]
    found = {name: summary(times) for name, times in laps.items()}
    figures = {
        "system": whole.name,
        "ranks": comm.size,
        "n": whole.n_bodies,
        "dof": whole.nu,
        "exchanges": composites.exchanges,
        "repetitions": len(laps["matrix"]),
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


_BY_PHASE = 0.1  # of the evaluations, timed by phase beside the others


def bench(
    system: ModelLike,
    comm: MPI.Comm,
    coupling: str = EvaluationSettings.coupling,
    seconds: float = 1.0,
    **settings: Any,
) -> dict[str, Any]:
    """Time one evaluation of forward dynamics at a moving state; all ranks call together.

    Speeds are u_k = 0.1 sin(k), or the nearest that loops allow, so that the velocity terms are at work. An evaluation
    begins when the last rank is ready and ends when the slowest one is done. Where it runs in lanes it takes turns with
    the same without.

    A coupling that makes use of earlier solutions evaluates one state after the other of a motion that begins there,
    as a simulation with tolerance 1e-8 does; then begins again.

    Parameters
    ----------
    seconds : float
        Wall time to spend on repetitions (s).
    **settings
        See `Dynamics`.

    Returns
    -------
    dict
        ranks, cuts, lanes, swept (of a tree: how many bodies are in subtrees side by side, in stretches along a path,
        and in the trunk, in doubles), n (bodies), dof, loops, repetitions, us_min, us_median, us_p90 (90th percentile),
        switches_per_evaluation (context switches, on the rank with the most), ns_per_body_min, phases: median time of
        each phase (us) on the rank that is the last to be done, see `laps.PhaseLaps`; and where lanes are used, scalar:
        us_min, us_median, us_p90, ratio of the minima without lanes, difference of the accelerations relative to the
        largest. Where constraint loads are solved for, solutions: unknowns, iterations and factorizations per
        evaluation, most_iterations.

    Raises
    ------
    InputError
        On all ranks, as `Dynamics`.
    """
    check_seconds(seconds)
    solver = solver_for(coupling, settings.get("solver"), RTOL)
    settings |= {"solver": solver}
    with contextlib.ExitStack() as made:

        def of(**settings: Any) -> _Timed:
            return _evaluation(made.enter_context(contextlib.closing(Dynamics(system, comm, coupling, **settings))))

        rows = {"used": of(**settings)}
        used = rows["used"].dynamics
        width = used.comm.allreduce(used.divided.lanes, MPI.MAX)
        if width > 1:
            rows["scalar"] = of(**settings | {"lanes": 1, "overlap": False})
        return _figures(rows, comm, coupling, seconds, settings)


def _figures(
    rows: dict[str, _Timed], comm: MPI.Comm, coupling: str, seconds: float, settings: dict[str, Any]
) -> dict[str, Any]:
    """Time what was made, and tell of it; see `bench`."""
    used = rows["used"].dynamics
    system, solver, width = used.system, settings["solver"], used.comm.allreduce(used.divided.lanes, MPI.MAX)
    solved = used.divided.coupling.statistics()
    phases = PhaseLaps(used, rows["used"].call)
    calls = {name: row.call for name, row in rows.items()}
    laps, switches = take_turns(used.comm, calls, seconds, lambda count: phases.add(max(1, round(_BY_PHASE * count))))
    figures = {
        "system": system.name,
        "coupling": coupling,
        "ranks": comm.size,
        "overlap": settings.get("overlap", EvaluationSettings.overlap),
        "cuts": len(used.divided.division.bounds) - 2,
        "lanes": width,
        "swept": _swept(used),
        "n": system.n_bodies,
        "dof": system.nu,
        "loops": len(system.loops),
        "repetitions": len(laps["used"]),
        **summary(laps["used"]),
        "switches_per_evaluation": switches,
        "ns_per_body_min": 1e9 * float(laps["used"].min()) / system.n_bodies,
        "phases": phases.medians(),
    }
    if solved:
        figures["solver"] = solver.data() if solver else None
        figures["solutions"] = _per_solution(solved, used.divided.coupling.statistics())
    if "scalar" in rows:
        scalar = summary(laps["scalar"])
        ratio, difference = scalar["us_min"] / figures["us_min"], _difference(*rows.values())
        figures["scalar"] = {**scalar, "ratio": ratio, "difference": difference}
    return figures


def _swept(dynamics: Dynamics) -> dict[str, int] | None:
    """How many bodies of a tree are swept in which way, on all ranks together; None for a chain."""
    part = dynamics.divided.subchains
    if not isinstance(part, Intervals):
        return None
    return dict(zip(Swept._fields, dynamics.comm.allreduce(np.array(part.swept)).tolist(), strict=True))


class _Timed(NamedTuple):
    """An evaluation that is timed as a whole, not by its phases."""

    dynamics: Dynamics
    call: Callable[[], object]
    begin: Callable[[], object]  # so that the next call is the first one again
    udot: np.ndarray  # the accelerations that a call has found


def _evaluation(dynamics: Dynamics) -> _Timed:
    compile_evaluations(dynamics)
    system, q = dynamics.system, dynamics.subchain.q
    u = 0.1 * np.sin(np.arange(system.nu))[dynamics.gather_u.part]
    if dynamics.loops is not None:
        u = dynamics.loops.close_speeds(q, u)
    udot, rates = np.empty(len(u)), np.empty(len(q))
    dynamics.derivative.timed = False
    if system.has_loads_of_time():
        dynamics.accelerations(q, u, warn=False)  # a function that fails does so on all ranks here
    if dynamics.divided.coupling.statistics():  # what a solution takes depends on those before
        return _Timed(dynamics, *player(dynamics, q, u, udot), udot)
    return _Timed(dynamics, lambda: dynamics.derivative.evaluate(0.0, q, u, udot, rates), lambda: None, udot)


def _difference(one: _Timed, other: _Timed) -> float:
    """Difference of the accelerations of two, relative to the largest; all ranks call."""
    found = []
    for timed in (one, other):
        timed.begin()
        timed.call()
        udot = timed.dynamics.gather_u(timed.udot)
        found.append(None if udot is None else udot.copy())
    first, second = found
    difference = None if first is None or second is None else relative_error(first, second)
    return float(one.dynamics.comm.bcast(difference))


def bench_batch(
    system: ModelLike, copies: int, comm: MPI.Comm, seconds: float = 1.0, lanes: int | None = None
) -> dict[str, Any]:
    """Time an evaluation of a batch of copies in different states, and the same one copy after the other.

    Parameters
    ----------
    copies : int
        Copies on all ranks together.
    seconds, lanes : optional
        See `bench` and `Batch`.

    Returns
    -------
    dict
        ranks, lanes, n, dof, copies, repetitions, us_min, us_median, us_p90, switches_per_evaluation, us_per_copy_min;
        one_after_the_other: us_min, us_median, us_p90, ratio of the minima, difference of the accelerations relative to
        the largest.

    Raises
    ------
    InputError
        On all ranks, as `Batch`.
    """
    check_seconds(seconds)
    batches = {"used": Batch(system, copies, comm, lanes), "scalar": Batch(system, copies, comm, 1)}
    own, whole = comm.Dup(), batches["used"].members.systems[0]
    calls: dict[str, Callable[[], None]] = {}
    accelerations = {}
    for name, batch in batches.items():
        batch.compile(own)
        phase = np.arange(batch.first, batch.last)[:, None]
        u = 0.1 * np.sin(np.arange(whole.nu) + phase)
        accelerations[name] = udot = np.empty_like(u)
        rates = np.empty_like(batch.q)
        calls[name] = functools.partial(batch.derivative, batch.q, u, udot, rates)
        calls[name]()
    difference = own.allreduce(relative_error(accelerations["used"], accelerations["scalar"]), MPI.MAX)
    laps, switches = take_turns(own, calls, seconds)
    used, scalar = summary(laps["used"]), summary(laps["scalar"])
    width = own.allreduce(batches["used"].lanes, MPI.MAX)
    own.Free()
    return {
        "system": whole.name,
        "ranks": comm.size,
        "lanes": width,
        "n": whole.n_bodies,
        "dof": whole.nu,
        "copies": copies,
        "repetitions": len(laps["used"]),
        **used,
        "switches_per_evaluation": switches,
        "us_per_copy_min": used["us_min"] / copies,
        "one_after_the_other": {**scalar, "ratio": scalar["us_min"] / used["us_min"], "difference": difference},
    }


def check_seconds(seconds: float) -> None:
    """Check a wall time that the user asks for; InputError if it makes no sense."""
    if not 0.0 <= seconds < np.inf:
        raise InputError(f"seconds to spend must be a number from 0 on, got {seconds:g}; give `seconds`")


def _per_solution(before: dict[str, int], after: dict[str, int]) -> dict[str, float]:
    count = after["solutions"] - before["solutions"]
    each = {name: (after[name] - before[name]) / max(count, 1) for name in ("total_iterations", "factorizations")}
    return {
        "unknowns": after["unknowns"],
        "iterations": each["total_iterations"],
        "most_iterations": after["most_iterations"],
        "factorizations": each["factorizations"],
    }


def report(figures: dict[str, Any]) -> list[str]:
    """Say what `bench` or `bench_batch` found, a few lines for a person."""
    closed = f" with {figures['loops']} loop(s)" if figures.get("loops") else ""
    where = f"{figures['n']} bodies{closed}, {figures['ranks']} ranks, {figures['lanes']} lanes"
    lines = _batch_lines(figures, where) if "copies" in figures else _evaluation_lines(figures, where)
    remark = disturbance(figures)
    return [*lines, remark] if remark else lines


def _batch_lines(figures: dict[str, Any], where: str) -> list[str]:
    other = figures["one_after_the_other"]
    return [
        f"{figures['system']}: {figures['copies']} copies of {where}: {said(figures)}, at best "
        f"{figures['us_per_copy_min']:.4g} us per copy",
        f"one after the other: {_compared(other)}",
    ]


def _evaluation_lines(figures: dict[str, Any], where: str) -> list[str]:
    phases = figures["phases"]
    lines = [
        f"{figures['system']}: {where}, {figures['coupling']}: {said(figures)}, at best "
        f"{figures['ns_per_body_min']:.4g} ns per body",
        f"median us by phase: {', '.join(f'{name} {value:.4g}' for name, value in phases.items())}; together "
        f"{sum(phases.values()):.4g}, beside the call from Python",
    ]
    if figures["swept"]:
        swept = Swept(**figures["swept"])
        lines.append(
            f"swept: {swept.subtrees} bodies in subtrees side by side, {swept.stretches} along stretches, "
            f"{swept.trunk} in the trunk, in doubles"
        )
    if "solutions" in figures:
        s = figures["solutions"]
        lines.append(
            f"{figures['cuts']} cuts, {s['unknowns']} constraint loads: {s['iterations']:.2f} iterations per "
            f"evaluation (at most {s['most_iterations']}), {s['factorizations']:.2f} factorizations; states of a motion"
        )
    if "scalar" in figures:
        lines.append(f"without lanes: {_compared(figures['scalar'])}")
    return lines


def _compared(other: dict[str, Any]) -> str:
    return f"{said(other)}, {other['ratio']:.3g} times as long; accelerations differ by {other['difference']:.1e}"
