"""What the join of two values does, found at set-up: which components hang where, which loops are closed."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from mpimbs.base.arrays import Integers
from mpimbs.kernels.memory import rows_of
from mpimbs.spatial.rows import ROW
from mpimbs.values.fronts import COLUMNS
from mpimbs.values.joins import (
    ADD_RIGHT,
    ADD_WITHIN,
    CLEAR,
    CLOSE_LOOP,
    CLOSED_COLUMN,
    COPY_LEFT,
    COPY_RIGHT,
    COPY_WITHIN,
    GIVE,
    GIVE_LEFT,
    GIVE_RIGHT,
    HANG,
    ROUND,
)
from mpimbs.values.value import LOOP, OPEN_BODY, SIX, Description, Room, block_at, compliance_at, noise_at, transfer_at

_BLOCK, _TRANSFER, _COMPLIANCE, _NOISE = (f.py_func for f in (block_at, transfer_at, compliance_at, noise_at))


class Join(NamedTuple):
    """The join of two values: components that hang, loops that close."""

    value: Description  # of both
    up: list[list[int]]  # rows of the programs of `joins.join_values` and `joins.spread_values`
    down: list[list[int]]
    lists: list[int]
    work: int  # numbers of the arrays that these take
    kept: int
    scratch: int
    rooms: tuple[Room, Room]  # those of the two
    # of each component that is hung: how many groups share the slot of its body, how many come in with it
    handles: list[tuple[int, int]]
    closed: int  # loops that are closed

    def tables(self) -> tuple[Integers, Integers]:
        """Rows of the program up, then down [any, 8], and its lists."""
        return rows_of([*self.up, *self.down]), np.array(self.lists, np.int64)


def joined(
    left: Description, right: Description, left_room: Room | None = None, right_room: Room | None = None
) -> Join:
    """Find how the values of two intervals in sequence are joined, which have the rooms that they need or more."""
    join = _Joining(left, right, left_room or left.room, right_room or right.room)
    join.hang()
    join.share()
    join.close()
    return join.found()


class _Joining:
    """The groups and slots of both, as they stand in the work; slots and groups of the right one come behind."""

    def __init__(self, left: Description, right: Description, *rooms: Room) -> None:
        self._both, self._rooms = (left, right), (rooms[0], rooms[1])
        self._first_slot, self._first = len(left.slots), len(left.groups)
        self._slots = [*left.slots, *right.slots]
        self._groups = [*left.groups, *right.groups]
        self._open = [set(group.slots) for group in left.groups]
        self._open += [{self._first_slot + slot for slot in group.slots} for group in right.groups]
        self._last, self._loops = right.last, left.loops
        self._there, self._here = [True] * len(self._groups), [True] * len(self._slots)  # groups, slots that are left
        self._up: list[list[int]] = []
        self._back: list[list[int]] = []
        self._lists: list[int] = []
        self._handles: list[tuple[int, int]] = []
        self._kept = self._closed = 0
        s, g = len(self._slots), len(self._groups)
        self._compliances, self._noises = SIX * s, SIX * (s + g * g)
        self._counter = self._noises + ROW * g
        self._end = self._counter + ROW
        self._transfers: dict[tuple[int, int], int] = {}
        self._take()

    def _take(self) -> None:
        """Copy what the two values have that is not zero."""
        for side, (value, room) in enumerate(zip(self._both, self._rooms, strict=True)):
            copy, slots, groups = (COPY_LEFT, COPY_RIGHT)[side], side * self._first_slot, side * self._first
            for slot in range(len(value.slots)):
                self._do(copy, _BLOCK(room, slot), SIX * (slots + slot))
            for number, (slot, group) in enumerate(value.transfers):
                self._do(copy, _TRANSFER(room, number), self._transfer(slots + slot, groups + group))
            for group in range(len(value.groups)):
                for other in range(len(value.groups)):
                    if self._coupled(groups + group, groups + other):
                        to = self._pair(groups + group, groups + other)
                        self._do(copy, _COMPLIANCE(room, group, other), to)
            if self._loops:
                for group in range(len(value.groups)):
                    self._do(copy, _NOISE(room, group), self._noise(groups + group), ROW)
                self._do((COPY_LEFT, ADD_RIGHT)[side], _NOISE(room, room.open), self._counter, ROW)

    def _do(self, kind: int, source: int, to: int, count: int = SIX) -> None:
        """Move numbers, with those before if they are neighbours."""
        last = self._up[-1] if self._up else None
        if last and last[:3] == [kind, source - last[3] if kind != CLEAR else 0, to - last[3]]:
            last[3] += count
        else:
            self._up.append([kind, source, to, count])

    def _pair(self, group: int, other: int) -> int:
        return self._compliances + SIX * (group * len(self._groups) + other)

    def _noise(self, group: int) -> int:
        return self._noises + ROW * group

    def _transfer(self, slot: int, group: int) -> int:
        """Where E of a slot and a group is, or will be."""
        if (slot, group) not in self._transfers:
            self._transfers[slot, group] = self._end
            self._end += SIX
        return self._transfers[slot, group]

    def _place(self, group: int) -> int:
        """Where the loads of a group are on the way back."""
        return 6 * (len(self._slots) + group)

    def _coupled(self, group: int, other: int) -> bool:
        return bool(self._open[group] & self._open[other])

    def _couple(self, group: int, other: int) -> None:
        """Have two groups act on each other: by nothing so far, where they didn't."""
        if not self._coupled(group, other):
            self._do(CLEAR, 0, self._pair(group, other))
            self._do(CLEAR, 0, self._pair(other, group))

    def _listed(self, kind: int, numbers: list[int], kept: int) -> None:
        row = [kind, len(self._lists), 0, len(numbers), self._kept, self._compliances, len(self._groups)]
        self._lists += numbers
        self._up.append(row)
        self._back.append(row)
        self._kept += kept

    def hang(self) -> None:
        """Hang the components of the right value on open bodies of the left one."""
        bodies = {
            group.number: number for number, group in enumerate(self._groups[: self._first]) if group.sort == OPEN_BODY
        }
        right, room = self._both[1], self._rooms[1]
        transfers = {pair: number for number, pair in enumerate(right.transfers)}
        for slot, body in enumerate(right.slots):
            b = self._first_slot + slot
            if body not in bodies:
                continue
            j = bodies[body]
            (i,) = self._open[j]
            alive = [group for group in self._alive() if group != j]
            shared = [group for group in alive if i in self._open[group]] + [j]
            new = [group for group in alive if b in self._open[group] and i not in self._open[group]]
            groups = shared + new
            numbers = [self._transfer(i, j), SIX * i, _BLOCK(room, slot), self._place(j), 6 * i, 6 * b]
            numbers += [len(shared) - 1, len(shared), len(groups)]
            for pair in itertools.product(shared, new):
                self._couple(*pair)
            for group in groups:
                of_right = transfers.get((slot, group - self._first), -1)
                noisy = self._loops and self._groups[group].sort >= LOOP
                numbers += [self._place(group), group, -1 if of_right < 0 else _TRANSFER(room, of_right)]
                numbers += [self._transfer(i, group), self._noise(group) if noisy else -1]
                self._open[group] = (self._open[group] - {b}) | {i}
            self._listed(HANG, numbers, SIX * (1 + len(groups)))
            self._handles.append((len(shared), len(new)))
            self._here[b] = False
            self._there[j] = self._groups[j].ends > self._last

    def share(self) -> None:
        """Make one what both have: bodies outside, loops."""
        first = self._first_slot
        for b in range(first, len(self._slots)):
            a = next((a for a in range(b) if self._here[a] and self._slots[a] == self._slots[b]), b)
            if a == b or not self._here[b]:
                continue
            self._do(ADD_WITHIN, SIX * b, SIX * a)
            self._back.append([COPY_WITHIN, 6 * a, 6 * b, 6])
            self._here[b] = False
            moved = [group for group in range(self._first, len(self._groups)) if b in self._open[group]]
            for group in moved:
                self._open_to(group, a, self._transfer(b, group))
            for group in moved:
                self._open[group].remove(b)
        if not self._loops:
            return
        looped = [group for group, each in enumerate(self._groups) if each.sort >= LOOP]
        for group in looped:
            self._up.append([ROUND, self._pair(group, group), self._noise(group), 0])
        before = {self._groups[group].number: group for group in looped if group < self._first}
        for group in looped:
            if group >= self._first and self._groups[group].number in before:
                self._unite(before[self._groups[group].number], group)

    def _open_to(self, group: int, slot: int, transfer: int) -> None:
        """Open a group to a further slot, or more to one, by E that is somewhere in the work."""
        if slot in self._open[group]:
            self._do(ADD_WITHIN, transfer, self._transfer(slot, group))
            return
        for other in self._alive():
            if slot in self._open[other]:
                self._couple(group, other)
        self._do(COPY_WITHIN, transfer, self._transfer(slot, group))
        self._open[group].add(slot)

    def _alive(self) -> list[int]:
        return [group for group, there in enumerate(self._there) if there]

    def _unite(self, a: int, b: int) -> None:
        """Make the group of a loop's one end that of both."""
        for slot in sorted(self._open[b]):
            self._open_to(a, slot, self._transfer(slot, b))
        for other in self._alive():  # those with a slot of b: so has a by now
            if other not in (a, b) and self._coupled(b, other):
                self._do(ADD_WITHIN, self._pair(b, other), self._pair(a, other))
                self._do(ADD_WITHIN, self._pair(other, b), self._pair(other, a))
        for pair in ((b, b), (a, b), (b, a)):
            self._do(ADD_WITHIN, self._pair(*pair), self._pair(a, a))
        self._do(ADD_WITHIN, self._noise(b), self._noise(a), ROW)
        self._back.append([COPY_WITHIN, self._place(a), self._place(b), 6])
        one, other_end = self._groups[a], self._groups[b]
        self._groups[a] = one._replace(ends=0, sort=max(one.sort, other_end.sort))
        self._there[b] = False

    def close(self) -> None:
        """Close loops whose ends are in, on one slot: to the world when that is it."""
        for group in self._alive():
            each, slots = self._groups[group], sorted(self._open[group])
            if each.sort < LOOP or each.ends or len(slots) != 1 or (each.sort != LOOP and self._slots[slots[0]] >= 0):
                continue
            slot = slots[0]
            groups = [other for other in self._alive() if slot in self._open[other]]
            numbers = [SIX * slot, self._noise(group), self._counter, 6 * slot, groups.index(group), len(groups)]
            for other in groups:
                numbers += [self._place(other), other, self._transfer(slot, other)]
            self._listed(CLOSE_LOOP, numbers, COLUMNS * (CLOSED_COLUMN + ROW * (len(groups) - 1)))
            self._there[group] = False
            self._closed += 1

    def found(self) -> Join:
        """Give what was found."""
        slots = [slot for slot, here in enumerate(self._here) if here]
        groups, bodies = self._alive(), [self._slots[slot] for slot in slots]
        kept = [
            self._groups[group]._replace(slots=tuple(slots.index(slot) for slot in sorted(self._open[group])))
            for group in groups
        ]
        value = Description(self._last, bodies, kept, self._loops)
        room = value.room
        for number, slot in enumerate(slots):
            self._do(GIVE, SIX * slot, _BLOCK(room, number))
        for number, (slot, group) in enumerate(value.transfers):
            self._do(GIVE, self._transfer(slots[slot], groups[group]), _TRANSFER(room, number))
        for number, group in enumerate(groups):
            for place, other in enumerate(groups):
                if self._coupled(group, other):
                    self._do(GIVE, self._pair(group, other), _COMPLIANCE(room, number, place))
        if self._loops:
            for number, group in enumerate(groups):
                self._do(GIVE, self._noise(group), _NOISE(room, number), ROW)
            self._do(GIVE, self._counter, _NOISE(room, room.open), ROW)
        rows = max((1 + sum(pair) for pair in self._handles), default=0)
        numbers = 6 * (len(self._slots) + len(self._groups))
        scratch = max(SIX * (2 + rows), numbers)
        down = self._down(slots, groups, room)
        return Join(
            value, self._up, down, self._lists, self._end, self._kept, scratch, self._rooms, self._handles, self._closed
        )

    def _down(self, slots: list[int], groups: list[int], room: Room) -> list[list[int]]:
        """The way back: what is known from outside, then what was done, in reverse, then what each of the two gets."""
        places = [6 * slot for slot in slots], [self._place(group) for group in groups]
        rows = [[CLEAR, 0, 0, 6 * (len(self._slots) + len(self._groups))]]
        rows += [[GIVE, 6 * number, place, 6] for number, place in enumerate(places[0])]
        rows += [[GIVE, 6 * (room.inboard + number), place, 6] for number, place in enumerate(places[1])]
        rows += self._back[::-1]
        for side, (value, own) in enumerate(zip(self._both, self._rooms, strict=True)):
            give, slot, group = (GIVE_LEFT, GIVE_RIGHT)[side], side * self._first_slot, side * self._first
            rows.append([give, 6 * slot, 0, 6 * len(value.slots)])
            rows.append([give, self._place(group), 6 * own.inboard, 6 * len(value.groups)])
        return rows
