"""The constraint-load equations of a rank's separated joints and open loops: their tables, their part of the matrix."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.coupling.pcg.constraint_equations import ACROSS, COLUMNS_HANG, INVERSE, ROWS_HANG, TRANSFERS, Equations
from mpimbs.coupling.pcg.load_graph import LoadGraph, LoadShare, Needed, SeparatedJoint, first_steps, joints_of
from mpimbs.kernels.memory import Table, aligned, aligned_zeros, rows_of
from mpimbs.parallel.exchange import Exchange
from mpimbs.parts.part import Block, Ends, SeparablePart
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.structure import PLACE
from mpimbs.values.value import SIX


class RowPattern(NamedTuple):
    """The rows of the matrix that a rank owns."""

    blocks: Integers  # `Equations.blocks`
    starts: Integers  # [rows + 1]: where rows start
    columns: Integers
    on_diagonal: Integers  # [rows]: where these values are among those of this rank's columns


class Places:
    """Where everything stands that a rank knows of unknowns and pieces, its own first, then those it needs of others.

    Parameters
    ----------
    joints : list of SeparatedJoint
        Of the rank: the first of its unknowns.
    ends : list of Ends
        Of its pieces.

    Attributes
    ----------
    needs : Needed
        Of the rank.
    unknowns, pieces : list of int
        Those that are known.
    size : int
        Numbers of `Equations.matrices`.
    own : list of int
        Where the own matrices of its joints begin there, then E of what hangs on the world, of each piece.
    groups : list of int
        The first group of each piece, and how many there are.
    """

    def __init__(self, graph: LoadGraph, rank: int, joints: list[SeparatedJoint], ends: list[Ends]) -> None:
        self.graph, self.rank, self.joints, self.ends = graph, rank, joints, ends
        self.needs = graph.needs(rank)
        self.unknowns = [*graph.own(rank), *self.needs.loads]
        self.pieces = [*graph.own_pieces(rank), *self.needs.pieces]
        self._unknown = {unknown: number for number, unknown in enumerate(self.unknowns)}
        self._piece = {piece: number for number, piece in enumerate(self.pieces)}
        counts = [len(graph.pieces[piece].acting) for piece in self.pieces]
        self.groups = [*itertools.accumulate(counts, initial=0)]
        elements = [self._element_size(piece) for piece in self.pieces]
        self._elements = [*itertools.accumulate(elements, initial=len(self.unknowns) * SIX)]
        moved = [TRANSFERS + SIX * len(ends[joint.piece].transfer[joint.root]) for joint in joints]
        *self.own, self.size = itertools.accumulate(
            moved + [SIX * n for n in counts[: len(ends)]], initial=self._elements[-1]
        )

    def _element_size(self, piece: int) -> int:
        """Numbers of H and P of a piece."""
        there = self.graph.pieces[piece]
        return SIX * len(there.acting) * (len(there.movers) + len(there.acting))

    def response(self, piece: int, joint: int, group: int) -> int:
        """Where H of a joint that moves a piece's groups is, and of one of these."""
        there = self.graph.pieces[piece]
        number = there.movers.index(joint) * len(there.acting) + group
        return self._elements[self._piece[piece]] + SIX * number

    def compliance(self, piece: int, group: int, other: int) -> int:
        """Where P of two groups of a piece is."""
        there = self.graph.pieces[piece]
        number = (len(there.movers) + group) * len(there.acting) + other
        return self._elements[self._piece[piece]] + SIX * number

    def shared(self, needs: Needed) -> list[tuple[int, int]]:
        """Where what is needed stands in `Equations.matrices`, and how many numbers each is."""
        elements = [(self._elements[self._piece[piece]], self._element_size(piece)) for piece in needs.pieces]
        return [(self._unknown[joint] * SIX, SIX) for joint in needs.drives] + elements

    def loads(self, needs: Needed) -> list[tuple[int, int]]:
        """The same of loads in `Equations.loads`."""
        return [(self._unknown[unknown] * ROW, ROW) for unknown in needs.loads]

    def tables(self) -> dict[str, Integers]:
        """The rows of `Equations` that say where joints and pieces stand."""
        graph, taken = self.graph, _Taken()
        joints, worlds, inboard, acting = [], [], [], []
        takes_w = [
            taken.add(end.compliance, self.compliance(piece, 0, 0))
            for piece, end in zip(graph.own_pieces(self.rank), self.ends, strict=True)
        ]
        for number, joint in enumerate(self.joints):
            end, unknown, own = self.ends[joint.piece], self.unknowns[number], self.own[number]
            ((on, group),) = graph.acts_on[unknown]
            transfer, piece = end.transfer[joint.root], graph.piece_of[unknown]
            response = self.response(piece, unknown, 0) if transfer else 0
            takes = taken.add([[end.inertia[joint.root]]], own)
            taken.add([transfer], own + TRANSFERS)
            at = int(end.acceleration[joint.root])
            joints.append((joint.piece, len(transfer), own, response, takes, at, self._piece[on], group))
            for k in graph.pieces[on].movers:
                inboard.append((number, self.response(on, k, group), self._unknown[k]))
        for number, (end, at) in enumerate(zip(self.ends, self.own[len(self.joints) :], strict=True)):
            for root in np.flatnonzero(end.outside_bodies < 0).tolist():
                taken.add([end.transfer[root]], at)
                worlds.append((int(end.acceleration[root]), at, number if end.transfer[root] else -1))
        pieces = []
        places_of_own = zip(takes_w, [end.load for end in self.ends], strict=True)
        places_of_all = itertools.chain(places_of_own, itertools.repeat((0, 0)))
        for piece, first, places in zip(self.pieces, self.groups, places_of_all, strict=False):
            there = graph.pieces[piece]
            pieces.append((len(there.acting), first, self.compliance(piece, 0, 0), *places))
            for group, (unknowns, hangs) in enumerate(zip(there.acting, there.hangs, strict=True), first):
                acting += [(self._unknown[k], group, int(hangs)) for k in unknowns]
        sizes = [graph.sizes[unknown] for unknown in graph.own(self.rank)]
        unknowns = [*zip(sizes, itertools.accumulate(sizes, initial=0), strict=False)]
        names = "joints", "pieces", "unknowns", "worlds", "inboard", "acting", "taken"
        rows: Sequence[Sequence[tuple[int, ...]]] = [joints, pieces, unknowns, worlds, inboard, acting, taken.rows]
        return {name: rows_of(found) for name, found in zip(names, rows, strict=True)}

    def pattern(self) -> RowPattern:
        """The blocks of a rank's rows of the matrix, and the pattern of these."""
        graph, own = self.graph, self.graph.own(self.rank)
        firsts = [*itertools.accumulate(graph.sizes, initial=0)]
        blocks, starts, columns, on_diagonal = [], [0], [], []
        written = [0, 0]  # values of this rank's columns, and of others'
        for number, unknown in enumerate(own):
            size, stride, before = graph.sizes[unknown], [0, 0], {}
            row = []
            for other in graph.coupled(unknown):
                beside = int(other not in own)
                before[other] = written[beside] + stride[beside]
                stride[beside] += graph.sizes[other]
                row += [*range(firsts[other], firsts[other] + graph.sizes[other])]
            for block in graph.blocks(unknown):
                beside, other = int(block.other not in own), block.other
                made = *self._made(unknown, block), before[other], stride[beside], beside, graph.sizes[other]
                blocks.append((number, self._unknown[other], *made))
            columns += row * size
            starts += [starts[-1] + len(row) * (k + 1) for k in range(size)]
            on_diagonal += [before[unknown] + k * (stride[0] + 1) for k in range(size)]
            written = [done + size * more for done, more in zip(written, stride, strict=True)]
        return RowPattern(rows_of(blocks), *(np.array(k, np.int64) for k in (starts, columns, on_diagonal)))

    def _made(self, unknown: int, block: tuple[int, int, int, int]) -> tuple[int, int]:
        """How a block is made, and where what it is made of is."""
        piece, end, other, other_end = block
        hangs = self.graph.pieces[piece].hangs
        rows = ROWS_HANG if end >= 0 and hangs[end] else 0
        made = rows + (COLUMNS_HANG if other_end >= 0 and hangs[other_end] else 0)
        if end < 0 and other_end < 0:
            return made, self.own[self._unknown[unknown]] + INVERSE
        if end < 0:
            return made, self.response(piece, unknown, other_end)
        if other_end < 0:
            return made + ACROSS, self.response(piece, other, end)
        return made, self.compliance(piece, end, other_end)


class _Taken:
    """The rows of `Equations.taken`."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []

    def add(self, blocks: Sequence[Sequence[Block]], to: int) -> int:
        """Have matrices taken to where they stand one after the other; gives the row of the first.

        Those with a vector are on the diagonal, and come first.
        """
        first = len(self.rows)
        rows = [(*block, to + SIX * number) for number, block in enumerate(itertools.chain(*blocks))]
        self.rows += sorted(rows, key=lambda row: row[1] < 0)
        return first


class LoadEquations:
    """The equations of a rank, and the pattern of its rows of their matrix.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive this.
    part : SeparablePart
        That of this rank; each of its pieces begins with separated joints, but for what hangs on the world.
    singular : bool
        Whether constraints may be redundant; else the matrix is positive definite.
    """

    def __init__(self, comm: MPI.Comm, part: SeparablePart, singular: bool) -> None:
        self.singular, ends = singular, part.ends()
        joints = joints_of(part, ends)
        share = [LoadShare([], [], [], end.groups) for end in ends]
        for joint in joints:
            piece, end = share[joint.piece], ends[joint.piece]
            if end.transfer[joint.root]:
                piece.movers.append(len(piece.sizes))
            piece.sizes.append(joint.size)
            piece.outside_bodies.append(int(end.outside_bodies[joint.root]))
        self.graph = graph = LoadGraph(comm.allgather(share))  # which loads depend on which
        places = Places(graph, comm.rank, joints, ends)
        # Constraint loads of each of this rank's separated joints, then of its loops; all are the rows that it owns.
        self.sizes = np.array([graph.sizes[unknown] for unknown in graph.own(comm.rank)], np.int64)
        self.rows, own = int(self.sizes.sum()), self.sizes[: len(joints)]
        # Of the loads of joints, the first ones: the body whose inboard joint has each; what a load of 1 is, moment
        # about the origin of the body's frame and force on the body, in body frame components (of a universal or
        # planar joint, of a frame between its two steps) [k, 6].
        self.bodies = np.repeat(np.array([joint.body for joint in joints], np.int64), own)
        self.subspaces = np.concatenate([np.zeros((0, 6)), *(joint.of_the_body() for joint in joints)])
        self.right, self.solution = np.zeros(self.rows), np.zeros(self.rows)  # rad/s^2, m/s^2; N m, N
        pattern = places.pattern()
        self.starts, self.columns = pattern.starts, pattern.columns  # of this rank's rows, as for PETSc
        exchange, sent, received = _exchange(comm, places, places.shared)
        load_exchange, loads_sent, loads_received = _exchange(comm, places, places.loads)
        self._exchanges = exchange, load_exchange
        self._equations = Equations(
            exchange.plan,
            load_exchange.plan,
            sent=sent,
            received=received,
            loads_sent=loads_sent,
            loads_received=loads_received,
            **places.tables(),
            own_pieces=len(ends),
            blocks=pattern.blocks,
            singular=int(singular),
            on_diagonal=pattern.on_diagonal,
            joint=first_steps(joints),
            subspaces=aligned(np.ravel([joint.padded_subspace() for joint in joints])),
            place=np.zeros(PLACE * len(joints)),
            matrices=aligned_zeros(places.size),
            scratch=aligned_zeros(2 * SIX),
            diagonal=np.zeros(0),
            beside=np.zeros(0),
            right=self.right,
            noise=np.zeros(self.rows),
            solution=self.solution,
            loads=aligned_zeros(len(places.unknowns) * ROW),
            acting_loads=np.zeros(6 * places.groups[-1]),
        )

    @property
    def is_band(self) -> bool:
        """Whether the matrix is a band as it stands."""
        return self.graph.is_band

    def write_to(self, diagonal: Floats, beside: Floats) -> None:
        """Say where the matrix's values are written, in the pattern's order: of this rank's columns, of others'."""
        self._table = Table(self._equations._replace(diagonal=diagonal, beside=beside))
        self.table: Integers = self._table.data  # for `constraint_equations`, after `write_to`

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return sum(exchange.seconds for exchange in self._exchanges)

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        for exchange in self._exchanges:
            exchange.close()


def _exchange(
    comm: MPI.Comm, places: Places, where: Callable[[Needed], list[tuple[int, int]]]
) -> tuple[Exchange, Integers, Integers]:
    """The messages by which ranks get what they need, and what is copied to these and from them."""
    graph, others = places.graph, places.graph.neighbours(comm.rank)
    sent = {rank: where(graph.of_rank(graph.needs(rank), comm.rank)) for rank in others}
    received = {rank: where(graph.of_rank(places.needs, rank)) for rank in others}
    sizes = [
        {rank: sum(count for _, count in here) for rank, here in parts.items() if here} for parts in (sent, received)
    ]
    return Exchange(comm, *sizes), _copies(sent, to_message=True), _copies(received, to_message=False)


def _copies(parts: dict[int, list[tuple[int, int]]], to_message: bool) -> Integers:
    rows, at = [], 0
    for here in parts.values():
        for place, count in here:
            rows.append((place, at, count) if to_message else (at, place, count))
            at += count
    return rows_of(rows)
