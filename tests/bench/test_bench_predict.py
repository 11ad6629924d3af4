"""Clusters, what is measured for predictions, predictions, and their command."""

import json
from pathlib import Path

import pytest
from matplotlib import image
from mpi4py import MPI

from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError
from mpimbs.bench.predict.calibration import Calibration
from mpimbs.bench.predict.cluster import cluster_named, measure_here, presets, read_cluster
from mpimbs.bench.predict.predict import TRACED, best, predict
from mpimbs.cli import main
from mpimbs.model import system_from

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
    "missing key": ("latency = 2e-6", "", r"between_nodes: link: latency is missing; give the time of a message"),
    "negative": ("latency = 2e-6", "latency = -1.0", r"between_nodes: link: latency should be greater than or equal"),
    "microseconds": ("latency = 2e-6", "latency = 2.0", r"between_nodes: link: latency should be less than 1"),
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
    with pytest.raises(InputError, match=rf"bad\.toml:(\d+:)? .*{message}"):
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


# --- predictions -----------------------------------------------------------------------------------------------------


def test_predictions_of_all_couplings() -> None:
    """One calibration for all that are predicted; what does not depend on the cluster is as before."""
    system = system_from("chain:96")
    calibration = Calibration(system.contents, 0.01)
    near, far = cluster_named("infiniband"), cluster_named("ethernet")
    for coupling in TRACED:
        predict(system.contents, (1, 2, 5, 48), near, coupling, calibration)  # between known times it interpolates
        rows = predict(system.contents, (1, 2, 5, 48), near, coupling, calibration)
        assert [row.ranks for row in rows] == [1, 2, 5, 48] and rows[0].bodies == 96
        assert rows[0].messages == 0.0 and rows[0].efficiency == 1.0
        for row in rows:
            assert row.seconds == pytest.approx(row.compute + row.messages) and row.messages >= 0.0
            assert row.speed_up == pytest.approx(rows[0].seconds / row.seconds)
            assert row.efficiency == pytest.approx(row.speed_up / row.ranks)
        again = predict(system.contents, (1, 2, 5, 48), far, coupling, calibration)
        assert again[:3] == rows[:3], "up to 16 ranks are on one node of either"
        assert again[3].seconds > rows[3].seconds and again[3].compute == rows[3].compute
    quick = near.model_copy(update={"core_speed": 2.0})
    half = predict(system.contents, (1,), quick, calibration=calibration)[0].seconds
    assert half == pytest.approx(0.5 * predict(system.contents, (1,), near, calibration=calibration)[0].seconds)
    quickest = best(system.contents, near, ranks=(1, 2, 48), calibration=calibration)
    every = [r.seconds for c in TRACED for r in predict(system.contents, (1, 2, 48), near, c, calibration=calibration)]
    assert quickest.seconds == min(every)


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
        ("--method simgrid", "there is no --method: predictions are by LogGP"),
        ("--inertia", "there is no --inertia: `mpimbs bench MODEL --inertia`"),
        ("--coupling none", "unknown coupling 'none'"),
        ("--coupling pcg", "coupling 'pcg' is not predicted; choose one of: dcae, dca, dca-terminal, assembly"),
    ],
)
def test_a_bad_command(comm: MPI.Comm, capsys: pytest.CaptureFixture[str], options: str, message: str) -> None:
    code, out, err = call(comm, capsys, f"predict chain:64 {options}")
    assert (code, out) == (2, "")
    parallel_assert(comm.rank > 0 or err.startswith(f"mpimbs: {message}"), err, comm)
