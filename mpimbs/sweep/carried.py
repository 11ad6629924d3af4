"""What the steps of subchains receive through their joints, in lanes: one more pass over what an evaluation has left.

Each lane knows A1 and f2 at its ends by then. So its bodies' accelerations, and their loads from the last one inward,
need nothing of the other lanes.
"""

from __future__ import annotations

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.lanes import width
from mpimbs.spatial.layout import side_by_side_from
from mpimbs.spatial.memory import borrowed, read, span
from mpimbs.spatial.tuples import load3, load6, store_numbers
from mpimbs.spatial.widths import by_width
from mpimbs.sweep.inverse import newton_euler
from mpimbs.sweep.motion import velocity_terms
from mpimbs.sweep.outward import accelerated
from mpimbs.sweep.passes import kind_of, tile_again, tile_of, tile_speeds, tiles_of, work_of
from mpimbs.sweep.sequence import SEQUENCE, SUBCHAIN, coordinates_of, speeds_of
from mpimbs.sweep.structure import BIAS
from mpimbs.sweep.tiles import FIRST_LANE, KEEP_ALL, KEEP_NOTHING, KIND_OF_TILE, PLAN, STEP_AT, WIDTH
from mpimbs.sweep.walk import walk_outward


@kernel(inline=True)
def _keep_in_bias(zero, bias, step, acceleration):
    store_numbers(zero, bias, step * BIAS, acceleration)


@kernel
def _tile_carried(zero, plan, tile, q, u, tau, loads, two_handles):
    kind = kind_of(plan, tile)
    structure = read(kind, KIND_OF_TILE.structure)
    work = work_of(zero, plan, tile, structure)
    nu, w = structure.axes.size, width(zero)
    room = read(plan, PLAN.lane_room)
    ends = side_by_side_from(zero, 0, read(plan, PLAN.loads), tile[FIRST_LANE] * 12, 12, room)
    acceleration, load = load6(zero, ends, 0), load6(zero, ends, 6)
    if read(plan, PLAN.kept) == KEEP_ALL:  # but for accelerations that loads have taken the place of
        omega = side_by_side_from(zero, 0, read(plan, PLAN.omegas), tile[FIRST_LANE] * 3, 3, room)
        velocity_terms(zero, structure, work, tile_speeds(zero, plan, tile, structure, u), load3(zero, omega, 0))
    else:
        tile_again(zero, plan, tile, q, u, tau, load)
    udot = span(read(plan, PLAN.udot), 0, nu * w)
    two = two_handles and read(plan, PLAN.kept) != KEEP_NOTHING
    given = (work, load, two, udot, _keep_in_bias, work.bias)
    walk_outward(zero, structure, work.junction, accelerated, acceleration, given)
    newton_euler(zero, structure, work, load, work.bias, BIAS, udot)
    steps = structure.steps.shape[0]
    for step in range(steps):
        for i in range(6):
            for lane in range(w):
                loads[(tile[STEP_AT] + lane * steps + step) * 6 + i] = work.bias[(step * BIAS + i) * w + lane]


@kernel
def _carried(zero, plan, q, u, tau, loads):
    """Write what the steps [m * 6] receive through their joints, in their frames, in the state of the passes before."""
    two = read(plan, PLAN.tip) == 0
    count = tiles_of(plan)
    for number in range(count):
        tile = tile_of(plan, number)
        if width(zero) > 1 and tile[WIDTH] > 1:
            _tile_carried(zero, plan, tile, q, u, tau, loads, True)
        else:
            _tile_carried(0.0, plan, tile, q, u, tau, loads, two or number + 1 < count)


@kernel(merge=True)
def _carried_by_all(zero, part, q, u, tau, loads):
    """Write what the steps of all subchains receive through their joints [m * 6], in their frames."""
    q, u, tau, loads = borrowed(q), borrowed(u), borrowed(tau), borrowed(loads)
    rows = read(part, SEQUENCE.rows)
    begin = 0
    for number in range(rows.shape[0]):
        row = rows[number]
        plan = read(row, SUBCHAIN)
        size = 6 * read(plan, PLAN.steps)
        here = span(loads, begin, size)
        _carried(zero, plan, coordinates_of(row, q), speeds_of(row, u), speeds_of(row, tau), here)
        begin += size


CARRIED_LOADS = by_width(_carried_by_all)  # by the number of lanes
