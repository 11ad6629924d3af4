"""Clusters, what is measured for predictions, predictions, and their command."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import image
from mpi4py import MPI

from mpi_helpers import measured, parallel_assert
from mpimbs.base.errors import InputError
from mpimbs.bench.bench import bench
from mpimbs.bench.predict.calibration import Calibration, Key, interpolated
from mpimbs.bench.predict.cluster import cluster_named, measure_here, presets, read_cluster
from mpimbs.bench.predict.interval_times import MOST_TIMED, IntervalTimes
from mpimbs.bench.predict.open_values import bodies_of, value_of
from mpimbs.bench.predict.predict import best, predict, ranks_to_predict
from mpimbs.bench.predict.trace import Sweeps
from mpimbs.bench.predict.traced_couplings import TRACED
from mpimbs.cli import main
from mpimbs.model import system_from
from mpimbs.model.order.order import Order
from mpimbs.model.order.segments import Integers
from mpimbs.partition.intervals import interval
from mpimbs.sweep.structure import BOUNDARY
from mpimbs.values.joining import joined
from mpimbs.values.joins import join
from oracles.random_systems import SETTINGS
from oracles.trees import parents

CLUSTER = """
name = "mine"
ranks_per_node = 4
core_speed = 2.0
[between_nodes]
latency = 2e-6
bandwidth = 1e10
send_overhead = 1e-7
receive_overhead = 1e-7
[within_node]
latency = 3e-7
bandwidth = 8e9
send_overhead = 1e-7
receive_overhead = 1e-7
"""

# --- clusters --------------------------------------------------------------------------------------------------------


def test_a_cluster_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(CLUSTER)
    cluster = cluster_named(str(tmp_path / "mine.toml"))
    assert (cluster.name, cluster.ranks_per_node, cluster.core_speed) == ("mine", 4, 2.0)
    assert cluster.link(0, 3) == cluster.within_node and cluster.link(3, 4) == cluster.between_nodes
    assert cluster.between_nodes.end_to_end == pytest.approx(2.2e-6)


BAD_CLUSTERS = {
    "missing table": ("[within_node]", "[within]", "unknown key 'within'; did you mean 'within_node'?"),
    "missing key": ("latency = 2e-6", "", r"\[between_nodes\] link: latency is missing; give the time of a message"),
    "negative": (
        "latency = 2e-6",
        "latency = -1.0",
        r"\[between_nodes\] link: latency should be greater than or equal",
    ),
    "microseconds": ("latency = 2e-6", "latency = 2.0", r"\[between_nodes\] link: latency should be less than 1"),
    "text": (
        "ranks_per_node = 4",
        'ranks_per_node = "four"',
        "cluster 'mine': ranks_per_node should be a valid integer",
    ),
    "no ranks": (
        "ranks_per_node = 4",
        "ranks_per_node = 0",
        "cluster 'mine': ranks_per_node should be greater than or",
    ),
    "unknown key": ("core_speed", "core_sped", "unknown key 'core_sped'; did you mean 'core_speed'?"),
    "no TOML": ("name =", "name", "is not valid TOML"),
}


@pytest.mark.parametrize("case", BAD_CLUSTERS)
def test_a_bad_cluster_file(tmp_path: Path, case: str) -> None:
    old, new, message = BAD_CLUSTERS[case]
    path = tmp_path / "bad.toml"
    path.write_text(CLUSTER.replace(old, new, 1))
    with pytest.raises(InputError, match=rf"bad\.toml: .*{message}"):
        read_cluster(path)


def test_presets() -> None:
    """A short message takes what the files say in words; names that are none are told."""
    assert presets() == ["ethernet", "infiniband"]
    ethernet, infiniband = map(cluster_named, presets())
    assert ethernet.between_nodes.end_to_end == pytest.approx(25e-6)
    assert infiniband.between_nodes.end_to_end == pytest.approx(1.5e-6)
    with pytest.raises(InputError, match="unknown cluster 'infinband'; did you mean 'infiniband'"):
        cluster_named("infinband")
    with pytest.raises(InputError, match=r"none\.toml: there is no such file"):
        cluster_named("none.toml")


def test_the_machine_at_hand(comm: MPI.Comm) -> None:
    if comm.size == 1:
        with pytest.raises(InputError, match="start with mpiexec -n 2"):
            measure_here(comm)
        return
    cluster = measure_here(comm)
    assert comm.allgather(cluster) == [cluster] * comm.size
    link = cluster.within_node
    right = cluster.between_nodes == link and 0.0 < link.end_to_end < 1e-2 and 1e7 < link.bandwidth <= 1e12
    parallel_assert(right, f"{cluster}", comm)
    assert cluster.link(0, 4095) == link


# --- calibration -----------------------------------------------------------------------------------------------------


def test_times_in_between() -> None:
    """Powers of the number of bodies are met exactly; beyond the known ones times are proportional."""
    known = {n: Sweeps(1e-7, 1e-9 * n, 2e-9 * n**1.5, 3e-7, 1e-9 * n) for n in (16, 64, 256)}
    assert interpolated(known, 64) == known[64]
    found = interpolated(known, 100)
    assert found[1:3] == pytest.approx((1e-7, 2e-9 * 100**1.5)) and (found.call, found.coupling) == (1e-7, 3e-7)
    assert interpolated(known, 512).inward == pytest.approx(2 * known[256].inward)
    assert interpolated(known, 8).outward == pytest.approx(0.5 * known[16].outward)


@pytest.mark.long  # compares times
def test_a_share_alone() -> None:
    """On one rank a share is what `bench` times; shares of the middle and the tip are measured once."""
    system = system_from("spatial_chain:512")

    def both() -> tuple[Calibration, float, float, float]:
        fresh = Calibration(system, 0.05)
        (whole,) = fresh.sweeps(1, "dcae")
        first = fresh.sweeps(4, "dcae")[0]
        return fresh, sum(whole), 1e-6 * bench(system, MPI.COMM_SELF, seconds=0.05)["us_min"], sum(first)

    def alike(found: tuple[Calibration, float, float, float]) -> bool:
        _, whole, timed, quarter = found
        return 0.6 < whole / timed < 1.7 and quarter < whole

    calibration, *_ = measured(MPI.COMM_SELF, both, alike)
    parts = calibration.sweeps(4, "dcae")
    bodies = np.diff(calibration.division(4).cuts)
    assert len(parts) == 4 and parts[0] == interpolated(calibration.shares[Key("dcae", False)], int(bodies[0]))
    assert [sorted(known) for known in calibration.shares.values()] == [[int(bodies[3]), 512], [int(bodies[1])]]
    assert calibration.sweeps(4, "dcae") == parts
    assert 1e-8 < calibration.join("dcae") < 1e-5


# --- predictions -----------------------------------------------------------------------------------------------------


def test_predictions_of_all_couplings() -> None:
    """One calibration for all that are predicted; what does not depend on the cluster is as before."""
    system = system_from("chain:96")
    calibration = Calibration(system, 0.01)
    near, far = cluster_named("infiniband"), cluster_named("ethernet")
    for coupling in TRACED:
        predict(system, (1, 2, 5, 48), near, coupling, calibration)  # between known times it interpolates
        rows = predict(system, (1, 2, 5, 48), near, coupling, calibration)
        assert [row.ranks for row in rows] == [1, 2, 5, 48] and rows[0].bodies == 96
        assert rows[0].messages == 0.0 and rows[0].efficiency == 1.0
        for row in rows:
            assert row.seconds == pytest.approx(row.compute + row.messages) and row.messages >= 0.0
            assert row.speed_up == pytest.approx(rows[0].seconds / row.seconds)
            assert row.efficiency == pytest.approx(row.speed_up / row.ranks)
        again = predict(system, (1, 2, 5, 48), far, coupling, calibration)
        assert again[:3] == rows[:3], "up to 16 ranks are on one node of either"
        assert again[3].seconds > rows[3].seconds and again[3].compute == rows[3].compute
    quick = near.model_copy(update={"core_speed": 2.0})
    half = predict(system, (1,), quick, calibration=calibration)[0].seconds
    assert half == pytest.approx(0.5 * predict(system, (1,), near, calibration=calibration)[0].seconds)
    quickest = best(system, near, ranks=(1, 2, 48), calibration=calibration)
    every = [r.seconds for c in TRACED for r in predict(system, (1, 2, 48), near, c, calibration=calibration)]
    assert quickest.seconds == min(every)


def test_default_ranks() -> None:
    assert ranks_to_predict(system_from("chain:100")) == [1, 2, 4, 8, 16, 32, 64]
    assert ranks_to_predict(system_from("chain:1000000"))[-1] == 4096
    assert ranks_to_predict(system_from("figure")) == [1, 2, 4, 8]
    assert ranks_to_predict(system_from("tree:9:2"))[-1] == 256


def seconds_of(times: IntervalTimes) -> list[float]:
    """What every rank computes: its sweeps, and the joins that it does."""
    joins = np.zeros(len(times.sweeps))
    for (_, _, ranks), seconds in zip(times.schedule.joins, times.joins, strict=True):
        joins[list(ranks)] += seconds
    return [sum(sweeps) + took for sweeps, took in zip(times.sweeps, joins.tolist(), strict=True)]


@pytest.mark.parametrize("spec", ["tree:7:2", "random_tree:300"])
def test_predictions_of_trees(spec: str) -> None:
    system = system_from(spec)
    calibration = Calibration(system, 0.005)
    rows = predict(system, (1, 3, 40), cluster_named("infiniband"), calibration=calibration)
    assert [row.ranks for row in rows] == [1, 3, 40] and rows[0].bodies == system.n_bodies
    assert rows[0].messages == 0.0 < min(row.messages for row in rows[1:]) and rows[0].efficiency == 1.0
    times = calibration.of_tree(40)
    assert len(times.sweeps) == 40 and len(times.measured) == MOST_TIMED
    dearest = max(seconds_of(times))
    assert rows[2].compute == pytest.approx(dearest)
    assert predict(system, (40,), cluster_named("ethernet"), calibration=calibration)[0].compute == rows[2].compute
    shares = calibration.record()["shares"]
    assert len(shares) == 1 + 3 + MOST_TIMED and {share["ranks"] for share in shares} == {1, 3, 40}
    quickest = best(system, cluster_named("infiniband"), ranks=(1, 3, 40), calibration=calibration)
    by_dcae = min(row.seconds for row in rows)
    assert quickest.seconds == by_dcae if quickest.coupling == "dcae" else quickest.seconds < by_dcae
    with pytest.raises(
        InputError, match="coupling 'pcg' is not predicted; choose one of: dcae, assembly; or measure it"
    ):
        predict(system, (2,), cluster_named("infiniband"), "pcg")


def test_predictions_of_loops() -> None:
    """On many ranks the sweeps are small, the motions of far ends and the joins are not."""
    system = system_from("track:96")
    calibration = Calibration(system, 0.005)
    rows = predict(system, (1, 3, 40), cluster_named("infiniband"), calibration=calibration)
    assert [row.ranks for row in rows] == [1, 3, 40] and rows[0].bodies == 96 and rows[0].messages == 0.0
    times = calibration.of_tree(40)
    assert rows[2].compute == pytest.approx(max(seconds_of(times)))
    assert rows[2].messages > rows[1].messages > 0.0 and min(sweeps.placing for sweeps in times.sweeps) > 0.0
    assert times.exchanged[0] == {39: BOUNDARY} and times.exchanged[39] == {0: BOUNDARY} and not times.exchanged[7]
    assert max(ranks_to_predict(system_from("track:1000"))) == 256, "shares are timed one by one"
    quickest = best(system, cluster_named("infiniband"), ranks=(1, 3), calibration=calibration)
    assert quickest.coupling == "dcae" or quickest.seconds < rows[1].seconds, "by what was timed, on a busy machine"
    for coupling, reason in (("pcg", "is not predicted; choose one of: dcae, assembly"), ("dca", "closes none")):
        with pytest.raises(InputError, match=f"coupling '{coupling}' {reason}"):
            predict(system, (2,), cluster_named("infiniband"), coupling)


@SETTINGS
@given(st.data(), parents())
def test_made_up_values_join_as_intervals_do(data: st.DataObject, parent: Integers) -> None:
    """What hangs where and is open of a join that is timed, is that of the joined interval."""
    order = Order(len(parent), parent)
    if order.n < 2:
        return
    first, middle, last = sorted(data.draw(st.sets(st.integers(0, order.n), min_size=3, max_size=3)))
    left, right = interval(order, first, middle), interval(order, middle, last)
    one, other = (bodies_of(order, part.first, part.last) for part in (left, right))
    both = joined(one, other)
    (rows, lists), out = both.tables(), np.zeros(both.value.room.size())
    work, kept, scratch = (np.full(size, np.nan) for size in (both.work, both.kept, both.scratch))
    join(rows, 0, len(both.up), lists, value_of(one), value_of(other), work, out, kept, scratch)
    assert np.isfinite(out).all()
    expected = bodies_of(order, first, last)
    opened = [[(group.number, group.ends) for group in value.groups] for value in (both.value, expected)]
    assert both.value.last == expected.last and opened[0] == opened[1]
    assert sorted(both.value.slots) == expected.slots


MODEL = "chain:64 --seconds 0.01"

# --- the command -----------------------------------------------------------------------------------------------------


def call(comm: MPI.Comm, capsys: pytest.CaptureFixture[str], command: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(command.split(), comm)
    out, err = capsys.readouterr()
    told = [line for line in err.splitlines(keepends=True) if not line.startswith("compiling the kernels")]
    return int(ended.value.code or 0), out, "".join(told)


def test_the_command(comm: MPI.Comm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = comm.bcast(tmp_path) / "new"
    code, out, err = call(comm, capsys, f"predict {MODEL} --ranks 1,2,8 --coupling dcae --coupling dca -o {folder}")
    assert (code, err) == (0, "")
    if comm.rank > 0:
        assert out == ""
    else:
        assert "predicted for the cluster 'infiniband' by LogGP; computing measured on one core" in out
        assert out.count("\n") == 1 + 1 + 6 + 1 + 3 and "the fastest predicted here: " in out
        found = json.loads((folder / "prediction.json").read_text())
        assert found["kind"] == "predicted" and found["cluster"]["name"] == "infiniband"
        assert {"machine", "versions", "calibration", "settings", "best", "n", "dof"} <= set(found)
        assert len(found["calibration"]["shares"]) == 10  # 1, 2, 8: tip; 2, 8: middle; of both couplings
        lines = (folder / "prediction.tsv").read_text().splitlines()
        assert len(lines) == 7 and lines[0].split("\t")[:3] == ["coupling", "ranks", "bodies"]
        assert image.imread(folder / "prediction.png")[..., :3].std() > 0.02, "the picture is blank"
    code, out, _ = call(comm, capsys, f"predict {MODEL} --ranks 1,2 --cluster ethernet --json")
    assert code == 0 and (comm.rank > 0 or [row["ranks"] for row in json.loads(out)["rows"]] == [1, 2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--ranks 1,two", "--ranks '1,two': give whole numbers with commas between them"),
        ("--ranks 0", "0 ranks: a prediction is for 1 rank at least"),
        ("--ranks 65", "65 ranks for 64 bodies"),
        ("--seconds nan", "seconds to spend must be a number from 0 on, got nan; give --seconds"),
        ("--cluster none", "unknown cluster 'none'"),
        ("--method simgrid", "--method simgrid is no more: predictions are by LogGP"),
        ("--coupling none", "unknown coupling 'none'"),
        ("--coupling pcg", "coupling 'pcg' is not predicted; choose one of: dcae, dca, dca-terminal, assembly"),
    ],
)
def test_a_bad_command(comm: MPI.Comm, capsys: pytest.CaptureFixture[str], options: str, message: str) -> None:
    code, out, err = call(comm, capsys, f"predict chain:64 {options}")
    assert (code, out) == (2, "")
    parallel_assert(comm.rank > 0 or err.startswith(f"mpimbs: {message}"), err, comm)
