"""Columns of loops to the world, at bodies on the way there: brought together, as many as see the body's motion."""

from __future__ import annotations

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.fronts import (
    COLUMNS,
    KEPT,
    NEGLIGIBLE,
    SCALE_ROW,
    SMALLEST,
    W_ROWS,
    find_load,
    largest_scale,
    take_out,
)
from mpimbs.spatial.rows import ROW

LARGE = 1e-2  # part of the largest diagonal of all from which on a column needs not wait for the joints inboard
# What `settle` keeps: how many columns were eliminated at once, how many stayed, of these how many in the end, and how
# many that no motion of the body sees were eliminated; then columns, exchanges, factors; vectors of reflections; and
# the eliminated columns.
_AT_ONCE, _STAYED, _LEFT, _UNSEEN = range(4)
MOST_SETTLED = 24  # columns
_COLUMNS, _EXCHANGES, _FACTORS, _VECTORS, _ELIMINATED = 8, 32, 40, 48, 48 + COLUMNS * MOST_SETTLED
_SEEN = 1e-9  # part of a column of E below which a motion of the body doesn't matter to it


@kernel(inline=True)
def _clear_column(front, length, d):
    """Make a column, and what others have of it, zero."""
    for r in range(W_ROWS + length):
        if r != SCALE_ROW:
            front[r * length + d] = 0.0
    for k in range(length):
        front[(W_ROWS + d) * length + k] = 0.0


@kernel(inline=True)
def settled_size(groups):
    """Numbers that `settle` keeps of a front of so many groups."""
    return _ELIMINATED + 2 * MOST_SETTLED * (KEPT + ROW * groups)


@kernel(inline=True)
def _best_of(front, length, columns, first, last, least, share):
    """The column whose diagonal is the largest of what W was made of, beyond a share of it; -1: none."""
    best, found = share, -1
    for k in range(first, last):
        d = int(columns[k])
        scale = max(front[SCALE_ROW * length + d], least)
        w = front[(W_ROWS + d) * length + d]
        if scale > 0.0 and w > best * scale:
            best, found = w / scale, d
    return found


@kernel
def _reflect(front, length, columns, first, last, v, factor):
    """Take the columns `first` to `last` - 1 of a list through the reflection 1 - factor v v^T, both ways."""
    for r in range(W_ROWS + length):
        if r == SCALE_ROW:
            continue
        s = 0.0
        for k in range(first, last):
            s += v[k] * front[r * length + int(columns[k])]
        s *= factor
        for k in range(first, last):
            front[r * length + int(columns[k])] -= s * v[k]
    for q in range(length):
        s = 0.0
        for k in range(first, last):
            s += v[k] * front[(W_ROWS + int(columns[k])) * length + q]
        s *= factor
        for k in range(first, last):
            front[(W_ROWS + int(columns[k])) * length + q] -= s * v[k]


@kernel
def _exchange(front, length, a, b):
    for r in range(W_ROWS + length):
        front[r * length + a], front[r * length + b] = front[r * length + b], front[r * length + a]
    for k in range(length):
        i, j = (W_ROWS + a) * length + k, (W_ROWS + b) * length + k
        front[i], front[j] = front[j], front[i]


@kernel
def settle(front, length, groups, bare, kept):
    """Bring what is left of groups of columns whose y is zero into the first of them, at a body that isn't the world.

    Loops to the world can't be closed at a body whose motion they constrain: W may be singular there, and say nothing
    of what the joints inboard allow. Columns whose diagonal is large are eliminated; of the others, combinations that
    the body's motion doesn't matter to are, as `eliminate` does; six of them stay at the most, that see it.

    Parameters
    ----------
    groups : array [2 n]
        These, four at the most, and something of each.
    bare, kept : array [27], [settled_size]
        As of `eliminate`; for `settled_loads`.
    """
    each = KEPT + length
    largest = largest_scale(front, length)
    columns = kept[_COLUMNS:_EXCHANGES]
    count = 0
    for number in range(0, groups.size, 2):
        for i in range(COLUMNS):
            columns[count] = ROW * groups[number] + i
            count += 1
    done = 0
    d = _best_of(front, length, columns, 0, count, largest, LARGE)
    while d >= 0:
        take_out(front, length, d, bare, kept, _ELIMINATED + done * each, False)
        done += 1
        d = _best_of(front, length, columns, 0, count, largest, LARGE)
    kept[_AT_ONCE] = done
    stayed = 0
    for k in range(count):
        d = int(columns[k])
        gone = False
        for own in range(done):
            gone = gone or int(kept[_ELIMINATED + own * each]) == d
        if not gone:
            columns[stayed] = d
            stayed += 1
    kept[_STAYED] = stayed
    most = 0.0
    for k in range(stayed):
        most = max(most, front[SCALE_ROW * length + int(columns[k])])
    for k in range(stayed):
        front[SCALE_ROW * length + int(columns[k])] = most
    left = 0
    used = 0
    while left < min(COLUMNS, stayed):
        component, size = -1, 0.0
        for i in range(6):
            s = 0.0
            for k in range(left, stayed):
                s += front[i * length + int(columns[k])] ** 2
            if used & (1 << i) == 0 and s > size:
                component, size = i, s
        if component < 0 or size <= _SEEN**2:
            break
        used |= 1 << component
        v = kept[_VECTORS + left * MOST_SETTLED : _VECTORS + (left + 1) * MOST_SETTLED]
        for k in range(left, stayed):
            v[k] = front[component * length + int(columns[k])]
        norm = size**0.5
        v[left] += norm if v[left] >= 0.0 else -norm
        s = 0.0
        for k in range(left, stayed):
            s += v[k] * v[k]
        kept[_FACTORS + left] = 2.0 / s
        _reflect(front, length, columns, left, stayed, v, kept[_FACTORS + left])
        left += 1
    kept[_LEFT] = left
    for k in range(left, stayed):
        for i in range(6):
            front[i * length + int(columns[k])] = 0.0
    unseen = 0
    least = NEGLIGIBLE / SMALLEST * largest
    d = _best_of(front, length, columns, left, stayed, least, SMALLEST)
    while d >= 0:
        take_out(front, length, d, bare, kept, _ELIMINATED + (done + unseen) * each, False)
        unseen += 1
        d = _best_of(front, length, columns, left, stayed, least, SMALLEST)
    kept[_UNSEEN] = unseen
    for k in range(left, stayed):
        _clear_column(front, length, int(columns[k]))
        front[SCALE_ROW * length + int(columns[k])] = 0.0
    for own in range(done):
        front[SCALE_ROW * length + int(kept[_ELIMINATED + own * each])] = 0.0
    target = ROW * groups[0]
    for k in range(left):
        d = int(columns[k])
        kept[_EXCHANGES + k] = d
        if d != target + k:
            _exchange(front, length, d, target + k)
            for m in range(k + 1, left):
                if int(columns[m]) == target + k:
                    columns[m] = d


@kernel
def settled_loads(kept, length, groups, acceleration, x):
    """Write the loads of groups that `settle` settled into those of the front, x [L], given the first's."""
    each = KEPT + length
    done, stayed, left, unseen = int(kept[_AT_ONCE]), int(kept[_STAYED]), int(kept[_LEFT]), int(kept[_UNSEEN])
    target = ROW * groups[0]
    for number in range(2, groups.size, 2):
        for i in range(ROW):
            x[ROW * groups[number] + i] = 0.0
    for i in range(left, ROW):
        x[target + i] = 0.0
    columns = kept[_COLUMNS:_EXCHANGES]
    for k in range(left - 1, -1, -1):
        d = int(kept[_EXCHANGES + k])
        if d != target + k:
            x[d], x[target + k] = x[target + k], x[d]
            for m in range(k + 1, left):
                if int(columns[m]) == d:
                    columns[m] = target + k
    for own in range(done + unseen - 1, done - 1, -1):
        find_load(kept, _ELIMINATED + own * each, length, acceleration, x, False)
    for number in range(left - 1, -1, -1):
        v = kept[_VECTORS + number * MOST_SETTLED : _VECTORS + (number + 1) * MOST_SETTLED]
        s = 0.0
        for k in range(number, stayed):
            s += v[k] * x[int(columns[k])]
        s *= kept[_FACTORS + number]
        for k in range(number, stayed):
            x[int(columns[k])] -= s * v[k]
    for own in range(done - 1, -1, -1):
        find_load(kept, _ELIMINATED + own * each, length, acceleration, x, False)
