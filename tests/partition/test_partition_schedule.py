"""Schedules that are found: handles counted by their definition, never slower than others, and the command."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import image
from mpi4py import MPI

from driver_modules import driver
from mpi_helpers import parallel_assert
from mpimbs.cli import main
from mpimbs.model import system_from
from mpimbs.model.order.order import Order
from mpimbs.model.order.segments import Integers
from mpimbs.partition.assembly_costs import AssemblyCosts, count_handles
from mpimbs.partition.division import divide_tree
from mpimbs.partition.intervals import interval
from mpimbs.partition.schedule_search import Search
from oracles.random_systems import SETTINGS
from oracles.trees import parents

COSTS = AssemblyCosts()


@SETTINGS
@given(st.data(), parents())
def test_handles_of_all_groups(data: st.DataObject, parent: Integers) -> None:
    """Open bodies, and bodies outside on which a group hangs, are those of the interval."""
    order = Order(len(parent), parent)
    inner = data.draw(st.sets(st.integers(1, max(1, order.n - 1)), max_size=6)) - {order.n}
    bounds = np.array([0, *sorted(inner), order.n])
    handles = count_handles(order, bounds)
    for i, j in itertools.combinations(range(len(bounds)), 2):
        found = interval(order, int(bounds[i]), int(bounds[j]))
        assert handles.open[i, j] == len(found.open)
        assert handles.hung[i, j] == np.count_nonzero(found.hung_on >= 0)
        assert handles.grounded[i, j] == np.count_nonzero(found.hung_on < 0)


@pytest.mark.cases(5)
@pytest.mark.parametrize("single", [False, True], ids=["sweeps", "bodies"])
@pytest.mark.parametrize("spec", ["rope:32", "figure48", "random_tree:60", "four_bar_chain:12", "coupled_loops"])
def test_never_slower_than_others(spec: str, single: bool) -> None:
    system = system_from(spec)
    for size in (1, 2, 3, 8, 16):
        if size > system.n_bodies:
            continue
        divided = divide_tree(system, size)
        search = Search(system, divided.order or Order.of(system), size, divided.width, single, COSTS)
        balanced, serial = (search.of(kind, divided.cuts) for kind in ("balanced", "serial"))
        best = search.best(divided.cuts)
        assert best.predicted.seconds <= min(balanced.predicted.seconds, serial.predicted.seconds)
        assert best.bounds[0] == 0 and best.bounds[-1] == system.n_bodies and np.all(np.diff(best.bounds) >= 1)
        path = [done.seconds for done in best.predicted.path]
        assert path == sorted(path) and path[-1] == best.predicted.seconds


def test_more_branches_gain_more() -> None:
    """On chains halves are the best there are; on trees and with loops a search pays."""
    for spec, least in (("random_tree:1000", 1.05), ("four_bar_chain:50", 1.5)):
        system = system_from(spec)
        divided = divide_tree(system, 16)
        search = Search(system, divided.order or Order.of(system), 16, divided.width, False, COSTS)
        others = min(search.of(kind, divided.cuts).predicted.seconds for kind in ("balanced", "serial"))
        assert others >= least * search.best(divided.cuts).predicted.seconds, spec


def test_the_command(comm: MPI.Comm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It writes a file that the coupling takes, and a picture."""
    folder = comm.bcast(tmp_path) / "found"
    with pytest.raises(SystemExit) as ended:
        main(f"schedule figure34 --ranks {comm.size} -o {folder}".split(), comm)
    out, err = capsys.readouterr()
    parallel_assert((ended.value.code or 0) == 0, err, comm)
    if comm.rank == 0:
        assert f"on {comm.size} rank" in out and "critical path, " in out and "balanced" in out and "serial" in out
        assert image.imread(folder / "schedule.png")[..., :3].std() > 0.02, "the picture is blank"
    words = f"bench figure34 --coupling assembly --schedule {folder / 'schedule.toml'} --seconds 0.01 --json"
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
