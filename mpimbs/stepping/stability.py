"""How near the steps are to the largest stable one, from the fastest motion that the equations have.

The fastest motion is the eigenvector of the state derivative's Jacobian with the largest eigenvalue. Arnoldi's
iteration finds it, by a few products now and then, each one evaluation at a state beside that of the step: this costs a
hundredth of a run, goes on from where it was before, and changes nothing of the motion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import HaltError
from mpimbs.dynamics import Dynamics
from mpimbs.parallel.agreement import largest_magnitudes, together
from mpimbs.stepping.schemes import stable_radius

FIRST = 250  # evaluations before the first products
FEWEST, MOST = 5000, 20000  # from then on: as many as before, within these
PRODUCTS = 5, 3  # at first, and from the vector of the time before
ANGLE = 1e-7  # of the largest coordinate (rad, m) by which a state beside another differs
SPEED = 1e-4  # of the largest speed, over the largest speed of the state and 1 rad/s


class Mode(NamedTuple):
    """An eigenvalue of the Jacobian."""

    rate: float  # its magnitude (1/s)
    direction: float  # its angle from the positive real axis (rad), 0 to pi


@dataclass
class ProbeState:
    """The findings of a probe, which another one goes on from."""

    due: int  # evaluations before the next products
    largest_step: float  # the largest stable step (s)
    mode: Mode | None  # the fastest motion
    q_mode: Floats  # [nq]: its shape, this rank's parts
    u_mode: Floats  # [nu]


class StabilityProbe:
    """Compares steps with the largest stable one; all ranks make it together and call.

    Parameters
    ----------
    polynomial : array
        R(z) of the scheme, lowest coefficient first; see `Tableau.polynomial`.
    state : ProbeState, optional
        Go on from that of another one.
    """

    def __init__(self, dynamics: Dynamics, polynomial: Floats, state: ProbeState | None = None) -> None:
        self._dynamics = dynamics
        self._polynomial = polynomial
        self._nq, nu = dynamics.subchain.nq, dynamics.subchain.nu
        self._vector = np.random.default_rng(dynamics.comm.rank).standard_normal(self._nq + nu)
        self._due = FIRST
        self.mode: Mode | None = None  # the fastest motion, as last found
        self.largest_step = np.inf  # the largest stable step there (s)
        self._halt: HaltError | None = None
        if state is not None:
            self._due, self.largest_step, self.mode = state.due, state.largest_step, state.mode
            self._vector = np.concatenate([state.q_mode, state.u_mode])

    @property
    def state(self) -> ProbeState:
        """The findings so far."""
        return ProbeState(self._due, self.largest_step, self.mode, *np.split(self._vector, [self._nq]))

    def due(self) -> bool:
        """Whether there have been enough evaluations since the last products."""
        return self._dynamics.derivative.evaluations >= self._due

    @property
    def evaluations_left(self) -> int:
        """How many evaluations there are before it is due."""
        return max(self._due - self._dynamics.derivative.evaluations, 1)

    def look(self, t: float, q: Floats, u: Floats) -> None:
        """Find the fastest motion and the largest stable step at a state; without success they stay as they are."""
        with np.errstate(all="ignore"), self._dynamics.derivative.uncounted():
            found = self._find(t, q, u)
        self._due += int(np.clip(self._due, FEWEST, MOST))
        if found is not None:
            self.mode = found
            self.largest_step = stable_radius(self._polynomial, found.direction) / found.rate

    def fastest_body(self) -> str:
        """Name of the body whose joint moves most in the fastest motion; all ranks call."""
        subchain = self._dynamics.subchain
        speeds = np.abs(self._vector[self._nq :])
        mine = (-1.0, "")
        if len(speeds):
            k = int(np.searchsorted(subchain.columns.u_offset, np.argmax(speeds), side="right")) - 1
            mine = (float(speeds.max()), subchain.name_of(k))
        return max(self._dynamics.comm.allgather(mine))[1]

    def _find(self, t: float, q: Floats, u: Floats) -> Mode | None:
        """The largest eigenvalue that shows in products of the vector with the Jacobian, by Arnoldi's iteration.

        Coordinates are scaled by the rate of the motion, so that they count as much as the speeds.
        """
        self._halt = None
        self._state = t, q, u, self._derivative(t, q, u), largest_magnitudes(self._dynamics.comm, u)[0]
        rate = self._rough_rate() if self.mode is None else self.mode.rate
        count = PRODUCTS[self.mode is not None]
        scale = np.repeat([rate, 1.0], [self._nq, len(u)])
        basis, h = np.empty((count + 1, len(scale))), np.zeros((count + 1, count))
        np.multiply(scale, self._vector, out=basis[0])
        basis[0] /= np.sqrt(self._products(basis[:1])[0])
        for k in range(count):
            np.multiply(scale, self._times_jacobian(basis[k] / scale), out=basis[k + 1])
            products = self._products(basis[: k + 2])
            h[: k + 1, k], square = products[:-1], products[-1]
            rest = square - h[: k + 1, k] @ h[: k + 1, k]
            if not rest > 1e-12 * square:  # nothing new; or NaN
                break
            h[k + 1, k] = np.sqrt(rest)
            basis[k + 1] -= h[: k + 1, k] @ basis[: k + 1]
            basis[k + 1] /= h[k + 1, k]
        if not np.isfinite(h).all():
            together(self._dynamics.comm, self._end_if_halted)
            return None
        values, vectors = np.linalg.eig(h[: k + 1, : k + 1])
        top = int(np.argmax(np.abs(values)))
        if values[top] == 0.0:
            return None
        self._vector = np.real(vectors[:, top]) @ basis[: k + 1] / scale
        return Mode(float(abs(values[top])), float(abs(np.angle(values[top]))))

    def _end_if_halted(self) -> None:
        if self._halt is not None:
            raise self._halt

    def _rough_rate(self) -> float:
        """Rate of the fastest motion (1/s) from what two products make of random speeds; 1 if nothing."""
        n, before = self._nq, self._times_jacobian(self._vector)
        after = self._times_jacobian(self._times_jacobian(before))
        self._vector = after
        sizes = largest_magnitudes(self._dynamics.comm, before[n:], after[n:])
        with np.errstate(all="ignore"):
            rate = np.sqrt(sizes[1] / sizes[0])
        return float(rate) if 0.0 < rate < np.inf else 1.0

    def _times_jacobian(self, vector: Floats) -> Floats:
        """The Jacobian times a vector, from the difference of two derivatives."""
        t, q, u, here, state_speed = self._state
        n = self._nq
        angle, speed = largest_magnitudes(self._dynamics.comm, vector[:n], vector[n:])
        scale = max(angle / ANGLE, speed / (SPEED * (1.0 + state_speed)))
        beside = vector / scale
        return (self._derivative(t, q + beside[:n], u + beside[n:]) - here) * scale

    def _products(self, vectors: Floats) -> Floats:
        """Scalar products of vectors [any, nq + nu] with the last one of them, over all ranks."""
        found: Floats = vectors @ vectors[-1]
        if self._dynamics.comm.size > 1:
            self._dynamics.comm.Allreduce(MPI.IN_PLACE, found)
        return found

    def _derivative(self, t: float, q: Floats, u: Floats) -> Floats:
        rates = np.empty(len(q) + len(u))
        failure = self._dynamics.derivative.evaluate(t, q, u, rates[len(q) :], rates[: len(q)]).failure
        if failure is not None:  # of this rank's functions; the steps tell of it, if it matters
            rates[:] = np.nan
            self._halt = failure if isinstance(failure, HaltError) else self._halt
        return rates
