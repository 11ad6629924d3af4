"""What a rank owns, made ready for its sweeps. No MPI.

Trees with loops have looped tiles, swept in lanes: consecutive closed subtrees on one body, with the loops among them,
that repeat.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Integers
from mpimbs.kernels.lanes import native_width
from mpimbs.loops.loop_joints import GEARED
from mpimbs.loops.loop_table import AT_WORLD, ELSEWHERE, LoopTable, loops_of
from mpimbs.model.contents import Contents
from mpimbs.partition.chain import cut_chain
from mpimbs.partition.division import Division
from mpimbs.partition.intervals import NOTHING_OUTSIDE, open_handles, outside_of
from mpimbs.partition.lane_subtrees import choose_lane_subtrees
from mpimbs.partition.shapes import Hashes, Words, closed_subtrees, mixed, places_of, shapes
from mpimbs.parts.bodies.absolute import AbsoluteBodies
from mpimbs.parts.bodies.dca_bodies import DcaBodies
from mpimbs.parts.interval import IntervalPart, IntervalSubchain
from mpimbs.parts.intervals import Intervals
from mpimbs.parts.lane_subtrees import NO_SUBTREES, Chosen
from mpimbs.parts.looped_tiles import LoopedLanes, LoopedTile
from mpimbs.parts.subchain import Outside, Subchain
from mpimbs.parts.subchains import Subchains
from mpimbs.sweep.build import Build

MOST_PERIOD = 8  # subtrees after which a pattern repeats, at the most
MOST_OPEN = 4  # loops that lead out of a lane
LEAST_LANE = 3  # bodies: what is handed over to the trunk takes as long as these
_FAR = 2**40  # beside which offsets of subtrees are small


def choose_looped_tiles(
    made: Build,
    patterns: npt.NDArray[np.integer],
    open_bodies: Integers,
    table: LoopTable,
    inboard: Integers,
    width: int,
) -> list[LoopedTile]:
    """Choose looped tiles of an interval.

    Parameters
    ----------
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
        self.found: list[LoopedTile] = []
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
        if len(siblings) < self._width or any(
            looped_tile.first <= siblings[0] < looped_tile.last for looped_tile in self.found
        ):
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
                        and self._fits(self._looped_tile(siblings, at, used))
                    ):
                        best = used, at
            used, begin = best
            if used:
                self.found.append(self._looped_tile(siblings, begin, used))
                waiting += [(first, begin), (begin + used, last)]

    def _looped_tile(self, siblings: Integers, begin: int, used: int) -> LoopedTile:
        first, last = int(siblings[begin]), int(siblings[begin + used - 1])
        return LoopedTile(first, (last + int(self._made.sizes[last]) - first) // self._width, self._width)

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

    def _fits(self, looped_tile: LoopedTile) -> bool:
        """Whether the lanes of a looped tile take the same steps, and all of their loops can be closed or handed on."""
        if looped_tile.length < LEAST_LANE:
            return False
        within = looped_tile.places[:, None] + np.arange(looped_tile.length)
        if not self._closed[within].all():
            return False
        if not (self._patterns[within] == self._patterns[within[0]]).all():
            return False
        sizes = self._made.sizes[within]  # of the last subtree, too: more may hang on that
        if not (sizes == sizes[0]).all():
            return False
        above = self._parent[within]
        own = above >= within[:, :1]
        back = np.where(own, within - above, above)
        if not (back == back[0]).all():
            return False
        lanes = LoopedLanes(self._made, looped_tile, self._table, self._inboard)
        if not lanes.alike or not lanes.loops.size or not self._fit[lanes.loops].all():
            return False
        if not (self._kinds[lanes.loops] == self._kinds[lanes.loops[0]]).all():
            return False
        on_world = lanes.on < 0 and self._inboard[-1 - lanes.on] == AT_WORLD
        worldly = bool((lanes.ends == AT_WORLD).any())
        if lanes.closings.compressed_at or (worldly and not on_world):
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


def own_subchains(system: Contents, division: Division, rank: int) -> Subchains:
    """Make the subchains of a rank, with their tiles."""
    mine = division.bounds[division.owners[rank] : division.owners[rank + 1] + 1].tolist()
    return Subchains([_subchain(system, first, last, division.width) for first, last in itertools.pairwise(mine)])


def own_intervals(system: Contents, division: Division, rank: int, apart: bool = False) -> Intervals:
    """Make the intervals of a tree's bodies that are a rank's.

    `apart`: all that hangs on one body has equations of its own, to be separated.
    """
    order, bounds, owners = division.order, division.bounds, division.owners
    loops = loops_of(system) if system.loops else None

    def part(first: int, last: int, outside: Outside, width: int) -> IntervalPart:
        table = loops.within(first, last) if loops is not None else None

        def choose(made: Build) -> Chosen:
            patterns = system.joint_patterns(first, last)
            looped = np.unique(table.bodies[table.bodies >= 0]) if table is not None else None
            opened, looped_tiles = outside.open - first, []
            if table is not None:
                looped_tiles = choose_looped_tiles(made, patterns, opened, table, outside.inboard, width)
            lanes = looped_tiles[0].width if looped_tiles else width
            return choose_lane_subtrees(made, patterns, opened, lanes, division.width == 0, looped, looped_tiles)

        return IntervalPart(system, first, last, outside, choose, table)

    if order is None:  # one interval
        only = part(0, system.n_bodies, NOTHING_OUTSIDE, division.width)
        return Intervals([only], only.whole)
    handles = open_handles(order)[bounds]
    most = max(1, int(handles.max()))
    hangs = bool(handles.any())
    alone = not apart and not hangs
    independent = alone and (loops is None or not len(loops.between(division.cuts)))
    pieces = list(itertools.pairwise(bounds[owners[rank] : owners[rank + 1] + 1].tolist()))
    found: dict[tuple[int, int], IntervalPart] = {}
    width = division.width
    for piece in sorted(pieces, key=lambda ends: ends[0] - ends[1]):  # all have as many lanes as the largest with any
        found[piece] = part(*piece, outside_of(order, *piece, most, apart), width)
        width = width or (found[piece].width if found[piece].width > 1 else 0)
    parts = [found[piece] for piece in pieces]
    if len(parts) == 1:
        return Intervals(parts, parts[0].whole, independent, hangs)
    first, last = division.cuts[rank : rank + 2].tolist()
    whole = IntervalSubchain(system, first, last, outside_of(order, first, last, most))
    return Intervals(parts, whole, independent, hangs)


def own_cut_intervals(system: Contents, division: Division, rank: int) -> Intervals:
    """Make the intervals of a rank, whose joints are to be separated."""
    return own_intervals(system, division, rank, apart=True)


def own_joined_intervals(system: Contents, division: Division, rank: int) -> Intervals:
    """Make the intervals of a rank, which are joined to those of others whatever hangs on what: a schedule says so."""
    found = own_intervals(system, division, rank)
    found.independent = False
    return found


def own_absolute_bodies(system: Contents, division: Division, rank: int) -> AbsoluteBodies:
    """Make the bodies of a rank, none of which is swept."""
    order, (first, last) = division.order, division.cuts[rank : rank + 2].tolist()
    handles = np.zeros(1) if order is None else open_handles(order)[division.bounds]
    outside = NOTHING_OUTSIDE if order is None else outside_of(order, first, last, max(1, int(handles.max())))
    loops = loops_of(system).within(first, last) if system.loops else None
    return AbsoluteBodies(IntervalPart(system, first, last, outside, lambda _: NO_SUBTREES, loops), bool(handles.any()))


def own_bodies(system: Contents, division: Division, rank: int) -> DcaBodies:
    """Halve the bodies of a rank down to single ones.

    Raises
    ------
    InputError
        A body has no inverse inertia.
    """
    first, last = division.cuts[rank : rank + 2].tolist()
    return DcaBodies(system, first, last)


def own_bodies_and_terminal(system: Contents, division: Division, rank: int) -> DcaBodies:
    """Halve the bodies of a rank; at the tip only the first is a leaf, on which the rest hangs as a subchain.

    Raises
    ------
    InputError
        A leaf has no inverse inertia.
    """
    first, last = division.cuts[rank : rank + 2].tolist()
    if last < system.n_bodies or last - first < 2:
        return DcaBodies(system, first, last)
    return DcaBodies(system, first, last, _subchain(system, first + 1, last, division.width))


def _subchain(system: Contents, first: int, last: int, width: int) -> Subchain:
    tiles = cut_chain(system.joint_patterns(first, last), width) if system.is_chain else None
    return Subchain(system, first, last, tiles)
