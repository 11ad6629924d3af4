"""Stops that end the ways of joints: springs and dampers that push back from there, and hold nothing.

What they do is work, none of it energy that the system has: a spring that its damper keeps from pushing would have
some, of which no error estimate of steps knows how it goes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import largest, load, width
from mpimbs.model import Columns
from mpimbs.sweep.along_joints import add_along_joints, write_forces

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
def _between(zero, lower, upper, stiffness, damping, x, rate):
    """Force of the stops at both ends of a way."""
    above, below = largest(x - upper, zero), largest(lower - x, zero)
    return pushed_back(zero, stiffness, damping, below, -rate) - pushed_back(zero, stiffness, damping, above, rate)


@kernel(inline=True)
def _stops_of_freedom(zero, springs, d, x, rate):
    at = d * width(zero)
    k, c = load(zero, springs.stop_stiffness, at), load(zero, springs.stop_damping, at)
    return _between(zero, load(zero, springs.lower, at), load(zero, springs.upper, at), k, c, x, rate)


@kernel(inline=True)
def add_stops(zero, structure, springs, q, u, total):
    """Add the forces of all stops to generalized forces [nu]."""
    add_along_joints(zero, structure, springs, q, u, total, _stops_of_freedom)


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
def force_of_stop(stops, i, x, rate):
    """Force (N m, N) of one of some stops, at a coordinate and its rate."""
    return _between(0.0, stops.lower[i], stops.upper[i], stops.stiffness[i], stops.damping[i], x, rate)


@kernel
def forces_of_stops(stops, q, u, found):
    """Write the generalized force [m] (N m, N) of each stop."""
    write_forces(stops, q, u, found, force_of_stop)
