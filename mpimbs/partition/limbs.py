"""Which closed subtrees of a tree are swept side by side in lanes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpimbs.sizes import tuned
from mpimbs.spatial.lanes import WIDTHS, native_width
from mpimbs.sweep.build import Build
from mpimbs.sweep.limbs import Group
from mpimbs.sweep.structure import BIAS, PIVOT, PLACE

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

BYTES_OF_A_BODY = 8 * (PLACE + BIAS + PIVOT)  # of workspace
_FACTOR = 0x9E3779B97F4A7C15  # odd: it has an inverse modulo 2^64


def closed_subtrees(made: Build, open_bodies: Integers) -> npt.NDArray[np.bool_]:
    """Whether all of the subtree of the body at each place of the depth-first order is here [n].

    Parameters
    ----------
    made : Build
    open_bodies : array
        Bodies, numbered as in `made`, that have children elsewhere.
    """
    closed = np.ones(len(made.order), bool)
    place = np.empty(len(made.order), np.int64)
    place[made.order] = np.arange(len(made.order))
    for body in open_bodies.tolist():
        while body >= 0 and closed[place[body]]:
            closed[place[body]] = False
            body = int(made.parent[body])
    return closed


def shapes(made: Build, patterns: npt.NDArray[np.integer]) -> Integers:
    """A number for each place: the same where subtrees have the same joints and hang together in the same way [n].

    Parameters
    ----------
    made : Build
    patterns : array [n]
        Of each body, a number for its joint.
    """
    n = len(made.order)
    place = np.empty(n, np.int64)
    place[made.order] = np.arange(n)
    above = made.parent[made.order]
    back = np.where(above >= 0, np.arange(n) - place[above], 0)
    # A subtree is a word: its root's joint, then joint and distance to the parent of each body; the sum of its letters
    # times powers of a number, from any place on, is that from the first on over the power there (modulo 2^64).
    letters = _mixed(np.stack((patterns[made.order].astype(np.int64), back), axis=1))
    roots = _mixed(np.stack((patterns[made.order].astype(np.int64), np.full(n, -1)), axis=1))
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(letters * _powers(_FACTOR, n))))
    places = np.arange(n)
    words = (sums[places + made.sizes] - sums[places + 1]) * _powers(pow(_FACTOR, -1, 2**64), n) + roots
    words += _mixed(np.stack((made.sizes, np.full(n, -2)), axis=1))
    return np.unique(words, return_inverse=True)[1]


def _powers(number: int, count: int) -> Words:
    powers = np.full(count, number, np.uint64)
    powers[0] = 1
    return np.cumprod(powers)


def _mixed(pairs: Integers) -> Words:
    """A random number for each different pair of numbers [n, 2]."""
    x = pairs[:, 0].astype(np.uint64) * np.uint64(0xBF58476D1CE4E5B9) + pairs[:, 1].astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))


class _Choice:
    """Groups that are chosen one after the other, largest subtrees first.

    Parameters
    ----------
    sizes, shape : array [n]
        Bodies of the subtree at each place, and its shape.
    width : int
        Number of lanes.
    """

    def __init__(self, sizes: Integers, shape: Integers, width: int) -> None:
        self._sizes, self._shape, self._width = sizes, shape, width
        self._free = np.ones(len(sizes), bool)  # in no limb yet
        self.groups: list[Group] = []

    def take(self, usable: npt.NDArray[np.bool_], least: int) -> None:
        """Choose tiles of so many limbs at the least of the subtrees that are usable, none of which is in another."""
        candidates = np.flatnonzero(usable)
        candidates = candidates[np.lexsort((candidates, self._shape[candidates], -self._sizes[candidates]))]
        alike = np.flatnonzero(np.diff(self._shape[candidates])) + 1
        for places in np.split(candidates, alike):
            if len(places) >= least:
                places = places[self._free[places]]  # what is in no limb has none in it: larger ones come first
                full = len(places) // self._width * self._width
                self._add(places[: len(places) if len(places) - full >= least else full])

    def untouched(self) -> npt.NDArray[np.bool_]:
        """Whether no body of the subtree at each place is in a limb [n]."""
        used = np.concatenate(([0], np.cumsum(~self._free)))
        places = np.arange(len(self._sizes))
        return used[places + self._sizes] == used[places]

    def _add(self, places: Integers) -> None:
        if not len(places):
            return
        self._free[(places[:, None] + np.arange(self._sizes[places[0]])).ravel()] = False
        filled = np.concatenate((places, np.full(-len(places) % self._width, places[-1])))
        self.groups.append(Group(filled.reshape(-1, self._width), len(places)))

    def cost(self) -> float:
        """Predicted time of an evaluation, in that of a body swept in doubles."""
        t = tuned()
        row = getattr(t, f"row_of_{self._width}")
        tiles = sum(len(group.places) * (t.tile_start + row * self._sizes[group.places[0, 0]]) for group in self.groups)
        return float(self._free.sum() + tiles) + (t.limbs_start if self.groups else 0.0)


def choose_limbs(
    made: Build, patterns: npt.NDArray[np.integer], open_bodies: Integers, width: int, most: int | None = None
) -> list[Group]:
    """Choose the closed subtrees to sweep side by side: full tiles of the largest first, then such as pay though not
    full.

    Parameters
    ----------
    made, patterns, open_bodies
        As of `shapes` and `closed_subtrees`.
    width : int
        Number of lanes; 0: as many as are predicted to be the fastest, or none.
    most : int, optional
        Bodies of a subtree at the most; by default as many as a lane may have where not all of a workspace is kept.
    """
    if width == 1:
        return []
    shape, usable = shapes(made, patterns), closed_subtrees(made, open_bodies)
    if most is None and len(made.order) * BYTES_OF_A_BODY > tuned().all_bytes:
        most = tuned().most_lane
    if most is not None:
        usable &= made.sizes <= most
    best: list[Group] = []
    least = float(len(made.order))
    for number in (width,) if width else [w for w in WIDTHS if w <= native_width()]:
        choice = _Choice(made.sizes, shape, number)
        choice.take(usable, number)
        choice.take(usable & choice.untouched(), int(getattr(tuned(), f"row_of_{number}")) + 1)
        if choice.groups and (width or choice.cost() < least):
            best, least = choice.groups, choice.cost()
    return best
