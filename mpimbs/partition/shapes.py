"""Which subtrees of a tree are alike: numbers that are equal where joints are, and hang together in the same way."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Integers

Hashes = npt.NDArray[np.uint64]

_FACTOR = 0x9E3779B97F4A7C15  # odd: it has an inverse modulo 2^64


class Subtrees(Protocol):
    """The attributes of a `Build`, or of a stand-in, that say how bodies hang together."""

    @property
    def parent(self) -> Integers: ...

    @property
    def order(self) -> Integers: ...

    @property
    def sizes(self) -> Integers: ...


def closed_subtrees(made: Subtrees, open_bodies: Integers) -> npt.NDArray[np.bool_]:
    """Whether all of the subtree of the body at each place of the depth-first order is here [n].

    Parameters
    ----------
    open_bodies : array
        Bodies, numbered as in `made`, that have children elsewhere.
    """
    closed = np.ones(len(made.order), bool)
    place = places_of(made)
    for body in open_bodies.tolist():
        while body >= 0 and closed[place[body]]:
            closed[place[body]] = False
            body = int(made.parent[body])
    return closed


class Words:
    """Numbers for what stands at consecutive places of the depth-first order: the same where it has the same joints
    and hangs together in the same way.

    It is a word: its root's joint, then joint and distance to the parent of each body; the sum of its letters times
    powers of a number, from any place on, is that from the first on over the power there (modulo 2^64).

    Parameters
    ----------
    patterns : array [n]
        Of each body, a number for its joint.
    """

    def __init__(self, made: Subtrees, patterns: npt.NDArray[np.integer]) -> None:
        n, place = len(made.order), places_of(made)
        above = made.parent[made.order]
        back = np.where(above >= 0, np.arange(n) - place[above], 0)
        joints = patterns[made.order].astype(np.int64)
        self._roots = mixed(joints, np.full(n, -1))
        self._sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed(joints, back) * _powers(_FACTOR, n))))
        self._inverse = _powers(pow(_FACTOR, -1, 2**64), n)

    def between(self, first: Integers, last: Integers) -> Hashes:
        """The numbers of what begins with some roots, at the places `first`, and ends before the places `last`."""
        words = (self._sums[last] - self._sums[first + 1]) * self._inverse[first] + self._roots[first]
        return words + mixed(last - first, np.full(len(first), -2))


def shapes(words: Words, sizes: Integers) -> Integers:
    """A number for each place: the same where subtrees, of these sizes, are alike [n]."""
    places = np.arange(len(sizes))
    return np.unique(words.between(places, places + sizes), return_inverse=True)[1]


def _powers(number: int, count: int) -> Hashes:
    powers = np.full(count, number, np.uint64)
    powers[0] = 1
    return np.cumprod(powers)


def mixed(one: Integers | Hashes, other: Integers) -> Hashes:
    """A random number for each different pair of numbers [n]."""
    x = one.astype(np.uint64) * np.uint64(0xBF58476D1CE4E5B9) + other.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))


def places_of(made: Subtrees) -> Integers:
    """The place of each body in the depth-first order [n]."""
    places = np.empty(len(made.order), np.int64)
    places[made.order] = np.arange(len(made.order))
    return places
