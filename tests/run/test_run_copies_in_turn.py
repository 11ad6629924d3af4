"""Copies one after the other: loops, given motions and implicit steps, each copy as its own simulation, bit by bit."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from mpi_helpers import parallel_assert
from mpimbs import Batch, InputError, InterruptionError, Joint, Result, System, system_from
from mpimbs.dynamics import Dynamics
from mpimbs.run.ensembles.in_turn import TurnStepper
from mpimbs.run.restart import restart
from mpimbs.run.simulation import Simulation
from mpimbs.stepping.settings import Checkpoints
from run.interruptions import differing, disturbed

COPIES = 4
SETTINGS: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4, "every": 0.04}


def linkage(k: int) -> System:
    """A four-bar linkage with a damper of its own."""
    system = system_from("four_bar:1")
    name = system.name_of(0)
    system.add_joint_force(name, lambda t, q, u: -0.3 * k * u)
    return system


def driven(k: int) -> System:
    """A chain whose last joint follows a motion of its own."""
    system = system_from("chain:2")
    joint = Joint(type="revolute", motion=lambda t: (k * t * t, 2 * k * t, 2.0 * k))
    system.add(name="link3", parent="link2", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=joint)
    return system


def stiff(k: int) -> System:
    """A rope in a fluid that resists it, as a function of all bodies at once says."""

    def drag(t: float, motion: Any) -> Any:
        damping = np.diag([0.0, 0.0, 0.0, *[50.0 * k] * 3])
        return 0.0, -50.0 * k * motion.velocity, damping

    system = system_from("rope:3")
    system.add_body_force(None, drag, vectorized=True)
    return system


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "loops": (linkage, {}),
    "motions": (driven, {"poses": True}),
    "rosenbrock": (stiff, {"integrator": "rosenbrock"}),
    "petsc:bdf": (stiff, {"integrator": "petsc:bdf"}),
    "loops, fixed steps": (linkage, {"integrator": "rk4", "dt": 0.01, "rtol": None, "atol": None}),
}


def case_of(name: str) -> tuple[list[System], dict[str, Any]]:
    make, more = CASES[name]
    settings = {key: value for key, value in {**SETTINGS, **more}.items() if value is not None}
    return [make(k) for k in range(COPIES)], settings


def to_samples(system: System, t_end: float, settings: dict[str, Any]) -> Result:
    """Simulate, with steps that end at samples, as those of ensembles do."""
    with Simulation(system, t_end=t_end, **settings) as simulation:
        for k in range(1, round(t_end / settings["every"]) + 1):
            simulation.advance(k * settings["every"])
    return simulation.result


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long) if n == "petsc:bdf" else n for n in CASES])
def test_copies_are_as_alone(comm: MPI.Comm, name: str) -> None:
    systems, settings = case_of(name)
    settings["sample"] = "q,u,load,power"
    batch = Batch(systems, comm=comm)
    result = batch.simulate(0.12, **settings)
    assert (result.status, result.lanes, result.failed) == ("complete", 1, {})
    assert f"{COPIES} copies (one after the other)" in result.summary()
    kept = ["q", "u", "energy", "loads", "power", *(["poses"] if "poses" in settings else [])]
    kept += ["loop_violation", "loop_loads"] if systems[0].loops else []
    found = comm.bcast([getattr(result, name) for name in kept] if comm.rank == 0 else None)
    own = [to_samples(systems[k], 0.12, settings) for k in range(batch.first, batch.last)]
    for k, alone in enumerate(own, batch.first):
        expected = [getattr(alone, name) for name in kept]
        for values, like in zip(found, expected, strict=True):
            assert np.array_equal(values[:, k], like), name
    steps = comm.allgather(sum(one.steps for one in own))
    parallel_assert(result.steps == max(steps), "the rank that has taken the most steps", comm)


def test_copies_that_fail(comm: MPI.Comm) -> None:
    """One by its function, one whose loop can't be closed at the begin; the others are as without them."""
    systems, settings = case_of("loops")
    clean = Batch(systems, comm=comm).simulate(0.12, **settings)

    def tears(t: float, q: Any, u: Any) -> Any:
        if t > 0.05:
            raise ValueError("torn")
        return 0.0

    systems[1].add_joint_force(systems[1].name_of(0), tears)
    far = linkage(3)
    far.add_loop(name="far", type="spherical", bodies=("world", far.name_of(0)), positions=((99, 0, 0), (0, 0, 0)))
    systems[3] = far
    result = Batch(systems, comm=comm).simulate(0.12, **settings)
    assert result.status == "complete" and list(result.failed) == ["1", "3"]
    assert 0.03 < result.failed["1"][0] <= 0.05 and "ValueError('torn')" in result.failed["1"][1]
    assert result.failed["3"][0] == 0.0 and "far" in result.failed["3"][1]
    if comm.rank == 0:
        assert result.q is not None and clean.q is not None
        assert np.array_equal(result.q[:, [0, 2]], clean.q[:, [0, 2]])
        assert np.isnan(result.q[:, [1, 3], 0]).sum(axis=0).tolist() == [2, 3]


def test_a_copy_that_is_wrong_ends_alone(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the sample where its accelerations are checked; all are checked twice as runs of their own would be."""
    systems, settings = case_of("loops")
    batch = Batch(systems, comm=comm)
    clean = batch.simulate(0.12, **settings)
    assert clean.witness["checks"] == 2 * COPIES and clean.witness["copies"] == COPIES
    assert clean.witness["loops"][1].startswith(("0: ", "1: ", "2: ", "3: "))
    heavy = systems[2]
    right: Any = Dynamics.residual

    def residual(self: Dynamics, *given: Any, **more: Any) -> Any:
        found = right(self, *given, **more)
        return found._replace(motion=1e-3) if self.system.force_modules is heavy.force_modules else found

    monkeypatch.setattr(Dynamics, "residual", residual)
    result = batch.simulate(0.12, **settings)
    assert list(result.failed) == ["2"] and result.failed["2"][0] == 0.0
    assert "leave 1.0e-03 of the forces at body" in result.failed["2"][1]
    if comm.rank == 0:
        assert result.q is not None and clean.q is not None
        assert np.array_equal(result.q[:, [0, 1, 3]], clean.q[:, [0, 1, 3]])


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["loops", "rosenbrock"])
def test_a_restart_gives_the_same_bits(
    comm: MPI.Comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """After a signal in the middle of an interval; every copy goes on from where it was."""
    folder = comm.bcast(tmp_path)
    systems, settings = case_of(name)
    batch = Batch(systems, comm=comm)
    batch.simulate(0.12, output=folder / "whole.h5", checkpoints=Checkpoints(steps=10**6), **settings)
    stop = disturbed(comm, monkeypatch, 4, lambda: signal.raise_signal(signal.SIGTERM), TurnStepper)
    with stop, pytest.raises(InterruptionError, match=r"SIGTERM at t = .*go on with"):
        batch.simulate(0.12, output=folder / "out.h5", signals=True, **settings)
    with pytest.raises(InputError, match="has forces that are functions"):
        restart(folder / "out.checkpoint.h5", comm)
    result = restart(folder / "out.checkpoint.h5", comm, system=systems)
    assert result.status == "complete" and len(result.restarts) == 1
    if comm.rank == 0:
        assert not differing(folder / "whole.h5", folder / "out.h5")


def test_a_table_of_a_model_with_loops(comm: MPI.Comm) -> None:
    table = {
        "name": ["light", "heavy", "odd", "even"],
        f"{system_from('four_bar:1').name_of(0)}.mass": [1.0, 2.0, 3.0, 4.0],
    }
    result = Batch.of_parameters("four_bar:1", table, comm).simulate(0.04, **SETTINGS)
    assert result.status == "complete" and not result.failed
    if comm.rank == 0:
        assert result["heavy"].q is not None and not np.array_equal(result["heavy"].q, result["light"].q)
