"""Takes samples of a running system, and keeps them or writes them."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mpimbs.base.arguments import all_finite
from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.dynamics import totals_of
from mpimbs.dynamics.instants import States
from mpimbs.dynamics.loops import CarriedLoads
from mpimbs.dynamics.quantities import PER_BODY, PER_LOOP, QUANTITIES, SYSTEM, Q, Quantity, U
from mpimbs.dynamics.selection import SampleTable
from mpimbs.files.output_layout import ConstraintRecord, ConstraintState, SolutionSample
from mpimbs.files.sample_writer import SampleWriter
from mpimbs.files.samples import Samples
from mpimbs.parallel.agreement import greatest, together
from mpimbs.parallel.reorder import Gather
from mpimbs.run.accumulated import Extremes, ExtremesState, Integrals, IntegralState, same_forces
from mpimbs.run.witness import Witness, WitnessState
from mpimbs.stepping.integrator import Moment, Moments
from mpimbs.stepping.march import UNLIMITED
from mpimbs.stepping.projection import Projection
from mpimbs.stepping.work import Balance

if TYPE_CHECKING:
    from mpimbs.stepping.integrator import Integrator


Store = Samples | SampleWriter
_LIKE = {Q: "q", U: "u", PER_BODY: "body"}  # in whose order rows are


class _SampledStates(States):
    """States of which samples are taken, in their order: with what a run knows beside."""

    def __init__(self, recorder: Recorder, states: Moments, counted: bool = True) -> None:
        super().__init__(lambda _: recorder.dynamics, *states[:4])
        self._recorder, self._counted = recorder, counted
        self.norm_error, self.step_size = states.norm_error, states.step_size
        self.work = [recorder.work + work for work in states.work]

    def carried(self, k: int) -> CarriedLoads:
        return self._recorder.joint_loads(self.t[k], self.q[k], self.u[k], self.held[k])

    def integral(self, name: str) -> Floats:
        """The integral of a quantity so far [states, n], of this rank's bodies, by its name."""
        return np.array([self._recorder.integrals.at(name, t) for t in self.t])

    @cached_property
    def violations(self) -> Floats:
        found = super().violations
        if self._counted and self._recorder.projection is not None:
            for each in found:
                self._recorder.projection.sampled(each)
        return found

    @property
    def residual(self) -> Floats:
        """The largest residuals that the witness has seen [states, 2]."""
        assert self._recorder.witness is not None
        return np.array([self._recorder.witness.largest] * len(self.t))

    @cached_property
    def solutions(self) -> list[SolutionSample]:
        """Of the constraint-load equations of each."""
        constraints, dynamics = self._recorder.constraints, self._recorder.dynamics
        assert constraints is not None and len(self.t) == 1  # of solutions that go on from each other
        if "_carried" not in vars(self):  # which evaluates the sample itself
            given = self.q[0], self.u[0], self.held[0], self.t[0]
            together(dynamics.comm, lambda: dynamics.accelerations(*given, warn=False))
        return [constraints.take()]


@dataclass
class RecorderState:
    """The state that samples leave to the next: attributes as of `Recorder`."""

    count: int
    work: float
    balance: Balance
    integrals: dict[str, IntegralState]
    witness: WitnessState | None
    constraints: ConstraintState | None
    extremes: ExtremesState | None


def integrals_of(table: SampleTable) -> list[Quantity]:
    """The quantities of samples that are integrals of others."""
    return [each for each in table.quantities if each.integral_of]


class Recorder:
    """Takes samples; all ranks make it together and call.

    Parameters
    ----------
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
        self.store = keep(widths)  # where samples go
        self.balance = Balance()  # of the energy
        self.extremes = Extremes(dynamics, loads) if extremes else None
        self.integrals = self._integrals({})
        self.watches = extremes or bool(integrals_of(table))  # every step is looked at
        self.evaluates = any(each.evaluates for each in table.quantities)  # at every sample
        self._watched: tuple[float, Any, CarriedLoads | None] = (np.nan, None, None)  # of the last look at loads
        self.count = 0  # samples so far
        self.seconds = 0.0  # of wall time spent
        self._looks_at = 0.0  # s
        self.work = 0.0  # J: that of the segments before, without what events took

    def _integrals(self, state: dict[str, IntegralState]) -> Integrals:
        def sampled(t: float, moment: Moment) -> _SampledStates:
            return _SampledStates(self, Moments.of([t], [moment]))

        return Integrals(integrals_of(self._table), sampled, state, self.dynamics.comm)

    def _block(self, quantity: Quantity, rows: Integers | None) -> Integers | None:
        """Which rows of this rank's block are kept, of those of the whole."""
        if rows is None:
            return None
        comm, order = self.dynamics.comm, self.dynamics.divided.model_order[_LIKE[quantity.of]]
        begin = sum(order.counts[: comm.rank])
        return rows[(begin <= rows) & (rows < begin + order.count)] - begin

    def _width(self, quantity: Quantity) -> int:
        """How many numbers of a quantity this rank has."""
        chosen, each = self._chosen[quantity.name], math.prod(quantity.row)
        if quantity.of in _LIKE:
            return each * (
                self.dynamics.divided.model_order[_LIKE[quantity.of]].count if chosen is None else len(chosen)
            )
        if quantity.of == PER_LOOP:  # of loops rank 0 has all
            return each * len(self.dynamics.system.loops) if self.dynamics.comm.rank == 0 else 0
        return 0 if self.constraints is None else self.constraints.unknowns

    def _kept(self, quantity: Quantity, found: Floats) -> Floats:
        """Give the part of a quantity that samples keep [samples, ...], of what this rank has found."""
        if quantity.of == PER_LOOP:
            return found if self.dynamics.comm.rank == 0 else found[:, :0]
        if quantity.of not in _LIKE:
            return found
        chosen, order = self._chosen[quantity.name], self.dynamics.divided.model_order[_LIKE[quantity.of]]
        block = order(found.swapaxes(0, 1)).swapaxes(0, 1)
        return block if chosen is None else block[:, chosen]

    def now(self, quantity: Quantity, stepper: Integrator) -> Floats:
        """Give what a sample of the state reached would have of a quantity, of the whole system; all ranks call.

        Raises
        ------
        InputError
            There is none of it here.
        """
        base = quantity if quantity.derived is None else QUANTITIES[quantity.derived[0]]
        dynamics, there = self.dynamics, {"loops": self.projection, "witness": self.witness, "iterative": None}
        if any(there.get(need, self) is None for need in base.needs):
            raise InputError(f"{quantity.name}: there is none now; samples have it where {' and '.join(base.needs)} do")
        if base.integral_of and base.name not in self.integrals.state:
            raise InputError(f"{quantity.name}: is known where samples have it; name it in `sample`")
        at = _SampledStates(self, stepper.all_at([stepper.time]), counted=False)
        assert base.take is not None  # what follows from others has none
        found = np.asarray(base.take(at), float)[0]
        if base.of in _LIKE:
            order = dynamics.divided.model_order[_LIKE[base.of]]
            found = Gather(dynamics.comm, order, math.prod(base.row)).everywhere(found).reshape(-1, *base.row)
        if quantity.derived is None:
            return found
        return quantity.derived[1](found, dynamics.system.columns().center_of_mass)

    def follow(self, before: Recorder, work: float) -> None:
        """Go on with what another one has begun, behind so much work (J), what changes of structure took away off."""
        self.count, self.balance, self.work = before.count, before.balance, before.work + work
        if self.witness is not None and before.witness is not None:
            self.witness.follow(before.witness)
        for name, known in before.integrals.state.items():  # which other ranks may have now
            whole = before.dynamics.divided.gather_bodies(1).everywhere(known.value)
            part = self.dynamics.divided.gather_bodies(1).part
            self.integrals.state[name] = IntegralState(whole[part].copy(), np.zeros(0))

    @property
    def state(self) -> RecorderState:
        """The state that the samples so far leave to the next."""
        witness, constraints, extremes = self.witness, self.constraints, self.extremes
        return RecorderState(
            self.count, self.work, self.balance, self.integrals.state,
            None if witness is None else WitnessState(witness.due, witness.seen),
            None if constraints is None else constraints.state, None if extremes is None else extremes.state,
        )  # fmt: skip

    def go_on(self, state: RecorderState) -> None:
        """Go on from what other samples left."""
        self.count, self.work, self.balance = state.count, state.work, state.balance
        self.integrals = self._integrals(state.integrals)
        if self.witness is not None and state.witness is not None:
            self.witness.due, self.witness.seen = state.witness.due, state.witness.seen
        if self.constraints is not None and state.constraints is not None:
            self.constraints.state = state.constraints
        if self.extremes is not None and state.extremes is not None:
            self.extremes.go_on(state.extremes)

    @property
    def unseen(self) -> int:
        """After how many more evaluations a sample is looked at."""
        return UNLIMITED if self.witness is None else self.witness.due - self.dynamics.derivative.evaluations

    def begin(self, stepper: Integrator) -> None:
        """See where an integrator begins, or goes on; all ranks call. Raises as `record`."""
        with self._timed():
            self.integrals.begin(stepper)

    def watch(self, stepper: Integrator) -> None:
        """See whether the state after a step is extreme, unless that was rejected; all ranks call.

        Raises
        ------
        SimulationError
            As `record`.
        """
        if not self.watches:
            return
        with self._looking(stepper.time), self._timed():
            self.integrals.take(stepper)
            t, q, u = stepper.time, stepper.q, stepper.u
            if self.extremes is not None and self.extremes.time != t:
                loads = self.joint_loads(t, q, u, stepper.at(t).given) if self._loads else None
                self.extremes.take(t, q, u, float(self.dynamics.energy_and_momentum(q, u)[0]), loads and loads.joints)

    def joint_loads(self, t: float, q: Floats, u: Floats, held: Floats | None) -> CarriedLoads:
        """Give what joints and loops carry in a state, of the last step where that is it; all ranks call."""
        watched, acted, found = self._watched
        if found is None or watched != t or not same_forces(self.dynamics.comm, acted, held):
            dynamics = self.dynamics
            found = together(dynamics.comm, lambda: dynamics.loads.joints_and_loops(q, u, held, t))
            self._watched = t, None if held is None else held.copy(), found
        return found

    @contextlib.contextmanager
    def _looking(self, t: float) -> Iterator[None]:
        """Look at states from a time (s) on, which nobody gave: what is wrong there is an error of the simulation."""
        self._looks_at = t
        try:
            yield
        except InputError as error:
            raise SimulationError(
                f"t = {self._looks_at:g} s: the state is no longer one ({error}); likely cause: too large a step, or a "
                "load that grows without bound"
            ) from None

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Count the wall time spent, but for that of evaluations and of the witness, which have their own."""
        derivative, witness = self.dynamics.derivative, self.witness
        began, others = time.perf_counter(), derivative.spent + (0.0 if witness is None else witness.seconds)
        yield
        others -= derivative.spent + (0.0 if witness is None else witness.seconds)
        self.seconds += time.perf_counter() - began + others

    def record(self, states: Moments, last: bool, passed: bool = False) -> None:
        """Take samples of states, of one step, or that several have `passed`; perhaps up to the last; all ranks call.

        Raises
        ------
        SimulationError
            On all ranks: a function of the model failed, or the witness found accelerations that are wrong.
        OutputError
            On all ranks: the sample can't be written.
        """
        times = states.t
        with self._looking(times[0]), self._timed():
            dynamics, broken = self.dynamics, not (all_finite(states.q.ravel()) and all_finite(states.u.ravel()))
            facts = *states.norm_error, self.store.due(len(times)), broken
            *norm_error, due, broken = greatest(dynamics.comm, facts).tolist()
            states = states._replace(norm_error=norm_error)
            at, known = _SampledStates(self, states), False
            if not broken:
                at.energy = totals_of(dynamics, at.q, at.u)[:, :2].copy()
                known = math.isfinite(at.energy.sum())
            looks = self.witness is not None and not passed and self.witness.looks(last)
            if known and not looks and not self.evaluates:
                self._take(at, bool(due))
                return
            # What evaluates, or is wrong, is found one by one: the samples before it are taken.
            for k, t in enumerate(times):
                self._looks_at, ends = t, k + 1 == len(times)
                one = at if len(times) == 1 else _SampledStates(self, states.one(k))
                if known:
                    one.energy = at.energy[k : k + 1]
                if looks and self.witness is not None:
                    self.witness.take(t, one.q[0], one.u[0], one.held[0], last and ends)
                self._take(one, bool(due) and ends)

    def _take(self, at: _SampledStates, due: bool) -> None:
        for energy, work in zip(at.energy.tolist(), at.work, strict=True):
            self.balance.take(energy, work)
        own, common = {}, {}
        for each in self._table.quantities:
            assert each.take is not None  # or samples don't have it
            found = each.take(at)
            if each.of == SYSTEM:
                common[each.name] = found
            else:
                own[each.name] = self._kept(each, np.asarray(found))
        self.store.add(own, common, due)
        self.count += len(at.t)

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
