"""The inertia matrix on many ranks: what each does, in the order of `composites.Composites`, and how long that takes.

That are motions, composites, what hangs on others from behind, lines of all, rows. Measured on this core are those of
all bodies, and the rows of some ranks.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.bench.laps import least
from mpimbs.bench.predict.trace import Trace
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.compiling import compile_joint_space
from mpimbs.dynamics.operators.composites import DOUBLING
from mpimbs.model import System, system_from
from mpimbs.partition.division import Division
from mpimbs.sweep.inertia.composite import LINE
from mpimbs.sweep.structure import BOUNDARY

Integers = npt.NDArray[np.int64]

_MOST_WRITTEN = 1 << 23  # numbers: of longer rows fewer are timed


class InertiaTimes:
    """What the inertia matrix of a system takes on this core (s).

    Parameters
    ----------
    system : System
    seconds : float
        Wall time for each thing that is timed (s).

    Attributes
    ----------
    calls : float
        What does not depend on the bodies.
    moving, composing : float
        Twists of all joints; composites of all bodies, with the loads.
    copying : float
        Lines of all, put in order.
    rows : dict of (int, int) to float
        Rows first to last - 1.
    handed : int
        Doubles that a rank gets of what hangs on it from behind.
    """

    def __init__(self, system: System, seconds: float) -> None:
        compile_joint_space()
        self.system, self._seconds = system, seconds
        self.rows: dict[tuple[int, int], float] = {}
        with closing(Dynamics(system_from("chain:1"), MPI.COMM_SELF)) as one:
            alone = one.subchain.q
            self.calls = least(lambda: one.composites.at(alone), seconds)
        with closing(Dynamics(system, MPI.COMM_SELF)) as dynamics:
            composites, q = dynamics.composites, dynamics.subchain.q
            self.handed = composites.handed
            self.moving = least(lambda: composites.place(q), seconds)
            both = least(lambda: composites.at(q), seconds)
        self.composing = max(both - self.calls - self.moving, 0.0)
        lines, room = np.ones((system.nu, LINE)), np.empty((LINE, system.nu))
        self.copying = least(lambda: np.copyto(room, lines.T), seconds)

    def measure_rows(self, freedoms: Integers, ranks: list[int]) -> None:
        """Time the writing of the rows of some ranks, whose first degrees of freedom are given; where not known."""
        n = self.system.nu
        with closing(Dynamics(self.system, MPI.COMM_SELF)) as dynamics:
            composites = dynamics.composites
            composites.at(dynamics.subchain.q)
            for first, last in (freedoms[rank : rank + 2].tolist() for rank in ranks):
                if (first, last) in self.rows:
                    continue
                end = min(last, first + max(_MOST_WRITTEN // max(n, 1), 1))
                out = np.empty((end - first, n))
                once = least(partial(composites.write_rows, first, end, out), self._seconds)
                self.rows[first, last] = once * (last - first) / max(end - first, 1)

    def record(self) -> dict[str, Any]:
        """All that was measured (s)."""
        rows = [{"first": first, "last": last, "seconds": time} for (first, last), time in self.rows.items()]
        known = {"calls": self.calls, "moving": self.moving, "composing": self.composing, "copying": self.copying}
        return {**known, "rows": rows}


def write_inertia_traces(times: InertiaTimes, division: Division, form: str) -> list[Trace]:
    """The traces of all ranks; rows are timed of the first, the middle and the last rank, and others in between."""
    bodies, size = division.cuts, len(division.cuts) - 1
    sizes = np.diff(times.system.offsets()[1])
    if division.order is not None:
        sizes = sizes[division.order.bodies]
    freedoms = np.concatenate(([0], np.cumsum(sizes)))[bodies]
    timed = np.unique((0, size // 2, size - 1)).tolist()
    times.measure_rows(freedoms, timed)
    each = [times.rows[int(freedoms[k]), int(freedoms[k + 1])] / max(np.diff(freedoms)[k], 1) for k in timed]
    found = []
    for rank in range(size):
        share = float(bodies[rank + 1] - bodies[rank]) / times.system.n_bodies
        trace = Trace(rank, size)
        trace.compute(times.calls)
        if size > 1:
            trace.compute(times.moving * share)
            trace.scan(BOUNDARY)
        trace.compute((times.moving + times.composing) * share)
        if size > 1:
            if form == DOUBLING:
                trace.scan(times.handed, backward=True)
            else:
                trace.relay(times.handed)
            trace.compute(times.composing * share * (rank + 1 < size))
            trace.gather_from_all(-(-LINE * times.system.nu // size))
            trace.compute(times.copying)
        trace.compute(float(np.interp(rank, timed, each)) * float(freedoms[rank + 1] - freedoms[rank]))
        found.append(trace)
    return found
