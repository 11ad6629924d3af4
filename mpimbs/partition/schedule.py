"""Schedules of an assembly: in which order its leaves are joined, and by which ranks. No MPI.

A schedule is a binary tree. Its leaves are neighbours in the depth-first order of the bodies; a join makes one of two
neighbours, each a leaf or what another join has made [Yamane & Nakamura, figure 6]. Leaves are the nodes 0 to L - 1,
join k makes node L + k, the last one the whole. A join is done by one rank, or by several that each need the result:
those then need not be told the loads that it finds on the way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

Ranks = tuple[int, ...]


class Step(NamedTuple):
    """One step of a rank's schedule; of one node, but for joins."""

    kind: int  # one of those below
    node: int  # what is sent, received or made
    rank: int = -1  # to whom, from whom


# Up: a value is sent, received, made. Down: loads of a node are found for its two halves, sent, received.
SEND_VALUE, RECEIVE_VALUE, JOIN, SPREAD, SEND_LOADS, RECEIVE_LOADS = range(6)


class Scheduled(NamedTuple):
    """A join: the nodes that it joins, and the ranks that do it, ascending."""

    left: int
    right: int
    ranks: Ranks


class Schedule:
    """A binary tree over leaves, with the ranks that own or make its nodes.

    Parameters
    ----------
    owners : sequence of int
        The rank of each leaf, ascending.
    joins : sequence of Scheduled
        Each behind those that it needs.
    """

    def __init__(self, owners: Sequence[int], joins: Sequence[Scheduled]) -> None:
        self.owners, self.joins = tuple(owners), tuple(joins)
        self.size = self.owners[-1] + 1  # number of ranks
        # the ranks that have each node
        self.holders: list[Ranks] = [(owner,) for owner in self.owners] + [join.ranks for join in self.joins]
        self.above = [-1] * len(self.holders)  # the node that each is joined into; -1 of the whole
        # first leaf of each node, and the leaf after its last
        self.spans = [(leaf, leaf + 1) for leaf in range(len(self.owners))]
        for node, join in enumerate(self.joins, len(self.owners)):
            self.above[join.left] = self.above[join.right] = node
            self.spans.append((self.spans[join.left][0], self.spans[join.right][1]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and (self.owners, self.joins) == (other.owners, other.joins)

    __hash__ = None  # type: ignore[assignment]

    def children(self, node: int) -> tuple[int, int]:
        """The nodes that a join joins."""
        left, right, _ = self.joins[node - len(self.owners)]
        return left, right

    @cached_property
    def crossing(self) -> list[int]:
        """The nodes of which something is sent."""
        return [node for node, above in enumerate(self.above) if above >= 0 and any(told[node] for told in self._asked)]

    def depth(self) -> int:
        """Joins on the longest path from a leaf to the whole."""
        depths = [0] * len(self.owners)
        for left, right, _ in self.joins:
            depths.append(1 + max(depths[left], depths[right]))
        return depths[-1]

    @cached_property
    def _asked(self) -> tuple[list[list[tuple[int, int]]], list[list[tuple[int, int]]]]:
        """Give the messages of each node: who sends its value to whom, and who its loads."""
        values: list[list[tuple[int, int]]] = [[] for _ in self.holders]
        loads: list[list[tuple[int, int]]] = [[] for _ in self.holders]
        for node, above in enumerate(self.above):
            if above < 0:
                continue
            mine, theirs = self.holders[node], self.holders[above]
            values[node] = _told(mine, theirs)
            loads[node] = _told(theirs, mine)
        return values, loads

    @cached_property
    def steps(self) -> list[list[Step]]:
        """Give the steps of each rank, in order: up to the whole, and down again."""
        values, loads = self._asked
        found: list[list[Step]] = [[] for _ in range(self.size)]

        def tell(node: int, pairs: list[tuple[int, int]], kind: int) -> None:
            for source, target in pairs:
                found[source].append(Step(kind, node, target))

        def hear(node: int, pairs: list[tuple[int, int]], kind: int) -> None:
            for source, target in pairs:
                found[target].append(Step(kind, node, source))

        count = len(self.owners)
        for node in range(count):
            tell(node, values[node], SEND_VALUE)
        for node, (left, right, ranks) in enumerate(self.joins, count):
            hear(left, values[left], RECEIVE_VALUE)
            hear(right, values[right], RECEIVE_VALUE)
            for rank in ranks:
                found[rank].append(Step(JOIN, node))
            tell(node, values[node], SEND_VALUE)
        for node in range(len(self.holders) - 1, -1, -1):
            hear(node, loads[node], RECEIVE_LOADS)
            if node < count:
                continue
            halves = self.children(node)
            sources = {source for half in halves for source, _ in loads[half]}
            wanted = sources.union(*(self.holders[half] for half in halves))
            for rank in self.holders[node]:
                if rank in wanted:
                    found[rank].append(Step(SPREAD, node))
            for half in halves:
                tell(half, loads[half], SEND_LOADS)
        return found


def _told(sources: Ranks, targets: Ranks) -> list[tuple[int, int]]:
    """Who of those who have something tells whom of those who need it and don't have it."""
    missing = [rank for rank in targets if rank not in sources]
    return [(sources[min(k, len(sources) - 1)], rank) for k, rank in enumerate(missing)]


def owners_of(counts: Sequence[int]) -> list[int]:
    """The rank of each leaf, of so many leaves each."""
    return [rank for rank, count in enumerate(counts) for _ in range(count)]


class Growing:
    """A schedule while it is made.

    Parameters
    ----------
    owners : sequence of int
        As of `Schedule`.
    """

    def __init__(self, owners: Sequence[int]) -> None:
        self._owners, self._joins = owners, list[Scheduled]()

    def join(self, left: int, right: int, ranks: Ranks) -> int:
        """Join two nodes; gives the number of what that makes."""
        self._joins.append(Scheduled(left, right, ranks))
        return len(self._owners) + len(self._joins) - 1

    def from_the_tip(self, nodes: Sequence[int], ranks: Sequence[Ranks]) -> int:
        """Join neighbours one after the other, the last two first; `ranks` of the join to each node's left."""
        node = nodes[-1]
        for left, who in zip(reversed(nodes[:-1]), reversed(ranks), strict=True):
            node = self.join(left, node, who)
        return node

    def made(self) -> Schedule:
        """The schedule."""
        return Schedule(self._owners, self._joins)


def of_ranks(growing: Growing, counts: Sequence[int]) -> list[int]:
    """Join the leaves of each rank from the tip on; gives what each has then."""
    ends = [sum(counts[: rank + 1]) for rank in range(len(counts))]
    return [
        growing.from_the_tip(range(end - count, end), [(rank,)] * (count - 1))
        for rank, (count, end) in enumerate(zip(counts, ends, strict=True))
    ]


def bisected(low: int, high: int) -> int:
    """The rank with which the right half of ranks low to high - 1 begins: the left is the larger by at most one."""
    return low + (high - low + 1) // 2


def balanced(counts: Sequence[int]) -> Schedule:
    """The leaves of each rank from the tip on; then ranks by halves, each join by all ranks below it: a butterfly.

    Parameters
    ----------
    counts : sequence of int
        Leaves of each rank, one at least.
    """
    growing = Growing(owners_of(counts))
    nodes = of_ranks(growing, counts)

    def group(low: int, high: int) -> int:
        if high - low == 1:
            return nodes[low]
        middle = bisected(low, high)
        return growing.join(group(low, middle), group(middle, high), tuple(range(low, high)))

    group(0, len(counts))
    return growing.made()


def serial(counts: Sequence[int]) -> Schedule:
    """All leaves from the tip on, one after the other, each join by the rank of its left half.

    Parameters
    ----------
    counts : sequence of int
        Leaves of each rank, one at least.
    """
    owners = owners_of(counts)
    growing = Growing(owners)
    growing.from_the_tip(range(len(owners)), [(owner,) for owner in owners[:-1]])
    return growing.made()
