"""The inertia matrix of a system on one rank: all of it in one call of compiled code."""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import Floats, Integers, read, schema
from mpimbs.sweep.composite import composites
from mpimbs.sweep.entries import move
from mpimbs.sweep.inertia_rows import inertia_rows, rearrange
from mpimbs.sweep.structure import Structure, Workspace


class AlonePlan(NamedTuple):
    """What the inertia matrix is made from on one rank."""

    structure: Structure
    work: Workspace
    still: Floats  # [nu]: no speeds
    boundary: Floats  # [BOUNDARY]
    motion: Floats  # [m * BOUNDARY]
    open_at: Integers
    beyond: Floats
    lines: Floats
    pitch: int
    places: Integers
    ends: Integers
    armature: Floats
    room: Floats
    numbers: Integers
    target: Floats  # [n * n]: the matrix by places; empty where these are the numbers


ALONE = schema(AlonePlan)


@kernel
def alone(plan, q, out):
    """Write the inertia matrix [n * n] of a system on one rank."""
    p = read(plan, ALONE)
    move(p.structure, p.work, q, p.still, p.boundary, p.motion)
    composites(p.structure, p.work, p.motion, p.open_at, p.beyond, p.lines, p.pitch, p.places)
    n = p.places.size
    target = p.target if p.target.size > 0 else out
    inertia_rows(p.lines, p.pitch, p.ends, p.armature, 0, n, n, target, p.room)
    if p.target.size > 0:
        rearrange(target, p.numbers, out)
