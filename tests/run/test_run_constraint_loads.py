"""Simulations joined by constraint loads: the motion of the other couplings, and what the results tell."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from cases import typed_chain
from mpi_helpers import parallel_assert
from mpimbs.base.errors import SimulationError
from mpimbs.coupling import LoadSolver
from mpimbs.model import Joint, System, system_from
from mpimbs.run.run import simulate
from oracles import dense
from tolerances import assert_close

NAMES = ("iterations", "residual", "condition", "constraint_loads")


@pytest.fixture
def path(comm: MPI.Comm, tmp_path: Path) -> Path:
    return comm.bcast(tmp_path) / "out.h5"


def test_what_the_file_tells(comm: MPI.Comm, path: Path) -> None:
    system = system_from("rope:12")
    rtol = 1e-7
    result = simulate(
        system, 0.2, comm, rtol=rtol, atol=rtol, every=0.05, coupling="pcg", cuts=5, output=path, loads=True
    )
    solved = result.solutions
    parallel_assert(solved["unknowns"] == 15 and solved["solutions"] == result.evaluations, str(solved), comm)
    parallel_assert(0 < solved["total_iterations"] <= 3 * solved["solutions"], str(solved), comm)
    parallel_assert(solved["most_iterations"] >= 1 and solved["factorizations"] >= 1, str(solved), comm)
    line = result.summary().splitlines()[-1]
    parallel_assert(line.startswith("constraint loads: 15 unknowns, "), line, comm)
    if comm.rank > 0:
        return
    with h5py.File(path) as run:
        q, u, loads = run["q"][:], run["u"][:], run["loads"][:]
        iterations, residual, condition, found = (run[name][:] for name in NAMES)
        assert all(run[name].attrs["units"] and run[name].attrs["description"] for name in NAMES)
        bodies, subspaces = run["model/separated_joint"][:], run["model/constraint_subspace"][:]
        settings, statistics = (json.loads(run.attrs[name]) for name in ("settings", "statistics"))
    assert settings["solver"]["rtol"] == pytest.approx(0.01 * rtol) and settings["solver"]["preconditioner"] == "lagged"
    assert statistics["solutions"] == solved
    assert found.shape == (5, 15) and list(np.unique(bodies)) == settings["cuts"][1:-1]
    assert np.all(residual < 2e-9) and residual.max() == solved["largest_residual"]
    assert np.all(condition > 1.0) and condition.max() == solved["largest_condition"]
    assert np.all((iterations >= 0) & (iterations <= 10))
    for k in range(5):
        oracle = dense.joint_wrenches(system, q[k], u[k], frame="body")
        scale = np.abs(oracle).max()
        expected = np.einsum("ki,ki->k", subspaces, oracle[bodies])
        assert_close("constraint loads", found[k], expected, "tied", scale)
        assert_close("joint loads", loads[k], oracle, "tied", scale)


def test_the_condition_is_that_of_the_matrix(comm: MPI.Comm) -> None:
    """It comes from another side: with the separated joints free, the inverse mass matrix tells how they come apart.

    A spherical joint has forces for constraint loads; what a force between the two bodies does to their relative
    acceleration is a column of the matrix of the equations.
    """
    system = typed_chain(("revolute", *("spherical",) * 5), 3, springs=False)
    result = simulate(system, 1e-6, comm, coupling="pcg", cuts=5, every=1e-6)
    found, unknowns = result.solutions["largest_condition"], result.solutions["unknowns"]
    freed = System(gravity=system.gravity)
    for body in system.bodies():
        kept = body.joint.model_dump(include={"position", "rotation"})
        joint = body.joint if body.joint.type == "revolute" else Joint(type="free", **kept)
        freed.add(body.model_copy(update={"joint": joint, "parent": None}))
    q, u = np.zeros(freed.nq), np.zeros(freed.nu)
    q[0] = system.columns().q[0]
    for k in range(5):  # as the joints are, with no distance yet
        q[1 + 7 * k : 5 + 7 * k] = system.columns().q[1 + 4 * k : 5 + 4 * k]
    apart = np.array([1 + 6 * k + i for k in range(5) for i in (3, 4, 5)])
    at_rest = dense.dense_accelerations(freed, q, u)
    matrix = np.array([dense.dense_accelerations(freed, q, u, tau) - at_rest for tau in np.eye(freed.nu)[apart]])
    exact = np.linalg.cond(matrix[:, apart].astype(float))
    parallel_assert(unknowns == 15 and exact > 3.0, f"{unknowns} unknowns, condition {exact}", comm)
    parallel_assert(0.95 * exact < found < (1 + 1e-3) * exact, f"{found} estimated from below, {exact} exact", comm)


@pytest.mark.parametrize("estimate", ["first", "second"])
def test_three_iterations_are_enough(comm: MPI.Comm, estimate: str) -> None:
    """On average, in the motion of 1024 bodies with 15 cuts at a tolerance of 1e-8; and it is the same motion."""
    system = system_from("spatial_chain:1024")
    other = simulate(system, 0.1, comm, every=0.1)
    result = simulate(system, 0.1, comm, coupling="pcg", cuts=15, solver=LoadSolver(estimate=estimate), every=0.1)
    each = result.solutions["total_iterations"] / result.solutions["solutions"]
    parallel_assert(each <= 3.0, f"{each} iterations", comm)
    if comm.rank == 0:
        assert_close("coordinates", result.samples[-1].q, other.samples[-1].q, "tied")


def test_a_run_without_convergence_stops(comm: MPI.Comm, path: Path) -> None:
    solver = LoadSolver("jacobi", "none", most=3)
    with pytest.raises(SimulationError, match=r"do not converge at t = 0 s: 3 iterations .* condition about"):
        simulate(system_from("spatial_chain:32"), 0.1, comm, coupling="pcg", cuts=15, solver=solver, output=path)
    if comm.rank == 0:
        with h5py.File(path) as run:
            assert run.attrs["status"].startswith("stopped: the constraint loads do not converge")


def test_no_cuts_have_no_equations(comm: MPI.Comm, path: Path) -> None:
    if comm.rank == 0:
        result = simulate(system_from("chain:4"), 0.1, MPI.COMM_SELF, coupling="pcg", cuts=0, output=path)
        assert result.solutions == {} and "constraint loads" not in result.summary()
        with h5py.File(path) as run:
            assert "constraint_loads" not in run
