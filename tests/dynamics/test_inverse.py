"""Inverse dynamics over ranks: against Pinocchio and one rank, and as the inverse of the accelerations."""

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from cases import GENERATORS, moving_state
from force_functions import loaded
from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.coupling import COUPLINGS, LoadSolver
from mpimbs.dynamics import Dynamics
from mpimbs.kernels.lanes import native_width
from mpimbs.model import System, system_from
from oracles import dense
from oracles.dense import Array
from oracles.pinocchio_oracle import PinocchioOracle
from oracles.random_systems import random_system
from tolerances import assert_close

TIME, NATIVE = 0.7, native_width()


def required(system: System, comm: MPI.Comm, q: Array, u: Array, udot: Array, **settings: object) -> Array:
    """The generalized forces of the whole system, from those of the ranks."""
    with closing(Dynamics(system, comm, **settings)) as dynamics:
        mine, ours = dynamics.gather_q.part, dynamics.gather_u.part
        whole = dynamics.gather_u(dynamics.inverse_dynamics(q[mine], u[ours], udot[ours], TIME))
        return np.asarray(comm.bcast(whole))


@pytest.mark.parametrize("types", [None, ["fixed", "universal", "planar"], ["spherical", "helical", "free"]])
@pytest.mark.parametrize("seed", range(3))
def test_pinocchio(comm: MPI.Comm, seed: int, types: list[str] | None) -> None:
    system, q, u, udot = random_system(seed, 12, True, types, springs=True, wrenches=True)
    reference = PinocchioOracle(system).inverse_dynamics(q, u, udot, TIME)
    tau = required(system, comm, q, u, udot)
    size = np.abs(reference + dense.generalized_forces(system.contents.columns(), q, u)).max(initial=1.0)
    assert_close("generalized forces", tau, reference, "pinocchio", scale=size, comm=comm)


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_there_and_back(comm: MPI.Comm, coupling: str) -> None:
    """With everything that acts: gravity, springs, dampers, torques, wrenches, functions of time and state."""
    system, q, u, tau = random_system(4, 16, True, springs=True, wrenches=True)
    loaded(system)
    more: dict[str, Any] = {"cuts": 7, "solver": LoadSolver("dcae", rtol=1e-14)} if coupling == "pcg" else {}
    with closing(Dynamics(system, comm, coupling, **more)) as dynamics:
        mine, ours = dynamics.gather_q.part, dynamics.gather_u.part
        state = q[mine], u[ours]
        udot = dynamics.accelerations(*state, tau[ours], TIME)
        back = dynamics.inverse_dynamics(*state, udot, TIME)
        still = dynamics.inverse_dynamics(*state, 0 * udot, TIME)
        again = dynamics.accelerations(*state, back, TIME)
    size = comm.allreduce(float(np.abs(still).max(initial=1.0)), MPI.MAX)
    assert_close("generalized forces", back, tau[ours], "round trip", scale=size, comm=comm)
    largest = comm.allreduce(float(np.abs(udot).max(initial=0.0)), MPI.MAX)
    assert_close("accelerations", again, udot, "round trip", scale=largest, comm=comm)


@pytest.mark.parametrize("kind", GENERATORS)
def test_ranks(comm: MPI.Comm, kind: str) -> None:
    """Longer chains, moving, on many ranks as on one."""
    system = system_from(f"{kind}:200")
    q, u, udot = moving_state(system)
    alone = required(system, MPI.COMM_SELF, q, u, udot)
    tau = required(system, comm, q, u, udot)
    assert_close("generalized forces", tau, alone, "ranks", scale=np.abs(alone).max(), comm=comm)


@pytest.mark.parametrize("seed", range(3))
def test_trees(comm: MPI.Comm, seed: int) -> None:
    system, q, u, udot = random_system(seed, 12, False, springs=True, wrenches=True)
    reference = dense.inverse_dynamics(system, q, u, udot, TIME)
    tau = required(system, comm, q, u, udot)
    assert_close("generalized forces", tau, reference, "dense", scale=np.abs(reference).max(), comm=comm)


def test_a_function_that_fails(comm: MPI.Comm) -> None:
    system = system_from("chain:8")

    def breaks(t: float) -> float:
        raise ValueError("no such row")

    system.set_torque("link8", breaks)
    with closing(Dynamics(system, comm)) as dynamics:
        u = dynamics.subchain.u
        with pytest.raises(SimulationError, match=r"body 'link8' failed .*no such row"):
            dynamics.inverse_dynamics(dynamics.subchain.q, u, u)


def test_arrays_are_looked_at(comm: MPI.Comm) -> None:
    """What compiled code can't read: lists are taken, other sizes and quaternions that are none refused."""
    system = system_from("rope:9")
    with closing(Dynamics(system, comm)) as dynamics:
        q, u = dynamics.subchain.q, dynamics.subchain.u
        found = dynamics.inverse_dynamics(q.tolist(), u, u[::-1][::-1])
        parallel_assert(np.array_equal(found, dynamics.inverse_dynamics(q, u, u)), "lists are others", comm)
        for broken, message in ((q[:-1], "shape"), (0.0 * q, "quaternion")):
            with pytest.raises(InputError, match=message):
                dynamics.inverse_dynamics(broken, u, u)
            with pytest.raises(InputError, match=message):
                dynamics.inertia.multiply(broken, u)
