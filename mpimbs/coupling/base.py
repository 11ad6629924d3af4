"""What a coupling is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.parallel.butterfly import Butterfly
from mpimbs.parallel.exchange import Receives

if TYPE_CHECKING:
    from mpimbs.coupling.pcg.load_equations import LoadEquations


def at_time(t: float) -> str:
    """Say at which time (s) something failed, for a message; nothing of what is asked for at no time."""
    return f" at t = {t:g} s" if np.isfinite(t) else ""


@dataclass
class CouplingState:
    """The state that solutions leave to the next: numbers, the same on all ranks, and this rank's arrays."""

    numbers: dict[str, int]
    arrays: dict[str, Floats]


class Iterative(Protocol):
    """A coupling that iterates, from its solutions before: it has constraint loads at separated joints.

    All ranks call its methods together.

    Attributes
    ----------
    contradiction : float
        By how much of the right-hand side redundant constraints may contradict one another: such equations are solved
        as nearly as they can be.
    """

    contradiction: float

    @property
    def joints(self) -> LoadEquations:
        """The separated joints of this rank, and open loops behind them, with the loads that were found last."""
        ...

    def statistics(self) -> dict[str, int]:
        """As of `Coupling`; among them solutions and total_iterations."""
        ...

    def residual(self) -> float:
        """Residual of the last solution, over the right-hand side."""
        ...

    def condition(self) -> float:
        """Estimate the condition number of the equations as last formed."""
        ...

    def state(self) -> CouplingState:
        """Give the state that earlier solutions leave to the next."""
        ...

    def go_on(self, state: CouplingState) -> None:
        """Go on from what others left; without arrays, where the parts of the ranks are others, from the numbers."""
        ...


class Coupling(Protocol):
    """A strategy that finds the loads between subchains.

    It is made once, by all ranks, of the caller's own communicator, which must outlive it, and this rank's part.
    """

    @property
    def plan(self) -> Integers | None:
        """The plan of its compiled form, for the one call of an evaluation (`dynamics.pipeline`), or None."""
        ...

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        ...

    @property
    def iterative(self) -> Iterative | None:
        """The coupling as one whose solutions go on from those before; None where each stands for itself."""
        ...

    def statistics(self) -> dict[str, int]:
        """Give the cost of the solutions so far, by name; empty where it is always the same."""
        ...

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        ...

    @property
    def solve(self) -> Solve | None:
        """The function that finds the boundary values of this rank's subchains; None where compiled code does."""
        ...


class Solve(Protocol):
    """Finds the boundary values of a rank's subchains."""

    def __call__(self, t: float, q: Floats, blocks: Floats, root: Floats) -> Floats:
        """Find them; all ranks call.

        Parameters
        ----------
        t : float
            Time (s).
        q : array [nq]
            Coordinates of all of this rank's subchains.
        blocks : array [count, SIZE]
            Handle equations of the subchains, as in `values.handles`; [count, ASSEMBLY] of assemblies in the
            acceleration form, as in `values.assembly`. The part that a coupling goes with gives what it takes.
        root : array [6]
            Acceleration of the root: -g, in the inertial frame (m/s^2).

        Returns
        -------
        array [count, 12]
            A1, acceleration of handle 1, and f2, load on handle 2, of each (rad/s^2, m/s^2; N m, N).
        """
        ...


class DirectCoupling:
    """A coupling that is exact in one pass.

    Parameters
    ----------
    messages : Butterfly or Receives
        Its own; closed with it.
    """

    def __init__(self, messages: Butterfly | Receives) -> None:
        self._of_messages = messages

    solve = None

    def close(self) -> None:
        """Free what MPI holds, before the communicator is."""
        self._of_messages.close()

    @property
    def iterative(self) -> Iterative | None:
        """Nothing: every solution stands for itself."""
        return None

    def statistics(self) -> dict[str, int]:
        """Nothing: all solutions take the same."""
        return {}

    @property
    def clock(self) -> Floats:
        """Where time spent in messages is counted [1] (s)."""
        return self._of_messages.clock

    @property
    def seconds(self) -> float:
        """Time spent in messages so far (s)."""
        return self._of_messages.seconds
