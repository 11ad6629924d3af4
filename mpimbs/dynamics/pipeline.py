"""One evaluation of the state derivative, messages included: the pipeline of all couplings [design, section 2].

An evaluation is four phases. A coupling fills in what a rank's part sweeps and what joins the parts, by functions that
`_phases` is given; all of it is one compiled call. Where Python has a say between the phases, for joints
that follow given motions and for couplings that are not compiled, the same kernel is called for some of the phases at a
time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.coupling import dca, intervals
from mpimbs.dynamics.remote_ends import place_ends
from mpimbs.forces.at_once import act_at_once
from mpimbs.kernels.calling import call_at
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import borrowed, hand_out, read, schema, sum_at
from mpimbs.kernels.widths import by_width, with_constants
from mpimbs.parallel.exchange import expect
from mpimbs.parallel.native import clock
from mpimbs.parallel.scan import begin_scan, end_scan, expect_scan, scan, scanned
from mpimbs.parts.bodies.absolute import act_on_absolute, outward_of_absolute
from mpimbs.parts.bodies.dca_bodies import inward_of_bodies, motion_of_bodies, none_early, outward_of_bodies
from mpimbs.parts.open_bodies import join_open_motions, join_open_turns
from mpimbs.parts.sequence import (
    early_of_all,
    inward_of_all,
    inward_of_intervals,
    measure_intervals,
    motion_of_all,
    motion_of_intervals,
    outward_of_all,
    outward_of_intervals,
)
from mpimbs.sweep.inertia.composite import join_composites
from mpimbs.sweep.motion import join_motion, join_turn
from mpimbs.sweep.structure import HANDLES

MOTION, INWARD, COUPLING, OUTWARD, PHASES = range(5)  # the last is their number


class Rank(NamedTuple):
    """Arguments of a compiled evaluation on a rank."""

    part: Integers  # the table of its sweeps; begins with `sweep.structure.Handles`
    scan: Integers  # of turns
    coupling: Integers  # begins with its messages; empty where it is not compiled
    root: Floats  # [6]: acceleration of the root, -g
    laps: Floats  # [PHASES]: s
    cycle: Floats  # [1]: see `native.clock`
    alone: int  # whether there is no other rank
    timed: int
    overlap: int  # whether inertias are swept while the turn is on its way
    nq: int  # sizes of the rank's vectors
    nu: int


class Coupled(NamedTuple):
    """The begin of the table of a compiled coupling."""

    messages: Integers  # begins with what is posted


RANK = schema(Rank)
_MESSAGES = schema(Coupled).messages


@kernel(inline=True)
def _phases(zero, motion, join, early, inward, solve, outward, rank, first, last, q, u, tau, udot, rates):
    """Run the phases from `first` to the one before `last`.

    Parameters
    ----------
    motion, early, inward, outward : kernels
        The passes of the rank's part: from a state to its boundary turn; inertias that are swept before it; the
        equations of its subchains; the accelerations.
    join : kernel
        Joins the turns of two parts.
    solve : kernel
        Finds the loads between the parts, from the equations.
    rank : int64 array
        Table of `Rank`.
    q, u, tau, udot, rates : array
        Of an evaluation.

    Returns
    -------
    bool
        Whether the arrays have the rank's sizes; else nothing was done.
    """
    q, u, tau, udot, rates = borrowed(q), borrowed(u), borrowed(tau), borrowed(udot), borrowed(rates)
    r = read(rank, RANK)
    if q.size != r.nq or u.size != r.nu or udot.size != r.nu or rates.size != r.nq:
        return False
    if tau.size != 0 and tau.size != r.nu:
        return False
    handles = read(r.part, HANDLES)
    swept_early = r.alone == 0 and r.overlap != 0
    began = clock(r.cycle[0]) if r.timed != 0 else 0.0
    if first <= MOTION < last:
        if r.alone == 0:
            expect_scan(r.scan)
            if r.coupling.size > 0:
                expect(read(r.coupling, _MESSAGES))
        motion(zero, r.part, q, u)
        if r.alone == 0:
            begin_scan(r.scan, join, handles.turn)
            if swept_early:
                early(zero, r.part)
            end_scan(r.scan, join)
        began = _lap(r, MOTION, began)
    if first <= INWARD < last:
        inward(zero, r.part, q, u, tau, scanned(r.scan), swept_early)
        began = _lap(r, INWARD, began)
    if first <= COUPLING < last:
        solve(r.coupling, handles.blocks, r.root, handles.loads)
        began = _lap(r, COUPLING, began)
    if first <= OUTWARD < last:
        outward(zero, r.part, q, u, tau, udot, rates)
        _lap(r, OUTWARD, began)
    return True


@kernel(inline=True)
def _lap(r, phase, began):
    """Add the time of a phase; gives when it ended."""
    if r.timed == 0:
        return began
    now = clock(r.cycle[0])
    r.laps[phase] += now - began
    return now


class LoadedPlan(NamedTuple):
    """Arguments of an evaluation in which springs, tendons or added masses act, or loops have ends elsewhere."""

    rank: Integers  # table of `Rank`
    phases: int  # where the kernel of `RUN_PHASES` is
    remote: Integers  # table of `remote_ends.RemotePlan`; empty where nothing is elsewhere
    acting: Integers  # table of `forces.at_once.ActingPlan`; empty where nothing acts
    forces: Floats  # [nu], written: what is given, and that of tendons
    wrenches: Floats  # [m * 6], as `act_at_once` sets them
    rooms: Integers  # which sweeps read where: see `parts.part.WrenchRooms`
    numbers: Integers
    clocks: Integers  # addresses of the time that messages of all this have taken (s)
    messages: Floats  # [1], written: how much of that was in evaluations


_LOADED = schema(LoadedPlan)


@kernel
def evaluate_loaded(plan, q, u, tau, udot, rates):
    """Run all phases, and between them bring motions from elsewhere, and let act at once what does so; as `_phases`."""
    q, u, tau, udot, rates = borrowed(q), borrowed(u), borrowed(tau), borrowed(udot), borrowed(rates)
    p = read(plan, _LOADED)
    if not call_at(p.phases, (p.rank, np.int64(MOTION), np.int64(INWARD), q, u, tau, udot, rates)):
        return False
    r = read(p.rank, RANK)
    began = clock(r.cycle[0]) if r.timed != 0 else 0.0
    p.messages[0] -= sum_at(p.clocks)
    if p.remote.size > 0:
        place_ends(p.remote, q, u)
    if p.acting.size > 0:
        for i in range(p.forces.size):
            p.forces[i] = tau[i] if tau.size > 0 else 0.0
        act_at_once(p.acting, q, u, p.forces)
        hand_out(p.wrenches, p.rooms, p.numbers)
        tau = p.forces
    p.messages[0] += sum_at(p.clocks)
    _lap(r, MOTION, began)
    return call_at(p.phases, (p.rank, np.int64(INWARD), np.int64(PHASES), q, u, tau, udot, rates))


@kernel(inline=True)
def _unsolved(coupling, blocks, root, loads):
    """Nothing: Python calls what solves."""


# Motion, join, early, inward, solve and outward of `_phases`, of couplings.
_BODIES = motion_of_bodies, join_turn, none_early, inward_of_bodies, dca.solve_by_dca, outward_of_bodies
_OF_PHASES = {
    "dcae": (motion_of_all, join_turn, early_of_all, inward_of_all, dca.solve_by_dcae, outward_of_all),
    "pcg": (motion_of_all, join_turn, early_of_all, inward_of_all, _unsolved, outward_of_all),
    "dca": _BODIES,
    "dca-terminal": _BODIES,
    "intervals": (
        *(motion_of_intervals, join_open_turns, none_early),
        *(inward_of_intervals, intervals.solve_by_intervals, outward_of_intervals),
    ),
    "cut intervals": (
        *(motion_of_intervals, join_open_turns, none_early),
        *(inward_of_intervals, _unsolved, outward_of_intervals),
    ),
    "augmented": (
        *(motion_of_intervals, join_open_turns, none_early),
        *(act_on_absolute, _unsolved, outward_of_absolute),
    ),
}
_NAMES = ("motion", "join", "early", "inward", "solve", "outward")
# What couplings evaluate by, by the number of lanes.
_KERNELS = {
    name: with_constants(_phases, re.sub(r"\W", "_", name), **dict(zip(_NAMES, given, strict=True)))
    for name, given in _OF_PHASES.items()
}
EVALUATE = {name: by_width(function, first=MOTION, last=PHASES) for name, function in _KERNELS.items()}
RUN_PHASES = {name: by_width(function) for name, function in _KERNELS.items()}


@kernel
def _measured(zero, part, q, u, ends_only):
    measure_intervals(zero, part, borrowed(q), borrowed(u), ends_only != 0)
    return True


MEASURE = by_width(_measured)  # how far the loops of a rank are from closed


@kernel
def scan_motions(plan, motion):
    """Scan boundary motions [BOUNDARY] over the ranks: what `parallel.scan.Scan` is given."""
    scan(plan, join_motion, motion)
    return True


@kernel
def _scan_open_motions(plan, motions):
    scan(plan, join_open_motions, motions)
    return True


@kernel
def scan_composites(plan, value):
    """Scan what ranks hand on to those before: what `parallel.scan.Scan` is given."""
    scan(plan, join_composites, value)


_OF_INTERVALS = ("intervals", "cut intervals", "augmented")
SCAN_MOTIONS = {name: _scan_open_motions if name in _OF_INTERVALS else scan_motions for name in _KERNELS}
