"""The README's model file and Python example, as they stand there."""

import re
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpi_helpers import parallel_assert
from mpimbs import cli
from mpimbs.model import read_system
from mpimbs.simulation.run import simulate
from mpimbs.study.cluster import read_cluster

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")


def block(heading: str) -> str:
    """The first indented block below a heading."""
    text = README.split(f"\n## {heading}\n", 1)[1]
    match = re.search(r"(?:^(?:    .*)?\n)+", text[text.index("\n    ") + 1 :], re.MULTILINE)
    assert match, f"no example below '{heading}'"
    return re.sub(r"^    ", "", match.group(), flags=re.MULTILINE)


def still(run: h5py.File) -> list[str]:
    """Bodies of a run whose joints could have moved, and end where they began."""
    q, offset = run["q"], run["model/q_offset"][:]
    moved = np.abs(q[-1] - q[0]) > 1e-7  # rad, m: above what the tolerances of a run add
    could = np.flatnonzero(np.diff(offset))
    names = run["model/body"].asstr()[:]
    return [str(names[k]) for k in could if not moved[offset[k] : offset[k + 1]].any()]


def test_the_model_file_is_valid(tmp_path: Path) -> None:
    (tmp_path / "model.toml").write_text(block("Model file"), encoding="utf-8")
    system = read_system(tmp_path / "model.toml")
    assert (system.n_bodies, system.nu, system.name) == (101, 306, "a tethered platform")
    simulate(system, 0.1, output=tmp_path / "platform.h5")
    with h5py.File(tmp_path / "platform.h5") as run:
        assert still(run) == []


def test_the_cluster_file_is_valid(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(block("Prediction"), encoding="utf-8")
    cluster = read_cluster(tmp_path / "mine.toml")
    assert (cluster.name, cluster.ranks_per_node, cluster.between_nodes.bandwidth) == ("mine", 64, 25e9)


def test_the_python_example_runs(comm: MPI.Comm, tmp_path_factory, monkeypatch) -> None:
    folder = comm.bcast(str(tmp_path_factory.mktemp("readme")) if comm.rank == 0 else None)
    monkeypatch.chdir(folder)
    code = block("Python")
    if comm.size > 1:
        code = code.replace("t_end=2.0", "t_end=0.02")  # seconds, where ranks share cores
    scope: dict[str, object] = {}
    exec(code, scope)
    result, dynamics, udot = (scope[name] for name in ("result", "dynamics", "udot"))
    parallel_assert(result.status == "complete", f"status {result.status}", comm)
    count = comm.allreduce(len(udot))
    dynamics.close()
    with h5py.File("crane.h5", "r") as run:
        steps = len(run["time"])
        at_rest = still(run) if comm.size == 1 else []
    parallel_assert(count == 154 and steps == 201, f"{count} accelerations, {steps} samples", comm)
    assert at_rest == []


def test_the_forces_run(comm: MPI.Comm, tmp_path_factory, monkeypatch) -> None:
    """The module of forces and the command below it; compiled on one rank, which takes seconds on several."""
    folder = Path(comm.bcast(str(tmp_path_factory.mktemp("forces")) if comm.rank == 0 else None))
    code = block("Forces of your own")
    if comm.rank == 0:
        (folder / "water.py").write_text(code if comm.size == 1 else code.replace("@numba.njit(cache=True)\n", ""))
    comm.Barrier()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    text = README.split("\n## Forces of your own\n", 1)[1]
    command = re.search(r"mpimbs (run rope:50 .*)", text)
    assert command
    with pytest.raises(SystemExit) as stop:
        cli.main(command[1].replace("--t-end 1", "--t-end 0.02" if comm.size > 1 else "--t-end 0.2").split(), comm)
    sys.modules.pop("water", None)
    with h5py.File("water.h5", "r") as run:
        done = run.attrs["status"], run["model"].attrs["toml"].count("\n# ")
        assert comm.size > 1 or still(run) == []
    parallel_assert(stop.value.code == 0 and done == ("complete", 3), f"{stop.value.code}, {done}", comm)
    comm.Barrier()
