"""What needs more than a process: a disk that is full, a terminal that closes, a notebook's shell."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpi_helpers import plain_environment, starts_mpiexec
from mpimbs import load
from mpimbs.base.lock import lock_of

pytestmark = [*starts_mpiexec, pytest.mark.long]
LIMIT = 180.0  # s


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk, and not in every container")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_the_disk_of_the_cache_is_full(small_disk: Path, tmp_path: Path) -> None:
    """One line, and the code goes where the next job finds it."""
    environment = plain_environment() | {"MPIMBS_CACHE_DIR": str(small_disk), "XDG_CACHE_HOME": str(tmp_path / "home")}
    for k in range(2):
        command = [sys.executable, "-m", "mpimbs", "acceleration", "chain:3", "-o", str(tmp_path / f"{k}.npz")]
        job = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT)
        assert job.returncode == 0 and "Traceback" not in job.stderr, job.stderr
        assert job.stderr.count(f"mpimbs: {small_disk} can't be written (No space left on device)") == 1, job.stderr
        assert f"is kept in {tmp_path}/home/mpimbs/kernels" in job.stderr
    assert "compiling" not in job.stderr


def on_terminal(script: str, folder: Path) -> tuple[int, int]:
    """Start Python with a script on a terminal of its own: its process, and the end of the terminal that a user has."""
    process, terminal = pty.fork()
    if not process:
        os.chdir(folder)
        os.execvpe(sys.executable, [sys.executable, "-c", script], plain_environment())
    return process, terminal


def awaited(path: Path) -> None:
    end = time.monotonic() + LIMIT
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.05)


RUN = """
from mpimbs.cli import main
main(["run", "chain:3", "--t-end", "1e6", "--every", "1e5", "-o", "out.h5", "--checkpoint-every", "1"])
"""
SIMULATE = """
import mpimbs
mpimbs.simulate("chain:3", 1e6, every=1e5, output="out.h5")
"""


def test_a_terminal_that_closes_ends_a_run_with_a_checkpoint(tmp_path: Path) -> None:
    process, terminal = on_terminal(RUN, tmp_path)
    awaited(tmp_path / "out.checkpoint.h5")
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 75
    assert load(tmp_path / "out.h5.part").status.startswith("stopped: SIGHUP at t = ")


def test_ctrl_c_on_the_keyboard_ends_a_script_with_its_output(tmp_path: Path) -> None:
    process, terminal = on_terminal(SIMULATE, tmp_path)
    awaited(tmp_path / "out.h5.part")
    time.sleep(0.5)
    os.write(terminal, b"\x03")
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGINT
    os.close(terminal)
    assert load(tmp_path / "out.h5").status.startswith("interrupted at t = ")
    assert not lock_of(tmp_path / "out.h5").exists()


NOTEBOOK = """
import os, signal, sys, threading, time
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
assert shell.run_cell("import mpimbs").success


def interrupt(late):
    while not Path("j.h5.part").exists():
        pass
    time.sleep(late)
    os.kill(os.getpid(), signal.SIGINT)


cell = "result = mpimbs.simulate('chain:3', {0}, every={0}, output='j.h5', force=True)"
for late, told in ((1.0, "has its samples"), (0.0, "")):
    threading.Thread(target=interrupt, args=(late,)).start()
    found = shell.run_cell(cell.format(1e6))
    assert isinstance(found.error_in_exec, KeyboardInterrupt), found
    assert told in str(found.error_in_exec)
    Path("j.h5.part").unlink(missing_ok=True)
assert shell.run_cell(cell.format(0.1)).success
assert shell.run_cell("result.energy[-1], result.status").success
job = shell.getoutput(f"mpiexec -n 2 {sys.executable} -m mpimbs run chain:4 --t-end 0.1 -o k.h5")
assert any(line == "wrote k.h5" for line in job), job
"""


def test_the_cells_of_a_notebook(tmp_path: Path) -> None:
    """A cell that was interrupted is run again; jobs are started beside it, after a simulation too."""
    environment = plain_environment() | {"IPYTHONDIR": str(tmp_path / "profile")}
    command = [sys.executable, "-c", NOTEBOOK]
    job = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert job.returncode == 0, job.stdout + job.stderr
