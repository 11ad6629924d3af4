"""The driver that injects faults: quickly, and what it takes for documented."""

import json
import os
import sys
from pathlib import Path
from types import ModuleType

import h5py
import numpy as np
import pytest

from driver_modules import driver
from mpi_helpers import ROOT, plain_environment, starts_mpiexec
from mpimbs.base.errors import InputError
from mpimbs.files.output_layout import ROWS
from mpimbs.model import system_from


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
        """Of the second something else is expected than happens, and it meets other systems. All: `make faults`."""
        of = {fault.name: fault for fault in faults.FAULTS}
        odd = of["SIGUSR1 to one rank"]._replace(name="odd", message="so it goes")
        monkeypatch.setattr(faults, "FAULTS", [of["rank killed"]._replace(while_starting=False), odd])
        there = {subject.name: subject for subject in faults.SUBJECTS}
        monkeypatch.setattr(faults, "SUBJECTS", [there["ensemble"], there["events"]])
        monkeypatch.setattr(faults, "MOST_OF_IT", 0.2)
        table = faults.main(tmp_path / "faults", kills=1, others=1, most_ranks=2)
        assert not faults.good(table) and json.loads((tmp_path / "faults" / "faults.json").read_text()) == table
        for by, names in (("fault", ("rank killed", "odd")), ("topology", ("ensemble", "events"))):
            text, both = (faults.text_of(times * table["rows"], by) for times in (1, 2))
            for good, name in zip((1, 0), names, strict=True):
                assert (
                    f"| {name} | 1 (1 on 2 ranks) | {good} | 0 | 0 | {good} | 0 | {good} of {good} | 0 of 0 |" in text
                )
                assert f"| {name} | 2 (2 on 2 ranks) | {2 * good} | 0 | 0 | {2 * good} | 0 |" in both
            assert "| all | 2 (2 on 2 ranks) | 1 | 0 |" in text
        killed, odd = table["rows"]
        assert (killed["fault"], killed["topology"], killed["complaints"]) == ("rank killed", "ensemble", [])
        assert len(odd["complaints"]) == 1 and "does not say 'so it goes'" in odd["complaints"][0]
        assert not faults.good(table | {"rows": [killed]}) and faults.good(table | {"rows": [killed], "asked": 1})

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
            fault.name: faults.Chain(fault, faults.SUBJECTS[0], 0, faults.Options(tmp_path, 1.0, 2, 1, np.inf))
            for fault in faults.FAULTS
            if fault.name in ("rank killed", "SIGTERM to one rank")
        }
        assert not chains["rank killed"]._undocumented(job, None, begun=False)
        assert "its mpiexec stays" in chains["rank killed"]._undocumented(job, None, begun=True)
        assert "its mpiexec stays" in chains["SIGTERM to one rank"]._undocumented(job, None, begun=False)

    def test_faults_are_spread(self, faults: ModuleType) -> None:
        """Over all that can have them, so many in sum; each meets them on all numbers of ranks, the same and others."""
        names = {fault.name for fault in faults.FAULTS}
        for subject in faults.SUBJECTS:
            assert names > set(subject.without)
        for total in (1, 3, 7, 100, 1000):
            for first, fault in enumerate(faults.FAULTS):
                tasks = faults.tasks_of(fault, first, total, faults.SUBJECTS)
                able = {subject.name for subject in faults.SUBJECTS if fault.name not in subject.without}
                met = [task.subject.name for task in tasks]
                assert sum(task.faults for task in tasks) == total and set(met) <= able
                assert max(map(met.count, able)) <= min(map(met.count, able)) + 1
                if total == 1000:
                    ways = {(task.subject.name, task.index % 3, task.index % 2, task.index % 5) for task in tasks}
                    assert len(ways) >= 25 * len(able)
        assert faults.tasks_of(faults.FAULTS[-1], 0, 5, []) == []

    def test_subjects(self, faults: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """They have the bodies that a force is to fail on, and one for every rank."""
        monkeypatch.chdir(tmp_path)
        for subject in faults.SUBJECTS:
            for name, text in subject.files.items():
                (tmp_path / name).write_text(text)
            system = system_from(subject.arguments[1])
            assert subject.bodies == system.n_bodies >= 4
            assert bool(system.contents.events) == (subject.name == "events")
            assert bool(system.contents.loops) == (subject.name in ("loops", "ensemble in turn"))  # of events: later

    def test_much_is_written(self, faults: ModuleType) -> None:
        """Room is claimed once more after a fault, or none that is full would be noticed."""
        assert faults.MOST_OF_IT * faults.SAMPLES < ROWS < faults.SAMPLES

    def test_what_an_output_holds(self, faults: ModuleType, tmp_path: Path) -> None:
        """Samples of all segments; whether some are missing is seen in each."""
        output = tmp_path / faults.OUTPUT
        output.parent.mkdir()
        with h5py.File(output, "w") as file:
            file.attrs["status"] = "complete"
            for group, begin in ((file, 0.0), (file.create_group("segments/1"), 3.0)):
                group["time"] = begin + np.arange(3.0)
                for name in ("q", "u", "energy"):
                    group[name] = np.ones((3, 2))
        whole = faults.read(tmp_path)
        assert faults.complete(tmp_path) and sys.modules["fault_outputs"].count_of(whole) == 6
        assert whole.keys() == {f"{group}{name}" for group in ("", "segments/1/") for name in ("time", "q", "u")} | {
            "status"
        }
        assert faults.difference(whole, whole) == 0.0
        assert faults.difference(whole | {"segments/1/u": 1.5 * whole["u"]}, whole) == 0.5
        assert faults.difference(whole | {"segments/1/time": whole["time"]}, whole) == np.inf
        assert faults.difference({name: values for name, values in whole.items() if "1" not in name}, whole) == np.inf

    def test_what_counts_as_equal(self, faults: ModuleType) -> None:
        whole = {"time": np.arange(3.0), "q": np.ones((3, 2)), "u": np.ones((3, 2))}
        assert faults.difference(whole, whole) == 0.0
        assert faults.difference(whole | {"q": whole["q"] * 1.5}, whole) == 0.5
        for rows in ([0, 1], [0, 2], [0, 1, 1, 2]):
            assert faults.difference({name: values[rows] for name, values in whole.items()}, whole) == np.inf
        with pytest.raises(InputError, match="unknown fault 'rain'"):
            faults.main(Path("nowhere"), names=["rain"])
        with pytest.raises(InputError, match="unknown topology 'cloud'"):
            faults.main(Path("nowhere"), topologies=["cloud"])
        with pytest.raises(InputError, match="nothing is injected"):
            faults.main(Path("nowhere"), names=["exception in a force"], topologies=["ensemble"])
