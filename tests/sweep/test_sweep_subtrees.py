"""Subtrees in lanes: closed subtrees of the same shape, side by side, do what the oracle and one sweep in doubles
do."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from mpimbs.base.sizes import PACKAGE, using
from mpimbs.dynamics import Dynamics
from mpimbs.kernels.lanes import native_width
from mpimbs.model import System, system_from
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import Seeded, build_state, build_system
from tolerances import assert_close

NATIVE = native_width()
WIDTHS = [width if width == NATIVE else pytest.param(width, marks=pytest.mark.long) for width in (2, 4, 8)]
KEPT = {
    "all": PACKAGE,
    "pivots": replace(PACKAGE, all_bytes=1),
    "nothing": replace(PACKAGE, all_bytes=1, pivot_bytes=1),
}
TRUNK = ("universal", "revolute", "spherical")
BUSH = ("revolute", "spherical", "helical", "prismatic", "free", "cylindrical", "planar", "universal", "fixed")
ABOVE = (-1, 0, 1, 0, 3, 3, 3, 6, 0)  # of each body of a bush
ON = ("world", "trunk0", "trunk2")


def bushes(copies: int) -> System:
    """Bushes of nine bodies, alike in joints but not in numbers: on the world and on two bodies of a trunk of three."""
    source = Seeded(3)
    system = System(name="bushes", gravity=(1.0, -2.0, -9.0))

    def add(kind: str, name: str, parent: str) -> None:
        drawn = build_system(source, 1, True, (kind,), True, True)
        body = drawn.contents.segments.template(0).model_copy(update={"name": name})
        system.add(body, parent=parent)

    for k, kind in enumerate(TRUNK):
        add(kind, f"trunk{k}", f"trunk{k - 1}" if k else "world")
    for copy in range(copies):
        for k, kind in enumerate(BUSH):
            add(kind, f"bush{copy}_{k}", f"bush{copy}_{ABOVE[k]}" if k else ON[copy % len(ON)])
    return system


def evaluated(dynamics: Dynamics, q: Array, u: Array, tau: Array) -> tuple[Array, Array]:
    udot, rates = np.empty_like(u), np.empty_like(q)
    dynamics.derivative(0.0, q, -u, udot, rates, tau)  # leaves numbers of another state
    dynamics.derivative(0.0, q, u, udot, rates, tau)
    return udot, rates


@pytest.mark.cases(2)
@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("width", WIDTHS)
def test_subtrees_of_all_joint_types(width: int, kept: str) -> None:
    """By the dense oracle; 11 bushes: the last tile has lanes that repeat others; wrenches, springs, forces."""
    system = bushes(11)
    q, u, tau = build_state(Seeded(4), system)
    expected, _ = dense.Snapshot(system, q, u).solve(tau, 0.0)
    with closing(Dynamics(system, lanes=1)) as alone:
        _, rates = evaluated(alone, q, u, tau)
    with using(KEPT[kept]), closing(Dynamics(system, lanes=width)) as dynamics:
        assert dynamics.divided.lanes == width
        found = evaluated(dynamics, q, u, tau)
    assert_close("accelerations", found[0], expected, "dense", scale=float(np.abs(expected).max()))
    assert_close("rates", found[1], rates, "lanes", scale=float(np.abs(rates).max()))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_path_beside_which_more_hangs_than_further_on(width: int) -> None:
    """The open body is not on the heaviest path: what hangs beside comes behind all pieces but the last."""
    system, template = (
        System(name="fork", gravity=(1.0, -2.0, -9.0)),
        system_from("spatial_chain:2").contents.segments.template(1),
    )
    for name, parent, count in (("trunk", "world", 200), ("beside", "trunk199", 62), ("further", "trunk199", 320)):
        for k in range(count):
            on = f"{name}{k - 1}" if k else parent
            system.add(template.model_copy(update={"name": f"{name}{k}"}), parent=on)
    q, u, tau = build_state(Seeded(5), system)
    with closing(Dynamics(system, lanes=1)) as alone, closing(Dynamics(system, lanes=width, cuts=1)) as dynamics:
        assert dynamics.divided.division.bounds[1] in range(262, 324), "the cut is not where less is further on"
        found, expected = evaluated(dynamics, q, u, tau), evaluated(alone, q, u, tau)
    assert_close("accelerations", found[0], expected[0], "lanes", scale=float(np.abs(expected[0]).max()))


@pytest.mark.cases(2)
@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_path_with_side_bodies(width: int, kept: str) -> None:
    """Cut along the path; the last body of a piece is none of the path."""
    system = system_from("caterpillar:40")
    q, u, tau = build_state(Seeded(6), system)
    expected, loads = (
        dense.Snapshot(system, q, u).solve(tau, 0.0)[0],
        dense.joint_wrenches(system, q, u, tau, 0.0, "body"),
    )
    sizes = replace(KEPT[kept], join_cost=0.1)
    with using(sizes), closing(Dynamics(system, lanes=width)) as dynamics:
        assert dynamics.divided.lanes == width
        found = evaluated(dynamics, q, u, tau)[0]
        carried = dynamics.joint_loads(q, u, tau)
    assert_close("accelerations", found, expected, "dense", scale=float(np.abs(expected).max()))
    assert_close("loads", carried, loads, "dense", scale=float(np.abs(loads).max()))
