"""The assembly by a schedule: any tree over leaves on any ranks gives what the oracles and other couplings do."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from cases import mixed_chain, parts, random_tree
from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError
from mpimbs.dynamics import Dynamics
from mpimbs.model import System, system_from
from mpimbs.model.order.order import Order
from mpimbs.partition.schedule import Growing, Schedule, owners_of, serial
from mpimbs.partition.schedule_file import Laid, schedule_text
from mpimbs.partition.schedule_search import LEAVES, SCHEDULES
from oracles import dense
from oracles.dense import Array
from oracles.loops import closed
from oracles.random_loops import random_mechanism
from tolerances import assert_close

TREES = ("binary", "recursive", "caterpillar", "star")


def drawn(counts: list[int], seed: int) -> Schedule:
    """A schedule drawn at random: neighbours in any order, done by any ranks."""
    draw, size = np.random.default_rng(seed), len(counts)
    growing = Growing(owners_of(counts))
    nodes = list(range(sum(counts)))
    while len(nodes) > 1:
        k = int(draw.integers(len(nodes) - 1))
        ranks = np.flatnonzero(draw.random(size) < 0.4) if draw.random() < 0.5 else draw.integers(size, size=1)
        who = tuple(ranks.tolist()) or (0,)
        nodes[k : k + 2] = [growing.join(nodes[k], nodes[k + 1], who)]
    return growing.made()


def leaves_of(n: int, size: int, seed: int) -> tuple[list[int], list[int]]:
    """Places at which bodies are cut into leaves at random, and how many of these each rank has."""
    draw = np.random.default_rng(seed)
    count = int(draw.integers(size, n + 1))
    inner = np.sort(draw.choice(np.arange(1, n), count - 1, replace=False)).tolist()
    ends = np.sort(draw.choice(np.arange(1, count), size - 1, replace=False)).tolist()
    return [0, *inner, n], np.diff([0, *ends, count]).tolist()


def written(comm: MPI.Comm, folder: Path, system: System, seed: int) -> str:
    """A file with a schedule drawn at random; all ranks call."""
    path = comm.bcast(folder) / f"schedule{seed}.toml"
    if comm.rank == 0:
        bounds, counts = leaves_of(system.n_bodies, comm.size, seed)
        laid = Laid(Order.of(system.contents), np.array(bounds), drawn(counts, seed))
        path.write_text(schedule_text(system.contents, laid), encoding="utf-8")
    comm.Barrier()
    return str(path)


def check(
    comm: MPI.Comm, system: System, state: tuple[Array, ...], udot: Array, kind: str, loads: Array | None, **given: str
) -> None:
    with closing(Dynamics(system, comm, "assembly", **given)) as dynamics:
        mine, own = parts(dynamics, *state), dynamics.gather_u.part
        dynamics.accelerations(mine[0], -mine[1], *mine[2:])  # leaves numbers of another state
        got = dynamics.accelerations(*mine)
        again = dynamics.accelerations(*mine)
        found, bodies = dynamics.joint_loads(*mine), dynamics.bodies
    assert_close(f"accelerations, {given}", got, udot[own], kind, scale=float(np.abs(udot).max()), comm=comm)
    parallel_assert(np.array_equal(got, again), "other bits the second time", comm)
    if loads is not None:
        largest = float(np.abs(loads).max())
        assert_close(f"joint loads, {given}", found, loads[bodies], kind, scale=largest, comm=comm)


@pytest.mark.cases(1)
@pytest.mark.ranks(2, 3, 4)
@pytest.mark.time_limit(300)  # compiles
@pytest.mark.parametrize("name", ["chain", *TREES])
def test_against_dense(comm: MPI.Comm, tmp_path: Path, name: str) -> None:
    """Chains and trees of all joint types, by schedules that are made and by drawn ones."""
    system, q, u, tau = mixed_chain(20, 1) if name == "chain" else random_tree(name, "scrambled", n=20)
    udot, loads = dense.Snapshot(system, q, u).solve(tau, 0.0)
    rotation = dense.kinematics(system, q, u).rotation
    loads = np.einsum("nij,nai->naj", rotation, loads.reshape(-1, 2, 3)).reshape(-1, 6)
    for leaves in LEAVES:
        for schedule in SCHEDULES:
            check(comm, system, (q, u, tau), udot, "dense", loads, schedule=schedule, leaves=leaves)
    for seed in range(3):
        path = written(comm, tmp_path, system, seed)
        check(comm, system, (q, u, tau), udot, "dense", loads, schedule=path)


@pytest.mark.cases(1)
@pytest.mark.ranks(2, 3, 4)
@pytest.mark.time_limit(300)
@pytest.mark.parametrize("seed", [3, 20])
def test_loops_against_dense(comm: MPI.Comm, tmp_path: Path, seed: int) -> None:
    """Loops that are closed within a leaf, with the joint of two parts, and several at once."""
    system, q, u, tau = random_mechanism(seed, 12, 3, chain=seed == 20)
    udot = closed(system, q, u, tau).udot
    for leaves in LEAVES:
        for schedule in SCHEDULES:
            check(comm, system, (q, u, tau), udot, "loops", None, schedule=schedule, leaves=leaves)
    check(comm, system, (q, u, tau), udot, "loops", None, schedule=written(comm, tmp_path, system, seed))


# --- the schedules ---------------------------------------------------------------------------------------------------


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('order = "as listed"', 'order = "none"', "order 'none' is none; choose"),
        ("bodies = 2", "bodies = 0", "bodies should be greater than or equal to 1"),
        ("bodies = 2", "bodys = 2", "unknown key 'bodys'; did you mean 'bodies'"),
        ("parts = [0, 1]", "parts = [0, 2]", "join 0: parts 0 and 2 are no neighbours"),
        ("parts = [0, 1]", "parts = [0, 7]", "join 0: part 7 is not made yet"),
        ("[[join]]\nparts = [0, 1]\nranks = [0]\n", "", "2 parts are left over|is not made yet"),
        ("ranks = [0]", "ranks = [99]", "rank 99 is not there"),
        ("rank = 0", "rank = 98", "start as many ranks as the schedule is for"),
        ("[[leaf]]", "[[leaves]]", "unknown key 'leaves'"),
    ],
)
def test_bad_files(comm: MPI.Comm, tmp_path: Path, before: str, after: str, message: str) -> None:
    system = system_from(f"chain:{2 * max(comm.size, 3)}")
    path = comm.bcast(tmp_path) / "bad.toml"
    if comm.rank == 0:
        counts = [1] * (comm.size - 1) + [max(comm.size, 3) - comm.size + 1]
        laid = Laid(Order.of(system.contents), np.arange(0, system.n_bodies + 1, 2), serial(counts))
        text = schedule_text(system.contents, laid)
        joins = "[[join]]\nparts = [0, 1]\nranks = [0]\n"
        text = text[: text.index("[[join]]")] + joins
        for k in range(2, max(comm.size, 3)):
            text += f"\n[[join]]\nparts = [{max(comm.size, 3) + k - 2}, {k}]\nranks = [0]\n"
        assert before in text
        path.write_text(text.replace(before, after, 1), encoding="utf-8")
    comm.Barrier()
    with pytest.raises(InputError, match=message):
        Dynamics(system, comm, "assembly", schedule=str(path))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"coupling": "dcae", "schedule": "serial"}, "`schedule` is for the coupling assembly"),
        ({"coupling": "assembly", "schedule": "none"}, "unknown schedule 'none'; choose one of: balanced, serial"),
        ({"coupling": "assembly", "schedule": "none.toml"}, "none.toml: there is no such file"),
        ({"coupling": "assembly", "leaves": "legs"}, "unknown kind of leaves 'legs'; choose one of: bodies, sweeps"),
        ({"coupling": "assembly", "leaves": "bodies", "cuts": 7}, "leave `cuts=7` out"),
    ],
)
def test_bad_settings(comm: MPI.Comm, settings: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Dynamics(system_from("chain:8"), comm, **settings)  # type: ignore[arg-type]
