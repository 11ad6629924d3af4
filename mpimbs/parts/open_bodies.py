"""What a scan over the intervals of a tree hands on: turns, motions, accelerations of the open bodies of an interval.

A body is open while it has children behind the interval (`values.value`); all open bodies of an interval are in one
component, and what is kept of each is its turn or motion relative to the body outside that this component hangs on. Of
all bodies before a rank's own, which hang on the world, these are absolute: what the rank's bodies begin with.

A value is a flat array: the body after the last, how many are open, the number of the body outside; then of each open
one, from the root outward: its number, that of the body behind its last child, and the numbers of its turn or motion.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.calling import call_at
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import assign, span
from mpimbs.kernels.tuples import load3, load6, store_numbers
from mpimbs.parts.entries import move
from mpimbs.parts.subchain import AT_REST, Outside, Subchain
from mpimbs.spatial.vectors import add3, add6, cross, dot3, sub3
from mpimbs.sweep.motion import join_motion, join_turn
from mpimbs.sweep.structure import BOUNDARY, TURNING

BEHIND, NUMBER, OUTSIDE = range(3)
HEAD = 3
OWN = 2  # numbers of an open body before those of its turn or motion
UNHELD = (
    9  # position 3, acceleration 6, in inertial components: while the body outside has none, if that is not the world
)


def open_size(most: int, numbers: int) -> int:
    """Numbers of a value with room for so many open bodies."""
    return HEAD + most * (OWN + numbers)


def none_open(first: int, most: int, numbers: int) -> Floats:
    """Value of no bodies at all, before body `first`."""
    value = np.zeros(open_size(most, numbers))
    value[[BEHIND, OUTSIDE]] = first, -1
    return value


def open_value(outside: Outside, last: int, numbers: int) -> Floats:
    """Value of the bodies before `last` that hang on those outside, but for the turns or motions of the open ones."""
    value = none_open(last, outside.most, numbers)
    value[[NUMBER, OUTSIDE]] = len(outside.open), outside.inboard[0]
    value[HEAD:].reshape(-1, OWN + numbers)[: len(outside.open), :OWN] = np.stack((outside.open, outside.ends), axis=1)
    return value


@kernel(inline=True)
def open_body(value, k, numbers):
    """Turn or motion of an open body."""
    at = HEAD + k * (OWN + numbers) + OWN
    return span(value, at, numbers)


@kernel(inline=True)
def _join(zero, left, right, out, numbers, join):
    each = OWN + numbers
    before, behind = int(left[NUMBER]), int(right[NUMBER])
    last, outside = right[BEHIND], right[OUTSIDE]
    on = -1
    kept = 0  # of the left, those that have a child behind the right
    for k in range(before):
        if left[HEAD + k * each] == outside:
            on = k
        if left[HEAD + k * each + 1] > last:
            kept += 1
    for k in range(behind - 1, -1, -1):  # backward, since `out` may be `right`
        source, target = HEAD + k * each, HEAD + (kept + k) * each
        own = right[source + OWN : source + each]
        if on >= 0:
            join(zero, open_body(left, on, numbers), own, out[target + OWN : target + each])
        else:
            assign(out[target + OWN : target + each], own)
        number, end = right[source], right[source + 1]
        out[target] = number
        out[target + 1] = end
    target = HEAD
    for k in range(before):
        source = HEAD + k * each
        if left[source + 1] > last:
            assign(span(out, target, each), span(left, source, each))
            target += each
    out[BEHIND] = last
    out[NUMBER] = kept + behind
    out[OUTSIDE] = left[OUTSIDE] if behind == 0 or on >= 0 else outside


@kernel
def join_open_turns(zero, left, right, out):
    """Join the turns of the open bodies of two intervals in sequence; `out` may be `right`."""
    _join(zero, left, right, out, TURNING, join_turn)


@kernel
def join_open_motions(zero, left, right, out):
    """Join the motions of the open bodies of two intervals in sequence; `out` may be `right`."""
    _join(zero, left, right, out, BOUNDARY, join_motion)


@kernel(inline=True)
def _accelerate(zero, left, right, out):
    """Write the acceleration of a body that hangs on another, of which both are UNHELD numbers."""
    at, a = load3(zero, right, 0), load6(zero, left, 3)
    moved = a[0:3] + add3(a[3:6], cross(a[0:3], sub3(at, load3(zero, left, 0))))
    store_numbers(zero, out, 0, at + add6(load6(zero, right, 3), moved))


@kernel(inline=True)
def _reach(zero, left, right, out):
    """Write the magnitudes of an angular and a linear acceleration: the first two numbers in place of accelerations."""
    at = load3(zero, right, 0)
    arm = sub3(at, load3(zero, left, 0))
    linear = right[4] + left[4] + math.sqrt(dot3(arm, arm)) * left[3]
    store_numbers(zero, out, 0, at + (right[3] + left[3], linear))


@kernel
def join_open_accelerations(zero, left, right, out):
    """Join the accelerations of the open bodies of two intervals in sequence; `out` may be `right`."""
    _join(zero, left, right, out, UNHELD, _accelerate)


@kernel
def join_open_reaches(zero, left, right, out):
    """Join the magnitudes of the accelerations of open bodies, as `join_open_accelerations`."""
    _join(zero, left, right, out, UNHELD, _reach)


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
