"""The halo: what neighbours on a chain of ranks tell each other, one message in each direction, by compiled code."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from mpimbs.parallel.native import CHANNEL_ITEMS, PROC_NULL, Channel, channel, own_tags, send_only, start, wait
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import Table, aligned_zeros, floats, integers

HALO_ITEMS = (*CHANNEL_ITEMS, "neighbours", "requests", "to_left", "to_right", "from_left", "from_right")
_HANDLES, _STATUS, _SECONDS, _NEIGHBOURS, _REQUESTS, TO_LEFT, TO_RIGHT, FROM_LEFT, FROM_RIGHT = range(
    0, 2 * len(HALO_ITEMS), 2
)
LEFT, RIGHT, LEFTWARD, RIGHTWARD = range(4)  # of the item `neighbours`: ranks, message tags


@kernel
def swap(plan):
    """Send `TO_LEFT` and `TO_RIGHT` to the neighbours, and receive theirs in `FROM_RIGHT` and `FROM_LEFT`."""
    channel = Channel(integers(plan, _HANDLES), integers(plan, _STATUS), floats(plan, _SECONDS))
    neighbours = integers(plan, _NEIGHBOURS)
    requests = integers(plan, _REQUESTS)
    for request in requests:
        start(request)
    if neighbours[LEFT] != PROC_NULL:
        send_only(channel, floats(plan, TO_LEFT), neighbours[LEFT], neighbours[LEFTWARD])
    if neighbours[RIGHT] != PROC_NULL:
        send_only(channel, floats(plan, TO_RIGHT), neighbours[RIGHT], neighbours[RIGHTWARD])
    for request in requests:
        wait(channel, request)


class Halo:
    """Messages of fixed sizes between neighbours: rank r tells r - 1 and r + 1 something each.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive the plan.
    leftward, rightward : int
        Doubles of a message to the left and to the right.

    Attributes
    ----------
    plan : int64 array
        The argument of `swap` in compiled code, where `floats(plan, TO_LEFT)` and the like are the messages; what a
        rank at an end would receive from nobody stays zero.
    """

    def __init__(self, comm: MPI.Comm, leftward: int, rightward: int) -> None:
        self._table = Table(HALO_ITEMS)
        self._channel = channel(comm)
        for name, value in self._channel._asdict().items():
            self._table.add(name, value)
        left = comm.rank - 1 if comm.rank > 0 else PROC_NULL
        right = comm.rank + 1 if comm.rank + 1 < comm.size else PROC_NULL
        rooms = {name: aligned_zeros(leftward) for name in ("to_left", "from_right")}
        rooms |= {name: aligned_zeros(rightward) for name in ("to_right", "from_left")}
        for name, room in rooms.items():
            self._table.add(name, room)
        tag = own_tags(comm, 2)
        expected = ((left, "from_left", tag + 1), (right, "from_right", tag))
        self._requests = [comm.Recv_init(rooms[name], rank, tag) for rank, name, tag in expected if rank != PROC_NULL]
        self._table.add("neighbours", np.array([left, right, tag, tag + 1], np.int64))
        self._table.add("requests", np.array([MPI._addressof(request) for request in self._requests], np.int64))
        self.plan = self._table.data

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return float(self._channel.seconds[0])

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        for request in self._requests:
            request.Free()
        self._requests = []
