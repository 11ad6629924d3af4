"""Time integration of a distributed system: what all integrators have, whoever takes their steps.

How quaternions stay unit without spoiling the order: the kinematics use q / |q|, and qdot = q (0, w) / 2 is linear in
q, so the equations of motion do not change when a quaternion is scaled, and no more does a Runge-Kutta step, which
commutes with a linear change of variables. Scaling every quaternion back to unit length after a step therefore takes
away nothing but the error of its length. (A scheme whose first stage is the last one of the step before, as dopri5,
uses that stage unscaled: a relative change by the error of the length, one order above the error of the step.)
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.evaluation import NOTHING
from mpimbs.parallel.agreement import largest_magnitudes, together
from mpimbs.stepping.crawling import STABLE, Crawl, StepFailure, hardly_changes, likely_cause, wrong_motion
from mpimbs.stepping.event_watch import EventSearch
from mpimbs.stepping.march import UNLIMITED
from mpimbs.stepping.projection import Projection
from mpimbs.stepping.schemes import Accuracy
from mpimbs.stepping.stability import StabilityProbe
from mpimbs.stepping.step_sizes import ANCHORS, RATES, StepMemory, StepSizes, first_step
from mpimbs.stepping.work import Power
from mpimbs.sweep.grip import NO_GRIP, Grip
from mpimbs.sweep.motion import make_quaternions_unit
from mpimbs.sweep.structure import TURN


def follow(dynamics: Dynamics, begin: float, end: float, q: Floats, u: Floats) -> tuple[Floats, Floats]:
    """Give the state after a step between two times (s) as it has to be; all ranks call.

    Raises
    ------
    SimulationError
        On all ranks: a motion jumps in the step, or can't be found at its end.
    """
    motions = dynamics.divided.external.motions

    def followed() -> tuple[Floats, Floats]:
        if (name := motions.jump(begin, end, u)) is not None:
            raise SimulationError(
                f"the motion of body '{name}' jumps, or changes more in this step than its accelerations say; give one "
                "with continuous speeds, or smaller steps"
            )
        return motions.follow(end, q, u)

    return together(dynamics.comm, followed)


ROUNDING_OF_TIMES = 1e-14  # of times
OTHER = 1e-6  # of the largest rate, of coordinates or of speeds: rounding, on other ranks, changes them by less
SCALED = 10.0  # times the error of a quaternion's norm, by which functions are given other coordinates than before
QUIET = contextlib.nullcontext()
NO_SAMPLES = np.zeros(0)


class Moment(NamedTuple):
    """A state at a time."""

    q: Floats  # [nq]: this rank's
    u: Floats  # [nu]
    held: Floats | None  # [nu]: forces on joints, on top of the model's
    work: float  # on all bodies so far (J), of all that is not weight, spring or inertia
    norm_error: float  # see `Integrator`
    step_size: float  # s, of the next step
    gripped: Floats | None = None  # [nu]: what friction adds to these, see `sweep.grip`

    @property
    def given(self) -> Floats | None:
        """All forces on joints on top of the model's [nu] (N m, N)."""
        return self.held if self.gripped is None else self.gripped if self.held is None else self.held + self.gripped


class Moments(NamedTuple):
    """States at times, in their order."""

    t: list[float]  # s
    q: Floats  # [states, nq]: this rank's
    u: Floats  # [states, nu]
    given: list[Floats | None]  # [nu]: forces on joints on top of the model's (N m, N)
    work: list[float]  # as in `Moment`; so are the following
    norm_error: list[float]
    step_size: list[float]

    @classmethod
    def of(cls, times: list[float], moments: list[Moment]) -> Moments:
        """Put moments together."""
        q, u, *rest = ([getattr(moment, name) for moment in moments] for name in cls._fields[1:])
        return cls(times, np.array(q), np.array(u), *rest)

    def one(self, k: int) -> Moments:
        """Give one of them alone."""
        rows = slice(k, k + 1)
        numbers = self.work[rows], self.norm_error[rows], self.step_size[rows]
        return Moments(self.t[rows], self.q[rows], self.u[rows], self.given[rows], *numbers)


class Asked(NamedTuple):
    """The demands on an integrator; see `integrators.make_integrator`."""

    accuracy: Accuracy
    asked: Callable[[], int]
    probed: bool
    projection: Projection | None
    tension: str
    held: Floats | None


class Integrator(ABC):
    """Steps a system through time; all ranks make it together and call its methods together.

    Parameters
    ----------
    dynamics, q, u, time, memory
        See `integrators.make_integrator`.

    Attributes
    ----------
    between : bool
        Whether states between the ends of a step are known, by `at`.
    held : array [nu] or None
    grip : Grip
        What friction has beside its dampers; of nothing where it has none.
    sizes : StepSizes
        Of adaptive steps.
    requests : int
        What any rank has asked for in the last step; the same on all.
    norm_error : float
        Largest | |quaternion| - 1 | on this rank that a step left before it was made unit again.
    passed : Moments or None
        States at the samples that the last call has passed before its last step, where there are any.
    """

    between = False
    passed: Moments | None = None

    def __init__(
        self, dynamics: Dynamics, q: Floats, u: Floats, given: Asked, time: float, memory: StepMemory | None
    ) -> None:
        self._dynamics, self._projection, self.held = dynamics, given.projection, given.held
        self._accuracy, self._fixed, self._asked = given.accuracy, given.accuracy.dt, given.asked
        self._nq, self._end = len(q), len(q) + len(u)
        self._power = Power(dynamics, given.held is not None)
        # Work of the begin, and its rates in the vectors of `memory`.
        self._work_kept = self._power.recalled([] if memory is None else memory.work)
        self._begin_state = np.concatenate([q, u, self._work_kept[:1]])  # behind q and u the work done on the bodies
        self._broke = StepFailure(dynamics)
        self.grip = NO_GRIP
        if self._power.grips:
            self.grip = Grip.of(dynamics.subchain.columns)
            self.grip.begin(q, None if memory is None else memory.vectors.get(ANCHORS))
        # Of every evaluation, whose calls cost a small system as much as the sweep.
        self._follows, self._has_power = dynamics.divided.follows, self._power.any
        self._only_held = self._has_power and not self._power.overflows
        self._has_quaternions = bool(np.any(dynamics.subchain.structure.steps[:, TURN] == 4))
        self.norm_error = 0.0 if memory is None else memory.norm_error
        self.requests = 0
        self._acted = NOTHING
        self._vectors = {} if memory is None else memory.vectors
        self.sizes = StepSizes() if memory is None else deepcopy(memory.sizes)
        self._crawl = Crawl()
        self._began_at = time if memory is None else memory.time
        if wrong := wrong_motion(dynamics, self._began_at):
            raise SimulationError(f"at t = {self._began_at:g} s {wrong}")
        self._probe: StabilityProbe | None = None
        if memory is not None and memory.projection is not None and self._projection is not None:
            self._projection.go_on(memory.projection)
        if memory is not None and memory.refining is not None and dynamics.loops is not None:
            dynamics.loops.refining = memory.refining

    @property
    def _known_rates(self) -> Floats | None:
        """Rates where the first step begins, of those that were given."""
        if RATES[0] not in self._vectors:
            return None
        return np.concatenate([*(self._vectors[name] for name in RATES), self._work_kept[1:]])

    @property
    @abstractmethod
    def _state(self) -> Floats:
        """This rank's numbers at the time reached: coordinates, speeds, work; may be written where `_finish` does."""

    @property
    @abstractmethod
    def _before(self) -> tuple[float, Floats]:
        """When the last step began (s), and the state there."""

    @property
    @abstractmethod
    def time(self) -> float:
        """Time reached (s)."""

    @property
    @abstractmethod
    def step_size(self) -> float:
        """Size of the next step (s), if the time towards which it goes does not shorten it."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Steps taken."""

    @property
    @abstractmethod
    def rejected(self) -> int:
        """Steps rejected: by the error estimate, or because they left the range of numbers."""

    def step_towards(self, target: float, samples: Floats = NO_SAMPLES, most: int = 1, unseen: int = UNLIMITED) -> bool:
        """Take one step, not beyond a time, and say whether that time is reached.

        The last steps before the time are shortened so that it is hit; afterwards the step goes on at its old size.

        Parameters
        ----------
        target : float
            Time (s).
        samples : array [any]
            Times (s) of the next samples. Of several steps those may `passed` have but the last that is given, behind
            which there are no more steps.
        most : int
            Take several where nothing has to be done between them, and this many at the most.
        unseen : int
            After so many evaluations no samples are passed: the next one is to be looked at.

        Raises
        ------
        SimulationError
            On all ranks: the step size underflows, the state is no longer finite, or a function of the model failed.
            The state of the last good step is kept.
        """
        self.passed = None
        return self._step(target, samples, most, unseen)

    @abstractmethod
    def _step(self, target: float, samples: Floats, most: int, unseen: int) -> bool:
        """See `step_towards`."""

    @abstractmethod
    def go_back(self, search: EventSearch) -> list[int]:
        """Go back in the last step to the moment that a search finds there, and say what passed zero; all ranks call.

        Raises
        ------
        SimulationError
            On all ranks: a function failed, or a state is not finite.
        """

    @abstractmethod
    def restart(self) -> None:
        """Have the next step take nothing from the one before it: what acts has changed."""

    @property
    def takes_over(self) -> bool:
        """Whether the next step takes rates from the one before it."""
        return self._kept()[0] is not None

    def finds_other_rates(self) -> bool:
        """Whether what acts now gives other rates than those that the next step takes over; all ranks call."""
        kept, divided = self._kept()[0], self._dynamics.divided
        assert kept is not None
        found, iterative = np.empty_like(kept), divided.coupling.iterative
        left = None if iterative is None else iterative.state()
        with self._dynamics.derivative.uncounted():
            self._evaluate(self.time, self.q, self.u, found, found[: self._nq], found[self._nq : self._end])
        if iterative is not None and left is not None:  # the next solution is that of the same bits
            iterative.go_on(left)
        unit = np.concatenate(divided.units)
        changes, rates = (np.split(part[: self._end] / unit, [self._nq]) for part in (found - kept, kept))
        sizes = largest_magnitudes(divided.comm, *changes, *rates, np.array([self.norm_error]))
        return not (sizes[:2] <= (OTHER + SCALED * sizes[4]) * sizes[2:4]).all()

    @abstractmethod
    def _kept(self) -> tuple[Floats | None, dict[str, Any]]:
        """Give what a memory has beyond what all have: rates where the next step begins, if known; and fields."""

    @abstractmethod
    def _rates_at_hand(self) -> list[Floats]:
        """Rates of the last attempt of a step."""

    @property
    def q(self) -> Floats:
        """This rank's coordinates at the time reached [nq]."""
        return self._state[: self._nq].copy()

    @property
    def u(self) -> Floats:
        """This rank's generalized speeds at the time reached [nu]."""
        return self._state[self._nq : self._end].copy()

    @property
    def parts(self) -> tuple[Floats, Floats]:
        """Both q [nq] and u [nu]."""
        values = self._state[: self._end].copy()
        return values[: self._nq], values[self._nq :]

    def all_at(self, times: list[float]) -> Moments:
        """Give the states at times (s), as `at` gives each."""
        return Moments.of(times, [self.at(t) for t in times])

    def at(self, t: float) -> Moment:
        """Give the state at a time (s), which is reached; or, where states `between` are known, in the last step."""
        q, u = self.parts
        return self._moment(q, u, self.anchors, self.total_work())

    def _moment(self, q: Floats, u: Floats, anchors: int, work: float) -> Moment:
        """A state, in which friction has some of its anchors."""
        gripped = self._on_joints(q, u, anchors, None) if self._power.grips else None
        return Moment(q, u, self.held, work, self.norm_error, self.step_size, gripped)

    @property
    def anchors(self) -> int:
        """Which of the anchors of friction are those of the state at the time reached."""
        return 0

    def _on_joints(self, q: Floats, u: Floats, anchors: int, held: Floats | None) -> Floats | None:
        """Forces on joints in a state on top of the model's [nu]: those that are held, and what friction adds."""
        return self.grip.forces(q, u, anchors, held) if self._power.grips else held

    def total_work(self) -> float:
        """Work so far on all bodies of all that is not weight, spring or inertia (J); all ranks call."""
        return self._work_of_all(self._state[self._end :])

    def _work_of_all(self, own: Floats) -> float:
        """Work (J) on all bodies, of what stands for this rank's behind its coordinates and speeds; all ranks call."""
        return self._dynamics.comm.allreduce(float(own[0])) if self._has_power else 0.0

    def _evaluate(
        self, t: float, q: Floats, u: Floats, out: Floats, rates: Floats, udot: Floats, anchors: int | None = None
    ) -> None:
        """Write rates of q, udot and power to `out`, and its parts. What breaks is kept for `_examine`: on it goes.

        With some of the anchors of friction, by default those of the state at the time reached.
        """
        broken, self._acted = False, NOTHING
        if self._follows:
            try:
                q, u = self._dynamics.divided.external.motions.follow(t, q, u)
            except SimulationError as error:  # the other ranks wait for this one's part in the evaluation
                self._broke.take(error)
                broken = True
        try:
            given = self._on_joints(q, u, self.anchors if anchors is None else anchors, self.held)
            self._acted = acted = self._dynamics.derivative.evaluate(t, q, u, udot, rates, given)
            if acted.failure is not None:
                raise acted.failure
        except SimulationError as error:
            self._broke.take(error)
            broken = True
        if self._only_held:
            out[self._end] = np.vdot(self._acted.forces, u)
        elif self._has_power:  # on all ranks, whatever broke: there may be messages
            out[self._end] = self._power(q, u, self._acted)
        if broken:
            out[:] = np.nan

    def _first_size(self, rates: Floats) -> float:
        """A first step (s) from the sizes of the state and its rates, which were evaluated."""
        accuracy, own = self._accuracy, slice(self._end)
        scale = accuracy.atol + accuracy.rtol * np.abs(self._state[own])
        with np.errstate(over="ignore", invalid="ignore"):
            sizes = np.array([np.max(np.abs(v[own] / scale), initial=0.0) for v in (self._state, rates)])
        broken = bool(self._dynamics.comm.allreduce(not np.isfinite(sizes[1]), MPI.LOR))
        self._examine(broken, self._began_at, np.inf)
        self._dynamics.comm.Allreduce(MPI.IN_PLACE, sizes, MPI.MAX)
        return float(first_step(*sizes))

    def _end_crawl(self, size: float) -> None:
        """Raise, on all ranks, why steps (s) are so small, if not for stability."""
        told, now = self._crawl.told(self.time), self._state
        stiff = self._probe is not None and self._probe.largest_step < STABLE * size
        own = slice(self._end)
        if not stiff and hardly_changes(self._dynamics.comm, self._accuracy, self._before[1][own], now[own]):
            cause = likely_cause(self._dynamics, self.time, size, self.q, self.u, self.held)
            raise SimulationError(f"{told}; {cause}")

    def _finish(self, state: Floats) -> SimulationError | None:
        """Make quaternions unit, follow given motions, close the loops; gives why it can't, the same on all ranks."""
        if self._has_quaternions:
            left_by_step = make_quaternions_unit(0.0, self._dynamics.subchain.structure, state[: self._nq])
            self.norm_error = max(self.norm_error, left_by_step)
        return self._constrain(state)

    def _constrain(self, state: Floats) -> SimulationError | None:
        """Follow given motions and close the loops; gives why it can't, the same on all ranks."""
        if self._projection is None and not self._follows:
            return None
        q, u = state[: self._nq].copy(), state[self._nq : self._end].copy()
        try:
            closed = follow(self._dynamics, self._before[0], self.time, q, u) if self._follows else (q, u)
            if self._projection is not None:
                closed = self._projection(*closed)
        except SimulationError as error:
            return error
        state[: self._nq], state[self._nq : self._end] = closed
        return None

    def step_statistics(self) -> dict[str, Any]:
        """Sizes of the steps and what limits them; all ranks call. See `Result.step_sizes`."""
        if self._fixed is not None:
            return {"fixed": self._fixed}
        found = self.sizes.statistics()
        if self._probe is not None and self._probe.mode is not None:
            found |= {"rate": self._probe.mode.rate, "body": self._probe.fastest_body()}
        return found

    def memory(self) -> StepMemory:
        """Give what the next step takes from those before it; all ranks call."""
        norm_error = self._dynamics.comm.allreduce(self.norm_error, MPI.MAX)
        rates, more = self._kept()
        vectors: dict[str, Floats] = {}
        if rates is not None:
            vectors = dict(zip(RATES, (rates[: self._nq], rates[self._nq : self._end]), strict=True))
        if self._power.grips:
            vectors[ANCHORS] = self.grip.anchors_of(self.anchors, self._end - self._nq)
        work: list[list[float]] = []
        if self._has_power:
            power = 0.0 if rates is None else float(rates[self._end])
            work = self._dynamics.comm.allgather([float(self._state[self._end]), power])
        probe = None if self._probe is None else self._probe.state
        projection = None if self._projection is None else self._projection.state
        loops = self._dynamics.loops
        refining = None if loops is None else loops.refining
        return StepMemory(
            self.time, self.step_size, self.steps, self.rejected, norm_error, work, deepcopy(self.sizes), probe,
            vectors, projection, refining=refining, **more,
        )  # fmt: skip

    def _look_at_rates(self) -> None:
        """Keep whether an evaluation was not finite, of those that are at hand."""
        self._broke.not_finite |= not all(np.isfinite(rates).all() for rates in self._rates_at_hand())

    def _examine(self, broken: bool, t: float, size: float) -> None:
        """Raise the same error on all ranks if a step of some size (s) from some time (s) on broke."""
        if broken or self._broke.anywhere():
            self._look_at_rates()
            raise self._broke.explain(t, size, self.q, self.u, self.held)

    def close(self) -> None:  # noqa: B027  # of most there is nothing
        """Free what it holds; all ranks call."""
