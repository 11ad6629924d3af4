"""Two values of intervals with loops (`spatial.mixed`) made one: what they have in common is found."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpimbs.spatial.columns import Room, Rooms
from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.fronts import COLUMNS, ROUNDED
from mpimbs.spatial.memory import span
from mpimbs.spatial.mixed import (
    AFTER,
    C_COLUMN,
    ENDS,
    GROUPS,
    LOOP,
    NOISE_COLUMN,
    OPEN_BODY,
    SLOTS,
    SLOTS_OF,
    SORT,
    WHICH,
    MixedRoom,
    OpenGroup,
    describe,
    described,
    group_at,
    row_at,
    slot_at,
)
from mpimbs.spatial.rows import ROW, add_row, load_row, scale_row, write_row

Description = tuple[int, list[int], list[OpenGroup]]


LISTS = 8  # numbers of lists for each block, while two are joined
_BITS = 52  # of a double: slots that two values have together, at the most


class JoinedMixed(NamedTuple):
    """What a join of two intervals needs, and makes.

    Attributes
    ----------
    value : Description
        Of both.
    responses, scratch : int
        Numbers that are kept for the way back, and of room for the join.
    """

    value: Description
    responses: int
    scratch: int


def room_of(value: Description) -> MixedRoom:
    """The room that a value needs."""
    return MixedRoom(len(value[1]), len(value[2]))


def joined_mixed(left: Description, right: Description) -> JoinedMixed:
    """Say what a join needs, and what the value of two intervals in sequence is like: it is joined once, of zeros."""
    slots, groups = len(left[1]) + len(right[1]), len(left[2]) + len(right[2])
    assert slots <= _BITS, f"{slots} bodies outside of two intervals"
    blocks = slots + groups + len(right[1])
    found = 2 * COLUMNS * len(right[1]) + COLUMNS * groups
    responses, scratch = ROW + LISTS * blocks + found * ROW * (blocks + 2), ROW * (ROW * blocks + 1) * (blocks + 1)
    rooms = [room_of(left), room_of(right), MixedRoom(slots, groups)]
    values = [np.zeros(room.size()) for room in rooms]
    for room, value, description in zip(rooms, values, (left, right), strict=False):
        describe(room, value, *description)
    join_mixed(Rooms(*(Room(*room) for room in (*rooms, rooms[2]))), *values, np.zeros(responses), np.zeros(scratch))
    return JoinedMixed(described(rooms[2], values[2]), responses, scratch)


@kernel(inline=True)
def _lists_at(blocks, responses):
    """Where the lists of a join begin, behind what it keeps of unknowns."""
    return responses.size - LISTS * blocks


@kernel(inline=True)
def _block_of(slot, slots_left, first_right):
    """The block of a slot, of which the left ones come first."""
    return slot if slot < slots_left else first_right + slot - slots_left


@kernel
def _copy_in(room, value, work, length, first):
    """Copy the blocks of a value to where they stand in a join, from block `first` on."""
    slots, groups = int(value[SLOTS]), int(value[GROUPS])
    behind = ROW * (room.inboard + room.open)
    for a in range(slots + groups):
        source = a if a < slots else room.inboard + a - slots
        for i in range(COLUMNS):
            at, to = row_at(room, source, i), (ROW * (first + a) + i) * length
            for b in range(slots + groups):
                column = b if b < slots else room.inboard + b - slots
                write_row(work, to + ROW * (first + b), load_row(value, at + ROW * column))
            write_row(work, to + length - ROW, load_row(value, at + behind))


@kernel
def _add_row_to(work, length, a, b, f):
    """Row a plus f times row b."""
    for k in range(0, length, ROW):
        row = scale_row(f, load_row(work, b * length + k))
        write_row(work, a * length + k, add_row(load_row(work, a * length + k), row))


@kernel
def _take_out(work, length, row, column, kept, own):
    """Find an unknown by the equation of a row, in all others; keep how."""
    f = -1.0 / work[row * length + column]
    base = ROW + own * (length + ROW)
    kept[base] = column
    for k in range(0, length, ROW):
        write_row(kept, base + ROW + k, scale_row(f, load_row(work, row * length + k)))
    kept[base + ROW + column] = 0.0
    for r in range(work.size // length):
        g = work[r * length + column]
        if r != row and g != 0.0:
            noise = work[r * length + length - ROW + NOISE_COLUMN]
            for k in range(0, length, ROW):
                at = r * length + k
                write_row(work, at, add_row(load_row(work, at), scale_row(g, load_row(kept, base + ROW + k))))
            work[r * length + column] = 0.0
            work[r * length + length - ROW + NOISE_COLUMN] = noise
    for k in range(length):
        work[row * length + k] = 0.0


@kernel
def _hang(work, length, j, b, behind, kept, count):
    """Hang what has block b on the open body of block j: 12 unknowns are found. `behind`: block of what acts on the
    body from further behind; -1: nothing."""
    for r in range(work.size // length):  # E^T W_jj E is rounded, where a column sees little of what the body may do
        noise = 0.0
        for i in range(COLUMNS):
            noise += work[r * length + ROW * b + i] ** 2 * work[(ROW * j + i) * length + ROW * j + i]
        work[r * length + length - ROW + NOISE_COLUMN] += ROUNDED * noise
    for i in range(COLUMNS):
        of_j, of_b = ROW * j + i, ROW * b + i
        work[of_j * length + of_b] -= 1.0
        work[of_b * length + of_j] += 1.0
        if behind >= 0:
            work[of_b * length + ROW * behind + i] -= 1.0
            work[(ROW * behind + i) * length + of_b] += 1.0
    for i in range(COLUMNS):  # x_j = x - f_b
        _take_out(work, length, ROW * b + i, ROW * j + i, kept, count + i)
    for i in range(COLUMNS):  # (1 + W_jj I_b) A_b = ..., rows in any order
        best, largest = -1, -1.0
        for r in range(COLUMNS):
            size = abs(work[(ROW * j + r) * length + ROW * b + i])
            if size > largest:
                best, largest = r, size
        _take_out(work, length, ROW * j + best, ROW * b + i, kept, count + COLUMNS + i)
    return count + 2 * COLUMNS


@kernel
def _merge(work, length, a, b):
    """Make what two blocks have one: b is nothing then."""
    for i in range(COLUMNS):
        _add_row_to(work, length, ROW * a + i, ROW * b + i, 1.0)
        for k in range(length):
            work[(ROW * b + i) * length + k] = 0.0
    for r in range(work.size // length):
        for i in range(COLUMNS):
            work[r * length + ROW * a + i] += work[r * length + ROW * b + i]
            work[r * length + ROW * b + i] = 0.0


@kernel
def _close(work, length, block, kept, count):
    """Find the loads of a loop, y = 0; redundant ones are zero, as in `spatial.fronts`."""
    behind = length - ROW + NOISE_COLUMN
    for _ in range(COLUMNS):
        best, of, d = 1.0, 1.0, -1
        for row in range(ROW * block, ROW * block + COLUMNS):
            w, noise = work[row * length + row], work[row * length + behind]
            if w * of > best * noise:
                best, of, d = w, noise, row
        if d < 0:
            break
        _take_out(work, length, d, d, kept, count)
        count += 1
    for i in range(COLUMNS):
        for r in range(work.size // length):
            work[r * length + ROW * block + i] = 0.0
        for k in range(length):
            work[(ROW * block + i) * length + k] = 0.0
    return count


@kernel
def join_mixed(rooms, left, right, out, responses, scratch):
    """Join the values of two intervals in sequence: `out` is that of both.

    Parameters
    ----------
    rooms : Rooms
        Of both while they are joined there is none.
    left, right, out : array
        `out` is neither of the others.
    responses, scratch : array
        As many numbers as `joined_mixed` says; the first is written, for `spread_mixed`.
    """
    slots_left, groups_left = int(left[SLOTS]), int(left[GROUPS])
    slots_right, groups_right = int(right[SLOTS]), int(right[GROUPS])
    first_right = slots_left + groups_left
    first_behind = first_right + slots_right + groups_right
    blocks = first_behind + slots_right
    length = ROW * (blocks + 1)
    work = span(scratch, 0, ROW * blocks * length)
    for i in range(work.size):
        work[i] = 0.0
    _copy_in(rooms.left, left, work, length, 0)
    _copy_in(rooms.right, right, work, length, first_right)
    # Of each block while two are joined: which slots it is open to (bits, of the left ones first), into which block it
    # went (-1: nowhere), number, ends, sort.
    lists = span(responses, _lists_at(blocks, responses), LISTS * blocks)
    mask, into, number = span(lists, 0, blocks), span(lists, blocks, blocks), span(lists, 2 * blocks, blocks)
    ends, sort = span(lists, 3 * blocks, blocks), span(lists, 4 * blocks, blocks)
    for a in range(blocks):
        mask[a], into[a], number[a], ends[a], sort[a] = 0.0, -1.0, -2.0, 0.0, -1.0
    for k in range(slots_left):
        number[k] = left[slot_at(rooms.left, k)]
    for k in range(slots_right):
        number[first_right + k] = right[slot_at(rooms.right, k)]
    for k in range(groups_left):
        a, at = slots_left + k, group_at(rooms.left, k)
        number[a], ends[a], mask[a], sort[a] = left[at + WHICH], left[at + ENDS], left[at + SLOTS_OF], left[at + SORT]
    for k in range(groups_right):
        a, at = first_right + slots_right + k, group_at(rooms.right, k)
        number[a], ends[a], sort[a] = right[at + WHICH], right[at + ENDS], right[at + SORT]
        mask[a] = float(int(right[at + SLOTS_OF]) << slots_left)
    count = 0
    last = right[AFTER]
    for k in range(slots_right):
        b = first_right + k
        bit = 1 << (slots_left + k)
        to = 0
        for a in range(slots_left):
            if number[a] == number[b]:
                _merge(work, length, a, b)
                into[b] = a
                to = 1 << a
        for j in range(slots_left, first_right):
            if to == 0 and sort[j] == OPEN_BODY and number[j] == number[b]:
                behind = -1
                if ends[j] > last:
                    behind = first_behind + k
                    number[behind], ends[behind], sort[behind], mask[behind] = number[j], ends[j], OPEN_BODY, mask[j]
                count = _hang(work, length, j, b, behind, responses, count)
                number[j] = number[b] = -2.0
                to = int(mask[j])
        if to == 0:
            continue
        for a in range(first_right + slots_right, first_behind):
            if int(mask[a]) & bit:
                mask[a] = float((int(mask[a]) & ~bit) | to)
        number[b] = -2.0
    for r in range(ROW * blocks):
        at = r * length + length - ROW + NOISE_COLUMN
        work[at] = max(work[at], ROUNDED * work[r * length + r]) if sort[r // ROW] >= LOOP else 0.0
    for a in range(first_right + slots_right, first_behind):
        for j in range(slots_left, first_right):
            if sort[a] >= LOOP and sort[j] >= LOOP and number[a] == number[j]:
                _merge(work, length, j, a)
                sort[j] = max(sort[j], sort[a])
                mask[j] = float(int(mask[j]) | int(mask[a]))
                ends[j] = 0.0
                into[a] = j
                number[a] = -2.0
    grounded = 0  # which slots are the world
    for k in range(slots_left + slots_right):
        if number[_block_of(k, slots_left, first_right)] == -1.0:
            grounded |= 1 << k
    for a in range(blocks):
        if number[a] == -2.0 or sort[a] < LOOP or ends[a] != 0.0:
            continue
        bits = int(mask[a])
        if bits & (bits - 1) == 0 and (sort[a] == LOOP or bits & grounded != 0):
            count = _close(work, length, a, responses, count)
            number[a] = -2.0
    responses[0], responses[1], responses[2] = count, blocks, first_right
    _copy_out(rooms.out, work, length, number, mask, ends, sort, into, out, last, slots_left, first_right)


@kernel
def _copy_out(room, work, length, number, mask, ends, sort, into, out, last, slots_left, first_right):
    """Write what is left of the blocks of a join, and where each went."""
    for i in range(out.size):
        out[i] = 0.0
    blocks = number.size
    slots, groups = 0, 0
    for a in range(blocks):
        if number[a] == -2.0:
            continue
        if sort[a] < 0:
            into[a] = -2.0 - slots
            out[slot_at(room, slots)] = number[a]
            slots += 1
    for a in range(blocks):
        if number[a] == -2.0 or sort[a] < 0:
            continue
        into[a] = -2.0 - (room.inboard + groups)
        at = group_at(room, groups)
        out[at + WHICH], out[at + ENDS], out[at + SORT] = number[a], ends[a], sort[a]
        bits = 0
        for k in range(_BITS):
            if int(mask[a]) & (1 << k):
                b = _block_of(k, slots_left, first_right)
                if into[b] <= -2.0:
                    bits |= 1 << int(-2.0 - into[b])
        out[at + SLOTS_OF] = bits
        groups += 1
    out[AFTER], out[SLOTS], out[GROUPS] = last, slots, groups
    behind = ROW * (room.inboard + room.open)
    for a in range(blocks):
        if into[a] > -2.0:
            continue
        to = int(-2.0 - into[a])
        for i in range(COLUMNS):
            at, source = row_at(room, to, i), (ROW * a + i) * length
            for b in range(blocks):
                if into[b] <= -2.0:
                    write_row(out, at + ROW * int(-2.0 - into[b]), load_row(work, source + ROW * b))
            write_row(out, at + behind, load_row(work, source + length - ROW))


@kernel
def _follow(into, x):
    """Give blocks that were made one with others what these have."""
    for a in range(into.size):
        if into[a] >= 0.0:
            for i in range(COLUMNS):
                x[ROW * a + i] = x[ROW * int(into[a]) + i]


@kernel
def spread_mixed(rooms, left, right, out, responses, outer, of_left, of_right, work):
    """Find accelerations of the slots and loads of the groups of two intervals that `join_mixed` joined.

    Parameters
    ----------
    rooms, left, right, out, responses
        As of `join_mixed`, after it.
    outer : array [(inboard + open) * 6]
        Of the slots and, behind those, of the groups for which `out` has room (rad/s^2, m/s^2; N m, N).
    of_left, of_right : array
        Written: the same of each of the two.
    work : array
        As `scratch` of `join_mixed`; overwritten.
    """
    count, blocks, first_right = int(responses[0]), int(responses[1]), int(responses[2])
    length = ROW * (blocks + 1)
    into = span(responses, _lists_at(blocks, responses) + blocks, blocks)
    x = span(work, 0, length)
    for i in range(length):
        x[i] = 0.0
    x[length - ROW + C_COLUMN] = 1.0
    for a in range(blocks):
        if into[a] <= -2.0:
            to = int(-2.0 - into[a])
            for i in range(COLUMNS):
                x[ROW * a + i] = outer[6 * to + i]
    _follow(into, x)
    for own in range(count - 1, -1, -1):
        base = ROW + own * (length + ROW)
        s = 0.0
        for k in range(length):
            s += responses[base + ROW + k] * x[k]
        d = int(responses[base])
        x[d] = s
        for a in range(blocks):  # what was found earlier saw them apart
            if into[a] == d // ROW:
                x[ROW * a + d % ROW] = s
    slots_left, slots_right = int(left[SLOTS]), int(right[SLOTS])
    for a in range(first_right):
        to = a if a < slots_left else rooms.left.inboard + a - slots_left
        for i in range(COLUMNS):
            of_left[6 * to + i] = x[ROW * a + i]
    for a in range(slots_right + int(right[GROUPS])):
        to = a if a < slots_right else rooms.right.inboard + a - slots_right
        for i in range(COLUMNS):
            of_right[6 * to + i] = x[ROW * (first_right + a) + i]
