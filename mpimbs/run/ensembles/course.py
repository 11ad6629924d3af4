"""An ensemble from end to end: its copies are stepped, each rank's for themselves, and meet at the samples.

They are stepped side by side in lanes where these carry them, and what is asked for can be had there, else one after
the other.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import HaltError
from mpimbs.base.state_tree import made_again, taken_apart
from mpimbs.dynamics.members import Members
from mpimbs.dynamics.quantities import QUANTITIES
from mpimbs.dynamics.selection import SampleTable
from mpimbs.dynamics.side_by_side import SideBySide, why_apart
from mpimbs.files.checkpoint import Kept, read_vectors
from mpimbs.files.output import OutputFile
from mpimbs.files.output_layout import lay_out
from mpimbs.kernels.lanes import native_width
from mpimbs.parallel.agreement import Rounds, first_failure, first_on_node, together
from mpimbs.partition.chain import width_of
from mpimbs.run.course import Course, Wanted
from mpimbs.run.ensembles.in_lanes import CopiesInLanes
from mpimbs.run.ensembles.in_turn import RUNS, CopiesInTurn, CopiesMemory, numbers_told
from mpimbs.run.keeper import CHECKPOINT, STOP
from mpimbs.run.result import EnsembleResult
from mpimbs.run.structure_change import RunSegment
from mpimbs.run.witness import Seen
from mpimbs.stepping.schemes import scheme_of
from mpimbs.stepping.stage_steps import compile_steps

UNDER_WAY, HALTED = 8, 16  # of a rank, beside the bits of `Keeper.asked`
COUNTS = ("steps", "rejected", "evaluations")
ENSEMBLE = "ensemble"  # what the header of a checkpoint says of itself


class EnsembleState(NamedTuple):
    """The state of an ensemble at a sample, from which another one goes on."""

    time: float  # s
    totals: dict[str, Any]  # what the ensemble had taken
    failed: dict[int, tuple[float, str]]
    told: list[Any]  # of this rank's copies, and in a file of all; see `CopiesMemory`
    vectors: dict[str, Floats]  # of this rank's copies, flat

    @property
    def steps(self) -> int:
        """Steps taken."""
        return int(self.totals["steps"])


class EnsembleRun(Course[EnsembleResult]):
    """One ensemble, from its beginning or from a checkpoint; all ranks make it together and call.

    Parameters
    ----------
    members : Members
        All copies, checked.
    """

    def __init__(self, members: Members, comm: MPI.Comm, wanted: Wanted) -> None:
        began = time.perf_counter()
        self._members, self._settings, self._comm, kept = members, wanted.settings, comm, wanted.kept
        self._times, self._selection = self._settings.sample_times(), self._settings.selection(members.systems[0])
        self._first, self._last = (members.count * rank // comm.size for rank in (comm.rank, comm.rank + 1))
        own = members.systems if len(members.systems) == 1 else members.systems[self._first : self._last]
        self._own, self._changes = own, any(system.events for system in members.systems)
        self._lanes = self._side_by_side()
        differ = self._changes or len({len(system.loops) for system in members.systems}) > 1
        self._table = SampleTable(members.systems[0], self._selection, copies=members.count, loops_differ=differ)
        self._count = 0 if kept is None else int(kept.header["count"])
        self._time = 0.0 if kept is None else float(kept.header["time"])  # s, of the last sample
        self._failed: dict[int, tuple[float, str]] = {}  # of all ranks, by number
        self._before: dict[str, Any] = {}
        self._seconds = {"set-up": 0.0, "compile": 0.0}
        self._begin_files(wanted)
        self._seconds["set-up"] = time.perf_counter() - began - self._seconds["compile"]
        checks = self._lanes is not None and not self._settings.no_witness  # others are checked as they are stepped
        phases = ("integration", *(("witness",) if checks else ()), "waiting", "output")
        self._seconds |= dict.fromkeys(phases, 0.0)
        self._rounds, self._due = Rounds(comm), 0
        self._there = False  # whether this rank waits for the others
        self._halted: HaltError | None = None  # what has halted it
        self._remembered = self._remember()

    def _set_up(self) -> None:
        table, copies = self._table, self._last - self._first
        widths = {
            each.name: copies * math.prod(table.shapes[each.name][1:]) for each in table.quantities if each.copied
        }
        self._store = self.files.open(self._begin_file, widths, table.shapes, [self._count])
        with self._timed("compile"):
            first_on_node(self._comm, self._compile)
        self._copies: CopiesInLanes | CopiesInTurn = together(self._comm, self._begin_copies)

    @property
    def stepper(self) -> CopiesInLanes | CopiesInTurn:
        """What steps this rank's copies."""
        return self._copies

    @property
    def time(self) -> float:
        """Time of the last sample (s)."""
        return self._time

    @property
    def ended(self) -> bool:
        """As of `Course`."""
        return self._count >= self._times.count

    def _side_by_side(self) -> SideBySide | None:
        """Make what evaluates this rank's copies side by side, where lanes carry them; all ranks call."""
        settings, scheme, selected = self._settings, scheme_of(self._settings.integrator), self._selection.bodies
        summed = any(QUANTITIES[name].integral_of for name in selected)
        if why_apart(self._members.systems) or not scheme.own or scheme.implicit or summed or self._changes:
            return None
        width = native_width() if settings.lanes is None else width_of(settings.lanes)
        return SideBySide(self._own, self._last - self._first, width)

    def _compile(self) -> None:
        if self._lanes is not None:
            self._lanes.compile(checked=not self._settings.no_witness)
            compile_steps()
            return
        segment = RunSegment(self._members.systems[0], MPI.COMM_SELF, self._settings, None)
        segment.compile()
        segment.dynamics.close()

    def _begin_file(self, path: Path) -> OutputFile:
        told = self._settings.data() | {
            "every": self._times.at(1),
            "ranks": self._comm.size,
            "lanes": 1 if self._lanes is None else self._lanes.lanes,
        }
        given = self._members.systems[0], told, self._table
        return OutputFile(path, lambda file: lay_out(file, *given, members=self._members), self._settings.force)

    def _begin_copies(self) -> CopiesInLanes | CopiesInTurn:
        """Make what steps this rank's copies: from their begin, or from the checkpoint."""
        memory = None if self.files.kept is None else self._recall(self.files.kept)
        state: Any = self._members.state
        if state is not None:
            state = tuple(part[self._first : self._last].copy() for part in state)
        given = self._members.names[self._first : self._last], self._settings, self._table, state, memory
        return CopiesInTurn(self._own, *given) if self._lanes is None else CopiesInLanes(self._lanes, *given)

    def _recall(self, kept: Kept) -> CopiesMemory:
        """Read this rank's copies from a checkpoint; all ranks call."""
        header, system, count = kept.header, self._own[0], self._last - self._first
        in_turn, told = self._lanes is None, header["state"]["told"]
        if not in_turn:  # of the version before, which counted for all ranks together
            told = [{"counts": [header["state"]["totals"][name] for name in COUNTS]} | one for one in told]
        told = told[self._first : self._last] if in_turn else told[self._comm.rank :: self._comm.size]
        widths = {"q": system.nq, "u": system.nu, "times": 2, "step": 3}  # of copies side by side
        counts = {
            path: numbers_told(told) if name == RUNS else count * widths.get(name.partition("_")[0], 1)
            for path in header["parts"]
            if (name := path.rpartition("/")[2])
        }
        state = made_again(EnsembleState, header["state"], read_vectors(kept.file, counts, self._comm))
        self._failed, self._before = state.failed, state.totals
        vectors = state.vectors if in_turn else {n: v.reshape(count, -1) for n, v in state.vectors.items()}
        return CopiesMemory(state.time, told, vectors, np.isfinite(vectors.pop("failed").ravel()))

    def begin(self) -> None:
        """Take the first sample, unless there is one."""
        with self._ending():
            if self.files.kept is None:
                self._record(0.0)
        self._keeper.begin(self._remembered.steps)

    def step(self, several: bool = False) -> None:
        """Step one of this rank's copies, or all in lanes, towards the next sample, which is taken where all are there.

        What signals ask for is done meanwhile.
        """
        with self._ending():
            with self._timed("waiting" if self._there else "integration"):
                try:
                    self._there = self._there or self._copies.step_towards(self._times.at(self._count))
                except (HaltError, KeyboardInterrupt, SystemExit) as error:
                    self._halted, self._there = error if isinstance(error, HaltError) else HaltError.of(error), True
                facts = (0 if self._there else UNDER_WAY) | (HALTED if self._halted else 0)
                heard = self._rounds(facts, self._keeper.asked(), wait=self._there)
            if heard is None:
                return
            if heard & HALTED:
                self._halt()
            if asked := heard & (CHECKPOINT | STOP):
                self._keeper.after_step(asked, self._remembered.time, self._remembered.steps)
            self._due |= heard & ~(CHECKPOINT | STOP | UNDER_WAY)
            if heard & UNDER_WAY:
                return
            self._there = False
            self._record(self._times.at(self._count))
            if not self.ended:
                due, self._due = self._due, 0
                self._keeper.after_step(due, self._remembered.time, self._remembered.steps)

    def _halt(self) -> NoReturn:
        """Raise on all ranks what halts some."""
        own = self._halted
        raise first_failure(self._comm.allgather(own and (HaltError, own.args))).meant

    @contextlib.contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._seconds[phase] += time.perf_counter() - began

    def _record(self, t: float) -> None:
        """Take the sample of a time (s), which all copies have reached; all ranks call."""
        copies = self._copies
        if "witness" in self._seconds:
            with self._timed("witness"):
                together(self._comm, lambda: self._check(t))
        with self._timed("output"):
            own, step_size = copies.take(t)
        with self._timed("waiting"):
            due, step_size, _ = self._agreed(self._store.due(1), -step_size)
        with self._timed("output"):
            gone = [k - self._first for k, (when, _) in self._failed.items() if when < t]
            if mine := [k for k in gone if 0 <= k < copies.count]:
                for values in own.values():
                    values[mine] = np.nan
            common = {"time": [t], "step_size": [-step_size]}
            self._store.add({name: values[None] for name, values in own.items()}, common, bool(due))
            self._count, self._time = self._count + 1, t
            self._remembered = self._remember()

    def _check(self, t: float) -> None:
        assert isinstance(self._copies, CopiesInLanes)  # others check the samples that they take
        try:
            self._copies.check(t, whole=self._count + 1 in (1, self._times.count))
        except (KeyboardInterrupt, SystemExit) as error:
            raise HaltError.of(error) from None

    def _agreed(self, *facts: float) -> list[float]:
        """Give the largest of each fact of all ranks, and let all know which copies have failed: whether any has."""
        new = {self._first + k: found for k, found in self._copies.failed.items()}
        new = {k: found for k, found in new.items() if k not in self._failed}
        agreed = np.array([*facts, bool(new)], np.float64)
        self._comm.Allreduce(MPI.IN_PLACE, agreed, MPI.MAX)
        if agreed[-1]:
            for part in self._comm.allgather(new):
                self._failed |= part
        found: list[float] = agreed.tolist()
        return found

    def _remember(self, saves: bool = False) -> EnsembleState:
        """Give the state at the sample just taken, or now where one is saved, for checkpoints; all ranks call."""
        if self.files.place is None:
            return EnsembleState(self._time, {"steps": 0}, {}, [], {})  # which nobody asks for
        stepper, count = self._copies, self._copies.count
        when = np.full(count, np.nan)
        for k, (t, _) in self._failed.items():
            if self._first <= k < self._last:
                when[k - self._first] = t
        kept = saves or stepper.at_samples_alone
        told, vectors = stepper.memory() if kept else ([], {})
        flat = {name: values.ravel() for name, values in vectors.items()} | {"failed": when}
        return EnsembleState(self._time, self._totals(), dict(self._failed), told, flat)

    def _save(self) -> str | None:
        """Write a checkpoint, of the last sample where copies meet there alone; gives the reason why not.

        All ranks call.
        """
        self._store.sync()  # its samples come first
        if not self._copies.at_samples_alone:
            self._agreed()
            self._remembered = self._remember(saves=True)
        state = self._remembered
        told = [one for part in self._comm.gather(state.told) or [] for one in part]
        plain, vectors = taken_apart(state._replace(told=told))
        return self.files.write(self._unchanging, state.time, self._count, plain, vectors)

    @cached_property
    def _unchanging(self) -> dict[str, Any]:
        """The part of a checkpoint's header that is the same for all."""
        return self.files.header(self._members.systems, self._settings) | {"kind": ENSEMBLE}

    def _totals(self) -> dict[str, Any]:
        """Add up what the whole ensemble has taken so far; all ranks call."""
        stepper, before = self._copies, self._before
        own = np.array([stepper.steps, stepper.rejected, stepper.evaluations])
        self._comm.Allreduce(MPI.IN_PLACE, own, MPI.MAX)
        found: dict[str, Any] = dict(zip(COUNTS, own.tolist(), strict=True))
        seconds = self._seconds | ({"checkpoints": self._keeper.seconds} if self._keeper.seconds else {})
        spent = before.get("seconds", {})
        found["seconds"] = {name: seconds.get(name, 0.0) + spent.get(name, 0.0) for name in {**seconds, **spent}}
        return found

    def result(self, status: str) -> EnsembleResult:
        """As of `Course`."""
        members, stepper = self._members, self._copies
        failed = {members.names[k]: found for k, found in sorted(self._failed.items())}
        result = EnsembleResult(
            status, self._time, **self._totals(), copies=members.count, lanes=stepper.lanes, failed=failed
        )
        result.step_sizes = {"fixed": self._settings.dt} if self._settings.dt else stepper.sizes.statistics()
        for part in self._comm.allgather(stepper.happened):
            result.events |= part
        result.restarts = self.files.restarts()
        if not self._settings.no_witness:
            result.witness = self._seen_by_all()
        systems, table = members.systems, members.table
        parameters = {} if table is None else {n: table.values[:, k] for k, n in enumerate(table.columns)}
        kept = [lambda k: systems[k % len(systems)]], [self._count], self._selection, members.names, parameters
        result.motion = self.files.motion(*kept)
        return result

    def _seen_by_all(self) -> dict[str, Any]:
        """Join what the witnesses of all ranks have seen; all ranks call."""
        found, copies = Seen(), 0
        for seen, count in self._comm.allgather(self._copies.seen()):
            found.join(seen)
            copies += count
        return {**found.told(), "copies": copies}

    def _finish(self) -> None:
        with self._timed("output"):
            self._store.sync()

    def _close(self, result: EnsembleResult) -> None:
        self._copies.close()
