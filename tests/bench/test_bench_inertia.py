"""The inertia matrix in predictions and studies: traces by hand, files, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError
from mpimbs.bench.predict.calibration import Calibration
from mpimbs.bench.predict.cluster import cluster_named
from mpimbs.bench.predict.predict import predict
from mpimbs.bench.speedup import Plan
from mpimbs.bench.study import predictor, report, study
from mpimbs.cli import main
from mpimbs.dynamics.operators.composites import FORMS
from mpimbs.model import System, system_from


class Rows(dict[tuple[int, int], float]):
    """Rows of 1 us each."""

    def __contains__(self, key: object) -> bool:
        return True

    def __getitem__(self, key: tuple[int, int]) -> float:
        return 1e-6 * (key[1] - key[0])


def given(system: System) -> Calibration:
    """Times that are easy to add up: nothing but rows."""
    calibration = Calibration(system, 1e-4)
    times = calibration.inertia
    times.calls = times.moving = times.composing = times.copying = 0.0
    times.rows = Rows()
    return calibration


@pytest.mark.parametrize("kind", ["chain:64", "tree:5:2"])
def test_predicted(kind: str) -> None:
    """Rows are shared; one rank after the other is slower than by doubling, from some ranks on."""
    system, cluster, counts = system_from(kind), cluster_named("infiniband"), (1, 2, 16)
    known = given(system)
    doubling, recursive = (predict(system, counts, cluster, form, known) for form in FORMS)
    assert doubling[0].seconds == pytest.approx(1e-6 * system.nu) and doubling[0].speed_up == 1.0
    for row in doubling[1:]:
        assert row.compute >= 1e-6 * system.nu / row.ranks * 0.999
        assert row.seconds > row.compute
    assert recursive[0].seconds == doubling[0].seconds
    assert recursive[2].seconds > doubling[2].seconds


def test_refused() -> None:
    system, cluster = system_from("chain:4"), cluster_named("infiniband")
    for ranks, words in ((0, "1 rank at least"), (5, "5 ranks for 4 bodies")):
        with pytest.raises(InputError, match=words):
            predict(system, (ranks,), cluster, FORMS[0], given(system))


def test_study(comm: MPI.Comm, tmp_path: Path) -> None:
    system = system_from("chain:8")
    folder = Path(comm.bcast(str(tmp_path)))
    beyond = predictor((4, 9), "infiniband", comm)
    table = study(system, "chain:8", Plan(FORMS, (1, 2), ("strong",), 0.02), folder, comm, predictor=beyond)
    measured = {(row["coupling"], row["ranks"]) for row in table["points"] if not row["predicted"]}
    wanted = {(form, ranks) for form in FORMS for ranks in (1, 2)[: comm.size]}
    parallel_assert(measured == wanted, f"{measured}", comm)
    predicted = [row["coupling"] for row in table["points"] if row["predicted"]]
    parallel_assert(tuple(predicted) == FORMS, f"{predicted}", comm)
    parallel_assert(all(np.isfinite(row["us_min"]) for row in table["points"]), "times", comm)
    parallel_assert("9 ranks for 8 bodies" in table["notes"][-1] and table["fits"] == {}, f"{table['notes']}", comm)
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
