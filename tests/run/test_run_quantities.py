"""Quantities of samples, declared once: one of them against an oracle, all by name, and read where they are indexed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from documents import PAGES, below
from mpimbs import Batch, InputError, load, simulate, system_from
from mpimbs.dynamics.quantities import CALLED, DECLARED
from mpimbs.files.motion import RunFile
from oracles import dense
from oracles.random_systems import random_system
from run.event_systems import varied
from tolerances import assert_close


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("chain", "settings", "tolerance"),
    [
        (True, {}, "loads"),
        (False, {}, "loads"),
        (True, {"coupling": "dca"}, "loads of dca"),
        (True, {"coupling": "pcg"}, "tied"),
        (True, {"lanes": 4}, "loads"),
    ],
    ids=["chain", "tree", "dca", "pcg", "lanes"],
)
def test_power_of_joints(comm: MPI.Comm, chain: bool, settings: dict[str, Any], tolerance: str) -> None:
    """What drives each joint (the oracle's generalized force) times its speeds."""
    system, q, u, _ = random_system(3, comm.size + 19, chain, wrenches=True)
    asked: dict[str, Any] = {"every": 1e-4, "sample": "q,u,power", "dt": 1e-4, "integrator": "rk4", "state": (q, u)}
    result = simulate(system, 2e-4, comm, **asked, **settings)
    if comm.rank == 0:
        c = system.columns()
        bodies = np.repeat(np.arange(c.n), np.diff(c.u_offset))
        for t, q, u, power in zip(result.t, result.q, result.u, result.power, strict=True):
            flows = (dense.generalized_forces(c, q, u, t=t) * u).astype(float)
            expected = np.bincount(bodies, flows, minlength=c.n)
            assert_close("power", power, expected, tolerance, scale=np.abs(flows).max())


@pytest.mark.parametrize("spec", ["coupled_loops", "four_bar:3"])
def test_power_in_loops(comm: MPI.Comm, tmp_path_factory: Any, spec: str) -> None:
    """Of a torque its power, of other joints none, whatever loops carry; of some bodies, in memory and in a file."""
    system = system_from(spec)
    name = system.name_of(1)
    system.set_torque(name, lambda t: 30.0 + t)
    path = comm.bcast(tmp_path_factory.mktemp("power") / "out.h5" if comm.rank == 0 else None)
    asked: dict[str, Any] = {"every": 0.01, "dt": 0.005, "integrator": "rk4"}
    whole = simulate(system, 0.05, comm, sample="q,u,power", **asked)
    simulate(system, 0.05, comm, sample=f"u:{name},power:{name}", output=path, **asked)
    comm.Barrier()
    some = load(path)
    expected = (30.0 + some.t) * some.u[:, 0]
    assert_close("some", some.power[:, 0], expected, "loads")
    if comm.rank == 0:
        others = np.delete(whole.power, 1, axis=1)
        assert_close("others", others, np.zeros_like(others), "loads", scale=np.abs(expected).max())
        assert np.array_equal(whole.power[:, 1:2], some.power)


def test_the_page_names_all_quantities() -> None:
    table = below(PAGES / "howto/outputs.md", "Quantities").strip().split("\n\n")[0]
    rows = [line.split("|")[1:5] for line in table.split("\n")]
    told = {name.strip(" `"): (asked.strip(" `"), unit.strip()) for name, asked, unit, _ in rows[2:]}
    assert told == {each.name: (each.asked_for, each.unit) for each in DECLARED}


@pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="motions are on one rank")
def test_columns_are_read_where_they_are_indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = simulate("spatial_chain:5", 0.5, every=0.05, loads=True)
    simulate("spatial_chain:5", 0.5, every=0.05, loads=True, output=tmp_path / "out.h5")
    looks: list[Any] = []
    original = RunFile.read

    def read(self: RunFile, place: str, name: str, at: Any = None) -> Any:
        found = original(self, place, name, at)
        looks.append((name, np.size(found)))
        return found

    monkeypatch.setattr(RunFile, "read", read)
    motion = load(tmp_path / "out.h5").there
    for at in (3, -1, slice(2, 5), slice(None, None, 3), (slice(1, 3), 2), (4, slice(1, 3)), (slice(None), 1)):
        for name in ("q", "load", "tension"):
            assert np.array_equal(motion[name][at], kept.there.array(CALLED[name].name)[at]), (name, at)
    assert max(size for name, size in looks if name == "q") < kept.q.size
    assert len(motion["u"]) == 11 and np.array_equal(motion["u"], kept.u)
    looks.clear()
    body = load(tmp_path / "out.h5").body(motion.system.name_of(2))
    assert np.array_equal(body.load, kept.loads[:, 2]) and ("loads", 11 * 6) in looks
    with pytest.raises(InputError, match="has kept no power; run it again with power among its samples"):
        motion["power"]
    with pytest.raises(InputError, match="unknown quantity 'speed'"):
        motion["speed"]


@pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="motions are on one rank")
def test_columns_of_structures_and_of_copies(tmp_path: Path) -> None:
    simulate(varied(), 0.5, every=0.05, loads=True, output=tmp_path / "out.h5")
    changing = load(tmp_path / "out.h5").there
    assert np.array_equal(changing["energy"][2:9:3], changing.energy[2:9:3])
    assert np.array_equal(changing["load"][2:9, 1], changing.loads[2:9, 1])
    with pytest.raises(InputError, match="its columns change with the structure"):
        changing["q"]
    Batch("chain:3", 4).simulate(0.2, every=0.05, output=tmp_path / "copies.h5")
    copies = load(tmp_path / "copies.h5").there
    assert np.array_equal(copies["q"][1:3, 2], copies.q[1:3, 2]) and np.array_equal(copies["t"], copies.t)
    assert np.array_equal(copies.copy(2)["q"][1:3, 1], copies.q[1:3, 2, 1])
