"""Paths of a tree as sequences of links: what hangs beside them goes with their bodies."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpimbs.base.sizes import tuned
from mpimbs.partition.lanes import FIXED_PATTERN, longest_lanes
from mpimbs.partition.shapes import Words, mixed

Integers = npt.NDArray[np.int64]


class Links:
    """The bodies of a depth-first order with all that hangs beside the heaviest path through each, path after path.

    Parameters
    ----------
    words : Words
    sizes : array [n]
        Bodies of the subtree at each place, of which the heaviest child comes last: so a path has all places whose
        subtrees end together.
    patterns : array [n]
        Of the joint at each place, as `Contents.joint_patterns` numbers them: bodies that are fixed to the one before
        on their path are of its link, see `lanes.cut_chain`.

    Attributes
    ----------
    first : array [n]
        Place of each link's body, its first.
    behind : array [n]
        The link behind the path that each is on.
    letters : array [n]
        A number for each: the same where they are alike.
    """

    def __init__(self, words: Words, sizes: Integers, patterns: Integers) -> None:
        ends = np.arange(len(sizes)) + sizes
        places = np.argsort(ends, kind="stable")
        begins = np.append(True, ends[places][1:] != ends[places][:-1])[: len(places)]  # a path
        begins |= patterns[places] != FIXED_PATTERN
        self.first = places[begins]
        ends = ends[self.first]
        self.behind = np.searchsorted(ends, ends, "right")
        following = np.append(self.first[1:], 0)
        last = np.where(np.arange(1, len(ends) + 1) < self.behind, following, ends)
        self.letters = words.between(self.first, last)
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
