"""What an evaluation takes on one core: the sweeps of a system's shares, timed alone, as ranks among many have them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.bench.accuracy import ASSEMBLED
from mpimbs.bench.bench import check_seconds
from mpimbs.bench.predict.interval_times import IntervalTimes, time_intervals
from mpimbs.bench.predict.trace import Sweeps
from mpimbs.bench.share import SECONDS, Share, time_assembly
from mpimbs.coupling import coupling_for
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.compiling import compile_evaluations
from mpimbs.model import system_from
from mpimbs.model.contents import Contents
from mpimbs.partition.division import Division, as_tree
from mpimbs.sweep.structure import TURNING

_JOINS = 63


class Key(NamedTuple):
    """The kind of a share: the coupling whose sweeps it has, and whether the tip is in it."""

    coupling: str
    tip: bool


class Calibration:
    """Measured times of a system's shares on this core, for any numbers of ranks and several couplings.

    Every number of ranks that is asked for has a share from the middle of the chain and the tip's timed. Ranks whose
    share has another number of bodies get times in between, by powers of the number of bodies. No two shares of a tree
    are alike: see `interval_times`.

    Parameters
    ----------
    seconds : float
        Wall time for each share (s).

    Raises
    ------
    InputError
        A time that makes no sense.
    """

    def __init__(self, system: Contents, seconds: float = SECONDS) -> None:
        check_seconds(seconds)
        self.system = system
        self.seconds = seconds
        self.shares: dict[Key, dict[int, Sweeps]] = {}  # times by `Key` and number of bodies
        # of a tree, or a system with loops: what its intervals take, by number of ranks and coupling
        self.intervals: dict[tuple[int, str], IntervalTimes] = {}
        self._joins: dict[str, float] = {}
        self._divisions: dict[tuple[str, int], Division] = {}

    def division(self, ranks: int, coupling: str = "dcae") -> Division:
        """Divide the system among so many ranks, as a coupling does.

        Raises
        ------
        InputError
            As `Dynamics`.
        """
        if (coupling, ranks) not in self._divisions:
            strategy = coupling_for(self.system, coupling)
            self._divisions[coupling, ranks] = strategy.divide(self.system, ranks)
        return self._divisions[coupling, ranks]

    def sweeps(self, ranks: int, coupling: str) -> list[Sweeps]:
        """Give the times of every rank's sweeps (s); those that are not known are measured."""
        if self._in_intervals(coupling):
            return self.of_tree(ranks, coupling).sweeps
        division = self.division(ranks, coupling)
        bodies = np.diff(division.cuts)
        self._measure(division, ranks - 1, Key(coupling, True))
        if ranks > 1:
            self._measure(division, (ranks - 1) // 2, Key(coupling, False))
        inner = self.shares.get(Key(coupling, False), {})
        found = {int(n): interpolated(inner, int(n)) for n in np.unique(bodies[:-1])}
        return [found[int(n)] for n in bodies[:-1]] + [self.shares[Key(coupling, True)][int(bodies[-1])]]

    def _in_intervals(self, coupling: str) -> bool:
        return as_tree(self.system) or coupling == "assembly"

    def of_tree(self, ranks: int, coupling: str = "dcae") -> IntervalTimes:
        """Give what the intervals of a tree, or with loops, take on so many ranks; what is not known is measured."""
        key = ranks, coupling
        if key not in self.intervals:
            self.intervals[key] = time_intervals(self.system, self.division(ranks, coupling), self.seconds, coupling)
        return self.intervals[key]

    def scanned(self, ranks: int, coupling: str = "dcae") -> int:
        """Doubles of a message of the scan of turns."""
        return self.of_tree(ranks, coupling).turns if self._in_intervals(coupling) else TURNING

    def _measure(self, division: Division, number: int, key: Key) -> None:
        bodies = int(np.diff(division.cuts)[number])
        known = self.shares.setdefault(key, {})
        if bodies not in known:
            share = Share(self.system, division, number, key.coupling)
            compile_evaluations(share)
            known[bodies] = share.time(self.seconds)
            share.close()

    def join(self, coupling: str) -> float:
        """Give the time of one join (s): of subchains of one process, which are joined alike; or of two assemblies."""
        if coupling in ASSEMBLED and coupling not in self._joins:
            self._joins[coupling] = time_assembly()
        if coupling not in self._joins:
            laps = []
            for cuts in (0, _JOINS):
                chain = system_from(f"chain:{_JOINS + 1}")
                dynamics = Dynamics(chain, MPI.COMM_SELF, coupling, lanes=1, cuts=cuts)
                compile_evaluations(dynamics)
                share = dynamics.subchain
                times = np.empty(400)
                for k in range(len(times)):
                    before = Sweeps(0.0, *dynamics.derivative.laps).coupling
                    dynamics.accelerations(share.q, share.u, warn=False)
                    times[k] = Sweeps(0.0, *dynamics.derivative.laps).coupling - before
                laps.append(float(times.min()))
                dynamics.close()
            self._joins[coupling] = max(laps[1] - laps[0], 0.0) / _JOINS
        return self._joins[coupling]

    def record(self) -> dict[str, Any]:
        """All that was measured, as numbers in plain lists and dictionaries (s)."""
        shares = [
            {**key._asdict(), "bodies": bodies, **sweeps._asdict()}
            for key, known in self.shares.items()
            for bodies, sweeps in sorted(known.items())
        ]
        shares += [
            {"coupling": coupling, "ranks": ranks, "rank": rank, **sweeps._asdict()}
            for (ranks, coupling), times in self.intervals.items()
            for rank, sweeps in times.measured.items()
        ]
        return {"seconds": self.seconds, "shares": shares, "joins": self._joins}


def interpolated(known: dict[int, Sweeps], bodies: int) -> Sweeps:
    """Interpolate times by powers of the number of bodies; beyond the known ones they are proportional to it.

    Parameters
    ----------
    known : dict
        Times by number of bodies; one at least.
    """
    if bodies in known:
        return known[bodies]
    sizes: Sequence[int] = sorted(known)
    nearest = known[min(sizes, key=lambda size: abs(np.log(size / bodies)))]
    x, least = np.log([*sizes]), 1e-12

    def phase(values: Iterable[float]) -> float:
        y = np.log(np.maximum(list(values), least))
        inside = float(np.clip(np.log(bodies), x[0], x[-1]))
        return float(np.exp(np.interp(inside, x, y) + np.log(bodies) - inside))

    each = {name: phase(getattr(known[size], name) for size in sizes) for name in ("motion", "inward", "outward")}
    return nearest._replace(**each)


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4, ... up to `most`."""
    return list(itertools.takewhile(lambda p: p <= most, (2**k for k in itertools.count())))
