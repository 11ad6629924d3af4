"""The intervals of a process, in sequence, and the passes of an evaluation over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from mpimbs.spatial.columns import block_at, compliance_at, transfer_at
from mpimbs.spatial.memory import Table, aligned_zeros
from mpimbs.spatial.mixed import C_COLUMN, MixedRoom, length_of, row_at
from mpimbs.spatial.rows import ROW
from mpimbs.spatial.six import EXTRA
from mpimbs.sweep.interval import IntervalPart
from mpimbs.sweep.interval_sequence import IntervalsPlan
from mpimbs.sweep.limbs import Swept
from mpimbs.sweep.loops import Loops
from mpimbs.sweep.open_bodies import join_open_motions
from mpimbs.sweep.part import Ends, PartByHandles
from mpimbs.sweep.sequence import sequence_rows
from mpimbs.sweep.structure import BOUNDARY, TURNING, Handles, Springs, Structure
from mpimbs.sweep.subchain import Subchain

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Intervals(PartByHandles):
    """Intervals of a tree's bodies in sequence: a `Part`.

    Parameters
    ----------
    parts : sequence of IntervalPart
        One at least; with the same room, and as many lanes or none.
    whole : Subchain
        All their bodies as one interval; of a single one that which it has.
    independent : bool
        See `Part`.
    hangs : bool
        Whether any interval, here or elsewhere, has bodies that hang on those of another.

    Attributes
    ----------
    plan : int64 array
        What the compiled passes are given (`sweep.interval_sequence`).
    room : Room
    width : int
        Lanes of the widest sweep of all.
    blocks : array [count, room.size()]
        Their equations, as in `spatial.columns`.
    loads : array [count, (room.inboard + room.open) * 6]
        Accelerations of the inboard bodies of each, loads on the open ones.
    swept : Swept
        How many bodies of all are swept in which way.
    """

    def __init__(
        self, parts: Sequence[IntervalPart], whole: Subchain, independent: bool = False, hangs: bool = False
    ) -> None:
        self._parts, self.independent, self.hangs = list(parts), independent, hangs
        if any(part.loops for part in parts) and len(parts) > 1:
            rooms = [part.room for part in parts]
            for part in parts:
                part.make(MixedRoom(*(max(sizes) for sizes in zip(*rooms, strict=True))))
        self.whole, self.room = whole, parts[0].room
        count, numbers = len(parts), 6 * (self.room.inboard + self.room.open)
        self.blocks = aligned_zeros(count * self.room.size()).reshape(count, -1)
        self.blocks[:] = [part.blocks[0] for part in parts]
        self.loads = np.zeros((count, numbers))
        self.width = max(part.width for part in parts)
        self.swept = Swept(*(sum(counts) for counts in zip(*(part.swept for part in parts), strict=True)))
        turn = whole.nothing_before(TURNING)
        rows = sequence_rows([(part.plan, part[0].nq, part[0].nu) for part in parts])
        handles = Handles(turn, self.blocks.reshape(-1), self.loads.reshape(-1))
        self._table = Table(IntervalsPlan(handles, np.zeros(count * turn.size), rows))
        self.plan = self._table.data

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Subchain]:
        return (part[0] for part in self._parts)

    def __getitem__(self, number: int) -> Subchain:
        return self._parts[number][0]

    @property
    def loops(self) -> list[Loops]:
        """The loops of each, in the trunk and in lanes."""
        return [loops for part in self._parts for loops in part.all_loops]

    @property
    def open_sizes(self) -> list[list[int]]:
        """See `Loops.open_sizes`, of each; the system has loops."""
        return [part.loops.open_sizes for part in self._parts if part.loops is not None]

    @property
    def has_loops(self) -> bool:
        """Whether the system has loops, be they here or not."""
        return any(part.loops is not None for part in self._parts)

    def place_boundaries(self, before: Floats, q: Floats, u: Floats) -> None:
        """Say how all bodies before the first interval move, the value of a scan, to what closes loops."""
        at_q = at_u = 0
        for number, part in enumerate(self._parts):
            piece = part[0]
            if part.loops is not None:
                part.loops.boundary[:] = piece.boundaries(before, BOUNDARY).ravel()
            if number + 1 < len(self._parts):
                end_q, end_u = at_q + piece.nq, at_u + piece.nu
                joined = np.empty_like(before)
                own = piece.boundary_motion(q[at_q:end_q], u[at_u:end_u])
                join_open_motions(0.0, before, own, joined)
                before, at_q, at_u = joined, end_q, end_u

    def loop_wrenches(self) -> Floats:
        """What loops do to the bodies of the whole at their origins [n, 6], as an evaluation found it; body frames."""
        found = np.zeros((self.whole.n_bodies, 6))
        for part in self._parts:
            for loops in part.all_loops:
                bodies, loads = loops.wrenches()
                np.add.at(found, part[0].first - self.whole.first + bodies, loads)
        return found

    def owned_loads(self, count: int) -> Floats:
        """What those of all `count` loops carry [count, ROW] for which this rank answers, in terms of C; others 0."""
        found = np.zeros((count, ROW))
        for loops in self.loops:
            found[loops.numbers[loops.owned]] = loops.joints.loads[loops.owned]
        return found

    def take_loads(self, loads: Floats) -> None:
        """Take what all loops carry, as whoever answers for them has it, of those with an end elsewhere."""
        for loops in self.loops:
            if len(loops.far):
                loops.joints.loads[loops.far] = loads[loops.numbers[loops.far]]

    def geared(self, tau: Floats) -> Floats:
        """Generalized forces, [nu] or none, with those of gears, as an evaluation found them."""
        found, speeds = np.zeros(self.whole.nu), self.whole.columns.u_offset
        for part in self._parts:
            for loops in part.all_loops:
                bodies, forces = loops.gear_forces()
                np.add.at(found, speeds[part[0].first - self.whole.first + bodies], forces)
        if not found.any():
            return tau
        return found + tau if len(tau) else found

    def loop_rows(
        self, accelerations: Floats, magnitudes: Floats, udot: Floats, count: int
    ) -> tuple[Floats, Floats, Floats]:
        """Give what this rank has of the equations of all `count` loops, and its magnitude [count, ROW] each, and the
        largest number of what each carries [count]; see `Loops.rows`.

        Accelerations [n, 6] and their magnitudes [n, 2] are of the bodies of the whole, `udot` [nu] of its joints.
        """
        left, most, loads = np.zeros((count, ROW)), np.zeros((count, ROW)), np.zeros(count)
        first_speed = np.minimum(self.whole.columns.u_offset[:-1], max(0, len(udot) - 1))
        of_joints = udot[first_speed] if len(udot) else np.zeros(self.whole.n_bodies)
        for part in self._parts:
            at = part[0].first - self.whole.first
            for loops in part.all_loops:
                own, size = loops.rows(accelerations[at:], magnitudes[at:], of_joints[at:])
                np.add.at(left, loops.numbers, own)
                np.add.at(most, loops.numbers, size)
                np.maximum.at(loads, loops.numbers, loops.largest_loads)
        return left, most, loads

    def ends(self) -> list[Ends]:
        """Where the equations of each stand: of all bodies that hang on others, if these have slots of their own."""
        room, found = self.room, []
        block, transfer, compliance = (f.py_func for f in (block_at, transfer_at, compliance_at))
        for number, part in enumerate(self._parts):
            at, load, outside = number * room.size(), number * self.loads.shape[1], part.outside
            slots = np.arange(len(outside.inboard))[::-1]
            inertia = np.array([at + block(room, k) for k in slots.tolist()])
            places = outside.open, at + transfer(room, 0), at + compliance(room, 0, 0), load + 6 * room.inboard
            roots = _roots(part[0], outside.inboard)
            found.append(Ends(roots, outside.inboard[slots], inertia, load + 6 * slots, *places, room.open))
        return found

    def handle_loads(self) -> tuple[Floats, Floats]:
        """Accelerations of the bodies inboard of the whole [k, 6] and loads on its open ones [h, 6], as they stand."""
        accelerations: dict[int, Floats] = {}
        loads: dict[int, Floats] = {}
        for part, value, numbers in zip(self._parts, self.blocks, self.loads.reshape(len(self), -1, 6), strict=True):
            outside, room = part.outside, self.room
            here, acting = numbers[: len(outside.inboard)], part.open_loads(numbers)
            for slot, body in enumerate(outside.inboard.tolist()):
                accelerations.setdefault(body, here[slot])
                if body in loads and isinstance(room, MixedRoom):
                    loads[body] += _mixed_load(room, value, slot, numbers)
                elif body in loads:  # f = I A - sum_j E_j x_j + p is not from outside
                    block = _rows(value, block_at.py_func(room, slot))
                    loads[body] += block[:, :6] @ here[slot] + block[:, EXTRA]
                    if slot == 0:
                        for k, load in enumerate(acting):
                            loads[body] -= _rows(value, transfer_at.py_func(room, k))[:, :6] @ load
            loads |= {body: load.copy() for body, load in zip(outside.open.tolist(), acting, strict=True)}
        inboard, outer = self.whole.inboard.tolist(), self.whole.outer.tolist()
        found = [accelerations[body] for body in inboard], [loads[body] for body in outer]
        return np.array(found[0]).reshape(-1, 6), np.array(found[1]).reshape(-1, 6)

    def set_wrenches(self, wrenches: Floats) -> None:
        """Set the external wrenches on the steps of the whole in sequence [m * 6], as `Subchain.wrenches`."""
        given = wrenches.reshape(-1, 6)
        for part in self._parts:
            piece = part[0]
            if piece is not self.whole and piece.wrenches.size:
                bodies = np.arange(piece.n_bodies)
                steps, _ = self.whole.carriers(bodies + piece.first - self.whole.first)
                piece.wrenches.reshape(-1, 6)[piece.carriers(bodies)[0]] = given[steps]
            part.set_wrenches(piece.wrenches)

    def joints(self) -> list[tuple[Structure, Springs]]:
        """What the sweeps read of all joints, each array once."""
        return [pair for part in self._parts for pair in part.joints()]


def _rows(value: Floats, at: int) -> Floats:
    return value[at : at + 6 * ROW].reshape(6, ROW)


def _mixed_load(room: MixedRoom, value: Floats, slot: int, numbers: Floats) -> Floats:
    """The load f on a body outside, given accelerations and loads."""
    at, length = row_at.py_func(room, slot, 0), length_of.py_func(room)
    rows = value[at : at + 6 * length].reshape(6, -1, ROW)
    load: Floats = np.einsum("ibk,bk->i", rows[:, :-1, :6], numbers) + rows[:, -1, C_COLUMN]
    return load


def _roots(piece: Subchain, inboard: Integers) -> Integers:
    """Bodies that hang on those outside, one for each of their places, the last first: ascending."""
    parents = piece.columns.parent
    roots = np.flatnonzero(parents < piece.first)
    grounded = roots[parents[roots] < 0]
    on_bodies = roots[parents[roots] >= 0]
    found: Integers = piece.first + np.concatenate((on_bodies, grounded[-1:]))
    assert len(found) == len(inboard)  # as roots have slots of their own
    return found
