"""Time integration of copies side by side: one explicit step for all of them, which the most demanding one sets.

Each copy has the error estimate that it has alone, of its worst number; the largest counts. A copy
that no step suits is left behind where it was: the others go on without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.dynamics.copies.side_by_side import SideBySide
from mpimbs.stepping import march as m
from mpimbs.stepping.crawling import NEARLY, Crawl
from mpimbs.stepping.schemes import Accuracy
from mpimbs.stepping.stage_steps import StageSteps
from mpimbs.stepping.step_memory import RATES
from mpimbs.stepping.step_sizes import StepSizes, first_step
from mpimbs.sweep.structure import FIRST_Q, TURN

Floats = npt.NDArray[np.float64]
ROUNDING = 1e-14  # of times
BROKEN_FACTOR = 0.1  # of a step that has left the range of numbers, that is tried next


class LanesMemory(NamedTuple):
    """The memory that the steps of copies side by side leave to the next.

    Attributes
    ----------
    time : float
        Reached (s).
    sizes : StepSizes
    vectors : dict of arrays [copies, n]
        Among them the states, `q` and `u`.
    left : array of bool [copies]
        Which copies are left behind.
    """

    time: float
    sizes: StepSizes
    vectors: dict[str, Floats]
    left: npt.NDArray[np.bool_]


class CopiesStepper:
    """Steps copies through time, on one process.

    Parameters
    ----------
    copies : SideBySide
    integrator : str
        A name in `tableaux.TABLEAUX`.
    accuracy : Accuracy
    state : (array [copies, nq], array [copies, nu]), optional
        Where they begin, those of the models by default.
    memory : LanesMemory, optional
        Go on from that of other ones: on the same ranks with the same bits.

    Attributes
    ----------
    copies : SideBySide
    failed : dict of int to (float, str)
        When copies were left behind (s), and why.
    left : array of bool [copies]
        Which are left behind.
    steps, rejected, evaluations : int
    sizes : StepSizes
        Of adaptive steps.
    """

    def __init__(
        self,
        copies: SideBySide,
        integrator: str,
        accuracy: Accuracy,
        state: tuple[Floats, Floats] | None = None,
        memory: LanesMemory | None = None,
    ) -> None:
        self.copies, self._accuracy, self._fixed = copies, accuracy, accuracy.dt is not None
        if memory is not None:
            state = memory.vectors["q"], memory.vectors["u"]
        q, u = copies.initial_state() if state is None else state
        self._end = q.size
        steps = copies.structure.steps
        first = steps[steps[:, TURN] == 4, FIRST_Q]
        quaternions = (np.arange(copies.count)[:, None] * copies.nq + first).ravel()
        whole = np.concatenate([q.ravel(), u.ravel()])
        self._steps = own = StageSteps(integrator, accuracy, whole, q.size, u.size, quaternions)
        self.left = np.zeros(copies.count, bool)
        self._any_left = False
        self.failed: dict[int, tuple[float, str]] = {}
        self._trouble: dict[int, str] = {}  # of functions, in the step
        self.steps = self.rejected = self.evaluations = 0
        self.sizes = StepSizes() if memory is None else memory.sizes
        self._room = np.empty_like(whole)
        if memory is not None:
            self._give_up(memory.left)
            errors = memory.vectors["error"][:, 0]
            own.numbers[m.ERROR_BEFORE] = np.max(errors, initial=m.LEAST_ERROR, where=~memory.left)
            if RATES[0] in memory.vectors:
                rates = np.concatenate([memory.vectors[name].ravel() for name in RATES])
                if np.isfinite(rates).all():  # not so before the first step
                    own.know(rates)
        self._crawl = Crawl()
        own.begin(0.0 if memory is None else memory.time)
        own.step = accuracy.dt or (self._first_step() if memory is None else self._smallest(memory))

    def _evaluate(self, t: float, state: tuple[Floats, Floats, Floats], row: int) -> None:
        """Write the rates of a state: of coordinates, then udot; zero of what is left behind."""
        out, rates, udot = self._steps.rows[row]
        self.copies.evaluate(t, state[1], state[2], udot, rates)
        self.evaluations += 1
        if self.copies.forces.failures:
            self._trouble = self.copies.forces.failures | self._trouble
        if self._any_left:
            self._rows(out, self.left, 0.0)

    def _rows(self, out: Floats, chosen: npt.NDArray[np.bool_], value: float) -> None:
        """Set the numbers of some copies in a vector."""
        for part in (out[: self._end], out[self._end :]):
            part.reshape(self.copies.count, -1)[chosen] = value

    def _largest(self, values: Floats) -> Floats:
        """The largest magnitude of each copy's numbers [copies]; not finite where one of them isn't."""
        sizes, count = np.abs(values, out=self._room), self.copies.count
        parts = sizes[: self._end].reshape(count, -1), sizes[self._end :].reshape(count, -1)
        return np.maximum(*(part.max(axis=1, initial=0.0) for part in parts))

    def _first_step(self) -> float:
        """The smallest of the copies' first steps (s); copies that can't be evaluated are left behind."""
        state = self._steps.state
        self._evaluate(self.time, state, 0)
        scale = self._accuracy.atol + self._accuracy.rtol * np.abs(state[0])
        with np.errstate(over="ignore", invalid="ignore"):
            norms = [self._largest(values / scale) for values in (state[0], self._steps.rows[0][0])]
        self._leave(~np.isfinite(norms[1]) & ~self.left, self.time, np.inf)
        if self._any_left:
            self._rows(self._steps.rows[0][0], self.left, 0.0)
        self._steps.know(self._steps.rows[0][0])
        return float(np.min(first_step(*norms), initial=0.1, where=~self.left))

    @property
    def time(self) -> float:
        """Time reached (s)."""
        return self._steps.time

    @property
    def step_size(self) -> float:
        """Size of the next step (s), if the time towards which it goes does not shorten it."""
        return self._steps.step

    @property
    def state(self) -> tuple[Floats, Floats]:
        """States at the time reached: q [copies, nq], u [copies, nu]; of copies left behind where they were."""
        _, q, u = self._steps.state
        return q.copy().reshape(self.copies.count, -1), u.copy().reshape(self.copies.count, -1)

    def vectors(self) -> dict[str, Floats]:
        """Give what the next step takes from those before it, as `LanesMemory` has it."""
        count, (q, u) = self.copies.count, self.state
        error = self._steps.numbers[m.ERROR_BEFORE]
        vectors = {"q": q, "u": u, "step": np.full((count, 1), self.step_size), "error": np.full((count, 1), error)}
        rates = self._steps.known_rates
        if rates is None:
            rates = np.full(q.size + u.size, np.nan)
        parts = rates[: self._end], rates[self._end :]
        return vectors | {name: part.reshape(count, -1).copy() for name, part in zip(RATES, parts, strict=True)}

    def _smallest(self, memory: LanesMemory) -> float:
        """The smallest of the steps (s) that copies would take, which may come from several ranks."""
        return float(np.min(memory.vectors["step"][:, 0], initial=np.inf, where=~memory.left))

    def step_towards(self, target: float) -> bool:
        """Try a step, not beyond a time (s), and say whether that is reached."""
        own = self._steps
        began = self.time
        left = target - began
        if left <= ROUNDING * began or self.left.all():
            own.begin(target)
            return True
        self._trouble = {}
        with np.errstate(over="ignore", invalid="ignore"):
            own.attempt(target, self._evaluate)
            errors = self._errors()
        if self._trouble:
            self._leave(np.isin(np.arange(self.copies.count), list(self._trouble)), began, own.size)
            return False
        worst = float(errors.max())
        outcome, accepted = own.conclude(worst)
        if not accepted:
            if self._fixed or outcome == m.UNDERFLOW or own.size <= m.TINY * max(began, 1e-3):
                self._leave(~(errors <= 1.0), began, own.size)
                return False
            if outcome == m.BROKEN:
                own.step = BROKEN_FACTOR * own.size
            self.rejected += 1
            return False
        self.steps += 1
        if not self._fixed:
            self.sizes.take(own.sizes)
            if self._crawl.took(self.time - began, left):
                self._leave_crawling(errors == worst)
        return self.time == target

    def leave(self, reasons: Mapping[int, str]) -> None:
        """Leave copies behind at the time reached, for these reasons."""
        self._trouble = dict(reasons)
        self._leave(np.isin(np.arange(self.copies.count), list(reasons)), self.time, self.step_size)

    def _leave_crawling(self, chosen: npt.NDArray[np.bool_]) -> None:
        """Leave the copies behind for which steps shrink towards nothing."""
        told, now, before = self._crawl.told(self.time), self._steps.state[0], self._steps.other[0]
        changes = self._largest((now - before) / (self._accuracy.atol + self._accuracy.rtol * np.abs(now)))
        chosen = chosen & (changes < NEARLY) & ~self.left
        self._trouble = dict.fromkeys(np.flatnonzero(chosen).tolist(), f"{told}; likely cause: a force that jumps")
        self._leave(chosen, self.time, self.step_size)

    def _errors(self) -> Floats:
        """Estimated errors of the step over the tolerance, of each copy [copies]; not finite where its state isn't."""
        new = self._steps.other[0]
        if self._fixed:
            return np.where(np.isfinite(self._largest(new)), 0.0, np.nan)
        return self._largest(self._steps.errors())

    def _leave(self, chosen: npt.NDArray[np.bool_], t: float, size: float) -> None:
        """Leave copies behind from a time (s) on, where a step of some size (s) broke."""
        if not chosen.any():
            return
        for k in np.flatnonzero(chosen).tolist():
            self.failed[k] = t, self._trouble.get(k) or self._reason(k, size)
        self._give_up(chosen)
        if (rates := self._steps.known_rates) is not None:
            self._rows(rates, chosen, 0.0)

    def _give_up(self, chosen: npt.NDArray[np.bool_]) -> None:
        self.left |= chosen
        self._any_left = bool(self.left.any())
        self.copies.forces.idle = set(np.flatnonzero(self.left).tolist())

    def _reason(self, copy: int, size: float) -> str:
        """Why no step suits a copy."""
        u = self.state[1][copy]
        k = int(np.argmax(np.abs(u)))
        system = self.copies.systems[copy % len(self.copies.systems)]
        body = system.name_of(int(np.searchsorted(system.offsets()[1], k, side="right")) - 1)
        how = "at the begin" if size == np.inf else f"with a step of {size:.3g} s"
        return (
            f"the state is no longer finite, or its error too large, {how}; body '{body}' moves fastest "
            f"({abs(u[k]):.3g} rad/s or m/s)"
        )

    def close(self) -> None:
        """Free what the copies hold."""
        self.copies.close()
