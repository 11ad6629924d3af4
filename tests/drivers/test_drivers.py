"""The drivers, run quickly."""

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from mpi4py import MPI

from driver_modules import driver
from mpimbs.base.errors import InputError
from mpimbs.model import system_from

pytestmark = pytest.mark.long


@pytest.mark.parametrize("coupling", ["dcae", "pcg"])
def test_the_sixteen_body_chain(
    comm: MPI.Comm, tmp_path: Path, capsys: pytest.CaptureFixture[str], coupling: str
) -> None:
    folder = comm.bcast(tmp_path) / "results"
    table = driver("sixteen_body_chain").main(folder, t_end=0.5, coupling=coupling, samples=40, comm=comm)
    out, _ = capsys.readouterr()
    if comm.rank > 0:
        assert table is None and out == ""
        return
    cuts = [0, 1, 3, 7, 15]
    assert [row["cuts"] for row in table["cases"]] == cuts
    assert [row["ranks"] for row in table["cases"]] == [min(count + 1, comm.size) for count in cuts]
    assert table["reference_converged_until"] >= table["t_end"] == 0.5
    for row in table["cases"]:
        assert row["agrees"] and 0 < row["difference"] < 1e-9 and row["energy_change"] < 1e-10 and row["steps"] > 5
        assert bool(row["solutions"]) == (coupling == "pcg" and row["cuts"] > 0)
    assert json.loads((folder / "sixteen_body_chain.json").read_text()) == table
    assert out.count("| True |") == len(cuts)
    pictures = {
        "figure9_coordinates", "figure10_motion", "sixteen_body_chain_energy", "sixteen_body_chain_differences",
    }  # fmt: skip
    assert {file.stem for file in folder.glob("*.png")} == pictures
    for name in pictures:
        assert image.imread(folder / f"{name}.png")[..., :3].std() > 0.02, f"{name} is blank"
    assert {file.name for file in folder.glob("*.h5*")} == {f"chain16_{count}_cuts.h5" for count in cuts}


@pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="peers know no MPI: the driver runs alone")
def test_versus_peers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for every program on every model; a peer that gives no figure says why."""
    models = ["figure", "tree:4:2", "crowd:2"]
    table = driver("versus_peers").main(models, tmp_path, ["pinocchio"], 0.01, 1e6)
    out, _ = capsys.readouterr()
    assert json.loads((tmp_path / "versus_peers.json").read_text()) == table
    programs = [(model, program) for model in models for program in ("mpimbs", "pinocchio")]
    assert [(row["model"], row["program"]) for row in table["rows"]] == programs
    lines = out.splitlines()
    assert lines[0] == "| MODEL | bodies | mpimbs | pinocchio |" and len(lines) == 2 + len(models)
    for model, row, line in zip(models, table["rows"][1::2], lines[2:], strict=True):
        assert line.startswith(f"| `{model}` | {system_from(model).n_bodies} | ")
        assert ("out of memory" in line) == ("reason" in row) and (line.count(" us") == 2) == ("reason" not in row)
    assert image.imread(tmp_path / "versus_peers.png")[..., :3].std() > 0.02, "the picture is blank"


@pytest.mark.time_limit(400)  # the first to use a width compiles for it
def test_the_limits(comm: MPI.Comm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = comm.bcast(tmp_path) / "results"
    limits = driver("limits")
    found = limits.main(["spatial_chain:64", "rope:64"], folder, 0.002, comm)
    out, _ = capsys.readouterr()
    if comm.rank > 0:
        assert found is None and out == ""
    else:
        assert json.loads((folder / "limits.json").read_text()) == found
        lanes = found["machine"]["width"]
        rows = found["rows"]
        assert [(row["system"], row["lanes"]) for row in rows] == [
            (spec, width) for spec in ("spatial_chain:64", "rope:64") for width in (lanes, 1)
        ]
        for row in rows:  # a clock can be off by little, a limit by a factor of some must be wrong
            assert row["operations"] > 500 and row["bytes"] > 300 and 0 < row["ns_limit"] < 2 * row["ns"]
            assert f"| {row['system']} | {row['lanes']} |" in out
        assert rows[2]["operations"] > rows[0]["operations"] > rows[1]["operations"]
    for bad in ("tree:2:2", "spatial_chain:0"):
        with pytest.raises(InputError, match=bad):
            limits.main([bad], folder, 0.0, comm)


def test_operation_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "results"
    counts = driver("operation_counts")
    table = counts.main(folder, 64, (1, 4, 16, 64), (1, 2, 3))
    out, _ = capsys.readouterr()
    assert json.loads((folder / "operation_counts.json").read_text()) == table
    assert set(table["counts"]) == {"revolute", "spherical", "mixed"}
    assert all(part["multiplications"] > 0 for parts in table["counts"].values() for part in parts.values())
    for n, forms in table["inertia"].items():  # pairs of joints, each a product of six or a resolved load (24 + 18)
        pairs = int(n) * (int(n) - 1) / 2
        for form, each in (("recursive", 24), ("doubling", 24), ("here", 6)):
            assert each < forms[form]["multiplications"] / pairs < each + 130 * (2 + np.log2(int(n))) / int(n)
    assert table["paper"]["body swept, both handles"]["multiplications"] == 637
    assert "| body swept at the tip | 353 + 287 | 1 | 0 | 1 | 300 + 279 |" in out
    assert out.count("multiplications + additions") == 4
    assert "| DCA | paper | 4 | 1.00 |" in out and table["gain"]["paper"]["dca-terminal"][0] == 1.0
    for name, wide in (("figure3", True), ("figure4", False), ("figure5", True), ("figure6", False)):
        figure = table["figures"][name]
        assert figure["processors"] == ([1, 4, 16, 64] if wide else [1, 2, 3])
        for source, curves in figure["operations"].items():
            assert len({*curves["aba"]}) == 1 and curves["aba"][0] == 64 * (579 if source == "paper" else 640)
            for operations in curves.values():
                assert len(operations) == len(figure["processors"])
        assert image.imread(folder / f"operations_{name}.png")[..., :3].std() > 0.02, f"{name} is blank"
    assert table["fewest"]["paper"]["dcae"] == table["fewest"]["ours"]["dcae"] == 2
    with pytest.raises(InputError, match="128 for a chain of 64"):
        counts.main(folder, 64, (128,))


def test_constraint_loads(comm: MPI.Comm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Iterations grow with the cuts for the paper's preconditioner, and not for exact ones; pictures are drawn."""
    folder = comm.bcast(tmp_path) / "results"
    study = driver("constraint_load_study")
    table = study.main(["spatial_chain:12"], folder, (1, 3, 7, 15), 0.05, 1e-6, 0.0, (1e-6,), comm)
    out, _ = capsys.readouterr()
    if comm.rank > 0:
        assert table is None and out == ""
        return
    assert json.loads((folder / "constraint_load_study.json").read_text()) == table
    (part,) = table["systems"]
    rows = part["iterations"]
    assert {row["cuts"] for row in rows} == {1, 3, 7}, "15 cuts are too many for 12 bodies"
    assert len(rows) == 3 * 4 * 5 and all(row["m"] == 5 * row["cuts"] for row in rows)
    assert study.gamma(rows, "jacobi", "none") > 0.5
    for exact in ("lagged", "dcae"):
        assert study.gamma(rows, exact, "first") < 0.1, exact
    assert all(row["iterations"] <= 3 for row in rows if row["preconditioner"] in ("lagged", "dcae"))
    solvers = {(row["solver"], row["ranks"]) for row in part["times"]}
    assert solvers == {(name, ranks) for name in ("jacobi", "lagged", "(dcae)") for ranks in {1, comm.size}}
    for fit in part["fits"].values():
        assert min(fit["c1"], fit["c2"], fit["c3"], fit["c4"]) >= 0 < fit["c1"] + fit["c2"] + fit["c3"]
    (paper,) = table["paper"]
    assert paper["iterations"] == sorted(paper["iterations"]) and 0.5 < paper["gamma_from_3_cuts"] < 1.0
    assert out.count("spatial_chain:12: ") == 3
    pictures = {f"constraint_load{name}" for name in (
        "_iterations_spatial_chain_12", "_figure11_spatial_chain_12", "s_figure9", "s_figure10"
    )}  # fmt: skip
    assert {file.stem for file in folder.glob("*.png")} == pictures
    for name in pictures:
        assert image.imread(folder / f"{name}.png")[..., :3].std() > 0.02, f"{name} is blank"


def test_accuracy(comm: MPI.Comm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = comm.bcast(tmp_path) / "results"
    couplings, shapes = ("dcae", "dca"), ("bent", "resting")
    rows = driver("accuracy").main(["spatial_chain:16"], folder, couplings, shapes, comm)
    out, _ = capsys.readouterr()
    if comm.rank > 0:
        assert rows is None and out == ""
    else:
        counts = [count for count in (1, 2, 4) if count <= comm.size]
        cases = [(row["shape"], row["ranks"], row["coupling"]) for row in rows]
        assert cases == [(shape, count, coupling) for shape in shapes for count in counts for coupling in couplings]
        assert all(0 < row["error"] < 1e-12 for row in rows) and out.count("spatial_chain:16") == len(rows)
        assert json.loads((folder / "accuracy.json").read_text()) == rows
        assert image.imread(folder / "accuracy.png")[..., :3].std() > 0.02, "the picture is blank"
    with pytest.raises(InputError, match="unknown coupling 'aba'"):
        driver("accuracy").main(["chain:4"], folder, ["aba"], shapes, comm)


def test_load_balance(comm: MPI.Comm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = comm.bcast(tmp_path) / "results"
    balance = driver("load_balance")
    balance.SOLVES = 3  # type: ignore[attr-defined]
    table = balance.main(folder, (16, 64), (0.4, 0.6), "spatial_chain", 0.0, comm)
    out, _ = capsys.readouterr()
    if comm.rank > 0:
        assert table is None and out == ""
    else:
        counts = [count for count in (1, 2, 3, 4) if count in (1, 2, 4)[: comm.size.bit_length()] or count == comm.size]
        assert len(table["timings"]) == len(counts) * 2 * 4 and all(row["ms"] > 0 for row in table["timings"])
        composed = 3 * (max(table["cores"], comm.size) < balance.PARTS)  # type: ignore[attr-defined]
        assert len(table["optima"]) == 3 * (len(counts) - 1) + composed
        for row in table["balance"]:
            assert min(abs(row["share"] - share) for share in (0.4, 0.6)) < 0.1, row
        assert json.loads((folder / "load_balance.json").read_text()) == table
        assert image.imread(folder / "load_balance_figure8.png")[..., :3].std() > 0.02, "the picture is blank"
        assert all(f"| {row['algorithm']} | {row['ranks']} |" in out for row in table["optima"])
    with pytest.raises(InputError, match="between 0 and 1"):
        balance.main(folder, (16,), (1.0,), comm=comm)


def test_the_check_of_predictions(comm: MPI.Comm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On two ranks; what is measured and what is predicted are of the same order, whatever else runs beside."""
    check = driver("prediction_check").main
    if comm.size == 1:
        with pytest.raises(InputError, match="start with mpiexec -n 2"):
            check(comm=comm)
        return
    if comm.size > 2:
        pytest.skip("the messages between more ranks than cores say nothing")
    folder = comm.bcast(tmp_path) / "results"
    result = check(("spatial_chain:512",), ("dcae", "dca"), folder, 1, 0.02, 0.02, comm=comm)
    out, _ = capsys.readouterr()
    if comm.rank > 0:
        assert result is None and out == ""
        return
    assert json.loads((folder / "prediction_check.json").read_text()) == result
    assert [(row["coupling"], row["ranks"]) for row in result["rows"]] == [
        (coupling, ranks) for coupling in ("dcae", "dca") for ranks in (1, 2)
    ]
    assert all(row["measured_us"] > 1 and row["predicted_us"] > 1 for row in result["rows"])
    assert all(-0.8 < row["error"] < 4 for row in result["rows"] if row["ranks"] == 1), result["rows"]
    assert out.count("| spatial_chain:") + out.count("| rope:") == 4, out


def test_the_figure_that_releases_its_hands(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    table = driver("figure_releases_hands").main(folder, t_end=0.08, releases=(0.02, 0.05), seconds=0.01)
    assert json.loads((folder / "figure_releases_hands.json").read_text()) == table
    assert [row["connections"] for row in table["rows"]] == [2, 1, 0]
    assert [event["cut"] for event in table["events"]] == [["right"], ["left"]]
    assert all(abs(event["energy_lost"]) < 1e-9 for event in table["events"]) and table["energy_error"] < 1e-7
    assert image.imread(folder / "figure_releases_hands.png")[..., :3].std() > 0.02, "the picture is blank"


@pytest.mark.time_limit(300)  # compiles
def test_augmented_loops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = driver("augmented_loops").main(tmp_path, t_end=0.1, samples=10)
    assert json.loads((tmp_path / "augmented_loops.json").read_text()) == tables
    for row in tables["runs"]:
        assert "stopped" not in row and row["unfinished"] == 0
        assert row["positions"] < (1e-11 if row["way"].endswith(", projected") else 1e-5)
    assert max(row["error"] for row in tables["convergence"]) < 1e-10
    faster = {row["penalty"]: row["changes"][1] for row in tables["convergence"] if row["case"] == "five_bar"}
    assert faster[1e3] > 1e3 * faster[1e7]
    for picture in tmp_path.glob("*.png"):
        assert image.imread(picture).std() > 0.01, picture
    assert "errors, by the penalty" in capsys.readouterr().out
