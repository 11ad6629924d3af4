"""Standard systems with closed loops: closed where they begin, of the right mobility and reduced inertia."""

import time

import numpy as np
import pytest

from mpimbs.base.errors import InputError
from mpimbs.model import System, read_system, system_from, write_system
from mpimbs.model.order.order import Order
from oracles.dense import Array, Snapshot, kinematics
from oracles.loops import closed, closures, independent, opened, position_violation
from oracles.mechanisms import four_bar_acceleration, parallelogram_acceleration
from tolerances import assert_close

SPECS = [
    *("four_bar:1", "four_bar:2", "four_bar:40", "four_bar_chain:1", "four_bar_chain:2", "four_bar_chain:40"),
    *("five_bar", "coupled_loops", "parallelogram", "andrews", "boom:1", "boom:2", "boom:17"),
    *("ring:3", "ring:4", "ring:200", "track:3", "track:4", "track:16", "track:17", "track:18", "track:120"),
]


def start(spec: str) -> tuple[System, Array, Array]:
    system = system_from(spec)
    return system, *system.initial_state(0, system.n_bodies)


@pytest.mark.parametrize("spec", SPECS)
def test_loops_are_closed_where_they_begin(spec: str) -> None:
    system, q, u = start(spec)
    size = np.abs(kinematics(opened(system), q, u).origin).max()
    opening = np.concatenate([loop.rows() @ u for loop in closures(system, Snapshot(opened(system), q, u))])
    assert_close("places", position_violation(system, q), np.zeros(len(system.loops)), "rounding", scale=size)
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


def test_the_parallelogram_accelerates_as_its_reduced_equation_says() -> None:
    system, q, u = start("parallelogram")
    assert_close("accelerations", closed(system, q, u).udot, -u * parallelogram_acceleration(1, 2, 1.0), "dense")


def test_a_row_of_linkages_begins_as_in_the_benchmark() -> None:
    for spec in ("four_bar:5", "four_bar_chain:5"):
        system, q, u = start(spec)
        names = [f"{what}_{i}" for i in range(6) for what in ("crank", "coupler")][:-1]
        assert [system.name_of(k) for k in range(system.n_bodies)] == names
        motion = kinematics(opened(system), q, u)
        cranks = np.arange(0, 11, 2)
        assert_close("centers", motion.com[cranks], [(i, 0.5, 0) for i in range(6)], "rounding")
        assert_close("turning", motion.omega[:, 2], [-1.0, 0.0] * 5 + [-1.0], "rounding")
        assert_close("speeds", motion.com_velocity[1::2], [(1, 0, 0)] * 5, "rounding")
        assert system.columns().inertia[0, 2] == 1 / 12 and set(system.columns().mass) == {1.0}
    assert system.is_chain and not system_from("four_bar:5").is_chain
    assert Order.of(system_from("four_bar:5")).as_listed() is not None


def test_andrews_mechanism_begins_as_in_the_test_set() -> None:
    """Accelerations at rest, of the joints in the order beta, Theta, gamma, delta, Phi, epsilon, Omega."""
    system, q, u = start("andrews")
    expected = [14222.4439199541387, -10666.8329399655854, 0, 0, 0, 0, 0]
    assert_close("accelerations", closed(system, q, u).udot, expected, "dense")


def test_a_ring_and_a_track_turn_as_one_body_about_their_center() -> None:
    for spec in ("ring:50", "track:50"):
        system, q, u = start(spec)
        motion = kinematics(opened(system), q, u)
        assert_close("center", motion.com.mean(axis=0), np.zeros(3), "rounding", scale=np.abs(motion.com).max())
        turning = np.cross([0, 0, 1], motion.com)
        assert_close("speeds", motion.com_velocity, turning, "rounding", scale=np.abs(turning).max())
        assert system.is_chain and not u[6:].any()
    assert (system.loops[0].damping, system.body(1).joint.damping) == ((0.05,), (0.05,))


@pytest.mark.parametrize("spec", ["four_bar:3", "coupled_loops", "andrews", "boom:3", "track:24"])
def test_a_model_file_keeps_loops(spec: str, tmp_path) -> None:
    system = system_from(spec)
    write_system(system, tmp_path / "model.toml")
    again = read_system(tmp_path / "model.toml")
    assert (again.loops, list(again.bodies()), again.springs) == (system.loops, list(system.bodies()), system.springs)


@pytest.mark.parametrize("spec", ["ring:2", "track:1", "track:999999999999", "four_bar:9999999", "boom:600000"])
def test_a_wrong_size_is_refused(spec: str) -> None:
    with pytest.raises(InputError, match=f"model {spec} has a wrong size; write {spec.split(':')[0]}:N with N from"):
        system_from(spec)


def test_long_rows_are_made_quickly() -> None:
    began = time.process_time()
    system = system_from("four_bar:100000")
    assert (system.n_bodies, len(system.loops)) == (200_001, 100_000)
    assert time.process_time() - began < 10
