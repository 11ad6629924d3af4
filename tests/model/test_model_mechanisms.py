"""Standard systems with closed loops: closed where they begin, of the right mobility and reduced inertia."""

import numpy as np
import pytest

from mpimbs.base.errors import InputError
from mpimbs.model import System, system_from
from oracles.dense import Array, Snapshot, kinematics
from oracles.loops import closed, closures, independent, opened, position_violation
from oracles.mechanisms import four_bar_acceleration
from tolerances import assert_close

SPECS = [
    *("four_bar:1", "four_bar:2", "four_bar:40", "four_bar_chain:1", "four_bar_chain:2", "four_bar_chain:40"),
    *("five_bar", "coupled_loops", "parallelogram", "andrews", "boom:1", "boom:2", "boom:17"),
    *("ring:3", "ring:4", "ring:200", "track:3", "track:4", "track:16", "track:17", "track:18", "track:120"),
]


def start(spec: str) -> tuple[System, Array, Array]:
    system = system_from(spec)
    return system, *system.contents.initial_state(0, system.n_bodies)


@pytest.mark.cases(4)
@pytest.mark.parametrize("spec", SPECS)
def test_loops_are_closed_where_they_begin(spec: str) -> None:
    system, q, u = start(spec)
    size = np.abs(kinematics(opened(system), q, u).origin).max()
    opening = np.concatenate([loop.rows() @ u for loop in closures(system, Snapshot(opened(system), q, u))])
    assert_close("places", position_violation(system, q), np.zeros(len(system.contents.loops)), "rounding", scale=size)
    assert_close("speeds", opening, np.zeros_like(opening), "rounding", scale=size)


@pytest.mark.parametrize(
    ("spec", "mobility", "redundant"),
    [
        ("four_bar:3", 1, 9),
        ("four_bar_chain:3", 1, 9),
        ("five_bar", 2, 3),
        ("coupled_loops", 4, 6),
        ("parallelogram", 1, 7),
        ("andrews", 1, 9),
        ("boom:1", 1, 2),
        ("boom:4", 4, 8),
        ("ring:5", 15, 0),
        ("track:7", 10, 3),
        ("track:20", 23, 3),
    ],
)
def test_mobility_and_redundant_constraints(spec: str, mobility: int, redundant: int) -> None:
    system, q, u = start(spec)
    jacobian = np.vstack([loop.rows() for loop in closures(system, Snapshot(opened(system), q, u))])
    rank = independent(jacobian)[0].shape[1]
    assert (system.nu - rank, len(jacobian) - rank) == (mobility, redundant)


def at_angle(spec: str, angle: float) -> Array:
    """Coordinates of a row of linkages whose cranks have an angle from x (rad)."""
    cranks = np.arange(system_from(spec).n_bodies) % 2 == 0
    q = np.where(cranks, angle, -angle)
    if "chain" in spec:
        q[2:] += np.where(cranks[2:], -np.pi, np.pi)
    return q


@pytest.mark.parametrize("tree", ["four_bar", "four_bar_chain"])
@pytest.mark.parametrize("n", [1, 2, 6])
def test_a_row_of_linkages_accelerates_as_its_reduced_equation_says(tree: str, n: int) -> None:
    system, _, u = start(f"{tree}:{n}")
    q = at_angle(f"{tree}:{n}", 1.0)
    assert_close("places", position_violation(system, q), np.zeros(n), "rounding", scale=1.0)
    assert_close("accelerations", closed(system, q, 2 * u).udot, -u * four_bar_acceleration(n, 1.0), "dense")


def test_andrews_mechanism_begins_as_in_the_test_set() -> None:
    """Accelerations at rest, of the joints in the order beta, Theta, gamma, delta, Phi, epsilon, Omega."""
    system, q, u = start("andrews")
    expected = [14222.4439199541387, -10666.8329399655854, 0, 0, 0, 0, 0]
    assert_close("accelerations", closed(system, q, u).udot, expected, "dense")


@pytest.mark.parametrize("spec", ["ring:2", "track:1", "track:999999999999", "four_bar:9999999", "boom:600000"])
def test_a_wrong_size_is_refused(spec: str) -> None:
    with pytest.raises(InputError, match=f"model {spec} has a wrong size; write {spec.split(':')[0]}:N with N from"):
        system_from(spec)
