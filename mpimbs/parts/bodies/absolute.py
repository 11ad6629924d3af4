"""Bodies whose accelerations are found one by one, in absolute coordinates: what a rank has of them. No MPI."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Table, read, schema
from mpimbs.kernels.tuples import load3, load6, load9
from mpimbs.loops.loop_table import ELSEWHERE
from mpimbs.loops.loops import LoopJointArrays
from mpimbs.parts.interval import IntervalPart
from mpimbs.parts.interval_passes import INTERVAL, act_on_interval
from mpimbs.parts.intervals import Intervals
from mpimbs.parts.pieces import SUBCHAIN, sequence_rows
from mpimbs.parts.sequence import SequencePlan
from mpimbs.spatial.vectors import along, motion_outward, sub6
from mpimbs.sweep.build import NO_BODIES, Build
from mpimbs.sweep.motion import coordinate_rates
from mpimbs.sweep.structure import BIAS, FIRST_U, LAST_U, PLACE, TURNING, Handles, Workspace


class AbsolutePlan(NamedTuple):
    """Arguments of the passes over bodies one by one, in compiled code."""

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
def act_on_absolute(zero, part, q, u, tau, before, early):
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


class AbsoluteBodies(Intervals):
    """The bodies of an interval, none of them swept: a `Part`.

    Accelerations are those of its steps, then of the bodies outside on which they depend, at last of the world.

    Parameters
    ----------
    part : IntervalPart
        Without subtrees.
    hangs : bool
        As of `Intervals`.
    """

    def __init__(self, part: IntervalPart, hangs: bool) -> None:
        super().__init__([part], part.whole, False, hangs)
        self.made: Build = part.whole.made
        self.work: Workspace = part.work
        self.total = part.total  # forces of the joints [nu], written by the passes
        made, inboard = self.made, part.outside.inboard
        m = len(made.structure.steps)
        needed = self._find_loops(part)
        # Bodies outside, ascending, in the order of all ranks' bodies.
        self.outside = np.unique(np.concatenate((inboard[inboard >= 0], needed[self.far])))
        world = m + len(self.outside)
        slot = inboard[np.where(made.parent < 0, -1 - made.parent, 0)]
        beyond = np.where(slot < 0, world, m + np.searchsorted(self.outside, slot))
        self.parents = np.arange(m) - 1  # which of the accelerations is that of each step's parent
        self.parents[made.first_step] = np.where(made.parent >= 0, made.body_step[made.parent], beyond)
        own = np.where(needed < 0, world, made.body_step[np.clip(needed - part.whole.first, 0, len(made.parent) - 1)])
        # Which of the accelerations the two bodies of each loop have.
        self.loop_ends = np.where(self.far, m + np.searchsorted(self.outside, needed), own)
        # Accelerations, in the frames of the steps (rad/s^2, m/s^2): what the pass outward takes.
        self.loads, self.blocks = np.zeros((world + 1, 6)), np.zeros((1, 0))
        # What passes the joint of each step, on the step, at its origin and in its frame (N m, N), once it was asked
        # for: from the accelerations, for multipliers are rounded as those of the heaviest bodies are.
        self.wrenches = np.zeros((m, 6))
        turn, rows = self.whole.nothing_before(TURNING), sequence_rows([(part.plan, self.whole.nq, self.whole.nu)])
        handles = Handles(turn, self.blocks.reshape(-1), self.loads.reshape(-1))
        self._table = Table(AbsolutePlan(SequencePlan(handles, np.zeros(turn.size), rows), self.parents))
        self.plan = self._table.data

    def _find_loops(self, part: IntervalPart) -> Integers:
        """The bodies [l, 2] of the loops that this rank answers for; and which of its own others need."""
        self.loop_joints: LoopJointArrays | None = None  # of all loops of which an end is here
        # Those of them that this rank answers for, whose second body it has, of one on the world the body; and its own
        # bodies on which others depend elsewhere, numbered as those outside.
        self.answered, self.shared = NO_BODIES, part.outside.open
        self.far = np.zeros((0, 2), bool)  # of those that are answered for, which of the two bodies are outside
        if part.loops is None:
            return np.zeros((0, 2), np.int64)
        self.loop_joints = joints = part.loops.joints
        owned = part.loops.owned
        self.answered = np.flatnonzero(owned)
        bodies = np.array(self.whole.system.loops.ends, np.int64).reshape(-1, 2)[part.loops.numbers]
        elsewhere = joints.bodies == ELSEWHERE
        self.far = elsewhere[owned]
        asked = bodies[~owned][~elsewhere[~owned]]
        self.shared = np.unique(np.concatenate((part.outside.open, asked[asked >= 0])))
        found: Integers = bodies[owned]
        return found

    def frames(self, bodies: Integers) -> Floats:
        """Step to body components [k, 3, 3] of some of its own bodies, in the order of all ranks' bodies."""
        found: Floats = self.made.body_frame[bodies - self.whole.first]
        return found

    def joint_loads(
        self, q: Floats, u: Floats, tau: Floats, turns: Floats, wrenches: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Give the loads of joints, as `Part` does, of `wrenches` of bodies, and each step's along its free axes."""
        made = self.made
        loads = self.wrenches[made.body_step].reshape(-1, 2, 3) @ np.swapaxes(made.body_frame, 1, 2)
        return loads.reshape(-1, 6), self.whole.along_axes(self.wrenches)
