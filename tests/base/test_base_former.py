"""Modules answer to their former names."""

import importlib
import sys

import pytest

import mpimbs


@pytest.mark.parametrize("former", sorted(mpimbs._FORMER))
def test_a_former_name_gives_the_module_and_says_its_name(former: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The very module: a second copy of it would have other classes of the same names."""
    now = mpimbs._FORMER[former]
    monkeypatch.delitem(sys.modules, former, raising=False)
    with pytest.warns(FutureWarning, match=f"{former} is {now} now; the old name answers for one version"):
        found = importlib.import_module(former)
    assert found is importlib.import_module(now) and found.__name__ == now
    monkeypatch.delitem(sys.modules, former)
