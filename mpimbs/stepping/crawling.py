"""Steps that shrink towards nothing: seen, and explained, where a run would go on for ever."""

from __future__ import annotations

import contextlib

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.errors import SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.parallel.agreement import together
from mpimbs.stepping.schemes import Accuracy

Floats = npt.NDArray[np.float64]
IN_SEQUENCE = 1000  # steps
SMALL = 1e-6  # of the time up to the next sample, that such a step is at the most
NEARLY = 100.0  # times the tolerance, that it changes the state by: one that changed nothing would nearly do
STABLE = 100.0  # times the step: a largest stable step below that is why the step is small
_APART = 1e3  # how much farther the state is looked at to tell a jump from what is steep
_JUMP = 0.1  # of the change of accelerations over so far, that is there at once


class Crawl:
    """Counts the steps in sequence that are far too small to arrive."""

    def __init__(self) -> None:
        self._count, self._time = 0, 0.0

    def took(self, size: float, left: float) -> bool:
        """Take a step of some size (s), with so much time (s) left before it; says whether they are too many."""
        small = size < SMALL * left < np.inf
        self._count, self._time = (self._count + 1, self._time + size) if small else (0, 0.0)
        return self._count >= IN_SEQUENCE

    def went_on(self) -> None:
        """No step was too small."""
        self._count, self._time = 0, 0.0

    def told(self, t: float) -> str:
        """What was seen at a time (s); counting begins anew."""
        count, spent = self._count, self._time
        self._count, self._time = 0, 0.0
        return f"at t = {t:g} s steps shrink towards nothing: the last {count} took {spent:.2g} s together"


def hardly_changes(comm: MPI.Comm, accuracy: Accuracy, before: Floats, now: Floats) -> bool:
    """Whether a step has changed the state by little more than the tolerance, on all ranks; all call.

    So small a step keeps to the tolerance whatever it does: what is estimated is no error of a smooth motion.
    """
    changes = np.abs(now - before) / (accuracy.atol + accuracy.rtol * np.abs(now))
    return bool(comm.allreduce(float(changes.max(initial=0.0)), MPI.MAX) < NEARLY)


def likely_cause(dynamics: Dynamics, t: float, size: float, q: Floats, u: Floats, held: Floats | None) -> str:
    """Say why steps (s) shrink at a time (s) in a state, of which this rank has a part; all ranks call."""
    if wrong := wrong_motion(dynamics, t):
        return wrong
    with contextlib.suppress(SimulationError):
        jump, body = _jump(dynamics, t, size, q, u, held)
        if jump:
            return (
                f"likely cause: a force that jumps, or a corner of one (the acceleration of body '{body}' changes by "
                f"{jump:.3g} rad/s^2 or m/s^2 at once): have it change over a small range of time or state, or take "
                "fixed steps with `dt`"
            )
    if dynamics.loops is not None:
        return "likely cause: a singular position of the loops, which are stretched or folded flat; begin elsewhere"
    return "likely cause: a function of time or state that is not smooth, or a tolerance that rounding does not allow"


def wrong_motion(dynamics: Dynamics, t: float) -> str:
    """Say which joint's motion is none, as what it gives at a time (s) does not fit together; all ranks call."""
    if not dynamics.follows:
        return ""
    own = together(dynamics.comm, lambda: dynamics.external.motions.inconsistent(t))
    name = next(filter(None, dynamics.comm.allgather(own)), None)
    if name is None:
        return ""
    return (
        f"the velocity that the motion of body '{name}' gives is not the derivative of its value, or its "
        "acceleration not that of its velocity: correct the function"
    )


def _jump(dynamics: Dynamics, t: float, size: float, q: Floats, u: Floats, held: Floats | None) -> tuple[float, str]:
    """How much accelerations change within a step forth and back, if not much less than in far longer ones; of whom."""
    udot = dynamics.accelerations(q, u, held, t, warn=False).copy()
    changes = []
    for step in (size, _APART * size):
        ends = []
        for h in (-step, step):
            place, speed = dynamics.followed(t + h, dynamics.subchain.displaced(q, h * u), u + h * udot)
            ends.append(dynamics.accelerations(place, speed, held, t + h, warn=False).copy())
        changes.append(np.abs(ends[1] - ends[0]))
    most = [float(np.max(values, initial=0.0)) for values in (*changes, np.abs(udot))]
    k = int(np.argmax(changes[0])) if len(u) else 0
    offset = dynamics.subchain.columns.u_offset
    body = dynamics.subchain.name_of(int(np.searchsorted(offset, k, side="right")) - 1) if len(u) else ""
    of_ranks = dynamics.comm.allgather((*most, body))
    at_once, farther, whole = (max(found[k] for found in of_ranks) for k in range(3))
    return (at_once if at_once > max(_JUMP * farther, 1e-6 * whole) else 0.0), max(of_ranks)[-1]
