"""The unknowns of systems with loops: constraint loads of separated joints, and of loops that are open between pieces.

No MPI. Joints, pieces and unknowns have numbers over all ranks; loops have those that the values of pieces give them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from mpimbs.spatial.memory import Integers


class LoopedPiece(NamedTuple):
    """What all ranks have to know of a piece."""

    sizes: list[int]  # constraint loads of its separated joints
    hung_on: list[int]  # the bodies that these hang on
    open: list[int]  # its open bodies
    loops: list[tuple[int, int]]  # its open loops by their numbers, and how many loads each has


class LoopGraph:
    """The unknowns of the pieces of all ranks: of each rank its joints, then the loops that no rank before has.

    Parameters
    ----------
    shares : sequence of list of LoopedPiece
        Of all ranks.

    Attributes
    ----------
    begins : array [ranks + 1]
        The first unknown of each rank.
    rows : list of array
        The unknowns of each joint of all ranks.
    ranks : list of int
        The rank of each.
    loops : dict of int to array
        The unknowns of each loop, in ascending order.
    owners : dict of int to int
        The rank of each: the first that has it.
    hanging : dict of int to list of int
        The joints that hang on a body.
    """

    def __init__(self, shares: Sequence[list[LoopedPiece]]) -> None:
        self._shares = shares
        self.rows: list[Integers] = []
        self.ranks: list[int] = []
        self.loops: dict[int, Integers] = {}
        self.owners: dict[int, int] = {}
        self.hanging: dict[int, list[int]] = {}
        self._joints: list[list[list[int]]] = []
        begins = [0]
        for rank, pieces in enumerate(shares):
            at = begins[-1]
            self._joints.append([])
            for piece in pieces:
                self._joints[rank].append([])
                for size, body in zip(piece.sizes, piece.hung_on, strict=True):
                    self.hanging.setdefault(body, []).append(len(self.rows))
                    self._joints[rank][-1].append(len(self.rows))
                    self.rows.append(at + np.arange(size))
                    self.ranks.append(rank)
                    at += size
            for piece in pieces:
                for loop, size in piece.loops:
                    if loop not in self.loops:
                        self.loops[loop] = at + np.arange(size)
                        self.owners[loop] = rank
                        at += size
            begins.append(at)
        self.begins = np.array(begins)

    def joints_of(self, rank: int) -> list[int]:
        """The joints of a rank."""
        return [joint for piece in self._joints[rank] for joint in piece]

    def hanging_on(self, rank: int) -> list[int]:
        """The joints that hang on the open bodies of a rank, body by body."""
        return [joint for piece in self._shares[rank] for body in piece.open for joint in self.hanging[body]]

    def unknowns(self, rank: int) -> list[Integers]:
        """What the equations of each piece of a rank have: its joints, those that hang on it, its loops."""
        found = []
        for joints, piece in zip(self._joints[rank], self._shares[rank], strict=True):
            behind = [joint for body in piece.open for joint in self.hanging[body]]
            parts = [self.rows[joint] for joint in joints + behind] + [self.loops[loop] for loop, _ in piece.loops]
            found.append(joined_places(parts))
        return found


def joined_places(parts: Iterable[Integers]) -> Integers:
    """Lists of places one behind the other."""
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
