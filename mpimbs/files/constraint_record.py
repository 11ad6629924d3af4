"""What a simulation with constraint loads at separated joints tells of them, sample by sample."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.coupling import Iterative
from mpimbs.model.contents import Contents

Floats = npt.NDArray[np.float64]


class SolutionSample(NamedTuple):
    """The constraint-load equations at one time: the numbers on every rank, of the loads those at its own joints."""

    iterations: float  # mean of an evaluation since the sample before
    residual: float  # over the right-hand side
    condition: float  # estimated condition number
    constraint_loads: Floats  # [unknowns]: N m, N


class SeparatedLoads(NamedTuple):
    """What the constraint loads are loads on."""

    bodies: npt.NDArray[np.int64]  # [unknowns]: the load acts on this body of the model through its inboard joint
    subspaces: Floats  # [unknowns, 6]: what a load of 1 is; see `SeparatedJoints`


class ConstraintRecord:
    """Takes samples of a coupling by constraint loads; all ranks make it together and call.

    Parameters
    ----------
    comm : MPI.Comm
    coupling : Iterative
    system : Contents
        As the coupling's joints count its bodies.
    """

    def __init__(self, comm: MPI.Comm, coupling: Iterative, system: Contents) -> None:
        self._comm, self._coupling, self._system = comm, coupling, system
        self._before = (0, 0)
        self._largest = {"largest_residual": 0.0, "largest_condition": 0.0}

    def separated_loads(self) -> SeparatedLoads:
        """What the loads of all ranks act on; the same on every rank."""
        joints = self._coupling.joints
        parts = self._comm.allgather((self._system.numbers_in_model(joints.bodies), joints.subspaces))
        return SeparatedLoads(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def largest(self) -> dict[str, float]:
        """Largest residual and condition number of the samples so far."""
        return dict(self._largest)

    def memory(self) -> dict[str, Any]:
        """What the samples so far leave to the next; `recall` takes it again."""
        return {"before": self._before, "largest": self.largest()}

    def recall(self, memory: dict[str, Any]) -> None:
        """Go on from what `memory` gave."""
        self._before, self._largest = tuple(memory["before"]), dict(memory["largest"])

    @property
    def unknowns(self) -> int:
        """Number of constraint loads at this rank's joints."""
        return len(self._coupling.joints.bodies)

    def take(self) -> SolutionSample:
        """Give the equations of the last evaluation."""
        coupling = self._coupling
        found = coupling.statistics()
        now = found["solutions"], found["total_iterations"]
        solutions, iterations = (after - before for after, before in zip(now, self._before, strict=True))
        self._before = now
        residual, condition = coupling.residual(), coupling.condition()
        for name, value in (("largest_residual", residual), ("largest_condition", condition)):
            self._largest[name] = max(self._largest[name], value)
        return SolutionSample(
            iterations / max(solutions, 1), residual, condition, coupling.joints.solution[: self.unknowns]
        )
