"""The sweeps of one process against the dense oracle: accelerations, rates, poses, energy, momentum, joint forces."""

from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import accelerations, along_motion, isolated, moving_state
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
        totals = dynamics.subchain.energy_and_momentum(q, u, gravity)
    assert_close("accelerations", udot, dense.dense_accelerations(system, q, u, tau, t), "dense")
    assert_close("coordinate rates", rates, dense.coordinate_rates(system, q, u), "dense")
    state = dense.kinematics(system, q, u)
    assert_close("rotations", rotations, state.rotation, "dense")
    assert_close("positions", positions, state.origin, "dense")
    kinetic, potential = dense.energy(system, q, u)
    linear, angular = dense.momentum(system, q, u)
    c = system.columns()
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


@pytest.mark.parametrize("spec", ["chain:64", "spatial_chain:64", "free_chain:64", "rope:64", "tree:3:3"])
def test_standard_system(spec: str) -> None:
    system = system_from(spec)
    q, u, tau = moving_state(system)
    assert_close(
        "accelerations", accelerations(system, q, u, tau), dense.dense_accelerations(system, q, u, tau), "long"
    )


@pytest.mark.parametrize("chain", [True, False])
def test_functions_of_time(chain: bool) -> None:
    """Prescribed torques, moments and forces act with their values at t."""
    system, q, u, tau = random_system(5, 6, chain, ["revolute", "spherical", "cylindrical"])
    system.set_torque("b1", lambda t: 30 * np.sin(t))
    system.set_torque("b4", lambda t: np.full(system.body(4).joint.kind.nu, 10 * t))
    system.add_wrench("b2", force=lambda t: (20 * t, 0, 5), moment=(1, 2, 3), point=(0.1, 0.2, 0.3))
    system.add_wrench("b5", force=(3, 2, 1), moment=lambda t: (0, t**2, -t), frame="world", point=(1, 0, 0))
    results = []
    for t in (0.0, 2.0):
        results.append(accelerations(system, q, u, tau, t))
        assert_close(f"accelerations at {t} s", results[-1], dense.dense_accelerations(system, q, u, tau, t), "dense")
    assert np.max(np.abs(results[0] - results[1])) > 0.1, "the functions have no effect"


def test_wrenches_are_set_anew_each_time() -> None:
    """A second evaluation at another time and pose has nothing left of the first."""
    system, q, u, tau = random_system(3, 4, True, wrenches=True)
    system.add_wrench("b2", force=lambda t: (100 * t, 0, 0), frame="world")
    with closing(Dynamics(system)) as dynamics:
        dynamics.accelerations(q[::-1].copy(), u, tau, 7.0)
        again = dynamics.accelerations(q, u, tau, 0.5)
    assert_close("accelerations", again, accelerations(system, q, u, tau, 0.5), "exact")


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
    piece, force = Subchain(system), np.empty(3)
    joint_forces(0.0, piece.structure, piece.springs, q, np.zeros(3), np.zeros(3), force)
    assert_close("spring moment", force, -3 * short * axis, "rounding", scale=3.0)


def test_quaternions_need_not_be_of_unit_length() -> None:
    """The state may carry its rounding: the length of a quaternion has no effect on the accelerations."""
    system, q, u, tau = random_system(2, 5, True, ["spherical", "free"])
    scaled = q.copy()
    for k, start in enumerate(system.columns().q_offset[:-1]):
        scaled[start : start + 4] *= 1 + 0.1 * (k + 1)
    assert_close("accelerations", accelerations(system, scaled, u, tau), accelerations(system, q, u, tau), "dense")


@pytest.mark.parametrize("chain", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_momentum_is_conserved(seed: int, chain: bool) -> None:
    """Joint forces are inner ones: they change no momentum of a system that nothing holds."""
    system = isolated(random_system(seed, 8, chain)[0])
    q, u, tau = moving_state(system, seed)
    tau = np.concatenate((np.zeros(6), 20 * tau[6:]))
    with closing(Dynamics(system)) as dynamics:
        udot, rates = np.empty(system.nu), np.empty(system.nq)
        dynamics.derivative(0.0, q, u, udot, rates, tau)

        def momentum(q: Array, u: Array) -> Array:
            return dynamics.subchain.energy_and_momentum(q, u, np.zeros(3))[2:]

        change = along_motion(momentum, rates, udot, q, u)
        size = np.abs(along_motion(momentum, rates, np.zeros_like(udot), q, u)).max()
    assert_close("rate of momentum", change, np.zeros(6), "difference", scale=size)


@pytest.mark.parametrize("chain", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_power(seed: int, chain: bool) -> None:
    """Energy changes by the power of torques and dampers: springs and weight are potentials."""
    system, q, u, tau = random_system(seed, 8, chain)
    c = system.columns()
    with closing(Dynamics(system)) as dynamics:
        udot, rates = np.empty(system.nu), np.empty(system.nq)
        dynamics.derivative(0.0, q, u, udot, rates, tau)

        def energies(q: Array, u: Array) -> Array:
            return dynamics.subchain.energy_and_momentum(q, u, np.asarray(system.gravity))[:2]

        parts = along_motion(energies, rates, udot, q, u)
    power = (tau + c.torque - c.damping * u) @ u
    assert_close("power", parts.sum(), power, "difference", scale=np.abs(parts).sum() + abs(power))
