"""In which order the bodies of a rank, and those that ranks share, are eliminated from equations between them. No MPI.

Elements, such as a body with its inboard joint or a loop joint, stand in a sequence; each couples a few bodies. A
binary tree over the sequence assembles them two by two [Malczyk & Fraczek 2012, section 2.2.2], and eliminates every
body as soon as all that couples it is in. What is left of a node is the bodies that it shares with the rest: two of a
chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from mpimbs.partition.schedule import Schedule

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
