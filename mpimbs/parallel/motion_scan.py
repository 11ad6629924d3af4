"""The boundary motion of every rank: an exclusive scan of (frame change, relative twist) over the ranks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.parallel.butterfly import IS_LEFT, Butterfly, exchange
from mpimbs.spatial.compiler import kernel
from mpimbs.sweep.motion import join_motion
from mpimbs.sweep.structure import BOUNDARY


@kernel
def _scan(schedule, channel, mine, theirs, total, prefix):
    for i in range(BOUNDARY):
        prefix[i] = 0.0
    prefix[0] = prefix[4] = prefix[8] = 1.0
    levels = schedule.shape[0]
    for level in range(levels):
        if level == 0:
            mine[0, :] = total
        exchange(schedule, channel, level, mine[level], theirs[level])
        if schedule[level, IS_LEFT]:
            if level + 1 < levels:
                join_motion(0.0, mine[level], theirs[level], mine[level + 1])
        else:
            join_motion(0.0, theirs[level], prefix, prefix)
            if level + 1 < levels:
                join_motion(0.0, theirs[level], mine[level], mine[level + 1])


class MotionScan:
    """Exclusive scan of boundary motions over the ranks of a chain [Critchley 2007, eq. 6-11].

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive the plan.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self.butterfly = Butterfly(comm, BOUNDARY)
        self.boundary = np.zeros(BOUNDARY)

    def __call__(self, motion: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Give the motion of this rank's handle 1.

        Parameters
        ----------
        motion : array [BOUNDARY]
            Boundary motion of this rank's subchain: frame change from handle 1 to 2, relative twist. All ranks call.

        Returns
        -------
        array [BOUNDARY]
            Frame change from the inertial frame to handle 1, and its twist, in its own frame (rad/s, m/s). Reused.
        """
        b = self.butterfly
        _scan(b.schedule, b.channel, b.mine, b.theirs, motion, self.boundary)
        return self.boundary
