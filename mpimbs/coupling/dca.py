"""The divide and conquer (DCA): assemblies of bodies in the acceleration form, joined by a butterfly over the ranks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.coupling.base import DirectCoupling
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Table, aligned_zeros, assign, read, schema
from mpimbs.parallel.butterfly import IS_LEFT, Butterfly, exchange, left_and_right, levels
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
from mpimbs.values.handles import item


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

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive the coupling.

    Attributes
    ----------
    plan : int64 array
        The argument of `solve` in compiled code.
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
        self.plan: Integers = self._table.data
