"""Fronts: the columns that are open at a body, and the elimination of those whose loads are found there.

A front is what a body is handed by all that hangs on it of loads that are not known yet: those on open bodies and of
open loops. They are columns, in groups of eight, of which six at the most are used. With A of the body,

    f = I A - E x + p          y = E^T A + W x + c

Its array has 8 + L rows of L = 8 * groups numbers: the six of E, c, the noise of W, and W. A loop asks y = 0 of its
columns, once both its ends are in. They are eliminated one by one, the one that stands out most from its noise first
[design, section 12]: with d the column,

    x_d = - (E_d^T A + c_d + sum_k W_dk x_k) / W_dd
    I += E_d E_d^T / W_dd    p += E_d c_d / W_dd    E_k -= E_d W_dk / W_dd    and W, c alike

A column whose W_dd is not beyond its noise asks what others make already, or what no joint lets go of: it has no load,
and E and c are zero there as well. The noise is what rounding may have made of W_dd. It has two sources, and travels
with the column from where it begins:

- the sums that W is made of are rounded: a part `ROUNDED` of each s^2 / D;
- s = E^T S is rounded, which counts where all of s is: a joint that is doubled by a coaxial one has nothing else. A
  part `UNSEEN` of what s could be, the moment and, with a length of the system for a lever, the force of the column.
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.spatial.rows import ROW, add_row, entry, load_row, multiply_rows, scale_row, write_row

COLUMNS = 6  # of a group, at the most
C_ROW, NOISE_ROW, W_ROWS = 6, 7, 8
ROUNDED = 1e-12  # of a sum: thousands of roundings, as elimination amplifies them
UNSEEN = 1e-22  # of a square: what is closed to 1e-12 is coaxial to 1e-11 of its length
KEPT = 16  # numbers of an eliminated column: which it is (-1: none), 1 / W_dd; then E_d, c_d and room; then its row


@kernel(inline=True)
def front_size(groups):
    """Numbers of a front of so many groups."""
    return (W_ROWS + ROW * groups) * ROW * groups


@kernel(inline=True)
def kept_size(groups):
    """Numbers that are kept of a group of columns that is eliminated from a front."""
    return COLUMNS * (KEPT + ROW * groups)


@kernel(inline=True)
def clear_front(front, length):
    """Make a front one of no columns."""
    for i in range((W_ROWS + length) * length):
        front[i] = 0.0


@kernel(inline=True)
def add_end(front, length, group, columns, c):
    """Add what acts on the body itself: columns [6, 8] of a group, and c."""
    for i in range(COLUMNS):
        at = i * length + ROW * group
        write_row(front, at, add_row(load_row(front, at), load_row(columns, i * ROW)))
    at = C_ROW * length + ROW * group
    write_row(front, at, add_row(load_row(front, at), load_row(c, 0)))


@kernel(inline=True)
def fold(front, length, groups, other, other_length, grounded, root):
    """Add a front that was moved to the same body; `groups` [2 n]: each group of that, and which it is here.

    Where the body is the world, c takes what its acceleration, `root`, does to the columns: there is no E then.
    """
    for number in range(0, groups.size, 2):
        at, to = ROW * groups[number], ROW * groups[number + 1]
        place = C_ROW * length + to
        c = add_row(load_row(front, place), load_row(other, C_ROW * other_length + at))
        for i in range(6):
            e = load_row(other, i * other_length + at)
            if grounded:
                c = add_row(c, scale_row(root[i], e))
            else:
                write_row(front, i * length + to, add_row(load_row(front, i * length + to), e))
        write_row(front, place, c)
        place = NOISE_ROW * length + to
        write_row(front, place, add_row(load_row(front, place), load_row(other, NOISE_ROW * other_length + at)))
        for k in range(0, groups.size, 2):
            for i in range(COLUMNS):
                place = (W_ROWS + to + i) * length + ROW * groups[k + 1]
                row = load_row(other, (W_ROWS + at + i) * other_length + ROW * groups[k])
                write_row(front, place, add_row(load_row(front, place), row))


@kernel(inline=True)
def add_unseen(front, at, length, size):
    """Add to the noise of columns from `at` on a part of a row: squares of what they could do."""
    place = NOISE_ROW * length + at
    write_row(front, place, add_row(load_row(front, place), scale_row(UNSEEN, size)))


@kernel(inline=True)
def add_freedom(front, length, s, reciprocal):
    """Add what a degree of freedom lets the first columns do: W += s s^T / D; `s` of these."""
    for group in range(s.size // ROW):
        at = ROW * group
        place = NOISE_ROW * length + at
        for i in range(COLUMNS):
            f = reciprocal * s[at + i]
            front[place + i] += ROUNDED * f * s[at + i]
            row = (W_ROWS + at + i) * length
            for k in range(0, s.size, ROW):
                write_row(front, row + k, add_row(load_row(front, row + k), scale_row(f, load_row(s, k))))


@kernel(inline=True)
def most_certain(values, at, spacing, noises):
    """Which column of a group stands out most from its noise; -1: none does.

    The first is on the diagonal at `at`, the others `spacing` numbers after each other; their noise is at `noises`.
    """
    best, of, found = 1.0, 1.0, -1
    for i in range(COLUMNS):
        w, noise = values[at + i * spacing], values[noises + i]
        if w * of > best * noise:
            best, of, found = w, noise, i
    return found


@kernel
def take_out(front, length, d, bare, kept, own, grounded):
    """Eliminate a column; keep how, from `own` on."""
    row = (W_ROWS + d) * length
    reciprocal = 1.0 / front[row + d]
    kept[own], kept[own + 1] = d, reciprocal
    for i in range(W_ROWS):
        kept[own + 2 + i] = front[i * length + d]
    for k in range(0, length, ROW):
        write_row(kept, own + KEPT + k, load_row(front, row + k))
        write_row(front, row + k, scale_row(0.0, load_row(front, row + k)))
    if not grounded:
        number = 0
        for i in range(6):
            f = reciprocal * kept[own + 2 + i]
            for k in range(i, 6):
                bare[number] += f * kept[own + 2 + k]
                number += 1
            bare[21 + i] += f * kept[own + 2 + C_ROW]
    for r in range(C_ROW if grounded else 0, W_ROWS + length):
        f = -reciprocal * front[r * length + d]
        if f != 0.0 and r != NOISE_ROW:
            for k in range(0, length, ROW):
                pivot = load_row(kept, own + KEPT + k)
                write_row(front, r * length + k, add_row(load_row(front, r * length + k), scale_row(f, pivot)))
            front[r * length + d] = 0.0
    kept[own + KEPT + d] = 0.0


@kernel(inline=True)
def dot_rows(a, at, b, length):
    """Sum of the products of so many numbers of two arrays, from a place of the first on."""
    total = multiply_rows(load_row(a, at), load_row(b, 0))
    for k in range(ROW, length, ROW):
        total = add_row(total, multiply_rows(load_row(a, at + k), load_row(b, k)))
    low = (entry(total, 0) + entry(total, 1)) + (entry(total, 2) + entry(total, 3))
    return low + ((entry(total, 4) + entry(total, 5)) + (entry(total, 6) + entry(total, 7)))


@kernel(inline=True)
def find_load(kept, own, length, acceleration, x, grounded):
    """Load of an eliminated column."""
    s = kept[own + 2 + C_ROW] + dot_rows(kept, own + KEPT, x, length)
    if not grounded:
        for i in range(6):
            s += kept[own + 2 + i] * acceleration[i]
    x[int(kept[own])] = -s * kept[own + 1]


@kernel(inline=True)
def eliminate(front, length, group, bare, kept, grounded):
    """Eliminate a group of columns whose y is zero.

    Parameters
    ----------
    front : array
        Overwritten; the group is one of zeros then.
    length, group : int
    bare : array [27]
        I and p, to which what the group adds is added.
    kept : array [kept_size]
        Written, for `found_loads`.
    grounded : bool
        Whether the body is the world, whose acceleration c has already: there is no E.

    Returns
    -------
    float
        How many were eliminated.
    """
    at, found = ROW * group, 0.0
    for step in range(COLUMNS):
        own = step * (KEPT + length)
        d = most_certain(front, (W_ROWS + at) * length + at, length + 1, NOISE_ROW * length + at)
        kept[own] = d
        if d < 0:
            break
        d += at
        take_out(front, length, d, bare, kept, own, grounded)
        found += 1.0
    for r in range(C_ROW if grounded else 0, W_ROWS + length):  # the group may be another's from now on
        write_row(front, r * length + at, scale_row(0.0, load_row(front, r * length + at)))
    for i in range(at, at + COLUMNS):
        for k in range(0, length, ROW):
            place = (W_ROWS + i) * length + k
            write_row(front, place, scale_row(0.0, load_row(front, place)))
    return found


@kernel(inline=True)
def kept_rank(kept, size):
    """How many columns of a group were eliminated, of each of which so many numbers are kept."""
    rank = 0
    while rank < COLUMNS and kept[rank * size] >= 0.0:
        rank += 1
    return rank


@kernel(inline=True)
def found_loads(kept, length, group, acceleration, x, grounded):
    """Write the loads of a group that `eliminate` eliminated into those of the front, x [L].

    `acceleration` is that of the body. Of redundant columns the loads are zero.
    """
    for i in range(ROW):
        x[ROW * group + i] = 0.0
    for step in range(kept_rank(kept, KEPT + length) - 1, -1, -1):
        find_load(kept, step * (KEPT + length), length, acceleration, x, grounded)
