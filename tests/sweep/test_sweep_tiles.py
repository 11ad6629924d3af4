"""Tiles in lanes against one piece in doubles: the same subchain, cut and swept another way."""

from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

import mpimbs.base.sizes
import mpimbs.partition.ownership
from cases import moving_state, typed_chain
from mpimbs.base.sizes import PACKAGE
from mpimbs.dynamics import Dynamics
from mpimbs.kernels.lanes import WIDTHS, native_width
from mpimbs.model import System
from mpimbs.partition.chain import cut_tiles
from mpimbs.parts.subchain import AT_REST, Subchain
from mpimbs.parts.subchains import Subchains
from mpimbs.parts.tiles import KEEP_ALL, KEEP_NOTHING, KEEP_PIVOTS, Tile
from mpimbs.sweep.structure import TURNING
from mpimbs.values.handles import matrices
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import ALL as ALL_TYPES
from swept import Swept
from tolerances import TOLERANCE, assert_close

NATIVE = native_width()  # its sweeps are compiled before the first test
OTHERS = [w for w in WIDTHS if w != NATIVE]
ROUNDINGS = 8  # of coordinates, at random, of which the worst counts

# What a chain's joints repeat.
PERIODS = {
    "revolute": ("revolute",),
    "prismatic": ("prismatic",),
    "spherical": ("spherical",),
    "free": ("free",),
    "fixed": ("fixed",),
    "mixed": ("universal", "helical", "planar", "cylindrical"),
    "balls and hinges": ("spherical", "revolute", "fixed"),
    "all": ALL_TYPES,
}


class Cut(NamedTuple):
    """How a chain is cut, and what of its workspace is kept from pass to pass."""

    least: int
    most: int  # 0: few, so that there are several tiles
    kept: int


CUTS = {
    "default": Cut(PACKAGE.least_lane, PACKAGE.most_lane, KEEP_ALL),
    "several": Cut(1, 0, KEEP_ALL),
    "pivots kept": Cut(1, 0, KEEP_PIVOTS),
    "nothing kept": Cut(1, 0, KEEP_NOTHING),
}


def force(monkeypatch: pytest.MonkeyPatch, cut: Cut, period: str) -> Cut:
    """Have every new `Dynamics` cut so; what a period's lanes may hold filled in."""
    cut = cut._replace(most=cut.most or 2 * len(PERIODS[period]) + 1)

    def cut_so(patterns: np.ndarray, width: int) -> list[Tile]:
        return cut_tiles(patterns, width, cut.least, cut.most)

    monkeypatch.setattr(mpimbs.partition.ownership, "cut_chain", cut_so)
    sizes = replace(PACKAGE, all_bytes=1 << 30 if cut.kept == KEEP_ALL else 1, pivot_bytes=1 << 30)
    if cut.kept == KEEP_NOTHING:  # less than a file may say: fixed joints have no pivots
        object.__setattr__(sizes, "pivot_bytes", -1)
    monkeypatch.setattr(mpimbs.base.sizes, "_used", sizes)
    return cut


@pytest.fixture(params=CUTS)
def cut(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Cut:
    """A way to cut, in force for the test."""
    return force(monkeypatch, CUTS[request.param], request.node.callspec.params.get("period", "revolute"))


def chain_of(period: str, n: int, seed: int = 0, **options: bool) -> tuple[System, Array, Array, Array]:
    """A random chain of n bodies whose joints repeat a period, and a moving state."""
    types = np.resize(PERIODS[period], n).tolist()
    system = typed_chain((*types[:-1], "universal") if period == "fixed" else tuple(types), seed, **options)
    return system, *moving_state(system, seed)


def evaluation(
    system: System, q: Array, u: Array, tau: Array | None, t: float = 0.0, lanes: int | None = 1
) -> tuple[Array, Array]:
    """Accelerations and rates on this process alone, after an evaluation of another state."""
    udot, rates = np.full(system.nu, np.nan), np.full(system.nq, np.nan)
    with closing(Dynamics(system, lanes=lanes)) as dynamics:
        dynamics.derivative(t + 1.0, *(a + 0.1 for a in (q, u)), udot, rates)
        udot[:] = rates[:] = np.nan
        dynamics.derivative(t, q, u, udot, rates, tau)
    return udot, rates


def assert_as_one_piece(
    what: str, system: System, q: Array, u: Array, tau: Array | None, t: float = 0.0, lanes: int | None = NATIVE
) -> None:
    udot, rates = evaluation(system, q, u, tau, t)
    found, found_rates = evaluation(system, q, u, tau, t, lanes)
    # Nothing agrees better than the accelerations of coordinates that are rounded otherwise.
    ends = np.random.default_rng(system.nu).choice([-np.inf, np.inf], (ROUNDINGS, system.nq))
    with closing(Dynamics(system, lanes=1)) as dynamics:
        moved = [dynamics.accelerations(np.nextafter(q, end), u, tau, t) - udot for end in ends]
    rounded = np.abs(moved).max(initial=0.0)
    scale = max(np.abs(udot).max(initial=0.0), 2.0 * rounded / TOLERANCE["lanes joined"][0])
    assert_close(f"accelerations of {what}", found, udot, "lanes joined", scale)
    assert_close(f"coordinate rates of {what}", found_rates, rates, "lanes")


@pytest.mark.cases(8)
@pytest.mark.parametrize("period", PERIODS)
def test_lanes_are_one_piece(period: str, cut: Cut) -> None:
    """Chains of every length up to a few bodies a lane, with springs, dampers and rest positions."""
    count = len(PERIODS[period])
    for n in sorted({1, 2, NATIVE - 1, NATIVE, NATIVE + 1, 2 * NATIVE + 3, NATIVE * count * PACKAGE.least_lane + 3}):
        assert_as_one_piece(f"{period}:{n}", *chain_of(period, n, n))


@pytest.mark.cases(2)
@pytest.mark.parametrize("period", ["mixed", "balls and hinges"])
def test_springs_here_and_there(period: str, cut: Cut) -> None:
    """Springs in some lanes and tiles, dampers and torques in others."""
    plain, *state = chain_of(period, 140, 4, springs=False)
    full = list(chain_of(period, 140, 4)[0].contents.bodies())
    system = System(gravity=plain.gravity)
    for k, body in enumerate(plain.contents.bodies()):
        names = ("stiffness", "rest") if k in (2, 100) else ("damping", "torque") if k in (9, 70) else ()
        changes = {name: getattr(full[k].joint, name) for name in names}
        joint = body.joint.model_copy(update=changes)
        system.add(body.model_copy(update={"joint": joint, "parent": None}))
    assert_as_one_piece(period, system, *state)
    found, _ = evaluation(system, *state, lanes=NATIVE)
    assert_close("accelerations", found, dense.dense_accelerations(system, *state), "dense")


@pytest.mark.cases(3)
@pytest.mark.parametrize("period", ["revolute", "balls and hinges", "mixed"])
def test_loads_from_outside(period: str, cut: Cut) -> None:
    """Wrenches in body and world frame and torques that are functions of time, on bodies of every lane."""
    system, q, u, tau = chain_of(period, 50, wrenches=True)
    for k in range(0, 50, 3):
        system.add_wrench(f"b{k}", force=lambda t, k=k: (3 * t, k, -2), moment=(1, -9, 4), frame="world")
        if system.contents.body(k + 1).joint.kind.nu:
            system.set_torque(f"b{k + 1}", lambda t, k=k: 2 * t - k)
    assert_as_one_piece(period, system, q, u, tau, 0.7)
    found, _ = evaluation(system, q, u, tau, 0.7, NATIVE)
    assert_close("accelerations", found, dense.dense_accelerations(system, q, u, tau, 0.7), "dense")
    found, _ = evaluation(system, q, u, tau, 0.8, NATIVE)
    assert np.abs(found - dense.dense_accelerations(system, q, u, tau, 0.7)).max() > 1e-6, "time has no effect"


@pytest.mark.parametrize("period", PERIODS)
def test_lanes_against_dense(period: str, cut: Cut) -> None:
    n = NATIVE * len(PERIODS[period]) + 3
    system, q, u, tau = chain_of(period, n, 1)
    udot, rates = evaluation(system, q, u, tau, lanes=NATIVE)
    assert_close("accelerations", udot, dense.dense_accelerations(system, q, u, tau), "dense")
    assert_close("coordinate rates", rates, dense.coordinate_rates(system, q, u), "dense")


@pytest.mark.parametrize("beyond", [3, 0], ids=["inside", "tip"])
@pytest.mark.parametrize("period", [name for name in PERIODS if name != "free"])
def test_handle_equations_of_lanes(period: str, beyond: int, cut: Cut) -> None:
    """A part of a chain, between neighbours or at the tip: what it tells them and what it makes of their answer."""
    n = 2 * NATIVE * len(PERIODS[period]) + 44
    first, last = 3, n - beyond
    system, q, u, tau = chain_of(period, n, 3)
    q_at, u_at = system.contents.offsets()
    mine, ours = slice(q_at[first], q_at[last]), slice(u_at[first], u_at[last])
    rng = np.random.default_rng(0)
    turn, loads = AT_REST[:TURNING].copy(), rng.normal(size=12)
    turn[9:] = rng.normal(size=3)
    loads[6:] *= beyond > 0
    found = []
    for width in (1, NATIVE):
        tiles = cut_tiles(system.contents.joint_patterns(first, last), width, cut.least, cut.most)
        part = Subchain(system.contents, first, last, tiles)
        assert part.tiles.kept == (KEEP_ALL if len(tiles) == 1 else cut.kept)
        assert part.tiles.width == width
        udot, rates = np.full(part.nu, np.nan), np.full(part.nq, np.nan)
        swept = Swept(Subchains([part]))
        swept.start(-q[mine], u[ours])  # leaves numbers of another state
        turned = swept.start(q[mine], u[ours]).copy()
        block = swept.inward(q[mine], u[ours], tau[ours], turn)[0].copy()
        swept.outward(q[mine], u[ours], loads, udot, rates)
        found.append((turned if beyond else None, matrices(block), udot, rates))
    (turned, parts, udot, rates), (turned8, parts8, udot8, rates8) = found
    if turned is not None:
        assert_close("boundary turn", turned8, turned, "lanes joined")
    for name, ours8, theirs in zip(("I", "E", "W", "p", "c"), parts8, parts, strict=True):
        assert_close(name, ours8, theirs, "lanes joined", scale=max(np.abs(theirs).max(), 1.0))
    assert_close("accelerations", udot8, udot, "lanes joined")
    assert_close("coordinate rates", rates8, rates, "lanes")


@pytest.mark.long
@pytest.mark.aside
@pytest.mark.time_limit(400)  # compiles for a number of lanes that this processor would not choose
@pytest.mark.parametrize("w", OTHERS)
def test_other_widths(w: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for cut in CUTS.values():
        for period in PERIODS:
            force(monkeypatch, cut, period)
            assert_as_one_piece(f"{period} in {w} lanes", *chain_of(period, 45, w), lanes=w)
