"""What a start loads: help and `import mpimbs` nothing heavy, and no MPI."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

import mpimbs
from mpi_helpers import ROOT, plain_environment, starts_mpiexec
from mpimbs.cli.commands import GENERATED, cli
from mpimbs.model import GENERATORS

pytestmark = starts_mpiexec

HEAVY = ("h5py", "llvmlite", "matplotlib", "mpi4py.MPI", "numba", "numpy", "petsc4py", "pydantic", "scipy", "tqdm")
COMMANDS = cli.list_commands(click.Context(cli))
ENDED = "import mpimbs.cli\ntry:\n    mpimbs.cli.main({})\nexcept SystemExit as end:\n    assert not end.code\n"


@pytest.mark.cases(11)
@pytest.mark.parametrize(
    "script",
    ["import mpimbs\ndir(mpimbs)\n", *(ENDED.format([*words, "--help"]) for words in ([], *([c] for c in COMMANDS)))],
    ids=["import", "help", *COMMANDS],
)
def test_nothing_heavy_is_loaded(script: str) -> None:
    told = f"{script}import sys\nprint([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", told], cwd=ROOT, env=plain_environment(), capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_run_whose_kernels_are_kept_loads_no_more_than_it_needs(tmp_path: Path) -> None:
    """Neither what compiles kernels, nor readers of robots, solvers, pictures; few kernels become dispatchers."""
    unneeded = ("numba.np.arrayobj", "xml.etree.ElementTree", "scipy.sparse", "petsc4py", "matplotlib", "tqdm")
    script = ENDED.format(["run", "chain:3", "--t-end", "0.01", "--force", "-o", str(tmp_path / "out.h5")])
    script += (
        "import gc, sys\nfrom mpimbs.kernels.compiler import CPUDispatcher\n"
        f"print([name for name in {unneeded} if name in sys.modules])\n"
        "print(sum(type(x) is CPUDispatcher for x in gc.get_objects()))"
    )
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env=plain_environment(),
            capture_output=True,
            text=True,
            check=True,
        )
    loaded, made = done.stdout.splitlines()[-2:]
    assert loaded == "[]" and 10 < int(made) < 150, (loaded, made)


def test_a_command_ends_without_looking_for_garbage() -> None:
    script = f"import atexit, gc\natexit.register(lambda: print(gc.get_freeze_count()))\n{ENDED.format(['--help'])}"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=plain_environment(), capture_output=True, text=True, check=True
    )
    assert int(done.stdout.splitlines()[-1]) > 1000


def test_every_name_is_there() -> None:
    """Each is imported when it is asked for, and once."""
    for name in mpimbs.__all__:
        assert getattr(mpimbs, name) is getattr(mpimbs, name), name
        assert name in dir(mpimbs)
    assert mpimbs.model.System is mpimbs.System
    with pytest.raises(AttributeError, match="has no attribute 'simulat'"):
        mpimbs.simulat  # noqa: B018


def test_help_names_all_standard_systems() -> None:
    """The text stands in the command line, which doesn't import the systems."""
    assert ", ".join(maker.usage(name) for name, maker in GENERATORS.items()) == GENERATED
