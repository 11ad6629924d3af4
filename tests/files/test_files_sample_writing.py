"""Samples that ranks write together: the same file whoever writes its parts, and one error for all."""

import errno
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
from mpi4py import MPI

import mpimbs.base.sizes
from mpimbs.base.disk import mount_of
from mpimbs.base.errors import SimulationError
from mpimbs.base.sizes import PACKAGE, tuned
from mpimbs.dynamics.quantities import QUANTITIES
from mpimbs.files import output_layout, sample_writer, slices
from mpimbs.files.output import OutputFile, part_of
from mpimbs.files.slices import SharedFile
from mpimbs.model import System, system_from
from mpimbs.run import trajectory
from mpimbs.run.run import simulate
from mpimbs.stepping.settings import Checkpoints
from run.motions import tumbler

T_END = 0.22
EVERY: dict[str, Any] = {"every": 0.02, "rtol": 1e-6, "atol": 1e-6}
CASES: dict[str, tuple[Callable[[], System], dict[str, Any]]] = {
    "all of a sample": (tumbler, EVERY | {"poses": True, "loads": True}),
    "constraint loads": (lambda: system_from("rope:7"), EVERY | {"poses": True, "coupling": "pcg", "cuts": 3}),
}
BY = ("rank 0", "each", "each, but for one that does not see the file")
AT_ONCE, IN_GROUPS, AT_THE_END = {"FLUSH_SECONDS": 0.0}, {"FLUSH_BYTES": 1500}, {"FLUSH_SECONDS": 1e9}


@pytest.fixture
def path(comm: MPI.Comm, tmp_path: Path) -> Path:
    """An output file in a folder that all ranks know."""
    return comm.bcast(tmp_path) / "out.h5"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Datasets whose numbers rank 0 has got; chunks and slices are small, so that there are many of each."""
    monkeypatch.setattr(output_layout, "ROWS", 3)
    monkeypatch.setattr(mpimbs.base.sizes, "_used", replace(PACKAGE, slice_numbers=5))
    names: set[str] = set()
    original = OutputFile.write

    def write(self: OutputFile, name: str, rows: slice, columns: slice, piece: np.ndarray) -> None:
        names.add(name)
        original(self, name, rows, columns, piece)

    monkeypatch.setattr(OutputFile, "write", write)
    return names


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    ("case", "when", "by"),
    [
        *(("all of a sample", IN_GROUPS, by) for by in BY),
        *(("constraint loads", when, by) for when in (AT_ONCE, AT_THE_END) for by in BY[:2]),
    ],
)
def test_the_file_has_what_is_gathered_in_memory(
    comm: MPI.Comm, path: Path, monkeypatch: pytest.MonkeyPatch, written: set[str], case: str, when: Any, by: str
) -> None:
    make, settings = CASES[case]
    for name, value in when.items():
        monkeypatch.setattr(sample_writer, name, value)
    least = 10**9 if by == "rank 0" else 1
    monkeypatch.setattr(mpimbs.base.sizes, "_used", replace(tuned(), sample_bytes=least))
    if "one" in by and comm.rank == comm.size - 1:
        monkeypatch.setattr(slices, "os", Blind())
    simulate(make(), T_END, comm, output=path, **settings)
    motion = simulate(make(), T_END, comm, **settings).motion
    kept = comm.bcast(
        None if motion is None else {name: motion.array(name) for name in QUANTITIES if motion.holds(name)}
    )
    with h5py.File(path) as file:
        data = {name: item[()] for name, item in file.items() if isinstance(item, h5py.Dataset)}
        assert file["poses"].chunks[0] == 3
    assert kept.keys() == data.keys() and all(np.array_equal(data[name], kept[name]) for name in kept)
    if comm.rank == 0:
        assert not written if by == "each" and comm.size > 1 else {"q", "u", "poses"} <= written


class Blind:
    """The operating system of a rank that does not see a file which rank 0 has made."""

    def __getattr__(self, name: str) -> Any:
        if name == "open":
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return getattr(os, name)


os_fstat = os.fstat


def elsewhere(status: os.stat_result) -> Any:
    """The status of a file, on another device."""
    return SimpleNamespace(st_ino=status.st_ino, st_dev=status.st_dev + 1)


def test_nodes_share_a_file_only_where_all_see_the_same_one(
    comm: MPI.Comm, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks on one node do; each on a node of its own only on a file system that is known to keep their bytes apart."""
    other = path.with_name(f"{comm.rank}.h5")
    other.write_bytes(b"")
    if comm.rank == 0:
        path.write_bytes(b"")
    comm.Barrier()
    several = comm.size > 1
    assert (SharedFile(comm, path).usable, SharedFile(comm, other).usable) == (several, False)
    if comm.rank == comm.size - 1:  # another file system that happens to number its file so
        with monkeypatch.context() as patch:
            patch.setattr(slices.os, "fstat", lambda handle: elsewhere(os_fstat(handle)))
            assert not SharedFile(comm, path).usable
    else:
        assert not SharedFile(comm, path).usable
    apart = Apart(comm)
    assert not SharedFile(apart, path).usable  # type: ignore[arg-type]
    monkeypatch.setattr(slices, "_COHERENT", (mount_of(path).kind,))
    assert (SharedFile(apart, path).usable, SharedFile(apart, other).usable) == (several, False)  # type: ignore[arg-type]


class Apart:
    """A communicator whose ranks are on nodes of their own."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm

    def Split_type(self, kind: int) -> MPI.Comm:  # noqa: N802
        return self._comm.Split(self._comm.rank)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)


@pytest.mark.parametrize("by", ["rank 0", "each"])
def test_an_error_of_one_rank_ends_the_run_on_all(
    comm: MPI.Comm, path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """On the last rank the disk refuses the fourth sample, whoever writes there; those before it can be read."""
    monkeypatch.setattr(sample_writer, "FLUSH_SECONDS", 0.0)
    monkeypatch.setattr(trajectory, "PASSING", 1)
    sizes = replace(PACKAGE, sample_bytes=1 if by == "each" else 10**9)
    monkeypatch.setattr(mpimbs.base.sizes, "_used", sizes)
    where, name = (SharedFile, "write") if by == "each" and comm.size > 1 else (OutputFile, "_claim_room")
    failing = comm.size - 1 if where is SharedFile else 0
    original, calls = getattr(where, name), []

    def refuse(*arguments: Any) -> None:
        calls.append(None)
        if len(calls) == 4 and comm.rank == failing:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        original(*arguments)

    monkeypatch.setattr(where, name, refuse)
    with pytest.raises(SimulationError) as error:
        simulate(system_from("chain:6"), 0.5, comm, output=path, every=0.1)
    assert str(error.value) == f"{part_of(path)}: can't be written any more (Disk quota exceeded)"
    comm.Barrier()
    with h5py.File(part_of(path), "r", libver="latest") as file:
        assert np.allclose(file["time"][:], [0.0, 0.1, 0.2]) and np.isfinite(file["q"][:]).all()
        assert {len(item) for item in file.values() if isinstance(item, h5py.Dataset)} == {3}
        assert file.attrs["status"] == "running"


@pytest.mark.parametrize("kept", [None, Checkpoints(steps=1)], ids=["at the end", "at a checkpoint"])
def test_a_run_ends_when_another_has_taken_its_output(comm: MPI.Comm, path: Path, kept: Checkpoints | None) -> None:
    """A restart while the run still went on: its file stays as it is, and so does the checkpoint."""
    system, part, checkpoint = system_from("chain:6"), part_of(path), path.with_name("out.checkpoint.h5")
    taken: list[list[bytes]] = []

    def take(t: float) -> float:
        if t > 0.25 and not taken:
            time.sleep(0.01)
            shutil.copy(part, path.with_name("copy"))
            path.with_name("copy").replace(part)
            taken.append([file.read_bytes() for file in (part, checkpoint) if file.exists()])
        return 0.0

    system.set_torque("link1", take)  # rank 0 has it
    with pytest.raises(SimulationError, match=r"another run goes on with it, restarted while this one still ran"):
        simulate(system, 0.5, comm, output=path, every=0.1, checkpoints=kept)
    comm.Barrier()
    left = [part] if kept is None else [part, checkpoint]
    assert [file.read_bytes() for file in left] == comm.bcast(taken)[0]
    assert {file.name for file in path.parent.iterdir()} - {"out.checkpoint.1.h5"} == {file.name for file in left}
