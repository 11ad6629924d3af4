"""Simulations joined by constraint loads: the motion of the other couplings, and what the results tell."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpi_helpers import parallel_assert
from mpimbs.base.errors import SimulationError
from mpimbs.coupling import LoadSolver
from mpimbs.model import system_from
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


@pytest.mark.parametrize(
    ("preconditioner", "rtol", "most", "when"),
    [("jacobi", None, 3, "0"), ("lagged", 1e-17, 2, r"\S+")],  # less than rounding leaves, now or a stage later
)
def test_a_run_without_convergence_stops(
    comm: MPI.Comm, path: Path, preconditioner: str, rtol: float | None, most: int, when: str
) -> None:
    """The remedy is another one than what it was asked for."""
    solver = LoadSolver(preconditioner, "none", rtol, most=most)
    told = rf"do not converge at t = {when} s: {most} iterations .* condition about .* choose .*fewer `cuts`"
    with pytest.raises(SimulationError, match=told) as stopped:
        simulate(system_from("spatial_chain:32"), 0.1, comm, coupling="pcg", cuts=15, solver=solver, output=path)
    assert "'direct'" in str(stopped.value) and f"'{preconditioner}'" not in str(stopped.value)
    if comm.rank == 0:
        with h5py.File(path) as run:
            assert run.attrs["status"].startswith("stopped: the constraint loads do not converge")


@pytest.mark.parametrize("tolerance", [1e-6, 1e-9])
def test_redundant_loops_take_no_more_steps(comm: MPI.Comm, tolerance: float) -> None:
    """Three cranks of a plane parallelogram, which steps open: what constraints contradict adds nothing to errors."""
    runs = [simulate("parallelogram", 1.0, comm, tol=tolerance, coupling=name, cuts=3) for name in ("dcae", "pcg")]
    assert runs[0].steps == pytest.approx(runs[1].steps, rel=0.2)
    if comm.rank == 0:
        assert abs(runs[0].q[-1] - runs[1].q[-1]).max() < 10 * tolerance
