"""Schedules that are found: handles counted by their definition, never slower than others, and the command."""

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from mpi4py import MPI

from driver_modules import driver
from mpi_helpers import parallel_assert
from mpimbs.cli import main
from mpimbs.model import system_from
from mpimbs.model.order.order import Order
from mpimbs.partition.division import divide_tree
from mpimbs.partition.schedule_search import Search
from mpimbs.partition.schedule_times import AssemblyCosts

COSTS = AssemblyCosts()


@pytest.mark.cases(5)
@pytest.mark.parametrize("single", [False, True], ids=["sweeps", "bodies"])
@pytest.mark.parametrize("spec", ["rope:32", "figure48", "random_tree:60", "four_bar_chain:12", "coupled_loops"])
def test_never_slower_than_others(spec: str, single: bool) -> None:
    system = system_from(spec)
    for size in (1, 2, 3, 8, 16):
        if size > system.n_bodies:
            continue
        divided = divide_tree(system.contents, size)
        search = Search(system.contents, divided.order or Order.of(system.contents), size, divided.width, single, COSTS)
        balanced, serial = (search.of(kind, divided.cuts) for kind in ("balanced", "serial"))
        best = search.best(divided.cuts)
        assert best.predicted.seconds <= min(balanced.predicted.seconds, serial.predicted.seconds)
        assert best.bounds[0] == 0 and best.bounds[-1] == system.n_bodies and np.all(np.diff(best.bounds) >= 1)
        path = [done.seconds for done in best.predicted.path]
        assert path == sorted(path) and path[-1] == best.predicted.seconds


def test_the_command(comm: MPI.Comm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It writes a file that the coupling takes, and a picture."""
    folder = comm.bcast(tmp_path) / "found"
    with pytest.raises(SystemExit) as ended:
        main(f"predict figure34 --ranks {comm.size} --find-schedule -o {folder}".split(), comm)
    out, err = capsys.readouterr()
    parallel_assert((ended.value.code or 0) == 0, err, comm)
    if comm.rank == 0:
        assert f"on {comm.size} rank" in out and "critical path, " in out and "balanced" in out and "serial" in out
        assert image.imread(folder / "schedule.png")[..., :3].std() > 0.02, "the picture is blank"
    words = f"bench figure34 --coupling assembly,schedule={folder / 'schedule.toml'} --seconds 0.01 --json"
    with pytest.raises(SystemExit) as ended:
        main(words.split(), comm)
    out, err = capsys.readouterr()
    parallel_assert((ended.value.code or 0) == 0, err, comm)
    assert comm.rank > 0 or json.loads(out)["ranks"] == comm.size


def test_operations_of_joins() -> None:
    """They grow with the square of the handles of the part that goes on; the first is that of a joint of a chain."""
    rows = {(row["left"], row["right"]): row for row in driver("assembly_schedules").operations()}
    assert rows[1, 0]["multiplications"] == 3468 and rows[1, 0]["additions"] == 3162
    of_left = [rows[k, 1]["multiplications"] for k in (1, 2, 3, 4)]
    assert np.all(np.diff(of_left, 2) > 0)
