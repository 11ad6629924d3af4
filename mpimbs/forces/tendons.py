"""Tendons over joints: their lengths, of the joints of all ranks, and what they do to those of a rank.

Each rank of a tendon sums up what its joints are of the length, and tells the others: all add the same numbers in the
same sequence, and find the same force.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.forces.calls import NO_ROWS, RowsArrays, TimeFunctions
from mpimbs.forces.springs import MakeExchange, NoMessages
from mpimbs.kernels.compiler import kernel
from mpimbs.model.contents import Contents
from mpimbs.parallel.exchange import swap
from mpimbs.parts.subchain import Subchain
from mpimbs.sweep.along_joints import (
    NO_BOUNDED,
    NO_STOPS,
    Bounded,
    Stops,
    forces_of_bounded,
    forces_of_stops,
    resist_along,
)


class TendonArrays(NamedTuple):
    """The tendons of a rank, as compiled code reads them, and what it finds of each."""

    of: Integers  # [k]: of each joint here that one runs over, which
    speeds: Integers  # [k]: along which speed
    places: Integers  # [k]: of these among the coordinates
    ratios: Floats  # [k]: how much of its length
    lengths: Floats  # [m], written
    rates: Floats  # [m], written
    forces: Floats  # [m], written
    law: Bounded  # these, as servos of lengths
    stops: Stops
    pushes: Floats  # [stops], written
    rows: RowsArrays  # forces over time, by rows
    driven: Integers  # which follow these
    at_rest: Floats  # [m]: stiffness times rest, which their torques have beside
    exchange: Integers  # table of the messages to other ranks; empty where there are none
    sent: Integers  # [x]: the tendons whose lengths and rates here go there
    to_others: Floats  # [x * 2]
    from_others: Floats  # [y * 2]: what comes of tendons from there
    sequence: Integers  # [m + y]: what is added up, in what order, of those here and what comes
    begins: Integers  # [m + 1]: where each tendon begins in that
    told: Floats  # [(m + y) * 2], written


_NO, _NONE = np.zeros(0, np.int64), np.zeros(0)
NO_TENDONS = TendonArrays(
    _NO, _NO, _NO, _NONE, _NONE, _NONE, _NONE, NO_BOUNDED, NO_STOPS, _NONE, NO_ROWS, _NO, _NONE, _NO, _NO, _NONE, _NONE,
    _NO, _NO, _NONE,
)  # fmt: skip


@kernel
def _add_others(tendons):
    """Add up what all ranks have of lengths and rates, on all in the same sequence."""
    for k in range(tendons.sent.size):
        tendons.to_others[2 * k] = tendons.lengths[tendons.sent[k]]
        tendons.to_others[2 * k + 1] = tendons.rates[tendons.sent[k]]
    swap(tendons.exchange)
    own = tendons.lengths.size
    for k in range(own):
        tendons.told[2 * k], tendons.told[2 * k + 1] = tendons.lengths[k], tendons.rates[k]
    for k in range(tendons.from_others.size):
        tendons.told[2 * own + k] = tendons.from_others[k]
    for k in range(own):
        length, rate = 0.0, 0.0
        for i in range(tendons.begins[k], tendons.begins[k + 1]):
            at = 2 * tendons.sequence[i]
            length += tendons.told[at]
            rate += tendons.told[at + 1]
        tendons.lengths[k], tendons.rates[k] = length, rate


@kernel
def find_tendons(tendons, q, u):
    """Write lengths and rates of tendons; all ranks call."""
    for k in range(tendons.lengths.size):
        tendons.lengths[k] = tendons.rates[k] = 0.0
    for k in range(tendons.of.size):
        at, ratio = tendons.of[k], tendons.ratios[k]
        tendons.lengths[at] += ratio * q[tendons.places[k]]
        tendons.rates[at] += ratio * u[tendons.speeds[k]]
    if tendons.exchange.size > 0:
        _add_others(tendons)


@kernel
def drive_tendons(tendons):
    """Take the forces over time that were found."""
    for i in range(tendons.driven.size):
        k = tendons.driven[i]
        tendons.law.torque[k] = tendons.rows.values[i] + tendons.at_rest[k]


@kernel
def force_of_tendons(tendons):
    """Write the force of each, from lengths and rates."""
    forces_of_bounded(tendons.law, tendons.lengths, tendons.rates, tendons.forces)
    forces_of_stops(tendons.stops, tendons.lengths, tendons.rates, tendons.pushes)
    for k in range(tendons.pushes.size):
        tendons.forces[tendons.stops.speeds[k]] += tendons.pushes[k]


@kernel
def resist_by_tendons(tendons, stiffness, damping):
    """Write stiffness and damping [m] of each against small changes of its length, after `find_tendons`."""
    for k in range(stiffness.size):
        stiffness[k] = damping[k] = 0.0
    resist_along(tendons.stops, tendons.law, tendons.lengths, tendons.rates, stiffness, damping)


@kernel
def pull_joints(tendons, u, tau):
    """Add the generalized forces of tendons on the joints here to `tau` [nu]; gives their power."""
    power = 0.0
    for k in range(tendons.of.size):
        at, force = tendons.speeds[k], tendons.ratios[k] * tendons.forces[tendons.of[k]]
        tau[at] += force
        power += force * u[at]
    return power


class ActingTendons:
    """The tendons over joints of a subchain; see `mpimbs.model.spring.Tendon`.

    Parameters
    ----------
    cuts : array [P + 1]
        Rank r owns bodies cuts[r] to cuts[r + 1] - 1.
    make : callable
        See `ActingSprings`.
    """

    def __init__(self, subchain: Subchain, cuts: Integers, make: MakeExchange) -> None:
        system, c = subchain.system, subchain.columns
        over = [
            (tendon, np.array([system.index_of(name) for name in tendon.joints]))
            for tendon in system.loads.tendons.values()
        ]
        first, last = subchain.first, subchain.last
        owned = [bool(np.any((bodies >= first) & (bodies < last))) for _, bodies in over]
        self.numbers = np.flatnonzero(owned)  # [m]: of those that have joints here, in the system
        here = [over[k] for k in self.numbers]
        self.tendons = [tendon for tendon, _ in here]
        of = np.repeat(np.arange(len(here)), [len(bodies) for _, bodies in here])
        numbers = np.concatenate([np.zeros(0, np.int64), *(bodies for _, bodies in here)])
        ratios = np.concatenate([np.zeros(0), *(tendon.ratios for tendon in self.tendons)])
        mine = (numbers >= first) & (numbers < last)
        # Each other rank of a tendon, once; what it sends is behind what this one has.
        owners = np.searchsorted(cuts, numbers[~mine], side="right") - 1
        others = np.unique(np.column_stack((owners, of[~mine])), axis=0)
        sent = np.ascontiguousarray(others[:, 1])
        counts = {rank: 2 * int(np.count_nonzero(others[:, 0] == rank)) for rank in np.unique(others[:, 0]).tolist()}
        self.exchange = make(counts, counts)
        me = int(np.searchsorted(cuts, first, side="right")) - 1 if len(here) else 0
        ranks = np.append(np.full(len(here), me), others[:, 0])
        whose = np.append(np.arange(len(here)), others[:, 1])
        sequence = np.lexsort((ranks, whose))  # by tendons, each by ranks
        begins = np.searchsorted(whose[sequence], np.arange(len(here) + 1))
        ways = [(t.lower, t.upper, t.stop_stiffness, t.stop_damping) for t in self.tendons if t.stop_stiffness]
        stopped = np.array([k for k, t in enumerate(self.tendons) if t.stop_stiffness], np.int64)
        stops = Stops(stopped, stopped, *map(np.ascontiguousarray, np.array(ways).reshape(-1, 4).T))
        given = [(t.stiffness * t.rest, t.stiffness, t.damping, t.least, t.most) for t in self.tendons]
        at_rest, *rest = map(np.ascontiguousarray, np.array(given).reshape(-1, 5).T)
        constant = np.array([0.0 if callable(t.force) else t.force for t in self.tendons])
        each = np.arange(len(here))
        over_time = [(k, t.name, t.force) for k, t in enumerate(self.tendons) if callable(t.force)]
        # forces over time
        self.functions = TimeFunctions([(f"the force function of tendon '{name}'", f, 1) for _, name, f in over_time])
        driven = np.array([k for k, *_ in over_time], np.int64)
        self.arrays = TendonArrays(
            of[mine], c.u_offset[numbers[mine] - first], c.q_offset[numbers[mine] - first], ratios[mine],
            np.zeros(len(here)), np.zeros(len(here)), np.zeros(len(here)),
            Bounded(each, each, constant + at_rest, *rest), stops, np.zeros(len(stopped)),
            self.functions.rows, driven, at_rest, self.exchange.plan, sent, self.exchange.to_others,
            self.exchange.from_others, sequence, begins, np.zeros(2 * len(sequence)),
        )  # fmt: skip

    def find(self, q: Floats, u: Floats) -> None:
        """Find lengths and rates in a state; all ranks call."""
        find_tendons(self.arrays, q, u)

    def add(self, t: float, tau: Floats) -> None:
        """Add the generalized forces at a time (s) to `tau` [nu], after `find`."""
        if self.functions:
            self.functions.at(t)
            drive_tendons(self.arrays)
        force_of_tendons(self.arrays)
        pull_joints(self.arrays, np.zeros_like(tau), tau)  # whose power nobody asks for

    def resistance(self) -> Floats:
        """Give stiffness and damping [2, m] of each against small changes, where it was found last."""
        found = np.empty((2, len(self.numbers)))
        resist_by_tendons(self.arrays, found[0], found[1])
        return found


def tendons_alone(subchain: Subchain) -> ActingTendons:
    """Give the tendons of a whole system, on one process."""
    return ActingTendons(subchain, np.array([0, subchain.n_bodies]), NoMessages)


def initial_lengths(system: Contents) -> Floats:
    """Give the lengths of the tendons of a system in its initial state, on one process."""
    subchain = Subchain(system)
    tendons = tendons_alone(subchain)
    tendons.find(subchain.q, subchain.u)
    return tendons.arrays.lengths
