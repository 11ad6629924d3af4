"""What joins of values take on one core, up and down: over and over in a kernel, on values that are made up."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpimbs.bench.laps import least_each
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import aligned_zeros
from mpimbs.spatial.rows import ROW
from mpimbs.values.assembly import BLOCK, RECORD, assemble, far_acceleration, release, spread
from mpimbs.values.joining import Join
from mpimbs.values.joins import join
from mpimbs.values.joins import spread as spread_values

Floats = npt.NDArray[np.float64]

_RUNS, _CALLS = 10, 40  # of so many joins: of more, branches are foreseen as they are not in an evaluation


@kernel
def _assemblies(times, left, right, joint, record, out, loads):
    """Join two assemblies and find the loads at their joint, as the coupling dca does at a level.

    `loads` [5 * 6] is room for f1, f2, the load between, accelerations of the joint, and A2.
    """
    for _ in range(times):
        release(left, right, joint, 1, record)
        assemble(left, right, record, out)
        spread(left, right, joint, 1, record, loads[0:6], loads[6:12], loads[12:18], loads[18:24])
        far_acceleration(left, loads[0:6], loads[12:18], loads[24:30])


@kernel
def _joins(times, rows, up, lists, left, right, work, out, kept, scratch, outer, of_left, of_right):
    """Join two values and find what acts at their boundaries, as a step of a schedule."""
    for _ in range(times):
        join(rows, 0, up, lists, left, right, work, out, kept, scratch)
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
