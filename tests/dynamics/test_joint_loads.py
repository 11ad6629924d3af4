"""Loads through the joints, over ranks: against oracles, the balance of every body, and statics by hand."""

from contextlib import closing

import numpy as np
import pytest
from mpi4py import MPI

from cases import along_motion, moving_state, typed_chain
from mpi_helpers import parallel_assert
from mpimbs.dynamics import Dynamics
from mpimbs.kernels.lanes import native_width
from mpimbs.model import Joint, System
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import ALL, random_system
from tolerances import assert_close

NATIVE = native_width()
G = 9.81


def joint_loads(
    system: System,
    comm: MPI.Comm,
    q: Array,
    u: Array,
    tau: Array | None = None,
    t: float = 0.0,
    lanes: int | None = None,
) -> Array:
    """Loads of the whole system [n, 6], on every rank."""
    with closing(Dynamics(system, comm, lanes=lanes)) as dynamics:
        ours = dynamics.gather_u.part
        mine = dynamics.joint_loads(q[dynamics.gather_q.part], u[ours], None if tau is None else tau[ours], t)
        parallel_assert(mine.shape == (dynamics.subchain.n_bodies, 6), f"shape {mine.shape}", comm)
    return np.concatenate(comm.allgather(mine))


def assert_loads(system: System, ours: Array, reference: Array, tolerance: str, comm: MPI.Comm) -> None:
    """Forces relative to the largest one; moments to the largest one, or to the largest force on a body's length."""
    c = system.contents.columns()
    length = np.abs(np.concatenate((c.position, c.center_of_mass))).max()
    force = np.abs(reference[:, 3:]).max()
    moment = max(np.abs(reference[:, :3]).max(), length * force)
    assert_close("forces", ours[:, 3:], reference[:, 3:], tolerance, scale=force, comm=comm)
    assert_close("moments", ours[:, :3], reference[:, :3], tolerance, scale=moment, comm=comm)


def assert_as_dense(comm: MPI.Comm, system: System, q: Array, u: Array, tau: Array, t: float = 0.0) -> None:
    reference = dense.joint_wrenches(system, q, u, tau, t, frame="body")
    assert_loads(system, joint_loads(system, comm, q, u, tau, t), reference, "dense", comm)


def assert_drives(system: System, loads: Array, q: Array, u: Array, tau: Array, comm: MPI.Comm) -> None:
    """S^T load of every joint is its generalized force: tau, torque, spring and damper."""
    state = dense.Snapshot(system, q, u)
    components = []
    for joint, load in zip(state.joints, loads, strict=True):
        moment, force = joint.rotation @ load[:3], joint.rotation @ load[3:]  # in the joint frame
        components.append(joint.turns.T @ moment + joint.slides.T @ force)
    expected = dense.generalized_forces(system.contents.columns(), q, u, tau)
    scale = max(np.abs(loads).max(), np.abs(expected).max(initial=0.0))
    assert_close("components", np.concatenate(components), expected, "dense", scale=scale, comm=comm)


@pytest.mark.parametrize("name", ALL)
def test_one_type(comm: MPI.Comm, name: str) -> None:
    """Chains of one joint type, with springs, dampers, torques and wrenches in both frames."""
    for seed in range(3):
        system, q, u, tau = random_system(seed, comm.size + 2, True, [name], wrenches=True)
        assert_as_dense(comm, system, q, u, tau)


@pytest.mark.cases(7)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n", [4, 12, 30])
def test_mixed_types(comm: MPI.Comm, n: int, seed: int) -> None:
    """Whole loads, and their components along the motion subspace of each joint."""
    system, q, u, tau = random_system(seed, n, True, wrenches=True)
    assert_as_dense(comm, system, q, u, tau)
    assert_drives(system, joint_loads(system, comm, q, u, tau), q, u, tau, comm)


@pytest.mark.parametrize("seed", range(6))
def test_trees(seed: int) -> None:
    """Each rank solves the tree alone."""
    system, q, u, tau = random_system(seed, 15, False, wrenches=True)
    assert not system.contents.is_chain
    assert_as_dense(MPI.COMM_SELF, system, q, u, tau)
    assert_drives(system, joint_loads(system, MPI.COMM_SELF, q, u, tau), q, u, tau, MPI.COMM_SELF)


@pytest.mark.cases(2)
@pytest.mark.parametrize("wrenches", [False, True], ids=["one call", "phases"])
@pytest.mark.parametrize("period", [("revolute",), ("spherical", "universal", "helical")], ids=["hinges", "mixed"])
def test_balance_of_every_body(comm: MPI.Comm, period: tuple[str, ...], wrenches: bool) -> None:
    """In inertial components, about its center of mass: the rate of a body's momentum is its weight, its wrenches, the
    load through its joint and minus that of its child. Momentum, and its rate by differences, is the oracle's."""
    n, t = 200, 0.5
    system = typed_chain((period * n)[:n], 1)
    if wrenches:
        for k in range(0, n, 3):
            force, frame = (lambda t, k=k: (40 * t, k, -3)), ("body", "world")[k % 2]
            system.add_wrench(f"b{k}", force=force, moment=(3, 1, -20), point=(0.3, 0, 0.1), frame=frame)
    q, u, tau = moving_state(system, 2)
    u *= 0.1  # bodies turn with up to 2 rad/s: what differences over 1e-5 s cut off is about 1e-8
    with closing(Dynamics(system, comm, lanes=NATIVE)) as dynamics:
        parallel_assert(dynamics.divided.lanes == NATIVE, f"{dynamics.divided.lanes} lanes", comm)
        mine, ours = dynamics.gather_q.part, dynamics.gather_u.part
        part = dynamics.joint_loads(q[mine], u[ours], tau[ours], t)
        udot = np.concatenate(comm.allgather(dynamics.accelerations(q[mine], u[ours], tau[ours], t)))
    loads = np.concatenate(comm.allgather(part)).reshape(n, 2, 3)

    def momenta(q: Array, u: Array) -> Array:
        """Of every body, angular about its center of mass, and linear [n, 6]."""
        state = dense.Snapshot(system, q, u)
        m = state.kinematics
        spin = np.array([state.inertia(k) @ m.omega[k] for k in range(n)])
        return np.hstack((spin, state.columns.mass[:, None] * m.com_velocity))

    state = dense.Snapshot(system, q, u)
    origin, com = state.kinematics.origin, state.kinematics.com
    moment, force = np.einsum("nij,naj->ani", state.kinematics.rotation, loads)
    total = state.body_loads(t) + np.hstack((moment + np.cross(origin - com, force), force))
    arm = origin[1:] - com[:-1]
    total[:-1] -= np.hstack((moment[1:] + np.cross(arm, force[1:]), force[1:]))
    change = along_motion(momenta, dense.coordinate_rates(system, q, u), udot, q, u)
    for name, part, passed in (("moments", slice(0, 3), moment), ("forces", slice(3, 6), force)):
        assert_close(name, total[:, part], change[:, part], "difference", np.abs(passed).max(), comm)


def pendulum(**joint: object) -> System:
    system = System(gravity=(0, -G, 0))
    system.add(name="bob", mass=2, inertia=(1, 2, 1.5, 0, 0, 0), center_of_mass=(0, -3, 0),
               joint=Joint(type="revolute", **joint))  # fmt: skip
    return system


def single(system: System, q: float, u: float = 0.0, tau: float = 0.0, t: float = 0.0) -> Array:
    return joint_loads(system, MPI.COMM_SELF, *np.array([[q], [u], [tau]]), t)[0]


def test_pendulum_by_hand() -> None:
    """Force m g upward at rest; m (g + l u^2) at the bottom of the swing; the moment that holds it horizontal."""
    weight = 2 * G
    cases = {
        "at rest": (single(pendulum(), 0.0), (0, 0, 0, 0, weight, 0)),
        "at the bottom": (single(pendulum(), 0.0, 1.5), (0, 0, 0, 0, weight + 2 * 3 * 1.5**2, 0)),
        # body x points up: the force too
        "held horizontal": (single(pendulum(), np.pi / 2, tau=3 * weight), (0, 0, 3 * weight, weight, 0, 0)),
        # (I + m l^2) udot = -m g l: the bob falls by l udot, the joint carries the rest
        "let go": (single(pendulum(), np.pi / 2), (0, 0, 0, weight * (1 - 18 / 19.5), 0, 0)),
        # (I + m l^2) udot = -2 N m: the force of the joint accelerates the bob by l udot along x
        "on a spring": (single(pendulum(stiffness=8.0, rest=-0.25), 0.0), (0, 0, -2, -12 / 19.5, weight, 0)),
        "damped": (single(pendulum(damping=4.0), 0.0, 0.5), (0, 0, -2, -12 / 19.5, weight + 2 * 3 * 0.5**2, 0)),
    }
    for name, (found, expected) in cases.items():
        assert_close(name, found, expected, "rounding", scale=3 * weight)


def test_statics_over_ranks(comm: MPI.Comm) -> None:
    """A hanging chain carries at every joint what hangs below; a beam clamped joint to joint, its moment too."""
    n = 2 * comm.size + 1
    hanging, beam = System(gravity=(0, -G, 0)), System(gravity=(0, -G, 0))
    for k in range(n):
        body = {"name": f"b{k}", "mass": 1 + k, "inertia": (1, 1, 1, 0, 0, 0)}
        place = 1.0 if k else 0.0
        ball = Joint(type=("spherical", "universal", "revolute")[k % 3], position=(0, -place, 0))
        hanging.add(**body, center_of_mass=(0, -0.5, 0), joint=ball)
        clamp = Joint(type="fixed" if k else "revolute", position=(place, 0, 0))
        beam.add(**body, center_of_mass=(0.5, 0, 0), joint=clamp)
    weight = G * (1 + np.arange(n))
    below = np.cumsum(weight[::-1])[::-1]
    expected = np.zeros((n, 6))
    expected[:, 4] = below
    q, u = hanging.contents.initial_state(0, n)
    assert_close("hanging chain", joint_loads(hanging, comm, q, u), expected, "dense", comm=comm)
    arms = np.arange(n) + 0.5 - np.arange(n)[:, None]
    expected[:, 2] = (weight * np.maximum(arms, 0)).sum(axis=1)
    clamped = joint_loads(beam, comm, np.zeros(1), np.zeros(1), expected[:1, 2])
    assert_close("beam", clamped, expected, "dense", comm=comm)
