"""The passes of an evaluation over bodies whose accelerations are found one by one, in absolute coordinates: compiled.

Nothing is swept but the motion: what acts on every body, and what its joint asks for, is all that a coupling needs.
"""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Integers, read, schema
from mpimbs.kernels.tuples import load3, load6, load9
from mpimbs.parts.interval_passes import INTERVAL, act_on_interval
from mpimbs.parts.pieces import SUBCHAIN
from mpimbs.parts.sequence import SequencePlan
from mpimbs.spatial.axes import along
from mpimbs.spatial.vectors import motion_outward, sub6
from mpimbs.sweep.motion import coordinate_rates
from mpimbs.sweep.structure import BIAS, FIRST_U, LAST_U, PLACE


class AbsolutePlan(NamedTuple):
    """What the passes over bodies one by one are given."""

    intervals: SequencePlan  # of one; loads: accelerations of the steps, of bodies outside, of the world
    parents: Integers  # [m]: which of these is that of each step's parent


ABSOLUTE = schema(AbsolutePlan)


@kernel(inline=True)
def motion_across(place, bias, parents, step, accelerations):
    """What a step's joint adds to its acceleration: A - X A' - c [6], with A' of its parent."""
    r, p = load9(0.0, place, step * PLACE), load3(0.0, place, step * PLACE + 9)
    carried = motion_outward(r, p, load6(0.0, accelerations, 6 * parents[step]))
    return sub6(sub6(load6(0.0, accelerations, 6 * step), carried), load6(0.0, bias, step * BIAS))


@kernel(merge=True)
def act_on_absolute(zero, part, q, u, tau, before, ahead):
    """Pass 2: what acts on every body and through every joint, given the turns of the open bodies before these."""
    act_on_interval(zero, read(read(part, ABSOLUTE.intervals.rows)[0], SUBCHAIN), q, u, tau, before)


@kernel
def _relative(plan, parents, accelerations, udot):
    """Write the accelerations of the joints: those of their steps, along the axes that these free."""
    structure, work = read(plan, INTERVAL.structure), read(plan, INTERVAL.work)
    for step in range(structure.steps.shape[0]):
        across = motion_across(work.place, work.bias, parents, step, accelerations)
        for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
            pitch = structure.pitch[d]
            udot[d] = along(across, structure.axes[d], pitch) / (1.0 + pitch * pitch)


@kernel(merge=True)
def outward_of_absolute(zero, part, q, u, tau, udot, rates):
    """Pass 3: accelerations and rates of the coordinates, given the accelerations of all steps."""
    p = read(part, ABSOLUTE)
    plan = read(p.intervals.rows[0], SUBCHAIN)
    _relative(plan, p.parents, p.intervals.handles.loads, udot)
    coordinate_rates(0.0, read(plan, INTERVAL.structure), q, u, rates)
