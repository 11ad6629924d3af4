"""Trees over ranks: any number of ranks find what the oracle does, and runs go on as elsewhere."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from cases import parts, random_tree
from mpi_helpers import parallel_assert
from mpimbs.coupling import LoadSolver
from mpimbs.dynamics import Dynamics
from mpimbs.errors import InputError
from mpimbs.model import System, system_from
from mpimbs.partition.intervals import interval
from oracles import dense
from oracles.trees import SHAPES
from tolerances import assert_close

TIME = 0.7
DCAE: dict[str, Any] = {"coupling": "dcae"}
EXACT: dict[str, Any] = {"coupling": "pcg", "solver": LoadSolver("direct")}
BRANCHED = sorted(set(SHAPES) - {"chain"})


@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("coupling", [DCAE, EXACT], ids=["dcae", "pcg"])
@pytest.mark.parametrize("cuts", [None, 7])
@pytest.mark.parametrize("shape", BRANCHED)
def test_trees_of_all_shapes(comm: MPI.Comm, shape: str, cuts: int | None, coupling: dict[str, Any]) -> None:
    """Accelerations and joint loads by the dense oracle; energy, poses and inverse dynamics by one rank; the same bits
    again."""
    system, q, u, tau = random_tree(shape)
    udot, loads = dense.Snapshot(system, q, u).solve(tau, TIME)
    rotation = dense.kinematics(system, q, u).rotation
    loads = np.einsum("nij,nai->naj", rotation, loads.reshape(-1, 2, 3)).reshape(-1, 6)
    with closing(Dynamics(system)) as alone:
        energy, (turns, places) = alone.energy_and_momentum(q, u), alone.poses(q, u)
        forces = alone.inverse_dynamics(q, u, udot, t=TIME)
    with closing(Dynamics(system, comm, cuts=cuts, **coupling)) as dynamics:
        mine = parts(dynamics, q, u, tau)
        own, bodies = dynamics.gather_u.part, slice(*dynamics.cuts[comm.rank : comm.rank + 2])
        dynamics.accelerations(mine[0], -mine[1], t=TIME)  # leaves numbers of another state
        got = dynamics.accelerations(*mine, t=TIME)
        largest = float(np.abs(udot).max())
        assert_close("accelerations", got, udot[own], "dense", scale=largest, comm=comm)
        again = dynamics.accelerations(*mine, t=TIME)
        parallel_assert(np.array_equal(got, again), "other bits the second time", comm)
        found = dynamics.joint_loads(*mine, t=TIME)
        assert_close("joint loads", found, loads[bodies], "dense", scale=float(np.abs(loads).max()), comm=comm)
        assert_close("energy and momentum", dynamics.energy_and_momentum(*mine[:2]), energy, "dense", comm=comm)
        found_turns, found_places = dynamics.poses(*mine[:2])
        assert_close("rotations", found_turns, turns[bodies], "dense", scale=1.0, comm=comm)
        assert_close("positions", found_places, places[bodies], "dense", scale=float(np.abs(places).max()), comm=comm)
        needed = dynamics.inverse_dynamics(mine[0], mine[1], udot[own], t=TIME)
        largest = float(np.abs(loads).max())
        assert_close("forces by inverse dynamics", needed, forces[own], "round trip", scale=largest, comm=comm)


def test_equal_to_one_rank(comm: MPI.Comm) -> None:
    system = system_from("tree:6:2")
    rng = np.random.default_rng(4)
    q, u = rng.normal(size=system.nq), rng.normal(size=system.nu)
    with closing(Dynamics(system)) as alone:
        reference = alone.accelerations(q, u)
    with closing(Dynamics(system, comm)) as dynamics:
        found, own = dynamics.accelerations(*parts(dynamics, q, u)), dynamics.gather_u.part
    size = float(np.abs(reference).max())
    assert_close("accelerations", found, reference[own], "ranks", scale=size, comm=comm)


def forced(spec: str) -> System:
    """A system in air: forces that Python gives, which need poses and velocities in the world."""
    system = system_from(spec)
    system.add_body_force(None, lambda t, motion: (0.0, -0.3 * motion.velocity), vectorized=True)
    system.add_joint_force(None, lambda t, q, u: -0.1 * u, vectorized=True)
    return system


@pytest.mark.parametrize("coupling", [DCAE, DCAE | {"cuts": 11}, EXACT | {"cuts": 11}], ids=str)
def test_functions_act_on_trees(comm: MPI.Comm, coupling: dict[str, Any]) -> None:
    system = forced("tree:4:3")
    rng = np.random.default_rng(5)
    q, u = 0.3 * rng.normal(size=system.nq), rng.normal(size=system.nu)
    with closing(Dynamics(system)) as alone:
        reference = alone.accelerations(q, u)
    with closing(Dynamics(forced("tree:4:3"), comm, **coupling)) as dynamics:
        found, own = dynamics.accelerations(*parts(dynamics, q, u)), dynamics.gather_u.part
    size = float(np.abs(reference).max())
    assert_close("accelerations", found, reference[own], "ranks", scale=size, comm=comm)


def test_bodies_that_are_not_listed_depth_first(comm: MPI.Comm) -> None:
    def make() -> None:
        Dynamics("figure", comm).close()

    check: Callable[[], None] = make
    if comm.size == 1:
        check()
    else:
        with pytest.raises(InputError, match=r"not listed depth first.*list them so, or start 1 rank"):
            check()


@pytest.mark.parametrize("settings", [{"lanes": 4}, {"tip_ratio": 2.0}], ids=str)
def test_settings_of_chains_alone(comm: MPI.Comm, settings: dict[str, int]) -> None:
    if comm.size == 1:
        pytest.skip("one rank sweeps a tree whole")
    (name,) = settings
    with pytest.raises(InputError, match=f"is a tree.*leave `{name}="):
        Dynamics("tree:4:2", comm, **settings)


def test_other_couplings_say_which_one_solves_trees(comm: MPI.Comm) -> None:
    for coupling in ("dca", "dca-terminal"):
        with pytest.raises(InputError, match=r"is a tree.*`coupling='dcae'`"):
            Dynamics("tree:4:2", comm, coupling)


@pytest.mark.parametrize("coupling", ["dcae", "pcg"])
def test_cuts_that_cannot_be_made(comm: MPI.Comm, coupling: str) -> None:
    for cuts in (-1, 31, 40):
        with pytest.raises(InputError, match=rf"{cuts} cuts in a tree of 31 bodies: give `cuts` from 0 to 30"):
            Dynamics("tree:4:2", comm, coupling, cuts=cuts)
    if comm.size > 1:
        with pytest.raises(InputError, match=rf"0 cuts make 1 intervals for {comm.size} ranks.*`cuts={comm.size - 1}`"):
            Dynamics("tree:4:2", comm, coupling, cuts=0)


def test_the_ranks_own_what_the_intervals_say(comm: MPI.Comm) -> None:
    from mpimbs.model.order import Order

    system = system_from("tree:7:2")
    order = Order.as_listed(system)
    assert order is not None
    with closing(Dynamics(system, comm)) as dynamics:
        first, last = (int(cut) for cut in dynamics.cuts[comm.rank : comm.rank + 2])
        own = interval(order, first, last)
        if comm.size > 1:
            found = dynamics.subchain.inboard.tolist(), dynamics.subchain.outer.tolist()
            parallel_assert(found == (own.hung_on[::-1].tolist(), own.open.tolist()), f"{found} of {own}", comm)
        parallel_assert(dynamics.subchain.n_bodies > 0.2 * system.n_bodies / comm.size, f"{dynamics.cuts}", comm)
