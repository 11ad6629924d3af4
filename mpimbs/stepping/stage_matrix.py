"""The matrix 1 - h J that stages of implicit steps are solved with, in the state where a step begins."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from mpimbs.base.arrays import Floats
from mpimbs.dynamics import Dynamics
from mpimbs.dynamics.operators.implicit_matrix import Compiled
from mpimbs.dynamics.operators.tension import Tension
from mpimbs.stepping.march import UNLIMITED
from mpimbs.stepping.schemes import IF_IT_MATTERS
from mpimbs.sweep.grip import NO_GRIP, Grip
from mpimbs.sweep.structure import ADDED

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
        self._resists = any(force.vectorized for force in dynamics.system.loads.body_forces)
        self._stiffness: Floats | None = None
        self._damping: Floats | None = None
        if self.memory[0]:
            _ = self._with_tension  # which all ranks make together

    def look(self, step: float) -> None:
        """Take what resists, besides joints, in the state that was evaluated last, for a step of some size h (s)."""
        self._stiffness, self._damping = self._resistance()
        tension = self._stiffness_of_tension(step)
        if tension is not None:
            self._stiffness = tension if self._stiffness is None else self._stiffness + tension

    @property
    def may_be_compiled(self) -> bool:
        """Whether there are steps that compiled code takes."""
        return not self._resists and self._alone is not None

    @property
    def compiled(self) -> Compiled | None:
        """By what compiled code takes the steps from here on, as of `ImplicitMatrix`; None where it takes none."""
        return self._with_tension if self.memory[0] else self._alone

    @property
    def steps_unseen(self) -> int:
        """How many steps may begin before it is seen whether tension counts."""
        return -self.memory[1] % LOOKED if self._looks else UNLIMITED

    def saw(self, begun: int) -> None:
        """Know of states in which steps were begun in compiled code."""
        inertia, counts = self._dynamics.inertia, self.memory[0]
        self._matrix = inertia.implicit_matrix_of_bodies if counts else inertia.implicit_matrix
        self._stiffness, self._damping = self._tension.found.reshape(-1, ADDED) if counts else None, None
        self.memory[1] += begun

    @functools.cached_property
    def _alone(self) -> Compiled | None:
        return self._dynamics.inertia.implicit_matrix.compiled

    @functools.cached_property
    def _with_tension(self) -> Compiled | None:
        dynamics = self._dynamics
        return dynamics.inertia.implicit_matrix_of_bodies.with_tension(self._tension, dynamics.divided.subchains)

    def at(self, q: Floats, u: Floats, step: float, grip: Grip = NO_GRIP, anchors: int = 0) -> None:
        """Be that in the state of coordinates [nq] and speeds [nu] that was looked at, for a step of size h (s).

        With what friction holds there, by some of its anchors.
        """
        inertia = self._dynamics.inertia
        alone = self._stiffness is None and self._damping is None
        self._matrix = inertia.implicit_matrix if alone else inertia.implicit_matrix_of_bodies
        self._matrix.at(q, step, self._stiffness, self._damping, u, grip, anchors)

    def solve(self, r: Floats, x: Floats, times: float) -> None:
        """Write x of (1 - h J) x = r, so many times; behind coordinates and speeds J has nothing."""
        self._matrix.solve(r, x, times)
        if self._end < len(r):
            np.multiply(times, r[self._end :], out=x[self._end :])

    def _resistance(self) -> list[Floats | None]:
        """Give the stiffness and the damping of forces on bodies, each there on all ranks or on none."""
        if not self._resists:
            return [None, None]
        found = self._dynamics.divided.external.resistance()[::-1]
        if self._comm.size > 1:
            there = np.array([values is not None for values in found])
            self._comm.Allreduce(MPI.IN_PLACE, there, MPI.LOR)
            none = np.zeros((self._dynamics.subchain.n_bodies, ADDED))
            found = [none if any_rank and own is None else own for own, any_rank in zip(found, there, strict=True)]
        return found

    def _stiffness_of_tension(self, step: float) -> Floats | None:
        """Give the stiffness of tension, if it counts."""
        counts, begun = self.memory
        looks = self._looks and begun % LOOKED == 0
        found = self._tension.stiffness(self._loads()) if counts or looks else None
        if looks and found is not None:
            counts = int(self._comm.allreduce(self._tension.share(step, found), MPI.MAX) > MATTERS)
        self.memory[:] = counts, begun + 1
        return found if counts else None

    @functools.cached_property
    def _tension(self) -> Tension:
        return Tension(self._dynamics.subchain)
