"""Handle equations of an interval of bodies in depth-first order: several handles inboard and outboard.

Of the bodies a to b - 1 of a depth-first order, those with a child at b or later are *open*. They lie on one path, in
one component; what else there is of the interval is closed. Every component hangs on a body outside, its inboard body,
whose acceleration is A; x_j are the loads on the open bodies, a_j their accelerations [design, section 11]:

    f = I A - sum_j E_j x_j + p          a_j = E_j^T A + sum_k W_jk x_k + c_j

Components on the same inboard body are one: their [I | p] add. Two intervals in sequence are joined by hanging every
component of the right one on the open body of the left one that it belongs to. With b the component's,

    (1 + W_jj I_b) a_j = E_j^T A + sum_k W_jk x_k + c_j + W_jj (sum_n E_bn x_n - p_b)
    a_j = X A + sum_k Z_k x_k + sum_n Y_n x_n + r            x_j <- x_j - I_b a_j - p_b + sum_n E_bn x_n

A value is a flat array, with room for as many inboard bodies and open ones as it has, or more:

    [0] body after the last    [1] inboard bodies    [2] open bodies    [3] which inboard body these hang on
    numbers of the inboard bodies (-1 the world); of the open ones; of the bodies behind the last child of each of these
    [I | p] of each inboard body, 6 rows of 8; E_j of each open body; W_jk of each pair, with c_j beside W_jj
"""

from __future__ import annotations

from typing import NamedTuple

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import span
from mpimbs.spatial.rows import ROW, eight_rows, transposed_rows
from mpimbs.spatial.six import (
    EXTRA,
    UNITS,
    extra_differences,
    extras,
    negatives,
    products,
    six_rows,
    solve_with_exchanges,
    sums,
    symmetric,
    transposed_products,
    write_six,
)

SIX = 6 * ROW
LAST, INBOARD, OPEN, HANGS_ON = range(4)
_HEAD = 4


class Room(NamedTuple):
    """How many inboard and open bodies a value has room for."""

    inboard: int
    open: int

    def size(self) -> int:
        """Numbers of a value."""
        lists = _HEAD + self.inboard + 2 * self.open
        return -(-lists // ROW) * ROW + SIX * (self.inboard + self.open + self.open**2)


class Rooms(NamedTuple):
    """Those of a join."""

    left: Room
    right: Room
    both: Room  # while they are joined
    out: Room

    def scratch(self) -> int:
        """Numbers of room for a join, and for the way back."""
        return 2 * SIX + self.both.size()


@kernel(inline=True)
def inboard_at(room, number):
    """Where the number of an inboard body stands."""
    return _HEAD + number


@kernel(inline=True)
def open_at(room, number):
    """Where the number of an open body stands."""
    return _HEAD + room.inboard + number


@kernel(inline=True)
def end_at(room, number):
    """Where the body behind an open body's last child stands."""
    return _HEAD + room.inboard + room.open + number


@kernel(inline=True)
def _begin(room):
    lists = _HEAD + room.inboard + 2 * room.open
    return (lists + ROW - 1) // ROW * ROW


@kernel(inline=True)
def block_at(room, number):
    """Where [I | p] of an inboard body begins."""
    return _begin(room) + SIX * number


@kernel(inline=True)
def transfer_at(room, number):
    """Where E of an open body begins."""
    return _begin(room) + SIX * (room.inboard + number)


@kernel(inline=True)
def compliance_at(room, number, other):
    """Where W of two open bodies begins."""
    return _begin(room) + SIX * (room.inboard + room.open + number * room.open + other)


@kernel(inline=True)
def _find(value, first, count, number):
    """Which of `count` numbers from an index on is a number; -1: none."""
    for k in range(count):
        if value[first + k] == number:
            return k
    return -1


@kernel(inline=True)
def _copy_six(source, a, target, b):
    write_six(target, b, six_rows(source, a))


@kernel
def _hang(room, out, j, of_right, right, slot, open_count, response, scratch):
    """Hang a component on open body `j` of a value, and append its open bodies, `open_count` of them; see above.

    The response is written: [X | r], Z of the open bodies so far, Y of the new ones.
    """
    i = int(out[HANGS_ON])
    h = int(out[OPEN])
    block = block_at(of_right, slot)
    inertia = six_rows(right, block)
    w = compliance_at(room, j, j)
    # (1 + W I) [X | r], Z, Y = [E^T | c - W p], W_jk, W E_b
    product = products(out, w, inertia)
    write_six(scratch, 0, sums(product, six_rows(UNITS, 0)))
    r = extra_differences(six_rows(out, w), product)
    e = transposed_rows(eight_rows(six_rows(out, transfer_at(room, j))))
    write_six(response, 0, sums((e[0], e[1], e[2], e[3], e[4], e[5]), r))
    for k in range(h):
        rows = six_rows(out, compliance_at(room, j, k))
        write_six(response, SIX * (1 + k), sums(rows, negatives(extras(rows))))
    for n in range(open_count):
        rows = products(out, w, six_rows(right, transfer_at(of_right, n)))
        write_six(response, SIX * (1 + h + n), rows)
    solve_with_exchanges(scratch, response, 1 + h + open_count)
    # [I | p] + E_j (I_b [X | r] + [0 | p_b])
    load = sums(products(right, block, six_rows(response, 0)), extras(inertia))
    write_six(scratch, 0, load)
    near = symmetric(sums(six_rows(out, block_at(room, i)), products(out, transfer_at(room, j), load)))
    write_six(out, block_at(room, i), near)
    # W_mn = Z_m^T E_bn,  E_n = X^T E_bn,  W_nn' + E_bn^T Y_n',  c_n + E_bn^T r
    for n in range(open_count):
        there = six_rows(right, transfer_at(of_right, n))
        write_six(out, transfer_at(room, h + n), transposed_products(response, 0, there))
        for m in range(h):
            rows = transposed_products(response, SIX * (1 + m), there)
            write_six(out, compliance_at(room, m, h + n), rows)
            across = transposed_rows(eight_rows(rows))
            across = (across[0], across[1], across[2], across[3], across[4], across[5])
            write_six(out, compliance_at(room, h + n, m), across)
        for k in range(open_count):
            rows = transposed_products(right, transfer_at(of_right, n), six_rows(response, SIX * (1 + h + k)))
            if k == n:
                moved = transposed_products(right, transfer_at(of_right, n), six_rows(response, 0))
                rows = symmetric(sums(rows, extras(moved)))
            write_six(
                out, compliance_at(room, h + n, h + k), sums(rows, six_rows(right, compliance_at(of_right, n, k)))
            )
    # W_mk - W_mj I_b Z_k,  c_m - W_mj (I_b r + p_b),  E_m - E_j I_b Z_m: with W_mj as it was, so for j itself last
    for number in range(h):
        m = (j + 1 + number) % h
        write_six(scratch, SIX, six_rows(out, compliance_at(room, m, j)))
        for k in range(h):
            at = compliance_at(room, m, k)
            pulled = products(right, block, six_rows(response, SIX * (1 + k)))
            rows = sums(six_rows(out, at), negatives(products(scratch, SIX, sums(pulled, negatives(extras(pulled))))))
            if m == k:
                moved = products(scratch, SIX, six_rows(scratch, 0))
                rows = symmetric(sums(rows, negatives(extras(moved))))
            write_six(out, at, rows)
    write_six(scratch, SIX, six_rows(out, transfer_at(room, j)))
    for m in range(h):
        pulled = products(right, block, six_rows(response, SIX * (1 + m)))
        rows = products(scratch, SIX, sums(pulled, negatives(extras(pulled))))
        at = transfer_at(room, m)
        write_six(out, at, sums(six_rows(out, at), negatives(rows)))
    for n in range(open_count):
        out[open_at(room, h + n)] = right[open_at(of_right, n)]
        out[end_at(room, h + n)] = right[end_at(of_right, n)]
    out[OPEN] = h + open_count


@kernel
def _copy(room, value, first, last, to_room, out):
    """Copy a value to where there is other room; of the first open bodies, `first` of them, those that have a child at
    `last` or later, and all others."""
    inboard, h = int(value[INBOARD]), int(value[OPEN])
    out[LAST], out[INBOARD], out[HANGS_ON] = value[LAST], value[INBOARD], value[HANGS_ON]
    for k in range(inboard):
        out[inboard_at(to_room, k)] = value[inboard_at(room, k)]
        _copy_six(value, block_at(room, k), out, block_at(to_room, k))
    to = 0
    for k in range(h):
        if k >= first or value[end_at(room, k)] > last:
            out[open_at(to_room, to)] = value[open_at(room, k)]
            out[end_at(to_room, to)] = value[end_at(room, k)]
            _copy_six(value, transfer_at(room, k), out, transfer_at(to_room, to))
            across = 0
            for m in range(h):
                if m >= first or value[end_at(room, m)] > last:
                    _copy_six(value, compliance_at(room, k, m), out, compliance_at(to_room, to, across))
                    across += 1
            to += 1
    out[OPEN] = to


@kernel(inline=True)
def _inboard_slot(room, out, number):
    """Which inboard body of a value has a number; it is appended, where it is new."""
    k = int(out[INBOARD])
    slot = _find(out, inboard_at(room, 0), k, number)
    if slot < 0:
        slot = k
        out[inboard_at(room, k)] = number
        out[INBOARD] = k + 1
        at = block_at(room, k)
        for i in range(SIX):
            out[at + i] = 0.0
    return slot


@kernel
def join_columns(rooms, left, right, out, responses, scratch):
    """Join the values of two intervals in sequence: `out` is that of both.

    Parameters
    ----------
    rooms : Rooms
        As `join_sizes` gives them.
    left, right, out : array [size of its room]
        `out` is neither of the others.
    responses : array
        Written, for `spread_columns`.
    scratch : array [rooms.scratch()]
    """
    both = span(scratch, 2 * SIX, scratch.size - 2 * SIX)
    _copy(rooms.left, left, 0, 0, rooms.both, both)
    hung = 0
    open_left, open_right = int(left[OPEN]), int(right[OPEN])
    taken = False
    at = 2
    for slot in range(int(right[INBOARD])):
        number = right[inboard_at(rooms.right, slot)]
        opened = open_right if slot == int(right[HANGS_ON]) else 0
        j = _find(both, open_at(rooms.both, 0), open_left, number)
        if j < 0:
            here = _inboard_slot(rooms.both, both, number)
            block = block_at(rooms.both, here)
            write_six(both, block, sums(six_rows(both, block), six_rows(right, block_at(rooms.right, slot))))
            continue
        h = int(both[OPEN])
        responses[at] = j
        responses[at + 1] = slot
        size = SIX * (1 + h + opened)
        response = span(responses, at + 2, size)
        _hang(rooms.both, both, j, rooms.right, right, slot, opened, response, scratch)
        at += 2 + size
        hung += 1
        taken = taken or opened > 0
    responses[0] = hung
    responses[1] = int(both[OPEN])  # with those that are forgotten now
    both[LAST] = right[LAST]
    _copy(rooms.both, both, open_left, right[LAST], rooms.out, out)
    if open_right > 0 and not taken:  # they hang on none of the left
        out[OPEN] = right[OPEN]
        number = right[inboard_at(rooms.right, int(right[HANGS_ON]))]
        out[HANGS_ON] = _find(out, inboard_at(rooms.out, 0), int(out[INBOARD]), number)
        for n in range(open_right):
            out[open_at(rooms.out, n)] = right[open_at(rooms.right, n)]
            out[end_at(rooms.out, n)] = right[end_at(rooms.right, n)]
            _copy_six(right, transfer_at(rooms.right, n), out, transfer_at(rooms.out, n))
            for k in range(open_right):
                _copy_six(right, compliance_at(rooms.right, n, k), out, compliance_at(rooms.out, n, k))


@kernel(inline=True)
def _add_times(rows, base, x, at, y, to):
    """y <- y + M x of a 6x6 matrix in a flat array."""
    for i in range(6):
        s = y[to + i]
        for k in range(6):
            s += rows[base + i * ROW + k] * x[at + k]
        y[to + i] = s


@kernel(inline=True)
def _assign_six(to, at, values, begin):
    for i in range(6):
        to[at + i] = values[begin + i]


@kernel
def spread_columns(rooms, left, right, out, responses, outer, of_left, of_right, work):
    """Find accelerations of the inboard bodies and loads on the open ones of two intervals that `join_columns` joined.

    Parameters
    ----------
    rooms, left, right, out, responses
        As of `join_columns`, after it.
    outer : array [(inboard + open) * 6]
        Of the inboard and, behind those, of the open bodies for which `out` has room (rad/s^2, m/s^2; N m, N).
    of_left, of_right : array
        Written: the same of each of the two.
    work : array [rooms.scratch()]
        Overwritten.
    """
    loads, inboard = 6 * rooms.out.inboard, rooms.right.inboard
    open_left, open_right = int(left[OPEN]), int(right[OPEN])
    hung, all_open = int(responses[0]), int(responses[1])
    # The loads of all open bodies of the join: none on those that it has forgotten.
    for i in range(6 * all_open):
        work[i] = 0.0
    for k in range(int(out[OPEN])):
        number = out[open_at(rooms.out, k)]
        place = _find(left, open_at(rooms.left, 0), open_left, number)
        if place < 0:
            n = _find(right, open_at(rooms.right, 0), open_right, number)
            place = open_left + n
            _assign_six(of_right, 6 * (inboard + n), outer, loads + 6 * k)
        if place < all_open:
            _assign_six(work, 6 * place, outer, loads + 6 * k)
    for n in range(open_right):
        if _find(out, open_at(rooms.out, 0), int(out[OPEN]), right[open_at(rooms.right, n)]) < 0:
            for i in range(6):
                of_right[6 * (inboard + n) + i] = 0.0
    for k in range(int(left[INBOARD])):
        _assign_six(of_left, 6 * k, outer, 6 * k)
    for slot in range(int(right[INBOARD])):
        k = _find(out, inboard_at(rooms.out, 0), int(out[INBOARD]), right[inboard_at(rooms.right, slot)])
        if k >= 0:
            _assign_six(of_right, 6 * slot, outer, 6 * k)
    on = int(left[HANGS_ON])
    end = _hang_begin(responses, right, hung, open_left)
    h = all_open
    for number in range(hung - 1, -1, -1):
        begin = _hang_begin(responses, right, number, open_left)
        j, slot = int(responses[begin]), int(responses[begin + 1])
        opened = open_right if slot == int(right[HANGS_ON]) else 0
        h -= opened
        response = span(responses, begin + 2, end - begin - 2)
        end = begin
        acceleration = span(of_right, 6 * slot, 6)
        # a = X A + r + sum_k Z_k x_k + sum_n Y_n x_n
        for i in range(6):
            acceleration[i] = response[i * ROW + EXTRA]
        _add_times(response, 0, outer, 6 * on, acceleration, 0)
        for k in range(h + opened):
            _add_times(response, SIX * (1 + k), work, 6 * k, acceleration, 0)
        # x_j <- x_j - (I_b a + p_b - sum_n E_bn x_n)
        block = block_at(rooms.right, slot)
        for i in range(6):
            s = right[block + i * ROW + EXTRA]
            for k in range(6):
                s += right[block + i * ROW + k] * acceleration[k]
            for n in range(opened):
                for k in range(6):
                    s -= right[transfer_at(rooms.right, n) + i * ROW + k] * of_right[6 * (inboard + n) + k]
            work[6 * j + i] -= s
    for k in range(open_left):
        _assign_six(of_left, 6 * (rooms.left.inboard + k), work, 6 * k)


@kernel(inline=True)
def _hang_begin(responses, right, number, open_left):
    """Where what was kept of a hanging begins."""
    at = 2
    h = open_left
    for _ in range(number):
        opened = int(right[OPEN]) if int(responses[at + 1]) == int(right[HANGS_ON]) else 0
        at += 2 + SIX * (1 + h + opened)
        h += opened
    return at
