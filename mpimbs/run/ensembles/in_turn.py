"""Copies that lanes don't carry side by side, one after the other from sample to sample, on one process.

Each is a simulation of its own, with steps of its own: systems that close loops or follow given motions, and steps that
are solved for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.base.errors import InputError, SimulationError
from mpimbs.dynamics.instants import StateAt
from mpimbs.model import System
from mpimbs.run.run_segment import RunSegment
from mpimbs.stepping.copies_stepper import CopyMemory, EnsembleMemory
from mpimbs.stepping.integrator import Integrator
from mpimbs.stepping.integrators import make_integrator
from mpimbs.stepping.settings import SimulationSettings
from mpimbs.stepping.step_memory import RATES, StepMemory
from mpimbs.stepping.step_sizes import StepSizes

Floats = npt.NDArray[np.float64]
COUNTS = ("steps", "rejected", "evaluations")


class CopiesInTurn:
    """What evaluates copies of a system, each by itself; see `SideBySide`.

    Parameters
    ----------
    systems : sequence of System
        One for all copies, or one for each, with the same joints.
    count : int
        Number of copies.
    settings : SimulationSettings

    Attributes
    ----------
    count, nq, nu : int
        Copies; and coordinates and speeds of each.
    settings : SimulationSettings
    segments : list of RunSegment
        Of each copy.
    """

    lanes = 1

    def __init__(self, systems: Sequence[System], count: int, settings: SimulationSettings) -> None:
        self.count, self.settings = count, settings
        self.nq, self.nu = systems[0].nq, systems[0].nu
        self.segments = [RunSegment(systems[k % len(systems)], MPI.COMM_SELF, settings, None) for k in range(count)]

    def compile(self, checked: bool = False) -> None:
        """Compile, or load from the cache, what evaluations, samples, and checks that the settings ask for call."""
        for segment in self.segments:
            segment.compile()

    def energies(self, q: Floats, u: Floats) -> Floats:
        """Give kinetic and potential energy (J) of every copy [copies, 2]."""
        states = zip(self.segments, q, u, strict=True)
        return np.array([segment.dynamics.energy_and_momentum(*state)[:2] for segment, *state in states])

    def instant(self, copy: int, t: float, q: Floats, u: Floats) -> StateAt:
        """Give a state of a copy; see `SideBySide`."""
        return StateAt(self.segments[copy].dynamics, t, q, u)

    def poses(self, copy: int, q: Floats) -> tuple[Floats, Floats]:
        """Give the poses of a copy's bodies at its coordinates [nq]: rotations [n, 3, 3], positions [n, 3] (m)."""
        return self.segments[copy].dynamics.poses(q, np.zeros(self.nu))

    def close(self) -> None:
        """Free what MPI holds."""
        for segment in self.segments:
            segment.dynamics.close()


class TurnStepper:
    """Steps copies through time, each by an `Integrator` of its own; see `CopiesStepper`.

    Parameters
    ----------
    copies : CopiesInTurn
    state : (array [copies, nq], array [copies, nu]), optional
        Where they begin, those of the models by default.
    memory : EnsembleMemory, optional
        Go on from that of other ones: with the same bits.

    Attributes
    ----------
    copies : CopiesInTurn
    failed, left, steps, rejected, evaluations
        See `CopiesStepper`; sums over the copies.
    time : float
        What all copies that go on have reached (s).
    """

    at_samples_alone = False  # what it gives by `memory`, which has all that copies have taken

    def __init__(
        self, copies: CopiesInTurn, state: tuple[Floats, Floats] | None, memory: EnsembleMemory | None = None
    ) -> None:
        self.copies, count = copies, copies.count
        if memory is not None:
            state = memory.vectors["q"], memory.vectors["u"]
        self.failed: dict[int, tuple[float, str]] = {}
        self.left = np.zeros(count, bool) if memory is None else memory.left
        self.time = 0.0 if memory is None else memory.time
        self._now = 0  # whose turn it is
        self._before = np.zeros((count, len(COUNTS)), np.int64)  # what copies have taken before a restart
        if memory is not None:
            self._before[:] = [told.taken for told in memory.told]
        self.steps, self.rejected = self._before[:, :2].sum(axis=0).tolist()
        self._steppers: list[Integrator | None] = []
        self._q, self._u = np.empty((count, copies.nq)), np.empty((count, copies.nu))  # of those left behind
        for k, segment in enumerate(copies.segments):
            part = segment.dynamics.subchain
            self._q[k], self._u[k] = (part.q, part.u) if state is None else (state[0][k], state[1][k])
            self._steppers.append(None if self.left[k] else self._begun(k, memory))

    def _begun(self, k: int, memory: EnsembleMemory | None) -> Integrator | None:
        """What steps a copy; None if it can't begin."""
        segment, settings = self.copies.segments[k], self.copies.settings
        known = None if memory is None else _recalled(memory, k)
        q, u = self._q[k].copy(), self._u[k].copy()
        if memory is not None:  # goes on counting; the first evaluation alone tries whether refinement changes it
            segment.dynamics.evaluations, self._before[k, 2] = int(self._before[k, 2]), 0
        try:
            if known is None:
                q, u = segment.dynamics.followed(0.0, q, u)
                if segment.projection is not None:
                    q, u = segment.projection.begin(q, u)
            given = settings.integrator, settings.accuracy
            more: dict[str, Any] = {"projection": segment.projection, "tension": settings.tension}
            return make_integrator(segment.dynamics, q, u, *given, memory=known, **more)
        except (InputError, SimulationError) as error:
            self._leave(k, 0.0, str(error))
            return None

    def leave(self, reasons: Mapping[int, str]) -> None:
        """Leave copies behind at the time reached, for these reasons."""
        for k, reason in reasons.items():
            self._leave(k, self.time, reason)

    def _leave(self, k: int, t: float, reason: str) -> None:
        self.failed[k], self.left[k] = (t, reason), True

    def going(self) -> Iterator[tuple[int, Integrator]]:
        """Give the copies that are not left behind, with what steps them."""
        return ((k, stepper) for k, stepper in enumerate(self._steppers) if stepper and not self.left[k])

    @property
    def _made(self) -> Iterator[Integrator]:
        return filter(None, self._steppers)

    @property
    def step_size(self) -> float:
        """The smallest of the copies' next steps (s)."""
        return min((stepper.step_size for _, stepper in self.going()), default=np.inf)

    @property
    def evaluations(self) -> int:
        """Evaluations of all copies."""
        return int(self._taken()[:, 2].sum())

    def _taken(self) -> npt.NDArray[np.int64]:
        """What each copy has taken [copies, COUNTS]."""
        found = self._before.copy()
        for own, stepper, segment in zip(found, self._steppers, self.copies.segments, strict=True):
            own += (stepper.steps, stepper.rejected, 0) if stepper is not None else 0
            own[2] += segment.dynamics.evaluations
        return found

    @property
    def sizes(self) -> StepSizes:
        """Of the adaptive steps of all copies."""
        found = StepSizes()
        for stepper in self._made:
            found.join(stepper.sizes)
        return found

    @property
    def state(self) -> tuple[Floats, Floats]:
        """States where the copies have got to: q [copies, nq], u [copies, nu]."""
        for k, stepper in enumerate(self._steppers):
            if stepper is not None:
                self._q[k], self._u[k] = stepper.parts
        return self._q.copy(), self._u.copy()

    def step_towards(self, target: float) -> bool:
        """Try a step of the copy whose turn it is, not beyond a time (s), and say whether all have reached that."""
        while self._now < self.copies.count:
            k, stepper = self._now, self._steppers[self._now]
            if stepper is None or self.left[k]:
                self._now += 1
                continue
            steps, rejected = stepper.steps, stepper.rejected
            try:
                there = stepper.step_towards(target)
            except SimulationError as error:
                self._leave(k, stepper.time, str(error))
                there = True
            self.steps, self.rejected = self.steps + stepper.steps - steps, self.rejected + stepper.rejected - rejected
            self._now += there
            break
        if self._now < self.copies.count:
            return False
        self._now, self.time = 0, target
        return True

    def memory(self) -> tuple[list[CopyMemory], dict[str, Floats]]:
        """What each copy's next step takes from those before it, and the vectors of all copies."""
        q, u = self.state
        vectors = {"q": q, "u": u} | {
            name: np.full(like.shape, np.nan) for name, like in zip(RATES, (q, u), strict=True)
        }
        told = [CopyMemory(taken=taken) for taken in self._taken().tolist()]
        for k, stepper in enumerate(self._steppers):
            if stepper is None or self.left[k]:
                continue
            memory = stepper.memory()
            for name, values in memory.vectors.items():
                vectors[name][k] = values
            told[k].steps = memory._replace(steps=0, rejected=0, vectors={})
        return told, vectors

    def close(self) -> None:
        """Free what the copies hold."""
        for stepper in self._made:
            stepper.close()
        self.copies.close()


def _recalled(memory: EnsembleMemory, k: int) -> StepMemory:
    """What a copy's next step takes from those before it."""
    known = {name: own[k] for name, own in memory.vectors.items() if np.isfinite(own[k]).all()}
    steps = memory.told[k].steps
    assert steps is not None  # it was not left behind
    return steps._replace(vectors=known)
