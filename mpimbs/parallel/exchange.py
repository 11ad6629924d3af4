"""An exchange: numbers that some ranks need of some others, whichever they are, by messages made once."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.parallel.native import own_tags


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
    to_others, from_others : array
        What goes and what came, rank by rank in the order of the mappings.
    seconds : float
        Time spent so far (s).
    """

    def __init__(self, comm: MPI.Comm, sent: Mapping[int, int], received: Mapping[int, int]) -> None:
        tag = own_tags(comm, 1)
        self.to_others, self.from_others = np.zeros(sum(sent.values())), np.zeros(sum(received.values()))
        self.seconds = 0.0
        self._requests: list[MPI.Prequest] = []
        if comm.size > 1:
            receives = zip(received, _pieces(self.from_others, received), strict=True)
            sends = zip(sent, _pieces(self.to_others, sent), strict=True)
            self._requests += [comm.Recv_init(room, rank, tag) for rank, room in receives]
            self._requests += [comm.Send_init(room, rank, tag) for rank, room in sends]

    def __call__(self) -> None:
        """Send `to_others`, and wait for what comes in `from_others`."""
        if not self._requests:
            return
        began = time.perf_counter()
        MPI.Prequest.Startall(self._requests)
        MPI.Request.Waitall(self._requests)
        self.seconds += time.perf_counter() - began

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        for request in self._requests:
            request.Free()
        self._requests = []


def _pieces(values: npt.NDArray[np.float64], sizes: Mapping[int, int]) -> list[npt.NDArray[np.float64]]:
    """The parts of an array, of sizes in sequence."""
    return np.split(values, np.cumsum(list(sizes.values()))[:-1]) if sizes else []
