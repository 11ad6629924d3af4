"""The oracles proven: dense against Pinocchio, closed forms, and balances of power and momentum."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpimbs.model import Joint, System, Wrench
from oracles import dense
from oracles.dense import Array
from oracles.pinocchio_oracle import PinocchioOracle
from oracles.random_systems import ALL, SETTINGS, random_system, states, systems

MOVING = [name for name in ALL if name != "fixed"]


def error(ours: Array | float, reference: Array | float) -> float:
    """Largest difference relative to the largest reference value."""
    return float(np.max(np.abs(np.subtract(ours, reference))) / max(np.max(np.abs(reference)), 1e-300))


def assert_agree(system: System, q: Array, u: Array, tau: Array, t: float = 0.0, limit: float = 1e-10) -> None:
    """Both oracles give the same accelerations, energies, inertia matrix and inverse dynamics."""
    other = PinocchioOracle(system)
    udot = dense.dense_accelerations(system, q, u, tau, t)
    kinetic, potential = dense.energy(system, q, u)
    pairs: dict[str, tuple[Any, Any]] = {
        "udot": (udot, other.accelerations(q, u, tau, t)),
        "kinetic": (kinetic, other.kinetic_energy(q, u)),
        "potential": (1e3 + potential, 1e3 + other.potential_energy(q)),
        "mass matrix": (dense.mass_matrix(system, q), other.mass_matrix(q)),
        "inverse dynamics": (
            dense.inverse_dynamics(system, q, u, tau, t),
            other.inverse_dynamics(q, u, tau, t),
        ),
        "round trip": (dense.inverse_dynamics(system, q, u, udot, t), tau),
    }
    errors = {name: error(ours, reference) for name, (ours, reference) in pairs.items()}
    assert max(errors.values()) < limit, errors


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("name", MOVING)
def test_one_type(name: str, n: int) -> None:
    assert_agree(*random_system(n, n, True, [name], wrenches=True))


@pytest.mark.cases(8)
@pytest.mark.parametrize("chain", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_mixed(seed: int, chain: bool) -> None:
    assert_agree(*random_system(seed, 12, chain, wrenches=True))


@SETTINGS
@given(st.data())
def test_any(data: st.DataObject) -> None:
    system = data.draw(systems(6, wrenches=True))
    assert_agree(system, *data.draw(states(system)))


def test_fixed_only() -> None:
    system, q, u, tau = random_system(0, 3, False, ["fixed"])
    assert dense.dense_accelerations(system, q, u, tau).shape == (0,)
    assert error(dense.energy(system, q, u)[1], PinocchioOracle(system).potential_energy(q)) < 1e-12


def test_repeated_bodies() -> None:
    repeated = System(gravity=(1, -9, 2))
    joint = Joint(type="universal", position=(0, -2, 0), rotation=(0.6, 0, 0.8, 0), stiffness=3, damping=1)
    template = repeated.add(
        name="link", mass=2, center_of_mass=(0, -1, 0.2), inertia=(1, 2, 2.5, 0.1, 0, 0), joint=joint
    )
    repeated.repeat(5, template.model_copy(update={"name": "copy", "parent": None}))
    rng = np.random.default_rng(1)
    assert_agree(repeated, *rng.uniform(-1, 1, (3, repeated.nu)))


def test_functions_of_time() -> None:
    """Torques, moments and forces given as functions of time are taken at t."""
    system = System()
    push = Wrench(force=lambda t: (3 * t, 0, 1), moment=lambda t: (0, t, -t), point=(0.1, 0.2, 0.3), frame="world")
    for k in range(3):
        joint = Joint(type="spherical", position=(0, -1, 0), torque=lambda t, k=k: (k * t, 1, t**2))
        system.add(name=f"b{k}", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=joint, wrench=(push,))
    q = np.tile([0.6, 0, 0.8, 0], 3)
    u = np.linspace(-1, 1, 9)
    tau = np.zeros(9)
    for t in (0.0, 2.0):
        expected = np.concatenate([(k * t, 1, t**2) for k in range(3)])
        assert_agree(system, q, u, tau + 1, t)
        forces = dense.generalized_forces(system.columns(), q, u, tau, t)
        np.testing.assert_allclose(forces, expected)
    assert error(dense.dense_accelerations(system, q, u, t=2.0), dense.dense_accelerations(system, q, u)) > 0.1


def test_pendulum() -> None:
    """(I + m l^2) u' = -m g l sin q + tau, held by the centripetal force and the weight at the bottom."""
    system = System()
    inertia, joint = (4, 4, 4, 0, 0, 0), Joint(type="revolute")
    system.add(name="p", mass=2, center_of_mass=(0, -3, 0), inertia=inertia, joint=joint)
    q, u, tau = np.array([0.4]), np.array([1.5]), np.array([0.7])
    expected = (0.7 - 2 * 9.81 * 3 * np.sin(0.4)) / (4 + 2 * 9)
    assert error(dense.dense_accelerations(system, q, u, tau), expected) < 1e-14
    wrench = dense.joint_wrenches(system, 0 * q, u)
    np.testing.assert_allclose(wrench, [[0, 0, 0, 0, 2 * (9.81 + 3 * 1.5**2), 0]], atol=1e-12)


def test_free_body() -> None:
    """Euler's equations, and v' + w x v = g in body components."""
    system = System(gravity=(0, 0, -9.81))
    system.add(name="b", mass=2, inertia=(1, 2, 2.5, 0, 0, 0), joint=Joint(type="free"))
    q, w, v = np.array([0.6, 0.8, 0, 0, 1, 2, 3]), np.array([1.0, 2, 3]), np.array([-1.0, 0.5, 2])
    i = np.array([1, 2, 2.5])
    down = np.array([0, -9.81 * 0.96, 9.81 * 0.28])  # body axes: turned about x, cos = -0.28, sin = 0.96
    expected = np.concatenate((-np.cross(w, i * w) / i, down - np.cross(w, v)))
    assert error(dense.dense_accelerations(system, q, np.concatenate((w, v))), expected) < 1e-14


def test_springs() -> None:
    """A rotational spring turns back about its axis; a free joint's pulls along the joint frame's axes."""
    turned = [np.array([np.cos(a / 2), 0, 0, np.sin(a / 2)]) for a in (0.3, 0.8)]
    stiffness = (4, 4, 4, 1, 2, 3)
    potential, force = dense.spring(
        "free", np.array([*turned[1], 1, 1, 1]), np.array([*turned[0], 1, 0, 3]), np.array(stiffness)
    )
    assert error(potential, 0.5 * (4 * 0.5**2 + 2 * 1**2 + 3 * 2**2)) < 1e-14
    # -2 along the joint frame's y and 6 along z, seen from a body turned about z by 0.8
    expected = (0, 0, -4 * 0.5, -2 * np.sin(0.8), -2 * np.cos(0.8), 6)
    np.testing.assert_allclose(force, expected, atol=1e-14)
    _, same = dense.spring("spherical", -turned[1], turned[0], np.array([4.0, 4, 4]))  # -q is the same rotation
    np.testing.assert_allclose(same, expected[:3], atol=1e-14)


def flow_rate(function: Callable[..., Any], system: System, q: Array, u: Array, udot: Array, h: float = 1e-5) -> Array:
    """Central difference of function(system, q, u) along the motion."""
    qdot = dense.coordinate_rates(system, q, u)
    ahead, behind = (np.array(function(system, q + s * qdot, u + s * udot)) for s in (h, -h))
    return (ahead - behind) / (2 * h)


@pytest.mark.parametrize("chain", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_power_and_momentum(seed: int, chain: bool) -> None:
    """The energy's rate is the power of what is not a potential; momentum's is the outer loads' sum."""
    system, q, u, tau = random_system(seed, 7, chain, wrenches=True)
    udot = dense.dense_accelerations(system, q, u, tau)
    state = dense.Snapshot(system, q, u)
    c, m = state.columns, state.kinematics
    loads = state.body_loads(0.0)

    applied = loads - np.pad(c.mass[:, None] * state.gravity, ((0, 0), (3, 0)))
    power = (tau + c.torque - c.damping * u) @ u + np.sum(applied * np.hstack((m.omega, m.com_velocity)))
    parts = flow_rate(dense.energy, system, q, u, udot)
    assert abs(parts.sum() - power) < 1e-6 * (abs(parts).sum() + abs(power))

    wrenches = dense.joint_wrenches(system, q, u, tau)
    roots = c.parent < 0
    force = loads[:, 3:].sum(axis=0) + wrenches[roots, 3:].sum(axis=0)
    moment = (loads[:, :3] + np.cross(m.com, loads[:, 3:])).sum(axis=0)
    moment += (wrenches[:, :3] + np.cross(m.origin, wrenches[:, 3:]))[roots].sum(axis=0)
    linear, angular = flow_rate(dense.momentum, system, q, u, udot)
    assert error(linear, force) < 1e-6
    assert error(angular, moment) < 1e-6


def test_joint_wrenches_do_the_joint_forces() -> None:
    """Each joint's wrench, in body components, projects on its own axis as its torque."""
    system, q, u, tau = random_system(3, 5, True, ["revolute"], springs=False)
    c = system.columns()
    wrenches = dense.joint_wrenches(system, q, u, tau, frame="body")
    assert error(np.einsum("ni,ni->n", wrenches[:, :3], c.axis), tau) < 1e-10


def test_same_everywhere() -> None:
    """A seed gives the same system and state each time."""
    first, second = random_system(7, 6, False), random_system(7, 6, False)
    assert all(np.array_equal(a, b) for a, b in zip(first[1:], second[1:], strict=True))
    assert np.array_equal(first[0].columns().inertia, second[0].columns().inertia)
