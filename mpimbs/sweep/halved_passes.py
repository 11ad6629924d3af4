"""The passes of an evaluation over halved bodies, the last of which may be a subchain that is swept: compiled."""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import Floats, Integers, assign, read, schema
from mpimbs.spatial.tuples import load3
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.leaves import Halving, assemble_bodies, spread_bodies
from mpimbs.sweep.motion import coordinate_rates, join_turn, joint_places, relative_turn, velocity_terms
from mpimbs.sweep.sequence import SEQUENCE, inward_of_all, motion_of_all, outward_of_all
from mpimbs.sweep.structure import Handles, Springs, Structure, Workspace


class Halved(NamedTuple):
    """What the passes over halved bodies are given."""

    handles: Handles  # the equations of all of them: those of the acceleration form [ASSEMBLY]
    structure: Structure
    springs: Springs
    work: Workspace
    halving: Halving
    coordinates: int  # of the leaves; their speeds are as many as axes
    nothing: Floats  # [0]
    terminal: Integers  # the table of the subchain that hangs on the last leaf (`sweep.sequence`); empty for none
    inner: Floats  # [TURNING]: of its handle 1
    inboard: Floats  # [12]: A1 and f2 of it: acceleration of the last leaf, and no load


HALVED = schema(Halved)


@kernel(inline=True)
def _joined(part, q, u, tau, turn, terminal):
    """Velocity terms and joint forces, given the turn of handle 1, and the halves joined, up to the whole.

    `terminal` is as for `assemble_bodies`.
    """
    h = read(part, HALVED)
    velocity_terms(0.0, h.structure, h.work, u, load3(0.0, turn, 9))
    joint_forces(0.0, h.structure, h.springs, q, u, tau, h.halving.total)
    assemble_bodies(0.0, h.structure, h.work, h.halving, terminal, h.handles.blocks)


@kernel(merge=True)
def motion_of_bodies(zero, part, q, u):
    """Pass 1: the joint frames, and the boundary turn of all bodies."""
    h = read(part, HALVED)
    joint_places(0.0, h.structure, q, h.work.place)
    relative_turn(0.0, h.structure, h.work, u, h.handles.turn)


@kernel(merge=True)
def none_ahead(zero, part):
    """Nothing: no inertias go ahead of the velocities."""


@kernel(merge=True)
def inward_of_bodies(zero, part, q, u, tau, turn, ahead):
    """Pass 2: the equations of all bodies, given the turn of handle 1 [TURNING]."""
    _joined(part, q, u, tau, turn, read(part, HALVED.nothing))


@kernel(merge=True)
def outward_of_bodies(zero, part, q, u, tau, udot, rates):
    """Pass 3: accelerations and rates of the coordinates, given A1 and f2 in the table."""
    h = read(part, HALVED)
    spread_bodies(h.structure, h.halving, h.handles.loads, udot, h.inboard)
    coordinate_rates(0.0, h.structure, q, u, rates)


@kernel(merge=True)
def motion_to_the_tip(zero, part, q, u):
    """Pass 1 with a terminal subchain, where there is one."""
    motion_of_bodies(zero, part, q, u)
    h = read(part, HALVED)
    if h.terminal.size > 0:
        motion_of_all(zero, h.terminal, q[h.coordinates :], u[h.structure.axes.size :])


@kernel(merge=True)
def inward_from_the_tip(zero, part, q, u, tau, turn, ahead):
    """Pass 2 with a terminal subchain."""
    h = read(part, HALVED)
    block = h.nothing
    if h.terminal.size > 0:
        join_turn(0.0, turn, h.handles.turn, h.inner)
        nu = h.structure.axes.size
        forces = tau[nu:] if tau.size > 0 else tau
        inward_of_all(zero, h.terminal, q[h.coordinates :], u[nu:], forces, h.inner, False)
        block = read(h.terminal, SEQUENCE.handles.blocks)
    _joined(part, q, u, tau, turn, block)


@kernel(merge=True)
def outward_to_the_tip(zero, part, q, u, tau, udot, rates):
    """Pass 3 with a terminal subchain."""
    outward_of_bodies(zero, part, q, u, tau, udot, rates)
    h = read(part, HALVED)
    if h.terminal.size > 0:
        assign(read(h.terminal, SEQUENCE.handles.loads), h.inboard)
        nq, nu = h.coordinates, h.structure.axes.size
        forces = tau[nu:] if tau.size > 0 else tau
        outward_of_all(zero, h.terminal, q[nq:], u[nu:], forces, udot[nu:], rates[nq:])
