"""Loads of loops and of the joints of the tree beside them: of least norm, against oracles and in balance."""

import copy
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from mpi4py import MPI
from scipy.sparse import csr_array

from mpimbs.closure import redundant_loads
from mpimbs.closure.redundant_loads import of_least_norm
from mpimbs.dynamics import Dynamics
from mpimbs.loops.loops import Loops
from mpimbs.model import System, Wrench, system_from
from mpimbs.model.system import system_holding
from oracles import dense
from oracles.dense import Array
from oracles.loops import closed, opened
from oracles.mechanisms import four_bar_forces
from oracles.random_loops import planar_mechanism, random_mechanism
from tolerances import assert_close


def in_place_of_loops(system: System, q: Array, u: Array, loads: Array) -> System:
    """The tree of a system, on whose bodies loads of its loops [loops, 6] act as wrenches."""
    tree = system_holding(copy.deepcopy(opened(system)))
    state = dense.Snapshot(opened(system), q, u)
    rotation, origin = [*state.kinematics.rotation, np.eye(3)], [*state.kinematics.origin, np.zeros(3)]
    for loop, load in zip(system.contents.loops, loads, strict=True):
        a, b = (-1 if name == "world" else system.contents.index_of(name) for name in loop.bodies)
        moment, force = rotation[b] @ load[:3], rotation[b] @ load[3:]
        place = origin[b] + rotation[b] @ np.array(loop.positions[1])
        for body, sign in ((a, -1), (b, 1)):
            if body >= 0:
                here, back = sign * rotation[body].T, rotation[body].T @ (place - origin[body])
                fields = {"force": here @ force, "moment": here @ moment, "point": back}
                given = {name: tuple(value.astype(float).tolist()) for name, value in fields.items()}
                tree.add_wrench(system.contents.name_of(body), Wrench(**given, frame="body"))
    return tree


def check(comm: MPI.Comm, system: System, q: Array, u: Array, tau: Array | None, coupling: str = "dcae") -> None:
    reference = closed(system, q, u, tau)
    with closing(Dynamics(system, comm, coupling)) as dynamics:
        assert dynamics.loops is not None
        own = dynamics.gather_u.part
        mine = q[dynamics.gather_q.part], u[own], None if tau is None else tau[own]
        before = dynamics.accelerations(*mine)
        ours = np.empty((system.n_bodies, 6))
        carried, forces, loops = dynamics.loads.joints_and_loops(*mine)
        for bodies, loads in comm.allgather((dynamics.bodies, carried)):
            ours[bodies] = loads
        assert_close("accelerations after loads", dynamics.accelerations(*mine), before, "exact", comm=comm)
    drives = dense.generalized_forces(system.contents.columns(), q, u, tau).astype(float)
    scale = np.abs(reference.loads).max()
    assert_close("what drives the joints", forces, drives[own], "redundant", scale=scale, comm=comm)
    assert_close("loads of loops", loops, reference.loads, "redundant")
    tree = in_place_of_loops(system, q, u, reference.loads)
    assert_close("accelerations of the tree", dense.dense_accelerations(tree, q, u, tau), reference.udot, "redundant")
    assert_close("joint loads", ours, dense.joint_wrenches(tree, q, u, tau, frame="body"), "redundant")


@pytest.mark.parametrize("seed", range(10))
def test_of_mechanisms_with_repeated_loops(comm: MPI.Comm, seed: int) -> None:
    check(comm, *random_mechanism(seed, 8, 2, doubled=seed % 2))


@pytest.mark.parametrize("seed", range(5))
def test_of_planar_mechanisms(comm: MPI.Comm, seed: int) -> None:
    check(comm, *planar_mechanism(seed, 8, 2))


@pytest.mark.parametrize("seed", range(3))
def test_from_multipliers(comm: MPI.Comm, seed: int) -> None:
    """Of the coupling `augmented`, whose joint loads are all multipliers."""
    check(comm, *random_mechanism(seed, 8, 2, doubled=seed % 2), coupling="augmented")
    check(comm, *planar_mechanism(seed, 8, 2), coupling="augmented")


def test_what_is_unique_in_a_row_of_linkages() -> None:
    system = system_from("four_bar:3")
    theta, omega = 1.0, -2.0
    q, u = np.array([theta, -theta] * 3 + [theta]), np.array([omega, -omega] * 3 + [omega])
    with closing(Dynamics(system)) as dynamics:
        found = dynamics.loads.joints_and_loops(q, u).loops
        assert found is not None
    turn = np.array([[np.cos(theta), -np.sin(theta)], [np.sin(theta), np.cos(theta)]])
    assert_close("forces in the plane", -found[:, 3:5] @ turn.T, four_bar_forces(3, theta, omega), "redundant")
    assert_close("all else", np.delete(found, [3, 4], axis=1), np.zeros((3, 4)), "redundant", scale=1.0)


@pytest.mark.parametrize("sparse", [0, 1000])
def test_loads_of_least_norm_are_those_of_a_dense_solution(sparse: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of redundant constraints, rows that hold nothing, some that hardly differ, in parts with other units."""
    monkeypatch.setattr(redundant_loads, "SPARSE", sparse)
    random = np.random.default_rng(1)
    rows = np.vstack([random.standard_normal((6, 5)), np.zeros((2, 5))])
    rows[5] = rows[4] + 1e-5 * rows[5]
    dense = np.block([[rows, 0 * rows], [0 * rows, 1e-2 * rows[::-1]]])
    loads = random.standard_normal(16)
    right = dense @ np.linalg.pinv(dense, rcond=1e-12) @ loads
    assert_close("loads", of_least_norm(csr_array(dense), loads), right, "redundant")


def test_loads_of_a_thousand_constraints() -> None:
    """Of random ones that hang together, a third of them redundant, sizes from 1e-3 on: iterations don't get there."""
    random = np.random.default_rng(2)
    given = scipy.sparse.random_array((800, 700), density=0.01, rng=random) * np.logspace(-3, 0, 700)
    jacobian = csr_array(scipy.sparse.vstack([given, given[:400] - given[400:]]))
    loads = random.standard_normal(1200)
    range_, triangle, _ = scipy.linalg.qr(jacobian.toarray(), mode="economic", pivoting=True)
    basis = range_[:, np.abs(np.diag(triangle)) > 1e-9]
    found = of_least_norm(jacobian, loads)
    assert_close("loads", found, basis @ (basis.T @ loads), "redundant")


def test_digits_that_cancel_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redundant constraints of a plane loop that carry 1e13 N m against one another leave few digits."""
    found: Any = Loops.joint_loads

    def joint_loads(self: Loops) -> Any:
        loads = found(self)
        loads[:, :2] += 1e13
        return loads

    with closing(Dynamics(system_from("four_bar:3"))) as dynamics:
        state = np.array([1.0, -1.0] * 3 + [1.0]), np.zeros(7)
        right = dynamics.loads.joints_and_loops(*state).loops
        monkeypatch.setattr(Loops, "joint_loads", joint_loads)
        with pytest.warns(UserWarning, match=r"have some \d digits alone: constraints of loop '\w+' hardly differ"):
            lost = dynamics.loads.joints_and_loops(*state).loops
    assert right is not None and lost is not None
    assert_close("loads", lost, right, "iterated", scale=1e10)
