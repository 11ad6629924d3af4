"""The butterfly: at every level a rank's group meets its sibling group, and every rank ends with what it needs.

Ranks 0..P-1 are halved again and again, the left half the larger by at most one, for any P. From the leaves up, each
rank holds a value for its group and gets the sibling group's: ceil(log2 P) exchanges, one message in and at most two
out at each, and no way back down.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Rows, Table, aligned_zeros, in_rows, read, schema
from mpimbs.parallel.exchange import Posted, Receives, await_message
from mpimbs.parallel.native import PROC_NULL, own_tags, send_only

FROM, TO, ALSO_TO, TAG, IS_LEFT = range(5)  # columns of a schedule


class Exchanges(NamedTuple):
    """Arguments of a butterfly in compiled code."""

    posted: Posted  # a receive for each level
    schedule: Rows  # [levels, 8]: the columns above
    mine: Floats  # [levels * count]: value of the rank's group
    theirs: Floats  # [levels * count]: that of its sibling group


EXCHANGES = schema(Exchanges)


def schedule(rank: int, size: int, to_the_right: bool = False, first_tag: int = 0, mirrored: bool = False) -> Integers:
    """Give a rank's exchanges, from the leaves up.

    Parameters
    ----------
    to_the_right : bool
        Whether the last exchange is one way: ranks of the left half need nothing from the right one.
    first_tag : int
        Of as many message tags as there are levels.
    mirrored : bool
        Whether the ranks are taken from the last to the first: "left" and "right" change places.

    Returns
    -------
    array [levels, 5]
        Rank to receive from; rank to send to; another one to send to; message tag; whether the rank is in the left
        group. PROC_NULL stands where there is none.
    """
    if mirrored:
        table = schedule(size - 1 - rank, size, to_the_right, first_tag)
        partners = table[:, [FROM, TO, ALSO_TO]]
        table[:, [FROM, TO, ALSO_TO]] = np.where(partners == PROC_NULL, partners, size - 1 - partners)
        return table
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
        rows.append((*row, first_tag + len(rows), is_left))
        low, high = (low, middle) if is_left else (middle, high)
    table = np.array(rows[::-1], np.int64).reshape(-1, 5)
    if to_the_right and len(table):
        table[-1, [FROM] if table[-1, IS_LEFT] else [TO, ALSO_TO]] = PROC_NULL
    return table


@kernel(inline=True)
def levels(plan):
    """Schedule [levels, 8], and the values of the rank's group and of its sibling's, [levels, count] both."""
    schedule = read(plan, EXCHANGES.schedule)
    mine = read(plan, EXCHANGES.mine)
    theirs = read(plan, EXCHANGES.theirs)
    count = schedule.shape[0]
    each = mine.size // max(count, 1)
    return schedule, in_rows(mine, count, each), in_rows(theirs, count, each)


@kernel(inline=True)
def send(plan, row, value):
    """Send the group's value of a level; `row` is that of the schedule."""
    channel = read(plan, EXCHANGES.posted.channel)
    for target in (row[TO], row[ALSO_TO]):
        if target != PROC_NULL:
            send_only(channel, value, target, row[TAG])


@kernel(inline=True)
def receive(plan, row, level):
    """Receive the sibling group's value of a level, where there is one; `row` is that of the schedule."""
    if row[FROM] != PROC_NULL:
        await_message(plan, level)


@kernel(inline=True)
def left_and_right(schedule, mine, theirs, level):
    """Give the values of the left and of the right group of a level, of which one is the rank's own."""
    if schedule[level, IS_LEFT]:
        return mine[level], theirs[level]
    return theirs[level], mine[level]


@kernel
def exchange(plan, level):
    """Exchange at one level: send the group's value, receive the sibling group's."""
    schedule, mine, _ = levels(plan)
    send(plan, schedule[level], mine[level])
    receive(plan, schedule[level], level)


def levels_of(comm: MPI.Comm) -> int:
    """How many levels a butterfly over the ranks of a communicator has at the most."""
    return int(comm.size).bit_length()


class Butterfly:
    """A butterfly over a communicator's ranks for values of a fixed number of doubles.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive the plan.
    count : int
        Doubles in a value.
    to_the_right, mirrored : bool
        See `schedule`.
    tag : int, optional
        The first of `levels_of(comm)` tags of the caller's own, for plans of which no two are used at a time; tags
        that are this one's alone by default.

    Attributes
    ----------
    schedule : array [levels, 5]
        As `schedule` gives it.
    mine, theirs : array [levels, count]
        Room for the value of the rank's group and of its sibling's at every level.
    plan : int64 array
        The argument of `levels` and `exchange` in compiled code.
    free : callable
        Frees this rank's requests, whatever the others do.
    """

    def __init__(
        self, comm: MPI.Comm, count: int, to_the_right: bool = False, mirrored: bool = False, tag: int | None = None
    ) -> None:
        first_tag = own_tags(comm, levels_of(comm)) if tag is None else tag
        self.schedule = schedule(comm.rank, comm.size, to_the_right, first_tag, mirrored)
        number = len(self.schedule)
        self.mine, self.theirs = (aligned_zeros(count * number).reshape(number, count) for _ in range(2))
        sources = zip(self.theirs, self.schedule[:, FROM].tolist(), self.schedule[:, TAG].tolist(), strict=True)
        self._receives = Receives(comm, sources, first_tag if tag is None else None)
        self.free = self._receives.free
        rows = np.pad(self.schedule, ((0, 0), (0, 3)))
        self._table = Table(Exchanges(self._receives.posted, rows, self.mine, self.theirs))
        self.plan = self._table.data

    def close(self) -> None:
        """Free what MPI holds, before the communicator is; all ranks call in the same order."""
        self._receives.close()

    @property
    def clock(self) -> Floats:
        """Where time spent in messages is counted [1] (s)."""
        return self._receives.clock

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return self._receives.seconds
