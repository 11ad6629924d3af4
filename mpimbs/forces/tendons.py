"""Tendons over joints: their lengths, of the joints of all ranks, and what they do to those of a rank.

Each rank of a tendon sums up what its joints are of the length, and tells the others: all add the same numbers in the
same sequence, and find the same force.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mpimbs.forces.springs import MakeExchange
from mpimbs.model.text.table import TimeFunction
from mpimbs.parts.subchain import Subchain

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class ActingTendons:
    """The tendons over joints of a subchain; see `mpimbs.model.tendon.Tendon`.

    Parameters
    ----------
    subchain : Subchain
    cuts : array [P + 1]
        Rank r owns bodies cuts[r] to cuts[r + 1] - 1.
    make : callable
        See `ActingSprings`.

    Attributes
    ----------
    exchange : Messages
    lengths, rates : array [m]
        Of those that have joints here, as found last.
    """

    def __init__(self, subchain: Subchain, cuts: Integers, make: MakeExchange) -> None:
        system, c = subchain.system, subchain.columns
        over = [
            (tendon, np.array([system.index_of(name) for name in tendon.joints]))
            for tendon in system.loads.tendons.values()
        ]
        first, last = subchain.first, subchain.last
        here = [(tendon, bodies) for tendon, bodies in over if np.any((bodies >= first) & (bodies < last))]
        self.tendons = [tendon for tendon, _ in here]
        of = np.repeat(np.arange(len(here)), [len(bodies) for _, bodies in here])
        numbers = np.concatenate([np.zeros(0, np.int64), *(bodies for _, bodies in here)])
        ratios = np.concatenate([np.zeros(0), *(tendon.ratios for tendon in self.tendons)])
        mine = (numbers >= first) & (numbers < last)
        self.of, self.ratios = of[mine], ratios[mine]
        self.speeds = c.u_offset[numbers[mine] - first]
        self._places = c.q_offset[numbers[mine] - first]
        # Each other rank of a tendon, once; what it sends is behind what this one has.
        owners = np.searchsorted(cuts, numbers[~mine], side="right") - 1
        others = np.unique(np.column_stack((owners, of[~mine])), axis=0)
        self._sent = others[:, 1]
        counts = {rank: 2 * int(np.count_nonzero(others[:, 0] == rank)) for rank in np.unique(others[:, 0]).tolist()}
        self.exchange = make(counts, counts)
        me = int(np.searchsorted(cuts, first, side="right")) - 1 if len(here) else 0
        ranks = np.append(np.full(len(here), me), others[:, 0])
        whose = np.append(np.arange(len(here)), others[:, 1])
        self._sequence = np.lexsort((ranks, whose))  # of what is added up, by tendons, each by ranks
        self._begins = np.searchsorted(whose[self._sequence], np.arange(len(here)))
        self._stretch = np.zeros((len(here), 2))
        given = [(t.stiffness, t.damping, t.rest, t.least, t.most) for t in self.tendons]
        self._stiffness, self._damping, self._rest, self._least, self._most = np.array(given).reshape(-1, 5).T
        self._force = np.array([0.0 if callable(t.force) else t.force for t in self.tendons])
        self._functions = [(k, t.force) for k, t in enumerate(self.tendons) if callable(t.force)]

    def find(self, q: Floats, u: Floats) -> None:
        """Find lengths and rates in a state; all ranks call."""
        own = np.zeros_like(self._stretch)
        np.add.at(own[:, 0], self.of, self.ratios * q[self._places])
        np.add.at(own[:, 1], self.of, self.ratios * u[self.speeds])
        self.exchange.to_others[:] = own[self._sent].ravel()
        self.exchange()
        if len(own):
            told = np.concatenate([own, self.exchange.from_others.reshape(-1, 2)])[self._sequence]
            self._stretch = np.add.reduceat(told, self._begins)

    @property
    def lengths(self) -> Floats:
        return self._stretch[:, 0]

    @property
    def rates(self) -> Floats:
        return self._stretch[:, 1]

    def forces(self, value: Callable[[TimeFunction, str], Floats]) -> tuple[Floats, Floats]:
        """Give the force of each, and what of its stiffness resists there [m], after `find`.

        `value` calls a function of the time, of a subject.
        """
        for k, function in self._functions:
            self._force[k] = value(function, f"tendon '{self.tendons[k].name}'")[0]
        asked = self._force - self._stiffness * (self.lengths - self._rest) - self._damping * self.rates
        free = (asked > self._least) & (asked < self._most)
        return np.clip(asked, self._least, self._most), np.where(free, self._stiffness, 0.0)

    def add(self, value: Callable[[TimeFunction, str], Floats], tau: Floats) -> None:
        """Add the generalized forces to `tau` [nu], after `find`."""
        np.add.at(tau, self.speeds, self.ratios * self.forces(value)[0][self.of])
