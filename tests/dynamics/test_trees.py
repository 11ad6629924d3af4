"""Trees over ranks: any number of ranks find what the oracle does, and runs go on as elsewhere."""

from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from mpi4py import MPI

from cases import LISTINGS, parts, random_tree, tree_of
from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError
from mpimbs.base.sizes import PACKAGE, using
from mpimbs.coupling import LoadSolver
from mpimbs.dynamics import Dynamics
from mpimbs.files.motion import BodyHistory
from mpimbs.kernels.lanes import native_width
from mpimbs.model import JOINT_TYPES, System, system_from
from mpimbs.model.order.segments import Integers
from mpimbs.run.result import Result
from mpimbs.run.run import simulate
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import SETTINGS
from oracles.trees import SHAPES
from oracles.trees import parents as drawn_parents
from tolerances import assert_close

TIME = 0.7
PARENTS = drawn_parents(24)
TWO = ("spherical", "universal")
EXACT: dict[str, Any] = {"coupling": "pcg", "solver": LoadSolver("direct")}
JOINED: dict[str, dict[str, Any]] = {
    "dcae": {}, "dcae of 8": {"cuts": 7}, "pcg": EXACT, "pcg of 8": EXACT | {"cuts": 7}
}  # fmt: skip


# Every shape, in every way once: more would say little.
BRANCHED = sorted(set(SHAPES) - {"chain"})
SOME = [
    *((shape, "dcae", "scrambled") for shape in BRANCHED),
    *((shape, "pcg", "scrambled") for shape in BRANCHED[::2]),
    *((shape, "pcg of 8", "depth first") for shape in BRANCHED[1::2]),
    *((shape, "dcae of 8", "depth first") for shape in BRANCHED[::2]),
]


def unit_quaternions(system: System, q: Array) -> Array:
    """The same coordinates with quaternions of unit length."""
    found = q.copy()
    for first, kind in zip(
        system.contents.offsets()[0], (JOINT_TYPES[row] for row in system.contents.joint_types()), strict=False
    ):
        if kind.quaternion:
            found[first : first + 4] /= np.linalg.norm(q[first : first + 4])
    return found


@pytest.mark.cases(6)
@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize(("shape", "joined", "listing"), SOME)
def test_trees_of_all_shapes(comm: MPI.Comm, shape: str, joined: str, listing: str) -> None:
    """Accelerations and joint loads by the dense oracle; energy, poses and inverse dynamics by one rank; the same bits
    again."""
    system, q, u, tau = random_tree(shape, listing)
    udot, loads = dense.Snapshot(system, q, u).solve(tau, TIME)
    rotation = dense.kinematics(system, q, u).rotation
    loads = np.einsum("nij,nai->naj", rotation, loads.reshape(-1, 2, 3)).reshape(-1, 6)
    with closing(Dynamics(system, comm=MPI.COMM_SELF)) as alone:
        energy, (turns, places) = alone.energy_and_momentum(q, u), alone.poses(q, u)
        forces = alone.inverse_dynamics(q, u, udot, t=TIME)
    with closing(Dynamics(system, comm, **JOINED[joined])) as dynamics:
        mine = parts(dynamics, q, u, tau)
        own, bodies = dynamics.gather_u.part, dynamics.bodies
        dynamics.accelerations(mine[0], -mine[1], t=TIME)  # leaves numbers of another state
        got = dynamics.accelerations(*mine, t=TIME)
        largest = float(np.abs(udot).max())
        assert_close("accelerations", got, udot[own], "dense", scale=largest, comm=comm)
        again = dynamics.accelerations(*mine, t=TIME)
        parallel_assert(np.array_equal(got, again), "other bits the second time", comm)
        found = dynamics.joint_loads(*mine, t=TIME)
        assert_close("joint loads", found, loads[bodies], "dense", scale=float(np.abs(loads).max()), comm=comm)
        assert_close("energy and momentum", dynamics.energy_and_momentum(*mine[:2]), energy, "dense", comm=comm)
        found_turns, found_places = dynamics.poses(*mine[:2])
        assert_close("rotations", found_turns, turns[bodies], "dense", scale=1.0, comm=comm)
        assert_close("positions", found_places, places[bodies], "dense", scale=float(np.abs(places).max()), comm=comm)
        needed = dynamics.inverse_dynamics(mine[0], mine[1], udot[own], t=TIME)
        largest = float(np.abs(loads).max())
        assert_close("forces by inverse dynamics", needed, forces[own], "round trip", scale=largest, comm=comm)
        whole_u, whole_loads = dynamics.gather_u(mine[1]), dynamics.divided.gather_bodies(6)(loads[bodies])
        assert comm.rank or (np.array_equal(whole_u, u) and np.array_equal(whole_loads, loads.ravel()))
        assert_close(
            "initial state",
            dynamics.subchain.q,
            system.contents.columns().q[dynamics.gather_q.part],
            "exact",
            comm=comm,
        )
        names = [dynamics.subchain.name_of(k) for k in range(len(bodies))]
        parallel_assert(names == [system.contents.name_of(k) for k in bodies], f"{names}", comm)


@pytest.mark.time_limit(300)  # compiles
@SETTINGS
@given(PARENTS, st.sampled_from(sorted(LISTINGS)), st.integers(0, 99), st.sampled_from([None, ("revolute",), TWO]))
def test_drawn_trees(comm: MPI.Comm, parents: Integers, listing: str, seed: int, types: tuple[str, ...] | None) -> None:
    """By the dense oracle, with four lanes where there is something to put side by side."""
    assume(len(parents) >= comm.size)
    system, q, u, tau = tree_of(parents, listing, seed, types)
    expected, _ = dense.Snapshot(system, q, u).solve(tau, TIME)
    with closing(Dynamics(system, comm, lanes=4)) as dynamics:
        mine, own = parts(dynamics, q, u, tau), dynamics.gather_u.part
        found = dynamics.accelerations(*mine, t=TIME)
        size = float(np.abs(expected).max(initial=1.0))
        assert_close("accelerations", found, expected[own], "dense", scale=size, comm=comm)


@pytest.mark.cases(2)
@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize(
    ("shape", "joined"),
    [
        *((shape, "dcae") for shape in ("binary", "caterpillar", "brush", "forest", "star", "recursive forest")),
        ("caterpillar", "pcg"),
        ("recursive forest", "pcg"),
    ],
)
def test_trees_in_lanes(comm: MPI.Comm, shape: str, joined: str) -> None:
    """What shapes of one joint type have in common is swept in lanes, on every rank: as on one rank in doubles."""
    system, q, u, tau = random_tree(shape, "scrambled", n=500, types=("universal",))
    u = 0.1 * u
    with closing(Dynamics(system, lanes=1, comm=MPI.COMM_SELF)) as alone:
        reference = alone.accelerations(q, u, tau)
        loads = alone.joint_loads(q, u, tau)
    with closing(Dynamics(system, comm, lanes=4, **JOINED[joined])) as dynamics:
        mine, own = parts(dynamics, q, u, tau), dynamics.gather_u.part
        assert comm.allreduce(dynamics.divided.lanes, MPI.MAX) == 4
        dynamics.accelerations(mine[0], -mine[1])  # leaves numbers of another state
        found = dynamics.accelerations(*mine)
        size = float(np.abs(reference).max())
        assert_close("accelerations", found, reference[own], "ranks", scale=size, comm=comm)
        found = dynamics.joint_loads(*mine)
        assert_close("joint loads", found, loads[dynamics.bodies], "ranks", scale=float(np.abs(loads).max()), comm=comm)


def test_a_large_random_tree(comm: MPI.Comm) -> None:
    """20,000 bodies in an order that is not depth first."""
    parents = SHAPES["recursive"](20_000)
    system = System(name="random")
    link = system_from("chain:1").contents.segments.template(0)
    system.branch([link], np.zeros(len(parents), np.int64), parents)
    rng = np.random.default_rng(6)
    q, u = rng.normal(size=system.nq), 0.1 * rng.normal(size=system.nu)
    with closing(Dynamics(system, lanes=1, comm=MPI.COMM_SELF)) as alone:
        reference = alone.accelerations(q, u)
    with closing(Dynamics(system, comm)) as dynamics:
        found, own = dynamics.accelerations(*parts(dynamics, q, u)), dynamics.gather_u.part
        counts = comm.allgather(dynamics.subchain.n_bodies)
    assert_close("accelerations", found, reference[own], "ranks", scale=float(np.abs(reference).max()), comm=comm)
    assert max(counts) < 2.0 * len(parents) / comm.size


def forced(spec: str) -> System:
    """A system in air: forces that Python gives, which need poses and velocities in the world."""
    system = system_from(spec)
    system.add_body_force(None, lambda t, motion: (0.0, -0.3 * motion.velocity), vectorized=True)
    system.add_joint_force(None, lambda t, q, u: -0.1 * u, vectorized=True)
    return system


@pytest.mark.parametrize("joined", JOINED)
def test_functions_act_on_trees(comm: MPI.Comm, joined: str) -> None:
    system = forced("tree:4:3")
    rng = np.random.default_rng(5)
    q, u = 0.3 * rng.normal(size=system.nq), rng.normal(size=system.nu)
    with closing(Dynamics(system, comm=MPI.COMM_SELF)) as alone:
        reference = alone.accelerations(q, u)
    with closing(Dynamics(forced("tree:4:3"), comm, **JOINED[joined])) as dynamics:
        found, own = dynamics.accelerations(*parts(dynamics, q, u)), dynamics.gather_u.part
    size = float(np.abs(reference).max())
    assert_close("accelerations", found, reference[own], "ranks", scale=size, comm=comm)


def dressed() -> System:
    """A figure, listed limb beside limb, with all that acts on bodies by their names."""
    system = system_from("figure")
    system.add_body_force(["head", "left_hand"], lambda t, motion: (0.0, (motion.body, 1.0, -motion.velocity[0])))
    system.add_joint_force(["right_shank"], lambda t, q, u: 3.0 + t - u)
    system.set_torque("left_forearm", lambda t: 2.0 + t)
    system.add_wrench("right_foot", force=(1.0, 20.0, 3.0), frame="world")
    for hand, foot in (("left_hand", "right_foot"), ("right_hand", "world")):
        points = ((0.0, -0.05, 0.0), (0.1, 0.02, 0.0))
        system.add_spring(name=hand, bodies=(hand, foot), positions=points, stiffness=40.0, damping=2.0, rest=0.1)
    return system


def test_loads_act_on_the_bodies_that_are_named(comm: MPI.Comm) -> None:
    """Forces, torques, wrenches and springs, of a tree that is renumbered: as on one rank."""
    system = dressed()
    rng = np.random.default_rng(6)
    q, u = unit_quaternions(system, rng.normal(size=system.nq)), rng.normal(size=system.nu)
    with closing(Dynamics(system, comm=MPI.COMM_SELF)) as alone:
        udot, loads, energy = (
            alone.accelerations(q, u, t=TIME), alone.joint_loads(q, u, t=TIME), alone.energy_and_momentum(q, u)
        )  # fmt: skip
        forces = alone.inverse_dynamics(q, u, np.cos(udot), t=TIME)
    with closing(Dynamics(dressed(), comm)) as dynamics:
        own, mine = dynamics.gather_u.part, parts(dynamics, q, u)
        compared = {
            "accelerations": (dynamics.accelerations(*mine, t=TIME), udot, own),
            "loads": (dynamics.joint_loads(*mine, t=TIME), loads, dynamics.bodies),
            "energy": (dynamics.energy_and_momentum(*mine), energy, slice(None)),
            "forces": (dynamics.inverse_dynamics(*mine, np.cos(udot[own]), t=TIME), forces, own),
        }
    for name, (found, reference, here) in compared.items():
        assert_close(name, found, reference[here], "ranks", scale=float(np.abs(reference).max()), comm=comm)


@pytest.fixture(params=["in memory", "by rank 0", "by all ranks"])
def output(request: pytest.FixtureRequest, comm: MPI.Comm, tmp_path: Path) -> Iterator[Path | None]:
    """Where samples are kept, and meanwhile by whom."""
    least = 1 if request.param == "by all ranks" else PACKAGE.sample_bytes
    with using(replace(PACKAGE, slice_numbers=3, sample_bytes=least)):
        yield None if request.param == "in memory" else comm.bcast(tmp_path) / "out.h5"


@pytest.mark.cases(1)
def test_a_run_of_a_tree_that_is_not_listed_depth_first(comm: MPI.Comm, output: Path | None) -> None:
    """Samples, extremes and body histories, by name, are those of one rank."""
    settings: dict[str, Any] = {"dt": 2e-4, "every": 0.01, "poses": True, "loads": True, "extremes": True}
    found = simulate(dressed(), 0.03, comm, output=output, **settings)
    if comm.rank == 0:
        alone = simulate(dressed(), 0.03, **settings, comm=MPI.COMM_SELF)
        assert found.motion is not None and alone.motion is not None
        for name in ("head", "left_hand", "right_foot"):
            ours, theirs = found.motion.body(name), alone.motion.body(name)
            for part in BodyHistory._fields:
                assert_close(f"{part} of {name}", getattr(ours, part), getattr(theirs, part), "runs on ranks")
        with nullcontext(found) if output is None else h5py.File(output) as given:
            extremes = given.extremes if isinstance(given, Result) else given["extremes"]
            for name in alone.extremes:
                assert_close(name, extremes[name][::2], alone.extremes[name][::2], "runs on ranks")
        bodies = [[text.split("'")[1] for text in run.peaks.split(", ") if "'" in text] for run in (found, alone)]
        assert bodies[0] == bodies[1]
    comm.Barrier()


@pytest.mark.cases(1)
def test_samples_that_steps_of_such_a_tree_pass(comm: MPI.Comm, output: Path | None) -> None:
    """Several samples of a step, whose numbers each rank has in another order than the file, are those of one rank."""
    settings: dict[str, Any] = {"every": 2e-4, "poses": True, "rtol": 1e-6, "atol": 1e-6}
    found = simulate(dressed(), 0.01, comm, output=output, **settings)
    assert found.steps < 25  # of 50 samples
    if comm.rank == 0:
        alone = simulate(dressed(), 0.01, **settings, comm=MPI.COMM_SELF)
        for name in ("q", "u", "poses"):
            assert_close(name, getattr(found, name), getattr(alone, name), "runs on ranks")
    comm.Barrier()


@pytest.mark.parametrize("settings", [{"tip_ratio": 2.0}], ids=str)
def test_settings_of_chains_alone(comm: MPI.Comm, settings: dict[str, int]) -> None:
    if comm.size == 1:
        pytest.skip("one rank sweeps a tree whole")
    (name,) = settings
    with pytest.raises(InputError, match=f"is a tree.*leave `{name}="):
        Dynamics("tree:4:2", comm, **settings)


def test_other_couplings_say_which_ones_solve_trees(comm: MPI.Comm) -> None:
    for coupling in ("dca", "dca-terminal"):
        with pytest.raises(InputError, match=r"is a tree.*`coupling='dcae'` or `coupling='pcg'`, which solve"):
            Dynamics("tree:4:2", comm, coupling)


@pytest.mark.parametrize("coupling", ["dcae", "pcg"])
def test_cuts_that_cannot_be_made(comm: MPI.Comm, coupling: str) -> None:
    for cuts in (-1, 31, 40):
        with pytest.raises(InputError, match=rf"{cuts} cuts in a tree of 31 bodies: give `cuts` from 0 to 30"):
            Dynamics("tree:4:2", comm, coupling, cuts=cuts)
    if comm.size > 1:
        with pytest.raises(InputError, match=rf"0 cuts make 1 intervals for {comm.size} ranks.*`cuts={comm.size - 1}`"):
            Dynamics("tree:4:2", comm, coupling, cuts=0)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("lanes", [2, 4, 8])
def test_bodies_that_are_fixed_to_those_of_a_path(comm: MPI.Comm, lanes: int, mixed: bool) -> None:
    """What goes on of the path lies on them, or, where that is mixed, once on the body, between two of four lanes."""
    if lanes > native_width():
        pytest.skip(f"this processor has no {lanes} lanes")
    system, inertia = System("path", gravity=(0, 0, -9.81)), (0.02, 0.03, 0.04, 0, 0, 0)
    for k in range(64):
        on = "world" if k == 0 else f"link{k - 1}x" if mixed and k == 32 else f"half{k - 1}x"
        joint = {"type": "revolute", "axis": np.eye(3)[k % 3], "position": (0.3, 0.1, 0)}
        system.add(name=f"link{k}x", parent=on, mass=1, inertia=inertia, center_of_mass=(0.1, 0, 0), joint=joint)
        foot = {"type": "revolute", "axis": (1, 0, 0), "position": (0, 0.2, 0)}
        system.add(name=f"foot{k}x", parent=f"link{k}x", mass=0.2, inertia=inertia, joint=foot)
        half = {"type": "fixed", "position": (0.2, 0, 0.1), "rotation": (0.8, 0.6, 0, 0)}
        system.add(name=f"half{k}x", parent=f"link{k}x", mass=0.5, inertia=inertia, joint=half)
    q, u = np.random.default_rng(lanes).uniform(-1, 1, (2, system.nq))
    with closing(Dynamics(system, comm, lanes=lanes)) as dynamics:
        own = dynamics.gather_u.part
        udot = dynamics.gather_u.everywhere(dynamics.accelerations(q[dynamics.gather_q.part], u[own]))
    right = dense.dense_accelerations(system, q, u)
    assert_close("accelerations", udot, right, "lanes joined", scale=float(np.abs(right).max()))
