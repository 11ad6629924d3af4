"""Steps that fail, and those that shrink towards nothing: seen, and explained, where a run would go on for ever."""

from __future__ import annotations

import contextlib

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import HaltError, LoadNotFiniteError, SimulationError, as_meant
from mpimbs.dynamics import Dynamics
from mpimbs.model.resistance import thin_bodies
from mpimbs.parallel.agreement import first_failure, together
from mpimbs.stepping.schemes import Accuracy


class StepFailure:
    """Keeps what goes wrong in the evaluations of a step on this rank, until all ranks can speak of it.

    Attributes
    ----------
    failure : str
        Of a function of the model.
    not_finite : bool
        Whether an evaluation was.
    """

    def __init__(self, dynamics: Dynamics) -> None:
        self._dynamics = dynamics
        self.begin()

    def begin(self) -> None:
        """A step begins: forget what was."""
        self.failure = ""
        self._halt: HaltError | None = None
        self._doubt = ""  # a function of the state that was not finite: a smaller step may help
        self.not_finite = False

    def take(self, error: SimulationError) -> None:
        """Keep the first error of an evaluation."""
        if isinstance(error, LoadNotFiniteError):
            self._doubt = self._doubt or str(error)
        else:
            self.failure = self.failure or str(error)
            self._halt = error if isinstance(error, HaltError) else self._halt

    def anywhere(self) -> bool:
        """Whether a function of the model failed on any rank; all call."""
        return self._any(self.failure)

    def _any(self, fact: object) -> bool:
        return self._dynamics.comm.allreduce(bool(fact), MPI.LOR)

    def explain(self, t: float, size: float, q: Floats, u: Floats, held: Floats | None) -> BaseException:
        """Give the same error on all ranks for a step that broke: a function failed, not finite, or it underflows.

        Parameters
        ----------
        t, size : float
            Where the step began, and its size (s).
        q, u : array [nq], [nu]
            This rank's part of the last good state.
        held : array [nu] or None
            Forces on its joints (N m, N).
        """
        comm = self._dynamics.comm
        text, halt = self.failure or self._doubt, self._halt
        failures = comm.allgather((HaltError, halt.args) if halt else (SimulationError, (text,)) if text else None)
        if any(failures):
            return as_meant(first_failure(failures))
        where = f"at t = {t:g} s (step {size:.3g} s)"
        cause = "likely cause: too large a step, too stiff a spring or damper, or a load that grows without bound"
        if len(thin := thin_bodies(system := self._dynamics.system, ends=True)):
            cause += (
                f"; or joints before and behind bodies without inertia, such as '{system.name_of(int(thin[0]))}', that "
                "move one another the same way in this position (gimbal lock)"
            )
        if self._any(self.not_finite):  # on all bodies, by their coupling: the fastest one is where to look
            speed, body = self._largest(u)
            return SimulationError(
                f"the accelerations are no longer finite {where}; body '{body}' moves fastest "
                f"({speed:.3g} rad/s or m/s); {cause}"
            )
        rate, body = self._largest(self._dynamics.accelerations(q, u, held, t, warn=False))
        return SimulationError(
            f"the step size underflows {where}; body '{body}' is accelerated most "
            f"({rate:.3g} rad/s^2 or m/s^2); {cause}"
        )

    def _largest(self, values: Floats) -> tuple[float, str]:
        """Largest magnitude among all ranks of one number per generalized speed, and the body that it belongs to."""
        subchain = self._dynamics.subchain
        mine = (-1.0, "")
        if len(values):
            index = int(np.argmax(np.abs(values)))
            body = int(np.searchsorted(subchain.columns.u_offset, index, side="right")) - 1
            mine = (float(np.abs(values[index])), subchain.name_of(body))
        return max(self._dynamics.comm.allgather(mine))


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
        """Say what was seen at a time (s); counting begins anew."""
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
    if not dynamics.divided.follows:
        return ""
    own = together(dynamics.comm, lambda: dynamics.divided.external.motions.inconsistent(t))
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
            place, speed = dynamics.divided.followed(t + h, dynamics.subchain.displaced(q, h * u), u + h * udot)
            ends.append(dynamics.accelerations(place, speed, held, t + h, warn=False).copy())
        changes.append(np.abs(ends[1] - ends[0]))
    most = [float(np.max(values, initial=0.0)) for values in (*changes, np.abs(udot))]
    k = int(np.argmax(changes[0])) if len(u) else 0
    offset = dynamics.subchain.columns.u_offset
    body = dynamics.subchain.name_of(int(np.searchsorted(offset, k, side="right")) - 1) if len(u) else ""
    of_ranks = dynamics.comm.allgather((*most, body))
    at_once, farther, whole = (max(found[k] for found in of_ranks) for k in range(3))
    return (at_once if at_once > max(_JUMP * farther, 1e-6 * whole) else 0.0), max(of_ranks)[-1]
