"""Takes samples of a running system, and keeps them or writes them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.dynamics import Dynamics
from mpimbs.parallel.agreement import together
from mpimbs.simulation.constraint_record import ConstraintRecord
from mpimbs.simulation.kept_motion import pose_numbers
from mpimbs.simulation.output_layout import PER_BODY
from mpimbs.simulation.sample_writer import SampleWriter
from mpimbs.simulation.samples import Samples

Floats = npt.NDArray[np.float64]
Store = Samples | SampleWriter


class Recorder:
    """Takes samples; all ranks make it together and call.

    Parameters
    ----------
    dynamics : Dynamics
    poses, loads : bool
        Whether samples have poses and joint loads.
    constraints : ConstraintRecord or None
        Where the coupling has constraint loads.
    keep : callable
        Gives where samples go, from how many numbers of one this rank has, by their names in the output file.

    Attributes
    ----------
    count : int
        Samples so far.
    store : Samples or SampleWriter
        Where they go.
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
        keep: Callable[[dict[str, int]], Store],
    ) -> None:
        self._dynamics = dynamics
        self._constraints = constraints
        self._poses, self._loads = poses, loads
        bodies = dynamics.subchain.n_bodies
        widths = {"q": dynamics.subchain.nq, "u": dynamics.subchain.nu}
        widths |= {name: PER_BODY[name] * bodies for name, wanted in (("poses", poses), ("loads", loads)) if wanted}
        if constraints is not None:
            widths["constraint_loads"] = constraints.unknowns
        self.store = keep(widths)
        self._first_energy: float | None = None
        self._kinetic = 0.0
        self._change = 0.0
        self.count = 0
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
        agreed = np.array([norm_error, self.store.due()], np.float64)
        dynamics.comm.Allreduce(MPI.IN_PLACE, agreed, MPI.MAX)
        own: dict[str, Floats] = {"q": q, "u": u}
        common: dict[str, Any] = {"time": t, "energy": energy, "constraint_violation": float(agreed[0])}
        if self._poses:
            own["poses"] = pose_numbers(*dynamics.poses(q, u))
        if self._loads:
            own["loads"] = together(dynamics.comm, lambda: dynamics.joint_loads(q, u, t=t))
        if self._constraints is not None:
            if not self._loads:  # which evaluate the sample themselves
                together(dynamics.comm, lambda: dynamics.accelerations(q, u, t=t))
            common |= self._constraints.take()._asdict()
            own["constraint_loads"] = common.pop("constraint_loads")
        self.store.add(own, common, bool(agreed[1]))
        self.count += 1
        evaluating -= sum(dynamics.seconds().values())  # the phases of an evaluation have their own times
        self.seconds += time.perf_counter() - began + evaluating

    def finish(self) -> None:
        """Wait until all samples are on the disk; all ranks call.

        Raises
        ------
        OutputError
            On all ranks: they can't be written.
        """
        began = time.perf_counter()
        self.store.sync()
        self.seconds += time.perf_counter() - began
