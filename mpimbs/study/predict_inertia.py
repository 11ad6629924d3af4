"""The time of the inertia matrix on P ranks of a described cluster: predicted, not measured.

What a rank does is written down in the order of `composites.Composites`: motions, composites, what hangs on others from
behind, lines of all, rows. How long that takes is measured on this core, of all bodies and of the rows of some ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.compiling import compile_joint_space
from mpimbs.composites import DOUBLING, FORMS
from mpimbs.coupling import coupling_for
from mpimbs.dynamics import Dynamics
from mpimbs.errors import InputError
from mpimbs.instruments.laps import timed_calls
from mpimbs.model import System, system_from
from mpimbs.study.cluster import Cluster
from mpimbs.study.predict import Prediction, method_named
from mpimbs.study.share import SECONDS
from mpimbs.study.trace import Trace, compute_seconds
from mpimbs.sweep.composite import LINE
from mpimbs.sweep.structure import BOUNDARY

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_MOST_WRITTEN = 1 << 23  # numbers: of longer rows fewer are timed
_CALLS = 5


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
    """

    def __init__(self, system: System, seconds: float = SECONDS) -> None:
        compile_joint_space()
        self.system, self._seconds = system, seconds
        self.rows: dict[tuple[int, int], float] = {}
        self._dynamics = Dynamics(system, MPI.COMM_SELF)
        dynamics, q = self._dynamics, self._dynamics.subchain.q
        self._composites = dynamics.composites
        self.handed = self._composites.handed
        with closing(Dynamics(system_from("chain:1"), MPI.COMM_SELF)) as one:
            least = one.subchain.q
            self.calls = self._least(lambda: one.composites.at(least))
        self.moving = self._least(lambda: self._composites.place(q))
        both = self._least(lambda: self._composites.at(q))
        self.composing = max(both - self.calls - self.moving, 0.0)
        lines, room = np.ones((system.nu, LINE)), np.empty((LINE, system.nu))
        self.copying = self._least(lambda: np.copyto(room, lines.T))

    def _least(self, call: Callable[[], object]) -> float:
        first = float(timed_calls(MPI.COMM_SELF, call, _CALLS).min())
        count = int(np.clip(self._seconds / max(first, 1e-7), _CALLS, 10_000))
        return min(first, float(timed_calls(MPI.COMM_SELF, call, count).min()))

    def of_rows(self, first: int, last: int) -> float:
        """Time of writing the rows first to last - 1; measured, if they are not known."""
        n = self.system.nu
        if (first, last) not in self.rows:
            end = min(last, first + max(_MOST_WRITTEN // max(n, 1), 1))
            out = np.empty((end - first, n))
            once = self._least(lambda: self._composites.write_rows(first, end, out))
            self.rows[first, last] = once * (last - first) / max(end - first, 1)
        return self.rows[first, last]

    def record(self) -> dict[str, Any]:
        """All that was measured (s)."""
        rows = [{"first": first, "last": last, "seconds": time} for (first, last), time in self.rows.items()]
        known = {"calls": self.calls, "moving": self.moving, "composing": self.composing, "copying": self.copying}
        return {"seconds": self._seconds, **known, "rows": rows}

    def close(self) -> None:
        """Free what MPI holds."""
        self._dynamics.close()


def predict_inertia(
    system: System,
    ranks: Iterable[int],
    cluster: Cluster,
    form: str = DOUBLING,
    method: str = "loggp",
    times: InertiaTimes | None = None,
) -> list[Prediction]:
    """Predict the time of the inertia matrix for several numbers of ranks, on this process alone.

    Arguments and what is given are those of `study.predict.predict`, with the form for the coupling; `times` of the
    same system are not measured again.

    Raises
    ------
    InputError
        An unknown form or method, numbers of ranks that the system can't be divided among.
    """
    evaluate = method_named(method)
    if form not in FORMS:
        raise InputError(f"form: {form!r} is none of {', '.join(FORMS)}")
    known = InertiaTimes(system) if times is None else times
    one, rows = None, []
    for count in (1, *ranks):
        if count < 1:
            raise InputError(f"{count} ranks: a prediction is for 1 rank at least; correct `ranks`")
        bounds = _bounds(system, count)
        traces = _traces(known, bounds, form)
        seconds, compute = evaluate(traces, cluster), max(map(compute_seconds, traces)) / cluster.core_speed
        if one is None:
            one = seconds
            continue
        most, rest, gain = int(np.diff(bounds[0]).max()), max(seconds - compute, 0.0), one / seconds
        rows.append(Prediction(form, count, most, seconds, compute, rest, gain, gain / count, method))
    return rows


def _bounds(system: System, ranks: int) -> tuple[Integers, Integers]:
    """First bodies, and first degrees of freedom, of so many ranks, by place; and their ends [ranks + 1]."""
    division = coupling_for(system, "dcae").divide(system, ranks)
    sizes = np.diff(system.offsets()[1])
    if division.order is not None:
        sizes = sizes[division.order.bodies]
    return division.cuts, np.concatenate(([0], np.cumsum(sizes)))[division.cuts]


def _traces(times: InertiaTimes, bounds: tuple[Integers, Integers], form: str) -> list[Trace]:
    """The traces of all ranks; rows are timed of the first, the middle and the last rank, and others in between."""
    bodies, freedoms = bounds
    size = len(bodies) - 1
    timed = np.unique((0, size // 2, size - 1)).tolist()
    each = [times.of_rows(int(freedoms[k]), int(freedoms[k + 1])) / max(np.diff(freedoms)[k], 1) for k in timed]
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
