"""Standard systems with closed loops: closed where they begin, of the right mobility and reduced inertia."""

import copy
import time

import numpy as np
import pytest

from mpimbs.errors import InputError
from mpimbs.model import System, read_system, system_from, write_system
from mpimbs.model.order import Order
from oracles.dense import Array, inverse_dynamics, kinematics, mass_matrix, rotation_of
from tolerances import assert_close

SPECS = [
    *("four_bar:1", "four_bar:2", "four_bar:40", "four_bar_chain:1", "four_bar_chain:2", "four_bar_chain:40"),
    *("five_bar", "coupled_loops", "parallelogram", "andrews", "boom:1", "boom:2", "boom:17"),
    *("ring:3", "ring:4", "ring:200", "track:3", "track:4", "track:16", "track:17", "track:18", "track:120"),
]


def opened(system: System) -> System:
    """The tree of a system, without its loops."""
    tree = copy.copy(system)
    tree.loops = []
    return tree


def violations(system: System, q: Array, u: Array) -> tuple[Array, Array]:
    """How far loops are from closed: what each joint holds, positions and speeds [loops, 6], turns before places.

    Of hinges about z and ball joints, in the joint frame on the first body.
    """
    motion = kinematics(opened(system), q, u)

    def end(k: int, position: tuple[float, ...], rotation: tuple[float, ...]) -> tuple[Array, Array, Array, Array]:
        if k < 0:
            return rotation_of(np.array(rotation)), np.array(position), np.zeros(3), np.zeros(3)
        place = motion.origin[k] + motion.rotation[k] @ position
        speed = motion.com_velocity[k] + np.cross(motion.omega[k], place - motion.com[k])
        return motion.rotation[k] @ rotation_of(np.array(rotation)), place, motion.omega[k], speed

    found = np.zeros((2, len(system.loops), 6))
    for row, (loop, ends) in enumerate(zip(system.loops, system.loop_bodies, strict=True)):
        first, second = (end(*given) for given in zip(ends, loop.positions, loop.rotations, strict=True))
        frame, apart = first[0], second[1] - first[1]
        held = {"revolute": [1.0, 1.0, 0.0], "spherical": np.zeros(3)}[loop.type]
        assert loop.type == "spherical" or loop.axis == (0, 0, 1)
        found[0, row] = *(held * np.cross([0, 0, 1], (frame.T @ second[0])[:, 2])), *(frame.T @ apart)
        drift = second[3] - first[3] - np.cross(first[2], apart)
        found[1, row] = *(held * (frame.T @ (second[2] - first[2]))), *(frame.T @ drift)
    return found[0], found[1]


def free_motions(system: System, q: Array) -> Array:
    """The speeds that keep all loops closed: an orthonormal basis [nu, mobility]."""
    columns = [violations(system, q, unit)[1].ravel() for unit in np.eye(system.nu)]
    _, sizes, directions = np.linalg.svd(np.array(columns).T)
    return directions[np.count_nonzero(sizes > 1e-9 * sizes[0]) :].T


def start(spec: str) -> tuple[System, Array, Array]:
    system = system_from(spec)
    return system, *system.initial_state(0, system.n_bodies)


@pytest.mark.parametrize("spec", SPECS)
def test_loops_are_closed_where_they_begin(spec: str) -> None:
    system, q, u = start(spec)
    size = np.abs(kinematics(opened(system), q, u).origin).max()
    place, speed = violations(system, q, u)
    assert_close("places", place, np.zeros_like(place), "rounding", scale=size)
    assert_close("speeds", speed, np.zeros_like(speed), "rounding", scale=size)


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
    system, q, _ = start(spec)
    assert free_motions(system, q).shape[1] == mobility
    held = sum(6 - loop.kind.nu for loop in system.loops)
    assert held - (system.nu - mobility) == redundant


def at_angle(spec: str, angle: float) -> Array:
    """Coordinates of a row of linkages, or of the parallelogram, whose cranks have an angle from x (rad)."""
    system = system_from(spec)
    names = [system.name_of(k).split("_")[0] for k in range(system.n_bodies)]
    if not spec.startswith("four_bar_chain"):
        return np.array([angle if name == "crank" else -angle for name in names])
    return np.array([angle, -angle, *(angle - np.pi if name == "crank" else np.pi - angle for name in names[2:])])


@pytest.mark.parametrize(
    ("spec", "inertia", "moment"),
    [
        *(
            (f"{tree}:{n}", (n + 1) / 3 + n, 9.81 * ((n + 1) / 2 + n))
            for n in (1, 2, 6)
            for tree in ("four_bar", "four_bar_chain")
        ),
        ("parallelogram", 3.0, 9.81 * 3.5),
    ],
)
def test_the_reduced_equation_of_linkages(spec: str, inertia: float, moment: float) -> None:
    """I theta'' = -G cos theta, from the inertia matrix and the weights of the tree."""
    system, tree = system_from(spec), opened(system_from(spec))
    q = at_angle(spec, 1.0)
    still = np.zeros(tree.nu)
    place, _ = violations(system, q, still)
    assert_close("places", place, np.zeros_like(place), "rounding", scale=1.0)
    (motion,) = free_motions(system, q).T
    motion = motion / motion[0]
    assert_close("inertia", motion @ mass_matrix(tree, q) @ motion, inertia, "dense")
    assert_close("moment", motion @ inverse_dynamics(tree, q, still, still), moment * np.cos(1.0), "dense")


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
    system, q, _ = start("andrews")
    tree = opened(system)
    (motion,) = free_motions(system, q).T
    still = np.zeros(tree.nu)
    acting = -inverse_dynamics(tree, q, still, still)  # torque and spring
    found = motion * (motion @ acting) / (motion @ mass_matrix(tree, q) @ motion)
    expected = [14222.4439199541387, -10666.8329399655854, 0, 0, 0, 0, 0]
    assert_close("accelerations", found, expected, "dense")


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
    began = time.perf_counter()
    system = system_from("four_bar:100000")
    assert (system.n_bodies, len(system.loops)) == (200_001, 100_000)
    assert time.perf_counter() - began < 10
