"""Whole jobs under mpiexec: exit codes, one message, no hang."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mpi_helpers import ROOT, plain_environment, run_job, starts_mpiexec

pytestmark = starts_mpiexec

MPIMBS = [sys.executable, "-m", "mpimbs"]
HERE = {"PYTHONPATH": str(ROOT)}  # this package, wherever the job runs
BAD = """
[[body]]
name = "bob"
mass = 0
inertia = [1, 1, 1, 0, 0, 0]
joint = { type = "revolute" }
"""
STIFF = """
[[repeat]]
count = 4
name = "mass"
mass = 1
inertia = [1, 1, 1, 0, 0, 0]
joint = { type = "prismatic", stiffness = 1e10, q = 0.01 }
"""


JOBS = {  # ranks, command, exit code, what it says once
    "run": (2, "run chain:6 --t-end 0.1 -o {out}", 0, "wrote "),
    "acceleration": (1, "acceleration chain:6 -o {out}", 0, "wrote "),
    "idle ranks": (3, "run chain:6 --t-end 0.1 --coupling pcg,cuts=1 -o {out}", 0, "1 of 3 ranks had nothing to do"),
    "check": (1, "check chain:6", 0, "chain of 6 bodies, 6 degrees of freedom"),
    "help": (2, "--help", 0, "Usage: mpimbs"),
    "nothing": (1, "", 0, "Usage: mpimbs"),
    "bad model": (2, "run {bad} --t-end 0.1 -o {out}", 2, "mpimbs: {bad}:2: [[body]] 1 'bob': mass must be positive"),
    "bad model, alone": (1, "check {bad}", 2, "mpimbs: {bad}:2: [[body]] 1 'bob': mass must be positive"),
    "no model": (2, "run {folder}/none.toml --t-end 0.1 -o {out}", 2, "none.toml: there is no such file"),
    "ranks": (2, "run chain:1 --t-end 0.1 -o {out}", 2, "2 ranks for 1 bod"),
    "command": (2, "walk chain:6", 2, "No such command 'walk'"),
    # not a plea for help: every rank must read it alike
    "dashes": (2, "check -- --help", 2, "mpimbs: model '--help'"),
    "stop": (2, "run {stiff} --t-end 1000 --every 10 --dt 0.1 --integrator euler -o {out}", 1, "no longer finite"),
    "stop, alone": (
        1,
        "run {stiff} --t-end 1000 --every 10 --dt 0.1 --integrator euler -o {out}",
        1,
        "no longer finite",
    ),
}


# The others are told in process as well (`tests/cli`).
FAST = ("run", "idle ranks", "bad model", "dashes", "stop")


@pytest.mark.cases(2)
@pytest.mark.parametrize("case", [pytest.param(n, marks=[] if n in FAST else pytest.mark.long) for n in JOBS])
def test_exit_codes(tmp_path: Path, case: str) -> None:
    ranks, arguments, code, message = JOBS[case]
    places = {
        "folder": tmp_path,
        "out": tmp_path / "out",
        "bad": tmp_path / "bad.toml",
        "stiff": tmp_path / "stiff.toml",
    }
    places["bad"].write_text(BAD)
    places["stiff"].write_text(STIFF)
    job = run_job(ranks, [*MPIMBS, *arguments.format(**places).split()], tmp_path, **HERE)
    assert job.returncode == code, job.stdout
    assert job.stdout.count(message.format(**places)) == 1, job.stdout
    assert "Traceback" not in job.stdout and "MPI_ABORT" not in job.stdout, job.stdout
    assert not list(tmp_path.glob("*.part"))
    assert places["out"].exists() == ("{out}" in arguments and code != 2)


STREAMS = {  # what the shell does, exit code, what is said
    "full": (
        "{mpimbs} check chain:6 > /dev/full",
        1,
        "mpimbs: standard output can't be written (No space left on device)",
    ),
    "full, with bad input": ("{mpimbs} check chain:0 > /dev/full", 2, "mpimbs: model 'chain:0'"),
    "both full": ("{mpimbs} run chain:6 --t-end 0.01 -o out.h5 > /dev/full 2>&1; ls out.h5", 0, "out.h5"),
    "closed pipe": ("set -o pipefail; {mpimbs} --help | true", 0, ""),
    "no streams": ("{mpimbs} check chain:6 >&- 2>&-", 0, ""),
    "no folder": ("cd gone; rmdir ../gone; {mpimbs} check chain:6", 2, "mpimbs: the current folder has been removed"),
}


@pytest.mark.cases(2)
@pytest.mark.parametrize("case", STREAMS)
def test_streams_and_folders_that_are_gone(tmp_path: Path, case: str) -> None:
    script, code, message = STREAMS[case]
    (tmp_path / "gone").mkdir()
    done = subprocess.run(
        ["bash", "-c", script.format(mpimbs=shlex.join(MPIMBS))],
        cwd=tmp_path, env=plain_environment() | HERE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=250,
    )  # fmt: skip
    said = [line for line in done.stdout.splitlines() if "Unable to get the current working" not in line]  # Open MPI
    assert done.returncode == code, done.stdout
    assert len(said) == bool(message) and done.stdout.count(message) >= 1, done.stdout


BUGS = {
    "in a block": """
from mpimbs.parallel.agreement import abort_on_error
with abort_on_error(MPI.COMM_WORLD):
    if MPI.COMM_WORLD.rank == 1:
        raise KeyError("a bug")
    MPI.COMM_WORLD.Barrier()
""",
    "in the command line": """
import mpimbs.cli
import mpimbs.model
read = mpimbs.model.contents_from
def with_bug(spec):
    if MPI.COMM_WORLD.rank == 1:
        raise KeyError("a bug")
    return read(spec)
mpimbs.model.contents_from = with_bug
mpimbs.cli.main(["check", "chain:6"])
""",
    "in an evaluation": """
import mpimbs.cli
from mpimbs.dynamics.state_derivative import StateDerivative
evaluate = StateDerivative.evaluate
def with_bug(self, *arguments):
    if MPI.COMM_WORLD.rank == 1 and self._divided.comm.size > 1:
        raise KeyError("a bug")
    return evaluate(self, *arguments)
StateDerivative.evaluate = with_bug
mpimbs.cli.main(["run", "chain:6", "--t-end", "0.1", "-o", sys.argv[1]])
""",
}


@pytest.mark.cases(2)
@pytest.mark.parametrize("place", BUGS)
def test_a_bug_on_one_rank_ends_the_job(tmp_path: Path, place: str) -> None:
    script = "import sys\nfrom mpi4py import MPI\n" + BUGS[place]
    job = run_job(2, [sys.executable, "-c", script, str(tmp_path / "out.h5")], tmp_path, **HERE)
    assert job.returncode not in (0, 2), job.stdout
    assert "[rank 1 of 2] Traceback" in job.stdout and "KeyError: 'a bug'" in job.stdout
    assert "[rank 0 of 2]" not in job.stdout


LEAVING = """
import sys
from mpi4py import MPI
def leave():
    if MPI.COMM_WORLD.rank == MPI.COMM_WORLD.size - 1:
        raise {error}
def pull(t, q, u):
    {at_evaluation}
    return -u
def add(system):
    {at_registration}
    system.add_joint_force(None, pull)
{at_import}
"""
PLACES = {  # where a function of the user's ends the process: exit code, what is said
    "at_import": (2, "--forces leaving:add: the module can't be imported: "),
    "at_registration": (2, "--forces leaving:add: failed: "),
    "at_evaluation": (1, "the joint force 'leaving:pull' on body 'link4' called sys.exit at t = 0 s"),
}


@pytest.mark.cases(1)
@pytest.mark.parametrize("place", [pytest.param(n, marks=pytest.mark.long) if "import" in n else n for n in PLACES])
def test_a_users_function_that_ends_one_rank_ends_the_job(tmp_path: Path, place: str) -> None:
    (code, words), error = PLACES[place], "SystemExit(0)"
    calls = dict.fromkeys(PLACES, "pass") | {place: "leave()"}
    (tmp_path / "leaving.py").write_text(LEAVING.format(error=error, **calls))
    command = [*MPIMBS, "run", "chain:6", "--t-end", "0.1", "-o", str(tmp_path / "out.h5"), "--forces", "leaving:add"]
    job = run_job(2, command, tmp_path, **HERE)
    assert job.returncode == code, job.stdout
    assert job.stdout.count(f"mpimbs: {words}") == 1, job.stdout
    assert job.stdout.count(error) == (place != "at_evaluation"), job.stdout
    assert "Traceback" not in job.stdout, job.stdout


SCRIPT = """
import sys
from mpi4py import MPI
import mpimbs
for _ in range(2):
    mpimbs.simulate("chain:6", 0.01, MPI.COMM_WORLD)
if "--fail" in sys.argv and MPI.COMM_WORLD.rank == 1:
    raise KeyError("a bug of the user's")
MPI.COMM_WORLD.Barrier()
"""


def test_a_script_is_told_of_what_ends_all_ranks(tmp_path: Path) -> None:
    """Once, where nothing does; started as it says, a rank that raises ends the job."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = "start the script with mpiexec -n 2 python -m mpi4py SCRIPT.py"
    job = run_job(2, [sys.executable, str(script)], tmp_path, **HERE)
    assert job.returncode == 0 and job.stdout.count(words) == 1 and "script.py:6" in job.stdout, job.stdout
    job = run_job(2, [sys.executable, "-m", "mpi4py", str(script), "--fail"], tmp_path, **HERE)
    assert job.returncode != 0 and words not in job.stdout and "a bug of the user's" in job.stdout, job.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    "asked", ["four_bar:3 --t-end 0.01", pytest.param("rope:8 --t-end 0.01 --loads", marks=pytest.mark.long)]
)
def test_two_ranks_are_warned_of_nothing(tmp_path: Path, asked: str) -> None:
    """What compiles works on each rank by itself, and says so."""
    done = run_job(2, [*MPIMBS, "run", *asked.split(), "-o", "out.h5"], tmp_path, **HERE)
    assert done.returncode == 0 and "Warning" not in done.stdout, done.stdout
