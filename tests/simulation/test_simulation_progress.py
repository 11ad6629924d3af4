"""Progress on rank 0: lines into a file, a bar on a terminal, nothing elsewhere."""

import io

import pytest
from mpi4py import MPI

from mpimbs.model import system_from
from mpimbs.simulation import progress
from mpimbs.simulation.progress import Progress
from mpimbs.simulation.run import simulate


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_of_a_run(comm: MPI.Comm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    result = simulate(system_from("chain:6"), 0.5, comm, every=0.25, progress=True)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == (result.steps if comm.rank == 0 else 0)
    if comm.rank == 0:
        assert lines[-1].startswith(f"t = 0.5 of 0.5 s, {result.steps} steps, ")
        assert lines[-1].endswith("about 0 s left") and "x real time" in lines[-1]


def test_lines_come_only_now_and_then(comm: MPI.Comm, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(system_from("chain:6"), 0.1, comm, progress=True)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("enabled", [True, False])
def test_the_bar_on_a_terminal(enabled: bool) -> None:
    stream = Terminal()
    with Progress(2.0, enabled, stream) as shown:
        shown._bar.mininterval = 0.0
        for k in range(1, 5):
            shown.show(0.5 * k, 10 * k)
    text = stream.getvalue()
    if enabled:
        assert "100%" in text and "t = 2/2 s" in text and "40 steps" in text and "x real time" in text
    else:
        assert text == ""


@pytest.mark.parametrize("enabled", [True, False])
def test_a_stream_that_is_no_terminal(enabled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    stream = io.StringIO()
    with Progress(2.0, enabled, stream) as shown:
        shown.show(0.0, 0)  # no division by the time reached
        shown.show(1.0, 7)
    assert len(stream.getvalue().splitlines()) == (2 if enabled else 0)
    assert ("t = 1 of 2 s, 7 steps" in stream.getvalue()) == enabled
