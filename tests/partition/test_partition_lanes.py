"""Tiles: they cover the bodies in order, their lanes agree in the joints, and little is left to sweep as one piece."""

from contextlib import closing
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import typed_chain
from mpimbs.base.errors import InputError
from mpimbs.base.sizes import PACKAGE
from mpimbs.dynamics import Dynamics
from mpimbs.kernels.lanes import WIDTHS
from mpimbs.model import Joint, System, system_from
from mpimbs.partition.chain import chosen_width, cut_chain, cut_tiles
from mpimbs.parts.tiles import Tile
from oracles.random_systems import SETTINGS
from tolerances import assert_close

Integers = np.ndarray


@st.composite
def patterns(draw: st.DrawFn) -> Integers:
    """Up to a thousand numbers: stretches of random periods, and some odd ones among them."""
    stretches = []
    for _ in range(draw(st.integers(1, 3))):
        period = draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))
        stretches.append(np.resize(period, draw(st.integers(1, 300))))
    found = np.concatenate(stretches).astype(np.int64)
    found[draw(st.lists(st.integers(0, len(found) - 1), max_size=4))] = 9
    return found


def alone(tiles: list[Tile]) -> int:
    """Number of bodies that are swept as one piece."""
    return sum(tile.length for tile in tiles if tile.width == 1)


def assert_tiles(
    tiles: list[Tile], found: Integers, width: int, least: int = PACKAGE.least_lane, most: int = PACKAGE.most_lane
) -> None:
    """Every body is in exactly one tile, and the lanes of a tile agree at each place."""
    assert [0, *(tile.last for tile in tiles)] == [*(tile.first for tile in tiles), len(found)], "gap or overlap"
    assert all(tile.width in (1, width) and tile.length > 0 for tile in tiles)
    for tile in tiles:
        if tile.width > 1:
            assert least <= tile.length <= most
            pieces = found[tile.first : tile.last].reshape(width, tile.length)
            assert (pieces == pieces[0]).all(), f"the lanes of {tile} differ"
    for one, other in pairwise(tiles):
        assert one.width > 1 or other.width > 1, "one piece in two"


@SETTINGS
@given(patterns(), st.sampled_from((1, *WIDTHS)), st.integers(1, 6), st.integers(0, 30))
def test_any_sequence(found: Integers, width: int, least: int, more: int) -> None:
    tiles = cut_tiles(found, width, least, least + more)
    assert_tiles(tiles, found, width, least, least + more)


def chain_of(*types: str) -> System:
    return typed_chain(types, 0)


def test_patterns_of_systems() -> None:
    """Joints are alike where the sweeps take the same steps: with pitch or without, whatever the bodies."""
    system = chain_of("revolute", "revolute", "helical", "spherical", "revolute")
    system.add(system.contents.body(2).model_copy(update={"name": "flat", "parent": None}))
    system.add(
        system.contents.body(2).model_copy(
            update={
                "name": "flat2",
                "parent": None,
                "joint": system.contents.body(2).joint.model_copy(update={"pitch": 0.0}),
            }
        )
    )
    found = system.contents.joint_patterns(0, 7)
    assert found[0] == found[1] == found[4] and found[2] == found[5] != found[6]
    assert len(set(found)) == 4
    assert np.array_equal(system.contents.joint_patterns(2, 5), found[2:5])
    tiles = cut_tiles(system_from("free_chain:1025").contents.joint_patterns(0, 1025), 8)
    assert alone(tiles) <= 8 and tiles[0] == Tile(0, 1, 1)


@pytest.mark.parametrize("wanted", [-1, 0, 3, 16])
def test_lanes_that_do_not_exist(wanted: int) -> None:
    with pytest.raises(InputError, match=f"^{wanted} lanes: give one of 1, 2, 4, 8"):
        chosen_width(1000, wanted)


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("coupling", ["dcae", "assembly"])
@pytest.mark.parametrize("tree", [False, True])
def test_a_beam_of_fixed_pieces(coupling: str, lanes: int, tree: bool) -> None:
    """A thousand pieces fixed to one another on a hinge fall as one: n m g L / 2 over the moment about the hinge."""
    n, mass, moment, length = 1000, 0.2, 1.4166666666666667e-4, 0.05
    system = System("beam", gravity=(0, 0, -9.81))
    fields = {"mass": mass, "center_of_mass": (length / 2, 0, 0), "inertia": (1e-4, moment, moment, 0, 0, 0)}
    for k in range(n):
        kind = {"type": "fixed", "position": (length, 0, 0)} if k else {"type": "revolute", "axis": (0, 1, 0)}
        parent = ("world" if k == 0 else f"b{k - 1}") if tree else None
        system.add(name=f"b{k}", parent=parent, joint=Joint(**kind), **fields)
        if tree and k % 100 == 50:
            joint = Joint(type="revolute", axis=(0, 1, 0), position=(length / 2, 0, 0))
            light = {"mass": 1e-9, "center_of_mass": (0, 0, 0), "inertia": (1e-12,) * 3 + (0, 0, 0)}
            system.add(name=f"t{k}", parent=f"b{k}", joint=joint, **light)
    about = sum(moment + mass * (length * (k + 0.5)) ** 2 for k in range(n))
    with closing(Dynamics(system, coupling=coupling, lanes=lanes)) as dynamics:
        found = dynamics.accelerations(dynamics.subchain.q, dynamics.subchain.u)
    falls = n * mass * 9.81 * n * length / 2 / about
    assert_close("falls", found[0], falls, "statics" if tree else "dense")  # twigs weigh 2e-10 of it


def test_bodies_that_are_fixed_stay_with_what_carries_them() -> None:
    """Tiles begin at bodies that move."""
    patterns = np.array(([2] + [0] * 3) * 64 + [0] * 500, np.int8)
    tiles = cut_chain(patterns, 4, 8, 64)
    assert sum(tile.length * tile.width for tile in tiles) == len(patterns)
    begins = [tile.first + k * tile.length for tile in tiles for k in range(tile.width)]
    assert any(tile.width > 1 for tile in tiles) and patterns[begins].all()
