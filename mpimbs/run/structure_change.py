"""From one change of structure to the next: what evaluates, closes loops and integrates, and the state that goes over.

Joints that stay keep their coordinates, bodies that are cut keep their poses and twists, and loops that begin to hold
make speeds jump.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from functools import partial

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.closure.geometry import LoopJoints, body_motions
from mpimbs.closure.jacobian import ROOM_OF_ROUNDING
from mpimbs.coupling import Lagrangian, LoadSolver
from mpimbs.coupling.settings import EvaluationSettings
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.compiling import compile_evaluations, compile_implicit
from mpimbs.files.output_layout import ConstraintRecord, SeparatedLoads
from mpimbs.model import Event
from mpimbs.model.columns import numbers_of
from mpimbs.model.contents import Contents
from mpimbs.parallel.agreement import first_on_node, on_root
from mpimbs.parts.kinematics import pose_numbers
from mpimbs.stepping.event_watch import MotionsOfBodies
from mpimbs.stepping.projection import Projection, closed
from mpimbs.stepping.schemes import scheme_of
from mpimbs.stepping.settings import POSITIONS, SimulationSettings
from mpimbs.stepping.stage_steps import compile_steps


class RunSegment:
    """A structure of a run, ready to be integrated; all ranks make it together and call.

    Parameters
    ----------
    system : Contents
        As it holds together.
    settings : SimulationSettings
        As they were asked for.

    Attributes
    ----------
    dynamics : Dynamics
    settings : SimulationSettings
        With the cuts and lanes that were chosen, where a restart needs the same.
    constraints : ConstraintRecord or None
        Where the coupling has constraint loads.
    projection : Projection or None
        Where there are loops.
    compiling : float
        Wall time spent on kernels (s).
    """

    def __init__(
        self, system: Contents, comm: MPI.Comm, settings: SimulationSettings, solver: LoadSolver | None
    ) -> None:
        chosen = settings.part(EvaluationSettings) | {"solver": solver}
        if settings.coupling == "augmented":
            chosen["lagrangian"] = (settings.lagrangian or Lagrangian()).in_a_simulation()
        self.dynamics = dynamics = Dynamics(system, comm, **chosen)
        iterative = dynamics.divided.coupling.iterative
        numbered = dynamics.subchain.system
        self.constraints = None if iterative is None else ConstraintRecord(dynamics.comm, iterative, numbered)
        if self.constraints is not None:  # their number is that of the output's columns: the same after a restart
            made = dynamics.divided.division  # of which a tree's lanes are chosen with its cuts, again as they were
            cuts, lanes = len(made.bounds) - 2, made.width or None
            settings = dataclasses.replace(settings, cuts=cuts, lanes=lanes, tip_ratio=made.tip_ratio)
        self.settings = settings
        self.compiling = 0.0
        self.projection: Projection | None = None
        if dynamics.loops is not None:
            self.compile()
            self.projection = Projection(dynamics, settings.projection or POSITIONS, settings.stabilisation)

    def compile(self) -> None:
        """Compile, or load, the kernels of evaluations and samples."""
        began = time.perf_counter()
        compile_evaluations(self.dynamics, self.settings.loads, sampled=True, checked=not self.settings.no_witness)
        scheme = scheme_of(self.settings.integrator)
        if scheme.own:
            columns = self.dynamics.subchain.columns
            first_on_node(self.dynamics.comm, partial(compile_steps, columns.stopped, columns.bounded))
        if scheme.implicit:
            compile_implicit(self.dynamics)
        self.compiling += time.perf_counter() - began

    def told(self) -> dict[str, object]:
        """Give the division of the system, as the output tells it."""
        division = self.dynamics.divided.division
        return {
            "lanes": self.dynamics.divided.lanes, "tip_ratio": division.tip_ratio, "cuts": division.bounds.tolist(),
            "owners": division.owners.tolist(),
        }  # fmt: skip

    def separated_loads(self) -> SeparatedLoads | None:
        """Give the joints that constraint loads act on, where there are any; all ranks call."""
        return None if self.constraints is None else self.constraints.separated_loads()

    def seconds(self) -> dict[str, float]:
        """Wall time spent so far on evaluations by phase, and on closing loops (s)."""
        phases = self.dynamics.derivative.seconds()
        if self.projection is not None:
            phases = {name: value - self.projection.seconds.get(name, 0.0) for name, value in phases.items()}
            phases["projection"] = self.projection.seconds.get("projection", 0.0)
        return phases

    def solutions(self) -> dict[str, float]:
        """Give the statistics of the solutions of constraint loads, where the coupling iterates to find them."""
        found: dict[str, float] = {**self.dynamics.divided.coupling.statistics()}
        if self.constraints is not None:
            return found | self.constraints.largest()
        return found if found.get("solutions") else {}


NEAR = 1e-6  # apart (rad, and m of the size of a loop), so that ends count as together


def go_over(
    before: Dynamics, after: RunSegment, q: Floats, u: Floats, events: Sequence[Event]
) -> tuple[Floats, Floats, float]:
    """Give the state after events that make one structure of another; all ranks call.

    Parameters
    ----------
    before, after : Dynamics, RunSegment
        Of the system as it holds together before and after.
    q, u : array [nq], [nu]
        This rank's part of the state before.
    events : sequence of Event
        All that happen.

    Returns
    -------
    (q [nq], u [nu], moved)
        This rank's part of the state after, and how far apart (m and rad) the loops were that were closed by moving
        bodies.

    Raises
    ------
    SimulationError
        On all ranks: what should be connected is too far apart.
    """
    names = {name for event in events for name in event.cut}
    system, dynamics = before.system, after.dynamics
    cut = np.array(sorted(system.index_of(name) for name in names - system.loops.names), np.int64)
    q, u = taken_over(before, dynamics, q, u, cut)
    begun = {name for event in events for name in event.connect} & {loop.name for loop in dynamics.system.loops}
    close = {name for event in events if event.gap == "close" for name in event.connect} & begun
    if not begun:
        return q, u, 0.0
    settle = after.projection is not None and after.projection.kind == POSITIONS
    return connected_state(dynamics, q, u, begun, close, settle)


def taken_over(before: Dynamics, after: Dynamics, q: Floats, u: Floats, cut: Integers) -> tuple[Floats, Floats]:
    """Give the state of a system in which the inboard joints of some bodies were cut; all ranks call.

    Parameters
    ----------
    before, after : Dynamics
        Of the same bodies.
    q, u : array [nq], [nu]
        This rank's part of the state before.
    cut : array [n]
        The bodies that are cut between them, ascending.

    Returns
    -------
    (q [nq], u [nu])
        This rank's part of the state after.
    """
    system = before.system
    wholes = before.gather_q.everywhere(q), before.gather_u.everywhere(u)
    stay = np.setdiff1d(np.arange(system.n_bodies), cut)
    motion = MotionsOfBodies(before, cut)(q, u)
    back = np.swapaxes(motion.rotation, 1, 2)
    twists = (np.einsum("nij,nj->ni", back, part) for part in (motion.angular_velocity, motion.velocity))
    poses = pose_numbers(motion.rotation, motion.position)
    free = np.roll(poses, 4, axis=1), np.hstack([*twists])  # of a free joint the quaternion stands first
    found = []
    sides = zip(wholes, system.offsets(), after.system.offsets(), free, strict=True)
    for values, old, new, of_free in sides:
        whole = np.empty(new[-1])
        whole[numbers_of(new, stay)[0]] = values[numbers_of(old, stay)[0]]
        whole[numbers_of(new, cut)[0]] = of_free.ravel()
        found.append(whole)
    return found[0][after.gather_q.part].copy(), found[1][after.gather_u.part].copy()


def as_they_lie(
    before: Dynamics, after: Contents, names: set[str], q: Floats, u: Floats
) -> list[tuple[str, tuple[float, ...]]]:
    """Give the joint frames on the second bodies of some loops that close them as their ends are; all ranks call.

    Parameters
    ----------
    before : Dynamics
        Whose state q [nq], u [nu] is; this rank's parts.
    after : Contents
        Of the same bodies, with these loops.
    names : set of str

    Returns
    -------
    list of (str, tuple of 7 floats)
        Position (m) and quaternion w x y z, in the order of the loops.
    """
    whole, speeds = before.gather_q(q), before.gather_u(u)

    def found() -> list[tuple[str, tuple[float, ...]]] | None:
        if whole is None or speeds is None:
            return None
        bodies = body_motions(before.system, whole, speeds)
        poses = LoopJoints(after).on_second(bodies)
        return [
            (loop.name, tuple(pose.tolist()))
            for loop, pose in zip(after.loops, poses, strict=True)
            if loop.name in names
        ]

    frames: list[tuple[str, tuple[float, ...]]] = before.comm.bcast(on_root(before.comm, found))
    return frames


def held_over(before: Contents, after: Contents, held: Floats, events: Sequence[Event]) -> Floats:
    """Give numbers of speeds [nu], as forces that are held, after a change of structure: 0 of joints that were cut."""
    names = {name for event in events for name in event.cut} - before.loops.names
    stay = np.setdiff1d(np.arange(before.n_bodies), [before.index_of(name) for name in names])
    whole = np.zeros(after.nu)
    whole[numbers_of(after.offsets()[1], stay)[0]] = held[numbers_of(before.offsets()[1], stay)[0]]
    return whole


def connected_state(
    dynamics: Dynamics, q: Floats, u: Floats, begun: set[str], close: set[str], settle: bool
) -> tuple[Floats, Floats, float]:
    """Give the state in which loops that begin to hold do hold; all ranks call.

    Speeds change with the least kinetic energy: by what an inelastic impact in the loops does.

    Parameters
    ----------
    dynamics : Dynamics
        In which all loops hold that shall.
    q, u : array [nq], [nu]
        This rank's part of the state.
    begun : set of str
        The loops that begin.
    close : set of str
        Those of them for whose sake bodies may be moved.
    settle : bool
        Bodies are moved too by what is left to rounding, or to the moment that was found.

    Returns
    -------
    (q, u, moved)
        And how far apart (m and rad) the loops were that were closed by moving bodies.

    Raises
    ------
    SimulationError
        On all ranks: ends are apart that may not be moved together, or can't be.
    """
    loops = dynamics.loops
    assert loops is not None
    apart, parted = (found[:, 0] for found in loops.apart(q, u))
    names = [loop.name for loop in dynamics.system.loops]
    near = NEAR + loops.roundings(q) * ROOM_OF_ROUNDING
    far = [k for k, name in enumerate(names) if name in begun - close and not parted[k] <= near[k]]
    if far:
        worst = max(far, key=lambda k: apart[k])
        raise SimulationError(
            f"connects loop {names[worst]!r}, whose ends are {_distance(dynamics, q, u, worst)} apart; let the event "
            'come where they meet, or have them moved together with gap = "close"'
        )
    if settle or close:
        try:
            q = closed(dynamics, q, u)[0]
        except InputError as error:
            raise SimulationError(str(error)) from None
    u = loops.close_speeds(q, u)
    return q, u, float(apart.max(initial=0.0, where=np.array([name in close for name in names])))


def _distance(dynamics: Dynamics, q: Floats, u: Floats, loop: int) -> str:
    """How far the ends of a loop are apart, in words; all ranks call."""
    whole, speeds = dynamics.gather_q(q), dynamics.gather_u(u)

    def measured() -> str | None:
        if whole is None or speeds is None:
            return None
        joints = LoopJoints(dynamics.system)
        rows = joints.held(body_motions(dynamics.system, whole, speeds)).violation
        return joints.worst(np.where(joints.loop == loop, rows, 0.0))[1]

    return str(dynamics.comm.bcast(on_root(dynamics.comm, measured)))
