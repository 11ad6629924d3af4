"""Time integration of copies side by side by PETSc TS: one step for all of them, which the most demanding one sets.

Each copy has the error estimate that it has alone, of its worst number; the largest counts. A copy
that no step suits is left behind where it was: the others go on without it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mpimbs.petsc import PREFIX, Arrays, PETSc
from mpimbs.side_by_side import SideBySide
from mpimbs.simulation.crawling import NEARLY, Crawl
from mpimbs.simulation.petsc_schemes import begin, choose, complete, first_same_as_last
from mpimbs.simulation.schemes import INTEGRATORS, Accuracy
from mpimbs.simulation.step_sizes import StepSizes, first_step, towards
from mpimbs.sweep.structure import TURN

Floats = npt.NDArray[np.float64]
RATES = ("q_rate", "u_rate")  # where the next step begins, if it does not evaluate them itself
ROUNDING = 1e-14  # of times
SMALLEST = 1e-14  # of the time reached, that a step may be
# Of PETSc's step control `basic`: the share of the step that the error allows, the same after two rejections in
# sequence, and how much a step may differ from the one before.
SAFETY, REJECTED, CLIP = 0.9, 0.5, (0.1, 10.0)


class EnsembleMemory(NamedTuple):
    """What the steps of a rank's copies so far leave to the next.

    Attributes
    ----------
    time : float
        Reached (s).
    told : list
        What a stepper tells of itself, for JSON.
    vectors : dict of arrays [copies, n]
        Among them the states, `q` and `u`.
    left : array of bool [copies]
        Which copies are left behind.
    """

    time: float
    told: list[Any]
    vectors: dict[str, Floats]
    left: npt.NDArray[np.bool_]


class CopiesStepper:
    """Steps copies through time, on one process.

    Parameters
    ----------
    copies : SideBySide
    integrator : str
        A name in `INTEGRATORS`, of an explicit one without history.
    accuracy : Accuracy
    state : (array [copies, nq], array [copies, nu]), optional
        Where they begin, those of the models by default.
    memory : EnsembleMemory, optional
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

    at_samples_alone = True  # what it gives by `memory`: elsewhere other ranks are at other times

    def __init__(
        self,
        copies: SideBySide,
        integrator: str,
        accuracy: Accuracy,
        state: tuple[Floats, Floats] | None = None,
        memory: EnsembleMemory | None = None,
    ) -> None:
        self.copies, self._accuracy, self._fixed = copies, accuracy, accuracy.dt is not None
        if memory is not None:
            state = memory.vectors["q"], memory.vectors["u"]
        q, u = copies.initial_state() if state is None else state
        self._end = q.size
        self._state = np.concatenate([q.ravel(), u.ravel()])  # whose address never changes, for the compiled code
        self._views = self._state[: self._end], self._state[self._end :]
        structure = copies.structure
        self._has_quaternions = bool(np.any(structure.steps[:, TURN] == 4))
        self.left = np.zeros(copies.count, bool)
        self._any_left = False
        self.failed: dict[int, tuple[float, str]] = {}
        self._trouble: dict[int, str] = {}  # of functions, in the step
        self.steps = self.rejected = self.evaluations = 0
        self.sizes = StepSizes(None if memory is None else memory.told[0])  # of rank 0, which tells of them
        self._vector, self._embedded, self._room = (self._vector_like() for _ in range(3))
        self._vector.setArray(self._state)
        self._arrays = Arrays(self._end, len(self._state))
        if memory is not None:
            self._give_up(memory.left)
        self._last_stage: Any = None  # where the last evaluation of a step stands
        self._begin_rates: Floats | None = None  # where the next step begins, as the last stage of that before had them
        self._given_rates: Floats | None = None  # what the next evaluation gives
        self._again = False  # the last attempt was rejected
        self._crawl = Crawl()
        self._scheme = INTEGRATORS[integrator]
        self._order = int(self._scheme.value[0]) if self._scheme.adaptive else 0
        self._ts = self._make(0.0 if memory is None else memory.time)
        self._step = accuracy.dt or (self._first_step() if memory is None else self._smallest(memory))
        self._keeps_stage = first_same_as_last(self._ts)
        if memory is not None and self._keeps_stage:
            rates = np.concatenate([memory.vectors[name].ravel() for name in RATES])
            if np.isfinite(rates).all():  # not so before the first step
                self._begin_rates, self._given_rates = rates, rates

    def _vector_like(self) -> PETSc.Vec:
        return PETSc.Vec().createSeq(len(self._state), comm=PETSc.COMM_SELF)

    def _make(self, time: float) -> PETSc.TS:
        ts = PETSc.TS().create(comm=PETSc.COMM_SELF)
        ts.setOptionsPrefix(PREFIX)
        ts.setProblemType(PETSc.TS.ProblemType.NONLINEAR)
        ts.setRHSFunction(self._derivative)
        choose(ts, self._scheme, fixed=True)
        begin(ts, self._vector, time)
        return ts

    def _derivative(self, ts: object, t: float, x: PETSc.Vec, f: PETSc.Vec) -> None:
        """PETSc's right-hand side: rates of q, then udot; zero of what is left behind."""
        out, rates, udot, self._last_stage = self._arrays.stage(self._state.data, x, f)
        if self._given_rates is not None:
            out[:], self._given_rates = self._given_rates, None
            return
        self.copies.evaluate(t, *self._views, udot, rates)
        self.evaluations += 1
        if self.copies.forces.failures:
            self._trouble = self.copies.forces.failures | self._trouble
        if self._any_left:
            self._rows(out, self.left, 0.0)
        f.stateIncrease()

    def _rows(self, out: Floats, chosen: npt.NDArray[np.bool_], value: float) -> None:
        """Set the numbers of some copies in a vector."""
        for part in (out[: self._end], out[self._end :]):
            part.reshape(self.copies.count, -1)[chosen] = value

    def _largest(self, values: Floats) -> Floats:
        """The largest magnitude of each copy's numbers [copies]; not finite where one of them isn't."""
        sizes, count = np.abs(values, out=self._room.array), self.copies.count
        parts = sizes[: self._end].reshape(count, -1), sizes[self._end :].reshape(count, -1)
        return np.maximum(*(part.max(axis=1, initial=0.0) for part in parts))

    def _first_step(self) -> float:
        """The smallest of the copies' first steps (s); copies that can't be evaluated are left behind."""
        self._derivative(None, self.time, self._vector, self._embedded)
        scale = self._accuracy.atol + self._accuracy.rtol * np.abs(self._state)
        with np.errstate(over="ignore", invalid="ignore"):
            norms = [self._largest(v.array_r / scale) for v in (self._vector, self._embedded)]
        self._last_stage = None
        self._leave(~np.isfinite(norms[1]) & ~self.left, self.time, np.inf)
        return float(np.min(first_step(*norms), initial=0.1, where=~self.left))

    @property
    def time(self) -> float:
        """Time reached (s)."""
        return float(self._ts.getTime())

    @property
    def step_size(self) -> float:
        """Size of the next step (s), if the time towards which it goes does not shorten it."""
        return self._step

    @property
    def state(self) -> tuple[Floats, Floats]:
        """States at the time reached: q [copies, nq], u [copies, nu]; of copies left behind where they were."""
        values, count = self._vector.array_r.copy(), self.copies.count
        return values[: self._end].reshape(count, -1), values[self._end :].reshape(count, -1)

    def memory(self) -> tuple[list[Any], dict[str, Floats]]:
        """What the next step takes from those before it: `told` and `vectors` of `EnsembleMemory`."""
        count, (q, u) = self.copies.count, self.state
        vectors = {"q": q, "u": u, "step": np.full((count, 1), self._step)}
        if self._keeps_stage:
            rates = np.full(len(self._state), np.nan) if self._begin_rates is None else self._begin_rates
            parts = (rates[: self._end], rates[self._end :])
            vectors |= {name: part.reshape(count, -1).copy() for name, part in zip(RATES, parts, strict=True)}
        return [self.sizes.memory()], vectors

    def _smallest(self, memory: EnsembleMemory) -> float:
        """The smallest of the steps (s) that copies would take, which may come from several ranks."""
        return float(np.min(memory.vectors["step"][:, 0], initial=np.inf, where=~memory.left))

    def step_towards(self, target: float) -> bool:
        """Try a step, not beyond a time (s), and say whether that is reached."""
        began = self.time
        left = target - began
        if left <= ROUNDING * began or self.left.all():
            self._ts.setTime(target)
            return True
        size, last = towards(left, self._step, self._fixed)
        before = self._vector.array_r.copy()
        self._trouble = {}
        self._ts.setTimeStep(size)
        with np.errstate(over="ignore", invalid="ignore"):
            self._ts.step()
            errors = self._errors()
        if self._trouble:
            self._back(before, began)
            self._leave(np.isin(np.arange(self.copies.count), list(self._trouble)), began, size)
            return False
        worst = float(errors.max())
        if not worst <= 1.0:
            self._reject(before, began, size, errors)
            return False
        self.steps += 1
        self._again = False
        if self._has_quaternions:
            self._state[:] = self._vector.array_r
            self.copies.make_quaternions_unit(self._views[0].reshape(self.copies.count, -1))
            self._vector.setArray(self._state)
        if self._keeps_stage:
            self._begin_rates = self._last_stage.array_r.copy()
        if not self._fixed:
            cut = size < self._step
            self.sizes.take(self.time - began, cut)
            suggested = self._suggested(size, worst)
            self._step = max(self._step, suggested) if cut else suggested
            if self._crawl.took(self.time - began, left):
                self._leave_crawling(errors == worst, before)
        if last:
            self._ts.setTime(target)
        return last

    def _leave_crawling(self, chosen: npt.NDArray[np.bool_], before: Floats) -> None:
        """Leave the copies behind for which steps shrink towards nothing; `before`: the states before the last one."""
        told, now = self._crawl.told(self.time), self._vector.array_r
        changes = self._largest((now - before) / (self._accuracy.atol + self._accuracy.rtol * np.abs(now)))
        chosen = chosen & (changes < NEARLY) & ~self.left
        self._trouble = dict.fromkeys(np.flatnonzero(chosen).tolist(), f"{told}; likely cause: a force that jumps")
        self._leave(chosen, self.time, self._step)

    def _errors(self) -> Floats:
        """Estimated errors of the step over the tolerance, of each copy [copies]; not finite where its state isn't."""
        new = self._vector.array_r
        if self._fixed:
            return np.where(np.isfinite(self._largest(new)), 0.0, np.nan)
        complete(self._ts, self._order - 1, self._embedded)
        other, room = self._embedded.array_r, np.abs(new)
        np.maximum(room, np.abs(other), out=room)
        room *= self._accuracy.rtol
        room += self._accuracy.atol
        np.divide(np.subtract(new, other), room, out=room)
        return self._largest(room)

    def _suggested(self, size: float, error: float) -> float:
        """The step (s) that an error allows, as PETSc's step control `basic` has it."""
        safety = SAFETY * (REJECTED if self._again else 1.0)
        factor = safety * error ** (-1.0 / self._order) if error else np.inf
        return size * float(np.clip(factor, *CLIP))

    def _reject(self, before: Floats, began: float, size: float, errors: Floats) -> None:
        """Go back to the begin of a step, for a smaller one; without the copies that need too small a one."""
        self._back(before, began)
        worst = float(errors.max())
        if self._fixed or size <= SMALLEST * max(began, 1e-3):
            self._leave(~(errors <= 1.0), began, size)
            return
        smaller = self._suggested(size, worst) if np.isfinite(worst) else CLIP[0] * size
        self.rejected += 1
        self._again, self._step = np.isfinite(worst), smaller

    def _back(self, before: Floats, began: float) -> None:
        self._vector.setArray(before)
        self._ts.setTime(began)
        self._ts.setConvergedReason(PETSc.TS.ConvergedReason.ITERATING)
        self._ts.restartStep()
        self._given_rates = self._begin_rates

    def _leave(self, chosen: npt.NDArray[np.bool_], t: float, size: float) -> None:
        """Leave copies behind from a time (s) on, where a step of some size (s) broke."""
        if not chosen.any():
            return
        for k in np.flatnonzero(chosen).tolist():
            self.failed[k] = t, self._trouble.get(k) or self._reason(k, size)
        self._give_up(chosen)
        if self._begin_rates is not None:
            self._rows(self._begin_rates, chosen, 0.0)

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
        """Free what PETSc holds."""
        self._last_stage = None
        self._arrays.forget()
        for item in (self._ts, self._vector, self._embedded, self._room):
            item.destroy()
