"""Steps of our own of a distributed system: see `tableaux` for the schemes, `march` for what is computed.

Samples never shorten steps: between the ends of a step the state is the scheme's own polynomial (`Tableau.dense`), of
order 4 for dopri5, 7 for dop853, 3 for bs3 and rk4, one less than its steps for Rosenbrock-W methods; quaternions are
made unit and loops closed there as where steps end. Compiled steps pass samples, and keep the states there, where these
take no further evaluation. Where joints follow given motions steps do end at samples: nothing else would keep them from
jumping over what is given.

What acts outside compiled code is called stage by stage, and so are the stages that are solved for: those of a step
with one matrix, of the state where it begins [`stage_matrix`].
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.loops import ClosedLoops
from mpimbs.forces.at_once import ActingAtOnce
from mpimbs.parallel.agreement import greatest
from mpimbs.parallel.native import channel
from mpimbs.stepping import march as m
from mpimbs.stepping.event_watch import EventSearch
from mpimbs.stepping.integrator import QUIET, ROUNDING_OF_TIMES, Asked, Integrator, Moment, Moments
from mpimbs.stepping.schemes import scheme_of
from mpimbs.stepping.stability import StabilityProbe
from mpimbs.stepping.stage_matrix import StageMatrix
from mpimbs.stepping.stage_steps import Parts, StageSteps
from mpimbs.stepping.step_sizes import StepMemory
from mpimbs.sweep.structure import FIRST_Q, TURN

GENTLY = 0.5  # how much shorter a step becomes at the most in systems with loops
BROKEN_FACTOR = 0.1  # the same where a trial step has left the range of numbers: a smaller one may not
BITS = 3  # of what may be asked for


class RungeKutta(Integrator):
    """Takes the steps of a scheme of our own, by a name in `tableaux.TABLEAUX`; see `Integrator`."""

    def __init__(
        self,
        dynamics: Dynamics,
        q: Floats,
        u: Floats,
        name: str,
        given: Asked,
        time: float = 0.0,
        memory: StepMemory | None = None,
    ) -> None:
        super().__init__(dynamics, q, u, given, time, memory)
        steps = dynamics.subchain.structure.steps
        power = self._power
        solves = scheme_of(name).implicit
        self._matrix: StageMatrix | None = None
        if solves:
            so_far = None if memory is None else memory.tension
            self._matrix = StageMatrix(dynamics, self._loads, given.tension, so_far)
        compiled = dynamics.derivative.compiled if power.compiled and not self._follows else None
        own: dict[str, Any] = {"channel": channel(dynamics.comm), "alone": int(dynamics.comm.size == 1)}
        if self._matrix is not None and not self._matrix.may_be_compiled:
            compiled = None
        if compiled is not None:
            own["evaluation"], own["rank"] = compiled
        kinds = ("torque", "damping", "stops", "bounded")
        acting = {"held": self.held} | {kind: getattr(power, kind) for kind in kinds}
        own |= {kind: forces for kind, forces in acting.items() if forces is not None}
        nu = self._end - self._nq
        at_once = dynamics.divided.external.at_once
        self._acting = at_once if compiled is not None else None
        if self._acting is not None:
            own |= {"power": self._acting.find_power(), "clock": self._acting.time}
        if power.loops is not None:
            own["powers"] = power.loops.powers
        own |= {"grip": self.grip, "acting": np.zeros(nu if self._power.grips else 0)}
        # Loops that compiled steps close, and those that the last call has closed.
        self._closes: ClosedLoops | None = None
        self._closed: ClosedLoops | None = None
        loops = dynamics.loops
        closing = None if loops is None else loops.compiled  # of all ranks, whatever is compiled on this one
        if compiled is not None and closing is not None and loops is not None:
            self._closes = loops
            own |= {"close": closing[0], "closing": closing[1].data, "seen": loops.seen}
        self._own = StageSteps(
            name, given.accuracy, self._begin_state, self._nq, nu, steps[steps[:, TURN] == 4, FIRST_Q], **own
        )
        self._looked, self._taken_for = False, np.nan  # whether the matrix has seen where the step begins; its step (s)
        self.between = not self._follows  # given motions have no error that steps would follow
        self._taken, self._retried = (0, 0) if memory is None else (memory.steps, memory.rejected)
        self._completed = np.nan  # when the step ended whose rates behind those of its stages are there
        # What Python raises ends the first step of a call: it is called no more.
        waits = compiled is None or (self._acting is not None and self._acting.asks)
        waits |= dynamics.loops is not None and self._closes is None
        # What Python does at samples, or counts turns, can't be done behind them.
        closes = given.projection is None or given.projection.closes_within
        stops = not (self.between and closes) or power.grips
        agreed = greatest(dynamics.comm, np.array([waits, stops, len(self._begin_state)], np.float64))
        waits, stops, most = agreed.astype(int).tolist()
        self._compiled = compiled is not None
        self._at_once = 1 if waits else int(np.clip(m.AT_A_CALL // max(most, 1), 1, m.MOST_AT_A_CALL))
        self._own.make_room(0 if waits or stops else min(m.PASSING, m.PASSING_NUMBERS // max(most, 1)))
        self._own.begin(self._began_at)
        self._own.numbers[m.NORM_ERROR] = self.norm_error
        if given.projection is not None:
            self._own.numbers[m.LEAST_FACTOR] = GENTLY
        if memory is not None:
            self._own.counts[m.AGAIN], self._own.numbers[m.ERROR_BEFORE] = memory.again, memory.error
        if (known := self._known_rates) is not None:
            self._own.know(known)
        if self._fixed is not None:
            self._own.step = self._fixed
        elif memory is not None:
            self._own.step = memory.step
        else:
            self._evaluate_at(self._began_at, self._own.state, 0)
            self._own.step = self._first_size(self._own.rows[0][0])
            if not solves:
                self._own.know(self._own.rows[0][0])
        if given.probed and self._fixed is None and not solves:
            known_motion = None if memory is None else memory.probe
            self._probe = StabilityProbe(dynamics, self._own.tableau.polynomial, known_motion)
        self._vectors = {}

    @property
    def _state(self) -> Floats:
        return self._own.state[0]

    @property
    def anchors(self) -> int:
        return int(self._own.counts[m.NOW])

    @property
    def _anchors_before(self) -> int:
        return 1 - self.anchors

    @property
    def _before(self) -> tuple[float, Floats]:
        return self._own.began, self._own.other[0]

    @property
    def time(self) -> float:
        """Time reached (s)."""
        return self._own.time

    @property
    def step_size(self) -> float:
        """Size of the next step (s), if the time towards which it goes does not shorten it."""
        return self._own.step

    @property
    def steps(self) -> int:
        """Steps taken."""
        return self._taken

    @property
    def rejected(self) -> int:
        """Steps rejected: by the error estimate, or because they left the range of numbers."""
        return self._retried

    def _step(self, target: float, samples: Floats, most: int, unseen: int) -> bool:
        own, c, closing = self._own, self._own.counts, self._projection
        began, step = own.time, own.step
        if target - began <= ROUNDING_OF_TIMES * began:  # an event came so near
            return self._arrive(target)
        over = 0.0 if closing is None or self._fixed else closing.step_over(step)
        if over:
            own.step, c[m.REGARDLESS] = over, 1  # whatever error is estimated
        self._broke.begin()
        own.look_ahead(samples, unseen)
        self._try(target, 1 if over else most)
        c[m.REGARDLESS] = 0
        accepted, broken = int(c[m.ACCEPTED]), c[m.OUTCOME] == m.BROKEN
        self._taken, self._retried = self._taken + accepted, self._retried + int(c[m.REJECTED])
        stuck = self._stuck() if accepted else None
        if over and closing is not None and (not accepted or stuck is not None or closing.left_too_much):
            self._take_back(accepted)
            closing.stay_small(step)
            own.step = step
            self._retried += 1
            return False
        if not accepted or stuck is not None:
            self._take_back(accepted)
            size = own.size
            smaller = self._fixed is None and size > m.TINY * max(abs(began), 1e-3)
            if (broken or stuck is not None) and smaller and not self._broke.anywhere():
                own.step = BROKEN_FACTOR * size
                self._retried += 1
                return False
            if stuck is not None:
                raise SimulationError(f"t = {began:g} s, step {size:.3g} s: {stuck}")
            self._examine(True, began, size)
        self.norm_error = float(own.numbers[m.NORM_ERROR])
        if c[m.BEHIND]:
            self.passed = self._moments(*own.passed())
        if self._fixed is None:
            self._note(target)
        return own.time == target

    def _moments(self, t: Floats, q: Floats, u: Floats, work: Floats, facts: Floats) -> Moments:
        """The states at the samples that were passed."""
        numbers = list(map(self._work_of_all, work)), *facts.tolist()
        return Moments(t.tolist(), q, u, [self.held] * len(t), *numbers)

    def _stuck(self) -> SimulationError | None:
        """Constrain the state after the step just taken, if that was not done; gives why it can't be."""
        if self._closed is None:
            return self._constrain(self._state)
        return self._closed.why_open() if self._own.counts[m.OUTCOME] == m.OPEN else None

    def _take_back(self, accepted: int) -> None:
        """Be where the last step began: what the matrix looks at, or was not finite, is evaluated anew."""
        if accepted:
            self._own.undo()
            self._taken -= 1
        c = self._own.counts
        if self._matrix is not None or c[m.OUTCOME] == m.BROKEN:
            c[m.KNOWN] = m.NOTHING_KNOWN

    def _note(self, target: float) -> None:
        """Note the sizes of steps that were taken, negative of one that the time ahead has shortened."""
        sizes, probe, closing = self._own.sizes, self._probe, self._projection
        cut = sizes[-1] < 0.0
        if closing is not None and self._closed is None:
            closing.took(abs(sizes[-1]))
        if probe is None:
            self.sizes.take(sizes)
        else:
            if len(sizes) > 1:  # which were taken before the probe looks
                self.sizes.take(sizes[:-1], probe.largest_step)
            if not cut and probe.due():
                probe.look(self.time, self.q, self.u)
            self.sizes.take(sizes[-1:], probe.largest_step)
        if not self._own.counts[m.SMALL_STEPS]:
            self._crawl.went_on()
            return
        left = target - self.time + sum(map(abs, sizes))
        for size in map(abs, sizes):
            if self._crawl.took(size, left):
                self._end_crawl(size)
            left -= size

    def _try(self, target: float, most: int) -> None:
        """Try a step until it is taken or broke, or several; all ranks call."""
        own, dynamics = self._own, self._dynamics
        c, asked = own.counts, self._asked()
        own.told[m.FACTS - BITS :] = [asked >> bit & 1 for bit in range(BITS)]
        matrix = self._matrix
        at_once = 0 if dynamics.loops is not None and dynamics.loops.refining is not False else self._at_once
        own.numbers[m.TARGET] = target
        if matrix is not None and self._compiled:
            if at_once > 1 and not matrix.steps_unseen:
                self._look_first()
            if (found := matrix.compiled) is not None:
                own.solve_by(found)
            looked = c[m.KNOWN] != m.NOTHING_KNOWN
            at_once = 0 if found is None else min(at_once, matrix.steps_unseen + looked)
        if self._compiled and at_once:
            c[m.MOST] = min(most, at_once)
            c[m.ENOUGH] = m.UNLIMITED if self._probe is None else self._probe.evaluations_left
            acting = self._acting
            with self._quiet():  # for functions of Python's
                m.march(own.plan)
            self._closed = self._closes
            dynamics.derivative.evaluations += int(c[m.EVALUATED])
            if matrix is not None:
                matrix.saw(int(c[m.BEGUN]))
                self._looked, self._taken_for = True, np.nan
            if acting is not None:
                self._hear(acting)
        else:
            self._closed = None
            with self._quiet():
                rejected = self._by_stages(target)
                while not c[m.ACCEPTED] and c[m.OUTCOME] == m.GOING_ON:
                    rejected += self._by_stages(target)
            c[m.REJECTED] = rejected
        self.requests = sum(1 << bit for bit, heard in enumerate(own.heard[m.FACTS - BITS :].tolist()) if heard)

    def _look_first(self) -> None:
        """Evaluate where the next step begins, if that is not known, for the matrix to look: compiled steps go on."""
        if self._own.find_first(self._evaluate_at):
            self._own.counts[m.UNTIL_SEEN] -= 1  # one evaluation less until a sample is looked at
            self._look()

    def _look(self) -> float:
        """Have the matrix look where the step begins, if it has not yet; gives gamma h (s)."""
        step, matrix = self._own.tableau.gamma * self._own.size, self._matrix
        assert matrix is not None
        if not self._looked:
            matrix.look(step)
            self._looked, self._taken_for = True, np.nan
        return step

    def _quiet(self) -> AbstractContextManager[None]:
        """Have numpy say nothing of trial states that leave the range of numbers."""
        return np.errstate(over="ignore", invalid="ignore") if self._power.overflows else QUIET

    def _hear(self, acting: ActingAtOnce) -> None:
        """Take what compiled evaluations had to tell: after steps that were taken, the next one finds it again."""
        try:
            acting.tell(self.time)
        except SimulationError as error:
            if not self._own.counts[m.ACCEPTED]:
                self._broke.take(error)

    def _by_stages(self, target: float) -> int:
        """Try a step, of which Python calls the stages; gives how many were rejected."""
        own = self._own
        own.attempt(target, self._evaluate_at, self._solve if self._matrix is not None else None)
        own.told[1] = bool(self._broke.failure)
        m.judge(own.plan)
        self._dynamics.comm.Allreduce(own.told, own.heard, MPI.MAX)
        m.conclude(own.plan)
        return int(own.counts[m.REJECTED])

    def _evaluate_at(self, t: float, state: Parts, row: int) -> None:
        anchors = self._anchors_before if row > self._own.tableau.stages else None  # of what polynomials take
        self._evaluate(t, state[1], state[2], *self._own.rows[row], anchors=anchors)
        self._looked &= row != self._own.counts[m.FIRST]

    def _solve(self, r: Floats, x: Floats) -> None:
        """Write gamma (1 - gamma h J)^-1 r, with J where the step begins."""
        own, matrix = self._own, self._matrix
        assert matrix is not None
        step = self._look()
        if step != self._taken_for:
            matrix.at(own.state[1], own.state[2], step, self.grip, self.anchors)
            self._taken_for = step
        self._solve_again(r, x)

    def _solve_again(self, r: Floats, x: Floats) -> None:
        """Solve as `_solve` does, with the matrix of the last step."""
        assert self._matrix is not None
        self._matrix.solve(r, x, self._own.tableau.gamma)

    def _loads(self) -> Floats:
        """Give the loads of the joints on bodies [n, 6] where the step begins, which was evaluated last."""
        q, u = self._own.state[1:]
        tau = self._on_joints(q, u, self.anchors, self.held)
        return self._dynamics.loads.after(q, u, self._acted, tau, least=False).joints

    def _arrive(self, target: float) -> bool:
        """Be at a time that is there but for rounding."""
        apart = self.time != target  # at the very time, as after a restart, all is where it should be
        self._own.numbers[m.REACHED] = target
        self.requests = 0  # those of the step before were answered
        stuck = self._constrain(self._state) if self._follows and apart else None
        if stuck is not None:
            raise SimulationError(f"t = {target:g} s: {stuck}")
        return True

    def at(self, t: float) -> Moment:
        """Give the state at a time (s) in the last step; all ranks call."""
        now = self.time
        near = m.SLACK * self._fixed if self._fixed else m.TOGETHER * abs(now)
        if t >= now - near:
            return super().at(t)
        values, q, u = self._within(t)
        q, u = (q.copy(), u.copy()) if self._projection is None else self._projection.closed(q, u)
        return self._moment(q, u, self._anchors_before, self._work_of_all(values[self._end :]))

    def _within(self, t: float) -> Parts:
        """Numbers at a time (s) within the last step, which are used again."""
        if self._own.tableau.between_takes_more and self._completed != self.time:
            self._broke.begin()
            self._own.complete(self._evaluate_at, None if self._matrix is None else self._solve_again)
            self._examine(False, self.time, self._own.size)
            self._completed = self.time
        return self._own.within(t)

    def go_back(self, search: EventSearch) -> list[int]:
        """See `Integrator.go_back`: the moment is that of the polynomial, the state that of a step to there."""
        own, c = self._own, self._own.counts
        began, end, step, asked = own.began, own.time, own.step, self.requests
        moment = search(lambda t: self.parts if t >= end else self._within(t)[1:], began, end)
        if moment < end:
            own.undo()
            own.step, c[m.REGARDLESS] = moment - began, 1
            self._broke.begin()
            self._try(moment, 1)
            own.step, c[m.REGARDLESS] = step, 0
            self.requests |= asked
            stuck = self._stuck() if c[m.ACCEPTED] else None  # at once: compiled steps of other ranks close loops
            self._examine(not c[m.ACCEPTED], began, moment - began)
            if stuck is not None:
                raise SimulationError(f"t = {self.time:g} s: {stuck}")
        return search.passed

    def restart(self) -> None:
        """Have the next step take nothing from the one before it: what acts has changed."""
        self._own.forget()

    def _kept(self) -> tuple[Floats | None, dict[str, Any]]:
        rates = self._own.known_rates
        more: dict[str, Any] = {"again": bool(self._own.counts[m.AGAIN])}
        more["error"] = float(self._own.numbers[m.ERROR_BEFORE])
        if self._matrix is not None:
            more["tension"] = list(self._matrix.memory)
        return rates, more

    def _rates_at_hand(self) -> list[Floats]:
        """Rates of the last attempt of a step."""
        return [out for out, *_ in self._own.rows]
