"""Closed loops over ranks: any number of ranks finds what the oracles do, and runs go on as elsewhere."""

import functools
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from cases import parts
from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.closure.jacobian import displacements
from mpimbs.dynamics import Dynamics
from mpimbs.model import System, system_from
from mpimbs.parallel.agreement import first_ranks
from mpimbs.parts.subchain import Subchain
from mpimbs.run.restart import restart
from mpimbs.run.result import load
from mpimbs.run.run import simulate
from mpimbs.stepping.integrator import Integrator
from mpimbs.stepping.settings import Checkpoints
from oracles.dense import Array
from oracles.loops import Closed, allowed_speeds, closed, position_violation
from oracles.mechanisms import four_bar_acceleration
from oracles.random_loops import LOOP_TYPES, planar_mechanism, random_mechanism, repeated_mechanism
from tolerances import assert_close

State = tuple[System, Array, Array, Array]

STANDARD = (
    *("four_bar:40", "four_bar_chain:12", "andrews", "parallelogram"),
    *("track:16", "boom:6", "five_bar", "coupled_loops"),
)
RANDOM = {
    **{kind: functools.partial(random_mechanism, 3, 14, 3, loop_types=(kind,)) for kind in LOOP_TYPES},
    "of all types": functools.partial(random_mechanism, 5, 30, 5),
    "some twice": functools.partial(random_mechanism, 6, 24, 4, doubled=2),
    "local": functools.partial(random_mechanism, 7, 40, 6, types=("revolute", "spherical"), reach=6),
    "along a chain": functools.partial(random_mechanism, 20, 16, 3, chain=True),
    "driven": functools.partial(random_mechanism, 9, 20, 4, driven=True),
    "repeated": functools.partial(repeated_mechanism, 1, 4, 1, 17),
    "repeated and linked": functools.partial(repeated_mechanism, 2, 3, 1, 18, 1),
    "linked on a hub": functools.partial(repeated_mechanism, 7, 3, 0, 18, 1, True),
    "planar": functools.partial(planar_mechanism, 4, 16, 3),
}
MECHANISMS = (*STANDARD, *RANDOM)
# Of joints that slide along an axis, which of two bodies has the axis tells how far they are from closed.
COMPARED = "fixed", "revolute", "helical", "universal", "spherical", "planar"


@functools.cache
def state(name: str) -> State:
    """A mechanism off its initial state, moving as its loops allow, and driven; (system, q, u, tau)."""
    if name in RANDOM:
        return RANDOM[name]()
    system = system_from(name)
    rng = np.random.default_rng(1)
    with closing(Dynamics(system, comm=MPI.COMM_SELF)) as dynamics:
        assert dynamics.loops is not None
        away = dynamics.subchain.displaced(dynamics.subchain.q, 0.05 * rng.normal(size=system.nu))
        q = dynamics.loops.close_places(away)
    return system, q, allowed_speeds(system, q, rng.normal(size=system.nu)), rng.normal(size=system.nu)


def whole(dynamics: Dynamics, q: Array) -> Array:
    """The coordinates of all ranks, on all of them."""
    return np.array(dynamics.comm.bcast(dynamics.gather_q(q)))


@functools.cache
def solution(name: str) -> Closed:
    return closed(*state(name))


@pytest.mark.cases(6)
@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("cuts", [None, 7], ids=str)
@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms(comm: MPI.Comm, name: str, cuts: int | None) -> None:
    """Accelerations by the dense oracle, and the same bits again."""
    system, q, u, tau = state(name)
    if system.n_bodies < max(comm.size, (cuts or 0) + 1):
        pytest.skip("more intervals than bodies")
    expected = solution(name).udot
    with closing(Dynamics(system, comm, cuts=cuts)) as dynamics:
        mine, own = parts(dynamics, q, u, tau), dynamics.gather_u.part
        dynamics.accelerations(mine[0], -mine[1])  # leaves numbers of another state
        found = dynamics.accelerations(*mine)
        again = dynamics.accelerations(*mine)
    assert_close("accelerations", found, expected[own], "loops", scale=float(np.abs(expected).max()), comm=comm)
    parallel_assert(np.array_equal(found, again), "other bits the second time", comm)


@pytest.mark.cases(3)
@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("name", MECHANISMS)
def test_in_absolute_coordinates(comm: MPI.Comm, name: str) -> None:
    """Every mechanism by augmented Lagrangian iterations: the independent second opinion."""
    system, q, u, tau = state(name)
    if system.n_bodies < comm.size:
        pytest.skip("more ranks than bodies")
    expected = solution(name).udot
    with closing(Dynamics(system, comm, "augmented")) as dynamics:
        own = dynamics.gather_u.part
        found = dynamics.accelerations(*parts(dynamics, q, u, tau))
        most = dynamics.divided.coupling.statistics()["most_iterations"]
    assert_close("accelerations", found, expected[own], "loops", scale=float(np.abs(expected).max()), comm=comm)
    parallel_assert(most <= 10, f"{most} iterations", comm)


@pytest.mark.cases(8)
@pytest.mark.parametrize("name", MECHANISMS)
def test_what_closes_loops(comm: MPI.Comm, name: str) -> None:
    """Speeds that loops allow by the dense oracle; places where they are closed, to which no way that they allow leads
    nearer; violations, the same on all ranks."""
    system, q, u, _ = state(name)
    if system.n_bodies < comm.size:
        pytest.skip("more ranks than bodies")
    rng = np.random.default_rng(2)
    drawn = u + rng.normal(size=system.nu)
    with closing(Dynamics(system, comm)) as dynamics:
        loops, mine = dynamics.loops, parts(dynamics, q, u, drawn)
        assert loops is not None
        left = loops.violations(mine[0], mine[1])
        opening = loops.violations(mine[0], mine[2])
        speeds, own = loops.close_speeds(mine[0], mine[2]), dynamics.gather_u.part
        away = dynamics.subchain.displaced(q[dynamics.gather_q.part], 1e-4 * rng.normal(size=system.nu)[own])
        apart = loops.violations(away, mine[1])[:, 0]
        closest = loops.nearest_places(away)
        placed, moved = (whole(dynamics, q) for q in (closest, away))
    nothing = np.zeros(len(system.contents.loops))
    assert_close("positions", left[:, 0], nothing, "closed loops", scale=1.0, comm=comm)
    assert_close("velocities", left[:, 1], nothing, "closed loops", scale=float(np.abs(u).max()), comm=comm)
    assert_close(
        "speeds", speeds, allowed_speeds(system, q, drawn)[own], "loops", scale=float(np.abs(drawn).max()), comm=comm
    )
    parallel_assert(opening[:, 1].max() > 0.1, "no loop opens", comm)
    for told in comm.allgather((left, opening, apart)):
        assert all(np.array_equal(ours, theirs) for ours, theirs in zip((left, opening, apart), told, strict=True))
    alike = [loop.type in COMPARED for loop in system.contents.loops]
    assert_close("violations", apart[alike], position_violation(system, moved)[alike], "measures", scale=1.0, comm=comm)
    assert_close("places", position_violation(system, placed), nothing, "closed loops", scale=1.0, comm=comm)
    back = displacements(system.contents.columns(), placed, moved)
    assert_close(
        "ways nearer", allowed_speeds(system, placed, back), np.zeros(system.nu), "loops",
        scale=float(np.abs(back).max()), comm=comm,
    )  # fmt: skip


@pytest.mark.cases(8)
@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "parallelogram"])  # flat, where it is singular
def test_the_nearest_closed_state(comm: MPI.Comm, name: str) -> None:
    """From far: no way that loops allow leads nearer, whichever redundant constraints the ranks leave out."""
    system, q, _, _ = state(name)
    if system.n_bodies < comm.size:
        pytest.skip("more ranks than bodies")
    moved = Subchain(system.contents).displaced(q, 0.05 * np.random.default_rng(2).normal(size=system.nu))
    with closing(Dynamics(system, comm)) as dynamics:
        assert dynamics.loops is not None
        placed = whole(dynamics, dynamics.loops.nearest_places(moved[dynamics.gather_q.part]))
    back = displacements(system.contents.columns(), placed, moved)
    nothing, size = np.zeros(system.nu), float(np.abs(back).max())
    assert_close("ways nearer", allowed_speeds(system, placed, back), nothing, "nearest", scale=size, comm=comm)


@pytest.mark.cases(2)
@pytest.mark.parametrize("tree", ["four_bar", "four_bar_chain"])
@pytest.mark.parametrize("settings", [{}, {"cuts": 7}], ids=str)
def test_a_thousand_linkages(comm: MPI.Comm, tree: str, settings: dict[str, Any]) -> None:
    """By the exact reduced equation."""
    n, theta, omega = 1000, 1.0, -2.0
    system = system_from(f"{tree}:{n}")
    cranks = np.arange(system.n_bodies) % 2 == 0
    sign = np.where(cranks, 1.0, -1.0)
    q = theta * sign
    if tree == "four_bar_chain":
        sign[2:] *= 1.0
        q[2:] += np.where(cranks[2:], -np.pi, np.pi)
    expected = four_bar_acceleration(n, theta) * sign
    with closing(Dynamics(system, comm, **settings)) as dynamics:
        assert dynamics.loops is not None
        mine, own = parts(dynamics, q, omega * sign), dynamics.gather_u.part
        found, left = dynamics.accelerations(*mine), dynamics.loops.violations(*mine)
    assert_close("accelerations", found, expected[own], "many loops", comm=comm)
    assert_close("violations", left, np.zeros_like(left), "closed loops", scale=float(n), comm=comm)


def forced(spec: str) -> System:
    """A system in air, its joints damped: forces that Python gives, which need poses and velocities in the world."""
    system = damped(spec)
    system.add_body_force(None, lambda t, motion: (0.0, -0.3 * motion.velocity), vectorized=True)
    return system


def damped(spec: str) -> System:
    system = system_from(spec)
    system.add_joint_force(None, lambda t, q, u: -0.1 * u)
    return system


@pytest.mark.parametrize("name", ["four_bar:40", "four_bar_chain:12", "boom:6", "track:16"])
def test_functions_act_on_mechanisms(comm: MPI.Comm, name: str) -> None:
    """In air as on one rank, damped as the dense oracle; so are energies and poses."""
    system, q, u, tau = state(name)
    with closing(Dynamics(forced(name), comm=MPI.COMM_SELF)) as alone:
        in_air, energy, poses = alone.accelerations(q, u, tau), alone.energy_and_momentum(q, u), alone.poses(q, u)
    for acted_on, expected in ((forced(name), in_air), (damped(name), closed(system, q, u, tau - 0.1 * u).udot)):
        with closing(Dynamics(acted_on, comm)) as dynamics:
            mine, own = parts(dynamics, q, u, tau), dynamics.gather_u.part
            compared = {
                "accelerations": (dynamics.accelerations(*mine), expected, own),
                "energy": (dynamics.energy_and_momentum(*mine[:2]), energy, slice(None)),
                "rotations": (dynamics.poses(*mine[:2])[0], poses[0], dynamics.bodies),
                "places": (dynamics.poses(*mine[:2])[1], poses[1], dynamics.bodies),
            }
        for what, (found, reference, here) in compared.items():
            assert_close(what, found, reference[here], "loops", scale=float(np.abs(reference).max()), comm=comm)


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["four_bar_chain:9", "ring:12", "boom:4", "geared chain:8"])
def test_restart_on_other_ranks(comm: MPI.Comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """From all ranks to the first one, and from that to all."""
    folder, system = comm.bcast(tmp_path), system_from(name.removeprefix("geared "))
    if name.startswith("geared"):
        system.add_gear(name="gear", joint="link6", of="link2", ratio=-0.5)
    settings: dict[str, Any] = {"dt": 5e-3, "every": 0.05}
    reference = simulate(system, 0.2, comm, **settings)
    step, steps = Integrator.step_towards, []

    def dies(self: Integrator, target: float, *_: float) -> bool:
        steps.append(target)
        if len(steps) == 25:
            raise SimulationError("died")
        return step(self, target)

    for before, after in ((comm.size, 1), (1, comm.size))[: comm.size]:
        output = folder / f"{before}.h5"
        with first_ranks(comm, before) as ranks:
            if ranks is not None:
                steps.clear()
                with monkeypatch.context() as patch, pytest.raises(SimulationError, match="died"):
                    patch.setattr(Integrator, "step_towards", dies)
                    simulate(system, 0.2, ranks, output=output, checkpoints=Checkpoints(steps=10), **settings)
        with first_ranks(comm, after) as ranks:
            if ranks is not None:
                restart(folder / f"{before}.checkpoint.h5", ranks)
        if comm.rank == 0:
            found = load(output)
            for part in ("q", "u"):
                assert_close(part, getattr(found, part), getattr(reference, part), "runs on ranks")
        comm.Barrier()


def test_a_loop_that_can_not_close(comm: MPI.Comm) -> None:
    """All ranks say the same."""
    system = system_from("four_bar:12")
    system.contents.loops[5] = system.contents.loops[5].model_copy(update={"positions": ((5, 0, 0), (1, 0, 0))})
    with closing(Dynamics(system, comm)) as dynamics:
        assert dynamics.loops is not None
        with pytest.raises(SimulationError, match=r"the ends of loop 'pin_5' stay .* apart") as caught:
            dynamics.loops.close_places(dynamics.subchain.q)
        messages = comm.allgather(str(caught.value))
    assert len(set(messages)) == 1
    with pytest.raises(InputError, match="'pin_5'") as refused:
        simulate(system, 0.1, comm)
    assert len(set(comm.allgather(str(refused.value)))) == 1
