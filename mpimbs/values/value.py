"""The value of an interval of bodies: its handle equations, with all that is open, on whichever bodies it hangs.

Of the bodies a to b - 1 of a depth-first order, those with a child at b or later are *open*. Every component of the
interval hangs on a body outside, whose acceleration is A, in a slot; x are loads that are not known yet, in groups of
six at the most: on open bodies, of loops that are not closed yet, and of what loops to the world leave while their
component doesn't hang on it (`values.fronts`). y are accelerations of open bodies, and what loops ask to be zero
[design, sections 11 and 12]:

    f = I A - E x + p          y = E^T A + W x + c

A loop may be open to several slots; other groups are to one. Groups that share no slot don't act on each other. So the
value is an array of 6x6 blocks, in six rows of eight, with room for as many as it has, or more:

    [I | p] of each slot; E of each group and slot that it is open to; W of each pair of groups, with c beside those of
    one; of systems with loops then the noise of each diagonal of W, and how many columns of loops were eliminated
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mpimbs.kernels.compiler import kernel
from mpimbs.spatial.rows import ROW

SIX = 6 * ROW
OPEN_BODY, LOOP, TO_WORLD = range(3)  # sorts of groups


class Room(NamedTuple):
    """The size of a value: slots, groups, blocks E, and whether the system has loops (1)."""

    inboard: int
    open: int
    transfers: int
    loops: int

    def size(self) -> int:
        """Numbers of a value."""
        blocks = self.inboard + self.transfers + self.open**2
        return SIX * blocks + ROW * self.loops * (self.open + 1)


class LoadGroup(NamedTuple):
    """A group of loads of a value."""

    number: int  # of the body, or of the loop behind all bodies
    ends: int  # body behind the last child, or ends that are missing
    slots: tuple[int, ...]
    sort: int


class Description(NamedTuple):
    """The layout of a value: the body after the last; the bodies of the slots, -1 the world; the groups."""

    last: int
    slots: Sequence[int]
    groups: Sequence[LoadGroup]
    loops: bool  # of the system

    @property
    def transfers(self) -> list[tuple[int, int]]:
        """Slot and group of each E."""
        return [(slot, number) for number, group in enumerate(self.groups) for slot in sorted(group.slots)]

    @property
    def room(self) -> Room:
        """The numbers that it needs."""
        return Room(len(self.slots), len(self.groups), len(self.transfers), int(self.loops))


def without_loops(
    last: int, slots: Sequence[int], opened: Sequence[tuple[int, int]], outside_bodies: int = 0
) -> Description:
    """Describe the value of an interval in a system without loops.

    Parameters
    ----------
    last : int
        The body after the last.
    slots : sequence of int
    opened : sequence of (int, int)
        The open bodies, each with the body behind its last child.
    outside_bodies : int
        The slot of their component.
    """
    return Description(last, slots, [LoadGroup(*ends, (outside_bodies,), OPEN_BODY) for ends in opened], False)


def largest_room(rooms: Sequence[Room]) -> Room:
    """Room for the values of all."""
    return Room(*(max(sizes) for sizes in zip(*rooms, strict=True)))


@kernel(inline=True)
def block_at(room, slot):
    """Where [I | p] of a slot begins."""
    return SIX * slot


@kernel(inline=True)
def transfer_at(room, number):
    """Where a block E begins."""
    return SIX * (room.inboard + number)


@kernel(inline=True)
def compliance_at(room, group, other):
    """Where W of two groups begins."""
    return SIX * (room.inboard + room.transfers + group * room.open + other)


@kernel(inline=True)
def noise_at(room, group):
    """Where the noise of the diagonal of W of a group begins; behind the last, how many columns were eliminated."""
    return SIX * (room.inboard + room.transfers + room.open * room.open) + ROW * group
