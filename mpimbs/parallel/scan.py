"""An exclusive scan over the ranks: what all ranks before this one, or all behind it, have together.

What the values are, and how two neighbours' become one, is the caller's: an associative operation

    join(zero, left, right, out)

of flat arrays, where `out` may be `left` or `right`; compiled, it is given as an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Table, assign, read, schema
from mpimbs.parallel.butterfly import IS_LEFT, Butterfly, levels, receive, send
from mpimbs.parallel.exchange import expect


class Scanned(NamedTuple):
    """Arguments of a scan in compiled code."""

    butterfly: Integers
    result: Floats  # [count]
    identity: Floats  # [count]
    backward: int  # whether the ranks are taken from the last to the first


SCANNED = schema(Scanned)


@kernel(inline=True)
def _joined(plan, join, before, behind, out):
    """Join two groups of ranks, of which the scan comes to one before the other."""
    if read(plan, SCANNED.backward):
        join(0.0, behind, before, out)
    else:
        join(0.0, before, behind, out)


@kernel(inline=True)
def _receive(plan, join, level):
    """Receive the value of the sibling group at a level, and join it."""
    butterfly = read(plan, SCANNED.butterfly)
    schedule, mine, theirs = levels(butterfly)
    receive(butterfly, schedule[level], level)
    result = read(plan, SCANNED.result)
    more = level + 1 < schedule.shape[0]
    if schedule[level, IS_LEFT]:
        if more:
            _joined(plan, join, mine[level], theirs[level], mine[level + 1])
    else:
        _joined(plan, join, theirs[level], result, result)
        if more:
            _joined(plan, join, theirs[level], mine[level], mine[level + 1])


@kernel(inline=True)
def expect_scan(plan):
    """Post the receives of a scan: once before each, the earlier the better."""
    expect(read(plan, SCANNED.butterfly))


@kernel(inline=True)
def begin_scan(plan, join, value):
    """Scan this rank's value over the ranks, after `expect_scan`: all but the last message."""
    assign(read(plan, SCANNED.result), read(plan, SCANNED.identity))
    butterfly = read(plan, SCANNED.butterfly)
    schedule, mine, _ = levels(butterfly)
    for level in range(schedule.shape[0]):
        if level == 0:
            assign(mine[0], value)
        else:
            _receive(plan, join, level - 1)
        send(butterfly, schedule[level], mine[level])


@kernel(inline=True)
def end_scan(plan, join):
    """Receive the last message of the scan that has begun: `scanned` then is what the ranks before have together."""
    schedule, _, _ = levels(read(plan, SCANNED.butterfly))
    if schedule.shape[0] > 0:
        _receive(plan, join, schedule.shape[0] - 1)


@kernel(inline=True)
def scanned(plan):
    """Give the result of a scan [count], after `end_scan`; before the first one, of nothing."""
    return read(plan, SCANNED.result)


@kernel(inline=True)
def scan(plan, join, value):
    """Scan this rank's value over the ranks, with nothing between."""
    expect_scan(plan)
    begin_scan(plan, join, value)
    end_scan(plan, join)


class Scan:
    """A scan over the ranks of a communicator, for values of a fixed number of doubles.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive the plan.
    identity : array [count]
        What nothing is: that of the first rank.
    whole : kernel, optional
        Called with the plan and a value, for all of a scan at once: its `expect_scan`, `begin_scan` and `end_scan`.
    backward : bool
        Whether a rank gets what those behind it have, instead of those before.
    """

    def __init__(
        self, comm: MPI.Comm, identity: Floats, whole: Callable[..., Any] | None = None, backward: bool = False
    ) -> None:
        self._butterfly = Butterfly(comm, len(identity), to_the_right=True, mirrored=backward)
        self.result = identity.copy()  # [count]: what the last scan gave
        self._table = Table(Scanned(self._butterfly.plan, self.result, identity.copy(), int(backward)))
        self.plan = self._table.data  # the argument of `begin_scan` and `end_scan` in compiled code
        self._whole = whole

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        self._butterfly.close()

    @property
    def exchanges(self) -> int:
        """How many exchanges follow one another on this rank."""
        return len(self._butterfly.schedule)

    @property
    def clock(self) -> Floats:
        """Where time spent in messages is counted [1] (s)."""
        return self._butterfly.clock

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return self._butterfly.seconds

    def __call__(self, value: Floats) -> Floats:
        """Give what the ranks before, or behind, have together [count]; all ranks call, each with its value. Reused."""
        assert self._whole is not None
        self._whole(self.plan, np.ascontiguousarray(value))
        return self.result
