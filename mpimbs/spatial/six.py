"""6x6 matrices as six registers, each a row of eight doubles, whose column 6 is that of a vector beside the matrix.

Elimination in registers goes without exchanges of rows; its caller looks at the sum of its largest factors, which are
of order one for the matrices of bodies, and does it again with exchanges (`solve_with_exchanges`) if that is large.
"""

from __future__ import annotations

import numpy as np

from mpimbs.kernels.compiler import kernel
from mpimbs.spatial.rows import (
    ROW,
    add_row,
    eight_rows,
    entry,
    load_row,
    multiply_rows,
    scale_row,
    transposed_rows,
    write_row,
)

EXTRA = 6  # column of the vector beside a matrix
LARGEST_FACTOR = 64.0  # sum of the largest factors of the six steps of an elimination without exchanges
UNITS = np.eye(6, ROW).ravel()
_EXTRA = np.eye(1, ROW, EXTRA).ravel()


@kernel(inline=True)
def weighted(a, base, rows):
    """Sum of six rows times six numbers of an array, from `base` on: a row of a product."""
    low = add_row(scale_row(a[base], rows[0]), scale_row(a[base + 1], rows[1]))
    middle = add_row(scale_row(a[base + 2], rows[2]), scale_row(a[base + 3], rows[3]))
    return add_row(add_row(low, middle), add_row(scale_row(a[base + 4], rows[4]), scale_row(a[base + 5], rows[5])))


@kernel(inline=True)
def _transposed_times(a, base, rows):
    """Six numbers of an array, the entries of a column, times six rows."""
    low = add_row(scale_row(a[base], rows[0]), scale_row(a[base + ROW], rows[1]))
    middle = add_row(scale_row(a[base + 2 * ROW], rows[2]), scale_row(a[base + 3 * ROW], rows[3]))
    high = add_row(scale_row(a[base + 4 * ROW], rows[4]), scale_row(a[base + 5 * ROW], rows[5]))
    return add_row(add_row(low, middle), high)


@kernel(inline=True)
def six_rows(a, base, spacing=ROW):
    """Load six rows from an index on of a flat array, so many numbers apart."""
    return (
        load_row(a, base),
        load_row(a, base + spacing),
        load_row(a, base + 2 * spacing),
        load_row(a, base + 3 * spacing),
        load_row(a, base + 4 * spacing),
        load_row(a, base + 5 * spacing),
    )


@kernel
def solve_with_exchanges(a, x, columns):
    """Solve a x = b in place by elimination with row exchanges (Gauss-Jordan).

    Parameters
    ----------
    a : array [6 * ROW]
        Rows of the matrix; destroyed.
    x : array [columns * 6 * ROW]
        Right-hand sides, `columns` groups of six rows; becomes the solution.
    """
    for i in range(6):
        best = i
        largest = abs(a[i * ROW + i])
        for r in range(i + 1, 6):
            size = abs(a[r * ROW + i])
            if size > largest:
                largest = size
                best = r
        f = 1.0 / a[best * ROW + i]
        pivot = scale_row(f, load_row(a, best * ROW))
        write_row(a, best * ROW, load_row(a, i * ROW))
        write_row(a, i * ROW, pivot)
        for group in range(columns):
            base = group * 6 * ROW
            row = scale_row(f, load_row(x, base + best * ROW))
            write_row(x, base + best * ROW, load_row(x, base + i * ROW))
            write_row(x, base + i * ROW, row)
            for r in range(6):
                if r != i:
                    g = -a[r * ROW + i]
                    write_row(x, base + r * ROW, add_row(load_row(x, base + r * ROW), scale_row(g, row)))
        for r in range(6):
            if r != i:
                g = -a[r * ROW + i]
                write_row(a, r * ROW, add_row(load_row(a, r * ROW), scale_row(g, pivot)))


@kernel(inline=True)
def write_six(a, base, rows):
    """Store what `six_rows` loads."""
    write_row(a, base, rows[0])
    write_row(a, base + ROW, rows[1])
    write_row(a, base + 2 * ROW, rows[2])
    write_row(a, base + 3 * ROW, rows[3])
    write_row(a, base + 4 * ROW, rows[4])
    write_row(a, base + 5 * ROW, rows[5])


@kernel(inline=True)
def _less(row, factor, pivot):
    return add_row(row, scale_row(-factor, pivot))


@kernel(inline=True)
def _cleared(rows, pivot, g):
    """The rows after the first, less multiples of the pivot row, which goes last: six clearings restore the order."""
    low = (_less(rows[1], g[0], pivot), _less(rows[2], g[1], pivot), _less(rows[3], g[2], pivot))
    return low + (_less(rows[4], g[3], pivot), _less(rows[5], g[4], pivot), pivot)


@kernel(inline=True)
def _clear(i, a, x, y, two_handles):
    """One step of the elimination, column i with the first row as it stands; also the largest factor below."""
    f = 1.0 / entry(a[0], i)
    g = (entry(a[1], i), entry(a[2], i), entry(a[3], i), entry(a[4], i), entry(a[5], i))
    below = 0.0
    for k in range(5 - i):
        below = max(below, abs(g[k]))
    if two_handles:
        y = _cleared(y, scale_row(f, y[0]), g)
    return _cleared(a, scale_row(f, a[0]), g), _cleared(x, scale_row(f, x[0]), g), y, below * abs(f)


@kernel(inline=True)
def eliminated(a, x, y, two_handles):
    """Eliminate in registers, without exchanges: solutions x and y, and the sum of the largest factors of the steps."""
    a, x, y, f0 = _clear(0, a, x, y, two_handles)
    a, x, y, f1 = _clear(1, a, x, y, two_handles)
    a, x, y, f2 = _clear(2, a, x, y, two_handles)
    a, x, y, f3 = _clear(3, a, x, y, two_handles)
    a, x, y, f4 = _clear(4, a, x, y, two_handles)
    a, x, y, f5 = _clear(5, a, x, y, two_handles)
    return x, y, f0 + f1 + f2 + f3 + f4 + f5


@kernel(inline=True)
def products(a, base, rows):
    """Six rows from an index on of a flat array, as a 6x6 matrix, times six rows."""
    return (
        weighted(a, base, rows),
        weighted(a, base + ROW, rows),
        weighted(a, base + 2 * ROW, rows),
        weighted(a, base + 3 * ROW, rows),
        weighted(a, base + 4 * ROW, rows),
        weighted(a, base + 5 * ROW, rows),
    )


@kernel(inline=True)
def sums(a, b):
    """Sums of six rows each."""
    low = (add_row(a[0], b[0]), add_row(a[1], b[1]), add_row(a[2], b[2]))
    return low + (add_row(a[3], b[3]), add_row(a[4], b[4]), add_row(a[5], b[5]))


@kernel(inline=True)
def negatives(a):
    """Six rows times -1."""
    low = (scale_row(-1.0, a[0]), scale_row(-1.0, a[1]), scale_row(-1.0, a[2]))
    return low + (scale_row(-1.0, a[3]), scale_row(-1.0, a[4]), scale_row(-1.0, a[5]))


@kernel(inline=True)
def extras(a):
    """Six rows with nothing but their column `EXTRA`."""
    extra = load_row(_EXTRA, 0)
    low = (multiply_rows(extra, a[0]), multiply_rows(extra, a[1]), multiply_rows(extra, a[2]))
    return low + (multiply_rows(extra, a[3]), multiply_rows(extra, a[4]), multiply_rows(extra, a[5]))


@kernel(inline=True)
def extra_differences(a, b):
    """The column `EXTRA` of the difference of six rows."""
    low = (_less(a[0], 1.0, b[0]), _less(a[1], 1.0, b[1]), _less(a[2], 1.0, b[2]))
    return extras(low + (_less(a[3], 1.0, b[3]), _less(a[4], 1.0, b[4]), _less(a[5], 1.0, b[5])))


@kernel(inline=True)
def _symmetric_row(row, across, extra):
    return add_row(scale_row(0.5, add_row(row, across)), scale_row(0.5, multiply_rows(extra, row)))


@kernel(inline=True)
def symmetric(rows):
    """Six rows with their first six columns made symmetric; the column `EXTRA` stays."""
    extra = load_row(_EXTRA, 0)
    across = transposed_rows(eight_rows(rows))
    return (
        _symmetric_row(rows[0], across[0], extra),
        _symmetric_row(rows[1], across[1], extra),
        _symmetric_row(rows[2], across[2], extra),
        _symmetric_row(rows[3], across[3], extra),
        _symmetric_row(rows[4], across[4], extra),
        _symmetric_row(rows[5], across[5], extra),
    )


@kernel(inline=True)
def transposed_products(a, base, rows):
    """Transpose of the 6x6 matrix from an index on of a flat array, times six rows."""
    return (
        _transposed_times(a, base, rows),
        _transposed_times(a, base + 1, rows),
        _transposed_times(a, base + 2, rows),
        _transposed_times(a, base + 3, rows),
        _transposed_times(a, base + 4, rows),
        _transposed_times(a, base + 5, rows),
    )
