"""The constraint-load equations of a rank's separated joints and open loops: their tables, their part of the matrix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from mpimbs.coupling.pcg.constraint_equations import Equations
from mpimbs.coupling.pcg.load_graph import LoadGraph, LoadShare, Needed
from mpimbs.coupling.pcg.load_tables import Places, rows_of
from mpimbs.coupling.pcg.separated_joint import first_steps, joints_of
from mpimbs.kernels.memory import Floats, Integers, Table, aligned, aligned_zeros
from mpimbs.parallel.exchange import Exchange
from mpimbs.parts.part import SeparablePart
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.structure import PLACE
from mpimbs.values.value import SIX


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

    Attributes
    ----------
    graph : LoadGraph
        Which loads depend on which.
    sizes : array [own unknowns]
        Constraint loads of each of this rank's separated joints, then of its loops.
    rows : int
        Constraint loads of this rank, the rows of the equations that it owns.
    bodies, subspaces : array [k], [k, 6]
        Of the loads of joints, the first ones: the body whose inboard joint has each; what a load of 1 is, moment about
        the origin of the body's frame and force on the body, in body frame components (of a universal or planar joint,
        of a frame between its two steps).
    starts, columns : array [rows + 1], [entries]
        The pattern of this rank's rows, as for PETSc.
    table : int64 array
        What `constraint_equations` are given, after `write_to`.
    right, solution : array [rows]
        Right-hand side (rad/s^2, m/s^2) and constraint loads (N m, N).
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
            piece.hung_on.append(int(end.hung_on[joint.root]))
        self.graph = graph = LoadGraph(comm.allgather(share))
        places = Places(graph, comm.rank, joints, ends)
        self.sizes = np.array([graph.sizes[unknown] for unknown in graph.own(comm.rank)], np.int64)
        self.rows, own = int(self.sizes.sum()), self.sizes[: len(joints)]
        self.bodies = np.repeat(np.array([joint.body for joint in joints], np.int64), own)
        self.subspaces = np.concatenate([np.zeros((0, 6)), *(joint.of_the_body() for joint in joints)])
        self.right, self.solution = np.zeros(self.rows), np.zeros(self.rows)
        pattern = places.pattern()
        self.starts, self.columns = pattern.starts, pattern.columns
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
        self.table: Integers = self._table.data

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
