"""The matrix 1 - h J that stages of implicit steps are solved with, in the state where a step begins."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.operators.implicit_matrix import Compiled, ImplicitMatrix
from mpimbs.dynamics.operators.tension import BodyResistance
from mpimbs.stepping.march import UNLIMITED
from mpimbs.stepping.schemes import IF_IT_MATTERS
from mpimbs.sweep.grip import NO_GRIP, Grip

LOOKED = 16  # steps, after which it is seen again whether tension counts
MATTERS = 4e-3  # of a body's inertia, what tension adds: without that, motions grow by 1e-4 of theirs a step


class StageMatrix:
    """Solves (1 - h J) x = r; all ranks make it together and call.

    J has the stiffness and damping of joints, servos, tendons and springs, of forces on bodies that give theirs, and
    of the tension of lines; of loops, weight and other functions nothing [`mpimbs.dynamics.operators.implicit_matrix`].

    Parameters
    ----------
    loads : callable
        Gives what the bodies receive through their joints [n, 6] in the state that was evaluated last.
    tension : str
        Whether J counts the tension of lines: "on", "off", or "auto": once that matters for the steps.
    memory : list of int, optional
        Go on from that of another one.

    Attributes
    ----------
    memory : list of int
        Whether the tension of lines counts, and how many steps were begun.
    """

    def __init__(
        self, dynamics: Dynamics, loads: Callable[[], Floats], tension: str, memory: list[int] | None = None
    ) -> None:
        self._dynamics, self._loads, self._comm = dynamics, loads, dynamics.comm
        self.memory, self._looks = memory or [int(tension == "on"), 0], tension == IF_IT_MATTERS
        self._matrix, self._end = dynamics.inertia.implicit_matrix, dynamics.subchain.nq + dynamics.subchain.nu
        self._found: tuple[Floats | None, Floats | None] = None, None  # stiffness and damping of bodies
        self._resists = dynamics.divided.external.resists
        if self._with_bodies:
            _ = self._of_bodies  # which all ranks make together

    def look(self, step: float) -> None:
        """Take what resists, besides joints, in the state that was evaluated last, for a step of some size h (s)."""
        counts = self._counts(step)
        self._found = self._resistance.take(counts) if self._with_bodies else (None, None)

    @property
    def may_be_compiled(self) -> bool:
        """Whether there are steps that compiled code takes."""
        return (self._of_bodies if self._resists else self._alone) is not None

    @property
    def compiled(self) -> Compiled | None:
        """By what compiled code takes the steps from here on, as of `ImplicitMatrix`; None where it takes none."""
        if not self._with_bodies:
            return self._alone
        if self._of_bodies is not None:
            self._dynamics.inertia.implicit_matrix_of_bodies.counting(bool(self.memory[0]))
        return self._of_bodies

    @property
    def steps_unseen(self) -> int:
        """How many steps may begin before it is seen whether tension counts."""
        return -self.memory[1] % LOOKED if self._looks else UNLIMITED

    def saw(self, begun: int) -> None:
        """Know of states in which steps were begun in compiled code."""
        self._matrix = self._of_step()
        self._matrix.tell()
        self._found = self._resistance.given if self._with_bodies else (None, None)
        self.memory[1] += begun

    @property
    def _with_bodies(self) -> bool:
        """Whether there may be more than joints that resist."""
        return bool(self.memory[0]) or self._resists

    def _of_step(self) -> ImplicitMatrix:
        inertia = self._dynamics.inertia
        return inertia.implicit_matrix_of_bodies if self._with_bodies else inertia.implicit_matrix

    @functools.cached_property
    def _alone(self) -> Compiled | None:
        return self._dynamics.inertia.implicit_matrix.compiled

    @functools.cached_property
    def _of_bodies(self) -> Compiled | None:
        dynamics = self._dynamics
        return dynamics.inertia.implicit_matrix_of_bodies.of_bodies(self._resistance, dynamics.divided.subchains)

    def at(self, q: Floats, u: Floats, step: float, grip: Grip = NO_GRIP, anchors: int = 0) -> None:
        """Be that in the state of coordinates [nq] and speeds [nu] that was looked at, for a step of size h (s).

        With what friction holds there, by some of its anchors.
        """
        self._matrix = self._of_step()
        self._matrix.at(q, step, *self._found, u, grip, anchors)

    def solve(self, r: Floats, x: Floats, times: float) -> None:
        """Write x of (1 - h J) x = r, so many times; behind coordinates and speeds J has nothing."""
        self._matrix.solve(r, x, times)
        if self._end < len(r):
            np.multiply(times, r[self._end :], out=x[self._end :])

    def _counts(self, step: float) -> bool:
        """Find tension, where it may count, and say whether it does."""
        counts, begun = self.memory
        looks = self._looks and begun % LOOKED == 0
        if counts or looks:
            tension = self._resistance.tension
            found = tension.stiffness(self._loads())
            if looks:
                counts = int(self._comm.allreduce(tension.share(step, found), MPI.MAX) > MATTERS)
        self.memory[:] = counts, begun + 1
        return bool(counts)

    @functools.cached_property
    def _resistance(self) -> BodyResistance:
        return BodyResistance(self._dynamics.divided)
