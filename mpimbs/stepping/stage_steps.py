"""The room of steps by a tableau: a state, the one that a step makes of it, rates, and what was chosen."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import typeof

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.memory import Table
from mpimbs.parallel.native import Channel
from mpimbs.stepping import march as m
from mpimbs.stepping.schemes import Accuracy, scheme_of
from mpimbs.stepping.tableaux import TABLEAUX
from mpimbs.sweep.along_joints import NO_BOUNDED, NO_STOPS, forces_of_bounded, forces_of_stops
from mpimbs.sweep.grip import NO_GRIP, add_grip, drag_grip

Parts = tuple[Floats, Floats, Floats]  # all numbers of a state, or of its rates; of coordinates; of speeds
LEAST_FACTOR = 0.1  # how much shorter a step becomes at the most
NOBODY = Channel(np.zeros(3, np.int64), np.zeros(16, np.int64), np.zeros(1), np.zeros(1))


@functools.cache  # a second time in a process there is nothing to do
def compile_steps(stops: bool = False, bounded: bool = False) -> None:
    """Compile, or load from the cache, what steps call, with `stops`, and servos and friction; no communication."""
    steps = StageSteps("dopri5", Accuracy(), np.zeros(2), 1, 1, np.zeros(0, np.int64))
    for entry in (m.propose, m.judge, m.conclude, m.march):
        entry.compile((typeof(steps.plan),))
    m.stage.compile((typeof(steps.plan), typeof(0)))
    m.summed_rates.compile((typeof(steps.plan), typeof(steps.numbers)))
    m.interpolated_state.compile((typeof(steps.plan), typeof(steps.numbers), typeof(0.0)))
    m.state_within.compile((typeof(steps.plan), typeof(0.0), typeof(steps.numbers)))
    if stops:
        forces_of_stops.compile((typeof(NO_STOPS), *(typeof(steps.numbers),) * 3))
    if bounded:
        forces_of_bounded.compile((typeof(NO_BOUNDED), *(typeof(steps.numbers),) * 3))
        add_grip.compile((typeof(NO_GRIP), typeof(0), *(typeof(steps.numbers),) * 3))
        drag_grip.compile((typeof(NO_GRIP), typeof(0), typeof(0), typeof(steps.numbers)))


class StageSteps:
    """Takes steps stage by stage, of one system or of copies; see `march` for what is computed.

    Parameters
    ----------
    name : str
        A name in `TABLEAUX`.
    state : array [n]
        Where it begins: coordinates, speeds, and at most one number that has no part in errors.
    quaternions : array of int
        Where they begin.
    **compiled
        Fields of `march.MarchPlan`, where compiled code takes the steps.

    Attributes
    ----------
    tableau : Tableau
    numbers, counts : array
        As `march` names their items.
    told, heard : array [march.FACTS]
    plan : array of int
        What compiled code is given.
    rows : list of Parts
        Rates.
    """

    def __init__(
        self, name: str, accuracy: Accuracy, state: Floats, nq: int, nu: int, quaternions: Integers, **compiled: Any
    ) -> None:
        self.tableau = tableau = TABLEAUX[scheme_of(name).value]
        n, rows = len(state), len(tableau.a)
        stride = -(-n // m.WIDTH) * m.WIDTH
        states, rates, stage, none = np.zeros((2, stride)), np.zeros((rows, stride)), np.zeros(stride), np.zeros(0)
        states[0, :n] = state
        self._rooms = [(room[:n], room[:nq], room[nq : nq + nu]) for room in (*states, stage)]
        self._stage, self._samples = stage, none
        self._passed = self._passed_facts = np.zeros((0, stride))
        self.rows = [(row[:n], row[:nq], row[nq : nq + nu]) for row in rates]
        self._all_rates = rates[:, : nq + nu]
        self.numbers, self.counts = np.zeros(m.NUMBERS), np.zeros(m.ALL_COUNTS, np.int64)
        self._sizes, self.told, self.heard = np.zeros(m.MOST_AT_A_CALL), np.zeros(m.FACTS), np.zeros(m.FACTS)
        given: dict[str, Any] = {
            "rank": np.zeros(0, np.int64), "evaluation": 0, "channel": NOBODY, "alone": 1,
            "held": none, "torque": none, "damping": none, "stops": NO_STOPS, "bounded": NO_BOUNDED,
            "clock": none, "power": none, "grip": NO_GRIP, "acting": none, "seen": none, "close": 0,
            "powers": np.zeros(0, np.int64), "closing": np.zeros(0, np.int64),
            "matrix": np.zeros(0, np.int64), "look": 0, "factor": 0, "solve": 0,
            "samples": none, "passed": none, "passed_facts": none,
        } | compiled  # fmt: skip
        fixed = accuracy.dt is not None
        plan = m.MarchPlan(
            nq=nq, nu=nu, n=n, stride=stride, stages=tableau.stages, rows=rows, keeps_last=int(tableau.keeps_last),
            takes_more=int(tableau.between_takes_more), fixed=int(fixed),
            a=np.ascontiguousarray(tableau.a).ravel(), errors=tableau.errors.ravel(),
            solves=np.ascontiguousarray(tableau.solves).ravel(), dense=np.ascontiguousarray(tableau.dense).ravel(),
            weights=np.zeros(rows),
            states=states.ravel(), rates=rates.ravel(), state=stage, stage_times=np.array(tableau.c, np.float64),
            quaternions=np.ascontiguousarray(quaternions, np.int64), numbers=self.numbers, counts=self.counts,
            sizes=self._sizes, told=self.told, heard=self.heard, **given,
        )  # fmt: skip
        self._table = Table(plan)
        self.plan = self._table.data
        self._solves_by: tuple[int, int, int, Integers] | None = None
        s, c = self.numbers, self.counts
        s[m.RELATIVE], s[m.ABSOLUTE] = accuracy.rtol, accuracy.atol
        s[m.ORDER], s[m.LEAST_FACTOR], s[m.ERROR_BEFORE] = tableau.order, LEAST_FACTOR, 1.0
        s[m.GAMMA], c[m.LAST] = tableau.gamma, tableau.stages

    def solve_by(self, given: tuple[int, int, int, Integers]) -> None:
        """Have compiled steps of a Rosenbrock-W method look, factor and solve by what is given, and its table: see
        `march.MarchPlan`."""
        if given is not self._solves_by:
            self._solves_by = given
            for name, value in zip(("look", "factor", "solve", "matrix"), given, strict=True):
                self._table.set(name, value)

    def make_room(self, samples: int) -> None:
        """Make room for so many samples that compiled steps may pass."""
        self._samples, self._passed = np.zeros(samples), np.zeros((samples, len(self._stage)))
        self._passed_facts = np.zeros((samples, 2))
        for name in ("samples", "passed", "passed_facts"):
            self._table.set(name, getattr(self, f"_{name}").ravel())

    def look_ahead(self, samples: Floats, unseen: int) -> None:
        """Have the next compiled steps pass some of the next samples (s), none after so many evaluations."""
        ahead = min(len(samples), len(self._samples))
        self._samples[:ahead] = samples[:ahead]
        self.numbers[m.PAUSE] = (1.0 - m.TOGETHER) * samples[0] if len(samples) else np.inf
        self.counts[m.AHEAD], self.counts[m.UNTIL_SEEN] = ahead, unseen

    def passed(self) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Give the times (s) of the samples that the last call has passed before its last step, the coordinates,
        speeds and further numbers there [samples, any], and errors of norms so far, with sizes of the steps that
        followed (s) [2, samples]."""
        kept, (n, nq, nu) = slice(self.counts[m.BEHIND]), (len(part) for part in self._rooms[0])
        q, u, more = (self._passed[kept, part].copy() for part in (slice(nq), slice(nq, nq + nu), slice(nq + nu, n)))
        return self._samples[kept].copy(), q, u, more, self._passed_facts[kept].T.copy()

    def begin(self, t: float) -> None:
        """Be at a time (s), with the state as it is."""
        self.numbers[[m.REACHED, m.BEGAN]] = t

    def know(self, rates: Floats) -> None:
        """Take the rates of the state as it is."""
        self.rows[self.counts[m.FIRST]][0][:] = rates
        self.counts[m.KNOWN] = m.IN_FIRST

    def forget(self) -> None:
        """Take nothing from the step before."""
        self.counts[[m.KNOWN, m.AGAIN]] = 0

    def undo(self) -> None:
        """Go back to where the last step began."""
        s, c = self.numbers, self.counts
        s[m.REACHED] = s[m.BEGAN]
        c[m.NOW], c[m.KNOWN] = 1 - c[m.NOW], m.IN_FIRST

    @property
    def known_rates(self) -> Floats | None:
        """The rates of the state as it is, where they are known; they may be written."""
        c = self.counts
        if c[m.KNOWN] == m.NOTHING_KNOWN:
            return None
        return self.rows[c[m.FIRST] if c[m.KNOWN] == m.IN_FIRST else c[m.LAST]][0]

    @property
    def time(self) -> float:
        """Time reached (s)."""
        return float(self.numbers[m.REACHED])

    @property
    def began(self) -> float:
        """When the last step began (s)."""
        return float(self.numbers[m.BEGAN])

    @property
    def size(self) -> float:
        """Size of the last attempt of a step (s)."""
        return float(self.numbers[m.TRIED])

    @property
    def step(self) -> float:
        """Size of the next step (s), if the time ahead does not shorten it; may be set."""
        return float(self.numbers[m.STEP])

    @step.setter
    def step(self, size: float) -> None:
        self.numbers[m.STEP] = size

    @property
    def state(self) -> Parts:
        """The state at the time reached; may be written."""
        return self._rooms[self.counts[m.NOW]]

    @property
    def other(self) -> Parts:
        """The state where the last step began; of one that is tried, where it ends."""
        return self._rooms[1 - self.counts[m.NOW]]

    @property
    def sizes(self) -> list[float]:
        """Sizes of the steps that were taken in the last call (s), negative where the time ahead has shortened them."""
        return self._sizes[: self.counts[m.ACCEPTED]].tolist()

    def attempt(
        self,
        target: float,
        evaluate: Callable[[float, Parts, int], None],
        solve: Callable[[Floats, Floats], None] | None = None,
    ) -> None:
        """Try a step, not beyond a time (s).

        Parameters
        ----------
        evaluate : callable
            Writes the rates of a state at a time to a row.
        solve : callable, optional
            Of a Rosenbrock-W method, writes gamma (1 - gamma h J)^-1 of numbers [n] to others, with J in the state
            where the step begins, which was evaluated, and h its size.
        """
        s, c, tableau = self.numbers, self.counts, self.tableau
        s[m.TARGET], c[m.ACCEPTED :] = target, 0
        self.find_first(evaluate)
        for k in range(1, tableau.stages):
            if k > 1 or solve is None:
                evaluate(m.stage(self.plan, k), self._rooms[2], k)
            if solve is not None:
                self._increment(k, solve)
        m.stage(self.plan, tableau.stages)
        if tableau.keeps_last:
            evaluate(self.time + self.size, self.other, int(c[m.LAST]))

    def find_first(self, evaluate: Callable[[float, Parts, int], None]) -> bool:
        """Choose the size of the next attempt, and evaluate where it begins; says whether that was not known."""
        c = self.counts
        m.propose(self.plan)
        if c[m.KNOWN] != m.NOTHING_KNOWN:
            return False
        evaluate(self.time, self.state, int(c[m.FIRST]))
        c[m.KNOWN] = m.IN_FIRST
        return True

    def _increment(self, k: int, solve: Callable[[Floats, Floats], None]) -> None:
        """Write the increment of a stage of a Rosenbrock-W method to its row, which may have its rates."""
        m.summed_rates(self.plan, self.tableau.solves[k])
        solve(self._rooms[2][0], self.rows[k][0])

    def errors(self) -> Floats:
        """Estimates of the errors of the step that is tried, over the tolerance [n]; as `march` finds the largest."""
        tableau, c, s = self.tableau, self.counts, self.numbers
        chosen = [c[m.FIRST], *range(1, tableau.stages), c[m.LAST]][: tableau.stages + tableau.keeps_last]
        found = self.size * (tableau.errors[:, : len(chosen)] @ self._all_rates[chosen])
        estimate = found[0]
        if len(found) > 1:
            estimate = estimate**2 / np.maximum(np.sqrt(estimate**2 + 0.01 * found[1] ** 2), 1e-300)
        values = self.other[0][: len(estimate)]
        largest: Floats = np.abs(estimate) / (s[m.ABSOLUTE] + s[m.RELATIVE] * np.abs(values))
        return np.where(np.isfinite(values), largest, np.nan)

    def conclude(self, error: float) -> tuple[int, bool]:
        """Take the step that is tried, or reject it, by its error; gives the outcome, and whether it is taken."""
        failed = not np.isfinite(error)
        self.heard[:2] = 0.0 if failed else error, failed
        m.conclude(self.plan)
        return int(self.counts[m.OUTCOME]), bool(self.counts[m.ACCEPTED])

    def within(self, t: float) -> Parts:
        """Give the state at a time (s) in the last step, by the scheme's polynomial; it is used again."""
        m.state_within(self.plan, t, self._stage)
        return self._rooms[2]

    def complete(
        self, evaluate: Callable[[float, Parts, int], None], solve: Callable[[Floats, Floats], None] | None = None
    ) -> None:
        """Evaluate what the polynomial of the last step takes beyond the rates of its stages; see `attempt`."""
        c, tableau = self.counts, self.tableau
        if c[m.KNOWN] == m.NOTHING_KNOWN and solve is None:  # which the next step begins with
            evaluate(self.time, self.state, int(c[m.LAST]))
            c[m.KNOWN] = m.IN_LAST
        for k in range(tableau.stages + 1, len(tableau.a)):
            m.interpolated_state(self.plan, tableau.a[k].copy(), self.size)
            evaluate(self.began + float(tableau.c[k]) * self.size, self._rooms[2], k)
            if solve is not None:
                self._increment(k, solve)
