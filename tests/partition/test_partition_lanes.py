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
from mpimbs.kernels.lanes import WIDTHS, native_width
from mpimbs.model import Joint, System, system_from
from mpimbs.partition.lanes import chosen_width, cut_chain, cut_tiles
from mpimbs.parts.tiles import Tile
from oracles.random_systems import ALL, SETTINGS
from tolerances import assert_close

Integers = np.ndarray

LANES = st.sampled_from(WIDTHS)


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


@SETTINGS
@given(st.integers(0, 5000), LANES, st.integers(1, 6), st.integers(0, 60))
def test_equal_joints(n: int, width: int, least: int, more: int) -> None:
    """Fewer bodies than lanes are left, in about as few tiles as the longest lane allows."""
    most = 20 + 2 * least + more
    tiles = cut_tiles(np.full(n, 3), width, least, most)
    if n < width * least:
        assert tiles == [Tile(0, n, 1)] * (n > 0)
        return
    assert alone(tiles) < width
    lengths = [tile.length for tile in tiles if tile.width > 1]
    assert len(lengths) <= 1 + 1.1 * n / (width * most), f"{lengths}: {most} at most"


def test_a_million_bodies() -> None:
    n = 10**6
    tiles = cut_tiles(np.zeros(n, np.int64), 8)
    assert len(tiles) == -(-n // (8 * PACKAGE.most_lane)) and not alone(tiles)
    types = np.random.default_rng(0).integers(0, 9, n)
    assert cut_tiles(types, 8) == [Tile(0, n, 1)]


@SETTINGS
@given(st.lists(st.integers(0, 8), min_size=1, max_size=12), st.integers(1, 3000), LANES)
def test_periods(period: list[int], n: int, width: int) -> None:
    """What a period does not fill is left, for every period that fits the lanes."""
    rest = alone(cut_tiles(np.resize(period, n), width))
    assert rest < width * (len(period) + PACKAGE.least_lane), f"{rest} of {n} alone"


@SETTINGS
@given(st.integers(1, 3000), LANES, st.data())
def test_odd_joints(n: int, width: int, data: st.DataObject) -> None:
    """A joint of another type costs itself and what does not fill lanes before and after it."""
    found = np.zeros(n, np.int64)
    odd = data.draw(st.lists(st.integers(0, n - 1), max_size=5, unique=True))
    found[odd] = 1 + np.arange(len(odd))
    rest = alone(cut_tiles(found, width))
    assert rest <= len(odd) + (len(odd) + 1) * (width * PACKAGE.least_lane - 1), f"{rest} of {n} alone"


def some_odd(n: int, share: float, period: int = 1) -> Integers:
    """A chain whose joints repeat a period, but for a share of them, at random, of another type."""
    found = np.resize(np.arange(period), n)
    found[np.random.default_rng(0).random(n) < share] = period
    return found


@pytest.mark.parametrize("share", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("width", WIDTHS)
def test_many_odd_joints(width: int, share: float) -> None:
    """Between two odd joints a tile leaves less than a body a lane, and several leave less than another tile."""
    found = some_odd(10**5, share)
    tiles = cut_tiles(found, width)
    assert_tiles(tiles, found, width)
    odd = np.flatnonzero(found)
    between = np.diff(odd, prepend=-1, append=len(found)) - 1
    shortest = width * PACKAGE.least_lane
    left = np.where(
        between < shortest, between, np.where(between <= width * PACKAGE.most_lane // 2, between % width, shortest - 1)
    )
    assert alone(tiles) <= left.sum() + len(odd), f"{alone(tiles)} of {len(found)} alone"
    assert len(tiles) <= 2 * len(between) + 2 * (between // (width * PACKAGE.most_lane)).sum()


class Counted(np.ndarray):
    """Numbers that count how often they are compared."""

    comparisons = 0

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> object:
        plain = [np.asarray(one) for one in inputs]
        Counted.comparisons += max(one.size for one in plain)
        return getattr(ufunc, method)(*plain, **options)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5])
@pytest.mark.parametrize("period", [1, 3, 7])
@pytest.mark.parametrize("width", WIDTHS)
def test_work_of_cutting(width: int, period: int, share: float) -> None:
    """Each length of a lane is tried once for the whole chain, not again for every tile."""
    found = some_odd(50_000, share, period)
    Counted.comparisons = 0
    tiles = cut_tiles(found.view(Counted), width)
    assert tiles == cut_tiles(found, width)
    assert len(found) < Counted.comparisons < 1.5 * PACKAGE.most_lane * len(found)


@pytest.mark.parametrize("n", [64, 300, 1024, 5000])
@pytest.mark.parametrize("where", ["base", "middle", "tip"])
def test_one_odd_joint(where: str, n: int) -> None:
    found = np.zeros(n, np.int64)
    found[{"base": 0, "middle": n // 2, "tip": -1}[where]] = 8
    assert alone(cut_tiles(found, 4)) <= 2 * (4 * PACKAGE.least_lane - 1) + 1


@pytest.mark.parametrize("seed", range(5))
def test_random_types_are_one_piece(seed: int) -> None:
    found = np.random.default_rng(seed).integers(0, len(ALL), 20000)
    for width in (1, 4, 8):
        assert cut_tiles(found, width) == [Tile(0, len(found), 1)]
    assert alone(cut_tiles(found, 2)) > 0.99 * len(found), "a few stretches happen to repeat"


def chain_of(*types: str) -> System:
    return typed_chain(types, 0)


def test_patterns_of_systems() -> None:
    """Joints are alike where the sweeps take the same steps: with pitch or without, whatever the bodies."""
    system = chain_of("revolute", "revolute", "helical", "spherical", "revolute")
    system.add(system.body(2).model_copy(update={"name": "flat", "parent": None}))
    system.add(
        system.body(2).model_copy(
            update={"name": "flat2", "parent": None, "joint": system.body(2).joint.model_copy(update={"pitch": 0.0})}
        )
    )
    found = system.joint_patterns(0, 7)
    assert found[0] == found[1] == found[4] and found[2] == found[5] != found[6]
    assert len(set(found)) == 4
    assert np.array_equal(system.joint_patterns(2, 5), found[2:5])
    tiles = cut_tiles(system_from("free_chain:1025").joint_patterns(0, 1025), 8)
    assert alone(tiles) <= 8 and tiles[0] == Tile(0, 1, 1)


def test_chosen_width() -> None:
    native = native_width()
    assert chosen_width(native * PACKAGE.least_lane, None) == native == chosen_width(10**6, None)
    assert chosen_width(native * PACKAGE.least_lane - 1, None) == chosen_width(0, None) == 1
    for width in (1, *WIDTHS):
        assert chosen_width(1, width) == width, "what the user asks for"


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
