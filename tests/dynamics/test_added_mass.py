"""Added mass of bodies in a fluid: in every coupling, on all ranks, against the dense oracle; what is kept."""

import copy
import itertools
from contextlib import closing

import numpy as np
import pytest
from mpi4py import MPI

from cases import parts, random_tree
from mpimbs.base.errors import InputError
from mpimbs.coupling import COUPLINGS
from mpimbs.dynamics import Dynamics
from mpimbs.model import Body, Joint, System, system_from
from mpimbs.run.run import simulate
from oracles import dense
from oracles.dense import Array
from oracles.loops import closed
from oracles.random_systems import random_system
from tolerances import assert_close


def immersed(system: System, seed: int = 1) -> System:
    """The bodies of a system, two of three templates in a fluid: any added mass, and that of a plate."""
    source, ranks = np.random.default_rng(seed), itertools.cycle((6, 1, 0))

    def in_fluid(body: Body) -> Body:
        root = source.uniform(-1, 1, (next(ranks), 6)) * np.sqrt(body.mass)
        matrix = tuple(map(tuple, (root.T @ root).tolist())) if len(root) else ()
        return body.model_copy(update={"added_mass": matrix})

    wet = copy.copy(system)
    wet.contents.segments = system.contents.segments.replaced(in_fluid)
    return wet


def assert_as_oracle(comm: MPI.Comm, system: System, q: Array, u: Array, tau: Array, **settings: object) -> None:
    """Accelerations and joint loads over ranks against the dense oracle."""
    reference = dense.dense_accelerations(system, q, u, tau)
    loads = dense.joint_wrenches(system, q, u, tau, frame="body")
    with closing(Dynamics(system, comm, **settings)) as dynamics:
        mine = parts(dynamics, q, u, tau)
        own, bodies = dynamics.gather_u.part, dynamics.bodies
        udot, carried = dynamics.accelerations(*mine), dynamics.joint_loads(*mine)
    of = {"pcg": "iterated", "dcae": "dense", "augmented": "multipliers"}
    tolerance = of.get(str(settings.get("coupling", "dcae")), "assembled")
    assert_close("accelerations", udot, reference[own], tolerance, scale=float(np.abs(reference).max()), comm=comm)
    assert_close("loads", carried, loads[bodies], tolerance, scale=float(np.abs(loads).max()), comm=comm)


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_chains(comm: MPI.Comm, coupling: str) -> None:
    system, q, u, tau = random_system(4, 13, True, wrenches=True)
    assert_as_oracle(comm, immersed(system), q, u, tau, coupling=coupling)


def test_loops(comm: MPI.Comm) -> None:
    system = immersed(system_from("four_bar:6"))
    q, u = system.contents.columns().q, system.contents.columns().u
    reference = closed(system, q, u).udot.astype(float)
    with closing(Dynamics(system, comm)) as dynamics:
        udot = dynamics.accelerations(*parts(dynamics, q, u))
        assert_close("accelerations", udot, reference[dynamics.gather_u.part], "assembled", comm=comm)


@pytest.mark.parametrize("chain", [True, False])
def test_the_space_of_speeds(comm: MPI.Comm, chain: bool) -> None:
    """M, formed and applied, inverse dynamics, energy and momentum."""
    system, q, u, tau = random_system(5, 12, True) if chain else random_tree("recursive", n=12)
    system = immersed(system)
    inertia, udot = dense.mass_matrix(system, q), dense.dense_accelerations(system, q, u, tau)
    energies, momenta = dense.energy(system, q, u), dense.momentum(system, q, u)
    with closing(Dynamics(system, comm)) as dynamics:
        mine_q, mine_u, own = parts(dynamics, q, u, tau)
        acceleration = udot[dynamics.gather_u.part]
        places = np.concatenate(comm.allgather(np.arange(system.nu)[dynamics.gather_u.part]))
        rows = inertia[dynamics.gather_u.part][:, places]
        for layout in ("rows", "csr"):
            found = dynamics.inertia_matrix(mine_q, layout=layout)
            found = found if layout == "rows" else found.toarray()
            assert_close(layout, found, rows, "dense", scale=float(np.abs(inertia).max()), comm=comm)
        assert_close(
            "M v", dynamics.inertia.multiply(mine_q, own), (inertia @ tau)[dynamics.gather_u.part], "dense", comm=comm
        )
        solved = np.linalg.solve(inertia, tau)[dynamics.gather_u.part]
        assert_close("M^-1 f", dynamics.inertia.solve(mine_q, own), solved, "iterated", comm=comm)
        needed = dynamics.inverse_dynamics(mine_q, mine_u, acceleration)
        scale = float(np.abs(inertia @ udot).max())
        assert_close("forces", needed, own, "iterated", scale=scale, comm=comm)
        totals = dynamics.energy_and_momentum(mine_q, mine_u)
    for name, ours, theirs in zip(
        ("kinetic", "potential", "linear", "angular"),
        (totals[0], totals[1], totals[2:5], totals[5:]),
        (*energies, *momenta),
        strict=True,
    ):
        assert_close(name, ours, theirs, "dense", scale=float(np.abs(theirs).max() + 1.0), comm=comm)


def test_impulse_and_energy_are_kept(comm: MPI.Comm) -> None:
    """Bodies of any shape in a fluid, on balls, tumble freely: Kirchhoff's impulse and the energy stay."""
    system = System("swimmer", gravity=(0, 0, 0))
    shape = {"mass": 1.0, "center_of_mass": (0.1, 0, 0), "inertia": (0.1, 0.2, 0.25, 0, 0, 0)}
    free = Joint(type="free", u=(1, 2, 3, 1, 0, -1))
    for k in range(4):
        ball = Joint(type="spherical", position=(0.5, 0, 0), u=(0, -3, k))
        added = (0.1, 0.0, 0.3, 0.5, 1.0, 2.0 * k)
        system.add(name=f"part{k}", **shape, added_mass=added, joint=ball if k else free)
    result = simulate(system, 1.0, comm, rtol=1e-11, atol=1e-11, every=0.5)
    if comm.rank == 0:
        begin, end = (np.concatenate(dense.momentum(system, result.q[k], result.u[k])) for k in (0, -1))
        assert_close("impulse", end, begin, "conserved", scale=float(np.abs(begin).max()))
        energy = result.energy.sum(axis=1)
        assert_close("energy", energy, np.full_like(energy, energy[0]), "conserved")


def test_a_sphere_falls_by_what_it_weighs_over_what_it_moves() -> None:
    """g / (1 + m_added / m): no weight of the fluid's; an exact quotient."""
    system = System("sphere", gravity=(0, 0, -10))
    system.add(
        name="ball", mass=2.0, inertia=(1, 1, 1, 0, 0, 0), added_mass=(0, 0, 0, 3, 3, 3), joint=Joint(type="free")
    )
    with closing(Dynamics(system)) as dynamics:
        udot = dynamics.accelerations(dynamics.subchain.q, dynamics.subchain.u)
    assert_close("fall", udot, [0, 0, 0, 0, 0, -4.0], "rounding")


WRONG = {
    "indefinite": (-1, 0, 0, 0, 0, 0),
    "symmetric": np.eye(6) + np.eye(6, k=1),
    "six numbers or six rows": (1, 2),
    "6 numbers": [[1, 2]] * 6,
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_no_added_mass(message: str) -> None:
    with pytest.raises(InputError, match=f"body 'hull': added_mass.*{message}"):
        Body(name="hull", mass=1, inertia=(1, 1, 1, 0, 0, 0), added_mass=WRONG[message], joint=Joint(type="free"))
