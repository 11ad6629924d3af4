"""What stages of linearly implicit steps take and give beside the sweep: both in the coordinates of single joints."""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Floats, borrowed, read, schema, span
from mpimbs.sweep.motion import coordinate_rates, speeds_of_rates
from mpimbs.sweep.structure import Structure


class StagePlan(NamedTuple):
    """What the stages of a step are given."""

    structure: Structure
    q: Floats  # [nq]: the state
    by_speed: Floats  # [nu]: forces by a change of the speeds
    by_place: Floats  # [nu]: forces by speeds at which coordinates would change
    plain: int  # whether the rates of the coordinates are the speeds


STAGE = schema(StagePlan)


@kernel
def stage_forces(plan, r, tau):
    """Write the generalized forces [nu] of a stage, by a change r [nq + nu] of the state."""
    r, tau = borrowed(r), borrowed(tau)
    s = read(plan, STAGE)
    speeds = span(r, s.q.size, tau.size)
    if s.plain != 0:
        for d in range(tau.size):
            tau[d] = s.by_speed[d] * speeds[d] + s.by_place[d] * r[d]
    else:
        speeds_of_rates(0.0, s.structure, s.q, r, tau)
        for d in range(tau.size):
            tau[d] = s.by_speed[d] * speeds[d] + s.by_place[d] * tau[d]


@kernel
def stage_changes(plan, r, z, step, times, x):
    """Write x [nq + nu]: speeds r_u + z, and coordinates r_q + h G x_u, for a step h (s); all so many times."""
    r, z, x = borrowed(r), borrowed(z), borrowed(x)
    s = read(plan, STAGE)
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
