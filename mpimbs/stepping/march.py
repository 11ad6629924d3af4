"""Steps of explicit Runge-Kutta schemes in compiled code: stages, error, control, and many steps in one call.

A step of a small system takes a few microseconds, as long as a handful of Python's lines: where an evaluation is one
call of compiled code, so is a run of steps. Elsewhere Python calls the same pieces one by one.

Nothing is copied: the state is one of two rooms, a step is made in the other one, and so the state where the last step
began is there until the next one. The first and the last rates change places alike, where a step begins with the last
stage of the one before.

Of an error estimate e the worst number of the worst body counts: the largest |e| / (atol + rtol |x|), x the number at
the end of the step; that of the order 5 of dop853 is weighed by that of order 3 in each number [Hairer, Norsett,
Wanner, section II.10]. A step is taken where that is at most 1. The next one is 0.9 (error before)^(0.2 / order) /
error^(0.85 / order) times as long [PI control, with the constants of DOPRI5: Hairer, Wanner, section IV.2], 0.1 to 10
times, and not longer than one that was rejected just before; after a rejection 0.9 / error^(1 / order) times. Steps
that a time ahead has shortened tell nothing of the error before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.dynamics.closing import is_singular, see_step
from mpimbs.kernels.calling import call_at
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import absolute, extract, insert, largest, load, sqrt, store, zero_lanes
from mpimbs.kernels.memory import assign, borrowed, read, schema, span, sum_at
from mpimbs.parallel.native import Channel, all_largest
from mpimbs.sweep.along_joints import Bounded, Stops, force_of_bounded, force_of_stop, power_along_joints
from mpimbs.sweep.grip import Grip, add_held, drag_anchors

# Numbers of states in steps of one call, and how many these are at the most: what is asked meanwhile waits some tens of
# milliseconds.
AT_A_CALL, MOST_AT_A_CALL, UNLIMITED = 2**19, 256, np.iinfo(np.int64).max
WIDTH = 8  # numbers of a state side by side
FOUR = 4 * WIDTH
SAFETY, LARGEST_FACTOR = 0.9, 10.0
BETA, LEAST_ERROR = 0.2, 1e-4  # of PI control
TINY = 1e-14  # of the time reached, that a step may be
SLACK = 1e-6  # of a step, by which the last one before a time may be longer
TOGETHER = 1e-12  # of times: steps' ends, events and samples that are so near come together
PASSING = 64  # samples that are taken together, at the most
PASSING_NUMBERS = 2**20  # and numbers of these
ON_GRID = 1e-9  # of a fixed step: times that are so near a multiple of it are that
SMALL = 1e-6  # of the time that is left: see `crawling`
# What `MarchPlan.numbers` has: times and sizes (s), and of the last attempt its error and the largest number.
(
    REACHED, STEP, TRIED, BEGAN, TARGET, PAUSE, ERROR, BIGGEST, RELATIVE, ABSOLUTE, ORDER, LEAST_FACTOR, NORM_ERROR,
    ERROR_BEFORE, GAMMA, NUMBERS,
) = range(16)  # fmt: skip
# What `MarchPlan.counts` has: which room is the state, which rates are known where the next step begins and where they
# and the last ones stand; of a call what it may take, how many samples are ahead, after how many evaluations one is
# looked at, and what it took.
(
    NOW, KNOWN, FIRST, LAST, AGAIN, MOST, ENOUGH, REGARDLESS, AHEAD, UNTIL_SEEN, ACCEPTED, REJECTED, EVALUATED, BEGUN,
    SMALL_STEPS, OUTCOME, BEHIND, ALL_COUNTS,
) = range(18)  # fmt: skip
NOTHING_KNOWN, IN_FIRST, IN_LAST = range(3)
GOING_ON, BROKEN, UNDERFLOW, OPEN = range(4)  # outcomes; the last: of a step whose loops can't be closed
FACTS = 5  # numbers of which ranks need the largest: error, failure, and three bits that are asked for


class MarchPlan(NamedTuple):
    """Arguments of steps in compiled code; rows of rates and rooms of states begin `stride` numbers after each
    other."""

    rank: Integers  # table of evaluations
    evaluation: int  # its address; 0: Python evaluates
    channel: Channel
    alone: int  # whether there is no other rank
    nq: int
    nu: int
    n: int  # numbers of the state; of one more the rate is the power of what acts on joints
    stride: int
    stages: int
    rows: int
    keeps_last: int
    takes_more: int  # whether states within a step take further evaluations, which Python asks for
    fixed: int
    a: Floats  # [rows * rows]
    errors: Floats  # [0 to 2, stages + 1]
    dense: Floats  # [rows * degree]: see `tableaux.Tableau`
    weights: Floats  # [rows]: room
    solves: Floats  # [rows * rows] of a Rosenbrock-W method, else empty
    matrix: Integers  # table of its matrix, and where kernels look at what else resists, factor and solve; 0: none do
    look: int
    factor: int
    solve: int
    states: Floats  # [2 * stride]
    rates: Floats  # [rows * stride]
    state: Floats  # [stride]: of a stage
    closing: Integers  # table of `dynamics.closing.Closing`, and where `close_compiled` is; 0: closed otherwise, or not
    close: int
    seen: Floats
    held: Floats  # [nu], or none: forces on joints; and what else has power
    torque: Floats
    damping: Floats
    stops: Stops
    bounded: Bounded
    clock: Floats  # [1], or none: the time of an evaluation (s), written
    stage_times: Floats  # [rows]: of the step
    power: Floats  # [1], or none: of what acts otherwise, as the evaluation finds it (W)
    powers: Integers  # addresses of that of each loop (W)
    grip: Grip
    acting: Floats  # [nu], room of what friction adds to `held`, or none
    quaternions: Integers  # where they begin
    numbers: Floats
    counts: Integers
    samples: Floats  # [PASSING or none]: times of those ahead (s)
    passed: Floats  # [PASSING or none, stride]: states at those that were passed
    passed_facts: Floats  # [PASSING or none, 2]: errors of norms so far, and sizes of the steps that follow (s)
    sizes: Floats  # [MOST_AT_A_CALL]: of the steps of a call (s), negative where the time ahead has shortened it
    told: Floats  # [FACTS]: what this rank has to say
    heard: Floats  # [FACTS]: what all have


PLAN = schema(MarchPlan)


# Each is given the table and reads what it takes of it: the whole plan handed on would cost more than they do.


@kernel(inline=True)
def _row(p, k):
    """Where the rates of a stage stand."""
    return p.counts[FIRST] if k == 0 else p.counts[LAST] if k == p.stages else k


@kernel(inline=True)
def _sum_rates(p, weights, first, count, begin):
    """Sum of rates with some of the weights, of the numbers from `begin` on, side by side."""
    zero = zero_lanes(WIDTH)
    total = zero
    for k in range(count):
        weight = weights[first + k]
        if weight != 0.0:
            total = total + weight * load(zero, p.rates, _row(p, k) * p.stride + begin)
    return total


@kernel(inline=True)
def _four_sums(p, weights, first, count, begin):
    """Four of `_sum_rates`, one behind the other: what each weight asks for is done once."""
    zero = zero_lanes(WIDTH)
    a, b, c, d = zero, zero, zero, zero
    for k in range(count):
        weight = weights[first + k]
        if weight != 0.0:
            at = _row(p, k) * p.stride + begin
            a = a + weight * load(zero, p.rates, at)
            b = b + weight * load(zero, p.rates, at + WIDTH)
            c = c + weight * load(zero, p.rates, at + 2 * WIDTH)
            d = d + weight * load(zero, p.rates, at + 3 * WIDTH)
    return a, b, c, d


@kernel(inline=True)
def _state_of(p, out, weights, first, count, base, factor):
    """Write the state at a room of states, and a sum of rates."""
    zero, begin = zero_lanes(WIDTH), base * p.stride
    together = p.n - p.n % FOUR
    for i in range(0, together, FOUR):
        a, b, c, d = _four_sums(p, weights, first, count, i)
        at = begin + i
        store(out, i, load(zero, p.states, at) + factor * a)
        store(out, i + WIDTH, load(zero, p.states, at + WIDTH) + factor * b)
        store(out, i + 2 * WIDTH, load(zero, p.states, at + 2 * WIDTH) + factor * c)
        store(out, i + 3 * WIDTH, load(zero, p.states, at + 3 * WIDTH) + factor * d)
    for i in range(together, p.n, WIDTH):
        state = load(zero, p.states, begin + i)
        store(out, i, state + factor * _sum_rates(p, weights, first, count, i))


@kernel(inline=True)
def _sum_rows(p, weights, first, count):
    """Write a sum of rates to `MarchPlan.state`."""
    for i in range(0, p.n, WIDTH):
        store(p.state, i, _sum_rates(p, weights, first, count, i))


@kernel(inline=True)
def _stage_state(p, k):
    """Where the state of a stage stands."""
    if 0 < k < p.stages:
        return span(p.state, 0, p.stride)
    return span(p.states, (p.counts[NOW] if k == 0 else 1 - p.counts[NOW]) * p.stride, p.stride)


@kernel(inline=True)
def _time(p, k):
    """Time of a stage (s)."""
    return p.numbers[REACHED] + p.stage_times[k] * p.numbers[TRIED]


@kernel
def stage(plan, k):
    """Write the state of a stage; the last one is the end of the step. Gives the time (s) of stages within it."""
    p = read(plan, PLAN)
    _state_of(p, _stage_state(p, k), p.a, k * p.rows, k, p.counts[NOW], p.numbers[TRIED])
    return _time(p, k) if k < p.stages else np.nan


@kernel
def judge(plan):
    """Find the error of a step over the tolerance, and its largest number."""
    p = read(plan, PLAN)
    zero = zero_lanes(WIDTH)
    worst, most, least = zero, zero, zero + 1e-300
    end, new = p.nq + p.nu, (1 - p.counts[NOW]) * p.stride
    rtol, atol, size = p.numbers[RELATIVE], p.numbers[ABSOLUTE], p.numbers[TRIED]
    weighed = p.fixed == 0
    count = p.stages + 1 if p.keeps_last != 0 else p.stages
    several = p.errors.size > p.stages + 1
    for i in range(0, p.n, WIDTH):
        values = absolute(load(zero, p.states, new + i))
        most = largest(most, values)
        if weighed and i < end:
            estimate = size * _sum_rates(p, p.errors, 0, count, i)
            if several:
                other = size * _sum_rates(p, p.errors, p.stages + 1, count, i)
                square = estimate * estimate
                estimate = square / largest(sqrt(square + 0.01 * other * other), least)
            estimate = absolute(estimate) / (atol + rtol * values)
            for lane in range(end - i, WIDTH):
                estimate = insert(estimate, lane, 0.0)
            worst = largest(worst, estimate)
    error, biggest = 0.0, 0.0
    for lane in range(WIDTH):
        error, biggest = largest(error, extract(worst, lane)), largest(biggest, extract(most, lane))
    p.numbers[ERROR], p.numbers[BIGGEST] = error, biggest
    failed = not (error < np.inf and biggest < np.inf)
    p.told[0], p.told[1] = 0.0 if failed else error, max(p.told[1], 1.0 if failed else 0.0)


@kernel
def propose(plan):
    """Choose the size of the next attempt: the last ones before a time are shortened, if not fixed two alike."""
    p = read(plan, PLAN)
    s, c = p.numbers, p.counts
    left, step = s[TARGET] - s[REACHED], s[STEP]
    if left <= step * (1.0 + SLACK):
        s[TRIED] = left
    else:
        s[TRIED] = step if p.fixed != 0 or left > 2.0 * step else 0.5 * left
    if c[KNOWN] == IN_LAST:
        c[FIRST], c[LAST], c[KNOWN] = c[LAST], c[FIRST], IN_FIRST
    p.told[1] = 0.0


@kernel
def conclude(plan):
    """Take the step, or reject it, and choose the next; from what all ranks have said of it."""
    p = read(plan, PLAN)
    s, c = p.numbers, p.counts
    error, size, step = p.heard[0], s[TRIED], s[STEP]
    adaptive, regardless = p.fixed == 0, c[REGARDLESS] != 0
    if p.heard[1] != 0.0:
        c[OUTCOME] = BROKEN
        return
    rejected = adaptive and not regardless and error > 1.0
    factor = LARGEST_FACTOR
    if adaptive and error > 0.0:
        beta = 0.0 if rejected else BETA
        gain = SAFETY * (s[ERROR_BEFORE] ** beta / error ** (1.0 - 0.75 * beta)) ** (1.0 / s[ORDER])
        factor = min(max(gain, s[LEAST_FACTOR]), LARGEST_FACTOR)
    if rejected:
        c[REJECTED] += 1
        c[AGAIN] = 1
        s[STEP] = size * min(factor, 1.0)
        if size <= TINY * max(abs(s[REACHED]), 1e-3):
            c[OUTCOME] = UNDERFLOW
        return
    reached = size == s[TARGET] - s[REACHED]
    end = s[TARGET] if reached else s[REACHED] + size
    if end <= s[REACHED]:
        c[OUTCOME] = UNDERFLOW
        return
    if not adaptive and not reached:
        near = np.rint(end / step) * step
        end = near if abs(end - near) <= ON_GRID * step else end
    p.sizes[c[ACCEPTED]] = -size if size < step else size
    c[ACCEPTED] += 1
    c[SMALL_STEPS] += 1 if size < SMALL * (s[TARGET] - s[REACHED]) < np.inf else 0
    s[BEGAN], s[REACHED] = s[REACHED], end
    c[NOW] = 1 - c[NOW]
    c[KNOWN] = IN_LAST if p.keeps_last != 0 else NOTHING_KNOWN
    if adaptive:
        suggested = size * (min(factor, 1.0) if c[AGAIN] != 0 else factor)
        s[STEP] = max(step, suggested) if size < step else suggested
        if size >= step and not regardless:
            s[ERROR_BEFORE] = max(error, LEAST_ERROR)
        c[AGAIN] = 0
    state = span(p.states, c[NOW] * p.stride, p.n)
    for k in range(p.quaternions.size):
        s[NORM_ERROR] = largest(s[NORM_ERROR], _make_unit(state, p.quaternions[k]))
    drag_anchors(p.grip, 1 - c[NOW], c[NOW], state)


@kernel
def _make_unit(state, first):
    """Scale a quaternion to unit length; give how far from that it was."""
    square = 0.0
    for i in range(first, first + 4):
        square += state[i] * state[i]
    length = np.sqrt(square)
    for i in range(first, first + 4):
        state[i] /= length
    return abs(length - 1.0)


@kernel
def _evaluate(plan, k):
    """Write the rates of a stage: of coordinates, of speeds, and the power of what acts along joints."""
    p = read(plan, PLAN)
    nq, nu = p.nq, p.nu
    state, row = _stage_state(p, k), _row(p, k) * p.stride
    q, u = span(state, 0, nq), span(state, nq, nu)
    rates, udot = span(p.rates, row, nq), span(p.rates, row + nq, nu)
    held = p.held
    if p.clock.size > 0:
        p.clock[0] = _time(p, k)
    if p.acting.size > 0:
        held = p.acting
        for i in range(held.size):
            held[i] = p.held[i] if p.held.size > 0 else 0.0
        add_held(p.grip, p.counts[NOW], q, u, held)
    call_at(p.evaluation, (p.rank, q, u, held, udot, rates))
    p.counts[EVALUATED] += 1
    if p.n > nq + nu:
        power = 0.0
        for i in range(held.size):
            power += held[i] * u[i]
        for i in range(p.torque.size):
            power += p.torque[i] * u[i]
        for i in range(p.damping.size):
            power -= p.damping[i] * u[i] * u[i]
        if p.stops.speeds.size > 0:
            power += power_along_joints(p.stops, q, u, force_of_stop)
        if p.bounded.speeds.size > 0:
            power += power_along_joints(p.bounded, q, u, force_of_bounded)
        for i in range(p.power.size):
            power += p.power[i]
        power += sum_at(p.powers)
        p.rates[row + nq + nu] = power


@kernel
def _look(plan):
    """Look at what resists beside joints in the state that was evaluated, in which a step begins."""
    p = read(plan, PLAN)
    begin = p.counts[NOW] * p.stride
    q, u = span(p.states, begin, p.nq), span(p.states, begin + p.nq, p.nu)
    call_at(p.look, (p.matrix, q, u, p.acting if p.acting.size > 0 else p.held))


@kernel
def _factor(plan):
    """Factor the matrix of the step, in the state where it begins."""
    p = read(plan, PLAN)
    now = p.counts[NOW]
    q, u = span(p.states, now * p.stride, p.nq), span(p.states, now * p.stride + p.nq, p.nu)
    call_at(p.factor, (p.matrix, q, u, p.numbers[GAMMA] * p.numbers[TRIED], p.grip, now))


@kernel
def _increment(plan, k):
    """Write the increment of a stage to its row, which may have its rates; behind coordinates and speeds the matrix has
    nothing."""
    p = read(plan, PLAN)
    _sum_rows(p, p.solves, k * p.rows, p.rows)
    gamma, found = p.numbers[GAMMA], span(p.rates, _row(p, k) * p.stride, p.n)
    call_at(p.solve, (p.matrix, p.state, found, gamma))
    for i in range(p.nq + p.nu, p.n):
        found[i] = gamma * p.state[i]


@kernel
def _close(plan):
    """Close the loops where a step has ended; gives whether to go on: none is singular ahead."""
    p = read(plan, PLAN)
    state, c = span(p.states, p.counts[NOW] * p.stride, p.n), p.counts
    if not call_at(p.close, (p.closing, span(state, 0, p.nq), span(state, p.nq, p.nu), np.int64(0))):
        c[OUTCOME] = OPEN
        return False
    if p.fixed != 0:
        return True
    see_step(p.seen, abs(p.sizes[c[ACCEPTED] - 1]))
    return not is_singular(p.seen, p.numbers[STEP])


@kernel(inline=True)
def _interpolate(p, out, weights, size):
    """Write a state within the last step, from weights of the rates and the step's size (s)."""
    _state_of(p, out, weights, 0, weights.size, 1 - p.counts[NOW], size)
    for k in range(p.quaternions.size):
        _make_unit(out, p.quaternions[k])


@kernel
def state_within(plan, t, out):
    """Write the state at a time (s) in the last step, by the polynomial of the scheme, which leaves loops open."""
    p, out = read(plan, PLAN), borrowed(out)
    s, degree = p.numbers, p.dense.size // p.rows
    x = (t - s[BEGAN]) / s[TRIED]
    for k in range(p.rows):
        weight = 0.0
        for j in range(degree - 1, -1, -1):
            weight = (weight + p.dense[k * degree + j]) * x
        p.weights[k] = weight
    _interpolate(p, out, p.weights, s[TRIED])


@kernel
def _keep_sample(plan, k):
    """Keep the state at a sample that the last step has passed, closed, and say whether it can be."""
    p = read(plan, PLAN)
    s, state = p.numbers, span(p.passed, k * p.stride, p.stride)
    p.passed_facts[2 * k], p.passed_facts[2 * k + 1] = s[NORM_ERROR], s[STEP]
    near = SLACK * s[STEP] if p.fixed != 0 else TOGETHER * abs(s[REACHED])
    if p.samples[k] >= s[REACHED] - near:
        assign(state, span(p.states, p.counts[NOW] * p.stride, p.stride))
        return True
    if p.takes_more != 0:
        return False
    state_within(plan, p.samples[k], state)
    q, u = span(state, 0, p.nq), span(state, p.nq, p.nu)
    return p.close == 0 or call_at(p.close, (p.closing, q, u, np.int64(1)))


@kernel
def _pass_samples(plan):
    """Keep the states at the samples that the last step has passed, and say whether to go on: others are ahead, none is
    to be looked at."""
    p = read(plan, PLAN)
    s, c = p.numbers, p.counts
    first = c[BEHIND]
    if c[EVALUATED] >= c[UNTIL_SEEN]:
        return False
    last = first
    while last < c[AHEAD] and p.samples[last] <= (1.0 + TOGETHER) * s[REACHED]:
        last += 1
    if last == c[AHEAD]:
        return False
    for k in range(first, last):
        if not _keep_sample(plan, k):
            return False
    c[BEHIND] = last
    s[PAUSE] = (1.0 - TOGETHER) * p.samples[last]
    return True


@kernel
def march(plan):
    """Take steps towards a time, until something has to be done between two of them.

    That is: the time is reached, or that of a pause, which is that of a sample, where no further samples are known, or
    it is to be looked at; there were as many steps or evaluations as were asked for; a step broke, or its loops can't
    be closed, or are singular ahead. All that is asked for, and what was done, stands in `numbers` and `counts`. One
    step is taken at least, unless it broke.
    """
    p = read(plan, PLAN)
    s, c = p.numbers, p.counts
    for k in range(ACCEPTED, ALL_COUNTS):
        c[k] = 0
    attempts = 0
    while True:
        attempts += 1
        propose(plan)
        if c[KNOWN] == NOTHING_KNOWN:
            _evaluate(plan, 0)
            c[KNOWN] = IN_FIRST
            c[BEGUN] += 1
            if p.look != 0:
                _look(plan)
        if p.factor != 0:
            _factor(plan)
        for k in range(1, p.stages):
            if k > 1 or p.factor == 0:
                stage(plan, k)
                _evaluate(plan, k)
            if p.factor != 0:
                _increment(plan, k)
        stage(plan, p.stages)
        if p.keeps_last != 0:
            _evaluate(plan, p.stages)
        judge(plan)
        if p.alone != 0:
            for i in range(FACTS):
                p.heard[i] = p.told[i]
        else:
            all_largest(p.channel, p.told, p.heard)
        before = c[ACCEPTED]
        conclude(plan)
        if c[OUTCOME] != GOING_ON:
            return
        if p.close != 0 and c[ACCEPTED] > before and not _close(plan):
            return
        if c[ACCEPTED] > before and (
            s[REACHED] >= s[TARGET]
            or attempts >= c[MOST]
            or c[EVALUATED] >= c[ENOUGH]
            or (s[REACHED] >= s[PAUSE] and not _pass_samples(plan))
        ):
            return


@kernel
def summed_rates(plan, weights):
    """Write a sum of rows of rates to `MarchPlan.state`."""
    _sum_rows(read(plan, PLAN), borrowed(weights), 0, weights.size)


@kernel
def interpolated_state(plan, weights, size):
    """Write a state within the last step to `MarchPlan.state`, from weights of the rates and the step's size (s)."""
    p, weights = read(plan, PLAN), borrowed(weights)
    _interpolate(p, p.state, weights, size)
