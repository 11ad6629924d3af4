"""The trajectory of one system: integrated, sampled, watched, and its structure changed by events."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.coupling import solver_for
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.selection import SampleTable
from mpimbs.forces.motions import check_covered
from mpimbs.model import Event
from mpimbs.model.contents import Contents
from mpimbs.parallel.agreement import together
from mpimbs.run.recorder import Recorder, Store
from mpimbs.run.run_events import EventsState, RunEvents
from mpimbs.run.run_memory import RunState, RunTotals
from mpimbs.run.state import State, check_speeds, own_part
from mpimbs.run.structure_change import go_over, held_over
from mpimbs.run.witness import Witness
from mpimbs.stepping.integrator import Integrator, Moments
from mpimbs.stepping.integrators import make_integrator
from mpimbs.stepping.march import PASSING, PASSING_NUMBERS, TOGETHER
from mpimbs.stepping.settings import SimulationSettings
from mpimbs.stepping.step_sizes import ANCHORS, StepMemory

MANY = 2**31
AT_HAND = 1024  # samples whose times are at hand


class Known(NamedTuple):
    """The part of a `RunState` that has to be known before the system is made ready as it holds together."""

    totals: RunTotals
    events: EventsState | None
    asked: SimulationSettings | None


class Trajectory(ABC):
    """Takes a system through time; all ranks make it together and call.

    Who has one says where samples go, what is asked after a step, and what an earlier one has left.

    Parameters
    ----------
    settings : SimulationSettings
        Checked.
    known : Known, optional
        Go on from what this belongs to.
    state : State, optional
        Begin with this.
    """

    def __init__(
        self,
        system: Contents,
        settings: SimulationSettings,
        comm: MPI.Comm,
        known: Known | None = None,
        state: State | None = None,
    ) -> None:
        self._began = time.perf_counter()
        self._comm, self._known, self._state = comm, known, state
        self._times, self._selection = settings.sample_times(), settings.selection(system)
        together(comm, lambda: check_covered(system, self._times.t_end if np.isfinite(self._times.t_end) else 0.0))
        self._solver = solver_for(settings.coupling, settings.solver, None if settings.dt else settings.rtol)
        self._events = together(comm, lambda: RunEvents(system, self._times.t_end))
        together(comm, lambda: self._events.check_coupling(settings, self._solver))
        self._asked, self._totals = settings, RunTotals()
        if known is not None:
            self._totals = known.totals
            if known.events is not None and known.asked is not None:
                self._events.go_on(known.events)
                self._asked = known.asked
        self._segment = self._events.segment(comm, settings, self._solver)
        self._check()
        self._first = self._initial() if known is None else None
        self._held: Floats | None = None  # [nu] of the whole system
        self._next = 0.0  # s: time of the next sample
        self._block = 0, np.zeros(0)  # number of the first of some samples, and their times (s)
        self._stepper: Integrator | None = None

    def _check(self) -> None:
        """Refuse what can't be stepped."""
        together(self._comm, lambda: check_speeds(self._segment.dynamics.subchain))

    def _set_up(self) -> None:
        """Make what takes samples, and compile what all that calls."""
        self._recorder, segment = self._make_recorder(self._open), self._segment
        segment.compile()
        self._made = time.perf_counter()
        self._seconds = {"set-up": self._made - self._began - segment.compiling, "compile": segment.compiling}

    @abstractmethod
    def _open(self, widths: dict[str, int]) -> Store:
        """Give where samples go, from how many numbers of one this rank has, by quantity."""

    @abstractmethod
    def _open_segment(self, widths: dict[str, int]) -> Store:
        """Give where samples of another structure go, as `_open` does."""

    @abstractmethod
    def _recall(self) -> RunState:
        """Give this rank's part of what to go on from."""

    def _asks(self) -> int:
        """Give what this rank asks of all of them, in bits."""
        return 0

    def _most_steps(self, stepper: Integrator) -> int:
        """How many steps may be taken before something has to be done."""
        return MANY

    def _after_step(self, stepper: Integrator) -> None:  # noqa: B027  # of most there is nothing
        """Do what is due after a step, which any rank may have asked for."""

    def _changed(self) -> None:  # noqa: B027
        """Take notice of another structure."""

    @property
    def _saving(self) -> float:
        """Wall time spent on checkpoints (s)."""
        return 0.0

    def _make_recorder(self, keep: Callable[[dict[str, int]], Store]) -> Recorder:
        segment, dynamics = self._segment, self._segment.dynamics
        self._separated = separated = segment.separated_loads()
        witness = None if self._asked.no_witness else Witness(dynamics)
        facts = ("witness",) * (witness is not None) + ("iterative",) * (separated is not None)
        unknowns = 0 if separated is None else len(separated.bodies)
        self._table = SampleTable(dynamics.system, self._selection, facts, unknowns)
        numbers = (dynamics.system.nq + dynamics.system.nu) // self._comm.size
        # how many samples are taken together: one of solutions that go on from each other
        most = PASSING if segment.constraints is None else 1
        self._together = int(np.clip(PASSING_NUMBERS // max(numbers, 1), 1, most))
        given = segment.constraints, segment.projection, witness
        return Recorder(dynamics, self._table, self._asked.extremes, *given, keep)

    def begin(self) -> None:
        """Make the integrator, and take the first sample; or go on from what was known; all ranks call."""
        began, evaluating = time.perf_counter(), sum(self._segment.seconds().values())
        if self._known is None:
            assert self._first is not None
            self._stepper = self._integrator(*self._first)
            spent = time.perf_counter() - began + evaluating - sum(self._segment.seconds().values())
            self._seconds["set-up"], self._made = self._seconds["set-up"] + spent, self._made + spent
            self._events.watch(self.dynamics, self._stepper)
            self._recorder.begin(self._stepper)
            self._recorder.watch(self._stepper)
            self._record(self._stepper.all_at([0.0]))
            return
        state = self._recall()
        if state.u_held is not None:
            self._held = self.dynamics.gather_u.everywhere(state.u_held)
        self._recorder.go_on(state.recorder)
        self._next = self._times.at(self._recorder.count)
        self._stepper = self._integrator(state.q, state.u, state.steps)
        self._recorder.begin(self._stepper)
        if state.events is not None:
            self._events.watch(self.dynamics, self._stepper, signs=state.events.signs)
        self.dynamics.derivative.evaluations = state.evaluations

    @property
    def dynamics(self) -> Dynamics:
        """Dynamics of the system as it holds together now."""
        return self._segment.dynamics

    @property
    def starting(self) -> bool:
        """Whether nothing integrates yet."""
        return self._stepper is None

    @property
    def stepper(self) -> Integrator:
        """The integrator now."""
        assert self._stepper is not None  # `begin` has made it
        return self._stepper

    @property
    def ended(self) -> bool:
        """Whether the end is reached: the last sample is taken."""
        return self._recorder.count >= self._times.count

    def step_towards(self, t: float, several: bool = True) -> Integrator:
        """Take one step or several, not beyond a time (s), and what follows: samples, events, checkpoints; give what
        integrates."""
        stepper, sample = self.stepper, self._next
        target = min(t, self._times.t_end) if stepper.between else sample if sample <= (1.0 + TOGETHER) * t else t
        events = self._events
        goal = events.next_goal(target) if events.any else target
        alone = not several or events.watching or self._recorder.watches
        most = 1 if alone else self._most_steps(stepper)
        # What takes an evaluation takes it before the next step.
        ahead = 1 if self._recorder.evaluates else self._together
        there = stepper.step_towards(goal, self._ahead()[:ahead], most, self._recorder.unseen)
        if stepper.passed is not None:
            self._record(stepper.passed, passed=True)
        happening, passed = events.happening(stepper) if events.any else ([], [])
        self._recorder.watch(stepper)
        if stepper.between:
            while times := self._due((1.0 + TOGETHER) * stepper.time):
                self._record(stepper.all_at(times))
        elif there and goal == sample == stepper.time:
            self._record(stepper.all_at([sample]))
        if not self.ended:
            if happening:
                stepper = self._change(happening, passed)
            self._after_step(stepper)
        return stepper

    def _ahead(self) -> Floats:
        """Times (s) of the next samples."""
        count, (first, times) = self._recorder.count, self._block
        end = first + len(times)
        if count + PASSING > end and end < self._times.count:
            numbers = range(count, int(min(count + AT_HAND, self._times.count)))
            first, times = self._block = count, np.array([self._times.at(k) for k in numbers])
        return times[count - first : count - first + PASSING]

    def _due(self, t: float) -> list[float]:
        """Times (s) of the next samples, up to one that is reached."""
        if self._next > t:  # at the end there is none
            return []
        ahead = self._ahead()[: self._together]
        due: list[float] = ahead[: np.searchsorted(ahead, t, side="right")].tolist()
        return due

    def _record(self, states: Moments, passed: bool = False) -> None:
        """Take the samples of states, which were reached, or `passed`, or are in the last step."""
        recorder = self._recorder
        recorder.record(states, recorder.count + len(states.t) >= self._times.count, passed)
        self._next = self._times.at(recorder.count)

    def _initial(self) -> tuple[Floats, Floats]:
        """This rank's part of the state to begin with, its loops closed."""
        dynamics, state, projection = self._segment.dynamics, self._state, self._segment.projection
        q, u = dynamics.divided.followed(0.0, *own_part(dynamics, state)[:2])
        return (q, u) if projection is None else projection.begin(q, u)

    def _integrator(self, q: Floats, u: Floats, memory: StepMemory | None = None) -> Integrator:
        segment, settings = self._segment, self._asked
        self._own_forces = part = segment.dynamics.gather_u.part
        self.whole = self._comm.size == 1 and isinstance(part, slice)
        probed = segment.constraints is None  # whose solutions go on from each other
        return make_integrator(
            segment.dynamics, q, u, settings.integrator, settings.accuracy, memory=memory, asked=self._asks,
            probed=probed, projection=segment.projection, tension=settings.tension,
            held=None if self._held is None else self._held[part].copy(),
        )  # fmt: skip

    def _change(self, happening: list[Event], passed: list[int]) -> Integrator:
        """Go on with another structure."""
        before, stepper, events, recorder = self._segment, self.stepper, self._events, self._recorder
        spent, began, now = self._spent(), time.perf_counter(), stepper.time
        energy = before.dynamics.energy_and_momentum(stepper.q, stepper.u)[:2].sum()
        after, told = None, " and ".join(event.told for event in happening)
        try:
            events.keep(before.dynamics, stepper.q, stepper.u, happening)
            after = events.segment(self._comm, self._asked, self._solver)
            q, u, moved = go_over(before.dynamics, after, stepper.q, stepper.u, happening)
            if self._comm.allreduce(not (np.isfinite(q).all() and np.isfinite(u).all()), MPI.LOR):
                raise SimulationError(
                    "the state behind it is no longer finite; likely cause: a load that grows without bound"
                )
        except (InputError, SimulationError) as error:  # an InputError: what holds now can't be, as a whole
            if after is not None:
                after.dynamics.close()
            raise SimulationError(f"t = {now:g} s, event ({told}): {error}") from None
        lost = float(energy - after.dynamics.energy_and_momentum(q, u)[:2].sum())
        recorder.keep_extremes()
        events.note(now, happening, lost, moved)
        self._totals.take(before, recorder, now, spent)
        memory, requests, evaluations = stepper.memory(), stepper.requests, before.dynamics.derivative.evaluations
        work = stepper.total_work() - lost
        self._segment = after
        systems = before.dynamics.system, after.dynamics.system
        if self._held is not None:
            self._held = held_over(*systems, self._held, happening)
        if (anchors := memory.vectors.get(ANCHORS)) is not None:
            stay = held_over(*systems, before.dynamics.gather_u.everywhere(anchors), happening)
            memory.vectors[ANCHORS] = stay[after.dynamics.gather_u.part]
        stepper.close()
        after.dynamics.derivative.evaluations = evaluations
        self._recorder = self._make_recorder(self._open_segment)
        self._recorder.follow(recorder, work)
        before.dynamics.close()
        after.compile()
        self._stepper = stepper = self._integrator(q, u, memory.of_another(work=[], projection=self._totals.loops))
        stepper.requests = requests
        try:
            self._recorder.begin(stepper)
        except InputError as error:  # samples have what can't be told of the structure that is there now
            raise SimulationError(f"t = {now:g} s, event ({told}): {error}") from None
        events.watch(after.dynamics, stepper, passed)
        self._made = time.perf_counter()
        self._seconds = {"events": self._made - began - after.compiling, "compile": after.compiling}
        self._changed()
        return stepper

    def state(self) -> RunState:
        """Give what another one goes on from; all ranks call."""
        stepper, events, segment = self.stepper, self._events, self._segment
        solutions = self._totals.solutions_left(segment)
        totals = replace(self._totals, seconds=self._spent(), solutions_before=solutions)
        given = stepper.memory(), self._recorder.state, totals, segment.dynamics.derivative.evaluations
        state = RunState(stepper.q, stepper.u, stepper.held, *given)
        if events.any:
            state.events, state.asked = events.state, self._asked.data()
        return state

    def _spent(self) -> dict[str, float]:
        """Wall time by phase of this rank so far, of the segments and the parts of the run before too (s)."""
        phases = self._segment.seconds()
        rest = time.perf_counter() - self._made - sum(phases.values())
        rest -= self._recorder.seconds + self._saving
        own = {**self._seconds, **phases, "integration": rest, "output": self._recorder.seconds}
        if (witness := self._recorder.witness) is not None:
            own |= {"integration": rest - witness.seconds, "witness": witness.seconds}
        if self._saving:
            own["checkpoints"] = self._saving
        before = self._totals.seconds
        return {name: own.get(name, 0.0) + before.get(name, 0.0) for name in {**own, **before}}

    def close(self) -> None:
        """Free what it holds; all ranks call."""
        if self._stepper is not None:
            self._stepper.close()
        self._segment.dynamics.close()
