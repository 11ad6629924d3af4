"""A run's own witness: now and then the accelerations found are checked by the equations of motion the other way round.

Checked are the first sample and the last, the first behind every change of structure, and of the others the next one
after so many evaluations that it costs less than a hundredth of them in systems of a hundred bodies or more. A check
takes an evaluation, and sweeps without lanes that take as long as some four of them, or 0.05 ms [`dynamics.residual`].
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.errors import SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.residual import Residual, dropped_told, holds_told, lost_told
from mpimbs.parallel.agreement import together
from mpimbs.run.ensembles.in_turn import TurnStepper
from mpimbs.stepping.copies_stepper import CopiesStepper

Floats = npt.NDArray[np.float64]

WHOLE = 100  # copies of a rank at the first sample, and at the last
EVALUATIONS = 50_000  # evaluations of copies for each that is checked between them


class CopiesWitness(Protocol):
    """Checks the copies of a rank at samples."""

    def take(self, t: float, whole: bool) -> None:
        """Check the copies whose turn it is at a time (s), the first, the last or another; what is wrong ends there."""

    def states(self) -> list[WitnessState]:
        """What another one goes on from."""

    def seen(self) -> tuple[Seen, int]:
        """What was found so far, and of how many copies."""


class LaneWitness:
    """Checks copies that are evaluated side by side.

    Parameters
    ----------
    stepper : CopiesStepper
        What steps them.
    names : sequence of str
        What they are called.
    known : sequence of WitnessState
        Go on from those of others.
    """

    def __init__(self, stepper: CopiesStepper, names: Sequence[str], known: Sequence[WitnessState]) -> None:
        self._stepper, self._names = stepper, names
        self._seen, self._paid = Seen(), 0  # checks for which evaluations stand
        self._asked = sum(state.due for state in known)  # in rotation
        for state in known:
            self._seen.join(state.seen)

    def states(self) -> list[WitnessState]:
        return [WitnessState(self._asked, deepcopy(self._seen))]

    def seen(self) -> tuple[Seen, int]:
        return self._seen, min(self._asked, len(self._names))

    def take(self, t: float, whole: bool) -> None:
        stepper, count = self._stepper, len(self._names)
        due = stepper.evaluations * count // EVALUATIONS - self._paid
        self._paid += due
        asked = min(max(WHOLE if whole else 0, due), count)
        turn = (np.arange(self._asked, self._asked + asked) % count).tolist()
        self._asked += asked
        chosen = [k for k in turn if not stepper.left[k]]
        if not chosen:
            return
        wrong = {}
        for k, found in stepper.copies.residuals(t, *stepper.state, chosen):
            self._seen.take(found, t, of=self._names[k])
            if told := found.judged(None):
                wrong[k] = f"{told}. {TO_GO_ON}"
        stepper.leave(wrong)


class TurnWitness:
    """Checks copies that are stepped one after the other; arguments as of `LaneWitness`, the states of each copy."""

    def __init__(self, stepper: TurnStepper, names: Sequence[str], known: Sequence[WitnessState]) -> None:
        self._stepper, self._names = stepper, names
        self._dynamics = [segment.dynamics for segment in stepper.copies.segments]
        self._own = [Witness(dynamics) for dynamics in self._dynamics]
        for own, dynamics, state in zip(self._own, self._dynamics, known, strict=False):
            own.due, own.seen = state.due + dynamics.evaluations, state.seen

    def states(self) -> list[WitnessState]:
        pairs = zip(self._own, self._dynamics, strict=True)
        return [WitnessState(own.due - dynamics.evaluations, deepcopy(own.seen)) for own, dynamics in pairs]

    def seen(self) -> tuple[Seen, int]:
        found = Seen()
        for own, name in zip(self._own, self._names, strict=True):
            found.join(own.seen, of=name)
        return found, sum(own.seen.checks > 0 for own in self._own)

    def take(self, t: float, whole: bool) -> None:
        for k, stepper in list(self._stepper.going()):
            try:
                self._own[k].take(t, *stepper.parts, stepper.held, whole)
            except SimulationError as error:
                self._stepper.leave({k: str(error)})


def make_witness(
    stepper: CopiesStepper | TurnStepper, names: Sequence[str], known: Sequence[WitnessState]
) -> CopiesWitness:
    """Make what checks copies; see `LaneWitness`."""
    if isinstance(stepper, TurnStepper):
        return TurnWitness(stepper, names, known)
    return LaneWitness(stepper, names, known)


def told_by_all(comm: MPI.Comm, own: CopiesWitness) -> dict[str, Any]:
    """What the witnesses of all ranks have seen, for a result; all ranks call."""
    found, copies = Seen(), 0
    for seen, count in comm.allgather(own.seen()):
        found.join(seen)
        copies += count
    return {**found.told(), "copies": copies}


BETWEEN = 1000  # evaluations
TO_GO_ON = "`no_witness=True` goes on regardless"


@dataclass
class Seen:
    """What checks have found so far.

    Attributes
    ----------
    checks : int
    motion, loops : tuple
        The largest residual so far: its value, on which body or loop, time (s).
    dropped : tuple
        The most constraints that were left out so far, a loop of which one was, time (s).
    masses : float
        How often the lightest mass goes into the heaviest: what is lost by it is told.
    """

    checks: int = 0
    motion: tuple[float, str, float] = (0.0, "", 0.0)
    loops: tuple[float, str, float] = (0.0, "", 0.0)
    dropped: tuple[int, str, float] = (0, "", 0.0)
    masses: float = 1.0

    def take(self, found: Residual, t: float, of: str = "") -> None:
        """Take what a check at a time (s) found; `of` as in `join`."""
        own = Seen(
            1,
            (found.motion, found.body, t),
            (found.loops, found.loop, t),
            (found.dropped, found.without, t),
            found.masses,
        )
        self.join(own, of)

    def join(self, other: Seen, of: str = "") -> None:
        """Take what another one has seen; `of` says whose bodies and loops those are."""
        self.checks += other.checks
        self.masses = max(self.masses, other.masses)
        for name in ("motion", "loops", "dropped"):
            value, where, t = getattr(other, name)
            theirs = value, f"{of}: {where}" if of and where else where, t
            setattr(self, name, max(getattr(self, name), theirs, key=_size))

    def told(self) -> dict[str, Any]:
        """What a result tells."""
        found = {name: list(getattr(self, name)) for name in ("motion", "loops", "dropped")}
        return {"checks": self.checks, "masses": self.masses, **found}


@dataclass
class WitnessState:
    """What a witness leaves to another one.

    Attributes
    ----------
    due : int
        At how many evaluations the next sample is checked; of copies side by side, how many were asked for.
    seen : Seen
    """

    due: int
    seen: Seen


class Witness:
    """Checks samples of a running system; all ranks make it together and call.

    Parameters
    ----------
    dynamics : Dynamics

    Attributes
    ----------
    due : int
        At how many evaluations the next sample is checked.
    seen : Seen
    seconds : float
        Wall time spent, but for evaluations (s).
    """

    def __init__(self, dynamics: Dynamics) -> None:
        self._dynamics = dynamics
        self.due = 0  # evaluations
        self.seen, self.seconds = Seen(), 0.0

    @property
    def largest(self) -> Floats:
        """Of the equations of motion, and of the loops [2]."""
        return np.array([self.seen.motion[0], self.seen.loops[0]])

    def take(self, t: float, q: Floats, u: Floats, held: Floats | None, last: bool) -> None:
        """Check the accelerations in a state at a time (s), where one is due; all ranks call.

        Raises
        ------
        SimulationError
            On all ranks: they are wrong.
        """
        dynamics = self._dynamics
        if dynamics.evaluations < self.due and not last:
            return
        began, evaluating = time.perf_counter(), sum(dynamics.seconds().values())
        found: Residual = together(dynamics.comm, lambda: dynamics.residual(q, u, tau=held, t=t))
        self.due = dynamics.evaluations + BETWEEN
        self.seen.take(found, t)
        self.seconds += time.perf_counter() - began + evaluating - sum(dynamics.seconds().values())
        if wrong := found.judged(dynamics.coupling):
            raise SimulationError(f"t = {t:g} s: {wrong}. {TO_GO_ON}")

    def follow(self, before: Witness) -> None:
        """Go on with what another one has seen, of the structure before: the next sample is checked."""
        self.seen, self.seconds = before.seen, before.seconds


def witness_told(found: dict[str, Any]) -> str:
    """What a result has of its witness, in a line."""
    (motion, body, _), (loops, loop, _) = found["motion"], found["loops"]
    dropped, without, _ = found.get("dropped", (0, "", 0.0))
    told = holds_told(motion, body, loops, loop) + dropped_told(dropped, without)
    of = f" of {found['copies']} copies" if "copies" in found else ""
    lost = lost_told(motion, loops, found.get("masses", 1.0))
    return f"{told}, in {found['checks']} samples{of} checked{lost}"


def _size(found: tuple[Any, str, float]) -> float:
    return np.inf if np.isnan(found[0]) else found[0]
