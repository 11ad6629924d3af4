"""Modules answer to their former names."""

import importlib
import subprocess
import sys

import pytest

import mpimbs
from mpi_helpers import ROOT, plain_environment


@pytest.mark.parametrize("former", sorted(mpimbs._FORMER))
def test_a_former_name_gives_the_module_and_says_its_name(former: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The very module: a second copy of it would have other classes of the same names."""
    now = mpimbs._FORMER[former]
    monkeypatch.delitem(sys.modules, former, raising=False)
    with pytest.warns(FutureWarning, match=f"{former} is {now} now; the old name answers for one version"):
        found = importlib.import_module(former)
    assert found is importlib.import_module(now) and found.__name__ == now
    monkeypatch.delitem(sys.modules, former)


@pytest.mark.subprocess
def test_one_line_is_said_where_it_is_imported() -> None:
    text = "from mpimbs.equilibrium import settle\nfrom mpimbs.equilibrium import settle\nimport mpimbs.nothing"
    environment = plain_environment() | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True)
    assert done.stderr.count("mpimbs.equilibrium is mpimbs.dynamics.statics.equilibrium now") == 1, done.stderr
    assert "No module named 'mpimbs.nothing'" in done.stderr
