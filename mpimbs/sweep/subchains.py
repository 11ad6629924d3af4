"""The subchains of a process, in sequence, and the passes of an evaluation over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from mpimbs.spatial.handles import SIZE
from mpimbs.spatial.memory import Table, aligned_zeros
from mpimbs.sweep.sequence import PLAN_AT, PLAN_SIZE, Q_BEGIN, Q_COUNT, U_BEGIN, U_COUNT, SequencePlan
from mpimbs.sweep.structure import TURNING, Handles
from mpimbs.sweep.subchain import Subchain

Floats = npt.NDArray[np.float64]


class Subchains:
    """Subchains in sequence, each hanging on the one before.

    Their evaluation is that of `mpimbs.pipeline`.

    Parameters
    ----------
    subchains : sequence of Subchain
        From the root outward; one at least.

    Attributes
    ----------
    plan : int64 array
        What the compiled passes are given (`sweep.sequence`).
    width : int
        Lanes of the widest tile of all.
    turn, blocks, loads : array [TURNING], [count, SIZE], [count, 12]
        See `sweep.structure.Handles`.
    """

    def __init__(self, subchains: Sequence[Subchain]) -> None:
        self._subchains = list(subchains)
        count = len(self._subchains)
        rows = np.zeros((count, 8), np.int64)
        at_q = at_u = 0
        for row, subchain in zip(rows, self._subchains, strict=True):
            plan = subchain.tiles.plan
            row[[PLAN_AT, PLAN_SIZE]] = plan.ctypes.data, plan.size
            row[[Q_BEGIN, U_BEGIN, Q_COUNT, U_COUNT]] = at_q, at_u, subchain.nq, subchain.nu
            at_q, at_u = at_q + subchain.nq, at_u + subchain.nu
        self.blocks = aligned_zeros(count * SIZE).reshape(count, SIZE)
        self.loads = np.zeros((count, 12))
        self.turn = np.zeros(TURNING)
        handles = Handles(self.turn, self.blocks, self.loads)
        self._table = Table(SequencePlan(handles, np.zeros(count * TURNING), rows))
        self.plan = self._table.data
        self.width = max(subchain.tiles.width for subchain in self._subchains)

    def __len__(self) -> int:
        return len(self._subchains)

    def __iter__(self) -> Iterator[Subchain]:
        return iter(self._subchains)

    def __getitem__(self, number: int) -> Subchain:
        return self._subchains[number]

    def handle_loads(self) -> tuple[Floats, Floats]:
        """Acceleration A1 of the first handle 1 [1, 6] and load f2 on the last handle 2 [1, 6], as they stand."""
        return self.loads[:1, :6].copy(), self.loads[-1:, 6:].copy()

    def set_wrenches(self, wrenches: Floats) -> None:
        """Set the external wrenches on the steps of all subchains in sequence [m * 6], as `Subchain.wrenches`."""
        at = 0
        for subchain in self._subchains:
            room = subchain.tiles.wrenches
            if room.size:
                room[:] = wrenches[at : at + room.size]
            at += 6 * subchain.tiles.steps
