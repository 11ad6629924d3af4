"""What the steps of subchains receive through their joints, in lanes: one more pass over what an evaluation has left.

Each lane knows A1 and f2 at its ends by then. So its bodies' accelerations, and their loads from the last one inward,
need nothing of the other lanes.
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import width
from mpimbs.kernels.memory import borrowed, read, span
from mpimbs.kernels.tuples import store_numbers
from mpimbs.kernels.widths import by_width
from mpimbs.parts.passes import for_tiles, opened, tile_again, tile_ends, tile_omega, tile_speeds, work_of
from mpimbs.parts.pieces import SUBCHAIN, coordinates_of, speeds_of
from mpimbs.parts.sequence import SEQUENCE
from mpimbs.parts.tiles import KEEP_ALL, KEEP_NOTHING, PLAN, TILE
from mpimbs.sweep.inverse import newton_euler
from mpimbs.sweep.motion import velocity_terms
from mpimbs.sweep.outward import accelerated
from mpimbs.sweep.structure import BIAS
from mpimbs.sweep.walk import walk_outward


@kernel(inline=True)
def _keep_in_bias(zero, bias, step, acceleration):
    store_numbers(zero, bias, step * BIAS, acceleration)


@kernel
def _tile_carried(zero, plan, number, two_handles, given):
    q, u, tau, loads = given
    tile, _, structure = opened(zero, plan, number)
    work = work_of(zero, plan, tile, structure)
    w, steps = width(zero), structure.steps.shape[0]
    acceleration, load = tile_ends(zero, plan, tile)
    if read(plan, PLAN.kept) == KEEP_ALL:  # but for accelerations that loads have taken the place of
        speeds = tile_speeds(zero, plan, tile, structure, u, read(plan, PLAN.u))
        velocity_terms(zero, structure, work, speeds, tile_omega(zero, plan, tile))
    else:
        tile_again(zero, plan, number, q, u, tau, load)
    udot = span(read(plan, PLAN.udot), 0, structure.axes.size * w)
    two = two_handles and read(plan, PLAN.kept) != KEEP_NOTHING
    keeping = (work, load, two, udot, _keep_in_bias, work.bias)
    walk_outward(zero, structure, work.junction, accelerated, acceleration, keeping)
    newton_euler(zero, structure, work, load, work.bias, BIAS, udot)
    for step in range(steps):
        for i in range(6):
            for lane in range(w):
                loads[(tile[TILE.step] + lane * steps + step) * 6 + i] = work.bias[(step * BIAS + i) * w + lane]


@kernel(merge=True)
def _carried_by_all(zero, part, q, u, tau, loads):
    """Write what the steps of all subchains receive through their joints [m * 6], in their frames, in the state of the
    passes before."""
    q, u, tau, loads = borrowed(q), borrowed(u), borrowed(tau), borrowed(loads)
    rows = read(part, SEQUENCE.rows)
    begin = 0
    for number in range(rows.shape[0]):
        row = rows[number]
        plan = read(row, SUBCHAIN)
        size = 6 * read(plan, PLAN.steps)
        here = span(loads, begin, size)
        given = coordinates_of(row, q), speeds_of(row, u), speeds_of(row, tau), here
        for_tiles(zero, plan, _tile_carried, given, read(plan, PLAN.tip) == 0, False)
        begin += size


CARRIED_LOADS = by_width(_carried_by_all)  # by the number of lanes
