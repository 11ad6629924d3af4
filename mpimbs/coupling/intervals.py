"""The efficient divide and conquer of trees: intervals of bodies in depth-first order, joined by a butterfly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.coupling.base import ButterflyCoupling
from mpimbs.parallel.butterfly import IS_LEFT, Butterfly, exchange, expect, halves, levels
from mpimbs.spatial.columns import Room, join_columns, spread_columns
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.handles import item
from mpimbs.spatial.memory import Floats, Integers, Table, aligned_zeros, assign, read, schema
from mpimbs.spatial.mixed import MixedRoom, copy_mixed, described
from mpimbs.spatial.mixed_joins import Description, join_mixed, joined, spread_mixed


class Hanging(NamedTuple):
    """What `solve` is given."""

    butterfly: Integers
    own: int  # number of this rank's intervals
    within: Floats  # [(own - 1) * room.size()]: values of each interval and those behind it together
    within_responses: Floats  # [(own - 1) * kept]
    inboard: int  # for so many inboard and open bodies a value has room
    open: int
    kept: int  # room.responses()
    mixed: int  # whether the values are those of `spatial.mixed`
    values: Floats  # [own * room.size()]: those of the rank's intervals, where they come with less room
    own_inboard: int  # for which these have room
    own_open: int
    roomy_loads: Floats  # [own * (inboard + open) * 6]
    responses: Floats  # [levels * kept]
    joined: Floats  # [levels * room.size()]: value of the group of both
    scratch: Floats  # [room.scratch()]
    boundary: Floats  # [2 * (inboard + open) * 6]: of the two halves of a group
    work: Floats  # [(2 * open + 1) * 6], or as `scratch`


HANGING = schema(Hanging)


@kernel
def _join(plan, left, right, out, responses, scratch):
    if read(plan, HANGING.mixed) != 0:
        mixed = MixedRoom(read(plan, HANGING.inboard), read(plan, HANGING.open))
        join_mixed(mixed, left, right, out, responses, scratch)
    else:
        room = Room(read(plan, HANGING.inboard), read(plan, HANGING.open))
        join_columns(room, left, right, out, responses, scratch)


@kernel
def _spread(plan, left, right, out, responses, accelerations, loads, of_left, of_right, work):
    if read(plan, HANGING.mixed) != 0:
        mixed = MixedRoom(read(plan, HANGING.inboard), read(plan, HANGING.open))
        spread_mixed(mixed, left, right, out, responses, accelerations, loads, of_left, of_right, work)
    else:
        room = Room(read(plan, HANGING.inboard), read(plan, HANGING.open))
        spread_columns(room, left, right, out, responses, accelerations, loads, of_left, of_right, work)


@kernel
def _with_room(plan, values):
    """Bring the rank's values to where they have the room of all."""
    roomy = read(plan, HANGING.values)
    own = MixedRoom(read(plan, HANGING.own_inboard), read(plan, HANGING.own_open))
    room = MixedRoom(read(plan, HANGING.inboard), read(plan, HANGING.open))
    count = read(plan, HANGING.own)
    for number in range(count):
        copy_mixed(own, item(values, number, values.size // count), room, item(roomy, number, roomy.size // count))
    return roomy


@kernel
def solve(plan, given, root, given_loads):
    """Find accelerations of the inboard bodies and loads on the open ones of this rank's intervals, after `expect`.

    All ranks call. `given_loads` [count * (inboard + open) * 6] is written: of each the accelerations, then the loads.
    """
    values, loads = given, given_loads
    if read(plan, HANGING.mixed) != 0:
        values, loads = _with_room(plan, given), read(plan, HANGING.roomy_loads)
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
        _join(plan, item(values, number, size), value, both, responses, scratch)
        value = both
    # Up: at each level the value of the rank's group and its sibling's.
    for level in range(count):
        if level == 0:
            assign(mine[0], value)
        else:
            assign(mine[level], item(joined, level - 1, size))
        exchange(butterfly, level)
        left, right = halves(schedule, mine, theirs, level)
        _join(plan, left, right, item(joined, level, size), item(all_responses, level, each), scratch)
    # Down, without a message. The system hangs on the world alone, and nothing is open.
    loads[:] = 0.0
    assign(loads[0:6], root)
    numbers, split = 6 * (room.inboard + room.open), 6 * room.inboard
    of_left, of_right = boundary[0:numbers], boundary[numbers : 2 * numbers]
    for level in range(count - 1, -1, -1):
        left, right = halves(schedule, mine, theirs, level)
        out, responses = item(joined, level, size), item(all_responses, level, each)
        _spread(plan, left, right, out, responses, loads[0:split], loads[split:numbers], of_left, of_right, work)
        assign(loads, of_left if schedule[level, IS_LEFT] else of_right)
    for number in range(own_count - 1):
        left, behind = item(values, number, size), number + 1
        right = item(values if behind == own_count - 1 else within, behind, size)
        out, responses, here = (
            item(within, number, size),
            item(within_responses, number, each),
            loads[number * numbers :],
        )
        _spread(plan, left, right, out, responses, here[0:split], here[split:numbers], of_left, of_right, work)
        assign(here, of_left)
        assign(item(loads, behind, numbers), of_right)
    if read(plan, HANGING.mixed) != 0:
        inboard, groups = read(plan, HANGING.own_inboard), read(plan, HANGING.own_open)
        each = 6 * (inboard + groups)
        for number in range(own_count):
            here = item(loads, number, numbers)
            for i in range(6 * inboard):
                given_loads[number * each + i] = here[i]
            for i in range(6 * groups):
                given_loads[number * each + 6 * inboard + i] = here[split + i]


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
    own : MixedRoom, optional
        Of their values, of a system with loops; `room` is a `MixedRoom` then.

    Attributes
    ----------
    plan : int64 array
        The argument of `solve` in compiled code.
    """

    def __init__(self, comm: MPI.Comm, room: Room | MixedRoom, count: int = 1, own: MixedRoom | None = None) -> None:
        super().__init__(Butterfly(comm, room.size()))
        numbers = 6 * (room.inboard + room.open)
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
            mixed=int(own is not None),
            values=aligned_zeros(count * room.size() if own else 0),
            own_inboard=own.inboard if own else 0,
            own_open=own.open if own else 0,
            roomy_loads=np.zeros(count * numbers if own else 0),
            scratch=aligned_zeros(room.scratch()),
            boundary=np.zeros(2 * numbers),
            work=aligned_zeros(room.scratch()),
        )
        self._table = Table(hanging)
        self.plan: npt.NDArray[np.int64] = self._table.data
        self._loads = np.zeros((count, 6 * ((own or room).inboard + (own or room).open)))

    def product(self, values: Floats, root: Floats) -> Floats:
        """Find the boundary values of this rank's intervals, as `coupling.base.Solve`; all ranks call."""
        expect(self._butterfly.plan)
        solve(self.plan, values.reshape(-1), root, self._loads.reshape(-1))
        return self._loads


def common_room(comm: MPI.Comm, own: MixedRoom, values: Floats) -> MixedRoom:
    """Room that the values of all ranks need, and of what they are joined to; all ranks call with theirs [n, size]."""
    most = [own.inboard, own.open]

    def noted(value: Description) -> Description:
        most[:] = max(most[0], len(value[1])), max(most[1], len(value[2]))
        return value

    mine = [described(own, value) for value in values]
    of_ranks = []
    for theirs in comm.allgather(mine):
        whole = noted(theirs[-1])
        for left in theirs[-2::-1]:
            whole = noted(joined(noted(left), whole))
        of_ranks.append(whole)

    def group(low: int, high: int) -> Description:
        if high - low == 1:
            return of_ranks[low]
        middle = low + (high - low + 1) // 2
        return noted(joined(group(low, middle), group(middle, high)))

    group(0, comm.size)
    return MixedRoom(*most)
