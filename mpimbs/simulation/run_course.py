"""A run from end to end: integrate, sample, write, watch, change its structure, keep, summarise."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.coupling import solver_for
from mpimbs.errors import InterruptionError, SimulationError
from mpimbs.forces.motions import check_covered
from mpimbs.model import Event, System
from mpimbs.model.connections import connected
from mpimbs.parallel.agreement import together
from mpimbs.resources import ranks_on_node
from mpimbs.simulation.checkpoint import Kept
from mpimbs.simulation.integrator import Integrator
from mpimbs.simulation.keeper import Keeper
from mpimbs.simulation.kept_motion import motion_in_file, motion_in_memory
from mpimbs.simulation.output import OutputError, OutputFile
from mpimbs.simulation.output_layout import lay_out_segment
from mpimbs.simulation.petsc_schemes import check_options
from mpimbs.simulation.progress import Progress
from mpimbs.simulation.recorder import Recorder, Store
from mpimbs.simulation.result import Result
from mpimbs.simulation.run_events import RunEvents
from mpimbs.simulation.run_files import RunFiles
from mpimbs.simulation.run_memory import RunMemory
from mpimbs.simulation.run_segment import RunSegment
from mpimbs.simulation.run_totals import RunTotals
from mpimbs.simulation.samples import Samples
from mpimbs.simulation.settings import Checkpoints, SimulationSettings
from mpimbs.simulation.signals import Signals
from mpimbs.simulation.state import State, check_speeds, check_system
from mpimbs.simulation.step_memory import StepMemory
from mpimbs.simulation.structure_change import go_over
from mpimbs.sizes import tuned

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
        together(comm, lambda: check_covered(system, settings.t_end))
        self._times = settings.sample_times()
        self._solver = solver_for(settings.coupling, settings.solver, None if settings.dt else settings.rtol)
        self._events = together(comm, lambda: RunEvents(system, settings.t_end))
        together(comm, lambda: self._events.check_coupling(settings.coupling, self._solver))
        self._totals = RunTotals({} if kept is None else kept.header["seconds"])
        header = None if kept is None else kept.header.get("events")
        self._asked = settings
        if header is not None:
            self._events.recall(header["events"])
            self._totals.recall(header["totals"])
            self._asked = SimulationSettings.of(header["asked"])
        first = connected(system, self._events.now) if self._totals.begins[1:] else system
        self._segment = segment = RunSegment(first, comm, settings, self._solver)
        self._check_integrator()
        self._first = self._initial() if kept is None else None
        self._files = RunFiles(comm, path, checkpoints, signals.enabled, kept, settings.force)
        self._memory = RunMemory(system, segment.dynamics, segment.settings, self._files)
        with contextlib.ExitStack() as after_error:
            after_error.callback(self._files.release)
            self._recorder = self._make_recorder(self._open)
            segment.compile()
            after_error.pop_all()
        self.result = Result()
        self._made = time.perf_counter()
        self._seconds = {"set-up": self._made - began - segment.compiling, "compile": segment.compiling}
        files = self._files
        self._keeper = Keeper(
            comm, files.checkpoints, files.place, signals, self._write_checkpoint, lambda: self._memory.going_on()
        )
        self._stepper: Integrator | None = None

    def _check_integrator(self) -> None:
        """Refuse what PETSc's options and the speeds make impossible; say where options replace the integrator."""
        comm, settings, solves = self._comm, self._asked, self._segment.constraints is not None
        replaced = together(comm, lambda: check_options(settings.integrator, settings.accuracy, solves))
        together(comm, lambda: check_speeds(self._segment.dynamics.subchain))
        if replaced and comm.rank == 0:
            told = f"mpimbs: note: PETSC_OPTIONS replace the integrator {settings.integrator} by {replaced}"
            print(told, file=sys.stderr, flush=True)

    def _make_recorder(self, keep: Callable[[dict[str, int]], Store]) -> Recorder:
        segment, settings = self._segment, self._asked
        kinds = settings.poses, settings.loads, settings.extremes
        return Recorder(segment.dynamics, *kinds, segment.constraints, segment.projection, keep)

    def _open(self, widths: dict[str, int]) -> Store:
        """Begin the output, or go on with it."""
        segment, settings = self._segment, self._segment.settings
        separated = segment.separated_loads()
        told = settings.data() | {
            "every": float(self._times[1] - self._times[0]), "ranks": self._comm.size, **segment.told(),
            "solver": None if self._solver is None else self._solver.data(),
        }  # fmt: skip
        kinds = settings.poses, settings.loads, settings.extremes
        count = 0 if self._kept is None else self._kept.header["recorder"]["count"]
        system = self._events.system
        return self._files.open(
            lambda path: OutputFile(path, system, told, *kinds, settings.force, separated),
            widths,
            self._totals.rows(count),
        )

    def finish(self, progress: bool = False) -> Result:
        """Simulate to the end; errors are those of `simulate`."""
        result, settings = self.result, self._asked
        error: SimulationError | None = None
        try:
            stepper = self._begin()
            self._keeper.begin(stepper.steps)
            shown = Progress(settings.t_end, progress and self._comm.rank == 0, t_begin=stepper.time)
            with shown:
                for target in self._times[self._recorder.count :]:
                    self._step_to(target, shown)
            self._recorder.finish()
        except SimulationError as stopped:
            error = stopped
            result.status = f"stopped: {stopped}"
        self._summarise()
        try:
            if not isinstance(error, OutputError):  # which has ended it
                result.extremes = self._recorder.keep_extremes()
                unfinished = isinstance(error, InterruptionError)
                self._recorder.store.close(result.status, result.statistics(), unfinished)
        except OutputError as broken:
            error = error or broken
        self._segment.dynamics.close()
        self._files.release()
        if isinstance(error, OutputError):
            error = OutputError(f"{error}{self._keeper.hint()}")
        if error is not None:
            raise error
        return result

    def _begin(self) -> Integrator:
        """Make the integrator, at the first sample or where the checkpoint has it."""
        dynamics = self._segment.dynamics
        if self._kept is None:
            assert self._first is not None
            self._stepper = self._integrator(*self._first)
            self._events.watch(dynamics, self._stepper)
            self._recorder.watch(self._stepper)
            self._recorder.record(0.0, self._stepper)
            return self._stepper
        header, vectors = self._kept.header, self._memory.recall()
        q, u = vectors.pop("q"), vectors.pop("u")
        memory = StepMemory(**header["steps"], vectors=vectors)
        self._recorder.recall(header["recorder"], vectors)
        self._stepper = self._integrator(q, u, memory)
        if header.get("events") is not None:
            self._events.watch(dynamics, self._stepper, signs=header["events"]["events"]["signs"])
        dynamics.evaluations = header["evaluations"]
        return self._stepper

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
        asked, probed = self._keeper.asked, segment.constraints is None  # whose solutions go on from each other
        return Integrator(
            segment.dynamics,
            q,
            u,
            settings.integrator,
            settings.accuracy,
            memory=memory,
            asked=asked,
            probed=probed,
            projection=segment.projection,
        )

    def _step_to(self, target: float, shown: Progress) -> None:
        """Take the steps to a sample, and the sample, with the events and checkpoints between them."""
        reached = False
        while not reached:
            stepper = self._stepper
            assert stepper is not None
            goal = self._events.next_goal(target)
            there = stepper.step_towards(goal)
            happening, passed = self._events.happening(stepper)
            reached = there and goal == target == stepper.time
            self._recorder.watch(stepper)
            shown.show(stepper)
            if reached:
                self._recorder.record(target, stepper)
            if happening and self._recorder.count < len(self._times):
                stepper = self._change(happening, passed)
            if self._recorder.count < len(self._times):
                self._keeper.after_step(stepper.requests, stepper.time, stepper.steps)

    def _change(self, happening: list[Event], passed: list[int]) -> Integrator:
        """Go on with another structure."""
        before, stepper, events, recorder = self._segment, self._stepper, self._events, self._recorder
        assert stepper is not None
        spent, began, now = self._spent(), time.perf_counter(), stepper.time
        energy = before.dynamics.energy_and_momentum(stepper.q, stepper.u)[:2].sum()
        after = RunSegment(connected(events.system, events.now), self._comm, self._asked, self._solver)
        try:
            q, u, moved = go_over(before.dynamics, after, stepper.q, stepper.u, happening)
        except SimulationError as error:
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
        stepper.close()
        before.dynamics.close()
        after.dynamics.evaluations = evaluations
        self._memory = RunMemory(events.system, after.dynamics, after.settings, self._files)
        self._recorder = self._make_recorder(self._open_segment)
        self._recorder.follow(recorder, work)
        after.compile()
        self._stepper = stepper = self._integrator(
            q, u, memory._replace(work=[], probe={}, vectors={}, projection=self._totals.loops or None)
        )
        stepper.requests = requests
        events.watch(after.dynamics, stepper, passed)
        self._made = time.perf_counter()
        self._seconds = {"events": self._made - began - after.compiling, "compile": after.compiling}
        self._keeper.seconds = 0.0
        return stepper

    def _open_segment(self, widths: dict[str, int]) -> Store:
        """Go on with the output, for another structure."""
        segment, settings = self._segment, self._asked
        separated = segment.separated_loads()
        given = segment.dynamics.system, self._events.now, self._events.happened[-1]["time"]
        kinds = settings.poses, settings.loads, settings.extremes
        left = len(self._times) - self._totals.begins[-1]

        def begin(file: OutputFile) -> None:
            number = len(self._totals.begins) - 1
            file.begin_segment(number, lambda group: lay_out_segment(group, *given, *kinds, separated, left))

        return self._recorder.store.next(widths, begin)

    def _write_checkpoint(self) -> str | None:
        """Write a checkpoint of the state after the last step; gives the reason why not."""
        assert self._stepper is not None
        events = None
        if self._events.any:
            totals, asked = self._totals.memory(), self._asked.data()
            events = {"events": self._events.memory(), "totals": totals, "asked": asked}
        return self._memory.write(self._stepper, self._recorder, self._spent(), events)

    def _spent(self) -> dict[str, float]:
        """Wall time by phase of this rank so far, of the segments and the parts of the run before too (s)."""
        phases = self._segment.seconds()
        rest = time.perf_counter() - self._made - sum(phases.values())
        rest -= self._recorder.seconds + self._keeper.seconds
        own = {**self._seconds, **phases, "integration": rest, "output": self._recorder.seconds}
        if self._keeper.seconds:
            own["checkpoints"] = self._keeper.seconds
        before = self._totals.seconds
        return {name: own.get(name, 0.0) + before.get(name, 0.0) for name in {**own, **before}}

    def _summarise(self) -> None:
        """Bring what is known of the run into the result, and end PETSc's part."""
        result, segment, stepper = self.result, self._segment, self._stepper
        result.evaluations = segment.dynamics.evaluations
        balance = self._recorder.balance
        result.energy_error, result.energy_change = balance.change, balance.relative
        store = self._recorder.store
        result.samples = store.samples if isinstance(store, Samples) else []
        result.loops = self._totals.told_loops(segment)
        result.peaks = self._totals.peaks(self._recorder)
        result.events = self._events.happened
        result.restarts = self._memory.restarts()
        result.sizes = tuned().told()
        result.solutions = self._totals.solutions(segment)
        if self._comm.rank == 0:
            path, rows = self._files.output, self._totals.rows(self._recorder.count)
            if path is None:
                result.motion = motion_in_memory(result.samples, self._events.structures(), rows)
            else:
                result.motion = motion_in_file(path.absolute(), len(rows))
        if stepper is not None:
            result.time, result.steps, result.rejected = stepper.time, stepper.steps, stepper.rejected
            result.step_sizes = stepper.step_statistics()
            stepper.close()
        result.seconds = self._spent()
