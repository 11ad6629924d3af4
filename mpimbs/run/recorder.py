"""Takes samples of a running system, and keeps them or writes them; and extremes of all steps, which samples miss."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.loops import CarriedLoads
from mpimbs.dynamics.quantities import PER_BODY, PER_LOOP, QUANTITIES, SYSTEM, Q, Quantity, U
from mpimbs.dynamics.selection import SampleTable
from mpimbs.files.constraint_record import ConstraintRecord, SolutionSample
from mpimbs.files.output_layout import KINETIC, MAGNITUDES
from mpimbs.files.sample_writer import SampleWriter
from mpimbs.files.samples import Samples
from mpimbs.model import JOINT_TYPES
from mpimbs.parallel.agreement import together
from mpimbs.parts.kinematics import pose_numbers
from mpimbs.run.witness import Witness
from mpimbs.stepping.projection import Projection
from mpimbs.stepping.work import Balance

if TYPE_CHECKING:
    from mpimbs.stepping.integrator import Integrator, Moment


Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Peak(NamedTuple):
    """The most extreme of all numbers of a kind."""

    value: float
    kind: str
    unit: str
    body: str  # of whose inboard joint it is
    time: float  # s


class Extremes:
    """Takes the state after every step; all ranks make it together and call.

    Parameters
    ----------
    dynamics : Dynamics
    loads : bool
        Take the joint loads too: the tension, negative for a push, and the magnitude of the moment.

    Attributes
    ----------
    found : dict of arrays [4, n]
        By quantity: the rows `EXTREMES` of this rank's numbers; of the kinetic energy the same on all ranks.
    """

    def __init__(self, dynamics: Dynamics, loads: bool) -> None:
        self._dynamics = dynamics
        subchain = dynamics.subchain
        sizes = {"q": subchain.nq, "u": subchain.nu, KINETIC: 1}
        sizes |= dict.fromkeys(MAGNITUDES, subchain.n_bodies) if loads else {}
        start = np.array([np.inf, np.nan, -np.inf, np.nan])
        self.found = {name: np.repeat(start[:, None], size, axis=1) for name, size in sizes.items()}

    def take(self, t: float, q: Floats, u: Floats, kinetic: float, loads: Floats | None) -> None:
        """Take a state, its kinetic energy (J) and joint loads [n, 6] at time `t` (s)."""
        values: dict[str, Any] = {"q": q, "u": u, KINETIC: kinetic}
        if loads is not None:
            centers = self._dynamics.subchain.columns.center_of_mass
            values |= {name: found[1](loads, centers) for name in MAGNITUDES if (found := QUANTITIES[name].derived)}
        for name, value in values.items():
            least, least_time, most, most_time = self.found[name]
            for beyond, extreme, when in ((value < least, least, least_time), (value > most, most, most_time)):
                np.copyto(extreme, value, where=beyond)
                np.copyto(when, t, where=beyond)

    def own(self) -> dict[str, Floats]:
        """What was found, each number on one rank only: blocks of the model's order; all ranks call."""
        order, first = self._dynamics.model_order, self._dynamics.comm.rank == 0
        kinds = {"q": "q", "u": "u"} | dict.fromkeys(MAGNITUDES, "body")
        return {
            name: order[kinds[name]](rows.T).T if name in kinds else rows[:, : int(first)]
            for name, rows in self.found.items()
        }

    def memory(self) -> tuple[list[float], dict[str, Floats]]:
        """What the steps leave to the next: of all ranks for JSON, and this rank's vectors; `recall` takes it again."""
        vectors = {
            f"{'body_' if name in MAGNITUDES else ''}{name}_extreme{row}": values
            for name, rows in self.found.items() if name != KINETIC for row, values in enumerate(rows)
        }  # fmt: skip
        return self.found[KINETIC][:, 0].tolist(), vectors

    def recall(self, kinetic: list[float], vectors: dict[str, Floats]) -> None:
        """Go on from what `memory` gave."""
        self.found[KINETIC][:, 0] = kinetic
        for name in self.memory()[1]:
            quantity, row = name.removeprefix("body_").split("_extreme")
            self.found[quantity][int(row)] = vectors[name]

    def told(self) -> str:
        """The largest magnitudes, and on which bodies, in a line; all ranks call."""
        least, _, most, time = self.found[KINETIC][:, 0]
        parts = [f"{p.kind} {p.value:.4g} {p.unit} ('{p.body}', t = {p.time:.4g} s)" for p in self.peaks()]
        energy = f"kinetic energy {least:.4g} to {most:.4g} J (t = {time:.4g} s)"
        return "extremes of all steps: " + ", ".join([*parts, energy])

    def peaks(self) -> list[Peak]:
        """The largest magnitude of every kind of quantity among all ranks; all ranks call."""
        c, mine = self._dynamics.subchain.columns, {}
        for name, offset, units in (("q", c.q_offset, "q_units"), ("u", c.u_offset, "u_units")):
            least, least_time, most, most_time = self.found[name]
            values = np.maximum(np.abs(least), np.abs(most))
            times = np.where(-least > most, least_time, most_time)
            of_numbers = _units(c.joint_type, offset, units)
            bodies = np.repeat(np.arange(c.n), np.diff(offset))
            for unit in _KINDS:
                at = np.flatnonzero(of_numbers == unit)
                if len(at):
                    k = at[np.argmax(values[at])]
                    mine[unit] = self._peak(values[k], _KINDS[unit], unit, bodies[k], times[k])
        for name in MAGNITUDES:
            if name in self.found and c.n:
                least, least_time, most, most_time = self.found[name]
                k = int(np.argmax(np.maximum(np.abs(least), np.abs(most))))
                value, time = (least, least_time) if -least[k] > most[k] else (most, most_time)
                mine[name] = self._peak(value[k], name, QUANTITIES[name].unit, k, time[k])
        of_ranks = self._dynamics.comm.allgather(mine)
        keys = [key for key in (*_KINDS, *MAGNITUDES) if any(key in peaks for peaks in of_ranks)]
        return [max((p[key] for p in of_ranks if key in p), key=lambda peak: abs(peak.value)) for key in keys]

    def _peak(self, value: float, kind: str, unit: str, body: int, time: float) -> Peak:
        return Peak(float(value), kind, unit, self._dynamics.subchain.name_of(body), float(time))


_KINDS = {"rad": "|angle|", "m": "|displacement|", "rad/s": "|angular speed|", "m/s": "|speed|"}


def _units(joint_type: npt.NDArray[np.int8], offset: npt.NDArray[np.int64], which: str) -> npt.NDArray[np.str_]:
    """Unit of every number of q or u; "1" of a quaternion's."""
    found = np.full(int(offset[-1]), "1", dtype="U5")
    for index in np.unique(joint_type):
        units = getattr(JOINT_TYPES[index], which)
        places = offset[:-1][joint_type == index, None] + np.arange(len(units))
        found[places] = np.array(units, dtype="U5")
    return found


Store = Samples | SampleWriter
_LIKE = {Q: "q", U: "u", PER_BODY: "body"}  # in whose order rows are


class _Instant:
    """A state at which a sample is taken; see `quantities.Instant`."""

    def __init__(self, recorder: Recorder, t: float, moment: Moment, norm_error: float) -> None:
        self._recorder, self._held, self.t, self.norm_error = recorder, moment.held, t, norm_error
        self._dynamics, self.q, self.u = recorder.dynamics, moment.q, moment.u
        self.columns = recorder.dynamics.subchain.columns
        self.step_size, self.work = moment.step_size, recorder.work + moment.work

    @cached_property
    def energy(self) -> Floats:
        return self._dynamics.energy_and_momentum(self.q, self.u)[:2]

    @property
    def poses(self) -> Floats:
        return pose_numbers(*self._dynamics.poses(self.q, self.u))

    @property
    def joint_loads(self) -> Floats:
        return self._carried.joints

    @property
    def joint_forces(self) -> Floats:
        return self._carried.forces

    @property
    def loop_loads(self) -> Floats:
        assert self._carried.loops is not None
        return self._carried.loops

    @cached_property
    def _carried(self) -> CarriedLoads:
        return self._recorder.joint_loads(self.t, self.q, self.u, self._held)

    @cached_property
    def violations(self) -> Floats:
        projection = self._recorder.projection
        assert projection is not None  # there are loops
        found = projection.loops.violations(self.q, self.u)
        projection.sampled.take(found)
        return found

    @property
    def residual(self) -> Floats:
        assert self._recorder.witness is not None
        return self._recorder.witness.largest

    @cached_property
    def solution(self) -> SolutionSample:
        constraints, dynamics = self._recorder.constraints, self._dynamics
        assert constraints is not None
        if "_carried" not in vars(self):  # which evaluates the sample itself
            together(dynamics.comm, lambda: dynamics.accelerations(self.q, self.u, self._held, self.t, warn=False))
        return constraints.take()


class Recorder:
    """Takes samples; all ranks make it together and call.

    Parameters
    ----------
    dynamics : Dynamics
    table : SampleTable
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
        Gives where samples go, from how many numbers of one this rank has, by quantity.

    Attributes
    ----------
    dynamics, constraints, projection, witness
        As given.
    count : int
        Samples so far.
    store : Samples or SampleWriter
        Where they go.
    balance : Balance
        Of the energy.
    extremes : Extremes or None
    seconds : float
        Wall time spent (s).
    work : float
        J: that of the segments before, without what events took.
    """

    def __init__(
        self,
        dynamics: Dynamics,
        table: SampleTable,
        extremes: bool,
        constraints: ConstraintRecord | None,
        projection: Projection | None,
        witness: Witness | None,
        keep: Callable[[dict[str, int]], Store],
    ) -> None:
        self.dynamics, self._table = dynamics, table
        self.constraints, self.projection, self.witness = constraints, projection, witness
        self._loads = loads = "loads" in table.shapes
        self._chosen = {each.name: self._block(each, table.rows[each.name]) for each in table.quantities}
        widths = {each.name: self._width(each) for each in table.quantities if each.of != SYSTEM}
        self.store = keep(widths)
        self.balance = Balance()
        self.extremes = Extremes(dynamics, loads) if extremes else None
        self._watched: tuple[float, CarriedLoads | None] = (np.nan, None)  # time and loads of the last step
        self.count = 0
        self.seconds = 0.0
        self.work = 0.0

    def _block(self, quantity: Quantity, rows: Integers | None) -> Integers | None:
        """Which rows of this rank's block are kept, of those of the whole."""
        if rows is None:
            return None
        comm, order = self.dynamics.comm, self.dynamics.model_order[_LIKE[quantity.of]]
        begin = sum(order.counts[: comm.rank])
        return rows[(begin <= rows) & (rows < begin + order.count)] - begin

    def _width(self, quantity: Quantity) -> int:
        """How many numbers of a quantity this rank has."""
        chosen, each = self._chosen[quantity.name], math.prod(quantity.row)
        if quantity.of in _LIKE:
            return each * (self.dynamics.model_order[_LIKE[quantity.of]].count if chosen is None else len(chosen))
        if quantity.of == PER_LOOP:  # of loops rank 0 has all
            return each * len(self.dynamics.system.loops) if self.dynamics.comm.rank == 0 else 0
        return 0 if self.constraints is None else self.constraints.unknowns

    def _kept(self, quantity: Quantity, found: Floats) -> Floats:
        """What samples keep of what this rank has found of a quantity."""
        if quantity.of == PER_LOOP:
            return found if self.dynamics.comm.rank == 0 else found[:0]
        if quantity.of not in _LIKE:
            return found
        chosen, block = self._chosen[quantity.name], self.dynamics.model_order[_LIKE[quantity.of]](found)
        return block if chosen is None else block[chosen]

    def follow(self, before: Recorder, work: float) -> None:
        """Go on with what another one has begun, behind so much work (J), what changes of structure took away off."""
        self.count, self.balance, self.work = before.count, before.balance, before.work + work
        if self.witness is not None and before.witness is not None:
            self.witness.follow(before.witness)

    def memory(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """What the samples so far leave to the next: for JSON, and vectors of this rank's; `recall` takes it again."""
        kinetic, vectors = ([], {}) if self.extremes is None else self.extremes.memory()
        return {
            "count": self.count,
            "balance": self.balance.memory(),
            "constraints": None if self.constraints is None else self.constraints.memory(),
            "kinetic": kinetic,
            "work": self.work,
            "witness": None if self.witness is None else self.witness.memory(),
        }, vectors  # fmt: skip

    def recall(self, memory: dict[str, Any], vectors: dict[str, Floats]) -> None:
        """Go on from what `memory` gave."""
        self.count = memory["count"]
        self.balance.recall(memory["balance"])
        self.work = memory.get("work", 0.0)
        if self.constraints is not None:
            self.constraints.recall(memory["constraints"])
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
            loads = self.joint_loads(t, q, u, stepper.held) if self._loads else None
            self.extremes.take(t, q, u, float(self.dynamics.energy_and_momentum(q, u)[0]), loads and loads.joints)
            self._watched = t, loads

    def joint_loads(self, t: float, q: Floats, u: Floats, held: Floats | None) -> CarriedLoads:
        """Give what joints and loops carry in a state, of the last step where that is it; all ranks call."""
        watched, found = self._watched
        if found is not None and watched == t:
            return found
        dynamics = self.dynamics
        return together(dynamics.comm, lambda: dynamics.loads.joints_and_loops(q, u, held, t))

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Count the wall time spent, but for that of evaluations, whose phases have their own."""
        began, evaluating = time.perf_counter(), sum(self.dynamics.seconds().values())
        yield
        self.seconds += time.perf_counter() - began + evaluating - sum(self.dynamics.seconds().values())

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
        agreed = np.array([moment.norm_error, self.store.due()], np.float64)
        self.dynamics.comm.Allreduce(MPI.IN_PLACE, agreed, MPI.MAX)
        at = _Instant(self, t, moment, float(agreed[0]))
        self.balance.take(at.energy, at.work)
        own, common = {}, {}
        for each in self._table.quantities:
            assert each.take is not None  # or samples don't have it
            found = each.take(at)
            if each.of == SYSTEM:
                common[each.name] = found
            else:
                own[each.name] = self._kept(each, found)
        self.store.add(own, common, bool(agreed[1]))

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
