"""Simulations of systems with closed loops: exact motions, through singular positions, and loops that stay closed."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.loops import ClosedLoops
from mpimbs.model import Joint, System, system_from
from mpimbs.parallel.agreement import first_ranks
from mpimbs.run.restart import restart
from mpimbs.run.result import load
from mpimbs.run.run import simulate
from mpimbs.stepping.integrator import Integrator
from mpimbs.stepping.projection import Projection
from mpimbs.stepping.settings import POSITIONS, Checkpoints
from oracles.mechanisms import four_bar, four_bar_motion
from tolerances import TOLERANCE, assert_close

TIGHT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9}


@pytest.mark.cases(1)
@pytest.mark.parametrize("model", ["four_bar:1", "four_bar_chain:1", "four_bar_chain:10", "four_bar:40"])
def test_linkages_pass_through_flat_positions(model: str) -> None:
    result = simulate(system_from(model), 20.0, **TIGHT)
    n = int(model.split(":")[1])
    assert_close("angles", result.q[:, 0], four_bar_motion(n, result.t)[:, 0], "passed", scale=1.0)
    assert result.energy_change < 1e-7 and result.steps < 2000
    assert_close("violations", result.loop_violation, 0 * result.loop_violation, "closed", scale=1.0)


# Of the Test Set for IVP Solvers, at 0.03 s.
ANDREWS = {
    "OF": 0.1581077119629904e2, "FE": -0.1575637105984298e2, "BDE": 0.4082224013073101e-1, "GE": -0.5347301163226948,
    "AG": 0.5244099658805304, "HE": 0.5347301163226948, "AH": 0.1048080741042263e1,
}  # fmt: skip
MULTIPLIERS = 0.1991753333731910e3, -0.2975531228015052e2, 0.2306654119098399e2, 0.3145271365475927e2


def test_andrews_squeezing_mechanism() -> None:
    result = simulate("andrews", 0.03, loads=True, **TIGHT)
    found = {name: result.body(name).q[-1, 0] for name in ANDREWS}
    assert_close("angles", list(found.values()), list(ANDREWS.values()), "run", scale=10.0)
    beta = result.body("OF").q[:, 0]
    assert np.abs(result.energy.sum(axis=1) - result.energy[0].sum() - 0.033 * (beta - beta[0])).max() < 5e-9
    assert_close("violations", result.loop_violation, 0 * result.loop_violation, "closed", scale=1.0)
    for loop, body in enumerate(("BDE", "GE")):
        angle = sum(found[name] for name in {"BDE": ("BDE",), "GE": ("AG", "GE")}[body])
        x, y = result.loop_loads[-1, loop, 3:5]
        force = np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y
        assert_close(f"force on {body}", force, MULTIPLIERS[2 * loop : 2 * loop + 2], "force at the end")


@pytest.mark.cases(2)
@pytest.mark.parametrize("model", ["five_bar", "coupled_loops", "ring:8", "boom:2", "track:9"])
def test_loops_stay_closed(model: str) -> None:
    t_end = 2.0 if model[-2] == ":" else 10.0
    result = simulate(model, t_end)
    assert_close("violations", result.loop_violation, 0 * result.loop_violation, "closed", scale=1.0)
    assert result.energy_change < 1e-5
    assert "projection: positions" in result.summary() and "violations: after steps" in result.summary()


def test_drift_without_projection_and_with_stabilisation() -> None:
    system = four_bar(1, 1.3, -0.2)
    system.contents.loops[0] = system.contents.loops[0].model_copy(update={"positions": ((1, 0, 0), (0.9, 0, 0))})
    closed = simulate(system, 2.0, integrator="rk4", dt=0.01)
    runs = {}
    for kind in ("none", "velocities"):
        system_closed = closed.q[0], closed.u[0]
        runs[kind] = simulate(system, 2.0, integrator="rk4", dt=0.01, projection=kind, state=system_closed)
    stabilised = simulate(
        system, 2.0, integrator="rk4", dt=0.01, projection="none", stabilisation=0.05, state=(closed.q[0], closed.u[0])
    )
    drift = {name: run.loop_violation[:, 0, 0].max() for name, run in runs.items()}
    assert drift["none"] > 3 * drift["velocities"] > 1e-10
    assert stabilised.loop_violation[:, 0, 0].max() < 0.5 * drift["none"]
    assert closed.loop_violation.max() < TOLERANCE["closed"][0]
    assert runs["none"].loops["evaluations"] == 0 and not runs["none"].loops["left"]["positions"][1]


def opened() -> System:
    system = system_from("four_bar:2")
    system.contents.loops[1] = system.contents.loops[1].model_copy(update={"positions": ((1.05, 0, 0), (1, 0, 0))})
    return system


def test_a_run_closes_loops_at_its_begin() -> None:
    result = simulate(opened(), 0.1)
    assert result.loops["moved"][0].what == "coordinate" and result.loops["moved"][0].amount > 1e-3
    assert "closed, which changed most the coordinate of body" in result.summary()
    assert_close("violations", result.loop_violation, 0 * result.loop_violation, "closed", scale=1.0)
    assert not simulate("four_bar:2", 0.1).loops["moved"]


def test_loops_that_are_open_or_can_not_close(tmp_path: Path) -> None:
    output = tmp_path / "out.h5"
    with pytest.raises(InputError, match=r"'pin_1' are 0.05 apart.*mpimbs assemble.*`projection='none'`"):
        simulate(opened(), 0.1, projection="none", output=output)
    system = opened()
    system.contents.loops[1] = system.contents.loops[1].model_copy(update={"positions": ((5, 0, 0), (1, 0, 0))})
    with pytest.raises(InputError, match=r"loop 'pin_1' can't be closed: it stays open by "):
        simulate(system, 0.1, output=output)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("setting", [{"projection": "none"}, {"stabilisation": 0.1}])
def test_settings_of_loops_need_loops(setting: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"`{next(iter(setting))}` is for closed loops, and 'chain.*' has none"):
        simulate("chain:4", 0.1, **setting)


def test_output_has_violations_and_loads(tmp_path: Path) -> None:
    place = tmp_path / "out.h5"
    kept = simulate("four_bar:3", 0.1, loads=True, poses=True)
    simulate("four_bar:3", 0.1, loads=True, poses=True, output=place)
    found = load(place)
    for name in ("loop_violation", "loop_loads", "loads", "q"):
        assert_close(name, getattr(found, name), getattr(kept, name), "exact")
    assert found.loop_loads.shape == (201, 3, 6) and found.loop_violation.shape == (201, 3, 2)
    assert json.loads(json.dumps(kept.loops)) == found.loops
    with h5py.File(place) as file:
        assert [name.decode() for name in file["model/loop"]] == ["pin_0", "pin_1", "pin_2"]
    assert simulate("chain:4", 0.1).loop_violation is None


def test_restart_goes_on_with_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through singular positions too."""
    whole, part = tmp_path / "whole.h5", tmp_path / "part.h5"
    settings: dict[str, Any] = {"every": 0.25, "loads": True, **TIGHT}
    simulate("four_bar:5", 6.0, output=whole, **settings)
    step, left = Integrator.step_towards, [150]

    def dies(self: Integrator, target: float, *_: float) -> bool:
        left[0] -= 1
        if not left[0]:
            raise SimulationError("died")
        return step(self, target)

    monkeypatch.setattr(Integrator, "step_towards", dies)
    with pytest.raises(SimulationError, match="died"):
        simulate("four_bar:5", 6.0, output=part, checkpoints=Checkpoints(steps=40), **settings)
    monkeypatch.undo()
    restart(tmp_path / "part.checkpoint.h5")
    one, other = load(whole), load(part)
    for name in ("t", "q", "u", "loop_violation", "loop_loads"):
        assert_close(name, getattr(other, name), getattr(one, name), "exact")
    assert (other.steps, other.rejected, other.loops) == (one.steps, one.rejected, one.loops)


def test_speeds_beyond_all_numbers_are_told(comm: MPI.Comm) -> None:
    """Whose squares overflow where loops are closed: no state that is not finite goes on."""
    with closing(Dynamics(system_from("four_bar:3"), comm)) as dynamics:
        projection = Projection(dynamics, POSITIONS)
        q, u = projection.begin(dynamics.subchain.q, dynamics.subchain.u)
        _, closed = projection(q, u + 1e100 * np.arange(len(u)))
        parallel_assert(bool(np.isfinite(closed).all()), f"{closed}", comm)
        with np.errstate(all="ignore"), pytest.raises(SimulationError, match="speeds that are no longer finite"):
            projection(q, u + 1e200 * np.arange(1, 1 + len(u)))


@pytest.mark.parametrize("compiled", [True, False])
def test_a_step_whose_loops_do_not_close(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    """One far too long, which is tried again shorter where it may be."""
    if not compiled:
        monkeypatch.setattr(ClosedLoops, "compiled", None)
    told = r"t = 0 s, step 5 s: the loops don't close: the ends of loop 'joint5' stay .* apart"
    with pytest.raises(SimulationError, match=told):
        simulate("five_bar", 50, dt=5.0, integrator="rk4", comm=MPI.COMM_SELF)


def sprung() -> System:
    """A mechanism beside which a spring between two of its bodies acts, and friction in a joint."""
    system = system_from("five_bar")
    first, last = system.contents.name_of(0), system.contents.name_of(system.n_bodies - 1)
    system.add_spring(name="s", bodies=(first, last), positions=((0, 0, 0),) * 2, stiffness=3.0, rest=0.1, damping=0.1)
    return system


def asked() -> System:
    """A mechanism with a function of Python's on a joint of one rank alone."""
    system = system_from("four_bar:5")
    system.add_joint_force(system.contents.name_of(0), lambda t, q, u: 0.1 * np.sin(t))
    return system


@pytest.mark.parametrize("model", ["four_bar:5", "five_bar", "belt", "sprung", "wheel", "damped", "asked"])
@pytest.mark.parametrize("projection", ["positions", "velocities", "none"])
def test_compiled_steps_close_loops_as_others(
    comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch, model: str, projection: str
) -> None:
    """Many in a call, through singular positions too, from what is seen there; on ranks of which some ask Python."""
    made = {"sprung": sprung, "wheel": wheel, "belt": lambda: system_from("track:6"), "asked": asked}
    made |= {"damped": lambda: wheel(damping=0.2)}
    system = made.get(model, lambda: system_from(model))()
    settings: dict[str, Any] = {"every": 0.25, "rtol": 1e-9, "projection": projection, "comm": comm}
    fast = simulate(system, 1.5, **settings)
    monkeypatch.setattr(ClosedLoops, "compiled", None)
    slow = simulate(system, 1.5, **settings)
    found = [(one.steps, one.rejected, one.evaluations, one.loops["evaluations"]) for one in (fast, slow)]
    parallel_assert(found[0] == found[1], f"{found}", comm)
    if comm.rank != 0:
        return
    assert_close("q", fast.q, slow.q, "runs", scale=1.0)
    assert fast.loops["moved"] == slow.loops["moved"]
    assert fast.energy_change < 1e-7 or model not in ("wheel", "damped")
    for name in ("left", "sampled"):
        for kind, (value, _) in fast.loops[name].items():
            assert value == pytest.approx(slow.loops[name][kind][0], rel=1e-6, abs=1e-13)


def wheel(more: bool = False, damping: float = 0.0) -> System:
    """A balance wheel in the plane, its spring along the joint of a loop, let go at 10 rad/s: it swings by 10 rad."""
    system = System("wheel", gravity=(0, 0, 0))
    inertia = (1, 1, 1, 0, 0, 0)
    system.add(name="wheel", mass=1, inertia=inertia, joint=Joint(type="planar", u=(0, 0, 10)))
    for k in range(4):  # for ranks
        joint = Joint(type="revolute", axis=(0, 0, 1), u=(1.0,))
        system.add(name=f"other{k}", parent="world", mass=1, inertia=inertia, joint=joint)
    ends = {"bodies": ("world", "wheel"), "positions": ((0, 0, 0),) * 2}
    system.add_loop(name="spring", type="revolute", axis=(0, 0, 1), stiffness=(1.0,), damping=(damping,), **ends)
    if more:
        system.add_event(time=0.5, cut=["other0"])
        system.add_event(time=1.75, cut=["other2"])
    return system


@pytest.mark.cases(2)
@pytest.mark.parametrize("integrator", ["dopri5", "petsc:5dp", "rosenbrock"])
@pytest.mark.parametrize("projection", ["positions", "none"])
def test_springs_along_loops_are_wound(comm: MPI.Comm, integrator: str, projection: str) -> None:
    """As a spring along a joint of the tree: the angle is 10 sin t, and the energy stays."""
    result = simulate(wheel(), 4.0, comm, integrator=integrator, projection=projection, every=0.25, **TIGHT)
    if comm.rank == 0:
        assert_close("angles", result.q[:, 2], 10.0 * np.sin(result.t), "runs")
        assert_close("energy", result.energy.sum(axis=1), np.full(len(result.t), 52.0), "runs")


def test_turns_outlive_events_and_restarts(comm: MPI.Comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From all ranks to the first one, and from that to all, wound by more than a turn, through two events."""
    folder, step, steps = comm.bcast(tmp_path), Integrator.step_towards, []

    def dies(self: Integrator, target: float, *_: float) -> bool:
        steps.append(target)
        if target > 2.25:
            raise SimulationError("died")
        return step(self, target)

    for before, after in ((comm.size, 1), (1, comm.size))[: comm.size]:
        output = folder / f"{before}.h5"
        with first_ranks(comm, before) as ranks:
            if ranks is not None:
                with monkeypatch.context() as patch, pytest.raises(SimulationError, match="died"):
                    patch.setattr(Integrator, "step_towards", dies)
                    kept = Checkpoints(steps=10)
                    simulate(wheel(True), 3.0, ranks, every=0.25, dt=0.01, output=output, checkpoints=kept)
        with first_ranks(comm, after) as ranks:
            if ranks is not None:
                restart(folder / f"{before}.checkpoint.h5", ranks)
        if comm.rank == 0:
            found = load(output)
            turned = 2.0 * np.arctan2(found.poses[:, 0, 6], found.poses[:, 0, 3])
            off = np.remainder(turned - 10.0 * np.sin(found.t) + np.pi, 2 * np.pi) - np.pi
            assert found.t[-1] == 3.0 and len(steps) > 0
            assert_close("angles", off, np.zeros(len(off)), "runs", scale=10.0)
        comm.Barrier()
