"""The handle equations of a subchain, and their product: what every coupling works on.

A subchain has an inboard handle 1, on the parent side of its first joint, and an outboard handle 2, the frame of its
last body. Its equations in the mixed form, spatial vectors with the angular part first, loads acting on the subchain:

    f1 = I A1 - E f2 + p            A2 = E^T A1 + W f2 + c

I: articulated inertia at handle 1; E: transfer of an outboard load to handle 1; W >= 0: compliance at handle 2 while
handle 1 is held. They are kept as one flat array of 18 rows of 8 doubles, each a SIMD register: [I | p], [E], [W | c],
with zeros in what is left over. It is also the message between ranks. A subchain with nothing outboard has E = W = c
= 0.

Left L and right R share a point: A2 of L = A1 of R = a, f2 of L = -f1 of R = f. Then

    (1 + W_L I_R) a = E_L^T A1 + W_L E_R f2 + c_L - W_L p_R

Both W_L and I_R are positive semi-definite, so that all eigenvalues of this matrix are at least 1. With its inverse N,
the response of a is X A1 + r + Y f2, where X = N E_L^T, r = N (c_L - W_L p_R), Y = N W_L E_R, and

    I = I_L + E_L I_R X         E = X^T E_R         W = W_R + E_R^T Y
    p = p_L + E_L (p_R + I_R r)                     c = c_R + E_R^T r
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpimbs.spatial.compiler import kernel
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

INERTIA = 0  # rows [I | p]
TRANSFER = 6 * ROW  # rows [E]
COMPLIANCE = 12 * ROW  # rows [W | c]
SIZE = 18 * ROW
EXTRA = 6  # column of p and c
RESPONSE = 12 * ROW  # rows [X | r], [Y | r]
SCRATCH = 18 * ROW  # what a solution needs beside
LARGEST_FACTOR = 64.0  # sum of the largest factors of the six steps of an elimination without exchanges

_UNITS = np.eye(6, ROW).ravel()
_EXTRA = np.eye(1, ROW, EXTRA).ravel()

Floats = npt.NDArray[np.float64]


def matrices(block: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Handle equations as matrices (I [6, 6], E [6, 6], W [6, 6], p [6], c [6]), for inspection and tests.

    Parameters
    ----------
    block : array [SIZE]
        Handle equations in the flat form.
    """
    rows = block.reshape(18, ROW)
    i, e, w = rows[:6, :6], rows[6:12, :6], rows[12:, :6]
    return i.copy(), e.copy(), w.copy(), rows[:6, EXTRA].copy(), rows[12:, EXTRA].copy()


@kernel(inline=True)
def _times(a, base, rows):
    """Six numbers of an array, the entries of a row, times six rows: a row of the product."""
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
def _six_rows(a, base):
    return (
        load_row(a, base),
        load_row(a, base + ROW),
        load_row(a, base + 2 * ROW),
        load_row(a, base + 3 * ROW),
        load_row(a, base + 4 * ROW),
        load_row(a, base + 5 * ROW),
    )


@kernel
def _solve(a, x, columns):
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
def _write_six(a, base, rows):
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
def _six_cleared(a, x, y, two_handles):
    """Eliminate in registers, without exchanges: solutions x and y, and the sum of the largest factors of the steps."""
    a, x, y, f0 = _clear(0, a, x, y, two_handles)
    a, x, y, f1 = _clear(1, a, x, y, two_handles)
    a, x, y, f2 = _clear(2, a, x, y, two_handles)
    a, x, y, f3 = _clear(3, a, x, y, two_handles)
    a, x, y, f4 = _clear(4, a, x, y, two_handles)
    a, x, y, f5 = _clear(5, a, x, y, two_handles)
    return x, y, f0 + f1 + f2 + f3 + f4 + f5


@kernel(inline=True)
def _products(a, base, rows):
    return (
        _times(a, base, rows),
        _times(a, base + ROW, rows),
        _times(a, base + 2 * ROW, rows),
        _times(a, base + 3 * ROW, rows),
        _times(a, base + 4 * ROW, rows),
        _times(a, base + 5 * ROW, rows),
    )


@kernel(inline=True)
def _sums(a, b):
    low = (add_row(a[0], b[0]), add_row(a[1], b[1]), add_row(a[2], b[2]))
    return low + (add_row(a[3], b[3]), add_row(a[4], b[4]), add_row(a[5], b[5]))


@kernel(inline=True)
def _extras(a, b):
    """The difference of six rows in the column of p and c alone."""
    extra = load_row(_EXTRA, 0)
    return (
        multiply_rows(extra, _less(a[0], 1.0, b[0])),
        multiply_rows(extra, _less(a[1], 1.0, b[1])),
        multiply_rows(extra, _less(a[2], 1.0, b[2])),
        multiply_rows(extra, _less(a[3], 1.0, b[3])),
        multiply_rows(extra, _less(a[4], 1.0, b[4])),
        multiply_rows(extra, _less(a[5], 1.0, b[5])),
    )


@kernel
def respond(left, right, response, scratch, two_handles):
    """Find the response of the shared acceleration: a = X A1 + r + Y f2 [design, section 3; Critchley 2007, eq. 53-71].

    Parameters
    ----------
    left, right : array [SIZE]
    response : array [RESPONSE]
        Written: rows [X | r] and, with two handles, [Y | r].
    scratch : array [SCRATCH]
        Overwritten.
    two_handles : bool
        Whether there is something outboard of the right.
    """
    # W_L [I_R | p_R]
    product = _products(left, COMPLIANCE, _six_rows(right, INERTIA))
    r = _extras(_six_rows(left, COMPLIANCE), product)
    matrix = _sums(product, _six_rows(_UNITS, 0))
    x = _sums(transposed_rows(eight_rows(_six_rows(left, TRANSFER))), r)
    y = x
    if two_handles:
        y = _sums(_products(left, COMPLIANCE, _six_rows(right, TRANSFER)), r)
    near, far, factor = _six_cleared(matrix, x, y, two_handles)
    if factor <= LARGEST_FACTOR:
        _write_six(response, 0, near)
        if two_handles:
            _write_six(response, 6 * ROW, far)
        return
    # Rounding would grow by the factors, which are of order one for most bodies: with exchanges they are at most one.
    _write_six(scratch, 0, matrix)
    _write_six(response, 0, x)
    if two_handles:
        _write_six(response, 6 * ROW, y)
    _solve(scratch, response, 2 if two_handles else 1)


@kernel(inline=True)
def _symmetric_row(row, across, extra):
    return add_row(scale_row(0.5, add_row(row, across)), scale_row(0.5, multiply_rows(extra, row)))


@kernel(inline=True)
def _symmetric(rows):
    """Six rows with their first six columns made symmetric; the column of p and c stays."""
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
def _transposed_products(a, base, rows):
    return (
        _transposed_times(a, base, rows),
        _transposed_times(a, base + 1, rows),
        _transposed_times(a, base + 2, rows),
        _transposed_times(a, base + 3, rows),
        _transposed_times(a, base + 4, rows),
        _transposed_times(a, base + 5, rows),
    )


@kernel
def combine(left, right, response, out, two_handles):
    """Join two neighbours into one, given the response of what they share; arguments as in `respond`.

    Parameters
    ----------
    out : array [SIZE]
        Written; may be `left` or `right`. With nothing outboard only I and p are, and the rest is left as it is.
    """
    # [I_L | p_L] + E_L (I_R [X | r] + [0 | p_R])
    load = _products(right, INERTIA, _six_rows(response, 0))
    zero = scale_row(0.0, load_row(_EXTRA, 0))
    load = _sums(load, _extras(_six_rows(right, INERTIA), (zero, zero, zero, zero, zero, zero)))
    near = _symmetric(_sums(_six_rows(left, INERTIA), _products(left, TRANSFER, load)))
    if two_handles:
        # X^T E_R,  [W_R | c_R] + E_R^T [Y | r]
        transfer = _transposed_products(response, 0, _six_rows(right, TRANSFER))
        far = _transposed_products(right, TRANSFER, _six_rows(response, 6 * ROW))
        far = _symmetric(_sums(_six_rows(right, COMPLIANCE), far))
        _write_six(out, TRANSFER, transfer)
        _write_six(out, COMPLIANCE, far)
    _write_six(out, INERTIA, near)


@kernel
def between(right, response, acceleration, load, shared_acceleration, shared_load):
    """Find acceleration and load at the point that two neighbours share, from A1 of the left and f2 of the right.

    Parameters
    ----------
    right : array [SIZE]
    response : array [RESPONSE]
        As `respond` gave it; with nothing outboard of the right, rows 6 to 11 are not read: f2 = 0 then.
    acceleration, load : array [6]
        A1 of the left (rad/s^2, m/s^2), f2 of the right (N m, N).
    shared_acceleration, shared_load : array [6]
        Written: A2 of the left = A1 of the right, and f2 of the left. Neither may be a given one.
    """
    loaded = False
    for i in range(6):
        loaded = loaded or load[i] != 0.0
    for i in range(6):
        s = response[i * ROW + EXTRA]
        for k in range(6):
            s += response[i * ROW + k] * acceleration[k]
        shared_acceleration[i] = s
        shared_load[i] = -right[INERTIA + i * ROW + EXTRA]
    if loaded:
        for i in range(6):
            s = shared_acceleration[i]
            t = shared_load[i]
            for k in range(6):
                s += response[(6 + i) * ROW + k] * load[k]
                t += right[TRANSFER + i * ROW + k] * load[k]
            shared_acceleration[i] = s
            shared_load[i] = t
    for i in range(6):
        t = shared_load[i]
        for k in range(6):
            t -= right[INERTIA + i * ROW + k] * shared_acceleration[k]
        shared_load[i] = t


@kernel
def join(left, right, out, response, scratch):
    """Join the handle equations of two neighbours into those of both, and keep the response of what they share.

    Parameters
    ----------
    left, right, out : array [SIZE]
        `out` may be one of the others.
    response, scratch : array [RESPONSE], [SCRATCH]
        Written.
    """
    respond(left, right, response, scratch, True)
    combine(left, right, response, out, True)
