"""A part of a system, swept phase by phase with boundary values that a test gives."""

import numpy as np
from mpi4py import MPI

from mpimbs.dynamics.pipeline import COUPLING, INWARD, MOTION, OUTWARD, PHASES, RUN_PHASES, Rank
from mpimbs.kernels.memory import Table
from mpimbs.parallel.scan import Scan
from mpimbs.parts.subchain import AT_REST
from mpimbs.parts.subchains import Subchains
from mpimbs.sweep.structure import TURNING
from oracles.dense import Array


class Swept:
    """Subchains of one process, as the pipeline sweeps them."""

    def __init__(self, part: Subchains) -> None:
        self._part = part
        self._scan = Scan(MPI.COMM_SELF, AT_REST[:TURNING])
        none = np.zeros(0, np.int64)
        sizes = sum(subchain.nq for subchain in part), sum(subchain.nu for subchain in part)
        self._table = Table(
            Rank(part.plan, self._scan.plan, none, np.zeros(6), np.zeros(PHASES), np.zeros(1), 1, 0, 0, *sizes)
        )
        self._run = RUN_PHASES["pcg"][part.width]
        self._tau = np.zeros(0)

    def _phases(self, first: int, last: int, q: Array, u: Array, udot: Array | None = None, rates: Array | None = None):
        room = np.empty(len(u)), np.empty(len(q))
        written = [mine if given is None else given for given, mine in zip((udot, rates), room, strict=True)]
        self._run(self._table.data, first, last, q, u, self._tau, *written)

    def start(self, q: Array, u: Array) -> Array:
        """The joint frames; gives the boundary turn of all together."""
        self._phases(MOTION, INWARD, q, u)
        return self._part.turn

    def inward(self, q: Array, u: Array, tau: Array, turn: Array) -> Array:
        """The handle equations, given the turn of handle 1."""
        self._scan.result[:] = turn
        self._tau = tau
        self._phases(INWARD, COUPLING, q, u)
        return self._part.blocks

    def outward(self, q: Array, u: Array, loads: Array, udot: Array, rates: Array) -> None:
        """Accelerations and rates, given A1 and f2 of each."""
        self._part.loads[:] = loads
        self._phases(OUTWARD, PHASES, q, u, udot, rates)
