"""What acts on copies of a system from outside: functions, wrenches and springs of each one's model, one after another.

A copy whose function fails is told of, and the others are none the worse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mpimbs.base.errors import HaltError, LoadNotFiniteError, SimulationError
from mpimbs.forces.external import ExternalLoads
from mpimbs.forces.springs import MakeExchange
from mpimbs.parts.subchain import AT_REST, Subchain

Floats = npt.NDArray[np.float64]


class ForcesOfCopies:
    """Evaluates the models' functions, wrenches and springs for copies.

    Parameters
    ----------
    subchains : sequence of Subchain
        One for all copies, or one for each.
    make_exchange : callable
        Makes what springs need; see `ActingSprings`.

    Attributes
    ----------
    wrenches : bool
        Whether any copy has wrenches, body forces or springs.
    idle : set of int
        Copies whose functions are not called.
    failures : dict of int to str
        Copies whose functions failed in the last call, and how.
    """

    def __init__(self, subchains: Sequence[Subchain], make_exchange: MakeExchange) -> None:
        self._subchains = subchains
        self._external = [ExternalLoads(part, np.array([0, part.n_bodies]), make_exchange) for part in subchains]
        self.wrenches = any(external.wrenches for external in self._external)
        self.idle: set[int] = set()
        self.failures: dict[int, str] = {}

    def __bool__(self) -> bool:
        """Whether anything acts on any copy."""
        return any(external.any for external in self._external)

    def compile(self) -> None:
        """Compile those functions that are numba's to compile."""
        for external in self._external:
            external.compile()

    def add(self, t: float, q: Floats, u: Floats, tau: Floats, wrenches: Floats) -> None:
        """Add to generalized forces and wrenches at a time `t` (s); where a function fails, the forces are NaN.

        Parameters
        ----------
        q, u : array [copies, nq], array [copies, nu]
        tau : array [copies, nu]
        wrenches : array [copies, m * 6]
            On the steps of each copy, or without columns.
        """
        self.failures = {}
        for k in range(len(q)):
            which = k % len(self._external)
            external, part = self._external[which], self._subchains[which]
            if not external.any or k in self.idle:
                continue
            try:
                external.apply(t, q[k], u[k], AT_REST[None], tau[k])
            except HaltError:
                raise
            except SimulationError as error:
                tau[k] = np.nan
                if not isinstance(error, LoadNotFiniteError):  # which a smaller step may avoid
                    self.failures[k] = str(error)
                continue
            if external.wrenches:
                wrenches[k] += part.wrenches

    def spring_energy(self, copy: int) -> float:
        """Potential energy (J) of a copy's springs between bodies, in the motions that its subchain has found last."""
        return self._external[copy % len(self._external)].spring_energy()
