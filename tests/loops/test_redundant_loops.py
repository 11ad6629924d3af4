"""Loops that repeat what joints do, and loops to the world anywhere: none is lost, none holds what moves."""

from contextlib import closing

import numpy as np
import pytest
from mpi4py import MPI
from scipy.spatial.transform import Rotation

from cases import parts
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.statics.modes import modes
from mpimbs.model import Joint, System
from oracles.dense import Array, dense_accelerations
from oracles.loops import closed, opened
from oracles.random_loops import LOOP_TYPES, doubled_joints, grounded_mechanism
from tolerances import assert_close

MOVING = tuple(kind for kind in LOOP_TYPES if kind != "fixed")
EVERY_DOZEN = tuple(range(11, 72, 12))
GROUNDED = {
    "a chain held every dozen, a slider beside": (3, 72, EVERY_DOZEN, [(7, 54)], True),
    "a chain held every fourth, sliders beside": (14, 20, tuple(range(3, 20, 4)), [(1, 9), (5, 17), (6, 7)], True),
    "a tree": (5, 24, (3, 9, 15, 20, 23), [(4, 21)], False),
    **{f"{count} at one body": (count, 3, (1,) * count + (2, 2), [], True) for count in (2, 4, 5, 6, 8)},
}


def agree(comm: MPI.Comm, coupling: str, state: tuple[System, Array, Array, Array], expected: Array) -> None:
    system = state[0]
    if system.n_bodies < comm.size:
        pytest.skip("more ranks than bodies")
    with closing(Dynamics(system, comm, coupling)) as dynamics:
        found = dynamics.accelerations(*parts(dynamics, *state[1:]))
        mine = dynamics.gather_u.part
    scale = max(float(np.abs(expected).max()), 1.0)  # some are locked
    assert_close("accelerations", found, expected[mine], "loops", scale=scale, comm=comm)


@pytest.mark.cases(8)
@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("coupling", ["dcae", "pcg"])
@pytest.mark.parametrize("kind", [*MOVING, "all"])
def test_joints_that_are_doubled(comm: MPI.Comm, kind: str, coupling: str) -> None:
    """A door on two hinges moves as on one: each joint doubled by a coaxial one, against the tree without those."""
    for n, chain in ((1, True), (7, False), (10, True)):
        state = doubled_joints(n, n, MOVING if kind == "all" else [kind], chain)
        if n >= comm.size and state[0].nu:
            agree(comm, coupling, state, dense_accelerations(opened(state[0]), *state[1:]))


@pytest.mark.parametrize("kind", [*MOVING, "all"])
def test_forces_of_joints_that_are_doubled(comm: MPI.Comm, kind: str) -> None:
    """Inverse dynamics gives them the forces that they have without: rows of loops that are all rounding carry none."""
    system, q, u, tau = doubled_joints(4, 4, MOVING if kind == "all" else [kind], True)
    udot = dense_accelerations(opened(system), q, u, tau)
    with closing(Dynamics(system, comm)) as dynamics:
        mine = dynamics.gather_u.part
        found = dynamics.loads.actuation(q[dynamics.gather_q.part], u[mine], udot[mine])
    assert_close(
        "forces", found.tau, tau[mine], "iterated", scale=float(np.abs(tau).max() + np.abs(udot).max()), comm=comm
    )
    assert found.unique


def test_modes_of_a_joint_that_is_doubled() -> None:
    """A pendulum on two hinges, in a frame that rounds their axes, swings at sqrt(m g d / I)."""
    axis = np.array([0.3, -0.5, 0.2]) / np.linalg.norm([0.3, -0.5, 0.2])
    turned, _ = Rotation.align_vectors([[1.0, 0.0, 0.0]], [axis])
    rotation = turned.as_quat(scalar_first=True).tolist()
    down = turned.inv().apply([0.0, 0.0, -1.0])
    system, joint = System(gravity=(0.0, 0.0, -9.81)), Joint(type="revolute", axis=axis.tolist(), rotation=rotation)
    system.add(
        name="bob", mass=2.0, center_of_mass=(0.7 * down).tolist(), inertia=(0.1, 0.1, 0.1, 0, 0, 0), joint=joint
    )
    given = {"axis": axis.tolist(), "bodies": ("world", "bob"), "rotations": (rotation, (1, 0, 0, 0))}
    system.add_loop(name="again", type="revolute", positions=((0, 0, 0), (0, 0, 0)), **given)
    with closing(Dynamics(system)) as dynamics:
        found = modes(dynamics, np.zeros(1), 1)
    assert_close(
        "frequency", found.frequencies, [np.sqrt(2.0 * 9.81 * 0.7 / (0.1 + 2.0 * 0.49)) / (2 * np.pi)], "iterated"
    )


@pytest.mark.cases(6)
@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("coupling", ["dcae", "assembly"])
@pytest.mark.parametrize("name", GROUNDED)
def test_loops_to_the_world(comm: MPI.Comm, name: str, coupling: str) -> None:
    """Bodies held to the world at many depths of a path, or many times, with loops beside: by the dense oracle."""
    state = grounded_mechanism(*GROUNDED[name])
    agree(comm, coupling, state, closed(*state).udot)


@pytest.mark.cases(4)
def test_free_bodies_in_sequence_held_to_the_world(comm: MPI.Comm) -> None:
    """What a free joint leaves of a loop's columns is rounding alone, which no column may be told from others by."""
    system, source, place = System(gravity=(0.3, -1.0, -9.0)), np.random.default_rng(1), np.zeros(3)
    for k in range(40):
        step = source.normal(size=3) * 5.0
        joint, heavy = Joint(type="free", position=step.tolist()), float(source.uniform(1, 3))
        inertia = (*source.uniform(0.5, 0.9, 3), 0.0, 0.0, 0.0)
        parent, place = f"b{k - 1}" if k else "world", place + step
        center = source.uniform(-5, 5, 3).tolist()
        system.add(name=f"b{k}", parent=parent, mass=heavy, center_of_mass=center, inertia=inertia, joint=joint)
        at = source.normal(size=3) * 5.0
        axis = source.normal(size=3).tolist()
        ends = {"bodies": ("world", f"b{k}"), "positions": (at.tolist(), (at - place).tolist())}
        system.add_loop(name=f"l{k}", type="cylindrical", axis=axis, **ends)
    q, u = np.tile([1.0, 0, 0, 0, 0, 0, 0], 40), np.zeros(240)
    state = system, q, u, u
    agree(comm, "dcae", state, closed(*state).udot)


@pytest.mark.parametrize("ratio", [1e-8, 1e-11, 1e-12])
def test_masses_that_differ(ratio: float) -> None:
    """Two bars that a pin to the world locks, however light the second one is, do not move."""
    system = System(gravity=(0.0, -9.81, 0.0))
    for name, mass, parent, at in (("heavy", 1e5, "world", (0, 0, 0)), ("light", 1e5 * ratio, "heavy", (1, 0, 0))):
        inertia = (mass / 12, mass / 12, mass / 12, 0, 0, 0)
        joint = Joint(type="revolute", position=at)
        system.add(name=name, parent=parent, mass=mass, center_of_mass=(0.5, 0, 0), inertia=inertia, joint=joint)
    q = np.array([0.3, 0.9])
    tip = (np.cos(0.3) + np.cos(1.2), np.sin(0.3) + np.sin(1.2), 0.0)
    system.add_loop(name="pin", type="revolute", bodies=("world", "light"), positions=(tip, (1, 0, 0)))
    with closing(Dynamics(system, MPI.COMM_SELF)) as dynamics:
        found = dynamics.accelerations(q, np.zeros(2))
    assert_close("accelerations", found, np.zeros(2), "loops", scale=9.81)
