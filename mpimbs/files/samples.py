"""Samples of a running system, kept in memory on rank 0."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.files.constraint_record import SolutionSample
from mpimbs.files.output_layout import PER_ITEM
from mpimbs.parallel.reorder import Gather, Reorder

Floats = npt.NDArray[np.float64]


class Sample(NamedTuple):
    """The whole system at one time, on rank 0; SI units, quaternions w x y z, the model's order."""

    time: float
    q: Floats | None  # [nq]; here and below None of what was not asked for
    u: Floats | None  # [nu]
    energy: Floats  # [2]: kinetic, potential (J)
    violation: float  # largest | |quaternion| - 1 | that a step has left, before it was taken away
    poses: Floats | None  # [n, 7]: position (m), quaternion of each body in the inertial frame
    loads: Floats | None  # [n, 6]: moment (N m), force (N) on each body by its parent; see `Dynamics.joint_loads`
    solution: SolutionSample | None  # of the constraint-load equations, where a coupling has them
    work: float  # done so far by all that is not weight, spring or inertia (J)
    loop_violation: Floats | None  # [loops, 2]: of positions (m and rad together), of velocities; None without loops
    loop_loads: Floats | None  # [loops, 6]: moment (N m) and force (N) on second bodies; see `ClosedLoops`
    equation_residual: Floats | None  # [2]: see `Motion.equation_residual`
    step_size: float  # s, of the step that follows, if the next sample does not shorten it


class Samples:
    """Keeps samples in memory on rank 0; all ranks make it together and call.

    Parameters
    ----------
    comm : MPI.Comm
        Must outlive it.
    widths : dict of str to int
        How many numbers of a sample this rank has, by their names in the output file: blocks of the model's order.

    Attributes
    ----------
    samples : list of Sample
        On rank 0.
    """

    def __init__(self, comm: MPI.Comm, widths: dict[str, int]) -> None:
        self._comm, self._root = comm, comm.rank == 0
        self._gathers = {name: Gather(comm, Reorder(comm, comm.allgather(width))) for name, width in widths.items()}
        self.samples: list[Sample] = []

    def next(self, widths: dict[str, int], begin: Any) -> Samples:
        """Give what keeps the samples of another structure, behind these."""
        follows = Samples(self._comm, widths)
        follows.samples = self.samples
        return follows

    def due(self) -> bool:
        """Whether samples have to be written before the next one comes: never."""
        return False

    def add(self, own: dict[str, Floats], common: dict[str, Any], due: bool) -> None:
        """Take a sample: this rank's blocks of it, and what all ranks have, by their names in the file."""
        whole = {name: gather(np.ravel(own[name])) for name, gather in self._gathers.items()}
        if not self._root:
            return
        there = {name: values.copy() for name, values in whole.items() if values is not None}
        kept: dict[str, Any] = dict.fromkeys(("q", "u", "equation_residual")) | there
        kept |= common
        solution = None
        if "constraint_loads" in kept:
            solution = SolutionSample(**{name: kept[name] for name in SolutionSample._fields})
        kept |= {name: kept[name].reshape(-1, n) if name in kept else None for name, n in PER_ITEM.items()}
        kept |= {"solution": solution, "violation": kept["constraint_violation"]}
        self.samples.append(Sample(**{name: kept[name] for name in Sample._fields}))

    def put_extremes(self, found: dict[str, Floats]) -> dict[str, Floats]:
        """Give rank 0 the extremes of all steps: four rows of every rank's numbers, by quantity."""
        parts = self._comm.gather(found)
        return {} if parts is None else {name: np.hstack([part[name] for part in parts]) for name in found}

    def sync(self) -> None:
        """There is nothing to wait for."""

    def close(self, status: str, statistics: dict[str, Any], unfinished: bool = False) -> None:
        """There is nothing to end."""
