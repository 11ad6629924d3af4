"""The bodies of one rank among many, alone on one core: what their sweeps take."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.bench.laps import least_each, timed_calls
from mpimbs.bench.predict.trace import Sweeps
from mpimbs.dynamics import Dynamics
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import aligned_zeros
from mpimbs.model.contents import Contents
from mpimbs.partition.division import Division
from mpimbs.parts.intervals import Intervals
from mpimbs.spatial.rows import ROW
from mpimbs.values.assembly import BLOCK, RECORD, assemble_pair, disassemble_pair, far_acceleration, release
from mpimbs.values.joining import Join
from mpimbs.values.joins import join_values
from mpimbs.values.joins import spread_values as spread_values

_RUNS, _CALLS = 10, 40  # of so many joins: of more, branches are foreseen as they are not in an evaluation


@kernel
def _assemblies(times, left, right, joint, record, out, loads):
    """Join two assemblies and find the loads at their joint, as the coupling dca does at a level.

    `loads` [5 * 6] is room for f1, f2, the load between, accelerations of the joint, and A2.
    """
    for _ in range(times):
        release(left, right, joint, 1, record)
        assemble_pair(left, right, record, out)
        disassemble_pair(left, right, joint, 1, record, loads[0:6], loads[6:12], loads[12:18], loads[18:24])
        far_acceleration(left, loads[0:6], loads[12:18], loads[24:30])


@kernel
def _joins(times, rows, up, lists, left, right, work, out, kept, scratch, outer, of_left, of_right):
    """Join two values and find what acts at their boundaries, as a step of a schedule."""
    for _ in range(times):
        join_values(rows, 0, up, lists, left, right, work, out, kept, scratch)
        spread_values(rows, up, rows.shape[0], lists, right, kept, outer, of_left, of_right, scratch)


def time_assembly() -> float:
    """Time a join of the divide and conquer over single bodies (s)."""
    rows = np.zeros((18, ROW))
    rows[:6, :6], rows[6:12, :6], rows[12:, :6] = 2.0 * np.eye(6), np.eye(6), 2.0 * np.eye(6)
    joint = np.zeros((7, ROW))
    joint[1, 2] = 1.0
    given = (rows.ravel(), rows.ravel().copy(), joint.ravel(), np.zeros(RECORD), np.zeros(BLOCK), np.ones(30))
    return least_each(lambda times: _assemblies(times, *given), 0.0, _RUNS)


def time_join(both: Join, left: Floats, right: Floats) -> float:
    """Time a join of two values (s)."""
    rows, lists = both.tables()
    rooms = both.value.room, *both.rooms
    boundary = [np.zeros(6 * (room.inboard + room.open)) for room in rooms]
    rooms_of = rooms[0].size(), both.kept, both.scratch
    work, out, kept, scratch = (aligned_zeros(size) for size in (both.work, *rooms_of))
    given = rows, len(both.up), lists, left, right, work, out, kept, scratch, *boundary
    return least_each(lambda times: _joins(times, *given), 0.0, _RUNS, _CALLS)


SECONDS = 0.12  # wall time for each share
_FEWEST = 5  # calls
_ROUNDS, _MOST_ROUNDS = 4, 100


class Share(Dynamics):
    """The bodies of one rank among many, evaluated alone: handle 1 at rest, no load on handle 2, no messages.

    Parameters
    ----------
    division : Division
        Of the system among all ranks.
    number : int
        The rank.
    coupling : str
        Of whose evaluation the sweeps are.
    """

    def __init__(self, system: Contents, division: Division, number: int, coupling: str = "dcae") -> None:
        self._share = division, number
        super().__init__(system, MPI.COMM_SELF, coupling)

    def time(self, seconds: float) -> Sweeps:
        """Time evaluations at the state of `bench`, for so many seconds: the least time, and its phases."""
        first = int(self.system.offsets_of([self.subchain.first])[1][0])
        q, u = self.subchain.q, 0.1 * np.sin(np.arange(first, first + self.subchain.nu))
        udot, rates = np.empty(len(u)), np.empty(len(q))

        def call() -> None:
            self.derivative.evaluate(0.0, q, u, udot, rates)

        def lap() -> Floats:
            before = self.derivative.laps.copy()
            call()
            return self.derivative.laps - before

        call()
        shortest, spent, rounds, count = np.inf, 0.0, 0, _FEWEST
        phases: list[Floats] = []
        # The first times may be far too long where other work has the core: how many calls make a round is seen anew in
        # each, and rounds go on until those without phases have had their half of the time.
        while rounds < _ROUNDS or (spent < 0.5 * seconds and rounds < _MOST_ROUNDS):
            self.derivative.timed = False
            laps = timed_calls(self.comm, call, count)
            shortest, spent, rounds = min(shortest, float(laps.min())), spent + float(laps.sum()), rounds + 1
            self.derivative.timed = True
            phases += [lap() for _ in range(min(count, 500))]
            count = int(np.clip(0.5 * seconds / _ROUNDS / max(shortest, 1e-7), 1, 10_000))
        least = min(phases, key=lambda laps: float(laps.sum()))
        rest = max(shortest - float(least.sum()), 0.0)
        motion, inward, coupling, outward = (float(part) for part in least)
        moving, placing = self._time_places(call, q, u, 0.25 * seconds)
        moving, placing = min(moving, motion), min(placing, max(motion - moving, 0.0))  # of which they are parts
        return Sweeps(rest, motion - moving - placing, inward, coupling, outward, moving, placing)

    def _time_places(self, call: Callable[[], None], q: Floats, u: Floats, seconds: float) -> tuple[float, float]:
        """Time what loops to other ranks ask for (s): how this rank's open bodies move, and all that follows.

        After an evaluation each time, which leaves the caches as they are found in the next one.
        """
        evaluation, part, clock = self.divided.evaluation, self.divided.subchains, time.perf_counter
        if not evaluation.placed:
            return 0.0, 0.0
        hangs = isinstance(part, Intervals) and part.hangs
        began, laps = clock(), list[Floats]()
        while len(laps) < _FEWEST or clock() - began < seconds:
            call()
            at = [clock()]
            if hangs:
                self.subchain.boundary_motion(q, u)
            at.append(clock())
            evaluation.place_loops(q, u)
            at.append(clock())
            laps.append(np.diff(at))
        moving, both = np.min(laps, axis=0).tolist()  # of the first Python has its share
        moving = min(moving, both)
        return moving, both - moving
