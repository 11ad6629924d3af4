"""Runs against references: order of convergence of every scheme, adaptive steps, conservation, ranks."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from mpimbs.base.errors import InputError
from mpimbs.model import System, system_from
from mpimbs.parallel.petsc import PREFIX, PETSc
from mpimbs.run.ensembles.batch import Batch
from mpimbs.run.run import simulate
from mpimbs.stepping.schemes import INTEGRATORS
from oracles.dense import momentum
from oracles.mechanisms import four_bar
from run.event_systems import floating
from run.motions import Motion, motion, quaternions_of, reference, tumbler
from tolerances import assert_close

T_END = 0.3
# Of every scheme: its order, and a number of steps after which halving the step shows it above rounding.
ORDERS = {
    "rk4": (4, 16), "bs3": (3, 16), "dopri5": (5, 16), "dop853": (8, 4),
    "petsc:euler": (1, 32), "petsc:2a": (2, 32), "petsc:3bs": (3, 16), "petsc:4": (4, 16), "petsc:5dp": (5, 16),
    "petsc:8vr": (8, 4),
    "rosenbrock2": (2, 32), "rosenbrock": (3, 32), "rosenbrock4": (4, 16),
    "petsc:bdf": (2, 32), "petsc:arkimex3": (3, 16),
}  # fmt: skip
LOOPED = ("rk4", "bs3", "dopri5", "rosenbrock2", "rosenbrock", "rosenbrock4")
SPECS = ("chain:8", "spatial_chain:6", "free_chain:6", "rope:6", "tree:2:3")


@pytest.fixture(scope="module")
def exact(comm: MPI.Comm) -> np.ndarray:
    """q and u of the tumbler at the end."""
    q, u = reference(tumbler(), np.array([T_END]), comm, tolerance=1e-13)
    return np.concatenate([q[-1], u[-1]])


def test_every_scheme_has_an_order_here() -> None:
    assert {name for name in ORDERS if not name.startswith("petsc:")} == set(INTEGRATORS)


@pytest.mark.cases(10)
@pytest.mark.ranks(1)  # what a scheme does is no matter of ranks
@pytest.mark.parametrize("scheme", ORDERS)
def test_order_of_convergence_with_quaternions(comm: MPI.Comm, exact: np.ndarray, scheme: str) -> None:
    order, steps = ORDERS[scheme]
    errors = []
    for count in (steps, 2 * steps):
        run, result = motion(tumbler(), T_END, comm, integrator=scheme, dt=T_END / count, every=T_END / 4)
        assert (result.steps, result.rejected) == (count, 0)
        errors.append(np.abs(run.state - exact).max())
        for where in quaternions_of(tumbler()):
            lengths = np.linalg.norm(run.q[:, where], axis=1)
            assert_close("lengths of the quaternions", lengths, np.ones(len(lengths)), "unit")
        assert run.violation[-1] > 0  # before they were made unit
    observed = np.log2(errors[0] / errors[1])
    assert -0.3 < observed - order < 0.3, f"{scheme}: order {observed:.2f} in place of {order}, errors {errors}"


def parting() -> System:
    """A chain that tumbles, cut when a body passes a plane, at about 0.424 s."""
    system = floating(4)
    system.add_event(when=lambda t, motion: float(motion.position[0, 0]) - 0.646, bodies=["b3"], cut="b3")
    return system


@pytest.mark.cases(5)
@pytest.mark.ranks(1)  # what a scheme does is no matter of ranks
@pytest.mark.parametrize(
    ("make", "end"), [(lambda: four_bar(3, 1.0, -1.0), 0.3), (parting, 1.0)], ids=["loops", "event"]
)
def test_order_of_convergence_with_loops_and_events(make: Callable[[], System], end: float) -> None:
    """Also where states are found within steps: an event is as exact as the steps to it and from it."""
    given: dict[str, Any] = {"every": end, "poses": True}
    right = simulate(make(), end, integrator="dop853", rtol=1e-13, atol=1e-13, **given).poses[-1]
    for scheme in LOOPED:
        order, steps = ORDERS[scheme]
        found = [simulate(make(), end, integrator=scheme, dt=end / n, **given) for n in (steps, 2 * steps)]
        errors = [np.abs(result.poses[-1] - right).max() for result in found]
        assert len(found[0].events) == (end == 1.0)
        assert abs(np.log2(errors[0] / errors[1]) - order) < 0.6, f"{scheme}: {errors}"


@pytest.mark.cases(1)
@pytest.mark.parametrize("spec", [*SPECS, "driven"])
def test_adaptive_steps_follow_the_tolerance(comm: MPI.Comm, spec: str) -> None:
    system = tumbler() if spec == "driven" else system_from(spec)
    end = 0.05 if spec.startswith("rope") else 0.5 if spec.startswith("chain") else 1.0
    times = np.array([0.0, 0.5, 1.0]) * end
    q, u = reference(system, times, comm, "pinocchio")
    errors = []
    for tolerance in (1e-6, 1e-8, 1e-10):
        run, _ = motion(system, end, comm, rtol=tolerance, atol=tolerance, every=0.5 * end)
        errors.append(max(np.abs(run.q - q).max(), np.abs(run.u - u).max()))
        assert errors[-1] < 100 * tolerance, f"{spec}: error {errors[-1]:.1e} with tolerances {tolerance:g}"
    assert errors[0] > 20 * errors[1] > 400 * errors[2], f"{spec}: {errors} with tolerances 1e-6, 1e-8, 1e-10"


def one_of(pendulums: int) -> System:
    """Pendulums that hang from the world, of which the first swings far and all others are at rest."""
    system = System("pendulums", gravity=(0, -9.81, 0))
    for k in range(pendulums):
        joint = {"type": "revolute", "q": 0.0 if k else 2.0}
        given = {"mass": 1.0, "center_of_mass": (0, -0.5, 0), "inertia": (0.01, 0.01, 0.01, 0, 0, 0)}
        system.add(name=f"p{k}", parent="world", joint=joint, **given)
    return system


@pytest.mark.parametrize("integrator", ["dopri5", "rosenbrock", "petsc:bdf"])
def test_accuracy_does_not_depend_on_what_else_there_is(comm: MPI.Comm, integrator: str) -> None:
    """One that swings takes the steps that it takes alone, and has the same error, beside many at rest."""
    settings: dict[str, Any] = {"integrator": integrator, "rtol": 1e-4, "atol": 1e-4, "every": 2.0, "tension": "off"}
    alone, _ = motion(one_of(comm.size), 2.0, comm, **settings)
    beside, _ = motion(one_of(comm.size + 99), 2.0, comm, **settings)
    assert_close("the one that swings", beside.q[:, 0], alone.q[:, 0], "runs on ranks", comm=comm)
    ensemble = Batch(one_of(100), comm.size, comm).simulate(2.0, **settings)
    if comm.rank == 0:
        assert_close("the one that swings, in an ensemble", ensemble.q[:, 0, 0], beside.q[:, 0], "runs on ranks")


@pytest.mark.cases(3)
@pytest.mark.ranks(1)  # what a scheme does is no matter of ranks
@pytest.mark.parametrize("adaptive", [name for name, scheme in INTEGRATORS.items() if scheme.adaptive])
def test_every_adaptive_scheme(comm: MPI.Comm, exact: np.ndarray, adaptive: str) -> None:
    tolerance = {"petsc:bdf": 1e-4, "petsc:2a": 1e-5, "bs3": 1e-5}.get(adaptive, 1e-7)
    run, result = motion(tumbler(), T_END, comm, integrator=adaptive, rtol=tolerance, atol=tolerance, every=0.5 * T_END)
    found = np.abs(run.state - exact).max()
    assert found < 100 * tolerance and result.steps > 2, f"{adaptive}: error {found:.1e}, {result.steps} steps"


def test_options_of_petsc_win(comm: MPI.Comm) -> None:
    other, _ = motion(tumbler(), T_END, comm, integrator="petsc:4", dt=0.03)
    options = PETSc.Options(PREFIX)
    options["ts_rk_type"] = "4"
    try:
        run, _ = motion(tumbler(), T_END, comm, integrator="petsc:5dp", dt=0.03)
    finally:
        options.delValue("ts_rk_type")
    assert np.array_equal(run.state, other.state)
    assert not np.array_equal(run.state, motion(tumbler(), T_END, comm, integrator="petsc:5dp", dt=0.03)[0].state)


@pytest.mark.parametrize(
    ("options", "settings", "expected"),
    [
        ({"mpimbs_ts_adapt_saftey": "0.8"}, {}, "-mpimbs_ts_adapt_saftey has no effect on this run; is it misspelt"),
        ({"ts_adapt_safety": "0.8"}, {}, "-ts_adapt_safety has no effect; write -mpimbs_ts_adapt_safety"),
        ({"mpimbs_ksp_type": "pipecg"}, {}, "-mpimbs_ksp_type has no effect without the solver"),
        ({"mpimbs_ts_type": "nonsense"}, {}, "Unknown TS type: nonsense"),
        ({"mpimbs_ts_rk_type": "4"}, {}, "rk '4' has no error estimate: give a fixed step"),
        ({"mpimbs_ts_rk_type": "4"}, {"dt": 0.01}, None),
        ({"mpimbs_ts_rk_type": "4"}, {"integrator": "dopri5"}, "dopri5 is none of PETSc's integrators"),
        ({"mpimbs_ksp_type": "pipecg"}, {"integrator": "dopri5"}, "-mpimbs_ksp_type has no effect without the solver"),
        ({"mpimbs_ts_adapt_safety": "0.8", "mpimbs_ts_rtol": "1e-3"}, {}, None),
        ({"mpimbs_ksp_type": "pipecg", "mpimbs_direct_ksp_type": "preonly"}, {"coupling": "pcg", "cuts": 3}, None),
    ],
)
def test_options_that_can_not_have_an_effect_are_refused(
    comm: MPI.Comm, tmp_path: Path, options: dict[str, str], settings: dict[str, Any], expected: str | None
) -> None:
    given, output = PETSc.Options(), comm.bcast(tmp_path) / "out.h5"
    for name, value in options.items():
        given[name] = value
    try:
        asked: dict[str, Any] = {"every": 0.05, "output": output, "integrator": "petsc:5dp"} | settings
        with contextlib.nullcontext() if expected is None else pytest.raises(InputError, match=expected):
            simulate(system_from("chain:6"), 0.05, comm, **asked)
    finally:
        for name in options:
            given.delValue(name)
    comm.Barrier()
    assert output.exists() == (expected is None) and (expected is None or not list(output.parent.iterdir()))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({"dt": 0.2}, "`dt=0.2`. is beyond the end at 0.1 s"), ({"every": 0.2}, "0.2 s. is beyond .* `every=0.1` for")],
)
def test_times_beyond_the_end_are_refused(comm: MPI.Comm, settings: dict[str, float], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        simulate(system_from("chain:6"), 0.1, comm, **settings)


@pytest.mark.filterwarnings("error")
def test_speeds_beyond_all_numbers_are_refused(comm: MPI.Comm) -> None:
    system = System("far", gravity=(0, 0, 0))
    for k in range(4):
        joint = {"type": "revolute", **({"u": 1e200} if k == 3 else {})}
        system.add(name=f"b{k}", mass=1.0, inertia=(1, 1, 1, 0, 0, 0), joint=joint)
    with pytest.raises(InputError, match=r"body 'b3': u = 1e\+200 is beyond 1e"):
        simulate(system, 0.1, comm)


def total(run: Motion) -> np.ndarray:
    return run.energy.sum(axis=1)


def momenta(system: System, run: Motion) -> np.ndarray:
    """Linear and angular momentum at some samples, by the dense oracle."""
    return np.array([np.concatenate(momentum(system, q, u)) for q, u in zip(run.q[::4], run.u[::4], strict=True)])


@pytest.mark.parametrize("damping", [0.0, 0.5])
def test_a_free_system_keeps_momentum_and_undamped_its_energy(comm: MPI.Comm, damping: float) -> None:
    system = tumbler(driven=False, gravity=(0, 0, 0), damping=damping)
    run, result = motion(system, 1.0, comm, rtol=1e-10, atol=1e-10, every=0.05)
    found = momenta(system, run)
    assert_close("momentum", found, np.broadcast_to(found[0], found.shape), "conserved")
    if damping:
        assert np.all(np.diff(total(run)) < 0) and total(run)[-1] < 0.9 * total(run)[0]
    else:
        assert_close("energy", total(run), np.full(len(run.time), total(run)[0]), "conserved")
        assert result.energy_change == pytest.approx(np.abs(total(run) - total(run)[0]).max() / run.energy[:, 0].max())
    assert result.energy_change < 1e-9


@pytest.mark.parametrize("spec", ["tumbler", "spatial_chain:9", "rope:8"])
def test_the_same_motion_on_any_number_of_ranks(comm: MPI.Comm, spec: str) -> None:
    system = tumbler() if spec == "tumbler" else system_from(spec)
    end = 0.02 if spec.startswith("rope") else 0.3
    runs = [motion(system, end, c, every=end / 4)[0] for c in (comm, comm, MPI.COMM_SELF)]
    for a, b in zip(runs[0], runs[1], strict=True):
        assert np.array_equal(a, b), "two runs differ"
    states = [np.hstack([run.q, run.u]) for run in runs]
    assert_close(f"{spec} on {comm.size} ranks and on one", states[0], states[2], "runs on ranks", comm=comm)
