"""One evaluation of the state derivative as one compiled call, messages included.

`dynamics.py` chooses between this call and the same phases one by one, which leave room for Python between them: for
forces given as functions, and for couplings that are not compiled.
"""

from __future__ import annotations

from mpimbs.coupling.dcae import solve
from mpimbs.parallel.native import clock
from mpimbs.parallel.turn_scan import scan_turns
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.handles import SIZE
from mpimbs.spatial.lanes import zero_lanes
from mpimbs.spatial.memory import floats
from mpimbs.sweep.passes import BLOCKS, HANDLE_LOADS, TURN, inward_sweep, motion, outward_sweep

# Items of the rank's table, two integers each.
RANK_ITEMS = ("root", "laps", "at_rest")
ROOT, LAPS, AT_REST = range(0, 2 * len(RANK_ITEMS), 2)
PHASES = 4  # motion, inward, coupling, outward


@kernel(inline=True)
def _evaluate(zero, plan, scan, coupling, rank, q, u, tau, udot, rates):
    t0 = clock()
    motion(zero, plan, q, u)
    turn = floats(rank, AT_REST)
    alone = scan.size == 0
    if not alone:
        turn = scan_turns(scan, floats(plan, TURN))
    t1 = clock()
    inward_sweep(zero, plan, q, u, tau, turn)
    t2 = clock()
    if alone:
        floats(plan, HANDLE_LOADS)[0:6] = floats(rank, ROOT)
    else:
        solve(coupling, floats(plan, BLOCKS)[0:SIZE], floats(rank, ROOT), floats(plan, HANDLE_LOADS))
    t3 = clock()
    outward_sweep(zero, plan, q, u, udot, rates)
    laps = floats(rank, LAPS)
    laps[0] += t1 - t0
    laps[1] += t2 - t1
    laps[2] += t3 - t2
    laps[3] += clock() - t3


@kernel
def _evaluate1(plan, scan, coupling, rank, q, u, tau, udot, rates):
    _evaluate(0.0, plan, scan, coupling, rank, q, u, tau, udot, rates)


@kernel
def _evaluate2(plan, scan, coupling, rank, q, u, tau, udot, rates):
    _evaluate(zero_lanes(2), plan, scan, coupling, rank, q, u, tau, udot, rates)


@kernel
def _evaluate4(plan, scan, coupling, rank, q, u, tau, udot, rates):
    _evaluate(zero_lanes(4), plan, scan, coupling, rank, q, u, tau, udot, rates)


@kernel
def _evaluate8(plan, scan, coupling, rank, q, u, tau, udot, rates):
    _evaluate(zero_lanes(8), plan, scan, coupling, rank, q, u, tau, udot, rates)


# by the number of lanes
EVALUATE = {1: _evaluate1, 2: _evaluate2, 4: _evaluate4, 8: _evaluate8}
