"""Columns of loops to the world, at bodies on the way there: brought together, as many as see the body's motion."""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.spatial.rows import ROW
from mpimbs.values.fronts import COLUMNS, KEPT, NOISE_ROW, ROUNDED, UNSEEN, W_ROWS, find_load, take_out

_REFLECTED = 1e-3  # part of the noise that a reflection adds: some roundings, of which `ROUNDED` has thousands
LARGE = 1e-2 / ROUNDED  # of the largest noise, beyond which a column needs not wait for the joints inboard
# What `compress` keeps: how many columns were eliminated at once, how many stayed, of these how many in the end, and
# how many that no motion of the body sees were eliminated; then exchanges, factors, vectors of reflections; columns,
# and those that were eliminated.
_AT_ONCE, _STAYED, _LEFT, _UNSEEN = range(4)
_EXCHANGES, _FACTORS, _VECTORS = 8, 16, 24


@kernel(inline=True)
def _clear_column(front, length, d):
    """Make a column, and what others have of it, zero."""
    for r in range(W_ROWS + length):
        if r != NOISE_ROW:
            front[r * length + d] = 0.0
    for k in range(length):
        front[(W_ROWS + d) * length + k] = 0.0


@kernel(inline=True)
def compressed_size(groups, compressed):
    """Numbers that `compress` keeps of a front of so many groups, of which so many are settled."""
    return _VECTORS + COLUMNS * compressed * (COLUMNS + 2 + KEPT + ROW * groups)


@kernel(inline=True)
def _columns_at(groups):
    """Where the list of columns begins, room for as many numbers, and what is kept of those that are eliminated."""
    most = COLUMNS * (groups.size // 2)
    return _VECTORS + COLUMNS * most, _VECTORS + (COLUMNS + 1) * most, _VECTORS + (COLUMNS + 2) * most


@kernel(inline=True)
def _best_of(front, length, columns, first, last, least, beyond):
    """The column that stands out most from its noise, or the least there is, so many times or more; -1: none does."""
    best, of, found = beyond, 1.0, -1
    for k in range(first, last):
        d = int(columns[k])
        w, noise = front[(W_ROWS + d) * length + d], max(front[NOISE_ROW * length + d], least)
        if w * of > best * noise:
            best, of, found = w, noise, d
    return found


@kernel
def _reflect(front, length, columns, first, last, v, factor, noise):
    """Take columns `first` to `last` - 1 of a list through a reflection, 1 - factor v v^T, both ways; `noise`: room."""
    for r in range(W_ROWS + length):
        if r == NOISE_ROW:
            continue
        s = 0.0
        for k in range(first, last):
            s += v[k] * front[r * length + int(columns[k])]
        s *= factor
        for k in range(first, last):
            front[r * length + int(columns[k])] -= s * v[k]
    largest = 0.0
    for k in range(first, last):
        largest = max(largest, front[NOISE_ROW * length + int(columns[k])])
    for k in range(first, last):  # sums of squares of what each has of the others; and what is rounded here
        noise[k] = _REFLECTED * largest
        for other in range(first, last):
            share = (1.0 if k == other else 0.0) - factor * v[k] * v[other]
            noise[k] += share**2 * front[NOISE_ROW * length + int(columns[other])]
    for k in range(first, last):
        front[NOISE_ROW * length + int(columns[k])] = noise[k]
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


@kernel(inline=True)
def _square(front, length, columns, k, i, lever):
    """Square of a component of E of a column of a list, as a force."""
    e = front[i * length + int(columns[k])]
    return (e / lever) ** 2 if i < 3 else e**2


@kernel
def compress(front, length, groups, bare, kept, lever):
    """Bring what is left of groups of columns whose y is zero into the first of them, at a body that isn't the world.

    Loops to the world can't be closed at a body whose motion they constrain: W may be singular there, and say nothing
    of what the joints inboard allow. Columns whose diagonal is large are eliminated; of the others, combinations that
    the body's motion doesn't matter to are, as `eliminate` does; six of them stay at the most, that see it.

    Parameters
    ----------
    groups : array [2 n]
        These, and something of each.
    bare, kept : array [27], [compressed_size]
        As of `eliminate`; for `compressed_loads`.
    lever : float
        What makes of a moment a force like others (m).

    Returns
    -------
    float
        How many were eliminated.
    """
    each, most = KEPT + length, COLUMNS * (groups.size // 2)
    columns_at, room_at, eliminated_at = _columns_at(groups)
    columns, noise = kept[columns_at:room_at], kept[room_at:eliminated_at]
    count, largest = 0, 0.0
    for k in range(length):
        largest = max(largest, front[NOISE_ROW * length + k])
    for number in range(0, groups.size, 2):
        for i in range(COLUMNS):
            columns[count] = ROW * groups[number] + i
            count += 1
    whole = 0.0
    for k in range(count):
        for i in range(6):
            whole += _square(front, length, columns, k, i, lever)
    done = 0
    d = _best_of(front, length, columns, 0, count, largest, LARGE)
    while d >= 0:
        take_out(front, length, d, bare, kept, eliminated_at + done * each, False)
        done += 1
        d = _best_of(front, length, columns, 0, count, largest, LARGE)
    kept[_AT_ONCE] = done
    stayed = 0
    for k in range(count):
        d = int(columns[k])
        gone = False
        for own in range(done):
            gone = gone or int(kept[eliminated_at + own * each]) == d
        if not gone:
            columns[stayed] = d
            stayed += 1
    kept[_STAYED] = stayed
    # of columns that begin as unit moments and forces: what is left of E by rounding would take columns of W along
    nothing = UNSEEN * max(1.0, 1.0 / lever**2)
    left = 0
    used = 0
    while left < min(COLUMNS, stayed):
        component, size = -1, nothing
        for i in range(6):
            s = 0.0
            for k in range(left, stayed):
                s += _square(front, length, columns, k, i, lever)
            if used & (1 << i) == 0 and s > size:
                component, size = i, s
        if component < 0:
            break
        used |= 1 << component
        v = kept[_VECTORS + left * most : _VECTORS + (left + 1) * most]
        s = 0.0
        for k in range(left, stayed):
            v[k] = front[component * length + int(columns[k])]
            s += v[k] * v[k]
        v[left] += s**0.5 if v[left] >= 0.0 else -(s**0.5)
        s = 0.0
        for k in range(left, stayed):
            s += v[k] * v[k]
        kept[_FACTORS + left] = 2.0 / s
        _reflect(front, length, columns, left, stayed, v, kept[_FACTORS + left], noise)
        left += 1
    kept[_LEFT] = left
    for k in range(left, stayed):
        for i in range(6):
            front[i * length + int(columns[k])] = 0.0
    unseen = 0
    d = _best_of(front, length, columns, left, stayed, 0.0, 1.0)
    while d >= 0:
        take_out(front, length, d, bare, kept, eliminated_at + (done + unseen) * each, False)
        unseen += 1
        d = _best_of(front, length, columns, left, stayed, 0.0, 1.0)
    kept[_UNSEEN] = unseen
    for k in range(stayed):
        d = int(columns[k])
        size = 0.0
        for i in range(6):
            size += _square(front, length, columns, k, i, lever)
        if size <= UNSEEN * whole and front[(W_ROWS + d) * length + d] <= front[NOISE_ROW * length + d]:
            _clear_column(front, length, d)
        if k >= left:
            front[NOISE_ROW * length + d] = 0.0
    for own in range(done):
        front[NOISE_ROW * length + int(kept[eliminated_at + own * each])] = 0.0
    target = ROW * groups[0]
    for k in range(left):
        d = int(columns[k])
        kept[_EXCHANGES + k] = d
        if d != target + k:
            _exchange(front, length, d, target + k)
            for m in range(k + 1, left):
                if int(columns[m]) == target + k:
                    columns[m] = d
    return float(done + unseen)


@kernel
def compressed_loads(kept, length, groups, acceleration, x):
    """Write the loads of groups that `compress` settled into those of the front, x [L], given the first's."""
    each, most = KEPT + length, COLUMNS * (groups.size // 2)
    columns_at, room_at, eliminated_at = _columns_at(groups)
    done, stayed, left, unseen = int(kept[_AT_ONCE]), int(kept[_STAYED]), int(kept[_LEFT]), int(kept[_UNSEEN])
    target = ROW * groups[0]
    for number in range(2, groups.size, 2):
        for i in range(ROW):
            x[ROW * groups[number] + i] = 0.0
    for i in range(left, ROW):
        x[target + i] = 0.0
    columns = kept[columns_at:room_at]
    for k in range(left - 1, -1, -1):
        d = int(kept[_EXCHANGES + k])
        if d != target + k:
            x[d], x[target + k] = x[target + k], x[d]
            for m in range(k + 1, left):
                if int(columns[m]) == d:
                    columns[m] = target + k
    for own in range(done + unseen - 1, done - 1, -1):
        find_load(kept, eliminated_at + own * each, length, acceleration, x, False)
    for number in range(left - 1, -1, -1):
        v = kept[_VECTORS + number * most : _VECTORS + (number + 1) * most]
        s = 0.0
        for k in range(number, stayed):
            s += v[k] * x[int(columns[k])]
        s *= kept[_FACTORS + number]
        for k in range(number, stayed):
            x[int(columns[k])] -= s * v[k]
    for own in range(done - 1, -1, -1):
        find_load(kept, eliminated_at + own * each, length, acceleration, x, False)
