"""What is known at set-up of the values of `spatial.columns` and of their joins: lists of bodies, and sizes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.spatial.columns import HANGS_ON, INBOARD, LAST, OPEN, SIX, Room, Rooms, end_at, inboard_at, open_at

Floats = npt.NDArray[np.float64]


class Listed(NamedTuple):
    """The bodies of a value.

    Attributes
    ----------
    last : int
        The body after the last.
    inboard : list of int
    open : list of (int, int)
        Each with the body behind its last child.
    hangs_on : int
        Which of `inboard` these hang on.
    """

    last: int
    inboard: list[int]
    open: list[tuple[int, int]]
    hangs_on: int = 0

    @property
    def room(self) -> Room:
        """What it needs."""
        return Room(len(self.inboard), len(self.open))


class JoinedColumns(NamedTuple):
    """What a join of two intervals needs, and makes; names as of `mixed_joins.JoinedMixed`.

    Attributes
    ----------
    both : Room
        While they are joined.
    handles : list of (int, int)
        Of each component that is hung: how many bodies were open before, and come in with it.
    """

    value: Listed
    both: Room
    handles: list[tuple[int, int]]

    @property
    def responses(self) -> int:
        """Numbers that are kept for the way back."""
        return 2 + sum(2 + SIX * (1 + before + new) for before, new in self.handles)

    @property
    def scratch(self) -> int:
        """Numbers of room for the join."""
        return Rooms(self.both, self.both, self.both, self.both).scratch()


def listed(room: Room, value: Floats) -> Listed:
    """Read what never changes of a value."""
    last, inboard, opened, hangs_on = value[[LAST, INBOARD, OPEN, HANGS_ON]].astype(int).tolist()
    first = [f.py_func(room, 0) for f in (inboard_at, open_at, end_at)]
    lists = [
        value[at:][:count].astype(int).tolist() for at, count in zip(first, (inboard, opened, opened), strict=True)
    ]
    return Listed(last, lists[0], list(zip(*lists[1:], strict=True)), hangs_on)


def list_bodies(room: Room, value: Floats, bodies: Listed) -> None:
    """Write what never changes of a value."""
    value[[LAST, INBOARD, OPEN, HANGS_ON]] = bodies.last, len(bodies.inboard), len(bodies.open), bodies.hangs_on
    for k, body in enumerate(bodies.inboard):
        value[inboard_at.py_func(room, k)] = body
    for k, (body, end) in enumerate(bodies.open):
        value[open_at.py_func(room, k)], value[end_at.py_func(room, k)] = body, end


def joined_columns(left: Listed, right: Listed) -> JoinedColumns:
    """Say what a join needs, and what the value of two intervals in sequence is like."""
    numbers, inboard = [body for body, _ in left.open], list(left.inboard)
    handles: list[tuple[int, int]] = []
    opened, taken = len(left.open), False
    for slot, body in enumerate(right.inboard):
        new = len(right.open) if slot == right.hangs_on else 0
        if body in numbers:
            handles.append((opened, new))
            opened, taken = opened + new, taken or new > 0
        elif body not in inboard:
            inboard.append(body)
    stay = [(body, end) for body, end in left.open if end > right.last]
    own = taken or not right.open
    hangs_on = left.hangs_on if own else inboard.index(right.inboard[right.hangs_on])
    value = Listed(right.last, inboard, stay + right.open, hangs_on)
    return JoinedColumns(value, Room(len(inboard), max(opened, len(value.open))), handles)
