"""The output file: what is in it, that it can be read at any time, and that a good file is not lost to a bad run."""

import json
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpi_helpers import plain_environment
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.base.lock import lock_of
from mpimbs.files import sample_writer as writer_module
from mpimbs.files.output import part_of
from mpimbs.files.reading import open_output
from mpimbs.model import system_from
from mpimbs.run.restart import restart
from mpimbs.run.result import load
from mpimbs.run.run import simulate
from mpimbs.stepping.settings import Checkpoints
from oracles.dense import energy, joint_wrenches, kinematics, rotation_of
from run.interruptions import differing
from run.motions import motion, tumbler
from tolerances import assert_close

PHASES = {"set-up", "compile", "sweep", "coupling", "communication", "integration", "output", "witness"}


@pytest.fixture
def path(comm: MPI.Comm, tmp_path: Path) -> Path:
    """An output file in a folder that all ranks know."""
    return comm.bcast(tmp_path) / "out.h5"


def contents(path: Path, **options: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The datasets of an output file, and its attributes."""
    with h5py.File(path, "r", **options) as file:
        return {name: data[:] for name, data in file.items() if name != "model"}, dict(file.attrs)


def test_an_output_file_has_everything(comm: MPI.Comm, path: Path) -> None:
    system = tumbler(driven=False)
    system.set_torque("part2", lambda t: time.sleep(0.005) or 1.0 + t)  # so that the run takes a while
    began = time.perf_counter()
    settings: dict[str, Any] = {"integrator": "dop853", "rtol": 1e-7, "atol": 1e-6, "every": 0.1}
    settings |= {"poses": True, "loads": True}
    result = simulate(system, 0.25, comm, output=path, **settings)
    wall = time.perf_counter() - began
    comm.Barrier()
    assert not part_of(path).exists()
    data, attributes = contents(path)
    system.set_torque("part2", lambda t: 1.0 + t)
    expected, plain = motion(system, 0.25, comm, **settings | {"loads": False})
    assert plain.steps == result.steps and plain.evaluations == result.evaluations - len(data["time"])
    own = {"time", "energy", "work", "step_size", "constraint_violation", "equation_residual"}
    assert set(data) == own | {"q", "u", "poses", "loads"}
    for name, values in zip(("time", "q", "u", "energy", "constraint_violation"), expected, strict=True):
        assert np.array_equal(data[name], values), name

    assert (attributes["status"], attributes["name"], attributes["format"]) == ("complete", "tumbler", "mpimbs 1")
    kept = json.loads(attributes["settings"])
    assert kept["t_end"] == 0.25 and kept["ranks"] == comm.size and len(kept["cuts"]) == comm.size + 1
    assert {name: kept[name] for name in settings} == settings
    assert {"mpimbs", "numpy", "petsc4py", "numba", "python"} <= set(json.loads(attributes["versions"]))
    statistics = json.loads(attributes["statistics"])
    assert statistics["steps"] == result.steps > 0 and statistics["evaluations"] == result.evaluations > 0
    assert statistics["time"] == 0.25 and statistics["energy_change"] == result.energy_change
    seconds = statistics["seconds"]
    assert set(seconds) == PHASES and min(seconds.values()) >= 0
    if comm.rank == 0:  # every evaluation waits for the torque, whose rank this one waits for
        assert 0.005 * result.evaluations <= sum(seconds.values()) <= wall
    with h5py.File(path) as file:
        units = {name: file[name].attrs["units"] for name in data}
        assert all("description" in file[name].attrs for name in data)
        assert units | {"q": "", "poses": ""} == {
            "time": "s", "u": "rad/s or m/s", "energy": "J", "constraint_violation": "1", "q": "", "poses": "",
            "loads": "N m, N m, N m, N, N, N", "work": "J", "step_size": "s", "equation_residual": "1",
        }  # fmt: skip
        said = file["loads"].attrs["description"]
        assert all(
            words in said for words in ("on each body by its parent", "body frame", "parent receives the opposite")
        )
        assert [name.decode() for name in file["model/body"]] == ["part0", "part1", "part2", "part3"]
        assert [name.decode() for name in file["model/joint_type"]] == ["free", "spherical", "revolute", "universal"]
        assert file["model/parent"][:].tolist() == [-1, 0, 1, 2]
        assert file["model/q_offset"][:].tolist() == [0, 7, 11, 12, 14]
        assert file["model/u_offset"][:].tolist() == [0, 6, 9, 10, 12]
        assert "torque is a function of time" in file["model"].attrs["toml"]


def test_poses_energies_and_loads_are_those_of_the_state(comm: MPI.Comm, path: Path) -> None:
    """Loads are those of the sample's time: torques and wrenches change with it."""
    system = tumbler()
    simulate(system, 0.3, comm, output=path, every=0.1, poses=True, loads=True)
    comm.Barrier()
    data, _ = contents(path)
    for k, (q, u) in enumerate(zip(data["q"], data["u"], strict=True)):
        state = kinematics(system, q, u)
        assert_close("positions", data["poses"][k, :, :3], state.origin, "dense")
        assert_close("rotations", [rotation_of(p) for p in data["poses"][k, :, 3:]], state.rotation, "dense")
        assert_close("energies", data["energy"][k], energy(system, q, u), "dense")
        loads = joint_wrenches(system, q, u, t=data["time"][k], frame="body")
        assert_close("loads", data["loads"][k], loads, "dense")
    result = simulate(system, 0.3, comm, every=0.1, loads=True)
    assert np.array_equal(result.loads, data["loads"]) if comm.rank == 0 else result.loads is None


def test_samples_can_be_read_while_the_run_goes_on(comm: MPI.Comm, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "FLUSH_SECONDS", 0.0)
    system = system_from("chain:6")
    seen: list[tuple[int, str]] = []

    def spy(t: float) -> float:
        if t > 0.25 and not seen:
            with open_output(path) as file:
                data = {name: item[:] for name, item in file.items() if name != "model"}
                attributes = dict(file.attrs)
            assert len({len(values) for values in data.values()}) == 1 and np.isfinite(data["q"]).all()
            seen.append((len(data["time"]), attributes["status"]))
            assert not path.exists()
        return 0.0

    system.set_torque("link1", spy)  # rank 0 owns it and writes
    simulate(system, 0.4, comm, output=path, every=0.1)
    assert comm.bcast(seen) == [(3, "running")]


def test_a_second_run_does_no_harm_to_a_live_one(comm: MPI.Comm, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does its restart; and the first ends as if nothing had been."""
    monkeypatch.setattr(writer_module, "FLUSH_SECONDS", 0.0)
    system, checkpoint = system_from("chain:6"), path.with_name("out.checkpoint.h5")
    refused: list[str] = []

    def meddle(t: float) -> float:
        if t > 0.25 and not refused and checkpoint.exists():
            other = system_from("chain:4")
            for action in (
                partial(simulate, other, 0.1, MPI.COMM_SELF, output=path),
                partial(simulate, other, 0.1, MPI.COMM_SELF, output=path, force=True),
                partial(
                    simulate, other, 0.1, MPI.COMM_SELF, output=path.with_name("b.h5"),
                    checkpoints=Checkpoints(path=checkpoint), force=True,
                ),
                partial(restart, checkpoint, MPI.COMM_SELF, system=system),
            ):  # fmt: skip
                with pytest.raises(InputError, match="is being written by another simulation of this process") as error:
                    action()
                refused.append(str(error.value))
        return 0.0

    monkeypatch.setattr("mpimbs.run.course.PATIENCE", 0.1)
    system.set_torque("link1", meddle)  # rank 0 owns it and writes
    simulate(system, 0.4, comm, output=path, every=0.1, checkpoints=Checkpoints(steps=3))
    assert len(comm.bcast(refused)) == 4
    comm.Barrier()
    assert {file.name for file in path.parent.iterdir()} == {"out.h5", "out.checkpoint.h5", "out.checkpoint.1.h5"}
    intact, _ = motion(system_from("chain:6"), 0.4, comm, every=0.1)
    assert np.array_equal(contents(path)[0]["q"], intact.q)


READS = """
import sys, h5py
with h5py.File(sys.argv[1], "r", libver="latest", swmr=True) as file:
    print(len(file["time"]), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="starts a process itself")
def test_a_reader_does_not_keep_a_run_from_its_end(comm: MPI.Comm, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a lock of HDF5's own the file could not be opened again for its status."""
    monkeypatch.setattr(writer_module, "FLUSH_SECONDS", 0.0)
    system, readers = system_from("chain:6"), []

    def watched(t: float) -> float:
        if t > 0.25 and not readers:
            command = [sys.executable, "-c", READS, str(part_of(path))]
            readers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            assert readers[0].stdout is not None and readers[0].stdout.readline() == b"3\n"
        return 0.0

    system.set_torque("link1", watched)
    try:
        simulate(system, 0.4, output=path, every=0.1)
    finally:
        readers[0].communicate(b"\n")
    assert readers[0].returncode == 0 and contents(path)[1]["status"] == "complete"


@pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="starts a process itself")
def test_a_damaged_file_is_found_at_once(comm: MPI.Comm, path: Path) -> None:
    """HDF5 by itself would try again for ever to read what has a wrong checksum."""
    process = subprocess.run([sys.executable, "-c", KILLS_ITSELF, str(path)], env=plain_environment())
    assert process.returncode == -signal.SIGKILL and lock_of(path).exists()
    with open_output(path) as file:
        assert len(file["time"]) > 2
    with pytest.raises(InputError, match=r"out\.h5\.part: is the output of a run, and no checkpoint stands"):
        restart(part_of(path))
    with part_of(path).open("r+b") as raw:
        places = [found.start() for found in re.finditer(b"EAHD", raw.read())]
        for place in places:
            raw.seek(place + 8)
            raw.write(b"\xff\xff")
    began = time.monotonic()
    with pytest.raises(InputError, match=r"out\.h5\.part: is damaged \(.*checksum"), open_output(path) as file:
        file["q"][:]
    system = system_from("chain:4")
    system.set_torque("link2", lambda t: 0.0)
    with pytest.raises(InputError, match=r"out\.h5\.part: can't be continued"):
        restart(path.with_name("out.checkpoint.h5"), system=system)
    assert time.monotonic() - began < 20
    assert not list(path.parent.glob("*.lock"))


def test_a_stopped_run_leaves_a_complete_file(comm: MPI.Comm, path: Path) -> None:
    system = system_from("chain:6")

    def fails(t: float) -> float:
        if t > 0.25:
            raise ValueError("no more data")
        return 0.0

    system.set_torque("link6", fails)
    with pytest.raises(SimulationError, match="no more data") as stop:
        simulate(system, 1.0, comm, output=path, every=0.1)
    comm.Barrier()
    assert list(path.parent.iterdir()) == [path]
    data, attributes = contents(path)
    assert np.allclose(data["time"], [0.0, 0.1, 0.2]) and {len(values) for values in data.values()} == {3}
    assert attributes["status"] == f"stopped: {stop.value}"
    assert 0.2 <= json.loads(attributes["statistics"])["time"] <= 0.25
    intact, _ = motion(system_from("chain:6"), 0.2, comm, every=0.1)
    assert_close("samples before the stop", data["q"], intact.q, "run")


KILLS_ITSELF = """
import os, sys
from mpimbs import Checkpoints, simulate, system_from
from mpimbs.files import sample_writer
sample_writer.FLUSH_SECONDS = 0.0
system = system_from("chain:4")
system.set_torque("link2", lambda t: os.kill(os.getpid(), 9) if t > 0.55 else 0.0)
simulate(system, 100.0, output=sys.argv[1], every=0.1, checkpoints=Checkpoints(steps=1))
"""
KILLED = """
import sys, time
from mpimbs.model import system_from
from mpimbs.files import sample_writer
from mpimbs.run.run import simulate
sample_writer.FLUSH_SECONDS = 0.0
system = system_from("chain:4")
system.set_torque("link2", lambda t: time.sleep(0.05 * (t > 0.5)) or 0.0)
simulate(system, 100.0, output=sys.argv[1], every=0.1, force=True)
"""


PARTS = """
import os, sys
from mpimbs import Checkpoints, simulate, system_from
from mpimbs.files import output_layout, sample_writer
from mpimbs.run import run_course
sample_writer.FLUSH_SECONDS = 0.0
def killed(*given):
    output_layout.lay_out_segment(*given)
    given[0].file.flush()
    os._exit(9)
if len(sys.argv) > 2:
    run_course.lay_out_segment = killed
system = system_from("chain:4")
system.add_event(time=0.25, cut="link3")
simulate(system, 0.4, output=sys.argv[1], every=0.1, checkpoints=Checkpoints(steps=2))
"""


@pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="starts a process itself")
def test_a_run_that_is_killed_while_it_makes_room_for_another_structure(path: Path) -> None:
    """When its file is open for all writing, which nobody may read beside: it is read, and gone on with."""
    whole = path.with_name("whole.h5")
    for arguments in ([str(whole)], [str(path), "killed"]):
        done = subprocess.run([sys.executable, "-c", PARTS, *arguments], env=plain_environment(), timeout=100)
        assert done.returncode == (9 if len(arguments) > 1 else 0)
    with pytest.raises(OSError, match="already open for write"):
        h5py.File(part_of(path), "r", libver="latest", locking=False)
    found, right = load(path), load(whole)
    assert found.t.tolist() == [0.0, 0.1, 0.2] and np.array_equal(found.q[0], right.q[0])
    assert restart(path).status == "complete" and not differing(path, whole)


@pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="starts a process itself")
def test_a_killed_run_leaves_the_old_file_and_its_own_samples(comm: MPI.Comm, path: Path) -> None:
    path.write_bytes(b"old")
    job = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], env=plain_environment())
    try:
        waited = time.monotonic() + 60
        count = 0
        while count < 5 and time.monotonic() < waited and job.poll() is None:
            time.sleep(0.05)
            try:
                count = len(contents(part_of(path), swmr=True)[0]["time"])
            except (OSError, KeyError):
                continue  # not laid out yet
    finally:
        job.kill()
        job.wait()
    assert count >= 5
    assert path.read_bytes() == b"old"
    data, attributes = contents(part_of(path), swmr=True)
    assert attributes["status"] == "running" and np.isfinite(data["q"]).all() and len(data["q"]) >= count
    path.unlink()
    with pytest.raises(InputError, match=r"\.part: exists, left by a run that did not end"):
        simulate(system_from("chain:4"), 0.1, comm, output=path)
    simulate(system_from("chain:4"), 0.1, comm, output=path, force=True)
    assert contents(path)[1]["status"] == "complete" and list(path.parent.iterdir()) == [path]
