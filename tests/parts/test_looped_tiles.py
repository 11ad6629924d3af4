"""Looped tiles: what repeats in a system with loops is swept in lanes, which find what doubles do."""

import functools
from contextlib import closing

import numpy as np
import pytest

from mpimbs.dynamics import Dynamics
from mpimbs.model import System, system_from
from mpimbs.parts.intervals import Intervals
from mpimbs.parts.lane_subtrees import Swept
from oracles.dense import Array
from oracles.loops import closed
from oracles.random_loops import repeated_mechanism
from tolerances import assert_close

# Of each how many bodies are not in the lanes, of eight at the most.
REPEATED = {
    "alone": (functools.partial(repeated_mechanism, 1, 4, 1, 16), 0),
    "with loops to the world": (functools.partial(repeated_mechanism, 4, 4, 1, 17, to_world=1.0), 4),
    "linked": (functools.partial(repeated_mechanism, 2, 3, 1, 16, 1), 0),
    "on a hub": (functools.partial(repeated_mechanism, 7, 3, 0, 18, 1, True), 7),
}


def swept(system: System, **settings: int) -> Swept:
    with closing(Dynamics(system, **settings)) as dynamics:
        assert isinstance(dynamics.divided.subchains, Intervals)
        return dynamics.divided.subchains.swept


def found(system: System, q: Array, u: Array, tau: Array, lanes: int) -> dict[str, Array]:
    with closing(Dynamics(system, lanes=lanes)) as dynamics:
        loops = dynamics.loops
        assert loops is not None
        joints, _, carried = dynamics.loads.joints_and_loops(q, u, tau)
        assert carried is not None
        moved = dynamics.subchain.displaced(q, 1e-4 * np.sin(np.arange(system.nu)))
        return {
            "accelerations": dynamics.accelerations(q, u, tau),
            "joint loads": joints,
            "loads": carried,
            "violations": loops.violations(moved, u),
            "speeds": loops.close_speeds(q, u + np.cos(np.arange(system.nu))),
            "places": loops.close_places(moved),
        }


@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("name", REPEATED)
def test_lanes_find_what_doubles_do(name: str) -> None:
    make, left = REPEATED[name]
    system, q, u, tau = make()
    lanes = 8
    assert swept(system, lanes=lanes) == (system.n_bodies - left, 0, left)
    doubles, here = (found(system, q, u, tau, width) for width in (1, lanes))
    for quantity, expected in doubles.items():
        scale = max(1.0, float(np.abs(expected).max()))
        assert_close(quantity, here[quantity], expected, "redundant", scale=scale)


def test_more_may_hang_on_the_last() -> None:
    """A tool on the last of equal mechanisms is swept with it: by the dense oracle."""
    system, q, u, tau = repeated_mechanism(5, 4, 1, 16)
    joint = {"type": "revolute", "axis": (0, 0, 1), "position": (0.1, 0.2, 0.3)}
    inertia = (1.0, 1.2, 1.5, 0.0, 0.0, 0.0)
    system.add(name="tool", mass=2.0, center_of_mass=(0.3, 0.1, 0.0), inertia=inertia, joint=joint)
    q, u, tau = (np.append(part, value) for part, value in ((q, 0.4), (u, -0.7), (tau, 0.2)))
    assert swept(system, lanes=8).trunk > 1
    with closing(Dynamics(system, lanes=8)) as dynamics:
        found = dynamics.accelerations(q, u, tau)
    expected = closed(system, q, u, tau).udot
    assert_close("accelerations", found, expected, "loops", scale=max(1.0, float(np.abs(expected).max())))


def test_ends_of_a_row_need_no_neighbours() -> None:
    """The last crank is none of the linkages: all of these are in lanes, the first and the last too."""
    assert swept(system_from("four_bar:40"), lanes=8) == (80, 0, 1)
    assert swept(system_from("four_bar:41"), lanes=8) == (80, 0, 3)


def test_driven_loops_stay_in_doubles() -> None:
    system = system_from("four_bar:32")
    system.contents.loops[:] = [loop.model_copy(update={"damping": (1.0,)}) for loop in system.contents.loops]
    assert swept(system, lanes=8).subtrees == 0
