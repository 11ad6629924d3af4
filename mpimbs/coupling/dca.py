"""Divide and conquer: of bodies, in the acceleration form (DCA), and of subchains by O(n) sweeps (DCAe).

Each is joined by a butterfly over the ranks.
"""

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
from mpimbs.spatial.rows import ROW
from mpimbs.values.assembly import (
    ASSEMBLY,
    BLOCK,
    EXTRA,
    FAR,
    JOINT,
    RECORD,
    assemble_pair,
    disassemble_pair,
    far_acceleration,
    release,
)
from mpimbs.values.handles import RESPONSE, SCRATCH, SIZE, between, combine, item, join_to_next, respond, spread_loads


class Assembling(NamedTuple):
    """Arguments of `solve_by_dca` in compiled code."""

    butterfly: Integers
    records: Floats  # [(levels + 1) * RECORD]
    world: Floats  # [BLOCK]
    whole: Floats  # [ASSEMBLY]
    room: Floats  # [30]


ASSEMBLING = schema(Assembling)


@kernel
def solve_by_dca(plan, assembly, root, outer):
    """Find A1 and f2 of this rank's assembly, `outer` [12], after `expect`; all ranks call.

    Up the levels [Critchley 2007, eq. 23-42], the joint on the world, and down again without a message: both halves of
    every group are at hand.
    """
    butterfly, records, world, whole, room = read(plan, ASSEMBLING)
    f1, f2, load, udot = room[0:6], room[6:12], room[12:18], room[18:24]
    schedule, mine, theirs = levels(butterfly)
    count = schedule.shape[0]
    outer[:] = 0.0
    assign(outer[0:6], root)
    if count == 0:
        return
    for level in range(count):
        if level == 0:
            assign(mine[0], assembly)
        exchange(butterfly, level)
        left, right = left_and_right(schedule, mine, theirs, level)
        record = item(records, level, RECORD)
        joint = right[BLOCK : BLOCK + JOINT]
        release(left, right, joint, int(joint[EXTRA]), record)
        out = mine[level + 1] if level + 1 < count else whole
        assemble_pair(left, right, record, out)
        assign(out[BLOCK : BLOCK + JOINT], left[BLOCK : BLOCK + JOINT])
    # The joint on the world: nothing of it moves but by `root`.
    for i in range(6):
        world[FAR + i * ROW + EXTRA] = root[i]
    f1[:] = 0.0
    f2[:] = 0.0
    joint = whole[BLOCK : BLOCK + JOINT]
    record = item(records, count, RECORD)
    release(world, whole, joint, int(joint[EXTRA]), record)
    disassemble_pair(world, whole, joint, int(joint[EXTRA]), record, f1, f2, load, udot)
    assign(f1, load)
    for level in range(count - 1, -1, -1):
        left, right = left_and_right(schedule, mine, theirs, level)
        joint = right[BLOCK : BLOCK + JOINT]
        disassemble_pair(left, right, joint, int(joint[EXTRA]), item(records, level, RECORD), f1, f2, load, udot)
        if schedule[level, IS_LEFT]:
            for i in range(6):
                f2[i] = -load[i]
        else:
            for i in range(6):
                outer[i] = -load[i]
            far_acceleration(left, f1, outer[0:6], room[24:30])
            assign(outer[0:6], room[24:30])
            assign(f1, load)
    assign(outer[6:12], f2)


class DivideAndConquer(DirectCoupling):
    """DCA: the assemblies of the ranks, joined two by two [Featherstone 1999; Critchley 2007, eq. 12-42].

    ceil(log2 P) messages of 1600 bytes in each direction.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._butterfly = Butterfly(comm, ASSEMBLY)
        super().__init__(self._butterfly)
        assembling = Assembling(
            self._butterfly.plan,
            records=aligned_zeros(RECORD * (comm.size.bit_length() + 1)),
            world=aligned_zeros(BLOCK),
            whole=aligned_zeros(ASSEMBLY),
            room=np.zeros(30),
        )
        self._table = Table(assembling)
        self.plan: Integers = self._table.data  # the argument of `solve` in compiled code


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
    count : int
        Subchains of this rank.
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
        self.plan: Integers = self._table.data  # the argument of `solve` in compiled code
        self._blocks = aligned_zeros(count * SIZE)
        self._loads = np.zeros((count, 12))

    def product(self, blocks: Floats, root: Floats) -> Floats:
        """Find A1 and f2 of this rank's subchains, as `coupling.base.Solve`; all ranks call."""
        expect(self._butterfly.plan)
        self._blocks[:] = blocks.ravel()
        solve_by_dcae(self.plan, self._blocks, root, self._loads.ravel())
        return self._loads
