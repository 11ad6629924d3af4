"""The command lines of the drivers: what their `main` takes."""

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mpi4py import MPI

from driver_modules import driver
from laboratory.command import call
from mpi_helpers import ROOT
from mpimbs.base.errors import InputError

pytestmark = pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="one process reads its command line")
CALLING = sorted(
    path.stem for path in (ROOT / "drivers").glob("*.py") if "call(main)" in path.read_text(encoding="utf-8")
)


def main(
    models: Sequence[str] = ("chain",),
    folder: Path = Path("results"),
    counts: Sequence[int] = (1, 2),
    most: float | None = None,
    force: bool = False,
) -> tuple[Any, ...]:
    """Give what it was given.

    Parameters
    ----------
    counts : sequence of int
        How many bodies.
    """
    if most == 0.0:
        raise InputError("most must be positive")
    return models, folder, counts, most, force


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", (("chain",), Path("results"), (1, 2), None, False)),
        ("rope tree --counts 3,4 --force", (("rope", "tree"), Path("results"), (3, 4), None, True)),
        ("--folder here --most 0.5", (("chain",), Path("here"), (1, 2), 0.5, False)),
    ],
)
def test_a_main_is_called_by_its_options(words: str, found: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["driver", *words.split()])
    assert call(main) == found


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("--counts 3,x", 2, "'3,x' is no list of ints with commas between them"),
        ("--most 0", 2, "Error: most must be positive"),
        ("--least 0", 2, "No such option"),
        ("--help", 0, "How many bodies.  [default: (1,2)]"),
    ],
)
def test_what_a_main_can_not_take(
    words: str, code: int, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["driver", *words.split()])
    with pytest.raises(SystemExit) as ended:
        call(main)
    assert ended.value.code == code and told in "".join(capsys.readouterr())


@pytest.mark.parametrize("name", CALLING)
def test_help_has_all_that_a_driver_takes(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = driver(name).main
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        call(made)
    told = capsys.readouterr().out
    taken = set(inspect.signature(made).parameters) - {"comm"}
    assert ended.value.code == 0 and taken
    assert not [each for each in taken if f"--{each.replace('_', '-')} " not in told and each.upper() not in told]
