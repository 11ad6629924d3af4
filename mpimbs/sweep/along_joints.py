"""What acts along joints, each coordinate by itself, whose rate is a speed: stops, servos, friction.

A stop ends the way of a joint: a spring and damper that push back from there, and hold nothing. A servo gives
torque - stiffness q - damping u within its range. Friction is a damper with a range: viscous up to the speed that it
has, Coulomb's beyond. What they do is work, none of it energy that the system has: a spring that its damper keeps from
pushing would have some, of which no error estimate of steps knows how it goes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import largest, load, store, width
from mpimbs.model import Columns
from mpimbs.model.text.table import TimeFunction
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

    def forces(self, q: Floats, u: Floats) -> Floats:
        """Generalized forces of the stops [m] (N m, N), of arrays that are read by address."""
        found = np.empty(len(self.speeds))
        if len(found):
            forces_of_stops(self, q, u, found)
        return found


NO_STOPS = Stops(np.zeros(0, np.int64), np.zeros(0, np.int64), *(np.zeros(0) for _ in range(4)))


@kernel(inline=True)
def force_of_stop(stops, i, x, rate):
    """Force (N m, N) of one of some stops, at a coordinate and its rate."""
    return _between(0.0, stops.lower[i], stops.upper[i], stops.stiffness[i], stops.damping[i], x, rate)


@kernel
def forces_of_stops(stops, q, u, found):
    """Write the generalized force [m] (N m, N) of each stop."""
    write_forces(stops, q, u, found, force_of_stop)


@kernel(inline=True)
def bounded_by(least, most, x):
    """Give x, or the nearer end of a range if it is beyond."""
    return -largest(-largest(x, least), -most)


@kernel(inline=True)
def _asked(torque, stiffness, damping, x, rate):
    return torque - damping * rate - stiffness * x


@kernel(inline=True)
def _bounded_of_freedom(zero, springs, d, x, rate):
    at = d * width(zero)
    stiffness, damping = load(zero, springs.servo_stiffness, at), load(zero, springs.servo_damping, at)
    asked = _asked(load(zero, springs.servo_torque, at), stiffness, damping, x, rate)
    friction, rubbing = load(zero, springs.friction, at), load(zero, springs.rubbing, at)
    servo = bounded_by(load(zero, springs.servo_least, at), load(zero, springs.servo_most, at), asked)
    return servo + bounded_by(-friction, friction, -rubbing * rate)


@kernel(inline=True)
def add_bounded(zero, structure, springs, q, u, total):
    """Add the forces of all servos whose torque is no function of time, and of friction, to generalized forces [nu]."""
    add_along_joints(zero, structure, springs, q, u, total, _bounded_of_freedom)


class Bounded(NamedTuple):
    """The servos, and behind them the friction, of some joints by themselves."""

    speeds: Integers  # [m]: along which they act, of which several may be the same
    places: Integers  # [m]: of these among the coordinates
    torque: Floats  # N m, N; of functions what was put there last
    stiffness: Floats
    damping: Floats
    least: Floats
    most: Floats

    @classmethod
    def of(cls, columns: Columns, constant: bool = False) -> Bounded:
        """Those of all bodies here; `constant`: without servos whose torque is a function of time."""
        if not columns.bounded:
            return NO_BOUNDED
        c = columns
        servos, rubbing = np.flatnonzero(acts_as_servo(c, constant)), np.flatnonzero(c.friction)
        speeds, friction, none = np.append(servos, rubbing), c.friction[rubbing], np.zeros(len(rubbing))
        damping = np.append(c.servo_damping[servos], c.rubbing[rubbing])
        least, most = np.append(c.servo_least[servos], -friction), np.append(c.servo_most[servos], friction)
        torque, stiffness = (np.append(values[servos], none) for values in (c.servo_torque, c.servo_stiffness))
        return cls(speeds, c.coordinates_of(speeds), torque, stiffness, damping, least, most)

    def forces(self, q: Floats, u: Floats) -> Floats:
        """Generalized forces [m] (N m, N), of arrays that are read by address."""
        found = np.empty(len(self.speeds))
        if len(found):
            forces_of_bounded(self, q, u, found)
        return found


NO_BOUNDED = Bounded(np.zeros(0, np.int64), np.zeros(0, np.int64), *(np.zeros(0) for _ in range(5)))


def acts_as_servo(columns: Columns, constant: bool) -> npt.NDArray[np.bool_]:
    """Along which speeds servos act [nu]; `constant`: whose torque is no function of time."""
    c = columns
    found: npt.NDArray[np.bool_] = (c.servo_stiffness + c.servo_damping + abs(c.servo_torque)) != 0.0
    for body, _ in c.servo_functions:
        found[c.u_offset[body] : c.u_offset[body + 1]] = not constant
    return found


def servos_over_time(columns: Columns, bounded: Bounded) -> list[tuple[int, slice, TimeFunction]]:
    """Servos whose torque is a function of time: their bodies, where they are among all, and the functions."""
    found = []
    for body, function in columns.servo_functions if columns.bounded else ():
        first, last = columns.u_offset[body : body + 2].tolist()
        at = int(np.flatnonzero(bounded.speeds == first)[0])
        found.append((body, slice(at, at + last - first), function))
    return found


@kernel(inline=True)
def force_of_bounded(bounded, i, x, rate):
    """Force (N m, N) of one of some servos and friction, at a coordinate and its rate."""
    asked = _asked(bounded.torque[i], bounded.stiffness[i], bounded.damping[i], x, rate)
    return bounded_by(bounded.least[i], bounded.most[i], asked)


@kernel
def resist_along(stops, bounded, q, u, stiffness, damping):
    """Add stiffness and damping [nu] along the speeds: of stops that are pressed, of what is within its range."""
    for i in range(stops.speeds.size):
        d, x = stops.speeds[i], q[stops.places[i]]
        if x > stops.upper[i] or x < stops.lower[i]:
            stiffness[d] += stops.stiffness[i]
            damping[d] += stops.damping[i]
    for i in range(bounded.speeds.size):
        d = bounded.speeds[i]
        if bounded.least[i] < force_of_bounded(bounded, i, q[bounded.places[i]], u[d]) < bounded.most[i]:
            stiffness[d] += bounded.stiffness[i]
            damping[d] += bounded.damping[i]


@kernel
def forces_of_bounded(bounded, q, u, found):
    """Write the generalized force [m] (N m, N) of each."""
    write_forces(bounded, q, u, found, force_of_bounded)
