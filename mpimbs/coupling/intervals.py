"""The efficient divide and conquer of trees: intervals of bodies in depth-first order, joined by a butterfly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.coupling.base import ButterflyCoupling
from mpimbs.parallel.butterfly import IS_LEFT, Butterfly, exchange, expect, halves, levels
from mpimbs.spatial.columns import SIX, Room, join_columns, spread_columns
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.handles import item
from mpimbs.spatial.memory import Floats, Integers, Table, aligned_zeros, assign, read, schema


class Hanging(NamedTuple):
    """What `solve` is given."""

    butterfly: Integers
    own: int  # number of this rank's intervals
    within: Floats  # [(own - 1) * room.size()]: values of each interval and those behind it together
    within_responses: Floats  # [(own - 1) * kept]
    inboard: int  # for so many inboard and open bodies a value has room
    open: int
    kept: int  # room.responses()
    responses: Floats  # [levels * kept]
    joined: Floats  # [levels * room.size()]: value of the group of both
    scratch: Floats  # [2 * SIX]
    boundary: Floats  # [2 * (inboard + open) * 6]: of the two halves of a group
    work: Floats  # [(2 * open + 1) * 6]


HANGING = schema(Hanging)


@kernel
def solve(plan, values, root, loads):
    """Find accelerations of the inboard bodies and loads on the open ones of this rank's intervals, after `expect`.

    All ranks call. `loads` [count * (inboard + open) * 6] is written: of each the accelerations, then the loads.
    """
    butterfly = read(plan, HANGING.butterfly)
    room = Room(read(plan, HANGING.inboard), read(plan, HANGING.open))
    all_responses, joined = read(plan, HANGING.responses), read(plan, HANGING.joined)
    boundary, work, scratch = read(plan, HANGING.boundary), read(plan, HANGING.work), read(plan, HANGING.scratch)
    within, within_responses = read(plan, HANGING.within), read(plan, HANGING.within_responses)
    own_count = read(plan, HANGING.own)
    size, each = values.size // own_count, read(plan, HANGING.kept)
    schedule, mine, theirs = levels(butterfly)
    count = schedule.shape[0]
    value = item(values, own_count - 1, size)
    for number in range(own_count - 2, -1, -1):
        responses, both = item(within_responses, number, each), item(within, number, size)
        join_columns(room, item(values, number, size), value, both, responses, scratch)
        value = both
    # Up: at each level the value of the rank's group and its sibling's.
    for level in range(count):
        if level == 0:
            assign(mine[0], value)
        else:
            assign(mine[level], item(joined, level - 1, size))
        exchange(butterfly, level)
        left, right = halves(schedule, mine, theirs, level)
        join_columns(room, left, right, item(joined, level, size), item(all_responses, level, each), scratch)
    # Down, without a message. The system hangs on the world alone, and nothing is open.
    loads[:] = 0.0
    assign(loads[0:6], root)
    numbers, split = 6 * (room.inboard + room.open), 6 * room.inboard
    of_left, of_right = boundary[0:numbers], boundary[numbers : 2 * numbers]
    for level in range(count - 1, -1, -1):
        left, right = halves(schedule, mine, theirs, level)
        out, responses = item(joined, level, size), item(all_responses, level, each)
        spread_columns(room, left, right, out, responses, loads[0:split], loads[split:numbers], of_left, of_right, work)
        assign(loads, of_left if schedule[level, IS_LEFT] else of_right)
    for number in range(own_count - 1):
        left, behind = item(values, number, size), number + 1
        right = item(values if behind == own_count - 1 else within, behind, size)
        out, responses, here = (
            item(within, number, size),
            item(within_responses, number, each),
            loads[number * numbers :],
        )
        spread_columns(room, left, right, out, responses, here[0:split], here[split:numbers], of_left, of_right, work)
        assign(here, of_left)
        assign(item(loads, behind, numbers), of_right)


class IntervalDivideAndConquer(ButterflyCoupling):
    """DCAe of trees: the values of the ranks' intervals, joined two by two, exact in one pass [design, section 11].

    ceil(log2 P) messages in each direction, for any number P of ranks. Several intervals of a rank are joined one
    after the other before.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive the coupling.
    room : Room
        Of the values of all ranks.
    count : int
        Intervals of this rank.

    Attributes
    ----------
    plan : int64 array
        The argument of `solve` in compiled code.
    """

    def __init__(self, comm: MPI.Comm, room: Room, count: int = 1) -> None:
        super().__init__(Butterfly(comm, room.size()))
        levels_at_most = max(comm.size.bit_length(), 1)
        hanging = Hanging(
            self._butterfly.plan,
            own=count,
            within=aligned_zeros((count - 1) * room.size()),
            within_responses=aligned_zeros((count - 1) * room.responses()),
            inboard=room.inboard,
            open=room.open,
            kept=room.responses(),
            responses=aligned_zeros(len(self._butterfly.schedule) * room.responses()),
            joined=aligned_zeros(levels_at_most * room.size()),
            scratch=aligned_zeros(2 * SIX),
            boundary=np.zeros(2 * (room.inboard + room.open) * 6),
            work=np.zeros((2 * room.open + 1) * 6),
        )
        self._table = Table(hanging)
        self.plan: npt.NDArray[np.int64] = self._table.data
        self._loads = np.zeros((count, 6 * (room.inboard + room.open)))

    def product(self, values: Floats, root: Floats) -> Floats:
        """Find the boundary values of this rank's intervals, as `coupling.base.Solve`; all ranks call."""
        expect(self._butterfly.plan)
        solve(self.plan, values.reshape(-1), root, self._loads.reshape(-1))
        return self._loads
