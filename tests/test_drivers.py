"""The drivers, run quickly."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
from matplotlib import image
from mpi4py import MPI

from mpi_helpers import ROOT
from mpimbs.errors import InputError


def driver(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "drivers" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_sixteen_body_chain(comm: MPI.Comm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = comm.bcast(tmp_path) / "results"
    table = driver("sixteen_body_chain").main(folder, t_end=0.5, comm=comm)
    out, _ = capsys.readouterr()
    if comm.rank > 0:
        assert table is None and out == ""
        return
    ranks = [count for count in (1, 2, 4) if count <= comm.size]
    assert [row["ranks"] for row in table["cases"]] == ranks
    assert [row["cuts"] for row in table["cases"]] == [count - 1 for count in ranks]
    assert table["reference_converged_until"] >= table["t_end"] == 0.5
    for row in table["cases"]:
        assert row["agrees"] and 0 < row["difference"] < 1e-9 and row["energy_change"] < 1e-10 and row["steps"] > 5
    assert json.loads((folder / "sixteen_body_chain.json").read_text()) == table
    assert out.count("agrees") == len(ranks) and "DIFFERS" not in out
    pictures = {
        "figure9_coordinates", "figure10_motion", "sixteen_body_chain_energy", "sixteen_body_chain_differences",
    } | ({"figure10_subchains"} if comm.size > 1 else set())  # fmt: skip
    assert {file.stem for file in folder.glob("*.png")} == pictures
    for name in pictures:
        assert image.imread(folder / f"{name}.png")[..., :3].std() > 0.02, f"{name} is blank"
    assert {file.name for file in folder.glob("*.h5*")} == {f"chain16_{count - 1}_cuts.h5" for count in ranks}


@pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="peers know no MPI: the driver runs alone")
def test_versus_peers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pinocchio agrees at both sizes and stops at the third, for want of memory; mpimbs goes on."""
    folder = tmp_path / "results"
    sizes = (3, 16, 96, 128)
    table = driver("versus_peers").main(folder, sizes=sizes, peers=["pinocchio"], seconds=0.01, memory=1e7)
    out, _ = capsys.readouterr()
    assert json.loads((folder / "versus_peers.json").read_text()) == table
    assert [(row["n"], row["program"]) for row in table["rows"]] == [
        (3, "mpimbs"), (3, "pinocchio"), (16, "mpimbs"), (16, "pinocchio"), (96, "mpimbs"), (128, "mpimbs"),
    ]  # fmt: skip
    assert all(row["difference"] <= table["settings"]["agreement"] for row in table["rows"])
    assert set(table["stops"]) == {"pinocchio"} and table["stops"]["pinocchio"]["n"] == 96
    assert "pinocchio stops at n = 96: out of memory (data grow as n^3): needs" in out
    assert out.count("x ours") == 2 and table["machine"]["cpu"]
    assert image.imread(folder / "versus_peers.png")[..., :3].std() > 0.02, "the picture is blank"


@pytest.mark.time_limit(400)  # the first to use a width compiles for it
def test_the_limits(comm: MPI.Comm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = comm.bcast(tmp_path) / "results"
    limits = driver("limits")
    limits.SHORT, limits.LONG = 8, 12  # type: ignore[attr-defined]
    found = limits.main(["spatial_chain:64", "rope:64"], folder, 0.002, comm)
    out, _ = capsys.readouterr()
    if comm.rank > 0:
        assert found is None and out == ""
    else:
        assert found["all_ranks"]["ranks"] == comm.size
        assert [case["system"] for case in found["systems"]] == ["spatial_chain:64", "rope:64"]
        written = json.loads((folder / "limits.json").read_text())
        for case, again in zip(found["systems"], written["systems"], strict=True):
            assert again["rows"] == case["rows"] and case["table"] in out
            assert case["table"].count("\n| ") == 2 + len(case["rows"])
            names = [row["phase"] for row in case["rows"]]
            assert names[0] == "layout" and names[-3:] == ["joins", "sum", "evaluation"]
            lanes, doubles = case["rows"][-1]["ns_measured"]
            for row in case["rows"]:
                assert set(row["ns_measured"]) == ({lanes} if row["phase"] in ("layout", "joins") else {lanes, doubles})
                assert row["ns_at_peak"] >= 0 and row["ns_limit"] >= row["ns_at_bandwidth"] > 0
            assert case["rows"][-1]["ns_measured"][lanes] < case["rows"][-1]["ns_measured"][doubles]
    for bad in ("tree:2:2", "spatial_chain:1", "free_chain:64"):
        with pytest.raises(InputError, match=bad):
            limits.main([bad], folder, 0.0, comm)
