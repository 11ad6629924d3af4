"""Where everything stands that the constraint-load equations of a rank are formed of: the rows of their tables."""

from __future__ import annotations

import itertools

import numpy as np

from mpimbs.coupling.constraint_equations import (
    ACCELERATION_AT,
    APART,
    BEHIND_IT,
    CARRIER,
    CARRIES,
    COMPLIANCE_AT,
    FIRST_OPEN,
    FIRST_ROW,
    HANDLE,
    INERTIA_AT,
    INNER,
    ITSELF,
    LOAD_AT,
    LOADS,
    NEXT_TO,
    ON,
    OPEN_BODIES,
    OUTER_AT,
    OWN_AT,
    TRANSFER_AT,
    TRANSFERS,
)
from mpimbs.coupling.load_graph import LoadGraph, Needed
from mpimbs.coupling.separated_joint import SeparatedJoint
from mpimbs.spatial.columns import SIX
from mpimbs.spatial.memory import Integers
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.part import Ends


class Places:
    """Where everything stands that a rank knows of joints and pieces, its own first, then those it needs of others.

    Parameters
    ----------
    graph : LoadGraph
    rank : int
    needs : Needed
        Of the rank.
    """

    def __init__(self, graph: LoadGraph, rank: int, needs: Needed) -> None:
        self.graph = graph
        self.joints = np.concatenate((graph.joints_of(rank), needs.joints, needs.inner))
        self.pieces = np.concatenate((graph.pieces_of(rank), needs.pieces))
        self._joint = {joint: number for number, joint in enumerate(self.joints.tolist())}
        self._piece = {piece: number for number, piece in enumerate(self.pieces.tolist())}
        sizes = [self.outer_size(piece) for piece in self.pieces.tolist()]
        self._outer = [*itertools.accumulate(sizes, initial=len(self.joints) * SIX)]

    def joint(self, joint: int) -> int:
        """Number of a joint here."""
        return self._joint[joint]

    def piece(self, piece: int) -> int:
        """Number of a piece here."""
        return self._piece[piece]

    def outer_size(self, piece: int) -> int:
        """Numbers of P and H of a piece."""
        count = int(self.graph.counts[piece])
        return SIX * count * (count + 1)

    def outer(self, piece: int) -> int:
        """Where P of a piece begins, with H behind, in `Equations.shared`."""
        return self._outer[self._piece[piece]]

    @property
    def size(self) -> int:
        """Numbers of `Equations.shared`."""
        return self._outer[-1]

    def shared(self, needs: Needed) -> list[tuple[int, int]]:
        """Where what is needed stands in `Equations.shared`, and how many numbers each is."""
        outers = [(self.outer(piece), self.outer_size(piece)) for piece in needs.pieces.tolist()]
        return [(self.joint(joint) * SIX, SIX) for joint in needs.joints.tolist()] + outers

    def loads(self, needs: Needed) -> list[tuple[int, int]]:
        """The same of loads in `Equations.loads`."""
        return [(self.joint(joint) * ROW, ROW) for joint in needs.loads.tolist()]


def joint_rows(places: Places, joints: list[SeparatedJoint], ends: list[Ends]) -> tuple[Integers, int]:
    """The rows of a rank's joints, and the numbers of their own matrices."""
    graph, rows, own, first = places.graph, np.zeros((len(joints), 8), np.int64), 0, 0
    for number, (row, joint) in enumerate(zip(rows, joints, strict=True)):
        end, whole = ends[joint.piece], int(places.joints[number])
        carries = graph.roots[graph.piece[whole]] == whole
        row[[INERTIA_AT, ACCELERATION_AT]] = end.inertia[joint.root], end.acceleration[joint.root]
        row[[LOADS, OWN_AT, FIRST_ROW]] = joint.size, own, first
        row[[ON, HANDLE, CARRIES]] = (
            places.piece(int(graph.on[whole])),
            graph.handle[whole],
            joint.piece if carries else -1,
        )
        own += TRANSFERS + SIX * (len(end.open) if carries else 0)
        first += joint.size
    return rows, own


def piece_rows(places: Places, ends: list[Ends]) -> Integers:
    """The rows of the pieces that a rank knows."""
    graph, rows, first = places.graph, np.zeros((len(places.pieces), 8), np.int64), 0
    for row, piece in zip(rows, places.pieces.tolist(), strict=True):
        carrier = int(graph.roots[piece])
        row[[OPEN_BODIES, OUTER_AT, FIRST_OPEN]] = graph.counts[piece], places.outer(piece), first
        row[CARRIER] = -1 if carrier < 0 else places.joint(carrier)
        first += int(graph.counts[piece])
    for row, end in zip(rows, ends, strict=False):
        row[[TRANSFER_AT, COMPLIANCE_AT, APART, LOAD_AT]] = end.transfer, end.compliance, end.apart, end.load
    return rows


def pattern(places: Places, rank: int) -> tuple[Integers, Integers, Integers]:
    """The blocks of a rank's rows of the matrix, and the pattern of these: where rows start, and columns."""
    graph, blocks, starts, columns = places.graph, [], [0], [np.zeros(0, np.int64)]
    written = [0, 0]  # values of this rank's columns, and of others'
    for number, joint in enumerate(graph.joints_of(rank).tolist()):
        coupled = graph.coupled(joint).tolist()
        stride = [
            sum(int(graph.sizes[other]) for other in coupled if (graph.ranks[other] != rank) == k) for k in (0, 1)
        ]
        before = [0, 0]
        on, handle, size = int(graph.on[joint]), int(graph.handle[joint]), int(graph.sizes[joint])
        count = int(graph.counts[on])
        for other in coupled:
            if other == graph.roots[on]:
                kind, at = INNER, places.outer(on) + SIX * (count * count + handle)
            elif graph.on[other] == on:
                kind = ITSELF if other == joint else NEXT_TO
                at = places.outer(on) + SIX * (count * handle + int(graph.handle[other]))
            else:
                mine = int(graph.piece[joint])
                kind, own = BEHIND_IT, int(graph.counts[mine])
                at = places.outer(mine) + SIX * (own * own + int(graph.handle[other]))
            beside, width = int(graph.ranks[other] != rank), int(graph.sizes[other])
            value = written[beside] + before[beside]
            blocks.append((number, places.joint(other), kind, at, beside, value, stride[beside], width))
            before[beside] += width
        row = np.concatenate([graph.rows[other] + np.arange(graph.sizes[other]) for other in coupled])
        columns += [row] * size
        starts += [starts[-1] + len(row) * (k + 1) for k in range(size)]
        written = [done + size * more for done, more in zip(written, stride, strict=True)]
    return np.array(blocks, np.int64).reshape(-1, 8), np.array(starts), np.concatenate(columns)


def hanging_rows(places: Places, pieces: Integers) -> Integers:
    """The joints that hang on the pieces that a rank knows, and the numbers of the open bodies."""
    graph, found = places.graph, []
    for row, piece in zip(pieces, places.pieces.tolist(), strict=True):
        found += [(places.joint(k), row[FIRST_OPEN] + graph.handle[k]) for k in graph.hanging(piece).tolist()]
    rows = np.zeros((len(found), 8), np.int64)
    rows[:, :2] = np.array(found, np.int64).reshape(-1, 2)
    return rows
