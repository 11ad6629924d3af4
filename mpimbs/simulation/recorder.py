"""Takes samples of a running system, and keeps them or writes them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from scipy.spatial.transform import Rotation

from mpimbs.dynamics import Dynamics
from mpimbs.parallel.agreement import on_root, together
from mpimbs.simulation.constraint_record import ConstraintRecord, SolutionSample
from mpimbs.simulation.output import OutputFile, Sample

Floats = npt.NDArray[np.float64]


class Recorder:
    """Takes samples; all ranks make it together and call.

    Parameters
    ----------
    dynamics : Dynamics
    poses, loads : bool
        Whether samples have poses and joint loads.
    constraints : ConstraintRecord or None
        Where the coupling has constraint loads.
    file : OutputFile or None
        On rank 0, where the samples go, if not into `samples`.
    kept : bool
        Whether there is such a file.

    Attributes
    ----------
    count : int
        Samples so far.
    samples : list of Sample
        On rank 0, without a file.
    energy_change : float
        See `Result`.
    seconds : float
        Wall time spent (s).
    """

    def __init__(
        self,
        dynamics: Dynamics,
        poses: bool,
        loads: bool,
        constraints: ConstraintRecord | None,
        file: OutputFile | None,
        kept: bool,
    ) -> None:
        self._dynamics = dynamics
        self._constraints = constraints
        self._file, self._kept = file, kept
        self._gather_poses = dynamics.gather_bodies(7) if poses else None
        self._gather_loads = dynamics.gather_bodies(6) if loads else None
        self._first_energy: float | None = None
        self._kinetic = 0.0
        self._change = 0.0
        self.count = 0
        self.samples: list[Sample] = []
        self.seconds = 0.0

    @property
    def energy_change(self) -> float:
        return self._change / self._kinetic if self._kinetic > 0.0 else 0.0

    def memory(self) -> dict[str, Any]:
        """What the samples so far leave to the next; `recall` takes it again."""
        return {
            "count": self.count,
            "energy": (self._first_energy, self._kinetic, self._change),
            "constraints": None if self._constraints is None else self._constraints.memory(),
        }

    def recall(self, memory: dict[str, Any]) -> None:
        """Go on from what `memory` gave."""
        self.count = memory["count"]
        self._first_energy, self._kinetic, self._change = memory["energy"]
        if self._constraints is not None:
            self._constraints.recall(memory["constraints"])

    def record(self, t: float, q: Floats, u: Floats, norm_error: float) -> None:
        """Take the sample of time `t` (s); all ranks call with their parts of the state.

        Raises
        ------
        SimulationError
            On all ranks: joint or constraint loads are wanted, and a function of the model failed.
        OutputError
            On all ranks: the sample can't be written.
        """
        dynamics = self._dynamics
        evaluating = sum(dynamics.seconds().values())
        began = time.perf_counter()
        energy = dynamics.energy_and_momentum(q, u)[:2]
        total = float(energy.sum())
        if self._first_energy is None:
            self._first_energy = total
        self._kinetic = max(self._kinetic, float(energy[0]))
        self._change = max(self._change, abs(total - self._first_energy))
        violation = dynamics.comm.allreduce(norm_error, MPI.MAX)
        whole_q, whole_u = dynamics.gather_q(q), dynamics.gather_u(u)
        poses = self._poses(q, u) if self._gather_poses is not None else None
        loads = self._loads(t, q, u) if self._gather_loads is not None else None
        solution = self._solution(t, q, u) if self._constraints is not None else None

        def keep() -> None:
            assert whole_q is not None and whole_u is not None
            sample = Sample(t, whole_q.copy(), whole_u.copy(), energy, violation, poses, loads, solution)
            if self._file is not None:
                self._file.write(sample)
            else:
                self.samples.append(sample)

        if self._kept:
            on_root(dynamics.comm, keep)
        elif dynamics.comm.rank == 0:
            keep()
        self.count += 1
        evaluating -= sum(dynamics.seconds().values())  # the phases of an evaluation have their own times
        self.seconds += time.perf_counter() - began + evaluating

    def _poses(self, q: Floats, u: Floats) -> Floats | None:
        assert self._gather_poses is not None
        rotations, positions = self._dynamics.poses(q, u)
        quaternions = Rotation.from_matrix(rotations).as_quat()[:, [3, 0, 1, 2]]
        whole = self._gather_poses(np.hstack([positions, quaternions]).ravel())
        return None if whole is None else whole.reshape(-1, 7).copy()

    def _solution(self, t: float, q: Floats, u: Floats) -> SolutionSample | None:
        assert self._constraints is not None
        if self._gather_loads is None:  # which evaluate the sample themselves
            together(self._dynamics.comm, lambda: self._dynamics.accelerations(q, u, t=t))
        return self._constraints.take()

    def _loads(self, t: float, q: Floats, u: Floats) -> Floats | None:
        assert self._gather_loads is not None
        loads = together(self._dynamics.comm, lambda: self._dynamics.joint_loads(q, u, t=t))
        whole = self._gather_loads(loads.ravel())
        return None if whole is None else whole.reshape(-1, 6).copy()
