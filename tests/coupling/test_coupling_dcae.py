"""DCAe: boundary values of each rank's subchain against the same equations solved one after the other."""

import numpy as np
import pytest
from mpi4py import MPI

from cases import accelerations, in_pieces, moving_state
from mpi_helpers import parallel_assert
from mpimbs.base.errors import InputError
from mpimbs.coupling import coupling_named
from mpimbs.coupling.dcae import EfficientDivideAndConquer
from mpimbs.model import system_from
from mpimbs.partition.chain import body_costs, split_chain
from mpimbs.values.handles import matrices
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import random_system
from tolerances import assert_close


def random_block(rng: np.random.Generator, tip: bool) -> Array:
    """Handle equations with semi-definite I and W of low rank, and nothing outboard at the tip."""
    low = [rng.normal(size=(6, rank)) for rank in rng.integers(1, 7, 2)]
    block = np.zeros((18, 8))
    block[:6, :6], block[:6, 6] = low[0] @ low[0].T, rng.normal(size=6)
    if not tip:
        block[6:12, :6], block[12:, :6], block[12:, 6] = rng.normal(size=(6, 6)), low[1] @ low[1].T, rng.normal(size=6)
    return block.ravel()


def plain_solution(blocks: list[Array], root: Array) -> tuple[Array, Array]:
    """(A1, f2) [P, 6] of all subchains from one dense linear system of the shared accelerations and loads.

    Between r and r + 1:  A_r = E^T A_(r-1) + W f_r + c  of the left,  -f_r = I A_r - E f_(r+1) + p  of the right.
    """
    p, one = len(blocks), np.eye(6)
    m = 6 * (p - 1)
    a, b = np.zeros((2 * m, 2 * m)), np.zeros(2 * m)
    for r in range(p - 1):
        (_, e_left, w_left, _, c_left), (i, e, _, f, _) = matrices(blocks[r]), matrices(blocks[r + 1])
        at, load = slice(6 * r, 6 * r + 6), slice(m + 6 * r, m + 6 * r + 6)
        a[at, at], a[at, load], b[at] = one, -w_left, c_left
        a[load, load], a[load, at], b[load] = one, i, -f
        if r > 0:
            a[at, 6 * r - 6 : 6 * r] = -e_left.T
        else:
            b[at] += e_left.T @ root
        if r + 2 < p:
            a[load, m + 6 * r + 6 : m + 6 * r + 12] = -e
    x = np.linalg.solve(a, b).reshape(2, p - 1, 6)
    return np.vstack((root[None], x[0])), np.vstack((x[1], np.zeros((1, 6))))


@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize("most", [1, 4])
@pytest.mark.parametrize("seed", range(5))
def test_boundary_values(comm: MPI.Comm, seed: int, most: int) -> None:
    """The boundary equations of random subchains, one or several on a rank, are solved, also a second time."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, most + 1, comm.size)
    mine = slice(int(counts[: comm.rank].sum()), int(counts[: comm.rank + 1].sum()))
    own = comm.Dup()
    strategy = EfficientDivideAndConquer(own, counts[comm.rank])
    for _ in range(2):
        blocks = [random_block(rng, tip=k == counts.sum() - 1) for k in range(counts.sum())]
        root = rng.normal(size=6)
        a1, f2 = plain_solution(blocks, root)
        given = np.array(blocks[mine])
        loads = strategy.product(given, root)
        for name, got, reference in (("A1", loads[:, :6], a1), ("f2", loads[:, 6:], f2)):
            size = max(np.abs(reference).max(), 1.0)
            assert_close(name, got, reference[mine], "boundary", scale=size, comm=comm)
        assert_close("the given blocks", given, blocks[mine], "exact", comm=comm)
    parallel_assert((strategy.seconds > 0) == (comm.size > 1), f"time in messages {strategy.seconds}", comm)
    strategy.close()
    own.Free()


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 16, 33])
@pytest.mark.parametrize("kind", ["rope", "free_chain", "mixed"])
def test_any_number_of_pieces(kind: str, ranks: int) -> None:
    """The pieces that so many ranks would own, joined in one process, give the accelerations of the whole."""
    system = random_system(ranks, 40, True)[0] if kind == "mixed" else system_from(f"{kind}:40")
    q, u, tau = moving_state(system, ranks)
    cuts = split_chain([body_costs(system.joint_types())], ranks).tolist()
    got = in_pieces(system, cuts, q, u, tau)
    assert_close("accelerations", got, accelerations(system, q, u, tau), "ranks")


def test_every_body_a_piece_against_dense() -> None:
    system = system_from("spatial_chain:30")
    q, u, tau = moving_state(system)
    got = in_pieces(system, list(range(31)), q, u, tau)
    assert_close("accelerations", got, dense.dense_accelerations(system, q, u, tau), "dense")


def test_unknown_coupling() -> None:
    with pytest.raises(InputError, match="choose one of"):
        coupling_named("nothing")
