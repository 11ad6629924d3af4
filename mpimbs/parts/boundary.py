"""Motions of what a rank's bodies hang on, by a scan over the ranks in compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.calling import call_at
from mpimbs.kernels.compiler import kernel
from mpimbs.parts.entries import move
from mpimbs.parts.subchain import AT_REST, Subchain
from mpimbs.sweep.structure import BOUNDARY


class BoundaryPlan(NamedTuple):
    """Arguments of the scan of motions over ranks, which tells what bodies hang on that other ranks have."""

    entry: int  # where its kernel is; 0 where none is needed
    scan: Integers  # its table
    result: Floats  # what it gives
    value: Floats  # what it is given, see `parts.subchain.BoundaryLayout`
    offset: int
    stride: int
    before: Integers  # [k]
    outer: Integers  # [h]: the steps whose motions it is given
    held: Floats  # [m * BOUNDARY], written: motions while those inboard are at rest
    at_rest: Floats  # [k * BOUNDARY]


Scans = tuple[int, Integers, Floats]  # the first fields of a plan


def boundary_plan(subchain: Subchain, by: Scans | None) -> BoundaryPlan:
    """Give the plan of a subchain, by the scan of its motions; of one that needs none."""
    none, nothing = np.zeros(0, np.int64), np.zeros(0)
    if by is None:
        return BoundaryPlan(0, none, nothing, nothing, 0, 0, none, none, nothing, nothing)
    (entry, scan, result), layout = by, subchain.boundary_layout()
    given = layout.value, layout.offset, layout.stride, layout.before, subchain.outer_steps
    at_rest = np.tile(AT_REST, len(subchain.inboard))
    return BoundaryPlan(entry, scan, result, *given, subchain.room_of_held_motions, at_rest)


@kernel
def hold_inboard(structure, work, scan, q, u):
    """Write what the scan is given: motions of the open bodies while those inboard are at rest."""
    move(structure, work, q, u, scan.at_rest, scan.held)
    for k in range(scan.outer.size):
        for i in range(BOUNDARY):
            scan.value[scan.offset + k * scan.stride + i] = scan.held[scan.outer[k] * BOUNDARY + i]


@kernel
def take_boundary(scan, found, boundary):
    """Write the motions of what the bodies hang on, from what the scan has found."""
    for k in range(scan.before.size):
        at = scan.offset + scan.before[k] * scan.stride
        for i in range(BOUNDARY):
            boundary[k * BOUNDARY + i] = found[at + i] if scan.before[k] >= 0 else scan.at_rest[i]


@kernel
def see_boundary(structure, work, scan, q, u, boundary):
    """Write the motions of what the bodies hang on; all ranks call."""
    hold_inboard(structure, work, scan, q, u)
    call_at(scan.entry, (scan.scan, scan.value))
    take_boundary(scan, scan.result, boundary)
