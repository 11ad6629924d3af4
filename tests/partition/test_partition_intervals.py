"""Intervals of depth-first orders: what hangs on what, how neighbours join, where cuts are, and who owns what."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpimbs.base.arrays import Floats
from mpimbs.model import JOINT_TYPES, system_from
from mpimbs.model.order.order import Order
from mpimbs.model.order.segments import Integers
from mpimbs.partition.chain import body_costs
from mpimbs.partition.division import divide_tree
from mpimbs.partition.intervals import cut_intervals, interval
from mpimbs.partition.shares import shares, table_of_shares
from oracles.random_systems import SETTINGS
from oracles.trees import SHAPES, parents

DRAWN = parents()


def ordered(parent: Integers) -> Order:
    return Order(len(parent), parent)


def costs_of(n: int) -> Floats:
    kinds = np.random.default_rng(n).integers(0, len(JOINT_TYPES), n)
    return body_costs(kinds.astype(np.int8))


@SETTINGS
@given(st.data(), DRAWN)
def test_an_interval_by_its_definition(data: st.DataObject, parent: Integers) -> None:
    """Components are what hangs together, and what does so by the body outside; open is who has children behind."""
    order = ordered(parent)
    above = order.parents.tolist()
    last = data.draw(st.integers(1, order.n))
    first = data.draw(st.integers(0, last - 1))
    found = interval(order, first, last)

    def outside(k: int) -> int:
        while k >= first:
            k = above[k]
        return k

    assert found.outside_bodies.tolist() == sorted({outside(k) for k in range(first, last)}, reverse=True)
    assert found.roots.tolist() == [k for k in range(first, last) if above[k] < first]
    opened = [k for k in range(first, last) if any(above[j] == k for j in range(last, order.n))]
    assert found.open.tolist() == opened
    path = [last] if last < order.n else []
    while path and path[-1] >= first:
        path.append(above[path[-1]])
    assert set(opened) <= set(path), "open bodies lie on the path to the first body behind"
    assert {outside(k) for k in opened} == ({found.outside_bodies[-1]} if opened else set())


@pytest.mark.parametrize("size", [1, 2, 5, 15])
def test_every_rank_owns_a_body(size: int) -> None:
    order = Order.of(system_from("figure").contents)
    cuts = cut_intervals(order, costs_of(15), size)
    assert len(cuts) == size + 1 and np.all(np.diff(cuts) >= 1) and cuts[0] == 0 and cuts[-1] == 15


@pytest.mark.cases(2)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_million_bodies_are_cut_in_seconds(shape: str) -> None:
    order, costs = ordered(SHAPES[shape](10**6)), np.ones(10**6)
    start = time.process_time()
    cuts = cut_intervals(order, costs, 64, 1.2)
    for cut in itertools.pairwise(cuts.tolist()):
        interval(order, *cut)
    assert time.process_time() - start < 5  # on a machine that others use too


def test_shares_of_systems_with_loops() -> None:
    """A chain too is divided as trees are; loops to the world, and within a rank, lead to no other."""
    for spec, loops in (("four_bar:60", [1, 2, 2, 1]), ("four_bar_chain:60", [0, 0, 0, 0]), ("track:60", [1, 0, 0, 1])):
        system = system_from(spec)
        order, found = shares(system.contents, 4)
        cuts = divide_tree(system.contents, 4).cuts.tolist()
        assert [(share.first, share.last) for share in found] == list(itertools.pairwise(cuts))
        assert [share.loops for share in found] == loops
        lines = table_of_shares(system.contents, order, found)
        in_all = len(system.contents.loops)
        assert lines[-1] == f"loops: how many lead to bodies of other ranks; {sum(loops) // 2} of {in_all} in all"
        assert lines[1].split()[:6] == ["rank", "bodies", "hangs", "on", "open", "loops"]
