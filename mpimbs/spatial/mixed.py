"""Handle equations of an interval of bodies with loops: all that is open, on whichever bodies outside it hangs.

As in `spatial.columns`, an interval hangs on bodies outside, whose accelerations are A, in slots; x are loads that are
not known yet, in groups of six at the most: on open bodies, of loops that are not closed yet, and of what loops to the
world leave while their component doesn't hang on it (`spatial.fronts`). A loop may be open to several slots. All is one
matrix, of blocks of eight for every slot and every group,

    f = I A - E x + p          y = E^T A + W x + c

Two intervals in sequence are joined by what they have in common: a component of the right one hangs on an open body j
of the left one, y_j = A_b and x_j = x - f_b with x from further behind; bodies outside are the same, or loops. Loops of
which both ends are in, and on one slot, are closed, y = 0, as in `spatial.fronts`.

A value is a flat array, with room for as many slots and groups as it has, or more:

    [0] body after the last    [1] slots    [2] groups
    numbers of the bodies of the slots (-1 the world)
    of the groups: number; kind; body behind the last child, or ends missing; which slots (bits)
    the rows of the matrix: for each its blocks, then the constant, and of y the noise of W
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.rows import ROW

Floats = npt.NDArray[np.float64]

AFTER, SLOTS, GROUPS = range(3)
_HEAD = 4
_OF_GROUP = 4
WHICH, ENDS, SLOTS_OF, SORT = range(4)  # of a group in the lists
OPEN_BODY, LOOP, TO_WORLD = range(3)  # sorts of groups
C_COLUMN, NOISE_COLUMN = range(2)  # columns behind the blocks


class MixedRoom(NamedTuple):
    """How many slots and groups a value has room for; names as of `columns.Room`."""

    inboard: int
    open: int

    def size(self) -> int:
        """Numbers of a value."""
        blocks = self.inboard + self.open
        lists = -(-(_HEAD + self.inboard + _OF_GROUP * self.open) // ROW) * ROW
        return lists + ROW * blocks * ROW * (blocks + 1)


class OpenGroup(NamedTuple):
    """A group of a value."""

    number: int  # of the body, or of the loop behind all bodies
    ends: int  # body behind the last child, or ends that are missing
    slots: int  # bits
    sort: int


def describe(room: MixedRoom, value: Floats, last: int, slots: list[int], groups: list[OpenGroup]) -> None:
    """Write what never changes of a value."""
    value[[AFTER, SLOTS, GROUPS]] = last, len(slots), len(groups)
    for k, body in enumerate(slots):
        value[slot_at.py_func(room, k)] = body
    for k, group in enumerate(groups):
        at = group_at.py_func(room, k)
        value[at : at + _OF_GROUP] = group


def described(room: MixedRoom, value: Floats) -> tuple[int, list[int], list[OpenGroup]]:
    """Read what `describe` writes: the body after the last, slots, groups."""
    last, slots, groups = value[[AFTER, SLOTS, GROUPS]].astype(int).tolist()
    bodies = value[slot_at.py_func(room, 0) :][:slots].astype(int).tolist()
    found = value[group_at.py_func(room, 0) :][: _OF_GROUP * groups].astype(int).reshape(-1, _OF_GROUP)
    return last, bodies, [OpenGroup(*row) for row in found.tolist()]


@kernel(inline=True)
def slot_at(room, number):
    """Where the body of a slot stands."""
    return _HEAD + number


@kernel(inline=True)
def group_at(room, number):
    """Where the numbers of a group stand."""
    return _HEAD + room.inboard + _OF_GROUP * number


@kernel(inline=True)
def length_of(room):
    """Numbers of a row of the matrix."""
    return ROW * (room.inboard + room.open + 1)


@kernel(inline=True)
def row_at(room, block, i):
    """Where a row of a block begins; slots come first, then groups."""
    lists = (_HEAD + room.inboard + _OF_GROUP * room.open + ROW - 1) // ROW * ROW
    return lists + (ROW * block + i) * length_of(room)
