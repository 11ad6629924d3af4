"""Steps by PETSc TS, one at a time: the one place where its integrators are used; samples are hit exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from mpimbs.base.arguments import all_finite
from mpimbs.base.arrays import Floats
from mpimbs.base.errors import SimulationError
from mpimbs.dynamics import Dynamics
from mpimbs.parallel.petsc import PREFIX, Arrays, PETSc
from mpimbs.stepping.event_watch import EventSearch
from mpimbs.stepping.integrator import QUIET, ROUNDING_OF_TIMES, Asked, Integrator
from mpimbs.stepping.newton import Stages
from mpimbs.stepping.petsc_schemes import begin_scheme, choose_scheme, first_same_as_last
from mpimbs.stepping.runge_kutta import RungeKutta
from mpimbs.stepping.schemes import STIFF, Accuracy, scheme_of
from mpimbs.stepping.stage_matrix import StageMatrix
from mpimbs.stepping.step_sizes import StepMemory, towards
from mpimbs.sweep.grip import drag_grip

WHOLE = 0.999  # of a step: times are rounded; one that its error has shortened is shorter by far
NO_LIMITS = 1e-20, 1e50  # s, PETSc's own of steps
NOT_FINITE = 72  # PETSC_ERR_FP: the norm of the error is not finite


class PetscIntegrator(Integrator):
    """Takes the steps of an integrator of PETSc, by a name as of `schemes.scheme_of`; see `Integrator`."""

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
        self._values = self._begin_state  # a room whose address never changes, for the compiled code
        self._views = self._values[: self._nq], self._values[self._nq : self._end]
        self._scheme = scheme_of(name)
        self._facts, self._several = np.zeros(1, np.int64), dynamics.comm.size > 1
        self._vector = PETSc.Vec().createMPI((len(self._values), None), comm=dynamics.comm)
        self._vector.setArray(self._values)
        self._arrays = Arrays(self._nq, self._end)
        self._at_hand = self._arrays, self._values.data, self._views
        self._given = given
        self._stages: Stages | None = None
        self._matrix: StageMatrix | None = None
        if self._scheme.implicit:
            known = None if memory is None else memory.tension
            self._matrix = matrix = StageMatrix(dynamics, self._loads, given.tension, known)
            self._stages = Stages(dynamics, self._derivative, matrix, self._arrays, len(self._values))
        self._first_stage = self._known_rates
        self._last_stage: PETSc.Vec | None = None  # where the last evaluation of a step stands
        self._steps_before, self._retried = (0, 0) if memory is None else (memory.steps, memory.rejected)
        self._ts = self._make(self._began_at)
        self._next_step = self._fixed or (self._find_first_step() if memory is None else memory.step)
        self._last_stage = None
        self._old = self._values.copy()
        self._began = self._old, self.time  # of the last step
        self._vectors = {}

    def _make(self, time: float) -> PETSc.TS:
        """Make PETSc's integrator, which begins with the state as it is."""
        ts = PETSc.TS().create(comm=self._dynamics.comm)
        ts.setOptionsPrefix(PREFIX)
        ts.setProblemType(PETSc.TS.ProblemType.NONLINEAR)
        if self._stages is not None:
            self._stages.serve(ts)
        else:
            ts.setRHSFunction(self._derivative)
        ts.setTolerances(rtol=self._accuracy.rtol, atol=self._accuracy.atol)
        choose_scheme(ts, self._scheme, self._fixed is not None, self._projection is not None)
        self._leave_work_out(ts)
        if self._scheme.implicit and self._fixed is None:
            ts.setMaxSNESFailures(-1)  # a smaller step is tried
        begin_scheme(ts, self._vector, time)
        return ts

    def _leave_work_out(self, ts: PETSc.TS) -> None:
        """Give the work no part in the norm of the error: PETSc leaves out what has no tolerance."""
        if not self._power.any:
            return
        vectors = []
        for tolerance in ts.getTolerances():
            vectors.append(self._vector.duplicate())
            vectors[-1].setArray(np.append(np.full(self._end, tolerance), 0.0))
        ts.setTolerances(*vectors)

    def _derivative(self, ts: object, t: float, x: PETSc.Vec, f: PETSc.Vec) -> None:
        """PETSc's right-hand side: rates of q, then udot. What breaks is kept for `_examine`: PETSc must go on."""
        arrays, room, (q, u) = self._at_hand
        out, rates, udot, self._last_stage = arrays.stage(room, x, f)
        if self._first_stage is not None and t == self._began[1]:  # also where the step is tried again
            out[:] = self._first_stage
            return
        self._evaluate(t, q, u, out, rates, udot)
        f.stateIncrease()

    def _loads(self) -> Floats:
        """Give the loads of the joints on bodies [n, 6] where `_derivative` was asked for last."""
        return self._dynamics.loads.after(
            *self._views, self._acted, self._on_joints(*self._views, self.anchors, self.held)
        ).joints

    def _find_first_step(self) -> float:
        derivative = self._vector.duplicate()
        self._derivative(None, self.time, self._vector, derivative)
        found = self._first_size(derivative.array_r)
        derivative.destroy()
        return found

    @property
    def _state(self) -> Floats:
        found: Floats = self._arrays.read(self._vector)
        return found

    @property
    def _before(self) -> tuple[float, Floats]:
        state, time = self._began
        return time, state

    @property
    def time(self) -> float:
        """Time reached (s)."""
        time: float = self._ts.getTime()
        return time

    @property
    def step_size(self) -> float:
        """Size of the next step (s), if the time towards which it goes does not shorten it."""
        return self._fixed or self._next_step

    @property
    def steps(self) -> int:
        """Steps taken."""
        return int(self._ts.getStepNumber()) + self._steps_before

    @property
    def rejected(self) -> int:
        """Steps rejected: by the error estimate, or because they left the range of numbers."""
        return int(self._ts.getStepRejections()) + self._retried

    def _step(self, target: float, samples: Floats, most: int, unseen: int) -> bool:
        began = self.time
        left = target - began
        if left <= ROUNDING_OF_TIMES * began:  # an event came so near
            self._ts.setTime(target)
            self.requests = 0  # those of the step before were answered
            stuck = self._settled() if self._follows and began != target else None
            if stuck is not None:
                raise SimulationError(f"t = {target:g} s: {stuck}")
            return True
        step = self._fixed or self._next_step
        size, last = towards(left, step, self._fixed is not None)
        self.grip.rooms()[1] = self.grip.rooms()[0]
        before = self._old  # one room, for new memory is dear
        before[:] = self._arrays.read(self._vector)
        self._began = before, began
        self._broke.begin()
        closing = self._projection
        over = 0.0 if closing is None or self._fixed else closing.step_over(step)
        if over:
            size, last = min(over, left), over >= left
            self._ts.setStepLimits(size, NO_LIMITS[1])  # whatever error is estimated
        self._ts.setTimeStep(size)
        try:
            with np.errstate(over="ignore", invalid="ignore") if self._power.overflows else QUIET:
                self._ts.step()
            broken = self._ts.getConvergedReason() < 0
        except PETSc.Error as error:
            if error.ierr != NOT_FINITE:
                raise
            broken = True
        now, self._first_stage = self.time, None
        broken |= now <= began
        broken |= self._any_not_finite()
        stuck = self._unsolved() if broken else self._settled()
        if over and closing is not None:
            self._ts.setStepLimits(*NO_LIMITS)
            if broken or stuck is not None or closing.left_too_much:
                self._restore(before, began)
                closing.stay_small(step)
                self._retried += 1
                return False
        if broken or stuck is not None:
            self._restore(before, began)
            if self._fixed is None and size > 1e-14 * max(abs(began), 1e-3) and not self._broke.anywhere():
                self._next_step = 0.1 * size  # a trial step has left the range of numbers: a smaller one may not
                self._retried += 1
                return False
            if stuck is not None:
                raise SimulationError(f"t = {began:g} s, step {size:.3g} s: {stuck}")
            self._examine(True, began, size)
        if self.grip:
            drag_grip(self.grip, 0, 0, self.q)
        if self._fixed is None:
            taken = now - began
            if closing is not None:
                closing.took(taken)
            cut = size < self._next_step and taken > WHOLE * size  # by the target, not by the error
            self.sizes.take([-taken if cut else taken])
            self._next_step = max(self._next_step, self._ts.getTimeStep()) if cut else self._ts.getTimeStep()
            if self._crawl.took(taken, left):
                self._end_crawl(taken)
        reached = last and abs(target - now) <= 1e-6 * step
        if reached:
            self._ts.setTime(target)
        return reached

    def go_back(self, search: EventSearch) -> list[int]:
        """See `Integrator.go_back`: the moment and the state there are those of a step of our own."""
        (state, began), end = self._began, self.time
        name, work = STIFF if self._scheme.implicit else "dopri5", state[self._end :]
        given = self._given._replace(accuracy=Accuracy(dt=end - began), probed=False)
        parts = state[: self._nq].copy(), state[self._nq : self._end].copy()
        own = RungeKutta(self._dynamics, *parts, name, given, began)
        try:
            own._state[self._end :] = work
            own.grip.rooms()[:] = self.grip.rooms()[1]
            own.step_towards(end)
            passed = own.go_back(search)
            self.requests |= own.requests
            self.grip.rooms()[0] = own.grip.rooms()[own.anchors]
            self._restore(own._state, own.time)
        finally:
            own.close()
        return passed

    def _settled(self) -> SimulationError | None:
        """See `_finish`."""
        if self._projection is None and not self._follows and not self._has_quaternions:
            return None
        self._values[:] = self._state
        stuck = self._finish(self._values)
        self._vector.setArray(self._values)
        return stuck

    def _unsolved(self) -> SimulationError | None:
        """Give the error of a stage that Newton's method could not solve, if it is that; the same on all ranks."""
        unsolved = self._ts.getConvergedReason() == PETSc.TS.ConvergedReason.DIVERGED_NONLINEAR_SOLVE
        if not unsolved or self._dynamics.comm.allreduce(bool(self._broke.failure or self._broke.not_finite), MPI.LOR):
            return None
        return SimulationError(
            "Newton's method does not converge; give a smaller step, or adaptive ones"
            if self._fixed
            else "Newton's method does not converge; likely cause: a force that jumps"
        )

    def _any_not_finite(self) -> bool:
        """Agree on whether the step has failed on any rank, and on what any rank asks for."""
        failed = bool(self._broke.failure) or not all_finite(self._arrays.read(self._vector))
        facts = self._asked() << 1 | failed
        if self._several:
            self._facts[0] = facts
            self._dynamics.comm.Allreduce(MPI.IN_PLACE, self._facts, MPI.BOR)
            facts = int(self._facts[0])
        self.requests = facts >> 1
        return bool(facts & 1)

    def _kept(self) -> tuple[Floats | None, dict[str, Any]]:
        stage = self._first_stage  # of a step that is not taken yet
        if self._last_stage is not None and first_same_as_last(self._ts):
            stage = self._last_stage.array_r.copy()
        return stage, {"tension": None if self._matrix is None else list(self._matrix.memory)}

    def _restore(self, state: Floats, time: float) -> None:
        self._vector.setArray(state)
        self._ts.setTime(time)
        self._ts.setConvergedReason(PETSc.TS.ConvergedReason.ITERATING)
        self.restart()

    def restart(self) -> None:
        """Have the next step take nothing from the one before it: what acts has changed."""
        self._ts.restartStep()
        self._last_stage = self._first_stage = None

    def _rates_at_hand(self) -> list[Floats]:
        """Numbers that PETSc has at hand."""
        return list(self._arrays.written())

    def close(self) -> None:
        """Free what PETSc holds; all ranks call."""
        self._last_stage = None
        self._arrays.forget()
        self._ts.destroy()
        if self._stages is not None:
            self._stages.close()
        self._vector.destroy()
