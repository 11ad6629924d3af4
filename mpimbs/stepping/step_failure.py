"""What breaks a step, found on any rank, and the error that says so on all of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.errors import HaltError, LoadNotFiniteError, SimulationError, as_meant
from mpimbs.dynamics import Dynamics
from mpimbs.model.resistance import thin_bodies
from mpimbs.parallel.agreement import first_failure

Floats = npt.NDArray[np.float64]


class StepFailure:
    """Keeps what goes wrong in the evaluations of a step on this rank, until all ranks can speak of it.

    Parameters
    ----------
    dynamics : Dynamics

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
