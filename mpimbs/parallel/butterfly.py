"""The butterfly: at every level a rank's group meets its sibling group, and every rank ends with what it needs.

Ranks 0..P-1 are halved again and again, the left half the larger by at most one, for any P. From the leaves up, each
rank holds a value for its group and gets the sibling group's: ceil(log2 P) exchanges, one message in and at most two
out at each, and no way back down.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.parallel.native import PROC_NULL, Channel, channel, send_only, send_receive
from mpimbs.spatial.compiler import kernel

SOURCE, TARGET, EXTRA, TAG, IS_LEFT = range(5)


def schedule(rank: int, size: int) -> npt.NDArray[np.int64]:
    """Give a rank's exchanges, from the leaves up.

    Parameters
    ----------
    rank, size : int

    Returns
    -------
    array [levels, 5]
        Rank to receive from; rank to send to; another one to send to; message tag; whether the rank is in the left
        group. PROC_NULL stands where there is none.
    """
    rows: list[tuple[int, ...]] = []
    low, high = 0, size
    while high - low > 1:
        middle = low + (high - low + 1) // 2
        left, right = middle - low, high - middle
        is_left = rank < middle
        if is_left:
            i = rank - low
            row = (middle + min(i, right - 1), middle + i if i < right else PROC_NULL, PROC_NULL)
        else:
            i = rank - middle
            row = (low + i, low + i, middle - 1 if i == right - 1 and left > right else PROC_NULL)
        rows.append((*row, len(rows), is_left))
        low, high = (low, middle) if is_left else (middle, high)
    return np.array(rows[::-1], np.int64).reshape(-1, 5)


@kernel
def exchange(schedule, channel, level, mine, theirs):
    """Exchange at one level: send `mine`, receive the sibling group's value into `theirs`, arrays of doubles."""
    row = schedule[level]
    send_receive(channel, mine, row[TARGET], theirs, row[SOURCE], row[TAG])
    if row[EXTRA] != PROC_NULL:
        send_only(channel, mine, row[EXTRA], row[TAG])


class Butterfly:
    """A butterfly over a communicator's ranks for values of a fixed number of doubles.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive the plan.
    count : int
        Doubles in a value.

    Attributes
    ----------
    schedule : array [levels, 5]
        As `schedule` gives it; with `channel` the argument of `exchange` in a compiled loop.
    mine, theirs : array [levels, count]
        Room for the value of the rank's group and of its sibling's at every level.
    """

    def __init__(self, comm: MPI.Comm, count: int) -> None:
        self.schedule = schedule(comm.rank, comm.size)
        self.channel: Channel = channel(comm)
        self.mine = np.zeros((len(self.schedule), count))
        self.theirs = np.zeros((len(self.schedule), count))

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return float(self.channel.seconds[0])
