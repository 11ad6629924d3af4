"""Time integration of a distributed system by PETSc TS: one step at a time, samples hit exactly, quaternions kept unit.

How quaternions stay unit without spoiling the order: the kinematics use q / |q|, and qdot = q (0, w) / 2 is linear in
q, so the equations of motion do not change when a quaternion is scaled, and no more does a Runge-Kutta step, which
commutes with a linear change of variables. Scaling every quaternion back to unit length after a step therefore takes
away nothing but the error of its length. (A scheme whose first stage is the last one of the step before, as 5dp, uses
that stage unscaled: a relative change by the error of the length, one order above the error of the step.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from mpimbs.arguments import all_finite
from mpimbs.dynamics import Dynamics
from mpimbs.errors import SimulationError
from mpimbs.evaluation import NOTHING
from mpimbs.petsc import PREFIX, Arrays, PETSc
from mpimbs.simulation.crawling import STABLE, Crawl, hardly_changes, likely_cause, wrong_motion
from mpimbs.simulation.event_watch import EventSearch
from mpimbs.simulation.following import follow
from mpimbs.simulation.petsc_schemes import begin, choose, first_same_as_last, keeps_history, stability_polynomial
from mpimbs.simulation.projection import Projection
from mpimbs.simulation.schemes import IF_IT_MATTERS, INTEGRATORS, STIFF, Accuracy
from mpimbs.simulation.stability import StabilityProbe
from mpimbs.simulation.stages import Stages
from mpimbs.simulation.step_failure import StepFailure
from mpimbs.simulation.step_memory import StepMemory
from mpimbs.simulation.step_sizes import StepSizes, first_step, towards
from mpimbs.simulation.work import Power
from mpimbs.sweep.quaternions import make_quaternions_unit
from mpimbs.sweep.structure import TURN

Floats = npt.NDArray[np.float64]
ROUNDING = 1e-14  # of times
WHOLE = 0.999  # of a step: times are rounded; one that its error has shortened is shorter by far
NO_LIMITS = 1e-20, 1e50  # s, PETSc's own of steps
QUIET = contextlib.nullcontext()
NOT_FINITE = 72  # PETSC_ERR_FP: the norm of the error is not finite


class Integrator:
    """Steps a system through time; the state is distributed as the system is. All ranks call its methods together.

    Parameters
    ----------
    dynamics : Dynamics
    q, u : array [nq], [nu]
        This rank's part of the initial state.
    integrator : str
        A name in `INTEGRATORS`.
    accuracy : Accuracy
    time : float
        Initial time (s).
    memory : StepMemory, optional
        Go on from that of another integrator, whose state `q` and `u` are: with the same bits on the same ranks.
    asked : callable, optional
        What this rank asks of all of them, in bits; called once a step.
    probed : bool
        Whether to see now and then what the largest stable step is; evaluations must not depend on each other.
    projection : Projection, optional
        What keeps loops closed.
    tension : str
        See `Stages`.
    held : array [nu], optional
        Forces (N m, N) on this rank's joints on top of the model's; `restart` after a change of them.

    Attributes
    ----------
    held : array [nu] or None
    sizes : StepSizes
        Of adaptive steps.
    requests : int
        What any rank has asked for in the last step; the same on all.
    norm_error : float
        Largest | |quaternion| - 1 | on this rank that a step left before it was made unit again.
    """

    def __init__(
        self,
        dynamics: Dynamics,
        q: Floats,
        u: Floats,
        integrator: str,
        accuracy: Accuracy,
        time: float = 0.0,
        memory: StepMemory | None = None,
        asked: Callable[[], int] = lambda: 0,
        probed: bool = False,
        projection: Projection | None = None,
        tension: str = IF_IT_MATTERS,
        held: Floats | None = None,
    ) -> None:
        self._dynamics, self._projection, self.held = dynamics, projection, held
        self._nq, self._end = len(q), len(q) + len(u)
        self._power = Power(dynamics, held is not None)
        work = self._power.recalled([] if memory is None else memory.work)
        # A copy whose address and type never change, for the compiled code; behind q and u the work done on the bodies.
        self._state = np.concatenate([q, u, work[:1]])
        self._views = self._state[: self._nq], self._state[self._nq : self._end]
        self._broke = StepFailure(dynamics)
        # Of every evaluation, whose calls cost a small system as much as the sweep.
        self._follows, self._has_power = dynamics.follows, self._power.any
        self._only_held = self._has_power and not self._power.overflows
        self._has_quaternions = bool(np.any(dynamics.subchain.structure.steps[:, TURN] == 4))
        self.norm_error = 0.0 if memory is None else memory.norm_error
        self._scheme, self._accuracy = INTEGRATORS[integrator], accuracy
        self._asked = asked
        self.requests = 0
        self._facts, self._several = np.zeros(1, np.int64), dynamics.comm.size > 1
        self._vector = PETSc.Vec().createMPI((len(self._state), None), comm=dynamics.comm)
        self._vector.setArray(self._state)
        self._arrays = Arrays(self._nq, self._end)
        self._at_hand = self._arrays, self._state.data, self._views, dynamics.evaluate
        self._acted = NOTHING
        self._stages: Stages | None = None
        if self._scheme.implicit:
            known = None if memory is None else memory.tension
            self._stages = Stages(
                dynamics, self._derivative, self._loads, self._arrays, len(self._state), tension, known
            )
        vectors = {} if memory is None else memory.vectors
        self._first_stage = None
        if "q_rate" in vectors:
            self._first_stage = np.concatenate([vectors["q_rate"], vectors["u_rate"], work[1:]])
        self.sizes = StepSizes(None if memory is None else memory.sizes)
        self._last_stage: PETSc.Vec | None = None  # where the last evaluation of a step stands
        self._before, self._retried = (0, 0) if memory is None else (memory.steps, memory.rejected)
        began = time if memory is None else memory.time
        if wrong := wrong_motion(dynamics, began):
            raise SimulationError(f"at t = {began:g} s {wrong}")
        self._ts = self._make(began)
        self._fixed, self._crawl = accuracy.dt, Crawl()
        self._step = accuracy.dt or (self._first_step(accuracy) if memory is None else memory.step)
        self._last_stage = None
        self._old = self._state.copy()
        self._began = self._old, self.time  # of the last step
        self._probe: StabilityProbe | None = None
        if probed and self._fixed is None and self._ts.getType() == "rk":
            self._probe = StabilityProbe(dynamics, stability_polynomial(self._ts.getRKType()))
            if memory is not None and memory.probe:
                self._probe.recall(memory.probe, vectors)
        if projection is not None and memory is not None and memory.projection:
            projection.recall(memory.projection)

    def _make(self, time: float, steady: bool = False) -> PETSc.TS:
        """Make PETSc's integrator, which begins with the state as it is; `steady`: with steps as they are given."""
        ts = PETSc.TS().create(comm=self._dynamics.comm)
        ts.setOptionsPrefix(PREFIX)
        ts.setProblemType(PETSc.TS.ProblemType.NONLINEAR)
        scheme = INTEGRATORS[STIFF] if steady and self._scheme.newton else self._scheme  # can be taken back
        if self._stages is not None:
            self._stages.serve(ts, scheme.newton)
        else:
            ts.setRHSFunction(self._derivative)
        ts.setTolerances(rtol=self._accuracy.rtol, atol=self._accuracy.atol)
        choose(ts, scheme, steady or self._accuracy.dt is not None, self._projection is not None, steady)
        self._leave_work_out(ts)
        if scheme.newton and self._accuracy.dt is None:
            ts.setMaxSNESFailures(-1)  # a smaller step is tried
        begin(ts, self._vector, time)
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
        arrays, room, (q, u), evaluate = self._at_hand
        out, rates, udot, self._last_stage = arrays.stage(room, x, f)
        if self._first_stage is not None and t == self._began[1]:  # also where the step is tried again
            out[:] = self._first_stage
            return
        broken, self._acted = False, NOTHING
        try:
            if self._follows:
                q, u = self._dynamics.external.motions.follow(t, q, u)
            self._acted = acted = evaluate(t, q, u, udot, rates, self.held)
            if acted.failure is not None:
                raise acted.failure
        except SimulationError as error:
            self._broke.take(error)
            broken = True
        if self._only_held:
            out[self._end] = np.vdot(self._acted.forces, u)
        elif self._has_power:  # on all ranks, whatever broke: there may be messages
            out[self._end] = self._power(q, u, self._acted)
        if broken:
            out[:] = np.nan
        f.stateIncrease()

    def _loads(self) -> Floats:
        """What the bodies receive through their joints [n, 6] where `_derivative` was asked for last."""
        return self._dynamics.carried(*self._views, self._acted, self.held)

    def _first_step(self, accuracy: Accuracy) -> float:
        """A first step (s) from the sizes of state and derivative."""
        derivative = self._vector.duplicate()
        self._derivative(None, self.time, self._vector, derivative)
        own = slice(self._end)
        scale = accuracy.atol + accuracy.rtol * np.abs(self._vector.array_r[own])
        with np.errstate(over="ignore", invalid="ignore"):
            sizes = np.array([np.max(np.abs(v.array_r[own] / scale), initial=0.0) for v in (self._vector, derivative)])
        broken = bool(self._dynamics.comm.allreduce(not np.isfinite(sizes[1]), MPI.LOR))
        self._examine(broken, self.time, np.inf)
        self._dynamics.comm.Allreduce(MPI.IN_PLACE, sizes, MPI.MAX)
        derivative.destroy()
        return float(first_step(*sizes))

    @property
    def time(self) -> float:
        """Time reached (s)."""
        time: float = self._ts.getTime()
        return time

    @property
    def q(self) -> Floats:
        """This rank's coordinates at the time reached [nq]."""
        return self._vector.array_r[: self._nq].copy()

    @property
    def u(self) -> Floats:
        """This rank's generalized speeds at the time reached [nu]."""
        return self._vector.array_r[self._nq : self._end].copy()

    @property
    def parts(self) -> tuple[Floats, Floats]:
        """Both."""
        values = self._arrays.read(self._vector).copy()
        return values[: self._nq], values[self._nq : self._end]

    @property
    def step_size(self) -> float:
        """Size of the next step (s), if the time towards which it goes does not shorten it."""
        return self._fixed or self._step

    def total_work(self) -> float:
        """Work so far on all bodies of all that is not weight, spring or inertia (J); all ranks call."""
        return self._dynamics.comm.allreduce(self._work) if self._power.any else 0.0

    @property
    def _work(self) -> float:
        """The same on this rank's bodies."""
        return float(self._vector.array_r[self._end])

    @property
    def steps(self) -> int:
        """Steps taken."""
        return int(self._ts.getStepNumber()) + self._before

    @property
    def rejected(self) -> int:
        """Steps rejected: by the error estimate, or because they left the range of numbers."""
        return int(self._ts.getStepRejections()) + self._retried

    def step_towards(self, target: float) -> bool:
        """Take one step, not beyond a time, and say whether that time is reached.

        The last steps before the time are shortened so that it is hit; afterwards the step goes on at its old size.

        Raises
        ------
        SimulationError
            On all ranks: the step size underflows, the state is no longer finite, or a function of the model failed.
            The state of the last good step is kept.
        """
        began = self.time
        left = target - began
        if left <= ROUNDING * began:  # an event came so near
            self._ts.setTime(target)
            self.requests = 0  # those of the step before were answered
            stuck = self._settle() if self._dynamics.follows else None
            if stuck is not None:
                raise SimulationError(f"t = {target:g} s: {stuck}")
            return True
        step = self._fixed or self._step
        size, last = towards(left, step, self._fixed is not None)
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
        stuck = self._unsolved() if broken else self._settle()
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
                self._step = 0.1 * size  # a trial step has left the range of numbers: a smaller one may not
                self._retried += 1
                return False
            if stuck is not None:
                raise SimulationError(f"t = {began:g} s, step {size:.3g} s: {stuck}")
            self._examine(True, began, size)
        if self._fixed is None:
            taken = now - began
            if closing is not None:
                closing.took(taken)
            cut = size < self._step and taken > WHOLE * size  # by the target, not by the error
            if self._probe is not None and not cut and self._probe.due():
                self._probe.look(now, self.q, self.u)
            self.sizes.take(taken, cut, np.inf if self._probe is None else self._probe.largest_step)
            self._step = max(self._step, self._ts.getTimeStep()) if cut else self._ts.getTimeStep()
            if self._crawl.took(taken, left):
                self._end_crawl(before, taken)
        reached = last and abs(target - now) <= 1e-6 * step
        if reached:
            self._ts.setTime(target)
        return reached

    def _end_crawl(self, before: Floats, size: float) -> None:
        """Raise, on all ranks, why steps (s) are so small, if not for stability; `before`: the state before."""
        told, now = self._crawl.told(self.time), self._arrays.read(self._vector)
        stiff = self._probe is not None and self._probe.largest_step < STABLE * size
        own = slice(self._end)
        if not stiff and hardly_changes(self._dynamics.comm, self._accuracy, before[own], now[own]):
            cause = likely_cause(self._dynamics, self.time, size, self.q, self.u, self.held)
            raise SimulationError(f"{told}; {cause}")

    def go_back(self, search: EventSearch) -> list[int]:
        """Go back in the last step to the moment that a search finds there, and say what passed zero; all ranks call.

        Raises
        ------
        SimulationError
            On all ranks: a function failed, or a state is not finite.
        """
        end, (state, began) = self.time, self._began
        self._restore(state, began)
        ts = self._make(began, steady=True)
        try:
            search(ts, self._vector, end, (self._nq, self._end))
            self._ts.setTime(float(ts.getTime()))
        finally:
            self._look_at_stages()
            ts.destroy()
            self._last_stage = None
            self._arrays.forget()
        asked = self.requests
        broken = self._any_not_finite()
        self.requests |= asked
        self._examine(broken, began, end - began)
        stuck = self._settle()
        if stuck is not None:
            raise SimulationError(f"t = {self.time:g} s: {stuck}")
        return search.passed

    def _settle(self) -> SimulationError | None:
        """Make quaternions unit, follow given motions, close the loops; gives why it can't, the same on all ranks."""
        if self._has_quaternions:
            self._state[:] = self._vector.array_r
            quaternions = self._state[: self._nq]
            left_by_step = make_quaternions_unit(0.0, self._dynamics.subchain.structure, quaternions)
            self.norm_error = max(self.norm_error, left_by_step)
            self._vector.setArray(self._state)
        if self._projection is None and not self._dynamics.follows:
            return None
        q, u = self.q, self.u
        try:
            closed = follow(self._dynamics, self._began[1], self.time, q, u) if self._dynamics.follows else (q, u)
            if self._projection is not None:
                closed = self._projection(*closed)
        except SimulationError as error:
            return error
        if closed[1] is not u:
            self._state[:] = self._vector.array_r
            self._state[: self._nq], self._state[self._nq : self._end] = closed
            self._vector.setArray(self._state)
        return None

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

    def step_statistics(self) -> dict[str, Any]:
        """Sizes of the steps and what limits them; all ranks call. See `Result.step_sizes`."""
        if self._fixed is not None:
            return {"fixed": self._fixed}
        found = self.sizes.statistics()
        if self._probe is not None and self._probe.mode is not None:
            found |= {"rate": self._probe.mode.rate, "body": self._probe.fastest_body()}
        return found

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

    def memory(self) -> StepMemory:
        """What the next step takes from those before it; all ranks call.

        Where PETSc keeps more than can be read, its integrator begins anew, here as in one that goes on from this.
        """
        if keeps_history(self._ts):
            self._before, self._retried = self.steps, self.rejected
            time = self.time
            self._ts.destroy()
            self._ts = self._make(time)
            self._arrays.forget()
        kept = self._last_stage is not None and first_same_as_last(self._ts)
        stage = self._last_stage.array_r.copy() if kept and self._last_stage is not None else None
        norm_error = self._dynamics.comm.allreduce(self.norm_error, MPI.MAX)
        work: list[tuple[float, float]] = []
        if self._power.any:
            rate = 0.0 if stage is None else float(stage[self._end])
            work = self._dynamics.comm.allgather((self._work, rate))
        probe, vectors = ({}, {}) if self._probe is None else self._probe.memory()
        if stage is not None:
            vectors |= {"q_rate": stage[: self._nq], "u_rate": stage[self._nq : self._end]}
        taken = self.steps, self.rejected
        loops = None if self._projection is None else self._projection.memory()
        sizes = self.sizes.memory()
        tension = None if self._stages is None else list(self._stages.memory)
        return StepMemory(self.time, self._step, *taken, norm_error, work, sizes, probe, vectors, loops, tension)

    def _restore(self, state: Floats, time: float) -> None:
        self._vector.setArray(state)
        self._ts.setTime(time)
        self._ts.setConvergedReason(PETSc.TS.ConvergedReason.ITERATING)
        self.restart()

    def restart(self) -> None:
        """Have the next step take nothing from the one before it: what acts has changed."""
        self._ts.restartStep()
        self._last_stage = self._first_stage = None

    def _look_at_stages(self) -> None:
        """Keep whether an evaluation was not finite, of those that PETSc has at hand."""
        self._broke.not_finite |= not all(all_finite(stage) for stage in self._arrays.written())

    def _examine(self, broken: bool, t: float, size: float) -> None:
        """Raise the same error on all ranks if a step of some size (s) from some time (s) on broke."""
        if broken or self._broke.anywhere():
            self._look_at_stages()
            raise self._broke.explain(t, size, self.q, self.u, self.held)

    def close(self) -> None:
        """Free what PETSc holds; all ranks call."""
        self._last_stage = None
        self._arrays.forget()
        self._ts.destroy()
        self._vector.destroy()
