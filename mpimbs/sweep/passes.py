"""The scalar sweeps as a process calls them: a few compiled functions of arrays, each one call from Python."""

from __future__ import annotations

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.handles import ACCELERATION, COMPLIANCE, FORCE, INERTIA, SIZE, TRANSFER
from mpimbs.spatial.vectors import load3, load6, store6
from mpimbs.sweep.forces import joint_forces
from mpimbs.sweep.inward import inward, store_symmetric
from mpimbs.sweep.motion import coordinate_rates, joint_places, relative_turn, velocity_terms
from mpimbs.sweep.outward import outward


@kernel
def start(structure, work, q):
    """Pass 1: the joint frames."""
    joint_places(0.0, structure, q, work.place)


@kernel
def start_chain(structure, work, q, u, out):
    """Pass 1 of a chain with neighbours outboard: the joint frames, and the boundary turn [TURNING]."""
    joint_places(0.0, structure, q, work.place)
    relative_turn(0.0, structure, work, u, out)


@kernel
def move(structure, work, u, turn):
    """The velocity terms alone, given the turn of handle 1 [TURNING]."""
    velocity_terms(0.0, structure, work, u, load3(0.0, turn, 9))


@kernel
def _write_near(inertia, force, block):
    store_symmetric(0.0, block, INERTIA, inertia)
    store6(0.0, block, FORCE, force)


@kernel
def inward_tip(structure, springs, work, q, u, tau, total, turn, block):
    """Pass 2 of a subchain or tree with nothing outboard: velocity terms, joint forces, I and p of `block` [SIZE]."""
    velocity_terms(0.0, structure, work, u, load3(0.0, turn, 9))
    joint_forces(0.0, structure, springs, q, u, tau, total)
    inertia, force, _ = inward(0.0, structure, work, total, False)
    for i in range(SIZE):
        block[i] = 0.0
    _write_near(inertia, force, block)


@kernel
def inward_chain(structure, springs, work, q, u, tau, total, turn, block):
    """Pass 2 of a chain with neighbours outboard: velocity terms, joint forces, all of `block` [SIZE]."""
    velocity_terms(0.0, structure, work, u, load3(0.0, turn, 9))
    joint_forces(0.0, structure, springs, q, u, tau, total)
    inertia, force, far = inward(0.0, structure, work, total, True)
    _write_near(inertia, force, block)
    rows, compliance, acceleration = far
    for i in range(6):
        store6(0.0, block, TRANSFER + 6 * i, rows[i])
    store_symmetric(0.0, block, COMPLIANCE, compliance)
    store6(0.0, block, ACCELERATION, acceleration)


@kernel
def outward_tip(structure, work, q, u, loads, udot, rates):
    """Pass 3 of a subchain or tree with nothing outboard: accelerations [nu] and rates of the coordinates [nq]."""
    outward(0.0, structure, work, load6(0.0, loads, 0), load6(0.0, loads, 6), False, udot)
    coordinate_rates(0.0, structure, q, u, rates)


@kernel
def outward_chain(structure, work, q, u, loads, udot, rates):
    """Pass 3 of a chain with neighbours outboard; `loads` [12] holds A1 and f2."""
    outward(0.0, structure, work, load6(0.0, loads, 0), load6(0.0, loads, 6), True, udot)
    coordinate_rates(0.0, structure, q, u, rates)
