"""What is said when kernels are compiled: once, on rank 0, and nothing when they come from the cache."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mpi4py import MPI

import mpimbs.kernels.compiler
from mpimbs.dynamics.compiling import compile_evaluations
from mpimbs.model import system_from
from mpimbs.run import structure_change
from mpimbs.run.progress import LISTENER, compilation_told
from mpimbs.run.run import simulate

WORDS = "compiling the kernels for this processor"


def _twice(x: Any) -> Any:
    return x + x


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes and calls a kernel of a module; the cache is empty at first, and nothing was said yet."""
    monkeypatch.setattr(mpimbs.kernels.machine_code, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(mpimbs.kernels.machine_code, "cache_folders", lambda: (tmp_path,))
    monkeypatch.setattr(LISTENER, "said", False)

    def call(module: str, number: Any = 1.5) -> Any:
        monkeypatch.setattr(_twice, "__module__", module)
        return mpimbs.kernels.compiler.kernel(_twice)(number)

    return call


def test_compiling_is_told_once(compiled: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    with compilation_told(True):
        assert compiled("water") == 3.0
        assert capsys.readouterr().err == "", "a function of the user's"
    for number, wanted, said in ((1, False, ""), (True, True, WORDS), (1j, True, "")):
        with compilation_told(wanted):
            compiled("mpimbs.one", number)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == bool(said) and "".join(lines).startswith(said), f"{number}: {lines}"


@pytest.mark.parametrize("progress", [True, False])
def test_a_simulation_tells(
    comm: MPI.Comm,
    compiled: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    progress: bool,
) -> None:
    """With progress only, and on rank 0 only."""
    monkeypatch.setattr(
        structure_change,
        "compile_evaluations",
        lambda *what, **kinds: (compile_evaluations(*what, **kinds), compiled("mpimbs.run")),
    )
    capsys.readouterr()
    simulate(system_from("chain:4"), 1e-3, comm, progress=progress)
    assert (WORDS in capsys.readouterr().err) == (progress and comm.rank == 0)
