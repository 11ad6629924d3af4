"""Constraint loads by conjugate gradients: the accelerations of one rank, whatever is cut and however it is solved."""

import tracemalloc
from contextlib import closing

import numpy as np
import pytest
from mpi4py import MPI

from cases import accelerations, mixed_chain, moving_state, parts, separated, typed_chain
from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.coupling import LoadSolver, coupling_named
from mpimbs.coupling.settings import ESTIMATES, PRECONDITIONERS
from mpimbs.dynamics.compiling import compile_evaluations
from mpimbs.model import JOINT_TYPES, system_from
from oracles import dense
from tolerances import assert_close

EVERY_TYPE = tuple(kind.name for kind in JOINT_TYPES)


@pytest.mark.cases(10)
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
@pytest.mark.parametrize("kind", ["spatial_chain:40", "rope:40", "free_chain:30", "mixed"])
def test_every_preconditioner(comm: MPI.Comm, kind: str, preconditioner: str) -> None:
    """State after state, also when the loads change at once; the matrix changes with the configuration."""
    system, q, u, tau = mixed_chain(30, 1) if kind == "mixed" else (system_from(kind), *moving_state(system_from(kind)))
    with closing(separated(system, comm, 7, LoadSolver(preconditioner, "zero"))) as dynamics:
        for k, size in enumerate((1.0, 1.001, -3.0)):
            given = (q * (1.0 + 0.01 * k), u * size, tau)
            reference = accelerations(system, *given)
            got = dynamics.accelerations(*parts(dynamics, *given), t=0.1 * k)
            ours = reference[dynamics.gather_u.part]
            assert_close(f"accelerations {k}", got, ours, "iterated", scale=np.abs(reference).max(), comm=comm)


@pytest.mark.cases(2)
@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize("preconditioner", ["lagged", "jacobi"])
@pytest.mark.parametrize("n", [16, 1024])
def test_63_cuts(comm: MPI.Comm, n: int, preconditioner: str) -> None:
    system = system_from(f"spatial_chain:{n}")
    q, u, tau = moving_state(system)
    reference = accelerations(system, q, u, tau)
    with closing(separated(system, comm, min(63, n - 1), LoadSolver(preconditioner, "none"))) as dynamics:
        got = dynamics.accelerations(*parts(dynamics, q, u, tau))
        iterations = dynamics.divided.coupling.iterations  # type: ignore[attr-defined]
        ours = reference[dynamics.gather_u.part]
    assert_close("accelerations", got, ours, "iterated", scale=np.abs(reference).max(), comm=comm)
    parallel_assert(iterations == 1 or preconditioner == "jacobi", f"{iterations} iterations", comm)


@pytest.mark.parametrize(
    "name", [*(name for name in EVERY_TYPE if name not in ("free", "universal", "planar")), "mixed"]
)
def test_constraint_loads_are_those_of_the_joints(comm: MPI.Comm, name: str) -> None:
    """Their numbers are the components of the oracle's joint wrenches along the constraint subspaces."""
    kinds = ("revolute", "spherical", "prismatic", "fixed") if name == "mixed" else (name,)
    system = typed_chain(("revolute", *(kinds * 8)[:8]), 4, springs=True)
    q, u, tau = moving_state(system, 1)
    wrenches = dense.joint_wrenches(system, q, u, tau, frame="body")
    with closing(separated(system, comm, 8, LoadSolver())) as dynamics:
        dynamics.accelerations(*parts(dynamics, q, u, tau))
        joints = dynamics.divided.coupling.joints  # type: ignore[attr-defined]
        bodies, subspaces, found = joints.bodies, joints.subspaces, joints.solution.copy()
    expected = np.einsum("ki,ki->k", subspaces, wrenches[bodies])
    assert_close("constraint loads", found, expected, "iterated", scale=np.abs(wrenches).max(), comm=comm)


def test_evaluations_leave_nothing_behind(comm: MPI.Comm) -> None:
    """After the first ones, an evaluation allocates no arrays: what Python takes meanwhile is smaller than ours."""
    system = system_from("spatial_chain:256")
    q, u, _ = moving_state(system)
    with closing(separated(system, comm, 31, LoadSolver())) as dynamics:
        q, u = parts(dynamics, q, u)
        udot, rates = np.empty(len(u)), np.empty(len(q))
        compile_evaluations(dynamics)
        for k in range(5):
            dynamics.derivative(0.01 * k, q, u, udot, rates)
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for k in range(50):
            dynamics.derivative(0.05 + 0.01 * k, q, u, udot, rates)
        after, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    parallel_assert(peak - before < 5000 and after - before < 2000, f"{before}, {after}, peak {peak} bytes", comm)


@pytest.mark.cases(2)
@pytest.mark.parametrize(("model", "cuts"), [("spatial_chain:32", 15), ("tree:5:2", 9)])
@pytest.mark.parametrize("estimate", ESTIMATES)
def test_estimates_save_iterations(comm: MPI.Comm, estimate: str, model: str, cuts: int) -> None:
    """Along a smooth motion a better estimate needs fewer iterations than none, and all give the same."""
    system = system_from(model)
    q, u, _ = moving_state(system, 0, 0.1)
    spent = {}
    for name in ("none", estimate):
        with closing(separated(system, comm, cuts, LoadSolver("block-jacobi", name, 1e-8))) as dynamics:
            for k in range(12):
                dynamics.accelerations(*parts(dynamics, q + 0.002 * k * u, u), t=0.002 * k)
            spent[name] = dynamics.divided.coupling.total_iterations  # type: ignore[attr-defined]
    share = {"none": 1.0, "fischer": 0.99}.get(estimate, 0.9)  # Fischer's guess is made for a matrix that stays
    parallel_assert(spent[estimate] <= share * spent["none"], str(spent), comm)


@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
def test_loads_that_vanish(comm: MPI.Comm, preconditioner: str) -> None:
    """Weight ends at once and bodies at rest carry nothing: the estimate is much larger than all that is left."""
    system = system_from("chain:16")
    system.gravity = (0.0, -1e-35, 0.0)
    q, u = system.contents.initial_state(0, 16)
    with closing(separated(system, comm, 3, LoadSolver(preconditioner, "zero"))) as dynamics:
        dynamics.divided.coupling.joints.solution[:] = 1.0  # type: ignore[attr-defined]
        for t in (0.0, 0.1):
            got = dynamics.accelerations(*parts(dynamics, q, u), t=t)
            parallel_assert(float(np.abs(got).max()) < 1e-20, f"{got}", comm)
            dynamics.divided.coupling._hold.remember(t, 1e-20 * np.ones(dynamics.divided.coupling.joints.rows))  # type: ignore[attr-defined]


def test_no_convergence_is_said(comm: MPI.Comm) -> None:
    system = system_from("spatial_chain:64")
    q, u, tau = moving_state(system)
    with (
        closing(separated(system, comm, 31, LoadSolver("jacobi", "none", most=3))) as dynamics,
        pytest.raises(SimulationError, match=r"not converge at t = 0.5 s: 3 iterations .* about .*`coupling='dcae'`"),
    ):
        dynamics.accelerations(*parts(dynamics, q, u, tau), t=0.5)


def test_not_finite_is_no_error(comm: MPI.Comm) -> None:
    """A trial step that leaves the range of numbers is the integrator's to see; afterwards all goes on."""
    system = system_from("spatial_chain:20")
    q, u, tau = moving_state(system)
    reference = accelerations(system, q, u, tau)
    for preconditioner in PRECONDITIONERS:
        with closing(separated(system, comm, 4, LoadSolver(preconditioner))) as dynamics:
            mine = parts(dynamics, q, u, tau)
            dynamics.accelerations(*mine)
            got = dynamics.accelerations(mine[0], np.full_like(mine[1], 1e200), mine[2], t=1.0)
            parallel_assert(not np.isfinite(got).all(), preconditioner, comm)
            got = dynamics.accelerations(*mine, t=2.0)
            ours = reference[dynamics.gather_u.part]
        assert_close(preconditioner, got, ours, "iterated", scale=np.abs(reference).max(), comm=comm)


@pytest.mark.parametrize(
    ("solver", "words"),
    [
        (LoadSolver(preconditioner="ilu"), "unknown preconditioner 'ilu'; choose one of: jacobi"),
        (LoadSolver(estimate="third"), "unknown initial estimate 'third'"),
        (LoadSolver(rtol=0.0), "between 0 and 1"),
        (LoadSolver(most=0), "iterations allowed must be 1 or more, got `solver.most=0`"),
    ],
)
def test_senseless_solvers(solver: LoadSolver, words: str) -> None:
    with pytest.raises(InputError, match=words):
        coupling_named("pcg", solver)


def test_the_condition_of_what_is_not_definite(comm: MPI.Comm) -> None:
    """Infinite, whenever the iteration ends: PETSc would look for it, in numbers that were never written, for ever."""
    system = system_from("spatial_chain:40")
    with closing(separated(system, comm, 7, LoadSolver())) as dynamics:
        dynamics.accelerations(*parts(dynamics, *moving_state(system)))
        coupling = dynamics.divided.coupling
        matrix = coupling._matrix.mat  # type: ignore[attr-defined]
        assert 1.0 < coupling.condition() < np.inf  # type: ignore[attr-defined]
        size = matrix.norm()
        for share in (0.05, 0.2, 0.5):
            matrix.shift(-share * size)
            assert coupling.condition() == np.inf  # type: ignore[attr-defined]
