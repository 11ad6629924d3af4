"""The coupling `augmented`: its iterates are the paper's, and what they end in is what all couplings find."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from cases import mixed_chain, moving_state, parts, random_tree
from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.coupling import Lagrangian
from mpimbs.dynamics import Dynamics
from mpimbs.model import System, system_from
from mpimbs.run.result import load
from mpimbs.run.run import simulate
from oracles.dense import Array, dense_accelerations
from oracles.euler_parameters import iterate
from oracles.trees import SHAPES
from tolerances import assert_close

pytestmark = pytest.mark.time_limit(300)  # compiles


def accelerations(comm: MPI.Comm, system: Any, *given: Array, **settings: Any) -> tuple[Array, Array, int]:
    """This rank's part, which it is, and how many iterations it took."""
    with closing(Dynamics(system, comm, "augmented", **settings)) as dynamics:
        found = dynamics.accelerations(*parts(dynamics, *given))
        return found, dynamics.gather_u.part, dynamics.divided.coupling.statistics()["most_iterations"]


def test_loads_where_nothing_can_move(comm: MPI.Comm) -> None:
    """Of a mast of fixed bodies the weight above each joint; there are no coordinates to tell states apart by."""
    system = System("mast", gravity=(0, 0, -9.81))
    for k in range(4):
        place = {"position": (0, 0, 1.0 if k else 0.0)}
        system.add(name=f"part{k}", mass=1.0 + k, inertia=(1, 1, 1, 0, 0, 0), joint={"type": "fixed", **place})
    with closing(Dynamics(system, comm, "augmented")) as dynamics:
        found = np.concatenate(comm.allgather(dynamics.joint_loads(np.zeros(0), np.zeros(0))))
    above = np.cumsum(np.arange(4.0, 0.0, -1.0))[::-1]
    assert_close("loads", found[:, 5], 9.81 * above, "statics", comm=comm)


@pytest.mark.parametrize("spec", ["five_bar", "coupled_loops", "spatial_chain:5"])
@pytest.mark.parametrize("penalty", [3.0, 1e3])
def test_iterates_are_those_with_euler_parameters(comm: MPI.Comm, spec: str, penalty: float) -> None:
    """After two iterations, far from what they end in; Euler parameters keep their norm from the first one on."""
    system = system_from(spec)
    if comm.size > system.n_bodies:
        pytest.skip("more ranks than bodies")
    q, u, tau = moving_state(system)
    with closing(Dynamics(system, comm=MPI.COMM_SELF)) as alone:
        if alone.loops is not None:
            q = alone.loops.close_places(q)
            u = alone.loops.close_speeds(q, u)
    state = q, u, tau
    expected, norms = iterate(system, *state, penalty=penalty, count=2)
    found, own, count = accelerations(comm, system, *state, lagrangian=Lagrangian(penalty, iterations=2, accepted=0.9))
    parallel_assert(count == 2, f"{count} iterations", comm)
    assert_close("iterates", found, expected[own], "penalised", scale=float(np.abs(expected).max()), comm=comm)
    assert_close("norms", norms, np.zeros_like(norms), "dense", scale=float(np.abs(expected).max()))


@pytest.mark.cases(4)
@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize("shape", SHAPES)
def test_trees(comm: MPI.Comm, shape: str) -> None:
    """Of all joint types, sprung, with wrenches; by the dense oracle."""
    system, *state = random_tree(shape)
    found, own, _ = accelerations(comm, system, *state)
    assert_close("accelerations", found, dense_accelerations(system, *state)[own], "iterated", comm=comm)


def test_joint_loads_are_the_multipliers(comm: MPI.Comm) -> None:
    """Of trees, where they are unique."""
    for system, *state in (random_tree("binary"), mixed_chain(12)):
        with closing(Dynamics(system, comm=MPI.COMM_SELF)) as alone:
            expected = alone.joint_loads(*state)
        with closing(Dynamics(system, comm, "augmented")) as dynamics:
            found = dynamics.joint_loads(*parts(dynamics, *state))
            scale = float(np.abs(expected).max())
            assert_close("loads", found, expected[dynamics.bodies], "multipliers", scale=scale, comm=comm)


def test_runs_are_those_of_dcae(comm: MPI.Comm, tmp_path: Path) -> None:
    """Projected after every step; what iterations there were is told, and kept with the settings."""
    output = comm.bcast(tmp_path) / "out.h5"
    given: dict[str, Any] = {"t_end": 0.2, "dt": 0.01, "every": 0.05}
    reference = simulate("five_bar", comm=comm, **given)
    result = simulate(
        "five_bar", comm=comm, coupling="augmented", output=output, lagrangian=Lagrangian(penalty=1e7), **given
    )
    assert result.solutions["solutions"] >= result.evaluations and result.solutions["most_iterations"] < 10
    assert "iterations per evaluation" in result.summary()
    comm.Barrier()
    if comm.rank == 0:
        found = load(output)
        assert found.loop_violation.max() < 1e-11
        for part in ("q", "u"):
            assert_close(part, getattr(found, part), getattr(reference, part), "runs on ranks")


def test_what_does_not_converge(comm: MPI.Comm) -> None:
    """All ranks say what, where, how far, and what to choose; afterwards another state is solved as ever."""
    system = system_from("spatial_chain:30")
    state = moving_state(system)
    with closing(Dynamics(system, comm, "augmented", lagrangian=Lagrangian(1.0, 2))) as dynamics:
        with pytest.raises(
            SimulationError, match=r"do not converge at t = 0 s: iteration 2 .* body '.*'.*dcae"
        ) as told:
            dynamics.accelerations(*parts(dynamics, *state))
        assert len(set(comm.allgather(str(told.value)))) == 1
        mine = parts(dynamics, *state)
        with pytest.raises(InputError, match="u is not finite"):
            dynamics.accelerations(mine[0], np.full_like(mine[1], np.nan))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lagrangian": Lagrangian(penalty=-1.0)}, "penalty of constraints must be positive"),
        ({"lagrangian": Lagrangian(iterations=0)}, "iterations allowed must be 1 or more"),
        ({"lagrangian": Lagrangian(tolerance=2.0)}, "must be between 0 and 1"),
        ({"lanes": 4}, "sweeps no bodies in lanes; leave `lanes=4` out"),
        ({"cuts": 7}, "leave `cuts=7` out"),
        ({"coupling": "dcae", "lagrangian": Lagrangian()}, "leave out `lagrangian`, or choose"),
        ({"coupling": "assembly", "lagrangian": Lagrangian()}, "leave out `lagrangian`, or choose"),
    ],
    ids=str,
)
def test_bad_settings(comm: MPI.Comm, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as told:
        Dynamics("chain:12", comm, **{"coupling": "augmented"} | settings)
    assert len(set(comm.allgather(str(told.value)))) == 1


@pytest.mark.long
def test_bars_pass_a_singular_position_closely() -> None:
    """Where nearly all bars lie in one line, one combination of constraints is almost none, and must hold."""
    by_sweep, result = (
        simulate("five_bar", 3.5, MPI.COMM_SELF, coupling=coupling, rtol=1e-9, atol=1e-9, every=0.01)
        for coupling in ("dcae", "augmented")
    )
    # How many steps a passage so close takes rests on its last digits: the sweep's own number is what can be held.
    assert result.energy_error < 1e-2 and result.steps < 2 * by_sweep.steps, (result, by_sweep)


def test_a_parallelogram_that_folds_flat(comm: MPI.Comm) -> None:
    """Projected, it comes out of flat positions, where it could branch, as what it was: its coupler does not turn."""
    if comm.size > 3:
        pytest.skip("more ranks than bodies")
    result = simulate("four_bar:1", 3.0, comm, coupling="augmented", rtol=1e-9, atol=1e-9, every=0.01)
    if comm.rank == 0:
        q = np.asarray(result.q)
        flat = np.diff(np.floor(q[:, 0] / np.pi))
        assert np.abs(flat).sum() >= 2.0, "is it flat at all?"
        assert_close("angle of the coupler", q[:, 0] + q[:, 1], np.zeros(len(q)), "closed", scale=1.0)
        assert result.energy_error < 1e-6
