"""The inertia matrix of a system on one rank: all of it in one call of compiled code."""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import borrowed, borrowed_rows, read, schema
from mpimbs.sweep.inertia.composite import composites, twists
from mpimbs.sweep.inertia.inertia_rows import inertia_of_few, inertia_rows, rearrange
from mpimbs.sweep.structure import Structure, Workspace


class AlonePlan(NamedTuple):
    """Arguments of the inertia matrix on one rank, in compiled code."""

    structure: Structure
    work: Workspace
    boundary: Floats  # [BOUNDARY]
    frames: Floats  # [m * FRAME]
    open_at: Integers
    beyond: Floats
    lines: Floats
    pitch: int
    places: Integers
    ends: Integers
    blocks: Integers
    armature: Floats
    room: Floats
    numbers: Integers
    target: Floats  # [n * n]: the matrix by places; empty where these are the numbers
    related: Floats  # [pitch * pitch]: of few, whose places are their numbers (`inertia_of_few`); else empty
    tiles: Integers  # of few, too
    nq: int


ALONE = schema(AlonePlan)


@kernel
def alone(plan, q, out):
    """Write the inertia matrix [n, n] of a system on one rank.

    Gives whether the arrays have its sizes, else nothing is done, and the diagonal is finite.
    """
    p = read(plan, ALONE)
    n = p.places.size
    if q.size != p.nq or out.shape[0] != n or out.shape[1] != n:
        return False
    q, out = borrowed(q), borrowed_rows(out)
    twists(p.structure, p.work, q, p.boundary, p.frames, p.lines, p.pitch, p.places)
    composites(p.structure, p.work, p.frames, p.open_at, p.beyond, p.lines, p.pitch, p.places)
    if p.related.size > 0:
        inertia_of_few(p.lines, p.pitch, p.related, p.tiles, p.armature, n, out, p.room)
    else:
        target = p.target if p.target.size > 0 else out
        inertia_rows(p.lines, p.pitch, p.ends, p.blocks, p.armature, 0, n, n, target, p.room)
        if p.target.size > 0:
            rearrange(target, p.numbers, out)
    total = 0.0
    for k in range(n):
        total += out[k * n + k]
    return total - total == 0.0
