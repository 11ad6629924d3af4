"""Quantities of samples, declared once: one of them against an oracle, all by name, and read where they are indexed."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from documents import PAGES, below
from mpi_helpers import parallel_assert
from mpimbs import Batch, InputError, Simulation, load, simulate, system_from
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.quantities import CALLED, DECLARED
from mpimbs.files.motion import RunFile
from mpimbs.model import System
from mpimbs.run import trajectory, witness
from mpimbs.run.recorder import Recorder
from mpimbs.stepping.integrator import Moments
from oracles import dense
from oracles.random_systems import random_system
from run.event_systems import varied
from run.motions import tumbler
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
        c = system.contents.columns()
        bodies = np.repeat(np.arange(c.n), np.diff(c.u_offset))
        for t, q, u, power in zip(result.t, result.q, result.u, result.power, strict=True):
            flows = (dense.generalized_forces(c, q, u, t=t) * u).astype(float)
            expected = np.bincount(bodies, flows, minlength=c.n)
            assert_close("power", power, expected, tolerance, scale=np.abs(flows).max())


@pytest.mark.parametrize("spec", ["coupled_loops", "four_bar:3"])
def test_power_in_loops(comm: MPI.Comm, tmp_path_factory: Any, spec: str) -> None:
    """Of a torque its power, of other joints none, whatever loops carry; of some bodies, in memory and in a file."""
    system = system_from(spec)
    name = system.contents.name_of(1)
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
        motion.column("speed")
    with pytest.raises(InputError, match="unknown body 'speed'"):
        motion["speed"]
    whole = load(tmp_path / "out.h5")
    assert np.array_equal(whole["q"][3], kept.q[3]) and np.array_equal(whole[motion.system.name_of(2)].load, body.load)


@pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="motions are on one rank")
def test_columns_of_structures_and_of_copies(tmp_path: Path) -> None:
    simulate(varied(), 0.5, every=0.05, loads=True, output=tmp_path / "out.h5")
    changing = load(tmp_path / "out.h5").there
    assert np.array_equal(changing["energy"][2:9:3], changing.energy[2:9:3])
    assert np.array_equal(changing["load"][2:9, 1], changing.loads[2:9, 1])
    with pytest.raises(InputError, match="its columns change with the structure"):
        changing["q"]
    result = Batch("chain:3", 4).simulate(0.2, every=0.05, output=tmp_path / "copies.h5")
    assert np.array_equal(result["q"][1:3, 2], result[2].q[1:3])
    copies = load(tmp_path / "copies.h5").there
    assert np.array_equal(copies["q"][1:3, 2], copies.q[1:3, 2]) and np.array_equal(copies["t"], copies.t)
    assert np.array_equal(copies.copy(2)["q"][1:3, 1], copies.q[1:3, 2, 1])


JOINT_WORK: dict[str, Any] = {"every": 0.05, "sample": "q,u,joint_work"}


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("make", "settings", "tolerance"),
    [
        (lambda: tumbler(driven=False), {"dt": 0.002, "integrator": "rk4"}, "joint work"),
        (lambda: tumbler(driven=False), {"rtol": 1e-8, "atol": 1e-8, "every": 0.013}, "joint work"),
        (lambda: tumbler(driven=False), {"dt": 0.002, "integrator": "rosenbrock4", "every": 0.01}, "joint work"),
        (lambda: tumbler(driven=False), {"dt": 0.0005, "integrator": "petsc:4", "every": 0.01}, "trapezium"),
        (lambda: pushed("coupled_loops"), {"dt": 0.002, "integrator": "rk4"}, "joint work"),
    ],
    ids=["steps", "within steps", "implicit", "PETSc", "loops"],
)
def test_work_of_joints(comm: MPI.Comm, make: Any, settings: dict[str, Any], tolerance: str) -> None:
    """All that joints do is what the bodies have gained in speed and height, by the oracle."""
    system = make()
    result = simulate(system, 0.4, comm, **JOINT_WORK | settings)
    if comm.rank == 0:
        gained = result.energy.sum(axis=1)
        if not system.contents.loops:  # which have no springs here
            springs = [dense.spring_energy(system.contents.columns(), q) for q in result.q]
            gained = np.array([sum(dense.energy(system, *state)) for state in zip(result.q, result.u, strict=True)])
            gained = gained - springs
        gained = (gained - gained[0]).astype(float)
        assert np.abs(gained).max() > 0.1
        assert_close("work", result.joint_work.sum(axis=1), gained, tolerance)


def pushed(spec: str) -> System:
    """A model with a torque that changes, at the second body."""
    system = system_from(spec)
    system.set_torque(system.contents.name_of(1), lambda t: 30.0 * np.cos(9.0 * t))
    return system


def test_work_of_joints_on_which_forces_are_held(comm: MPI.Comm) -> None:
    with Simulation("chain:3", comm, t_end=0.4, rtol=1e-9, atol=1e-9, **JOINT_WORK) as run:
        for t, torque in ((0.11, 5.0), (0.21, -9.0), (0.31, 0.0)):
            run.advance(t)
            before = run.loads()
            run.set_torque(run.system.name_of(1), torque)  # of one rank
            parallel_assert(not np.allclose(run.loads(), before), "other forces, other loads", comm)
        result = run.finish()
    if comm.rank == 0:
        gained = result.energy.sum(axis=1) - result.energy[0].sum()
        assert_close("held", result.joint_work.sum(axis=1), gained, "joint work")


@pytest.mark.parametrize("spec", ["coupled_loops", "spatial_chain:9"])
def test_quantities_of_a_simulation_in_hand(comm: MPI.Comm, spec: str) -> None:
    """What the sample of that time has, under any of its names, on all ranks; also of what samples don't have."""
    asked: dict[str, Any] = {"every": 0.1, "sample": "q,u,pose,load,power,joint_work", "dt": 0.01, "integrator": "rk4"}
    whole = comm.bcast(simulate(pushed(spec), 0.3, comm, **asked).motion)
    names = [each for each in DECLARED if not {"iterative", "witness"} & {*each.needs}]
    with Simulation(pushed(spec), comm, t_end=0.3, **asked) as run:
        run.advance(0.2)
        for each in names:
            sampled = whole.array(each.name)
            if sampled is not None and each.name != "step_size":
                scale = max(np.abs(sampled).max(), 1e-3)
                assert_close(
                    each.name, run.quantity(each.asked_for), sampled[2], "runs on ranks", scale=scale, comm=comm
                )
        body = run.system.name_of(2)
        assert np.array_equal(run.quantity("load", body), run.loads()[2:3])
    with Simulation(spec, comm, t_end=0.3, sample="q") as run:
        assert run.quantity("power").shape == (run.system.n_bodies,)
        for name, bodies, words in (
            ("joint_work", (), "is known where samples have it"),
            ("iterations", (), "there is none now"),
            ("speed", (), "unknown"),
            ("energy", (body,), "is not of bodies"),
        ):
            with pytest.raises(InputError, match=words):
                run.quantity(name, *bodies)


@pytest.mark.parametrize("spec", ["chain:6", "four_bar:2"])
def test_questions_between_steps_change_nothing_of_a_run(comm: MPI.Comm, spec: str) -> None:
    """Neither its motion, nor what it tells of its steps: what looks at them goes by the number of evaluations."""
    told = []
    for asks in (False, True):
        run = Simulation(spec, comm, t_end=2.0, rtol=1e-9, every=0.5)
        while run.time < 2.0:
            run.step()
            if asks:
                run.loads()
        result = run.close()
        told.append((result.q[-1].tolist() if comm.rank == 0 else [], result.evaluations, result.step_sizes))
    parallel_assert(told[0] == told[1] and told[0][1] > 400, str(told), comm)


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("spec", ["spatial_chain:9", "four_bar:2", "coupled_loops", "random_tree:9:4"])
def test_samples_of_one_step_are_those_taken_alone(comm: MPI.Comm, spec: str) -> None:
    """Taken together, hundreds in a step, they have the bits of one sample in many steps, and its state's energy."""
    system = system_from(spec)
    bodies = ("world", system.contents.name_of(1))
    system.add_spring(
        name="spring", bodies=bodies, positions=((0, 0, 0.3), (0, 0.1, 0)), stiffness=3.0, rest=0.1, damping=0.1
    )
    few, many = (simulate(system, 0.125, comm, rtol=1e-5, atol=1e-5, every=2.0**-k) for k in (4, 13))
    most = comm.bcast(1024 / many.steps if comm.rank == 0 else 0.0)
    parallel_assert(most > 80, f"{most} samples a step", comm)
    if comm.rank == 0:
        assert (few.steps, few.evaluations) == (many.steps, many.evaluations)
        for name in ("t", "q", "u", "energy", "work", *(("loop_violation",) if len(system.contents.loops) else ())):
            assert np.array_equal(getattr(few, name), getattr(many, name)[::512]), name
    with closing(Dynamics(system, comm)) as dynamics:
        q, u = comm.bcast((many.q[77], many.u[77]) if comm.rank == 0 else None)
        own = q[dynamics.gather_q.part], u[dynamics.gather_u.part]
        energy = dynamics.energy_and_momentum(*own)[:2]
    assert comm.rank or np.array_equal(energy, many.energy[77])


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        ("spatial_chain:9", {"rtol": 1e-8, "atol": 1e-8}),
        ("free_chain:9", {"rtol": 1e-8, "atol": 1e-8}),
        ("chain16", {"dt": 2.0**-9}),
        ("four_bar:3", {"rtol": 1e-8, "atol": 1e-8}),
        ("coupled_loops", {"rtol": 1e-9, "atol": 1e-9, "projection": "velocities"}),
        ("spatial_chain:11", {"integrator": "rosenbrock", "rtol": 1e-6, "atol": 1e-6}),
        ("chain16", {"integrator": "rk4", "dt": 2.0**-11}),  # at the ends of steps; within them it takes evaluations
        ("four_bar:3", {"integrator": "dop853", "dt": 2.0**-10}),
    ],
    ids=lambda value: value if isinstance(value, str) else str(next(iter(value.values()))),
)
def test_samples_that_steps_pass(
    comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch, spec: str, settings: dict[str, Any]
) -> None:
    """Many steps of one call, with their samples, take and check what steps one by one do, bit for bit."""
    passed, record = [0], Recorder.record
    system = system_from(spec)
    system.set_torque(system.contents.name_of(1), 0.3)

    def counted(self: Recorder, states: Moments, last: bool, behind: bool = False) -> None:
        passed[-1] += len(states.t) if behind else 0
        record(self, states, last, behind)

    monkeypatch.setattr(Recorder, "record", counted)
    monkeypatch.setattr(witness, "BETWEEN", 40)
    together = simulate(system, 0.5, comm, every=2.0**-10, **settings)
    with Simulation(system, comm, t_end=0.5, every=2.0**-10, **settings) as simulation:
        passed.append(0)
        while simulation.step() < 0.5:
            pass
        alone = simulation.result
    monkeypatch.setattr(trajectory, "PASSING_NUMBERS", 1)
    one_by_one = simulate(system, 0.5, comm, every=2.0**-10, **settings)
    parallel_assert(passed[0] > 60 and passed[1] == 0, f"passed: {passed}", comm)
    assert alone.witness == together.witness and together.witness["checks"] > 2
    assert (alone.steps, alone.evaluations) == (together.steps, together.evaluations)
    if comm.rank == 0:
        names = "t", "q", "u", "energy", "work", "step_size", "constraint_violation", "equation_residual"
        for name in (*names, *(("loop_violation",) if system.contents.loops else ())):
            assert np.array_equal(getattr(alone, name), getattr(together, name)), name
            assert np.array_equal(getattr(one_by_one, name), getattr(together, name)), name
        assert abs(together.work).max() > 0.0
