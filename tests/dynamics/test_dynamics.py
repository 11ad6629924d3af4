"""The pipeline over ranks: the same results as on one rank, bit for bit the same each time, errors on all ranks."""

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext

import numpy as np
import pytest
from mpi4py import MPI

from cases import GENERATORS, accelerations, mixed_chain, moving_state, typed_chain
from mpi_helpers import parallel_assert, run_job, starts_mpiexec
from mpimbs.base.errors import InputError
from mpimbs.dynamics import Dynamics
from mpimbs.kernels.lanes import native_width
from mpimbs.model import Joint, System, system_from
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import random_system
from tolerances import assert_close

SIZES = (7, 16, 63, 256, 1024)
NATIVE = native_width()


def case(kind: str, n: int, seed: int = 0) -> tuple[System, Array, Array, Array]:
    """A chain of a standard kind, or a random one of all joint types, and a moving state of it."""
    if kind == "mixed":
        return mixed_chain(n, seed)
    system = system_from(f"{kind}:{n}")
    return system, *moving_state(system, seed)


@contextmanager
def distributed(system: System, comm: MPI.Comm, **options: float | None) -> Iterator[tuple[Dynamics, slice, slice]]:
    """Dynamics over the ranks, and this rank's parts of q and of u."""
    with closing(Dynamics(system, comm, **options)) as dynamics:  # type: ignore[arg-type]
        yield dynamics, dynamics.gather_q.part, dynamics.gather_u.part


@pytest.mark.cases(6)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("kind", [*GENERATORS, "mixed"])
def test_ranks_agree_with_one(comm: MPI.Comm, kind: str, n: int) -> None:
    """Accelerations, rates, energies, momenta and poses of a state are those of one rank alone."""
    system, q, u, tau = case(kind, n)
    with closing(Dynamics(system, comm=MPI.COMM_SELF)) as alone:
        udot, rates = np.empty(system.nu), np.empty(system.nq)
        alone.derivative(0.0, q, u, udot, rates, tau)
        totals, (rotations, positions) = alone.energy_and_momentum(q, u), alone.poses(q, u)
    with distributed(system, comm) as (dynamics, mine, ours):
        got, got_rates = np.full(ours.stop - ours.start, np.nan), np.full(mine.stop - mine.start, np.nan)
        dynamics.derivative(0.0, q[mine], u[ours], got, got_rates, tau[ours])
        got_totals, (got_rotations, got_positions) = (
            dynamics.energy_and_momentum(q[mine], u[ours]),
            dynamics.poses(q[mine], u[ours]),
        )
        bodies = slice(dynamics.subchain.first, dynamics.subchain.last)
    size = np.abs(udot).max()
    assert_close("accelerations", got, udot[ours], "ranks", scale=size, comm=comm)
    assert_close("coordinate rates", got_rates, rates[mine], "exact", comm=comm)
    for name, part in (("energies", slice(0, 2)), ("momentum", slice(2, 5)), ("angular momentum", slice(5, 8))):
        assert_close(name, got_totals[part], totals[part], "ranks", comm=comm)
    assert_close("rotations", got_rotations, rotations[bodies], "ranks", scale=1.0, comm=comm)
    assert_close("positions", got_positions, positions[bodies], "ranks", scale=np.abs(positions).max(), comm=comm)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [4, 9, 30])
def test_ranks_against_dense(comm: MPI.Comm, n: int, seed: int) -> None:
    system, q, u, tau = case("mixed", n, seed)
    reference = dense.dense_accelerations(system, q, u, tau)
    with distributed(system, comm) as (dynamics, mine, ours):
        got = dynamics.accelerations(q[mine], u[ours], tau[ours])
    size = np.abs(reference).max()
    assert_close("accelerations", got, reference[ours], "dense", scale=size, comm=comm)


PERIODIC = ("spherical", "revolute", "helical")  # joints that repeat: for lanes


@pytest.mark.parametrize("lanes", [None, 1, NATIVE])
@pytest.mark.parametrize("kind", [*GENERATORS, "periodic"])
def test_lanes_on_ranks_agree_with_one_lane(comm: MPI.Comm, kind: str, lanes: int | None) -> None:
    """Ranks cut at multiples of the lanes, wherever they sweep in lanes."""
    n = 300
    if kind == "periodic":
        system = typed_chain(PERIODIC * (n // 3), 0)
        q, u, tau = moving_state(system)
    else:
        system, q, u, tau = case(kind, n)
    udot, rates = np.empty(system.nu), np.empty(system.nq)
    with closing(Dynamics(system, lanes=1, comm=MPI.COMM_SELF)) as alone:
        alone.derivative(0.0, q, u, udot, rates, tau)
    with distributed(system, comm, lanes=lanes) as (dynamics, mine, ours):
        got, got_rates = np.full(ours.stop - ours.start, np.nan), np.full(mine.stop - mine.start, np.nan)
        for _ in range(2):
            dynamics.derivative(0.0, q[mine], u[ours], got, got_rates, tau[ours])
        width, cuts = dynamics.divided.lanes, dynamics.divided.cuts
    parallel_assert(width == (lanes or NATIVE), f"{width} lanes", comm)
    assert not (cuts[1:-1] % width).any(), f"cuts at {cuts}"
    assert_close("accelerations", got, udot[ours], "ranks", scale=np.abs(udot).max(), comm=comm)
    assert_close("coordinate rates", got_rates, rates[mine], "lanes", scale=np.abs(rates).max(), comm=comm)


@pytest.mark.parametrize("frame", ["body", "world"])
def test_loads_from_outside(comm: MPI.Comm, frame: str) -> None:
    """Wrenches, also in world components far from the root, and prescribed torques act on the rank that owns the
    body."""
    system, q, u, tau = random_system(4, 32, True, springs=False)
    for k in range(0, 32, 5):
        system.add_wrench(f"b{k}", force=lambda t, k=k: (30 * t, k, -2), moment=(1, -9, 4), frame=frame)
        if system.contents.body(k + 1).joint.kind.nu:
            system.set_torque(f"b{k + 1}", lambda t, k=k: 20 * t - k)
    reference = dense.dense_accelerations(system, q, u, tau, 0.7)
    without = accelerations(random_system(4, 32, True, springs=False)[0], q, u, tau)
    assert np.abs(without - reference).max() > 1e-3 * np.abs(reference).max(), "the loads have no effect"
    with distributed(system, comm) as (dynamics, mine, ours):
        got = dynamics.accelerations(q[mine], u[ours], tau[ours], 0.7)
    assert_close("accelerations", got, reference[ours], "dense", scale=np.abs(reference).max(), comm=comm)


def read_only(array: Array) -> Array:
    kept = array.copy()
    kept.flags.writeable = False
    return kept


# What a method is given in place of the array that it needs; compiled code would read or write beyond the first two.
BAD_ARRAYS: dict[str, Callable[[Array], object]] = {
    "too few": lambda a: a[:-1],
    "half as large": lambda a: a.astype(np.float32),
    "too many": lambda a: np.append(a, 1.0),
    "whole numbers": lambda a: np.ones(len(a), np.int64),
    "not contiguous": lambda a: np.stack([a, a], axis=1)[:, 0],
    "two axes": lambda a: a[:, None].copy(),
    "read-only": read_only,
    "a list": lambda a: a.tolist(),
    "a number": lambda a: 1.0,
}


@pytest.mark.parametrize("staged", [False, True], ids=["one call", "phases"])
@pytest.mark.parametrize("bad", BAD_ARRAYS)
def test_arrays_that_are_refused(comm: MPI.Comm, bad: str, staged: bool) -> None:
    """Those of `derivative`, each in turn, on the last rank only: it says so, and no rank waits for another."""
    system = system_from("rope:8")
    if staged:
        system.add_joint_force(None, lambda t, q, u: -u)
    last = comm.rank == comm.size - 1
    with distributed(system, comm) as (dynamics, _, _):
        q, u = dynamics.subchain.q, dynamics.subchain.u
        good = {"q": q, "u": u, "udot": np.empty_like(u), "rates": np.empty_like(q), "tau": np.zeros_like(u)}
        for name, array in good.items():
            given = good | ({name: BAD_ARRAYS[bad](array)} if last else {})
            words = f"{name} must be a contiguous array of float64 of shape \\({len(array)},\\), got "
            with pytest.raises(InputError, match=words) if last else nullcontext():
                dynamics.derivative(0.0, **given)  # type: ignore[arg-type]
            parallel_assert(last or not np.isfinite(good["udot"]).any(), f"{name}: the others know of nothing", comm)
        dynamics.derivative(0.0, **good)
        parallel_assert(np.isfinite(good["udot"]).all(), "afterwards nothing is as it was", comm)


@pytest.mark.parametrize("values", [[0.0] * 4, [np.nan, 0, 0, 1], [1, np.inf, 0, 0]], ids=["zero", "nan", "infinite"])
@pytest.mark.parametrize("kind", ["rope", "free_chain"])
def test_quaternions_without_direction_are_refused(comm: MPI.Comm, kind: str, values: list[float]) -> None:
    """By name, on all ranks; one of any length is taken as it is meant."""
    system = system_from(f"{kind}:8")
    body = 3 if kind == "rope" else 0
    whole = system.contents.columns().q.copy()
    at = int(system.contents.offsets()[0][body])
    long = whole.copy()
    long[at : at + 4] *= 3.0
    whole[at : at + 4] = values
    with distributed(system, comm) as (dynamics, mine, ours):
        u = system.contents.columns().u[ours]
        for ask in (dynamics.accelerations, dynamics.joint_loads, dynamics.energy_and_momentum, dynamics.poses):
            with pytest.raises(
                InputError, match=f"the quaternion of body '{system.contents.name_of(body)}' is .*; give unit"
            ):
                ask(whole[mine], u)
        once, thrice = (dynamics.accelerations(q[mine], u) for q in (system.contents.columns().q, long))
    assert_close("accelerations", thrice, once, "lanes", scale=max(1.0, np.abs(once).max()), comm=comm)


@pytest.mark.parametrize("kind", ["rope", "mixed"])
def test_same_bits_each_time(comm: MPI.Comm, kind: str) -> None:
    """Two evaluations, with another state between them, and two objects give the same bits."""
    system, q, u, tau = case(kind, 100)
    results = []
    for _ in range(2):
        with distributed(system, comm) as (dynamics, mine, ours):
            for _ in range(2):
                results.append(dynamics.accelerations(q[mine], u[ours], tau[ours]))
                dynamics.accelerations(q[mine], 2 * u[ours])
    for result in results[1:]:
        assert_close("accelerations", result, results[0], "exact", comm=comm)


def loop() -> System:
    system = system_from("chain:4")
    system.add_loop(name="closing", type="revolute", bodies=("world", "link4"), positions=((0, 0, 0), (0, -2, 0)))
    return system


def massless() -> System:
    system = system_from("chain:4")
    system.add(name="ghost", mass=0, inertia=(0,) * 6, joint=Joint(type="revolute"))
    return system


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (loop, {"coupling": "dca"}, "closes a loop .'closing'"),
        (massless, {}, "ghost"),
        (lambda: system_from("chain:4"), {"coupling": "none"}, "unknown coupling 'none'; choose one of: .*dcae"),
        (lambda: system_from("chain:40"), {"tip_ratio": -1.0}, "tip ratio"),
        (lambda: system_from("chain:40"), {"lanes": 3}, "3 lanes: give one of 1, 2, 4, 8"),
        (System, {}, "bod"),
    ],
    ids=["loop", "massless", "coupling", "ratio", "lanes", "empty"],
)
def test_bad_input(comm: MPI.Comm, make: object, options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Dynamics(make(), comm, **options)  # type: ignore[operator, arg-type]


@pytest.mark.parametrize(
    "change",
    [
        lambda system: system.set_torque("link2", lambda t: 5.0),
        lambda system: system.set_torque("link2", 5.0),
        lambda system: system.add_wrench("link2", force=(1, 0, 0)),
        lambda system: system.add_joint_force(None, lambda t, q, u: 1.0 - u),
        lambda system: system.add_body_force(None, lambda t, motion: (0.0, 1.0)),
        lambda system: system.add(system.contents.body(1), name="one_more", parent="link8"),
        lambda system: setattr(system, "gravity", (1.0, 0.0, 0.0)),
    ],
    ids=["function", "torque", "wrench", "joint force", "body force", "body", "gravity"],
)
def test_a_system_that_was_changed_needs_another_dynamics(comm: MPI.Comm, change: Callable[[System], object]) -> None:
    """One that knows of no change refuses to go on as if there were none; of a system that grows one makes several."""
    system = system_from("chain:8")
    kept = copy.deepcopy(system)
    with distributed(system, comm) as (before, _, _), distributed(kept, comm) as (copied, _, _):
        mine = before.subchain.q, before.subchain.u
        udot = before.accelerations(*mine)
        change(system)
        for ask in (before.accelerations, before.joint_loads, before.energy_and_momentum, before.poses):
            with pytest.raises(InputError, match="was changed after this Dynamics was made"):
                ask(*mine)
        with pytest.raises(InputError, match="was changed after this Dynamics was made"):
            before.derivative(0.0, *mine, *map(np.empty_like, reversed(mine)))
        assert_close("accelerations", copied.accelerations(*mine), udot, "exact", comm=comm)
        with distributed(system, comm) as (after, _, _):
            changed = after.accelerations(after.subchain.q, after.subchain.u)
    same = np.array(changed.shape == udot.shape and np.array_equal(changed, udot))
    comm.Allreduce(MPI.IN_PLACE, same, MPI.LAND)
    assert not same, "the change has no effect"


MANY = """
import sys
sys.path[:0] = ["tests", "tests/dynamics"]
from contextlib import closing
import numpy as np
from mpi4py import MPI
from cases import accelerations
from mpimbs.dynamics import Dynamics
from mpimbs.parallel.agreement import abort_on_error
from test_dynamics import case
from tolerances import error
world = MPI.COMM_WORLD
with abort_on_error(world):
    for ranks in (5, 6, 7):
        comm = world.Split(world.rank < ranks)
        for kind in ("free_chain", "mixed") if world.rank < ranks else ():
            for n in (ranks, ranks + 1, 2 * ranks - 1, 31, 1024):
                system, q, u, tau = case(kind, n)
                reference = accelerations(system, q, u, tau)
                with closing(Dynamics(system, comm)) as dynamics:
                    mine, ours = dynamics.gather_q.part, dynamics.gather_u.part
                    got = dynamics.accelerations(q[mine], u[ours], tau[ours])
                worst = comm.allreduce(error(got, reference[ours], np.abs(reference).max()), MPI.MAX)
                if comm.rank == 0:
                    print("error", worst, ranks, kind, n)
        comm.Free()
"""


class TestManyRanks:
    pytestmark = starts_mpiexec

    @pytest.mark.long
    def test_many_ranks_agree_with_one(self) -> None:
        job = run_job(7, [sys.executable, "-c", MANY])
        assert job.returncode == 0, job.stdout
        lines = [line.split() for line in job.stdout.splitlines() if line.startswith("error")]
        assert len(lines) == 3 * 2 * 5, job.stdout
        for _, value, ranks, kind, n in lines:
            assert_close(f"accelerations of {kind}:{n} on {ranks} ranks", float(value), 0.0, "ranks", scale=1.0)
