"""The communication plans, on the ranks of the job: compiled messages, butterfly, scan, gather."""

import time
from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest
from mpi4py import MPI
from scipy.spatial.transform import Rotation

from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.pipeline import scan_motions
from mpimbs.kernels.compiler import kernel
from mpimbs.model import system_from
from mpimbs.parallel.agreement import greatest, largest_magnitudes
from mpimbs.parallel.butterfly import IS_LEFT, TAG, Butterfly, exchange
from mpimbs.parallel.exchange import Exchange, expect
from mpimbs.parallel.native import LAST_TAG, clock, cycle_seconds, free_tags, own_tags
from mpimbs.parallel.reorder import Gather, Reorder
from mpimbs.parallel.scan import Scan, begin_scan, end_scan, expect_scan
from mpimbs.parts.subchain import AT_REST
from mpimbs.run.ensembles.batch import Batch
from mpimbs.sweep.motion import join_turn
from mpimbs.sweep.structure import TURNING
from oracles.dense import Array
from tolerances import TOLERANCE, assert_close


def test_butterfly(comm: MPI.Comm) -> None:
    """Each rank ends with the list of all ranks in order: concatenation, kept in slots, does not commute."""
    plan = Butterfly(comm, comm.size + 1)  # a number of entries, then the entries
    value = np.full(comm.size + 1, np.nan)
    value[:2] = 1, comm.rank
    expect(plan.plan)
    for level in range(len(plan.schedule)):
        plan.mine[level] = value
        exchange(plan.plan, level)
        ours, theirs = (list(v[1 : 1 + int(v[0])]) for v in (value, plan.theirs[level]))
        both = ours + theirs if plan.schedule[level, IS_LEFT] else theirs + ours
        value[: 1 + len(both)] = len(both), *both
    parallel_assert(value[1:].tolist() == list(range(comm.size)), f"got {value}", comm)
    parallel_assert((plan.seconds > 0) == (comm.size > 1), f"time in messages {plan.seconds}", comm)


@kernel
def _expect(plan):
    expect_scan(plan)


@kernel
def _begin(plan, turn):
    begin_scan(plan, join_turn, turn)


@kernel
def _end(plan):
    end_scan(plan, join_turn)


@kernel
def _scan_turns(plan, turn):
    expect_scan(plan)
    begin_scan(plan, join_turn, turn)
    end_scan(plan, join_turn)


def turn_scan(comm: MPI.Comm) -> Scan:
    return Scan(comm, AT_REST[:TURNING], _scan_turns)


@kernel
def _one_after_the_other(zero, left, right, out):
    """Two functions x -> a x + b, the left one first: an operation that does not commute."""
    slope, offset = left[0] * right[0], right[0] * left[1] + right[1]
    out[0] = slope
    out[1] = offset


@kernel
def _scan_functions(plan, value):
    expect_scan(plan)
    begin_scan(plan, _one_after_the_other, value)
    end_scan(plan, _one_after_the_other)


@pytest.mark.parametrize("backward", [False, True], ids=["before", "behind"])
def test_a_scan_of_any_operation_in_both_directions(comm: MPI.Comm, backward: bool) -> None:
    """What a rank is given is the operation of all before it, or of all behind it, in the order of the ranks."""
    functions = np.random.default_rng(1).integers(2, 9, (comm.size, 2)).astype(float)
    a, b = 1.0, 0.0
    for slope, offset in functions[comm.rank + 1 :] if backward else functions[: comm.rank]:
        a, b = slope * a, slope * b + offset
    with closing(Scan(comm, np.array([1.0, 0.0]), _scan_functions, backward)) as scan:
        for _ in range(2):
            found = scan(functions[comm.rank]).tolist()
            parallel_assert(found == [a, b], f"got {found} instead of {[a, b]}", comm)


@pytest.mark.parametrize("seed", range(3))
def test_turn_scan(comm: MPI.Comm, seed: int) -> None:
    """The turn of a rank's handle 1 is that of all ranks before it, one after the other; the last's is not used."""
    rng = np.random.default_rng(seed)
    rotations = Rotation.random(comm.size, rng).as_matrix()
    speeds = rng.normal(size=(comm.size, 3))
    turn, omega = np.eye(3), np.zeros(3)
    for r in range(comm.rank):
        turn, omega = rotations[r] @ turn, rotations[r] @ omega + speeds[r]
    scan = turn_scan(comm)
    for _ in range(2):  # a second call has nothing left of the first
        mine = np.concatenate((rotations[comm.rank].ravel(), speeds[comm.rank]))
        found = scan(mine)
        assert_close("rotation of handle 1", found[:9], turn.ravel(), "rounding", comm=comm)
        assert_close("angular velocity of handle 1", found[9:], omega, "rounding", scale=1.0, comm=comm)


@pytest.mark.parametrize("seed", range(3))
def test_motion_scan(comm: MPI.Comm, seed: int) -> None:
    """The motion of a rank's handle 1, in the world: rotations, positions and twists of all ranks before it."""
    rng = np.random.default_rng(seed)
    rotations = Rotation.random(comm.size, rng).as_matrix()
    vectors = rng.normal(size=(3, comm.size, 3))  # positions in the frame before; angular, linear velocity in its own
    turn, place, omega, velocity = np.eye(3), np.zeros(3), np.zeros(3), np.zeros(3)  # the last three in the world
    for r in range(comm.rank):
        position, turning, sliding = vectors[:, r]
        velocity = velocity + np.cross(omega, turn.T @ position)
        place, turn = place + turn.T @ position, rotations[r] @ turn
        omega, velocity = omega + turn.T @ turning, velocity + turn.T @ sliding
    scan = Scan(comm, AT_REST, scan_motions)
    for _ in range(2):
        position, turning, sliding = vectors[:, comm.rank]
        found = scan(np.concatenate((rotations[comm.rank].ravel(), position, turning, sliding)))
        expected = np.concatenate((turn.ravel(), place, turn @ omega, turn @ velocity))
        assert_close("motion of handle 1", found, expected, "rounding", comm=comm)
    scan.close()


@pytest.mark.parametrize("empty", [False, True])
def test_gather(comm: MPI.Comm, empty: bool) -> None:
    """Parts of different lengths, none at all among them, stand on rank 0 in the order of ranks."""
    counts = np.array([r % 3 + (not empty) for r in range(comm.size)])
    whole = np.arange(counts.sum()) + 0.5
    plan = Gather(comm, Reorder(comm, counts))
    part = whole[plan.part]
    parallel_assert(len(part) == counts[comm.rank], f"own part is {plan.part}", comm)
    for factor in (1.0, 2.0):
        strided = np.repeat(factor * part, 2)[::2]  # not contiguous
        got = plan(strided)
        right = (got is None) if comm.rank else np.array_equal(got, factor * whole)
        parallel_assert(right, f"gathered {got}", comm)


@pytest.mark.parametrize("size", [1, 3, 50])
def test_reorder(comm: MPI.Comm, size: int) -> None:
    """Rows that ranks have in any order, some of them none, are brought into the model's order, and back."""
    whole = np.random.default_rng(1).normal(size=(size, 2, 3))
    owners, order = np.random.default_rng(2).integers(comm.size, size=size), np.random.default_rng(3).permutation(size)
    mine = order[owners[order] == comm.rank]
    ends = np.arange(comm.size + 1) * size // comm.size
    plan = Reorder(comm, np.diff(ends), mine)
    for rows in (whole, whole[:, 0], whole[:, 0, 0]):
        stretch = plan(rows[mine])
        right = np.array_equal(stretch, rows[ends[comm.rank] : ends[comm.rank + 1]]) and len(stretch) == plan.count
        parallel_assert(right, f"stretch {stretch}", comm)
        parallel_assert(np.array_equal(plan.back(stretch), rows[mine]), "other rows come back", comm)
    got = Gather(comm, plan, 6)(whole[mine])
    parallel_assert((got is None) if comm.rank else np.array_equal(got, whole.ravel()), f"gathered {got}", comm)


def test_plans_have_messages_of_their_own(comm: MPI.Comm) -> None:
    """Two plans on one communicator, whose receives are posted in another order than the messages are sent."""
    scans = [turn_scan(comm) for _ in range(2)]
    turns = [np.concatenate((np.eye(3).ravel(), (k + 1.0, 0.0, comm.rank))) for k in range(2)]
    for k in (0, 1) if comm.rank % 2 else (1, 0):
        _expect(scans[k].plan)
    for k in (0, 1):
        _begin(scans[k].plan, turns[k])
    for k in (1, 0):
        _end(scans[k].plan)
    expected = [(k + 1.0) * comm.rank for k in range(2)]
    found = [scan.result[9] for scan in scans]
    for scan in scans:
        scan.close()
    parallel_assert(found == expected, f"angular velocities {found}, not {expected}", comm)


def test_two_dynamics_in_turns(comm: MPI.Comm) -> None:
    """Of one system and another, on one communicator: each has the accelerations that it has alone."""
    systems = [system_from(f"spatial_chain:{16 * comm.size}"), system_from(f"chain:{8 * comm.size}")]
    alone = []
    for system in systems:
        with closing(Dynamics(system, comm)) as dynamics:
            alone.append(dynamics.accelerations(dynamics.subchain.q, dynamics.subchain.u))
    with closing(Dynamics(systems[0], comm)) as first, closing(Dynamics(systems[1], comm, "pcg")) as second:
        for _ in range(3):
            for dynamics, expected, tolerance in ((first, alone[0], "exact"), (second, alone[1], "iterated")):
                found = dynamics.accelerations(dynamics.subchain.q, dynamics.subchain.u)
                size = comm.allreduce(np.abs(expected).max(), MPI.MAX)
                assert_close("accelerations", found, expected, tolerance, scale=size, comm=comm)


def test_an_exchange_between_any_ranks(comm: MPI.Comm) -> None:
    """Rank r tells each other rank s both numbers, r + s + 1 times; the first and the last nothing to one another."""

    def numbers(a: int, b: int) -> Array:
        return np.full(a + b + 1, 100.0 * a + b)

    apart = {0, comm.size - 1} if comm.size > 2 else set()
    others = [s for s in range(comm.size - 1, -1, -1) if s != comm.rank and {comm.rank, s} != apart]
    sizes = {s: comm.rank + s + 1 for s in others}
    with closing(Exchange(comm, sizes, sizes)) as exchange:
        for factor in (1.0, -2.0):
            exchange.to_others[:] = np.concatenate([np.zeros(0), *(factor * numbers(comm.rank, s) for s in others)])
            exchange()
            wanted = np.concatenate([np.zeros(0), *(factor * numbers(s, comm.rank) for s in others)])
            parallel_assert(np.array_equal(exchange.from_others, wanted), f"{exchange.from_others}, not {wanted}", comm)
        parallel_assert((exchange.seconds > 0) == bool(others), f"{exchange.seconds} s", comm)


def test_tags_are_those_of_closed_plans_again(comm: MPI.Comm) -> None:
    """However many plans are made and closed, none has tags of one that is in use; when all are, that is said."""
    own = comm.Dup()
    first, second = Exchange(own, {}, {}), Butterfly(own, 1)
    kept = {0, *second.schedule[:, TAG].tolist()}
    for _ in range(LAST_TAG + 10):  # more than there are
        plan = own_tags(own, 1)
        assert comm.size == 1 or plan not in kept
        free_tags(own, plan)
    first.close()
    again = own_tags(own, 1)
    parallel_assert(again == 0, f"tag {again} in place of what was closed", comm)
    if comm.size > 1:
        with pytest.raises(InputError, match="tags of a communicator are in use"):
            for _ in range(LAST_TAG // 1000 + 1):
                own_tags(own, 1000)
    second.close()
    own.Free()


@pytest.mark.parametrize("where", [0, -1])
def test_the_nan_of_one_rank_is_seen_by_all(comm: MPI.Comm, where: int) -> None:
    """Whichever rank has it, and whatever the others have."""
    mine = comm.rank == where % comm.size
    found = greatest(comm, [np.nan if mine else 0.0, float(comm.rank)])
    parallel_assert(found.tolist() == [np.inf, comm.size - 1.0], f"{found}", comm)
    vector = np.array([0.5, np.nan if mine else -2.0 - comm.rank])
    found = largest_magnitudes(comm, vector, np.full(3, -1.0), np.zeros(0))
    parallel_assert(found.tolist() == [np.inf, 1.0, 0.0], f"{found}", comm)


def test_communicators_of_others_keep_their_handlers(comm: MPI.Comm) -> None:
    """What one process evaluates alone leaves that of its own communicator, which is everybody's, as it was."""
    before = MPI.COMM_SELF.Get_errhandler()
    MPI.COMM_SELF.Set_errhandler(MPI.ERRORS_RETURN)
    try:
        for made in (Dynamics("chain:3", MPI.COMM_SELF), Dynamics("crowd:4", comm)):
            made.accelerations(made.subchain.q, made.subchain.u)
            made.close()
        batch = Batch("chain:3", comm.size, comm)
        batch.accelerations(batch.q, batch.u)
        kept = MPI.COMM_SELF.Get_errhandler() == MPI.ERRORS_RETURN
    finally:
        MPI.COMM_SELF.Set_errhandler(before)
    parallel_assert(kept, "another handler", comm)


@kernel
def _now(cycle):
    return clock(cycle)


@pytest.mark.parametrize("cycle", [lambda: 0.0, cycle_seconds], ids=["MPI's", "of cycles"])
def test_clocks_of_kernels_are_right(cycle: Callable[[], float]) -> None:
    """Between what Python's clock says around them, however long other work has kept this process from its core."""
    length = cycle()
    _now(length)  # compiled
    looks = []
    for pause in (0.05, 0.0):
        looks += [time.perf_counter(), _now(length), time.perf_counter()]
        time.sleep(pause)
    before, first, since, until, last, behind = looks
    allowed = TOLERANCE["clocks"][0]
    assert (1.0 - allowed) * (until - since) <= last - first <= (1.0 + allowed) * (behind - before)
