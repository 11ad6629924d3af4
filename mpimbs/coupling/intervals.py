"""The assembly of intervals of bodies in depth-first order, joined in the order of a schedule: by one rank or several.

The values of a schedule's nodes go up to the whole, each as one message to every rank that needs it and has not made
it; on the way down loads and accelerations come back [Yamane & Nakamura, section 4.1 and 4.2]. The divide and conquer
of trees, dcae, is the schedule of a butterfly, of which nothing has to come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.coupling.base import DirectCoupling
from mpimbs.parallel.native import own_tags, send_only
from mpimbs.parallel.posted import POSTED, Receives, await_message, expect
from mpimbs.partition.schedule import (
    JOIN,
    RECEIVE_LOADS,
    RECEIVE_VALUE,
    SEND_LOADS,
    SEND_VALUE,
    SPREAD,
    Schedule,
)
from mpimbs.spatial.column_lists import Listed, joined_columns, listed
from mpimbs.spatial.columns import Room, Rooms, join_columns, spread_columns
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import Floats, Integers, Rows, Table, aligned_zeros, assign, read, schema, span
from mpimbs.spatial.mixed import MixedRoom, described
from mpimbs.spatial.mixed_joins import Description, join_mixed, joined_mixed, room_of, spread_mixed
from mpimbs.spatial.rows import ROW

# Columns of `AssemblyPlan.steps`, as kinds have them, and of `AssemblyPlan.nodes`.
KIND, LEFT, RIGHT, OUT, BEGIN, KEPT, BOTH_INBOARD, BOTH_OPEN = range(8)  # joins: nodes, what is kept, room
_NODE, _OTHER, _TAG, _BEGIN, _COUNT = range(1, 6)  # messages: rank or request; the loads of a leaf come elsewhere
VALUE, SIZE, LOADS, NUMBERS, OF_INBOARD, OF_OPEN, OWN = range(7)


class AssemblyPlan(NamedTuple):
    """What `solve` is given."""

    messages: Integers  # table of `Posted`
    mixed: int  # whether the values are those of `spatial.mixed`
    root: int  # the node of the whole, where this rank has it; -1
    steps: Rows  # [steps, 8]: the columns above
    nodes: Rows  # [nodes that this rank has, 8]: the columns above; its own leaves are in what it is given
    values: Floats  # of the other nodes
    loads: Floats  # accelerations of inboard bodies and loads on open ones, of these
    responses: Floats  # of its joins
    scratch: Floats
    work: Floats  # as `scratch`


ASSEMBLY_PLAN = schema(AssemblyPlan)


@kernel(inline=True)
def _value(nodes, node, given, values):
    """The value of a node."""
    if nodes[node, OWN] != 0:
        return span(given, nodes[node, VALUE], nodes[node, SIZE])
    return span(values, nodes[node, VALUE], nodes[node, SIZE])


@kernel(inline=True)
def _loads(nodes, node, given, loads):
    """Accelerations and loads of a node."""
    if nodes[node, OWN] != 0:
        return span(given, nodes[node, LOADS], nodes[node, NUMBERS])
    return span(loads, nodes[node, LOADS], nodes[node, NUMBERS])


@kernel(inline=True)
def _rooms_of(nodes, row):
    left, right, out = row[LEFT], row[RIGHT], row[OUT]
    return Rooms(
        Room(nodes[left, OF_INBOARD], nodes[left, OF_OPEN]),
        Room(nodes[right, OF_INBOARD], nodes[right, OF_OPEN]),
        Room(row[BOTH_INBOARD], row[BOTH_OPEN]),
        Room(nodes[out, OF_INBOARD], nodes[out, OF_OPEN]),
    )


@kernel
def _join(plan, row, given):
    """Join two nodes [Yamane & Nakamura, eq. 36 to 50]."""
    nodes, values = read(plan, ASSEMBLY_PLAN.nodes), read(plan, ASSEMBLY_PLAN.values)
    left, right = _value(nodes, row[LEFT], given, values), _value(nodes, row[RIGHT], given, values)
    out = _value(nodes, row[OUT], given, values)
    responses = span(read(plan, ASSEMBLY_PLAN.responses), row[BEGIN], row[KEPT])
    rooms, scratch = _rooms_of(nodes, row), read(plan, ASSEMBLY_PLAN.scratch)
    if read(plan, ASSEMBLY_PLAN.mixed) != 0:
        join_mixed(rooms, left, right, out, responses, scratch)
    else:
        join_columns(rooms, left, right, out, responses, scratch)


@kernel
def _spread(plan, row, given, given_loads):
    """Find the loads of two nodes that were joined [Yamane & Nakamura, eq. 51 and 52]."""
    nodes, values, loads = (
        read(plan, ASSEMBLY_PLAN.nodes),
        read(plan, ASSEMBLY_PLAN.values),
        read(plan, ASSEMBLY_PLAN.loads),
    )
    left, right = _value(nodes, row[LEFT], given, values), _value(nodes, row[RIGHT], given, values)
    out, outer = _value(nodes, row[OUT], given, values), _loads(nodes, row[OUT], given_loads, loads)
    of_left = _loads(nodes, row[LEFT], given_loads, loads)
    of_right = _loads(nodes, row[RIGHT], given_loads, loads)
    responses = span(read(plan, ASSEMBLY_PLAN.responses), row[BEGIN], row[KEPT])
    rooms, work = _rooms_of(nodes, row), read(plan, ASSEMBLY_PLAN.work)
    if read(plan, ASSEMBLY_PLAN.mixed) != 0:
        spread_mixed(rooms, left, right, out, responses, outer, of_left, of_right, work)
    else:
        spread_columns(rooms, left, right, out, responses, outer, of_left, of_right, work)


@kernel
def solve(plan, given, root, given_loads):
    """Find accelerations of the inboard bodies and loads on the open ones of this rank's intervals, after `expect`.

    All ranks call. `given_loads` [count * (inboard + open) * 6] is written: of each the accelerations, then the loads.
    """
    steps, nodes, messages = (
        read(plan, ASSEMBLY_PLAN.steps),
        read(plan, ASSEMBLY_PLAN.nodes),
        read(plan, ASSEMBLY_PLAN.messages),
    )
    given_loads[:] = 0.0
    if read(plan, ASSEMBLY_PLAN.root) >= 0:  # the whole hangs on the world alone, and nothing is open
        assign(_loads(nodes, read(plan, ASSEMBLY_PLAN.root), given_loads, read(plan, ASSEMBLY_PLAN.loads)), root)
    for number in range(steps.shape[0]):
        row = steps[number]
        kind = row[KIND]
        if kind == JOIN:
            _join(plan, row, given)
        elif kind == SPREAD:
            _spread(plan, row, given, given_loads)
        elif kind == SEND_VALUE:
            value = _value(nodes, row[_NODE], given, read(plan, ASSEMBLY_PLAN.values))
            send_only(read(messages, POSTED.channel), value, row[_OTHER], row[_TAG])
        elif kind == SEND_LOADS:
            loads = _loads(nodes, row[_NODE], given_loads, read(plan, ASSEMBLY_PLAN.loads))
            send_only(read(messages, POSTED.channel), loads, row[_OTHER], row[_TAG])
        else:
            await_message(messages, row[_OTHER])
            if row[_COUNT] > 0:
                found = span(read(plan, ASSEMBLY_PLAN.loads), row[_BEGIN], row[_COUNT])
                assign(_loads(nodes, row[_NODE], given_loads, read(plan, ASSEMBLY_PLAN.loads)), found)


class _Sizes(NamedTuple):
    """What a join takes: room while it is made, numbers that are kept, numbers of scratch."""

    both: Room | MixedRoom
    responses: int
    scratch: int


def node_sizes(
    schedule: Schedule, leaves: Sequence[Listed | Description], rooms: Sequence[Room | MixedRoom]
) -> tuple[list[Room | MixedRoom], list[_Sizes]]:
    """Say what room the values of a schedule's nodes take, and what its joins take.

    Parameters
    ----------
    schedule : Schedule
    leaves : sequence
        What is known of the value of each leaf: `Listed`, or a `Description` where the system has loops.
    rooms : sequence
        Those that the values of the leaves have.
    """
    found, sizes, values = list(rooms), [], list(leaves)
    for left, right, _ in schedule.joins:
        one, other = values[left], values[right]
        if isinstance(one, Listed):
            assert isinstance(other, Listed)
            columns = joined_columns(one, other)
            sizes.append(_Sizes(columns.both, columns.responses, columns.scratch))
            values.append(columns.value)
            found.append(columns.value.room)
        else:
            assert not isinstance(other, Listed)
            mixed = joined_mixed(one, other)
            sizes.append(_Sizes(room_of(mixed.value), mixed.responses, mixed.scratch))
            values.append(mixed.value)
            found.append(room_of(mixed.value))
    return found, sizes


class ScheduledAssembly(DirectCoupling):
    """Assembles the ranks' intervals, exact in one pass, in the order of a schedule.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive the coupling. All ranks make it together.
    schedule : Schedule
        Over the intervals of all ranks; the same on all.
    room : Room or MixedRoom
        Of this rank's values; mixed in a system with loops.
    values : array [count, room.size()]
        Of these, what never changes is read.

    Attributes
    ----------
    plan : int64 array
        The argument of `solve` in compiled code.
    messages : list of (int, int, int)
        Of an evaluation, in order: the kind of step (`partition.schedule`), the other rank, and doubles.
    """

    def __init__(self, comm: MPI.Comm, schedule: Schedule, room: Room | MixedRoom, values: Floats) -> None:
        mixed = isinstance(room, MixedRoom)
        mine = [described(room, value) if isinstance(room, MixedRoom) else listed(room, value) for value in values]
        told = comm.allgather((room, mine))
        leaves = [value for _, theirs in told for value in theirs]
        rooms, sizes = node_sizes(schedule, leaves, [theirs for theirs, of_rank in told for _ in of_rank])
        layout = _Layout(schedule, comm.rank, rooms, sizes, own_tags(comm, 2 * len(schedule.crossing)))
        receives = Receives(comm, layout.receives())
        super().__init__(receives)
        self.messages = layout.messages
        self._messages = Table(receives.posted)
        whole = len(rooms) - 1
        self._table = Table(
            AssemblyPlan(
                self._messages.data,
                mixed=int(mixed),
                root=layout.numbers[whole] if comm.rank in schedule.holders[whole] else -1,
                steps=_rows(layout.steps),
                nodes=_rows(layout.nodes),
                values=layout.values,
                loads=layout.loads,
                responses=aligned_zeros(layout.kept),
                scratch=aligned_zeros(layout.scratch),
                work=aligned_zeros(layout.scratch),
            )
        )
        self.plan: npt.NDArray[np.int64] = self._table.data
        self._loads = np.zeros((len(values), 6 * (room.inboard + room.open)))

    def product(self, values: Floats, root: Floats) -> Floats:
        """Find the boundary values of this rank's intervals, as `coupling.base.Solve`; all ranks call."""
        expect(self._messages.data)
        solve(self.plan, values.reshape(-1), root, self._loads.reshape(-1))
        return self._loads


class _Layout:
    """Where a rank has what: rows of its nodes and of its steps, and the arrays of what is not given to it."""

    def __init__(
        self,
        schedule: Schedule,
        rank: int,
        rooms: Sequence[Room | MixedRoom],
        sizes: Sequence[_Sizes],
        first_tag: int,
    ) -> None:
        self._rooms, leaves = rooms, len(schedule.owners)
        self._mine = [leaf for leaf, owner in enumerate(schedule.owners) if owner == rank]
        self.numbers: dict[int, int] = {}
        self.nodes: list[list[int]] = []
        self.steps: list[list[int]] = []
        self._ends = [0, 0]  # of values and loads that are not given
        self._receives: list[tuple[bool, int, int, int, int]] = []  # whether of loads, begin, count, rank, tag
        self.messages: list[tuple[int, int, int]] = []
        self.kept = self.scratch = 0
        for leaf in self._mine:
            self._place(leaf)
        tags = {node: first_tag + 2 * number for number, node in enumerate(schedule.crossing)}
        begins: dict[int, int] = {}
        for kind, node, other in schedule.steps[rank]:
            here = self._place(node)
            if kind not in (JOIN, SPREAD):
                self.messages.append(
                    (kind, other, self.nodes[here][SIZE if kind in (SEND_VALUE, RECEIVE_VALUE) else NUMBERS])
                )
            if kind in (JOIN, SPREAD):
                join, halves = sizes[node - leaves], map(self._place, schedule.children(node))
                if kind == JOIN:
                    begins[node], self.kept = self.kept, _in_lines(self.kept + join.responses)
                    self.scratch = max(self.scratch, join.scratch)
                self.steps.append([kind, *halves, here, begins[node], join.responses, *join.both])
            elif kind in (SEND_VALUE, SEND_LOADS):
                self.steps.append([kind, here, other, tags[node] + (kind == SEND_LOADS)])
            else:
                self._receive(kind, here, other, tags[node] + (kind == RECEIVE_LOADS))
        self.values, self.loads = aligned_zeros(self._ends[0]), np.zeros(self._ends[1])

    def _place(self, node: int) -> int:
        """The number of a node here; it is given room where it is none of the rank's leaves."""
        if node not in self.numbers:
            self.numbers[node] = len(self.nodes)
            room, own = self._rooms[node], node in self._mine
            size, numbers = room.size(), 6 * (room.inboard + room.open)
            value, loads = (size * len(self.nodes), numbers * len(self.nodes)) if own else self._ends
            self.nodes.append([value, size, loads, numbers, *room, int(own)])
            if not own:
                self._ends = [_in_lines(value + size), loads + numbers]
        return self.numbers[node]

    def _receive(self, kind: int, here: int, other: int, tag: int) -> None:
        row = self.nodes[here]
        begin, count = row[VALUE : VALUE + 2] if kind == RECEIVE_VALUE else row[LOADS : LOADS + 2]
        elsewhere = [0, 0]
        if row[OWN]:  # loads, which go to where they are wanted
            begin, self._ends[1] = self._ends[1], self._ends[1] + count
            elsewhere = [begin, count]
        self.steps.append([kind, here, len(self._receives), 0, *elsewhere])
        self._receives.append((kind == RECEIVE_LOADS, begin, count, other, tag))

    def receives(self) -> Iterator[tuple[Floats, int, int]]:
        """What `Receives` is given."""
        for of_loads, begin, count, other, tag in self._receives:
            yield (self.loads if of_loads else self.values)[begin : begin + count], other, tag


def _in_lines(size: int) -> int:
    return -(-size // ROW) * ROW


def _rows(rows: Sequence[Sequence[int]]) -> Integers:
    found = np.zeros((len(rows), 8), np.int64)
    for number, row in enumerate(rows):
        found[number, : len(row)] = row
    return found
