"""The boundary turn of every rank: an exclusive scan of (rotation, relative angular velocity) over the ranks; and the
boundary motion, likewise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.parallel.butterfly import IS_LEFT, ITEMS, Butterfly, expect, levels, receive, send
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import assign, floats
from mpimbs.sweep.motion import join_motion, join_turn
from mpimbs.sweep.structure import BOUNDARY, TURNING

_BOUNDARY = 2 * len(ITEMS)


@kernel(inline=True)
def _join(left, right, out):
    """Join two chains in sequence: their turns or their motions, by their size."""
    if out.size == TURNING:
        join_turn(0.0, left, right, out)
    else:
        join_motion(0.0, left, right, out)


@kernel(inline=True)
def _receive(plan, schedule, mine, theirs, level):
    """Receive the turn or motion of the sibling group at a level, and join it."""
    receive(plan, schedule[level], level)
    prefix = floats(plan, _BOUNDARY)
    more = level + 1 < schedule.shape[0]
    if schedule[level, IS_LEFT]:
        if more:
            _join(mine[level], theirs[level], mine[level + 1])
    else:
        _join(theirs[level], prefix, prefix)
        if more:
            _join(theirs[level], mine[level], mine[level + 1])


@kernel
def begin_scan(plan, total):
    """Scan over the ranks, after `expect`, the turn or motion of this rank's subchain: all but the last message."""
    prefix = floats(plan, _BOUNDARY)
    prefix[:] = 0.0
    prefix[0] = prefix[4] = prefix[8] = 1.0
    schedule, mine, theirs = levels(plan)
    for level in range(schedule.shape[0]):
        if level == 0:
            assign(mine[0], total)
        else:
            _receive(plan, schedule, mine, theirs, level - 1)
        send(plan, schedule[level], mine[level])


@kernel
def end_scan(plan):
    """Receive the last message of the scan that has begun; `boundary` then is that of this rank's handle 1."""
    schedule, mine, theirs = levels(plan)
    if schedule.shape[0] > 0:
        _receive(plan, schedule, mine, theirs, schedule.shape[0] - 1)


@kernel(inline=True)
def boundary(plan):
    """Turn or motion of this rank's handle 1, after `end_scan`."""
    return floats(plan, _BOUNDARY)


class TurnScan:
    """Exclusive scan of boundary turns over the ranks of a chain [Critchley 2007, eq. 6-11].

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive the plan.

    Attributes
    ----------
    plan : int64 array
        The argument of `begin_scan` and `end_scan` in compiled code.
    boundary : array [TURNING]
        What the last scan gave.
    """

    count = TURNING

    def __init__(self, comm: MPI.Comm) -> None:
        self._butterfly = Butterfly(comm, self.count, to_the_right=True, more=("boundary",))
        self.boundary = np.zeros(self.count)
        self._butterfly.table.add("boundary", self.boundary)
        self.plan = self._butterfly.table.data

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        self._butterfly.close()

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return self._butterfly.seconds

    def __call__(self, turn: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Give the turn of this rank's handle 1.

        Parameters
        ----------
        turn : array [TURNING]
            Boundary turn of this rank's subchain: rotation from handle 1 to 2, relative angular velocity. All ranks
            call.

        Returns
        -------
        array [TURNING]
            Rotation from the inertial frame to handle 1, and its angular velocity, in its own frame (rad/s). Reused.
        """
        expect(self.plan)
        begin_scan(self.plan, turn)
        end_scan(self.plan)
        return self.boundary


class MotionScan(TurnScan):
    """Exclusive scan of boundary motions [BOUNDARY] over the ranks of a chain: of poses and twists, as `TurnScan`."""

    count = BOUNDARY
