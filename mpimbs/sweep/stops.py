"""Stops that end the ways of joints: springs and dampers that push back from there, and hold nothing.

What they do is work, none of it energy that the system has: a spring that its damper keeps from pushing would have
some, of which no error estimate of steps knows how it goes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import largest, load, store, width
from mpimbs.kernels.memory import Floats, Integers
from mpimbs.model import Columns
from mpimbs.sweep.structure import FIRST_Q, FIRST_U, LAST_U, TURN

STEEP = 10.0  # times as fast as by its stiffness alone the force of a stop rises at the most


@kernel(inline=True)
def pushed_back(zero, stiffness, damping, x, rate):
    """Force (N m, N) by which a stop pushes back what is beyond it by x, at that rate: stiffness x + damping rate.

    It is never less than nothing, for a stop does not hold, and never more than `STEEP` stiffness x: without that it
    would jump where a joint arrives.
    """
    most = STEEP * stiffness * x
    return largest(most - largest(most - stiffness * x - damping * rate, zero), zero)


@kernel(inline=True)
def _beyond(zero, springs, d, q):
    """How far a coordinate is beyond the upper end of its way, and beyond the lower one (rad, m); 0 before both."""
    w = width(zero)
    return largest(q - load(zero, springs.upper, d * w), zero), largest(load(zero, springs.lower, d * w) - q, zero)


@kernel(inline=True)
def add_stops(zero, structure, springs, q, u, total):
    """Add the forces of all stops to generalized forces [nu]."""
    w = width(zero)
    for step in range(structure.steps.shape[0]):
        first = structure.steps[step, FIRST_U]
        item = structure.steps[step, FIRST_Q] - first
        if structure.steps[step, TURN] != 4:
            for d in range(first, structure.steps[step, LAST_U]):
                k = load(zero, springs.stop_stiffness, d * w)
                c = load(zero, springs.stop_damping, d * w)
                above, below = _beyond(zero, springs, d, load(zero, q, (item + d) * w))
                rate = load(zero, u, d * w)
                force = pushed_back(zero, k, c, below, -rate) - pushed_back(zero, k, c, above, rate)
                store(total, d * w, load(zero, total, d * w) + force)


class Stops(NamedTuple):
    """The stops of some joints by themselves: of each coordinate that has any, where it stands and what they are."""

    speeds: Integers  # [m]
    places: Integers  # [m]: among the coordinates
    lower: Floats
    upper: Floats
    stiffness: Floats
    damping: Floats

    @classmethod
    def of(cls, columns: Columns) -> Stops:
        """Those of all bodies here."""
        if not columns.stopped:
            return NO_STOPS
        speeds = np.flatnonzero(columns.stop_stiffness)
        given = columns.lower, columns.upper, columns.stop_stiffness, columns.stop_damping
        return cls(speeds, columns.coordinates_of(speeds), *(values[speeds] for values in given))

    def beyond(self, q: Floats) -> Floats:
        """How far the coordinates are beyond the ends of their ways [m] (rad, m): above positive, below negative."""
        here = q[self.places]
        found: Floats = np.maximum(here - self.upper, 0.0) + np.minimum(here - self.lower, 0.0)
        return found

    def pressed(self, q: Floats) -> npt.NDArray[np.bool_]:
        """Which of the coordinates are beyond them [m]."""
        return self.beyond(q) != 0.0 if len(self.speeds) else _NONE

    def forces(self, q: Floats, u: Floats) -> Floats:
        """Generalized forces of the stops [m] (N m, N), of arrays that are read by address."""
        found = np.empty(len(self.speeds))
        if len(found):
            forces_of_stops(self, q, u, found)
        return found


_NONE = np.zeros(0, bool)
NO_STOPS = Stops(np.zeros(0, np.int64), np.zeros(0, np.int64), *(np.zeros(0) for _ in range(4)))


@kernel(inline=True)
def _force_of_stop(stops, i, q, u):
    here, rate = q[stops.places[i]], u[stops.speeds[i]]
    above, below = max(here - stops.upper[i], 0.0), max(stops.lower[i] - here, 0.0)
    k, c = stops.stiffness[i], stops.damping[i]
    return pushed_back(0.0, k, c, below, -rate) - pushed_back(0.0, k, c, above, rate)


@kernel
def forces_of_stops(stops, q, u, found):
    """Write the generalized force [m] (N m, N) of each stop."""
    for i in range(found.size):
        found[i] = _force_of_stop(stops, i, q, u)


@kernel
def power_of_stops(stops, q, u):
    """Power (W) of stops."""
    power = 0.0
    for i in range(stops.speeds.size):
        power += _force_of_stop(stops, i, q, u) * u[stops.speeds[i]]
    return power
