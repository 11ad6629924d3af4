"""An exchange: numbers that some ranks need of some others, whichever they are, by messages of compiled code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.parallel.native import Channel, channel, own_tags, send_only, start, wait
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import Floats, Integers, Rows, Table, aligned_zeros, read, schema

RANK, BEGIN, END = range(3)  # columns of `Swap.sends`


class Swap(NamedTuple):
    """What an exchange is given in compiled code."""

    to_others: Floats
    from_others: Floats
    channel: Channel
    sends: Rows  # [messages, 8]: the columns above, a message is `to_others[begin:end]`
    requests: Integers  # of the receives
    tag: int


SWAP = schema(Swap)


@kernel
def swap(plan):
    """Send `to_others`, and wait for what comes in `from_others`."""
    s = read(plan, SWAP)
    for request in s.requests:
        start(request)
    for number in range(s.sends.shape[0]):
        row = s.sends[number]
        send_only(s.channel, s.to_others[row[BEGIN] : row[END]], row[RANK], s.tag)
    for request in s.requests:
        wait(s.channel, request)


class Exchange:
    """Messages of fixed sizes between any ranks; who has none to send or receive has nothing to do.

    All ranks make it together. A rank that is alone on its communicator sends nothing, whatever it was to send, and
    what it would receive stays zero: so the share of one rank among many is timed.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive the plan.
    sent, received : mapping of int to int
        Doubles that go to each of some ranks, and that come from each; as the other ranks say it.

    Attributes
    ----------
    plan : int64 array
        The argument of `swap` in compiled code, where `read(plan, SWAP.to_others)` and the like are the messages.
    to_others, from_others : array
        What goes and what came, rank by rank in the order of the mappings.
    """

    def __init__(self, comm: MPI.Comm, sent: Mapping[int, int], received: Mapping[int, int]) -> None:
        tag = own_tags(comm, 1)
        self._channel = channel(comm)
        self.to_others, self.from_others = aligned_zeros(sum(sent.values())), aligned_zeros(sum(received.values()))
        messages = _pieces(received) if comm.size > 1 else []
        self._requests = [comm.Recv_init(self.from_others[begin:end], rank, tag) for rank, begin, end in messages]
        sends = np.zeros((len(sent) if comm.size > 1 else 0, 8), np.int64)
        if len(sends):
            sends[:, : END + 1] = _pieces(sent)
        requests = np.array([MPI._addressof(request) for request in self._requests], np.int64)
        self._table = Table(Swap(self.to_others, self.from_others, self._channel, sends, requests, tag))
        self.plan: npt.NDArray[np.int64] = self._table.data

    def __call__(self) -> None:
        """Send `to_others`, and wait for what comes in `from_others`."""
        swap(self.plan)

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return float(self._channel.seconds[0])

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        for request in self._requests:
            request.Free()
        self._requests = []


def _pieces(sizes: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Each rank of a mapping with where its part begins and ends, of sizes in sequence."""
    ends = np.cumsum(list(sizes.values()), dtype=np.int64).tolist()
    return [(rank, end - size, end) for (rank, size), end in zip(sizes.items(), ends, strict=True)]
