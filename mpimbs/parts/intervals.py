"""The intervals of a process, in sequence, and the passes of an evaluation over all of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.memory import Table, aligned_zeros
from mpimbs.loops.apart import add_what_loops_do, of_some_loops
from mpimbs.loops.loops import Loops
from mpimbs.parts.interval import IntervalPart
from mpimbs.parts.lane_subtrees import Swept
from mpimbs.parts.part import NO_BLOCK, Block, Ends, PartByHandles, Taken
from mpimbs.parts.pieces import sequence_rows
from mpimbs.parts.sequence import SequencePlan
from mpimbs.parts.subchain import Subchain
from mpimbs.spatial.rows import ROW
from mpimbs.spatial.six import EXTRA
from mpimbs.sweep.structure import TURNING, Handles, Springs, Structure
from mpimbs.values.value import OPEN_BODY, Description, block_at, compliance_at, largest_room, noise_at, transfer_at


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
        What the compiled passes are given (`parts.sequence`).
    room : Room
    width : int
        Lanes of the widest sweep of all.
    values : list of Description
        Of their equations.
    blocks : array [count, room.size()]
        These, as in `values.value`.
    loads : array [count, (room.inboard + room.open) * 6]
        Accelerations of the inboard bodies of each, loads on the open ones.
    swept : Swept
        How many bodies of all are swept in which way.
    """

    def __init__(
        self, parts: Sequence[IntervalPart], whole: Subchain, independent: bool = False, hangs: bool = False
    ) -> None:
        self._parts, self.independent, self.hangs = list(parts), independent, hangs
        if len(parts) > 1:
            room = largest_room([part.room for part in parts])
            for part in parts:
                if part.room != room:
                    part.make(room)
        self.whole, self.room = whole, parts[0].room
        count, numbers = len(parts), 6 * (self.room.inboard + self.room.open)
        self.blocks = aligned_zeros(count * self.room.size()).reshape(count, -1)
        self.values: list[Description] = [part.value for part in parts]
        self.loads = np.zeros((count, numbers))
        self.width = max(part.width for part in parts)
        self.swept = Swept(*(sum(counts) for counts in zip(*(part.swept for part in parts), strict=True)))
        turn = whole.nothing_before(TURNING)
        rows = sequence_rows([(part.plan, part[0].nq, part[0].nu) for part in parts])
        handles = Handles(turn, self.blocks.reshape(-1), self.loads.reshape(-1))
        self._table = Table(SequencePlan(handles, np.zeros(count * turn.size), rows))
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
    def has_loops(self) -> bool:
        """Whether the system has loops, be they here or not."""
        return any(part.loops is not None for part in self._parts)

    def with_loops(self) -> Iterator[tuple[Subchain, Loops | None]]:
        """Give each as one piece, and its loops, those of the trunk."""
        return ((part[0], part.loops) for part in self._parts)

    def by_loops(self, tau: Floats) -> tuple[Floats, Floats]:
        """Give what an evaluation found that loops do: wrenches on all steps as one piece [m, 6], in their frames; and
        generalized forces, [nu] or none, with those of gears."""
        wrenches, forces = np.zeros((len(self.whole.made.structure.steps), 6)), np.zeros(self.whole.nu)
        forces[: len(tau)] = tau
        if self.loops:
            add_what_loops_do(self.acting_loops.data, wrenches.reshape(-1), forces)
        return wrenches, forces

    @functools.cached_property
    def acting_loops(self) -> Table:
        """Where compiled code finds what loops do."""
        made, speeds, first = self.whole.made, self.whole.columns.u_offset, self.whole.first
        some = [loops.acting(made, speeds, part[0].first - first) for part in self._parts for loops in part.all_loops]
        return of_some_loops(some)

    def owned_loads(self, count: int) -> Floats:
        """Give the loads of the loops that this rank answers for [count, ROW], in terms of C; 0 for others."""
        found = np.zeros((count, ROW))
        for loops in self.loops:
            found[loops.numbers[loops.owned]] = loops.joints.loads[loops.owned]
        return found

    def take_loads(self, loads: Floats) -> None:
        """Take what all loops carry, as whoever answers for them has it, of those with an end elsewhere."""
        for loops in self.loops:
            if len(loops.far):
                loops.joints.loads[loops.far] = loads[loops.numbers[loops.far]]

    @functools.cached_property
    def looped(self) -> Integers:
        """The bodies of the whole on which loops act, not gears [any]."""
        found = [part[0].first - self.whole.first + loops.ends for part in self._parts for loops in part.all_loops]
        return np.concatenate([np.zeros(0, np.int64), *found])

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
        found = []
        for number, part in enumerate(self._parts):
            load, outside = number * self.loads.shape[1], part.outside
            slots = np.arange(len(outside.inboard))[::-1]
            roots, acting = _roots(part[0], outside.inboard), load + 6 * self.room.inboard
            sizes = part.loops.open_sizes if part.loops is not None else [0] * len(part.value.groups)
            groups = [
                (group.number, 0 if group.sort == OPEN_BODY else size)
                for group, size in zip(part.value.groups, sizes, strict=True)
            ]
            blocks = self._blocks(number, slots.tolist())
            found.append(Ends(roots, outside.inboard[slots], groups, load + 6 * slots, acting, *blocks))
        return found

    def _blocks(self, number: int, slots: list[int]) -> tuple[list[Block], list[list[Block]], list[list[Block]]]:
        """The matrices of some slots, and of groups."""
        room, at, value = self.room, number * self.room.size(), self._parts[number].value
        block, transfer, compliance, noise = (f.py_func for f in (block_at, transfer_at, compliance_at, noise_at))
        transfers = {pair: Block(at + transfer(room, k)) for k, pair in enumerate(value.transfers)}
        groups = range(len(value.groups))

        def across(j: int, k: int) -> Block:
            place = at + compliance(room, j, k)
            return Block(place, place + EXTRA, at + noise(room, j) if value.loops else -1) if j == k else Block(place)

        return (
            [Block(place, place + EXTRA) for place in (at + block(room, slot) for slot in slots)],
            [
                [transfers.get((slot, j), NO_BLOCK) for j in groups]
                if any(slot in group.slots for group in value.groups)
                else []
                for slot in slots
            ],
            [[across(j, k) for k in groups] for j in groups],
        )

    def handle_loads(self) -> tuple[Floats, Floats]:
        """Accelerations of the bodies inboard of the whole [k, 6] and loads on its open ones [h, 6], as they stand."""
        accelerations: dict[int, Floats] = {}
        loads: dict[int, Floats] = {}
        for part, value, numbers in zip(self._parts, self.blocks, self.loads.reshape(len(self), -1, 6), strict=True):
            outside, room = part.outside, self.room
            here, acting = numbers[: len(outside.inboard)], part.open_loads(numbers)
            for slot, body in enumerate(outside.inboard.tolist()):
                accelerations.setdefault(body, here[slot])
                if body in loads:  # f = I A - E x + p is not from outside
                    block = _rows(value, block_at.py_func(room, slot))
                    loads[body] += block[:, :6] @ here[slot] + block[:, EXTRA]
                    for number, (at, group) in enumerate(part.value.transfers):
                        if at == slot:
                            e = _rows(value, transfer_at.py_func(room, number))
                            loads[body] -= e[:, :6] @ numbers[room.inboard + group]
            loads |= {body: load.copy() for body, load in zip(outside.open.tolist(), acting, strict=True)}
        inboard, outer = self.whole.inboard.tolist(), self.whole.outer.tolist()
        found = [accelerations[body] for body in inboard], [loads[body] for body in outer]
        return np.array(found[0]).reshape(-1, 6), np.array(found[1]).reshape(-1, 6)

    def handle_places(self) -> tuple[Integers, Integers]:
        """Where `handle_loads` begin in `loads` [k], [h], of one interval."""
        part, inboard, room = self._parts[0], self.whole.inboard, self.room.inboard
        slots = np.array([part.outside.inboard.tolist().index(body) for body in inboard], np.int64)
        opened = np.array(range(len(self.whole.outer)) if part.loops is None else part.loops.open_bodies, np.int64)
        return 6 * slots, 6 * (room + opened)

    def wrenches_taken(self) -> Taken:
        """Where its sweeps read external wrenches, as of `Part`."""
        found: Taken = []
        for part in self._parts:
            piece, own = part[0], part.wrenches_taken()
            if piece is not self.whole and piece.wrenches.size:
                bodies = np.arange(piece.n_bodies)
                here, there = piece.carriers(bodies)[0], self.whole.carriers(bodies + piece.first - self.whole.first)[0]
                order, steps = np.argsort(here), np.arange(piece.wrenches.size // 6)
                carrier = order[np.searchsorted(here[order], steps)]  # joints of several steps end with it
                numbers = (6 * (there[carrier] - here[carrier] + steps)[:, None] + np.arange(6)).ravel()
                own = [(piece.wrenches, numbers), *((room, numbers[its]) for room, its in own)]
            found += own
        return found

    def joints(self) -> list[tuple[Structure, Springs]]:
        """The arrays that the sweeps read of all joints, each once."""
        return [pair for part in self._parts for pair in part.joints()]


def _rows(value: Floats, at: int) -> Floats:
    return value[at : at + 6 * ROW].reshape(6, ROW)


def _roots(piece: Subchain, inboard: Integers) -> Integers:
    """Bodies that hang on those outside, one for each of their places, the last first: ascending."""
    parents = piece.columns.parent
    roots = np.flatnonzero(parents < piece.first)
    grounded = roots[parents[roots] < 0]
    on_bodies = roots[parents[roots] >= 0]
    found: Integers = piece.first + np.concatenate((on_bodies, grounded[-1:]))
    assert len(found) == len(inboard)  # as roots have slots of their own
    return found
