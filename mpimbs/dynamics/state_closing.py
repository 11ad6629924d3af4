"""What measures how far the loops of a system are from closed, and closes them.

States are coordinates of the spanning tree; integration lets loops drift apart. What brings them back are changes of
least kinetic energy: of the speeds, - M^-1 J^T m with J u = 0 afterwards, and of the coordinates by Newton's method
with the same matrices [design, section 13; paper 003, section 3]. An evaluation gives M^-1 J^T m beside the
accelerations where the loops are asked for so much more: asked for a multiple so large that the accelerations are
nothing beside it, it gives the change alone.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import SimulationError
from mpimbs.closure.jacobian import displacements
from mpimbs.dynamics import closing as c
from mpimbs.dynamics.closing import CLOSED, LARGE, NOT_LARGE, ROUNDS, SMALLEST_SHARE
from mpimbs.dynamics.divided import DividedSystem
from mpimbs.kernels.calling import address_of
from mpimbs.kernels.memory import Table, rows_of
from mpimbs.loops.apart import count_turns, farthest_end, measure_apart, numbers_at, of_some_loops, round_places
from mpimbs.loops.closing import FOUND
from mpimbs.parallel.agreement import greatest, largest_magnitudes
from mpimbs.parallel.native import channel
from mpimbs.parts.intervals import Intervals

ALIKE = 1e-7  # rad, and m in lengths of the system: so near to closed a step is the least one to its square
CONVERGED = 1e-10  # the same: of the last step to the nearest closed state
FARTHEST = 16.0  # times as far as loops allow of the way there


class StateClosing:
    """Measures and closes the loops of a system; the base of `ClosedLoops`, which see.

    Attributes
    ----------
    seen : array [closing.ALL_SEEN]
        What closing loops after steps has found, and is asked for.
    spent : array [PHASES + 3]
        Time that compiled code has spent to close loops (s): in the phases of evaluations; of these in messages of
        scans, and of couplings; and in all.
    """

    def __init__(self, divided: DividedSystem) -> None:
        part = divided.subchains
        assert isinstance(part, Intervals)
        self._divided, self._part, self._parts = divided, part, part.loops
        self._names = [loop.name for loop in divided.system.loops]
        nq, nu, count = divided.subchain.nq, divided.subchain.nu, len(self._names)
        self._table, self._stopped = of_some_loops(part.measured() for part in self._parts), SimulationError()
        self.seen, self.spent = np.zeros(c.ALL_SEEN), np.zeros(len(divided.evaluation.laps) + 3)
        self._closing = c.Closing(
            self._table.data, np.zeros(4 * count), np.zeros(count), divided.still, np.empty(nq), np.empty(nq),
            np.empty(nu), np.empty(nu), self.seen, np.zeros(0, np.int64),
        )  # fmt: skip

    @property
    def evaluations(self) -> int:
        """Evaluations of the sweeps, to close loops; may be set."""
        return int(self.seen[c.SWEPT])

    @evaluations.setter
    def evaluations(self, count: int) -> None:
        self.seen[c.SWEPT] = count

    @property
    def numbers(self) -> Integers:
        """Which loops of the system have an end on this rank [n]; one may be on two ranks."""
        return np.concatenate([np.zeros(0, np.int64), *(part.numbers for part in self._parts)])

    _stabilised = (0.0, 0.0)  # see `stabilise`

    def violations(self, q: Floats, u: Floats) -> Floats:
        """Measure how far loops are from closed, in positions and in velocities [loops, 2], all of the system's.

        Norms over what their joints constrain: m and rad, m/s and rad/s, together; infinite where they can't be
        measured. The same on all ranks.
        """
        return self.apart(q, u)[0]

    def apart(self, q: Floats, u: Floats) -> tuple[Floats, Floats]:
        """Give `violations`, and the same with meters in units of the loops' sizes: rad, and rad/s [loops, 2] each."""
        found = self.measured(*self._state(q, u))
        return found[:, :2], found[:, 2:]

    def measured(self, q: Floats, u: Floats) -> Floats:
        """Measure both of `apart`, of arrays that were checked [loops, 4]."""
        return self.all_measured(q[None], u[None])[0]

    def all_measured(self, q: Floats, u: Floats) -> Floats:
        """Measure both of `apart` in states [states, nq], [states, nu] that were checked [states, loops, 4]."""
        found = np.zeros((len(q), len(self._names), 4))
        for state, own_q, own_u in zip(found, q, u, strict=True):
            self._divided.measure(own_q, own_u)
            measure_apart(self._table.data, state.reshape(-1))
        return greatest(self._divided.comm, found)

    def roundings(self, q: Floats) -> Floats:
        """How much of positions in units of the loops' sizes [loops] is rounding, as last measured; all ranks call."""
        table, comm, found = self._table.data, self._divided.comm, np.zeros(len(self._names))
        farthest, largest = greatest(comm, np.array([farthest_end(table), np.abs(q).max(initial=0.0)]))
        round_places(table, float(farthest), float(largest), found)
        return greatest(comm, found)

    @functools.cached_property
    def winds(self) -> bool:
        """Whether springs act along angles of loops' joints, on any rank."""
        return bool(self._divided.comm.allreduce(any(part.winds for part in self._parts), MPI.LOR))

    def count_turns(self, q: Floats, u: Floats) -> None:
        """Take angles along loops' joints from here on nearest to those in a state: so turns are counted.

        Of arrays that were checked; all ranks call. From rest at first, by half a turn to either side.
        """
        if self.winds:
            self._divided.measure(q, u)
            count_turns(self._table.data)

    @property
    def wound(self) -> dict[str, list[float]]:
        """Angles from rest (rad), turns counted, of loops with springs along these, by name; all ranks ask together."""
        if not self.winds:
            return {}
        found: dict[int, list[float]] = {}
        for angles in self._divided.comm.allgather([part.wound for part in self._parts]):
            for part in angles:
                found |= part
        return {self._names[k]: found[k] for k in sorted(found)}

    def wind(self, angles: Mapping[str, Sequence[float]]) -> None:
        """Take angles nearest to those that `wound` gave."""
        given = {k: angles[name] for k, name in enumerate(self._names) if name in angles}
        for part in self._parts:
            part.wind(given)

    def stabilise(self, time: float) -> None:
        """Ask of accelerations that violations decay with a time constant (s) [Baumgarte 1972]; 0: no longer."""
        self._stabilised = (2.0 / time, 1.0 / time**2) if time else (0.0, 0.0)
        self._aim(*self._stabilised)

    def _aim(self, speeds: float, places: float, beside: float = 0.0) -> None:
        for part in self._parts:
            part.aim[:FOUND] = speeds, places, beside

    def _change(self, q: Floats, u: Floats, speeds: float, places: float, beside: float = 0.0) -> Floats:
        """The change of least kinetic energy that takes violations of velocities or positions away, or what is asked
        beside [nu]."""
        udot, rates = np.empty_like(u), np.empty_like(q)
        self._aim(LARGE * speeds, LARGE * places, LARGE * beside)
        iterative = self._divided.coupling.iterative
        usual = 0.0 if iterative is None else iterative.contradiction
        try:
            if iterative is not None:  # open loops contradict one another, until they are closed
                iterative.contradiction = 1.0
            self._divided.evaluate_unforced(q, u, udot, rates)
        finally:
            if iterative is not None:
                iterative.contradiction = usual
            self._aim(*self._stabilised)
        return np.where(np.abs(udot) < NOT_LARGE, 0.0, udot / LARGE)

    @functools.cached_property
    def compiled(self) -> tuple[int, Table] | None:
        """Where `closing.close_compiled` is, and its first argument; None where Python has a say. All ranks ask
        together."""
        given = self._divided.evaluation.unforced
        if given is None:
            return None
        self._aims = [part.aim for part in self._parts] or [np.zeros(FOUND + 1)]
        aims = rows_of([numbers_at(aim) for aim in self._aims])
        given |= {"channel": channel(self._divided.comm), "room": np.zeros(max(len(self._closing.found), 2))}
        given |= {"aims": aims, "unit": self._divided.units[1], "spent": self.spent, "sizes": np.zeros(2)}
        self._compiled = Table(c.CompiledClosing(**given))
        table = Table(self._closing._replace(compiled=self._compiled.data))
        q, u = self._closing.q, self._closing.u
        return address_of(c.close_compiled, table.data, q, u, 0), table

    def close(self, q: Floats, u: Floats, within: bool = False) -> None:
        """Close a state after a step, or `within` one, as `seen` asks for it: it is written; all ranks call.

        Raises
        ------
        SimulationError
            On all ranks: Newton's method does not converge, or speeds are no longer finite; it is as it was.
        """
        if self.compiled is not None:
            done = c.close_compiled(self.compiled[1].data, q, u, int(within))
        elif within:
            self._measure(self._closing, q, u)
            done = self._close_state(self._closing, q, u)
        else:
            done = c.close_step.py_func(self._measure, self._close_state, self._sizes, self._closing, q, u)
        if not done:
            raise self.why_open()

    def why_open(self) -> SimulationError:
        """Give why a state could not be closed; the same on all ranks."""
        why = self.seen[c.FAILED]
        if why == c.STOPPED:
            return self._stopped
        found = self._closing.found.reshape(-1, 4)
        if why == c.NOT_FINITE or not np.isfinite(found[:, 0]).all():
            return SimulationError(
                "closing the loops leaves places or speeds that are no longer finite; likely cause: a load that "
                "grows without bound"
            )
        worst = int(np.argmax(found[:, 2] / self._closing.rounding))
        return SimulationError(
            f"the loops don't close: the ends of loop {self._names[worst]!r} stay {found[worst, 0]:.3g} apart (m and "
            "rad); check the positions of its joint on both bodies and the initial coordinates, or whether its links "
            "are long enough"
        )

    def _measure(self, p: c.Closing, q: Floats, u: Floats) -> None:
        p.found[:] = self.measured(q, u).ravel()

    def _rounded(self, p: c.Closing, q: Floats) -> None:
        p.rounding[:] = self.roundings(q)

    def _changed(self, p: c.Closing, q: Floats, u: Floats, speeds: float, places: float) -> bool:
        try:
            p.change[:] = self._change(q, u, speeds, places)
        except SimulationError as error:
            # What redundant constraints leave is rounding, which nothing takes away.
            if not places and self.measured(q, u)[:, 3].max(initial=0.0) <= CLOSED * self._divided.largest_speed(u):
                p.change[:] = 0.0
                return True
            self._stopped, p.seen[c.FAILED] = error, c.STOPPED
            return False
        return True

    def _displace(self, p: c.Closing, share: float, q: Floats) -> None:
        q[:] = self._divided.subchain.displaced(p.begin, share * p.change)

    def _sizes(self, p: c.Closing, u: Floats) -> tuple[float, float]:
        most, change = largest_magnitudes(
            self._divided.comm, u / self._divided.units[1], (u - p.u) / self._divided.units[1]
        )
        return float(most), float(change)

    def _close_places(self, p: c.Closing, q: Floats) -> bool:
        return bool(c.close_places.py_func(self._measure, self._changed, self._displace, p, q))

    def _close_state(self, p: c.Closing, q: Floats, u: Floats) -> bool:
        return bool(c.close_state.py_func(self._rounded, self._close_places, self._changed, p, q, u))

    def close_speeds(self, q: Floats, u: Floats) -> Floats:
        """Give the speeds [nu] nearest to `u` that the loops allow, by kinetic energy.

        What is left where constraints hardly differ is taken away as well, as long as that halves it.
        """
        q, u = self._state(q, u)
        allowed, least, largest = u, np.inf, self._divided.largest_speed(u)
        for number in range(ROUNDS):
            self.seen[c.SWEPT] += 1
            if not self._changed(self._closing, q, u, 1.0, 0.0):
                raise self.why_open()
            u = u + self._closing.change
            left = self.measured(q, u)[:, 3].max(initial=0.0)
            if number and not left < 0.5 * least:
                break
            allowed, least = u, left
            if left <= CLOSED * largest:
                break
        return allowed

    def close_places(self, q: Floats, nearest: bool = False) -> Floats:
        """Give coordinates [nq] near `q` with which the loops are closed, by Newton's method.

        A state that is closed to rounding stays as it is, wherever it stands. `nearest`: each step leads back towards
        `q`, see `nearest_places`.

        Raises
        ------
        SimulationError
            On all ranks: it does not converge; with the loop that is farthest from closed, and its distance.
        """
        p, given = self._closing, self._state(q, self._divided.still)[0]
        q = given.copy()

        def towards(p: c.Closing, q: Floats, u: Floats, speeds: float, places: float) -> bool:
            way = self._way(q, given)
            if not self._changed(p, q, way, 1.0, places):
                return False
            p.change[:] += way
            return True

        self._measure(p, q, p.still)
        self._rounded(p, q)
        change = towards if nearest else self._changed
        if not c.close_places.py_func(self._measure, change, self._displace, p, q):
            raise self.why_open()
        return q

    def nearest_places(self, given: Floats) -> Floats:
        """Give the closed coordinates [nq] that are nearest to `given` ones by kinetic energy.

        A step of Newton's method is the least one alone: wrong by its square, and where loops are open that of
        whichever of redundant constraints is left in, of which it is another on other ranks. So each step begins with
        the way back to where the first one began, and once the loops are closed they move as they allow, until nothing
        leads nearer. It is a local minimum; where steps don't lead there, what they reach. Raises as `close_places`.
        """
        try:
            q = self.close_places(given, nearest=True)
        except SimulationError:
            q = self.close_places(given)
        units, comm = self._divided.units[1], self._divided.comm
        best, move, least, share = q, np.zeros(len(units)), np.inf, 1.0
        for _ in range(ROUNDS):
            way = self._way(q, given)
            if self._divided.largest_speed(way) <= ALIKE:
                return q
            self.seen[c.SWEPT] += 1
            try:
                allowed = way + self._change(q, way, 1.0, 0.0)
            except SimulationError:  # of redundant constraints, or a singular position
                break
            most = self._divided.largest_speed(allowed)
            if least <= CONVERGED and not most <= 0.5 * least:
                break
            if most < least:
                before, now = move / units, allowed / units
                square, product = comm.allreduce(np.array([before @ before, before @ now]))
                share *= square / (square - product) if square > product else 1.0  # [Barzilai & Borwein 1988]
                best, move, least, share = q, allowed, most, min(share, FARTHEST)
            elif share > SMALLEST_SHARE:
                share *= 0.5
            else:
                break
            try:
                q = self.close_places(self._divided.subchain.displaced(best, share * move))
            except SimulationError:
                q = best
        return best

    def _way(self, q: Floats, given: Floats) -> Floats:
        """The displacement [nu] (rad, m) from coordinates to `given` ones."""
        return displacements(self._divided.subchain.columns, q, given)

    def _state(self, q: Floats, u: Floats) -> tuple[Floats, Floats]:
        return self._divided.agreed(q, u)[:2]
