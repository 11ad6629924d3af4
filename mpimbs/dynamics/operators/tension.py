"""What bodies resist by: the tension of lines, and what functions give.

Tension gives lines a stiffness against the rotation of bodies that loads hold straight.
A body that carries a tension T over a length l resists a small turn d with the torque T l (1 - t t^T) d, t its
direction: what makes a string sound. Pushed bodies resist with less than nothing; that is left out, so that what is
added to an inertia stays positive.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.dynamics.divided import DividedSystem
from mpimbs.forces.acting import BodyForcePlan, add_resistance
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Table, read, schema, size_of, table_at
from mpimbs.parallel.native import Channel, all_largest, channel
from mpimbs.parts.subchain import Subchain
from mpimbs.sweep.added import straightened
from mpimbs.sweep.structure import ADDED, BODY, FIXED

_UPPER = np.triu_indices(3)


def levers(subchain: Subchain) -> Floats:
    """Where loads act on bodies, from their inboard joints, in body frames [n, 3] (m).

    The mean place of the joints of those that hang on a body, on whichever ranks they are; of the last bodies that of
    loop joints, springs and forces that keep their direction; where nothing pulls the center of mass.
    """
    columns, system = subchain.columns, subchain.system
    parents, places = columns.parent - subchain.first, columns.position
    if not subchain.tip:  # bodies of other ranks hang on these, too: of a tree any behind
        behind = subchain.last + np.arange(1 if system.is_chain else system.n_bodies - subchain.last)
        on = system.segments.parents(subchain.last, subchain.last + len(behind)) - subchain.first
        here = (on >= 0) & (on < subchain.n_bodies)
        there = [system.body(k).joint.position for k in behind[here].tolist()]
        parents, places = np.append(parents, on[here]), np.append(places, np.reshape(there, (-1, 3)), axis=0)
    held = [(k, wrench.point) for k, wrench in columns.wrenches if wrench.frame == "world"]
    ends = [*(bodies for bodies, _ in system.loops.joints), *system.springs.bodies]
    positions = [loop.positions for _, loop in system.loops.joints]
    positions += [spring.positions for spring in system.springs.values()]
    for bodies, points in zip(ends, positions, strict=True):
        held += zip((k - subchain.first for k in bodies), points, strict=True)
    for force in system.loads.body_forces:
        if not isinstance(force.point, str) and any(force.point):
            held += [(k, force.point) for k in force.on(subchain.first, subchain.last).tolist()]
    at = np.array([k for k, _ in held], np.int64)
    found = columns.center_of_mass
    for numbers, where in ((at, np.array([point for _, point in held]).reshape(-1, 3)), (parents, places)):
        inside = (numbers >= 0) & (numbers < subchain.n_bodies)
        count = np.bincount(numbers[inside], minlength=subchain.n_bodies)[:, None]
        mean = np.zeros((subchain.n_bodies, 3))
        np.add.at(mean, numbers[inside], where[inside])
        found = np.where(count > 0, mean / np.maximum(count, 1), found)
    return found


class Tension:
    """The stiffness that tension gives to the bodies of a subchain.

    Attributes
    ----------
    levers, of_one, found : array [n * 3], [n * 6], [n * ADDED]
        As `sweep.added.straightened` takes them, and what it found last.
    """

    def __init__(self, subchain: Subchain) -> None:
        made = subchain.made
        body = made.structure.steps[made.body_step, BODY]
        self._inertias = made.structure.fixed.reshape(-1, FIXED)[body][:, [12, 15, 17]].sum(axis=1)
        arms = levers(subchain)
        square = np.einsum("ni,ni->n", arms, arms)
        self._squares = np.where(square > 0.0, square, 1.0)
        turned = np.einsum("nij,ni->nj", made.body_frame, arms)
        self.levers, self.found = np.ravel(arms), np.zeros(len(square) * ADDED)
        of_one = -turned[:, _UPPER[0]] * turned[:, _UPPER[1]] / self._squares[:, None]  # 1 - t t^T
        of_one[:, [0, 3, 5]] += (square > 0.0)[:, None]
        self.of_one = of_one.reshape(-1)

    def stiffness(self, loads: Floats, most: bool = False) -> Floats:
        """Give it [n, ADDED] by loads through the joints [n, 6], as `ImplicitMatrix.at` takes it. Used again.

        `most`: as if the forces pulled along the bodies, however these stand: no turn of a body meets more.
        """
        if most:
            forces = loads[:, 3:]
            sizes = np.sqrt(np.einsum("ni,ni->n", forces, forces) / self._squares)
            loads = np.hstack((loads[:, :3], -sizes[:, None] * self.levers.reshape(-1, 3)))
        straightened(self.levers, self.of_one, np.ravel(loads), self.found)
        return self.found.reshape(-1, ADDED)

    def share(self, step: float, stiffness: Floats) -> float:
        """Give what such stiffness adds in an implicit step (s), at the most, of any body's inertia."""
        added = step**2 * (stiffness[:, 0] + stiffness[:, 6] + stiffness[:, 11])
        heavy = self._inertias > 0.0
        return float(np.max(added[heavy] / self._inertias[heavy], initial=0.0))


class ResistancePlan(NamedTuple):
    """Arguments of what bodies resist by, together."""

    tension: Floats  # [n * ADDED]
    functions: int  # whether there are functions, on any rank
    forces: Integers  # addresses of tables of `forces.acting.BodyForcePlan`: of those here
    stiffness: Floats  # [n * ADDED], written; without functions it is that of tension
    damping: Floats  # [n * ADDED], written, or none
    acts: Integers  # [2], written: whether there is the one, and the other, on any rank
    channel: Channel
    alone: int
    told: Floats  # [2], as is the following: room
    heard: Floats


_RESISTANCE, _SIZE_OF_FORCE = schema(ResistancePlan), size_of(BodyForcePlan)


@kernel
def take_resistance(plan, tension):
    """Put together what bodies resist by: tension, where that counts, and what functions gave last; all ranks call."""
    r = read(plan, _RESISTANCE)
    r.acts[0], r.acts[1] = tension, 0
    if r.functions == 0:
        return
    for i in range(r.damping.size):
        r.stiffness[i] = r.tension[i] if tension != 0 else 0.0
        r.damping[i] = 0.0
    r.told[0], r.told[1] = float(tension), 0.0
    for k in range(r.forces.size):
        given = table_at(r.forces[k], _SIZE_OF_FORCE)
        if add_resistance(given, 0, r.damping):
            r.told[1] = 1.0
        if add_resistance(given, 1, r.stiffness):
            r.told[0] = 1.0
    for i in range(2):
        r.heard[i] = r.told[i]
    if r.alone == 0:
        all_largest(r.channel, r.told, r.heard)
    for i in range(2):
        r.acts[i] = 1 if r.heard[i] > 0.0 else 0


class BodyResistance:
    """What the bodies of a rank resist by, beside joints; all ranks make it together and call.

    Attributes
    ----------
    tension : Tension
    functions : bool
        Whether there are functions that may give damping and stiffness, on any rank.
    stiffness, damping : array [n * ADDED]
        As they were found last; without functions the first is that of tension, the second empty.
    acts : array [2]
        Whether there is stiffness, and damping, on any rank.
    plan : int64 array
        What `take_resistance` is given.
    """

    def __init__(self, divided: DividedSystem) -> None:
        self.tension = Tension(divided.subchain)
        self.functions = divided.external.resists
        self.acts, found = np.zeros(2, np.int64), self.tension.found
        self._forces = divided.external.resisting if self.functions else []
        self.stiffness = np.zeros(found.size) if self.functions else found
        self.damping = np.zeros(found.size if self.functions else 0)
        addresses = np.array([table.data.ctypes.data for table in self._forces], np.int64)
        given = found, int(self.functions), addresses, self.stiffness, self.damping, self.acts
        alone = int(divided.comm.size == 1)
        self._table = Table(ResistancePlan(*given, channel(divided.comm), alone, np.zeros(2), np.zeros(2)))
        self.plan = self._table.data

    def take(self, tension: bool) -> tuple[Floats | None, Floats | None]:
        """Put together what there is: `tension`, where it counts, as it was found last, and what functions gave last.

        Gives stiffness and damping as `ImplicitMatrix.at` takes them. Used again.
        """
        take_resistance(self.plan, int(tension))
        return self.given

    @property
    def given(self) -> tuple[Floats | None, Floats | None]:
        """Stiffness and damping, as `take` gave them last, or compiled stages have found them."""
        stiffness = self.stiffness.reshape(-1, ADDED) if self.acts[0] else None
        return stiffness, self.damping.reshape(-1, ADDED) if self.acts[1] else None
