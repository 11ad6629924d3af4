"""The separated joints of a rank: what of them never changes, for the constraint-load equations."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.coupling.constraint_equations import (
    ACCELERATION_AT,
    APART,
    CARRIED,
    CARRIER,
    CARRIES,
    COMPLIANCE_AT,
    FAR,
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
    OPEN,
    OUTER_AT,
    OWN_AT,
    SIX,
    TRANSFER_AT,
    Equations,
)
from mpimbs.coupling.load_graph import CutJoints, LoadGraph, Needed
from mpimbs.parallel.exchange import Exchange
from mpimbs.spatial.memory import Floats, Integers, Table, aligned_zeros
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.build import Build
from mpimbs.sweep.part import Ends, SeparablePart
from mpimbs.sweep.structure import BODY, FIRST_Q, FIRST_U, FIXED, LAST_U, PLACE, Structure


def constraint_subspace(joint: Build) -> Floats:
    """Orthonormal basis of the loads that a joint transmits without doing work [6, 6 minus its degrees of freedom].

    In the frame of the joint's first step, where it is constant whatever the joint's coordinates: moments, then forces.

    Parameters
    ----------
    joint : Build
        A body alone with its inboard joint.
    """
    from scipy.linalg import qr  # takes 0.1 s: where it is needed

    s = joint.structure
    turn = np.eye(3)  # components in the first step's frame to those in the step's
    motion = np.zeros((6, len(s.axes)))
    for number, step in enumerate(s.steps):
        if number > 0:
            turn = s.fixed.reshape(-1, FIXED)[step[BODY], :9].reshape(3, 3) @ turn
        for d in range(step[FIRST_U], step[LAST_U]):
            unit = np.eye(6)[s.axes[d]]
            if s.axes[d] < 3:
                unit = unit + s.pitch[d] * np.eye(6)[s.axes[d] + 3]
            motion[:, d] = np.concatenate([unit[:3] @ turn, unit[3:] @ turn])
    across = np.eye(6) - motion @ np.linalg.pinv(motion)
    basis, _, _ = qr(across, pivoting=True)  # of unit axes where the joint's own are
    return np.asarray(basis[:, : 6 - len(s.axes)], np.float64)


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

    def pad(self) -> Floats:
        """What makes a matrix of `size` rows one of six that can be solved [6, 8]: ones in the other rows."""
        pad = np.eye(6, ROW)
        pad[: self.size] = 0.0
        return pad

    def of_the_body(self) -> Floats:
        """Its subspace in body frame components [size, 6]; of a joint of several steps, of a frame between them."""
        turn = self.made.body_frame[0] if len(self.made.structure.steps) == 1 else np.eye(3)
        turned: Floats = (self.subspace.T.reshape(-1, 2, 3) @ turn.T).reshape(-1, 6)
        return turned


def _joints(part: SeparablePart, ends: list[Ends]) -> list[SeparatedJoint]:
    """The separated joints of a rank's part, in its order."""
    joints = []
    at_q = at_u = 0
    for number, (piece, end) in enumerate(zip(part, ends, strict=True)):
        for root in np.flatnonzero(end.hung_on >= 0).tolist():
            body = int(end.roots[root])
            made = piece.joint(body)
            place = at_q + piece.coordinates_before(body), at_u
            joints.append(SeparatedJoint(number, root, body, made, *place, constraint_subspace(made)))
            at_u += len(made.structure.axes)
        at_q += piece.nq
    return joints


def _first_steps(joints: list[SeparatedJoint]) -> Structure:
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
    return Structure(steps, axes, fixed.ravel(), pitch)


def _share(joints: list[SeparatedJoint], ends: list[Ends]) -> CutJoints:
    """What all ranks have to know of a rank's joints and pieces."""
    roots = np.full(len(ends), -1)
    for number, joint in enumerate(joints):
        end = ends[joint.piece]
        if len(end.open) and joint.root == len(end.roots) - 1:
            roots[joint.piece] = number
    return CutJoints(
        sizes=np.array([joint.size for joint in joints], np.int64),
        hung_on=np.array([ends[joint.piece].hung_on[joint.root] for joint in joints], np.int64),
        pieces=np.array([joint.piece for joint in joints], np.int64),
        roots=roots,
        counts=np.array([len(end.open) for end in ends], np.int64),
        open=np.concatenate([np.zeros(0, np.int64), *(end.open for end in ends)]),
    )


class _Places:
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


class SeparatedJoints:
    """The tables of a rank's constraint-load equations, and the pattern of its rows of their matrix.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive this.
    part : SeparablePart
        That of this rank; each of its pieces begins with separated joints, but for what hangs on the world.

    Attributes
    ----------
    graph : LoadGraph
        Which joints depend on which.
    sizes : array [own joints]
        Constraint loads of each of this rank's separated joints.
    rows : int
        Constraint loads of this rank, the rows of the equations that it owns.
    bodies, subspaces : array [rows], [rows, 6]
        The body whose inboard joint has the load; what a load of 1 is, moment about the origin of the body's frame and
        force on the body, in body frame components (of a universal or planar joint, of a frame between its two steps).
    starts, columns : array [rows + 1], [entries]
        The pattern of this rank's rows, as for PETSc, in the order in which `constraint_equations.form` writes the
        values of this rank's columns, and of others'.
    right, solution : array [rows]
        Right-hand side (rad/s^2, m/s^2) and constraint loads (N m, N).
    """

    def __init__(self, comm: MPI.Comm, part: SeparablePart) -> None:
        ends = part.ends()
        joints = _joints(part, ends)
        self.graph = graph = LoadGraph(comm.allgather(_share(joints, ends)))
        needs = graph.needs(comm.rank)
        places = _Places(graph, comm.rank, needs)
        self.sizes = np.array([joint.size for joint in joints], np.int64)
        self.rows = int(self.sizes.sum())
        self.bodies = np.repeat(np.array([joint.body for joint in joints], np.int64), self.sizes)
        self.subspaces = np.concatenate([np.zeros((0, 6)), *(joint.of_the_body() for joint in joints)])
        self.right, self.solution = np.zeros(self.rows), np.zeros(self.rows)
        blocks, self.starts, self.columns = _pattern(places, comm.rank)
        others = {rank: graph.needs(rank) for rank in graph.neighbours(comm.rank)}
        rows, own_size = _joint_rows(places, joints, ends)
        pieces = _piece_rows(places, ends)
        exchange, *shared = _exchange(comm, graph, places.shared, needs, others)
        load_exchange, *loads = _exchange(comm, graph, places.loads, needs, others)
        self._exchanges = exchange, load_exchange
        most = int(pieces[:, OPEN].max(initial=1))
        self._equations = Equations(
            exchange.plan,
            load_exchange.plan,
            *shared,
            *loads,
            joints=rows,
            pieces=pieces,
            own_pieces=len(ends),
            blocks=blocks,
            hanging=_hanging(places, pieces),
            worlds=np.concatenate([np.zeros(0, np.int64), *(end.acceleration[end.hung_on < 0] for end in ends)]),
            joint=_first_steps(joints),
            subspaces=_aligned([joint.padded_subspace() for joint in joints]),
            pads=_aligned([joint.pad() for joint in joints]),
            place=np.zeros(PLACE * len(joints)),
            shared=aligned_zeros(places.size),
            owns=aligned_zeros(own_size),
            scratch=aligned_zeros((2 + most) * SIX),
            diagonal=np.zeros(0),
            beside=np.zeros(0),
            right=self.right,
            solution=self.solution,
            loads=aligned_zeros(len(places.joints) * ROW),
            outer_loads=np.zeros(6 * int(pieces[:, OPEN].sum())),
        )

    def table(self, diagonal: Floats, beside: Floats) -> Table:
        """Give the table whose `data` is the argument of `constraint_equations.form` and `boundary_values`.

        Parameters
        ----------
        diagonal, beside : array
            Where the matrix's values are written, in the order of the pattern: of this rank's columns, and of others'.
        """
        return Table(self._equations._replace(diagonal=diagonal, beside=beside))

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return sum(exchange.seconds for exchange in self._exchanges)

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        for exchange in self._exchanges:
            exchange.close()


def _joint_rows(places: _Places, joints: list[SeparatedJoint], ends: list[Ends]) -> tuple[Integers, int]:
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
        own += FAR + SIX * (len(end.open) if carries else 0)
        first += joint.size
    return rows, own


def _piece_rows(places: _Places, ends: list[Ends]) -> Integers:
    """The rows of the pieces that a rank knows."""
    graph, rows, first = places.graph, np.zeros((len(places.pieces), 8), np.int64), 0
    for row, piece in zip(rows, places.pieces.tolist(), strict=True):
        carrier = int(graph.roots[piece])
        row[[OPEN, OUTER_AT, FIRST_OPEN]] = graph.counts[piece], places.outer(piece), first
        row[CARRIER] = -1 if carrier < 0 else places.joint(carrier)
        first += int(graph.counts[piece])
    for row, end in zip(rows, ends, strict=False):
        row[[TRANSFER_AT, COMPLIANCE_AT, APART, LOAD_AT]] = end.transfer, end.compliance, end.apart, end.load
    return rows


def _pattern(places: _Places, rank: int) -> tuple[Integers, Integers, Integers]:
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
                kind, own = CARRIED, int(graph.counts[mine])
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


def _hanging(places: _Places, pieces: Integers) -> Integers:
    """The joints that hang on the pieces that a rank knows, and the numbers of the open bodies."""
    graph, found = places.graph, []
    for row, piece in zip(pieces, places.pieces.tolist(), strict=True):
        found += [(places.joint(k), row[FIRST_OPEN] + graph.handle[k]) for k in graph.hanging(piece).tolist()]
    rows = np.zeros((len(found), 8), np.int64)
    rows[:, :2] = np.array(found, np.int64).reshape(-1, 2)
    return rows


def _exchange(
    comm: MPI.Comm,
    graph: LoadGraph,
    places: Callable[[Needed], list[tuple[int, int]]],
    needs: Needed,
    others: dict[int, Needed],
) -> tuple[Exchange, Integers, Integers]:
    """The messages by which ranks get what they need, and what is copied to these and from them."""
    sent = {rank: places(graph.of_rank(theirs, comm.rank)) for rank, theirs in others.items()}
    received = {rank: places(graph.of_rank(needs, rank)) for rank in others}
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
    copies = np.zeros((len(rows), 8), np.int64)
    copies[:, :3] = np.array(rows, np.int64).reshape(-1, 3)
    return copies


def _aligned(matrices: list[Floats]) -> Floats:
    """Matrices one after the other, at the begin of a cache line."""
    room = aligned_zeros(sum(matrix.size for matrix in matrices))
    room[:] = np.ravel(matrices)
    return room
