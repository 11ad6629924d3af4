"""What a simulation with constraint loads at separated joints tells of them, sample by sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.coupling import Iterative
from mpimbs.model.contents import Contents


class SolutionSample(NamedTuple):
    """The constraint-load equations at one time: the numbers on every rank, of the loads those at its own joints."""

    iterations: float  # mean of an evaluation since the sample before
    residual: float  # over the right-hand side
    condition: float  # estimated condition number
    constraint_loads: Floats  # [unknowns]: N m, N


class SeparatedLoads(NamedTuple):
    """The separated joints on which constraint loads act."""

    bodies: Integers  # [unknowns]: the load acts on this body of the model through its inboard joint
    subspaces: Floats  # [unknowns, 6]: what a load of 1 is; see `SeparatedJoints`


@dataclass
class ConstraintState:
    """The state that samples of constraint loads leave to the next: solutions and iterations, largest numbers."""

    before: tuple[int, int] = (0, 0)
    largest_residual: float = 0.0
    largest_condition: float = 0.0


class ConstraintRecord:
    """Takes samples of a coupling by constraint loads; all ranks make it together and call.

    Parameters
    ----------
    system : Contents
        As the coupling's joints count its bodies.

    Attributes
    ----------
    state : ConstraintState
    """

    def __init__(self, comm: MPI.Comm, coupling: Iterative, system: Contents) -> None:
        self._comm, self._coupling, self._system = comm, coupling, system
        self.state = ConstraintState()

    def separated_loads(self) -> SeparatedLoads:
        """Give the joints on which the loads of all ranks act; the same on every rank."""
        joints = self._coupling.joints
        parts = self._comm.allgather((self._system.numbers_in_model(joints.bodies), joints.subspaces))
        return SeparatedLoads(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def largest(self) -> dict[str, float]:
        """Largest residual and condition number of the samples so far."""
        return {name: getattr(self.state, name) for name in ("largest_residual", "largest_condition")}

    @property
    def unknowns(self) -> int:
        """Number of constraint loads at this rank's joints."""
        return len(self._coupling.joints.bodies)

    def take(self) -> SolutionSample:
        """Give the equations of the last evaluation."""
        coupling, state = self._coupling, self.state
        found = coupling.statistics()
        now = found["solutions"], found["total_iterations"]
        solutions, iterations = (after - before for after, before in zip(now, state.before, strict=True))
        residual, condition = coupling.residual(), coupling.condition()
        largest = max(state.largest_residual, residual), max(state.largest_condition, condition)
        self.state = ConstraintState(now, *largest)
        return SolutionSample(
            iterations / max(solutions, 1), residual, condition, coupling.joints.solution[: self.unknowns]
        )
