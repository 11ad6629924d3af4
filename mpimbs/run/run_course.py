"""A run from end to end: a trajectory with its output, checkpoints and account."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.base.sizes import tuned
from mpimbs.base.state_tree import made_again
from mpimbs.dynamics.quantities import Quantity
from mpimbs.dynamics.resources import ranks_on_node
from mpimbs.files.checkpoint import Kept
from mpimbs.files.output import OutputFile
from mpimbs.files.output_layout import lay_out, lay_out_segment
from mpimbs.forces.external import ExternalLoads
from mpimbs.model.contents import Contents
from mpimbs.parallel.agreement import together
from mpimbs.run.course import Course, Wanted
from mpimbs.run.recorder import Store
from mpimbs.run.result import Result, beyond_limits
from mpimbs.run.run_events import EventsState
from mpimbs.run.run_memory import RunMemory, RunState, RunTotals
from mpimbs.run.state import State, check_system
from mpimbs.run.trajectory import Known, Trajectory
from mpimbs.stepping.integrator import Integrator
from mpimbs.stepping.integrators import check_petsc_options
from mpimbs.stepping.march import TOGETHER
from mpimbs.stepping.schemes import STIFF, renamed_told
from mpimbs.stepping.settings import SimulationSettings

BETWEEN, AHEAD = 100, 10_000  # steps between samples, and to the end, from which on it is worth to say what limits them


class Run(Trajectory, Course[Result]):
    """One simulation, from its beginning or from a checkpoint; all ranks make it together and call.

    Parameters
    ----------
    system, state
        See `Trajectory`.
    """

    def __init__(self, system: Contents, comm: MPI.Comm, wanted: Wanted, state: State | None) -> None:
        here = ranks_on_node(comm)
        together(comm, lambda: check_system(system, comm.size, here))
        kept = wanted.kept
        self._told_stiff = False
        self._asked_of: tuple[ExternalLoads | None, bool] = (None, False)  # and whether any rank's asks Python
        super().__init__(system, wanted.settings, comm, None if kept is None else _known(kept), state)
        self._begin_files(wanted)

    def _check(self) -> None:
        """Refuse what PETSc's options and the speeds make impossible; say where options replace the integrator."""
        comm, settings, solves = self._comm, self._asked, self._segment.constraints is not None
        replaced = together(comm, lambda: check_petsc_options(settings.integrator, settings.accuracy, solves))
        super()._check()
        if comm.rank != 0:
            return
        if self._known is None and (told := renamed_told(settings.integrator)):
            print(told, file=sys.stderr, flush=True)
        if replaced:
            told = f"mpimbs: note: PETSC_OPTIONS replace the integrator {settings.integrator} by {replaced}"
            print(told, file=sys.stderr, flush=True)

    def _open(self, widths: dict[str, int]) -> Store:
        """Begin the output, or go on with it."""
        segment, settings = self._segment, self._segment.settings
        told = settings.data() | {
            "every": self._times.at(1), "ranks": self._comm.size, **segment.told(),
            "solver": None if self._solver is None else self._solver.data(),
        }  # fmt: skip
        given = self._events.system, told, self._table, settings.extremes, self._separated
        count = 0 if self.files.kept is None else self.files.kept.header["count"]
        return self.files.open(
            lambda path: OutputFile(path, lambda file: lay_out(file, *given), settings.force),
            widths,
            self._table.shapes,
            self._totals.rows(count),
        )

    def _open_segment(self, widths: dict[str, int]) -> Store:
        """Go on with the output, for another structure."""
        given = self._segment.dynamics.system, self._events.now, self._events.happened[-1]["time"], self._table
        left = self._times.count - self._totals.begins[-1]
        more = self._asked.extremes, self._separated, left

        def begin(file: OutputFile) -> None:
            number = len(self._totals.begins) - 1
            file.begin_segment(number, lambda group: lay_out_segment(group, *given, *more))

        return self.files.next(widths, self._table.shapes, begin)

    def _beyond_limits(self, result: Result) -> str:
        """See `result.beyond_limits`; all ranks call."""
        joints, told = self._events.system.coordinates, ""
        if not any(joint.limits for joint in joints):
            return ""
        with contextlib.suppress(InputError):  # of an output that is gone
            told = "" if result.motion is None else beyond_limits(joints, result.motion)
        return str(self._comm.bcast(told))

    @cached_property
    def _memory(self) -> RunMemory:
        """Of the system as it is now."""
        return RunMemory(self._events.system, self.dynamics, self._segment.settings, self.files)

    def _recall(self) -> RunState:
        return self._memory.recall()

    def _asks(self) -> int:
        return self._keeper.asked()

    def _most_steps(self, stepper: Integrator) -> int:
        return self._keeper.steps_left(stepper.steps)

    def _after_step(self, stepper: Integrator) -> None:
        self._keeper.after_step(stepper.requests, stepper.time, stepper.steps)

    def _changed(self) -> None:
        vars(self).pop("_memory", None)  # if it was asked for
        self._keeper.seconds = 0.0

    @property
    def _saving(self) -> float:
        return self._keeper.seconds

    @property
    def time(self) -> float:
        """Time reached (s)."""
        return 0.0 if self.starting else self.stepper.time

    @property
    def _unchanging(self) -> dict[str, Any]:
        return self._memory.unchanging

    def begin(self) -> None:
        """Take the first sample, or go on where the checkpoint has it; all ranks call."""
        with self._ending():
            super().begin()
        self._keeper.begin(self.stepper.steps)

    def quantity(self, quantity: Quantity) -> Floats:
        """Give what a sample of now would have of a quantity, of the whole system; all ranks call.

        What it evaluates is not counted: by that number the run looks at itself.
        """
        with self.dynamics.derivative.uncounted():
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

    def go_on(self, action: Callable[..., None], *arguments: float) -> None:
        """Do something whose first step takes nothing from the last one where functions of Python's give other now.

        A controller may have changed what they give since this was called last. All ranks call.
        """
        external, there = self._asked_of
        if external is not None and there and self.stepper.takes_over:
            found = together(self._comm, lambda: [each.gives_other() for each in external.by_python])
            facts = np.array([True in found, None in found])  # which they are after a restart
            self._comm.Allreduce(MPI.IN_PLACE, facts, MPI.LOR)
            if facts[0] or (facts[1] and self.stepper.finds_other_rates()):
                self.stepper.restart()
        action(*arguments)
        if external is not (now := self.dynamics.divided.external):
            self._asked_of = now, self._comm.allreduce(bool(now.by_python), MPI.LOR)
        if self._asked_of[1]:
            now.keep()

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
        try:  # by hand: `_ending` would take 1.6 us of a controller's 28
            while stepper.time < goal and not self.ended:
                stepper = self.step_towards(t)
        except SimulationError as stopped:
            self.end(stopped)

    def step(self, several: bool = False) -> None:
        """As of `Course`."""
        try:
            self.step_towards(np.inf, several)
        except SimulationError as stopped:
            self.end(stopped)

    def result(self, status: str) -> Result:
        """Give what is known of the run so far; all ranks call."""
        result, segment, stepper = Result(status=status), self._segment, self._stepper
        result.evaluations = segment.dynamics.derivative.evaluations
        balance = self._recorder.balance
        result.energy_error, result.energy_change = balance.change, balance.relative
        if (witness := self._recorder.witness) is not None:
            result.witness = witness.seen.told()
        rows = self._totals.rows(self._recorder.count)
        result.motion = self.files.motion(self._events.structures(), rows, self._selection)
        result.loops = self._totals.told_loops(segment)
        result.peaks = self._totals.peaks(self._recorder)
        result.events = self._events.happened
        result.restarts = self.files.restarts()
        result.sizes = tuned().told()
        result.solutions = self._totals.solutions(segment)
        if stepper is not None:
            result.time, result.steps, result.rejected = stepper.time, stepper.steps, stepper.rejected
            result.step_sizes = stepper.step_statistics()
        result.seconds = self._spent()
        return result

    def _finish(self) -> None:
        self._recorder.finish()

    def _keep_last(self, result: Result) -> None:
        result.extremes = self._recorder.keep_extremes()

    def _close(self, result: Result) -> None:
        result.limits = self._beyond_limits(result)
        self.close()

    def stiff(self) -> str:
        """Say once, of a run that is to take many more steps than samples, that stability keeps them so small."""
        stepper, every, end = self.stepper, self._times.every, self._times.t_end
        many = min(every, end) > BETWEEN * stepper.step_size and end - stepper.time > AHEAD * stepper.step_size
        if self._told_stiff or not many or not stepper.sizes.near_stable:
            return ""
        self._told_stiff = True
        body = stepper.step_statistics().get("body", "")
        return (
            f"steps of {stepper.step_size:.2g} s are limited by stability, not by accuracy (fastest motion at body "
            f"'{body}'): implicit steps may be far longer (integrator {STIFF})"
        )

    def _save(self) -> str | None:
        self.dynamics.divided.external.keep()  # within `go_on`: what Python gave meanwhile is what acted last
        return self.save()

    def save(self) -> str | None:
        """Write a checkpoint of the state after the last step; gives the reason why not. All ranks call."""
        self._recorder.store.sync()  # its samples come first
        return self._memory.write(self.state())


def _known(kept: Kept) -> Known:
    """Give the part of a checkpoint that is needed first."""
    state = kept.header["state"]
    events = None if state["events"] is None else made_again(EventsState, state["events"], {})
    asked = None if state["asked"] is None else SimulationSettings.of(state["asked"])
    return Known(made_again(RunTotals, state["totals"], {}), events, asked)
