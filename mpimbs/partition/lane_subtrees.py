"""Which bodies of a tree are swept in lanes: closed subtrees side by side, and stretches along a path.

Paths are sequences of links: what hangs beside them goes with their bodies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.sizes import tuned
from mpimbs.kernels.lanes import WIDTHS, native_width
from mpimbs.partition.chain import FIXED_PATTERN, body_costs, cut_tiles, longest_lanes
from mpimbs.partition.shapes import Subtrees, Words, closed_subtrees, mixed, places_of, shapes
from mpimbs.parts.lane_subtrees import Chosen, Group, Stretch
from mpimbs.parts.looped_tiles import LoopedTile
from mpimbs.parts.tiles import Tile
from mpimbs.sweep.build import NO_BODIES
from mpimbs.sweep.structure import BIAS, PIVOT, PLACE


class Links:
    """The bodies of a depth-first order with all that hangs beside the heaviest path through each, path after path.

    Parameters
    ----------
    sizes : array [n]
        Bodies of the subtree at each place, of which the heaviest child comes last: so a path has all places whose
        subtrees end together.
    patterns : array [n]
        Of the joint at each place, as `Contents.joint_patterns` numbers them: bodies that are fixed to the one before
        on their path are of its link, see `lanes.cut_chain`.
    """

    def __init__(self, words: Words, sizes: Integers, patterns: Integers) -> None:
        ends = np.arange(len(sizes)) + sizes
        places = np.argsort(ends, kind="stable")
        begins = np.append(True, ends[places][1:] != ends[places][:-1])[: len(places)]  # a path
        begins |= patterns[places] != FIXED_PATTERN
        self.first = places[begins]  # [n]: place of each link's body, its first
        ends = ends[self.first]
        self.behind = np.searchsorted(ends, ends, "right")  # [n]: the link behind the path that each is on
        following = np.append(self.first[1:], 0)
        last = np.where(np.arange(1, len(ends) + 1) < self.behind, following, ends)
        self.letters = words.between(self.first, last)  # [n]: a number for each: the same where they are alike
        self._counts = last - self.first  # bodies of each
        self._together = self.behind - np.searchsorted(ends, ends)  # links of its path
        self._number = np.full(len(sizes), -1)
        self._number[self.first] = np.arange(len(self.first))

    @property
    def begun(self) -> npt.NDArray[np.bool_]:
        """At which places a link begins [n]."""
        return self._number >= 0

    def from_place(self, first: int) -> slice:
        """The links of the path from a place outward."""
        number = int(self._number[first])
        return slice(number, int(self.behind[number]))

    def longest_lanes(self, width: int) -> Integers:
        """Links of a lane of the longest tile that begins at each link; 0 if none does [n]."""
        longest = np.zeros(len(self.first), np.int64)
        on = np.flatnonzero(self._together >= width)
        if len(on):
            letters = self.letters[on] + mixed(self.behind[on], np.full(len(on), -3))  # none of two paths are equal
            places = np.concatenate(([0], np.cumsum(self._counts[on])))
            limits = tuned().least_lane, tuned().most_lane
            longest[on] = longest_lanes(letters, width, *limits, places, int(self._together[on].max()))
        return longest


MOST_ON_PATH = 16  # bodies of a stretch for each of its path
WITHOUT_SIDES = 0.9  # of a subtree is on its heaviest child: what is beside it hardly counts
PAYING = (0.0, 0.45, 0.9)  # time of a stretch over that in doubles up to which it is chosen
BYTES_OF_A_BODY = 8 * (PLACE + BIAS + PIVOT)  # of workspace


class _Tree:
    """The tree of which subtrees are chosen to be swept in lanes: a rank's bodies, by their places in the depth-first
    order.

    Parameters
    ----------
    patterns : array [n]
        Of each body, a number for its joint.
    open_bodies : array
        Bodies that have children elsewhere.
    looped : array, optional
        Bodies at which loops end, of a system with loops.
    looped_tiles : sequence of LoopedTile, optional
        What is in lanes already.
    """

    def __init__(
        self,
        made: Subtrees,
        patterns: npt.NDArray[np.integer],
        open_bodies: Integers,
        looped: Integers | None = None,
        looped_tiles: Sequence[LoopedTile] = (),
    ) -> None:
        self.n, self.sizes = len(made.order), made.sizes
        self._words = Words(made, patterns)
        self.shape = shapes(self._words, made.sizes)
        self.closed = closed_subtrees(made, open_bodies if looped is None else np.concatenate((open_bodies, looped)))
        place = np.append(places_of(made), -1)
        self.parent = place[np.maximum(made.parent[made.order], -1)]
        self._made: dict[tuple[int, int], Stretch | None] = {}  # by first body and width
        self._relative: dict[tuple[int, int], float] = {}  # time over that in doubles, by shape and width
        self._lanes: dict[int, Integers] = {}  # by width
        self._patterns = patterns[made.order].astype(np.int64)
        self._links = Links(self._words, self.sizes, self._patterns)
        self.costs = costs_of(self._patterns)
        self._open = place[open_bodies] if looped is None else NO_BODIES
        self.looped_tiles = list(looped_tiles)
        self.free = np.ones(self.n, bool)
        for looped_tile in looped_tiles:
            self.free[looped_tile.first : looped_tile.last] = False

    def stretches(self, width: int, most_cost: float) -> list[Stretch]:
        """Choose stretches that cost no more than so much per body, the largest first."""
        found: list[Stretch] = []
        free = self.free.copy()
        for first in self._begins(width).tolist() if most_cost > 0.0 else []:
            alike = int(self.shape[first]) if self.closed[first] else -1, width
            if not free[first] or self._relative.get(alike, 0.0) > most_cost:
                continue
            if (first, width) not in self._made:
                self._made[first, width] = self._stretch(first, width)
            stretch = self._made[first, width]
            if alike not in self._relative:
                alone = float(self.costs[first : first + self.sizes[first]].sum())
                self._relative[alike] = np.inf if stretch is None else stretch_cost(stretch, self.costs) / alone
            if stretch is not None and self._relative[alike] <= most_cost:
                free[stretch.first : stretch.last] = False
                found.append(stretch)
        return found

    def alike(self, places: Integers, count: int) -> Integers:
        """Those of places from which on so many bodies are as from the first one on, body by body: numbers may be equal
        by chance."""
        within = places[:, None] + np.arange(count)
        back = within[:, 1:] - self.parent[within[:, 1:]]
        same = (self._patterns[within] == self._patterns[within[0]]).all(axis=1)
        return places[same & (back == back[0]).all(axis=1)]

    def _begins(self, width: int) -> Integers:
        """Where stretches may begin: large subtrees on the world, outside, or beside others that count."""
        inner = self.parent >= 0
        begins = ~inner | (self.sizes < WITHOUT_SIDES * self.sizes[self.parent])
        begins &= (self.sizes >= width * tuned().least_lane) & self._links.begun
        begins &= (self.closed & self._has_lanes(width)) | (~inner & ~self.closed & (len(self._open) == 1))
        places = np.flatnonzero(begins)
        return places[np.argsort(-self.sizes[places], kind="stable")]

    def _has_lanes(self, width: int) -> npt.NDArray[np.bool_]:
        """Whether a tile in lanes begins on the heaviest path from each place outward [n]."""
        found = np.zeros(self.n, bool)
        links = self._links
        begins, count = np.flatnonzero(self._longest_lanes(width)), len(links.first)
        found[links.first] = np.append(begins, count)[np.searchsorted(begins, np.arange(count))] < links.behind
        return found

    def _longest_lanes(self, width: int) -> Integers:
        if width not in self._lanes:
            self._lanes[width] = self._links.longest_lanes(width)
        return self._lanes[width]

    def _stretch(self, first: int, width: int) -> Stretch | None:
        """Cut the subtree at a place along its heaviest path; None where too much hangs on that, or nothing is cut."""
        last, is_open = first + int(self.sizes[first]), not self.closed[first]
        here = self._links.from_place(first)
        path, letters = self._links.first[here], self._links.letters[here]
        longest: Integers | None = self._longest_lanes(width)[here]
        if is_open:
            tip = int(self._open[0])
            path = path[(path <= tip) & (tip < path + self.sizes[path])]
            letters, longest = self._words.between(path, np.append(path[1:], last)), None
            if path[-1] != tip:  # what is on the path beside the heaviest is in the last piece, which is like no other
                letters[-1] = ~letters[-1]
        if last - first > MOST_ON_PATH * len(path) or len(path) < width:
            return None
        tiles = cut_tiles(letters, width, places=np.append(path, last), longest=longest)
        lanes = [tile for tile in tiles if tile.width > 1]
        alike = all(self._lanes_agree(tile, last) for tile in lanes)
        ends = np.arange(first, last) + self.sizes[first:last]
        whole = first + np.flatnonzero(ends == last)  # the path with what is fixed on it
        if is_open:
            whole = whole[(whole <= tip) & (tip < whole + self.sizes[whole])]
            whole = whole if whole[-1] == tip else np.append(whole, tip)
        return Stretch(first, last, tiles, whole, is_open) if lanes and alike else None

    def _lanes_agree(self, tile: Tile, last: int) -> bool:
        """Whether the lanes of a tile hang together alike, and what is behind each hangs on the same body of it."""
        begins = tile.first + tile.length * np.arange(tile.width + 1)
        behind = begins[1 : tile.width + (begins[-1] < last)]
        above = behind - self.parent[behind]
        return len(self.alike(begins[:-1], tile.length)) == tile.width and bool((above == above[:1]).all())


def costs_of(patterns: npt.NDArray[np.integer]) -> Floats:
    """Time of each body swept in doubles, by its pattern, in that of one on a revolute joint."""
    return body_costs(patterns // 2) / (1.0 + tuned().axis_cost)


def stretch_cost(stretch: Stretch, costs: Floats) -> float:
    """Predicted time of the sweeps of a stretch, in that of a revolute body swept in doubles; `costs` [n] of places."""
    t = tuned()
    rows = [tile.length * (row_cost(tile.width) if tile.width > 1 else 1.0) for tile in stretch.tiles]
    mean = float(costs[stretch.first : stretch.last].mean())
    return t.tip_ratio * mean * sum(rows) + sum(t.join_cost * tile.width for tile in stretch.tiles)


def row_cost(width: int) -> float:
    """Time of a row of bodies side by side, in that of a body swept in doubles."""
    return float(getattr(tuned(), f"row_of_{width}"))


def tile_cost(width: int, rows: float) -> float:
    """Predicted time of the sweeps of a tile of closed subtrees, each of which takes `rows` in doubles."""
    return tuned().tile_start + row_cost(width) * rows


class _Choice:
    """LaneSubtrees that are chosen one after the other.

    Parameters
    ----------
    width : int
        Number of lanes.
    stretches : list of Stretch
        Those chosen already.
    """

    def __init__(self, tree: _Tree, width: int, stretches: list[Stretch]) -> None:
        self._tree, self._width = tree, width
        self._free = tree.free.copy()  # not chosen yet
        for stretch in stretches:
            self._free[stretch.first : stretch.last] = False
        self.chosen = Chosen([], stretches, tree.looped_tiles)

    def take(self, usable: npt.NDArray[np.bool_], least: int) -> None:
        """Choose tiles of so many closed subtrees at the least, of those that are usable, the largest first."""
        sizes, shape = self._tree.sizes, self._tree.shape
        candidates = np.flatnonzero(usable & self._untouched())
        candidates = candidates[np.lexsort((candidates, shape[candidates], -sizes[candidates]))]
        ends = np.append(np.flatnonzero(np.diff(shape[candidates])) + 1, len(candidates))
        begins = np.append(0, ends[:-1])
        many = ends - begins >= least
        for begin, end in zip(begins[many].tolist(), ends[many].tolist(), strict=True):
            places = candidates[begin:end]
            places = places[self._free[places]]  # what is free has nothing chosen in it: larger ones come first
            full = len(places) // self._width * self._width
            self._add(places[: len(places) if len(places) - full >= least else full])

    def _untouched(self) -> npt.NDArray[np.bool_]:
        """Whether no body of the subtree at each place is swept in lanes yet [n]."""
        used = np.concatenate(([0], np.cumsum(~self._free)))
        places = np.arange(self._tree.n)
        return used[places + self._tree.sizes] == used[places]

    def _add(self, places: Integers) -> None:
        if not len(places):
            return
        places = self._tree.alike(places, int(self._tree.sizes[places[0]]))
        self._free[(places[:, None] + np.arange(self._tree.sizes[places[0]])).ravel()] = False
        filled = np.concatenate((places, np.full(-len(places) % self._width, places[-1])))
        self.chosen.groups.append(Group(filled.reshape(-1, self._width), len(places)))

    def cost(self) -> float:
        """Predicted time of an evaluation, in that of a revolute body swept in doubles."""
        costs, sizes, (groups, stretches, _) = self._tree.costs, self._tree.sizes, self.chosen
        firsts = [int(group.places[0, 0]) for group in groups]
        rows = [float(costs[first : first + sizes[first]].sum()) for first in firsts]
        tiles = sum(len(group.places) * tile_cost(self._width, row) for group, row in zip(groups, rows, strict=True))
        start = tuned().subtrees_start if groups or stretches else 0.0
        return float(costs[self._free].sum() + tiles + start) + sum(stretch_cost(s, costs) for s in stretches)


def choose_lane_subtrees(
    made: Subtrees,
    patterns: npt.NDArray[np.integer],
    open_bodies: Integers,
    width: int,
    if_faster: bool = False,
    looped: Integers | None = None,
    looped_tiles: Sequence[LoopedTile] = (),
) -> Chosen:
    """Choose what is swept in lanes, as it is predicted to be the fastest.

    Tried are stretches that pay well, all that pay, and none; then, of what is left, closed subtrees side by side: full
    tiles of the largest first, and such as pay though not full. They have no more bodies than a lane may have, where
    not all of a workspace is kept.

    Parameters
    ----------
    made, patterns, open_bodies
        As of `shapes` and `closed_subtrees`.
    width : int
        Number of lanes; 0: what is predicted to be the fastest.
    if_faster : bool
        Whether to choose nothing, where that is predicted to be faster than so many lanes.
    looped : array, optional
        Bodies at which loops end, of a system with loops: no subtree that has one is closed, nor is what is open cut.
    looped_tiles : sequence of LoopedTile, optional
        Those chosen before, in as many lanes: see `partition.ownership`.
    """
    best = Chosen([], [], list(looped_tiles))
    if width == 1:
        return best
    tree = _Tree(made, patterns, open_bodies, looped, looped_tiles)
    usable = tree.closed
    if tree.n * BYTES_OF_A_BODY > tuned().all_bytes:
        usable = usable & (tree.sizes <= tuned().most_lane)
    least = np.inf if width and not if_faster else float(tree.costs[tree.free].sum())
    native = width or native_width()
    for number in (width,) if width else [w for w in WIDTHS if w <= native]:
        tried: list[list[int]] = []
        for most_cost in PAYING:
            stretches = tree.stretches(number, most_cost)
            firsts = [stretch.first for stretch in stretches]
            if firsts in tried:
                continue
            tried.append(firsts)
            choice = _Choice(tree, number, stretches)
            for lanes in (number, int(row_cost(number)) + 1):
                choice.take(usable, lanes)
            if (choice.chosen.groups or stretches) and choice.cost() < least:
                best, least = choice.chosen, choice.cost()
    return best
