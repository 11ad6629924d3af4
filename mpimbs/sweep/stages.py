"""What stages of linearly implicit steps take and give beside the sweep: both in the coordinates of single joints."""

from __future__ import annotations

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import borrowed, span
from mpimbs.sweep.motion import coordinate_rates, speeds_of_rates


@kernel
def stage_forces(structure, q, r, by_speed, by_place, tau):
    """Write the generalized forces [nu] of a stage: of a change r [nq + nu] of the state, so much of its speeds, and so
    much of the speeds at which its coordinates would change so."""
    r = borrowed(r)
    speeds_of_rates(0.0, structure, q, r, tau)
    speeds = span(r, q.size, tau.size)
    for d in range(tau.size):
        tau[d] = by_speed[d] * speeds[d] + by_place[d] * tau[d]


@kernel
def stage_changes(structure, q, r, z, step, x):
    """Write x [nq + nu]: speeds r_u + z, and coordinates r_q + h G x_u, for a step h (s)."""
    r, x = borrowed(r), borrowed(x)
    speeds, given = span(x, q.size, z.size), span(r, q.size, z.size)
    for d in range(z.size):
        speeds[d] = given[d] + z[d]
    coordinate_rates(0.0, structure, q, speeds, x)
    for k in range(q.size):
        x[k] = r[k] + step * x[k]
