"""The efficient divide and conquer (DCAe): subchains by O(n) sweeps, joined by a butterfly over the ranks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.parallel.butterfly import IS_LEFT, Butterfly, exchange
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.handles import SIZE, join, solve_between

Floats = npt.NDArray[np.float64]


@kernel
def _solve(schedule, channel, mine, theirs, block, root, loads):
    acceleration = loads[0:6]
    load = loads[6:12]
    acceleration[:] = root
    load[:] = 0.0
    levels = schedule.shape[0]
    # Up: at each level the product over the rank's group [Critchley 2007, eq. 53-71].
    for level in range(levels):
        if level == 0:
            mine[0, :] = block
        exchange(schedule, channel, level, mine[level], theirs[level])
        if level + 1 < levels:
            if schedule[level, IS_LEFT]:
                join(mine[level], theirs[level], mine[level + 1])
            else:
                join(theirs[level], mine[level], mine[level + 1])
    # Down, without a message: both halves of every group are at hand.
    shared_acceleration = np.empty(6)
    shared_load = np.empty(6)
    for level in range(levels - 1, -1, -1):
        if schedule[level, IS_LEFT]:
            solve_between(mine[level], theirs[level], acceleration, load, shared_acceleration, shared_load)
            load[:] = shared_load
        else:
            solve_between(theirs[level], mine[level], acceleration, load, shared_acceleration, shared_load)
            acceleration[:] = shared_acceleration


class EfficientDivideAndConquer:
    """DCAe: the product of the ranks' handle equations by a butterfly, exact in one pass [Critchley 2007].

    ceil(log2 P) messages of 720 bytes in each direction, as many 6x6 products, for any number P of ranks.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive the coupling.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._butterfly = Butterfly(comm, SIZE)
        self._loads = np.zeros(12)

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return self._butterfly.seconds

    def solve(self, block: Floats, root: Floats) -> Floats:
        """Find A1 and f2 of this rank's subchain; see `Coupling.solve`. All ranks call."""
        b = self._butterfly
        _solve(b.schedule, b.channel, b.mine, b.theirs, block, root, self._loads)
        return self._loads
