"""Samples of some bodies and quantities alone: in memory, in the output, over events and restarts, and as xarray."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpimbs import Checkpoints, InputError, Simulation, load, restart, simulate
from run.event_systems import varied
from run.motions import tumbler

SOME = "q:part3,u,q:part0,pose:part2,load:part1,load:part3"


@pytest.fixture
def path(comm: MPI.Comm, tmp_path: Path) -> Path:
    """An output file in a folder that all ranks know."""
    return comm.bcast(tmp_path) / "out.h5"


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, tuple):
        return len(found) == len(expected) and all(map(np.array_equal, found, expected))
    return np.array_equal(found, expected)


def test_some_bodies_alone(comm: MPI.Comm, path: Path) -> None:
    system, settings = tumbler(driven=False), {"every": 0.02, "dt": 1e-3}
    whole = simulate(system, 0.1, comm, poses=True, loads=True, **settings)
    some = [
        simulate(system, 0.1, comm, sample=SOME, **settings),
        simulate(system, 0.1, comm, sample=SOME, output=path, **settings),
    ]
    comm.Barrier()
    if comm.rank > 0:
        return
    q, n = system.contents.offsets()[0], system.n_bodies
    for result in (*some, load(path)):
        assert result.motion.kept("q").tolist() == [0, 3] and len(result.motion.kept("u")) == n
        assert np.array_equal(result.q, np.hstack([whole.q[:, q[k] : q[k + 1]] for k in (0, 3)]))
        assert np.array_equal(result.u, whole.u) and np.array_equal(result.poses, whole.poses[:, [2]])
        assert np.array_equal(result["part3"].q, whole["part3"].q) and result["part1"].q is None
        assert np.array_equal(result["part2"].position, whole["part2"].position) and result["part3"].position is None
        assert np.array_equal(result["part3"].load, whole["part3"].load) and result["part0"].load is None
    with h5py.File(path) as file:
        assert file["model/sampled/loads"][:].tolist() == [1, 3] and file["loads"].shape == (6, 2, 6)


def test_over_events_and_a_restart(comm: MPI.Comm, path: Path) -> None:
    settings: dict[str, Any] = {"t_end": 0.4, "every": 0.05, "sample": "q:b3,q:b1,pose:b3"}
    full = simulate(varied(), comm=comm, **settings | {"sample": None, "poses": True})
    simulation = Simulation(varied(), comm, output=path, checkpoints=Checkpoints(), **settings)
    while simulation.step() < 0.12:  # at sizes of its own: what `advance` shortens is another step
        pass
    place = simulation.save()
    simulation.close()
    restart(place, comm, system=varied())
    comm.Barrier()
    if comm.rank == 0:
        found = load(path)
        for name in ("b1", "b3"):
            assert same(found[name].q, full[name].q), name
        assert np.array_equal(found["b3"].position, full["b3"].position) and found.status == "complete"


def test_nothing_but_energies(comm: MPI.Comm) -> None:
    result = simulate("chain:4", 0.1, comm, sample="load:link2", every=0.05)
    if comm.rank == 0:
        assert result.q is None and result.poses is None and result.energy.shape == (3, 2)
        assert result["link2"].load.shape == (3, 6) and result["link1"].load is None


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ("q,v", "`sample`: 'v' is nothing that samples have; give some of q, u, pose, load"),
        ("", "`sample`: '' is nothing"),
        ("pose:tip", "unknown body 'tip'"),
    ],
)
def test_what_samples_do_not_have(comm: MPI.Comm, sample: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        simulate("chain:4", 0.1, comm, sample=sample)


def test_labelled() -> None:
    pytest.importorskip("xarray", reason="needs xarray")
    result = simulate(tumbler(), 0.1, every=0.05, sample="q,u:part1,load:part1,pose:part2")
    found = result.to_xarray()
    assert found.q.dims == ("time", "coordinate") and found.q.sel(coordinate="part2").shape == (3,)
    assert list(found.speed.values) == ["part1[0]", "part1[1]", "part1[2]"] and found.loads.attrs["units"].endswith("N")
    assert np.array_equal(found.loads.sel(body="part1"), result["part1"].load)
    assert np.array_equal(found.poses.sel(body="part2", pose=["x", "y", "z"]), result["part2"].position)
    assert np.isnan(found.poses.sel(body="part1")).all()
    assert "tumbler" in result._repr_html_() and "3 samples in memory" in result._repr_html_()
