"""The factored load sweep over the ranks: handle equations joined by a butterfly, once, and then loads alone."""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Floats, Integers, assign, borrowed, read, schema, span
from mpimbs.kernels.widths import by_width
from mpimbs.parallel.butterfly import IS_LEFT, exchange, halves, levels
from mpimbs.parallel.posted import expect
from mpimbs.parts.factored import factor_sweep, loads_inward, loads_outward
from mpimbs.spatial.rows import ROW
from mpimbs.values.handles import RESPONSE, combine, item, respond
from mpimbs.values.load_joins import LOADS_JOINED, PAIR, join_loads, keep_join, part_loads


class FactorPlan(NamedTuple):
    """What is factored, and joined, on a rank."""

    part: Integers  # `parts.factored.FactoredPlan`
    blocks: Integers  # butterfly of handle equations
    values: Integers  # butterfly of loads
    block: Floats  # [SIZE]: of the part
    value: Floats  # [PAIR]: p and c of the part
    outer: Floats  # [PAIR]: A1 and f2 of the part
    responses: Floats  # [levels * RESPONSE]
    joins: Floats  # [levels * LOADS_JOINED]
    between: Floats  # [levels * PAIR]
    shared: Floats  # [PAIR]
    copy: Floats  # [SIZE]
    scratch: Floats  # [SCRATCH]
    nu: int


FACTOR = schema(FactorPlan)


@kernel(merge=True)
def _factor(zero, plan):
    p = read(plan, FACTOR)
    factor_sweep(zero, p.part)
    schedule, mine, theirs = levels(p.blocks)
    count = schedule.shape[0]
    if count > 0:
        expect(p.blocks)
        assign(mine[0], p.block)
    for level in range(count):
        exchange(p.blocks, level)
        left, right = halves(schedule, mine, theirs, level)
        response = item(p.responses, level, RESPONSE)
        respond(left, right, response, p.scratch, True)
        keep_join(left, right, response, p.copy, p.scratch, item(p.joins, level, LOADS_JOINED), True)
        if level + 1 < count:
            combine(left, right, response, mine[level + 1], True)


@kernel(merge=True)
def _solve(zero, plan, f, out):
    """Whether the arrays have the part's sizes; else nothing was done."""
    f, out = borrowed(f), borrowed(out)
    p = read(plan, FACTOR)
    if f.size != p.nu or out.size != p.nu:
        return False
    schedule, mine, theirs = levels(p.values)
    count = schedule.shape[0]
    if count > 0:
        expect(p.values)
    loads_inward(zero, p.part, f)
    acceleration, load = span(p.outer, 0, ROW), span(p.outer, ROW, ROW)
    for i in range(PAIR):
        p.outer[i] = 0.0
    for level in range(count):
        if level == 0:
            assign(mine[0], p.value)
        exchange(p.values, level)
        left, right = halves(schedule, mine, theirs, level)
        joined = mine[level + 1] if level + 1 < count else p.shared
        join_loads(left, right, item(p.joins, level, LOADS_JOINED), item(p.between, level, PAIR), joined, True)
    for level in range(count - 1, -1, -1):
        kept, between = item(p.joins, level, LOADS_JOINED), item(p.between, level, PAIR)
        shared_acceleration, shared_load = span(p.shared, 0, ROW), span(p.shared, ROW, ROW)
        part_loads(kept, between, acceleration, load, shared_acceleration, shared_load, True)
        if schedule[level, IS_LEFT]:
            assign(load, shared_load)
        else:
            assign(acceleration, shared_acceleration)
    loads_outward(zero, p.part, f, out)
    return True


# By the number of lanes.
FACTOR_IN, SOLVE_IN = by_width(_factor), by_width(_solve)
