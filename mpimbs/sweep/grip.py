"""Friction that holds: in a run joints at rest stand on bristles, which bend, and slide where they bend no further.

Coulomb's friction of a run is elastoplastic [Dupont, Hayward, Armstrong, Altpeter, IEEE Trans. Automatic Control 47
(2002), 787-792]: -(pull + damping u) within the friction F, the pull F (q - anchor) / slack within F, too. The anchor
is where the bristle is at ease. It stands during a step, and at its end follows the coordinate where that is further
from it than the slack: the return mapping of plasticity [Simo, Hughes, Computational Inelasticity, section 1.4], by
which no force jumps, as the pull is F before and after. What slides faster than at twice the speed up to which its
damper counts feels Coulomb's friction wherever the anchor is. No state of its own is integrated, nothing creeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.model import Columns
from mpimbs.sweep.along_joints import bounded_by

RELAXATION = 0.1  # s: slack over the speed up to which the damper counts; what is held comes to rest in some of these


class Grip(NamedTuple):
    """What friction of some joints has beside its damper, with anchors of two states, of which one is before the
    other."""

    speeds: Integers  # [m]
    places: Integers  # [m]: among the coordinates
    friction: Floats  # N m, N
    damping: Floats  # of the damper that acts by itself, N m s/rad or N s/m
    slack: Floats  # rad, m
    anchors: Floats  # [2 * m]

    @classmethod
    def of(cls, columns: Columns) -> Grip:
        """That of all bodies here, with the anchors at 0."""
        if not columns.bounded:
            return NO_GRIP
        c, speeds = columns, np.flatnonzero(columns.friction)
        friction, damping, slack = (values[speeds] for values in (c.friction, c.rubbing, RELAXATION * c.friction_speed))
        return cls(speeds, c.coordinates_of(speeds), friction, damping, slack, np.zeros(2 * len(speeds)))

    @classmethod
    def joined(cls, grips: Sequence[Grip], nq: int, nu: int) -> Grip:
        """Those of systems of so many coordinates and speeds each, one behind the other."""
        speeds, places, *others = (list(parts) for parts in zip(*grips, strict=True))
        moved = ([part + k * by for k, part in enumerate(parts)] for parts, by in ((speeds, nu), (places, nq)))
        return cls(*(np.concatenate(parts) for parts in (*moved, *others)))

    def __bool__(self) -> bool:
        """Whether there is any."""
        return len(self.speeds) > 0

    def rooms(self) -> Floats:
        """The anchors of both states [2, m] (rad, m), which may be written."""
        return self.anchors.reshape(2, -1)

    def anchors_of(self, state: int, nu: int) -> Floats:
        """The anchors of a state at the speeds [nu] that they are of, 0 elsewhere (rad, m)."""
        found = np.zeros(nu)
        found[self.speeds] = self.rooms()[state]
        return found

    def begin(self, q: Floats, anchors: Floats | None) -> None:
        """Take anchors as `anchors_of` gave them for both states, or where coordinates [nq] are."""
        self.rooms()[:] = q[self.places] if anchors is None else anchors[self.speeds]

    def forces(self, q: Floats, u: Floats, state: int, held: Floats | None = None) -> Floats:
        """Give generalized forces [nu]: what it has beside its damper, with the anchors of a state, and forces held."""
        found = np.zeros_like(u) if held is None else held.copy()
        if self:
            add_grip(self, state, q, u, found)
        return found


NO_GRIP = Grip(np.zeros(0, np.int64), np.zeros(0, np.int64), *(np.zeros(0) for _ in range(4)))


@kernel(inline=True)
def _held(grip, i, anchor, x, rate):
    """Force (N m, N) of a friction beside its damper's, which is there whether it is held or not."""
    most = grip.friction[i]
    damped = -grip.damping[i] * rate
    pulled = most * bounded_by(-1.0, 1.0, (anchor - x) / grip.slack[i])
    return bounded_by(-most, most, pulled + damped) - bounded_by(-most, most, damped)


@kernel(inline=True)
def holding(grip, i, anchor, x, rate):
    """Stiffness and damping (per rad or m) with which a friction resists small changes, beside its damper's by
    itself."""
    most = grip.friction[i]
    pull, damped = (x - anchor) / grip.slack[i], grip.damping[i] * rate
    free = abs(bounded_by(-1.0, 1.0, pull) * most + damped) < most
    damping = (grip.damping[i] if free else 0.0) - (grip.damping[i] if abs(damped) < most else 0.0)
    return most / grip.slack[i] if free and abs(pull) < 1.0 else 0.0, damping


@kernel(inline=True)
def add_held(grip, state, q, u, forces):
    """Add what friction has beside its damper to generalized forces [nu], with the anchors of a state."""
    first = state * grip.speeds.size
    for i in range(grip.speeds.size):
        d = grip.speeds[i]
        forces[d] += _held(grip, i, grip.anchors[first + i], q[grip.places[i]], u[d])


@kernel(inline=True)
def drag_anchors(grip, before, after, q):
    """Write the anchors of the state after a step, at whose end the coordinates are q."""
    count = grip.speeds.size
    for i in range(count):
        x = q[grip.places[i]]
        anchor = grip.anchors[before * count + i]
        grip.anchors[after * count + i] = bounded_by(x - grip.slack[i], x + grip.slack[i], anchor)


@kernel
def add_grip(grip, state, q, u, forces):
    """See `add_held`."""
    add_held(grip, state, q, u, forces)


@kernel
def drag_grip(grip, before, after, q):
    """See `drag_anchors`."""
    drag_anchors(grip, before, after, q)
