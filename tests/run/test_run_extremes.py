"""Extremes of all steps: against all states of a run, in memory and in the file, on ranks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from mpimbs.dynamics import Dynamics
from mpimbs.model import System, system_from
from mpimbs.run.run import simulate
from mpimbs.stepping.integrator import Integrator
from mpimbs.view.recording import Recording
from mpimbs.view.scene import tension_colors
from run.motions import tumbler
from tolerances import assert_close


def states(monkeypatch: pytest.MonkeyPatch, system: System, t_end: float, **settings: Any) -> tuple[np.ndarray, list]:
    """Times and states [q, u] of all steps of a run on this rank alone."""
    found: list[tuple[float, np.ndarray, np.ndarray]] = []
    original = Integrator.step_towards

    def step_towards(self: Integrator, target: float, *_: float) -> bool:
        if not found:
            found.append((self.time, self.q, self.u))
        reached = original(self, target)
        found.append((self.time, self.q, self.u))
        return reached

    with monkeypatch.context() as patch:
        patch.setattr(Integrator, "step_towards", step_towards)
        simulate(system, t_end, **settings, comm=MPI.COMM_SELF)
    return np.array([t for t, _, _ in found]), [(q, u) for _, q, u in found]


def tensions(system: System, loads: np.ndarray) -> np.ndarray:
    """What of the force by the parent points away from the center of mass [samples, n]."""
    center = [body.center_of_mass / np.linalg.norm(body.center_of_mass) for body in system.contents.bodies()]
    return np.array([[-load[3:] @ way for load, way in zip(of, center, strict=True)] for of in loads])


@pytest.mark.parametrize("up", [1.0, -1.0], ids=["a post", "a plumb"])
def test_a_post_is_pushed_and_a_plumb_is_pulled(comm: MPI.Comm, tmp_path: Path, up: float) -> None:
    """The same sign in extremes, in what is drawn and in colors."""
    system = System("post", gravity=(0, -9.81, 0))
    for k in range(comm.size):
        joint = {"type": "revolute", "damping": 100.0} if k == 0 else {"type": "fixed"}
        system.add(
            name=f"b{k}", parent="world", mass=1.0, center_of_mass=(0, up, 0), inertia=(1, 1, 1, 0, 0, 0), joint=joint
        )
    path = comm.bcast(tmp_path) / "out.h5"
    result = simulate(system, 0.01, comm, output=path, extremes=True, loads=True, every=0.005)
    comm.Barrier()
    weight = -9.81 * up
    assert f"tension {weight:.4g} N (" in result.summary()
    if comm.rank == 0:
        recording = Recording(path)
        assert np.allclose(recording.tension_at(0.007), weight) and recording.most_tension == pytest.approx(9.81)
        red, _, blue = tension_colors(np.array([weight]), 9.81)[0]
        assert (red > 1.5 * blue) == (up < 0) and (blue > 1.5 * red) == (up > 0)


@pytest.mark.parametrize("spec", ["tumbler", "chain:7"])
def test_extremes_of_all_steps(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch, spec: str) -> None:
    system = tumbler() if spec == "tumbler" else system_from(spec)
    settings: dict[str, Any] = {"every": 0.4, "dt": 0.02, "loads": True, "extremes": True}
    result = simulate(system, 0.4, comm, **settings)
    found = comm.bcast(result.extremes)
    times, reached = states(monkeypatch, system, 0.4, every=0.4, dt=0.02)
    alone = Dynamics(system, comm=MPI.COMM_SELF)
    loads = [alone.joint_loads(q, u, t=t) for t, (q, u) in zip(times, reached, strict=True)]
    expected = {
        "q": np.array([q for q, _ in reached]), "u": np.array([u for _, u in reached]),
        "kinetic_energy": np.array([alone.energy_and_momentum(q, u)[:1] for q, u in reached]),
        "tension": tensions(system, np.array(loads)),
        "moment": np.linalg.norm([load[:, :3] for load in loads], axis=2),
    }  # fmt: skip
    alone.close()
    assert set(found) == set(expected)
    for name, values in expected.items():
        scale = max(float(np.abs(values).max()), 1.0)  # hinges pass no moment
        least, least_time, most, most_time = found[name]
        assert_close(f"smallest {name}", least, values.min(axis=0), "runs on ranks", scale, comm)
        assert_close(f"largest {name}", most, values.max(axis=0), "runs on ranks", scale, comm)
        if np.ptp(values) > 1e-6 and name != "q":
            clear = np.ptp(values, axis=0) > 1e-3 * scale
            assert np.allclose(least_time[clear], times[values.argmin(axis=0)][clear], rtol=0, atol=1e-9)
            assert np.allclose(most_time[clear], times[values.argmax(axis=0)][clear], rtol=0, atol=1e-9)
    line = result.summary().splitlines()[-1]
    found_at = np.unravel_index(np.abs(expected["tension"]).argmax(), expected["tension"].shape)
    body, peak = system.contents.name_of(int(found_at[1])), expected["tension"][found_at]
    assert line.startswith("extremes of all steps: ") and f"tension {peak:.4g} N ('{body}', t = " in line
    assert f"to {expected['kinetic_energy'].max():.4g} J" in line


def test_peaks_lie_between_samples(comm: MPI.Comm) -> None:
    """A swing from one side to the other, seen at its ends only."""
    system = System("swing", gravity=(0, -9.81, 0))
    for k in range(comm.size):
        kind = {"type": "revolute", "q": 1.0} if k == 0 else {"type": "fixed"}
        system.add(name=f"b{k}", mass=1.0, center_of_mass=(0, -1, 0), inertia=(0.1, 0.1, 0.1, 0, 0, 0), joint=kind)
    result = simulate(system, 0.2, comm, every=0.2, extremes=True)
    fine = simulate(system, 0.2, comm, every=0.2)
    assert result.evaluations == fine.evaluations and not fine.extremes and "extremes" not in fine.summary()
    swing = simulate(system, 2.5, comm, every=2.5, extremes=True)
    if comm.rank == 0:
        speeds = np.abs(swing.u)
        assert np.abs(swing.extremes["u"][[0, 2]]).max() > 1.5 * speeds.max()
