"""What `simulate` and `load` give: the motion as arrays, in memory, in the output file and in its unfinished part."""

import copy
import json
import os
import pickle
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from mpi4py import MPI

import mpimbs
from mpi_helpers import parallel_assert
from mpimbs import Batch, Dynamics, InputError, Result, Simulation, SimulationError, System, load, simulate, system_from
from oracles import dense
from run.motions import tumbler
from tolerances import assert_close

NAMES = ("t", "q", "u", "energy", "poses", "loads")


@pytest.fixture
def path(comm: MPI.Comm, tmp_path: Path) -> Path:
    """An output file in a folder that all ranks know."""
    return comm.bcast(tmp_path) / "out.h5"


def driven() -> System:
    """Of all kinds of joints and forces, some of them functions, which no file holds."""
    return tumbler(driven=True)


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "from q"])
def test_the_motion_is_arrays(comm: MPI.Comm, path: Path, kept: bool) -> None:
    """The same in memory, from the run that wrote a file, and loaded; poses those of the oracle."""
    system, options = driven(), {"every": 0.05, "poses": kept, "loads": kept}
    results: list[Result] = [
        simulate(system, 0.1, comm, **options),
        simulate(system, 0.1, comm, output=path, **options),
    ]
    comm.Barrier()
    if comm.rank > 0:
        assert all(getattr(result, name) is None for result in results for name in NAMES)
        with pytest.raises(InputError, match="on rank 0 only"):
            results[0].body("part1")
        return
    results.append(load(path))
    n = system.n_bodies
    shapes = {"t": (3,), "q": (3, system.nq), "u": (3, system.nu), "energy": (3, 2), "poses": (3, n, 7)}
    for result in results:
        assert {name: getattr(result, name).shape for name in shapes} == shapes
        assert (None if result.loads is None else result.loads.shape) == ((3, n, 6) if kept else None)
        assert result.t is result.t, "read again and again"
        for name in NAMES:
            assert np.array_equal(getattr(result, name), getattr(results[0], name)) or (not kept and name == "loads")
    for sample in range(3):
        found = dense.kinematics(system, results[2].q[sample], results[2].u[sample])
        assert_close("positions", results[2].poses[sample, :, :3], found.origin, "dense")


def test_a_loaded_result_has_the_statistics(comm: MPI.Comm, path: Path) -> None:
    result = simulate("chain:6", 0.1, comm, output=path)
    comm.Barrier()
    if comm.rank == 0:
        assert load(path) == result
        assert (
            repr(load(str(path)))
            == repr(result)
            == f"Result(complete: t = 0.1 s, {result.steps} steps, motion in {path})"
        )


def test_a_result_is_shown_in_short(comm: MPI.Comm) -> None:
    result = simulate("chain:9", 0.1, comm)
    where = ", motion in memory" if comm.rank == 0 else ""
    parallel_assert(repr(result) == f"Result(complete: t = 0.1 s, {result.steps} steps{where})", repr(result), comm)


def test_what_is_left_of_a_run_is_loaded(comm: MPI.Comm, path: Path) -> None:
    """Of one that had to stop, and of one that was killed, or goes on: `.part`."""

    def late(t: float) -> float:
        if t > 0.1:
            raise KeyError("no more")
        return 0.0

    system = mpimbs.system_from("chain:6")
    system.set_torque("link2", late)
    with pytest.raises(SimulationError):
        simulate(system, 1.0, comm, output=path, every=0.01)
    if comm.rank > 0:
        return
    stopped = load(path)
    assert stopped.status.startswith("stopped: ") and "KeyError('no more')" in stopped.status
    assert 5 < len(stopped.t) == len(stopped.q) == len(stopped.poses) <= 11
    part = path.with_name("out.h5.part")
    path.rename(part)
    with h5py.File(part, "r+") as file:  # as a run that was killed leaves it
        file.attrs["status"] = "running"
        del file.attrs["statistics"]
    killed = load(part)
    assert (killed.status, killed.time) == ("running", stopped.t[-1])
    assert np.array_equal(killed.q, stopped.q) and np.array_equal(killed.poses, stopped.poses)
    assert np.array_equal(load(path).q, stopped.q), "the unfinished part, while there is no other"


def test_a_result_is_of_its_own_run(comm: MPI.Comm, path: Path) -> None:
    """What another run writes in its place is refused, not mixed with what was read before."""
    first = simulate("chain:6", 0.2, comm, output=path, every=0.1)
    several = mpimbs.Batch("chain:6", comm.size, comm)
    copies = several.simulate(0.2, output=path.with_name("copies.h5"), every=0.1)
    if comm.rank == 0:
        assert len(first.t) == len(copies.t) == 3
    comm.Barrier()
    simulate("chain:6", 2.0, comm, output=path, every=1.0, force=True)
    several.simulate(2.0, output=path.with_name("copies.h5"), every=1.0, force=True)
    if comm.rank == 0:
        for result in (first, copies):
            with pytest.raises(
                InputError, match=r"another run has been written there since; look at that by `mpimbs.lo"
            ):
                _ = result.q
        assert len(load(path).q) == 3 and load(path).t[-1] == 2.0


def test_a_result_of_a_file_that_grows_is_of_one_moment(
    comm: MPI.Comm, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpimbs.files.sample_writer.FLUSH_SECONDS", 0.0)
    with mpimbs.Simulation("chain:6", comm, output=path, every=0.1) as simulation:
        simulation.advance(0.25)
        early = load(path) if comm.rank == 0 else None
        if early is not None:
            assert len(early.t) == 3
        simulation.advance(0.55)
        if early is not None:
            assert len(early.q) == len(early.t) == 3 and len(load(path).q) == 6
    comm.Barrier()
    if early is not None:
        assert len(early.u) == 3, "the file has its name now"


def test_the_newer_of_a_file_and_its_part_is_loaded(comm: MPI.Comm, path: Path) -> None:
    """With a word: while a second run writes, and when that was killed; the first one's result is still that."""
    first = simulate("chain:6", 0.1, comm, output=path, every=0.1)
    comm.Barrier()
    if comm.rank > 0:
        return
    killed = path.with_name("killed.h5")
    simulate("chain:6", 0.5, output=killed, every=0.1, comm=MPI.COMM_SELF)
    with h5py.File(killed, "r+") as file:
        file.attrs["status"] = "running"
    killed.rename(part := path.with_name("out.h5.part"))
    now = path.stat().st_mtime
    os.utime(part, (now + 1, now + 1))  # clocks of file systems tick some hundred times a second
    with pytest.warns(UserWarning, match=r"out.h5: is older than out.h5.part, of a run that goes on or was killed"):
        found = load(path)
    assert (found.status, found.t[-1]) == ("running", 0.5)
    assert first.q.shape == (2, 6) and np.array_equal(first.t, [0.0, 0.1])
    os.utime(path, (now + 2, now + 2))
    assert load(path).status == "complete"


def test_statistics_are_json_for_all_programs(comm: MPI.Comm, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no finite number is told in JSON, and the same when it is loaded."""
    original = Result.statistics
    monkeypatch.setattr(Result, "statistics", lambda self: original(self) | {"energy_error": np.inf, "time": np.nan})
    simulate("chain:6", 0.1, comm, output=path)
    comm.Barrier()
    if comm.rank == 0:
        with h5py.File(path) as file:

            def refused(text: str) -> None:
                raise AssertionError(f"{text} is no JSON")

            json.loads(file.attrs["statistics"], parse_constant=refused)
        found = load(path)
        assert isinstance(found, Result) and found.energy_error == np.inf and np.isnan(found.time)
        assert "nan" in found.summary()


def hdf5(path: Path, **attributes: Any) -> None:
    with h5py.File(path, "w") as file:
        file.attrs.update(attributes)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "there is no such file; give an output of mpimbs run"),
        (lambda path: path.mkdir(), "is no readable HDF5 file"),
        (lambda path: path.write_text("time"), "is no readable HDF5 file"),
        (hdf5, "is no output file of mpimbs"),
        (lambda path: hdf5(path, format="mpimbs 1"), "is no output file of mpimbs"),
    ],
    ids=["none", "folder", "text", "another", "without samples"],
)
def test_what_is_no_output_is_refused(tmp_path: Path, make: Any, words: str) -> None:
    make(tmp_path / "x.h5")
    with pytest.raises(InputError, match=f"x.h5: {words}"):
        load(tmp_path / "x.h5")


def test_the_package_shows_what_it_imports_later() -> None:
    assert {"simulate", "restart", "Checkpoints", "load", "System"} <= set(dir(mpimbs))
    assert set(mpimbs.__all__) <= set(dir(mpimbs))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"t_end": "1"}, "`t_end` must be a number or None, got '1'"),
        ({"t_end": None}, "`t_end` is missing: simulated time"),
        ({"comm": "world"}, "comm must be a communicator"),
        ({"system": 3}, "system must be a System or name a model"),
        ({"output": 3}, "`output` must be a text or a path or None, got 3"),
        ({"poses": "all"}, "`poses` must be True or False, got 'all'"),
        ({"cuts": 1.5}, "`cuts` must be a whole number or None, got 1.5"),
        ({"checkpoints": "often"}, "`checkpoints` must be a Checkpoints or None, got 'often'"),
    ],
    ids=str,
)
def test_arguments_of_a_wrong_kind(comm: MPI.Comm, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=f"^{words}"):
        simulate(**({"system": "chain:8", "t_end": 0.1, "comm": comm} | wrong))


def _changed() -> System:
    """A chain of which a link falls off."""
    system = system_from("chain:3")
    system.add_event(time=0.05, cut="link3")
    return system


@pytest.mark.ranks(1)
@pytest.mark.parametrize("make", [driven, _changed])
@pytest.mark.parametrize("where", ["memory", "file"])
def test_a_result_goes_to_another_process(path: Path, make: Callable[[], System], where: str) -> None:
    """As its arrays, or as the name of its file; its system without functions."""
    output = {"output": path} if where == "file" else {}
    result = simulate(make(), 0.1, every=0.02, loads=True, **output)
    for given, back in ((result, pickle.loads(pickle.dumps(result))), (result, copy.deepcopy(result))):
        assert back.statistics() == given.statistics() and repr(back) == repr(given)
        assert back.summary() == given.summary()
        for name in NAMES + ("tension",):
            ours, theirs = (found if isinstance(found := getattr(r, name), tuple) else (found,) for r in (given, back))
            assert all(map(np.array_equal, ours, theirs)), name
        last = given.there.system.name_of(2)
        for ours, theirs in zip(given.body(last), back.body(last), strict=True):
            assert repr(ours) == repr(theirs)
        assert [part.system.nq for part in back.there.segments] == [part.system.nq for part in given.there.segments]
    if where == "file":
        assert len(pickle.dumps(result)) < 4000, "no arrays"


@pytest.mark.ranks(1)
@pytest.mark.parametrize("where", ["memory", "file"])
def test_an_ensemble_goes_to_another_process(path: Path, where: str) -> None:
    table = {"link1.mass": np.array([1.0, 2.0, 3.0])}
    output = {"output": path} if where == "file" else {}
    result = Batch.of_parameters("chain:2", table).simulate(0.1, every=0.05, **output)
    back = pickle.loads(pickle.dumps(result))
    assert back == result and back.names == result.names
    for name in ("t", "q", "energy", "poses"):
        assert np.array_equal(getattr(back, name), getattr(result, name))
        assert np.array_equal(getattr(pickle.loads(pickle.dumps(result[1])), name), getattr(result[1], name))
    assert back[2].system.body(0).mass == 3.0


@pytest.mark.ranks(1)
def test_what_goes_to_no_other_process(comm: MPI.Comm) -> None:
    with Simulation("chain:2", t_end=1.0) as simulation, closing(Dynamics(system_from("chain:2"), comm)) as dynamics:
        for thing in (simulation, dynamics, Batch("chain:2", 2)):
            with pytest.raises(TypeError, match=f"^a {type(thing).__name__} can't be pickled or copied: .*$"):
                pickle.dumps(thing)
