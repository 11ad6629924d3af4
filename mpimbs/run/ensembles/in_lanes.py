"""Copies side by side in lanes, sampled and checked; see `CopiesInTurn` for others."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.base.state_tree import made_again, taken_apart
from mpimbs.dynamics.selection import SampleTable
from mpimbs.dynamics.side_by_side import SideBySide
from mpimbs.run.ensembles.in_turn import CopiesMemory
from mpimbs.run.witness import TO_GO_ON, Seen
from mpimbs.stepping.copies_stepper import CopiesStepper, LanesMemory
from mpimbs.stepping.settings import SimulationSettings
from mpimbs.stepping.step_sizes import StepSizes

WHOLE = 100  # copies of a rank at the first sample, and at the last
EVALUATIONS = 50_000  # evaluations of copies for each that is checked between them


@dataclass
class LanesState:
    """The state of a rank's copies beside vectors: sizes of steps, what was seen, in how many checks, in rotation; and
    numbers of steps, rejected ones, evaluations."""

    sizes: StepSizes
    seen: Seen
    checked: int
    counts: list[int]


class CopiesInLanes(CopiesStepper):
    """Steps copies through time side by side, samples and checks them.

    Parameters
    ----------
    names : sequence of str
        What they are called.
    table : SampleTable
        Of the ensemble.
    state : (array [copies, nq], array [copies, nu]), optional
        Where they begin, those of the models by default.
    memory : CopiesMemory, optional
        Go on from that of other ones, of which one stands for each of their ranks.
    """

    at_samples_alone = True  # what it gives by `memory`: elsewhere other ranks are at other times
    happened: ClassVar[dict[str, list[dict[str, Any]]]] = {}  # no events

    def __init__(
        self,
        copies: SideBySide,
        names: Sequence[str],
        settings: SimulationSettings,
        table: SampleTable,
        state: tuple[Floats, Floats] | None,
        memory: CopiesMemory | None,
    ) -> None:
        self._names, self._table, self.lanes, self.count = names, table, copies.lanes, copies.count
        told = [] if memory is None else [made_again(LanesState, plain, {}) for plain in memory.told]
        self._asked = sum(state.checked for state in told)
        self._seen, self._paid = Seen(), 0  # checks for which evaluations stand
        for state_of_rank in told:
            self._seen.join(state_of_rank.seen)
        sizes = told[0].sizes if told else StepSizes()
        known = None if memory is None else LanesMemory(memory.time, sizes, memory.vectors, memory.left)
        self._sampled = 0.0 if memory is None else memory.time  # s
        super().__init__(copies, settings.integrator, settings.accuracy, settings.t_end or np.inf, state, known)
        if told:
            self.steps, self.rejected, self.evaluations = map(max, zip(*(state.counts for state in told), strict=True))
            self._paid = self._checks_due()

    def take(self, t: float) -> tuple[dict[str, Floats], float]:
        """Give the samples of all copies [copies, ...] at a time (s), which they have reached, and the smallest of
        their next steps (s)."""
        self._sampled, (q, u) = t, self.at(t)
        at, found = self.copies.sampled(t, q, u, self.given(t, q, u), self.left), {}
        for each in self._table.quantities:
            if each.copied:
                assert each.take is not None
                rows, values = self._table.rows[each.name], each.take(at)
                found[each.name] = values.copy() if rows is None else values[:, rows]
        return found, self.step_size

    def _checks_due(self) -> int:
        """For how many checks evaluations stand so far."""
        return self.evaluations * self.count // EVALUATIONS

    def check(self, t: float, whole: bool) -> None:
        """Check the copies whose turn it is at a time (s), the first, the last or another; what is wrong ends there."""
        due = self._checks_due() - self._paid
        self._paid += due
        asked = min(max(WHOLE if whole else 0, due), self.count)
        turn = (np.arange(self._asked, self._asked + asked) % self.count).tolist()
        self._asked += asked
        chosen = [k for k in turn if not self.left[k]]
        if not chosen:
            return
        wrong = {}
        for k, found in self.copies.residuals(t, *self.at(t), chosen):
            self._seen.take(found, t, of=self._names[k])
            if told := found.judged(None):
                wrong[k] = f"{told}. {TO_GO_ON}"
        self.leave(wrong, t)

    def seen(self) -> tuple[Seen, int]:
        """Give what checks have found so far, and in how many copies."""
        return self._seen, min(self._asked, self.count)

    def memory(self) -> tuple[list[Any], dict[str, Floats]]:
        """Give what goes on from the last sample: `told` and `vectors` of `CopiesMemory`."""
        counts = [self.steps, self.rejected, self.evaluations]
        plain, _ = taken_apart(LanesState(deepcopy(self.sizes), deepcopy(self._seen), self._asked, counts))
        return [plain], self.vectors(self._sampled)
