"""The pipeline over ranks: the same results as on one rank, bit for bit the same each time, errors on all ranks."""

import copy
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from cases import GENERATORS, accelerations, mixed_chain, moving_state, parts, typed_chain
from mpi_helpers import parallel_assert, run_job, starts_mpiexec
from mpimbs.base.errors import InputError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.compiling import compile_evaluations
from mpimbs.kernels.lanes import native_width
from mpimbs.model import Joint, System, system_from, system_from_text, system_text, write_system
from mpimbs.parallel.gather import Gather
from mpimbs.parts.subchain import Subchain
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
    with closing(Dynamics(system)) as alone:
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


@pytest.mark.parametrize("ratio", [0.2, 1.0, 10.0])
def test_cuts_do_not_matter(comm: MPI.Comm, ratio: float) -> None:
    system, q, u, tau = case("mixed", 40, 1)
    reference = accelerations(system, q, u, tau)
    with distributed(system, comm, tip_ratio=ratio) as (dynamics, mine, ours):
        got = dynamics.accelerations(q[mine], u[ours], tau[ours])
        assert_close("accelerations", got, reference[ours], "ranks", scale=np.abs(reference).max(), comm=comm)


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
    with closing(Dynamics(system, lanes=1)) as alone:
        alone.derivative(0.0, q, u, udot, rates, tau)
    with distributed(system, comm, lanes=lanes) as (dynamics, mine, ours):
        got, got_rates = np.full(ours.stop - ours.start, np.nan), np.full(mine.stop - mine.start, np.nan)
        for _ in range(2):
            dynamics.derivative(0.0, q[mine], u[ours], got, got_rates, tau[ours])
        width, cuts = dynamics.lanes, dynamics.cuts
    parallel_assert(width == (lanes or NATIVE), f"{width} lanes", comm)
    assert not (cuts[1:-1] % width).any(), f"cuts at {cuts}"
    assert_close("accelerations", got, udot[ours], "ranks", scale=np.abs(udot).max(), comm=comm)
    assert_close("coordinate rates", got_rates, rates[mine], "lanes", scale=np.abs(rates).max(), comm=comm)


@pytest.mark.parametrize("staged", [False, True], ids=["one call", "phases"])
@pytest.mark.parametrize("ratio", [0.02, 100.0])
def test_ranks_with_lanes_and_without(comm: MPI.Comm, ratio: float, staged: bool) -> None:
    """A few bodies are swept as one piece beside ranks in lanes, and where a wrench acts in phases beside one call."""
    system, q, u, tau = case("rope", 400)
    if staged:
        system.add_wrench("link400", force=lambda t: (1.0, t, 2.0), frame="world")
    with closing(Dynamics(system, lanes=1)) as alone:
        reference = alone.accelerations(q, u, tau, 0.5)
    with distributed(system, comm, lanes=NATIVE, tip_ratio=ratio) as (dynamics, mine, ours):
        widths = comm.allgather(dynamics.lanes)
        compile_evaluations(dynamics)
        got = dynamics.accelerations(q[mine], u[ours], tau[ours], 0.5)
    assert comm.size == 1 or set(widths) == {1, NATIVE}, f"{widths} lanes of {np.diff(dynamics.cuts)} bodies"
    assert_close("accelerations", got, reference[ours], "ranks", scale=np.abs(reference).max(), comm=comm)


@pytest.mark.parametrize("frame", ["body", "world"])
def test_loads_from_outside(comm: MPI.Comm, frame: str) -> None:
    """Wrenches, also in world components far from the root, and prescribed torques act on the rank that owns the
    body."""
    system, q, u, tau = random_system(4, 32, True, springs=False)
    for k in range(0, 32, 5):
        system.add_wrench(f"b{k}", force=lambda t, k=k: (30 * t, k, -2), moment=(1, -9, 4), frame=frame)
        if system.body(k + 1).joint.kind.nu:
            system.set_torque(f"b{k + 1}", lambda t, k=k: 20 * t - k)
    reference = dense.dense_accelerations(system, q, u, tau, 0.7)
    without = accelerations(random_system(4, 32, True, springs=False)[0], q, u, tau)
    assert np.abs(without - reference).max() > 1e-3 * np.abs(reference).max(), "the loads have no effect"
    with distributed(system, comm) as (dynamics, mine, ours):
        got = dynamics.accelerations(q[mine], u[ours], tau[ours], 0.7)
    assert_close("accelerations", got, reference[ours], "dense", scale=np.abs(reference).max(), comm=comm)


@pytest.mark.parametrize("lanes", [1, NATIVE])
def test_any_arrays(comm: MPI.Comm, lanes: int) -> None:
    """Integers, parts of larger arrays and lists mean what they say; compiled code reads doubles by address."""
    system = system_from("chain:140")
    q, u = np.arange(140) % 3, np.arange(140) % 5 - 2
    with distributed(system, comm, lanes=lanes) as (dynamics, mine, ours):
        plain = q[mine].astype(float), u[ours].astype(float)
        strided = np.stack([q[mine], -q[mine]], axis=1) * 1.0
        for got in ((q[mine], u[ours]), (strided[:, 0], plain[1]), (plain[0].tolist(), u[ours].tolist())):
            for ask in (dynamics.accelerations, dynamics.energy_and_momentum, lambda *state: dynamics.poses(*state)[1]):
                assert_close("results", ask(*got), ask(*plain), "exact", comm=comm)


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


@pytest.mark.parametrize("bad", ["too few", "too many", "two axes", "text", "complex"])
def test_states_that_are_refused(comm: MPI.Comm, bad: str) -> None:
    """On all ranks, where that of one is: by whatever takes what numpy makes arrays of."""
    system = system_from("rope:8")
    wrong: dict[str, Callable[[Array], object]] = BAD_ARRAYS | {
        "text": lambda a: [str(x) for x in a],
        "complex": lambda a: a + 1j,
    }
    with distributed(system, comm) as (dynamics, _, _):
        mine = {"q": dynamics.subchain.q, "u": dynamics.subchain.u}
        driven = mine | {"tau": np.zeros(dynamics.subchain.nu)}
        for method, names in (
            (dynamics.accelerations, driven),
            (dynamics.joint_loads, driven),
            (dynamics.energy_and_momentum, mine),
            (dynamics.poses, mine),
            (dynamics.subchain.state, mine),
        ):
            for name in names:
                alone = method == dynamics.subchain.state  # which is this rank's
                here = alone or comm.rank == comm.size - 1
                given = names | ({name: wrong[bad](names[name])} if here else {})
                with pytest.raises(InputError, match=f"^{name} must be "):
                    method(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [[0.0] * 4, [np.nan, 0, 0, 1], [1, np.inf, 0, 0]], ids=["zero", "nan", "infinite"])
@pytest.mark.parametrize("kind", ["rope", "free_chain"])
def test_quaternions_without_direction_are_refused(comm: MPI.Comm, kind: str, values: list[float]) -> None:
    """By name, on all ranks; one of any length is taken as it is meant."""
    system = system_from(f"{kind}:8")
    body = 3 if kind == "rope" else 0
    whole = system.columns().q.copy()
    at = int(system.offsets()[0][body])
    long = whole.copy()
    long[at : at + 4] *= 3.0
    whole[at : at + 4] = values
    with distributed(system, comm) as (dynamics, mine, ours):
        u = system.columns().u[ours]
        for ask in (dynamics.accelerations, dynamics.joint_loads, dynamics.energy_and_momentum, dynamics.poses):
            with pytest.raises(InputError, match=f"the quaternion of body '{system.name_of(body)}' is .*; give unit"):
                ask(whole[mine], u)
        once, thrice = (dynamics.accelerations(q[mine], u) for q in (system.columns().q, long))
    assert_close("accelerations", thrice, once, "lanes", scale=max(1.0, np.abs(once).max()), comm=comm)


def test_a_subchain_by_itself_refuses_states() -> None:
    part = Subchain(system_from("rope:5"))
    q, u, gravity = part.q, part.u, np.zeros(3)
    for ask in (
        lambda: part.body_poses(q[:-1]),
        lambda: part.energy_and_momentum(q[:-1], u, gravity),
    ):
        with pytest.raises(InputError, match=r"must be an array of shape \(\d+,\), got one of shape"):
            ask()


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


@pytest.mark.parametrize("speed", [1.0, 100.0])
@pytest.mark.parametrize("n", [16, 1024])
def test_galilean_invariance(comm: MPI.Comm, n: int, speed: float) -> None:
    """How fast a free chain moves as a whole has no effect on its joints, in rounding hardly either."""
    system = system_from(f"free_chain:{n}")
    system.gravity = (0.0, 0.0, 0.0)
    q, u, tau = moving_state(system)
    moved = u.copy()
    moved[3:6] += speed * np.array([0.6, -0.48, 0.64])
    with distributed(system, comm) as (dynamics, mine, ours):
        rest, moving = (dynamics.accelerations(q[mine], v[ours], tau[ours]) for v in (u, moved))
        energies = [dynamics.energy_and_momentum(q[mine], v[ours])[0] for v in (u, moved)]
    joints = slice(max(0, 6 - ours.start), None)
    size = comm.allreduce(np.abs(rest[joints]).max(initial=0.0), MPI.MAX)
    assert_close("joint accelerations", moving[joints], rest[joints], "galilean", scale=size, comm=comm)
    parallel_assert(energies[1] != energies[0], "the velocity has no effect at all", comm)


def test_tau_is_only_read(comm: MPI.Comm) -> None:
    """The given arrays stay as they are, and a call without tau after one with it is as if there had been none."""
    system, q, u, tau = random_system(2, 20, True, ["revolute"])
    for k in range(20):  # on each rank something is added to tau
        system.set_torque(f"b{k}", lambda t: 3.0)
    with distributed(system, comm) as (dynamics, mine, ours):
        state = [q[mine].copy(), u[ours].copy(), tau[ours].copy()]
        before = dynamics.accelerations(state[0], state[1])
        driven = dynamics.accelerations(*state)
        after = dynamics.accelerations(state[0], state[1])
    for name, given, kept in zip(("q", "u", "tau"), state, (q[mine], u[ours], tau[ours]), strict=True):
        assert_close(name, given, kept, "exact", comm=comm)
    assert_close("accelerations without tau", after, before, "exact", comm=comm)
    parallel_assert(comm.allreduce(int(np.any(driven != before))) > 0, "tau has no effect", comm)


def test_bookkeeping(comm: MPI.Comm) -> None:
    """Cuts, gathered vectors, number of evaluations and times."""
    system, q, u, _ = case("mixed", 20)
    with distributed(system, comm) as (dynamics, mine, ours):
        for _ in range(3):
            dynamics.accelerations(q[mine], u[ours])
        whole_q, whole_u = dynamics.gather_q(q[mine]), dynamics.gather_u(u[ours])
        seconds, evaluations, cuts = dynamics.seconds(), dynamics.evaluations, dynamics.cuts
        assert isinstance(dynamics.gather_q, Gather)
        own = (dynamics.subchain.first, dynamics.subchain.last)
    parallel_assert(own == tuple(cuts[comm.rank : comm.rank + 2]), f"owns {own}, cuts {cuts}", comm)
    parallel_assert(evaluations == 3, f"{evaluations} evaluations", comm)
    parallel_assert(set(seconds) == {"sweep", "coupling", "communication"}, f"{seconds}", comm)
    positive = seconds["sweep"] > 0 and seconds["coupling"] > 0 and (seconds["communication"] > 0) == (comm.size > 1)
    parallel_assert(positive, f"{seconds}", comm)
    if comm.rank == 0:
        assert whole_q is not None and np.array_equal(whole_q, q)
        assert whole_u is not None and np.array_equal(whole_u, u)


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
        lambda system: system.add(system.body(1), name="one_more", parent="link8"),
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


@pytest.mark.parametrize("torque", [3.0, (3.0,), lambda t: 3.0], ids=["number", "numbers", "function"])
def test_a_torque_that_is_set_is_the_joints(comm: MPI.Comm, torque: object) -> None:
    """In place of the body's own, and not for others of its repeat; also read back from a file."""
    system, q, u, tau = case("chain", 8)
    own = system.body(3).model_copy(update={"name": "last", "parent": None})
    system.add(own.model_copy(update={"joint": own.joint.model_copy(update={"torque": (7.0,)})}))
    q, u, tau = (np.append(part, 0.1) for part in (q, u, tau))
    reference = accelerations(system, q, u, tau + [0, 0, 3, 0, 0, 0, 0, 0, 3 - 7])
    for name in ("link3", "last"):
        system.set_torque(name, torque)  # type: ignore[arg-type]
    read = system if callable(torque) else system_from_text(system_text(system), "here")
    for driven in (system, read):
        with distributed(driven, comm) as (dynamics, mine, ours):
            got = dynamics.accelerations(q[mine], u[ours], tau[ours])
        assert_close("accelerations", got, reference[ours], "ranks", scale=np.abs(reference).max(), comm=comm)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"system": None}, "system must be a System or name a model, as 'chain:16' or a TOML file do, got None"),
        ({"system": "chain:x"}, "model 'chain:x': bad arguments"),
        ({"comm": 3.0}, "comm must be a communicator of mpi4py, such as MPI.COMM_WORLD, got 3.0"),
        ({"coupling": 1}, "`coupling` must be a text, got 1"),
        ({"tip_ratio": "2"}, "`tip_ratio` must be a number or None, got '2'"),
        ({"lanes": 2.5}, "`lanes` must be a whole number or None, got 2.5"),
        ({"solver": "jacobi"}, "`solver` must be a LoadSolver or None, got 'jacobi'"),
        ({"overlap": "yes"}, "`overlap` must be True or False, got 'yes'"),
    ],
    ids=str,
)
def test_arguments_of_a_wrong_kind(comm: MPI.Comm, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(words)}"):
        Dynamics(**({"system": "chain:8", "comm": comm} | wrong))  # type: ignore[arg-type]


def test_a_model_by_name(comm: MPI.Comm, tmp_path: Path) -> None:
    file = Path(comm.bcast(str(tmp_path / "chain.toml")))
    if comm.rank == 0:
        write_system(system_from("chain:8"), file)
    comm.Barrier()
    for name in ("chain:8", str(file), file):
        with closing(Dynamics(name, comm)) as dynamics:
            parallel_assert(dynamics.system.n_bodies == 8, f"{dynamics.system}", comm)


def test_more_ranks_than_bodies(comm: MPI.Comm) -> None:
    if comm.size == 1:
        pytest.skip("needs two ranks")
    with pytest.raises(InputError, match=f"at most {comm.size - 1} ranks"):
        Dynamics(system_from(f"chain:{comm.size - 1}"), comm)
    with closing(Dynamics(system_from(f"chain:{comm.size}"), comm)) as dynamics:  # one body each
        parallel_assert(dynamics.subchain.n_bodies == 1, f"{dynamics.subchain.n_bodies} bodies", comm)


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


@pytest.mark.parametrize("chain", [True, False], ids=["chain", "tree"])
def test_nothing_is_left_to_evaluations_without_forces(comm: MPI.Comm, chain: bool) -> None:
    """Wrenches, forces of functions and springs of the evaluation before are not in one without; nor lost by it."""
    system, q, u, tau = random_system(6, 18, chain, wrenches=True)
    system.add_body_force(None, lambda t, motion: (np.full(3, t), np.full(3, 10.0 * t)))
    bare = copy.deepcopy(system)
    bare.body_forces.clear()
    for body in range(bare.n_bodies):
        bare.wrenches.pop(body, None)
    bare.segments = bare.segments.replaced(lambda body: body.model_copy(update={"wrench": ()}))
    with closing(Dynamics(bare, comm)) as plain:
        expected = plain.accelerations(*parts(plain, q, u, tau))
    with closing(Dynamics(system, comm)) as dynamics:
        mine = parts(dynamics, q, u, tau)
        found = []
        for t in (1.0, 5.0):
            udot, rates = np.empty(dynamics.subchain.nu), np.empty(dynamics.subchain.nq)
            acted = dynamics.evaluate(t, *mine[:2], udot, rates, mine[2])
            before = dynamics.carried(*mine[:2], acted)
            dynamics.evaluate_unforced(*mine[:2], udot, rates, mine[2])
            found.append(udot)
            dynamics.evaluate(t, *mine[:2], udot.copy(), rates, mine[2])
            assert_close("loads", dynamics.carried(*mine[:2], acted), before, "exact", comm=comm)
    scale = float(np.abs(expected).max(initial=1.0))
    for udot in found:
        assert_close("without forces", udot, expected, "ranks", scale, comm)
