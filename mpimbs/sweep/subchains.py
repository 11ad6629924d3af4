"""The subchains of a process, in sequence, and the passes of an evaluation over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from mpimbs.spatial.handles import SIZE
from mpimbs.spatial.memory import Table, aligned_zeros
from mpimbs.sweep.entries import INWARD, MOTION, OUTWARD
from mpimbs.sweep.sequence import SEQUENCE_ITEMS
from mpimbs.sweep.structure import TURNING
from mpimbs.sweep.subchain import Subchain

Floats = npt.NDArray[np.float64]


class Subchains:
    """Subchains in sequence, each hanging on the one before.

    Vectors of coordinates and speeds are in the model's order. One evaluation is, in this order, `start`, `inward` and
    `outward`; what lies between (the boundary motion and the handle loads) comes from the coupling.

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
    loads : array [count, 12]
        (A1, f2) of each subchain, as last given to `outward`.
    """

    def __init__(self, subchains: Sequence[Subchain]) -> None:
        self._subchains = list(subchains)
        count = len(self._subchains)
        rows = np.zeros((count, 6), np.int64)
        at_q = at_u = 0
        for row, subchain in zip(rows, self._subchains, strict=True):
            plan = subchain.tiles.plan
            row[:] = (plan.ctypes.data, plan.size, at_q, at_u, subchain.nq, subchain.nu)
            at_q, at_u = at_q + subchain.nq, at_u + subchain.nu
        self._turn = np.zeros(TURNING)
        self._blocks = aligned_zeros(count * SIZE).reshape(count, SIZE)
        self.loads = np.zeros((count, 12))
        table = Table(SEQUENCE_ITEMS)
        table.add("rows", rows.ravel())
        table.add("turn", self._turn)
        table.add("turns", np.zeros(count * TURNING))
        table.add("blocks", self._blocks.ravel())
        table.add("loads", self.loads.ravel())
        self._table = table
        self.plan = table.data
        self.width = max(subchain.tiles.width for subchain in self._subchains)
        self._motion, self._inward, self._outward = (passes[self.width] for passes in (MOTION, INWARD, OUTWARD))
        self._tau = np.zeros(0)

    def __len__(self) -> int:
        return len(self._subchains)

    def __iter__(self) -> Iterator[Subchain]:
        return iter(self._subchains)

    def __getitem__(self, number: int) -> Subchain:
        return self._subchains[number]

    def set_wrenches(self, wrenches: Floats) -> None:
        """Set the external wrenches on the steps of all subchains in sequence [m * 6], as `Subchain.wrenches`."""
        at = 0
        for subchain in self._subchains:
            room = subchain.tiles.wrenches
            if room.size:
                room[:] = wrenches[at : at + room.size]
            at += 6 * subchain.tiles.steps

    def start(self, q: Floats, u: Floats) -> Floats:
        """Write the joint frames; give the boundary turn of all subchains together.

        Parameters
        ----------
        q, u : array [nq], [nu]
            Coordinates (rad, m, unit quaternions) and generalized speeds (rad/s, m/s).

        Returns
        -------
        array [TURNING]
            Rotation 9 from the first handle 1 to the last handle 2, and the angular velocity 3 of that, in its frame,
            while handle 1 is held. At the tip, where nobody asks, numbers without meaning.
        """
        self._motion(self.plan, q, u)
        return self._turn

    def inward(self, q: Floats, u: Floats, tau: Floats, turn: Floats) -> Floats:
        """Sweep inward: handle equations [count, SIZE], given the turn of the first subchain's handle 1 [TURNING].

        `tau` [nu] (N m, N) comes on top of the model's own joint forces; an empty array stands for none.
        """
        self._tau = tau
        self._inward(self.plan, q, u, tau, turn)
        return self._blocks

    def outward(self, q: Floats, u: Floats, loads: Floats, udot: Floats, rates: Floats) -> None:
        """Sweep outward with A1 and f2 in `loads` [count, 12]; writes accelerations [nu] and coordinate rates [nq]."""
        self.loads[:] = loads
        self._outward(self.plan, q, u, self._tau, udot, rates)
