"""The examples of the README and of the pages in docs, as they stand there; the files that these name; their links."""

import importlib
import re
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from documents import DOCUMENTS, PAGES, README, below, block, blocks
from mpi_helpers import ROOT, parallel_assert
from mpimbs import cli
from mpimbs.bench.predict.cluster import read_cluster
from mpimbs.model import read_system
from mpimbs.run.run import simulate


def still(run: h5py.File) -> list[str]:
    """Bodies of a run whose joints could have moved, and end where they began."""
    q, offset = run["q"], run["model/q_offset"][:]
    moved = np.abs(q[-1] - q[0]) > 1e-7  # rad, m: above what the tolerances of a run add
    could = np.flatnonzero(np.diff(offset))
    names = run["model/body"].asstr()[:]
    return [str(names[k]) for k in could if not moved[offset[k] : offset[k + 1]].any()]


MODEL_FILES = [(README, (10, 10, "a pendulum of ten links")), (PAGES / "models.md", (165, 434, "a tethered platform"))]


@pytest.mark.parametrize(("page", "facts"), MODEL_FILES)
def test_the_model_file_is_valid(page: Path, facts: tuple[int, int, str], tmp_path: Path) -> None:
    (tmp_path / "model.toml").write_text(block(page, "Model file"), encoding="utf-8")
    system = read_system(tmp_path / "model.toml")
    assert (system.n_bodies, system.nu, system.name) == facts
    simulate(system, 0.1, output=tmp_path / "model.h5")
    with h5py.File(tmp_path / "model.h5") as run:
        assert still(run) == []


def test_the_cluster_file_is_valid(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(block(PAGES / "studies.md", "Prediction"), encoding="utf-8")
    cluster = read_cluster(tmp_path / "mine.toml")
    assert (cluster.name, cluster.ranks_per_node, cluster.between_nodes.bandwidth) == ("mine", 64, 25e9)


def run_example(page: Path, comm: MPI.Comm, tmp_path_factory, monkeypatch) -> dict[str, object]:
    """Run the Python example of a page in a folder of its own, and give its names."""
    folder = comm.bcast(str(tmp_path_factory.mktemp("readme")) if comm.rank == 0 else None)
    monkeypatch.chdir(folder)
    code = block(page, "Python")
    if comm.size > 1:
        code = code.replace("t_end=2.0", "t_end=0.02")  # seconds, where ranks share cores
    scope: dict[str, object] = {}
    exec(code, scope)
    return scope


def test_the_short_python_example_runs(comm: MPI.Comm, tmp_path_factory, monkeypatch) -> None:
    result = run_example(README, comm, tmp_path_factory, monkeypatch)["result"]
    parallel_assert(result.status == "complete", f"status {result.status}", comm)
    if comm.size == 1:
        with h5py.File("rope.h5", "r") as run:
            assert (len(run["time"]), still(run)) == (201, [])


def test_the_python_example_runs(comm: MPI.Comm, tmp_path_factory, monkeypatch) -> None:
    scope = run_example(PAGES / "python.md", comm, tmp_path_factory, monkeypatch)
    result, count = scope["result"], len(scope["udot"])
    parallel_assert(result.status == "complete", f"status {result.status}", comm)
    with h5py.File("crane.h5", "r") as run:
        steps = len(run["time"])
        at_rest = still(run) if comm.size == 1 else []
    parallel_assert(count == 154 and steps == 201, f"{count} accelerations, {steps} samples", comm)
    assert at_rest == []


def test_the_forces_run(comm: MPI.Comm, tmp_path_factory, monkeypatch) -> None:
    """The module of forces and the command below it; compiled on one rank, which takes seconds on several."""
    folder = Path(comm.bcast(str(tmp_path_factory.mktemp("forces")) if comm.rank == 0 else None))
    page = PAGES / "howto/forces.md"
    code = block(page, "Forces of your own")
    if comm.rank == 0:
        (folder / "water.py").write_text(code if comm.size == 1 else code.replace("@numba.njit(cache=True)\n", ""))
    comm.Barrier()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    command = re.search(r"mpimbs (run rope:50 .*)", below(page, "Forces of your own"))
    assert command
    with pytest.raises(SystemExit) as stop:
        cli.main(command[1].replace("--t-end 1", "--t-end 0.02" if comm.size > 1 else "--t-end 0.2").split(), comm)
    sys.modules.pop("water", None)
    with h5py.File("water.h5", "r") as run:
        done = run.attrs["status"], run["model"].attrs["toml"].count("\n# ")
        assert comm.size > 1 or still(run) == []
    parallel_assert(stop.value.code == 0 and done == ("complete", 3), f"{stop.value.code}, {done}", comm)
    comm.Barrier()


def test_the_files_named_are_there() -> None:
    """Files and folders of the package, and what the README links to: mkdocs looks after the links of its pages."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in DOCUMENTS)
    named = set(re.findall(r"`((?:mpimbs|drivers|jobs|tests|docs)/[\w/]*(?:\.\w+)?)[^`]*`", text))
    linked = set(re.findall(r"\]\(([^)#:]+)[^):]*\)", README.read_text(encoding="utf-8")))
    assert len(named) > 20 and len(linked) > 15
    assert [name for name in sorted(named | linked) if not (ROOT / name).exists()] == []
    sources = set(re.findall(r"`(\w+/[\w/]+\.py)[`:]", (PAGES / "where.md").read_text(encoding="utf-8")))
    assert len(sources) > 50 and [name for name in sorted(sources) if not (ROOT / "mpimbs" / name).exists()] == []


def test_the_first_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the README's list, whose links lead somewhere, and small pictures; its commands draw them."""
    text = (PAGES / "index.md").read_text(encoding="utf-8")
    monkeypatch.syspath_prepend(PAGES.parent)
    page = importlib.import_module("written_elsewhere").on_page_markdown(text)
    assert page.count("\n- ") > 10 and "docs/pages" not in page
    links = re.findall(r"\]\(([^)#:]+)[^)]*\)", page)
    assert len(links) > 50 and [link for link in links if not (PAGES / link).exists()] == []
    pictures = [PAGES / link for link in links if link.endswith(".png")]
    assert len(pictures) == 5 and all(picture.stat().st_size < 80_000 for picture in pictures)
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"`mpimbs ([^`]+)`", text)
    assert [command.split()[0] for command in commands] == ["run", "run", "check", "predict"]
    for command in commands:
        short = re.sub(r"--t-end \S+", "--t-end 0.01", re.sub(r"--ranks 1,\S+", "--ranks 1,2", command))
        before = len(list(tmp_path.rglob("*.png")))
        with pytest.raises(SystemExit) as stop:
            cli.main(short.split(), MPI.COMM_SELF)
        assert stop.value.code == 0 and len(list(tmp_path.rglob("*.png"))) > before, command


def test_the_events_run(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The files of the page and its commands: the crane takes the box, and drops it; a rope is cut and spliced."""
    text = (PAGES / "howto/events.md").read_text(encoding="utf-8")
    found = {match[1]: text for text in blocks(text) if (match := re.match(r"# (\S+\.\w+)\n", text))}
    for name, content in found.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    commands = re.findall(r"mpimbs ((?:check|run) crane.*)", text)
    assert len(commands) == 2
    for command in commands:
        with pytest.raises(SystemExit) as stop:
            cli.main(command.split(), MPI.COMM_SELF)
        assert stop.value.code == 0, command
    sys.modules.pop("hand", None)
    capsys.readouterr()
    exec(found["read.py"], {})
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 5 and "['box'] ['grip']" in told[0] and "(201,) (201, 3, 7)" in told[2]
    assert told[3].count("(") == 3
    exec(found["rejoin.py"], {})
    assert capsys.readouterr().out.count("(['splice'], [])") == 1
