"""What every rank of an evaluation does, in order: computes, sends, receives. Written from the plans of the real run.

Collective operations of MPI stand as the messages of a butterfly, which short ones are.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mpimbs.parallel.butterfly import ALSO_TO, FROM, TAG, TO, schedule
from mpimbs.parallel.native import PROC_NULL
from mpimbs.partition.schedule import JOIN, RECEIVE_LOADS, RECEIVE_VALUE, SEND_LOADS, SEND_VALUE, Schedule
from mpimbs.sweep.structure import TURNING

COMPUTE, SEND, RECEIVE = range(3)
DOUBLE = 8  # bytes
LOADS = 12  # doubles, of two handles


class Occurrence(NamedTuple):
    """One thing that a rank does.

    Attributes
    ----------
    kind : int
        COMPUTE for some seconds; SEND or RECEIVE a message of so many bytes.
    amount : float
        Seconds or bytes.
    other : int
        The rank that it is sent to, or received from.
    tag : int
        Messages of the same tag are sent at about the same time, and are told apart by it.
    """

    kind: int
    amount: float
    other: int = PROC_NULL
    tag: int = 0


class Sweeps(NamedTuple):
    """Seconds of an evaluation of one rank's bodies, messages and joins with other ranks left out.

    call: of Python, before the first phase; the phases as in `pipeline`; and of loops that lead to other ranks, between
    motion and inward: moving, before the scan of motions, and placing, before and behind the exchange of far ends.
    """

    call: float
    motion: float
    inward: float
    coupling: float
    outward: float
    moving: float = 0.0
    placing: float = 0.0


@functools.lru_cache(maxsize=1 << 14)
def _rows(rank: int, size: int, to_the_right: bool) -> list[list[int]]:
    return [[int(item) for item in row] for row in schedule(rank, size, to_the_right)]


class Trace:
    """The trace of one rank; the methods are called in the order in which the rank does things, on every rank the same.

    Parameters
    ----------
    rank, size : int
    alone : bool
        Whether nothing of any rank hangs on others: then scans and butterflies are over none.

    Attributes
    ----------
    events : list of Occurrence
    """

    def __init__(self, rank: int, size: int, alone: bool = False) -> None:
        self.rank, self.size = rank, size
        self.events: list[Occurrence] = []
        self._tag = 0
        self._joined = 1 if alone else size
        self._levels = (self._joined - 1).bit_length()

    def _tags(self, count: int) -> int:
        """Reserve so many tags; the first."""
        self._tag += count
        return self._tag - count

    def compute(self, seconds: float) -> None:
        """Compute for some time."""
        if seconds > 0.0:
            self.events.append(Occurrence(COMPUTE, seconds))

    def _send(self, row: list[int], size: int, base: int) -> None:
        for target in (row[TO], row[ALSO_TO]):
            if target != PROC_NULL:
                self.events.append(Occurrence(SEND, size, target, base + row[TAG]))

    def _receive(self, row: list[int], size: int, base: int) -> None:
        if row[FROM] != PROC_NULL:
            self.events.append(Occurrence(RECEIVE, size, row[FROM], base + row[TAG]))

    def scan(self, doubles: int = TURNING) -> None:
        """Scan over the ranks, as `parallel.scan` does: a level's message is waited for when the next is due."""
        rows, base = _rows(self.rank, self._joined, True), self._tags(self._levels)
        for level, row in enumerate(rows):
            if level:
                self._receive(rows[level - 1], doubles * DOUBLE, base)
            self._send(row, doubles * DOUBLE, base)
        if rows:
            self._receive(rows[-1], doubles * DOUBLE, base)

    def butterfly(self, doubles: int, join: float) -> None:
        """Exchange values of so many doubles at every level, as `parallel.butterfly` does, and join them (s)."""
        base = self._tags(self._levels)
        for row in _rows(self.rank, self._joined, False):
            self._send(row, doubles * DOUBLE, base)
            self._receive(row, doubles * DOUBLE, base)
            self.compute(join)

    def assembly(self, schedule: Schedule, doubles: Sequence[int], joins: Sequence[float]) -> None:
        """Join values in the order of a schedule, as `coupling.intervals` does; loads on two handles come back.

        `doubles` are those of the value of each node; `joins` the time of each join (s), up and down.
        """
        base, leaves = self._tags(2 * len(schedule.holders)), len(schedule.owners)
        for kind, node, other in schedule.steps[self.rank]:
            if kind == JOIN:
                self.compute(joins[node - leaves])
            elif kind in (SEND_VALUE, RECEIVE_VALUE):
                sends = SEND if kind == SEND_VALUE else RECEIVE
                self.events.append(Occurrence(sends, doubles[node] * DOUBLE, other, base + 2 * node))
            elif kind in (SEND_LOADS, RECEIVE_LOADS):
                sends = SEND if kind == SEND_LOADS else RECEIVE
                self.events.append(Occurrence(sends, LOADS * DOUBLE, other, base + 2 * node + 1))

    def exchange(self, sizes: Mapping[int, int]) -> None:
        """Swap messages of so many doubles with some ranks, as `parallel.exchange` does."""
        tag = self._tags(1)
        for kind in (SEND, RECEIVE):
            self.events += [Occurrence(kind, doubles * DOUBLE, other, tag) for other, doubles in sorted(sizes.items())]


def compute_seconds(trace: Trace) -> float:
    """Time that a rank computes."""
    return sum(event.amount for event in trace.events if event.kind == COMPUTE)
