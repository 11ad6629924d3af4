"""Time integration of copies side by side: one explicit step for all of them, which the most demanding one sets.

Each copy has the error estimate that it has alone, of its worst number; the largest counts. A copy
that no step suits is left behind where it was: the others go on without it.

Samples don't shorten steps: within the last one states are those of the scheme's polynomial. What a checkpoint keeps is
therefore where that step began, how long it was, and the state at the sample: on the same ranks the step is made again,
to the same bits, on others the copies begin from the sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats
from mpimbs.dynamics.side_by_side import SideBySide
from mpimbs.stepping import march as m
from mpimbs.stepping.crawling import NEARLY, Crawl
from mpimbs.stepping.schemes import Accuracy
from mpimbs.stepping.stage_steps import StageSteps
from mpimbs.stepping.step_sizes import ANCHORS, RATES, StepSizes, first_step
from mpimbs.sweep.grip import drag_grip
from mpimbs.sweep.structure import FIRST_Q, TURN

ROUNDING = 1e-14  # of times
BROKEN_FACTOR = 0.1  # of a step that has left the range of numbers, that is tried next


class LanesMemory(NamedTuple):
    """The memory that the steps of copies side by side leave to the next."""

    time: float  # of the sample (s)
    sizes: StepSizes
    # [copies, n]: `q_now`, `u_now`: the states at that time. `q`, `u` and their rates: where the last step began.
    # `times`: when that was, and the time reached (s). `ANCHORS` of friction, where the last step began. `step`: its
    # size and that of the next (s), and whether all that its polynomial takes was evaluated. `error`: of the step.
    vectors: dict[str, Floats]
    left: npt.NDArray[np.bool_]  # [copies]: which copies are left behind


class CopiesStepper:
    """Steps copies through time, on one process.

    Parameters
    ----------
    integrator : str
        A name in `tableaux.TABLEAUX`.
    end : float
        Time (s) that no step passes.
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
        end: float,
        state: tuple[Floats, Floats] | None = None,
        memory: LanesMemory | None = None,
    ) -> None:
        self.copies, self._accuracy, self._fixed, self._goal = copies, accuracy, accuracy.dt is not None, end
        known = None if memory is None else memory.vectors
        # Of several ranks that have reached several times the copies meet at the sample.
        alike = known is not None and bool((known["times"] == known["times"][:1]).all())
        if known is not None:
            state = (known["q"], known["u"]) if alike else (known["q_now"], known["u_now"])
        q, u = copies.initial_state() if state is None else state
        self._end = q.size
        steps = copies.structure.steps
        first = steps[steps[:, TURN] == 4, FIRST_Q]
        quaternions = (np.arange(copies.count)[:, None] * copies.nq + first).ravel()
        whole = np.concatenate([q.ravel(), u.ravel()])
        compiled = copies.compiled
        most = 1 if copies.forces.asks else m.MOST_AT_A_CALL
        self._at_once = 0 if compiled is None else int(np.clip(m.AT_A_CALL // whole.size, 1, most))
        evaluation: dict[str, Any] = {}
        if compiled is not None:
            evaluation = {"evaluation": compiled[0], "rank": compiled[1], "clock": copies.time}
        self._grip = grip = copies.grip()
        evaluation |= {"grip": grip, "acting": np.zeros(u.size if grip else 0)}
        grip.begin(q.ravel(), known[ANCHORS].ravel() if known is not None and ANCHORS in known else None)
        for which in (0, 1) if grip and known is not None and not alike else ():
            drag_grip(grip, which, which, q.ravel())
        self._steps = own = StageSteps(integrator, accuracy, whole, q.size, u.size, quaternions, **evaluation)
        self.left = np.zeros(copies.count, bool)
        self._any_left = False
        self.failed: dict[int, tuple[float, str]] = {}
        self._trouble: dict[int, str] = {}  # of functions, in the step
        self.steps = self.rejected = self.evaluations = 0
        self.sizes = StepSizes() if memory is None else memory.sizes
        self._room = np.empty_like(whole)
        self._behind = self._completed = False  # whether a step is, and what its polynomial takes beyond its stages
        self._crawl = Crawl()
        if memory is None or known is None:
            own.begin(0.0)
            own.step = accuracy.dt or self._first_step()
            return
        self._give_up(memory.left)
        began, reached = known["times"][0].tolist() if alike else (memory.time, memory.time)
        own.begin(began)
        if alike:
            rates = np.concatenate([known[name].ravel() for name in RATES])
            if np.isfinite(rates).all():
                own.know(rates)
            if reached > began:
                size, _, completed = known["step"][0].tolist()
                self._step_again(size, bool(completed), reached)
        going = ~memory.left
        own.numbers[m.ERROR_BEFORE] = np.max(known["error"][:, 0], initial=m.LEAST_ERROR, where=going)
        own.step = accuracy.dt or float(np.min(known["step"][:, 1], initial=np.inf, where=going))

    def _step_again(self, size: float, completed: bool, reached: float) -> None:
        """Make the step of some size (s) to a time (s) again, which was taken, and counted, before a restart."""
        own = self._steps
        own.step, own.counts[m.REGARDLESS] = size, 1
        with np.errstate(over="ignore", invalid="ignore"):
            own.attempt(np.inf, self._evaluate)
        _, self._behind = own.conclude(0.0)
        own.counts[m.REGARDLESS] = 0
        own.numbers[m.REACHED] = reached
        if completed:
            own.complete(self._evaluate)
            self._completed = True
        self.evaluations = 0

    def _evaluate(self, t: float, state: tuple[Floats, Floats, Floats], row: int) -> None:
        """Write the rates of a state: of coordinates, then udot; zero of what is left behind."""
        out, rates, udot = self._steps.rows[row]
        now = self._now if row <= self._steps.tableau.stages else 1 - self._now  # of what polynomials take
        self.copies.evaluate(t, state[1], state[2], udot, rates, self._gripped(state[1], state[2], now))
        self.evaluations += 1
        if self.copies.forces.failures:
            self._trouble = self.copies.forces.failures | self._trouble
        if self._any_left:
            self._rows(out, self.left, 0.0)

    @property
    def _now(self) -> int:
        """Which of the anchors of friction are those of the state at the time reached."""
        return int(self._steps.counts[m.NOW])

    def _gripped(self, q: Floats, u: Floats, anchors: int) -> Floats | None:
        """What friction adds to the forces on the joints of all copies in a state [copies * nu], if there is any."""
        return self._grip.forces(q, u, anchors) if self._grip else None

    def given(self, t: float, q: Floats, u: Floats) -> Floats | None:
        """What friction adds to the joints' forces [copies, nu] in the states that `at` gives of a time (s), if any."""
        within = self._behind and not self._reaches(t, self.time)
        found = self._gripped(q.ravel(), u.ravel(), 1 - self._now if within else self._now)
        return None if found is None else found.reshape(u.shape)

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

    def at(self, t: float) -> tuple[Floats, Floats]:
        """Give states at a time (s) in the last step, or where that ended; see `state`."""
        own = self._steps
        if not self._behind or self._reaches(t, self.time):
            return self.state
        if own.tableau.between_takes_more and not self._completed:
            self._trouble, self._completed = {}, True
            own.complete(self._evaluate)
            self._leave(self._troubled(), t, own.size)
        _, q, u = own.within(t)
        return q.copy().reshape(self.copies.count, -1), u.copy().reshape(self.copies.count, -1)

    def _reaches(self, t: float, now: float) -> bool:
        """Whether a time (s) is at that of the steps or, but for rounding, behind."""
        return t >= now - (m.SLACK * self._steps.step if self._fixed else ROUNDING * now)

    def vectors(self, t: float) -> dict[str, Floats]:
        """Give what the next step takes from those before it, at a sample (s), as `LanesMemory` has it."""
        own, count = self._steps, self.copies.count
        before, rates = (own.other, own.rows[own.counts[m.FIRST]][0]) if self._behind else (own.state, own.known_rates)
        if rates is None:
            rates = np.full(self._room.size, np.nan)
        q_now, u_now = self.at(t)
        parts = {
            "q": before[1],
            "u": before[2],
            **dict(zip(RATES, (rates[: self._end], rates[self._end :]), strict=True)),
        }
        parts[ANCHORS] = self._grip.anchors_of(1 - self._now if self._behind else self._now, len(before[2]))
        vectors = {name: part.reshape(count, -1).copy() for name, part in parts.items()}
        facts = {
            "times": (own.began if self._behind else own.time, own.time),
            "step": (own.size, own.step, self._completed),
            "error": (own.numbers[m.ERROR_BEFORE],),
        }
        return vectors | {n: np.tile(f, (count, 1)) for n, f in facts.items()} | {"q_now": q_now, "u_now": u_now}

    def step_towards(self, target: float) -> bool:
        """Try steps if a time (s) is not reached, and say whether it is then: `at` has the states there."""
        if self.left.all():
            self._steps.begin(target)
        if self._reaches(self.time, target):
            return True
        self._trouble, self._behind, self._completed = {}, False, False
        # What goes wrong, or slowly, is looked at copy by copy.
        if not self._at_once or self._any_left or self._steps.counts[m.SMALL_STEPS] or not self._march(target):
            self._by_stages()
        return self._reaches(self.time, target)

    def _march(self, target: float) -> bool:
        """Take steps in compiled code, none from a time (s) on, and say whether there were any."""
        own, c = self._steps, self._steps.counts
        own.numbers[[m.TARGET, m.PAUSE]] = self._goal, (1.0 - m.TOGETHER) * target
        c[m.MOST], c[m.ENOUGH] = self._at_once, m.UNLIMITED
        left = self._goal - self.time
        with np.errstate(over="ignore", invalid="ignore"):  # for functions of Python's
            m.march(own.plan)
        self.evaluations += int(c[m.EVALUATED])
        self.rejected += int(c[m.REJECTED])
        if not (sizes := own.sizes):
            return False
        self.steps += len(sizes)
        self._behind = self._reaches(self.time, target)  # else the last attempt may have failed
        if not self._fixed:
            self.sizes.take(sizes)
            for size in map(abs, sizes):
                self._crawl.took(size, left)
                left -= size
        return True

    def _by_stages(self) -> None:
        """Try a step, of which Python calls the stages; copies that none suits are left behind."""
        own, began = self._steps, self.time
        left = self._goal - began
        with np.errstate(over="ignore", invalid="ignore"):
            own.attempt(self._goal, self._evaluate)
            errors = self._errors()
        if self._trouble:
            self._leave(self._troubled(), began, own.size)
            return
        worst = float(errors.max())
        outcome, accepted = own.conclude(worst)
        if not accepted:
            if self._fixed or outcome == m.UNDERFLOW or own.size <= m.TINY * max(began, 1e-3):
                self._leave(~(errors <= 1.0), began, own.size)
                return
            if outcome == m.BROKEN:
                own.step = BROKEN_FACTOR * own.size
            self.rejected += 1
            return
        self.steps += 1
        self._behind = True
        if not self._fixed:
            self.sizes.take(own.sizes)
            if self._crawl.took(self.time - began, left):
                self._leave_crawling(errors == worst)

    def leave(self, reasons: Mapping[int, str], t: float) -> None:
        """Leave copies behind at a time (s) in the last step, for these reasons."""
        self._trouble = dict(reasons)
        self._leave(self._troubled(), t, self.step_size)

    def _troubled(self) -> npt.NDArray[np.bool_]:
        """Which copies have trouble [copies]."""
        return np.isin(np.arange(self.copies.count), list(self._trouble))

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
