"""The efficient divide and conquer (DCAe): subchains by O(n) sweeps, joined by a butterfly over the ranks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.coupling.base import DirectCoupling
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Table, aligned_zeros, assign, read, schema
from mpimbs.parallel.butterfly import IS_LEFT, Butterfly, exchange, left_and_right, levels
from mpimbs.parallel.exchange import expect
from mpimbs.values.handles import RESPONSE, SCRATCH, SIZE, between, combine, join_to_next, respond, spread_loads


class Joining(NamedTuple):
    """Arguments of `solve_by_dcae` in compiled code."""

    butterfly: Integers
    responses: Floats  # [levels * RESPONSE]
    scratch: Floats  # [SCRATCH]
    shared: Floats  # [12]: acceleration and load between two groups
    within: Floats  # [count * RESPONSE]: of the joins of this rank's subchains
    outer: Floats  # [12]: A1 and f2 of all of them together


JOINING = schema(Joining)


@kernel
def solve_by_dcae(plan, blocks, root, loads):
    """Find A1 and f2 of this rank's subchains, `loads` [count * 12], after `expect`; all ranks call.

    `blocks` [count * SIZE] are overwritten with the products of each and all outboard of it on this rank.
    """
    butterfly, responses, scratch, shared, within, outer = read(plan, JOINING)
    acceleration = outer[0:6]
    load = outer[6:12]
    assign(acceleration, root)
    load[:] = 0.0
    for number in range(blocks.size // SIZE - 2, -1, -1):
        join_to_next(blocks, number, within, scratch, True)
    schedule, mine, theirs = levels(butterfly)
    count = schedule.shape[0]
    # Up: at each level the product over the rank's group [Critchley 2007, eq. 53-71].
    for level in range(count):
        if level == 0:
            assign(mine[0], blocks[0:SIZE])
        exchange(butterfly, level)
        left, right = left_and_right(schedule, mine, theirs, level)
        response = responses[level * RESPONSE : (level + 1) * RESPONSE]
        respond(left, right, response, scratch, True)
        if level + 1 < count:
            combine(left, right, response, mine[level + 1], True)
    # Down, without a message: both halves of every group are at hand.
    for level in range(count - 1, -1, -1):
        right = theirs[level] if schedule[level, IS_LEFT] else mine[level]
        response = responses[level * RESPONSE : (level + 1) * RESPONSE]
        between(right, response, acceleration, load, shared[0:6], shared[6:12])
        if schedule[level, IS_LEFT]:
            assign(load, shared[6:12])
        else:
            assign(acceleration, shared[0:6])
    spread_loads(blocks, within, outer, loads)


class EfficientDivideAndConquer(DirectCoupling):
    """DCAe: the product of the ranks' handle equations by a butterfly, exact in one pass [Critchley 2007].

    ceil(log2 P) messages of 1152 bytes in each direction, as many 6x6 products, for any number P of ranks. Several
    subchains of a rank are joined one after the other before.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive the coupling.
    count : int
        Subchains of this rank.

    Attributes
    ----------
    plan : int64 array
        The argument of `solve` in compiled code.
    """

    def __init__(self, comm: MPI.Comm, count: int = 1) -> None:
        self._butterfly = Butterfly(comm, SIZE)
        super().__init__(self._butterfly)
        joining = Joining(
            self._butterfly.plan,
            responses=aligned_zeros(RESPONSE * max(comm.size.bit_length(), 1)),
            scratch=aligned_zeros(SCRATCH),
            shared=np.zeros(12),
            within=aligned_zeros(RESPONSE * count),
            outer=np.zeros(12),
        )
        self._table = Table(joining)
        self.plan: Integers = self._table.data
        self._blocks = aligned_zeros(count * SIZE)
        self._loads = np.zeros((count, 12))

    def product(self, blocks: Floats, root: Floats) -> Floats:
        """Find A1 and f2 of this rank's subchains, as `coupling.base.Solve`; all ranks call."""
        expect(self._butterfly.plan)
        self._blocks[:] = blocks.ravel()
        solve_by_dcae(self.plan, self._blocks, root, self._loads.ravel())
        return self._loads
