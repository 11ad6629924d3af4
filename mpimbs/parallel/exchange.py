"""Exchanges by messages of compiled code: sends and receives that are posted, and numbers that ranks need of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Rows, Table, aligned_zeros, read, schema
from mpimbs.parallel.native import Channel, channel, free_tags, own_tags, send_only, start, wait


class Posted(NamedTuple):
    """The first fields of the table of a plan whose receives are posted."""

    channel: Channel
    requests: Integers  # addresses of persistent ones


POSTED = schema(Posted)


@kernel
def expect(plan):
    """Post all receives; once before every use, the earlier the better."""
    requests = read(plan, POSTED.requests)
    for number in range(requests.size):
        start(requests[number])


@kernel(inline=True)
def await_message(plan, number):
    """Wait for a message."""
    wait(read(plan, POSTED.channel), read(plan, POSTED.requests)[number])


class Receives:
    """Persistent receives of a communicator, made once.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive them.
    expected : iterable of (array, int, int)
        Where each message goes, from whom it comes, and its tag.
    tag : int, optional
        The first of `own_tags` that are free when these are closed.
    """

    def __init__(self, comm: MPI.Comm, expected: Iterable[tuple[Floats, int, int]], tag: int | None = None) -> None:
        self._comm, self._tag = comm, tag
        self._channel = channel(comm)
        self._requests = [comm.Recv_init(*message) for message in expected]
        addresses = np.array([MPI._addressof(request) for request in self._requests], np.int64)
        self.posted = Posted(self._channel, addresses)  # for the table of the plan

    @property
    def clock(self) -> Floats:
        """Where time spent in messages is counted [1] (s)."""
        return self._channel.seconds

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return float(self.clock[0])

    def close(self) -> None:
        """Free what MPI holds, before the communicator is; all ranks call in the same order."""
        self.free()
        if self._tag is not None:
            free_tags(self._comm, self._tag)
            self._tag = None

    def free(self) -> None:
        """Free the requests alone: a rank may, whatever the others do."""
        for request in self._requests:
            request.Free()
        self._requests.clear()


RANK, BEGIN, END = range(3)  # columns of `Swap.sends`


class Swap(NamedTuple):
    """Arguments of an exchange in compiled code."""

    posted: Posted
    to_others: Floats
    from_others: Floats
    sends: Rows  # [messages, 8]: the columns above, a message is `to_others[begin:end]`
    tag: int


SWAP = schema(Swap)


@kernel
def swap(plan):
    """Send `to_others`, and wait for what comes in `from_others`."""
    expect(plan)
    to_others, sends = read(plan, SWAP.to_others), read(plan, SWAP.sends)
    for number in range(sends.shape[0]):
        row = sends[number]
        message = to_others[row[BEGIN] : row[END]]
        send_only(read(plan, SWAP.posted.channel), message, row[RANK], read(plan, SWAP.tag))
    for number in range(read(plan, SWAP.posted.requests).size):
        await_message(plan, number)


class Exchange(Receives):
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
        self.to_others, self.from_others = aligned_zeros(sum(sent.values())), aligned_zeros(sum(received.values()))
        pieces = _pieces(received) if comm.size > 1 else []
        super().__init__(comm, [(self.from_others[begin:end], rank, tag) for rank, begin, end in pieces], tag)
        sends = np.zeros((len(sent) if comm.size > 1 else 0, 8), np.int64)
        if len(sends):
            sends[:, : END + 1] = _pieces(sent)
        self._table = Table(Swap(self.posted, self.to_others, self.from_others, sends, tag))
        self.plan: Integers = self._table.data

    def __call__(self) -> None:
        """Send `to_others`, and wait for what comes in `from_others`."""
        swap(self.plan)


def _pieces(sizes: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Each rank of a mapping with where its part begins and ends, of sizes in sequence."""
    ends = np.cumsum(list(sizes.values()), dtype=np.int64).tolist()
    return [(rank, end - size, end) for (rank, size), end in zip(sizes.items(), ends, strict=True)]
