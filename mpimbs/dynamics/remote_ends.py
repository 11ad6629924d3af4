"""Motions that loops need of elsewhere: of the bodies that a rank's hang on, and of the loops' other ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.calling import address_of, call_at
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import FloatItem, Rows, Table, addresses_of, borrowed, read, schema, size_of, span, table_at
from mpimbs.kernels.tuples import load9
from mpimbs.loops.apart import numbers_at
from mpimbs.loops.loops import Loops
from mpimbs.parallel.exchange import Exchange, swap
from mpimbs.parts.intervals import Intervals
from mpimbs.parts.open_bodies import (
    BoundaryPlan,
    Scans,
    boundary_plan,
    hold_inboard,
    join_open_motions,
    see_boundary,
    take_boundary,
)
from mpimbs.spatial.vectors import multiply, rotate
from mpimbs.sweep.structure import BOUNDARY, Structure, Workspace

# Columns of the rows of what is carried: address and size of the array written, and of that read; how far the numbers
# of a motion are apart in both.
WRITTEN, TAKEN, TO_STRIDE, FROM_STRIDE = 0, 2, 4, 5
_TO, _FROM = FloatItem(WRITTEN), FloatItem(TAKEN)
_UNTURNED = np.eye(3)


class Carried(NamedTuple):
    """Motions that are copied from one room to another."""

    rows: Rows  # [n, 8]: the columns above
    frames: Floats  # [n * 9]: in which they then are, in that in which they are


class PieceBoundary(NamedTuple):
    """An interval of several in sequence, whose loops need motions of the bodies that it hangs on."""

    own: BoundaryPlan
    structure: Structure
    work: Workspace
    boundary: Floats  # [k * BOUNDARY], written; empty where there are no loops
    nq: int
    nu: int


class RemotePlan(NamedTuple):
    """Arguments of `place_ends`."""

    whole: BoundaryPlan  # without an entry where no bodies hang on those of others
    structure: Structure
    work: Workspace
    boundary: Floats  # [k * BOUNDARY], room
    pieces: Integers  # addresses of tables of `PieceBoundary`
    joined: Floats  # rooms of two values of the scan
    any: int  # whether loops have ends elsewhere, on whichever rank
    part: Integers  # of this rank, and where the kernel of `MEASURE` is
    measure: int
    here: Carried  # from one interval to another, to other ranks, from there
    sent: Carried
    received: Carried
    exchange: Integers


_REMOTE, _PIECE, _SIZE_OF_PIECE = schema(RemotePlan), schema(PieceBoundary), size_of(PieceBoundary)


@kernel
def _carry(carried):
    for k in range(carried.rows.shape[0]):
        row, frame = carried.rows[k], load9(0.0, carried.frames, 9 * k)
        to, found, stride, step = read(row, _TO), read(row, _FROM), row[TO_STRIDE], row[FROM_STRIDE]
        turned = (found[0], found[step], found[2 * step]), (found[3 * step], found[4 * step], found[5 * step])
        turned = multiply(frame, turned[0] + turned[1] + (found[6 * step], found[7 * step], found[8 * step]))
        for i in range(9):
            to[i * stride] = turned[i]
        for first in range(9, BOUNDARY, 3):
            vector = found[first * step], found[(first + 1) * step], found[(first + 2) * step]
            vector = rotate(frame, vector) if first > 9 else vector
            for i in range(3):
                to[(first + i) * stride] = vector[i]


@kernel
def place_ends(plan, q, u):
    """Find the motions of what this rank's bodies hang on, and of the ends elsewhere of their loops; all ranks call."""
    p, q, u = read(plan, _REMOTE), borrowed(q), borrowed(u)
    if p.whole.entry != 0:
        see_boundary(p.structure, p.work, p.whole, q, u, p.boundary)
        before, at_q, at_u, size = p.whole.result, 0, 0, p.joined.size // 2
        for k in range(p.pieces.size):
            piece = read(table_at(p.pieces[k], _SIZE_OF_PIECE), _PIECE)
            if piece.boundary.size > 0:
                take_boundary(piece.own, before, piece.boundary)
            if k + 1 < p.pieces.size:
                hold_inboard(piece.structure, piece.work, piece.own, span(q, at_q, piece.nq), span(u, at_u, piece.nu))
                joined = span(p.joined, k % 2 * size, size)
                join_open_motions(0.0, before, piece.own.value, joined)
                before, at_q, at_u = joined, at_q + piece.nq, at_u + piece.nu
    if p.any != 0:
        call_at(p.measure, (p.part, q, u, np.int64(1)))
        _carry(p.here)
        _carry(p.sent)
        swap(p.exchange)
        _carry(p.received)


_Move = tuple[Floats, Floats, Floats]  # a room, a motion, the frame that it is turned to


class RemoteEnds:
    """Brings motions of bodies at which loops end to where the loops' other ends are; all ranks make it together.

    An end whose other one no rank has gets its own motion: so the share of one rank among many is timed.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive this.
    part : Intervals
        That of this rank, of a system with loops.

    Attributes
    ----------
    any : bool
        Whether there is any such loop, on whichever rank.
    exchange : Exchange
    """

    def __init__(self, comm: MPI.Comm, part: Intervals) -> None:
        self._part, self._kept = part, list[Any]()
        mine = [(int(loops.numbers[at]), loops, at) for loops in part.loops for at in loops.far.tolist()]
        mine.sort(key=lambda entry: entry[0])
        of_ranks: list[list[int]] = comm.allgather([number for number, _, _ in mine])
        self.any = any(of_ranks)
        where: dict[int, list[int]] = {}
        for rank, numbers in enumerate(of_ranks):
            for number in numbers:
                where.setdefault(number, []).append(rank)
        here: list[tuple[tuple[Loops, int], tuple[Loops, int]]] = []  # an end, and that whose motion it gets
        others: dict[int, list[tuple[Loops, int]]] = {}
        waiting: dict[int, tuple[Loops, int]] = {}
        for number, loops, at in mine:
            owners = where[number]
            if owners[0] != owners[-1]:
                others.setdefault(sum(owners) - comm.rank, []).append((loops, at))
            elif number in waiting:
                left, right = waiting.pop(number), (loops, at)
                here += [(left, right), (right, left)]
            else:
                waiting[number] = loops, at
        here += [(end, end) for end in waiting.values()]
        self.sizes = {rank: BOUNDARY * len(ends) for rank, ends in sorted(others.items())}
        self.exchange = Exchange(comm, self.sizes, self.sizes)
        ends = [end for _, of_rank in sorted(others.items()) for end in of_rank]
        self._here = _carried((a.far_motion(i), *b.near_motion(j)) for (a, i), (b, j) in here)
        rooms = self.exchange.to_others.reshape(-1, BOUNDARY), self.exchange.from_others.reshape(-1, BOUNDARY)
        self._sent = _carried((room, *a.near_motion(i)) for room, (a, i) in zip(rooms[0], ends, strict=True))
        self._received = _carried(
            (a.far_motion(i), room, _UNTURNED) for room, (a, i) in zip(rooms[1], ends, strict=True)
        )

    def table(self, scan: Scans, measure: Any) -> Table:
        """Give what `place_ends` is given, by the scan of motions and the kernel of `MEASURE`."""
        part, whole, pieces = self._part, self._part.whole, list[Table]()
        for piece, loops in part.with_loops() if part.hangs else ():
            own = boundary_plan(piece, scan)
            boundary = np.zeros(0) if loops is None else loops.boundary
            pieces.append(Table(PieceBoundary(own, piece.structure, piece.work, boundary, piece.nq, piece.nu)))
        self._kept += pieces
        room, joined = np.zeros(BOUNDARY * len(whole.inboard)), np.zeros(2 * len(scan[2]))
        entry = address_of(measure, part.plan, whole.q, whole.u, 0)
        return Table(
            RemotePlan(
                boundary_plan(whole, scan if part.hangs else None), whole.structure, whole.work, room,
                addresses_of([piece.data for piece in pieces]), joined, int(self.any), part.plan, entry,
                self._here, self._sent, self._received, self.exchange.plan,
            )
        )  # fmt: skip


def _carried(moves: Iterator[_Move] | Sequence[_Move]) -> Carried:
    moves = list(moves)
    rows = np.zeros((len(moves), 8), np.int64)
    for row, (to, found, _) in zip(rows, moves, strict=True):
        row[:6] = *numbers_at(to), *numbers_at(found), to.strides[0] // to.itemsize, found.strides[0] // found.itemsize
    frames = [np.ravel(frame) for _, _, frame in moves]
    return Carried(rows, np.concatenate([np.zeros(0), *frames]))
