"""Inward sweeps that go ahead of the velocities: the same accelerations as sweeps that wait."""

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import mpimbs.partition.ownership
from cases import moving_state, typed_chain
from mpi_helpers import parallel_assert
from mpimbs.base.sizes import PACKAGE
from mpimbs.coupling import LoadSolver
from mpimbs.dynamics import Dynamics
from mpimbs.kernels.lanes import native_width
from mpimbs.model import System, system_from
from mpimbs.partition.chain import cut_chain
from oracles import dense
from oracles.dense import Array
from oracles.random_systems import ALL
from tolerances import assert_close

NATIVE = native_width()


def chain_of(types: tuple[str, ...], n: int) -> System:
    """A random chain of n bodies whose joints repeat the types."""
    return typed_chain(tuple(np.resize(types, n).tolist()), 9)


def swept_early(dynamics: Dynamics) -> bool:
    """Whether a sweep has left inertias to another one."""
    return any(part.tiles.eliminated.any() for part in dynamics.divided.subchains)


def of_another_state_first(dynamics: Dynamics, q: Array, u: Array, tau: Array, t: float = 0.0) -> Array:
    """This rank's accelerations, where what an evaluation leaves behind is that of another state."""
    mine, ours = dynamics.gather_q.part, dynamics.gather_u.part
    dynamics.accelerations(q[mine] + 0.1, u[ours] - 0.2, t=t)
    return dynamics.accelerations(q[mine], u[ours], tau[ours], t)


@pytest.mark.cases(4)
@pytest.mark.parametrize("cut", ["one tile", "several"])
@pytest.mark.parametrize("joint", [name for name in ALL if name != "fixed"])
def test_overlap_against_dense(comm: MPI.Comm, joint: str, cut: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tile that goes ahead is alone, or has others before and beyond it."""
    if cut == "several":
        monkeypatch.setattr(mpimbs.partition.ownership, "cut_chain", lambda patterns, w: cut_chain(patterns, w, 1, 2))
    system = chain_of((joint,), comm.size * NATIVE * PACKAGE.least_lane + 3)
    q, u, tau = moving_state(system)
    reference = dense.dense_accelerations(system, q, u, tau)
    with closing(Dynamics(system, comm, lanes=NATIVE, tip_ratio=1.0, overlap=True)) as dynamics:
        got = of_another_state_first(dynamics, q, u, tau)
        parallel_assert(swept_early(dynamics) == (comm.size > 1), "nothing was swept early, or on one rank", comm)
        ours = dynamics.gather_u.part
    assert_close("accelerations", got, reference[ours], "dense", scale=np.abs(reference).max(), comm=comm)


@pytest.mark.parametrize("coupling", ["pcg", "dca", "dca-terminal"])
def test_other_couplings(comm: MPI.Comm, coupling: str) -> None:
    """Inertias go ahead of what Python solves for; bodies that are assembled one by one have none in lanes."""
    system = system_from("spatial_chain:400")
    own: dict[str, Any] = {"solver": LoadSolver("direct")} if coupling == "pcg" else {}
    if coupling != "dca":
        own["lanes"] = NATIVE
    q, u, tau = moving_state(system)
    found = []
    for overlap in (False, True):
        with closing(Dynamics(system, comm, coupling, overlap=overlap, **own)) as dynamics:
            found.append(of_another_state_first(dynamics, q, u, tau))
            if coupling == "pcg":
                parallel_assert(swept_early(dynamics) == (overlap and comm.size > 1), f"overlap {overlap}", comm)
    size = comm.allreduce(np.abs(found[0]).max(), MPI.MAX)
    quantity = "lanes joined" if coupling == "pcg" else "exact"
    assert_close("accelerations", found[1], found[0], quantity, scale=size, comm=comm)
