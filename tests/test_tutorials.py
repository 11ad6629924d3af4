"""The tutorials, command by command as they stand there."""

import os
import re
import sys
from pathlib import Path

import pytest

from documents import PAGES, blocks
from mpi_helpers import ROOT, run_job, starts_mpiexec

pytestmark = [pytest.mark.long, *starts_mpiexec]

TUTORIALS = sorted((PAGES / "tutorials").glob("*.md"))
COMMAND = re.compile(r"(?:mpiexec -n \d+ )?(?:mpimbs|python) ")


def shortened(command: str) -> str:
    return re.sub(r"--t-end \S+", "--t-end 0.2", command).replace("mpimbs study", "mpimbs study --seconds 0.2")


def run_page(page: Path, folder: Path) -> list[str]:
    """Write the files of a page, blocks that begin with their name as a comment; run its commands; give what they say.

    In XML that comment is one of its own. Commands are the lines of a block to its first empty line; what they say may
    follow.
    """
    environment = {"PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    said = []
    for text in blocks(page.read_text(encoding="utf-8")):
        if name := re.match(r"(?:#|<!--) (\S+\.\w+)(?: -->)?\n", text):
            (folder / name[1]).write_text(text, encoding="utf-8")
        if not COMMAND.match(text):
            continue
        for command in text.split("\n\n")[0].splitlines():
            ranks, line = re.fullmatch(r"(?:mpiexec -n (\d+) )?(.*)", shortened(command)).groups("1")
            job = run_job(int(ranks), ["bash", "-c", line], folder, 240.0, **environment)
            assert job.returncode == 0, f"{page.name}: {command}\n{job.stdout}"
            said.append(job.stdout)
    return said


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_the_tutorials_run(page: Path, tmp_path: Path) -> None:
    """Every command of a tutorial, its simulations shortened; what it says of statics stands in its page."""
    said = "".join(run_page(page, tmp_path))
    assert said
    if page.stem == "arm":
        torques = re.search(r"\[ .*\]", said)
        assert torques and torques[0] in page.read_text(encoding="utf-8")


def test_the_commands_of_joint_loads_say_what_their_page_says(tmp_path: Path) -> None:
    page = PAGES / "howto/joint-loads.md"
    said = run_page(page, tmp_path)
    assert said[-1].strip() == blocks(page.read_text(encoding="utf-8"))[-1].split("\n\n")[1].strip()
