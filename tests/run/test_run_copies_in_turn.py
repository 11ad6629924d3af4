"""Copies one after the other: loops, given motions and implicit steps, each copy as its own simulation, bit by bit."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from mpi_helpers import parallel_assert
from mpimbs import Batch, InputError, InterruptionError, Joint, SimulationError, System, load, simulate, system_from
from mpimbs.dynamics.joint_loads import JointLoads
from mpimbs.run.restart import restart
from mpimbs.stepping.settings import Checkpoints
from run.event_systems import floating
from run.interruptions import differing, disturbed
from tolerances import assert_close

COPIES = 4
SETTINGS: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4, "every": 0.04}


def linkage(k: int) -> System:
    """A four-bar linkage with a damper of its own."""
    system = system_from("four_bar:1")
    name = system.contents.name_of(0)
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


def severed(k: int) -> System:
    """A chain that is cut at a time of its own, and caught again where a function says so."""
    system = floating(6, damping=0.2 * k)
    where: dict[str, Any] = {"positions": ((0.2, 0, 0), (0, 0, 0)), "active": False}
    system.add_loop(name="again", type="spherical", bodies=("b2", "b3"), **where)
    system.add_event(time=0.02 + 0.01 * k, cut="b3")
    system.add_event(when=lambda t, motion: t - 0.085 - 0.003 * k, bodies="b0", connect="again", gap="close")
    return system


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "loops": (linkage, {}),
    "motions": (driven, {"poses": True}),
    "rosenbrock": (stiff, {"integrator": "rosenbrock"}),
    "petsc:bdf": (stiff, {"integrator": "petsc:bdf"}),
    "events": (severed, {"sample": "q,u,pose,load,power,joint_work"}),
    "loops, fixed steps": (linkage, {"integrator": "rk4", "dt": 0.01, "rtol": None, "atol": None}),
}


def case_of(name: str) -> tuple[list[System], dict[str, Any]]:
    make, more = CASES[name]
    settings = {key: value for key, value in {**SETTINGS, **more}.items() if value is not None}
    return [make(k) for k in range(COPIES)], settings


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long) if n == "petsc:bdf" else n for n in CASES if n != "events"]
)
def test_copies_are_as_alone(comm: MPI.Comm, name: str) -> None:
    systems, settings = case_of(name)
    settings["sample"] = "q,u,load,power"
    batch = Batch(systems, comm=comm)
    result = batch.simulate(0.12, **settings)
    assert (result.status, result.lanes, result.failed) == ("complete", 1, {})
    assert f"{COPIES} copies (one after the other)" in result.summary()
    kept = ["q", "u", "energy", "loads", "power", *(["poses"] if "poses" in settings else [])]
    kept += ["loop_violation", "loop_loads"] if systems[0].contents.loops else []
    found = comm.bcast([getattr(result, name) for name in kept] if comm.rank == 0 else None)
    own = [simulate(systems[k], 0.12, **settings, comm=MPI.COMM_SELF) for k in range(batch.first, batch.last)]
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

    systems[1].add_joint_force(systems[1].contents.name_of(0), tears)
    far = linkage(3)
    far.add_loop(
        name="far", type="spherical", bodies=("world", far.contents.name_of(0)), positions=((99, 0, 0), (0, 0, 0))
    )
    systems[3] = far
    result = Batch(systems, comm=comm).simulate(0.12, **settings)
    assert result.status == "complete" and list(result.failed) == ["1", "3"]
    assert 0.0 < result.failed["1"][0] <= 0.05 and "ValueError('torn')" in result.failed["1"][1]
    assert result.failed["3"][0] == 0.0 and "far" in result.failed["3"][1]
    if comm.rank == 0:
        assert result.q is not None and clean.q is not None
        assert np.array_equal(result.q[:, [0, 2]], clean.q[:, [0, 2]])
        later = np.flatnonzero(result.t > result.failed["1"][0]).size
        assert np.isnan(result.q[:, [1, 3], 0]).sum(axis=0).tolist() == [later, 4] and later < 4


def test_a_copy_that_is_wrong_ends_alone(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the sample where its accelerations are checked; all are checked twice as runs of their own would be."""
    systems, settings = case_of("loops")
    batch = Batch(systems, comm=comm)
    clean = batch.simulate(0.12, **settings)
    assert clean.witness["checks"] == 2 * COPIES and clean.witness["copies"] == COPIES
    assert clean.witness["loops"][1].startswith(("0: ", "1: ", "2: ", "3: "))
    heavy = systems[2]
    right: Any = JointLoads.residual

    def residual(self: JointLoads, *given: Any, **more: Any) -> Any:
        found = right(self, *given, **more)
        return (
            found._replace(motion=1e-3) if self._divided.system.loads.modules is heavy.contents.loads.modules else found
        )

    monkeypatch.setattr(JointLoads, "residual", residual)
    result = batch.simulate(0.12, **settings)
    assert list(result.failed) == ["2"] and result.failed["2"][0] == 0.0
    assert "leave 1.0e-03 of the forces at body" in result.failed["2"][1]
    if comm.rank == 0:
        assert result.q is not None and clean.q is not None
        assert np.array_equal(result.q[:, [0, 1, 3]], clean.q[:, [0, 1, 3]])


def test_events_of_copies(comm: MPI.Comm, tmp_path: Path) -> None:
    """At each one's own times, bit by bit as alone; a joint that is cut has no coordinates from then on."""
    systems, settings = case_of("events")
    output = comm.bcast(tmp_path) / "out.h5"
    batch = Batch(systems, comm=comm)
    kept = batch.simulate(0.12, **settings)
    result = batch.simulate(0.12, output=output, **settings)
    assert result.status == "complete" and not result.failed and f"8 events in {COPIES} of 4 copies" in result.summary()
    names = ("energy", "poses", "loads", "power", "joint_work")
    found = comm.bcast({name: getattr(result, name) for name in names} if comm.rank == 0 else None)
    bodies = comm.bcast({name: result.body(name) for name in ("b0", "b3", "b5")} if comm.rank == 0 else None)
    for k in range(batch.first, batch.last):
        own = simulate(systems[k], 0.12, **settings, comm=MPI.COMM_SELF)
        assert [event["time"] for event in own.events] == [0.02 + 0.01 * k, pytest.approx(0.085 + 0.003 * k)]
        assert result.events[str(k)] == own.events and all(
            np.array_equal(found[n][:, k], getattr(own, n)) for n in names
        )
        for name, history in bodies.items():
            size = history.q.shape[-1]
            parts = [q if q.shape[1] == size else np.full((len(q), size), np.nan) for q in own.body(name).q]
            assert np.array_equal(history.q[:, k], np.concatenate(parts), equal_nan=True), name
    if comm.rank == 0:
        again = load(output)
        assert again.events == result.events == kept.events
        for name in ("q", "u", *names):
            assert np.array_equal(getattr(again, name), getattr(kept, name), equal_nan=True), name
        late = again.t > 0.05
        assert np.isnan(again.body("b3").q[late]).all() and np.isfinite(again["1"].body("b3").position).all()


def test_a_copy_alone_that_opens_its_loop(comm: MPI.Comm) -> None:
    """What loops have is not kept, of any copy; all else goes on."""
    systems = [linkage(k) for k in range(COPIES)]
    systems[2].add_event(time=0.05, cut=systems[2].contents.loops[0].name)
    result = Batch(systems, comm=comm).simulate(0.12, **SETTINGS, sample="q,load")
    assert result.status == "complete" and not result.failed and list(result.events) == ["2"]
    if comm.rank == 0:
        assert result.loop_violation is None and result.loop_loads is None
        assert np.isfinite(result.q).all() and np.isfinite(result.loads).all()


def test_copies_of_different_loops(comm: MPI.Comm) -> None:
    """One with a pin that does what another does already moves like the others; what loops have is not kept."""
    systems = [linkage(1) for _ in range(COPIES)]
    pin = systems[1].contents.loops[0]
    systems[1].add_loop(
        name="again", type=pin.type, bodies=pin.bodies, positions=pin.positions, rotations=pin.rotations
    )
    result = Batch(systems, comm=comm).simulate(0.12, **SETTINGS)
    assert result.status == "complete" and not result.failed
    if comm.rank == 0:
        assert result.loop_violation is None
        assert_close("the copy", result.q[:, 1], result.q[:, 0], "adaptive steps")


def test_events_that_cannot_be(comm: MPI.Comm) -> None:
    """Refused before anything is computed, or where the copy has got to, which is left behind."""
    systems = [severed(k) for k in range(COPIES)]
    systems[2].add_event(when="nowhere:at_all", bodies="b0", cut="b1")
    with pytest.raises(InputError, match=r"copy 2: .*nowhere"):
        Batch(systems, comm=comm).simulate(0.12, **SETTINGS)
    systems = [severed(k) for k in range(COPIES)]
    systems[1].add_event(time=0.06, connect="again")
    result = Batch(systems, comm=comm).simulate(0.12, **SETTINGS)
    assert list(result.failed) == ["1"] and result.failed["1"][0] == 0.06
    assert "whose ends are" in result.failed["1"][1] and len(result.events["1"]) == 1


def test_work_of_joints_of_copies_that_lanes_would_carry(comm: MPI.Comm) -> None:
    """Quantities that are summed over steps are those of each copy's own simulation, bit by bit."""
    batch = Batch("rope:3", COPIES, comm)
    speeds = np.outer(np.arange(COPIES), np.ones(batch.nu))
    asked = {**SETTINGS, "sample": "q,joint_work,power"}
    result = batch.simulate(0.12, state=(batch.q[0], speeds), **asked)
    assert result.lanes == 1 and not result.failed
    found = comm.bcast((result.q, result.joint_work) if comm.rank == 0 else None)
    for k in range(batch.first, batch.last):
        own = simulate("rope:3", 0.12, state=(batch.q[0], speeds[k]), **asked, comm=MPI.COMM_SELF)
        assert np.array_equal(found[0][:, k], own.q) and np.array_equal(found[1][:, k], own.joint_work)
    parallel_assert(bool(found[1][-1].any()) or comm.rank > 0, "work was done", comm)


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["loops", "rosenbrock", "events"])
def test_a_restart_gives_the_same_bits(
    comm: MPI.Comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """After a signal in the middle of an interval; every copy goes on from where it was."""
    folder = comm.bcast(tmp_path)
    systems, settings = case_of(name)
    batch = Batch(systems, comm=comm)
    batch.simulate(0.12, output=folder / "whole.h5", checkpoints=Checkpoints(steps=10**6), **settings)
    stop = disturbed(comm, monkeypatch, 4, lambda: signal.raise_signal(signal.SIGTERM))
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
        f"{system_from('four_bar:1').contents.name_of(0)}.mass": [1.0, 2.0, 3.0, 4.0],
    }
    result = Batch.of_parameters("four_bar:1", table, comm).simulate(0.04, **SETTINGS)
    assert result.status == "complete" and not result.failed
    if comm.rank == 0:
        assert result["heavy"].q is not None and not np.array_equal(result["heavy"].q, result["light"].q)


def test_copies_whose_loads_are_not_known_behind_an_event(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is bad input for a whole run leaves a copy behind: its rank does not end alone."""
    original = JointLoads.joints_and_loops

    def refuse(self: JointLoads, *given: Any) -> Any:
        if self._divided.system.loops:
            raise InputError("no loads of such loops")
        return original(self, *given)

    monkeypatch.setattr(JointLoads, "joints_and_loops", refuse)
    settings = SETTINGS | {"sample": "q,joint_work"}
    result = Batch([severed(k) for k in range(COPIES)], comm=comm).simulate(0.12, **settings)
    assert list(result.failed) == [str(k) for k in range(COPIES)]
    parallel_assert(all("s, event (" in told for _, told in result.failed.values()), str(result.failed), comm)
    with pytest.raises(SimulationError, match=r"event \(.*: no loads of such loops"):
        simulate(severed(0), 0.12, comm, **settings)
