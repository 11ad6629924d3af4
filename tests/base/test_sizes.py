"""The tuned sizes: one place that all read, others by the environment, the same on all ranks."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError
from mpimbs.base.sizes import PACKAGE, VARIABLE, Sizes, tuned, using
from mpimbs.dynamics import Dynamics
from mpimbs.files.checkpoint import glance
from mpimbs.files.slices import SharedFile
from mpimbs.model import system_from
from mpimbs.run.result import load
from mpimbs.run.run import simulate
from mpimbs.stepping.settings import Checkpoints
from tolerances import assert_close


def written_by_each(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch, output: Path, sizes: Sizes) -> int:
    """Numbers that all ranks write themselves in a run with checkpoints, with such sizes."""
    count, original = 0, SharedFile.write

    def write(self: SharedFile, pieces: Iterable[tuple[int, np.ndarray]]) -> None:
        nonlocal count
        given = list(pieces)
        count += sum(piece.size for _, piece in given)
        original(self, given)

    with monkeypatch.context() as patch, using(sizes):
        patch.setattr(SharedFile, "write", write)
        simulate("chain:40", 0.02, comm, output=output, dt=0.01, every=0.01, checkpoints=Checkpoints(steps=1))
    return comm.allreduce(count)


def test_sizes_of_files_say_who_writes(comm: MPI.Comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And are used for nothing else: files are the same. Output and checkpoint say which sizes were in use."""
    folder = comm.bcast(tmp_path)
    found = {}
    for name, sizes in {
        "package": PACKAGE,
        "samples": replace(PACKAGE, sample_bytes=1),
        "both": replace(PACKAGE, sample_bytes=1, checkpoint_bytes=1),
    }.items():
        output = folder / f"{name}.h5"
        count = written_by_each(comm, monkeypatch, output, sizes)
        result, header = load(output), glance(folder / f"{name}.checkpoint.h5")
        with h5py.File(output) as file:
            found[name] = count, file["q"][:], file.attrs["sizes"]
        assert header is not None and header["sizes"] == result.sizes == found[name][2] == sizes.told()
        assert (f"\nsizes: {sizes.told()}, by {VARIABLE}" in result.summary()) == (sizes != PACKAGE)
    counts = [count for count, _, _ in found.values()]
    assert counts[0] == 0 and (counts == [0, 0, 0] if comm.size == 1 else 0 < counts[1] < counts[2]), counts
    for _, q, _ in found.values():
        assert_close("q", q, found["package"][1], "exact", comm=comm)
    assert len({told for _, _, told in found.values()}) == 3


def test_other_sizes_change_results_by_rounding_only(comm: MPI.Comm) -> None:
    system, found = system_from("spatial_chain:3000"), []
    for sizes in (PACKAGE, replace(PACKAGE, axis_cost=1.0, tip_ratio=2.0, joins_in_bodies=200.0, most_lane=9)):
        with using(sizes):
            dynamics = Dynamics(system, comm)
            udot = dynamics.gather_u(dynamics.accelerations(dynamics.subchain.q, dynamics.subchain.u))
            found.append((dynamics.divided.cuts.tolist(), comm.bcast(udot)))
            dynamics.close()
    assert comm.size == 1 or found[0][0] != found[1][0]
    assert_close("accelerations", found[1][1], found[0][1], "ranks")


def test_the_environment_gives_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with using(None):
        assert tuned() == PACKAGE
    monkeypatch.setenv(VARIABLE, "tip_ratio=1.5, least_lane=6")
    with using(None):
        assert tuned() == replace(PACKAGE, tip_ratio=1.5, least_lane=6)
        assert tuned().told() == replace(PACKAGE, tip_ratio=1.5, least_lane=6).told() != PACKAGE.told() == "package"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sizes.toml", "unknown size 'sizes.toml'; give it as most_lane=64,pivot_bytes=8388608; known are axis_cost, "),
        ("tipratio=1.5", "unknown size 'tipratio'"),
        ("tip_ratio=", "tip_ratio must be a number, got ''"),
        ("tip_ratio=-1", "tip_ratio must be a positive number, got -1"),
        ("tip_ratio=nan", "tip_ratio must be a positive number, got nan"),
        ("tip_ratio=true", "tip_ratio must be a number, got 'true'"),
        ("least_lane=4.5", "least_lane must be a whole number, got '4.5'"),
        ("least_lane=0", "least_lane must be a positive number, got 0"),
        ("least_lane=200", "most_lane 128 is below least_lane 200"),
    ],
)
def test_bad_sizes(monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with using(None), pytest.raises(InputError) as error:
        Dynamics(system_from("chain16"))
    assert str(error.value).startswith(f"{VARIABLE}: {message}")


def test_ranks_with_other_sizes_are_refused(comm: MPI.Comm) -> None:
    sizes = replace(PACKAGE, tip_ratio=1.5) if comm.rank else PACKAGE
    message = ""
    with using(sizes):
        try:
            Dynamics(system_from("chain16"), comm).close()
        except InputError as error:
            message = str(error)
    expected = f"the ranks disagree on the sizes ({VARIABLE}): none on rank 0, one on rank" if comm.size > 1 else ""
    parallel_assert(message.startswith(expected) and bool(message) == (comm.size > 1), message, comm)


def test_sizes_that_one_rank_has_wrong_fail_on_all(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    if comm.rank == comm.size - 1:
        monkeypatch.setenv(VARIABLE, "tip_ratio=0")
    message = ""
    with using(None):
        try:
            Dynamics(system_from("chain16"), comm).close()
        except InputError as error:
            message = str(error)
    parallel_assert("tip_ratio must be a positive number" in message, message, comm)
