"""Times of calls that all ranks make together, what they come to, and whether other work was in their way."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.dynamics import Dynamics

_TRIALS = 5
_ROUNDS = 10  # at least
_MOST = 100_000  # calls
_DISTURBED = 2.0  # median over minimum; undisturbed it is 1.1 to 1.4
_SWITCHES = 0.02  # context switches a call, beyond which they explain it

Key = TypeVar("Key")


def timed_calls(comm: MPI.Comm, call: Callable[[], object], count: int) -> Floats:
    """Times (s) of so many calls, each that of the slowest rank; all ranks call."""
    clock = time.perf_counter
    laps = np.empty(count)
    for k in range(count):
        comm.Barrier()
        began = clock()
        call()
        laps[k] = clock() - began
    comm.Allreduce(MPI.IN_PLACE, laps, MPI.MAX)
    return laps


def least(call: Callable[[], object], seconds: float, fewest: int = 5) -> float:
    """Least time of a call on this rank (s), of those made in so many seconds after the first, of so many at least."""
    call()
    clock, found = time.perf_counter, np.inf
    began = now = clock()
    while fewest > 0 or now - began < seconds:
        start = clock()
        call()
        now = clock()
        found, fewest = min(found, now - start), fewest - 1
    return found


def least_each(run: Callable[[int], object], seconds: float, fewest: int = 5, most: int = 10_000) -> float:
    """Least time of one repetition (s), where `run` makes so many: as many a call as take a millisecond, or `most`."""
    times = int(np.clip(1e-3 / least(lambda: run(1), 0.0, 3), 1, most))
    return least(lambda: run(times), seconds, fewest) / times


def take_turns(
    comm: MPI.Comm,
    calls: Mapping[Key, Callable[[], object]],
    seconds: float,
    each_round: Callable[[int], None] = lambda count: None,
) -> tuple[dict[Key, Floats], float]:
    """Time calls in rounds of all, for as long each, so that a slow moment meets all; all ranks call.

    Parameters
    ----------
    seconds : float
        Wall time to spend (s).
    each_round : callable
        Called at the end of each round with the number of calls of the first in it, for what else is to be measured.

    Returns
    -------
    laps : dict of array
        Times of each (s).
    switches : float
        Context switches for each call, on the rank with the most.
    """
    best = {name: float(timed_calls(comm, call, _TRIALS).min()) for name, call in calls.items()}
    first, share = next(iter(calls)), seconds / _ROUNDS / len(calls)
    found: dict[Key, list[Floats]] = {name: [] for name in calls}
    before, spent, rounds, made = _switches(), 0.0, 0, 0
    # The first times may be a thousand times too long where other work has the cores: how many calls make a round is
    # seen anew in each, and rounds go on until the time is spent.
    while rounds < _ROUNDS or (spent < seconds and made < _MOST):
        for name, call in calls.items():
            call()  # brings its arrays into the caches
            count = int(np.clip(share / max(best[name], 1e-7), 1, _MOST // _ROUNDS))
            laps = timed_calls(comm, call, count)
            found[name].append(laps)
            best[name] = min(best[name], float(laps.min()))
            spent, made = spent + float(laps.sum()), made + count
        each_round(len(found[first][-1]))
        rounds += 1
    switches = (_switches() - before) / made
    return {name: np.concatenate(parts) for name, parts in found.items()}, comm.allreduce(switches, MPI.MAX)


def _switches() -> int:
    """How often the system has taken the core from this process so far, or it gave it away."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_nvcsw + used.ru_nivcsw


class PhaseLaps:
    """Times of the phases of evaluations; all ranks make it together and call.

    Of every evaluation the phases are those of the rank that was the last to be done: they sum to what it took, but for
    the call from Python. Phases of several ranks would not: one computes while another waits for it.
    """

    def __init__(self, dynamics: Dynamics, call: Callable[[], object]) -> None:
        self._dynamics, self._call = dynamics, call
        self._found: list[Floats] = []

    def add(self, count: int) -> None:
        """Time so many evaluations."""
        dynamics, clock = self._dynamics, time.perf_counter
        whole, laps = np.empty(count), np.empty((count, len(dynamics.derivative.seconds())))
        dynamics.derivative.timed = True
        for k in range(count):
            before = _now(dynamics)
            dynamics.comm.Barrier()
            began = clock()
            self._call()
            whole[k] = clock() - began
            laps[k] = _now(dynamics) - before
        dynamics.derivative.timed = False
        slowest = np.empty(count)
        dynamics.comm.Allreduce(whole, slowest, MPI.MAX)
        mine = (whole == slowest)[:, None]
        last = dynamics.comm.allreduce(mine.astype(float))
        self._found.append(dynamics.comm.allreduce(np.where(mine, laps, 0.0)) / last)

    def medians(self) -> dict[str, float]:
        """Median time of each phase (us)."""
        us = 1e6 * np.median(np.concatenate(self._found), axis=0)
        return dict(zip(self._dynamics.derivative.seconds(), us.tolist(), strict=True))


def _now(dynamics: Dynamics) -> Floats:
    """Seconds that this rank has spent in each phase so far."""
    return np.array(list(dynamics.derivative.seconds().values()))


def summary(laps: Floats) -> dict[str, float]:
    """Minimum, median and 90th percentile of times (s), in us."""
    us = 1e6 * np.asarray(laps)
    return {"us_min": float(us.min()), "us_median": float(np.median(us)), "us_p90": float(np.percentile(us, 90))}


def said(row: Mapping[str, Any]) -> str:
    """Say a `summary` in words: the usual time first, then how good and how bad it gets."""
    return f"median {row['us_median']:.4g} us (minimum {row['us_min']:.4g}, 90th percentile {row['us_p90']:.4g})"


def disturbance(row: Mapping[str, Any]) -> str:
    """Say that cores were shared, where the median is far above the minimum for that reason; else nothing.

    Parameters
    ----------
    row : mapping
        A `summary`, with switches_per_evaluation.

    Notes
    -----
    Two ranks that the system has put on one core take turns at every message, and there is little in the times to tell
    it from slow messages: chain16 took 19 us rather than 5. It happens where ranks are bound to no core and give it
    away while they wait (`OMPI_MCA_mpi_yield_when_idle`): the system sees no need to move either.
    """
    ratio = row["us_median"] / row["us_min"]
    switches = row.get("switches_per_evaluation", 0.0)
    if switches < _SWITCHES or max(ratio / _DISTURBED, switches) < 1.0:
        return ""
    return (
        f"disturbed: {switches:.2g} context switches an evaluation, median {ratio:.2g} times the minimum: ranks share "
        "cores with each other or with other work; bind them (mpiexec --bind-to core), leave "
        "OMPI_MCA_mpi_yield_when_idle out where there are enough cores"
    )
