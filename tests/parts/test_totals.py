"""Energy and momentum of several states at once, and of copies, each against dense matrices."""

import itertools
from contextlib import closing

import numpy as np
import pytest

from mpimbs.dynamics.side_by_side import SideBySide
from mpimbs.kernels.lanes import native_width
from mpimbs.model import System
from mpimbs.model.text.parameter_table import table_of
from mpimbs.model.variants import variants
from mpimbs.parts import totals
from mpimbs.parts.subchain import AT_REST, Subchain
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import random_system
from tolerances import assert_close


def dense_totals(system: System, q: Array, u: Array) -> Array:
    return np.concatenate([dense.energy(system, q, u), *dense.momentum(system, q, u)])


def moved(system: System, q: Array, u: Array, count: int) -> tuple[Array, Array]:
    """States on the way of a motion, every one another."""
    subchain = Subchain(system.contents)
    steps = [0.05 * k * np.cos(np.arange(system.nu) + k) for k in range(count)]
    return np.array([subchain.displaced(q, step) for step in steps]), np.array([u + step for step in steps])


@pytest.mark.parametrize("seed", range(6))
def test_states_at_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any number of states each has the bits that it has alone."""
    system, q, u, _ = random_system(seed, 9, chain=seed % 2 == 0, wrenches=False)
    most = 2 * native_width() + 3
    states = moved(system, q, u, most)
    expected = np.array([dense_totals(system, *state) for state in zip(*states, strict=True)])
    find, scale = Subchain(system.contents).totals, np.abs(expected).max(axis=0)
    alone = np.array([find(q[None], u[None], AT_REST)[0] for q, u in zip(*states, strict=True)])
    for count in range(1, most + 1):
        assert np.array_equal(find(states[0][:count], states[1][:count], AT_REST), alone[:count]), count
        each = np.tile(AT_REST, (count, 1))
        assert np.array_equal(find(states[0][:count], states[1][:count], each), alone[:count]), count
    monkeypatch.setattr(totals, "_MOST", 0)
    in_doubles = Subchain(system.contents).totals(*states, AT_REST)
    for k in range(totals.TOTALS):
        size = max(scale[k], scale[:2].max() if k < 2 else scale[2:5].max() if k < 5 else scale[5:].max())
        assert_close("side by side", alone[:, k], expected[:, k], "dense", scale=size)
        assert_close("in doubles", in_doubles[:, k], expected[:, k], "dense", scale=size)


def test_what_they_hang_on_moves() -> None:
    """Bodies on one that has moved in each state in its own way: as it turns and shifts all."""
    system, q, u, _ = random_system(3, 5, chain=True, wrenches=False)
    count = native_width() + 2
    boundary = np.tile(AT_REST, (count, 1))
    boundary[:, 9:12] = np.arange(3.0 * count).reshape(count, 3)
    find = Subchain(system.contents).totals
    states = np.tile(q, (count, 1)), np.tile(u, (count, 1))
    there, (here,) = find(*states, boundary), find(q[None], u[None], AT_REST)
    weight = system.contents.columns().mass.sum() * np.asarray(system.gravity)
    expected = here[1] - boundary[:, 9:12] @ weight
    assert_close("potential", there[:, 1], expected, "dense", scale=np.abs(expected).max())
    angular = here[5:] + np.cross(boundary[:, 9:12], here[2:5])
    assert_close("angular momentum", there[:, 5:], angular, "dense", scale=np.abs(angular).max())
    assert_close("kinetic", there[:, 0], np.full(count, here[0]), "dense")


@pytest.mark.parametrize("alike", [True, False])
def test_copies(alike: bool) -> None:
    """In lanes and, where they are few, in doubles; the last tile has copies a second time."""
    count = 2 * native_width() + 3
    system, q, u, _ = random_system(7, 6, chain=False, wrenches=False)
    table = {f"{system.contents.name_of(k)}.mass": 1.0 + np.arange(count) for k in range(6)}
    table["gravity[1]"] = np.where(np.arange(count) < count // 2 + 1, -9.0, -3.0)
    systems = [system.contents] if alike else variants(system.contents, table_of(table))
    states = moved(system, q, u, count)
    each = zip(itertools.cycle(systems), *states, strict=False)
    expected = np.array([dense.energy(*one) for one in each])
    for lanes in (1, native_width()):
        with closing(SideBySide(systems, count, lanes)) as copies:
            assert_close("energies", copies.energies(*states), expected, "dense", scale=np.abs(expected).max())
