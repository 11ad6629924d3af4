"""Rotors of joints: armature in every coupling, in lanes and batches, in inverse dynamics, energy and loads."""

from contextlib import closing

import numpy as np
import pytest
from mpi4py import MPI

from cases import with_rotors
from mpimbs.coupling import COUPLINGS
from mpimbs.coupling.settings import LoadSolver
from mpimbs.dynamics import Dynamics
from mpimbs.kernels.lanes import native_width
from mpimbs.model import System, system_from
from mpimbs.run.run import simulate
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import Seeded, build_state, random_system
from tolerances import assert_close


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


@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("n", [4, 24])
def test_chains(comm: MPI.Comm, coupling: str, n: int) -> None:
    for seed in range(2):
        assert_as_oracle(comm, *case(seed, n, True), coupling=coupling)


@pytest.mark.parametrize("preconditioner", ["jacobi", "block-jacobi", "lagged", "dcae", "direct"])
@pytest.mark.parametrize("largest", [1e-6, 1e3])
def test_light_and_heavy_rotors_of_cut_joints(comm: MPI.Comm, preconditioner: str, largest: float) -> None:
    system, q, u, tau = random_system(3, 16, True)
    given = (with_rotors(system, largest), q, u, tau)
    assert_as_oracle(comm, *given, coupling="pcg", cuts=7, solver=LoadSolver(preconditioner))


def test_lanes(comm: MPI.Comm) -> None:
    """Pieces of a chain side by side, of which some have rotors."""
    system = with_rotors(system_from("spatial_chain:64"))
    bare = system_from("spatial_chain:64")
    mixed = System(gravity=bare.gravity)
    for k in range(64):
        mixed.add((system if 20 < k < 50 else bare).contents.body(k))
    for lanes in {1, native_width()}:
        for given in (system, mixed):
            assert_as_oracle(comm, given, *build_state(Seeded(1), given), lanes=lanes)


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
        own, bodies = dynamics.gather_u.part, slice(*dynamics.divided.cuts[comm.rank : comm.rank + 2])
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


def test_run_conserves_energy(comm: MPI.Comm) -> None:
    system = with_rotors(system_from("spatial_chain:8"))
    result = simulate(system, 0.5, comm, rtol=1e-10, atol=1e-10)
    assert result.energy_change < 1e-8
