"""Kernels compiled, or loaded from the cache, before they are needed: what ranks do together waits for none of them."""

from __future__ import annotations

import functools
from contextlib import closing
from typing import Any

from mpi4py import MPI

from mpimbs.coupling import LoadSolver
from mpimbs.dynamics import Dynamics
from mpimbs.model import system_from
from mpimbs.parallel.agreement import first_on_node
from mpimbs.parallel.scan import Scan
from mpimbs.pipeline import scan_motions
from mpimbs.sizes import tuned
from mpimbs.sweep.quaternions import make_quaternions_unit
from mpimbs.sweep.subchain import AT_REST


def compile_evaluations(dynamics: Dynamics, loads: bool = False, sampled: bool = False) -> None:
    """Compile, or load from the cache, what evaluations call, first on one rank of every node; all ranks call.

    Parameters
    ----------
    dynamics : Dynamics
    loads : bool
        `joint_loads` too.
    sampled : bool
        What a simulation takes samples by too.
    """
    comm = dynamics.comm
    kinds = sorted(set(comm.allgather((dynamics.lanes, dynamics.in_phases))))  # ranks of few bodies have other lanes

    def action() -> None:
        for lanes, staged in kinds:
            compile_kernels(lanes, staged, loads, sampled)
        if dynamics.coupling.plan is None:
            compile_coupling(dynamics.coupling_name, kinds[-1][0])

    first_on_node(comm, action)
    dynamics.external.compile()


@functools.cache  # a second time in a process there is nothing to do
def compile_kernels(lanes: int = 1, staged: bool = False, loads: bool = False, sampled: bool = False) -> None:
    """Compile, or load from the cache, the kernels of evaluations with so many lanes; no communication.

    Parameters
    ----------
    lanes : int
        As `Dynamics.lanes` says.
    staged : bool
        Phase by phase, as for forces given as functions.
    loads, sampled : bool
        As for `compile_evaluations`.
    """
    system = system_from(f"rope:{tuned().least_lane * lanes}")
    if staged:
        system.add_body_force(None, lambda t, motion: (0.0, 0.0), vectorized=True)
    with closing(Dynamics(system, lanes=lanes)) as alone:
        q, u = alone.subchain.q, alone.subchain.u
        evaluate = alone.joint_loads if loads else alone.accelerations
        evaluate(q, u)
        if sampled:
            alone.energy_and_momentum(q, u)
            make_quaternions_unit(0.0, alone.subchain.structure, q)
            with closing(Scan(MPI.COMM_SELF, AT_REST, scan_motions)) as scan:
                scan(alone.subchain.boundary_motion(q, u))


@functools.cache
def compile_coupling(name: str, lanes: int = 1) -> None:
    """Compile, or load from the cache, what a coupling calls beside the rest; no communication."""
    system = system_from(f"rope:{2 * tuned().least_lane * lanes}")
    of_its_own: dict[str, Any] = {"cuts": 1, "solver": LoadSolver("dcae")} if name == "pcg" else {}
    if name != "dca":
        of_its_own["lanes"] = lanes
    with closing(Dynamics(system, coupling=name, **of_its_own)) as alone:
        for t in (0.0, 1.0):
            alone.accelerations(alone.subchain.q, alone.subchain.u, t=t)
