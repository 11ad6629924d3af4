"""The package's own explicit steps: tableaux, states between the ends of steps, names, restarts."""

from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from mpi4py import MPI
from scipy.integrate import solve_ivp
from scipy.integrate._ivp import dop853_coefficients
from scipy.integrate._ivp.rk import RK23, RK45

from mpimbs.base.errors import InputError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.state_derivative import StateDerivative
from mpimbs.model import BodyMotion, Event, System, system_from
from mpimbs.run.restart import restart
from mpimbs.run.run import simulate
from mpimbs.run.simulation import Simulation
from mpimbs.stepping.integrator import Integrator
from mpimbs.stepping.integrators import make_integrator
from mpimbs.stepping.runge_kutta import RungeKutta
from mpimbs.stepping.schemes import Accuracy
from mpimbs.stepping.settings import Checkpoints
from mpimbs.stepping.stage_matrix import StageMatrix
from mpimbs.stepping.stage_steps import Parts, StageSteps
from mpimbs.stepping.tableaux import TABLEAUX
from oracles.mechanisms import four_bar
from run.motions import tumbler
from tolerances import assert_close

TIGHT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9}


@pytest.mark.ranks(1)
def test_tableaux_are_those_of_scipy() -> None:
    for name, theirs in (("bs3", RK23), ("dopri5", RK45)):
        ours, s = TABLEAUX[name], TABLEAUX[name].stages
        for found, wanted in (
            (ours.a[:s, : theirs.A.shape[1]], theirs.A), (ours.a[s, :s], theirs.B), (ours.c[:s], theirs.C),
            (np.abs(ours.errors[0]), np.abs(theirs.E)), (ours.dense[:, : theirs.P.shape[1]], theirs.P),
        ):  # fmt: skip
            np.testing.assert_allclose(found, np.asarray(wanted)[: len(found)], atol=1e-15)
    ours = TABLEAUX["dop853"]
    for found, wanted in (
        (ours.a, dop853_coefficients.A), (ours.c, dop853_coefficients.C),
        (ours.errors, [dop853_coefficients.E5, dop853_coefficients.E3]),
    ):  # fmt: skip
        np.testing.assert_allclose(found, wanted, atol=2e-15)


def exponential(name: str, size: float) -> StageSteps:
    """One step of y' = -y and of u' = cos t, from 1 and 0, with the rates between its ends."""
    steps = StageSteps(name, Accuracy(dt=size), np.array([1.0, 0.0]), 1, 1, np.zeros(0, np.int64))

    def evaluate(t: float, state: Parts, row: int) -> None:
        steps.rows[row][0][:] = -state[0][0], np.cos(t)

    gamma = steps.tableau.gamma

    def solve(r: np.ndarray, x: np.ndarray) -> None:
        x[:] = gamma * r / (1.0 - gamma * size * np.array([0.4, -0.7]))  # any J: the order is the same

    steps.step = size
    steps.attempt(size, evaluate, solve if gamma else None)
    assert steps.conclude(0.0)[1]
    if steps.tableau.between_takes_more:
        steps.complete(evaluate, solve if gamma else None)
    return steps


NONLINEAR = np.array([1.0, 0.2, -0.5])


def nonlinear(t: float, y: np.ndarray) -> np.ndarray:
    return np.array([y[1] * y[2] + np.cos(t), -y[0] * y[2] - 0.3 * y[1], 0.5 * np.sin(y[0]) - 0.1 * y[2] ** 2])


def implicit_errors(name: str, count: int, exact: bool) -> tuple[float, float, float]:
    """Errors at 1 s, within the first step, and as estimated, with f' or numbers at random in its place."""

    def right(t: float) -> np.ndarray:
        return solve_ivp(nonlinear, (0.0, t), NONLINEAR, "DOP853", rtol=1e-13, atol=1e-13).y[:, -1]

    def evaluate(t: float, state: Parts, row: int) -> None:
        steps.rows[row][0][:] = nonlinear(t, state[0])

    def solve(r: np.ndarray, x: np.ndarray) -> None:
        x[:] = gamma * np.linalg.solve(np.eye(3) - gamma * steps.size * matrix, r)

    steps = StageSteps(name, Accuracy(dt=1.0 / count), NONLINEAR, 3, 0, np.zeros(0, np.int64))
    gamma, estimated, within, steps.step = steps.tableau.gamma, 0.0, 0.0, 1.0 / count
    matrix = np.random.default_rng(3).normal(size=(3, 3))
    for k in range(count):
        if exact:
            y, t = steps.state[0].copy(), steps.time
            matrix = np.array([nonlinear(t, y + e) - nonlinear(t, y - e) for e in 1e-6 * np.eye(3)]).T / 2e-6
        steps.attempt(1.0, evaluate, solve)
        estimated = max(estimated, float((steps.errors() * 1e-8 * (1.0 + np.abs(steps.other[0]))).max()))
        assert steps.conclude(0.0)[1]
        if k == 0:
            if steps.tableau.between_takes_more:
                steps.complete(evaluate, solve)
            within = np.abs(steps.within(0.37 / count)[0] - right(0.37 / count)).max()
    return np.abs(steps.state[0] - right(1.0)).max(), within, estimated


@pytest.mark.ranks(1)
@pytest.mark.parametrize(("name", "order"), [("rosenbrock2", 2), ("rosenbrock", 3), ("rosenbrock4", 4)])
@pytest.mark.parametrize("exact", [False, True])
def test_linearly_implicit_steps_keep_their_order_with_any_matrix(name: str, order: int, exact: bool) -> None:
    """Of steps, of states within them and of estimated errors, by halving."""
    found = np.log2(np.divide(*(implicit_errors(name, count, exact) for count in (20, 40))))
    assert (np.abs(found - order) < 0.3).all(), found


@pytest.mark.ranks(1)
@pytest.mark.parametrize(
    ("name", "order"),
    [("rk4", 3), ("bs3", 3), ("dopri5", 4), ("dop853", 7), ("rosenbrock2", 1), ("rosenbrock", 2), ("rosenbrock4", 3)],
)
def test_states_between_the_ends_of_a_step(name: str, order: int) -> None:
    """Halving a step divides their error by 2^(order + 1); at both ends they are those of the steps."""
    errors = []
    for size in (0.2, 0.1) if TABLEAUX[name].gamma else (0.8, 0.4):
        steps, worst = exponential(name, size), 0.0
        for x in np.linspace(0.05, 0.95, 19):
            state = steps.within(x * size)[0]
            worst = max(worst, float(np.abs(state - (np.exp(-x * size), np.sin(x * size))).max()))
        errors.append(worst)
        assert np.allclose(steps.within(size)[0], steps.state[0], rtol=0.0, atol=1e-13)
        assert np.allclose(steps.within(0.0)[0], (1.0, 0.0), rtol=0.0, atol=1e-13)
    assert order + 0.6 < np.log2(errors[0] / errors[1]) < order + 2.2, errors


@pytest.mark.ranks(1)
@pytest.mark.parametrize(("name", "method"), [("dopri5", "RK45"), ("dop853", "DOP853")])
def test_samples_against_scipy(name: str, method: str) -> None:
    """Between the ends of steps too, at a tolerance at which scipy's own are far nearer."""
    system = tumbler(driven=False)
    found = simulate(system, 0.5, integrator=name, every=0.5 / 57, **TIGHT)
    dynamics = Dynamics(system)
    n, udot, rates = system.nq, np.empty(system.nu), np.empty(system.nq)

    def rate(t: float, state: np.ndarray) -> np.ndarray:
        dynamics.derivative(t, state[:n].copy(), state[n:].copy(), udot, rates)
        return np.concatenate([rates, udot])

    begin = np.concatenate([dynamics.subchain.q, dynamics.subchain.u])
    exact = solve_ivp(rate, (0.0, 0.5), begin, "DOP853", found.t, rtol=3e-14, atol=1e-14).y.T
    theirs = solve_ivp(rate, (0.0, 0.5), begin, method, rtol=1e-9, atol=1e-9)
    ours = np.hstack([found.q, found.u])
    assert np.abs(ours - exact).max() < 3e-8
    assert found.steps < 1.5 * len(theirs.t)
    dynamics.close()


SYSTEMS: dict[str, Any] = {
    "hinges": lambda: system_from("spatial_chain:9"),
    "quaternions and functions": tumbler,
    "loops": lambda: four_bar(3, 1.0, -1.0),
    "damped": lambda: system_from("rope:9"),
}


def arm() -> System:
    """Six links that rub, on which servos act, and which come to rest against stops."""
    system = System(name="arm", gravity=(0.0, 0.0, -9.81))
    acting = {"stop_stiffness": 3e3, "stop_damping": 9.0, "servo_torque": 0.2, "servo_stiffness": 40.0}
    acting |= {"servo_damping": 1.0, "servo_least": -1.5, "servo_most": 1.5, "friction": 0.3, "friction_speed": 0.05}
    body = {"mass": 0.5, "center_of_mass": (0.2, 0, 0), "inertia": (0.01, 0.01, 0.01, 0, 0, 0)}
    for k in range(6):
        joint = {"type": "revolute", "axis": (0, 1, 0), "position": (0.4, 0.0, 0.0), "q": 0.3 * (-1) ** k}
        system.add(name=f"link{k}", **body, joint=joint | {"lower": -0.4, "upper": 0.4, "damping": 0.01} | acting)
    return system


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Towards which times Python has called the stages of steps, each time that it has."""
    found: list[float] = []
    by_stages = RungeKutta._by_stages
    monkeypatch.setattr(RungeKutta, "_by_stages", lambda self, t: found.append(t) or by_stages(self, t))
    return found


@pytest.mark.parametrize("tension", ["off", "auto", "on"])
def test_implicit_steps_in_compiled_code_are_those_by_stages(
    comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch, stages: list[float], tension: str
) -> None:
    """With the same bits: of what joints have, with a function, of lines whose tension comes to matter, one cut, of a
    tree, of one with a gear, a wrench and a torque over time, of loops, and of one with springs and a tendon."""
    begun: list[int] = []
    saw = StageMatrix.saw
    monkeypatch.setattr(StageMatrix, "saw", lambda self, count: begun.append(count) or saw(self, count))
    first, called, turning = arm(), arm(), system_from("rope:12")
    called.add_joint_force("link4", lambda t, q, u: -0.1 * u)  # on one rank alone Python has a say
    turning.add_event(
        Event(when=lambda t, motion: motion.position[0, 2] + 0.3, bodies=("link4",), cut=(turning.contents.name_of(9),))
    )
    tree, driven, looped = system_from("random_tree:24:3"), system_from("random_tree:24:3"), system_from("boom:2")
    names = [driven.contents.name_of(k) for k in (4, 5, 7, 9)]
    driven.set_torque(names[2], lambda t: 3.0 * np.sin(20.0 * t))
    driven.add_wrench(names[1], force=(0.0, 3.0, 5.0), frame="world")
    driven.add_gear(name="gear", joint=names[3], of=names[0], ratio=-2.0)
    stayed = system_from("random_tree:24:3")
    law = {"positions": ((0.0, 0.0, 0.0), (0.1, 0.0, 0.1)), "damping": 6.0, "rest": 0.3}
    for ends in ((names[0], names[3]), ("world", stayed.contents.name_of(20))):
        stayed.add_spring(name=ends[1], bodies=ends, stiffness=3e4, **law)
    stayed.add_spring(name="rope", bodies=(names[1], names[2]), stiffness=20.0, tension_only=True, **law)
    lower = {"lower": 0.0, "stop_stiffness": 50.0, "stop_damping": 1.0}
    stayed.add_tendon(name="tendon", joints=[names[1], names[3]], ratios=(1.0, -0.5), stiffness=300.0, **lower)
    for system in (first, called, turning, tree, driven, looped, stayed):
        stages.clear()
        given: dict[str, Any] = {"integrator": "rosenbrock4", "rtol": 1e-5, "every": 0.03, "tension": tension}
        end = 0.1 if system is looped else 0.5 if system is turning else 0.2
        one = simulate(system, end, comm, **given)
        # Also where it is seen whether tension counts, but for Python's functions, which are called a step at a time.
        left = system is driven and tension == "auto"
        assert not stages or system not in (first, tree, looped, stayed, *(() if left else (driven,)))
        with monkeypatch.context() as patch:
            patch.setattr(StageMatrix, "compiled", None)
            other = simulate(system, end, comm, **given)
        assert (one.steps, one.rejected, one.evaluations) == (other.steps, other.rejected, other.evaluations)
        if comm.rank == 0:
            for mine, theirs in zip(one.motion.segments, other.motion.segments, strict=True):
                assert np.array_equal(mine["q"], theirs["q"]) and np.array_equal(mine["u"], theirs["u"])
                assert_close("work", np.asarray(mine["work"]), np.asarray(theirs["work"]), "ranks", comm=MPI.COMM_SELF)
    assert sum(begun) > 40


def drag(t: float, motion: BodyMotion) -> tuple[Any, ...]:
    """Of each body another damping."""
    damping = np.zeros((len(motion.body), 6, 6))
    damping[:, [3, 4, 5], [3, 4, 5]] = 0.5 + 0.1 * motion.body[:, None]
    damping[:, 3, 4] = damping[:, 4, 3] = 0.1
    return 0.0, -np.einsum("nij,nj->ni", damping[:, 3:, 3:], motion.velocity), damping


@numba.njit
def ground(t, motion):  # type: ignore[no-untyped-def]
    """A stiffness towards a height, one for all, about points of theirs, and no damping."""
    stiffness, force = np.zeros((6, 6)), np.zeros_like(motion.position)
    stiffness[4, 4], stiffness[0, 0] = 20.0, 1e-3
    for k in range(len(force)):
        force[k, 1] = -20.0 * (motion.position[k, 1] + 0.05)
    return 0.0, force, None, stiffness


@pytest.mark.parametrize("spec", ["rope:9", "random_tree:12:3", "boom:2"])
def test_what_functions_give_beside_forces_is_taken_in_compiled_code(
    comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch, stages: list[float], spec: str
) -> None:
    """Damping and stiffness, of each body or one for all: with the bits of stages that Python calls."""
    for functions in ([drag], [ground], [drag, ground]):
        taken = []
        for compiled in (True, False):
            system = system_from(spec)
            for function in functions:
                point = (0.05, 0.001, -0.002) if function is ground else "center_of_mass"
                system.add_body_force(None, function, point=point, vectorized=True)
            with monkeypatch.context() as patch:
                if not compiled:
                    assert not stages
                    patch.setattr(StageMatrix, "compiled", None)
                taken.append(simulate(system, 0.1, comm, integrator="rosenbrock", rtol=1e-5, every=0.02, tension="off"))
        one, other = taken
        assert (one.steps, one.rejected, one.evaluations) == (other.steps, other.rejected, other.evaluations)
        if comm.rank == 0:
            assert np.array_equal(one.q, other.q) and np.array_equal(one.u, other.u)
        stages.clear()


@pytest.mark.parametrize("spec", ["four_bar:3", "boom:2"])
def test_steps_with_loops_in_compiled_code_are_those_by_stages(
    comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch, stages: list[float], spec: str
) -> None:
    one = simulate(spec, 0.2, comm, rtol=1e-7, every=0.05)
    assert not stages
    stages.clear()
    with monkeypatch.context() as patch:
        patch.setattr(StateDerivative, "compiled", None)
        other = simulate(spec, 0.2, comm, rtol=1e-7, every=0.05)
    assert len(stages) == other.steps + other.rejected
    assert (one.steps, one.rejected, one.evaluations) == (other.steps, other.rejected, other.evaluations)
    assert np.array_equal(one.q, other.q) and np.array_equal(one.u, other.u)


def test_many_steps_at_once_are_those_one_by_one(comm: MPI.Comm) -> None:
    steppers: list[Integrator] = []
    for several in (1, 16):
        dynamics = Dynamics(system_from("spatial_chain:8"), comm)
        held = 0.1 * np.ones(dynamics.subchain.nu)
        state = dynamics.subchain.q, dynamics.subchain.u
        steppers.append(make_integrator(dynamics, *state, "dopri5", Accuracy(1e-7, 1e-7), held=held, probed=True))
        calls = 0
        while not steppers[-1].step_towards(1.0, most=several):
            calls += 1
    one, many = steppers
    assert calls < one.steps / 4 and (one.steps, one.rejected) == (many.steps, many.rejected)
    assert np.array_equal(np.concatenate(one.parts), np.concatenate(many.parts))
    assert one.total_work() == many.total_work() != 0.0
    assert one.step_statistics() == many.step_statistics()


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["rk4", "bs3", "dopri5", "dop853", "rosenbrock4"])
@pytest.mark.parametrize("kind", ["hinges", "quaternions and functions", "damped"])
def test_restarts_have_the_same_bits_wherever_checkpoints_fall(
    comm: MPI.Comm, tmp_path: Path, name: str, kind: str
) -> None:
    folder = comm.bcast(tmp_path)
    end = 0.01 if kind == "damped" else 0.2
    settings: dict[str, Any] = {"dt": end / 40} if name == "rk4" else {"rtol": 1e-6, "atol": 1e-6}
    settings |= {"integrator": name, "every": end / 9}
    whole = simulate(SYSTEMS[kind](), end, comm, output=folder / "whole.h5", **settings)
    system: System = SYSTEMS[kind]()
    for steps in (1, 3):
        given = {"checkpoints": Checkpoints(steps=1, keep=1), "output": folder / f"cut{steps}.h5"}
        with Simulation(system, comm, t_end=end, **given, **settings) as cut:
            for _ in range(steps):
                cut.step()
            cut.save()
            cut._end("stopped: for a test")  # as a run that was killed leaves it
        again = restart(folder / f"cut{steps}.checkpoint.h5", comm, system=system if kind.startswith("quat") else None)
        assert (again.steps, again.rejected) == (whole.steps, whole.rejected)
        if comm.rank == 0:
            assert np.array_equal(again.q, whole.q) and np.array_equal(again.u, whole.u)
            assert np.array_equal(again.energy, whole.energy)
        comm.Barrier()


def test_old_names_are_told_the_new_ones(comm: MPI.Comm, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [simulate("chain:4", 0.1, comm, integrator=name) for name in ("dopri5", "5dp")]
    assert runs[0].steps == runs[1].steps
    told = capsys.readouterr().err
    assert told == ("mpimbs: note: the integrator 5dp is called dopri5 now\n" if comm.rank == 0 else "")
    for name, said in (("2a", "petsc:2a"), ("4", "rk4")):
        simulate("chain:4", 0.1, comm, integrator=name, dt=0.01)
        told = capsys.readouterr().err
        assert told == (f"mpimbs: note: the integrator {name} is called {said} now\n" if comm.rank == 0 else "")
    assert simulate("chain:4", 0.1, comm, integrator="petsc:5dp").steps > 150  # which hits its samples
    for name, more in (("petsc:", ", a NAME of: .* bdf"), ("petsc:dopri5", ", a NAME of: .* bdf"), ("dopri", "$")):
        with pytest.raises(InputError, match=rf"choose one of: rk4, bs3, dopri5, dop853, .*petsc:NAME{more}"):
            simulate("chain:4", 0.1, comm, integrator=name)
