"""Springs between points of bodies, over ranks: against the dense oracle, in balances, as ropes; what goes wrong."""

import functools
import re
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from cases import isolated, moving_state
from force_functions import LAWS, muscle, sprung, two_points
from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.cli import main
from mpimbs.coupling import COUPLINGS, LoadSolver
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.compiling import compile_evaluations
from mpimbs.forces.springs import initial_springs
from mpimbs.model import System, read_system, system_from
from mpimbs.run.run import simulate
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import State, random_system
from tolerances import assert_close

N = 16
TIME = 0.7
TIGHT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-11}


def hardening(length: float, speed: float) -> float:
    return 2.0 * length**3 - 0.4 + 0.3 * speed


FUNCTIONS: tuple[dict[str, Any], ...] = ({"force": hardening}, {"force": muscle})


def by_the_oracle(system: System, state: State) -> tuple[Array, Array]:
    """Accelerations, and joint loads in the frames of the bodies."""
    q, u, tau = state
    snapshot = dense.Snapshot(system, q, u)
    udot, loads = snapshot.solve(tau, TIME)
    rotation = snapshot.kinematics.rotation.astype(float)
    return udot, np.einsum("nij,nai->naj", rotation, loads.reshape(-1, 2, 3)).reshape(-1, 6)


@functools.cache
def case(chain: bool = True, seed: int = 4) -> tuple[System, State, Array, Array]:
    """A random system with springs between its bodies, a state, its accelerations and joint loads by the oracle."""
    system, *state = random_system(seed, N, chain, springs=True, wrenches=True)
    sprung(system, LAWS + FUNCTIONS, 24)
    q, u, tau = state
    return system, (q, u, tau), *by_the_oracle(system, (q, u, tau))


def without_springs(system: System) -> System:
    bare = System(system.name, system.gravity)
    for body in system.contents.bodies():
        bare.add(body)
    return bare


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_the_oracle(comm: MPI.Comm, coupling: str) -> None:
    """Accelerations, joint loads and inverse dynamics, by every coupling on any number of ranks, again and again."""
    system, (q, u, tau), udot, loads = case()
    without = dense.dense_accelerations(without_springs(system), q, u, tau, TIME)
    assert np.abs(udot - without).max() > 0.1 * np.abs(udot).max()
    solver = LoadSolver("dcae", rtol=1e-14) if coupling == "pcg" else None
    with closing(Dynamics(system, comm, coupling, solver=solver)) as dynamics:
        mine, ours = dynamics.gather_q.part, dynamics.gather_u.part
        bodies = slice(dynamics.subchain.first, dynamics.subchain.last)
        dynamics.accelerations(q[mine] + 0.1, u[ours], tau[ours])
        got = dynamics.accelerations(q[mine], u[ours], tau[ours], TIME)
        got_loads = dynamics.joint_loads(q[mine], u[ours], tau[ours], TIME)
        back, still = (dynamics.inverse_dynamics(q[mine], u[ours], a[ours], TIME) for a in (udot, 0 * udot))
    assert_close("accelerations", got, udot[ours], "dense", scale=np.abs(udot).max(), comm=comm)
    exact = {"augmented": "multipliers", "dca": "loads of dca"}.get(coupling, "dense")
    assert_close("joint loads", got_loads, loads[bodies], exact, scale=np.abs(loads).max(), comm=comm)
    size = comm.allreduce(float(np.abs(still).max(initial=1.0)), MPI.MAX)
    assert_close("generalized forces", back, tau[ours], "round trip", scale=size, comm=comm)


def agrees(comm: MPI.Comm, system: System, state: State, udot: Array, loads: Array, **settings: Any) -> None:
    """Accelerations, joint loads and energy are those of the oracle."""
    q, u, tau = state
    with closing(Dynamics(system, comm, **settings)) as dynamics:
        mine, ours = dynamics.gather_q.part, dynamics.gather_u.part
        bodies = slice(dynamics.subchain.first, dynamics.subchain.last)
        got = dynamics.accelerations(q[mine], u[ours], tau[ours], TIME)
        got_loads = dynamics.joint_loads(q[mine], u[ours], tau[ours], TIME)
        energy = dynamics.energy_and_momentum(q[mine], u[ours])[:2]
    assert_close("accelerations", got, udot[ours], "dense", scale=np.abs(udot).max(), comm=comm)
    assert_close("joint loads", got_loads, loads[bodies], "dense", scale=np.abs(loads).max(), comm=comm)
    assert_close("energy", energy, dense.energy(system, q, u), "dense", comm=comm)


@pytest.mark.parametrize("settings", [{}, {"cuts": 4}, {"coupling": "pcg", "cuts": 4}], ids=str)
def test_a_tree_over_ranks(comm: MPI.Comm, settings: dict[str, Any]) -> None:
    if "coupling" in settings:
        settings = settings | {"solver": LoadSolver("direct")}
    system = sprung(system_from("tree:3:2"), LAWS + FUNCTIONS, 20)
    state = moving_state(system)
    agrees(comm, system, state, *by_the_oracle(system, state), **settings)


@pytest.mark.parametrize("overlap", [False, True])
def test_in_lanes(comm: MPI.Comm, overlap: bool) -> None:
    """A long rope, many springs between far bodies: ranks that sweep in lanes agree with one that does not."""
    system = sprung(system_from("rope:600"), ({"stiffness": 0.01, "damping": 1e-3, "rest": 1.0},), 200)
    q, u, tau = moving_state(system)
    with closing(Dynamics(system, lanes=1, comm=MPI.COMM_SELF)) as alone:
        reference, energy = alone.accelerations(q, u, tau), alone.energy_and_momentum(q, u)
    with closing(Dynamics(system, comm, overlap=overlap)) as dynamics:
        mine, ours = dynamics.gather_q.part, dynamics.gather_u.part
        compile_evaluations(dynamics)
        got, again = (dynamics.accelerations(q[mine], u[ours], tau[ours]) for _ in range(2))
        totals, seconds = dynamics.energy_and_momentum(q[mine], u[ours]), dynamics.derivative.seconds()
    parallel_assert(np.array_equal(got, again), "not the same bits again", comm)
    parallel_assert(min(seconds.values()) >= 0.0, f"{seconds}", comm)
    assert_close("accelerations", got, reference[ours], "ranks", scale=np.abs(reference).max(), comm=comm)
    assert_close("energy and momentum", totals, energy, "ranks", comm=comm)


def test_energy_is_the_oracles_and_its_gradient_the_force(comm: MPI.Comm) -> None:
    """In place of springs without dampers, forces by hand that lower the oracle's energy."""
    system, q, u, tau = random_system(2, 8, True, ["revolute", "prismatic", "universal"])
    bare = without_springs(system)
    sprung(system, ({"stiffness": 3.0, "rest": 0.5}, {"stiffness": 2.0, "rest": 1.5, "tension_only": True}), 12)
    force, h = np.zeros(system.nu), 1e-5

    def stored(q: Array) -> float:
        return dense.Snapshot(system, q, u).stretch_energy()

    for k in range(system.nu):  # q and u of these joints are as many, and u = dq/dt
        step = h * np.eye(system.nu)[k]
        force[k] = -(stored(q + step) - stored(q - step)) / (2 * h)
    reference = dense.dense_accelerations(bare, q, u, tau + force)
    with closing(Dynamics(system, comm)) as dynamics:
        mine, ours = dynamics.gather_q.part, dynamics.gather_u.part
        got = dynamics.accelerations(q[mine], u[ours], tau[ours])
        energy = dynamics.energy_and_momentum(q[mine], u[ours])[:2]
    assert_close("accelerations", got, reference[ours], "difference", scale=np.abs(reference).max(), comm=comm)
    assert_close("energy", energy, dense.energy(system, q, u), "dense", comm=comm)
    assert stored(q) > 1.0


@pytest.mark.cases(1)
@pytest.mark.parametrize("laws", [LAWS[5:], LAWS[:1], FUNCTIONS], ids=["elastic", "damped", "functions"])
def test_energy_and_momentum_in_a_run(comm: MPI.Comm, laws: tuple[dict[str, Any], ...]) -> None:
    """Free in space: momentum stays; energy too, but for the work of dampers and functions, which is told."""
    system = sprung(isolated(system_from("spatial_chain:7")), laws, 9, world=False)
    with closing(Dynamics(system, comm)) as dynamics:
        q, u = dynamics.subchain.q, 0.3 * np.cos(np.arange(system.nu))[dynamics.gather_u.part]
        before = dynamics.energy_and_momentum(q, u)
        state = (dynamics.gather_q(q), dynamics.gather_u(u))
    state = comm.bcast(state)
    result = simulate(system, 0.5, comm, every=0.05, state=state, **TIGHT)
    q, u, work = (comm.bcast(getattr(result, name)) for name in ("q", "u", "work"))
    with closing(Dynamics(system, comm)) as dynamics:
        after = dynamics.energy_and_momentum(q[-1][dynamics.gather_q.part], u[-1][dynamics.gather_u.part])
    size = np.abs(before[2:]).max()
    parallel_assert(size > 0.1 and np.abs(after - before)[2:].max() < 1e-9 * size, f"{before} {after}", comm)
    parallel_assert(abs(after[0] - before[0]) > 1e-3 * before[0], f"nothing happened: {before} {after}", comm)
    error = after[:2].sum() - before[:2].sum() - work[-1]
    parallel_assert(abs(error) < 1e-8 * max(abs(before[:2]).max(), 1.0), f"{before} {after} {work[-1]}", comm)
    parallel_assert((work[-1] == 0.0) == (laws == LAWS[5:]), f"work {work[-1]}", comm)
    if laws == LAWS[:1]:
        parallel_assert(bool(np.all(np.diff(work) < 0.0)), "dampers", comm)


def test_a_rope_never_pushes() -> None:
    """Against the law by hand, taut and slack, coming and going; a spring does push."""
    for rope in (False, True):
        system, states = two_points(stiffness=6.0, damping=2.0, rest=1.0, tension_only=rope)
        with closing(Dynamics(system)) as dynamics:
            for x, v in states:
                length, rate = abs(x), v * np.sign(x)
                tension = 6.0 * (length - 1.0) + 2.0 * rate
                if rope:
                    tension = max(tension, 0.0) if length > 1.0 else 0.0
                (got,) = dynamics.accelerations(np.array([x]), np.array([v]))
                assert got == pytest.approx(-np.sign(x) * tension / 2.0, abs=1e-15)
                stored = 3.0 * (length - 1.0) ** 2 if not rope or length > 1.0 else 0.0
                energy = dynamics.energy_and_momentum(np.array([x]), np.array([v]))
                assert energy[1] == pytest.approx(stored, abs=1e-15)


def test_points_that_coincide() -> None:
    """No direction, no force: a word for what has one there, once; silence where rest is 0."""
    zero = np.zeros(1)
    for law, warned in (({"stiffness": 6.0, "rest": 1.0}, True), ({"stiffness": 6.0, "rest": 0.0}, False)):
        system, _ = two_points(**law)
        with closing(Dynamics(system)) as dynamics, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(2):
                assert dynamics.accelerations(zero, np.ones(1)) == 0.0
            assert dynamics.energy_and_momentum(zero, zero)[1] == pytest.approx(3.0 * law["rest"] ** 2)
        assert [("'tie': its points coincide" in str(w.message)) for w in said] == [True] * warned


def test_a_function_in_every_form(comm: MPI.Comm) -> None:
    found = []
    for function in (muscle, muscle.py_func, functools.partial(muscle.py_func)):
        system = sprung(random_system(2, 9, True)[0], ({"force": function},), 12)
        _, q, u, tau = random_system(2, 9, True)
        with closing(Dynamics(system, comm)) as dynamics:
            compile_evaluations(dynamics)
            mine, ours = dynamics.gather_q.part, dynamics.gather_u.part
            found.append(dynamics.accelerations(q[mine], u[ours], tau[ours]))
    for udot in found[1:]:
        assert_close("accelerations", udot, found[0], "dense", comm=comm)


def fails(length: float, speed: float) -> float:
    raise KeyError("no such muscle")


WRONG: dict[str, tuple[Any, tuple[str, ...]]] = {
    "raises": (fails, ("the spring 'far' failed at t = 0.7 s: KeyError('no such muscle') (", "test_springs.py, line ")),
    "not finite": (lambda length, speed: float("nan"), ("the spring 'far' has a tension of nan N at t = 0.7 s",)),
    "gives two": (lambda length, speed: (1.0, 2.0), ("the spring 'far' gave 2 numbers", "needs one number")),
    "gives nothing": (lambda length, speed: None, ("the spring 'far' gave None", "needs one number")),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_function_that_fails(comm: MPI.Comm, name: str) -> None:
    """On ranks that have an end of it; all of them tell. A run ends so too."""
    function, words = WRONG[name]
    system = system_from("chain:8")
    system.add_spring(name="far", bodies=("link7", "link8"), positions=((0, 0, 0), (1, 0, 0)), force=function)
    with closing(Dynamics(system, comm)) as dynamics:
        for ask in (dynamics.accelerations, dynamics.joint_loads):
            with pytest.raises(SimulationError) as told:
                ask(dynamics.subchain.q, dynamics.subchain.u, t=TIME)
            parallel_assert(all(word in str(told.value) for word in words), str(told.value), comm)
    with pytest.raises(SimulationError, match="spring 'far'"):
        simulate(system, 0.1, comm)


def test_bad_springs() -> None:
    system = system_from("chain:3")
    good: dict[str, Any] = {"name": "s", "bodies": ("link1", "world"), "positions": ((0, 0, 0), (1, 0, 0))}
    for change, words in (
        ({"bodies": ("link1", "link4")}, "spring 's': unknown body 'link4'; did you mean"),
        ({"bodies": ("link1", "link1")}, "spring 's': bodies must be two different ones, got 'link1' twice"),
        ({"bodies": ("world", "world")}, "spring 's': bodies must be two different ones"),
        ({"positions": ((0, 0, 0),)}, "spring 's': positions needs a list of two values"),
        ({"stiffness": 2.0}, "spring 's': rest is missing; give the length at which the spring has no force, in m"),
        ({"damping": 2.0, "tension_only": True}, "spring 's': rest is missing"),
        ({"stiffness": -2.0, "rest": 1.0}, "spring 's': stiffness must not be negative"),
        ({"stiffness": 2.0, "rest": -1.0}, "spring 's': rest must not be negative"),
        ({"tension_only": 1, "rest": 1.0}, "spring 's': tension_only"),
        (
            {"force": "arm:muscle"},
            "spring 's': force must be a function of length and speed, got 'arm:muscle'; a model",
        ),
        ({"force": muscle, "rest": 0.0, "damping": 1}, "spring 's': force stands in place of damping and rest"),
        ({"name": "world"}, "spring 'world': name 'world' is reserved"),
        ({"length": 1.0}, "spring 's': unknown key 'length'"),
    ):
        with pytest.raises(InputError, match=re.escape(words)):
            system.add_spring(**(good | change))
    assert not system.contents.springs and not system.contents.springs.bodies
    system.add_spring(**good)
    with pytest.raises(InputError, match="spring 's': the name is taken by another spring"):
        system.add_spring(**good)


MODEL = """
gravity = [0, 0, -9.81]
[[repeat]]
count = 6
name = "link"
mass = 0.5
inertia = [0.011, 0.011, 0.001, 0, 0, 0]
center_of_mass = [0, 0, -0.25]
[repeat.joint]
type = "revolute"
axis = [0, 1, 0]
position = [0, 0, -0.5]
[[spring]]
name = "tie"
bodies = ["link1", "link6"]
positions = [[0, 0, 0], [0.75, 0, -0.5]]
stiffness = 10
rest = 1
[[spring]]
name = "stay"
bodies = ["link3", "world"]
positions = [[0, 0, 0], [0, 0, -1.5]]
stiffness = 2
rest = 0.5
"""


def test_what_check_says(comm: MPI.Comm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bodies, length and tension at the start, and that points coincide; and `acceleration` feels them."""
    model = comm.bcast(tmp_path) / "tied.toml"
    if comm.rank == 0:
        model.write_text(MODEL, encoding="utf-8")
    comm.Barrier()
    with pytest.raises(SystemExit) as ended:
        main(["check", str(model)], comm)
    assert ended.value.code == 0
    out = comm.bcast(capsys.readouterr().out)
    length = np.hypot(0.75, 3.0)
    assert f"spring 'tie': 'link1' to 'link6', length {length:.6g} m, tension {10 * (length - 1):.6g} N" in out
    assert (
        "spring 'stay': 'link3' to 'world', length 0 m" in out and "note: the points of spring 'stay' coincide" in out
    )
    found = initial_springs(read_system(model).contents)
    assert [s.length for s in found] == pytest.approx([length, 0.0])
    with warnings.catch_warnings(action="ignore"):
        system = read_system(model)
        simulate(system, 0.02, comm, every=0.02)
