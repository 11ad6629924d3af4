"""Keeps the loops of a running system closed: at its begin, and after every step.

What a step leaves violates the loops by as much as its error; the changes of least kinetic energy that close them again
[`mpimbs.dynamics.loops`] take no more away than that, so that schemes keep their order. (A scheme whose first stage is
the last one of the step before, as dopri5, uses that stage as it was: a change by the error of a step, which counts
times the step, one order above.)
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError, SimulationError
from mpimbs.closure.jacobian import ROOM_OF_ROUNDING
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics import closing as c
from mpimbs.loops.apart import ROUNDING
from mpimbs.parallel.agreement import on_root
from mpimbs.stepping.settings import NONE, POSITIONS, VELOCITIES

KINDS = (POSITIONS, VELOCITIES)  # columns of violations
LEFT = 1e-4  # of the speeds: should closing loops change more, it was no singular position, but a near one
TOLERANCE = 1e-9  # rad, and of the size of a loop: how far positions to begin with may be from closed


class Moved(NamedTuple):
    """The number of a vector that a change has changed most: of what, of whose joint, by how much (rad, m; per s)."""

    what: str
    body: str
    amount: float


Violations = dict[str, tuple[float, str]]  # by `KINDS` the largest (m and rad together; per s) and the name of the loop


@dataclass
class ProjectionState:
    """The findings of a projection so far, which another one goes on from."""

    evaluations: int = 0  # to close loops
    moved: list[Moved] = field(default_factory=list)  # what the begin has changed by more than rounding
    # the largest violations that steps have left, before these were taken away; nothing where nothing is
    left: Violations = field(default_factory=lambda: dict.fromkeys(KINDS, (0.0, "")))
    sampled: Violations = field(default_factory=lambda: dict.fromkeys(KINDS, (0.0, "")))  # those of the samples
    amplified: float = 1.0  # what violations became in the last step, over the usual, and the usual
    usual: float = 0.0
    usual_step: float = 0.0  # s
    wound: dict[str, list[float]] = field(default_factory=dict)  # see `ClosedLoops.wound`

    def behind_a_change(self) -> ProjectionState:
        """Give what it is for another structure, of which no step has been seen yet."""
        return replace(self, amplified=1.0, usual=0.0, usual_step=0.0)

    def told(self, kind: str, stabilisation: float | None) -> dict[str, Any]:
        """Give the findings on the loops as a result tells them."""
        found = {name: getattr(self, name) for name in ("evaluations", "moved", "left", "sampled")}
        return {"projection": kind, "stabilisation": stabilisation, **found}


class Projection:
    """Keeps loops closed; all ranks make it together and call.

    Parameters
    ----------
    dynamics : Dynamics
        Of a system with loops.
    kind : str
        What is brought back after steps, one of `PROJECTIONS`: positions (and velocities), velocities, none.
    stabilisation : float or None
        Time constant (s) with which accelerations let violations decay.

    Attributes
    ----------
    loops : ClosedLoops
    """

    def __init__(self, dynamics: Dynamics, kind: str, stabilisation: float | None = None) -> None:
        assert dynamics.loops is not None
        self._dynamics, self.kind, self.loops = dynamics, kind, dynamics.loops
        self._names = [loop.name for loop in dynamics.system.loops]
        self._state, self._seconds = ProjectionState(), dict[str, float]()
        self._seen = seen = self.loops.seen
        seen[: c.SWEPT], seen[c.AMPLIFIED] = 0.0, 1.0
        left = c.LEFT_OPEN if self.loops.winds else c.UNWATCHED
        seen[c.KIND] = {NONE: left, VELOCITIES: c.IN_SPEEDS, POSITIONS: c.IN_PLACES}[kind]
        self._stabilisation = stabilisation
        self.loops.stabilise(stabilisation or 0.0)
        self.loops.warned = True  # a run tells by itself how far it opens them

    def begin(self, q: Floats, u: Floats) -> tuple[Floats, Floats]:
        """Give the state to begin with, closed.

        Raises
        ------
        InputError
            On all ranks: its loops can't be closed; or they are open, and nothing is to close them.
        """
        if self.kind == NONE:
            self._check_closed(q, u)
            self.loops.count_turns(q, u)
            return q, u
        closed_q, closed_u = closed(self._dynamics, q, u)
        self._state.moved = moved(self._dynamics, (q, u), (closed_q, closed_u))
        self.loops.count_turns(closed_q, closed_u)
        return closed_q, closed_u

    def _check_closed(self, q: Floats, u: Floats) -> None:
        apart, parted = (found[:, 0] for found in self.loops.apart(q, u))
        shares = parted / (TOLERANCE + ROOM_OF_ROUNDING * self.loops.roundings(q))
        worst = int(np.argmax(shares))
        if not shares[worst] <= 1.0:
            raise InputError(
                f"the ends of loop {self._dynamics.system.loops[worst].name!r} are {apart[worst]:.3g} apart (m and "
                "rad) at the begin: close them with `mpimbs assemble`, or leave out `projection='none'`"
            )

    def __call__(self, q: Floats, u: Floats) -> tuple[Floats, Floats]:
        """Give the state after a step, closed as it is asked for.

        Raises
        ------
        SimulationError
            On all ranks: Newton's method does not converge, or speeds are no longer finite.
        """
        q, u = q.copy(), u.copy()
        with self._timed():
            self.loops.close(q, u)
        return q, u

    def closed(self, q: Floats, u: Floats) -> tuple[Floats, Floats]:
        """Give a state within a step closed as its end is; what steps leave is not counted by it. Raises as a call."""
        q, u = q.copy(), u.copy()
        if self.kind != NONE:
            with self._timed():
                self.loops.close(q, u, within=True)
        return q, u

    @property
    def closes_within(self) -> bool:
        """Whether compiled code may close states within a step behind which others are already: no turns count."""
        return self.kind != NONE and self.loops.compiled is not None and not self.loops.winds

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        """Count the wall time spent, and that of the phases of its evaluations, where compiled code does not."""
        if self.loops.compiled is not None:
            yield
            return
        began, before = time.perf_counter(), self._dynamics.derivative.seconds()
        yield
        spent = {"projection": time.perf_counter() - began}
        spent |= {name: value - before[name] for name, value in self._dynamics.derivative.seconds().items()}
        self._seconds = {name: self._seconds.get(name, 0.0) + value for name, value in spent.items()}

    @property
    def seconds(self) -> dict[str, float]:
        """Wall time by phase of its evaluations, and that of all (s)."""
        if self.loops.compiled is None:
            return self._seconds
        motion, inward, coupling, outward, scans, couplings, spent = self.loops.spent.tolist()
        own = {"sweep": motion - scans + inward + outward, "coupling": coupling - couplings}
        return {"projection": spent, "communication": scans + couplings} | own

    def took(self, step: float) -> None:
        """A step of some size (s) was taken."""
        c.see_step(self._seen, step)

    def step_over(self, step: float) -> float:
        """Give the size of a step (s) over a singular position, if the next one should be; else 0.

        Near it rounding, amplified, counts as error, the more the smaller the steps are; they would never pass it. What
        a usual step leaves is open loops, which are closed behind the singular position.
        """
        return float(self._seen[c.USUAL_STEP]) if c.is_singular(self._seen, step) else 0.0

    @property
    def left_too_much(self) -> bool:
        """Whether the last step has left more to change than one over a singular position does."""
        return bool(self._seen[c.CHANGED] > LEFT)

    def stay_small(self, step: float) -> None:
        """Let no step be taken over anything until they are much smaller than this one (s)."""
        self._seen[c.USUAL_STEP] = step

    def sampled(self, violations: Floats) -> None:
        """Take how far loops are from closed in a sample [loops, 2]."""
        worst = self._state.sampled
        for k, (kind, value) in enumerate(zip(KINDS, violations.max(axis=0).tolist(), strict=True)):
            if value > worst[kind][0]:
                worst[kind] = value, self._names[violations[:, k].argmax()]

    @property
    def state(self) -> ProjectionState:
        """The findings so far; all ranks ask together."""
        seen, found = self._seen.tolist(), deepcopy(self._state)
        for kind, most, loop in zip(KINDS, seen[c.PLACES_LEFT :], seen[c.PLACES_OF :], strict=False):
            if most > found.left[kind][0]:  # than those that were left before this took over
                found.left[kind] = most, self._names[int(loop)]
        found.amplified, found.usual, found.usual_step = seen[c.AMPLIFIED], seen[c.USUAL], seen[c.USUAL_STEP]
        return replace(found, evaluations=self.loops.evaluations, wound=self.loops.wound)

    def go_on(self, state: ProjectionState) -> None:
        """Go on from that of another one."""
        self._state = deepcopy(state)
        self._seen[[c.AMPLIFIED, c.USUAL, c.USUAL_STEP]] = state.amplified, state.usual, state.usual_step
        self.loops.evaluations = state.evaluations
        self.loops.wind(state.wound)

    def told(self) -> dict[str, Any]:
        """Give the findings on the loops as a result tells them; all ranks call."""
        return self.state.told(self.kind, self._stabilisation)


def closed(dynamics: Dynamics, q: Floats, u: Floats) -> tuple[Floats, Floats]:
    """Give the state near one in which all loops are closed; all ranks call.

    The nearest one, by Newton's method; where it does not converge, the start is too far for it, on one process by one
    that is damped.

    Raises
    ------
    InputError
        On all ranks: they can't be.
    """
    loops = dynamics.loops
    assert loops is not None
    try:
        q = loops.nearest_places(q)
    except SimulationError:
        q = _closed_from_far(dynamics, q, u)
    return q, loops.close_speeds(q, u)


def _closed_from_far(dynamics: Dynamics, q: Floats, u: Floats) -> Floats:
    from mpimbs.closure.assembly import assemble  # which solves with scipy: where it is needed

    whole, speeds = dynamics.gather_q(q), dynamics.gather_u(u)

    def close() -> Floats | None:
        return None if whole is None or speeds is None else assemble(dynamics.system, whole, speeds).q

    found: Floats = dynamics.comm.bcast(on_root(dynamics.comm, close))
    return found[dynamics.gather_q.part].copy()


def moved(dynamics: Dynamics, before: tuple[Floats, Floats], after: tuple[Floats, Floats]) -> list[Moved]:
    """Find what a change of coordinates and speeds [nq], [nu] changed most, of all ranks, which all call."""
    subchain, found = dynamics.subchain, []
    offsets, least = (
        (subchain.columns.q_offset, subchain.columns.u_offset),
        (1.0, dynamics.divided.largest_speed(after[1])),
    )
    given = zip(("coordinate", "speed"), before, after, offsets, dynamics.divided.units, least, strict=True)
    for what, old, new, offset, unit, size in given:
        change, rounding = np.abs(new - old), np.abs(new) / unit * ROUNDING
        mine: tuple[float, float, str] = (-1.0, 0.0, "")
        if len(change):
            share = change / unit / (TOLERANCE * size + ROOM_OF_ROUNDING * rounding + c.SMALLEST)
            k = int(np.argmax(share))
            mine = float(share[k]), float(change[k]), subchain.name_of(np.searchsorted(offset, k, side="right") - 1)
        share_of_all, amount, body = max(dynamics.comm.allgather(mine))
        if share_of_all > 1.0:
            found.append(Moved(what, body, amount))
    return found


def changes_told(changes: Sequence[Moved]) -> str:
    """Say what closing the loops of a state has changed most; empty for nothing."""
    parts = (f"{what} of body '{body}' by {amount:.3g}" for what, body, amount in changes)
    return f"loops: closed, which changed most the {' and the '.join(parts)}" if changes else ""


def loops_told(loops: dict[str, Any]) -> Iterator[str]:
    """Give the lines of a result on its loops: what moved at the begin, how far steps have opened them."""
    if not loops:
        return
    if loops["moved"]:
        yield changes_told(loops["moved"]) + " at the begin"
    parts = []
    for name, when in (("left", "after steps"), ("sampled", "in samples")):
        worst = [f"{kind} {value:.1e} ('{loop}')" for kind, (value, loop) in loops[name].items() if loop]
        if worst:
            parts.append(f"{when} {', '.join(worst)}")
    yield f"violations: {'; '.join(parts) or 'none'}"
    asked = f"projection: {loops['projection']}"
    if loops["stabilisation"] is not None:
        asked += f"; stabilisation: {loops['stabilisation']:g} s"
    yield f"{asked}; {loops['evaluations']} evaluations to close loops"
