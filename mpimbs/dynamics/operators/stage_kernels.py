"""The stages of linearly implicit steps in compiled code: what joints and bodies resist by, and solutions.

See `implicit_matrix` for what is computed.
"""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.base.arrays import Floats, Integers
from mpimbs.dynamics.operators.lengths import correct_along, push_along, take_lengths
from mpimbs.dynamics.operators.tension import take_resistance
from mpimbs.kernels.calling import call_at
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Rows, assign, borrowed, read, schema, span
from mpimbs.loops.apart import add_what_loops_do
from mpimbs.parts.entries import joint_loads, loads_of_bodies
from mpimbs.sweep.added import put_added, straightened
from mpimbs.sweep.along_joints import Bounded, Stops, resist_along
from mpimbs.sweep.grip import holding
from mpimbs.sweep.motion import coordinate_rates, speeds_of_rates
from mpimbs.sweep.structure import TURNING, Springs, Structure, Workspace


class TensionPlan(NamedTuple):
    """How the tension of lines is found from what an evaluation has left."""

    part: Integers  # table of the sweeps, and where the loads of joints are found from it
    joint_loads: int
    loads: Floats  # [m * 6], room: of the steps
    carriers: Integers  # [n]: steps that carry bodies
    frames: Floats  # [n * 9]
    received: Floats  # [n * 6], room: of the bodies
    levers: Floats  # [n * 3]: see `sweep.added.straightened`, as for the following
    of_one: Floats  # [n * 6]
    stiffness: Floats  # [n * ADDED], written


class LoadsPlan(NamedTuple):
    """How the loads of joints are found of a rank's bodies as one piece: see `parts.entries.joint_loads`."""

    loops: Integers  # table of what loops do (`loops.apart.ActingLoops`), or none
    wrenches: Floats  # [m * 6]: those that act beside; and [nu]: room for forces on joints with those of gears; or none
    geared: Floats
    structure: Structure
    springs: Springs
    work: Workspace  # with wrenches of its own, where there are loops
    turns: Floats  # [k * TURNING]: of the bodies inboard, and their accelerations [k * 6]
    given: Floats
    outer: Integers  # [h]: steps on which others act, and by which loads [h * 6]
    outer_loads: Floats
    scanned: Floats  # what a scan of turns has found, and where they begin there [k]; -1 of the world
    turn_at: Integers
    handed: Floats  # what a coupling has found, and where accelerations [k] and loads [h] begin; none on one rank
    given_at: Integers
    outer_at: Integers
    acted: Floats  # [nu]: forces on joints in the evaluation, or none: those that are given
    total: Floats  # [nu]: room, as are the following
    udot: Floats
    block: Floats


class StagePlan(NamedTuple):
    """Arguments of the stages of a step in compiled code."""

    structure: Structure
    q: Floats  # [nq]: the state
    by_speed: Floats  # [nu]: forces by a change of the speeds
    by_place: Floats  # [nu]: forces by speeds at which coordinates would change
    plain: int  # whether the rates of the coordinates are the speeds
    step: Floats  # [1]: h (s)
    stiffness: Floats  # [nu]: of joints, as are dampers and rotors
    damping: Floats
    rotors: Floats
    armature: Floats  # [nu], written: how heavy the rotors are with what resists
    stops: Stops
    bounded: Bounded
    tau: Floats  # [nu]: room
    z: Floats
    factors: Integers  # table of the factors of the heavier inertia matrix, and where its kernels are
    factor: int
    solve: int
    needed: int  # where inverse dynamics at rest is, by which products with what acts on bodies are found
    pulls: Integers  # its tables, of stiffnesses and of dampings
    drags: Integers
    acts: Integers  # [2]: whether there are any
    bodies: Rows  # where what bodies are heavier by is put: `sweep.added`; and the matrices of products with pulls
    of_pulls: Rows
    of_drags: Rows
    own: Floats  # [n * ADDED]: added masses
    stiffness_of_bodies: Floats  # [n * ADDED], as is the following; or none
    damping_of_bodies: Floats
    tension: Integers  # table of `TensionPlan`, or none
    resistance: Integers  # of `tension.ResistancePlan`, or none
    lengths: Integers  # of `lengths.LengthsPlan`, or none
    still: Floats  # [nu]: zeros
    along: Floats  # [nu]: room
    pushing: Floats


STAGE, TENSION, LOADS = schema(StagePlan), schema(TensionPlan), schema(LoadsPlan)


@kernel
def take_joints(plan, q, u, step, grip, anchors):
    """Take the resistance of joints in a state, for a step h (s), and how heavy they are by it.

    That of stops that are pressed, of servos and friction within their ranges, and of what friction holds.
    """
    q, u = borrowed(q), borrowed(u)
    s = read(plan, STAGE)
    s.step[0] = step
    assign(s.q, q)
    assign(s.by_place, s.stiffness)
    assign(s.by_speed, s.damping)
    resist_along(s.stops, s.bounded, q, u, s.by_place, s.by_speed)
    for i in range(grip.speeds.size):
        d = grip.speeds[i]
        anchor = grip.anchors[anchors * grip.speeds.size + i]
        stiffness, damping = holding(grip, i, anchor, q[grip.places[i]], u[d])
        s.by_place[d] += stiffness
        s.by_speed[d] += damping
    for d in range(s.by_place.size):
        s.by_place[d] *= -step
        s.by_speed[d] = step * (s.by_place[d] - s.by_speed[d])
        s.armature[d] = s.rotors[d] - s.by_speed[d]


@kernel
def stage_changes(plan, r, z, times, x):
    """Write x [nq + nu]: speeds r_u + z, and coordinates r_q + h G x_u; all so many times."""
    r, z, x = borrowed(r), borrowed(z), borrowed(x)
    s = read(plan, STAGE)
    step = s.step[0]
    speeds, given = span(x, s.q.size, z.size), span(r, s.q.size, z.size)
    if s.plain != 0:
        for d in range(z.size):
            speed = times * (given[d] + z[d])
            speeds[d] = speed
            x[d] = times * r[d] + step * speed
    else:
        for d in range(z.size):
            speeds[d] = times * (given[d] + z[d])
        coordinate_rates(0.0, s.structure, s.q, speeds, x)
        for k in range(s.q.size):
            x[k] = times * r[k] + step * x[k]


@kernel
def factor_stage(plan, q, u, step, grip, anchors):
    """Factor the matrix of a step, of joints (`take_joints`), and of what bodies were seen to resist by, if any is."""
    take_joints(plan, q, u, step, grip, anchors)
    s = read(plan, STAGE)
    if s.bodies.shape[0] > 0:
        none = span(s.own, 0, 0)
        pulls, drags = none, none
        if s.acts[0] != 0:
            pulls = s.stiffness_of_bodies
            put_added(s.of_pulls, none, pulls, step, none, 0.0)
        if s.acts[1] != 0:
            drags = s.damping_of_bodies
            put_added(s.of_drags, none, drags, step, none, 0.0)
        put_added(s.bodies, s.own, pulls, step * step, drags, step)
    factored = call_at(s.factor, (s.factors,))
    if s.lengths.size > 0:
        take_lengths(s.lengths, borrowed(q), borrowed(u), step, s.factors, s.solve)
    return factored


@kernel(inline=True)
def _copy(found, places, to, numbers):
    for k in range(places.size):
        for i in range(numbers if places[k] >= 0 else 0):
            to[k * numbers + i] = found[places[k] + i]


@kernel
def loads_of_one(plan, q, u, tau, loads):
    """Write what all steps receive through their joints [m * 6], in their frames, in the state of an evaluation."""
    p = read(plan, LOADS)
    _copy(p.scanned, p.turn_at, p.turns, TURNING)
    _copy(p.handed, p.given_at, p.given, 6)
    _copy(p.handed, p.outer_at, p.outer_loads, 6)
    given = p.turns, p.given, p.outer, p.outer_loads
    tau, loads = p.acted if p.acted.size > 0 else borrowed(tau), borrowed(loads)
    if p.loops.size > 0:
        wrench, geared = p.work.wrench, p.geared
        for i in range(wrench.size):
            wrench[i] = p.wrenches[i] if p.wrenches.size > 0 else 0.0
        for i in range(geared.size):
            geared[i] = tau[i] if tau.size > 0 else 0.0
        add_what_loops_do(p.loops, wrench, geared)
        tau = geared
    joint_loads(p.structure, p.springs, p.work, borrowed(q), borrowed(u), tau, *given, loads, p.total, p.udot, p.block)
    return True


@kernel
def look_at_bodies(plan, q, u, tau):
    """Find what bodies resist by in the state that was evaluated last, by forces [nu] on joints."""
    tension = read(plan, STAGE.tension)
    if tension.size > 0:
        t = read(tension, TENSION)
        call_at(t.joint_loads, (t.part, q, u, tau, t.loads))
        loads_of_bodies(t.loads, t.carriers, t.frames, t.received)
        straightened(t.levers, t.of_one, t.received, t.stiffness)
    take_resistance(read(plan, STAGE.resistance), 1 if tension.size > 0 else 0)
    return True


@kernel(inline=True)
def _product(s, part, v):
    """Take from the forces of a stage V^T B V v, V how bodies move by the speeds: see `_Product`."""
    call_at(s.needed, (part, s.q, s.still, v, s.still, s.pushing, 0))
    for d in range(s.tau.size):
        s.tau[d] -= s.pushing[d]


@kernel
def _take_bodies(plan, r):
    """Take from the forces of a stage those of what acts on bodies, by a change r [nq + nu] of the state."""
    s, r = read(plan, STAGE), borrowed(r)
    speeds = span(r, s.q.size, s.tau.size)
    if s.acts[0] != 0:
        speeds_of_rates(0.0, s.structure, s.q, r, s.along)
        for d in range(s.along.size):
            s.along[d] += s.step[0] * speeds[d]
        _product(s, s.pulls, s.along)
    if s.acts[1] != 0:
        _product(s, s.drags, speeds)


@kernel
def stage_forces(plan, r):
    """Write the generalized forces of a stage, by a change r [nq + nu] of the state."""
    r, s = borrowed(r), read(plan, STAGE)
    tau = s.tau
    speeds = span(r, s.q.size, tau.size)
    if s.plain != 0:
        for d in range(tau.size):
            tau[d] = s.by_speed[d] * speeds[d] + s.by_place[d] * r[d]
    else:
        speeds_of_rates(0.0, s.structure, s.q, r, tau)
        for d in range(tau.size):
            tau[d] = s.by_speed[d] * speeds[d] + s.by_place[d] * tau[d]
    if s.acts[0] + s.acts[1] != 0:
        _take_bodies(plan, r)
    if s.lengths.size > 0:
        speeds_of_rates(0.0, s.structure, s.q, r, s.along)
        push_along(s.lengths, speeds, s.along, tau)


@kernel
def solve_heavier(plan, tau, z):
    """Write z [nu] of (M + h D + h^2 K) z = tau [nu]."""
    s, z = read(plan, STAGE), borrowed(z)
    solved = call_at(s.solve, (s.factors, borrowed(tau), z))
    if s.lengths.size > 0:
        correct_along(s.lengths, z)
    return solved


@kernel
def solve_stage(plan, r, x, times):
    """Write x [nq + nu] of (1 - h J) x = r, so many times, where the matrix is factored."""
    s = read(plan, STAGE)
    stage_forces(plan, r)
    solved = solve_heavier(plan, s.tau, s.z)
    stage_changes(plan, r, s.z, times, x)
    return solved
