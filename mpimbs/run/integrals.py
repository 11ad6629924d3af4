"""Integrals of quantities over the steps of a run, such as the work of joints from their power."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.dynamics.quantities import QUANTITIES, Instant, Quantity
from mpimbs.stepping.integrator import Integrator, Moment


@dataclass
class IntegralState:
    """An integral over the steps so far [n], and its rate where the next one begins: what another run goes on from."""

    value: Floats
    rate: Floats


def same_forces(comm: MPI.Comm, one: Floats | None, other: Floats | None) -> bool:
    """Whether the same forces are held on joints of all ranks, which all call; None of none, on all of them."""
    if one is None or other is None:
        return one is other
    return bool(comm.allreduce(np.array_equal(one, other), MPI.LAND))


class _Step:
    """An integral over one step: from its rates at the begin, halfway and at the end, by Simpson's rule."""

    def __init__(self, begin: float, size: float, value: Floats, rates: tuple[Floats, Floats, Floats]) -> None:
        self._begin, self._size, self._value, self._rates = begin, size, value, rates

    def __call__(self, t: float) -> Floats:
        """Give the integral up to a time (s) in the step."""
        share, (first, half, last) = (t - self._begin) / self._size, self._rates
        slope, curve = -3.0 * first + 4.0 * half - last, 2.0 * first - 4.0 * half + 2.0 * last
        return self._value + self._size * share * (first + share * (slope / 2.0 + share * curve / 3.0))


class Integrals:
    """Integrates quantities over steps; all ranks make it together and call.

    Of the order of Simpson's rule (4), or of the steps if that is less, where the integrator knows states between the
    ends of its steps, else of that of the trapezium (2). It takes an evaluation, or two, more a step.

    Parameters
    ----------
    quantities : sequence of Quantity
        That are integrals of others, with a number for each of this rank's bodies.
    instant : callable
        Gives the state of a moment at a time (s).
    state : dict of str to IntegralState
        By name what those before have left.
    comm : MPI.Comm
        Of the ranks that step together.
    """

    def __init__(
        self,
        quantities: Sequence[Quantity],
        instant: Callable[[float, Moment], Instant],
        state: dict[str, IntegralState],
        comm: MPI.Comm,
    ) -> None:
        self._comm = comm
        self._quantities, self._instant, self.state = quantities, instant, state
        self._time, self._moment = np.nan, Moment(np.zeros(0), np.zeros(0), None, 0.0, 0.0, 0.0)
        self._steps: dict[str, _Step] = {}

    def begin(self, stepper: Integrator) -> None:
        """Begin, or go on, where an integrator is now, whose steps are taken from here on."""
        if not self._quantities:
            return
        self._keep(stepper.time, stepper.at(stepper.time))
        if any(each.name not in self.state or not self.state[each.name].rate.size for each in self._quantities):
            for name, rate in self._rates(self._time, self._moment).items():
                known = self.state.get(name)
                self.state[name] = IntegralState(np.zeros_like(rate) if known is None else known.value, rate)

    def take(self, stepper: Integrator) -> None:
        """Take the step that was made, if there was one."""
        begin, end, before = self._time, stepper.time, self._moment
        if end == begin or not self._quantities:
            return
        now = stepper.at(end)
        if not same_forces(self._comm, before.held, now.held):  # which act since the step began
            for name, rate in self._rates(begin, before._replace(held=now.held)).items():
                self.state[name].rate = rate
        middle = 0.5 * (begin + end)
        halfway = self._rates(middle, stepper.at(middle)) if stepper.between else {}
        for name, last in self._rates(end, now).items():
            state = self.state[name]
            half = halfway.get(name, 0.5 * (state.rate + last))
            step = self._steps[name] = _Step(begin, end - begin, state.value, (state.rate, half, last))
            self.state[name] = IntegralState(step(end), last)
        self._keep(end, now)

    def _keep(self, t: float, moment: Moment) -> None:
        """Keep where the next step begins, with the forces that are held now, which others write over."""
        self._time = t
        self._moment = moment._replace(held=None if moment.held is None else moment.held.copy())

    def _rates(self, t: float, moment: Moment) -> dict[str, Floats]:
        """Give the rates that are integrated, by the name of the integral, at a time (s)."""
        at, found = self._instant(t, moment), {}
        for each in self._quantities:
            take = QUANTITIES[each.integral_of].take
            assert take is not None
            found[each.name] = take(at)
        return found

    def at(self, name: str, t: float) -> Floats:
        """Give an integral up to a time (s), in the last step or at its end."""
        return self.state[name].value if t >= self._time else self._steps[name](t)
