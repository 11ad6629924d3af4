"""Functions of time and state as forces, over ranks: against loads by hand, on all couplings, and what goes wrong."""

import functools
import re
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numba
import numpy as np
import pytest
from mpi4py import MPI

from cases import accelerations, moving_state
from force_functions import as_constants, compiled_damper, compiled_drag, compiled_drag_of_all, current, loaded, motor
from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.coupling import COUPLINGS, LoadSolver
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.compiling import compile_evaluations
from mpimbs.model import BodyMotion, Joint, System, system_from
from mpimbs.run.run import simulate
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import random_system
from tolerances import assert_close

TIME = 0.7
N = 16


@functools.cache
def case(chain: bool = True, seed: int = 4) -> tuple[System, Array, Array, Array, Array, Array]:
    """A random system with functions on it, a state, and the accelerations and joint loads of it by the oracle."""
    system, *state = random_system(seed, N, chain, springs=True, wrenches=True)
    same = random_system(seed, N, chain, springs=True, wrenches=True)[0]
    q, u, tau = as_constants(same, *loaded(system), (state[0], state[1], state[2]), TIME)
    udot, loads = dense.Snapshot(same, q, u).solve(tau, TIME)
    rotation = dense.kinematics(same, q, u).rotation
    loads = np.einsum("nij,nai->naj", rotation, loads.reshape(-1, 2, 3)).reshape(-1, 6)
    return system, q, u, state[2], udot, loads


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_forces_over_ranks(comm: MPI.Comm, coupling: str) -> None:
    """Accelerations and joint loads, by every coupling and on any number of ranks, again and again."""
    system, q, u, tau, udot, loads = case()
    solver = LoadSolver("dcae", rtol=1e-14) if coupling == "pcg" else None
    with closing(Dynamics(system, comm, coupling, solver=solver)) as dynamics:
        mine, ours = dynamics.gather_q.part, dynamics.gather_u.part
        bodies = slice(dynamics.subchain.first, dynamics.subchain.last)
        dynamics.accelerations(q[mine] + 0.1, u[ours], tau[ours], 0.0)
        got = dynamics.accelerations(q[mine], u[ours], tau[ours], TIME)
        got_loads = dynamics.joint_loads(q[mine], u[ours], tau[ours], TIME)
    assert_close("accelerations", got, udot[ours], "dense", scale=np.abs(udot).max(), comm=comm)
    exact = "multipliers" if coupling == "augmented" else "dense"
    assert_close("joint loads", got_loads, loads[bodies], exact, scale=np.abs(loads).max(), comm=comm)


@pytest.mark.parametrize("seed", range(3))
def test_forces_on_a_tree(seed: int) -> None:
    system, q, u, tau, udot, _ = case(False, seed)
    assert_close("accelerations", accelerations(system, q, u, tau, TIME), udot, "dense")


def test_a_long_rope_in_lanes(comm: MPI.Comm) -> None:
    """What a function is told of bodies far from the root, on ranks that sweep in lanes, is what one rank tells."""
    told: dict[int, BodyMotion] = {}

    def spy(t: float, motion: BodyMotion) -> tuple[float, Array]:
        told[len(motion.body)] = BodyMotion(*(field.copy() for field in motion))
        return 0.0, -1e-3 * motion.velocity

    system = system_from("rope:600")
    system.add_body_force(None, spy, vectorized=True)
    system.add_joint_force(None, lambda t, q, u: -1e-6 * u, vectorized=True)
    q, u, tau = moving_state(system)
    reference = accelerations(system, q, u, tau)
    alone = told.pop(600)
    with closing(Dynamics(system, comm)) as dynamics:
        mine, ours = dynamics.gather_q.part, dynamics.gather_u.part
        compile_evaluations(dynamics)
        got = dynamics.accelerations(q[mine], u[ours], tau[ours])
        bodies = slice(dynamics.subchain.first, dynamics.subchain.last)
        seconds = dynamics.derivative.seconds()
    parallel_assert(min(seconds.values()) >= 0.0, f"{seconds}", comm)
    assert_close("accelerations", got, reference[ours], "ranks", scale=np.abs(reference).max(), comm=comm)
    motion = told[bodies.stop - bodies.start]
    assert np.array_equal(motion.body, np.arange(600)[bodies])
    for name in BodyMotion._fields[1:]:
        whole = getattr(alone, name)
        assert_close(name, getattr(motion, name), whole[bodies], "ranks", scale=np.abs(whole).max(), comm=comm)


def drag(t: float, motion: BodyMotion) -> tuple[Any, Any]:
    """Of one body or of many."""
    factor = -0.3 * (1.0 + t * np.asarray(motion.body)[..., None])
    return factor * motion.angular_velocity, factor * motion.velocity + motion.rotation[..., 1]


@pytest.mark.long
def test_a_function_in_every_form() -> None:
    """Plain, vectorized, compiled, compiled and vectorized: the same."""
    forms: list[tuple[Any, bool]] = [(drag, True), (drag, False), (functools.partial(drag), False)]
    forms += [(compiled_drag, False), (compiled_drag_of_all, True)]
    found = []
    for body_force, vectorized in forms:
        system, q, u, tau = random_system(2, 9, True)
        system.add_body_force(None, body_force, vectorized=vectorized)
        system.add_joint_force(None, compiled_damper if body_force is compiled_drag else compiled_damper.py_func)
        found.append(accelerations(system, q, u, tau, TIME))
    for udot in found[1:]:
        assert_close("accelerations", udot, found[0], "dense")


@pytest.mark.cases(1)
@pytest.mark.parametrize("function", [compiled_damper, compiled_damper.py_func], ids=["compiled", "plain"])
def test_a_run_whose_joints_are_of_several_types(comm: MPI.Comm, function: Any) -> None:
    """One joint force on all of them, whose work is told."""
    system = random_system(4, 6, True, ["spherical", "revolute", "universal", "free"])[0]
    system.add_joint_force(None, function)
    result = simulate(system, 0.05, comm, rtol=1e-9)
    assert result.energy_change < 1e-6


def test_functions_are_compiled_before_the_first_evaluation() -> None:
    """By `compile`, which calls none of them."""

    @numba.njit
    def motor(t, q, u):
        return -0.7 * u

    @numba.njit
    def water(t, motion):
        return -0.1 * motion.angular_velocity, -0.2 * motion.velocity

    @numba.njit
    def wind(t, motion):
        return 0.0, (t, 0.0, 0.0)

    functions = (motor, water, wind)
    system = system_from("chain:5")
    system.add_joint_force(None, motor)
    system.add_body_force(None, water, vectorized=True)
    system.add_body_force(["link2", "link4"], wind)
    with closing(Dynamics(system)) as dynamics:
        assert not any(function.signatures for function in functions)
        compile_evaluations(dynamics)
        assert [len(function.signatures) for function in functions] == [1, 1, 1]
        external = dynamics.divided.external
        loops = [force._entry for force in (external._joint_forces[0], external._body_forces[1])]
        assert [len(loop.signatures) for loop in loops if loop is not None] == [1, 1]
        dynamics.accelerations(dynamics.subchain.q, dynamics.subchain.u, t=TIME)
        assert [len(loop.signatures) for loop in loops if loop is not None] == [1, 1]
    assert [len(function.signatures) for function in functions] == [1, 1, 1]


# --- what goes wrong -------------------------------------------------------------------------------------------------


def fails(t: float, *state: Any) -> Any:
    raise KeyError("no such row")


def only_on(body: int, given: Any, otherwise: Any = (0.0, 0.0)) -> Callable[[float, BodyMotion], Any]:
    def function(t: float, motion: BodyMotion) -> Any:
        return given if motion.body == body else otherwise

    return function


def some_nan(t: float, motion: BodyMotion) -> Any:
    force = np.zeros_like(motion.velocity)
    force[motion.body == 5] = np.nan
    return 0.0, force


@numba.njit
def compiled_fails(t, motion):
    if motion.body == 5:
        raise ValueError("no water")
    return 0.0, 0.0


ON_6 = "on body 'link6'"
BROKEN: dict[str, tuple[Any, dict[str, Any], tuple[str, ...]]] = {
    "raises": (fails, {}, ("KeyError('no such row') (", "test_force_functions.py, line ")),
    "raises, compiled": (compiled_fails, {}, (ON_6, "ValueError('no water') (", "test_force_functions.py, line ")),
    "raises, vectorized": (fails, {"vectorized": True}, (" 'link1'", "KeyError('no such row') (")),
    "is called wrongly": (lambda t: 0.0, {}, ("TypeError", "(function of ", "test_force_functions.py, line ")),
    "is nan": (only_on(5, (0.0, (0.0, np.nan, 0.0))), {}, (ON_6, "is not finite", "force [ 0. nan  0.]")),
    "is nan, vectorized": (some_nan, {"vectorized": True}, (ON_6, "is not finite", "moment [0. 0. 0.]")),
    "has no moment": (only_on(5, 1.0), {}, (ON_6, "gave a float", "needs a moment and a force")),
    "has a wrong shape": (only_on(5, ((1.0, 2.0), 0.0)), {}, (ON_6, "gave 2 numbers as moment", "needs 3")),
    "returns nothing": (only_on(5, None), {}, (ON_6, "gave nothing", "needs a moment and a force")),
    "forgets to return": (only_on(5, (0.0, None)), {}, (ON_6, "gave None as force", "needs 3")),
    "is text": (only_on(5, (0.0, "much")), {}, (ON_6, "gave 'much' as force", "needs 3")),
    "has a wrong shape, vectorized": (
        lambda t, motion: (0.0, np.ones((2, 7))),
        {"vectorized": True},
        ("gave numbers of shape [2, 7] as force", "needs an array of shape ["),
    ),
}  # fmt: skip


def stopped(comm: MPI.Comm, action: Callable[[], object], *words: str) -> str:
    """An action stops with the same message of one line on every rank, which has the words."""
    with pytest.raises(SimulationError) as stop:
        action()
    message = str(stop.value)
    same = comm.allgather(message) == [message] * comm.size
    assert same and "\n" not in message and all(word in message for word in words), f"{message}\nnot {words}"
    return message


@pytest.mark.parametrize("kind", BROKEN)
def test_a_bad_body_force(comm: MPI.Comm, kind: str) -> None:
    """On one rank, or all, at once; afterwards a good state is evaluated as if nothing had been."""
    function, options, words = BROKEN[kind]
    system = system_from("chain:6")
    system.add_body_force(None, function, **options)
    with closing(Dynamics(system, comm)) as dynamics:
        q, u = dynamics.subchain.q, dynamics.subchain.u
        message = stopped(
            comm, lambda: dynamics.accelerations(q, u, t=0.25), "the body force '", " at t = 0.25 s", *words
        )
        assert message == stopped(comm, lambda: dynamics.joint_loads(q, u, t=0.25))


@pytest.mark.parametrize(
    ("function", "vectorized", "words"),
    [
        (lambda t, q, u: q / 0 if t > 0.1 else -q, False, ("on body 'link", "is not finite")),
        (lambda t, q, u: fails(t) if t > 0.1 else -q, True, ("on ", "KeyError('no such row') (", ".py, line ")),
        (lambda t, q, u: np.ones(4) if t > 0.1 else -q, False, ("gave 4 numbers", "needs 1")),
        (lambda t, q, u: None if t > 0.1 else -q, False, ("gave None", "needs 1")),
    ],
)
def test_a_bad_joint_force_ends_a_run(comm: MPI.Comm, function: Any, vectorized: bool, words: tuple[str, ...]) -> None:
    system = system_from("chain:6")
    names = None if vectorized else ["link6"]
    system.add_joint_force(names, function, vectorized=vectorized)
    with np.errstate(all="ignore"):
        message = stopped(comm, lambda: simulate(system, 1.0, comm, every=0.05), "the joint force '", *words)
    when = re.search(r"t = ([-+.e\d]+) s", message)
    assert when and 0.1 <= float(when.group(1)) < 0.3


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_a_force_that_fails_on_one_rank_ends_a_run(comm: MPI.Comm, coupling: str) -> None:
    """Whatever the coupling, and though the others' states are no longer finite afterwards."""

    def water(t: float, motion: BodyMotion) -> tuple[float, float]:
        return (0.0, 0.0) if t < 0.1 or motion.body != 5 else fails(t)

    system = system_from("chain:6")
    system.add_body_force(None, water)
    words = ("the body force '", ON_6, "KeyError('no such row') (")
    stopped(comm, lambda: simulate(system, 1.0, comm, coupling=coupling), *words)


REFUSED: dict[str, tuple[Callable[[System], Any], str]] = {
    "no function": (lambda s: s.add_body_force(None, 3.0), "body force: needs a function, got 3.0"),
    "unknown body": (lambda s: s.add_body_force("lnk1", current), "unknown body 'lnk1'; did you mean"),
    "twice": (lambda s: s.add_body_force(["link1", "link1"], current), "body force: names body 'link1' twice"),
    "no body": (lambda s: s.add_joint_force([], motor), "joint force: names no body; give names, or None for all"),
    "point": (lambda s: s.add_body_force(None, current, point="tip"), "point needs a list of 3 .* 'center_of_mass'"),
    "fixed": (lambda s: s.add_joint_force("plate", motor), "body 'plate': joint force .* fixed joint"),
    "several types": (
        lambda s: s.add_joint_force(None, motor, vectorized=True),
        "needs joints of one type, got revolute, prismatic; add it for each type apart",
    ),
    "before the bodies": (lambda s: System().add_body_force(None, current), "there are no bodies yet"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_force(case: str) -> None:
    system = system_from("chain:3")
    for name, kind in (("plate", "fixed"), ("slider", "prismatic")):
        system.add(name=name, mass=1, inertia=(1, 1, 1, 0, 0, 0), joint=Joint(type=kind))
    action, words = REFUSED[case]
    with pytest.raises(InputError, match=words):
        action(system)
    assert not system.contents.loads.functions
