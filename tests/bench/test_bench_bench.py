"""The figures of `bench`."""

from typing import Any

import pytest
from mpi4py import MPI

from mpimbs.base.errors import InputError
from mpimbs.bench.bench import bench, bench_batch, report
from mpimbs.coupling import LoadSolver
from mpimbs.dynamics import Dynamics
from mpimbs.kernels.lanes import native_width
from mpimbs.model import system_from

NATIVE = native_width()


@pytest.mark.parametrize("spec", ["chain:64", "rope:20", "four_bar_chain:12", "track:16"])
def test_figures_of_bench(comm: MPI.Comm, spec: str) -> None:
    system = system_from(spec)
    figures = bench(system, comm, seconds=0.05)
    assert comm.allgather(figures) == [figures] * comm.size
    assert (figures["system"], figures["coupling"], figures["ranks"]) == (system.name, "dcae", comm.size)
    assert (figures["n"], figures["dof"], figures["loops"]) == (system.n_bodies, system.nu, len(system.contents.loops))
    assert ("loop(s)" in report(figures)[0]) == bool(system.contents.loops)
    assert figures["repetitions"] >= 10
    assert 0.0 < figures["us_min"] <= figures["us_median"] <= figures["us_p90"]
    assert figures["switches_per_evaluation"] >= 0.0
    assert figures["ns_per_body_min"] == pytest.approx(1e3 * figures["us_min"] / system.n_bodies)
    phases = figures["phases"]
    assert set(phases) == {"sweep", "coupling", "communication"} and phases["sweep"] > 0.0
    assert (phases["communication"] > 0) == (comm.size > 1)


@pytest.mark.parametrize("cuts", [None, 7])
def test_bench_of_constraint_loads(comm: MPI.Comm, cuts: int | None) -> None:
    """States of a motion in turn, with the tolerance of its integrator."""
    system = system_from("spatial_chain:64")
    figures = bench(system, comm, "pcg", seconds=0.02, cuts=cuts, solver=LoadSolver("lagged", "zero"))
    assert comm.allgather(figures) == [figures] * comm.size
    expected = comm.size - 1 if cuts is None else cuts
    assert figures["cuts"] == expected and figures["solver"]["rtol"] == pytest.approx(1e-10)
    solved = figures["solutions"]
    assert solved["unknowns"] == 5 * expected
    if expected:
        assert 0 < solved["iterations"] <= solved["most_iterations"] and 0 < solved["factorizations"] < 1
        assert f"{expected} cuts, {5 * expected} constraint loads: {solved['iterations']:.2f} iterations" in "".join(
            report(figures)
        )
    if "scalar" in figures:
        assert figures["scalar"]["difference"] < 1e-7


@pytest.mark.parametrize(("copies", "lanes"), [(4, 1), (8 * MPI.COMM_WORLD.size, None)])
def test_figures_of_bench_batch(comm: MPI.Comm, copies: int, lanes: int | None) -> None:
    system = system_from("figure")
    figures = bench_batch(system, copies, comm, 0.02, lanes)
    assert comm.allgather(figures) == [figures] * comm.size
    assert (figures["system"], figures["ranks"], figures["copies"]) == (system.name, comm.size, copies)
    assert (figures["n"], figures["dof"], figures["lanes"]) == (15, 36, lanes or NATIVE)
    assert figures["repetitions"] >= 10 and 0.0 < figures["us_min"] <= figures["us_median"] <= figures["us_p90"]
    assert figures["us_per_copy_min"] == pytest.approx(figures["us_min"] / copies)
    other = figures["one_after_the_other"]
    assert set(other) == {"us_min", "us_median", "us_p90", "ratio", "difference"}
    assert other["ratio"] == pytest.approx(other["us_min"] / figures["us_min"]) and other["difference"] < 1e-12
    first, second, *_ = report(figures)
    assert first.startswith(f"human figure: {copies} copies of 15 bodies, ") and first.endswith("us per copy")
    assert second.startswith("one after the other: ") and "accelerations differ by" in second


def test_bench_refuses_what_dynamics_refuses(comm: MPI.Comm) -> None:
    with pytest.raises(InputError, match="unknown coupling 'pcgg'; choose one of: dcae"):
        bench(system_from("chain:8"), comm, "pcgg")
    with pytest.raises(InputError, match="seconds"):
        bench(system_from("chain:8"), comm, seconds=float("nan"))


def test_bench_leaves_nothing_behind(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where what it compares with is refused."""
    made: list[Dynamics] = []
    closed: list[Dynamics] = []

    class Watched(Dynamics):
        def __init__(self, *given: Any, **settings: Any) -> None:
            if made:
                raise InputError("no more")
            super().__init__(*given, **settings)
            made.append(self)

        def close(self) -> None:
            closed.append(self)
            super().close()

    monkeypatch.setattr("mpimbs.bench.bench.Dynamics", Watched)
    with pytest.raises(InputError, match="no more"):
        bench(system_from("chain:4096"), comm, seconds=0.01, lanes=4)
    assert len(closed) == len(made) == 1
