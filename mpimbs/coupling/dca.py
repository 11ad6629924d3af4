"""The divide and conquer (DCA): assemblies of bodies in the acceleration form, joined by a butterfly over the ranks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.coupling.base import ButterflyCoupling
from mpimbs.parallel.butterfly import IS_LEFT, ITEMS, Butterfly, exchange, expect, levels
from mpimbs.spatial.assembly import (
    ASSEMBLY,
    BLOCK,
    EXTRA,
    FAR,
    JOINT,
    RECORD,
    assemble,
    far_acceleration,
    release,
    spread,
)
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.handles import item
from mpimbs.spatial.memory import aligned_zeros, assign, floats
from mpimbs.spatial.rows import ROW

Floats = npt.NDArray[np.float64]

_MORE = ("records", "world", "whole", "room")
_RECORDS, _WORLD, _WHOLE, _ROOM = range(2 * len(ITEMS), 2 * (len(ITEMS) + len(_MORE)), 2)


@kernel
def solve(plan, assembly, root, outer):
    """Find A1 and f2 of this rank's assembly, `outer` [12], after `expect`; all ranks call.

    Up the levels [Critchley 2007, eq. 23-42], the joint on the world, and down again without a message: both halves of
    every group are at hand.
    """
    records = floats(plan, _RECORDS)
    world = floats(plan, _WORLD)
    whole = floats(plan, _WHOLE)
    room = floats(plan, _ROOM)
    f1, f2, load, udot = room[0:6], room[6:12], room[12:18], room[18:24]
    schedule, mine, theirs = levels(plan)
    count = schedule.shape[0]
    outer[:] = 0.0
    assign(outer[0:6], root)
    if count == 0:
        return
    for level in range(count):
        if level == 0:
            assign(mine[0], assembly)
        exchange(plan, level)
        left = mine[level] if schedule[level, IS_LEFT] else theirs[level]
        right = theirs[level] if schedule[level, IS_LEFT] else mine[level]
        record = item(records, level, RECORD)
        joint = right[BLOCK : BLOCK + JOINT]
        release(left, right, joint, int(joint[EXTRA]), record)
        out = mine[level + 1] if level + 1 < count else whole
        assemble(left, right, record, out)
        assign(out[BLOCK : BLOCK + JOINT], left[BLOCK : BLOCK + JOINT])
    # The joint on the world: nothing of it moves but by `root`.
    for i in range(6):
        world[FAR + i * ROW + EXTRA] = root[i]
    f1[:] = 0.0
    f2[:] = 0.0
    joint = whole[BLOCK : BLOCK + JOINT]
    record = item(records, count, RECORD)
    release(world, whole, joint, int(joint[EXTRA]), record)
    spread(world, whole, joint, int(joint[EXTRA]), record, f1, f2, load, udot)
    assign(f1, load)
    for level in range(count - 1, -1, -1):
        left = mine[level] if schedule[level, IS_LEFT] else theirs[level]
        right = theirs[level] if schedule[level, IS_LEFT] else mine[level]
        joint = right[BLOCK : BLOCK + JOINT]
        spread(left, right, joint, int(joint[EXTRA]), item(records, level, RECORD), f1, f2, load, udot)
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


class DivideAndConquer(ButterflyCoupling):
    """DCA: the assemblies of the ranks, joined two by two [Featherstone 1999; Critchley 2007, eq. 12-42].

    ceil(log2 P) messages of 1600 bytes in each direction.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive the coupling.
    """

    plan = None

    def __init__(self, comm: MPI.Comm) -> None:
        super().__init__(Butterfly(comm, ASSEMBLY, more=_MORE))
        table = self._butterfly.table
        table.add("records", aligned_zeros(RECORD * (comm.size.bit_length() + 1)))
        table.add("world", aligned_zeros(BLOCK))
        table.add("whole", aligned_zeros(ASSEMBLY))
        table.add("room", np.zeros(30))
        self._table = table.data
        self._outer = np.zeros((1, 12))

    def solve(self, t: float, q: Floats, blocks: Floats, root: Floats) -> Floats:
        """Find A1 and f2 of this rank's assembly [1, 12]; see `Coupling.solve`. All ranks call.

        `blocks` [1, ASSEMBLY] is in the acceleration form.
        """
        expect(self._table)
        solve(self._table, blocks[0], root, self._outer[0])
        return self._outer
