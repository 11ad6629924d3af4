"""The fronts of lanes: as `values.fronts`, side by side, of which all is done to all lanes in one order.

Arrays have the same places, of interleaved numbers; of a group the first `used` columns are, and of W what is on and
above the diagonal. A group's columns are eliminated where they are kept, and taken from the others all at once. What
comes first is the column that stands out most from its noise in all lanes together; a lane in which it doesn't has the
reciprocal 0 and is left as it is.
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import load, over_lanes, store, where_less, width
from mpimbs.kernels.tuples import load6
from mpimbs.spatial.rows import ROW
from mpimbs.spatial.vectors import dot6
from mpimbs.values.fronts import C_ROW, KEPT, NOISE_ROW, ROUNDED, UNSEEN, W_ROWS

OF_A_HINGE = 5  # columns, the commonest number
_INVERSE_NOISE = 2 + NOISE_ROW  # of what is kept of a column, behind E and c


@kernel(inline=True)
def _above(length, r, k):
    """Where W of two columns is."""
    return (W_ROWS + min(r, k)) * length + max(r, k)


@kernel(inline=True)
def _add(zero, array, item, x):
    at = item * width(zero)
    store(array, at, load(zero, array, at) + x)


@kernel
def clear_front_lanes(zero, front, length, used):
    """Make a front one of no columns."""
    n = width(zero)
    for g in range(0, length, ROW):
        for r in range(W_ROWS):
            for k in range(g, g + used + used % 2):  # as `spatial.rows` has parts of rows
                store(front, (r * length + k) * n, zero)
        for h in range(0, g + ROW, ROW):
            for r in range(h, h + used):
                for k in range(r if h == g else g, g + used):
                    store(front, ((W_ROWS + r) * length + k) * n, zero)


@kernel
def add_end_lanes(zero, front, length, group, columns, c, used):
    """Add what acts on the body itself: columns [6, 8] of a group, and c."""
    n = width(zero)
    for k in range(used):
        for i in range(6):
            _add(zero, front, i * length + ROW * group + k, load(zero, columns, (i * ROW + k) * n))
        _add(zero, front, C_ROW * length + ROW * group + k, load(zero, c, k * n))


@kernel
def fold_lanes(zero, front, length, groups, other, other_length, grounded, root, used):
    """Add a front that was moved to the same body."""
    n = width(zero)
    for number in range(0, groups.size, 2):
        at, to = ROW * groups[number], ROW * groups[number + 1]
        for k in range(used):
            c = load(zero, other, (C_ROW * other_length + at + k) * n)
            for i in range(6):
                e = load(zero, other, (i * other_length + at + k) * n)
                if grounded:
                    c = c + root[i] * e
                else:
                    _add(zero, front, i * length + to + k, e)
            _add(zero, front, C_ROW * length + to + k, c)
            _add(zero, front, NOISE_ROW * length + to + k, load(zero, other, (NOISE_ROW * other_length + at + k) * n))
        for k in range(0, groups.size, 2):
            beside, to_beside = ROW * groups[k], ROW * groups[k + 1]
            if beside < at:
                continue
            for i in range(used):
                for j in range(i if beside == at else 0, used):
                    w = load(zero, other, ((W_ROWS + at + i) * other_length + beside + j) * n)
                    _add(zero, front, _above(length, to + i, to_beside + j), w)


@kernel
def add_unseen_lanes(zero, front, at, length, size):
    """Add to the noise of columns from `at` on parts of squares of what they could do."""
    for k in range(len(size)):
        _add(zero, front, NOISE_ROW * length + at + k, UNSEEN * size[k])


@kernel
def add_freedom_lanes(zero, front, length, s, reciprocal, used):
    """Add what a degree of freedom lets the first columns do: W += s s^T / D; `s` of these."""
    n = width(zero)
    count = s.size // n
    for g in range(0, count, ROW):
        for r in range(g, g + used):
            f = reciprocal * load(zero, s, r * n)
            _add(zero, front, NOISE_ROW * length + r, ROUNDED * f * load(zero, s, r * n))
            for h in range(g, count, ROW):
                for k in range(r if h == g else h, h + used):
                    _add(zero, front, (W_ROWS + r) * length + k, f * load(zero, s, k * n))


@kernel(inline=True)
def _take(zero, front, length, at, first_row, kept, used):
    """Copy a group's columns to where they are kept, with the inverses of their noise."""
    n, each = width(zero), KEPT + length
    for i in range(used):
        own = i * each
        for r in range(first_row, C_ROW + 1):
            store(kept, (own + 2 + r) * n, load(zero, front, (r * length + at + i) * n))
        store(kept, (own + _INVERSE_NOISE) * n, 1.0 / load(zero, front, (NOISE_ROW * length + at + i) * n))
        for g in range(0, length, ROW):
            for k in range(g, g + used):
                store(kept, (own + KEPT + k) * n, load(zero, front, _above(length, at + i, k) * n))


@kernel(inline=True)
def _best(zero, kept, each, at, done, used):
    """The column that stands out most from its noise, in all lanes together; -1: none does."""
    n = width(zero)
    best, found = 0.0, -1
    for i in range(used):
        if done & (1 << i) == 0:
            own = i * each
            beyond = load(zero, kept, (own + KEPT + at + i) * n) * load(zero, kept, (own + _INVERSE_NOISE) * n)
            total = over_lanes(where_less(1.0, beyond, beyond, 0.0))
            if total > best:
                best, found = total, i
    return found


@kernel(inline=True)
def _eliminate_here(zero, length, at, first_row, kept, used):
    """Eliminate a group's columns one by one, of what is kept of the group."""
    n, each = width(zero), KEPT + length
    done, found = 0, zero
    for i in range(used):
        store(kept, (i * each + 1) * n, zero)
    for step in range(used):
        d = _best(zero, kept, each, at, done, used)
        kept[step * each * n] = d
        if d < 0:
            break
        own = d * each
        w = load(zero, kept, (own + KEPT + at + d) * n)
        beyond = w * load(zero, kept, (own + _INVERSE_NOISE) * n)
        reciprocal = where_less(1.0, beyond, 1.0 / w, 0.0)
        store(kept, (own + 1) * n, reciprocal)
        found = found + where_less(1.0, beyond, 1.0, 0.0)
        done |= 1 << d
        for i in range(used):
            if done & (1 << i) == 0:
                to = i * each
                f = -reciprocal * load(zero, kept, (own + KEPT + at + i) * n)
                for r in range(first_row, C_ROW + 1):
                    _add(zero, kept, to + 2 + r, f * load(zero, kept, (own + 2 + r) * n))
                for g in range(0, length, ROW):
                    for k in range(g, g + used):
                        _add(zero, kept, to + KEPT + k, f * load(zero, kept, (own + KEPT + k) * n))
    return over_lanes(found)


@kernel(inline=True)
def _factors(zero, kept, each, r):
    """Factors by which the eliminated columns are taken from a row: -1 / W_dd times their numbers at a place."""
    n = width(zero)
    return (
        -load(zero, kept, n) * load(zero, kept, r * n),
        -load(zero, kept, (each + 1) * n) * load(zero, kept, (each + r) * n),
        -load(zero, kept, (2 * each + 1) * n) * load(zero, kept, (2 * each + r) * n),
        -load(zero, kept, (3 * each + 1) * n) * load(zero, kept, (3 * each + r) * n),
        -load(zero, kept, (4 * each + 1) * n) * load(zero, kept, (4 * each + r) * n),
        -load(zero, kept, (5 * each + 1) * n) * load(zero, kept, (5 * each + r) * n),
    )


@kernel(inline=True)
def _numbers_at(zero, kept, each, k):
    """What the columns of a group have at a place."""
    n = width(zero)
    return (
        load(zero, kept, k * n),
        load(zero, kept, (each + k) * n),
        load(zero, kept, (2 * each + k) * n),
        load(zero, kept, (3 * each + k) * n),
        load(zero, kept, (4 * each + k) * n),
        load(zero, kept, (5 * each + k) * n),
    )


@kernel(inline=True)
def _eliminate(zero, front, length, group, bare, kept, grounded, used):
    n, each, at = width(zero), KEPT + length, ROW * group
    first_row = C_ROW if grounded else 0
    _take(zero, front, length, at, first_row, kept, used)
    found = _eliminate_here(zero, length, at, first_row, kept, used)
    for r in range(first_row, C_ROW + 1):
        f = _factors(zero, kept, each, 2 + r)
        for g in range(0, length, ROW):
            if g != at:
                for k in range(g, g + used):
                    _add(zero, front, r * length + k, dot6(f, _numbers_at(zero, kept, each, KEPT + k)))
    for g in range(0, length, ROW):
        if g != at:
            for r in range(g, g + used):
                f = _factors(zero, kept, each, KEPT + r)
                for h in range(g, length, ROW):
                    if h != at:
                        for k in range(r if h == g else h, h + used):
                            x = dot6(f, _numbers_at(zero, kept, each, KEPT + k))
                            _add(zero, front, (W_ROWS + r) * length + k, x)
    if not grounded:
        number = 0
        for i in range(6):
            f = _factors(zero, kept, each, 2 + i)
            for k in range(i, 6):
                _add(zero, bare, number, -dot6(f, _numbers_at(zero, kept, each, 2 + k)))
                number += 1
            _add(zero, bare, 21 + i, -dot6(f, _numbers_at(zero, kept, each, 2 + C_ROW)))
    for i in range(at, at + used):  # the group may be another's from now on
        for r in range(first_row, W_ROWS):
            store(front, (r * length + i) * n, zero)
        for g in range(0, length, ROW):
            for k in range(g, g + used):
                store(front, _above(length, i, k) * n, zero)
    return found


@kernel
def eliminate_lanes(zero, front, length, group, bare, kept, grounded, used):
    """Eliminate a group of columns whose y is zero; see `fronts.eliminate`."""
    if used == OF_A_HINGE:  # for which loops are written out
        return _eliminate(zero, front, length, group, bare, kept, grounded, OF_A_HINGE)
    return _eliminate(zero, front, length, group, bare, kept, grounded, used)


@kernel(inline=True)
def dot_lanes(zero, a, at, b, length, used):
    """Sum of the products of the numbers of so many columns of two arrays, from a place of the first on."""
    n, total = width(zero), zero
    for g in range(0, length, ROW):
        for k in range(g, g + used):
            total = total + load(zero, a, (at + k) * n) * load(zero, b, k * n)
    return total


@kernel
def found_loads_lanes(zero, kept, length, group, acceleration, x, grounded, used):
    """Write the loads of a group that `eliminate` eliminated into those of the front; see `fronts.found_loads`."""
    n, each, at = width(zero), KEPT + length, ROW * group
    for i in range(ROW):
        store(x, (at + i) * n, zero)
    rank = 0
    while rank < used and kept[rank * each * n] >= 0.0:
        rank += 1
    for step in range(rank - 1, -1, -1):
        d = int(kept[step * each * n])
        own = d * each
        s = load(zero, kept, (own + 2 + C_ROW) * n)
        if not grounded:
            s = s + dot6(load6(zero, kept, own + 2), load6(zero, acceleration, 0))
        s = s + dot_lanes(zero, kept, own + KEPT, x, length, used)
        store(x, (at + d) * n, -s * load(zero, kept, (own + 1) * n))
