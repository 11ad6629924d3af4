"""The driver that seeds faults tells what is caught from what is not."""

from pathlib import Path

import pytest

from driver_modules import driver
from mpi_helpers import ROOT, starts_mpiexec


class TestMutants:
    pytestmark = starts_mpiexec

    @pytest.mark.time_limit(300)
    def test_caught_or_not(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        mutants = driver("mutants")
        test = ["tests/base/test_base_places.py"]
        text = (ROOT / "mpimbs/base/disk.py").read_text(encoding="utf-8")
        first = next(line for line in text.splitlines() if line.startswith("def "))
        name = first.removeprefix("def ").partition("(")[0]
        mutants.read_mutants = lambda: [
            mutants.Mutant("no module", "caught", name, first, f"raise RuntimeError\n\n\n{first}", test),
            mutants.Mutant("a comment", "not caught", name, first, f"# nothing\n{first}", test),
        ]
        table = mutants.main(tmp_path)
        assert [(row["caught"], row["sound"]) for row in table["mutants"]] == [(True, True), (False, True)]
        assert table["caught"] == 1 and "| not caught: a comment | `base/disk.py` | nothing |" in mutants.text_of(table)
