"""The bodies of a system, run-length coded: a segment is a few template bodies and how often they come.

Here is everything that knows of the coding: which template and which parent a body has, one body at a time or
as arrays over a range. Names are in `names`, the user's view is in `system`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpimbs.model.body import Body

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Segment:
    """Template bodies that follow one another `count` times, each body on the one before.

    Attributes
    ----------
    bodies : tuple of Body
        The templates, in sequence.
    count : int
        How often they come.
    numbered : bool
        Whether each body's name is its template's with a number behind.
    first, parent : int
        Index in the system of the first body, and of its parent (-1 the world).
    depth : int
        Number of joints from the world to the first body.
    """

    bodies: tuple[Body, ...]
    count: int
    numbered: bool
    first: int
    parent: int
    depth: int

    @property
    def size(self) -> int:
        """Number of bodies."""
        return len(self.bodies) * self.count

    @property
    def last(self) -> int:
        """Index in the system of the last body."""
        return self.first + self.size - 1


class Segments:
    """The segments of a system in order, each body after its parent."""

    def __init__(self) -> None:
        self.n_bodies = 0
        self.nq = 0
        self.nu = 0
        self._segments: list[Segment] = []
        self._firsts: list[int] = []  # `first` of each segment, for bisection

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def append(self, bodies: tuple[Body, ...], parent: int, count: int = 1, numbered: bool = False) -> None:
        """Append the bodies in sequence, `count` times; the first lies on body `parent` (-1 the world)."""
        depth = 1 if parent < 0 else self.depth(parent) + 1
        segment = Segment(bodies, count, numbered, self.n_bodies, parent, depth)
        self._segments.append(segment)
        self._firsts.append(segment.first)
        self.n_bodies += segment.size
        self.nq += count * sum(body.joint.kind.nq for body in bodies)
        self.nu += count * sum(body.joint.kind.nu for body in bodies)

    def of(self, k: int) -> Segment:
        """Return the segment of body k; IndexError if there is no such body."""
        if not 0 <= k < self.n_bodies:
            raise IndexError(f"body {k} of a system of {self.n_bodies}")
        return self._segments[bisect_right(self._firsts, k) - 1]

    def template(self, k: int) -> Body:
        """Return the template that body k follows."""
        segment = self.of(k)
        return segment.bodies[(k - segment.first) % len(segment.bodies)]

    def parent(self, k: int) -> int:
        """Return the index of the parent of body k; -1 is the world."""
        segment = self.of(k)
        return segment.parent if k == segment.first else k - 1

    def depth(self, k: int) -> int:
        """Return the number of joints from the world to body k."""
        segment = self.of(k)
        return segment.depth + k - segment.first

    def expand(self, lo: int, hi: int) -> tuple[Integers, list[Body], Integers]:
        """Expand the bodies lo to hi - 1: each one's parent, the templates, and each one's template.

        Raises
        ------
        IndexError
            There are no such bodies.
        """
        if not 0 <= lo <= hi <= self.n_bodies:
            raise IndexError(f"bodies {lo} to {hi} of a system of {self.n_bodies}")
        here = self._segments[max(bisect_right(self._firsts, lo) - 1, 0) : bisect_right(self._firsts, hi - 1)]
        firsts = np.array([segment.first for segment in here], np.int64)
        lengths = np.array([len(segment.bodies) for segment in here], np.int64)
        bodies = [body for segment in here for body in segment.bodies]

        # Every body lies on the one before, but for the first of a segment.
        parents = np.arange(lo - 1, hi - 1)
        inside = firsts >= lo
        parents[firsts[inside] - lo] = np.array([segment.parent for segment in here], np.int64)[inside]

        k = np.arange(lo, hi)
        segment_of = np.repeat(np.arange(len(here)), np.diff(np.append(firsts, hi).clip(lo)))
        rows = (np.cumsum(lengths) - lengths)[segment_of] + (k - firsts[segment_of]) % lengths[segment_of]
        return parents, bodies, rows
