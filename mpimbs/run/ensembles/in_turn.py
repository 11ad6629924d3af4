"""Copies that lanes don't carry side by side, one after the other from sample to sample, on one process.

Each is a trajectory of its own, bit for bit that of its own simulation: systems that close loops or follow given
motions, events, steps that are solved for, and quantities that are integrated over steps.

Samples of all copies have the same columns, those of the structure at the begin: a joint that an event has cut has no
coordinates from then on, and its columns are not numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.base.state_tree import made_again, taken_apart
from mpimbs.dynamics.quantities import OF_JOINTS
from mpimbs.dynamics.selection import SampleTable
from mpimbs.files.samples import Samples
from mpimbs.model.columns import numbers_of, offsets
from mpimbs.model.contents import Contents
from mpimbs.run.recorder import Store
from mpimbs.run.run_memory import RunState
from mpimbs.run.state import State
from mpimbs.run.trajectory import Known, Trajectory
from mpimbs.run.witness import Seen
from mpimbs.stepping.settings import SimulationSettings
from mpimbs.stepping.step_sizes import StepSizes

Row = dict[str, Floats]  # of a sample, by quantity
RUNS = "runs"  # numbers of all copies


class CopiesMemory(NamedTuple):
    """The memory that the steps of a rank's copies leave to the next."""

    time: float  # reached (s)
    told: list[Any]  # of copies in turn one item each, of those side by side one; see there
    vectors: dict[str, Floats]  # of copies side by side [copies, n]; of others `RUNS`, flat
    left: npt.NDArray[np.bool_]  # [copies]: which copies are left behind


@dataclass
class CopyState:
    """The state of a copy, from which another one goes on."""

    taken: list[int] = field(default_factory=lambda: [0, 0, 0])  # steps, rejected ones and evaluations
    seen: Seen = field(default_factory=Seen)  # by its witness
    happened: list[dict[str, Any]] = field(default_factory=list)  # its events; see `RunEvents`
    run: RunState | None = None  # where it goes on
    waiting: list[Row] = field(default_factory=list)  # see `CopyTrajectory`


class _Rows(Samples):
    """Samples that wait to be taken away, some quantities in columns that have more than their numbers."""

    def __init__(
        self,
        widths: dict[str, int],
        shapes: dict[str, tuple[int, ...]],
        waiting: list[Row],
        columns: dict[str, tuple[Integers, Integers, int]],
    ) -> None:
        super().__init__(MPI.COMM_SELF, widths, shapes)
        self._waiting, self._columns = waiting, columns

    def add(self, own: Row, common: dict[str, Any], due: bool) -> None:
        count = len(common["time"])
        rows = {name: np.asarray(values, np.float64).reshape(count, -1) for name, values in (own | common).items()}
        for name, (to, numbers, size) in self._columns.items():
            values = rows[name]
            rows[name] = np.full((count, size), np.nan)
            rows[name][:, to] = values[:, numbers]
        self._waiting.extend({name: values[k] for name, values in rows.items()} for k in range(count))


class CopyTrajectory(Trajectory):
    """The trajectory of a copy.

    Parameters
    ----------
    system, settings, state
        See `Trajectory`.
    before : CopyState, optional
        Go on from that.
    """

    def __init__(
        self, system: Contents, settings: SimulationSettings, state: State | None, before: CopyState | None
    ) -> None:
        self._before = run = None if before is None else before.run
        super().__init__(
            system, settings, MPI.COMM_SELF, None if run is None else Known(run.totals, run.events, settings), state
        )
        self.waiting = [] if before is None else before.waiting  # its samples that other copies have not got to
        self._set_up()

    def _open(self, widths: dict[str, int]) -> Store:
        cut = self._events.now.cut
        columns = {name: self._columns(name) for name in OF_JOINTS if name in self._selection.bodies} if cut else {}
        return _Rows(widths, self._table.shapes, self.waiting, columns)

    _open_segment = _open

    def _columns(self, name: str) -> tuple[Integers, Integers, int]:
        """Where numbers of joints that are not cut go in rows of the structure at the begin, which they are, and how
        many a row has."""
        chosen, number = self._selection.bodies[name], OF_JOINTS.index(name)
        bodies = np.arange(self.dynamics.system.n_bodies) if chosen is None else chosen
        stay = np.flatnonzero(~np.isin(bodies, self._events.now.cut))
        before, now = (
            offsets(np.diff(system.offsets()[number])[bodies]) for system in (self._events.system, self.dynamics.system)
        )
        return numbers_of(before, stay)[0], numbers_of(now, stay)[0], int(before[-1])

    @property
    def happened(self) -> list[dict[str, Any]]:
        """The events so far; see `RunEvents`."""
        return self._events.happened

    def _recall(self) -> RunState:
        assert self._before is not None
        return self._before

    @property
    def taken(self) -> list[int]:
        """Steps, rejected ones and evaluations."""
        stepper = self._stepper
        return [
            *((0, 0) if stepper is None else (stepper.steps, stepper.rejected)),
            self.dynamics.derivative.evaluations,
        ]

    @property
    def seen(self) -> Seen:
        """The findings of its witness."""
        witness = self._recorder.witness
        return Seen() if witness is None else witness.seen


class CopiesInTurn:
    """Steps copies through time, each by itself; see `CopiesStepper`.

    Parameters
    ----------
    systems : sequence of System
        One for all copies, or one for each, with the same joints.
    names, table, state, memory
        See `CopiesInLanes`.

    Attributes
    ----------
    count, failed, left, steps, rejected, evaluations
        See `CopiesStepper`; sums over the copies.
    time : float
        What all copies that go on have reached (s).
    """

    lanes = 1
    at_samples_alone = False  # what it gives by `memory`, which has all that copies have taken

    def __init__(
        self,
        systems: Sequence[Contents],
        names: Sequence[str],
        settings: SimulationSettings,
        table: SampleTable,
        state: tuple[Floats, Floats] | None,
        memory: CopiesMemory | None,
    ) -> None:
        self._names, self._settings, self._table = names, settings, table
        self.count, self.failed = len(names), dict[int, tuple[float, str]]()
        self.left = np.zeros(self.count, bool) if memory is None else memory.left
        self.time = 0.0 if memory is None else memory.time
        self._now = 0  # whose turn it is
        self._before: list[CopyState | None] = [None] * self.count if memory is None else _copies_of(memory)
        self._runs: list[CopyTrajectory | None] = []
        for k in range(self.count):
            begin = None if state is None else State(state[0][k], state[1][k])
            self._runs.append(None if self.left[k] else self._begun(k, systems[k % len(systems)], begin))

    def _begun(self, k: int, system: Contents, state: State | None) -> CopyTrajectory | None:
        """Make the trajectory of a copy, begun; None if it can't begin."""
        run = None
        try:
            run = CopyTrajectory(system, self._settings, state, self._before[k])
            run.begin()
        except (InputError, SimulationError) as error:
            self._leave(k, self.time, str(error))
            if run is not None:
                run.close()
            return None
        return run

    def _leave(self, k: int, t: float, reason: str) -> None:
        self.failed[k], self.left[k] = (t, reason), True

    def _going(self) -> Iterator[CopyTrajectory]:
        """Give the trajectories that are not left behind."""
        return (run for k, run in enumerate(self._runs) if run is not None and not self.left[k])

    @property
    def step_size(self) -> float:
        """The smallest of the copies' next steps (s)."""
        return min((run.stepper.step_size for run in self._going()), default=np.inf)

    @property
    def _accounts(self) -> list[CopyTrajectory | CopyState | None]:
        """The account of each copy: of one that was left behind before a restart there is no more than its state."""
        return [run or before for run, before in zip(self._runs, self._before, strict=True)]

    def _taken(self, which: int) -> int:
        return sum(account.taken[which] for account in self._accounts if account is not None)

    @property
    def steps(self) -> int:
        """Steps of all copies."""
        return self._taken(0)

    @property
    def rejected(self) -> int:
        """Rejected steps of all copies."""
        return self._taken(1)

    @property
    def evaluations(self) -> int:
        """Evaluations of all copies."""
        return self._taken(2)

    @property
    def sizes(self) -> StepSizes:
        """Sizes of the adaptive steps of all copies."""
        found = StepSizes()
        for run in self._runs:
            if run is not None:
                found.join(run.stepper.sizes)
        return found

    def step_towards(self, target: float) -> bool:
        """Try a step of the copy whose turn it is, and say whether all have got to the sample of a time (s)."""
        while self._now < self.count:
            run = self._runs[self._now]
            if run is None or self.left[self._now] or run.waiting:
                self._now += 1
                continue
            try:
                run.step_towards(np.inf)
            except (InputError, SimulationError) as error:  # an InputError on one rank must not end it alone
                self._leave(self._now, run.stepper.time, str(error))
            return False
        self._now, self.time = 0, target
        return True

    def take(self, t: float) -> tuple[dict[str, Floats], float]:
        """Give the samples of all copies [copies, ...] at a time (s), not numbers of those that have none; and the
        smallest of their next steps (s)."""
        rows = [run.waiting.pop(0) if run is not None and run.waiting else {} for run in self._runs]
        found = {}
        for each in self._table.quantities:
            if each.copied:
                found[each.name] = values = np.full((self.count, *self._table.shapes[each.name][1:]), np.nan)
                for k, row in enumerate(rows):
                    if row:
                        values[k] = row[each.name].reshape(values.shape[1:])
        return found, min((float(row["step_size"][0]) for row in rows if row), default=np.inf)

    def seen(self) -> tuple[Seen, int]:
        """Give what witnesses have seen so far, and of how many copies."""
        found, copies = Seen(), 0
        for name, account in zip(self._names, self._accounts, strict=True):
            if account is not None:
                found.join(account.seen, of=name)
                copies += account.seen.checks > 0
        return found, copies

    @property
    def happened(self) -> dict[str, list[dict[str, Any]]]:
        """The events so far, by the names of the copies that had any; see `RunEvents`."""
        pairs = zip(self._names, self._accounts, strict=True)
        return {name: account.happened for name, account in pairs if account is not None and account.happened}

    def memory(self) -> tuple[list[Any], dict[str, Floats]]:
        """Give what each copy's next step takes from the last: plain values and sizes of its arrays; and these."""
        told, parts = [], [np.zeros(0)]
        for run, left, before in zip(self._runs, self.left.tolist(), self._before, strict=True):
            state = before or CopyState()
            if run is not None:
                state = CopyState(run.taken, run.seen, run.happened, None if left else run.state(), run.waiting)
            plain, arrays = taken_apart(state)
            told.append([plain, {path: len(array) for path, array in arrays.items()}])
            parts += arrays.values()
        return told, {RUNS: np.concatenate(parts)}

    def close(self) -> None:
        """Free what the copies hold."""
        for run in self._runs:
            if run is not None:
                run.close()


def numbers_told(told: Sequence[Any]) -> int:
    """How many numbers there are in what `CopiesInTurn.memory` gave of some copies."""
    return sum(sum(sizes.values()) for _, sizes in told)


def _copies_of(memory: CopiesMemory) -> list[CopyState | None]:
    """Give the state of each copy to go on from."""
    numbers, at = memory.vectors[RUNS], 0
    found: list[CopyState | None] = []
    for plain, sizes in memory.told:
        arrays = {}
        for path, size in sizes.items():
            arrays[path] = numbers[at : at + size].copy()
            at += size
        found.append(made_again(CopyState, plain, arrays))
    return found
