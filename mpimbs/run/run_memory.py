"""What a run leaves to the one that goes on from it: the contents of its checkpoints, and what it has added up."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mpimbs.base.arrays import Floats
from mpimbs.base.state_tree import made_again, taken_apart
from mpimbs.coupling.base import CouplingState
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.quantities import OF_JOINTS
from mpimbs.files.checkpoint import read_vectors
from mpimbs.model import system_text
from mpimbs.model.contents import Contents
from mpimbs.parallel.reorder import Reorder
from mpimbs.run.course import RunFiles
from mpimbs.run.recorder import Recorder, RecorderState
from mpimbs.run.run_events import EventsState
from mpimbs.run.structure_change import RunSegment
from mpimbs.stepping.projection import KINDS, ProjectionState
from mpimbs.stepping.settings import SimulationSettings
from mpimbs.stepping.step_sizes import StepMemory


@dataclass
class RunTotals:
    """Adds up what segments leave."""

    seconds: dict[str, float] = field(default_factory=dict)  # wall time by phase (s)
    solutions_before: dict[str, float] = field(default_factory=dict)  # of the constraint loads of the segments before
    # how many samples there were at the begin of each segment; the first 0
    begins: list[int] = field(default_factory=lambda: [0])
    loops: ProjectionState | None = None  # what projections have left last
    told: list[str] = field(default_factory=list)  # extremes of the segments before

    def take(self, segment: RunSegment, recorder: Recorder, time: float, seconds: dict[str, float]) -> None:
        """Take a segment that ends at a time (s); all ranks call."""
        self.begins.append(recorder.count)
        self.seconds = seconds
        self.solutions_before = self.solutions(segment)
        if segment.projection is not None:
            self.loops = segment.projection.state.behind_a_change()
        if recorder.extremes is not None:
            self.told.append(f"to t = {time:.6g} s, {recorder.extremes.told()}")

    def rows(self, count: int) -> list[int]:
        """How many samples each segment has, of so many in all."""
        ends = [*self.begins[1:], count]
        return [end - begin for begin, end in zip(self.begins, ends, strict=True)]

    def solutions(self, segment: RunSegment) -> dict[str, float]:
        """Join the statistics of constraint loads of the segments so far, and of another one."""
        now = segment.solutions()
        if not self.solutions_before or not now:
            return now or self.solutions_before
        joined = {}
        for name, value in now.items():
            before = self.solutions_before[name]
            summed = name in ("solutions", "total_iterations", "factorizations", "unfinished")
            joined[name] = before + value if summed else max(before, value)
        return joined

    def solutions_left(self, segment: RunSegment) -> dict[str, float]:
        """Give statistics of constraint loads for a checkpoint: of a segment only where its coupling keeps nothing."""
        return self.solutions_before if segment.constraints is not None else self.solutions(segment)

    def told_loops(self, segment: RunSegment) -> dict[str, Any]:
        """Give what a result tells of the loops, of the segment now and of those before."""
        if segment.projection is not None:
            return segment.projection.told()
        settings = segment.settings
        return {} if self.loops is None else self.loops.told(settings.projection or KINDS[0], settings.stabilisation)

    def peaks(self, recorder: Recorder) -> str:
        """The extremes of all segments, in lines; all ranks call."""
        last = [] if recorder.extremes is None else [recorder.extremes.told()]
        return "\n".join([*self.told, *last])


@dataclass
class RunState:
    """The state of a run, from which another one goes on."""

    q: Floats  # [nq]: this rank's part of the state
    u: Floats  # [nu]
    u_held: Floats | None  # [nu]: forces on joints on top of the model's (N m, N)
    steps: StepMemory  # what steps, recorder, totals, events and coupling leave
    recorder: RecorderState
    totals: RunTotals
    evaluations: int
    events: EventsState | None = None
    asked: dict[str, Any] | None = None  # where there are events, the settings as they were asked for
    coupling: CouplingState | None = None
    given: Floats | None = None  # what functions of Python's on this rank were told and gave last


# Begin paths of arrays; of those that only ranks with the same parts can use.
_EXTREMES, _OWN = "recorder/extremes/rows/", ("coupling/", "given")


class RunMemory:
    """Writes what a run needs to go on, and reads it again; all ranks make it together and call.

    Parameters
    ----------
    system : Contents
        As the run began.
    dynamics : Dynamics
        Of what it is now.
    """

    def __init__(self, system: Contents, dynamics: Dynamics, settings: SimulationSettings, files: RunFiles) -> None:
        self._system, self._dynamics, self._settings, self._files = system, dynamics, settings, files

    def write(self, state: RunState) -> str | None:
        """Write a checkpoint of a state, beside what its coupling leaves; gives the reason why not. All ranks call."""
        files, dynamics = self._files, self._dynamics
        if (iterative := dynamics.divided.coupling.iterative) is not None:
            state.coupling = iterative.state()
        state.given = dynamics.divided.external.kept
        plain, arrays = taken_apart(state)
        vectors = {path: part if path.startswith(_OWN) else self._order(path)(part) for path, part in arrays.items()}
        return files.write(self.unchanging, state.steps.time, state.recorder.count, plain, vectors)

    def recall(self) -> RunState:
        """Give this rank's part of the state of the checkpoint; what the coupling has left is given back to it."""
        dynamics, kept = self._dynamics, self._files.kept
        assert kept is not None
        header, plain, counts = kept.header, kept.header["state"], {}
        alike = self._partition() == header["partition"]
        if not alike and plain["coupling"] is not None:
            plain = plain | {"coupling": plain["coupling"] | {"arrays": {}}}
        for path, parts in header["parts"].items():
            if not path.startswith(_OWN):
                counts[path] = self._order(path).count
            elif alike:
                counts[path] = parts[dynamics.comm.rank]
        arrays = {
            path: part if path.startswith(_OWN) else self._order(path).back(part)
            for path, part in read_vectors(kept.file, counts, dynamics.comm).items()
        }
        state = made_again(RunState, plain, arrays)
        if (iterative := dynamics.divided.coupling.iterative) is not None and state.coupling is not None:
            iterative.go_on(state.coupling)
        external = dynamics.divided.external
        if state.given is not None and len(state.given) == len(external.kept):  # else the model has others now
            external.kept = state.given
        return state

    def _order(self, path: str) -> Reorder:
        """How a vector of a checkpoint comes into the model's order: its path tells what it is like."""
        name = path.removeprefix(_EXTREMES).partition("/")[0] if path.startswith(_EXTREMES) else path.rpartition("/")[2]
        like = name.partition("_")[0]
        return self._dynamics.divided.model_order[like if like in OF_JOINTS else "body"]

    @cached_property
    def unchanging(self) -> dict[str, Any]:
        """The part of a checkpoint's header that is the same for all."""
        system = self._system
        told = {"model": system_text(system, functions=True), "base": system.loads.before_modules}
        return self._files.header([system], self._settings) | told | {"partition": self._partition()}

    def _partition(self) -> list[list[int]]:
        """Which bodies every rank has, and in which subchains: with the same, all of a checkpoint can be used."""
        return [self._dynamics.divided.division.bounds.tolist(), self._dynamics.divided.division.owners.tolist()]
