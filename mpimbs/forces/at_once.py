"""Springs between bodies, tendons, wrenches and added masses in one call of compiled code: where none is a function.

Of one process, whose bodies hang on the world alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.forces.springs import (
    FOUND,
    NO_SPRINGS,
    TENSION,
    ActingSprings,
    SpringArrays,
    find_tensions,
    power_of_springs,
    pull_bodies,
    see_coincidence,
    see_ends,
)
from mpimbs.forces.tendons import NO_TENDONS, ActingTendons, TendonArrays, find_tendons, force_of_tendons, pull_joints
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Table, borrowed, read, schema
from mpimbs.kernels.tuples import load3
from mpimbs.model import Wrench
from mpimbs.parts.entries import move
from mpimbs.parts.subchain import AT_REST, Subchain
from mpimbs.sweep.added import add_fluid_loads
from mpimbs.sweep.body_motion import add_loads
from mpimbs.sweep.structure import BOUNDARY, PLACE, Structure, Workspace


class ConstantWrenches(NamedTuple):
    """Wrenches on bodies that are constant in the bodies' frames, or in the world's."""

    own: Floats  # [m * 6]: all of the former, on the steps, in their frames; empty where none is given at all
    steps: Integers  # [n]: that carry the bodies of the latter
    points: Floats  # [n * 3]: where these act, in the steps' frames (m)
    moments: Floats  # [n * 3]: in the world frame (N m)
    forces: Floats  # [n * 3] (N)

    @classmethod
    def of(cls, subchain: Subchain, given: Mapping[int, Sequence[Wrench]]) -> ConstantWrenches:
        """Those of some of the bodies here."""
        all_of = [(body, wrench) for body, group in given.items() for wrench in group]
        steps, frames = subchain.carriers(np.array([body for body, _ in all_of], np.int64))
        point, moment, force = (
            np.array([getattr(wrench, name) for _, wrench in all_of], np.float64).reshape(-1, 3)
            for name in ("point", "moment", "force")
        )
        world = np.array([wrench.frame == "world" for _, wrench in all_of], bool)
        own = np.zeros((len(subchain.structure.steps) if all_of else 0, 2, 3))
        both = np.stack([moment + np.cross(point, force), force], axis=1)
        np.add.at(own, steps[~world], both[~world] @ frames[~world])
        points = np.einsum("nji,nj->ni", frames, point)[world]
        return cls(own.ravel(), steps[world], points.ravel(), moment[world].ravel(), force[world].ravel())


class ActingPlan(NamedTuple):
    """Arguments of what acts at once."""

    structure: Structure
    work: Workspace
    boundary: Floats  # [k * BOUNDARY]: motions of what the bodies hang on
    motion: Floats  # [m * BOUNDARY]: of the steps, written
    moves: int  # whether what acts depends on these
    powered: int  # whether its power is asked for
    given: ConstantWrenches
    wrenches: Floats  # [m * 6], written
    fluid: Floats  # [m * 6]: what added masses have in these, written; empty where there are none
    gravity: Floats  # [3]
    springs: SpringArrays
    tendons: TendonArrays
    power: Floats  # [1], written (W): of all but what is in the energy
    wrong: Floats  # [2]: the first end of a spring whose load was not finite, counted from 1; and its tension (N)


ACTING = schema(ActingPlan)


@kernel
def power_of_wrenches(wrenches, motion):
    """Power (W) of wrenches on the steps [m * 6]."""
    power = 0.0
    for step in range(wrenches.size // 6):
        for i in range(6):
            power += wrenches[6 * step + i] * motion[step * BOUNDARY + PLACE + i]
    return power


@kernel
def act_at_once(plan, q, u, tau):
    """Add what tendons do to `tau` [nu], and set the wrenches on the steps.

    Of a state that is not finite, `tau` is not finite.
    """
    q, u, tau = borrowed(q), borrowed(u), borrowed(tau)
    p = read(plan, ACTING)
    power = 0.0
    if p.tendons.of.size > 0:
        find_tendons(p.tendons, q, u)
        power += force_of_tendons(p.tendons)
        pull_joints(p.tendons, tau)
    own = p.given.own
    if p.moves != 0 or own.size > 0:
        if p.moves != 0 or p.powered != 0:
            move(p.structure, p.work, q, u, p.boundary, p.motion)
        for i in range(p.wrenches.size):
            p.wrenches[i] = own[i] if own.size > 0 else 0.0
        if own.size > 0:
            g = p.given
            add_loads(0.0, p.motion, g.steps, g.points, g.moments, g.forces, p.wrenches)
            if p.powered != 0:
                power += power_of_wrenches(p.wrenches, p.motion)
        if p.fluid.size > 0:
            for i in range(p.fluid.size):
                p.fluid[i] = 0.0
            add_fluid_loads(0.0, p.structure, load3(0.0, p.gravity, 0), p.motion, p.fluid)
            for i in range(p.fluid.size):
                p.wrenches[i] += p.fluid[i]
        if p.springs.of.size > 0:
            see_ends(p.springs, p.motion)
            finite = True
            for i in range(p.springs.ends.size):
                finite = finite and np.isfinite(p.springs.ends[i])
            find_tensions(p.springs)
            see_coincidence(p.springs)
            bad = pull_bodies(p.springs, p.motion, p.wrenches)
            if bad >= 0:
                tau[0] = np.nan
                if finite and p.wrong[0] == 0.0:
                    p.wrong[0] = bad + 1
                    p.wrong[1] = p.springs.found[FOUND * p.springs.of[bad] + TENSION]
            power += power_of_springs(p.springs)
    p.power[0] = power
    return True


class ActingAtOnce:
    """Lets springs, tendons, constant wrenches and added masses act on a whole system, on one process.

    Attributes
    ----------
    plan : int64 array
        What `act_at_once` is given.
    """

    def __init__(
        self,
        subchain: Subchain,
        wrenches: Mapping[int, Sequence[Wrench]],
        springs: ActingSprings | None,
        tendons: ActingTendons | None,
        fluid: Floats,
    ) -> None:
        self._springs, given = springs, ConstantWrenches.of(subchain, wrenches)
        self._moves = bool(springs) or fluid.size > 0 or given.steps.size > 0
        self._motion = subchain.room_of_motions if self._moves or given.own.size else np.zeros(0)
        self._power, self._wrong = np.zeros(1), np.zeros(2)
        self._table = Table(
            ActingPlan(
                subchain.structure, subchain.work, np.tile(AT_REST, len(subchain.inboard)), self._motion,
                int(self._moves), 0, given,
                subchain.wrenches, fluid, np.array(subchain.system.gravity, np.float64),
                NO_SPRINGS if springs is None else springs.arrays, NO_TENDONS if tendons is None else tendons.arrays,
                self._power, self._wrong,
            )
        )  # fmt: skip
        self.plan = self._table.data

    def __call__(self, t: float, q: Floats, u: Floats, tau: Floats) -> Floats | None:
        """Act at a time `t` (s), as `ExternalLoads.apply`."""
        act_at_once(self.plan, q, u, tau)
        self.tell(t)
        return self._motion if self._moves else None

    def find_power(self) -> Floats:
        """Have the power (W) found from now on; gives where it is then [1]."""
        self._table.set_number("powered", 1)
        return self._power

    def tell(self, t: float) -> None:
        """Warn of springs without direction that were seen up to a time (s).

        Raises
        ------
        LoadNotFiniteError
            A tension was not finite.
        """
        if self._springs is None:
            return
        self._springs.tell(t)
        if self._wrong[0]:
            end, tension = int(self._wrong[0]) - 1, float(self._wrong[1])
            self._wrong[:] = 0.0
            self._springs.refuse(t, end, tension)
