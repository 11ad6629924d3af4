"""The butterfly: at every level a rank's group meets its sibling group, and every rank ends with what it needs.

Ranks 0..P-1 are halved again and again, the left half the larger by at most one, for any P. From the leaves up, each
rank holds a value for its group and gets the sibling group's: ceil(log2 P) exchanges, one message in and at most two
out at each, and no way back down.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.parallel.native import CHANNEL_ITEMS, PROC_NULL, Channel, channel, send_only, send_receive
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import Table, aligned_zeros, floats, integers

SOURCE, TARGET, EXTRA, TAG, IS_LEFT = range(5)
_COLUMNS = 5

ITEMS = (*CHANNEL_ITEMS, "schedule", "mine", "theirs")
_HANDLES, _STATUS, _SECONDS, _SCHEDULE, _MINE, _THEIRS = range(0, 2 * len(ITEMS), 2)


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
    return np.array(rows[::-1], np.int64).reshape(-1, _COLUMNS)


@kernel(inline=True)
def levels(plan):
    """Schedule [levels, 5], and the values of the rank's group and of its sibling's, [levels, count] both."""
    schedule = integers(plan, _SCHEDULE)
    count = schedule.size // _COLUMNS
    mine = floats(plan, _MINE)
    theirs = floats(plan, _THEIRS)
    each = mine.size // max(count, 1)
    return schedule.reshape((count, _COLUMNS)), mine.reshape((count, each)), theirs.reshape((count, each))


@kernel
def exchange(plan, level):
    """Exchange at one level: send the group's value, receive the sibling group's."""
    channel = Channel(integers(plan, _HANDLES), integers(plan, _STATUS), floats(plan, _SECONDS))
    schedule, mine, theirs = levels(plan)
    row = schedule[level]
    send_receive(channel, mine[level], row[TARGET], theirs[level], row[SOURCE], row[TAG])
    if row[EXTRA] != PROC_NULL:
        send_only(channel, mine[level], row[EXTRA], row[TAG])


class Butterfly:
    """A butterfly over a communicator's ranks for values of a fixed number of doubles.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive the plan.
    count : int
        Doubles in a value.
    more : tuple of str
        Names of further items that the owner adds to the table.

    Attributes
    ----------
    schedule : array [levels, 5]
        As `schedule` gives it.
    mine, theirs : array [levels, count]
        Room for the value of the rank's group and of its sibling's at every level.
    table : Table
        `table.data` is the argument of `levels` and `exchange` in compiled code.
    """

    def __init__(self, comm: MPI.Comm, count: int, more: tuple[str, ...] = ()) -> None:
        self.table = Table(ITEMS + more)
        self.schedule = schedule(comm.rank, comm.size)
        number = len(self.schedule)
        self.mine, self.theirs = (aligned_zeros(count * number).reshape(number, count) for _ in range(2))
        self._channel = channel(comm)
        for name, value in self._channel._asdict().items():
            self.table.add(name, value)
        for name in ("schedule", "mine", "theirs"):
            self.table.add(name, getattr(self, name))

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return float(self._channel.seconds[0])
