"""The phases of an evaluation of a chain in lanes, one kernel for each, to be counted and timed one by one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from laboratory.machine import aligned
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import WIDTHS, width
from mpimbs.kernels.layout import interleave, separate
from mpimbs.kernels.memory import Table, read, schema
from mpimbs.kernels.tuples import load3, load6
from mpimbs.kernels.widths import by_width
from mpimbs.model import System
from mpimbs.parts.tiles import in_lanes
from mpimbs.sweep.build import build
from mpimbs.sweep.inward import far_handle, inward
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.motion import coordinate_rates, joint_places, relative_turn, velocity_terms
from mpimbs.sweep.outward import outward
from mpimbs.sweep.structure import TURN, TURNING, Springs, Structure, Workspace, workspace
from mpimbs.values.handles import RESPONSE, SCRATCH, SIZE, between, combine, respond

Floats = npt.NDArray[np.float64]

LOADS = 12  # A1 and f2


class Sequence(NamedTuple):
    """What stands in sequence, one lane after the other."""

    q: Floats  # [nq * lanes]: rad, m, quaternions
    u: Floats  # [nu * lanes]: rad/s, m/s
    loads: Floats  # [LOADS * lanes]
    turns: Floats  # [TURNING * lanes], written
    blocks: Floats  # [SIZE * lanes], written: handle equations
    udot: Floats  # [nu * lanes], written
    rates: Floats  # [nq * lanes], written


class Arguments(NamedTuple):
    """All that the phases of a tile work on; for W lanes, arrays but those of `sequence` are [item, lane]."""

    plain: int  # the rates of the coordinates are the speeds
    structure: Structure
    springs: Springs
    work: Workspace
    sequence: Sequence
    tau: Floats  # empty: no forces beside the model's
    q: Floats  # [nq]
    u: Floats  # [nu]
    loads: Floats  # [LOADS]; the angular velocity of handle 1 is taken from it too
    total: Floats  # [nu], written: joint forces
    turn: Floats  # [TURNING], written
    block: Floats  # [SIZE], written: handle equations
    udot: Floats  # [nu], written
    rates: Floats  # [nq], written


class Pieces(NamedTuple):
    """What joins of neighbours work on, in doubles."""

    blocks: Floats  # [SIZE * pieces]: handle equations
    joined: Floats  # the same, written: of each piece with all outboard of it
    responses: Floats  # [RESPONSE * pieces], written
    scratch: Floats  # [SCRATCH], written
    loads: Floats  # [LOADS * pieces], written; A1 of the first is given
    tip: Floats  # [6]: load on the last


ARGUMENTS = schema(Arguments)
PIECES = schema(Pieces)


# --- the kernels ----------------------------------------------------------------------------------------------------


@kernel(inline=True)
def _layout(zero, a):
    """All that an evaluation brings from sequence to lanes and back, as `parts.passes` does."""
    nq, nu = a.q.shape[0] // width(zero), a.u.shape[0] // width(zero)
    for _ in range(2 if a.plain else 3):
        interleave(zero, a.sequence.q, 0, nq, nq, a.q)
        interleave(zero, a.sequence.u, 0, nu, nu, a.u)
    interleave(zero, a.sequence.loads, 0, LOADS, LOADS, a.loads)
    separate(zero, a.turn, TURNING, a.sequence.turns, 0, TURNING)
    separate(zero, a.block, SIZE, a.sequence.blocks, 0, SIZE)
    separate(zero, a.udot, nu, a.sequence.udot, 0, nu)
    if not a.plain:
        separate(zero, a.rates, nq, a.sequence.rates, 0, nq)


@kernel(inline=True)
def _places(zero, a):
    joint_places(zero, a.structure, a.q, a.work.place)


@kernel(inline=True)
def _turn(zero, a):
    relative_turn(zero, a.structure, a.work, a.u, a.turn)


@kernel(inline=True)
def _velocities(zero, a):
    velocity_terms(zero, a.structure, a.work, a.u, load3(zero, a.loads, 0))


@kernel(inline=True)
def _forces(zero, a):
    joint_forces(zero, a.structure, a.springs, a.q, a.u, a.tau, a.total)


@kernel(inline=True)
def _inward(zero, a):
    o = (zero, zero, zero, zero, zero, zero)
    inward(zero, a.structure, a.work, a.total, o, a.block, False)


@kernel(inline=True)
def _far(zero, a):
    far_handle(zero, a.structure, a.work, a.block)


@kernel(inline=True)
def _outward(zero, a):
    outward(zero, a.structure, a.work, load6(zero, a.loads, 0), load6(zero, a.loads, 6), True, a.udot)


@kernel(inline=True)
def _outward_of_one(zero, a):
    outward(zero, a.structure, a.work, load6(zero, a.loads, 0), load6(zero, a.loads, 6), False, a.udot)


@kernel(inline=True)
def _rates(zero, a):
    if a.plain:
        for k in range(a.sequence.u.shape[0]):
            a.sequence.rates[k] = a.sequence.u[k]
    else:
        coordinate_rates(zero, a.structure, a.q, a.u, a.rates)


@kernel
def join_pieces(j):
    """Join the pieces of a chain's tip, from the last to the first, and find the loads between them."""
    pieces = j.blocks.shape[0] // SIZE
    for k in range(pieces - 2, -1, -1):
        left = j.blocks[k * SIZE : (k + 1) * SIZE]
        right = j.joined[(k + 1) * SIZE : (k + 2) * SIZE]
        response = j.responses[k * RESPONSE : (k + 1) * RESPONSE]
        respond(left, right, response, j.scratch, False)
        combine(left, right, response, j.joined[k * SIZE : (k + 1) * SIZE], False)
    for k in range(pieces - 1):
        right = j.joined[(k + 1) * SIZE : (k + 2) * SIZE]
        response = j.responses[k * RESPONSE : (k + 1) * RESPONSE]
        at = k * LOADS
        between(right, response, j.loads[at : at + 6], j.tip, j.loads[at + 12 : at + 18], j.loads[at + 6 : at + 12])


# In the order in which one may follow the other.
KERNELS = {
    "layout": _layout,
    "joint places": _places,
    "boundary turn": _turn,
    "velocity terms": _velocities,
    "joint forces": _forces,
    "inward": _inward,
    "far handle": _far,
    "outward, one handle": _outward_of_one,
    "outward": _outward,
    "rates": _rates,
}
# A chain alone, swept in doubles; a piece of one; and all that lanes take.
TIP = ("joint places", "velocity terms", "joint forces", "inward", "outward, one handle", "rates")
PIECE = (*TIP[:1], "boundary turn", *TIP[1:4], "far handle", "outward", "rates")
JOINS = "joins"
TILE_PHASES = ("layout", *PIECE, JOINS)


@kernel
def _run(zero, phase, table):
    a = read(table, ARGUMENTS)
    if phase == 1:
        _places(zero, a)
    elif phase == 2:
        _turn(zero, a)
    elif phase == 3:
        _velocities(zero, a)
    elif phase == 4:
        _forces(zero, a)
    elif phase == 5:
        _inward(zero, a)
    elif phase == 6:
        _far(zero, a)
    elif phase == 7:
        _outward_of_one(zero, a)
    elif phase == 8:
        _outward(zero, a)
    else:
        _rates(zero, a)


@kernel
def _run_in_lanes(zero, times, phase, table):
    for _ in range(times):
        if phase == 0:
            _layout(zero, read(table, ARGUMENTS))
        else:
            _run(zero, phase, table)


@kernel
def _run1(times, phase, table):
    for _ in range(times):
        _run(0.0, phase, table)


RUN = {1: _run1} | by_width(_run_in_lanes, WIDTHS)


@kernel
def run_joins(times, table):
    j = read(table, PIECES)
    for _ in range(times):
        join_pieces(j)


# --- what they work on ----------------------------------------------------------------------------------------------


def arguments(system: System, lanes: int = 1) -> Arguments:
    """Make what the phases work on: a chain in its initial state, moving, as one tile.

    Speeds are u_k = 0.1 sin(k), so that the velocity terms are at work.

    Parameters
    ----------
    system : System
        A chain.
    lanes : int
        Pieces that are swept side by side; 1 for doubles.

    Raises
    ------
    ValueError
        Not a chain, or its pieces differ in their joints.
    """
    if not system.is_chain:
        raise ValueError(f"'{system.name}' is not a chain")
    joints = system.joint_patterns(0, system.n_bodies)
    if len(joints) % lanes or (joints.reshape(lanes, -1) != joints[: len(joints) // lanes]).any():
        raise ValueError(f"'{system.name}' has no {lanes} pieces of the same joints")
    columns = system.columns()
    made = build(columns)
    if lanes > 1:
        made = in_lanes(made, lanes)
    s = made.structure
    nq, nu = system.nq, system.nu

    def zeros(size: int) -> Floats:
        return aligned(np.zeros(size))

    def side_by_side(values: Floats) -> Floats:
        return aligned(values.reshape(lanes, -1).T)

    q, u = columns.q, 0.1 * np.sin(np.arange(1, nu + 1))
    loads = np.tile([0.1, 0.2, 0.3, *(-g for g in system.gravity), 1, -2, 3, -1, 2, -3], lanes)
    written = (TURNING * lanes, SIZE * lanes, nu, nq)
    work = workspace(len(s.steps), nu // lanes, made.junctions, lanes, wrenches=False)
    return Arguments(
        int(not (s.steps[:, TURN] == 4).any()),
        s._replace(fixed=aligned(s.fixed), pitch=aligned(s.pitch), armature=aligned(s.armature)),
        Springs(*(aligned(values) for values in made.springs)),
        Workspace(*(aligned(part) for part in work)),
        Sequence(aligned(q), aligned(u), aligned(loads), *(zeros(size) for size in written)),
        *(zeros(0), side_by_side(q), side_by_side(u), side_by_side(loads), zeros(nu)),
        *(zeros(size) for size in written),
    )


def swept(system: System, lanes: int = 1) -> Arguments:
    """Make what the phases work on, and run each phase once, compiled."""
    a = arguments(system, lanes)
    table = Table(a)
    for number, phase in enumerate(KERNELS):
        if phase in phases_of(lanes):
            RUN[lanes](1, number, table.data)
    return a


def phases_of(lanes: int) -> tuple[str, ...]:
    """Names of the phases of one tile, for a number of lanes; of one, all is in sequence already."""
    return tuple(KERNELS) if lanes > 1 else tuple(KERNELS)[1:]


def pieces(blocks: Floats) -> Pieces:
    """Make what the joins of neighbours work on, from their handle equations [pieces, SIZE]."""
    count = len(blocks)
    loads = np.zeros(LOADS * count)
    loads[5] = 9.81
    rooms = (np.zeros(RESPONSE * count), np.zeros(SCRATCH), loads, np.zeros(6))
    return Pieces(aligned(blocks), aligned(blocks), *(aligned(room) for room in rooms))


def flat(a: Any) -> list[Any]:
    """Give the arrays and numbers of `Arguments` or `Pieces` in order."""
    return [part for given in a for part in (flat(given) if isinstance(given, tuple) else [given])]
