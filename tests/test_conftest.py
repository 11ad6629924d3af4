"""The tests' own machinery: a failure, a hang or a broken module on one rank ends the job; a table of stages."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpi_helpers import ROOT, run_job, starts_mpiexec

pytestmark = starts_mpiexec

HEAD = "from mpi4py import MPI\nfrom mpi_helpers import parallel_assert\ncomm = MPI.COMM_WORLD\n"
FAILING = HEAD + "def test(comm):\n    assert comm.rank != 1, 'the reason'\n    comm.Barrier()\n"
BROKEN_FIXTURE = (
    HEAD
    + "import pytest\n@pytest.fixture\ndef broken():\n    1 / (comm.rank - 1)\n"
    + "def test(broken, comm):\n    comm.Barrier()\n"
)
HANGING = (
    HEAD
    + "def test_waits(comm):\n    if comm.rank == 1:\n        comm.Recv(bytearray(1), source=2)\n    comm.Barrier()\n"
)
BROKEN_MODULE = HEAD + "1 / (comm.rank - 1)\ndef test(comm):\n    comm.Barrier()\n"
EARLY = HEAD + "from mpimbs.model import System\nsystem = System()\ndef test(comm):\n    comm.Barrier()\n"
TOGETHER = HEAD + "def test(comm):\n    parallel_assert(comm.rank == 0, f'no rank 0 but {comm.rank}')\n"
SERIAL = HEAD + "def test_serial():\n    assert comm.size == 1\n"
PASSING = SERIAL + "def test(comm):\n    parallel_assert(True, 'never shown')\n"


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("source", "texts"),
    [
        (FAILING, ["[rank 1 of 3]", "the reason", "assert comm.rank != 1"]),
        pytest.param(BROKEN_FIXTURE, ["[rank 1 of 3]", "ZeroDivisionError", "(setup)"], marks=pytest.mark.long),
        (BROKEN_MODULE, ["[rank 1 of 3]", "ZeroDivisionError", "collection"]),
        pytest.param(EARLY, ["a system is made while a test module is imported"], marks=pytest.mark.long),
        (HANGING, ["Timeout (0:00:02)!", "in test_waits"]),
        pytest.param(
            TOGETHER, ["rank 1 of 3: no rank 0 but 1", "rank 2 of 3: no rank 0 but 2"], marks=pytest.mark.long
        ),
        (PASSING, ["1 passed, 1 deselected"]),
        pytest.param(SERIAL, ["1 deselected"], marks=pytest.mark.long),
    ],
    ids=["test", "fixture", "module", "early", "hang", "together", "passing", "serial"],
)
def test_one_rank_ends_all(tmp_path: Path, source: str, texts: list[str]) -> None:
    for name in ("conftest.py", "mpi_helpers.py"):
        shutil.copy(Path(__file__).with_name(name), tmp_path)
    (tmp_path / "test_first.py").write_text("import mpimbs.model\n" if source == EARLY else "")
    (tmp_path / "test_small.py").write_text(source)
    options = ["--with-mpi", "-q", "--color=no", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "test_first.py", "test_small.py"]
    job = run_job(3, command, cwd=tmp_path, TEST_TIME_LIMIT="2" if source == HANGING else "100")
    assert (job.returncode == 0) == (source in (PASSING, SERIAL)), f"exit code {job.returncode}\n{job.stdout}"
    for text in texts:
        assert text in job.stdout, f"no {text!r} in:\n{job.stdout}"
    assert job.stdout.count("1 passed") <= 1, f"several ranks report:\n{job.stdout}"


def test_stages_go_on_after_one_that_fails_and_end_with_a_table() -> None:
    stages = ["echo all is well", "echo 'FAILED tests/test_x.py::test_y - why'; exit 3", "true"]
    done = subprocess.run(["bash", str(ROOT / ".ci/stages"), *stages], capture_output=True, text=True)
    assert done.returncode == 1 and "\nall is well\n" in done.stdout
    *rows, last = done.stdout.rpartition("== stages\n")[2].splitlines()
    assert [row.split(" s  ")[-1] for row in rows[:2]] == ["passed", "FAILED, exit code 3"]
    assert (
        rows[2] == "    FAILED tests/test_x.py::test_y - why" and last.startswith("true ") and last.endswith("passed")
    )
    assert subprocess.run(["bash", str(ROOT / ".ci/stages"), "true"], capture_output=True).returncode == 0
