"""Constraint loads of open loops beside those of cut joints: the accelerations of one rank, redundant loops or not."""

import itertools
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from cases import accelerations, parts, separated
from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.coupling import LoadSolver
from mpimbs.coupling.pcg import coupling as pcg
from mpimbs.dynamics import Dynamics
from mpimbs.model import System, system_from
from oracles.dense import Array
from oracles.random_loops import planar_mechanism, random_mechanism
from oracles.structured_systems import case_of
from tolerances import assert_close

MECHANISMS = ["four_bar:3", "four_bar_chain:4", "andrews", "ring:8", "track:12", "boom:3", "parallelogram"]
SOLVERS = ["jacobi", "block-jacobi", "direct"]


def moved(name: str) -> tuple[System, Array, Array, Array]:
    """A mechanism away from where it begins, with speeds that its loops allow."""
    system, source = system_from(name), np.random.default_rng(0)
    q, _ = system.contents.initial_state(0, system.n_bodies)
    with closing(Dynamics(system, comm=MPI.COMM_SELF)) as dynamics:
        assert dynamics.loops is not None
        push = dynamics.loops.close_speeds(q, source.standard_normal(system.nu))
        q = dynamics.loops.close_places(dynamics.subchain.displaced(q, 0.05 * push))
        return system, q, dynamics.loops.close_speeds(q, push), source.standard_normal(system.nu)


def check(system: System, state: tuple[Array, Array, Array], comm: MPI.Comm, cuts: int, solver: LoadSolver) -> None:
    """State after state, against the elimination of one rank."""
    cuts = min(cuts, system.n_bodies - 1)
    q, u, tau = state
    with closing(separated(system, comm, cuts, solver)) as dynamics:
        for k, size in enumerate((1.0, 1.001, -3.0)):
            now = q, u * size, tau
            reference = accelerations(system, *now)
            got = dynamics.accelerations(*parts(dynamics, *now), t=0.1 * k)
            scale = max(1.0, np.abs(reference).max())
            assert_close(f"{k}", got, reference[dynamics.gather_u.part], "iterated", scale=scale, comm=comm)


@pytest.mark.cases(3)
@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize(
    ("name", "preconditioner"), [*itertools.product(MECHANISMS, ["lagged"]), *itertools.product(["boom:3"], SOLVERS)]
)
def test_mechanisms(comm: MPI.Comm, name: str, preconditioner: str) -> None:
    """Their plane hinges are redundant in space."""
    system, *state = moved(name)
    check(system, (state[0], state[1], state[2]), comm, 4, LoadSolver(preconditioner, "none"))


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(4))
def test_random_mechanisms(comm: MPI.Comm, seed: int) -> None:
    """Of any joints, loops to the world among them; some of which do the same as others."""
    for system, *state in (
        random_mechanism(seed, 8, 3),
        random_mechanism(seed, 9, 3, doubled=2, to_world=0.4),
        planar_mechanism(seed, 9, 3),
    ):
        for preconditioner in ("block-jacobi", "lagged"):
            check(system, (state[0], state[1], state[2]), comm, 3, LoadSolver(preconditioner, "none"))


def test_speeds_and_places_are_closed(comm: MPI.Comm) -> None:
    """By the same equations, which leaves the estimates of accelerations alone."""
    system, q, u, tau = moved("track:12")
    reference = accelerations(system, q, u, tau)
    with closing(separated(system, comm, 3, LoadSolver("lagged", "first"))) as dynamics:
        assert dynamics.loops is not None
        here, speeds, forces = parts(dynamics, q, u, tau)
        dynamics.accelerations(here, speeds, forces, t=0.0)
        closed = dynamics.loops.close_speeds(here, speeds + 0.1 * (1 + np.arange(len(speeds))))
        apart = dynamics.loops.violations(here, closed)[:, 1].max()
        parallel_assert(apart < 1e-10, f"violated by {apart}", comm)
        got = dynamics.accelerations(here, speeds, forces, t=0.1)
        ours, scale = reference[dynamics.gather_u.part], float(np.abs(reference).max())
        assert_close("accelerations", got, ours, "iterated", scale=scale, comm=comm)


def test_loads_of_joints_and_loops(comm: MPI.Comm) -> None:
    """What is found from the boundary values, at joints and loops that are cut."""
    system, q, u, tau = moved("andrews")
    with (
        closing(Dynamics(system, comm=MPI.COMM_SELF)) as alone,
        closing(separated(system, comm, 4, LoadSolver())) as dynamics,
    ):
        expected, _, all_alone = alone.loads.joints_and_loops(q, u, tau)
        got, _, loops = dynamics.loads.joints_and_loops(*parts(dynamics, q, u, tau))
        ours, scale = expected[dynamics.bodies], float(np.abs(expected).max())
        assert_close("loops", loops, all_alone, "iterated", scale=scale, comm=comm)
    assert_close("joints", got, ours, "iterated", scale=scale, comm=comm)


def test_no_product(comm: MPI.Comm) -> None:
    """The butterfly product is no preconditioner where constraints may be redundant."""
    with pytest.raises(InputError, match="is for systems without"):
        separated(system_from("track:12"), comm, 3, LoadSolver("dcae"))


@pytest.mark.cases(1)
@pytest.mark.parametrize("apart", [1e-13, 1e-9, 1e-5])
def test_hardly_redundant_loops_are_closed(comm: MPI.Comm, apart: float) -> None:
    """Places and speeds near closed ones, of which constraints that repeat others ask what can't be to second order."""
    case, source = case_of(958761880, ("rods", "masses"), 24, 0.0), np.random.default_rng(0)
    move = source.standard_normal(case.system.nu)
    with closing(separated(case.system, comm, 3, LoadSolver())) as dynamics:
        loops, (q, v) = dynamics.loops, parts(dynamics, case.q, move)
        assert loops is not None
        q = loops.close_places(dynamics.subchain.displaced(q, apart * v))
        left, parting = loops.apart(q, loops.close_speeds(q, v))[1].max(axis=0)
    parallel_assert(left < 2e-12 and parting < 1e-10, f"{left:.1e}, {parting:.1e} left", comm)


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(4))
def test_a_solution_is_not_made_worse(comm: MPI.Comm, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One beside which rounding leaves a little more than was asked for is better than what multipliers come to."""
    monkeypatch.setattr(pcg, "SHORT", 1e-6)
    monkeypatch.setattr(pcg, "MULTIPLIERS", 1)
    system, *state = random_mechanism(seed, 9, 3, doubled=2, to_world=0.4)
    check(system, (state[0], state[1], state[2]), comm, 3, LoadSolver("lagged", "none"))


@pytest.mark.cases(1)
@pytest.mark.parametrize("seed", range(4))
def test_a_solution_that_went_astray_is_mended(comm: MPI.Comm, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which multipliers don't: conjugate gradients go on from it."""
    run = pcg.ConstraintLoads._run

    def astray(self: Any, ksp: Any) -> Any:
        found = run(self, ksp)
        self.joints.solution *= 1.0 + 1e-6
        self._solution.stateIncrease()
        return found

    monkeypatch.setattr(pcg.ConstraintLoads, "_run", astray)
    monkeypatch.setattr(pcg, "MULTIPLIERS", 1)
    system, *state = random_mechanism(seed, 9, 3, doubled=2, to_world=0.4)
    check(system, (state[0], state[1], state[2]), comm, 3, LoadSolver("lagged", "none"))


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("preconditioner", ["lagged", "direct"])
def test_what_contradicts_names_the_remedy(comm: MPI.Comm, preconditioner: str) -> None:
    """Cranks of a parallelogram at speeds of their own: no accelerations keep the pins at their distances."""
    system = system_from("parallelogram")
    q, u = system.contents.initial_state(0, system.n_bodies)
    with closing(separated(system, comm, 3, LoadSolver(preconditioner))) as dynamics:
        own = parts(dynamics, q, u + np.arange(system.nu))
        with pytest.raises(SimulationError, match="no preconditioner mends: choose `coupling='dcae'`"):
            dynamics.accelerations(*own, warn=False)
