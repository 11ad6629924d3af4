"""Models of the library and repeated groups in motion: against the dense oracle, over ranks, and by their energy."""

from contextlib import closing

import numpy as np
import pytest
from mpi4py import MPI

from cases import moving_state
from mpimbs.dynamics import Dynamics
from mpimbs.model import Body, Joint, System, system_from
from mpimbs.run.run import simulate
from oracles import dense
from tolerances import assert_close

SPECS = ("figure34", "figure48", "crowd:3", "caterpillar:9")


def brush() -> System:
    """Two rods on a base, each with three bristles of a fork, set apart."""
    link = Body(
        name="link", mass=1, inertia=(1, 2, 2, 0, 0, 0), center_of_mass=(0.5, 0, 0), joint=Joint(type="universal")
    )
    system = System("brush")
    system.add(link, name="base", joint=Joint(type="free"))
    system.repeat(2, link.model_copy(update={"name": "rod"}), parents="base", shifts=[[0, 0, 0], [0, 2, 0]])
    fork = (link, link.model_copy(update={"name": "tip"}), link.model_copy(update={"name": "side", "parent": "link"}))
    system.repeat(6, *fork, parents="rod", shifts=np.arange(18).reshape(6, 3) / 10)
    return system


def model(spec: str) -> System:
    return brush() if spec == "brush" else system_from(spec)


@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("spec", [*SPECS, "brush"])
def test_against_dense(comm: MPI.Comm, spec: str) -> None:
    system = model(spec)
    if spec == "brush" and comm.size > 1:
        pytest.skip("its bodies are not listed depth first")
    q, u, tau = moving_state(system, 3)
    reference = dense.dense_accelerations(system, q, u, tau)
    with closing(Dynamics(system, comm)) as dynamics:
        own = dynamics.gather_u.part
        state = q[dynamics.gather_q.part], u[own]
        udot, energy = dynamics.accelerations(*state, tau[own]), dynamics.energy_and_momentum(*state)
    assert_close("accelerations", udot, reference[own], "dense", scale=float(np.abs(reference).max()), comm=comm)
    assert_close("energy", energy[:2], dense.energy(system, q, u), "dense", comm=comm)


@pytest.mark.parametrize("spec", ["figure34", "figure48", "caterpillar:5"])
def test_energy_is_conserved(comm: MPI.Comm, spec: str) -> None:
    """Moving in space: free figures tumble, nothing dissipates."""
    system = system_from(spec)
    _, u, _ = moving_state(system, 1)
    result = simulate(system, 0.2, comm, state=(system.columns().q, u), rtol=1e-10, atol=1e-10)
    assert result.energy_change < 1e-8
