"""The subchains of a process, in sequence, and the passes of an evaluation over all of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import width
from mpimbs.kernels.memory import Table, aligned_zeros, borrowed, read, span
from mpimbs.kernels.tuples import store_numbers
from mpimbs.kernels.widths import by_width
from mpimbs.parts.part import Block, Ends, PartByHandles, Taken
from mpimbs.parts.passes import for_tiles, opened, tile_again, tile_ends, tile_omega, tile_speeds, work_of
from mpimbs.parts.pieces import SUBCHAIN, coordinates_of, sequence_rows, speeds_of
from mpimbs.parts.sequence import SEQUENCE, SequencePlan
from mpimbs.parts.subchain import Subchain
from mpimbs.parts.tiles import KEEP_ALL, KEEP_NOTHING, PLAN, TILE
from mpimbs.spatial.six import EXTRA
from mpimbs.sweep.inverse import newton_euler
from mpimbs.sweep.inward import accelerated
from mpimbs.sweep.motion import velocity_terms
from mpimbs.sweep.structure import BIAS, TURNING, Handles, Springs, Structure
from mpimbs.sweep.walk import walk_outward
from mpimbs.values.handles import COMPLIANCE, INERTIA, SIZE, TRANSFER


# --- what steps receive through their joints, in lanes: one more pass over what an evaluation has left
#
# Each lane knows A1 and f2 at its ends by then. So its bodies' accelerations, and their loads from the last one inward,
# need nothing of the other lanes.
#
#
@kernel(inline=True)
def _keep_in_bias(zero, bias, step, acceleration):
    store_numbers(zero, bias, step * BIAS, acceleration)


@kernel
def _tile_joint_loads(zero, plan, number, two_handles, given):
    q, u, tau, loads = given
    tile, _, structure = opened(zero, plan, number)
    work = work_of(zero, plan, tile, structure)
    w, steps = width(zero), structure.steps.shape[0]
    acceleration, load = tile_ends(zero, plan, tile)
    if read(plan, PLAN.kept) == KEEP_ALL:  # but for accelerations that loads have taken the place of
        speeds = tile_speeds(zero, plan, tile, structure, u, read(plan, PLAN.u))
        velocity_terms(zero, structure, work, speeds, tile_omega(zero, plan, tile))
    else:
        tile_again(zero, plan, number, q, u, tau, load)
    udot = span(read(plan, PLAN.udot), 0, structure.axes.size * w)
    two = two_handles and read(plan, PLAN.kept) != KEEP_NOTHING
    keeping = (work, load, two, udot, _keep_in_bias, work.bias)
    walk_outward(zero, structure, work.junction, accelerated, acceleration, keeping)
    newton_euler(zero, structure, work, load, work.bias, BIAS, udot)
    for step in range(steps):
        for i in range(6):
            for lane in range(w):
                loads[(tile[TILE.step] + lane * steps + step) * 6 + i] = work.bias[(step * BIAS + i) * w + lane]


@kernel(merge=True)
def _joint_loads_of_all(zero, part, q, u, tau, loads):
    """Write what the steps of all subchains receive through their joints [m * 6], in their frames, in the state of the
    passes before."""
    q, u, tau, loads = borrowed(q), borrowed(u), borrowed(tau), borrowed(loads)
    rows = read(part, SEQUENCE.rows)
    begin = 0
    for number in range(rows.shape[0]):
        row = rows[number]
        plan = read(row, SUBCHAIN)
        size = 6 * read(plan, PLAN.steps)
        here = span(loads, begin, size)
        given = coordinates_of(row, q), speeds_of(row, u), speeds_of(row, tau), here
        for_tiles(zero, plan, _tile_joint_loads, given, read(plan, PLAN.tip) == 0, False)
        begin += size
    return True


JOINT_LOADS_OF_ALL = by_width(_joint_loads_of_all)  # by the number of lanes


class Subchains(PartByHandles):
    """Subchains in sequence, each hanging on the one before.

    Their evaluation is that of `mpimbs.dynamics.pipeline`.

    Parameters
    ----------
    subchains : sequence of Subchain
        From the root outward; one at least.
    """

    independent = False

    def __init__(self, subchains: Sequence[Subchain]) -> None:
        self._subchains = list(subchains)
        count = len(self._subchains)
        rows = sequence_rows([(subchain.tiles.plan, subchain.nq, subchain.nu) for subchain in self._subchains])
        self.blocks = aligned_zeros(count * SIZE).reshape(count, SIZE)  # [count, SIZE]
        self.loads = np.zeros((count, 12))  # [count, 12]
        self.turn = np.zeros(TURNING)  # [TURNING]: see `sweep.structure.Handles`
        handles = Handles(self.turn, self.blocks, self.loads)
        self._table = Table(SequencePlan(handles, np.zeros(count * TURNING), rows))
        self.plan = self._table.data  # what the compiled passes are given (`parts.sequence`)
        self.width = max(subchain.tiles.width for subchain in self._subchains)  # lanes of the widest tile of all

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
        """The place of each subchain's handle equations, and of (A1, f2)."""
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

    def joint_loads(
        self, q: Floats, u: Floats, tau: Floats, turns: Floats, wrenches: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Loads that the bodies receive through their inboard joints [n, 6], and their components along the axes of the
        joints [nu], as of `Part`: in lanes."""
        assert wrenches is None  # there are no loops
        loads = np.empty((len(self.whole.structure.steps), 6))
        JOINT_LOADS_OF_ALL[self.width](self.plan, q, u, tau, loads.reshape(-1))
        return self.whole.of_bodies(loads), self.whole.along_axes(loads)

    def wrenches_taken(self) -> Taken:
        """Where its sweeps read external wrenches, as of `Part`."""
        found, at = [], 0
        for subchain in self._subchains:
            room = subchain.tiles.wrenches
            found.append((room, at + np.arange(room.size)))
            at += 6 * subchain.tiles.steps
        return found

    def joints(self) -> list[tuple[Structure, Springs]]:
        """The arrays that the sweeps read of all joints, each once."""
        return [pair for subchain in self._subchains for pair in subchain.tiles.kinds.joints]
