"""All that acts from outside in compiled code: the oracle's accelerations, work, speed, what is told."""

from __future__ import annotations

import warnings
from contextlib import closing
from typing import Any

import numba
import numpy as np
import pytest
from mpi4py import MPI

from cases import parts
from dynamics.test_added_mass import immersed
from force_functions import LAWS, compiled_damper, compiled_drag, compiled_drag_of_all, muscle, sprung, two_points
from mpimbs import Batch, Dynamics, SimulationError, System, simulate
from mpimbs.base.errors import LoadNotFiniteError
from mpimbs.coupling import COUPLINGS, LoadSolver
from mpimbs.forces.external import ExternalLoads
from mpimbs.kernels.calling import call_at
from mpimbs.kernels.compiler import kernel
from mpimbs.model import system_from
from oracles import dense
from oracles.random_systems import random_system
from tolerances import assert_close

alone = pytest.mark.skipif(MPI.COMM_WORLD.size > 1, reason="on several ranks Python has a say")
ALL = ("wrenches", "springs", "tendons", "water", "rows", "functions")
TIME = 0.07


def acted_on(seed: int, chain: bool, kinds: tuple[str, ...]) -> tuple[System, Any, Any, Any]:
    """A random system on which such things act, and a state."""
    system, q, u, tau = random_system(seed, 14, chain, wrenches="wrenches" in kinds)
    if "wrenches" in kinds:
        pulls = {"rows": [[0.0, 1.0, 2.0, -3.0], [0.05, -2.0, 0.0, 1.0], [0.2, 3.0, 1.0, 1.0]], "lag": 0.02}
        system.add_wrench("b2", moment=pulls, force=(1.0, 0.0, 2.0), point=(0.1, 0.2, -0.3))
        system.add_wrench("b9", moment=(0.0, 1.0, 0.0), force=pulls["rows"], point=(0.3, 0.0, 0.1), frame="world")
    if "water" in kinds:
        system = immersed(system)
    if "springs" in kinds:
        sprung(system, LAWS, 9, seed)
    singles = [body.name for body in system.contents.bodies() if body.joint.kind.nu == 1]
    if "functions" in kinds:
        system.add_joint_force(None, compiled_damper)
        system.add_body_force(None, compiled_drag)
        system.add_body_force([system.contents.name_of(k) for k in (2, 5)], compiled_drag_of_all, vectorized=True)
        system.add_spring(name="muscle", bodies=("world", "b3"), positions=((0, 0, 1), (0, 0, 0)), force=muscle)
    if "rows" in kinds:
        rows = [[0.0, 1.0], [0.05, -2.0], [0.2, 3.0]]
        servo = {"servo_torque": {"rows": rows, "lag": 0.02}, "servo_stiffness": 3.0, "servo_damping": 0.2}
        hinge = {"type": "revolute", "axis": (0, 1, 0), "torque": rows, "servo_most": 2.0} | servo
        body = {"mass": 1.0, "inertia": (0.1, 0.1, 0.1, 0, 0, 0), "parent": "b13"}
        system.add(name="driven", **body, joint=hinge)
        system.add_tendon(name="follows", joints=["driven", *singles[:1]], ratios=(0.5, 1.0), force=rows, damping=0.3)
        q, u, tau = np.append(q, 0.3), np.append(u, -0.4), np.append(tau, 0.0)
    if "tendons" in kinds:
        for k in range(len(singles) - 1):
            ends = {"upper": 0.1, "stop_stiffness": 20.0, "stop_damping": 1.0} if k % 2 else {"least": -1.0}
            law = {"stiffness": 5.0, "damping": 0.5, "rest": 0.1, "force": 0.5 * k} | ends
            system.add_tendon(name=f"t{k}", joints=singles[k : k + 2], ratios=(1.0, -0.5 - k), **law)
    return system, q, u, tau


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("kinds", [*((kind,) for kind in ALL), ALL], ids="-".join)
def test_the_oracle(comm: MPI.Comm, coupling: str, kinds: tuple[str, ...]) -> None:
    """Evaluated by Python or not, on any number of ranks, chains and trees."""
    for chain in (True, False) if coupling in ("dcae", "pcg") else (True,):
        system, q, u, tau = acted_on(3, chain, kinds)
        udot = dense.dense_accelerations(system, q, u, tau, TIME)
        solver = LoadSolver("direct") if coupling == "pcg" else None
        with closing(Dynamics(system, comm, coupling, solver=solver)) as dynamics:
            assert dynamics.divided.external.at_once is not None
            mine, own = parts(dynamics, q, u, tau), dynamics.gather_u.part
            tolerance = {"augmented": "multipliers", "pcg": "iterated"}.get(coupling, "assembled")
            got, scale = dynamics.accelerations(*mine, TIME), float(np.abs(udot).max())
            if "functions" not in kinds:  # of which the oracle knows nothing: other tests compare those of Python's
                assert_close("udot", got, udot[own], tolerance, scale=scale, comm=comm)
            if (compiled := dynamics.derivative.compiled) is not None:
                acting = dynamics.divided.external.at_once
                assert acting is not None
                acting.time[0] = TIME
                found, rates = np.empty(len(mine[1])), np.empty(len(mine[0]))
                _call(compiled[0], compiled[1], *mine, found, rates)
                assert_close("compiled", found, got, "dense", scale=scale, comm=comm)
            assert (compiled is None) == (coupling in ("pcg", "augmented"))


@pytest.mark.ranks(3)
def test_compiled_after_python(comm: MPI.Comm) -> None:
    """Motions that are scanned over ranks in compiled code begin at rest, whatever Python was told of the boundary."""
    system, q, u, tau = acted_on(3, True, ("springs",))
    with closing(Dynamics(system, comm)) as dynamics:
        mine = parts(dynamics, q, u, tau)
        right = dynamics.accelerations(*mine, TIME)
        compiled, acting = dynamics.derivative.compiled, dynamics.divided.external.at_once
        assert compiled is not None and acting is not None
        acting.time[0] = TIME
        found, rates = np.empty(len(mine[1])), np.empty(len(mine[0]))
        _call(compiled[0], compiled[1], *mine, found, rates)
        assert_close("udot", found, right, "dense", scale=float(np.abs(right).max()), comm=comm)


def with_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Python call what acts, from here on."""

    def by_python(self: ExternalLoads, *arguments: Any) -> None:
        made(self, *arguments)
        self.at_once = None

    made = ExternalLoads.__init__
    monkeypatch.setattr(ExternalLoads, "__init__", by_python)


@kernel
def _call(address, table, q, u, tau, udot, rates):
    return call_at(address, (table, q, u, tau, udot, rates))


@pytest.mark.parametrize("name", ["dopri5", "rk4"])
@pytest.mark.parametrize("kinds", [*((kind,) for kind in ALL), ALL], ids="-".join)
def test_runs_as_with_python_between(
    comm: MPI.Comm, kinds: tuple[str, ...], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled steps count the work of all that acts, and go the same way."""
    system = acted_on(5, True, kinds)[0]
    given: dict[str, Any] = {"dt": 1e-3} if name == "rk4" else {"rtol": 1e-10, "atol": 1e-10}
    given |= {"integrator": name, "every": 0.02}
    compiled = simulate(system, 0.1, comm, **given)
    assert compiled.energy_change < 1e-6
    with_python(monkeypatch)
    plain = simulate(system, 0.1, comm, **given)
    assert plain.steps == pytest.approx(compiled.steps, rel=0.1)
    if comm.rank:
        return
    assert_close("q", np.asarray(compiled["q"]), np.asarray(plain["q"]), "runs")
    assert_close("work", np.asarray(compiled["work"]), np.asarray(plain["work"]), "runs", scale=1.0)


@alone
@pytest.mark.parametrize("kind", ["spring", "tendon", "function"])
def test_the_price_of_one(kind: str) -> None:
    """A run in which one acts takes at most four times as long an evaluation as one without; it took ten times."""
    bare, acting = system_from("chain16"), system_from("chain16")
    names = [acting.contents.name_of(k) for k in range(16)]
    if kind == "spring":
        acting.add_spring(
            name="tie",
            bodies=(names[2], names[9]),
            positions=((0, 0, 0), (0.1, 0, 0)),
            stiffness=20.0,
            damping=0.5,
            rest=0.5,
        )
    elif kind == "function":
        acting.add_joint_force(None, compiled_damper)
    else:
        acting.add_tendon(name="tie", joints=(names[2], names[9]), ratios=(1.0, -1.0), stiffness=5.0)
    spent: list[list[float]] = [[], []]
    for _ in range(7):
        for found, system in zip(spent, (bare, acting), strict=True):
            result = simulate(system, 1.0, rtol=1e-8, no_witness=True)
            took = sum(result.seconds[phase] for phase in ("sweep", "integration"))
            found.append(took / result.evaluations)
    least = [min(found) for found in spent]
    assert least[1] < 4.0 * least[0], spent


@alone
def test_what_is_told() -> None:
    """Of compiled evaluations, too: a tension without bound, points that coincide."""
    system, _ = two_points(stiffness=6.0, rest=1.0)
    with closing(Dynamics(system)) as dynamics:
        address, table = dynamics.derivative.compiled or (0, np.zeros(0))
        acting, found = dynamics.divided.external.at_once, np.empty(1)
        assert acting is not None
        acting.time[0] = 0.5
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(2):
                _call(address, table, np.zeros(1), np.ones(1), np.zeros(0), found, np.empty(1))
                acting.tell(0.5)
        assert ["'tie': its points coincide at t = 0.5 s" in str(each.message) for each in said] == [True]
        _call(address, table, np.array([1e308]), np.ones(1), np.zeros(0), found, np.empty(1))
        assert np.isnan(found).all()
        with pytest.raises(LoadNotFiniteError, match=r"the spring 'tie' has a tension of inf N at t = 0.5 s"):
            acting.tell(0.5)
        _call(address, table, np.array([np.nan]), np.ones(1), np.zeros(0), found, np.empty(1))
        assert np.isnan(found).all()
        acting.tell(0.5)  # nothing: it is not the spring's fault
    with pytest.raises(SimulationError, match=r"the spring 'tie' has a tension of -?inf N"):
        simulate(two_points(stiffness=1e12, rest=0.5)[0], 10.0, dt=1e-2, integrator="rk4", state=([1.0], [0.0]))


@alone
@pytest.mark.parametrize("kinds", [*((kind,) for kind in ALL), ALL], ids="-".join)
def test_copies_side_by_side(kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies in lanes go as each would alone, in compiled steps and, with Python between, in as many."""
    systems = [acted_on(7, True, kinds)[0] for _ in range(5)]
    for k, system in enumerate(systems):
        if k == 2 and "functions" in kinds:
            system.add_body_force(["b1"], push)
    given: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9, "every": 0.03}
    copies = Batch(systems, comm=MPI.COMM_SELF, lanes=4).simulate(0.06, **given)
    for k in (0, 2, 4):
        own = simulate(systems[k], 0.06, **given)
        assert_close(f"copy {k}", np.asarray(copies["q"])[:, k], np.asarray(own["q"]), "adaptive steps")
    with_python(monkeypatch)
    plain = Batch(systems, comm=MPI.COMM_SELF, lanes=4).simulate(0.06, **given)
    assert plain.lanes == copies.lanes > 1 and plain.steps == pytest.approx(copies.steps, rel=0.1)


@alone
def test_a_copy_that_breaks() -> None:
    """It alone is left behind, and told of, in the words of Python."""
    systems = [system_from("chain:4") for _ in range(4)]
    systems[1].add_joint_force(["link2"], breaks)
    systems[2].add_body_force(["link3"], ends)
    result = Batch(systems, comm=MPI.COMM_SELF).simulate(0.1, every=0.05)
    assert list(result.failed) == ["1", "2"], result.failed
    assert "link2" in result.failed["1"][1] and "no more" in result.failed["1"][1]
    q = np.asarray(result["q"])
    assert np.isfinite(q[:, [0, 3]]).all() and np.isnan(q[-1, [1, 2]]).all()


@numba.njit
def push(t, motion):
    return 0.0, (0.3 * t, 0.0, 0.1)


@numba.njit
def breaks(t, q, u):
    if t > 0.02:
        raise ValueError("no more")
    return -0.1 * u


@numba.njit
def ends(t, motion):
    return 0.0, (0.0 if t < 0.02 else np.nan, 0.0, 0.0)


@numba.njit
def too_many(t, q, u):
    return np.ones(5)


@pytest.mark.parametrize("name", ["breaks", "ends", "too many"])
def test_functions_that_break(comm: MPI.Comm, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in compiled code ends with the words of one in Python."""
    system = system_from("chain:4")
    if name == "ends":
        system.add_body_force(["link2"], ends)
    else:
        system.add_joint_force(["link2"], breaks if name == "breaks" else too_many)
    words = []
    for _ in range(2):
        with pytest.raises(SimulationError) as stop:
            simulate(system, 0.1, comm, dt=1e-3, integrator="rk4")
        words.append(str(stop.value))  # with the time
        with_python(monkeypatch)
    assert words[0] == words[1] and "link2" in words[0], words


def by_functions(python: bool) -> System:
    """A chain on which functions act of all sorts, Python's or compiled ones and rows that say the same."""
    system = system_from("chain:6")
    rows = [[0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 1.0, -1.0]]

    def along(t: float) -> tuple[float, float, float]:
        return 2.0 * t, t, -t

    def of(function: Any) -> Any:
        return function.py_func if python else function

    ties = {"bodies": ("world", "link5"), "positions": ((0, 0, 1), (0, 0, 0))}
    system.add_joint_force(["link2", "link4"], of(compiled_damper))
    system.add_body_force(["link3"], of(compiled_drag))
    system.add_body_force(None, of(compiled_drag_of_all), vectorized=True)
    system.add_spring(name="muscle", force=of(muscle), **ties)
    system.set_torque("link2", (lambda t: 2.0 * t) if python else [[0.0, 0.0], [1.0, 2.0]])
    system.add_wrench("link6", force=along if python else rows, frame="world")
    pull = (lambda t: 3.0 * t) if python else [[0.0, 0.0], [1.0, 3.0]]
    system.add_tendon(name="tendon", joints=["link1", "link5"], ratios=(1.0, -0.5), force=pull)
    return system


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("name", ["dopri5", "rk4"])
def test_python_in_compiled_steps(comm: MPI.Comm, name: str) -> None:
    """Steps are compiled with functions of Python's, too, and go the way of those with compiled ones."""
    with closing(Dynamics(by_functions(True), comm)) as dynamics:
        assert dynamics.derivative.compiled is not None
    given: dict[str, Any] = {"dt": 1e-3} if name == "rk4" else {"tol": 1e-10}
    plain, compiled = (simulate(by_functions(python), 0.3, comm, integrator=name, **given) for python in (True, False))
    assert plain.evaluations == compiled.evaluations
    assert plain.energy_change < 1e-6
    if comm.rank == 0:
        assert_close("q", np.asarray(plain["q"]), np.asarray(compiled["q"]), "runs")
        assert_close("work", np.asarray(plain["work"]), np.asarray(compiled["work"]), "runs", scale=1.0)


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_python_that_raises_in_compiled_steps(comm: MPI.Comm, error: type[BaseException]) -> None:
    """On one rank, in the second of several steps of a call: it is called no more, and all ranks end alike."""
    system, calls = system_from("chain:8"), list[float]()

    def last(t: float, q: Any, u: Any) -> Any:
        calls.append(t)
        if t > 0.0025:
            raise error("no more")
        return -0.1 * u

    system.add_joint_force(["link8"], last)
    with pytest.raises(error if error is not ValueError else SimulationError) as stop:
        simulate(system, 0.1, comm, dt=1e-3, integrator="rk4", every=0.1)
    assert error is SystemExit or ("link8" in str(stop.value) and "t = 0.003 s" in str(stop.value))
    assert sum(t > 0.0025 for t in calls) == (comm.rank == comm.size - 1)
