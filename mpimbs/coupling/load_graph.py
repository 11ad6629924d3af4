"""Which constraint loads depend on which: the graph of cut joints and of the pieces that they hang on. No MPI.

The bodies of a subchain, or of an interval of a tree, are a piece. A joint is cut where a piece hangs on a body of an
earlier one, which is open. Its loads depend on those of all joints that hang on the same piece, of the joint that
carries these, and of those that hang on what it carries itself. In a chain each piece carries one joint.

Joints and pieces have numbers over all ranks, in sequence: those of a rank are neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


class CutJoints(NamedTuple):
    """The cut joints and the pieces of a rank.

    Attributes
    ----------
    sizes, hung_on, pieces : array [joints]
        Constraint loads of each cut joint, the body that it hangs on, its piece's number on the rank.
    roots : array [pieces]
        Which of the joints carries the open bodies of each piece; -1: none, or one that is not cut.
    counts : array [pieces]
        How many open bodies each piece has.
    open : array [their sum]
        These bodies.
    """

    sizes: Integers
    hung_on: Integers
    pieces: Integers
    roots: Integers
    counts: Integers
    open: Integers


class Needed(NamedTuple):
    """What a rank needs of others, by numbers over all ranks, ascending."""

    pieces: Integers  # on which its joints hang
    joints: Integers  # that hang on these and on its own
    inner: Integers  # by which these hang themselves, further ones

    @property
    def loads(self) -> Integers:
        """The joints whose loads it needs."""
        return np.union1d(self.joints, self.inner)


class LoadGraph:
    """The cut joints and pieces of all ranks.

    Parameters
    ----------
    shares : sequence of CutJoints
        Of all ranks.

    Attributes
    ----------
    sizes, rows, piece, ranks : array [joints]
        Constraint loads of each joint, number of the first of them, the piece that it belongs to, its rank.
    on, handle : array [joints]
        The piece that it hangs on, and on which of its open bodies.
    counts, roots, owners : array [pieces]
        Number of open bodies, the joint that carries them (-1: none), rank.
    """

    def __init__(self, shares: list[CutJoints]) -> None:
        joints = np.array([len(share.sizes) for share in shares])
        pieces = np.array([len(share.counts) for share in shares])
        self._first_joint, self._first_piece = (np.concatenate(([0], np.cumsum(n))) for n in (joints, pieces))
        firsts = zip(self._first_joint[:-1], self._first_piece[:-1], shares, strict=True)
        moved = [(share.pieces + p, np.where(share.roots < 0, -1, share.roots + j)) for j, p, share in firsts]
        self.sizes = _joined(share.sizes for share in shares)
        self.rows = np.cumsum(self.sizes) - self.sizes
        self.counts = _joined(share.counts for share in shares)
        self.piece, self.roots = (_joined(part) for part in zip(*moved, strict=True))
        self.ranks, self.owners = (np.repeat(np.arange(len(shares)), n) for n in (joints, pieces))
        bodies = _joined(share.open for share in shares)  # ascending, as the pieces are in sequence
        place = np.searchsorted(bodies, _joined(share.hung_on for share in shares))
        self.on = np.repeat(np.arange(len(self.counts)), self.counts)[place]
        self.handle = place - (np.cumsum(self.counts) - self.counts)[self.on]
        self._by_piece = np.argsort(self.on, kind="stable")
        self._begin = np.concatenate(([0], np.cumsum(np.bincount(self.on, minlength=len(self.counts)))))

    @property
    def is_band(self) -> bool:
        """Whether each piece carries one joint at the most, as in a chain."""
        return bool(np.all(np.diff(self._begin) <= 1))

    def hanging(self, piece: int) -> Integers:
        """The joints that hang on a piece, ascending."""
        return self._by_piece[self._begin[piece] : self._begin[piece + 1]]

    def joints_of(self, rank: int) -> Integers:
        """The joints of a rank."""
        return np.arange(self._first_joint[rank], self._first_joint[rank + 1])

    def pieces_of(self, rank: int) -> Integers:
        """The pieces of a rank."""
        return np.arange(self._first_piece[rank], self._first_piece[rank + 1])

    def needs(self, rank: int) -> Needed:
        """What a rank needs of others."""
        on = np.unique(self.on[self.joints_of(rank)])
        pieces = on[self.owners[on] != rank]
        joints = np.sort(_joined(self.hanging(k) for k in (*pieces.tolist(), *self.pieces_of(rank).tolist())))
        joints = joints[self.ranks[joints] != rank]
        inner = self.roots[pieces]
        inner = inner[inner >= 0]
        return Needed(pieces, joints, np.setdiff1d(inner[self.ranks[inner] != rank], joints))

    def of_rank(self, needs: Needed, rank: int) -> Needed:
        """The part of what is needed that a rank has."""
        pieces, joints, inner = needs
        return Needed(pieces[self.owners[pieces] == rank], *(k[self.ranks[k] == rank] for k in (joints, inner)))

    def neighbours(self, rank: int) -> list[int]:
        """The ranks that need something of a rank, or it of them, ascending."""
        needs = self.needs(rank)
        return sorted({*self.owners[needs.pieces].tolist(), *self.ranks[needs.loads].tolist()})

    def coupled(self, joint: int) -> Integers:
        """The joints whose loads a joint's equations have, itself among them, ascending."""
        carries = self.roots[self.piece[joint]] == joint
        inner = self.roots[self.on[joint]]
        parts = [self.hanging(self.on[joint]), np.array([inner] if inner >= 0 else [], np.int64)]
        return np.sort(_joined((*parts, self.hanging(self.piece[joint])) if carries else parts))


def _joined(parts: Iterable[Integers]) -> Integers:
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
