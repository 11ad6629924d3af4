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

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.parts.part import Ends, SeparablePart
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.build import Build
from mpimbs.sweep.structure import BODY, FIRST_Q, FIRST_U, FIXED, LAST_U, Structure


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


def constraint_subspace(joint: Build) -> Floats:
    """Orthonormal basis of the loads that a joint transmits and that are not given [6, 6 minus its degrees of freedom].

    In the frame of the joint's first step, where it is constant whatever the joint's coordinates: moments, then forces.
    An axis with a rotor is none of these degrees of freedom: what passes it is the given force less what the rotor
    takes, an unknown as the loads are that do no work; the rotor's inertia is in the piece's I, so that B L B^T has
    it in its range.

    Parameters
    ----------
    joint : Build
        A body alone with its inboard joint.
    """
    from scipy.linalg import qr  # takes 0.1 s: where it is needed

    s = joint.structure
    turn = np.eye(3)  # components in the first step's frame to those in the step's
    motion = np.zeros((6, len(s.axes)))
    free = s.armature == 0 if s.armature.size else np.ones(len(s.axes), bool)
    for number, step in enumerate(s.steps):
        if number > 0:
            turn = s.fixed.reshape(-1, FIXED)[step[BODY], :9].reshape(3, 3) @ turn
        for d in range(step[FIRST_U], step[LAST_U]):
            unit = np.eye(6)[s.axes[d]]
            if s.axes[d] < 3:
                unit = unit + s.pitch[d] * np.eye(6)[s.axes[d] + 3]
            motion[:, d] = np.concatenate([unit[:3] @ turn, unit[3:] @ turn])
    motion = motion[:, free]
    across = np.eye(6) - motion @ np.linalg.pinv(motion)
    basis, _, _ = qr(across, pivoting=True)  # of unit axes where the joint's own are
    return np.asarray(basis[:, : 6 - motion.shape[1]], np.float64)


class SeparatedJoint(NamedTuple):
    """A separated joint with which a piece begins."""

    piece: int  # number of the piece on its rank
    root: int  # which of its ends it is
    body: int
    made: Build  # of the body alone with this joint
    first_q: int  # of the rank's coordinates
    first_u: int  # of the speeds of the rank's separated joints
    subspace: Floats  # [6, size]: see `constraint_subspace`

    @property
    def size(self) -> int:
        """Number of its constraint loads."""
        return int(self.subspace.shape[1])

    def padded_subspace(self) -> Floats:
        """Its subspace as rows of 8 [6, 8], of which `size` are in use."""
        padded = np.zeros((6, ROW))
        padded[: self.size, :6] = self.subspace.T
        return padded

    def of_the_body(self) -> Floats:
        """Its subspace in body frame components [size, 6]; of a joint of several steps, of a frame between them."""
        turn = self.made.body_frame[0] if len(self.made.structure.steps) == 1 else np.eye(3)
        turned: Floats = (self.subspace.T.reshape(-1, 2, 3) @ turn.T).reshape(-1, 6)
        return turned


def joints_of(part: SeparablePart, ends: list[Ends]) -> list[SeparatedJoint]:
    """The separated joints of a rank's part, in its order."""
    joints = []
    at_q = at_u = 0
    for number, (piece, end) in enumerate(zip(part, ends, strict=True)):
        for root in np.flatnonzero(end.outside_bodies >= 0).tolist():
            body = int(end.roots[root])
            made = piece.joint(body)
            place = at_q + piece.coordinates_before(body), at_u
            joints.append(SeparatedJoint(number, root, body, made, *place, constraint_subspace(made)))
            at_u += len(made.structure.axes)
        at_q += piece.nq
    return joints


def first_steps(joints: list[SeparatedJoint]) -> Structure:
    """The first step of each joint, in whose frame its constraint subspace stays, as the steps of one structure."""
    made = [joint.made.structure for joint in joints]
    steps = np.zeros((len(joints), 8), np.int64)
    fixed = np.zeros((len(joints), FIXED))
    for number, (joint, structure) in enumerate(zip(joints, made, strict=True)):
        steps[number] = structure.steps[0]
        fixed[number] = structure.fixed.reshape(-1, FIXED)[structure.steps[0, BODY]]
        steps[number, [FIRST_Q, FIRST_U, LAST_U]] += (joint.first_q, joint.first_u, joint.first_u)
        steps[number, BODY] = number
    axes = np.concatenate([np.zeros(0, np.int64), *(structure.axes for structure in made)])
    pitch = np.concatenate([np.zeros(0), *(structure.pitch for structure in made)])
    return Structure(steps, axes, fixed.ravel(), pitch, np.zeros(0), np.arange(len(steps)), np.zeros(0))
