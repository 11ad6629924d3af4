"""The events of a run: which come next, which happen, and what holds the system together since then."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import SimulationError
from mpimbs.coupling import LoadSolver, coupling_for
from mpimbs.dynamics import Dynamics
from mpimbs.forces.modules import function_of
from mpimbs.model import Event
from mpimbs.model.connections import Connections, check_events, connected
from mpimbs.model.contents import Contents
from mpimbs.run.structure_change import RunSegment, as_they_lie
from mpimbs.stepping.event_watch import EventSearch, EventWatch
from mpimbs.stepping.integrator import Integrator
from mpimbs.stepping.march import TOGETHER
from mpimbs.stepping.settings import SimulationSettings

MOST = 100  # events by functions ...
SHARE = 1e-2  # ... in this share of the simulated time: more of them chatter
OF_CHAINS = ("dca", "dca-terminal")  # couplings that solve nothing else


@dataclass
class EventsState:
    """The state that the events of a run leave to those that follow."""

    structures: list[Connections]  # what there was, one after the other
    done: int  # events in time that have happened
    moments: list[float]  # when those by functions have (s)
    happened: list[dict[str, Any]]  # see `RunEvents`
    signs: list[int] | None  # of the functions


class RunEvents:
    """Which events of a system happen, one after the other; all ranks make it together and call.

    Parameters
    ----------
    system : Contents
        As it begins, with all of its events.
    t_end : float
        End of the simulation (s), infinite for none: what comes later, or then, doesn't happen.

    Attributes
    ----------
    system : Contents
    any : bool
        Whether there are any.
    now : Connections
    happened : list of dict
        Of each change of structure so far its `time` (s), what was `cut` and `connected`, `energy_lost` (J), and how
        far bodies were `moved` to close loops (m and rad).

    Raises
    ------
    InputError
        Events that can't follow one another, or a function that is not there.
    """

    def __init__(self, system: Contents, t_end: float) -> None:
        check_events(system)
        self.system, self._t_end = system, t_end
        self._structures = [Connections.of(system)]
        in_time = (event for event in system.events if event.time is not None and event.time < t_end)
        self._in_time = sorted(in_time, key=lambda event: event.time or 0.0)
        self._by_function = [event for event in system.events if event.when is not None]
        self._functions = [_function(event) for event in self._by_function]
        self.any = bool(self._in_time or self._by_function)
        self._done = 0  # of those in time
        self._moments: list[float] = []  # of those by functions
        self._watch: EventWatch | None = None
        self.happened: list[dict[str, Any]] = []
        self.now = self._structures[0]

    def check_coupling(self, settings: SimulationSettings, solver: LoadSolver | None) -> None:
        """Refuse a coupling that can't do what events may make of the system."""
        if not self.any:
            return
        name = _for_all(settings).coupling
        every = self.now
        for event in (*self._in_time, *self._by_function):
            more = event.model_copy(update={"cut": tuple(n for n in event.cut if n not in self.system.loops.names)})
            every = every.after(self.system, more)
        coupling_for(connected(self.system, every), name, solver)

    @property
    def watching(self) -> bool:
        """Whether there are functions, to be seen after every step."""
        return bool(self._by_function)

    def segment(self, comm: MPI.Comm, settings: SimulationSettings, solver: LoadSolver | None) -> RunSegment:
        """Make the system ready as it holds together now; all ranks call."""
        if self.now == self._structures[0]:
            return RunSegment(self.system, comm, settings, solver)
        chosen = _for_all(settings)
        if chosen != settings and not self.happened and comm.rank == 0:
            told = (
                f"{settings.coupling} solves chains: from here on the coupling is {chosen.coupling}, of single bodies"
            )
            print(f"mpimbs: note: {told}", file=sys.stderr, flush=True)
        return RunSegment(connected(self.system, self.now), comm, chosen, solver)

    def next_goal(self, target: float) -> float:
        """When the next of those in time happens (s), or a `target` that comes before it or, to rounding, with it."""
        return self._next_time if self._next_time < (1.0 - TOGETHER) * target else target

    @property
    def _next_time(self) -> float:
        """When the next of those in time happens (s); infinite where none does."""
        return self._in_time[self._done].time or 0.0 if self._done < len(self._in_time) else np.inf

    def watch(
        self, dynamics: Dynamics, stepper: Integrator, passed: Sequence[int] = (), signs: list[int] | None = None
    ) -> None:
        """Watch the functions from here on, those that have just `passed` zero beyond it."""
        if not self._by_function:
            return
        before = signs if self._watch is None else self._watch.signs.tolist()
        armed = [self.now.refusal(self.system, event) is None for event in self._by_function]
        self._watch = EventWatch(dynamics, self._by_function, self._functions, armed, before)
        if signs is None:
            self._watch.begin(stepper.time, stepper.q, stepper.u, passed)

    def happening(self, stepper: Integrator) -> tuple[list[Event], list[int]]:
        """Which events happen at the end of a step, or within it: then the integrator is taken back to the first.

        Returns
        -------
        (list of Event, list of int)
            Which of those by functions they are, last.

        Raises
        ------
        SimulationError
            On all ranks: one can't happen now, one by a function happens again and again, or a function failed.
        """
        if not self.any:
            return [], []
        passed = self._passed(stepper)
        if passed:
            self._count(stepper.time)
            return self._possible([self._by_function[k] for k in passed], lenient=True), passed
        due = []
        while stepper.time >= (1.0 - TOGETHER) * self._next_time:
            due.append(self._in_time[self._done])
            self._done += 1
        return self._possible(due), []

    def _passed(self, stepper: Integrator) -> list[int]:
        watch = self._watch
        if watch is None:
            return []
        crossed = watch.crossed(stepper.time, stepper.q, stepper.u)
        return stepper.go_back(EventSearch(watch.values, crossed, watch.signs[crossed].tolist())) if crossed else []

    def _count(self, time: float) -> None:
        """Refuse to go on with events that chatter."""
        self._moments = [*self._moments[1 - MOST :], time]
        whole = self._t_end if np.isfinite(self._t_end) else time
        if len(self._moments) == MOST and time - self._moments[0] < SHARE * whole:
            raise SimulationError(
                f"the last {MOST} events by functions came between t = {self._moments[0]:.9g} s and t = {time:.9g} s: "
                f"they chatter; the last event is: {self.happened[-1]['told']}; let functions of events that undo one "
                "another pass zero at different places"
            )

    def _possible(self, events: list[Event], lenient: bool = False) -> list[Event]:
        """The events that can happen one after the other, or `lenient` those that can; `now` is what holds after."""
        happen = []
        for event in events:
            reason = self.now.refusal(self.system, event)
            if reason is None:
                self.now = self.now.after(self.system, event)
                happen.append(event)
            elif not lenient:
                raise SimulationError(f"event ({event.told}): {reason}; leave it out, or let it come later")
        return happen

    def keep(self, dynamics: Dynamics, q: Floats, u: Floats, events: Sequence[Event]) -> None:
        """Have loops that events connect as they lie hold so, given the state and the system before; all ranks call."""
        names = {name for event in events if event.gap == "keep" for name in event.connect}
        if names:
            self.now = self.now.keeping(as_they_lie(dynamics, connected(self.system, self.now), names, q, u))

    def note(self, time: float, events: list[Event], lost: float, moved: float) -> None:
        """Note what has happened at a time (s), the energy that it took (J), and how far bodies were moved for it."""
        self._structures.append(self.now)
        cut, begun = ([name for event in events for name in getattr(event, key)] for key in ("cut", "connect"))
        told = " and ".join(event.told for event in events)
        self.happened.append(
            {"time": time, "cut": cut, "connected": begun, "energy_lost": lost, "moved": moved, "told": told}
        )

    def structures(self) -> list[Callable[[int], Contents]]:
        """Give the structures so far, one after the other: functions that give the systems, of a copy."""
        _, *others = self._structures
        return [lambda _: self.system, *(lambda _, now=now: connected(self.system, now) for now in others)]

    @property
    def state(self) -> EventsState:
        """The state that the events so far leave to those that follow."""
        signs = None if self._watch is None else self._watch.signs.tolist()
        return EventsState(self._structures, self._done, self._moments, self.happened, signs)

    def go_on(self, state: EventsState) -> None:
        """Go on from what others left."""
        self._structures, self._done, self._moments = state.structures, state.done, state.moments
        self.now, self.happened = self._structures[-1], state.happened


def _for_all(settings: SimulationSettings) -> SimulationSettings:
    """Settings for what events make of a system: what `dca` does of chains, `assembly` does of all others."""
    if settings.coupling not in OF_CHAINS:
        return settings
    return replace(settings, coupling="assembly", leaves="bodies", cuts=None)


def _function(event: Event) -> Callable[..., Any]:
    assert event.when is not None
    return event.when if callable(event.when) else function_of(event.when, f"event ({event.told})")
