"""What pieces of a system hand inward, to bodies outside them: as a scan over ranks joins it, of any numbers.

A value is the first body of a piece, how many bodies outside are handed something, and of each its number and what it
is handed; then room for as many. What that is, and how two are added, is the caller's:

    add(value, at, handed)

adds to the numbers that begin there a tuple of the same.
"""

from __future__ import annotations

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import assign
from mpimbs.kernels.tuples import load_like, store_numbers

_FIRST, _COUNT, _HEAD = 0, 1, 2


def nothing_handed(most: int, numbers: int) -> Floats:
    """Give a value of nothing, with room for what so many bodies at the most are handed."""
    return np.zeros(_HEAD + 2 * most * (1 + numbers))


@kernel(inline=True)
def begin_handing(value, first):
    """Make it a value of nothing, of the bodies from `first` on."""
    value[_FIRST], value[_COUNT] = first, 0.0


@kernel(inline=True)
def anything_handed(value):
    """Whether anything is handed to any body."""
    return value[_COUNT] > 0.0


@kernel(inline=True)
def handed_to(value, body, numbers):
    """Where what a body is handed begins; -1, if it is nothing."""
    for k in range(int(value[_COUNT])):
        if value[_HEAD + k * (1 + numbers)] == body:
            return _HEAD + k * (1 + numbers) + 1
    return -1


@kernel(inline=True)
def hand_to(value, body, handed, add):
    """Add what a body is handed, a tuple of numbers."""
    at = handed_to(value, body, len(handed))
    if at >= 0:
        add(value, at, handed)
        return
    at = _HEAD + int(value[_COUNT]) * (1 + len(handed))
    value[at] = body
    store_numbers(0.0, value, at + 1, handed)
    value[_COUNT] += 1.0


@kernel(inline=True)
def join_handed(left, right, out, like, add):
    """Join what two groups of pieces in sequence hand on; `out` may be either of them.

    What hangs on a body of the left goes with all that is open there, to the body that this hangs on: the first of
    those outside. `like` is a tuple of as many numbers as each is handed.
    """
    if left[_COUNT] == 0.0:
        assign(out, right)
        return
    own, behind, each = int(left[_COUNT]), int(right[_COUNT]), 1 + len(like)
    first, room = left[_FIRST], (out.size - _HEAD) // 2
    # In the room at the end: neither of the two is read there.
    count = own
    for k in range(own * each):
        out[_HEAD + room + k] = left[_HEAD + k]
    least = 0
    for k in range(own):
        if left[_HEAD + k * each] < left[_HEAD + least * each]:
            least = k
    for number in range(behind):
        body = right[_HEAD + number * each]
        place = least if body >= first else count
        for k in range(own):
            if left[_HEAD + k * each] == body:
                place = k
        at, given = _HEAD + room + place * each, _HEAD + number * each
        if place == count:
            for i in range(each):
                out[at + i] = right[given + i]
            count += 1
        else:
            add(out, at + 1, load_like(0.0, right, given + 1, like))
    out[_FIRST], out[_COUNT] = first, count
    for k in range(count * each):
        out[_HEAD + k] = out[_HEAD + room + k]
