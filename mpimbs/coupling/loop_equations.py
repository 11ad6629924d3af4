"""The constraint-load equations of systems with loops: loads of open loops beside those of separated joints.

A piece of a tree is an interval of bodies (`spatial.mixed`): f = I A - E x + p and y = E^T A + W x + c, where every
root has a slot of its own and x are loads on its open bodies and of its open loops. Separated as in
`constraint_equations`, I = B L B^T, E = B G, p = B d + g of the slot of each joint, it is a compliance D of its own
joints' constraint loads l and of x,

    B^T A = L^-1 (l + G x - d)        y = G^T L^-1 l + (W + sum G^T L^-1 G) x + c - sum G^T L^-1 d

symmetric, positive semidefinite; of what hangs on the world A is known. Unknown are l of all joints and x of all loops
that are open between pieces; on an open body acts x = - sum (B l + g) of the joints that hang there. So the loads of a
piece are S z + s of the unknowns z, and that neither joints nor loops let go of what they join, B^T (y - A) = 0 and
sum y = 0, is

    sum over pieces of S^T (D (S z + s) + r) = 0

Where constraints are redundant the matrix is singular, and the equations are consistent [Duan & Anderson 2000; paper
004, section 3.4, eq. 22]. What is left of no constraint at all has a diagonal of its own, and no load.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from mpimbs.coupling.constraint_equations import place_joints
from mpimbs.coupling.loop_element import LoopedElement
from mpimbs.coupling.loop_graph import LoopedPiece, LoopGraph, joined_places
from mpimbs.coupling.separated_joint import first_steps, joints_of
from mpimbs.parallel.exchange import Exchange
from mpimbs.spatial.memory import Floats, Integers
from mpimbs.spatial.mixed import OPEN_BODY, MixedRoom, described
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.intervals import Intervals
from mpimbs.sweep.structure import PLACE

_DRIVEN = 6 * ROW  # numbers of [B | g]


class _Copies:
    """Numbers of one array that ranks have and others need, or they themselves.

    Parameters
    ----------
    comm : MPI.Comm
    sent, received : list of array
        Of each rank the places of what goes to it, and of what comes from it.
    """

    def __init__(self, comm: MPI.Comm, sent: list[Integers], received: list[Integers]) -> None:
        others = [rank for rank in range(comm.size) if rank != comm.rank]
        self._here = sent[comm.rank]
        self._sent = joined_places(sent[rank] for rank in others)
        self.to = joined_places([received[comm.rank], *(received[rank] for rank in others)])
        sizes = [{rank: len(here[rank]) for rank in others if len(here[rank])} for here in (sent, received)]
        self.exchange = Exchange(comm, *sizes)

    def __call__(self, values: Floats) -> Floats:
        """Send what others need of `values`; gives what is to stand at the places `to`. All ranks call."""
        self.exchange.to_others[:] = values[self._sent]
        self.exchange()
        return np.concatenate((values[self._here], self.exchange.from_others))


class LoopEquations:
    """The constraint-load equations of a rank's separated joints and open loops: as `SeparatedJoints`.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive this.
    part : Intervals
        That of this rank, whose roots have slots of their own.

    Attributes
    ----------
    singular : bool
        True: constraints may be redundant.
    sizes : array
        Loads of each of this rank's separated joints, then of its loops.
    """

    is_band = False
    singular = True

    def __init__(self, comm: MPI.Comm, part: Intervals) -> None:
        assert isinstance(part.room, MixedRoom)
        room, rank, ends = part.room, comm.rank, part.ends()
        joints = joints_of(part, ends)
        groups = [described(room, value)[2] for value in part.blocks]
        of_pieces = [[joint for joint in joints if joint.piece == number] for number in range(len(part))]
        open_loops = [
            [(group.number, size) for group, size in zip(here, sizes, strict=True) if group.sort != OPEN_BODY]
            for here, sizes in zip(groups, part.open_sizes, strict=True)
        ]
        share = [
            LoopedPiece(
                [joint.size for joint in here],
                [int(end.hung_on[joint.root]) for joint in here],
                [group.number for group in of_value if group.sort == OPEN_BODY],
                loops,
            )
            for here, end, of_value, loops in zip(of_pieces, ends, groups, open_loops, strict=True)
        ]
        shares = comm.allgather(share)
        self._graph = graph = LoopGraph(shares)
        own_joints = graph.joints_of(rank)
        further = [joint for joint in graph.hanging_on(rank) if graph.ranks[joint] != rank]
        known = {joint: number for number, joint in enumerate(own_joints + further)}
        self._elements: list[LoopedElement] = []
        first = 0
        for here, end, of_value, loops, piece in zip(of_pieces, ends, groups, open_loops, share, strict=True):
            hanging = [[(known[k], len(graph.rows[k])) for k in graph.hanging[body]] for body in piece.open]
            places = np.arange(len(end.roots))[::-1]
            slots = [int(places[joint.root]) for joint in here] + places[end.hung_on < 0].tolist()
            opened = [size for _, size in loops]
            self._elements.append(LoopedElement(room, of_value, here, first, slots, hanging, opened))
            first += len(here)
        begin, end_row = graph.begins[rank : rank + 2].tolist()
        own_loops = [loop for loop, owner in graph.owners.items() if owner == rank]
        self.sizes = np.array([*(len(graph.rows[k]) for k in own_joints), *(len(graph.loops[k]) for k in own_loops)])
        self._begin, self.rows = begin, end_row - begin
        self.bodies = np.repeat(np.array([joint.body for joint in joints], np.int64), [joint.size for joint in joints])
        self.subspaces = np.concatenate([np.zeros((0, 6)), *(joint.of_the_body() for joint in joints)])
        self.right, self.solution = np.zeros(self.rows), np.zeros(self.rows)
        self._first_steps = first_steps(joints)
        self._padded = np.array([joint.padded_subspace() for joint in joints]).ravel()
        self._loads = np.array([joint.size for joint in joints], np.int64)
        self._place = np.zeros(PLACE * len(joints))
        self._driven, self._left = np.zeros((len(known), 6, ROW)), np.zeros((len(joints), 6, ROW))
        self._accelerations = np.zeros((len(joints), 6))
        self._plan_sums(comm, graph)
        self._plan_driven(comm, graph, shares, known)
        self._plan_loads(comm, graph)

    def _plan_sums(self, comm: MPI.Comm, graph: LoopGraph) -> None:
        """Plan to sum the parts of all pieces into the rows of this rank; find the pattern of these."""
        total, begins = int(graph.begins[-1]), graph.begins
        unknowns = [graph.unknowns(rank) for rank in range(comm.size)]

        def mine(of_piece: Integers, rank: int) -> Integers:
            return np.flatnonzero((of_piece >= begins[rank]) & (of_piece < begins[rank + 1]))

        pairs = [
            (of_piece[mine(of_piece, comm.rank)][:, None] * total + of_piece).ravel()
            for of_rank in unknowns
            for of_piece in of_rank
        ]
        keys = np.unique(joined_places(pairs))
        rows = keys // max(total, 1) - self._begin
        self.columns = keys % max(total, 1)
        self.starts = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=self.rows))))
        self._own = (self.columns >= self._begin) & (self.columns < self._begin + self.rows)
        self._on_diagonal = np.searchsorted(keys, (self._begin + np.arange(self.rows)) * (total + 1))
        received, beside = [], len(keys) - self._begin
        for of_rank in unknowns:
            places = []
            for of_piece in of_rank:
                here = of_piece[mine(of_piece, comm.rank)][:, None]
                places.append(
                    np.hstack(
                        (np.searchsorted(keys, here * total + of_piece), beside + here, beside + self.rows + here)
                    ).ravel()
                )
            received.append(joined_places(places))
        sent = []
        for rank in range(comm.size):
            at, places = 0, []
            for of_piece in unknowns[comm.rank]:
                width = len(of_piece) + 2
                places.append((at + mine(of_piece, rank)[:, None] * width + np.arange(width)).ravel())
                at += len(of_piece) * width
            sent.append(joined_places(places))
        self._sums = _Copies(comm, sent, received)

    def _plan_driven(
        self, comm: MPI.Comm, graph: LoopGraph, shares: list[list[LoopedPiece]], known: dict[int, int]
    ) -> None:
        """Plan to send [B | g] of joints to the ranks that they hang on, and accelerations of open bodies back."""
        rank, of_ranks = comm.rank, np.array(graph.ranks, np.int64)
        own = {joint: number for number, joint in enumerate(graph.joints_of(rank))}
        numbers = [np.array(graph.hanging_on(other), np.int64) for other in range(comm.size)]
        theirs = [[k for k in numbers[other].tolist() if k in own and other != rank] for other in range(comm.size)]
        mine = [
            numbers[rank][of_ranks[numbers[rank]] == other].tolist() if other != rank else []
            for other in range(comm.size)
        ]
        self._drives = _Copies(
            comm,
            [_spans([own[k] for k in joints], _DRIVEN) for joints in theirs],
            [_spans([known[k] for k in joints], _DRIVEN) for joints in mine],
        )
        opened = [body for piece in shares[rank] for body in piece.open]
        place = {joint: number for number, body in enumerate(opened) for joint in graph.hanging[body]}
        self._moves = _Copies(
            comm,
            [
                _spans([place[k] for k in numbers[rank].tolist() if of_ranks[k] == other], 6)
                for other in range(comm.size)
            ],
            [_spans([own[k] for k in numbers[other].tolist() if k in own], 6) for other in range(comm.size)],
        )

    def _plan_loads(self, comm: MPI.Comm, graph: LoopGraph) -> None:
        """Plan to tell the solution to the ranks whose pieces have it in their equations."""
        needed = [np.unique(joined_places(graph.unknowns(rank))) for rank in range(comm.size)]
        begins, here = graph.begins, needed[comm.rank]
        sent, received = [], []
        for rank in range(comm.size):
            mine = needed[rank][(needed[rank] >= self._begin) & (needed[rank] < self._begin + self.rows)]
            sent.append(mine - self._begin)
            received.append(np.flatnonzero((here >= begins[rank]) & (here < begins[rank + 1])))
        self._tells = _Copies(comm, sent, received)
        self._needed = np.zeros(len(here))
        self._unknowns = [np.searchsorted(here, of_piece) for of_piece in graph.unknowns(comm.rank)]

    def write_to(self, diagonal: Floats, beside: Floats) -> None:
        """Say where the matrix's values are written: of this rank's columns, and of others'."""
        self._diagonal, self._beside = diagonal, beside

    def form(self, q: Floats, blocks: Floats, root: Floats) -> None:
        """Form this rank's rows; as `SeparatedJoints.form`."""
        driven, left = self._driven.reshape(-1), self._left.reshape(-1)
        place_joints(self._first_steps, q, self._place, self._padded, self._loads, driven, left)
        for element, value in zip(self._elements, blocks, strict=True):
            element.separate(value, root, self._driven[element.first :], self._left[element.first :])
        self._driven.reshape(-1)[self._drives.to] = self._drives(self._driven.reshape(-1))
        parts = [element.form(self._driven).ravel() for element in self._elements]
        size = len(self.columns)
        sums = np.bincount(self._sums.to, self._sums(np.concatenate(parts)), minlength=size + 2 * self.rows)
        values, self.right[:], noise = sums[:size], sums[size : size + self.rows], sums[size + self.rows :]
        diagonal = values[self._on_diagonal]
        idle = diagonal <= noise
        diagonal[idle] = diagonal.max(initial=0.0) or 1.0
        values[self._on_diagonal], self.right[idle] = diagonal, 0.0
        self._diagonal[:], self._beside[:] = values[self._own], values[~self._own]

    def boundary_values(self, root: Floats, values: Floats) -> None:
        """Find accelerations and loads at the ends of this rank's pieces; as `SeparatedJoints.boundary_values`."""
        self._needed[self._tells.to] = self._tells(self.solution)
        pairs = zip(self._elements, self._unknowns, strict=True)
        solved = [element.solve(self._needed[places]) for element, places in pairs]
        opened = [
            element.group(y, k) for element, (_, y) in zip(self._elements, solved, strict=True) for k in element.bodies
        ]
        self._accelerations.reshape(-1)[self._moves.to] = self._moves(np.concatenate([np.zeros(0), *opened]))
        for element, (loads, _), here in zip(self._elements, solved, values, strict=True):
            element.place(loads, self._accelerations[element.first :][: len(element.slots)], root, here)

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return sum(copies.exchange.seconds for copies in self._all)

    @property
    def _all(self) -> tuple[_Copies, ...]:
        return self._sums, self._drives, self._moves, self._tells

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        for copies in self._all:
            copies.exchange.close()


def _spans(numbers: list[int], size: int) -> Integers:
    """Places of items of some size, in a flat array."""
    return (size * np.array(numbers, np.int64)[:, None] + np.arange(size)).ravel()
