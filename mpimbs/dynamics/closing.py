"""Closing the loops of a state: positions by Newton's method, speeds at once, and the account of what steps have left.

What measures and evaluates is handed in, so that the way is written once: compiled code where evaluations are, messages
of ranks included; else Python.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.dynamics.remote_ends import place_ends
from mpimbs.kernels.calling import call_at
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import FloatItem, Rows, assign, borrowed, read, schema, span, sum_at
from mpimbs.kernels.widths import with_constants
from mpimbs.loops.apart import ROUNDING, count_turns, farthest_end, measure_apart, round_places
from mpimbs.parallel.native import Channel, all_largest, clock
from mpimbs.parts.entries import displace
from mpimbs.sweep.structure import Structure

LARGE = 2.0**300  # beside it accelerations are nothing, and no number is too large
NOT_LARGE = 2.0**100  # what is less beside it is of accelerations
CLOSED = 1e-12  # in the terms of `ROUNDING`: closed enough
ROUNDS = 60  # of Newton's method at the most
SMALLEST_SHARE = 2.0**-10  # of its step
# Over singular positions:
FADING = 0.98  # of the usual step, from one to the next
COLLAPSED = 0.1  # of the usual step: less is suspicious
SINGULAR = 100.0  # how much more than usual violations are amplified
FORGOTTEN = 0.02  # of what was usual, at each step
SMALLEST = np.finfo(float).tiny
# Of `Closing.seen`: what is closed, and why it could not be; the largest violations that steps have left, of which
# loops; what violations of velocities became in the last step over the usual, that, the usual step (s), and how much of
# the speeds was changed; evaluations.
(
    KIND, FAILED, PLACES_LEFT, SPEEDS_LEFT, PLACES_OF, SPEEDS_OF, AMPLIFIED, USUAL, USUAL_STEP, CHANGED, SWEPT,
    ALL_SEEN,
) = range(12)  # fmt: skip
UNWATCHED, LEFT_OPEN, IN_SPEEDS, IN_PLACES = range(4)  # kinds: the second counts turns
APART, NOT_FINITE, STOPPED = range(1, 4)  # why: it does not converge; speeds are no longer finite; Python has raised
_AIM = FloatItem(0)


class Closing(NamedTuple):
    """Arguments of closing the loops of a state, whoever measures and evaluates."""

    measured: Integers  # table of `loops.apart.MeasuredLoops`
    found: Floats  # [loops * 4]: as of `measure_apart`, of all ranks
    rounding: Floats  # [loops]: as of `round_places`
    still: Floats  # [nu]: zeros
    begin: Floats  # [nq]: where a step of Newton's method begins
    q: Floats  # [nq], [nu]: the state before
    u: Floats
    change: Floats  # [nu]
    seen: Floats  # [ALL_SEEN]
    compiled: Integers  # table of `CompiledClosing`; empty where Python has a say


CLOSING = schema(Closing)


@kernel
def _largest(numbers, first, stride):
    """The largest of every so manyth number, and its place; nothing is 0."""
    most, at = 0.0, 0
    for k in range(first, numbers.size, stride):
        if numbers[k] > most:
            most, at = numbers[k], k // stride
    return most, at


@kernel
def _apart(found, rounding):
    """How many times its rounding the position of the loop is that is farthest from closed."""
    most = 0.0
    for k in range(rounding.size):
        most = max(most, found[4 * k + 2] / rounding[k])
    return most


@kernel
def see_left(seen, found):
    """Take the largest violations that a step has left."""
    for kind in range(2):
        most, loop = _largest(found, kind, 4)
        if most > seen[PLACES_LEFT + kind]:
            seen[PLACES_LEFT + kind], seen[PLACES_OF + kind] = most, loop


@kernel
def see_amplified(seen, violation, most, change):
    """See what a violation of velocities became as a change of speeds, of which the largest is `most`."""
    ratio = change / max(violation, ROUNDING * most, SMALLEST)
    usual = seen[USUAL]
    seen[CHANGED] = change / max(most, SMALLEST)
    seen[AMPLIFIED] = ratio / usual if usual > 0.0 else 1.0
    seen[USUAL] = usual ** (1.0 - FORGOTTEN) * ratio**FORGOTTEN if usual > 0.0 else ratio


@kernel
def see_step(seen, size):
    """See that a step of some size (s) was taken."""
    seen[USUAL_STEP] = max(size, FADING * seen[USUAL_STEP])


@kernel
def is_singular(seen, step):
    """Whether a step (s) as small as the next one is for a singular position ahead."""
    return step < COLLAPSED * seen[USUAL_STEP] and seen[AMPLIFIED] > SINGULAR


@kernel
def _fails(seen, why):
    seen[FAILED] = why
    return False


@kernel(inline=True)
def close_places(measure, change, displace, p, q):
    """Close positions near `q`, which is written, by Newton's method, and say whether it converges.

    `p.found` and `p.rounding` are those of the state as given. A step that leads farther is halved.
    """
    most, last, share = _apart(p.found, p.rounding), np.inf, 1.0
    for _ in range(ROUNDS):
        closed = most <= 1.0 or (most <= CLOSED / ROUNDING and most > 0.5 * last)
        if closed and most < np.inf:
            return True
        if not most < last and share > SMALLEST_SHARE:  # too far: a part of the way
            share *= 0.5
        elif not most < np.inf:
            break
        else:
            assign(p.begin, q)
            last, share = most, min(1.0, 4.0 * share)
            p.seen[SWEPT] += 1
            if not change(p, q, p.still, 0.0, 1.0):  # what redundant constraints leave is rounding: nothing helps
                return most <= CLOSED / ROUNDING
        displace(p, share, q)
        measure(p, q, p.still)
        most = _apart(p.found, p.rounding)
    return _fails(p.seen, APART)


@kernel(inline=True)
def close_state(rounded, places, change, p, q, u):
    """Close a state that was measured, which is written, as is asked for; say whether it can be."""
    apart, _ = _largest(p.found, 2, 4)
    parting, _ = _largest(p.found, 3, 4)
    moves = p.seen[KIND] == IN_PLACES and apart > ROUNDING
    if moves:
        rounded(p, q)
        if not places(p, q):
            return False
    if moves or parting > 0.0:
        p.seen[SWEPT] += 1
        if not change(p, q, u, 1.0, 0.0):
            return False
        for i in range(u.size):
            u[i] += p.change[i]
    return True


@kernel(inline=True)
def close_step(measure, state, sizes, p, q, u):
    """Close the state after a step, which is written, and see what the step has left; say whether it can be."""
    if p.seen[KIND] == UNWATCHED:
        return True
    measure(p, q, u)
    count_turns(p.measured)
    if p.seen[KIND] == LEFT_OPEN:
        return True
    see_left(p.seen, p.found)
    violation, _ = _largest(p.found, 3, 4)
    assign(p.q, q)
    assign(p.u, u)
    done = state(p, q, u)
    if done:
        most, change = sizes(p, u)
        p.seen[CHANGED] = 0.0
        if not most < np.inf:
            done = _fails(p.seen, NOT_FINITE)
        elif change > 0.0:
            see_amplified(p.seen, violation, most, change)
    if not done:
        assign(q, p.q)
        assign(u, p.u)
    return done


class CompiledClosing(NamedTuple):
    """Arguments of what compiled code calls to close loops."""

    part: Integers  # table of its sweeps, and where the kernel of `MEASURE` is
    measure: int
    rank: Integers  # table of evaluations, and where that of `EVALUATE` is
    evaluation: int
    aims: Rows  # [parts, 8]: see `loops.closing.LoopsPlan.aim`
    structure: Structure
    nothing: Floats  # [0]
    move: Floats  # [nu], [nq]: rooms
    rates: Floats
    unit: Floats  # [nu]: of speeds
    laps: Floats  # [PHASES]: of evaluations (s)
    scan_clocks: Integers  # addresses of the time that messages have taken in these, by what sends them
    coupling_clocks: Integers
    spent: Floats  # [PHASES + 3], written: how much of all these was spent on closing, and all of that
    remote: Integers  # table of `remote_ends.RemotePlan`; empty where nothing is elsewhere
    alone: int  # whether there is no other rank
    channel: Channel
    room: Floats  # [4 * loops]
    sizes: Floats  # [2]


_COMPILED = schema(CompiledClosing)


@kernel(inline=True)
def _larger(most, size):
    """The larger of two sizes, infinite where one is not a number."""
    return max(most, size) if size < np.inf else np.inf


@kernel
def _greatest(c, numbers):
    """Find the greatest of each number among all ranks, of which none may be NaN."""
    if c.alone == 0:
        room = span(c.room, 0, numbers.size)
        assign(room, numbers)
        all_largest(c.channel, room, numbers)


@kernel
def _measure(p, q, u):
    c = read(p.compiled, _COMPILED)
    if c.remote.size > 0:
        place_ends(c.remote, q, u)
    call_at(c.measure, (c.part, q, u, np.int64(0)))
    for i in range(p.found.size):
        p.found[i] = 0.0
    measure_apart(p.measured, p.found)
    _greatest(c, p.found)


@kernel
def _rounded(p, q):
    c, largest = read(p.compiled, _COMPILED), 0.0
    for i in range(q.size):
        largest = _larger(largest, abs(q[i]))
    ends = span(c.sizes, 0, 2)
    ends[0], ends[1] = farthest_end(p.measured), largest
    _greatest(c, ends)
    for i in range(p.rounding.size):
        p.rounding[i] = 0.0
    round_places(p.measured, ends[0], ends[1], p.rounding)
    _greatest(c, p.rounding)


@kernel
def _change(p, q, u, speeds, places):
    """Write the change of least kinetic energy that takes violations away: beside it forces are nothing."""
    c = read(p.compiled, _COMPILED)
    before = read(c.aims[0], _AIM)
    kept = before[0], before[1], before[2]
    for k in range(c.aims.shape[0]):
        aim = read(c.aims[k], _AIM)
        aim[0], aim[1], aim[2] = LARGE * speeds, LARGE * places, 0.0
    call_at(c.evaluation, (c.rank, q, u, c.nothing, p.change, c.rates))
    for k in range(c.aims.shape[0]):
        aim = read(c.aims[k], _AIM)
        aim[0], aim[1], aim[2] = kept
    for i in range(p.change.size):
        p.change[i] = 0.0 if abs(p.change[i]) < NOT_LARGE else p.change[i] / LARGE
    return True


@kernel
def _displace(p, share, q):
    c = read(p.compiled, _COMPILED)
    for i in range(c.move.size):
        c.move[i] = share * p.change[i]
    displace(c.structure, p.begin, c.move, q)


@kernel
def _sizes(p, u):
    """The largest speed, and the largest change of one since `p.u`, in units of these; infinite where one is none."""
    c = read(p.compiled, _COMPILED)
    unit, most, change = c.unit, 0.0, 0.0
    for i in range(u.size):
        most = _larger(most, abs(u[i] / unit[i]))
        change = _larger(change, abs((u[i] - p.u[i]) / unit[i]))
    ends = span(c.sizes, 0, 2)
    ends[0], ends[1] = most, change
    _greatest(c, ends)
    return ends[0], ends[1]


_close_places = with_constants(close_places, "places_closed", measure=_measure, change=_change, displace=_displace)
_close_state = with_constants(close_state, "state_closed", rounded=_rounded, places=_close_places, change=_change)
_close_step = with_constants(close_step, "step_closed", measure=_measure, state=_close_state, sizes=_sizes)


@kernel
def _note_times(c, sign):
    """Add the times of evaluations so far to what was spent, or take them away."""
    for k in range(c.laps.size):
        c.spent[k] += sign * c.laps[k]
    c.spent[c.laps.size] += sign * sum_at(c.scan_clocks)
    c.spent[c.laps.size + 1] += sign * sum_at(c.coupling_clocks)


@kernel
def close_compiled(closing, q, u, within):
    """Close a state after a step, or `within` one, which is not counted: see `close_step`."""
    p, q, u = read(closing, CLOSING), borrowed(q), borrowed(u)
    c = read(p.compiled, _COMPILED)
    began = clock(c.channel.cycle[0])
    _note_times(c, -1.0)
    if within != 0:
        _measure(p, q, u)
        done = _close_state(p, q, u)
    else:
        done = _close_step(p, q, u)
    _note_times(c, 1.0)
    c.spent[c.laps.size + 2] += clock(c.channel.cycle[0]) - began
    return done
