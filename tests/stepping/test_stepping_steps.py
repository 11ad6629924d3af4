"""What is told of the steps: their sizes, and whether accuracy, stability or the samples limit them."""

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from mpi_helpers import parallel_assert
from mpimbs.dynamics import Dynamics
from mpimbs.model import System, system_from
from mpimbs.run.run import simulate
from mpimbs.stepping import stability
from mpimbs.stepping.integrators import make_integrator
from mpimbs.stepping.schemes import Accuracy, stable_radius
from mpimbs.stepping.stability import StabilityProbe
from mpimbs.stepping.step_sizes import StepSizes
from mpimbs.stepping.tableaux import TABLEAUX
from oracles.dense import coordinate_rates, dense_accelerations


def stiff(stiffness: float, damping: float) -> System:
    """A pendulum of 1 m, with four small bodies on hard joints at its end."""
    system = System("stiff", gravity=(0, -9.81, 0))
    joint: dict[str, Any] = {"type": "revolute", "axis": (0, 0, 1)}
    system.add(
        name="rod", mass=1, center_of_mass=(0, -1, 0), inertia=(0.1, 0.1, 0.1, 0, 0, 0), joint=joint | {"q": 1.0}
    )
    joint |= {"stiffness": stiffness, "damping": damping}
    for k in range(4):
        system.add(
            name=f"tip{k}", mass=0.1, center_of_mass=(0, -0.3, 0), inertia=(0.01, 0.01, 0.01, 0, 0, 0),
            joint=joint | {"position": (0, -0.5 if k else -1, 0)},
        )  # fmt: skip
    return system


def test_stable_radii_of_the_literature() -> None:
    """Hairer, Norsett, Wanner; Hairer, Wanner: the classical scheme, and that of Dormand and Prince."""
    classical, dormand = TABLEAUX["rk4"].polynomial, TABLEAUX["dopri5"].polynomial
    assert dormand[6] == pytest.approx(1 / 600)
    for polynomial, direction, radius in (
        (classical, np.pi, 2.785),
        (classical, np.pi / 2, 2.83),
        (dormand, np.pi, 3.307),
    ):
        assert stable_radius(polynomial, direction) == pytest.approx(radius, abs=0.03)


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("spec", "damping"), [("stiff", 0.0), ("stiff", 5.0), ("rope:8", 0.0), ("spatial_chain:8", 0.0)]
)
def test_the_fastest_motion(comm: MPI.Comm, spec: str, damping: float) -> None:
    """Against eigenvalues of the Jacobian by differences of the dense oracle."""
    system = stiff(1e5, damping) if spec == "stiff" else system_from(spec)
    if system.n_bodies < comm.size:
        return
    dynamics = Dynamics(system, comm)
    probe = StabilityProbe(dynamics, TABLEAUX["dopri5"].polynomial)
    for _ in range(6):
        probe.look(0.0, dynamics.subchain.q, dynamics.subchain.u)
    assert dynamics.derivative.evaluations == 0 and probe.mode is not None
    c = system.contents.columns()
    state, n = np.concatenate([c.q, c.u]), system.nq

    def rate(x: np.ndarray) -> np.ndarray:
        q, u = x[:n], x[n:]
        for start in (o for o, kind in zip(c.q_offset, c.joint_type, strict=False) if kind == 6):
            q = q.copy()
            q[start : start + 4] /= np.linalg.norm(q[start : start + 4])
        return np.concatenate([coordinate_rates(system, q, u), dense_accelerations(system, q, u, None, 0.0)])

    jacobian = [(rate(state + 1e-6 * e) - rate(state - 1e-6 * e)) / 2e-6 for e in np.eye(len(state))]
    largest = max(np.linalg.eigvals(np.array(jacobian).T), key=abs)
    # A rope has several as fast, 689 and 651 /s: which of them is found depends on the ranks' random start.
    assert 0.9 * abs(largest) < probe.mode.rate < 1.05 * abs(largest)
    assert probe.mode.direction == pytest.approx(abs(np.angle(largest)), abs=0.1)  # of ropes others are near
    if spec == "stiff":
        assert probe.fastest_body().startswith("tip")
    dynamics.close()


STIFF, SMOOTH = "stability", "accuracy"


def test_steps_that_a_time_has_shortened_are_told_apart() -> None:
    """Also one that did not get there, for what followed it was rejected."""
    sizes = StepSizes()
    for some in ([3e-3, -1e-3, 2e-3, 2.5e-3], [-5e-3, -5e-3], [4e-3]):
        sizes.take(some, 8e-3)
    told = sizes.statistics()
    assert (told["smallest"], told["largest"], told["shortened"]) == (2e-3, 4e-3, 3)
    assert told["mean"] == pytest.approx(11.5e-3 / 4) and told["share_of_stable"] == pytest.approx(11.5 / 32)


CASES = [
    ("damped", "dopri5", STIFF), ("damped", "bs3", STIFF), ("damped", "dop853", STIFF), ("overdamped", "dopri5", STIFF),
    ("overdamped", "bs3", STIFF), ("chain16", "dopri5", SMOOTH), ("chain16", "dop853", SMOOTH),
    ("chain16", "bs3", SMOOTH),
]  # fmt: skip


@pytest.mark.parametrize(("case", "scheme", "limit"), CASES)
def test_what_limits_the_steps(comm: MPI.Comm, case: str, scheme: str, limit: str) -> None:
    """The proof of either: how many steps a tolerance ten times as large saves."""
    system, end = {
        "damped": (stiff(1e5, 5.0), 0.3), "overdamped": (stiff(0.0, 50.0), 0.05), 
        "chain16": (system_from("chain16"), 3.0),
    }[case]  # fmt: skip
    runs = [simulate(system, end, comm, integrator=scheme, rtol=rtol, atol=rtol, every=end) for rtol in (1e-5, 1e-4)]
    for run in runs:
        assert run.step_sizes["limited_by"] == limit, run.summary()
        assert (run.step_sizes["share_of_stable"] > 0.85) == (limit == STIFF), run.summary()
    saved = runs[0].steps / runs[1].steps
    assert saved < 1.1 if limit == STIFF else saved > 1.2
    if limit == STIFF:
        assert "tolerance takes no fewer" in runs[0].summary() and "'tip" in runs[0].summary()


def test_what_is_seen_of_stability_changes_nothing(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the motion nor the count of evaluations; nor do functions that fail beside the states of the steps."""
    system = stiff(1e3, 1.0)
    system.add_joint_force("rod", lambda t, q, u: -0.1 * u if t < 0.05 else np.full(1, np.nan) if asked else -0.1 * u)
    asked: list[int] = []
    look = StabilityProbe.look

    def looked(self: StabilityProbe, *state: Any) -> None:
        asked.append(1)
        look(self, *state)
        asked.clear()
        looks.append(self.mode)

    looks: list[Any] = []
    monkeypatch.setattr(StabilityProbe, "look", looked)
    runs = []
    for first in (10**9, 20):
        monkeypatch.setattr(stability, "FIRST", first)
        monkeypatch.setattr(stability, "FEWEST", 20)
        looks.clear()
        runs.append(simulate(system, 0.1, comm, every=0.02))
    assert len(looks) > 2 and looks[-1] is not None
    assert runs[0].evaluations == runs[1].evaluations
    if comm.rank == 0:
        assert np.array_equal(runs[0].q, runs[1].q) and np.array_equal(runs[0].u, runs[1].u)


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("scheme", "rtol", "every"),
    [
        ("bs3", 1e-11, 0.01),
        ("dopri5", 1e-11, 0.01),
        ("dop853", 1e-11, 0.1),
        ("rosenbrock2", 1e-3, 0.1),
        ("rosenbrock", 1e-4, 0.1),
        ("rosenbrock4", 1e-5, 0.1),
        ("petsc:5dp", 1e-11, 0.01),
        ("petsc:arkimex3", 1e-4, 0.1),
    ],
)
def test_any_step_goes_on_from_the_memory_of_the_one_before_with_the_same_bits(
    scheme: str, rtol: float, every: float
) -> None:
    """Also one that is tried again at once: its first stage is still the last one of the step before."""
    dynamics, accuracy = Dynamics(system_from("chain:8")), Accuracy(rtol=rtol, atol=rtol)
    stepper = make_integrator(dynamics, dynamics.subchain.q, dynamics.subchain.u, scheme, accuracy)
    rejected = 0
    for t in np.arange(every, 0.8, every):
        reached = False
        while not reached:
            other = make_integrator(dynamics, *stepper.parts, scheme, accuracy, memory=stepper.memory())
            before = stepper.rejected
            reached = stepper.step_towards(t)
            assert other.step_towards(t) == reached
            assert other.time == stepper.time and other.step_size == stepper.step_size
            assert np.array_equal(np.concatenate(other.parts), np.concatenate(stepper.parts)), f"t = {stepper.time} s"
            rejected += stepper.rejected - before
            other.close()
    assert rejected, "no step was tried again: nothing is shown"
    stepper.close()
    dynamics.close()


def test_whether_solutions_are_refined_is_kept(comm: MPI.Comm) -> None:
    """Whatever checks a run; but not over a change of what acts or holds."""
    with closing(Dynamics(system_from("four_bar:3"), comm)) as dynamics:
        loops, accuracy = dynamics.loops, Accuracy(rtol=1e-8, atol=1e-8)
        assert loops is not None
        given = dynamics, dynamics.subchain.q, dynamics.subchain.u, "dopri5", accuracy
        stepper = make_integrator(*given)
        loops.refining = True
        memory = stepper.memory()
        for known, expected in ((memory, True), (memory.of_another(), False)):
            loops.refining = False
            make_integrator(*given, memory=known)
            parallel_assert(loops.refining == expected, f"{loops.refining}", comm)


def test_the_first_evaluation_that_counts_decides_whether_solutions_are_refined(comm: MPI.Comm) -> None:
    """No question before it, nor the first one behind a restart: seed 992102820 went on with other bits."""
    with closing(Dynamics(system_from("four_bar:3"), comm)) as dynamics:
        loops, derivative, subchain = dynamics.loops, dynamics.derivative, dynamics.subchain
        assert loops is not None
        arrays = 0.0, subchain.q, subchain.u, np.empty(subchain.nu), np.empty(subchain.nq)
        with derivative.uncounted():
            derivative(*arrays)
        parallel_assert(loops.refining is None, "a question decides", comm)
        derivative(*arrays)
        parallel_assert(loops.refining is False, "the first evaluation decides nothing", comm)
        with derivative.uncounted():
            loops.refining = True  # as evaluations of other states may set it
            derivative(*arrays)
        parallel_assert(loops.refining is False, "a question changes what is decided", comm)
