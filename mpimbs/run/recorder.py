"""Takes samples of a running system, and keeps them or writes them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.selection import Selection
from mpimbs.files.constraint_record import ConstraintRecord
from mpimbs.files.output_layout import PER_ITEM
from mpimbs.files.sample_writer import SampleWriter
from mpimbs.files.samples import Samples
from mpimbs.parallel.agreement import together
from mpimbs.parts.kinematics import pose_numbers
from mpimbs.run.extremes import Extremes
from mpimbs.run.witness import Witness
from mpimbs.stepping.projection import Projection
from mpimbs.stepping.work import Balance

if TYPE_CHECKING:
    from mpimbs.stepping.integrator import Integrator, Moment

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Store = Samples | SampleWriter
_LIKE = {"q": "q", "u": "u", "poses": "body", "loads": "body"}  # in whose order quantities are


class _Loads(NamedTuple):
    """What joints carry, of one evaluation."""

    joints: Floats  # [n, 6]: this rank's
    loops: Floats | None  # [loops, 6]: all of them


class Recorder:
    """Takes samples; all ranks make it together and call.

    Parameters
    ----------
    dynamics : Dynamics
    selection : Selection
        What samples have.
    extremes : bool
        Whether to keep extremes of all steps.
    constraints : ConstraintRecord or None
        Where the coupling has constraint loads.
    projection : Projection or None
        Where there are loops.
    witness : Witness or None
        Checks samples, unless that was not wanted.
    keep : callable
        Gives where samples go, from how many numbers of one this rank has, by their names in the output file.

    Attributes
    ----------
    count : int
        Samples so far.
    store : Samples or SampleWriter
        Where they go.
    balance : Balance
        Of the energy.
    extremes : Extremes or None
    seconds : float
        Wall time spent (s).
    """

    def __init__(
        self,
        dynamics: Dynamics,
        selection: Selection,
        extremes: bool,
        constraints: ConstraintRecord | None,
        projection: Projection | None,
        witness: Witness | None,
        keep: Callable[[dict[str, int]], Store],
    ) -> None:
        self.witness = witness
        self._dynamics = dynamics
        self._constraints, self._projection = constraints, projection
        self._loads = loads = "loads" in selection.bodies
        self._chosen = {name: self._stretch(name, selection.rows(name, dynamics.system)) for name in selection.bodies}
        widths = {}
        for name, chosen in self._chosen.items():
            count = dynamics.model_order[_LIKE[name]].count if chosen is None else len(chosen)
            widths[name] = PER_ITEM.get(name, 1) * count
        if projection is not None:  # of loops rank 0 has all
            count = len(dynamics.system.loops) if dynamics.comm.rank == 0 else 0
            names = ("loop_violation", "loop_loads")[: 1 + loads]
            widths |= {name: PER_ITEM[name] * count for name in names}
        if constraints is not None:
            widths["constraint_loads"] = constraints.unknowns
        self.store = keep(widths)
        self.balance = Balance()
        self.extremes = Extremes(dynamics, loads) if extremes else None
        self._watched: tuple[float, _Loads | None] = (np.nan, None)  # time and loads of the last step
        self.count = 0
        self.seconds = 0.0
        self._work = 0.0  # J: that of the segments before, without what events took

    def _stretch(self, name: str, rows: Integers | None) -> Integers | None:
        """Which rows of this rank's stretch are kept, of those of the whole."""
        if rows is None:
            return None
        comm, order = self._dynamics.comm, self._dynamics.model_order[_LIKE[name]]
        begin = sum(order.counts[: comm.rank])
        return rows[(begin <= rows) & (rows < begin + order.count)] - begin

    def _kept(self, name: str, part: Floats) -> Floats:
        """What samples keep of this rank's part of a quantity."""
        chosen, stretch = self._chosen[name], self._dynamics.model_order[_LIKE[name]](part)
        return stretch if chosen is None else stretch[chosen]

    def follow(self, before: Recorder, work: float) -> None:
        """Go on with what another one has begun, behind so much work (J), what changes of structure took away off."""
        self.count, self.balance, self._work = before.count, before.balance, before._work + work
        if self.witness is not None and before.witness is not None:
            self.witness.follow(before.witness)

    def memory(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """What the samples so far leave to the next: for JSON, and vectors of this rank's; `recall` takes it again."""
        kinetic, vectors = ([], {}) if self.extremes is None else self.extremes.memory()
        return {
            "count": self.count,
            "balance": self.balance.memory(),
            "constraints": None if self._constraints is None else self._constraints.memory(),
            "kinetic": kinetic,
            "work": self._work,
            "witness": None if self.witness is None else self.witness.memory(),
        }, vectors  # fmt: skip

    def recall(self, memory: dict[str, Any], vectors: dict[str, Floats]) -> None:
        """Go on from what `memory` gave."""
        self.count = memory["count"]
        self.balance.recall(memory["balance"])
        self._work = memory.get("work", 0.0)
        if self._constraints is not None:
            self._constraints.recall(memory["constraints"])
        if self.witness is not None and memory.get("witness"):
            self.witness.recall(memory["witness"])
        if self.extremes is not None:
            self.extremes.recall(memory["kinetic"], vectors)

    def watch(self, stepper: Integrator) -> None:
        """See whether the state after a step is extreme, unless that was rejected; all ranks call.

        Raises
        ------
        SimulationError
            As `record`.
        """
        if self.extremes is None or stepper.time == self._watched[0]:
            return
        with self._timed():
            t, q, u = stepper.time, stepper.q, stepper.u
            loads = self._joint_loads(t, q, u, stepper.held) if self._loads else None
            self.extremes.take(t, q, u, float(self._dynamics.energy_and_momentum(q, u)[0]), loads and loads.joints)
            self._watched = t, loads

    def _joint_loads(self, t: float, q: Floats, u: Floats, held: Floats | None) -> _Loads:
        watched, found = self._watched
        if found is not None and watched == t:
            return found
        dynamics = self._dynamics
        joints = together(dynamics.comm, lambda: dynamics.joint_loads(q, u, held, t))
        return _Loads(joints, None if dynamics.loops is None else dynamics.loops.loads)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Count the wall time spent, but for that of evaluations, whose phases have their own."""
        began, evaluating = time.perf_counter(), sum(self._dynamics.seconds().values())
        yield
        self.seconds += time.perf_counter() - began + evaluating - sum(self._dynamics.seconds().values())

    def record(self, t: float, moment: Moment, last: bool) -> None:
        """Take the sample of time `t` (s), whose state is given, perhaps the last; all ranks call.

        Raises
        ------
        SimulationError
            On all ranks: a function of the model failed, or the witness found accelerations that are wrong.
        OutputError
            On all ranks: the sample can't be written.
        """
        if self.witness is not None:
            self.witness.take(t, moment.q, moment.u, moment.held, last)
        with self._timed():
            self._take(t, moment)
        self.count += 1

    def _take(self, t: float, moment: Moment) -> None:
        dynamics = self._dynamics
        q, u = moment.q, moment.u
        energy = dynamics.energy_and_momentum(q, u)[:2]
        work = self._work + moment.work
        self.balance.take(energy, work)
        agreed = np.array([moment.norm_error, self.store.due()], np.float64)
        dynamics.comm.Allreduce(MPI.IN_PLACE, agreed, MPI.MAX)
        own = {name: self._kept(name, part) for name, part in (("q", q), ("u", u)) if name in self._chosen}
        common: dict[str, Any] = {
            "time": t, "energy": energy, "work": work, "step_size": moment.step_size,
            "constraint_violation": float(agreed[0]),
        }  # fmt: skip
        if self.witness is not None:
            common["equation_residual"] = self.witness.largest
        if "poses" in self._chosen:
            own["poses"] = self._kept("poses", pose_numbers(*dynamics.poses(q, u)))
        if self._loads:
            found = self._joint_loads(t, q, u, moment.held)
            own["loads"] = self._kept("loads", found.joints)
            if found.loops is not None:
                own["loop_loads"] = self._of_rank_0(found.loops)
        if self._projection is not None:
            violations = self._projection.loops.violations(q, u)
            self._projection.sampled.take(violations)
            own["loop_violation"] = self._of_rank_0(violations)
        if self._constraints is not None:
            if not self._loads:  # which evaluate the sample themselves
                together(dynamics.comm, lambda: dynamics.accelerations(q, u, moment.held, t, warn=False))
            common |= self._constraints.take()._asdict()
            own["constraint_loads"] = common.pop("constraint_loads")
        self.store.add(own, common, bool(agreed[1]))

    def _of_rank_0(self, values: Floats) -> Floats:
        return values.ravel() if self._dynamics.comm.rank == 0 else np.zeros(0)

    def finish(self) -> None:
        """Wait until all samples are on the disk; all ranks call.

        Raises
        ------
        OutputError
            On all ranks: they can't be written.
        """
        with self._timed():
            self.store.sync()

    def keep_extremes(self) -> dict[str, Floats]:
        """Have the extremes so far written, or give them on rank 0, as samples; all ranks call. Raises as `finish`."""
        if self.extremes is None:
            return {}
        with self._timed():
            return self.store.put_extremes(self.extremes.own())
