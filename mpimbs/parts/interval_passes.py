"""The passes of an evaluation over an interval of a tree's bodies, in doubles: compiled."""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import read, schema
from mpimbs.kernels.tuples import load3, load6
from mpimbs.loops.closing import (
    LOOPS,
    ask_of_loops,
    drive_loops,
    inward_closing,
    move_ends,
    outward_closing,
    read_open_loads,
    write_value,
)
from mpimbs.parts.looped_passes import accelerate_looped_tiles, ask_of_looped_tiles, gather_looped_tiles
from mpimbs.parts.open_bodies import open_body
from mpimbs.parts.subtree_passes import accelerate_subtrees, forces_of_trunk, gather_subtrees, move_subtrees, of_trunk
from mpimbs.spatial.rows import ROW
from mpimbs.spatial.six import EXTRA, six_rows, write_six
from mpimbs.sweep.inward import inward, outward, transfer, write_gathered
from mpimbs.sweep.joint_forces import joint_forces
from mpimbs.sweep.motion import coordinate_rates, joint_places, turn_along, velocity_terms
from mpimbs.sweep.structure import FIRST_U, LAST_U, PIVOT, TURNING, Handles, Springs, Structure, Workspace
from mpimbs.sweep.walk import clear_gathered, gathered, place_boundary
from mpimbs.values.handles import COMPLIANCE, INERTIA, TRANSFER, item
from mpimbs.values.value import Room, block_at, compliance_at, transfer_at


class IntervalPlan(NamedTuple):
    """Arguments of the passes over an interval, in compiled code."""

    handles: Handles  # turn: value of the scan; blocks: value of the coupling; loads: A1 of inboard, x of open bodies
    structure: Structure
    springs: Springs
    work: Workspace
    room: Room  # of the value of the coupling
    inboard: Integers  # [k]: which open body of the bodies before each inboard body is; -1 the world
    path: Integers  # the steps from an inboard body to the last open body
    reach: Integers  # [h]: how many of these carry the motion of each open body
    total: Floats  # [nu]: joint forces
    columns: Floats  # [h * nu * ROW]: s of each open body
    block: Floats  # [SIZE]
    subtrees: Integers  # the table of what hangs on these bodies, swept in lanes; empty where nothing does
    held: Floats  # [TURNING]: turn of what is held
    loops: Integers  # the table of the loops of which an end is here; empty where there are none


INTERVAL = schema(IntervalPlan)


@kernel(merge=True)
def motion_of_interval(zero, part, q, u):
    """Pass 1: the joint frames, and the turns of the open bodies."""
    p = read(part, INTERVAL)
    move_subtrees(zero, p.subtrees, q, u, p.handles.turn)
    q, u = of_trunk(zero, p.subtrees, q, u, False)
    joint_places(0.0, p.structure, q, p.work.place)
    value = p.handles.turn
    done = 0
    before = p.held
    for k in range(p.reach.size):
        turn = open_body(value, k, TURNING)
        turn_along(0.0, p.structure, p.work, u, p.path[done : p.reach[k]], before, turn)
        before, done = turn, p.reach[k]


@kernel(merge=True)
def measure_interval(zero, part, q, u, ends_only):
    """Measure how far the loops are from closed, given the motions of the inboard bodies in their table; or only find
    how their ends move."""
    p = read(part, INTERVAL)
    if p.loops.size > 0:
        move_subtrees(zero, p.subtrees, q, u, p.handles.turn)
        q, u = of_trunk(zero, p.subtrees, q, u, False)
        joint_places(0.0, p.structure, q, p.work.place)
        move_ends(0.0, p.loops, p.structure, p.work, q, u)
        if not ends_only:
            ask_of_looped_tiles(zero, p.subtrees, p.work.junction, True)
            ask_of_loops(0.0, p.loops, True)


@kernel
def _columns(p, value):
    """Write E, W and c of every open body, and keep s: over what `inward` has left."""
    room, nu = p.room, p.structure.axes.size
    h = p.reach.size
    for k in range(h):
        own = item(p.columns, k, nu * ROW)
        transfer(0.0, p.structure, p.work, p.path[0 : p.reach[k]], own, ROW, 0, p.block, 0)
        write_six(value, transfer_at(room, k), six_rows(p.block, TRANSFER))
        for other in range(k + 1):
            with_other = item(p.columns, other, nu * ROW)
            at, across = compliance_at(room, k, other), compliance_at(room, other, k)
            for i in range(6 * ROW):
                value[at + i] = 0.0
            for number in range(p.reach[other]):
                step = p.path[number]
                for d in range(p.structure.steps[step, FIRST_U], p.structure.steps[step, LAST_U]):
                    reciprocal = p.work.pivot[d * PIVOT + 6]
                    for i in range(6):
                        s = reciprocal * own[d * ROW + i]
                        for j in range(6):
                            value[at + i * ROW + j] += s * with_other[d * ROW + j]
            if k != other:
                for i in range(6):
                    for j in range(6):
                        value[across + j * ROW + i] = value[at + i * ROW + j]
        at = compliance_at(room, k, k)
        for i in range(6):
            value[at + i * ROW + EXTRA] = p.block[COMPLIANCE + i * ROW + EXTRA]


@kernel(inline=True)
def _omega(p, before, slot):
    """Angular velocity of an inboard body, given the turns of the open bodies before; the world's is zero."""
    if p.inboard[slot] >= 0:
        return load3(0.0, open_body(before, p.inboard[slot], TURNING), 9)
    return (0.0, 0.0, 0.0)


@kernel(inline=True)
def _turn_and_ask(zero, p, q, u, before):
    """Find the loops' equations and velocity terms, given the turns of the open bodies before the interval."""
    if p.loops.size > 0:
        move_ends(0.0, p.loops, p.structure, p.work, q, u)
        ask_of_looped_tiles(zero, p.subtrees, p.work.junction, False)
        ask_of_loops(0.0, p.loops, False)
    for slot in range(1, p.inboard.size):
        place_boundary(0.0, p.work.junction, slot, _omega(p, before, slot))
    velocity_terms(0.0, p.structure, p.work, u, _omega(p, before, 0))


@kernel(merge=True)
def act_on_interval(zero, part, q, u, tau, before):
    """Pass 2 of bodies that are not swept: velocity terms, joint forces, and what drives the loop joints."""
    p = read(part, INTERVAL)
    _turn_and_ask(zero, p, q, u, before)
    joint_forces(0.0, p.structure, p.springs, q, u, tau, p.total)
    if p.loops.size > 0:
        drive_loops(p.loops, p.work)


@kernel(merge=True)
def inward_of_interval(zero, part, q, u, tau, before, early):
    """Pass 2: the equations of the interval, given the turns of the open bodies before it."""
    p = read(part, INTERVAL)
    q, u = of_trunk(zero, p.subtrees, q, u, False)
    value = p.handles.blocks
    room = p.room
    o = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    inertia_and_force = o + o + o + o + (0.0, 0.0, 0.0)  # GATHERED
    _turn_and_ask(zero, p, q, u, before)
    clear_gathered(0.0, p.work.junction, inertia_and_force)
    gather_subtrees(zero, p.subtrees, p.work.junction, tau, room, value)
    joint_forces(0.0, p.structure, p.springs, q, u, forces_of_trunk(zero, p.subtrees, tau), p.total)
    if p.loops.size > 0:
        gather_looped_tiles(zero, p.subtrees, read(p.loops, LOOPS.fronts), p.work.junction, tau)
        drive_loops(p.loops, p.work)
        inward_closing(0.0, p.loops, p.structure, p.work, p.total)
        write_value(p.loops, p.work, room, value)
        return
    inward(0.0, p.structure, p.work, p.total, p.block, False, onto=True)
    write_six(value, block_at(room, 0), six_rows(p.block, INERTIA))
    for slot in range(1, p.inboard.size):
        write_gathered(0.0, gathered(0.0, p.work.junction, slot, inertia_and_force), p.block)
        write_six(value, block_at(room, slot), six_rows(p.block, INERTIA))
    _columns(p, value)


@kernel(merge=True)
def outward_of_interval(zero, part, q, u, tau, udot, rates):
    """Pass 3: accelerations and rates of the coordinates, given A1 of the inboard bodies and x of the open ones."""
    p = read(part, INTERVAL)
    loads = p.handles.loads
    nu = p.structure.axes.size
    if p.loops.size > 0:
        read_open_loads(p.loops, p.room, loads)
    # u <- u + sum_j s_j^T x_j: what the loads on the open bodies do at the joints on their path
    for k in range(p.reach.size if p.loops.size == 0 else 0):
        own = item(p.columns, k, nu * ROW)
        x = 6 * (p.room.inboard + k)
        for number in range(p.reach[k]):
            step = p.path[number]
            for d in range(p.structure.steps[step, FIRST_U], p.structure.steps[step, LAST_U]):
                s = 0.0
                for i in range(6):
                    s += own[d * ROW + i] * loads[x + i]
                p.work.pivot[d * PIVOT + 7] += s
    for slot in range(1, p.inboard.size):
        place_boundary(0.0, p.work.junction, slot, load6(0.0, loads, 6 * slot))
    o = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    q, u = of_trunk(zero, p.subtrees, q, u, False)
    changes, accelerations = of_trunk(zero, p.subtrees, rates, udot, True)
    if p.loops.size > 0:
        outward_closing(0.0, p.loops, p.structure, p.work, load6(0.0, loads, 0), accelerations)
        accelerate_looped_tiles(zero, p.subtrees, read(p.loops, LOOPS.fronts), p.work.junction)
    else:
        outward(0.0, p.structure, p.work, load6(0.0, loads, 0), o, False, accelerations)
    coordinate_rates(0.0, p.structure, q, u, changes)
    load = loads[6 * p.room.inboard : 6 * p.room.inboard + 6]  # on the first open body
    accelerate_subtrees(zero, p.subtrees, p.work.junction, tau, load, udot, rates)
