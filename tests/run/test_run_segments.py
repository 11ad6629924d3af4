"""Runs whose structure varies: their files, checkpoints before, at and after events, and what is refused."""

import signal
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError, InterruptionError, SimulationError
from mpimbs.model import BodyMotion, system_from
from mpimbs.run.restart import restart
from mpimbs.run.result import load
from mpimbs.run.run import simulate
from mpimbs.stepping.integrator import Integrator
from mpimbs.stepping.settings import Checkpoints
from run.event_systems import sticking, varied
from run.interruptions import differing, signalled
from tolerances import assert_close

COUPLINGS: list[dict[str, Any]] = [{"coupling": "dcae"}, {"coupling": "pcg", "cuts": 3}]
VARIED: dict[str, Any] = {
    "every": 0.05, "poses": True, "loads": True, "extremes": True, "sample": "q,u,power,joint_work"
}  # fmt: skip


@pytest.fixture
def folder(comm: MPI.Comm, tmp_path: Path) -> Path:
    """A folder that all ranks know."""
    return comm.bcast(tmp_path)


@pytest.mark.cases(1)
@pytest.mark.parametrize("settings", COUPLINGS, ids=str)
def test_a_file_gives_what_a_run_gave(comm: MPI.Comm, folder: Path, settings: dict[str, Any]) -> None:
    kept = simulate(varied(), 0.5, comm, **VARIED, **settings)
    simulate(varied(), 0.5, comm, output=folder / "out.h5", **VARIED, **settings)
    if comm.rank > 0:
        return
    found = load(folder / "out.h5")
    assert found.events == kept.events and len(found.events) == 3
    assert found.t.shape == (11,) and (np.diff(found.t) > 0).all()
    for name in ("t", "energy", "poses", "loads", "power", "joint_work"):
        assert np.array_equal(getattr(found, name), getattr(kept, name)), name
    for name in ("q", "u"):
        assert all(np.array_equal(a, b) for a, b in zip(getattr(found, name), getattr(kept, name), strict=True)), name
    ours, theirs = found.body("b3"), kept.body("b3")
    assert np.array_equal(ours.position, theirs.position) and ours.position.shape == (11, 3)
    assert [q.shape[1] for q in ours.q] == [4, 7, 7, 7]
    with h5py.File(folder / "out.h5") as file:
        assert [segment.attrs["begin"] for segment in file["segments"].values()] == [e["time"] for e in found.events]
        assert list(file["segments/2/model/loop"].asstr()) == ["again"]
        assert list(file["segments/1/model/cut"].asstr()) == ["b3"]
        assert file["segments/1/extremes/q"].shape[1] == file["segments/1/q"].shape[1]


def steps_at(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> list[int]:
    """The numbers of steps before, at and after events of `varied`."""
    original, times = Integrator.step_towards, []

    def step_towards(self: Integrator, target: float, *_: float) -> bool:
        reached = original(self, target)
        times.append(self.time)
        return reached

    with monkeypatch.context() as patch:
        patch.setattr(Integrator, "step_towards", step_towards)
        simulate(varied(), 0.5, comm, **settings)
    first, second = (next(k for k, t in enumerate(times, 1) if t >= moment) for moment in (0.1, 1 / 3))
    return [first - 1, first, first + 1, second, second + 1]


@pytest.mark.cases(1)
@pytest.mark.parametrize("settings", COUPLINGS, ids=str)
def test_restarts_before_at_and_after_events(
    comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """The same bits on the same ranks."""
    settings = VARIED | settings | {"rtol": 1e-4, "atol": 1e-4}
    moments = steps_at(comm, monkeypatch, settings)
    moments = moments if settings["coupling"] == "dcae" else moments[3:4]
    whole = simulate(varied(), 0.5, comm, output=folder / "whole.h5", **settings)
    for steps in moments:
        output = folder / f"out{steps}.h5"
        with signalled(comm, monkeypatch, steps, signal.SIGUSR2), pytest.raises(InterruptionError):
            simulate(varied(), 0.5, comm, output=output, checkpoints=Checkpoints(), signals=True, **settings)
        comm.Barrier()
        result = restart(output.with_name(f"out{steps}.checkpoint.h5"), comm)
        comm.Barrier()
        assert not differing(folder / "whole.h5", output), steps
        parallel_assert((result.steps, result.events) == (whole.steps, whole.events), str(steps))


def test_restarts_on_other_ranks(comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"every": 0.05, "rtol": 1e-8, "atol": 1e-8, "sample": "q,u,joint_work"}
    moments = steps_at(comm, monkeypatch, settings)
    simulate(varied(), 0.5, comm, output=folder / "whole.h5", **settings)
    first = comm.Split(0 if comm.rank == 0 else MPI.UNDEFINED)
    for steps in moments[1:4:2]:
        output = folder / f"out{steps}.h5"
        with signalled(comm, monkeypatch, steps, signal.SIGUSR2), pytest.raises(InterruptionError):
            simulate(varied(), 0.5, comm, output=output, checkpoints=Checkpoints(), signals=True, **settings)
        comm.Barrier()
        if comm.rank == 0:
            restart(output.with_name(f"out{steps}.checkpoint.h5"), first)
            ours, whole = load(output), load(folder / "whole.h5")
            for name in ("poses", "joint_work"):
                assert_close(name, getattr(ours, name), getattr(whole, name), "runs on ranks")
            assert [e["cut"] for e in ours.events] == [e["cut"] for e in whole.events]
        comm.Barrier()
    if first != MPI.COMM_NULL:
        first.Free()


# --- bad input -------------------------------------------------------------------------------------------------------


def failing(t: float, motion: BodyMotion) -> float:
    raise ValueError("no such thing")


MODULE = "run.event_systems"
BAD: list[tuple[list[dict[str, Any]], str]] = [
    ([{"time": 0.2, "cut": "stick"}], r"event \(cut 'stick' at t = 0.2 s\): cuts loop 'stick', which does not hold"),
    ([{"time": 0.2, "connect": "stick"}, {"time": 0.3, "connect": "stick"}], "'stick', which holds already after"),
    ([{"when": "no_module_here:gap", "connect": "stick"}], "there is no module 'no_module_here'"),
    ([{"when": f"{MODULE}:gop", "connect": "stick"}], "no function 'gop'; did you mean 'gap'"),
]


@pytest.mark.parametrize(("events", "message"), BAD, ids=[message for _, message in BAD])
def test_events_that_cannot_happen(comm: MPI.Comm, events: list[dict[str, Any]], message: str) -> None:
    system = sticking()
    for event in events:
        system.add_event(**event)
    with pytest.raises(InputError, match=message):
        simulate(system, 1.0, comm)


FAILS: list[tuple[list[dict[str, Any]], str]] = [
    ([{"time": 0.2, "connect": "stick"}], "connects loop 'stick', whose ends are 0.3 m apart; .*gap = \"close\""),
    ([{"when": failing, "connect": "stick"}], "the function of the event .* failed at t = 0 s: ValueError"),
    ([{"when": lambda t, m: None, "connect": "stick"}], "gave None at t = 0 s, needs one number"),
    ([{"when": lambda t, m: np.nan, "connect": "stick"}], "is not finite at t = 0 s"),
]


@pytest.mark.parametrize(("events", "message"), FAILS, ids=[message for _, message in FAILS])
def test_events_that_fail(comm: MPI.Comm, events: list[dict[str, Any]], message: str) -> None:
    system = sticking()
    for event in events:
        system.add_event(**event)
    with pytest.raises(SimulationError, match=message):
        simulate(system, 1.0, comm, dt=0.05, every=0.5)


def test_events_that_chatter() -> None:
    system = sticking()
    system.add_event(when=lambda t, motion: np.sin(3e4 * t), connect="stick", gap="close")
    system.add_event(when=lambda t, motion: np.sin(3e4 * t + 1), cut="stick")
    with pytest.raises(SimulationError, match=r"the last 100 events by functions came between .*: they chatter"):
        simulate(system, 2.0, dt=5e-5, every=2.0)


@pytest.mark.parametrize("coupling", ["augmented", "pcg"])
def test_couplings_that_cannot_follow(comm: MPI.Comm, coupling: str) -> None:
    system = system_from("chain:5")
    system.add_gear(name="tie", joint="link2", of="link4", ratio=2.0, active=False)
    system.add_event(time=0.1, connect="tie")
    with pytest.raises(InputError, match=rf"has a gear \('tie'\): coupling '{coupling}' has none"):
        simulate(system, 1.0, comm, coupling=coupling)
