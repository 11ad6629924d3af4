"""What a run adds up over all its steps: extremes of numbers, which samples miss, and integrals of rates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.instants import States
from mpimbs.dynamics.quantities import QUANTITIES, Quantity
from mpimbs.files.output_layout import KINETIC, MAGNITUDES
from mpimbs.model import JOINT_TYPES
from mpimbs.stepping.integrator import Integrator, Moment


class Peak(NamedTuple):
    """The most extreme of all numbers of a kind."""

    value: float
    kind: str
    unit: str
    body: str  # of whose inboard joint it is
    time: float  # s


@dataclass
class ExtremesState:
    """The extremes of the steps so far: four rows of the kinetic energy, and of each quantity's numbers."""

    kinetic: list[float]
    rows: dict[str, Floats]


class Extremes:
    """Takes the state after every step; all ranks make it together and call.

    Parameters
    ----------
    loads : bool
        Take the joint loads too: the tension, negative for a push, and the magnitude of the moment.

    Attributes
    ----------
    found : dict of arrays [4, n]
        By quantity: the rows `EXTREMES` of this rank's numbers; of the kinetic energy the same on all ranks.
    time : float
        Of the last state (s).
    """

    def __init__(self, dynamics: Dynamics, loads: bool) -> None:
        self._dynamics, self.time = dynamics, np.nan
        subchain = dynamics.subchain
        sizes = {"q": subchain.nq, "u": subchain.nu, KINETIC: 1}
        sizes |= dict.fromkeys(MAGNITUDES, subchain.n_bodies) if loads else {}
        start = np.array([np.inf, np.nan, -np.inf, np.nan])
        self.found = {name: np.repeat(start[:, None], size, axis=1) for name, size in sizes.items()}

    def take(self, t: float, q: Floats, u: Floats, kinetic: float, loads: Floats | None) -> None:
        """Take a state, its kinetic energy (J) and joint loads [n, 6] at time `t` (s)."""
        self.time = t
        values: dict[str, Any] = {"q": q, "u": u, KINETIC: kinetic}
        if loads is not None:
            centers = self._dynamics.subchain.columns.center_of_mass
            values |= {name: found[1](loads, centers) for name in MAGNITUDES if (found := QUANTITIES[name].derived)}
        for name, value in values.items():
            least, least_time, most, most_time = self.found[name]
            for beyond, extreme, when in ((value < least, least, least_time), (value > most, most, most_time)):
                np.copyto(extreme, value, where=beyond)
                np.copyto(when, t, where=beyond)

    def own(self) -> dict[str, Floats]:
        """Give what was found, each number on one rank only: blocks of the model's order; all ranks call."""
        order, first = self._dynamics.divided.model_order, self._dynamics.comm.rank == 0
        kinds = {"q": "q", "u": "u"} | dict.fromkeys(MAGNITUDES, "body")
        return {
            name: order[kinds[name]](rows.T).T if name in kinds else rows[:, : int(first)]
            for name, rows in self.found.items()
        }

    @property
    def state(self) -> ExtremesState:
        """The state that the steps leave to the next."""
        rows = {name: rows for name, rows in self.found.items() if name != KINETIC}
        return ExtremesState(self.found[KINETIC][:, 0].tolist(), rows)

    def go_on(self, state: ExtremesState) -> None:
        """Go on from what others left."""
        self.found = state.rows | {KINETIC: np.array(state.kinetic)[:, None]}

    def told(self) -> str:
        """The largest magnitudes, and on which bodies, in a line; all ranks call."""
        least, _, most, time = self.found[KINETIC][:, 0]
        parts = [f"{p.kind} {p.value:.4g} {p.unit} ('{p.body}', t = {p.time:.4g} s)" for p in self.peaks()]
        energy = f"kinetic energy {least:.4g} to {most:.4g} J (t = {time:.4g} s)"
        return "extremes of all steps: " + ", ".join([*parts, energy])

    def peaks(self) -> list[Peak]:
        """The largest magnitude of every kind of quantity among all ranks; all ranks call."""
        c, mine = self._dynamics.subchain.columns, {}
        for name, offset, units in (("q", c.q_offset, "q_units"), ("u", c.u_offset, "u_units")):
            least, least_time, most, most_time = self.found[name]
            values = np.maximum(np.abs(least), np.abs(most))
            times = np.where(-least > most, least_time, most_time)
            of_numbers = _units(c.joint_type, offset, units)
            bodies = np.repeat(np.arange(c.n), np.diff(offset))
            for unit in _KINDS:
                at = np.flatnonzero(of_numbers == unit)
                if len(at):
                    k = at[np.argmax(values[at])]
                    mine[unit] = self._peak(values[k], _KINDS[unit], unit, bodies[k], times[k])
        for name in MAGNITUDES:
            if name in self.found and c.n:
                least, least_time, most, most_time = self.found[name]
                k = int(np.argmax(np.maximum(np.abs(least), np.abs(most))))
                value, time = (least, least_time) if -least[k] > most[k] else (most, most_time)
                mine[name] = self._peak(value[k], name, QUANTITIES[name].unit, k, time[k])
        of_ranks = self._dynamics.comm.allgather(mine)
        keys = [key for key in (*_KINDS, *MAGNITUDES) if any(key in peaks for peaks in of_ranks)]
        return [max((p[key] for p in of_ranks if key in p), key=lambda peak: abs(peak.value)) for key in keys]

    def _peak(self, value: float, kind: str, unit: str, body: int, time: float) -> Peak:
        return Peak(float(value), kind, unit, self._dynamics.subchain.name_of(body), float(time))


_KINDS = {"rad": "|angle|", "m": "|displacement|", "rad/s": "|angular speed|", "m/s": "|speed|"}


def _units(joint_type: npt.NDArray[np.int8], offset: Integers, which: str) -> npt.NDArray[np.str_]:
    """Unit of every number of q or u; "1" of a quaternion's."""
    found = np.full(int(offset[-1]), "1", dtype="U5")
    for index in np.unique(joint_type):
        units = getattr(JOINT_TYPES[index], which)
        places = offset[:-1][joint_type == index, None] + np.arange(len(units))
        found[places] = np.array(units, dtype="U5")
    return found


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
    sampled : callable
        Gives what is known of a moment at a time (s).
    state : dict of str to IntegralState
        By name what those before have left.
    comm : MPI.Comm
        Of the ranks that step together.
    """

    def __init__(
        self,
        quantities: Sequence[Quantity],
        sampled: Callable[[float, Moment], States],
        state: dict[str, IntegralState],
        comm: MPI.Comm,
    ) -> None:
        self._comm = comm
        self._quantities, self._sampled, self.state = quantities, sampled, state
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
        at, found = self._sampled(t, moment), {}
        for each in self._quantities:
            take = QUANTITIES[each.integral_of].take
            assert take is not None
            found[each.name] = take(at)[0]
        return found

    def at(self, name: str, t: float) -> Floats:
        """Give an integral up to a time (s), in the last step or at its end."""
        return self.state[name].value if t >= self._time else self._steps[name](t)
