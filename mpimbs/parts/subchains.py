"""The subchains of a process, in sequence, and the passes of an evaluation over all of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from mpimbs.kernels.memory import Table, aligned_zeros
from mpimbs.parts.carried import CARRIED_LOADS
from mpimbs.parts.part import Block, Ends, PartByHandles
from mpimbs.parts.pieces import sequence_rows
from mpimbs.parts.sequence import SequencePlan
from mpimbs.parts.subchain import Subchain
from mpimbs.spatial.six import EXTRA
from mpimbs.sweep.structure import TURNING, Handles, Springs, Structure
from mpimbs.values.handles import COMPLIANCE, INERTIA, SIZE, TRANSFER

Floats = npt.NDArray[np.float64]


class Subchains(PartByHandles):
    """Subchains in sequence, each hanging on the one before.

    Their evaluation is that of `mpimbs.dynamics.pipeline`.

    Parameters
    ----------
    subchains : sequence of Subchain
        From the root outward; one at least.

    Attributes
    ----------
    plan : int64 array
        What the compiled passes are given (`parts.sequence`).
    width : int
        Lanes of the widest tile of all.
    turn, blocks, loads : array [TURNING], [count, SIZE], [count, 12]
        See `sweep.structure.Handles`.
    """

    independent = False

    def __init__(self, subchains: Sequence[Subchain]) -> None:
        self._subchains = list(subchains)
        count = len(self._subchains)
        rows = sequence_rows([(subchain.tiles.plan, subchain.nq, subchain.nu) for subchain in self._subchains])
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

    @functools.cached_property
    def whole(self) -> Subchain:
        """All bodies as one piece."""
        return self._subchains[0].with_those_to(self._subchains[-1].last)

    def ends(self) -> list[Ends]:
        """Where the equations of each stand, as in `values.handles`, and (A1, f2)."""
        found = []
        for number, piece in enumerate(self._subchains):
            at, load = number * SIZE, number * 12
            roots, outer = np.array([piece.first]), [] if piece.tip else piece.outer.tolist()
            inertia = [Block(at + INERTIA, at + INERTIA + EXTRA)]
            transfer = [[Block(at + TRANSFER)] for _ in outer]
            compliance = [[Block(at + COMPLIANCE, at + COMPLIANCE + EXTRA)] for _ in outer]
            places = np.array([load]), load + 6, inertia, transfer or [[]], compliance
            found.append(Ends(roots, roots - 1, [(body, 0) for body in outer], *places))
        return found

    def handle_loads(self) -> tuple[Floats, Floats]:
        """Acceleration A1 of the first handle 1 [1, 6] and load f2 on the last handle 2 [1, 6], as they stand."""
        return self.loads[:1, :6].copy(), self.loads[-1:, 6:].copy()

    def joint_loads(self, q: Floats, u: Floats, tau: Floats, turns: Floats, wrenches: Floats | None = None) -> Floats:
        """Loads that the bodies receive through their inboard joints [n, 6], as of `Part`: in lanes."""
        assert wrenches is None  # there are no loops
        loads = np.empty(6 * len(self.whole.structure.steps))
        CARRIED_LOADS[self.width](self.plan, q, u, tau, loads)
        return self.whole.of_bodies(loads)

    def set_wrenches(self, wrenches: Floats) -> None:
        """Set the external wrenches on the steps of all subchains in sequence [m * 6], as `Subchain.wrenches`."""
        at = 0
        for subchain in self._subchains:
            room = subchain.tiles.wrenches
            if room.size:
                room[:] = wrenches[at : at + room.size]
            at += 6 * subchain.tiles.steps

    def joints(self) -> list[tuple[Structure, Springs]]:
        """What the sweeps read of all joints, each array once."""
        return [pair for subchain in self._subchains for pair in subchain.tiles.kinds.joints]
