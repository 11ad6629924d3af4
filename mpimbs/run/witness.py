"""A run's own witness: now and then the accelerations found are checked by the equations of motion the other way round.

Checked are the first sample and the last, the first behind every change of structure, and of the others the next one
after so many evaluations that it costs less than a hundredth of them in systems of a hundred bodies or more. A check
takes an evaluation, and sweeps without lanes that take as long as some four of them, or 0.05 ms [`loads.residual`].
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.residual import Residual, dropped_told, holds_told, lost_told
from mpimbs.parallel.agreement import together

BETWEEN = 1000  # evaluations
TO_GO_ON = "`no_witness=True` goes on regardless"


@dataclass
class Seen:
    """The findings of checks so far."""

    checks: int = 0
    # the largest residual so far: its value, on which body or loop, time (s)
    motion: tuple[float, str, float] = (0.0, "", 0.0)
    loops: tuple[float, str, float] = (0.0, "", 0.0)
    # the most constraints that were left out so far, a loop of which one was, time (s)
    dropped: tuple[int, str, float] = (0, "", 0.0)
    masses: float = 1.0  # how often the lightest mass goes into the heaviest: what is lost by it is told

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
        """Give the findings as a result tells them."""
        found = {name: list(getattr(self, name)) for name in ("motion", "loops", "dropped")}
        return {"checks": self.checks, "masses": self.masses, **found}


@dataclass
class WitnessState:
    """The state that a witness leaves to another one."""

    due: int  # at how many evaluations the next sample is checked
    seen: Seen


class Witness:
    """Checks samples of a running system; all ranks make it together and call.

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
        """The largest residuals of the equations of motion, and of the loops [2]."""
        return np.array([self.seen.motion[0], self.seen.loops[0]])

    def looks(self, last: bool) -> bool:
        """Whether the next sample is checked: where that is due, or it is the `last`."""
        return last or self._dynamics.derivative.evaluations >= self.due

    def take(self, t: float, q: Floats, u: Floats, held: Floats | None, last: bool) -> None:
        """Check the accelerations in a state at a time (s), where one is due; all ranks call.

        Raises
        ------
        SimulationError
            On all ranks: they are wrong.
        """
        dynamics = self._dynamics
        if not self.looks(last):
            return
        began, evaluating = time.perf_counter(), dynamics.derivative.spent
        found: Residual = together(dynamics.comm, lambda: dynamics.loads.residual(q, u, tau=held, t=t))
        self.due = dynamics.derivative.evaluations + BETWEEN
        self.seen.take(found, t)
        self.seconds += time.perf_counter() - began + evaluating - dynamics.derivative.spent
        if wrong := found.judged(dynamics.divided.coupling):
            raise SimulationError(f"t = {t:g} s: {wrong}. {TO_GO_ON}")

    def follow(self, before: Witness) -> None:
        """Go on with what another one has seen, of the structure before: the next sample is checked."""
        self.seen, self.seconds = before.seen, before.seconds


def witness_told(found: dict[str, Any]) -> str:
    """Give the findings of a result's witness in a line."""
    (motion, body, _), (loops, loop, _) = found["motion"], found["loops"]
    dropped, without, _ = found.get("dropped", (0, "", 0.0))
    told = holds_told(motion, body, loops, loop) + dropped_told(dropped, without)
    of = f" of {found['copies']} copies" if "copies" in found else ""
    lost = lost_told(motion, loops, found.get("masses", 1.0))
    return f"{told}, in {found['checks']} samples{of} checked{lost}"


def _size(found: tuple[Any, str, float]) -> float:
    return np.inf if np.isnan(found[0]) else found[0]
