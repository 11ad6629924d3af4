"""Inertias of bodies as steps carry them: ten numbers of a rigid body and, where a structure has any, a symmetric 6x6
matrix beside them: the added mass of a body in a fluid, or what implicit steps make it heavier by."""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import load, width
from mpimbs.kernels.memory import IntegerItem, read, schema
from mpimbs.kernels.tuples import load3, load6, load9, load21, store_numbers
from mpimbs.spatial.inertia import add_body, add_symmetric, apply, momentum
from mpimbs.spatial.vectors import add3, add6, cross, rotate, sub6
from mpimbs.sweep.structure import ADDED, BODY, BOUNDARY, FIXED


@kernel(inline=True)
def add_inertia(zero, structure, step, inertia):
    """Articulated inertia plus that of the body of a step."""
    body = structure.steps[step, BODY] * FIXED
    a = load6(zero, structure.fixed, body + 12)
    h = load3(zero, structure.fixed, body + 18)
    inertia = add_body(inertia, a, h, load(zero, structure.fixed, (body + 21) * width(zero)))
    if structure.added.size > 0:
        return add_symmetric(inertia, load21(zero, structure.added, structure.steps[step, BODY] * ADDED))
    return inertia


@kernel(inline=True)
def body_momentum(zero, structure, step, v):
    """Momentum of the body of a step by its twist, or load by its acceleration: inertia times six numbers."""
    body = structure.steps[step, BODY] * FIXED
    a = load6(zero, structure.fixed, body + 12)
    h = load3(zero, structure.fixed, body + 18)
    found = momentum(a, h, load(zero, structure.fixed, (body + 21) * width(zero)), v)
    if structure.added.size > 0:
        return add6(found, apply(load21(zero, structure.added, structure.steps[step, BODY] * ADDED), v))
    return found


@kernel
def add_fluid_loads(zero, structure, gravity, motion, wrench):
    """Add what added masses A take beside A times the acceleration, by Kirchhoff's equations [Lamb 1932, art. 124].

    With the twist v = (w, s) of the origin in the step's frame, through a fluid at rest, the load on the fluid is
    A v' + v x* A v, v' the rates of these components: (alpha, a - w x s). Sweeps count A (alpha, a - g), with the
    acceleration -g of the root; but nothing of the fluid hangs on the body. What is left, A (0, g - w x s) + v x* A v,
    is no acceleration's, and acts on the body reversed.

    Parameters
    ----------
    gravity : 3-tuple
        In the inertial frame (m/s^2).
    motion : array [m * BOUNDARY]
        As `sweep.motion.motions` writes it.
    wrench : array [m * 6]
        Added to: on each step, at its origin, in its frame (N m, N).
    """
    for step in range(structure.steps.shape[0]):
        a = load21(zero, structure.added, structure.steps[step, BODY] * ADDED)
        to_step = load9(zero, motion, step * BOUNDARY)
        v = load6(zero, motion, step * BOUNDARY + 12)
        w, s = v[0:3], v[3:6]
        p = apply(a, v)
        turning = add3(cross(w, p[0:3]), cross(s, p[3:6])) + cross(w, p[3:6])
        weight = rotate(to_step, gravity)
        c = cross(w, s)
        felt = apply(a, (zero, zero, zero, weight[0] - c[0], weight[1] - c[1], weight[2] - c[2]))
        own = load6(zero, wrench, step * 6)
        store_numbers(zero, wrench, step * 6, sub6(own, add6(felt, turning)))


@kernel
def straightened(levers, of_one, loads, found):
    """Write into stiffnesses [n * ADDED] of bodies what loads through their joints [n * 6] give them that pull.

    With levers [n * 3] (m) these are T l = -lever . force times those of 1 N m, xx xy xz yy yz zz [n * 6].
    """
    for body in range(found.size // ADDED):
        pulled, at, one = 0.0, ADDED * body, 6 * body
        for i in range(3):
            pulled -= levers[3 * body + i] * loads[one + 3 + i]
        pulled = max(pulled, 0.0)
        for i in range(3):
            found[at + i] = pulled * of_one[one + i]
        found[at + 6] = pulled * of_one[one + 3]
        found[at + 7] = pulled * of_one[one + 4]
        found[at + 11] = pulled * of_one[one + 5]


class AddedPlan(NamedTuple):
    """Where it stands what some bodies are heavier by."""

    table: Floats  # `Structure.added` of some lanes
    places: Integers  # [k]: where the first number of each body is there; the others are `lanes` apart
    numbers: Integers  # [k]: which body that is
    lanes: int


_PLAN, _TABLE = schema(AddedPlan), IntegerItem(0)


@kernel
def put_added(rows, own, first, times_first, second, times_second):
    """Write what bodies are heavier by where sweeps read it.

    Parameters
    ----------
    rows : array [any, 8]
        Where tables of `AddedPlan` are: address and size.
    own, first, second : array [n * ADDED]
        Of all bodies, to be added up; empty ones are left out.
    times_first, times_second : float
    """
    for number in range(rows.shape[0]):
        p = read(read(rows[number], _TABLE), _PLAN)
        for k in range(p.places.size):
            at, body = p.places[k], p.numbers[k] * ADDED
            for i in range(ADDED):
                sum = own[body + i] if own.size > 0 else 0.0
                if first.size > 0:
                    sum += times_first * first[body + i]
                if second.size > 0:
                    sum += times_second * second[body + i]
                p.table[at + i * p.lanes] = sum
