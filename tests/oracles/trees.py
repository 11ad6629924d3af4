"""Shapes of trees, as parents in the order of the model, every parent before its children."""

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from mpimbs.model import System
from mpimbs.model.order.segments import Integers


def depth_first(parent: Integers) -> Integers:
    """The bodies depth first, siblings in the order in which they stand."""
    order: list[int] = []
    ahead = np.flatnonzero(parent < 0)[::-1].tolist()
    while ahead:
        order.append(ahead.pop())
        ahead += np.flatnonzero(parent == order[-1])[::-1].tolist()
    return np.array(order)


def chain(n: int) -> Integers:
    return np.arange(-1, n - 1)


def branching(n: int, children: int) -> Integers:
    """A regular tree, level by level."""
    return (np.arange(n) - 1) // children


def caterpillar(n: int) -> Integers:
    """A chain with a side body on every link."""
    k = np.arange(n)
    return np.maximum(np.where(k % 2, k - 1, k - 2), -1)


def brush(n: int, twig: int = 3) -> Integers:
    """A path over the first half of the bodies, and twigs of so many bodies on it."""
    k, path = np.arange(n), (n + 1) // 2
    return np.where((k < path) | ((k - path) % twig > 0), k - 1, (k - path) // twig)


def star(n: int) -> Integers:
    return np.where(np.arange(n) > 0, 0, -1)


def forest(n: int, size: int = 5) -> Integers:
    """Chains beside each other, each on the world."""
    k = np.arange(n)
    return np.where(k % size, k - 1, -1)


def recursive(n: int, seed: int = 0, roots: float = 0.0) -> Integers:
    """A tree where each body hangs on any before it; or on the world, with a chance of `roots`."""
    draw = np.random.default_rng(seed)
    parent = (draw.random(n) * np.arange(n)).astype(np.int64)
    parent[draw.random(n) < roots] = -1
    parent[:1] = -1
    return parent


def scrambled(parent: Integers, seed: int = 0) -> Integers:
    """An order of the bodies of a tree: every parent before its children, all else by chance."""
    late = np.random.default_rng(seed).random(len(parent))
    for k, above in enumerate(parent.tolist()):
        late[k] += late[above] if above >= 0 else 0.0
    return np.argsort(late)


def relisted(system: System, order: Integers) -> System:
    """The same bodies, added in another order."""
    again = System(system.name, system.gravity)
    for k in order.tolist():
        again.add(system.contents.body(k))
    return again


SHAPES: dict[str, Callable[[int], Integers]] = {
    "chain": chain,
    "binary": lambda n: branching(n, 2),
    "ternary": lambda n: branching(n, 3),
    "caterpillar": caterpillar,
    "brush": brush,
    "star": star,
    "forest": forest,
    "recursive": recursive,
    "recursive forest": lambda n: recursive(n, 1, 0.1),
}


@st.composite
def parents(draw: st.DrawFn, max_bodies: int = 60) -> Integers:
    """Parents of 1 to max_bodies bodies: of any tree or forest, or of one of the shapes."""
    n = draw(st.integers(1, max_bodies))
    shape = draw(st.sampled_from(["drawn", *SHAPES]))
    if shape != "drawn":
        return SHAPES[shape](n)
    draws = draw(st.lists(st.integers(0, 10**6), min_size=n, max_size=n))
    return np.array([number % (k + 1) - 1 for k, number in enumerate(draws)])
