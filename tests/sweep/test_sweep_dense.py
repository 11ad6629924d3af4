"""The sweeps of one process against the dense oracle: accelerations, rates, poses, energy, momentum, joint forces."""

from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import accelerations
from mpimbs.base.errors import SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.model import Joint, System, system_from
from mpimbs.parts.subchain import Subchain
from mpimbs.sweep.joint_forces import joint_forces
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import ALL, SETTINGS, random_system, states, systems
from tolerances import assert_close


def assert_as_dense(system: System, q: Array, u: Array, tau: Array, t: float = 0.0) -> None:
    """Everything that one evaluation gives, and all output quantities, agree with the dense oracle."""
    gravity = np.asarray(system.gravity)
    with closing(Dynamics(system)) as dynamics:
        udot, rates = np.full(system.nu, np.nan), np.full(system.nq, np.nan)
        dynamics.derivative(t, q, u, udot, rates, tau)
        rotations, positions = dynamics.subchain.body_poses(q)
        totals = dynamics.energy_and_momentum(q, u)
    assert_close("accelerations", udot, dense.dense_accelerations(system, q, u, tau, t), "dense")
    assert_close("coordinate rates", rates, dense.coordinate_rates(system, q, u), "dense")
    state = dense.kinematics(system, q, u)
    assert_close("rotations", rotations, state.rotation, "dense")
    assert_close("positions", positions, state.origin, "dense")
    kinetic, potential = dense.energy(system, q, u)
    linear, angular = dense.momentum(system, q, u)
    c = system.contents.columns()
    weight = c.mass.sum() * np.linalg.norm(gravity) * np.abs(state.com).max() + abs(potential)
    assert_close("kinetic energy", totals[0], kinetic, "dense")
    assert_close("potential energy", totals[1], potential, "dense", scale=weight)
    speed = np.abs(state.com_velocity).max()
    assert_close("linear momentum", totals[2:5], linear, "dense", scale=c.mass.sum() * speed)
    arm = np.abs(state.com).max() * c.mass.sum() * speed
    assert_close("angular momentum", totals[5:8], angular, "dense", scale=max(arm, np.abs(angular).max()))


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("name", ALL)
def test_chain_of_one_type(name: str, n: int) -> None:
    for seed in range(3):
        assert_as_dense(*random_system(seed, n, True, [name], wrenches=True))


@pytest.mark.parametrize("chain", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_mixed(seed: int, chain: bool) -> None:
    assert_as_dense(*random_system(seed, 12, chain, wrenches=True))


@SETTINGS
@given(st.data())
def test_any_system(data: st.DataObject) -> None:
    system = data.draw(systems(6, wrenches=True))
    assert_as_dense(system, *data.draw(states(system)))


@pytest.mark.parametrize("n", [64, 128])
def test_long_spherical_chain(n: int) -> None:
    """Rounding that makes the articulated inertia unsymmetric grows exponentially along spherical joints."""
    system, q, u, tau = random_system(n, n, True, ["spherical"])
    assert_close(
        "accelerations", accelerations(system, q, u, tau), dense.dense_accelerations(system, q, u, tau), "long"
    )


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda t: 1 / (t - 0.5), "failed at t = 0.5 s: ZeroDivisionError"),
        (lambda t: (1, 2, 3), "gave 3 numbers at t = 0.5 s, needs 1"),
        (lambda t: np.nan, "not finite at t = 0.5 s"),
    ],
)
def test_bad_function_of_time(function: object, words: str) -> None:
    system = system_from("chain:3")
    system.set_torque("link2", function)  # type: ignore[arg-type]
    with pytest.raises(SimulationError, match=words) as caught:
        accelerations(system, np.zeros(3), np.zeros(3), t=0.5)
    assert "link2" in str(caught.value)


def spherical_pair(angle: float, axis: Array, sign: float) -> tuple[System, Array]:
    """One body on a spherical spring, turned by an angle from a rest position that is not the identity."""
    rest = np.array([0.8, 0.0, 0.6, 0.0])
    turned = np.concatenate(([np.cos(angle / 2)], np.sin(angle / 2) * axis))
    joint = Joint(type="spherical", stiffness=3.0, rest=tuple(rest))
    system = System()
    system.add(name="b", mass=1, inertia=(1, 2, 2.5, 0, 0, 0), joint=joint)
    return system, sign * dense.quaternion_product(rest, turned)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("angle", [0.0, 1e-14, 1e-11, 1e-8, 1e-3, 1.0, 3.0, np.pi - 1e-6, np.pi + 1e-6, 5.0])
def test_spherical_spring(angle: float, sign: float) -> None:
    """-k times the rotation vector, the short way round, for either sign of the quaternion, without 0 / 0."""
    axis = np.array([2.0, -1.0, 2.0]) / 3
    system, q = spherical_pair(angle, axis, sign)
    short = angle if angle < np.pi else angle - 2 * np.pi
    piece, force = Subchain(system.contents), np.empty(3)
    joint_forces(0.0, piece.structure, piece.springs, q, np.zeros(3), np.zeros(3), force)
    assert_close("spring moment", force, -3 * short * axis, "rounding", scale=3.0)
