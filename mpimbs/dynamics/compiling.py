"""Kernels compiled, or loaded from the cache, before they are needed: what ranks do together waits for none of them."""

from __future__ import annotations

import functools
from contextlib import closing

import numpy as np
from mpi4py import MPI

from mpimbs.base.sizes import tuned
from mpimbs.coupling import LoadSolver
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.divided import DividedSystem
from mpimbs.dynamics.operators.inverse import compile_needed_by_piece
from mpimbs.dynamics.operators.tension import BodyResistance
from mpimbs.dynamics.pipeline import SCAN_MOTIONS
from mpimbs.model import system_from
from mpimbs.model.contents import Contents
from mpimbs.parallel.agreement import first_on_node
from mpimbs.parallel.scan import Scan
from mpimbs.sweep.motion import make_quaternions_unit
from mpimbs.sweep.structure import BOUNDARY


def compile_evaluations(dynamics: Dynamics, loads: bool = False, sampled: bool = False, checked: bool = False) -> None:
    """Compile, or load from the cache, what evaluations call, first on one rank of every node; all ranks call.

    Parameters
    ----------
    loads : bool
        `joint_loads` too.
    sampled : bool
        What a simulation takes samples by too.
    checked : bool
        What it checks samples by too.
    """
    _compile(dynamics.divided, loads, sampled, checked)


def _compile(divided: DividedSystem, loads: bool = False, sampled: bool = False, checked: bool = False) -> None:
    comm = divided.comm
    evaluation, loops = divided.evaluation, bool(divided.system.loops)
    mine = (divided.kernels, divided.subchains.width, evaluation.in_phases, loops, evaluation.placed)
    kinds = sorted(set(comm.allgather(mine)))  # ranks of few bodies have other lanes

    def action() -> None:
        for kernels, lanes, staged, loops, placed in kinds:
            compile_kernels(kernels, lanes, staged, loads, sampled, loops, checked, placed)

    first_on_node(comm, action)
    divided.external.compile()
    if sampled and divided.external.at_once is not None:
        _ = divided.evaluation.compiled


@functools.cache  # a second time in a process there is nothing to do
def compile_kernels(
    kernels: str = "dcae",
    lanes: int = 1,
    staged: bool = False,
    loads: bool = False,
    sampled: bool = False,
    loops: bool = False,
    checked: bool = False,
    placed: bool = False,
) -> None:
    """Compile, or load from the cache, the kernels of evaluations with so many lanes; no communication.

    Parameters
    ----------
    kernels : str
        As `DividedSystem.kernels` says.
    lanes : int
        As `DividedSystem.lanes` says.
    staged : bool
        Phase by phase, as for forces given as functions.
    loads, sampled : bool
        As for `compile_evaluations`.
    loops : bool
        What closes loops too.
    checked : bool
        As for `compile_evaluations`.
    placed : bool
        What brings motions of elsewhere to loops too.
    """
    in_lanes = f"rope:{2 * tuned().least_lane * lanes}"
    system = system_from(f"tree:2:{lanes + 1}" if "intervals" in kernels else in_lanes)
    if loops:
        ends = (system.contents.name_of(0), "world")
        system.add_loop(name="closure", type="spherical", bodies=ends, positions=((0, 0, 0), (1, 1, 1)))
    iterated = kernels in ("pcg", "cut intervals")
    if staged and not iterated:
        system.add_body_force(None, lambda t, motion: (0.0, 0.0), vectorized=True)
        ends = ("world", system.contents.name_of(0))
        system.add_spring(name="spring", bodies=ends, positions=((0, 0, 0), (1, 1, 1)), damping=1.0)
    with closing(_made(kernels, system.contents, lanes)) as alone:
        q, u = alone.subchain.q, alone.subchain.u
        alone.divided.evaluation.placed = placed
        if alone.loops is not None:
            alone.loops.warned = True  # what it is asked for is no user's
        for t in (0.0, 1.0) if iterated else (0.0,):
            alone.accelerations(q, u, t=t)
        if alone.loops is not None:
            alone.loops.violations(q, u)
            alone.subchain.displaced(q, u)
            _ = alone.loops.compiled
        if loads:
            alone.joint_loads(q, u)
        if checked:
            alone.loads.residual(q, u)
        if sampled:
            alone.energy_and_momentum(q, u)
            make_quaternions_unit(0.0, alone.subchain.structure, q)
            with closing(Scan(MPI.COMM_SELF, alone.subchain.nothing_before(BOUNDARY), SCAN_MOTIONS[kernels])) as scan:
                scan(alone.subchain.boundary_motion(q, u))


@functools.cache
def compile_at_once() -> None:
    """Compile, or load from the cache, what springs, tendons and added masses take in compiled steps."""
    system = system_from("rope:8")
    ends = ("world", system.contents.name_of(0))
    system.add_spring(name="spring", bodies=ends, positions=((0, 0, 0), (1, 1, 1)), stiffness=1.0, rest=1.0)
    with closing(_made("dcae", system.contents, 1)) as alone:
        _ = alone.divided.evaluation.compiled


def compile_implicit(dynamics: Dynamics) -> None:
    """Compile, or load from the cache, what implicit steps take; all ranks call."""
    if not dynamics.system.is_chain:
        first_on_node(dynamics.comm, _compile_answers)
    if (resting := dynamics.inertia.implicit_matrix.resting) is not None:
        _compile(resting)
    first_on_node(dynamics.comm, functools.partial(_compile_stages, dynamics.system.is_chain, dynamics.divided.lanes))
    if not dynamics.system.is_chain and dynamics.comm.size > 1:
        first_on_node(dynamics.comm, compile_needed_by_piece)
    if dynamics.system.is_chain and dynamics.system.loops:  # the loads of whose joints are found as those of trees
        first_on_node(dynamics.comm, functools.partial(_compile_stages, False, 1))


@functools.cache
def _compile_answers() -> None:
    with closing(Dynamics(system_from("parallelogram"), MPI.COMM_SELF)) as alone:
        alone.inertia.implicit_matrix.at(alone.subchain.q, 1.0)


@functools.cache
def _compile_stages(chain: bool, lanes: int) -> None:
    system = system_from(f"rope:{2 * tuned().least_lane * lanes}" if chain else "tree:2:2")
    with closing(Dynamics(system, MPI.COMM_SELF, lanes=lanes if chain else 1)) as alone:
        q, u = alone.subchain.q, alone.subchain.u
        r = np.zeros(len(q) + len(u))
        alone.inertia.implicit_matrix.at(q, 1.0)
        alone.inertia.implicit_matrix.solve(r, r.copy())
        _ = alone.inertia.implicit_matrix.compiled
        matrix, resistance = alone.inertia.implicit_matrix_of_bodies, BodyResistance(alone.divided)
        resistance.tension.stiffness(alone.joint_loads(q, u))
        matrix.at(q, 1.0, *resistance.take(True))
        matrix.solve(r, r.copy())
        matrix.of_bodies(resistance, alone.divided.subchains)


@functools.cache
def compile_inverse(lanes: int = 1) -> None:
    """Compile, or load from the cache, what `Dynamics.inverse_dynamics` calls, in so many lanes; no communication."""
    for name in (f"rope:{2 * tuned().least_lane * lanes}", f"tree:2:{lanes + 1}"):
        with closing(Dynamics(system_from(name), MPI.COMM_SELF, lanes=lanes)) as alone:
            q, u, between = alone.subchain.q, alone.subchain.u, alone.divided.between
            alone.inverse_dynamics(q, u, u)
            between.see(q, u)
            between.forces(q, u, u, u, between.prescribed(q, u, u, np.zeros(6)))
    compile_needed_by_piece()


@functools.cache
def compile_joint_space(lanes: int = 1) -> None:
    """Compile, or load from the cache, what M and Jacobians take, in so many lanes; no communication."""
    compile_inverse(lanes)
    with closing(Dynamics(system_from("tree:2:2"), MPI.COMM_SELF, lanes=1)) as alone:
        q, u = alone.subchain.q, alone.subchain.u
        for layout in ("rows", "csr"):
            alone.inertia_matrix(q, layout=layout)
        alone.inertia.inverse_matrix(q)
        alone.inertia.solve(q, alone.inertia.multiply(q, u))
        alone.poses(q, u)
        alone.inertia.composites.compile()
    rope = system_from(f"rope:{2 * tuned().least_lane * lanes}")
    with closing(Dynamics(rope, MPI.COMM_SELF, lanes=lanes)) as alone:
        alone.inertia.inverse_matrix(alone.subchain.q)
        alone.inertia.solve(alone.subchain.q, alone.subchain.u)


def _made(kernels: str, system: Contents, lanes: int) -> Dynamics:
    if kernels == "intervals":
        return Dynamics(system, MPI.COMM_SELF, lanes=lanes)
    if kernels in ("pcg", "cut intervals"):
        solver = LoadSolver() if system.loops else LoadSolver("dcae")
        return Dynamics(system, MPI.COMM_SELF, "pcg", lanes=lanes, cuts=1, solver=solver)
    return Dynamics(system, MPI.COMM_SELF, kernels, lanes=None if kernels == "dca" else lanes)
