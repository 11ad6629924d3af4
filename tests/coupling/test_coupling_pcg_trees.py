"""Constraint loads of trees: which depend on which, and the accelerations of one rank however they are solved."""

import itertools
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from cases import accelerations, parts, random_tree, separated
from mpi_helpers import parallel_assert
from mpimbs.coupling import LoadSolver
from mpimbs.coupling.pcg.load_graph import LoadGraph, LoadShare
from mpimbs.coupling.pcg.solver import PRECONDITIONERS
from mpimbs.model import JOINT_TYPES
from mpimbs.model.order.order import Order
from mpimbs.model.order.segments import Integers
from mpimbs.partition.intervals import interval
from oracles import dense
from oracles.random_systems import SETTINGS
from oracles.trees import SHAPES
from oracles.trees import parents as drawn_parents
from tolerances import assert_close

TIME = 0.7


@pytest.mark.cases(5)
@pytest.mark.parametrize("preconditioner", PRECONDITIONERS)
@pytest.mark.parametrize("shape", ["brush", "recursive forest"])
def test_every_preconditioner(comm: MPI.Comm, shape: str, preconditioner: str) -> None:
    """State after state; the matrix changes with the configuration."""
    system, q, u, tau = random_tree(shape)
    with closing(separated(system, comm, 9, LoadSolver(preconditioner, "zero"))) as dynamics:
        for k, size in enumerate((1.0, 1.001, -3.0)):
            state = q, u * size, tau
            reference = accelerations(system, *state)
            got = dynamics.accelerations(*parts(dynamics, *state), t=0.1 * k)
            ours = reference[dynamics.gather_u.part]
            assert_close(f"accelerations {k}", got, ours, "iterated", scale=np.abs(reference).max(), comm=comm)


@pytest.mark.cases(2)
@pytest.mark.ranks(2, 3, 4)
@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_every_joint_cut(comm: MPI.Comm, shape: str) -> None:
    """Of bodies of all joint types, all but those on the world; the loads are those that the joints constrain."""
    system, q, u, tau = random_tree(shape)
    udot = dense.dense_accelerations(system, q, u, tau, TIME)
    wrenches = dense.joint_wrenches(system, q, u, tau, TIME, frame="body")
    with closing(separated(system, comm, system.n_bodies - 1, LoadSolver("direct"))) as dynamics:
        got = dynamics.accelerations(*parts(dynamics, q, u, tau), t=TIME)
        ours = udot[dynamics.gather_u.part]
        coupling = dynamics.coupling.iterative
        if coupling is None:
            parallel_assert(shape == "star", "nothing is cut", comm)
            return
        joints = coupling.joints
        bodies = dynamics.subchain.system.numbers_in_model(joints.bodies)
        subspaces, found = joints.subspaces, joints.solution.copy()
        unknowns = coupling.statistics()["unknowns"]
    grounded = np.flatnonzero(system.parents() < 0)
    constrained = 6 - np.diff(np.append(system.columns().u_offset[: system.n_bodies], system.nu))
    expected = int(constrained.sum() - constrained[grounded].sum())
    parallel_assert(unknowns == expected, f"{unknowns} unknowns, not {expected}", comm)
    assert_close("accelerations", got, ours, "iterated", scale=np.abs(udot).max(), comm=comm)
    steps = np.array([len(kind.steps) for kind in JOINT_TYPES])[system.columns().joint_type]
    single = steps[bodies] == 1  # of others a frame between their steps is meant
    loads = np.einsum("ki,ki->k", subspaces, wrenches[bodies])
    assert_close("loads", found[single], loads[single], "iterated", scale=np.abs(wrenches).max(), comm=comm)


def shares_of(parent: Integers, bounds: list[int], owners: list[int]) -> tuple[Order, list[list[LoadShare]]]:
    """What ranks would say of the joints of a tree that is cut into intervals, with joints of 1 to 6 loads."""
    order = Order(len(parent), parent)
    shares = []
    for first, last in itertools.pairwise(owners):
        shares.append([])
        for number in range(first, last):
            own = interval(order, bounds[number], bounds[number + 1])
            cut = [k for k in own.roots.tolist() if order.parents[k] >= 0]
            carries = len(own.open) and order.parents[own.roots[-1]] >= 0
            hung_on = [int(order.parents[k]) for k in cut]
            movers, groups = [len(cut) - 1] if carries else [], [(body, 0) for body in own.open.tolist()]
            shares[-1].append(LoadShare([1 + k % 6 for k in cut], hung_on, movers, groups))
    return order, shares


@SETTINGS
@given(st.data(), drawn_parents(40))
def test_which_loads_depend_on_which(data: st.DataObject, parent: Integers) -> None:
    """By the definition: joints on one piece, the one that carries these, and those on what is carried; and what a rank
    needs is what its rows name."""
    n = len(parent)
    inner = sorted(data.draw(st.sets(st.integers(1, n - 1), max_size=min(n - 1, 12)))) if n > 1 else []
    bounds = [0, *inner, n]
    count = len(bounds) - 1
    ranks = data.draw(st.integers(1, min(count, 4)))
    owners = (np.arange(ranks + 1) * count // ranks).tolist()
    order, shares = shares_of(parent, bounds, owners)
    graph = LoadGraph(shares)
    above = order.parents
    cut = [k for a, b in itertools.pairwise(bounds) for k in range(a, b) if 0 <= above[k] < a]
    assert len(graph.sizes) == len(cut)

    def piece(body: int) -> int:
        return int(np.searchsorted(bounds, body, side="right")) - 1

    def carries(root: int, body: int) -> bool:
        while body >= bounds[piece(root)]:
            if body == root:
                return True
            body = int(above[body])
        return False

    for number, root in enumerate(cut):
        on = int(above[root])
        expected = {
            k for k, other in enumerate(cut)
            if piece(above[other]) == piece(on) or (piece(other) == piece(on) and carries(other, on))
            or (piece(above[other]) == piece(root) and carries(root, int(above[other])))
        }  # fmt: skip
        assert set(graph.coupled(number)) == expected
        assert number in graph.own(int(np.searchsorted(owners, piece(root), side="right")) - 1)
        assert all(block.piece in (piece(root), piece(on)) for block in graph.blocks(number))
    for rank in range(ranks):
        own, needs = graph.own(rank), graph.needs(rank)
        named = {other for joint in own for other in graph.coupled(joint)} - {*own}
        assert named <= {*needs.loads} and {*needs.drives} <= {*needs.loads}
        assert {piece(above[cut[k]]) for k in own} <= {*needs.pieces, *graph.own_pieces(rank)}
        assert all(rank in graph.neighbours(other) for other in graph.neighbours(rank))
        of_others = [graph.of_rank(needs, other) for other in graph.neighbours(rank)]
        for part, found in zip(needs, zip(*of_others, strict=True) if of_others else ([], [], []), strict=True):
            assert sorted(itertools.chain(*found)) == part


def test_a_chain_is_a_band() -> None:
    chain, tree = (
        LoadGraph(shares_of(SHAPES[shape](30), [0, 8, 15, 22, 30], [0, 2, 4])[1]) for shape in ("chain", "brush")
    )
    assert chain.is_band and not tree.is_band
    assert [chain.coupled(k) for k in range(3)] == [[0, 1], [0, 1, 2], [1, 2]]
