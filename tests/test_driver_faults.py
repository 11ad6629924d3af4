"""The driver that injects faults: quickly, and what it takes for documented."""

import json
import os
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from driver_modules import driver
from mpi_helpers import ROOT, plain_environment, starts_mpiexec
from mpimbs.errors import InputError


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The driver, with the module beside it, in an environment that jobs can be started in."""
    monkeypatch.syspath_prepend(ROOT / "drivers")
    for name in set(os.environ) - set(plain_environment()):
        monkeypatch.delenv(name)
    for name, value in plain_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return driver("faults")


@pytest.mark.long
class TestFaults:
    pytestmark = starts_mpiexec

    @pytest.mark.time_limit(300)
    def test_some_faults(self, faults: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of the second something else is expected than happens. All of them: `make faults`."""
        of = {fault.name: fault for fault in faults.FAULTS}
        odd = of["SIGUSR1 to one rank"]._replace(name="odd", message="so it goes")
        monkeypatch.setattr(faults, "FAULTS", [of["rank killed"]._replace(while_starting=False), odd])
        monkeypatch.setattr(faults, "T_END", 1.0)
        monkeypatch.setattr(faults, "SOON", 0.05)
        table = faults.main(tmp_path, kills=1, others=1, most_ranks=2)
        assert not table["good"] and json.loads((tmp_path / "faults.json").read_text()) == table
        text, rows = faults.text_of(table), table["faults"]
        for name, row in rows.items():
            good = int(name != "odd")
            assert f"| {name} | 1 (1 on 2 ranks) | {good} | 0 | 0 |" in text
            assert (row["injected"], row["as documented"], row["hung"]) == (1, good, 0)
            assert row["restarts"] == (name == "rank killed") and row["anew"] == 0
        assert rows["rank killed"]["complaints"] == [] and rows["rank killed"]["same ranks, equal"] == 1
        assert len(rows["odd"]["complaints"]) == 1 and "does not say 'so it goes'" in rows["odd"]["complaints"][0]

    def test_a_launcher_that_stays(self, faults: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is told from a job that hangs, and only a rank that is killed while the job starts may bring it about."""
        injection = sys.modules["fault_injection"]
        launcher = tmp_path / "mpiexec"
        launcher.write_text("#!/bin/sh\nOMPI_COMM_WORLD_RANK=0 sleep $LASTS\nwhile sleep 0.1; do :; done\n")
        launcher.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr(injection, "LIMIT", 2.0)
        for lasts in ("1", "60"):
            monkeypatch.setenv("LASTS", lasts)
            job = injection.Job(1, [], tmp_path)
            try:
                assert len(job.ranks()) == 1
                if lasts == "1":
                    assert job.end() is None
                else:
                    with pytest.raises(injection.HangError):
                        job.end()
            finally:
                job.kill()
        chains = {
            fault.name: faults.Chain(fault, 0, faults.Options(tmp_path, 1.0, 2, 1))
            for fault in faults.FAULTS
            if fault.name in ("rank killed", "SIGTERM to one rank")
        }
        assert not chains["rank killed"]._undocumented(job, None, begun=False)
        assert "its mpiexec stays" in chains["rank killed"]._undocumented(job, None, begun=True)
        assert "its mpiexec stays" in chains["SIGTERM to one rank"]._undocumented(job, None, begun=False)

    def test_what_counts_as_equal(self, faults: ModuleType) -> None:
        whole = {"time": np.arange(3.0), "q": np.ones((3, 2)), "u": np.ones((3, 2))}
        assert faults.difference(whole, whole) == 0.0
        assert faults.difference(whole | {"q": whole["q"] * 1.5}, whole) == 0.5
        for rows in ([0, 1], [0, 2], [0, 1, 1, 2]):
            assert faults.difference({name: values[rows] for name, values in whole.items()}, whole) == np.inf
        with pytest.raises(InputError, match="unknown fault 'rain'"):
            faults.main(Path("nowhere"), names=["rain"])
