"""Equations between bodies that ranks share: condensed over the ranks, in the order of a schedule.

Elements, such as a body with its inboard joint or a loop joint, stand in a sequence; each couples a few bodies. A
binary tree over the sequence assembles them two by two [Malczyk & Fraczek 2012, section 2.2.2], and eliminates every
body as soon as all that couples it is in. What is left of a node is the bodies that it shares with the rest: two of a
chain.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.parallel.native import own_tags
from mpimbs.partition.schedule import (
    JOIN,
    RECEIVE_LOADS,
    RECEIVE_VALUE,
    SEND_LOADS,
    SEND_VALUE,
    SPREAD,
    Schedule,
    balanced,
)
from mpimbs.values.condensing import SIDE, add_condensed, begin_front, condense_right, eliminate_front, expand_solution

LEAF = 2  # elements of a leaf at the most


class Merged(NamedTuple):
    """A node: its bodies, of which those that are eliminated come first."""

    eliminated: tuple[int, ...]
    kept: tuple[int, ...]

    @property
    def bodies(self) -> tuple[int, ...]:
        """All."""
        return self.eliminated + self.kept

    def places(self, bodies: Iterable[int]) -> list[int]:
        """Which of its bodies some are; -1: none, the world."""
        number = {body: place for place, body in enumerate(self.bodies)}
        return [number[body] if body >= 0 else -1 for body in bodies]


class AssemblyNode(NamedTuple):
    """A node of the tree over a rank's elements."""

    merged: Merged
    children: tuple[int, ...]  # nodes, two or none
    elements: range


class Condensation:
    """The tree over the elements of a rank, and what it leaves.

    Parameters
    ----------
    elements : sequence of tuples
        The bodies that each couples, -1 the world.
    shared : collection of int
        Bodies that are coupled to others elsewhere, too: never eliminated here.

    Attributes
    ----------
    nodes : list of AssemblyNode
        Children before their parents, each subtree contiguous; at last the whole.
    most : int
        Bodies of the largest front.
    stacked : int
        Squares of 6 x 6 numbers that stand on a stack of what is left of nodes, at the most.
    """

    def __init__(self, elements: Sequence[tuple[int, ...]], shared: Collection[int]) -> None:
        self._elements, self._shared = elements, frozenset(shared)
        self._left = Counter(body for element in elements for body in set(element) if body >= 0)
        self.nodes: list[AssemblyNode] = []
        self.stacked = self._stack = 0
        self._merge(0, len(elements))
        self.most = max(len(node.merged.bodies) for node in self.nodes)

    def _merge(self, first: int, last: int) -> tuple[int, Counter[int]]:
        """The node of some elements, and how often each of the bodies that it leaves is coupled in it."""
        children: tuple[int, ...] = ()
        if last - first <= LEAF:
            found = Counter(b for element in self._elements[first:last] for b in set(element) if b >= 0)
        else:
            middle = first + (last - first + 1) // 2
            (left, found), (right, more) = self._merge(first, middle), self._merge(middle, last)
            found.update(more)
            children = left, right
        done = tuple(b for b, times in found.items() if times == self._left[b] and b not in self._shared)
        merged = Merged(done, tuple(body for body in found if body not in done))
        for child in children:
            self._stack -= len(self.nodes[child].merged.kept) ** 2
        self._stack += len(merged.kept) ** 2
        self.stacked = max(self.stacked, self._stack)
        self.nodes.append(AssemblyNode(merged, children, range(first, last) if not children else range(0)))
        for body in done:
            del found[body]
        return len(self.nodes) - 1, found

    @property
    def kept(self) -> tuple[int, ...]:
        """The bodies that are left in the end."""
        return self.nodes[-1].merged.kept


def merged_over_ranks(schedule: Schedule, left: Sequence[Sequence[int]]) -> list[Merged]:
    """Say what is eliminated where ranks are joined: of each join of a schedule whose leaves leave these bodies."""
    last = Counter(body for bodies in left for body in bodies)
    counts = [Counter(bodies) for bodies in left]
    found = []
    for join in schedule.joins:
        both = counts[join.left] + counts[join.right]
        done = tuple(body for body, times in both.items() if times == last[body])
        found.append(Merged(done, tuple(body for body in both if body not in done)))
        counts.append(Counter({body: both[body] for body in found[-1].kept}))
    return found


class _Value(NamedTuple):
    """The equations that a node leaves of its bodies, their right-hand side, and in the end their solution."""

    matrix: Floats  # [(6 kept)^2]
    vector: Floats  # [6 kept]


class _RankJoin(NamedTuple):
    """A join on this rank."""

    size: int  # numbers of its bodies
    gone: int  # numbers that are eliminated
    left: Integers  # places of the bodies that the left node leaves
    right: Integers
    front: Floats
    factor: Floats
    room: Floats  # [size]


class CondensedRanks:
    """Solves equations of which each rank has a part; all ranks make it together and call.

    A binary tree over the ranks, a butterfly: ceil(log2 P) exchanges for the matrix, as many for a right-hand side.

    Parameters
    ----------
    comm : MPI.Comm
        The caller's own communicator; it must outlive this.
    kept : sequence of int
        The bodies that this rank shares, in the order of its numbers.

    Attributes
    ----------
    matrix : array [(6 kept)^2]
        This rank's part of the matrix, to be written before `factor`.
    vector : array [6 kept]
        Its part of the right-hand side, to be written before `solve`, which writes the solution.
    seconds : float
        Time spent in messages so far (s).
    """

    def __init__(self, comm: MPI.Comm, kept: Sequence[int]) -> None:
        self._comm, self.seconds = comm, 0.0
        left: list[Sequence[int]] = comm.allgather(list(kept))
        self._schedule: Schedule = balanced([1] * comm.size)
        merged = merged_over_ranks(self._schedule, left)
        bodies = [tuple(of_rank) for of_rank in left] + [join.kept for join in merged]
        self._values = [
            _Value(np.zeros((SIDE * len(own)) ** 2), np.zeros(SIDE * len(own))) if self._has(node) else None
            for node, own in enumerate(bodies)
        ]
        self._joins = {
            node: _made(join, bodies, *self._schedule.children(node))
            for node, join in enumerate(merged, comm.size)
            if comm.rank in self._schedule.holders[node]
        }
        self.matrix, self.vector = self._value(comm.rank)
        steps = self._schedule.steps[comm.rank]
        self._up = [step for step in steps if step.kind in (SEND_VALUE, RECEIVE_VALUE, JOIN)]
        self._down = [step for step in steps if step.kind in (SPREAD, SEND_LOADS, RECEIVE_LOADS)]
        self._tag = own_tags(comm, len(bodies))

    def _has(self, node: int) -> bool:
        """Whether this rank has a node's value, or is told it."""
        rank, schedule = self._comm.rank, self._schedule
        above = schedule.above[node]
        return rank in schedule.holders[node] or (above >= 0 and rank in schedule.holders[above])

    def _value(self, node: int) -> _Value:
        value = self._values[node]
        assert value is not None
        return value

    def factor(self) -> bool:
        """Condense the matrix; gives whether it is positive definite, as far as this rank knows."""
        sound, sent = True, []
        for kind, node, rank in self._up:
            if kind == JOIN:
                sound = self._factor(node) and sound
            else:
                sent += self._pass(kind == SEND_VALUE, self._value(node).matrix, rank, node)
        self._await(sent)
        return sound

    def solve(self) -> None:
        """Solve for one right-hand side."""
        sent = []
        for kind, node, rank in self._up + self._down:
            if kind == JOIN:
                self._condense(node)
            elif kind == SPREAD:
                self._expand(node)
            else:
                sent += self._pass(kind in (SEND_VALUE, SEND_LOADS), self._value(node).vector, rank, node)
        self._await(sent)

    def _pass(self, sends: bool, values: Floats, rank: int, node: int) -> list[MPI.Request]:
        """Send or receive values of a node."""
        began = time.perf_counter()
        sent = []
        if sends:
            sent.append(self._comm.Isend(values.copy(), rank, self._tag + node))
        else:
            self._comm.Recv(values, rank, self._tag + node)
        self.seconds += time.perf_counter() - began
        return sent

    def _await(self, sent: list[MPI.Request]) -> None:
        began = time.perf_counter()
        MPI.Request.Waitall(sent)
        self.seconds += time.perf_counter() - began

    def _halves(self, node: int) -> tuple[_Value, _Value]:
        left, right = self._schedule.children(node)
        return self._value(left), self._value(right)

    def _factor(self, node: int) -> bool:
        join, (left, right) = self._joins[node], self._halves(node)
        begin_front(join.front, join.size)
        add_condensed(join.front, join.size, join.left, left.matrix)
        add_condensed(join.front, join.size, join.right, right.matrix)
        return bool(eliminate_front(join.front, join.size, join.gone, join.factor, self._value(node).matrix))

    def _condense(self, node: int) -> None:
        join, (left, right) = self._joins[node], self._halves(node)
        room = join.room.reshape(-1, SIDE)
        room[:] = 0.0
        room[join.left] += left.vector.reshape(-1, SIDE)
        room[join.right] += right.vector.reshape(-1, SIDE)
        condense_right(join.factor, join.size, join.gone, join.room)
        self._value(node).vector[:] = join.room[join.gone :]

    def _expand(self, node: int) -> None:
        join, (left, right) = self._joins[node], self._halves(node)
        join.room[join.gone :] = self._value(node).vector
        expand_solution(join.factor, join.size, join.gone, join.room)
        room = join.room.reshape(-1, SIDE)
        left.vector[:], right.vector[:] = room[join.left].ravel(), room[join.right].ravel()


def _made(join: Merged, bodies: Sequence[Sequence[int]], left: int, right: int) -> _RankJoin:
    size, gone = SIDE * len(join.bodies), SIDE * len(join.eliminated)
    of_left, of_right = (np.array(join.places(bodies[node]), np.int64) for node in (left, right))
    return _RankJoin(size, gone, of_left, of_right, np.zeros(size * size), np.zeros(gone * size), np.zeros(size))
