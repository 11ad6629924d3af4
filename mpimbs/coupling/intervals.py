"""The assembly of intervals of bodies in depth-first order, joined in the order of a schedule: by one rank or several.

The values of a schedule's nodes go up to the whole, each as one message to every rank that needs it and has not made
it; on the way down loads and accelerations come back [Yamane & Nakamura, section 4.1 and 4.2]. The divide and conquer
of trees, dcae, is the schedule of a butterfly, of which nothing has to come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.coupling.base import DirectCoupling
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Rows, Table, aligned_zeros, assign, read, rows_of, schema, span
from mpimbs.parallel.exchange import POSTED, Receives, await_message, expect
from mpimbs.parallel.native import own_tags, send_only
from mpimbs.partition.schedule import JOIN, RECEIVE_LOADS, RECEIVE_VALUE, SEND_LOADS, SEND_VALUE, SPREAD, Schedule
from mpimbs.spatial.rows import ROW
from mpimbs.values.joining import Join, joined
from mpimbs.values.joins import LISTED, READ_AT, WRITE_AT, join_values, spread_values
from mpimbs.values.value import Description, Room, noise_at

# Columns of `AssemblyPlan.steps`, as kinds have them, and of `AssemblyPlan.nodes`.
KIND, LEFT, RIGHT, OUT, BEGIN, UP, DOWN, END = range(8)  # joins: nodes, what is kept, the rows of their programs
_NODE, _OTHER, _TAG, _BEGIN, _COUNT = range(1, 6)  # messages: rank or request; the loads of a leaf come elsewhere
VALUE, SIZE, LOADS, NUMBERS, OWN = range(5)


class AssemblyPlan(NamedTuple):
    """Arguments of `solve_by_intervals` in compiled code."""

    messages: Integers  # table of `Posted`
    root: int  # the node of the whole, where this rank has it; -1
    steps: Rows  # [steps, 8]: the columns above
    nodes: Rows  # [nodes that this rank has, 8]: the columns above; its own leaves are in what it is given
    values: Floats  # of the other nodes
    loads: Floats  # accelerations of inboard bodies and loads on open ones, of these
    programs: Rows  # [any, 8]: of its joins, up and down
    lists: Integers  # of these
    kept: Floats
    work: Floats
    scratch: Floats


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


@kernel
def _join(plan, row, given):
    """Join two nodes [Yamane & Nakamura, eq. 36 to 50]."""
    p = read(plan, ASSEMBLY_PLAN)
    left, right = _value(p.nodes, row[LEFT], given, p.values), _value(p.nodes, row[RIGHT], given, p.values)
    out, kept = _value(p.nodes, row[OUT], given, p.values), span(p.kept, row[BEGIN], p.kept.size - row[BEGIN])
    join_values(p.programs, row[UP], row[DOWN], p.lists, left, right, p.work, out, kept, p.scratch)


@kernel
def _spread(plan, row, given, given_loads):
    """Find the loads of two nodes that were joined [Yamane & Nakamura, eq. 51 and 52]."""
    p = read(plan, ASSEMBLY_PLAN)
    right, outer = _value(p.nodes, row[RIGHT], given, p.values), _loads(p.nodes, row[OUT], given_loads, p.loads)
    of_left = _loads(p.nodes, row[LEFT], given_loads, p.loads)
    of_right = _loads(p.nodes, row[RIGHT], given_loads, p.loads)
    kept = span(p.kept, row[BEGIN], p.kept.size - row[BEGIN])
    spread_values(p.programs, row[DOWN], row[END], p.lists, right, kept, outer, of_left, of_right, p.scratch)


@kernel
def solve_by_intervals(plan, given, root, given_loads):
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


def joins_of(schedule: Schedule, values: Sequence[Description], rooms: Sequence[Room]) -> tuple[list[Room], list[Join]]:
    """Say what room the values of a schedule's nodes take, and how they are joined.

    Parameters
    ----------
    values : sequence of Description
        Of the leaves.
    rooms : sequence of Room
        Those that they have.
    """
    nodes, found, joins = list(values), list(rooms), list[Join]()
    for left, right, _ in schedule.joins:
        joins.append(joined(nodes[left], nodes[right], found[left], found[right]))
        nodes.append(joins[-1].value)
        found.append(nodes[-1].room)
    return found, joins


class ScheduledAssembly(DirectCoupling):
    """Assembles the ranks' intervals, exact in one pass, in the order of a schedule.

    Parameters
    ----------
    schedule : Schedule
        Over the intervals of all ranks; the same on all.
    room : Room
        Of this rank's values.
    values : sequence of Description
        These.
    """

    def __init__(self, comm: MPI.Comm, schedule: Schedule, room: Room, values: Sequence[Description]) -> None:
        told = comm.allgather((room, list(values)))
        leaves = [value for _, theirs in told for value in theirs]
        rooms, joins = joins_of(schedule, leaves, [theirs for theirs, of_rank in told for _ in of_rank])
        layout = _Layout(schedule, comm.rank, rooms, joins, own_tags(comm, 2 * len(schedule.crossing)))
        receives = Receives(comm, layout.receives())
        super().__init__(receives)
        # of an evaluation, in order: the kind of step (`partition.schedule`), the other rank, and doubles
        self.messages = layout.messages
        self._messages = Table(receives.posted)
        whole = len(rooms) - 1
        mine = comm.rank in schedule.holders[whole]
        self._table = Table(
            AssemblyPlan(
                self._messages.data,
                root=layout.numbers[whole] if mine else -1,
                steps=rows_of(layout.steps),
                nodes=rows_of(layout.nodes),
                values=layout.values,
                loads=layout.loads,
                programs=rows_of(layout.programs),
                lists=np.array(layout.lists, np.int64),
                kept=aligned_zeros(layout.kept),
                work=aligned_zeros(layout.work),
                scratch=aligned_zeros(layout.scratch),
            )
        )
        self.plan: Integers = self._table.data  # the argument of `solve` in compiled code
        self._loads = np.zeros((len(values), 6 * (room.inboard + room.open)))
        self._values, self._room = layout.values, rooms[whole]
        self._root: list[int] = layout.nodes[layout.numbers[whole]] if mine else []

    def eliminated(self, values: Floats) -> float:
        """Columns of loops that `solve` eliminated, given the values of this rank; 0 where the whole isn't known."""
        if not self._root:
            return 0.0
        at = self._root[VALUE] + noise_at.py_func(self._room, self._room.open)
        return float((values.reshape(-1) if self._root[OWN] else self._values)[at])

    def product(self, values: Floats, root: Floats) -> Floats:
        """Find the boundary values of this rank's intervals, as `coupling.base.Solve`; all ranks call."""
        expect(self._messages.data)
        solve_by_intervals(self.plan, values.reshape(-1), root, self._loads.reshape(-1))
        return self._loads


class _Layout:
    """Where a rank has what: rows of its nodes and of its steps, and the arrays of what is not given to it."""

    def __init__(
        self, schedule: Schedule, rank: int, rooms: Sequence[Room], joins: Sequence[Join], first_tag: int
    ) -> None:
        self._rooms, leaves = rooms, len(schedule.owners)
        self._mine = [leaf for leaf, owner in enumerate(schedule.owners) if owner == rank]
        self.numbers: dict[int, int] = {}
        self.nodes: list[list[int]] = []
        self.steps: list[list[int]] = []
        self._ends = [0, 0]  # of values and loads that are not given
        self._receives: list[tuple[bool, int, int, int, int]] = []  # whether of loads, begin, count, rank, tag
        self.messages: list[tuple[int, int, int]] = []
        self.programs: list[list[int]] = []
        self.lists: list[int] = []
        self.kept = self.work = self.scratch = 0
        for leaf in self._mine:
            self._place(leaf)
        tags = {node: first_tag + 2 * number for number, node in enumerate(schedule.crossing)}
        programs: dict[int, list[int]] = {}
        for kind, node, other in schedule.steps[rank]:
            here = self._place(node)
            if kind in (JOIN, SPREAD):
                halves = map(self._place, schedule.children(node))
                if kind == JOIN:
                    programs[node] = self._program(joins[node - leaves])
                self.steps.append([kind, *halves, here, *programs[node]])
                continue
            self.messages.append(
                (kind, other, self.nodes[here][SIZE if kind in (SEND_VALUE, RECEIVE_VALUE) else NUMBERS])
            )
            if kind in (SEND_VALUE, SEND_LOADS):
                self.steps.append([kind, here, other, tags[node] + (kind == SEND_LOADS)])
            else:
                self._receive(kind, here, other, tags[node] + (kind == RECEIVE_LOADS))
        self.values, self.loads = aligned_zeros(self._ends[0]), np.zeros(self._ends[1])

    def _program(self, join: Join) -> list[int]:
        """Keep the program of a join: where what it keeps begins, and its rows."""
        begin, up = self.kept, len(self.programs)
        for row in (*join.up, *join.down):
            listed = row[READ_AT] + len(self.lists) if row[KIND] in LISTED else row[READ_AT]
            self.programs.append([row[KIND], listed, *row[WRITE_AT:]])
        self.lists += join.lists
        self.kept += join.kept
        self.work, self.scratch = max(self.work, join.work), max(self.scratch, join.scratch)
        return [begin, up, up + len(join.up), len(self.programs)]

    def _place(self, node: int) -> int:
        """The number of a node here; it is given room where it is none of the rank's leaves."""
        if node not in self.numbers:
            self.numbers[node] = len(self.nodes)
            room, own = self._rooms[node], node in self._mine
            size, numbers = room.size(), 6 * (room.inboard + room.open)
            value, loads = (size * len(self.nodes), numbers * len(self.nodes)) if own else self._ends
            self.nodes.append([value, size, loads, numbers, int(own)])
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
        """Arguments of `Receives`."""
        for of_loads, begin, count, other, tag in self._receives:
            yield (self.loads if of_loads else self.values)[begin : begin + count], other, tag


def _in_lines(size: int) -> int:
    return -(-size // ROW) * ROW
