"""The constraint-load equations of a rank's separated joints: their tables, and the pattern of their matrix."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from mpimbs.coupling.constraint_equations import (
    OPEN_BODIES,
    Equations,
    boundary_values,
    constraint_loads,
    forced_blocks,
    form,
)
from mpimbs.coupling.load_graph import LoadGraph, Needed
from mpimbs.coupling.load_tables import Places, hanging_rows, joint_rows, pattern, piece_rows
from mpimbs.coupling.separated_joint import cut_joints, first_steps, joints_of
from mpimbs.parallel.exchange import Exchange
from mpimbs.spatial.columns import SIX
from mpimbs.spatial.memory import Floats, Integers, Table, aligned, aligned_zeros
from mpimbs.spatial.rows import ROW
from mpimbs.sweep.part import SeparablePart
from mpimbs.sweep.structure import PLACE


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
    singular : bool
        False: the matrix is positive definite.
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

    singular = False

    def __init__(self, comm: MPI.Comm, part: SeparablePart) -> None:
        ends = part.ends()
        joints = joints_of(part, ends)
        self.graph = graph = LoadGraph(comm.allgather(cut_joints(joints, ends)))
        needs = graph.needs(comm.rank)
        places = Places(graph, comm.rank, needs)
        self.sizes = np.array([joint.size for joint in joints], np.int64)
        self.rows = int(self.sizes.sum())
        self.bodies = np.repeat(np.array([joint.body for joint in joints], np.int64), self.sizes)
        self.subspaces = np.concatenate([np.zeros((0, 6)), *(joint.of_the_body() for joint in joints)])
        self.right, self.solution = np.zeros(self.rows), np.zeros(self.rows)
        blocks, self.starts, self.columns = pattern(places, comm.rank)
        others = {rank: graph.needs(rank) for rank in graph.neighbours(comm.rank)}
        rows, own_size = joint_rows(places, joints, ends)
        pieces = piece_rows(places, ends)
        exchange, sent, received = _exchange(comm, graph, places.shared, needs, others)
        load_exchange, loads_sent, loads_received = _exchange(comm, graph, places.loads, needs, others)
        self._exchanges = exchange, load_exchange
        most = int(pieces[:, OPEN_BODIES].max(initial=1))
        self._equations = Equations(
            exchange.plan,
            load_exchange.plan,
            sent=sent,
            received=received,
            loads_sent=loads_sent,
            loads_received=loads_received,
            joints=rows,
            pieces=pieces,
            own_pieces=len(ends),
            blocks=blocks,
            hanging=hanging_rows(places, pieces),
            worlds=np.concatenate([np.zeros(0, np.int64), *(end.acceleration[end.hung_on < 0] for end in ends)]),
            joint=first_steps(joints),
            subspaces=aligned(np.ravel([joint.padded_subspace() for joint in joints])),
            pads=aligned(np.ravel([joint.pad() for joint in joints])),
            place=np.zeros(PLACE * len(joints)),
            shared=aligned_zeros(places.size),
            owns=aligned_zeros(own_size),
            scratch=aligned_zeros((2 + most) * SIX),
            diagonal=np.zeros(0),
            beside=np.zeros(0),
            right=self.right,
            solution=self.solution,
            loads=aligned_zeros(len(places.joints) * ROW),
            outer_loads=np.zeros(6 * int(pieces[:, OPEN_BODIES].sum())),
        )

    @property
    def is_band(self) -> bool:
        """Whether the matrix is a band as it stands."""
        return self.graph.is_band

    def write_to(self, diagonal: Floats, beside: Floats) -> None:
        """Say where the matrix's values are written, in the pattern's order: of this rank's columns, of others'."""
        self._table = Table(self._equations._replace(diagonal=diagonal, beside=beside))

    def form(self, q: Floats, blocks: Floats, root: Floats) -> None:
        """As `constraint_equations.form`."""
        form(self._table.data, q, blocks.reshape(-1), root)

    def boundary_values(self, root: Floats, values: Floats) -> None:
        """As `constraint_equations.boundary_values`."""
        boundary_values(self._table.data, root, values.reshape(-1))

    def forced_blocks(self, blocks: Floats, residual: Floats, forced: Floats) -> None:
        """As `constraint_equations.forced_blocks`."""
        forced_blocks(self._table.data, blocks.reshape(-1), residual, forced.reshape(-1))

    def constraint_loads(self, values: Floats, residual: Floats, solution: Floats) -> None:
        """As `constraint_equations.constraint_loads`."""
        constraint_loads(self._table.data, values.reshape(-1), residual, solution)

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return sum(exchange.seconds for exchange in self._exchanges)

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        for exchange in self._exchanges:
            exchange.close()


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
