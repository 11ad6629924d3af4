"""What Python gives is the caller's own, and what it takes is checked or converted, before any rank waits."""

import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import mpimbs
from cases import moving_state, parts, random_tree
from mpi_helpers import parallel_assert, plain_environment, starts_mpiexec
from mpimbs.base.errors import InputError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.dynamics import MOVED
from mpimbs.dynamics.joint_loads import JointLoads
from mpimbs.dynamics.loops import ClosedLoops
from mpimbs.dynamics.operators.inertia import InertiaMatrix
from mpimbs.dynamics.operators.jacobians import Jacobians
from mpimbs.dynamics.state_derivative import StateDerivative
from mpimbs.dynamics.statics.equilibrium import settle
from mpimbs.dynamics.statics.modes import modes
from mpimbs.model import System, system_from
from mpimbs.run.ensembles.batch import Batch
from mpimbs.run.simulation import Simulation
from oracles.dense import Array
from oracles.random_loops import random_mechanism

Call = Callable[[Any, Array, Array, Array], Any]
BODY = "b3"

OF_TREES: dict[str, Call] = {
    "inverse_dynamics": lambda d, q, u, tau: d.inverse_dynamics(q, u, tau),
    "inertia_matrix": lambda d, q, u, tau: (d.inertia_matrix(q), d.inertia_matrix(q, layout="csr").data),
    "inertia.inverse_matrix": lambda d, q, u, tau: d.inertia.inverse_matrix(q),
    "inertia.gather_rows": lambda d, q, u, tau: d.inertia.gather_rows(d.inertia_matrix(q)),
    "inertia.multiply": lambda d, q, u, tau: d.inertia.multiply(q, tau),
    "inertia.times": lambda d, q, u, tau: d.inertia.times(q, tau),
    "inertia.solve": lambda d, q, u, tau: d.inertia.solve(q, tau),
    "inertia.factor": lambda d, q, u, tau: d.inertia.factor(q).solve(tau),
    "inertia.operator": lambda d, q, u, tau: (d.inertia.operator(q) @ tau, d.inertia.operator(q, True) @ tau),
    "jacobian": lambda d, q, u, tau: d.jacobian(q, BODY),
    "jacobians.product": lambda d, q, u, tau: d.jacobians.product(q, u, BODY),
    "jacobians.transpose": lambda d, q, u, tau: d.jacobians.transpose(q, np.ones(6), BODY),
    "jacobians.bias": lambda d, q, u, tau: d.jacobians.bias(q, u, BODY),
    "jacobians.center_of_mass": lambda d, q, u, tau: d.jacobians.center_of_mass(q),
    "jacobians.operational_inertia": lambda d, q, u, tau: d.jacobians.operational_inertia(q, [BODY]),
}
OF_ALL: dict[str, Call] = {
    "accelerations": lambda d, q, u, tau: d.accelerations(q, u, tau),
    "joint_loads": lambda d, q, u, tau: d.joint_loads(q, u, tau),
    "loads.drive_forces": lambda d, q, u, tau: d.loads.drive_forces(q, u),
    "loads.driving": lambda d, q, u, tau: d.loads.driving(q, u, acted(d, q, u, tau)),
    "loads.after": lambda d, q, u, tau: d.loads.after(q, u, acted(d, q, u, tau), tau).joints,
    "energy_and_momentum": lambda d, q, u, tau: d.energy_and_momentum(q, u),
    "poses": lambda d, q, u, tau: d.poses(q, u),
    "loads.residual": lambda d, q, u, tau: d.loads.residual(q, u, tau, tau).forces,
    "divided.boundary_motion": lambda d, q, u, tau: d.divided.boundary_motion(q, u),
    "divided.step_motions": lambda d, q, u, tau: d.divided.step_motions(q, u, acted(d, q, u, tau)),
    "divided.gather_bodies": lambda d, q, u, tau: d.divided.gather_bodies(6)(d.joint_loads(q, u, tau)),
    "gather_q": lambda d, q, u, tau: (d.gather_q(q), d.gather_q.everywhere(q)),
    "gather_u": lambda d, q, u, tau: (d.gather_u(u), d.gather_u.everywhere(u)),
    "bodies": lambda d, q, u, tau: d.bodies,
    "the model's state": lambda d, q, u, tau: (d.subchain.q, d.subchain.u),
}
OF_LOOPS: dict[str, Call] = {
    "inertia.loop_jacobian": lambda d, q, u, tau: d.inertia.loop_jacobian(q).data,
    "inertia.loop_responses": lambda d, q, u, tau: d.inertia.loop_responses(q),
    "violations": lambda d, q, u, tau: d.loops.violations(q, u),
    "close_speeds": lambda d, q, u, tau: d.loops.close_speeds(q, u),
    "close_places": lambda d, q, u, tau: d.loops.close_places(q),
    "nearest_places": lambda d, q, u, tau: d.loops.nearest_places(q),
    "loads.joints_and_loops": lambda d, q, u, tau: d.loads.joints_and_loops(q, u, tau).loops,
    "loads.actuation": lambda d, q, u, tau: d.loads.actuation(q, u, d.accelerations(q, u, tau)).loads,
    "numbers": lambda d, q, u, tau: d.loops.numbers,
}
# What gives no arrays; what gives arrays that it was given, or writes into them; what is made once, for the package.
NONE = {
    *("close", "derivative"),
    *("actuated", "apart", "compiled", "count_turns", "dropped", "evaluations", "opened", "power", "refine"),
    *("all_measured", "measured", "roundings", "powers", "seen", "why_open"),
    *("spring_energy", "stabilise", "warn_of_open", "wind", "winds", "wound"),  # lists, words, one array
    *(
        f"derivative.{name}"
        for name in ("compiled", "evaluate", "in_phases", "laps", "seconds", "spent", "timed", "uncounted")
    ),
    *(f"inertia.{name}" for name in ("close", "composites", "factored", "factors", "shell")),
    *("inertia.implicit_matrix", "inertia.implicit_matrix_of_bodies"),
}
AS_METHODS = {  # of `Dynamics`, by other names
    "derivative.accelerations": "accelerations",
    "inertia.matrix": "inertia_matrix",
    "jacobians.of_point": "jacobian",
    **{f"loads.{name}": name for name in ("inverse_dynamics", "joint_loads")},
}
OPERATORS = {"derivative": StateDerivative, "inertia": InertiaMatrix, "jacobians": Jacobians, "loads": JointLoads}


def acted(dynamics: Dynamics, q: Array, u: Array, tau: Array) -> Any:
    return dynamics.derivative.evaluate(0.0, q, u, np.empty(dynamics.subchain.nu), np.empty(dynamics.subchain.nq), tau)


def flat(given: Any) -> list[Array]:
    return [np.asarray(one) for one in (given if isinstance(given, tuple) else (given,)) if one is not None]


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def test_every_method_is_looked_at() -> None:
    """What gives arrays is called below; what is new has to be put here."""
    calls = set(OF_TREES) | set(OF_ALL) | set(OF_LOOPS) | NONE
    asked = {AS_METHODS.get(name, name) for name in (f"{k}.{n}" for k in OPERATORS for n in public(OPERATORS[k]))}
    assert not (asked | public(Dynamics) | public(ClosedLoops)) - calls


def test_names_of_dynamics_are_few_and_former_ones_answer() -> None:
    """By `dir`; what can be set is refused under a former name, under which nobody would look at it."""
    with closing(Dynamics("four_bar:2", MPI.COMM_SELF)) as dynamics:
        assert len([name for name in dir(dynamics) if not name.startswith("_")]) <= 20
        for name, now in MOVED.items():
            with pytest.warns(FutureWarning, match=f"^dynamics.{name} is dynamics.{now} now"):
                getattr(dynamics, name)
        with pytest.raises(AttributeError, match=r"^dynamics.timed is dynamics.derivative.timed now: set that"):
            dynamics.timed = False
        with pytest.raises(AttributeError, match="'Dynamics' has no attribute 'solved'"):
            getattr(dynamics, "solved")  # noqa: B009


@pytest.mark.parametrize("looped", [False, True], ids=["tree", "loops"])
def test_arrays_are_the_callers_own(looped: bool, comm: MPI.Comm) -> None:
    """What a call gave stays as it was when the next one is made in another state; and can be written."""
    if looped:
        system, q, u, tau = random_mechanism(5, 30, 5)
        others = q, 2.0 * u, -tau
    else:
        system, q, u, tau = random_tree("recursive", "scrambled")
        others = moving_state(system, 3)
    calls = OF_ALL | (OF_LOOPS if looped else OF_TREES)
    wrong = []
    with closing(Dynamics(system, comm)) as dynamics:
        first, second = (parts(dynamics, *state) for state in ((q, u, tau), others))
        for name, call in calls.items():
            given = [array.copy() for array in first]
            found = flat(call(dynamics, *given))
            kept = [array.copy() for array in found]
            call(dynamics, *second)
            if not all(np.array_equal(*pair) for pair in zip(found, kept, strict=True)):
                wrong.append(f"{name} changed with the next call")
            for array in found:
                if array.flags.writeable:
                    array[...] = 0
            if not all(np.array_equal(*pair) for pair in zip(given, first, strict=True)):
                wrong.append(f"{name} gave back what it was given")
            again = flat(call(dynamics, *first))
            if not all(np.array_equal(*pair) for pair in zip(again, kept, strict=True)):
                wrong.append(f"{name} changed with what it gave")
    parallel_assert(not wrong, "; ".join(wrong), comm)


def test_gathered_vectors_differ(comm: MPI.Comm) -> None:
    """Two vectors gathered one after the other stay two; lists and integers are taken as the numbers that they are."""
    system = system_from("chain:8")
    with closing(Dynamics(system, comm)) as dynamics:
        part = dynamics.gather_u.part
        x, y = np.arange(8.0), -np.arange(8.0)
        a, b = dynamics.gather_u(x[part]), dynamics.gather_u(y[part])
        of_list = dynamics.gather_u(x[part].astype(int).tolist())
        of_halves = dynamics.gather_u.everywhere(np.repeat(x, 2)[::2][part])
        with pytest.raises(InputError, match="what is gathered must be an array of shape"):
            dynamics.gather_u(x[part][comm.rank == comm.size - 1 :])
        with pytest.raises(InputError, match="what is gathered must be"):
            dynamics.divided.gather_bodies(6)(["a"] * len(dynamics.bodies))
    if comm.rank == 0:
        assert a is not None and b is not None and of_list is not None
        assert np.array_equal(a, x) and np.array_equal(b, y) and np.array_equal(of_list, x)
    assert np.array_equal(of_halves, x)


@pytest.mark.parametrize("spec", ["rope:8", "four_bar_chain:6"])
def test_what_a_run_gives_stays_and_may_be_written_into(spec: str, comm: MPI.Comm) -> None:
    calls: dict[str, Callable[[Simulation], Array]] = {
        "q": lambda run: run.state.q,
        "u": lambda run: run.state.u,
        "torque": lambda run: run.torque,
        "poses": lambda run: run.poses(),
        "loads": lambda run: run.loads(),
    }
    wrong = []
    with closing(Simulation(spec, comm, every=0.01)) as run:
        run.advance(0.02)
        first = {name: call(run) for name, call in calls.items()}
        kept = {name: array.copy() for name, array in first.items()}
        run.set_torque(np.full(run.system.nu, 0.3))
        run.advance(0.04)
        for name, call in calls.items():
            now = call(run)
            right = now.copy()
            now[...] = 7.0
            wrong += [f"{name} stood still"] * np.array_equal(right, kept[name])
            wrong += [f"{name} changed with the next step"] * (not np.array_equal(first[name], kept[name]))
            wrong += [f"writing into {name} changed the run"] * (not np.array_equal(call(run), right))
    parallel_assert(not wrong, "; ".join(wrong), comm)


WRONG = {"nan": np.nan, "infinite": np.inf}


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_what_is_not_finite_is_refused(value: float, comm: MPI.Comm) -> None:
    """A state of one rank that is not finite is refused on all, as the command line does, by each method."""
    for looped in (False, True):
        system, *state = random_mechanism(5, 30, 5) if looped else random_tree("recursive")
        calls = OF_ALL | (OF_LOOPS if looped else OF_TREES)
        taken = NONE | {"gather_q", "gather_u", "divided.gather_bodies", "bodies", "the model's state", "numbers"}
        taken |= {  # by address
            *("loads.driving", "loads.after", "divided.boundary_motion", "divided.step_motions"),
            "inertia.times",
        }
        with closing(Dynamics(system, comm)) as dynamics:
            q, u, tau = (array.copy() for array in parts(dynamics, *state))
            if comm.rank == comm.size - 1:
                q[-1] = value
            for name in sorted(calls.keys() - taken):  # in the same order on all ranks
                with pytest.raises(InputError, match=r"q(:| is not finite at index \d+)"):
                    calls[name](dynamics, q, u, tau)


def test_states_are_checked_or_converted(comm: MPI.Comm) -> None:
    """Integers, lists and strided arrays are the numbers that they are; times are checked; nothing waits."""
    system = system_from("chain:8")
    with closing(Dynamics(system, comm)) as dynamics:
        q, u = parts(dynamics, np.arange(8.0), np.ones(8))
        right = dynamics.accelerations(q, u)
        for given in (q.astype(int), q.tolist(), np.repeat(q, 2)[::2], q.astype(np.float32)):
            parallel_assert(np.array_equal(dynamics.accelerations(given, u), right), f"{type(given)}", comm)
        for t in (np.nan, "now", None):
            for call in (dynamics.accelerations, dynamics.joint_loads, dynamics.loads.drive_forces):
                with pytest.raises(InputError, match="t must be a time"):
                    call(q, u, t=t)
            with pytest.raises(InputError, match="t must be a time"):
                dynamics.inverse_dynamics(q, u, u, t=t)
        for bad in ([[0.0], [1.0, 2.0]], ["a"] * len(q), q + 1j, np.append(q, 0.0), q.reshape(-1, 1), None):
            given = bad if comm.rank == 0 else q
            with pytest.raises(InputError, match=r"^q must be"):
                dynamics.accelerations(given, u)


def test_batches_take_what_numpy_makes_arrays_of() -> None:
    """Copies in lists and integers are evaluated as the numbers that they are; others are refused."""
    batch = Batch("chain:3", 4)
    q, u = np.arange(12.0).reshape(4, 3), np.ones((4, 3))
    right = batch.accelerations(q, u)
    assert np.array_equal(batch.accelerations(q.astype(int), u.tolist()), right)
    assert np.array_equal(batch.accelerations(np.asfortranarray(q), u), right)
    for bad in (q[0], q[:, :2], np.where(q == 5.0, np.nan, q), "q"):
        with pytest.raises(InputError, match=r"^q "):
            batch.accelerations(bad, u)
    with pytest.raises(InputError, match="t must be a time"):
        batch.accelerations(q, u, t=np.nan)
    for state in ((q[:2], u), (q, u, q), q[0, 0], ([[0.0], [0.0, 1.0]], u), None):
        if state is not None:
            with pytest.raises(InputError, match=r"^state"):
                batch.simulate(0.01, state=state)


def pendulum() -> System:
    return system_from("chain:2")


TABLES = ("rod", "loop", "gear", "event", "spring")
MISTAKES: dict[str, tuple[Callable[[Dynamics, Path], Any], str]] = {
    **{
        f"add_{name}": (
            lambda d, p, name=name: getattr(pendulum(), f"add_{name}")({"name": "a"}),
            f"^{name}: must be a",
        )
        for name in TABLES
    },
    "add_wrench": (lambda d, p: pendulum().add_wrench("link1", {"force": (1, 0, 0)}), "^wrench: must be a Wrench"),
    "add": (lambda d, p: pendulum().add({"name": "a"}), "^body: must be a Body"),
    "repeat": (lambda d, p: pendulum().repeat(2, {"name": "a"}), "^body: must be a Body"),
    "branch": (lambda d, p: pendulum().branch([3], [0], [-1]), "^body: must be a Body"),
    "read_robot of a number": (lambda d, p: mpimbs.read_robot(3), "the robot's file must be a path, got 3"),
    "read_robot of None": (lambda d, p: mpimbs.read_robot(None), "the robot's file must be a path, got None"),
    "read_system": (lambda d, p: mpimbs.read_system(None), "the model's file must be a path, got None"),
    "write_system": (lambda d, p: mpimbs.write_system(pendulum(), None), "the file must be a path, got None"),
    "load": (lambda d, p: mpimbs.load(None), "the output must be a path, got None"),
    "open_output": (lambda d, p: mpimbs.open_output(3), "the output must be a path, got 3"),
    "restart": (lambda d, p: mpimbs.restart(None), "the checkpoint must be a path, got None"),
    "system_from": (lambda d, p: mpimbs.system_from(None), "named by a text or a path, .*got None"),
    "simulate": (lambda d, p: mpimbs.simulate(3, 1.0), "system must be a System .*got 3"),
    "a state that is none": (lambda d, p: mpimbs.simulate("chain:2", 1.0, state=3.0), "^state: a pair is needed"),
    "a state without q": (lambda d, p: mpimbs.simulate("chain:2", 1.0, state=(None, [0, 0])), "^state: q is missing"),
    "a state of lists": (lambda d, p: mpimbs.simulate("chain:2", 1.0, state=([[0], [0, 1]], [0, 0])), "^state: 'q'"),
    **{
        f"{count} modes": (lambda d, p, count=count: modes(d, d.subchain.q, count), r"count`? must be a")
        for count in (0, -1, 2.5)
    },
    "modes of nan": (lambda d, p: modes(d, d.subchain.q * np.nan), "^q is not finite"),
    "modes of a System": (lambda d, p: modes(pendulum(), [0.0, 0.0]), "`dynamics` must be a Dynamics"),
    "settle of a System": (lambda d, p: settle(pendulum(), [0.0, 0.0]), "`dynamics` must be a Dynamics"),
    "settle of nan": (lambda d, p: settle(d, d.subchain.q * np.nan), "^q is not finite"),
    "jacobian": (lambda d, p: d.jacobian(d.subchain.q, 1), "a body is named by a text, got 1"),
    "jacobian of a point": (lambda d, p: d.jacobian(d.subchain.q, "link1", "x"), "^point must be 3 numbers"),
    "no points": (lambda d, p: d.jacobians.operational_inertia(d.subchain.q, []), "^points must be names of bodies"),
    "points that are none": (
        lambda d, p: d.jacobians.operational_inertia(d.subchain.q, [3]),
        "^points must be names of bodies",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_get_one_clear_error(mistake: str, tmp_path: Path) -> None:
    """What a function can't take is one line that says so."""
    call, message = MISTAKES[mistake]
    with closing(Dynamics(pendulum(), MPI.COMM_SELF)) as dynamics, pytest.raises(InputError) as told:
        call(dynamics, tmp_path)
    assert re.search(message, str(told.value)), told.value
    assert "\n" not in str(told.value)


class TestTogether:
    """Ranks that were given no communicator."""

    pytestmark = starts_mpiexec

    def test_ranks_without_a_communicator_share(self, tmp_path: Path) -> None:
        """All of the job work on one system; where one is given, those of it."""
        script = tmp_path / "script.py"
        script.write_text(
            textwrap.dedent("""
            from mpi4py import MPI
            import mpimbs
            shared = mpimbs.Dynamics("chain:4").subchain.n_bodies, len(mpimbs.accelerations("chain:4"))
            alone = mpimbs.Dynamics("chain:4", MPI.COMM_SELF).subchain.n_bodies
            copies, result = mpimbs.Batch("chain:4", 6).copies, mpimbs.simulate("chain:4", 0.01)
            with open(f"{MPI.COMM_WORLD.rank}.txt", "w") as file:
                print(*shared, alone, copies, result.motion is not None, file=file)
            """),
            encoding="utf-8",
        )
        command = ["mpiexec", "-n", "2", "--oversubscribe", sys.executable, "-m", "mpi4py", str(script)]
        done = subprocess.run(
            command, env=plain_environment(), cwd=tmp_path, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stderr
        told = [(tmp_path / f"{rank}.txt").read_text(encoding="utf-8").strip() for rank in range(2)]
        assert told == ["2 4 4 3 True", "2 4 4 3 False"]
