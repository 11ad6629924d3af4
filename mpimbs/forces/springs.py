"""Springs between points of bodies: their tensions, and the forces that they put on the bodies of a rank.

Both ranks of a spring whose bodies are on two of them find its tension, from the same numbers: what travels is where
points are and how they move.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numba
import numpy as np
from numba.core.dispatcher import Dispatcher

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import LoadNotFiniteError, warn_caller
from mpimbs.forces.calls import ByPython, called, entered, shaped
from mpimbs.kernels.calling import CallBack, call_at, call_back
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Table, read, schema
from mpimbs.kernels.tuples import load3, store_numbers
from mpimbs.model import Spring
from mpimbs.model.contents import Contents
from mpimbs.model.spring import SpringFunction
from mpimbs.parallel.exchange import swap
from mpimbs.parts.subchain import AT_REST, Subchain
from mpimbs.spatial.vectors import dot3, scale3, sub3
from mpimbs.sweep.motion import add_loads, ends_of_springs

STIFFNESS, DAMPING, REST, TENSION_ONLY, LAW = range(5)  # what a spring is; the last is their number
LENGTH, RATE, ELASTIC, TENSION, FOUND = range(5)  # what is found of one; the last is their number


@kernel
def spring_tensions(zero, ends, pairs, laws, found, directions):
    """Write length (m), its rate (m/s), the elastic part of the tension and the tension (N) of springs, and directions.

    With the length l: elastic = k (l - rest), tension = elastic + d dl/dt. A rope has none where l <= rest, and no
    negative one. Where the points coincide, the direction is zero.

    Parameters
    ----------
    ends : array [points * 6]
        Positions and velocities (m, m/s).
    pairs : int64 array [n * 2]
        The two points of each spring.
    laws : array [n * LAW]
    found : array [n * FOUND]
        Written.
    directions : array [n * 3]
        Written: unit vectors from the first point to the second.
    """
    for k in range(pairs.size // 2):
        first, second = 6 * pairs[2 * k], 6 * pairs[2 * k + 1]
        across = sub3(load3(zero, ends, second), load3(zero, ends, first))
        apart = sub3(load3(zero, ends, second + 3), load3(zero, ends, first + 3))
        length = np.sqrt(dot3(across, across))
        direction = scale3(1.0 / length, across) if length > 0.0 else (zero, zero, zero)
        rate = dot3(direction, apart)
        law = LAW * k
        elastic = laws[law + STIFFNESS] * (length - laws[law + REST])
        tension = elastic + laws[law + DAMPING] * rate
        if laws[law + TENSION_ONLY] != 0.0:
            elastic = max(elastic, 0.0)
            tension = max(tension, 0.0) if length > laws[law + REST] else 0.0
        store_numbers(zero, found, FOUND * k, (length, rate, elastic, tension))
        store_numbers(zero, directions, 3 * k, direction)


@kernel
def pulls(zero, springs, signs, found, directions, force):
    """Write the force [n * 3] on each end of springs: `signs` [n] is 1 for a first end and -1 for a second.

    `springs` [n] says of which spring it is an end; `found` and `directions` are as `spring_tensions` wrote them.
    """
    for j in range(springs.size):
        k = springs[j]
        tension = signs[j] * found[FOUND * k + TENSION]
        store_numbers(zero, force, 3 * j, scale3(tension, load3(zero, directions, 3 * k)))


class SpringArrays(NamedTuple):
    """The springs of a rank, as compiled code reads them, and what it finds of each."""

    steps: Integers  # [ends]: that carry the ends here
    points: Floats  # [ends * 3]: in their frames (m)
    ends: Floats  # [points * 6]: positions and velocities (m, m/s), written
    pairs: Integers  # [n * 2]: the two points of each
    laws: Floats  # [n * LAW]
    found: Floats  # [n * FOUND], written
    directions: Floats  # [n * 3], written
    of: Integers  # [ends]: of which spring each is
    signs: Floats  # [ends]: 1 of a first end, -1 of a second
    force: Floats  # [ends * 3], written (N)
    no_moment: Floats  # [ends * 3]
    counted: Integers  # [n]: 1 where this rank counts its energy
    untold: Integers  # [n]: 1 where it is yet to be told that points coincide, 2 where that was seen
    exchange: Integers  # table of the messages to other ranks; empty where there are none
    sent: Integers  # [away]: the ends that go there
    away: Integers  # [away]: the points that come from there
    to_others: Floats  # [away * 6]
    from_others: Floats  # [away * 6]


_NO, _NONE = np.zeros(0, np.int64), np.zeros(0)
NO_SPRINGS = SpringArrays(
    _NO, _NONE, _NONE, _NO, _NONE, _NONE, _NONE, _NO, _NONE, _NONE, _NONE, _NO, _NO, _NO, _NO, _NO, _NONE, _NONE
)


@kernel
def see_ends(springs, motion):
    """Write where points are, given the motions of the steps [m * BOUNDARY]; all ranks call."""
    ends_of_springs(0.0, motion, springs.steps, springs.points, springs.ends)
    if springs.exchange.size > 0:
        for k in range(springs.sent.size):
            for i in range(6):
                springs.to_others[6 * k + i] = springs.ends[6 * springs.sent[k] + i]
        swap(springs.exchange)
        for k in range(springs.away.size):
            for i in range(6):
                springs.ends[6 * springs.away[k] + i] = springs.from_others[6 * k + i]


@kernel
def find_tensions(springs):
    """Write what is found of all springs, from where their points are."""
    spring_tensions(0.0, springs.ends, springs.pairs, springs.laws, springs.found, springs.directions)


@kernel
def pull_bodies(springs, motion, wrench):
    """Add the tensions found to the wrenches on steps [m * 6]; gives the first end whose load is not finite, or -1."""
    pulls(0.0, springs.of, springs.signs, springs.found, springs.directions, springs.force)
    return add_loads(0.0, motion, springs.steps, springs.points, springs.no_moment, springs.force, wrench)


@kernel
def resist_by_springs(springs, numbers, follow_laws, found, resistance):
    """Write stiffness and damping [2 * n] along the lengths of springs, after `see_ends`: none of slack ropes.

    `numbers` [here] are theirs among the n, `follow_laws` whether a spring is one to write of, and `found` is room.
    """
    spring_tensions(0.0, springs.ends, springs.pairs, springs.laws, found, springs.directions)
    for k in range(numbers.size):
        slack = springs.laws[LAW * k + TENSION_ONLY] != 0.0 and found[FOUND * k + TENSION] <= 0.0
        if follow_laws[k] != 0 and not slack:
            resistance[2 * numbers[k]] = springs.laws[LAW * k + STIFFNESS]
            resistance[2 * numbers[k] + 1] = springs.laws[LAW * k + DAMPING]


@kernel
def pull_by_one(springs, numbers, spring, motion, wrench):
    """Add what 1 N of tension in one spring, by its number, does to the steps [m * 6], after `resist_by_springs`."""
    for j in range(springs.of.size):
        k = springs.of[j]
        pull = springs.signs[j] if numbers[k] == spring else 0.0
        store_numbers(0.0, springs.force, 3 * j, scale3(pull, load3(0.0, springs.directions, 3 * k)))
    add_loads(0.0, motion, springs.steps, springs.points, springs.no_moment, springs.force, wrench)


@kernel
def power_of_springs(springs):
    """Power (W) of springs on the ends here, less what goes into the energy of those that this rank counts."""
    power = 0.0
    for j in range(springs.of.size):
        at = springs.of[j]
        along = dot3(load3(0.0, springs.directions, 3 * at), load3(0.0, springs.ends, 6 * j + 3))
        power += springs.signs[j] * springs.found[FOUND * at + TENSION] * along
    for k in range(springs.counted.size):
        if springs.counted[k] != 0:
            power += springs.found[FOUND * k + ELASTIC] * springs.found[FOUND * k + RATE]
    return power


class SpringFunctionPlan(NamedTuple):
    """Arguments of a function of springs in compiled code."""

    entry: int  # address of what calls a compiled function; 0 where Python calls it
    asked: int  # address of what calls it then
    which: Integers  # its springs


_FUNCTION = schema(SpringFunctionPlan)


@kernel
def call_function_of_springs(plan, t, springs):
    """Write the tensions that a function gives to what is found; gives whether it has not failed."""
    f = read(plan, _FUNCTION)
    return call_at(f.entry, (f.which, springs.found)) if f.entry != 0 else call_back(f.asked, t)


@kernel
def see_coincidence(springs):
    """Mark the springs yet to be told of whose points coincide."""
    for k in range(springs.untold.size):
        if springs.untold[k] != 0 and springs.found[k * FOUND + LENGTH] == 0.0:
            springs.untold[k] = 2


class Messages(Protocol):
    """Messages to and from other ranks: `parallel.exchange.Exchange`."""

    plan: Integers
    to_others: Floats
    from_others: Floats

    @property
    def clock(self) -> Floats: ...

    def close(self) -> None: ...


MakeExchange = Callable[[Mapping[int, int], Mapping[int, int]], Messages]


class ActingSprings:
    """The springs between bodies that have an end on a subchain.

    Parameters
    ----------
    cuts : array [P + 1]
        Rank r owns bodies cuts[r] to cuts[r + 1] - 1.
    make : callable
        Makes an exchange of the doubles sent to, and received from, other ranks; all ranks call.

    Attributes
    ----------
    springs : list of Spring
    numbers : array of int
        Theirs, in the system.
    exchange : Messages
    arrays : SpringArrays
    given : list of (function, array of int)
        The functions that give tensions, and of which springs.
    called : list of CallBack
        They.
    """

    def __init__(self, subchain: Subchain, cuts: Integers, make: MakeExchange) -> None:
        self._subchain, system = subchain, subchain.system
        bodies = system.springs.ends
        here = (bodies >= subchain.first) & (bodies < subchain.last)
        self.numbers = mine = np.flatnonzero(here.any(axis=1))
        given = list(system.springs.values())
        self.springs = [given[k] for k in mine]
        bodies, here = bodies[mine], here[mine]
        owners = np.searchsorted(cuts, bodies, side="right") - 1  # of the world -1
        positions = np.array([s.positions for s in self.springs], np.float64).reshape(-1, 2, 3)

        of, side = map(np.ascontiguousarray, np.nonzero(here))  # of each end here
        signs = np.where(side == 0, 1.0, -1.0)
        steps, frames = subchain.carriers(bodies[here] - subchain.first)
        points = np.einsum("nji,nj->ni", frames, positions[here]).ravel()
        n_here = len(of)

        # The points: those of the bodies here, those of other ranks, those of the world.
        pairs = np.zeros((len(mine), 2), np.int64)
        pairs[here] = np.arange(n_here)
        away = ~here & (bodies >= 0)
        spring, side = np.nonzero(away)
        order = np.argsort(owners[spring, side], kind="stable")
        spring, side = spring[order], side[order]
        pairs[spring, side] = n_here + np.arange(len(spring))
        sent = np.ascontiguousarray(pairs[spring, 1 - side])
        world = bodies < 0
        n_moving = n_here + len(spring)
        pairs[world] = n_moving + np.arange(np.count_nonzero(world))
        ends = np.zeros((n_moving + np.count_nonzero(world), 6))
        ends[n_moving:, :3] = positions[world]
        others, counts = np.unique(owners[spring, side], return_counts=True)
        sizes = dict(zip(others.tolist(), (6 * counts).tolist(), strict=True))
        self.exchange = make(sizes, sizes)

        self.given = _by_function(self.springs)
        self.called = [CallBack(functools.partial(self._put_values, *each)) for each in self.given]
        self._found = np.zeros((len(mine), FOUND))
        self._counted = here[:, 0] | (world[:, 0] & here[:, 1])  # by one of the ranks
        self.arrays = SpringArrays(
            steps, points, ends.reshape(-1), pairs.ravel(),
            np.array([_law(s) for s in self.springs], np.float64).ravel(), self._found.reshape(-1),
            np.zeros(3 * len(mine)), of, signs, np.zeros(3 * n_here), np.zeros(3 * n_here),
            self._counted.astype(np.int64), np.array([s.has_force_at_zero for s in self.springs], np.int64),
            self.exchange.plan, sent, np.arange(n_here, n_moving), self.exchange.to_others, self.exchange.from_others,
        )  # fmt: skip

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.springs)

    @property
    def lengths(self) -> Floats:
        """Length (m) of each, as found last."""
        return self._found[:, LENGTH]

    @property
    def tensions(self) -> Floats:
        """Tension (N) of each, as found last."""
        return self._found[:, TENSION]

    @property
    def by_python(self) -> ByPython | None:
        """The functions, if Python calls any, told of what was found last."""
        asks = not all(isinstance(function, Dispatcher) for function, _ in self.given)
        return ByPython(self._ask, [self._found], [self._found[:, TENSION]]) if asks else None

    @property
    def conservative_power(self) -> float:
        """Power (W) that goes into the potential energy, of those that this rank counts, as found last."""
        return float(self._found[self._counted, ELASTIC] @ self._found[self._counted, RATE])

    def compile(self) -> None:
        """Compile those of the functions that are numba's to compile; none is called."""
        for function, which in self.given:
            if isinstance(function, Dispatcher):
                entered(_entry(function), which, self.arrays.found)

    def tables(self, compiled: bool) -> list[Table]:
        """Give what functions take in compiled code (`SpringFunctionPlan`): called there, if they are `compiled`."""
        entries = [_entry(f) if compiled and isinstance(f, Dispatcher) else None for f, _ in self.given]
        return [
            Table(SpringFunctionPlan(entered(entry, which, self.arrays.found), called.address, which))
            for entry, called, (_, which) in zip(entries, self.called, self.given, strict=True)
        ]

    def energy(self, motion: Floats) -> float:
        """Potential energy (J) of those that this rank counts, without functions; all ranks call."""
        found, stiffness = self._found_in(motion), self._laws[:, STIFFNESS]
        stored = 0.5 * found[:, ELASTIC] ** 2 / np.where(stiffness > 0.0, stiffness, 1.0)
        return float(stored[self._counted].sum())

    def _found_in(self, motion: Floats) -> Floats:
        """Give what is found of each [m, FOUND], without functions, and take their directions; all ranks call."""
        see_ends(self.arrays, motion)
        found = np.zeros_like(self._found)
        find_tensions(self.arrays._replace(found=found.reshape(-1)))
        return found

    def find(self, t: float) -> None:
        """Find lengths and tensions at a time (s), after `see_ends`, as compiled code does.

        Raises
        ------
        SimulationError
            A function failed; `LoadNotFiniteError`: a tension is not finite.
        """
        find_tensions(self.arrays)
        self._ask(t)
        see_coincidence(self.arrays)
        self.tell(t)
        self.check(t)

    def check(self, t: float) -> None:
        """Raise LoadNotFiniteError where a tension that was found is not finite."""
        for k in np.flatnonzero(~np.isfinite(self.tensions)).tolist():
            raise LoadNotFiniteError(f"{self._title(k)} has a tension of {self.tensions[k]:g} N at t = {t:g} s")

    @property
    def _laws(self) -> Floats:
        return self.arrays.laws.reshape(-1, LAW)

    def _title(self, k: int) -> str:
        return f"the spring '{self.springs[k].name}'"

    def _ask(self, t: float) -> None:
        """Call all functions, of what was found, at a time (s)."""
        for function, which in self.given:
            self._put_values(function, which, t)

    def _put_values(self, function: SpringFunction, which: Integers, t: float) -> None:
        """Write the tensions that a function gives for some springs to what is found."""
        if isinstance(function, Dispatcher):
            with contextlib.suppress(Exception):  # the loop below finds the same, and the spring
                _entry(function)(which, self.arrays.found)
                return
        for k in which.tolist():
            what, (length, rate) = functools.partial(self._title, k), self._found[k, [LENGTH, RATE]].tolist()
            self._found[k, TENSION] = shaped(what, t, called(what, t, function, length, rate, of_time=False), ())

    def tell(self, t: float) -> None:
        """Warn once of each spring that was seen to have no direction, where it should push or pull."""
        untold = self.arrays.untold
        for k in np.flatnonzero(untold == 2).tolist() if untold.size else ():
            untold[k] = 0
            warn_caller(
                f"{self._title(k)}: its points coincide at t = {t:g} s, where it has no direction, so that no force "
                "acts; begin with them apart, or give rest = 0"
            )


@functools.lru_cache  # compiled once in a process
def _entry(function: Dispatcher) -> Dispatcher:
    """Make what calls a function for one spring after the other, of what is found of all."""

    @numba.njit
    def entry(which, found):
        for k in which:
            found[FOUND * k + TENSION] = function(found[FOUND * k + LENGTH], found[FOUND * k + RATE])
        return True

    return entry


def _law(spring: Spring) -> tuple[float, ...]:
    """The numbers of a spring, in the columns of `spring_tensions`."""
    return spring.stiffness, spring.damping, spring.rest or 0.0, float(spring.tension_only)


def _by_function(springs: list[Spring]) -> list[tuple[SpringFunction, Integers]]:
    """The functions, and the springs of each."""
    found: dict[int, tuple[Any, list[int]]] = {}
    for k, spring in enumerate(springs):
        if spring.force is not None:
            found.setdefault(id(spring.force), (spring.force, []))[1].append(k)
    return [(function, np.array(which, np.int64)) for function, which in found.values()]


class InitialSpring(NamedTuple):
    """A spring as it begins: its length (m) and its tension (N)."""

    spring: Spring
    length: float
    tension: float


class NoMessages:
    """Stands in for an exchange on one rank, which owns all."""

    def __init__(self, sent: Mapping[int, int], received: Mapping[int, int]) -> None:
        self.to_others, self.from_others, self.plan = np.zeros(0), np.zeros(0), np.zeros(0, np.int64)
        self.clock = np.zeros(1)

    def close(self) -> None:
        """Nothing to free."""


def initial_springs(system: Contents) -> list[InitialSpring]:
    """Give the springs of a system in its initial state, on one process.

    Raises
    ------
    SimulationError
        A function of theirs failed.
    """
    subchain = Subchain(system)
    acting = ActingSprings(subchain, np.array([0, system.n_bodies]), NoMessages)
    motion = subchain.motions(subchain.q, subchain.u, AT_REST)
    see_ends(acting.arrays, motion)
    with warnings.catch_warnings(action="ignore"):
        acting.find(0.0)
    found = zip(acting.springs, acting.lengths.tolist(), acting.tensions.tolist(), strict=True)
    return [InitialSpring(*row) for row in found]
