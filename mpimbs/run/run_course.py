"""A run from end to end: integrate, sample, write, watch, change its structure, keep, summarise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.errors import InputError, InterruptionError, SimulationError
from mpimbs.base.sizes import tuned
from mpimbs.base.state_tree import made_again
from mpimbs.coupling import solver_for
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.quantities import Quantity
from mpimbs.dynamics.resources import ranks_on_node
from mpimbs.dynamics.selection import SampleTable
from mpimbs.files.checkpoint import Kept
from mpimbs.files.motion import Motion
from mpimbs.files.output import OutputError, OutputFile
from mpimbs.files.output_layout import lay_out, lay_out_segment
from mpimbs.files.samples import Samples
from mpimbs.forces.motions import check_covered
from mpimbs.model import Event, System
from mpimbs.parallel.agreement import together
from mpimbs.run.keeper import Keeper
from mpimbs.run.recorder import Recorder, Store
from mpimbs.run.result import Result
from mpimbs.run.run_events import TOGETHER, EventsState, RunEvents
from mpimbs.run.run_files import RunFiles
from mpimbs.run.run_memory import RunMemory, RunState, RunTotals
from mpimbs.run.signals import Signals
from mpimbs.run.state import State, check_speeds, check_system
from mpimbs.run.structure_change import go_over, held_over
from mpimbs.run.witness import Witness
from mpimbs.stepping.integrator import Integrator
from mpimbs.stepping.integrators import check_petsc_options, make_integrator
from mpimbs.stepping.schemes import renamed_told
from mpimbs.stepping.settings import Checkpoints, SimulationSettings
from mpimbs.stepping.step_memory import StepMemory

Floats = npt.NDArray[np.float64]


class Run:
    """One simulation, from its beginning or from a checkpoint; all ranks make it together and call.

    Parameters
    ----------
    system : System
    settings : SimulationSettings
        Checked.
    comm : MPI.Comm
    path : Path or None
        Of the output.
    checkpoints : Checkpoints or None
    signals : Signals
    kept : Kept, optional
        Go on from this.
    state : State, optional
        Begin with this.

    Attributes
    ----------
    outcome : Result or None
        Of a run that has ended.
    files : RunFiles
    whole : bool
        Whether the vectors of this rank are those of the whole system, in the model's order.
    """

    def __init__(
        self,
        system: System,
        settings: SimulationSettings,
        comm: MPI.Comm,
        path: Path | None,
        checkpoints: Checkpoints | None,
        signals: Signals,
        kept: Kept | None = None,
        state: State | None = None,
    ) -> None:
        began = time.perf_counter()
        self._comm, self._kept, self._state = comm, kept, state
        here = ranks_on_node(comm)
        together(comm, lambda: check_system(system, comm.size, here))
        self._times, self._selection = settings.sample_times(), settings.selection(system)
        together(comm, lambda: check_covered(system, self._times.t_end if np.isfinite(self._times.t_end) else 0.0))
        self._solver = solver_for(settings.coupling, settings.solver, None if settings.dt else settings.rtol)
        self._events = together(comm, lambda: RunEvents(system, self._times.t_end))
        together(comm, lambda: self._events.check_coupling(settings, self._solver))
        self._asked, self._totals = settings, RunTotals()
        if kept is not None:
            known = kept.header["state"]
            self._totals = made_again(RunTotals, known["totals"], {})
            if known["events"] is not None:
                self._events.go_on(made_again(EventsState, known["events"], {}))
                self._asked = SimulationSettings.of(known["asked"])
        self._segment = segment = self._events.segment(comm, settings, self._solver)
        self._check_integrator()
        self._first = self._initial() if kept is None else None
        self.files = RunFiles(comm, path, checkpoints, signals.enabled, kept, settings.force)
        self._memory = RunMemory(system, segment.dynamics, segment.settings, self.files)
        with self.files.setting_up():
            self._recorder = self._make_recorder(self._open)
            segment.compile()
            files, going_on = self.files, lambda: self._memory.going_on()  # which events make anew
            self._keeper = Keeper(comm, files.checkpoints, files.place, signals, self.save, going_on)
        self._made = time.perf_counter()
        self._seconds = {"set-up": self._made - began - segment.compiling, "compile": segment.compiling}
        self._held: Floats | None = None  # [nu] of the whole system
        self._next = 0.0  # s: time of the next sample
        self._stepper: Integrator | None = None
        self.outcome: Result | None = None

    def _check_integrator(self) -> None:
        """Refuse what PETSc's options and the speeds make impossible; say where options replace the integrator."""
        comm, settings, solves = self._comm, self._asked, self._segment.constraints is not None
        replaced = together(comm, lambda: check_petsc_options(settings.integrator, settings.accuracy, solves))
        together(comm, lambda: check_speeds(self._segment.dynamics.subchain))
        if comm.rank != 0:
            return
        if self._kept is None and (told := renamed_told(settings.integrator)):
            print(told, file=sys.stderr, flush=True)
        if replaced:
            told = f"mpimbs: note: PETSC_OPTIONS replace the integrator {settings.integrator} by {replaced}"
            print(told, file=sys.stderr, flush=True)

    def _make_recorder(self, keep: Callable[[dict[str, int]], Store]) -> Recorder:
        segment, dynamics = self._segment, self._segment.dynamics
        self._separated = separated = segment.separated_loads()
        witness = None if self._asked.no_witness else Witness(dynamics)
        facts = ("witness",) * (witness is not None) + ("iterative",) * (separated is not None)
        unknowns = 0 if separated is None else len(separated.bodies)
        self._table = SampleTable(dynamics.system, self._selection, facts, unknowns)
        given = segment.constraints, segment.projection, witness
        return Recorder(dynamics, self._table, self._asked.extremes, *given, keep)

    def _open(self, widths: dict[str, int]) -> Store:
        """Begin the output, or go on with it."""
        segment, settings = self._segment, self._segment.settings
        told = settings.data() | {
            "every": self._times.at(1), "ranks": self._comm.size, **segment.told(),
            "solver": None if self._solver is None else self._solver.data(),
        }  # fmt: skip
        given = self._events.system, told, self._table, settings.extremes, self._separated
        count = 0 if self._kept is None else self._kept.header["count"]
        return self.files.open(
            lambda path: OutputFile(path, lambda file: lay_out(file, *given), settings.force),
            widths,
            self._table.shapes,
            self._totals.rows(count),
        )

    def begin(self) -> None:
        """Take the first sample, or go on where the checkpoint has it; all ranks call."""
        try:
            self._begin()
        except SimulationError as stopped:
            self.end(stopped)
        self._keeper.begin(self.stepper.steps)

    @property
    def dynamics(self) -> Dynamics:
        """Of the system as it holds together now."""
        return self._segment.dynamics

    @property
    def starting(self) -> bool:
        """Whether nothing integrates yet."""
        return self._stepper is None

    @property
    def stepper(self) -> Integrator:
        """What integrates now."""
        assert self._stepper is not None  # `begin` has made it
        return self._stepper

    def quantity(self, quantity: Quantity) -> Floats:
        """Give what a sample of now would have of a quantity, of the whole system; all ranks call."""
        return self._recorder.now(quantity, self.stepper)

    @property
    def held(self) -> Floats | None:
        """Forces (N m, N) on the joints on top of the model's, in its order [nu]."""
        return self._held

    def hold(self, where: slice, forces: Floats | float) -> None:
        """Let other forces act on some of the joints, of those [nu] of the whole system, from here on."""
        held, stepper = self._held, self.stepper
        if held is None:
            self._held = held = np.zeros(self.dynamics.system.nu)
        held[where] = forces
        if stepper.held is None:
            self._renew()
        else:
            stepper.held[:] = held[self._own_forces]
            stepper.restart()

    def _renew(self) -> None:
        """Go on with another integrator, whose first step takes nothing from the last one of this."""
        before = self.stepper
        q, u, memory = before.q, before.u, before.memory().of_another()
        before.close()
        self._stepper = self._integrator(q, u, memory)
        self._stepper.requests = before.requests

    def advance(self, t: float) -> None:
        """Simulate to a time (s), at the most to the end; all ranks call. Errors, as those of `simulate`, end it."""
        goal, stepper = (1.0 - TOGETHER) * t, self.stepper
        try:
            while stepper.time < goal and not self.ended:
                stepper = self._step_towards(t)
        except SimulationError as stopped:
            self.end(stopped)

    def step(self, several: bool = False) -> None:
        """Take one step, not beyond an event or the end, or several with nothing to do between them; all ranks call.

        Of an integrator that knows no states between the ends of its steps, not beyond a sample.
        """
        try:
            self._step_towards(np.inf, several)
        except SimulationError as stopped:
            self.end(stopped)

    @property
    def ended(self) -> bool:
        """Whether the end is reached: the last sample is taken."""
        return self._recorder.count >= self._times.count

    def result(self, status: str) -> Result:
        """What is known of the run so far; all ranks call."""
        result, segment, stepper = Result(status=status), self._segment, self._stepper
        result.evaluations = segment.dynamics.evaluations
        balance = self._recorder.balance
        result.energy_error, result.energy_change = balance.change, balance.relative
        if (witness := self._recorder.witness) is not None:
            result.witness = witness.seen.told()
        store = self._recorder.store
        result.loops = self._totals.told_loops(segment)
        result.peaks = self._totals.peaks(self._recorder)
        result.events = self._events.happened
        result.restarts = self.files.restarts()
        result.sizes = tuned().told()
        result.solutions = self._totals.solutions(segment)
        if self._comm.rank == 0:
            path, rows = self.files.output, self._totals.rows(self._recorder.count)
            if isinstance(store, Samples):
                result.motion = Motion.in_memory(store, self._events.structures(), rows, self._selection)
            else:
                assert path is not None and self.files.run is not None
                result.motion = Motion.in_file(path.absolute(), self.files.run, len(rows))
        if stepper is not None:
            result.time, result.steps, result.rejected = stepper.time, stepper.steps, stepper.rejected
            result.step_sizes = stepper.step_statistics()
        result.seconds = self._spent()
        return result

    def end(self, error: SimulationError | None = None, status: str = "complete") -> Result:
        """End the run, with what it writes; all ranks call. Raises what broke it, or what breaks now."""
        try:
            if error is None:
                self._recorder.finish()
        except SimulationError as stopped:
            error = stopped
        self.outcome = result = self.result(status if error is None else f"stopped: {error}")
        if self._stepper is not None:
            self._stepper.close()
        try:
            if not isinstance(error, OutputError):  # which has ended it
                result.extremes = self._recorder.keep_extremes()
                unfinished = isinstance(error, InterruptionError)
                self._recorder.store.close(result.status, result.statistics(), unfinished)
        except OutputError as broken:
            error = error or broken
        self._segment.dynamics.close()
        self.files.release()
        if isinstance(error, OutputError):
            error = OutputError(f"{error}{self._keeper.hint()}")
        if error is not None:
            raise error
        return result

    def _begin(self) -> None:
        """Make the integrator, and take the first sample; or go on where the checkpoint has it."""
        began, evaluating = time.perf_counter(), sum(self._segment.seconds().values())
        if self._kept is None:
            assert self._first is not None
            self._stepper = self._integrator(*self._first)
            spent = time.perf_counter() - began + evaluating - sum(self._segment.seconds().values())
            self._seconds["set-up"], self._made = self._seconds["set-up"] + spent, self._made + spent
            self._events.watch(self.dynamics, self._stepper)
            self._recorder.begin(self._stepper)
            self._recorder.watch(self._stepper)
            self._record(0.0)
            return
        state = self._memory.recall()
        if state.u_held is not None:
            self._held = self.dynamics.gather_u.everywhere(state.u_held)
        self._recorder.go_on(state.recorder)
        self._next = self._times.at(self._recorder.count)
        self._stepper = self._integrator(state.q, state.u, state.steps)
        self._recorder.begin(self._stepper)
        if state.events is not None:
            self._events.watch(self.dynamics, self._stepper, signs=state.events.signs)
        self.dynamics.evaluations = state.evaluations

    def _record(self, t: float) -> None:
        """Take the sample of a time (s), which is reached, or was in the last step."""
        self._recorder.record(t, self.stepper.at(t), self._recorder.count + 1 >= self._times.count)
        self._next = self._times.at(self._recorder.count)

    def _initial(self) -> tuple[Floats, Floats]:
        """This rank's part of the state to begin with, its loops closed."""
        dynamics, state, projection = self._segment.dynamics, self._state, self._segment.projection
        if state is None:
            q, u = dynamics.subchain.q, dynamics.subchain.u
        else:
            q, u = state.q[dynamics.gather_q.part].copy(), state.u[dynamics.gather_u.part].copy()
        q, u = dynamics.followed(0.0, q, u)
        return (q, u) if projection is None else projection.begin(q, u)

    def _integrator(self, q: Floats, u: Floats, memory: StepMemory | None = None) -> Integrator:
        segment, settings = self._segment, self._asked
        self._own_forces = part = segment.dynamics.gather_u.part
        self.whole = self._comm.size == 1 and isinstance(part, slice)
        probed = segment.constraints is None  # whose solutions go on from each other
        return make_integrator(
            segment.dynamics, q, u, settings.integrator, settings.accuracy, memory=memory, asked=self._keeper.asked,
            probed=probed, projection=segment.projection, tension=settings.tension,
            held=None if self._held is None else self._held[part].copy(),
        )  # fmt: skip

    def _step_towards(self, t: float, several: bool = True) -> Integrator:
        """Take one step or several, not beyond a time (s), and what follows: samples, events, checkpoints; give what
        integrates."""
        stepper, sample = self.stepper, self._next
        target = min(t, self._times.t_end) if stepper.between else sample if sample <= (1.0 + TOGETHER) * t else t
        events = self._events
        goal = events.next_goal(target) if events.any else target
        alone = not several or events.watching or self._recorder.watches
        most = 1 if alone else self._keeper.steps_left(stepper.steps)
        there = stepper.step_towards(goal, (1.0 - TOGETHER) * sample, most)
        happening, passed = events.happening(stepper) if events.any else ([], [])
        self._recorder.watch(stepper)
        if stepper.between:
            while self._next <= (1.0 + TOGETHER) * stepper.time and not self.ended:
                self._record(self._next)
        elif there and goal == sample == stepper.time:
            self._record(sample)
        if not self.ended:
            if happening:
                stepper = self._change(happening, passed)
            self._keeper.after_step(stepper.requests, stepper.time, stepper.steps)
        return stepper

    def _change(self, happening: list[Event], passed: list[int]) -> Integrator:
        """Go on with another structure."""
        before, stepper, events, recorder = self._segment, self.stepper, self._events, self._recorder
        spent, began, now = self._spent(), time.perf_counter(), stepper.time
        energy = before.dynamics.energy_and_momentum(stepper.q, stepper.u)[:2].sum()
        after = None
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
            told = " and ".join(event.told for event in happening)
            raise SimulationError(f"t = {now:g} s, event ({told}): {error}") from None
        lost = float(energy - after.dynamics.energy_and_momentum(q, u)[:2].sum())
        recorder.keep_extremes()
        events.note(now, happening, lost, moved)
        self._totals.take(before, recorder, now, spent)
        memory, requests, evaluations = stepper.memory(), stepper.requests, before.dynamics.evaluations
        work = stepper.total_work() - lost
        self._segment = after
        if self._held is not None:
            self._held = held_over(before.dynamics.system, after.dynamics.system, self._held, happening)
        stepper.close()
        after.dynamics.evaluations = evaluations
        self._memory = RunMemory(events.system, after.dynamics, after.settings, self.files)
        self._recorder = self._make_recorder(self._open_segment)
        self._recorder.follow(recorder, work)
        before.dynamics.close()
        after.compile()
        self._stepper = stepper = self._integrator(q, u, memory.of_another(work=[], projection=self._totals.loops))
        stepper.requests = requests
        self._recorder.begin(stepper)
        events.watch(after.dynamics, stepper, passed)
        self._made = time.perf_counter()
        self._seconds = {"events": self._made - began - after.compiling, "compile": after.compiling}
        self._keeper.seconds = 0.0
        return stepper

    def _open_segment(self, widths: dict[str, int]) -> Store:
        """Go on with the output, for another structure."""
        given = self._segment.dynamics.system, self._events.now, self._events.happened[-1]["time"], self._table
        left = self._times.count - self._totals.begins[-1]
        more = self._asked.extremes, self._separated, left

        def begin(file: OutputFile) -> None:
            number = len(self._totals.begins) - 1
            file.begin_segment(number, lambda group: lay_out_segment(group, *given, *more))

        return self._recorder.store.next(widths, self._table.shapes, begin)

    def save(self) -> str | None:
        """Write a checkpoint of the state after the last step; gives the reason why not. All ranks call."""
        stepper, events, segment = self.stepper, self._events, self._segment
        self._recorder.store.sync()  # its samples come first
        solutions = self._totals.solutions_left(segment)
        totals = replace(self._totals, seconds=self._spent(), solutions_before=solutions)
        given = stepper.memory(), self._recorder.state, totals, segment.dynamics.evaluations
        state = RunState(stepper.q, stepper.u, stepper.held, *given)
        if events.any:
            state.events, state.asked = events.state, self._asked.data()
        return self._memory.write(state)

    def _spent(self) -> dict[str, float]:
        """Wall time by phase of this rank so far, of the segments and the parts of the run before too (s)."""
        phases = self._segment.seconds()
        rest = time.perf_counter() - self._made - sum(phases.values())
        rest -= self._recorder.seconds + self._keeper.seconds
        own = {**self._seconds, **phases, "integration": rest, "output": self._recorder.seconds}
        if (witness := self._recorder.witness) is not None:
            own |= {"integration": rest - witness.seconds, "witness": witness.seconds}
        if self._keeper.seconds:
            own["checkpoints"] = self._keeper.seconds
        before = self._totals.seconds
        return {name: own.get(name, 0.0) + before.get(name, 0.0) for name in {**own, **before}}
