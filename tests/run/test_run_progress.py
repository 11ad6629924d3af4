"""Progress on rank 0: lines into a file, a bar on a terminal, nothing elsewhere."""

import io
from typing import NamedTuple

import pytest
from mpi4py import MPI

from mpimbs.model import Joint, System, system_from
from mpimbs.run import progress
from mpimbs.run.progress import Progress, duration
from mpimbs.run.run import simulate
from mpimbs.stepping import march


class Reached(NamedTuple):
    time: float
    steps: int
    rejected: int
    step_size: float


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_of_a_run(comm: MPI.Comm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(march, "MOST_AT_A_CALL", 1)
    result = simulate(system_from("chain:6"), 0.5, comm, every=0.25, progress=True)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == (result.steps if comm.rank == 0 else 0)
    if comm.rank == 0:
        assert lines[-1].startswith(f"t = 0.5 of 0.5 s, {result.steps} steps, ")
        assert lines[-1].endswith(" s simulated per s, 0 s left")
        assert f"{result.rejected} rejected, next " in lines[-1]


def test_a_stiff_run_says_so_at_once(comm: MPI.Comm, capsys: pytest.CaptureFixture[str]) -> None:
    """Once, with the method to take; not with that method, nor of a run that has little to do."""
    system = System("stiff")
    for k, damping in enumerate((0.0, 0.0, 1e5)):
        joint = Joint(type="revolute", axis=(0, 0, 1), q=0.1, damping=damping, position=(0, -2.0 * (k > 0), 0))
        system.add(name=f"link{k}", mass=1, inertia=(1, 1, 1, 0, 0, 0), center_of_mass=(0, -1, 0), joint=joint)
    for t_end, more, times in ((0.3, {}, 1), (0.01, {}, 0), (0.3, {"integrator": "rosenbrock"}, 0)):
        simulate(system, t_end, comm, every=t_end / 2, tol=1e-6, progress=True, **more)
        told = capsys.readouterr().err.splitlines()
        assert len(told) == (times if comm.rank == 0 else 0), told
        assert all("limited by stability" in line and "body 'link2'" in line for line in told)
        assert all(line.endswith("(integrator rosenbrock)") for line in told)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_bar_on_a_terminal(enabled: bool) -> None:
    stream = Terminal()
    with Progress(2.0, enabled, stream) as shown:
        if shown._bar is not None:
            shown._bar.mininterval = 0.0
        for k in range(1, 5):
            shown.show(Reached(0.5 * k, 10 * k, k, 0.01))
        shown.note("beside")
    text = stream.getvalue()
    if enabled:
        assert "mpimbs: note: beside" in text
        assert (
            "100%" in text
            and "t = 2/2 s" in text
            and "40 steps, 4 rejected, next 0.01 s, " in text
            and "0 s left" in text
        )
    else:
        assert text == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_an_end_that_is_never_reached(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    stream = Terminal() if terminal else io.StringIO()
    with Progress(1e300, True, stream) as shown:
        if shown._bar is not None:
            shown._bar.mininterval = 0.0
        shown.show(Reached(1e-3, 3, 0, 1e-3))
        shown.show(Reached(2e-3, 6, 0, 1e-3))
    longest = max(len(line) for line in stream.getvalue().replace("\r", "\n").splitlines())
    assert "years left" in stream.getvalue() and longest < 200


def test_a_job_gets_a_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    for job in (False, True):
        if job:
            monkeypatch.setenv("SLURM_JOB_ID", "1")
        else:
            monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        clock, stream = [0.0], io.StringIO()
        monkeypatch.setattr(progress.time, "monotonic", lambda clock=clock: clock[0])
        with Progress(100.0, True, stream) as shown:
            for k in range(1, 301):
                clock[0] = float(k)
                shown.show(Reached(0.1 * k, k, 0, 0.1))
        lines = stream.getvalue().splitlines()
        assert len(lines) == (5 if job else 30)
        assert lines[-1].endswith("300 steps, 0 rejected, next 0.1 s, 0.1 s simulated per s, 12 min left")


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.4, "0 s"), (59.0, "59 s"), (60.0, "1 min"), (3599.0, "60 min"), (3600.0, "1 h 0 min"), (7199.9, "2 h 0 min"),
        (12345.0, "3 h 26 min"), (4e5, "5 days"), (1e300, "years"), (float("inf"), "years"),
    ],
)  # fmt: skip
def test_durations(seconds: float, told: str) -> None:
    assert duration(seconds) == told
