"""Extremes of all steps, which samples miss: the smallest and the largest of each number, and when that was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats, Integers
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.quantities import QUANTITIES
from mpimbs.files.output_layout import KINETIC, MAGNITUDES
from mpimbs.model import JOINT_TYPES


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
