"""The figures of `bench`."""

from typing import Any, cast

import numpy as np
import pytest
from mpi4py import MPI

from mpimbs.base.errors import InputError
from mpimbs.bench.bench import bench, bench_batch, report
from mpimbs.bench.laps import PhaseLaps, disturbance, said, summary, take_turns
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
    assert (figures["n"], figures["dof"], figures["loops"]) == (system.n_bodies, system.nu, len(system.loops))
    assert ("loop(s)" in report(figures)[0]) == bool(system.loops)
    assert figures["repetitions"] >= 10
    assert 0.0 < figures["us_min"] <= figures["us_median"] <= figures["us_p90"]
    assert figures["switches_per_evaluation"] >= 0.0
    assert figures["ns_per_body_min"] == pytest.approx(1e3 * figures["us_min"] / system.n_bodies)
    phases = figures["phases"]
    assert set(phases) == {"sweep", "coupling", "communication"} and phases["sweep"] > 0.0
    assert (phases["communication"] > 0) == (comm.size > 1)


@pytest.mark.parametrize("lanes", [1, NATIVE])
def test_bench_compares_with_one_lane(comm: MPI.Comm, lanes: int) -> None:
    figures = bench(system_from("spatial_chain:300"), comm, seconds=0.02, lanes=lanes)
    assert comm.allgather(figures) == [figures] * comm.size
    assert figures["lanes"] == lanes
    lines = report(figures)
    assert f"{comm.size} ranks, {lanes} lanes, dcae" in lines[0] and lines[1].startswith("median us by phase: sweep ")
    assert ("scalar" in figures) == (lanes > 1) and len(lines) == 2 + (lanes > 1) + bool(disturbance(figures))
    if lanes > 1:
        other = figures["scalar"]
        assert set(other) == {"us_min", "us_median", "us_p90", "ratio", "difference"}
        assert other["ratio"] == pytest.approx(other["us_min"] / figures["us_min"])
        assert 0.0 < other["us_min"] <= other["us_median"] <= other["us_p90"] and other["difference"] < 1e-12
        assert lines[2].startswith("without lanes: ") and "times as long; accelerations differ by" in lines[2]


@pytest.mark.parametrize("spec", ["tree:7:2", "caterpillar:300", "spatial_chain:40"])
def test_bench_says_how_a_tree_is_swept(comm: MPI.Comm, spec: str) -> None:
    """All bodies of all ranks in one of three ways: most of a tree in limbs, of a caterpillar in stretches."""
    system = system_from(spec)
    figures = bench(system, comm, seconds=0.01)
    swept, lines = figures["swept"], report(figures)
    if system.is_chain:
        assert swept is None and not any(line.startswith("swept") for line in lines)
        return
    assert sum(swept.values()) == system.n_bodies
    most = "limbs" if spec.startswith("tree") else "stretches"
    assert swept[most] > system.n_bodies / 2 and figures["lanes"] > 1
    said_so = f"swept: {swept['limbs']} bodies in limbs side by side, {swept['stretches']} along stretches, "
    assert f"{said_so}{swept['trunk']} in the trunk, in doubles" in lines


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


def test_longer_chains_take_longer(comm: MPI.Comm) -> None:
    """A thousand times by operations; of the minima, which other work can't make shorter."""
    short, long = (bench(system_from(f"chain:{n}"), comm, seconds=0.05)["us_min"] for n in (16, 65536))
    assert long > 5 * short


class Clock:
    """Time that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Phased:
    """Stands in for a `Dynamics` whose last rank takes longer, in another phase."""

    def __init__(self, comm: MPI.Comm, clock: Clock) -> None:
        self.comm, self.clock, self.timed = comm, clock, False
        self.spent = {"sweep": 5.0, "coupling": 7.0, "communication": 9.0}
        self.calls = 0

    def seconds(self) -> dict[str, float]:
        return dict(self.spent)

    def call(self) -> None:
        """The first is slow, as evaluations with cold caches are; one microsecond is none of the phases."""
        last = self.comm.rank == self.comm.size - 1
        scale = 1e-6 * (100.0 if self.calls == 0 else 1.0)
        took = {"sweep": 30.0, "coupling": 2.0, "communication": 1.0} if last else {"sweep": 3.0, "communication": 20.0}
        for name, us in took.items():
            self.spent[name] += scale * us
        self.clock.now += scale * (sum(took.values()) + 1.0)
        self.calls += 1


def test_phases_are_medians_of_the_slowest_rank(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """They sum to the median of the whole, but for what is no phase; the largest of each over the ranks would not."""
    clock = Clock()
    monkeypatch.setattr("mpimbs.bench.laps.time.perf_counter", clock)
    dynamics = Phased(comm, clock)
    phases = PhaseLaps(cast(Dynamics, dynamics), dynamics.call)
    for count in (3, 2):
        phases.add(count)
    assert phases.medians() == pytest.approx({"sweep": 30.0, "coupling": 2.0, "communication": 1.0})
    assert dynamics.calls == 5 and not dynamics.timed


def test_the_usual_time_comes_first() -> None:
    row = summary(np.array([3.0, 1.0, 2.0, 4.0, 100.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]) * 1e-6)
    assert row == pytest.approx({"us_min": 1.0, "us_median": 6.0, "us_p90": 10.0})
    assert said(row) == "median 6 us (minimum 1, 90th percentile 10)"


@pytest.mark.parametrize(
    ("median", "switches", "words"),
    [
        (4.0, 2.0, "2 context switches an evaluation, median 4 times the minimum"),
        (1.1, 2.0, "2 context switches an evaluation"),
        (4.0, 0.0, ""),
        (1.4, 0.5, ""),
    ],
)
def test_shared_cores_are_told(median: float, switches: float, words: str) -> None:
    """Where ranks take turns on a core; not where times differ for another reason, or where it changes little."""
    found = disturbance({"us_min": 1.0, "us_median": median, "us_p90": 9.0, "switches_per_evaluation": switches})
    assert (words in found and "--bind-to core" in found) if words else found == ""


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


def test_a_slow_beginning_spoils_nothing(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where other work has the cores for the first calls, there are as many good ones as the time allows afterwards."""
    clock = Clock()
    monkeypatch.setattr("mpimbs.bench.laps.time.perf_counter", clock)
    calls = 0

    def call() -> None:
        nonlocal calls
        clock.now += 0.02 if calls < 12 else 1e-4
        calls += 1

    rounds: list[int] = []
    laps, _ = take_turns(comm, {"used": call}, 0.5, rounds.append)
    assert laps["used"].min() == pytest.approx(1e-4) and np.median(laps["used"]) == pytest.approx(1e-4)
    assert 0.5 <= laps["used"].sum() < 0.6 and sum(rounds) == len(laps["used"]) > 1000
