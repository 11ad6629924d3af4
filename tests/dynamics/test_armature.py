"""Rotors of joints: armature in every coupling, in lanes and batches, in inverse dynamics, energy and loads."""

from contextlib import closing

import numpy as np
import pytest
from mpi4py import MPI

from cases import along_motion, isolated, typed_chain, with_rotors
from mpimbs.coupling import COUPLINGS
from mpimbs.coupling.pcg.solver import LoadSolver
from mpimbs.dynamics import Dynamics
from mpimbs.kernels.lanes import native_width
from mpimbs.model import JOINT_TYPES, Body, Joint, System, system_from
from mpimbs.run.ensembles.batch import Batch
from mpimbs.run.run import simulate
from oracles import dense
from oracles.dense import Array
from oracles.pinocchio_oracle import PinocchioOracle
from oracles.random_systems import ALL, Seeded, build_state, random_system
from tolerances import assert_close

MOVING = tuple(name for name in ALL if name != "fixed")


def case(seed: int, n: int, chain: bool, types: tuple[str, ...] | None = None) -> tuple[System, Array, Array, Array]:
    system, q, u, tau = random_system(seed, n, chain, types, wrenches=True)
    return with_rotors(system), q, u, tau


def assert_as_oracle(comm: MPI.Comm, system: System, q: Array, u: Array, tau: Array, **settings: object) -> None:
    """Accelerations over ranks against the dense oracle."""
    reference = dense.dense_accelerations(system, q, u, tau)
    with closing(Dynamics(system, comm, **settings)) as dynamics:
        own = dynamics.gather_u.part
        udot = dynamics.accelerations(q[dynamics.gather_q.part], u[own], tau[own])
    tolerance = {"pcg": "iterated", "dcae": "dense"}.get(str(settings.get("coupling", "dcae")), "assembled")
    assert_close("accelerations", udot, reference[own], tolerance, scale=float(np.abs(reference).max()), comm=comm)


@pytest.mark.parametrize("seed", range(3))
def test_oracles_agree(seed: int) -> None:
    system, q, u, tau = case(seed, 10, False)
    other = PinocchioOracle(system)
    udot = dense.dense_accelerations(system, q, u, tau)
    assert_close("accelerations", other.accelerations(q, u, tau), udot, "pinocchio")
    assert_close("inertia matrix", other.mass_matrix(q), dense.mass_matrix(system, q), "pinocchio")
    here, there = dense.inverse_dynamics(system, q, u, udot), other.inverse_dynamics(q, u, udot)
    assert_close("generalized forces", there, here, "pinocchio", scale=float(np.abs(here).max()) + 100.0)


@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("n", [4, 24])
def test_chains(comm: MPI.Comm, coupling: str, n: int) -> None:
    for seed in range(2):
        assert_as_oracle(comm, *case(seed, n, True), coupling=coupling)


@pytest.mark.parametrize("name", MOVING)
def test_rotors_of_cut_joints(comm: MPI.Comm, name: str) -> None:
    """Every joint is cut: rotors on all, on some and on none of the axes of the joint."""
    system, q, u, tau = case(1, 12, True, (name,))
    assert_as_oracle(comm, system, q, u, tau, coupling="pcg", cuts=11)


@pytest.mark.parametrize("preconditioner", ["jacobi", "block-jacobi", "lagged", "dcae", "direct"])
@pytest.mark.parametrize("largest", [1e-6, 1e3])
def test_light_and_heavy_rotors_of_cut_joints(comm: MPI.Comm, preconditioner: str, largest: float) -> None:
    system, q, u, tau = random_system(3, 16, True)
    given = (with_rotors(system, largest), q, u, tau)
    assert_as_oracle(comm, *given, coupling="pcg", cuts=7, solver=LoadSolver(preconditioner))


@pytest.mark.parametrize("seed", range(2))
def test_trees(comm: MPI.Comm, seed: int) -> None:
    system = with_rotors(system_from("tree:4:2"))
    for lanes in (None, 1, native_width()):
        assert_as_oracle(comm, system, *build_state(Seeded(seed), system), lanes=lanes)


def test_lanes(comm: MPI.Comm) -> None:
    """Pieces of a chain side by side, of which some have rotors."""
    system = with_rotors(system_from("spatial_chain:64"))
    bare = system_from("spatial_chain:64")
    mixed = System(gravity=bare.gravity)
    for k in range(64):
        mixed.add((system if 20 < k < 50 else bare).body(k))
    for lanes in {1, native_width()}:
        for given in (system, mixed):
            assert_as_oracle(comm, given, *build_state(Seeded(1), given), lanes=lanes)


def test_batch() -> None:
    system = with_rotors(system_from("figure"))
    batch = Batch(system, 9)
    states = [build_state(Seeded(k), system) for k in range(9)]
    q, u, tau = (np.stack(part) for part in zip(*states, strict=True))
    udot = batch.accelerations(q, u, tau)
    for k, state in enumerate(states):
        assert_close(f"accelerations of copy {k}", udot[k], dense.dense_accelerations(system, *state), "dense")


@pytest.mark.parametrize("chain", [True, False])
def test_inverse_dynamics_energy_and_loads(comm: MPI.Comm, chain: bool) -> None:
    system, q, u, tau = case(5, 14, True)
    if not chain:
        system = with_rotors(system_from("tree:3:2"))
        q, u, tau = build_state(Seeded(5), system)
    snapshot = dense.Snapshot(system, q, u)
    udot, loads = snapshot.solve(tau, 0.0)
    loads = np.einsum("nij,nai->naj", dense.kinematics(system, q, u).rotation, loads.reshape(-1, 2, 3)).reshape(-1, 6)
    with closing(Dynamics(system, comm)) as dynamics:
        own, bodies = dynamics.gather_u.part, slice(*dynamics.cuts[comm.rank : comm.rank + 2])
        state = q[dynamics.gather_q.part], u[own]
        back = dynamics.inverse_dynamics(*state, udot[own])
        energy = dynamics.energy_and_momentum(*state)
        found = dynamics.joint_loads(*state, tau[own])
    size = float(np.abs(loads).max())
    assert_close("generalized forces", back, tau[own], "round trip", scale=size, comm=comm)
    assert_close("joint loads", found, loads[bodies], "dense", scale=size, comm=comm)
    assert_close("energy", energy[:2], dense.energy(system, q, u), "dense", comm=comm)
    linear, angular = dense.momentum(system, q, u)
    assert_close("momenta", energy[2:], np.concatenate((linear, angular)), "dense", comm=comm)


def test_loads_of_an_axis() -> None:
    """What passes the axis is the torque less what the rotor takes."""
    joint = Joint(type="revolute", torque=3.0, armature=2.0)
    system = System(gravity=(0, 0, 0))
    system.add(Body(name="arm", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=joint))
    with closing(Dynamics(system)) as dynamics:
        assert_close("acceleration", dynamics.accelerations([0.0], [0.0]), [1.0], "rounding")
        assert_close("load", dynamics.joint_loads([0.0], [0.0])[0], [0, 0, 1.0, 0, 0, 0], "rounding", scale=1.0)
        assert_close("kinetic energy", dynamics.energy_and_momentum([0.0], [2.0])[:1], [6.0], "rounding")


@pytest.mark.parametrize("name", MOVING)
def test_energy_stays(name: str) -> None:
    """Without gravity and loads the kinetic energy stays, rotors among it."""
    system = with_rotors(isolated(typed_chain((name,) * 5, 3, springs=False)))
    _, u, _ = build_state(Seeded(2), system)
    q = system.columns().q

    def kinetic(q: Array, u: Array) -> Array:
        return np.array(dense.energy(system, q, u)[:1])

    with closing(Dynamics(system)) as dynamics:
        udot = dynamics.accelerations(q, u)
    rate = along_motion(kinetic, dense.coordinate_rates(system, q, u), udot, q, u)
    assert_close("change of energy", rate, [0.0], "difference", scale=float(kinetic(q, u)[0]))


def test_run_conserves_energy(comm: MPI.Comm) -> None:
    system = with_rotors(system_from("spatial_chain:8"))
    result = simulate(system, 0.5, comm, rtol=1e-10, atol=1e-10)
    assert result.energy_change < 1e-8


def test_kinds() -> None:
    """The joint types that can be driven take a number for all axes, or one for each."""
    for kind in JOINT_TYPES:
        if kind.nu:
            assert Joint(type=kind.name, pitch=0.1 if kind.takes_pitch else None, armature=[0.1] * kind.nu).armature
    assert Joint(type="spherical", armature=0.1).armature == (0.1, 0.1, 0.1)
