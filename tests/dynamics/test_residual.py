"""What accelerations leave of the equations of motion: nothing if right, and what a dense solve says if not."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from cases import moving_state, parts, random_tree
from fuzzing import read_case
from mpi_helpers import parallel_assert
from mpimbs import simulate
from mpimbs.base.errors import SimulationError
from mpimbs.closure.jacobian import LoopJacobian
from mpimbs.closure.report import mobility
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.residual import EXACT
from mpimbs.dynamics.state_derivative import StateDerivative
from mpimbs.files.motion import Motion
from mpimbs.model import Joint, System, system_from
from oracles import dense
from oracles.dense import Array
from tolerances import TOLERANCE, assert_close

SYSTEMS = ("chain16", "spatial_chain:64", "rope:40", "free_chain:12", "random_tree:60", "figure", "tree:3:4")
LOOPED = ("four_bar:5", "four_bar_chain:12", "boom:12", "track:12", "andrews")


def state_of(name: str, comm: MPI.Comm) -> list[Array]:
    """A state of a model that the loops allow, and forces."""
    with closing(Dynamics(name, comm)) as dynamics:
        whole = moving_state(dynamics.system, 1, 0.2)
        q, u, _ = parts(dynamics, *whole)
        if dynamics.loops is not None:
            q = dynamics.loops.close_places(q)
            u = dynamics.loops.close_speeds(q, u)
        return [dynamics.gather_q.everywhere(q), dynamics.gather_u.everywhere(u), whole[2]]


@pytest.mark.cases(6)
@pytest.mark.parametrize("name", SYSTEMS + LOOPED)
def test_nothing_is_left(comm: MPI.Comm, name: str) -> None:
    """By every coupling that takes it; of accelerations of which one is wrong by a thousandth, far more."""
    whole = state_of(name, comm)
    couplings = {"dcae": "residual", "assembly": "residual", "pcg": "iterated", "augmented": "multipliers"}
    for coupling, tolerance in couplings.items():
        cuts = comm.size - 1 if coupling == "pcg" else None
        with closing(Dynamics(name, comm, coupling, cuts=cuts)) as dynamics:
            q, u, tau = parts(dynamics, *whole)
            udot = dynamics.accelerations(q, u, tau)
            found = dynamics.loads.residual(q, u, udot, tau)
            parallel_assert(found.motion < TOLERANCE[tolerance][0], f"{coupling}: {found}", comm)
            parallel_assert(found.loops < 1e-11 and found.load < 1e4, f"{coupling}: {found}", comm)
            assert coupling in ("pcg", "augmented") or dynamics.loads.residual(q, u, None, tau)[:6] == found[:6]
            if comm.rank == comm.size // 2:
                udot[int(np.argmax(abs(udot)))] *= 1.001
            wrong = dynamics.loads.residual(q, u, udot, tau)
            parallel_assert(max(wrong.motion, wrong.loops) > 1e-9, f"{coupling}: not seen, {wrong}", comm)


@pytest.mark.parametrize("shape", ["chain", "brush", "recursive forest"])
def test_what_is_left_is_as_a_dense_solution_says(comm: MPI.Comm, shape: str) -> None:
    """M times what is wrong with the accelerations."""
    system, q, u, tau = random_tree(shape, n=14)
    with closing(Dynamics(system, comm)) as dynamics:
        rng = np.random.default_rng(4)
        right = dense.dense_accelerations(system, q, u, tau)
        wrong = right * rng.uniform(0.5, 1.5, len(right))
        mine = dynamics.gather_u.part
        found = dynamics.loads.residual(*parts(dynamics, q, u, wrong, tau))
        expected = (dense.mass_matrix(system, q) @ (wrong - right))[mine]
        scale = float(abs(dense.mass_matrix(system, q) @ wrong).max())
        assert_close("forces", found.forces, expected, "dense", scale=scale, comm=comm)
        assert found.body in {system.contents.name_of(k) for k in range(system.n_bodies)}


def test_joints_that_follow(comm: MPI.Comm) -> None:
    """They move as they are told, or that is left; inverse dynamics gives what drives them, and nothing else."""
    system = System(name="driven")
    for k in range(6):
        motion = (lambda t: (0.3 * np.sin(t), 0.3 * np.cos(t), -0.3 * np.sin(t))) if k == 2 else None
        parent = {} if k == 0 else {"parent": f"b{k - 1}"}
        system.add(
            name=f"b{k}", mass=1.0 + k, center_of_mass=(0.5, 0, 0.1), inertia=(0.1, 0.2, 0.3, 0, 0, 0), **parent,
            joint={"type": "revolute", "axis": (0, 1, k % 2), "position": (1.0 * (k > 0), 0, 0), "armature": 0.1 * k}
            | ({} if motion is None else {"motion": motion}),
        )  # fmt: skip
    with closing(Dynamics(system, comm)) as dynamics:
        q, u, _ = parts(dynamics, *moving_state(system, 3))
        q, u = dynamics.divided.followed(0.7, q, u)
        udot = dynamics.accelerations(q, u, t=0.7)
        found = dynamics.loads.residual(q, u, udot, t=0.7)
        parallel_assert(found.motion < TOLERANCE["residual"][0], f"{found}", comm)
        held = dynamics.subchain.columns.prescribed
        wrong = udot + 1e-3 * held
        parallel_assert(dynamics.loads.residual(q, u, wrong, t=0.7).motion > EXACT.motion, "not seen", comm)
        driving = dynamics.loads.drive_forces(q, u, 0.7)
        scale = max(comm.allgather(float(abs(driving).max(initial=0.0))))
        needed = dynamics.inverse_dynamics(q, u, udot, 0.7)
        assert scale > 1.0
        assert_close("forces", needed, driving, "round trip", scale=scale, comm=comm)


# --- runs ---


def spoiled(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Make evaluations wrong by a hundredth in one number, after so many of them."""
    right = StateDerivative.evaluate

    def evaluate(self: StateDerivative, *given: Any, **more: Any) -> Any:
        acted = right(self, *given, **more)
        if self.evaluations > after and MPI.COMM_WORLD.rank == MPI.COMM_WORLD.size - 1:
            given[3][-1] += 0.01 * (1.0 + abs(given[3][-1]))
        return acted

    monkeypatch.setattr(StateDerivative, "evaluate", evaluate)


def test_a_run_tells(comm: MPI.Comm) -> None:
    """The largest residual in the result, its summary, and every sample, the last one checked."""
    result = simulate("four_bar:4", 0.2, comm, every=0.01)
    motion, (loops, loop, _) = result.witness["motion"][0], result.witness["loops"]
    parallel_assert(0 <= motion < EXACT.motion and 0 < loops < EXACT.loops and loop, f"{result.witness}", comm)
    assert result.witness["checks"] >= 2
    dropped = "12 constraints left to others that make what they ask ('"
    assert f"loops to {loops:.1e} ('{loop}'), {dropped}" in result.summary() and result.witness["dropped"][0] == 12
    assert f"'), in {result.witness['checks']} samples checked" in result.summary()
    if comm.rank == 0:
        assert isinstance(result.motion, Motion) and result.equation_residual.shape == (21, 2)
        assert np.array_equal(result.equation_residual[-1], (motion, loops))
    without = simulate("four_bar:4", 0.2, comm, every=0.01, no_witness=True)
    assert not without.witness and without.equation_residual is None and "hold to" not in without.summary()
    if comm.rank == 0:
        assert (
            np.array_equal(without.q, result.q) and without.evaluations == result.evaluations - result.witness["checks"]
        )


@pytest.mark.parametrize("name", ["four_bar:5", "four_bar_chain:12", "boom:12", "andrews"])
def test_constraints_that_are_left_out(comm: MPI.Comm, name: str) -> None:
    """As many as a decomposition into singular values calls redundant, by every coupling that eliminates; named."""
    system, (q, u, tau) = system_from(name), state_of(name, comm)
    loops = {loop.name for loop in system.contents.loops}
    redundant = mobility(LoopJacobian(system.contents), q).redundant
    for coupling in ("dcae", "assembly"):
        with closing(Dynamics(name, comm, coupling)) as dynamics:
            found = dynamics.loads.residual(*parts(dynamics, q, u, tau)[:2])
            parallel_assert(found.dropped == redundant, f"{coupling}: {found.dropped} for {redundant}", comm)
            # Of loops to the world that wait for one another combinations are left out, of which none has a name.
            named = redundant > 0 and name != "four_bar_chain:12"
            parallel_assert((found.without in loops) == named, found.without, comm)


def test_light_parts_that_are_locked(comm: MPI.Comm) -> None:
    """They could move by 1e8 rad/s^2 if nothing held them: 1e-6 beside zero is rounding, a thousand is wrong."""
    case, _ = read_case(Path(__file__).parents[1] / "corpus" / "light-locked-parts.toml")
    with closing(Dynamics(case.system, comm)) as dynamics:
        state = parts(dynamics, case.q, case.u, case.tau)
        udot = dynamics.gather_u.everywhere(dynamics.accelerations(*state))
        for wrong in (0.0, 1e3):
            udot[6] += wrong
            found = dynamics.loads.residual(*state[:2], udot[dynamics.gather_u.part], state[2])
            seen = bool(found.judged(None)), found.loops > EXACT.loops
            parallel_assert(seen == (wrong > 0.0, wrong > 0.0), f"{wrong}: {found}", comm)


@pytest.mark.parametrize("after", [0, 40], ids=["at the begin", "later"])
def test_a_wrong_run_ends(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """With one message on all ranks that names the body and the time; unless nobody wants to know."""
    right = simulate("spatial_chain:8", 0.1, comm, every=0.02, integrator="petsc:5dp")
    spoiled(monkeypatch, after)
    with pytest.raises(SimulationError, match=r"^t = [0-9.]+ s: the accelerations found leave .* at body '._link4'"):
        simulate("spatial_chain:8", 0.1, comm, every=0.02, integrator="petsc:5dp")
    wrong = simulate("spatial_chain:8", 0.1, comm, every=0.02, integrator="petsc:5dp", no_witness=True)
    if comm.rank == 0:
        assert not np.array_equal(wrong.q, right.q)


def test_forces_beyond_numbers(comm: MPI.Comm) -> None:
    """They are named, and nothing is said to be wrong with the program."""
    system = system_from("chain:8")
    system.add_wrench("link1", force=(1e200, 0.0, 0.0))
    with pytest.raises(SimulationError, match=r"^t = 0 s: forces .* at body 'link.' are too large .* look at what"):
        simulate(system, 0.1, comm, every=0.02)


def test_masses_that_cost_digits_are_told(comm: MPI.Comm) -> None:
    """A bob of 1000 kg on a rod of 1 microgram, closed as a loop: some digits are left, as summary and result say.

    Where the light one hangs at the end nothing is lost, and nothing said.
    """
    system = System("light rod", gravity=(0, -9.81, 0))
    inertia = (3.333333333333e-10, 1e-13, 3.333333333333e-10, 0, 0, 0)
    hinge = Joint(type="revolute", axis=(0, 0, 1))
    system.add(name="rod", mass=1e-9, center_of_mass=(0, -1, 0), inertia=inertia, joint=hinge)
    bob = {"mass": 1000.0, "inertia": (40.0,) * 3 + (0, 0, 0), "wrench": ({"force": (1000, 0, 0), "frame": "world"},)}
    free = Joint(type="free", q=(1, 0, 0, 0, 0, -2, 0))
    system.add(name="bob", parent="world", joint=free, **bob)
    system.add_loop(name="weld", type="fixed", bodies=("rod", "bob"), positions=((0, -2, 0), (0, 0, 0)))
    result = simulate(system, 0.1, comm, every=0.05)
    assert_close("masses", result.witness["masses"], 1e12, "rounding")
    told = result.summary()
    assert "masses differ by 1e+12: accelerations may be off by 2e-04" in told, told
    with closing(Dynamics(system, comm)) as dynamics:
        q, u = dynamics.subchain.q, dynamics.subchain.u
        found = dynamics.gather_u.everywhere(dynamics.accelerations(q, u))
        right = 2.0 * 1000.0 / (1000.0 * 4.0 + 40.0)  # about the hinge
        assert abs(found[0] / right - 1.0) < 2e-4
        residual = dynamics.loads.residual(q, u)
        assert residual.judged(dynamics.divided.coupling) == ""
    chain = system_from("chain:4")
    tip = {"mass": 1e-9, "center_of_mass": (0, 0, 0), "inertia": (1e-12,) * 3 + (0, 0, 0)}
    chain.add(name="tip", joint=Joint(type="revolute"), **tip)
    with closing(Dynamics(chain, comm)) as dynamics:
        found = dynamics.loads.residual(dynamics.subchain.q, dynamics.subchain.u)
        assert found.masses > 1e8 and "differ" not in found.told()
