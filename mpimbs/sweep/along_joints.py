"""Loops over what acts along joints, each coordinate by itself, whose rate is a speed: by a law that they are given."""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import load, store, width
from mpimbs.sweep.structure import FIRST_Q, FIRST_U, LAST_U, TURN


@kernel(inline=True)
def add_along_joints(zero, structure, springs, q, u, total, law):
    """Add `law(zero, springs, d, coordinate, rate)` of each freedom d to generalized forces [nu]."""
    w = width(zero)
    for step in range(structure.steps.shape[0]):
        first = structure.steps[step, FIRST_U]
        item = structure.steps[step, FIRST_Q] - first
        if structure.steps[step, TURN] != 4:
            for d in range(first, structure.steps[step, LAST_U]):
                force = law(zero, springs, d, load(zero, q, (item + d) * w), load(zero, u, d * w))
                store(total, d * w, load(zero, total, d * w) + force)


@kernel(inline=True)
def write_forces(acting, q, u, found, law):
    """Write `law(acting, i, coordinate, rate)` (N m, N) of each of some that act along joints [m]."""
    for i in range(found.size):
        found[i] = law(acting, i, q[acting.places[i]], u[acting.speeds[i]])


@kernel(inline=True)
def power_along_joints(acting, q, u, law):
    """Power (W) of some that act along joints, as `write_forces`."""
    power = 0.0
    for i in range(acting.speeds.size):
        rate = u[acting.speeds[i]]
        power += law(acting, i, q[acting.places[i]], rate) * rate
    return power
