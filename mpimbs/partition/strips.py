"""Which bodies of a tree with loops are swept in lanes: consecutive closed subtrees on one body, with the loops among
them, that repeat."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from mpimbs.kernels.lanes import native_width
from mpimbs.loops.loop_joints import GEARED
from mpimbs.loops.loop_table import AT_WORLD, ELSEWHERE, LoopTable
from mpimbs.partition.shapes import Hashes, Words, closed_subtrees, mixed, places_of, shapes
from mpimbs.parts.strips import Strip, StripLanes
from mpimbs.sweep.build import Build

Integers = npt.NDArray[np.int64]

MOST_PERIOD = 8  # subtrees after which a pattern repeats, at the most
MOST_OPEN = 4  # loops that lead out of a lane
LEAST_LANE = 3  # bodies: what is handed over to the trunk takes as long as these
_FAR = 2**40  # beside which offsets of subtrees are small


def choose_strips(
    made: Build,
    patterns: npt.NDArray[np.integer],
    open_bodies: Integers,
    table: LoopTable,
    inboard: Integers,
    width: int,
) -> list[Strip]:
    """Choose strips of an interval.

    Parameters
    ----------
    made : Build
    patterns : array [n]
        Of each body, a number for its joint.
    open_bodies : array
        Bodies that have children elsewhere.
    table : LoopTable
        The loops of which an end is in the interval.
    inboard : array
        The bodies outside; -1 the world.
    width : int
        Number of lanes; 0: as many as the processor has.
    """
    width = width or native_width()
    if width == 1 or not len(table):
        return []
    return _Choice(made, patterns, open_bodies, table, inboard, width).found


class _Choice:
    def __init__(
        self,
        made: Build,
        patterns: npt.NDArray[np.integer],
        open_bodies: Integers,
        table: LoopTable,
        inboard: Integers,
        width: int,
    ) -> None:
        self._made, self._table, self._inboard, self._width = made, table, inboard, width
        self._patterns = patterns[made.order]
        self._shapes = shapes(Words(made, patterns), made.sizes)
        self._closed = closed_subtrees(made, open_bodies)
        place = places_of(made)
        inside = table.bodies >= 0
        self._ends = np.where(inside, place[np.where(inside, table.bodies, 0)], table.bodies)
        kinds = np.stack((table.turns, table.constraints), axis=1)
        self._kinds = np.unique(kinds, axis=0, return_inverse=True)[1].reshape(-1)
        plain = (table.driven == 0) & (table.pitch == 0.0) & (table.turns != GEARED)
        self._fit = plain & (table.bodies != ELSEWHERE).all(axis=1)
        self.found: list[Strip] = []
        above = made.parent[made.order]
        self._parent = np.where(above >= 0, place[np.maximum(above, 0)], above)
        by_parent = np.lexsort((np.arange(len(place)), self._parent))
        begins = np.flatnonzero(np.diff(self._parent[by_parent])) + 1
        for siblings in np.split(by_parent, begins):
            if len(siblings) >= width:
                ends = siblings + made.sizes[siblings]
                for some in np.split(siblings, np.flatnonzero(siblings[1:] != ends[:-1]) + 1):
                    self._among(some)
        self.found.sort()

    def _among(self, siblings: Integers) -> None:
        """Choose of subtrees on one body that stand one after the other, given their places."""
        if len(siblings) < self._width or any(strip.first <= siblings[0] < strip.last for strip in self.found):
            return
        words = self._words(siblings)
        waiting = [(0, len(siblings))]
        while waiting:
            first, last = waiting.pop()
            best = 0, 0
            for period in range(1, min(MOST_PERIOD, (last - first) // self._width) + 1):
                begin, count = _longest(words[first : last - period] == words[first + period : last])
                # the first and the last may have no neighbours to have loops with
                for before, more in ((1, 2), (1, 1), (0, 1), (0, 0)):
                    used = (count // period + 1 + more) // self._width * period * self._width
                    at = first + begin - before * period
                    if (
                        used > best[0]
                        and first <= at
                        and at + used <= last
                        and self._fits(self._strip(siblings, at, used))
                    ):
                        best = used, at
            used, begin = best
            if used:
                self.found.append(self._strip(siblings, begin, used))
                waiting += [(first, begin), (begin + used, last)]

    def _strip(self, siblings: Integers, begin: int, used: int) -> Strip:
        first, last = int(siblings[begin]), int(siblings[begin + used - 1])
        return Strip(first, (last + int(self._made.sizes[last]) - first) // self._width, self._width)

    def _words(self, siblings: Integers) -> Hashes:
        """A number for each of some subtrees: the same where they and the ends of loops in them are alike."""
        made, n = self._made, len(siblings)
        first, last = int(siblings[0]), int(siblings[-1] + made.sizes[siblings[-1]])
        words = mixed(self._shapes[siblings], made.sizes[siblings])
        here = (self._ends >= first) & (self._ends < last)
        which = np.where(here, np.searchsorted(siblings, self._ends, side="right") - 1, 0)
        position = np.where(here, self._ends - siblings[which], 0)
        bad = ~self._closed[siblings]
        for end in range(2):
            some = np.flatnonzero(here[:, end])
            own, other = which[some, end], 1 - end
            among = here[some, other]
            offset = np.where(among, which[some, other] - own, _FAR)
            there = np.where(among, position[some, other], self._ends[some, other])
            letters = position[some, end], np.full(len(some), end), self._kinds[some], offset, there
            np.add.at(words, own, functools.reduce(mixed, letters))
            bad[own[~self._fit[some]]] = True
        words[bad] = mixed(np.full(n, -7), np.arange(n))[bad]
        return words

    def _fits(self, strip: Strip) -> bool:
        """Whether the lanes of a strip take the same steps, and all of their loops can be closed or handed on."""
        if strip.length < LEAST_LANE:
            return False
        within = strip.places[:, None] + np.arange(strip.length)
        if not self._closed[within].all():
            return False
        if not (self._patterns[within] == self._patterns[within[0]]).all():
            return False
        above = self._parent[within]
        own = above >= within[:, :1]
        back = np.where(own, within - above, above)
        if not (back == back[0]).all():
            return False
        lanes = StripLanes(self._made, strip, self._table, self._inboard)
        if not lanes.alike or not lanes.loops.size or not self._fit[lanes.loops].all():
            return False
        if not (self._kinds[lanes.loops] == self._kinds[lanes.loops[0]]).all():
            return False
        on_world = lanes.on < 0 and self._inboard[-1 - lanes.on] == AT_WORLD
        worldly = bool((lanes.ends == AT_WORLD).any())
        if lanes.closings.settled_at or (worldly and not on_world):
            return False
        return len(lanes.closings.open_groups) <= MOST_OPEN


def _longest(same: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Where the longest sequence of true values begins, and how many they are."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
    if not len(edges):
        return 0, 0
    begins, counts = edges[::2], edges[1::2] - edges[::2]
    longest = int(np.argmax(counts))
    return int(begins[longest]), int(counts[longest])
