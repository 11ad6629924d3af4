"""Constraint loads of trees: which depend on which, and the accelerations of one rank however they are solved."""

from contextlib import ExitStack, closing

import numpy as np
import pytest
from mpi4py import MPI

from cases import accelerations, parts, random_tree, separated
from mpi_helpers import parallel_assert
from mpimbs.coupling import LoadSolver
from mpimbs.coupling.pcg import coupling
from mpimbs.coupling.settings import PRECONDITIONERS
from mpimbs.model import JOINT_TYPES, system_from
from mpimbs.parallel.petsc import OWN_OPTIONS, PETSc
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import random_system
from oracles.trees import SHAPES
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


@pytest.mark.ranks(2, 3)
def test_what_others_leave_in_options_of_petsc(comm: MPI.Comm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equations of a chain are factored as a band; those of a tree are not, whatever was made before or beside them."""
    system, q, u, tau = random_system(3, 120, False)

    def found(*others: str) -> Array:
        monkeypatch.setattr(coupling, "ORDERED", {})
        for name in filter(PETSc.Options().hasName, OWN_OPTIONS):
            PETSc.Options().delValue(name)
        with ExitStack() as stack:
            for other in others:
                chain = stack.enter_context(closing(separated(system_from(other), comm, 9, LoadSolver())))
                chain.accelerations(chain.subchain.q, chain.subchain.u)
            dynamics = stack.enter_context(closing(separated(system, comm, 40, LoadSolver())))
            return np.array(dynamics.accelerations(*parts(dynamics, q, u, tau)))

    assert_close("accelerations", found("chain:12"), found(), "exact", comm=comm)


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
        iterative = dynamics.divided.coupling.iterative
        if iterative is None:
            parallel_assert(shape == "star", "nothing is cut", comm)
            return
        joints = iterative.joints
        bodies = dynamics.subchain.system.numbers_in_model(joints.bodies)
        subspaces, found = joints.subspaces, joints.solution.copy()
        unknowns = iterative.statistics()["unknowns"]
    grounded = np.flatnonzero(system.contents.parents() < 0)
    constrained = 6 - np.diff(np.append(system.contents.columns().u_offset[: system.n_bodies], system.nu))
    expected = int(constrained.sum() - constrained[grounded].sum())
    parallel_assert(unknowns == expected, f"{unknowns} unknowns, not {expected}", comm)
    assert_close("accelerations", got, ours, "iterated", scale=np.abs(udot).max(), comm=comm)
    steps = np.array([len(kind.steps) for kind in JOINT_TYPES])[system.contents.columns().joint_type]
    single = steps[bodies] == 1  # of others a frame between their steps is meant
    loads = np.einsum("ki,ki->k", subspaces, wrenches[bodies])
    assert_close("loads", found[single], loads[single], "iterated", scale=np.abs(wrenches).max(), comm=comm)
