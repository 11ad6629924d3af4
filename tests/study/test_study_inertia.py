"""The inertia matrix in predictions and studies: traces by hand, files, and what is refused."""

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mpi_helpers import parallel_assert
from mpimbs.cli import main
from mpimbs.composites import FORMS
from mpimbs.errors import InputError
from mpimbs.model import System, system_from
from mpimbs.study.cluster import cluster_named
from mpimbs.study.predict_inertia import InertiaTimes, predict_inertia
from mpimbs.study.study import report
from mpimbs.study.study_inertia import study_inertia


def given(system: System) -> InertiaTimes:
    """Times that are easy to add up: nothing but rows, 1 us each."""
    with closing(InertiaTimes(system, 1e-4)) as times:
        times.calls = times.moving = times.composing = times.copying = 0.0
        times.of_rows = lambda first, last: 1e-6 * (last - first)  # type: ignore[method-assign]
        return times


@pytest.mark.parametrize("kind", ["chain:64", "tree:5:2"])
def test_predicted(kind: str) -> None:
    """Rows are shared; one rank after the other is slower than by doubling, from some ranks on."""
    system, cluster, counts = system_from(kind), cluster_named("infiniband"), (1, 2, 16)
    times = given(system)
    doubling, recursive = (predict_inertia(system, counts, cluster, form, times=times) for form in FORMS)
    assert doubling[0].seconds == pytest.approx(1e-6 * system.nu) and doubling[0].speed_up == 1.0
    for row in doubling[1:]:
        assert row.compute >= 1e-6 * system.nu / row.ranks * 0.999
        assert row.seconds > row.compute and row.method == "loggp"
    assert recursive[0].seconds == doubling[0].seconds
    assert recursive[2].seconds > doubling[2].seconds


def test_refused() -> None:
    system, cluster = system_from("chain:4"), cluster_named("infiniband")
    times = given(system)
    for wrong, words in (({"form": "other"}, "none of doubling"), ({"method": "guess"}, "unknown method")):
        with pytest.raises(InputError, match=words):
            predict_inertia(system, (2,), cluster, times=times, **wrong)  # type: ignore[arg-type]
    for ranks, words in ((0, "1 rank at least"), (5, "5 ranks for 4 bodies")):
        with pytest.raises(InputError, match=words):
            predict_inertia(system, (ranks,), cluster, times=times)


def test_study(comm: MPI.Comm, tmp_path: Path) -> None:
    system = system_from("chain:8")
    folder = Path(comm.bcast(str(tmp_path)))
    table = study_inertia(system, "chain:8", (1, 2), folder, comm, 0.02, predicted=(4,))
    measured = {(row["coupling"], row["ranks"]) for row in table["points"] if not row["predicted"]}
    wanted = {("doubling", 1)} | ({(form, 2) for form in FORMS} if comm.size > 1 else set())
    parallel_assert(measured == wanted, f"{measured}", comm)
    predicted = [row["coupling"] for row in table["points"] if row["predicted"]]
    parallel_assert(tuple(predicted) == FORMS, f"{predicted}", comm)
    parallel_assert(all(np.isfinite(row["us_min"]) for row in table["points"]), "times", comm)
    if comm.rank == 0:
        assert json.loads((folder / "study.json").read_text())["what"] == "the inertia matrix"
        assert "the fastest measured" in report(table)[-1]


def code(*arguments: str) -> object:
    """Exit code of the command line."""
    with pytest.raises(SystemExit) as left:
        main(list(arguments), MPI.COMM_SELF)
    return left.value.code


@pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="the commands as on one rank")
def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not code("predict", "chain:8", "--inertia", "--ranks", "1,4", "--seconds", "0.001", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["what"] == "the inertia matrix" and len(found["rows"]) == 4
    assert code("predict", "chain:8", "--inertia", "--coupling", "dca") == 2
    assert code("study", "chain:8", "--inertia", "--couplings", "dca", "-o", str(tmp_path)) == 2
