"""Depth-first orders, the heaviest child last, and a system as it is renumbered by one."""

import copy
import math
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpimbs.model import System
from mpimbs.model.order.order import Arranged, Order, heaviest_last
from mpimbs.model.order.segments import Integers
from oracles.random_systems import SETTINGS, systems
from oracles.trees import SHAPES, parents, relisted

DRAWN = parents()


def sizes_of(parent: Integers) -> Integers:
    """Bodies of each subtree, by the definition."""
    size = np.ones(len(parent), int)
    for k in range(len(parent) - 1, 0, -1):
        if parent[k] >= 0:
            size[parent[k]] += size[k]
    return size


def walk(parent: Integers, weight: Integers, above: int = -1) -> Iterator[int]:
    """Go through the bodies on `above`, but on the world the last of the heaviest at the end, after each through those
    on it."""
    siblings = np.flatnonzero(parent == above)
    heaviest = max(siblings, key=lambda k: (weight[k], k), default=-1) if above >= 0 else -1
    for k in sorted(siblings, key=lambda k: k == heaviest):
        yield int(k)
        yield from walk(parent, weight, int(k))


@SETTINGS
@given(DRAWN)
def test_heaviest_last(parent: Integers) -> None:
    bodies, sizes = heaviest_last(parent)
    assert bodies.tolist() == list(walk(parent, sizes_of(parent)))
    assert np.array_equal(sizes, sizes_of(parent)[bodies])


@pytest.mark.cases(4)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_million_bodies_are_ordered_in_a_second(shape: str) -> None:
    parent = SHAPES[shape](10**6)
    start = time.process_time()
    order = Order(len(parent), parent)
    assert len(order.parents) == len(order.ends) == len(order.last_children) == 10**6
    assert time.process_time() - start < 3  # on a machine that others use too


def loaded(system: System) -> System:
    """A system with all that refers to bodies by number: functions of joints, wrenches, force functions on some."""
    moving = [k for k in range(system.n_bodies) if system.contents.body(k).joint.kind.nu]
    system.set_torque(
        system.contents.name_of(moving[-1]), lambda t: np.full(system.contents.body(moving[-1]).joint.kind.nu, t)
    )
    system.set_torque(
        system.contents.name_of(moving[0]), np.arange(1.0, 1 + system.contents.body(moving[0]).joint.kind.nu)
    )
    system.add_wrench(system.contents.name_of(system.n_bodies // 2), force=(1.0, 2.0, 3.0))
    system.add_joint_force([system.contents.name_of(moving[0])], math.sin)
    system.add_body_force([system.contents.name_of(k) for k in range(0, system.n_bodies, 2)], math.cos)
    system.add_body_force(None, math.tan)
    return system


def in_sequence(system: System, order: Order) -> System:
    """The same system, its bodies added in depth-first order by the user."""
    again = relisted(system, order.bodies)
    for name in ("joint_forces", "body_forces"):
        for force in getattr(system.contents.loads, name):
            on = sorted(again.contents.index_of(system.contents.name_of(int(k))) for k in force.bodies)
            moved = copy.copy(force)
            object.__setattr__(moved, "bodies", np.array(on))
            getattr(again.contents.loads, name).append(moved)
    return again


@SETTINGS
@given(st.data(), systems(max_bodies=7, chain=False, wrenches=True))
def test_a_renumbered_system_is_one_made_in_that_order(data: st.DataObject, system: System) -> None:
    """In all that solvers ask of it, for any interval."""
    n, order = system.n_bodies, Order.of(loaded(system).contents)
    view, again = Arranged(system.contents, order), in_sequence(system, order)
    lo = data.draw(st.integers(0, n))
    hi = data.draw(st.integers(lo, n))
    assert (view.n_bodies, view.nq, view.nu, view.is_chain) == (n, again.nq, again.nu, again.contents.is_chain)
    assert (view.name, view.gravity) == (system.name, system.gravity)
    assert [view.name_of(k) for k in range(n)] == [again.contents.name_of(k) for k in range(n)]
    assert [view.index_of(system.contents.name_of(k)) for k in order.bodies] == list(range(n))
    for k in range(n):
        assert repr(view.body(k).model_dump()) == repr(again.contents.body(k).model_dump())
    mine, theirs = view.columns(lo, hi), again.contents.columns(lo, hi)
    assert (mine.first, mine.n) == (theirs.first, theirs.n)
    for name in ("parent", "joint_type", "axis", "pitch", "position", "rotation", "mass", "center_of_mass", "inertia"):
        assert np.array_equal(getattr(mine, name), getattr(theirs, name)), name
    for name in ("q_offset", "u_offset", "q", "u", "rest", "stiffness", "damping", "torque"):
        assert np.array_equal(getattr(mine, name), getattr(theirs, name)), name
    assert mine.wrenches == theirs.wrenches and mine.torque_functions == theirs.torque_functions
    for name in ("joint_types", "joint_patterns", "sizes", "initial_state", "has_wrenches"):
        assert np.array_equal(_flat(getattr(view, name)(lo, hi)), _flat(getattr(again.contents, name)(lo, hi))), name
    assert np.array_equal(_flat(view.offsets_of((lo, hi))), _flat(again.contents.offsets_of((lo, hi))))
    for force, other in zip(view.loads.functions, again.contents.loads.functions, strict=True):
        assert force.function is other.function and np.array_equal(force.on(lo, hi), other.on(lo, hi))
    assert len(view.segments.rows(lo, hi)[0]) <= hi - lo, "every body has its own template: only those of these count"
    assert np.array_equal(view.numbers_in_model(np.arange(lo, hi)), order.bodies[lo:hi])


def _flat(value: object) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in value]) if isinstance(value, tuple) else np.asarray(value)
