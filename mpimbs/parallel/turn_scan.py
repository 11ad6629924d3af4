"""The boundary turn of every rank: an exclusive scan of (rotation, relative angular velocity) over the ranks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.parallel.butterfly import IS_LEFT, ITEMS, Butterfly, exchange, expect, levels
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import floats
from mpimbs.sweep.motion import join_turn
from mpimbs.sweep.structure import TURNING

_BOUNDARY = 2 * len(ITEMS)


@kernel
def scan_turns(plan, total):
    """Scan over the ranks, after `expect`, the turn of this rank's subchain; returns that of its handle 1 [TURNING]."""
    prefix = floats(plan, _BOUNDARY)
    prefix[:] = 0.0
    prefix[0] = prefix[4] = prefix[8] = 1.0
    schedule, mine, theirs = levels(plan)
    count = schedule.shape[0]
    for level in range(count):
        if level == 0:
            mine[0, :] = total
        exchange(plan, level)
        if schedule[level, IS_LEFT]:
            if level + 1 < count:
                join_turn(0.0, mine[level], theirs[level], mine[level + 1])
        else:
            join_turn(0.0, theirs[level], prefix, prefix)
            if level + 1 < count:
                join_turn(0.0, theirs[level], mine[level], mine[level + 1])
    return prefix


class TurnScan:
    """Exclusive scan of boundary turns over the ranks of a chain [Critchley 2007, eq. 6-11].

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive the plan.

    Attributes
    ----------
    plan : int64 array
        The argument of `scan_turns` in compiled code.
    boundary : array [TURNING]
        What the last scan gave.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._butterfly = Butterfly(comm, TURNING, to_the_right=True, more=("boundary",))
        self.boundary = np.zeros(TURNING)
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
        scan_turns(self.plan, turn)
        return self.boundary
