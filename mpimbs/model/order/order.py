"""The order in which solvers number the bodies of a system: depth first, of several children the heaviest last.

A subtree is contiguous there, its root first, and the longest path stays together; so an interval of the order hangs
together by few bodies. A chain is its own order: no arrays are made of it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from mpimbs.base.arrays import Integers
from mpimbs.model.between import SystemSprings
from mpimbs.model.columns import numbers_of
from mpimbs.model.contents import Contents
from mpimbs.model.force_functions import ForceFunctionT

Where = slice | Integers
"""What picks numbers of the model's order out of an array: a slice where they stand one after the other."""


class _Walk(NamedTuple):
    """A way through all bodies of a tree, depth first."""

    order: Integers  # [n]: the bodies
    after: Integers  # [n]: the body that comes after all those of each one's subtree; -1 if there is none


def heaviest_last(parent: Integers) -> tuple[Integers, Integers]:
    """Depth-first order in which of several siblings that with the most bodies in its subtree comes last.

    The others stay in sequence; so do the roots, all of them. Of several that are the heaviest it is the last.

    Parameters
    ----------
    parent : array [n]
        -1 the world; every parent before its children.

    Returns
    -------
    (bodies [n], sizes [n])
        The bodies in that order, and how many the subtree of each of these has, itself among them.
    """
    n = len(parent)
    if np.array_equal(parent, np.arange(-1, n - 1)):
        return np.arange(n), np.arange(n, 0, -1)
    if (listed := _sizes_if_listed_so(parent)) is not None:
        return np.arange(n), listed
    order, after = _walk(parent)
    place = _inverse(order)
    end = np.append(place, n)[after]  # of each subtree, in the order of the walk
    size = end - place
    by_parent = np.lexsort((_is_heaviest(size, parent), parent))
    before = np.cumsum(size[by_parent]) - size[by_parent]
    above = parent[by_parent]
    begins = np.flatnonzero(np.concatenate(([True], above[1:] != above[:-1])))  # with the first of the siblings
    before -= np.repeat(before[begins], np.diff(np.append(begins, n)))
    onward = np.empty(n, np.int64)  # how many places each body comes behind its parent
    onward[by_parent] = before + (above >= 0)
    change = np.zeros(n + 1, np.int64)  # of the sum over a body and all above it, from one body of the walk to the next
    change[place] = onward
    np.subtract.at(change, end, onward)
    bodies = np.empty(n, np.int64)
    bodies[np.cumsum(change[:n])] = order
    return bodies, size[bodies]


def _is_heaviest(size: Integers, parent: Integers) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Whether each body is the one of its siblings that comes last; of the roots, which stay in sequence, none is."""
    order = np.lexsort((size, parent))
    heaviest = np.zeros(len(size), bool)
    heaviest[order[np.concatenate((np.diff(parent[order]) > 0, [True]))]] = True
    return heaviest & (parent >= 0)


def last_of_subtrees(parent: Integers) -> Integers:
    """The last body of the subtree of each [n], of bodies in a depth-first order: a subtree ends where its last
    child's does."""
    n = len(parent)
    last = np.full(n + 1, -1)
    last[parent] = np.arange(n)  # of several children the last that is written stays; behind all that of the world
    last = np.where(last[:n] >= 0, last[:n], np.arange(n))
    while not np.array_equal(further := last[last], last):
        last = further
    return last


def _sizes_if_listed_so(parent: Integers) -> Integers | None:
    """Bodies of the subtree of each [n], itself among them; None if they don't stand as `heaviest_last` has them."""
    n, last = len(parent), last_of_subtrees(parent)
    sizes = last + 1 - np.arange(n)
    below = parent >= 0
    if not np.array_equal(sizes, 1 + np.bincount(parent[below], sizes[below], minlength=n)):
        return None
    sibling = np.minimum(last + 1, n - 1)
    after = (sibling > last) & (parent[sibling] == parent)
    nested = (last[below] <= last[parent[below]]).all()
    heaviest = _is_heaviest(sizes, parent)
    return sizes if nested and not heaviest[np.flatnonzero(after)].any() else None


def _walk(parent: Integers) -> _Walk:
    n = len(parent)
    by_parent = np.argsort(parent, kind="stable")
    above = parent[by_parent]
    siblings = above[1:] == above[:-1]
    sibling = np.full(n, -1)  # the next one
    sibling[by_parent[:-1][siblings]] = by_parent[1:][siblings]
    begins = np.flatnonzero(np.concatenate(([True], ~siblings)) & (above >= 0))
    child = np.full(n, -1)  # the first one
    child[above[begins]] = by_parent[begins]

    # After a branch comes the next sibling of the closest body above, or itself, that has one.
    turn = np.where((sibling >= 0) | (parent < 0), np.arange(n), parent)
    while not np.array_equal(further := turn[turn], turn):
        turn = further
    after = sibling[turn]
    following = np.where(child >= 0, child, after)

    # How many bodies come from each one on: those counted so far, and those from the one on that comes behind them.
    onward = np.append(np.where(following < 0, n, following), n)
    count = np.append(np.ones(n, np.int64), 0)
    while (onward < n).any():
        count += count[onward]
        onward = onward[onward]
    order = np.empty(n, np.int64)
    order[n - count[:n]] = np.arange(n)
    return _Walk(order, after)


def _inverse(order: Integers) -> Integers:
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


class Order:
    """The bodies of a system in depth-first order, the heaviest child last: each has a place there, 0 to n - 1.

    Parameters
    ----------
    n : int
        Number of bodies.
    parent : array [n], optional
        Parents in the model's order, -1 the world; by default those of a chain.

    Attributes
    ----------
    n : int
    is_chain : bool
        Every body lies on the one before.
    is_identity : bool
        The model has this order: places are the model's numbers.
    bodies : int64 [n]
        The model's number of the body at each place.
    places : int64 [n]
        Place of each body of the model.
    parents : int64 [n]
        Place of the parent of the body at each place; -1 the world.
    ends : int64 [n]
        The subtree of the body at place k has the places k to ends[k] - 1.
    last_children : int64 [n]
        Place of the last, heaviest child; -1 where there is none.
    """

    def __init__(self, n: int, parent: Integers | None = None) -> None:
        self.n = n
        self.is_chain = parent is None or np.array_equal(parent, np.arange(-1, n - 1))
        self.is_identity = self.is_chain
        if parent is not None and not self.is_chain:
            bodies, sizes = heaviest_last(parent)
            self.is_identity = np.array_equal(bodies, np.arange(n))
            if not self.is_identity:
                self.bodies = bodies
            self.parents = parent if self.is_identity else np.append(self.places, -1)[parent[bodies]]
            self.ends = np.arange(n) + sizes

    @classmethod
    def of(cls, system: Contents) -> Order:
        """Order the bodies of a system."""
        return cls(system.n_bodies, None if system.is_chain else system.parents())

    def as_listed(self) -> Order | None:
        """The order in which the model lists its bodies; None where that is not depth first."""
        if self.is_identity:
            return self
        listed, bodies = Order(self.n), self.bodies
        parent, end = np.empty(self.n, np.int64), np.empty(self.n, np.int64)
        parent[bodies] = np.append(bodies, -1)[self.parents]
        end[bodies] = bodies + self.ends - np.arange(self.n)
        listed.is_chain, listed.parents, listed.ends = False, parent, end
        below = np.flatnonzero(parent >= 0)
        return listed if (end[below] <= end[parent[below]]).all() else None

    @cached_property
    def bodies(self) -> Integers:
        return np.arange(self.n)

    @cached_property
    def places(self) -> Integers:
        return np.arange(self.n) if self.is_identity else _inverse(self.bodies)

    @cached_property
    def parents(self) -> Integers:
        return np.arange(-1, self.n - 1)

    @cached_property
    def ends(self) -> Integers:
        return np.full(self.n, self.n)

    @cached_property
    def last_children(self) -> Integers:
        last = np.full(self.n + 1, -1)
        last[self.parents] = np.arange(self.n)  # of several the last that is written stays
        return last[: self.n]

    def body(self, place: int) -> int:
        """The model's number of the body at one place."""
        return place if self.is_identity else int(self.bodies[place])

    def where(self, lo: int, hi: int) -> Where:
        """Where numbers of the bodies at the places lo to hi - 1 stand in an array with one row for each of the
        model's bodies."""
        return slice(lo, hi) if self.is_identity else self.bodies[lo:hi]


def coordinates_at(system: Contents, order: Order, lo: int, hi: int) -> tuple[Where, Where]:
    """Where q and u of the joints of the bodies at the places lo to hi - 1 stand in the model's q and u.

    Parameters
    ----------
    system : Contents
        The model, in its own order.
    order : Order
        Its depth-first order.

    Returns
    -------
    (slice or array [nq], slice or array [nu])
        `q[found]` gives them, place by place; `q[found] = mine` puts them back.
    """
    if order.is_identity:
        (q, q_end), (u, u_end) = (ends.tolist() for ends in system.offsets_of((lo, hi)))
        return slice(q, q_end), slice(u, u_end)
    q_index, u_index = (numbers_of(offset, order.bodies[lo:hi])[0] for offset in system.offsets())
    return q_index, u_index


class Arranged(Contents):
    """A system whose bodies are numbered by their places in its depth-first order.

    What it is asked for, columns and all else, is as of a system to which the bodies were added in that order; only
    `numbers_in_model` tells of another. Names are the model's. It is as the model was when it was made.

    Parameters
    ----------
    system : Contents
        The model.
    order : Order
        Its depth-first order.
    """

    def __init__(self, system: Contents, order: Order) -> None:
        super().__init__(system.name, system.gravity)
        self._system, self._order = system, order
        bodies, rows = system.segments.rows(0, system.n_bodies)
        self.segments.append_branches(tuple(bodies), rows[order.bodies], order.parents)
        self.names, self.changes, self.apart = system.names, system.changes, system.apart
        places = np.append(order.places, -1)  # of the world, -1, the last: -1 again
        self.loops = system.loops.holding(system.loops, map(tuple, places[system.loops.ends].tolist()))
        self.springs = SystemSprings(system.springs, map(tuple, places[system.springs.ends].tolist()))
        shifted = order.places[system.shifted]
        by_place = np.argsort(shifted)
        self.shifted, self.shifts = shifted[by_place], system.shifts[by_place]
        given = system.loads
        self.loads = replace(
            given,
            torques={int(order.places[k]): torque for k, torque in given.torques.items()},
            wrenches={int(order.places[k]): own for k, own in given.wrenches.items()},
            joint_forces=[self._moved(force) for force in given.joint_forces],
            body_forces=[self._moved(force) for force in given.body_forces],
        )

    def _moved(self, force: ForceFunctionT) -> ForceFunctionT:
        """Give the same force function on the same bodies."""
        if isinstance(force.bodies, range) and len(force.bodies) == self.n_bodies:
            return force
        return replace(force, bodies=np.sort(self._order.places[np.asarray(force.bodies, np.int64)]))

    def name_of(self, k: int) -> str:
        return self._system.name_of(int(self._order.bodies[k]))

    def index_of(self, name: str) -> int:
        return int(self._order.places[self._system.index_of(name)])

    def numbers_in_model(self, bodies: Integers) -> Integers:
        return self._order.bodies[bodies]


def arranged(system: Contents, order: Order | None) -> Contents:
    """Give a system as solvers number it: itself if it has that order, as every chain has, or none is given."""
    return system if order is None or order.is_identity else Arranged(system, order)
