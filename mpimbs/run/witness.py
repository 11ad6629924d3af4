"""A run's own witness: now and then the accelerations found are checked by the equations of motion the other way round.

Checked are the first sample and the last, the first behind every change of structure, and of the others the next one
after so many evaluations that it costs less than a hundredth of them in systems of a hundred bodies or more. A check
takes an evaluation, and sweeps without lanes that take as long as some four of them, or 0.05 ms [`dynamics.residual`].
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from mpimbs.base.errors import SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.residual import Residual, dropped_told, holds_told, lost_told
from mpimbs.parallel.agreement import together

Floats = npt.NDArray[np.float64]

BETWEEN = 1000  # evaluations


class Witness:
    """Checks samples of a running system; all ranks make it together and call.

    Parameters
    ----------
    dynamics : Dynamics

    Attributes
    ----------
    checks : int
        So far.
    motion, loops : tuple
        The largest residual so far: its value, on which body or loop, time (s).
    masses : float
        How often the lightest mass goes into the heaviest: what is lost by it is told.
    dropped : tuple
        The most constraints that were left out so far, a loop of which one was, time (s).
    seconds : float
        Wall time spent, but for evaluations (s).
    """

    def __init__(self, dynamics: Dynamics) -> None:
        self._dynamics = dynamics
        self._due = 0  # evaluations
        self.checks, self.seconds = 0, 0.0
        self.motion: tuple[float, str, float] = (0.0, "", 0.0)
        self.loops: tuple[float, str, float] = (0.0, "", 0.0)
        self.dropped: tuple[int, str, float] = (0, "", 0.0)
        self.masses = 1.0

    @property
    def largest(self) -> Floats:
        """Of the equations of motion, and of the loops [2]."""
        return np.array([self.motion[0], self.loops[0]])

    def take(self, t: float, q: Floats, u: Floats, held: Floats | None, last: bool) -> None:
        """Check the accelerations in a state at a time (s), where one is due; all ranks call.

        Raises
        ------
        SimulationError
            On all ranks: they are wrong.
        """
        dynamics = self._dynamics
        if dynamics.evaluations < self._due and not last:
            return
        began, evaluating = time.perf_counter(), sum(dynamics.seconds().values())
        found: Residual = together(dynamics.comm, lambda: dynamics.residual(q, u, tau=held, t=t))
        self._due, self.checks = dynamics.evaluations + BETWEEN, self.checks + 1
        self.motion = max(self.motion, (found.motion, found.body, t), key=_size)
        self.loops = max(self.loops, (found.loops, found.loop, t), key=_size)
        self.dropped = max(self.dropped, (found.dropped, found.without, t), key=_size)
        self.masses = found.masses
        self.seconds += time.perf_counter() - began + evaluating - sum(dynamics.seconds().values())
        if wrong := found.judged(dynamics.coupling):
            raise SimulationError(f"t = {t:g} s: {wrong}. `no_witness=True` goes on regardless")

    def follow(self, before: Witness) -> None:
        """Go on with what another one has seen, of the structure before: the next sample is checked."""
        self.checks, self.motion, self.loops = before.checks, before.motion, before.loops
        self.dropped, self.seconds, self.masses = before.dropped, before.seconds, before.masses

    def memory(self) -> dict[str, Any]:
        """For JSON; `recall` takes it again."""
        loops = self._dynamics.loops
        return {"due": self._due, "refining": loops is not None and loops.refining, **self.told()}

    def recall(self, memory: dict[str, Any]) -> None:
        """Go on from what `memory` gave."""
        self._due, self.checks = memory["due"], memory["checks"]
        if self._dynamics.loops is not None:
            self._dynamics.loops.refining = memory.get("refining", False)
        self.motion, self.loops = tuple(memory["motion"]), tuple(memory["loops"])
        self.dropped, self.masses = tuple(memory.get("dropped", self.dropped)), memory.get("masses", 1.0)

    def told(self) -> dict[str, Any]:
        """What a result tells."""
        found = {"motion": self.motion, "loops": self.loops, "dropped": self.dropped}
        return {"checks": self.checks, "masses": self.masses, **{name: list(value) for name, value in found.items()}}


def witness_told(found: dict[str, Any]) -> str:
    """What a result has of its witness, in a line."""
    (motion, body, _), (loops, loop, _) = found["motion"], found["loops"]
    dropped, without, _ = found.get("dropped", (0, "", 0.0))
    told = holds_told(motion, body, loops, loop) + dropped_told(dropped, without)
    lost = lost_told(motion, loops, found.get("masses", 1.0))
    return f"{told}, in {found['checks']} samples checked{lost}"


def _size(found: tuple[float, str, float]) -> float:
    return np.inf if np.isnan(found[0]) else found[0]
