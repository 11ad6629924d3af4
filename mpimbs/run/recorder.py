"""Takes samples of a running system, and keeps them or writes them; and extremes of all steps, which samples miss."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.loops import CarriedLoads
from mpimbs.dynamics.selection import Selection
from mpimbs.files.constraint_record import ConstraintRecord
from mpimbs.files.output_layout import KINETIC, MAGNITUDES, PER_ITEM, UNIT_OF
from mpimbs.files.rods import tension
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
            pull = tension(loads[None, :, 3:], self._dynamics.subchain.columns.center_of_mass)[0]
            values |= {"tension": pull, "moment": np.linalg.norm(loads[:, :3], axis=1)}
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
                mine[name] = self._peak(value[k], name, UNIT_OF[name], k, time[k])
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
_LIKE = {"q": "q", "u": "u", "poses": "body", "loads": "body"}  # in whose order quantities are


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
        self._chosen = {name: self._block(name, selection.rows(name, dynamics.system)) for name in selection.bodies}
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
        self._watched: tuple[float, CarriedLoads | None] = (np.nan, None)  # time and loads of the last step
        self.count = 0
        self.seconds = 0.0
        self._work = 0.0  # J: that of the segments before, without what events took

    def _block(self, name: str, rows: Integers | None) -> Integers | None:
        """Which rows of this rank's block are kept, of those of the whole."""
        if rows is None:
            return None
        comm, order = self._dynamics.comm, self._dynamics.model_order[_LIKE[name]]
        begin = sum(order.counts[: comm.rank])
        return rows[(begin <= rows) & (rows < begin + order.count)] - begin

    def _kept(self, name: str, part: Floats) -> Floats:
        """What samples keep of this rank's part of a quantity."""
        chosen, block = self._chosen[name], self._dynamics.model_order[_LIKE[name]](part)
        return block if chosen is None else block[chosen]

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

    def _joint_loads(self, t: float, q: Floats, u: Floats, held: Floats | None) -> CarriedLoads:
        watched, found = self._watched
        if found is not None and watched == t:
            return found
        dynamics = self._dynamics
        return together(dynamics.comm, lambda: dynamics.loads.joints_and_loops(q, u, held, t))

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
