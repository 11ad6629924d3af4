"""The efficient divide and conquer of trees: intervals of bodies in depth-first order, joined by a butterfly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.coupling.base import ButterflyCoupling
from mpimbs.parallel.butterfly import IS_LEFT, Butterfly, exchange, halves, levels
from mpimbs.spatial.columns import SIX, Room, join_columns, spread_columns
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import Floats, Integers, Table, aligned_zeros, assign, read, schema


class Hanging(NamedTuple):
    """What `solve` is given."""

    butterfly: Integers
    inboard: int  # for so many inboard and open bodies a value has room
    open: int
    responses: Floats  # [levels * room.responses()]
    joined: Floats  # [levels * room.size()]: value of the group of both
    scratch: Floats  # [2 * SIX]
    boundary: Floats  # [2 * (inboard + open) * 6]: of the two halves of a group
    work: Floats  # [(2 * open + 1) * 6]


HANGING = schema(Hanging)


@kernel
def solve(plan, value, root, loads):
    """Find accelerations of this rank's inboard bodies and loads on its open ones, after `expect`; all ranks call.

    `loads` [(inboard + open) * 6] is written: the accelerations, then the loads.
    """
    butterfly = read(plan, HANGING.butterfly)
    room = Room(read(plan, HANGING.inboard), read(plan, HANGING.open))
    all_responses, joined = read(plan, HANGING.responses), read(plan, HANGING.joined)
    boundary, work = read(plan, HANGING.boundary), read(plan, HANGING.work)
    schedule, mine, theirs = levels(butterfly)
    count = schedule.shape[0]
    kept = all_responses.size // max(count, 1)
    size = value.size
    # Up: at each level the value of the rank's group and its sibling's.
    for level in range(count):
        if level == 0:
            assign(mine[0], value)
        else:
            assign(mine[level], joined[(level - 1) * size : level * size])
        exchange(butterfly, level)
        left, right = halves(schedule, mine, theirs, level)
        responses = all_responses[level * kept : (level + 1) * kept]
        out = joined[level * size : (level + 1) * size]
        join_columns(room, left, right, out, responses, read(plan, HANGING.scratch))
    # Down, without a message. The system hangs on the world alone, and nothing is open.
    loads[:] = 0.0
    assign(loads[0:6], root)
    numbers = 6 * (room.inboard + room.open)
    of_left, of_right = boundary[0:numbers], boundary[numbers : 2 * numbers]
    for level in range(count - 1, -1, -1):
        left, right = halves(schedule, mine, theirs, level)
        responses = all_responses[level * kept : (level + 1) * kept]
        out = joined[level * size : (level + 1) * size]
        split = 6 * room.inboard
        spread_columns(room, left, right, out, responses, loads[0:split], loads[split:numbers], of_left, of_right, work)
        assign(loads, of_left if schedule[level, IS_LEFT] else of_right)


class IntervalDivideAndConquer(ButterflyCoupling):
    """DCAe of trees: the values of the ranks' intervals, joined two by two, exact in one pass [design, section 11].

    ceil(log2 P) messages in each direction, for any number P of ranks.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive the coupling.
    room : Room
        Of the values of all ranks.

    Attributes
    ----------
    plan : int64 array
        The argument of `solve` in compiled code.
    """

    def __init__(self, comm: MPI.Comm, room: Room) -> None:
        super().__init__(Butterfly(comm, room.size()))
        count = max(comm.size.bit_length(), 1)
        hanging = Hanging(
            self._butterfly.plan,
            inboard=room.inboard,
            open=room.open,
            responses=aligned_zeros(len(self._butterfly.schedule) * room.responses()),
            joined=aligned_zeros(count * room.size()),
            scratch=aligned_zeros(2 * SIX),
            boundary=np.zeros(2 * (room.inboard + room.open) * 6),
            work=np.zeros((2 * room.open + 1) * 6),
        )
        self._table = Table(hanging)
        self.plan: npt.NDArray[np.int64] = self._table.data
