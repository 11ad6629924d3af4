"""The driver that seeds faults: each of its texts is there, and what is caught is told from what is not."""

from pathlib import Path

import pytest

from driver_modules import driver
from mpi_helpers import ROOT, starts_mpiexec


def test_all_mutants_can_be_made() -> None:
    """Their texts occur once, their tests exist, and each has a name of its own."""
    mutants = driver("mutants").read_mutants()
    assert len({mutant.name for mutant in mutants}) == len(mutants) >= 40
    for mutant in mutants:
        files = [Path(test.split("::")[0]) for test in mutant.tests if test.startswith("tests/")]
        assert files and all((ROOT / file).exists() for file in files), mutant.name


@pytest.mark.long
class TestMutants:
    pytestmark = starts_mpiexec

    @pytest.mark.time_limit(300)
    def test_caught_or_not(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        mutants = driver("mutants")
        file, test = "mpimbs/base/disk.py", ["tests/base/test_base_places.py"]
        text = (ROOT / file).read_text(encoding="utf-8")
        first = next(line for line in text.splitlines() if line.startswith("def "))
        mutants.read_mutants = lambda: [
            mutants.Mutant("no module", "caught", file, text, "raise RuntimeError", test),
            mutants.Mutant("a comment", "not caught", file, first, f"# nothing\n{first}", test),
        ]
        table = mutants.main(tmp_path)
        assert [(row["caught"], row["sound"]) for row in table["mutants"]] == [(True, True), (False, True)]
        assert table["caught"] == 1 and "| not caught: a comment | `base/disk.py` | nothing |" in mutants.text_of(table)
