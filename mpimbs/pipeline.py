"""One evaluation of the state derivative as one compiled call, messages included.

`dynamics.py` chooses between this call and the same phases one by one, which leave room for Python between them: for
forces given as functions.
"""

from __future__ import annotations

from mpimbs.coupling.dcae import solve
from mpimbs.parallel.butterfly import expect
from mpimbs.parallel.native import clock
from mpimbs.parallel.turn_scan import begin_scan, boundary, end_scan
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import borrowed, floats, integers
from mpimbs.spatial.widths import by_width
from mpimbs.sweep.sequence import (
    ALL_BLOCKS,
    ALL_LOADS,
    TOTAL_TURN,
    ahead_of_all,
    inward_of_all,
    motion_of_all,
    outward_of_all,
)

# Items of a rank's table, two integers each: the plans of its subchains, the scan and the coupling are tables too.
RANK_ITEMS = ("sequence", "scan", "coupling", "root", "laps", "at_rest", "alone", "timed", "overlap")
SEQUENCE, SCAN, COUPLING, ROOT, LAPS, AT_REST, ALONE, TIMED, OVERLAP = range(0, 2 * len(RANK_ITEMS), 2)
PHASES = 4  # motion and what goes ahead of the turn, inward, coupling, outward


@kernel(inline=True)
def _now(rank):
    return clock() if rank[TIMED] != 0 else 0.0


@kernel(merge=True)
def _evaluate(zero, rank, q, u, tau, udot, rates):
    q, u, tau, udot, rates = borrowed(q), borrowed(u), borrowed(tau), borrowed(udot), borrowed(rates)
    sequence = integers(rank, SEQUENCE)
    alone = rank[ALONE] != 0
    if not alone:
        expect(integers(rank, SCAN))
        expect(integers(rank, COUPLING))
    t0 = _now(rank)
    motion_of_all(zero, sequence, q, u)
    turn = floats(rank, AT_REST)
    ahead = not alone and rank[OVERLAP] != 0
    if not alone:
        begin_scan(integers(rank, SCAN), floats(sequence, TOTAL_TURN))
        if ahead:
            ahead_of_all(zero, sequence)
        end_scan(integers(rank, SCAN))
        turn = boundary(integers(rank, SCAN))
    t1 = _now(rank)
    inward_of_all(zero, sequence, q, u, tau, turn, ahead)
    t2 = _now(rank)
    solve(integers(rank, COUPLING), floats(sequence, ALL_BLOCKS), floats(rank, ROOT), floats(sequence, ALL_LOADS))
    t3 = _now(rank)
    outward_of_all(zero, sequence, q, u, tau, udot, rates)
    laps = floats(rank, LAPS)
    laps[0] += t1 - t0
    laps[1] += t2 - t1
    laps[2] += t3 - t2
    laps[3] += _now(rank) - t3


EVALUATE = by_width(_evaluate)  # by the number of lanes
