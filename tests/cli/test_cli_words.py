"""Messages of the library in the words of a command."""

import threading
from functools import partial

import click
import pytest
from mpi4py import MPI

from mpimbs import cli
from mpimbs.cli import compile_only, words
from mpimbs.cli.commands import run
from mpimbs.cli.evaluation import acceleration
from mpimbs.cli.study import predict_command
from mpimbs.cli.words import told_when_long, worded

SAID: dict[str, tuple[click.Command, str, str]] = {
    "name": (run, "give a longer `every`", "give a longer --every"),
    "shortest": (run, "choose another name with `output`", "choose another name with -o"),
    "flag": (run, "replace it with `force=True`", "replace it with --force"),
    "number": (run, "leave `cuts=5` out, or `dt=-0.001`", "leave --coupling cuts=5 out, or --dt -0.001"),
    "no number": (run, "got `dt=nan`", "got --dt nan"),
    "text": (run, "choose `coupling='dcae'`", "choose --coupling dcae"),
    "attribute": (run, "another place with `checkpoints.path`", "another place with --checkpoint"),
    "several": (predict_command, "choose `coupling='dcae'`", "choose --coupling dcae"),
    "no such option": (acceleration, "give a longer `every`", "give a longer `every`"),
    "what isn't a setting": (run, "`mpimbs bench --json` wrote `x", "`mpimbs bench --json` wrote `x"),
    "restart": (run, "`mpimbs.restart('a b.h5', comm)`", "mpimbs restart 'a b.h5'"),
    "restart with forces": (
        run,
        "`mpimbs.restart('a.h5', comm, forces=['wind:drag', 'sea:swell'])`",
        "mpimbs restart a.h5 --forces wind:drag --forces sea:swell",
    ),
    "restart of a system": (  # which the command line has no way to give
        run,
        "`mpimbs.restart('a.h5', comm, system=system)`",
        "`mpimbs.restart('a.h5', comm, system=system)`",
    ),
}


@pytest.mark.parametrize("case", SAID)
def test_words(case: str) -> None:
    command, message, expected = SAID[case]
    assert worded(message, command) == expected


def test_what_takes_long_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with told_when_long("blinking"):
        pass
    monkeypatch.setattr(words, "PATIENCE", 0.0)
    told = threading.Event()
    monkeypatch.setattr(words.click, "echo", lambda text, err: (print(text), told.set()))
    with told_when_long("reading a book"):
        assert told.wait(30.0)
    assert capsys.readouterr().out == "mpimbs: reading a book ...\n"


def test_what_most_systems_need_is_compiled_on_every_node(
    comm: MPI.Comm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once on a rank, the first rank of a node before the others; and no more is done."""
    done: list[str] = []
    monkeypatch.setattr(compile_only, "usual", lambda: [(name, partial(done.append, name)) for name in ("one", "two")])
    with pytest.raises(SystemExit) as stop:
        cli.main(["--compile", "run", "chain:3"], comm)
    assert stop.value.code == 0 and done == ["one", "two"]
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[0] for line in told] == (["one", "two", "compiled,"] if comm.rank == 0 else [])
