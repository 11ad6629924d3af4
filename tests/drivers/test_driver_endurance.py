"""The driver of long runs: what they leave is seen, and they leave nothing."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from matplotlib import image
from mpi4py import MPI

from driver_modules import driver
from mpimbs.base.errors import InputError
from mpimbs.stepping.integrator import Integrator

pytestmark = pytest.mark.long


def test_endurance(comm: MPI.Comm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Too short to say what grows: what is left at the end, the table, the files."""
    folder = comm.bcast(tmp_path) / "results"
    steps = 30_000 if comm.size == 1 else 3000  # long enough for a thread that seldom gets its turn
    found = driver("endurance").main("chain:4", folder, steps, integrator="petsc:euler", samples=10, comm=comm)
    out, _ = capsys.readouterr()
    checks = 2 + steps // 1000  # samples that are checked, at the most: ten are taken
    assert found["steps"] == steps <= found["evaluations"] <= steps + checks
    names = ["resident", "malloc", "objects", "handles"]
    assert [(row["rank"], row["quantity"]) for row in found["rows"]] == [
        (rank, name) for rank in range(comm.size) for name in names
    ]
    assert all(0 < row[window] <= row["most"] for row in found["rows"] for window in ("start", "middle", "end"))
    for part in found["ranks"]:
        assert part["messages_left"] == part["handles_left"] == part["communicators_left"] == 0
        assert 100 < part["request_bytes"] < 10_000
    if comm.rank > 0:
        assert out == ""
        return
    assert out.count("file handles") == out.count("can have been left") == comm.size
    assert json.loads((folder / "endurance.json").read_text()) == found
    assert len((folder / "endurance.tsv").read_text().splitlines()) == 1 + len(found["rows"])
    assert image.imread(folder / "endurance.png")[..., :3].std() > 0.02, "the picture is blank"
    for few in (99, -1):
        with pytest.raises(InputError, match=f"{few} steps are no long run"):
            driver("endurance").main(steps=few)


STEPS = 4000 if MPI.COMM_WORLD.size < 3 else 2000  # more ranks than cores are slow


def long_run(comm: MPI.Comm, folder: Path, monkeypatch: pytest.MonkeyPatch, coupling: str) -> dict[str, Any]:
    """Watch so many short steps, with a checkpoint at every 100th: look before every tenth, not by the clock."""
    endurance = driver("endurance")
    watches: list[Any] = []
    original = Integrator.step_towards

    def step_towards(self: Integrator, target: float, *_: float) -> bool:
        if watches and self.steps % 10 == 0:
            watches[-1].look()
        return original(self, target)

    @contextmanager
    def looking(self: object) -> Iterator[None]:
        watches.append(self)
        yield

    monkeypatch.setattr(Integrator, "step_towards", step_towards)
    monkeypatch.setattr(endurance.Watch, "looking", looking)
    cuts = 3 if coupling == "pcg" else None
    return endurance.main("chain:4", folder, STEPS, coupling, cuts, "petsc:euler", 1e-4, None, 100, 20, comm)


@pytest.mark.parametrize("coupling", ["dcae", "pcg"])
def test_a_long_run_leaves_nothing(
    comm: MPI.Comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coupling: str
) -> None:
    """Neither memory nor handles, requests, communicators, messages; the next test shows that they would be seen."""
    found = long_run(comm, comm.bcast(tmp_path), monkeypatch, coupling)
    assert found["left"] == [] and found["steps"] == STEPS <= found["evaluations"]
    for row in found["rows"]:
        if row["quantity"] == "malloc":
            assert row["growth"] <= row["limit"] < 0.8 * STEPS * 100, "less than by 100 bytes a step"
    assert all(part["requests_left_at_most"] < 0.2 * STEPS for part in found["ranks"])


def test_what_a_long_run_leaves_is_seen(comm: MPI.Comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last rank leaves a request and a small object at every step, a handle now and then, and one of the rest."""
    alone = MPI.COMM_SELF.Dup()
    requests: list[MPI.Request] = []
    objects: list[object] = []
    files: list[int] = []
    messages: list[MPI.Request] = []
    communicators: list[MPI.Comm] = []
    room, original = bytearray(8), Integrator.step_towards

    def step_towards(self: Integrator, target: float, *_: float) -> bool:
        requests.append(alone.Isend(room, 0))
        requests.append(alone.Irecv(bytearray(8), 0))
        objects.append([bytearray(100)])
        if len(objects) % 500 == 0:
            files.append(os.open(os.devnull, os.O_RDONLY))
        if len(objects) == 1000:
            messages.append(comm.Isend(room, comm.rank))
            communicators.append(MPI.COMM_SELF.Dup())
        return original(self, target)

    if comm.rank == comm.size - 1:
        monkeypatch.setattr(Integrator, "step_towards", step_towards)
    try:
        found = long_run(comm, comm.bcast(tmp_path), monkeypatch, "dcae")
    finally:
        MPI.Request.Waitall(requests)
        for message in messages:
            comm.Recv(bytearray(8), comm.rank)
            message.Wait()
        for file in files:
            os.close(file)
        for communicator in (*communicators, alone):
            communicator.Free()
    beside = [words for words in found["left"] if "resident" not in words]  # which need not grow where there is room
    seen = [words.split()[2].rstrip(":") for words in beside]
    assert seen == ["malloc", "objects", "handles", "messages", "handles", "communicators"], found["left"]
    assert all(words.startswith(f"rank {comm.size - 1}: ") for words in found["left"]), "the others have left nothing"
    assert found["ranks"][-1]["requests_left_at_most"] > 0.5 * STEPS
