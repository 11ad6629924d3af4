"""Two values of intervals made one, up and down: what `values.joining` has found at set-up, done.

A component of the right one hangs on an open body j of the left one, A_b = y_j and x_j = x - f_b, with x from further
behind. With b its slot, i that of j,

    (1 + W_jj I_b) A_b = E_j^T A_i + sum_k (W_jk + W_jj E_bk) x_k + c_j - W_jj p_b
    A_b = X A_i + sum_k T_k x_k + r
    x_j <- x_j - f_b = x_j + G A_i + sum_k G_k x_k + g
    W_km += W_kj G_m + E_bk^T T_m    E_im += E_ij G_m    I_i -= E_ij G    and c, p with r, g alike

Loops of which both ends are in, and on one slot, are closed, y = 0, as in `values.fronts`: column by column, that which
stands out most from its noise first.
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import span
from mpimbs.spatial.rows import ROW, add_row, eight_rows, load_row, scale_row, transposed_rows, write_row
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
from mpimbs.values.fronts import COLUMNS, KEPT, ROUNDED, kept_rank, most_certain
from mpimbs.values.value import SIX

# Rows of a program: what is done; from where to where, how many numbers. Lists begin at `READ_AT`; `KEEP` is where is
# kept what the way back needs; blocks W of the work begin at `FIRST`, so many in a row.
KIND, READ_AT, WRITE_AT, COUNT, KEEP, FIRST, IN_A_ROW = range(7)
COPY_LEFT, COPY_RIGHT, ADD_RIGHT, COPY_WITHIN, ADD_WITHIN, CLEAR, GIVE, ROUND = range(8)
HANG, CLOSE_LOOP, GIVE_LEFT, GIVE_RIGHT = range(8, 12)
LISTED = HANG, CLOSE_LOOP
# The list of `HANG`: E_ij, [I | p] of i in the work, [I | p] of b in the right value; places of x_j, A_i, A_b; which of
# the groups is j, how many share its slot, how many there are; then of each group, of those that share the slot first,
# j the last of them: its place, its number in the work, E_b in the right value, E_i, noise; -1: none.
HANG_HEAD, OF_COMPONENT = 9, 5
# Of `CLOSE_LOOP`: [I | p] in the work, noise, the counter, place of A; which of the groups it is, how many there are;
# then of each group with that slot: its place, its number in the work, E.
CLOSE_HEAD, OF_CLOSED = 6, 3
CLOSED_COLUMN = KEPT + ROW  # what is kept of a column that is eliminated; of each further group `ROW` more


@kernel(inline=True)
def _at(row, group, other):
    """Where W of two groups begins in the work."""
    return row[FIRST] + SIX * (group * row[IN_A_ROW] + other)


@kernel(inline=True)
def _copy(source, at, target, to, count):
    for k in range(0, count, ROW):
        write_row(target, to + k, load_row(source, at + k))


@kernel(inline=True)
def _add(source, at, target, to, count):
    for k in range(0, count, ROW):
        write_row(target, to + k, add_row(load_row(target, to + k), load_row(source, at + k)))


@kernel(inline=True)
def _across(rows):
    """Transpose of a 6x6 matrix in rows, without what stands beside it."""
    across = transposed_rows(eight_rows(sums(rows, negatives(extras(rows)))))
    return (across[0], across[1], across[2], across[3], across[4], across[5])


@kernel
def _hang(row, component, work, right, response, scratch):
    """Hang a component on an open body; [X | r] and the T are kept."""
    e_ij, near, block = component[0], component[1], component[2]
    number, shared, count = component[6], component[7], component[8]
    j = component[HANG_HEAD + OF_COMPONENT * number + 1]
    w, inertia = _at(row, j, j), six_rows(right, block)
    product = products(work, w, inertia)
    write_six(scratch, 0, sums(product, six_rows(UNITS, 0)))
    r = extra_differences(six_rows(work, w), product)
    write_six(response, 0, sums(_across(six_rows(work, e_ij)), r))
    for k in range(count):
        group = span(component, HANG_HEAD + OF_COMPONENT * k, OF_COMPONENT)
        if k < shared:
            rows = six_rows(work, _at(row, j, group[1]))
            rows = sums(rows, negatives(extras(rows)))
            if group[2] >= 0:
                rows = sums(rows, products(work, w, six_rows(right, group[2])))
        else:
            rows = products(work, w, six_rows(right, group[2]))
        write_six(response, SIX * (1 + k), rows)
        if group[4] >= 0 and group[2] >= 0:  # E^T W_jj E is rounded, where a column sees little of what the body may do
            for i in range(COLUMNS):
                noise = 0.0
                for d in range(6):
                    noise += right[group[2] + d * ROW + i] ** 2 * work[w + d * ROW + d]
                work[group[4] + i] += ROUNDED * noise
    solve_with_exchanges(scratch, response, 1 + count)
    # [G | g] and the G behind each other
    rows = negatives(products(right, block, six_rows(response, 0)))
    write_six(scratch, 2 * SIX, sums(rows, negatives(extras(inertia))))
    for k in range(count):
        e_b = component[HANG_HEAD + OF_COMPONENT * k + 2]
        rows = negatives(products(right, block, six_rows(response, SIX * (1 + k))))
        write_six(scratch, SIX * (3 + k), sums(rows, six_rows(right, e_b)) if e_b >= 0 else rows)
    write_six(scratch, 0, six_rows(work, e_ij))
    rows = negatives(products(scratch, 0, six_rows(scratch, 2 * SIX)))
    write_six(work, near, symmetric(sums(six_rows(work, near), rows)))
    for k in range(count):
        to, rows = component[HANG_HEAD + OF_COMPONENT * k + 3], products(scratch, 0, six_rows(scratch, SIX * (3 + k)))
        write_six(work, to, sums(six_rows(work, to), rows) if k < shared else rows)
    for k in range(count):
        group = span(component, HANG_HEAD + OF_COMPONENT * k, OF_COMPONENT)
        if k < shared:
            write_six(scratch, SIX, six_rows(work, _at(row, group[1], j)))  # of j itself with c, which `products` skips
        for m in range(k, count):
            other = component[HANG_HEAD + OF_COMPONENT * m + 1]
            at = _at(row, group[1], other)
            if k < shared:
                rows = products(scratch, SIX, six_rows(scratch, SIX * (3 + m)))
                if group[2] >= 0:
                    rows = sums(rows, transposed_products(right, group[2], six_rows(response, SIX * (1 + m))))
            else:
                rows = transposed_products(right, group[2], six_rows(response, SIX * (1 + m)))
            rows = sums(rows, six_rows(work, at))
            if m == k:
                moved = extras(rows)
                if k < shared:
                    moved = sums(moved, extras(products(scratch, SIX, six_rows(scratch, 2 * SIX))))
                if group[2] >= 0:
                    moved = sums(moved, extras(transposed_products(right, group[2], six_rows(response, 0))))
                write_six(work, at, symmetric(sums(sums(rows, negatives(extras(rows))), moved)))
            else:
                write_six(work, at, rows)
                write_six(work, _at(row, other, group[1]), _across(rows))


@kernel
def _close(row, closed, work, kept):
    """Close a loop: redundant columns are zero."""
    near, noise, counter, own, count = closed[0], closed[1], closed[2], closed[4], closed[5]
    size = CLOSED_COLUMN + ROW * (count - 1)
    mine = closed[CLOSE_HEAD + OF_CLOSED * own + 1]
    e, w = closed[CLOSE_HEAD + OF_CLOSED * own + 2], _at(row, mine, mine)
    for step in range(COLUMNS):
        begin = step * size
        d = most_certain(work, w, ROW + 1, noise)
        kept[begin] = d
        if d < 0:
            break
        reciprocal = 1.0 / work[w + d * ROW + d]
        kept[begin + 1] = reciprocal
        for i in range(6):
            kept[begin + 2 + i] = work[e + i * ROW + d]
        c = work[w + d * ROW + EXTRA]
        kept[begin + 8] = c
        work[w + d * ROW + EXTRA] = 0.0
        for k in range(count):
            at = _at(row, mine, closed[CLOSE_HEAD + OF_CLOSED * k + 1]) + d * ROW
            write_row(kept, begin + KEPT + ROW * k, load_row(work, at))
            for i in range(ROW):
                work[at + i] = 0.0
        for i in range(6):
            f = reciprocal * kept[begin + 2 + i]
            for k in range(6):
                work[near + i * ROW + k] += f * kept[begin + 2 + k]
            work[near + i * ROW + EXTRA] += f * c
        for k in range(count):
            place = closed[CLOSE_HEAD + OF_CLOSED * k + 2]
            pivot = load_row(kept, begin + KEPT + ROW * k)
            for i in range(6):
                f = -reciprocal * kept[begin + 2 + i]
                write_row(work, place + i * ROW, add_row(load_row(work, place + i * ROW), scale_row(f, pivot)))
        for g in range(count):
            group = closed[CLOSE_HEAD + OF_CLOSED * g + 1]
            of_own = _at(row, group, mine)
            for i in range(COLUMNS):
                f = -reciprocal * work[of_own + i * ROW + d]
                if f != 0.0:
                    for k in range(count):
                        at = _at(row, group, closed[CLOSE_HEAD + OF_CLOSED * k + 1]) + i * ROW
                        pivot = load_row(kept, begin + KEPT + ROW * k)
                        write_row(work, at, add_row(load_row(work, at), scale_row(f, pivot)))
                    work[_at(row, group, group) + i * ROW + EXTRA] += f * c
                    work[of_own + i * ROW + d] = 0.0
        for i in range(6):
            work[e + i * ROW + d] = 0.0
        kept[begin + KEPT + ROW * own + d] = 0.0
        work[counter] += 1.0


@kernel
def join_values(rows, first, last, lists, left, right, work, out, kept, scratch):
    """Join the values of two intervals in sequence.

    Parameters
    ----------
    rows : array [any, 8]
        Of programs; `first` to `last` - 1 are those of this join.
    lists : array
    left, right, out : array
        Values; `out` is neither of the others.
    work, kept, scratch : array
        As many numbers as `values.joining` says; the second is written, for `spread`.
    """
    for number in range(first, last):
        row = rows[number]
        kind, at, to, count = row[KIND], row[READ_AT], row[WRITE_AT], row[COUNT]
        if kind == COPY_LEFT:
            _copy(left, at, work, to, count)
        elif kind == COPY_RIGHT:
            _copy(right, at, work, to, count)
        elif kind == GIVE:
            _copy(work, at, out, to, count)
        elif kind == HANG:
            component = span(lists, at, count)
            _hang(row, component, work, right, span(kept, row[KEEP], SIX * (1 + component[8])), scratch)
        elif kind == CLOSE_LOOP:
            _close(row, span(lists, at, count), work, span(kept, row[KEEP], kept.size - row[KEEP]))
        elif kind == ADD_RIGHT:
            _add(right, at, work, to, count)
        elif kind == COPY_WITHIN:
            _copy(work, at, work, to, count)
        elif kind == ADD_WITHIN:
            _add(work, at, work, to, count)
        elif kind == ROUND:
            for i in range(COLUMNS):
                work[to + i] = max(work[to + i], ROUNDED * work[at + i * ROW + i])
        else:
            for k in range(count):
                work[to + k] = 0.0


@kernel(inline=True)
def _add_times(rows, base, x, at, y, to, sign):
    """y <- y + sign M x of a 6x6 matrix in a flat array."""
    for i in range(6):
        s = 0.0
        for k in range(6):
            s += rows[base + i * ROW + k] * x[at + k]
        y[to + i] += sign * s


@kernel
def _unhang(component, right, response, x):
    """Find the acceleration of what hangs on an open body, and the load on that."""
    x_j, a_i, a_b, block, count = component[3], component[4], component[5], component[2], component[8]
    for i in range(6):
        x[a_b + i] = response[i * ROW + EXTRA]
    _add_times(response, 0, x, a_i, x, a_b, 1.0)
    for k in range(count):
        _add_times(response, SIX * (1 + k), x, component[HANG_HEAD + OF_COMPONENT * k], x, a_b, 1.0)
    for k in range(count):
        e_b = component[HANG_HEAD + OF_COMPONENT * k + 2]
        if e_b >= 0:
            _add_times(right, e_b, x, component[HANG_HEAD + OF_COMPONENT * k], x, x_j, 1.0)
    for i in range(6):
        x[x_j + i] -= right[block + i * ROW + EXTRA]
    _add_times(right, block, x, a_b, x, x_j, -1.0)


@kernel
def _unclose(closed, kept, x):
    """Find the loads of a loop."""
    a, own, count = closed[3], closed[4], closed[5]
    size = CLOSED_COLUMN + ROW * (count - 1)
    mine = closed[CLOSE_HEAD + OF_CLOSED * own]
    for i in range(COLUMNS):
        x[mine + i] = 0.0
    for step in range(kept_rank(kept, size) - 1, -1, -1):
        begin = step * size
        s = kept[begin + 8]
        for i in range(6):
            s += kept[begin + 2 + i] * x[a + i]
        for k in range(count):
            place = closed[CLOSE_HEAD + OF_CLOSED * k]
            for i in range(COLUMNS):
                s += kept[begin + KEPT + ROW * k + i] * x[place + i]
        x[mine + int(kept[begin])] = -s * kept[begin + 1]


@kernel
def spread_values(rows, first, last, lists, right, kept, outer, of_left, of_right, x):
    """Find accelerations of the slots and loads of the groups of two intervals that `join` joined.

    Parameters
    ----------
    rows, lists, right, kept
        As of `join`, after it; `first` to `last` - 1 are the rows of the way back.
    outer : array [(inboard + open) * 6]
        Of the slots and, behind those, of the groups for which the joined value has room (rad/s^2, m/s^2; N m, N).
    of_left, of_right : array
        Written: the same of each of the two.
    x : array
        As `scratch` of `join`; overwritten.
    """
    for number in range(first, last):
        row = rows[number]
        kind, at, to, count = row[KIND], row[READ_AT], row[WRITE_AT], row[COUNT]
        if kind == GIVE_LEFT:
            for k in range(count):
                of_left[to + k] = x[at + k]
        elif kind == GIVE_RIGHT:
            for k in range(count):
                of_right[to + k] = x[at + k]
        elif kind == GIVE:
            for k in range(count):
                x[to + k] = outer[at + k]
        elif kind == HANG:
            component = span(lists, at, count)
            _unhang(component, right, span(kept, row[KEEP], SIX * (1 + component[8])), x)
        elif kind == CLOSE_LOOP:
            _unclose(span(lists, at, count), span(kept, row[KEEP], kept.size - row[KEEP]), x)
        elif kind == COPY_WITHIN:
            for k in range(count):
                x[to + k] = x[at + k]
        else:
            for k in range(count):
                x[to + k] = 0.0
