"""The halo: what neighbours on a chain of ranks tell each other, one message in each direction, by compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.parallel.native import PROC_NULL, Channel, channel, own_tags, send_only, start, wait
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import Floats, Integers, Table, aligned_zeros, read, schema


class Swap(NamedTuple):
    """What a halo is given in compiled code; the messages to and from the neighbours, and what MPI needs."""

    to_left: Floats
    to_right: Floats
    from_left: Floats
    from_right: Floats
    channel: Channel
    neighbours: Integers  # [4]: ranks to the left and to the right, message tags leftward and rightward
    requests: Integers


SWAP = schema(Swap)
LEFT, RIGHT, LEFTWARD, RIGHTWARD = range(4)  # of `neighbours`


@kernel
def swap(plan):
    """Send `to_left` and `to_right` to the neighbours, and receive theirs in `from_right` and `from_left`."""
    s = read(plan, SWAP)
    for request in s.requests:
        start(request)
    if s.neighbours[LEFT] != PROC_NULL:
        send_only(s.channel, s.to_left, s.neighbours[LEFT], s.neighbours[LEFTWARD])
    if s.neighbours[RIGHT] != PROC_NULL:
        send_only(s.channel, s.to_right, s.neighbours[RIGHT], s.neighbours[RIGHTWARD])
    for request in s.requests:
        wait(s.channel, request)


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
        The argument of `swap` in compiled code, where `read(plan, SWAP.to_left)` and the like are the messages; what a
        rank at an end would receive from nobody stays zero.
    """

    def __init__(self, comm: MPI.Comm, leftward: int, rightward: int) -> None:
        self._channel = channel(comm)
        left = comm.rank - 1 if comm.rank > 0 else PROC_NULL
        right = comm.rank + 1 if comm.rank + 1 < comm.size else PROC_NULL
        to_left, from_right = aligned_zeros(leftward), aligned_zeros(leftward)
        to_right, from_left = aligned_zeros(rightward), aligned_zeros(rightward)
        tag = own_tags(comm, 2)
        expected = ((left, from_left, tag + 1), (right, from_right, tag))
        self._requests = [comm.Recv_init(room, rank, tag) for rank, room, tag in expected if rank != PROC_NULL]
        neighbours = np.array([left, right, tag, tag + 1], np.int64)
        requests = np.array([MPI._addressof(request) for request in self._requests], np.int64)
        self._table = Table(Swap(to_left, to_right, from_left, from_right, self._channel, neighbours, requests))
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
