"""Messages that are expected: all receives of a use are posted at once, before any is waited for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Floats, Integers, read, schema
from mpimbs.parallel.native import Channel, channel, free_tags, start, wait


class Posted(NamedTuple):
    """What begins the table of a plan whose receives are posted."""

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

    Attributes
    ----------
    posted : Posted
        For the table of the plan.
    """

    def __init__(self, comm: MPI.Comm, expected: Iterable[tuple[Floats, int, int]], tag: int | None = None) -> None:
        self._comm, self._tag = comm, tag
        self._channel = channel(comm)
        self._requests = [comm.Recv_init(*message) for message in expected]
        addresses = np.array([MPI._addressof(request) for request in self._requests], np.int64)
        self.posted = Posted(self._channel, addresses)

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return float(self._channel.seconds[0])

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
