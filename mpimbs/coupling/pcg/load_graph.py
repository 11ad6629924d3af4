"""Which constraint loads depend on which: unknowns, and the pieces that they act on. No MPI.

The bodies of a subchain, or of an interval of a tree, are a piece. A joint is cut where a piece hangs on a body of an
earlier one, which is open; a loop is open where its columns are, between pieces. Unknown are the loads of all cut
joints and open loops. They act on the groups of pieces, a joint's on the open body that it hangs on, and depend on all
that act on the same pieces, and on the joints by which these hang; a cut joint on all that acts on what it carries.

Unknowns and pieces have numbers over all ranks, in sequence: of each rank its joints, then the loops that no rank
before has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class LoadShare(NamedTuple):
    """The facts of a piece that all ranks know."""

    sizes: list[int]  # constraint loads of its cut joints
    outside_bodies: list[int]  # the bodies that these hang on
    movers: list[int]  # which of them move its groups
    groups: list[tuple[int, int]]  # numbers of open bodies, and 0; of open loops, and how many loads each has


class Piece(NamedTuple):
    """A piece, by numbers over all ranks."""

    joints: list[int]
    movers: list[int]  # those of them that move its groups
    acting: list[list[int]]  # what acts on each group
    hangs: list[bool]  # whether as joints that hang on an open body


class MatrixBlock(NamedTuple):
    """A block of the equations: a matrix of a piece, by which the loads at one of its ends act on the other."""

    piece: int
    end: int  # of the rows: a group, or -1 - the joint
    other: int  # the unknown of the columns
    other_end: int


class Needed(NamedTuple):
    """Numbers, over all ranks, of what a rank needs of others; ascending."""

    pieces: list[int]  # on which its unknowns act
    drives: list[int]  # joints that hang on these and on its own
    loads: list[int]  # all that acts on these and on its own, and what moves these


class LoadGraph:
    """The unknowns and pieces of all ranks.

    Parameters
    ----------
    shares : sequence of list of LoadShare
        Of the pieces of all ranks.

    Attributes
    ----------
    sizes : list of int
        Loads of each unknown.
    firsts, first_pieces : list of int
        The first unknown and piece of each rank; at last how many there are.
    pieces : list of Piece
    acts_on : list of list of (int, int)
        Of each unknown the pieces and groups on which it acts.
    piece_of : dict of int to int
        The piece of each joint.
    """

    def __init__(self, shares: Sequence[list[LoadShare]]) -> None:
        self.sizes: list[int] = []
        self.firsts, self.first_pieces = [0], [0]
        self.piece_of: dict[int, int] = {}
        hanging: dict[int, list[int]] = {}
        loops: dict[int, list[int]] = {}
        joints = []
        for share in shares:
            for number, piece in enumerate(share, self.first_pieces[-1]):
                joints.append([*range(len(self.sizes), len(self.sizes) + len(piece.sizes))])
                self.sizes += piece.sizes
                self.piece_of |= dict.fromkeys(joints[-1], number)
                for joint, body in zip(joints[-1], piece.outside_bodies, strict=True):
                    hanging.setdefault(body, []).append(joint)
            for piece in share:
                for loop, size in piece.groups:
                    if size and loop not in loops:
                        loops[loop] = [len(self.sizes)]
                        self.sizes.append(size)
            self.firsts.append(len(self.sizes))
            self.first_pieces.append(self.first_pieces[-1] + len(share))
        self.pieces: list[Piece] = []
        self.acts_on: list[list[tuple[int, int]]] = [[] for _ in self.sizes]
        for piece, own in zip((piece for share in shares for piece in share), joints, strict=True):
            acting = [loops[number] if size else hanging.get(number, []) for number, size in piece.groups]
            for group, unknowns in enumerate(acting):
                for unknown in unknowns:
                    self.acts_on[unknown].append((len(self.pieces), group))
            hangs = [size == 0 for _, size in piece.groups]
            self.pieces.append(Piece(own, [own[k] for k in piece.movers], acting, hangs))

    @property
    def is_band(self) -> bool:
        """Whether one joint at the most acts on each piece, as in a chain."""
        return all(all(piece.hangs) and sum(map(len, piece.acting)) <= 1 for piece in self.pieces)

    def own(self, rank: int) -> range:
        """The unknowns of a rank."""
        return range(self.firsts[rank], self.firsts[rank + 1])

    def own_pieces(self, rank: int) -> range:
        """The pieces of a rank."""
        return range(self.first_pieces[rank], self.first_pieces[rank + 1])

    def blocks(self, unknown: int) -> Iterator[MatrixBlock]:
        """Give the blocks of which the rows of an unknown are made."""
        if unknown in self.piece_of:
            number, end = self.piece_of[unknown], -1 - unknown
            yield MatrixBlock(number, end, unknown, end)
            if unknown in self.pieces[number].movers:
                yield from self._acting(number, end)
        for number, group in self.acts_on[unknown]:
            yield from self._acting(number, group)
            yield from (MatrixBlock(number, group, joint, -1 - joint) for joint in self.pieces[number].movers)

    def _acting(self, number: int, end: int) -> Iterator[MatrixBlock]:
        for group, unknowns in enumerate(self.pieces[number].acting):
            yield from (MatrixBlock(number, end, other, group) for other in unknowns)

    def coupled(self, unknown: int) -> list[int]:
        """The unknowns that the rows of one have, itself among them, ascending."""
        return sorted({block.other for block in self.blocks(unknown)})

    def needs(self, rank: int) -> Needed:
        """Give the unknowns of other ranks that a rank needs."""
        own, own_pieces = self.own(rank), self.own_pieces(rank)
        others = {number for unknown in own for number, _ in self.acts_on[unknown]} - {*own_pieces}
        drives: set[int] = set()
        loads: set[int] = set()
        for number in (*own_pieces, *others):
            piece = self.pieces[number]
            loads |= {*piece.movers}.union(*piece.acting)
            drives = drives.union(*(on for on, hangs in zip(piece.acting, piece.hangs, strict=True) if hangs))
        return Needed(sorted(others), *(sorted(found - {*own}) for found in (drives, loads)))

    def of_rank(self, needs: Needed, rank: int) -> Needed:
        """The part of what is needed that a rank has."""
        own, pieces = self.own(rank), self.own_pieces(rank)
        return Needed([k for k in needs.pieces if k in pieces], *([k for k in part if k in own] for part in needs[1:]))

    def neighbours(self, rank: int) -> list[int]:
        """The ranks that need something of a rank, or it of them, ascending."""
        needs = self.needs(rank)
        return [k for k in range(len(self.firsts) - 1) if k != rank and any(self.of_rank(needs, k))]
