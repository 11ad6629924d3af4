"""The bodies of a system, coded by templates: a segment is a few template bodies and which bodies follow them.

Here is everything that knows of the coding: which template and which parent a body has, one body at a time or
as arrays over a range. Names are in `names`, the user's view is in `system`.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mpimbs.base.arrays import Integers
from mpimbs.model.body import Body


@dataclass(frozen=True)
class Segment:
    """Template bodies that follow one another `count` times, each body on the one before."""

    bodies: tuple[Body, ...]  # the templates, in sequence
    count: int  # how often they come
    numbered: bool  # whether each body's name is its template's with a number behind
    first: int  # index in the system of the first body, and of its parent (-1 the world)
    parent: int
    depth: int  # number of joints from the world to the first body

    @property
    def places(self) -> int:
        """Number of bodies before they come again."""
        return len(self.bodies)

    @property
    def size(self) -> int:
        """Number of bodies."""
        return self.places * self.count

    @property
    def last(self) -> int:
        """Index in the system of the last body."""
        return self.first + self.size - 1

    @property
    def deepest(self) -> int:
        """Number of joints from the world to the body that is farthest from it."""
        return self.depth + self.size - 1

    @property
    def times(self) -> Integers:
        """How often each template comes: int64 [len(bodies)]."""
        return np.full(len(self.bodies), self.count)

    @property
    def is_chain(self) -> bool:
        """Whether every body lies on the one before, also the first."""
        return self.parent == self.first - 1

    @property
    def examples(self) -> Iterable[int]:
        """A body that follows each template."""
        return range(self.first, self.first + len(self.bodies))

    @property
    def on_the_world(self) -> int:
        """Number of bodies that lie on the world."""
        return int(self.parent < 0)

    def row(self, k: int) -> int:
        """Return which template body k follows."""
        return (k - self.first) % len(self.bodies)

    def parent_of(self, k: int) -> int:
        """Return the index in the system of the parent of body k; -1 is the world."""
        return self.parent if k == self.first else k - 1

    def depths_of(self, bodies: Integers) -> Integers:
        """Return the number of joints from the world to each of these bodies: int64 [len(bodies)]."""
        return self.depth + bodies - self.first

    def rows(self, lo: int, hi: int) -> Integers:
        """Return which template each of the bodies lo to hi - 1 follows: int64 [hi - lo]."""
        period = len(self.bodies)
        rows = np.empty((-(-(hi - lo) // period), period), np.int64)
        rows[:] = np.roll(np.arange(period), -self.row(lo))
        return rows.ravel()[: hi - lo]

    def sum(self, numbers: Integers, count: int) -> int:
        """Add up a number that each template has over the first `count` bodies."""
        periods, rest = divmod(count, len(self.bodies))
        return periods * int(numbers.sum()) + int(numbers[:rest].sum())

    def numbers(self, count: int) -> tuple[int, int]:
        """Return the numbers of coordinates q and of speeds u of the first `count` bodies."""
        if len(self.bodies) == 1:
            kind = self.bodies[0].joint.kind
            return count * kind.nq, count * kind.nu
        nq, nu = counts(self.bodies)
        return self.sum(nq, count), self.sum(nu, count)

    def where(self, chosen: Callable[[Body], bool]) -> list[int]:
        """Return the places whose template is chosen."""
        if len(self.bodies) == 1:
            return list(range(self.places)) if chosen(self.bodies[0]) else []
        flags = np.array([chosen(body) for body in self.bodies])
        return np.flatnonzero(flags[self.rows(self.first, self.first + self.places)]).tolist()


@dataclass(frozen=True)
class Copies(Segment):
    """Template bodies that make up a tree, `count` times: its first body is the root, each copy's on a body before."""

    within: Integers  # [len(bodies)]: place among the templates of each one's parent; -1 for the root alone
    below: Integers  # [len(bodies)]: number of joints from the root's to each one's own, both included
    # [count]: index in the system of the parent of each copy's root (-1 the world), and number of joints from the world
    # to the root
    roots_on: Integers
    roots_depth: Integers
    in_sequence: bool  # whether each copy but the first lies on the last body of the copy before

    @property
    def deepest(self) -> int:
        return int(self.roots_depth.max() + self.below.max()) - 1

    @property
    def is_chain(self) -> bool:
        return bool(np.array_equal(self.parents(self.first, self.last + 1), np.arange(self.first - 1, self.last)))

    @property
    def on_the_world(self) -> int:
        return int(np.count_nonzero(self.roots_on < 0))

    def parent_of(self, k: int) -> int:
        return int(self.parents(k, k + 1)[0])

    def depths_of(self, bodies: Integers) -> Integers:
        copy, place = np.divmod(bodies - self.first, self.places)
        return self.roots_depth[copy] + self.below[place] - 1

    def parents(self, lo: int, hi: int) -> Integers:
        """Return the index in the system of the parent of each of the bodies lo to hi - 1: int64 [hi - lo]."""
        copy, place = np.divmod(np.arange(lo, hi) - self.first, self.places)
        return np.where(place == 0, self.roots_on[copy], np.arange(lo, hi) - place + self.within[place])


@dataclass(frozen=True)
class Branches(Segment):
    """Bodies that follow templates in any order, each on any one before: a tree. It comes once."""

    row_of_each: Integers  # [size]: which template each body follows
    # [size]: index in the system of each one's parent (-1 the world), and the number of joints from the world to it
    parent_of_each: Integers
    depth_of_each: Integers

    @property
    def places(self) -> int:
        return len(self.row_of_each)

    @property
    def deepest(self) -> int:
        return int(self.depth_of_each.max())

    @property
    def times(self) -> Integers:
        return np.bincount(self.row_of_each, minlength=len(self.bodies))

    @property
    def is_chain(self) -> bool:
        return bool(np.array_equal(self.parent_of_each, np.arange(self.first - 1, self.last)))

    @property
    def examples(self) -> Iterable[int]:
        return (self.first + np.unique(self.row_of_each, return_index=True)[1]).tolist()

    @property
    def on_the_world(self) -> int:
        return int(np.count_nonzero(self.parent_of_each < 0))

    def row(self, k: int) -> int:
        return int(self.row_of_each[k - self.first])

    def parent_of(self, k: int) -> int:
        return int(self.parent_of_each[k - self.first])

    def depths_of(self, bodies: Integers) -> Integers:
        return self.depth_of_each[bodies - self.first]

    def rows(self, lo: int, hi: int) -> Integers:
        return self.row_of_each[lo - self.first : hi - self.first]

    def parents(self, lo: int, hi: int) -> Integers:
        """Return the index in the system of the parent of each of the bodies lo to hi - 1: int64 [hi - lo]."""
        return self.parent_of_each[lo - self.first : hi - self.first]

    def sum(self, numbers: Integers, count: int) -> int:
        return int(numbers[self.row_of_each[:count]].sum())


class Segments:
    """The bodies of a system in order, each body after its parent."""

    def __init__(self) -> None:
        self.n_bodies = 0  # numbers of bodies, of coordinates q and of speeds u
        self.nq = 0
        self.nu = 0
        self.is_chain = True  # whether every body's parent is the body before it, the first on the world
        self._segments: list[Segment] = []
        self._firsts: list[int] = []  # `first` of each segment, for bisection
        self._before: list[tuple[int, int]] = []  # numbers of coordinates and speeds before each segment

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def replaced(self, replacement: Callable[[Body], Body]) -> Segments:
        """Give the same bodies by other templates, of joints of the same sizes."""
        other = copy.copy(self)
        other._segments = [replace(each, bodies=tuple(map(replacement, each.bodies))) for each in self._segments]
        return other

    def revised(self, changed: Mapping[int, Body]) -> Segments:
        """Give the same bodies, but that some follow templates of their own, of joints of the same sizes.

        A template for several bodies is one `Body`, of the name of that which they followed.
        """
        other = copy.copy(self)
        within = np.searchsorted(self._firsts, list(changed), side="right") - 1
        other._segments = list(self._segments)
        for number in np.unique(within).tolist():
            segment = self._segments[number]
            own = {k: changed[k] for k in changed if segment.first <= k <= segment.last}
            other._segments[number] = _revised(segment, own, self.parents(segment.first, segment.last + 1))
        return other

    def append(self, bodies: tuple[Body, ...], parent: int, count: int = 1, numbered: bool = False) -> None:
        """Append the bodies in sequence, `count` times; the first lies on body `parent` (-1 the world)."""
        depth = 1 if parent < 0 else self.depth(parent) + 1
        self._append(Segment(bodies, count, numbered, self.n_bodies, parent, depth))

    def append_copies(self, bodies: tuple[Body, ...], within: Integers, roots_on: Integers, in_sequence: bool) -> None:
        """Append numbered copies of the bodies, which hang together as `within` [len(bodies)] says, on `roots_on`."""
        below = np.ones(len(bodies), np.int64)
        for place, above in enumerate(within.tolist()[1:], 1):
            below[place] += below[above]
        if in_sequence:
            depths = self._depths(roots_on[:1]) + below[-1] * np.arange(len(roots_on))
        else:
            depths = self._depths(roots_on)
        shape = (self.n_bodies, int(roots_on[0]), int(depths[0]))
        self._append(Copies(bodies, len(roots_on), True, *shape, within, below, roots_on, depths, in_sequence))

    def append_branches(self, bodies: tuple[Body, ...], rows: Integers, parents: Integers) -> None:
        """Append numbered bodies that follow the templates `rows` [n] and lie on the bodies `parents` [n] above."""
        depths = self._depths(parents)
        parent = int(parents[0])
        self._append(Branches(bodies, 1, True, self.n_bodies, parent, int(depths[0]), rows, parents, depths))

    def _append(self, segment: Segment) -> None:
        nq, nu = segment.numbers(segment.size)
        self._segments.append(segment)
        self._firsts.append(segment.first)
        self._before.append((self.nq, self.nu))
        self.n_bodies += segment.size
        self.nq += nq
        self.nu += nu
        self.is_chain = self.is_chain and segment.is_chain

    def _depths(self, parents: Integers) -> Integers:
        """Number of joints from the world to each of the bodies that come next: as far as each knows, then doubled."""
        outside = parents < self.n_bodies
        above = np.unique(parents[outside])
        known = self._known_depths(above)
        depths = np.ones(len(parents), np.int64)
        depths[outside] += known[np.searchsorted(above, parents[outside])]
        onward = np.where(outside, -1, parents - self.n_bodies)  # the body whose own depth is yet to be added
        while len(short := np.flatnonzero(onward >= 0)):
            there = onward[short]
            depths[short] += depths[there]
            onward[short] = onward[there]
        return depths

    def _known_depths(self, bodies: Integers) -> Integers:
        """Number of joints from the world to each of these bodies, ascending; -1 is the world."""
        depths = np.zeros(len(bodies), np.int64)
        which = np.searchsorted(self._firsts, bodies, "right") - 1
        for number in np.unique(which[bodies >= 0]).tolist():
            here = which == number
            depths[here] = self._segments[number].depths_of(bodies[here])
        return depths

    def of(self, k: int) -> Segment:
        """Return the segment of body k; IndexError if there is no such body."""
        if not 0 <= k < self.n_bodies:
            raise IndexError(f"body {k} of a system of {self.n_bodies}")
        return self._segments[bisect_right(self._firsts, k) - 1]

    def template(self, k: int) -> Body:
        """Return the template that body k follows."""
        segment = self.of(k)
        return segment.bodies[segment.row(k)]

    def parent(self, k: int) -> int:
        """Return the index of the parent of body k; -1 is the world."""
        return self.of(k).parent_of(k)

    def depth(self, k: int) -> int:
        """Return the number of joints from the world to body k."""
        return int(self.of(k).depths_of(np.array([k]))[0])

    def numbers_before(self, k: int) -> tuple[int, int]:
        """Return the numbers of coordinates q and of speeds u of the bodies 0 to k - 1."""
        if k == self.n_bodies:
            return self.nq, self.nu
        segment = self.of(k)
        q, u = self._before[bisect_right(self._firsts, k) - 1]
        nq, nu = segment.numbers(k - segment.first)
        return q + nq, u + nu

    def within(self, lo: int, hi: int) -> list[Segment]:
        """Segments of the bodies lo to hi - 1; IndexError if there are no such bodies."""
        if not 0 <= lo <= hi <= self.n_bodies:
            raise IndexError(f"bodies {lo} to {hi} of a system of {self.n_bodies}")
        return self._segments[max(bisect_right(self._firsts, lo) - 1, 0) : bisect_right(self._firsts, hi - 1)]

    def rows(self, lo: int, hi: int) -> tuple[Sequence[Body], Integers]:
        """Expand the bodies lo to hi - 1: the templates, and which of them each body follows [hi - lo].

        Of more templates than bodies only those that these follow.

        Raises
        ------
        IndexError
            There are no such bodies.
        """
        here = self.within(lo, hi)
        firsts = np.array([segment.first for segment in here], np.int64)
        lengths = np.array([len(segment.bodies) for segment in here], np.int64)
        rows = np.repeat(np.cumsum(lengths) - lengths, np.diff(np.append(firsts, hi).clip(lo)))
        for segment in here:
            if len(segment.bodies) > 1:
                begin, end = max(segment.first, lo), min(segment.last + 1, hi)
                rows[begin - lo : end - lo] += segment.rows(begin, end)
        bodies = here[0].bodies if len(here) == 1 else [body for segment in here for body in segment.bodies]
        if len(bodies) > hi - lo:
            used, rows = np.unique(rows, return_inverse=True)
            bodies = [bodies[row] for row in used.tolist()]
        return bodies, rows

    def parents(self, lo: int, hi: int) -> Integers:
        """Return the parents of the bodies lo to hi - 1: int64 [hi - lo]; raises IndexError as `rows`."""
        here = self.within(lo, hi)
        firsts = np.array([segment.first for segment in here], np.int64)
        # Every body lies on the one before, but for the first of a segment and where segments branch.
        parents = np.arange(lo - 1, hi - 1)
        inside = firsts >= lo
        parents[firsts[inside] - lo] = np.array([segment.parent for segment in here], np.int64)[inside]
        for segment in here:
            if isinstance(segment, Copies | Branches):
                begin, end = max(segment.first, lo), min(segment.last + 1, hi)
                parents[begin - lo : end - lo] = segment.parents(begin, end)
        return parents

    def expand(self, lo: int, hi: int) -> tuple[Integers, Sequence[Body], Integers]:
        """Expand the bodies lo to hi - 1: each one's parent, the templates, and each one's template."""
        return self.parents(lo, hi), *self.rows(lo, hi)


def counts(bodies: Sequence[Body]) -> tuple[Integers, Integers]:
    """Return the numbers of coordinates q and of speeds u of each body, int64 [len(bodies)] both."""
    kinds = [body.joint.kind for body in bodies]
    return np.array([k.nq for k in kinds], np.int64), np.array([k.nu for k in kinds], np.int64)


def _revised(segment: Segment, changed: Mapping[int, Body], parents: Integers) -> Segment:
    """A segment of which some bodies follow other templates; as short as before where all that followed one do."""
    templates, places = list(segment.bodies), dict[int, int]()
    before = segment.rows(segment.first, segment.last + 1)
    rows = before.copy()
    for k, body in changed.items():
        if id(body) not in places:
            places[id(body)] = len(templates)
            templates.append(body)
        rows[k - segment.first] = places[id(body)]
    instead = np.empty(len(segment.bodies), np.int64)
    instead[before] = rows
    if np.array_equal(instead[before], rows):
        return replace(segment, bodies=tuple(templates[row] for row in instead.tolist()))
    used, rows = np.unique(rows, return_inverse=True)
    bodies = tuple(templates[row] for row in used.tolist())
    depths = segment.depths_of(np.arange(segment.first, segment.last + 1))
    return Branches(bodies, 1, True, segment.first, segment.parent, segment.depth, rows, parents, depths)
