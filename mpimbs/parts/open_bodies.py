"""What a scan over the intervals of a tree hands on: turns or motions of the open bodies of an interval.

A body is open while it has children behind the interval (`values.value`); all open bodies of an interval are in one
component, and what is kept of each is its turn or motion relative to the body outside that this component hangs on. Of
all bodies before a rank's own, which hang on the world, these are absolute: what the rank's bodies begin with.

A value is a flat array: the body after the last, how many are open, the number of the body outside; then of each open
one, from the root outward: its number, that of the body behind its last child, and the numbers of its turn or motion.
"""

from __future__ import annotations

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import assign, span
from mpimbs.sweep.motion import join_motion, join_turn
from mpimbs.sweep.structure import BOUNDARY, TURNING

BEHIND, NUMBER, OUTSIDE = range(3)
HEAD = 3
_OWN = 2  # numbers of an open body before those of its turn or motion


def open_size(most: int, numbers: int) -> int:
    """Numbers of a value with room for so many open bodies."""
    return HEAD + most * (_OWN + numbers)


def none_open(first: int, most: int, numbers: int) -> Floats:
    """Value of no bodies at all, before body `first`."""
    value = np.zeros(open_size(most, numbers))
    value[[BEHIND, OUTSIDE]] = first, -1
    return value


@kernel(inline=True)
def open_body(value, k, numbers):
    """Turn or motion of an open body."""
    at = HEAD + k * (_OWN + numbers) + _OWN
    return span(value, at, numbers)


@kernel(inline=True)
def _join(zero, left, right, out, numbers, join):
    each = _OWN + numbers
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
        own = right[source + _OWN : source + each]
        if on >= 0:
            join(zero, open_body(left, on, numbers), own, out[target + _OWN : target + each])
        else:
            assign(out[target + _OWN : target + each], own)
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
