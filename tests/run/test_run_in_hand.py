"""A simulation that is advanced, looked at and driven from outside, against one that runs by itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import mpimbs
from documents import PAGES, blocks
from mpi_helpers import parallel_assert
from mpimbs import (
    Batch,
    Checkpoints,
    Event,
    InputError,
    Simulation,
    SimulationError,
    System,
    load,
    open_output,
    restart,
    simulate,
    system_from,
)
from mpimbs.run.state import COORDINATES, PRESCRIBED, read_state
from run.event_systems import floating
from run.motions import tumbler
from tolerances import assert_close


@pytest.fixture
def folder(comm: MPI.Comm, tmp_path: Path) -> Path:
    """A folder that all ranks know."""
    return comm.bcast(tmp_path)


@pytest.mark.parametrize("model", ["tree:3:2", "tumbler"])
def test_a_run_in_pieces_is_the_run(comm: MPI.Comm, model: str) -> None:
    """With a fixed step, stopped between samples and at them: the same bits."""
    system = tumbler() if model == "tumbler" else system_from(model)
    whole = simulate(system, 0.02, comm, dt=1e-3, every=0.004)
    with Simulation(system, comm, t_end=0.02, dt=1e-3, every=0.004) as simulation:
        assert simulation.time == 0.0 and simulation.step() == 1e-3
        for t in (0.003, 0.004, 0.011):
            simulation.advance(t)
            assert simulation.time == pytest.approx(t, abs=1e-12)
        q, u, *_ = simulation.state
        result = simulation.finish()
    assert (result.steps, result.status, simulation.result) == (whole.steps, "complete", result)
    parallel_assert(len(q) == system.nq and len(u) == system.nu, "the whole state", comm)
    if comm.rank == 0:
        assert np.array_equal(result.t, whole.t)
        assert_close("motion", result.q, whole.q, "runs on ranks")


@pytest.mark.parametrize("integrator", ["dopri5", "rk4"])
def test_a_held_torque_is_one_of_the_model(comm: MPI.Comm, integrator: str) -> None:
    """From any moment on, its work counted; the stage that a step takes from the last one is not taken over."""
    names, system, driven = ("link1", "link4"), system_from("chain:5"), system_from("chain:5")
    settings: dict[str, Any] = {"dt": 1e-3, "integrator": integrator, "every": 0.01}
    for name, torque in zip(names, (3.0, -1.0), strict=True):
        driven.set_torque(name, torque)
    with Simulation(system, comm, **settings) as simulation:
        simulation.advance(0.02)
        begin = simulation.state
        for name, torque in zip(names, (3.0, -1.0), strict=True):
            simulation.set_torque(name, torque)
        assert simulation.torque.tolist() == [3.0, 0.0, 0.0, -1.0, 0.0]
        simulation.advance(0.05)
        found = simulation.state
        result = simulation.result
    expected = Simulation(driven, comm, state=begin, **settings)
    expected.advance(0.03)
    assert_close("state", np.hstack(found[:2]), np.hstack(expected.state[:2]), "runs on ranks")
    expected.close()
    assert result.energy_change < 1e-6, "the work of what is held is counted"


def pushed(values: Any) -> System:
    """An arm on which a torque, a servo, a wrench and a tendon act: functions of time, or numbers; and a spring, whose
    tension is a function, and a joint that follows a motion."""
    torque, servo, force, pull, tension, motion = values
    system, joint = System("arm"), {"type": "revolute", "axis": (0, 1, 0), "position": (0, 0, -0.5)}
    given = {
        "servo_stiffness": 3.0,
        "servo_damping": 0.1,
        "servo_least": -4.0,
        "servo_most": 4.0,
        "servo_torque": servo,
    }
    for k, more in enumerate(({"torque": torque}, given, {}, {})):
        body = {"mass": 1.0, "center_of_mass": (0, 0, -0.25), "inertia": (0.03, 0.03, 0.01, 0, 0, 0)}
        system.add(name=f"link{k}", joint=joint | more, wrench=[{"force": force}] if k == 2 else [], **body)
    system.add(name="led", parent="link0", joint=joint | {"position": (0.3, 0, 0), "motion": motion}, **body)
    system.add_tendon(name="cord", joints=("link1", "link3"), ratios=(1.0, -0.5), force=pull)
    system.add_spring(name="pull", bodies=("world", "link3"), positions=((2.0, 0, 0), (0, 0, -0.5)), force=tension)
    return system


@pytest.mark.parametrize("settings", [{"dt": 2e-3}, {"rtol": 1e-9, "atol": 1e-9}], ids=["fixed", "adaptive"])
@pytest.mark.parametrize("integrator", ["dopri5", "petsc:5dp"])
def test_what_functions_give_may_change_between_calls(
    comm: MPI.Comm, integrator: str, settings: dict[str, Any]
) -> None:
    """As a controller's does: a step takes nothing over from one on which something else acted. Against a simulation
    for each piece, of a model with the numbers."""
    pytest.importorskip("petsc4py" if "petsc" in integrator else "numpy")
    pieces: list[Any] = [
        (2.0, -1.0, (1.0, 0, 3.0), 0.5, 20.0, 8.0),
        (-3.0, 2.0, (-2.0, 0, 1.0), -1.0, 5.0, -12.0),
        (0.0, 5.0, (0, 0, 0), 2.0, -10.0, 0.0),
    ]
    now, led = list(pieces[0]), np.zeros(2)  # angle and speed of the joint that follows, where a piece begins

    def given(k: int) -> Any:
        return lambda t: now[k]

    def angle(s: float) -> Any:
        return led[0] + s * led[1] + 0.5 * now[5] * s**2, led[1] + now[5] * s, now[5]

    begun, state, evaluations = [0.0], None, 0
    of_state = [lambda length, rate: now[4], lambda t: angle(t - begun[-1])]
    driven = pushed([*(given(k) for k in range(4)), *of_state])
    with Simulation(driven, comm, integrator=integrator, **settings) as simulation:
        for number, piece in enumerate(pieces, 1):
            now[:] = piece
            simulation.advance(0.05 * number)
            numbers = pushed([*piece[:4], of_state[0], angle])
            with Simulation(numbers, comm, state=state, integrator=integrator, **settings) as alone:
                alone.advance(0.05)
                state = alone.state
            led, begun = np.array(angle(0.05)[:2]), [0.05 * number]
            evaluations += alone.result.evaluations
            kind = "runs on ranks" if "dt" in settings else "adaptive steps"
            assert_close(f"piece {number}", np.hstack(simulation.state[:2]), np.hstack(state[:2]), kind)
    assert simulation.result.evaluations < 1.2 * evaluations, "a change is no error of steps"


@pytest.mark.parametrize("looks", [False, True], ids=["", "looked at"])
def test_what_functions_of_the_state_give_may_change(comm: MPI.Comm, looks: bool) -> None:
    """A controller's goal and a wind; also where what they give now is looked at before it acts in a step."""
    now = [0.0, 0.0]

    def made(goal: Any, wind: Any) -> System:
        system = system_from("chain:3")
        system.add_joint_force(["link1", "link2"], lambda t, q, u: 20.0 * (goal() - q) - u)
        system.add_body_force(["link3"], lambda t, motion: (np.zeros(3), (wind() - motion.velocity) * 0.5))
        return system

    state, settings = None, {"dt": 2e-3, "integrator": "dopri5"}
    with Simulation(made(lambda: now[0], lambda: now[1]), comm, **settings) as simulation:
        for number, (goal, wind) in enumerate(((0.5, 2.0), (0.5, -7.0), (0.2, -7.0)), 1):
            now[:] = goal, wind
            if looks:
                simulation.loads("link1")
            simulation.advance(0.05 * number)
            alone = made(lambda goal=goal: goal, lambda wind=wind: wind)
            with Simulation(alone, comm, state=state, **settings) as other:
                other.advance(0.05)
                state = other.state
            assert_close(f"piece {number}", np.hstack(simulation.state[:2]), np.hstack(state[:2]), "runs on ranks")


def test_what_drives_a_loop_may_change_between_calls(comm: MPI.Comm) -> None:
    """As of joints."""
    given, now = system_from("parallelogram").contents, [0.0]

    def driven(torque: Any) -> System:
        system, (first, *others) = System("driven", gravity=given.gravity), list(given.loops)
        for body in given.bodies():
            system.add(body)
        for loop in (first.model_copy(update={"torque": torque}), *others):
            system.add_loop(loop)
        return system

    state, settings = None, {"dt": 2e-3, "integrator": "dopri5"}
    with Simulation(driven(lambda t: now[0]), comm, **settings) as simulation:
        for number, torque in enumerate((0.5, -0.7, 0.2), 1):
            now[0] = torque
            simulation.advance(0.05 * number)
            with Simulation(driven((torque,)), comm, state=state, **settings) as alone:
                alone.advance(0.05)
                state = alone.state
            assert_close(f"piece {number}", np.hstack(simulation.state[:2]), np.hstack(state[:2]), "runs on ranks")


@pytest.mark.parametrize("coupling", [{}, {"coupling": "pcg", "cuts": 2}], ids=["dcae", "pcg"])
def test_what_functions_give_may_change_over_a_restart(comm: MPI.Comm, folder: Path, coupling: dict[str, Any]) -> None:
    """A step that another torque acts in takes nothing over from the checkpoint."""
    settings: dict[str, Any] = {"dt": 2e-3, "integrator": "dopri5"} | coupling
    now, system, found = [0.0], system_from("chain:3"), {}
    system.set_torque("link2", lambda t: now[0])
    for after in (2.0, -3.0):
        now[0], output = 2.0, folder / f"out{after}.h5"
        with Simulation(
            system, comm, output=output, t_end=0.1, every=0.05, checkpoints=Checkpoints(), **settings
        ) as run:
            run.advance(0.05)
            run.save()
            state = run.state
        now[0] = after
        result = restart(output, comm, system=system)
        with Simulation(system, comm, state=state, **settings) as alone:
            alone.advance(0.05)
            found[after] = np.hstack(alone.state[:2])
        ends = np.hstack((result.q[-1], result.u[-1])) if comm.rank == 0 else np.zeros(6)
        comm.Bcast(ends)
        assert_close(f"torque {after}", ends, found[after], "runs on ranks")


def test_what_functions_give_may_change_over_a_restart_on_other_ranks(comm: MPI.Comm, folder: Path) -> None:
    """A checkpoint of other ranks does not say what they gave: rates tell that it was another torque.

    Also beside a body whose speed is a number beside which others are small.
    """
    settings: dict[str, Any] = {"dt": 2e-3, "integrator": "dopri5"}
    now, system = [2.0], system_from("chain:3")
    slider = {"type": "prismatic", "axis": (1, 0, 0), "u": (1e9,)}
    system.add(name="far", parent="world", mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=slider)
    system.set_torque("link2", lambda t: now[0])
    with Simulation(system, comm, output=folder / "out.h5", t_end=0.1, checkpoints=Checkpoints(), **settings) as run:
        run.advance(0.05)
        run.save()
    if comm.rank == 0:
        now[0] = -3.0
        result = restart(folder / "out.h5", MPI.COMM_SELF, system=system)
        with Simulation(system, MPI.COMM_SELF, **settings) as alone:
            for t, now[0] in ((0.05, 2.0), (0.1, -3.0)):
                alone.advance(t)
            for ours, right in zip((result.q[-1], result.u[-1]), alone.state[:2], strict=True):
                assert_close("other ranks", ours[:3], right[:3], "runs on ranks")
    comm.Barrier()


def test_a_restart_finds_what_hardly_changes(comm: MPI.Comm, folder: Path) -> None:
    """A torque that is other by 1e-9 over a restart has the same bits as without one: what it gave is kept."""
    now, system, found = [0.0], system_from("chain:3"), []
    system.set_torque("link2", lambda t: now[0])
    for restarts in (False, True):
        now[0], output = 2.0, folder / f"out{restarts}.h5"
        with Simulation(
            system, comm, dt=2e-3, integrator="dopri5", output=output, t_end=0.1, every=0.05, checkpoints=Checkpoints()
        ) as run:
            run.advance(0.05)
            run.save()
            run.loads()  # evaluates, of what acts now
            now[0] = 2.0 + 2e-9
            result = None if restarts else run.finish()
        result = result or restart(output, comm, system=system)
        found.append(b"" if comm.rank else result.q[-1].tobytes() + result.u[-1].tobytes())
    parallel_assert(found[0] == found[1], "other bits", comm)


def test_what_is_no_number_over_a_restart_is_named(comm: MPI.Comm, folder: Path) -> None:
    """On one rank, which compares rates of others with what a function gives now: it is asked again, not forgotten."""
    system, since, output = system_from("chain:3"), [0.06], folder / "out.h5"
    system.add_body_force(None, lambda t, at: (0.0, float("nan") if at.body == 1 and t >= since[0] else 0.0))
    with pytest.raises(SimulationError, match=r"body 'link2' is not finite at t = 0\.06 s"):
        simulate(system, 0.1, comm, output=output, every=0.01, checkpoints=Checkpoints(steps=10))
    since[0], told = 0.0, ""
    if comm.rank == 0:
        try:
            restart(output, MPI.COMM_SELF, system=system)
        except SimulationError as error:
            told = str(error)
    parallel_assert(comm.rank > 0 or "body 'link2' is not finite at t = 0.06 s" in told, told, comm)


def test_what_functions_give_again_costs_nothing(comm: MPI.Comm) -> None:
    """The same steps and bits whether a simulation is advanced once or often, and no further evaluations."""
    system = system_from("chain:3")
    system.set_torque("link2", lambda t: np.sin(30.0 * t))
    found = []
    for times in ([0.1], [0.02, 0.04, 0.06, 0.1]):
        with Simulation(system, comm, dt=2e-3, integrator="dopri5") as simulation:
            for t in times:
                simulation.advance(t)
            found.append((simulation.state.q.tobytes(), simulation.result.evaluations))
    assert found[0] == found[1]


def test_a_look_at_springs_changes_nothing(comm: MPI.Comm) -> None:
    """What it finds of a spring without a function is no change of the function of another."""
    system, found = system_from("rope:4"), []
    ends: dict[str, Any] = {"bodies": ("world", system.contents.name_of(3)), "positions": ((2.0, 0, 0), (0, 0.1, 0))}
    system.add_spring(name="plain", stiffness=30.0, rest=0.5, damping=1.0, **ends)
    system.add_spring(name="driven", force=lambda length, rate: 5.0 * length - rate, **ends)
    for looks in (False, True):
        with Simulation(system, comm, dt=1e-4, integrator="dopri5") as simulation:
            for k in range(1, 5):
                simulation.advance(0.002 * k)
                if looks:
                    simulation.loads()
            found.append((simulation.state.q.tobytes(), simulation.result.evaluations))
    assert found[0] == found[1]


def test_a_controller_holds_a_pendulum_up(comm: MPI.Comm) -> None:
    """At 1 kHz; what is held goes over a checkpoint."""
    system = system_from("chain:1")
    with Simulation(system, MPI.COMM_SELF, dt=1e-3) as simulation:
        for k in range(1, 1501):
            q, u, *_ = simulation.state
            simulation.set_torque("link1", -60.0 * (q[0] - 0.5) - 12.0 * u[0] + 9.81 * np.sin(0.5))
            simulation.advance(k * 1e-3)
        assert abs(simulation.state.q[0] - 0.5) < 0.1


def test_a_restart_goes_on_with_what_is_held(comm: MPI.Comm, folder: Path) -> None:
    settings: dict[str, Any] = {"t_end": 0.1, "every": 0.02}
    torque = np.array([2.0, 0.0, -1.0, 0.5, 0.0])
    results = []
    for name, stop in (("whole.h5", False), ("parts.h5", True)):
        path = folder / name
        simulation = Simulation("chain:5", comm, output=path, checkpoints=Checkpoints(), **settings)
        simulation.advance(0.03)
        simulation.set_torque(torque)
        simulation.advance(0.05)
        place = simulation.save()
        if stop:
            simulation.close()
            with pytest.raises(InputError, match=r"t = 0.2 s can't be reached|is closed"):
                simulation.advance(0.2)
            if comm.rank == 0:
                assert load(path).status.startswith("stopped: closed at t = 0.05 s of t_end = 0.1 s")
            comm.Barrier()
            results.append(restart(place, comm))
        else:
            results.append(simulation.finish())
    if comm.rank == 0:
        assert np.array_equal(results[0].q, load(folder / "parts.h5").q), "bit by bit"


def test_events_change_what_moves_and_what_is_held(comm: MPI.Comm) -> None:
    system = floating(6)
    system.add_event(time=0.02, cut="b3")
    before, held = system.contents.offsets()[1], np.arange(1.0, 1.0 + system.nu)
    with Simulation(system, comm) as simulation:
        simulation.set_torque(held)
        simulation.advance(0.05)
        assert simulation.result.events and simulation.system.nu > system.nu
        names = [system.contents.name_of(k) for k in range(system.n_bodies)]
        after, torque = simulation.system.offsets()[1], simulation.torque
        cut = set(simulation.result.events[0]["cut"])
        for k, name in enumerate(names):
            expected = np.zeros(6) if name in cut else held[before[k] : before[k + 1]]
            assert np.array_equal(torque[after[k] : after[k + 1]], expected), name


def test_the_state_is_saved_for_another_run(comm: MPI.Comm, folder: Path) -> None:
    with Simulation("chain:4", comm) as simulation:
        simulation.advance(0.1)
        q, u, *_ = simulation.state
        path = simulation.save(folder / "state.npz")
        comm.Barrier()
        with np.load(path) as file:
            assert np.array_equal(file["q"], q) and np.array_equal(file["u"], u)
        with pytest.raises(InputError, match="exists"):
            simulation.save(path)


def test_another_run_begins_with_the_bits_of_a_state(comm: MPI.Comm, folder: Path) -> None:
    """Quaternions, which steps leave at unit length to rounding, were scaled once more."""
    system = system_from("free_chain:4")
    with Simulation(system, comm) as simulation:
        for k in range(1, 9):
            simulation.advance(0.05 * k)
            q, u, *_ = simulation.state
            path = simulation.save(folder / f"state{k}.npz")
            comm.Barrier()
            with Simulation(
                "free_chain:4", comm, state=read_state(path, system_from("free_chain:4").contents)
            ) as other:
                parallel_assert(np.array_equal(other.state.q, q) and np.array_equal(other.state.u, u), str(k), comm)


def test_a_run_begins_where_another_has_ended(comm: MPI.Comm, folder: Path) -> None:
    """An output is the state of its last sample; of copies, of other bodies, or of some bodies alone it is none."""
    first, part, copies, cut = (folder / name for name in ("first.h5", "part.h5", "copies.h5", "cut.h5"))
    simulate("free_chain:4", 0.1, comm, output=first, every=0.05)
    with Simulation("free_chain:4", comm, state=first) as simulation:
        q, u, *_ = simulation.state
    with open_output(first) as file:
        parallel_assert(np.array_equal(file["q"][-1], q) and np.array_equal(file["u"][-1], u), comm=comm)
    with Simulation("free_chain:4", comm, state=load(first)) as simulation:
        parallel_assert(np.array_equal(simulation.state.q, q) and np.array_equal(simulation.state.u, u), comm=comm)
    system = system_from("free_chain:4").contents
    parallel_assert(read_state(first, system, COORDINATES).tau is None, comm=comm)
    simulate("free_chain:4", 0.1, comm, output=part, sample="q,u:root")
    Batch("free_chain:4", comm.size, comm).simulate(0.1, output=copies)
    changing = system_from("free_chain:4")
    changing.add_event(Event(time=0.05, cut=("x_link2",)))
    simulate(changing, 0.1, comm, output=cut)
    for place, message in (
        (first, "'bodies' names 4 bodies, system '.*' has 3; give a state of this model"),
        (part, "has no sample with u of all bodies; run again with q and u among its samples"),
        (copies, f"is of {comm.size} copies; give the state of one"),
        (cut, "at its end other joints hold than in a model"),
    ):
        with pytest.raises(InputError, match=message):
            simulate("free_chain:3" if place == first else "free_chain:4", 0.1, comm, state=str(place))
    with pytest.raises(InputError, match="array 'udot' is missing"):
        read_state(first, system, PRESCRIBED)


def test_an_error_closes_it(comm: MPI.Comm) -> None:
    system = system_from("chain:4")

    def late(t: float) -> float:
        if t > 0.05:
            raise KeyError("no more")
        return 0.0

    system.set_torque("link2", late)
    simulation = Simulation(system, comm, t_end=1.0, every=0.01)
    with pytest.raises(SimulationError, match="no more"):
        simulation.advance(0.5)
    assert simulation.result.status.startswith("stopped: ") and simulation.time == pytest.approx(0.05, abs=0.02)
    with pytest.raises(InputError, match="the simulation is closed"):
        simulation.step()
    assert "stopped" in repr(simulation)


def test_an_error_of_the_caller_leaves_the_samples(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Simulation("chain:3", output=tmp_path / "o.h5", every=0.01) as simulation:
        simulation.advance(0.05)
        1 / 0  # noqa: B018
    found = load(tmp_path / "o.h5")
    assert found.status == "stopped: ZeroDivisionError division by zero" and len(found.t) == 6


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda s: s.advance(0.05), r"t = 0.05 s can't be reached from t = 0.1 s of t_end = 1 s"),
        (lambda s: s.advance(1.5), r"t = 1.5 s can't be reached"),
        (lambda s: s.advance(float("nan")), r"t = nan s can't be reached"),
        (lambda s: s.set_torque("lnk2", 1.0), "unknown body 'lnk2'; did you mean 'link2'"),
        (lambda s: s.set_torque("link2", [1.0, 2.0]), r"the torque of joint 'link2' must be an array of shape \(1,\)"),
        (lambda s: s.set_torque([1.0, 2.0]), "the torque must be"),
        (lambda s: s.set_torque("link2", np.inf), "the torque of joint 'link2' is not finite at index 0"),
        (lambda s: s.poses("tip"), "unknown body 'tip'"),
        (lambda s: s.save(), "a checkpoint continues an output"),
        (lambda s: s.save("state.h5"), "a state is an .npz file"),
    ],
    ids=range(10),
)
def test_what_makes_no_sense_is_refused(comm: MPI.Comm, wrong: Any, words: str) -> None:
    """And it goes on."""
    with Simulation("chain:4", comm, t_end=1.0) as simulation:
        simulation.advance(0.1)
        with pytest.raises(InputError, match=words):
            wrong(simulation)
        simulation.step()


@pytest.mark.skipif(MPI.COMM_WORLD.size == 1, reason="one rank agrees with itself")
def test_ranks_that_would_wait_for_each_other(comm: MPI.Comm) -> None:
    with Simulation("chain:8", comm, t_end=1.0) as simulation:
        with pytest.raises(InputError, match=r"the ranks disagree on t: 0\.1 on rank"):
            simulation.advance(0.1 + 0.1 * (comm.rank == 1))
        simulation.advance(0.1)


def test_requests_are_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the next step is none, as an event or an advance came so near."""
    with Simulation("chain:3") as simulation:
        simulation.advance(0.1)
        stepper = simulation._run.stepper
        stepper.requests = 1
        assert stepper.step_towards(stepper.time * (1 + 1e-15)) and stepper.requests == 0


def test_an_open_end(comm: MPI.Comm, folder: Path) -> None:
    with pytest.raises(InputError, match="give the time between them with `every`"):
        Simulation("chain:4", comm, output=folder / "x.h5")
    with Simulation("chain:4", comm, output=folder / "x.h5", every=0.01) as simulation:
        with pytest.raises(InputError, match="there is no end to simulate to"):
            simulation.finish()
        simulation.advance(0.035)
    comm.Barrier()
    assert simulation.result.status == "complete" and mpimbs.Simulation is Simulation
    if comm.rank == 0:
        assert_close("times", load(folder / "x.h5").t, np.array([0.0, 0.01, 0.02, 0.03]), "dense")


def nothing_moves() -> System:
    system = System("post")
    system.add(name="post", mass=1.0, inertia=(1, 1, 1, 0, 0, 0), joint={"type": "fixed"})
    system.add(name="arm", mass=1.0, inertia=(1, 1, 1, 0, 0, 0), joint={"type": "revolute", "axis": (0, 0, 1)})
    return system


def test_a_fixed_joint_is_not_driven() -> None:
    with (
        Simulation(nothing_moves()) as simulation,
        pytest.raises(InputError, match="the joint of body 'post' is fixed"),
    ):
        simulation.set_torque("post", 1.0)


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The controller and the environment, which stands for its five seconds."""
    monkeypatch.chdir(tmp_path)
    controller, environment = blocks((PAGES / "howto/simulation-object.md").read_text(encoding="utf-8"))
    scope: dict[str, Any] = {}
    exec(controller, scope)
    assert abs(scope["result"]["link1"].q).shape == (51, 1) and scope["result"].energy_change < 1e-6
    exec(environment, scope)
    assert scope["late"] and not scope["fallen"]
    capsys.readouterr()
