"""The oracles proven: dense against Pinocchio, closed forms, and balances of power and momentum."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpimbs.model import System
from oracles import dense
from oracles.dense import Array
from oracles.pinocchio_oracle import PinocchioOracle
from oracles.random_systems import ALL, random_system

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
        "inverse dynamics": (dense.inverse_dynamics(system, q, u, tau, t), other.inverse_dynamics(q, u, tau, t)),
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
    power += sum(force * u[d] for d, force in dense.pushes(c, q, u))
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
