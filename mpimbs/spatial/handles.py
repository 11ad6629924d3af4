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
from mpimbs.spatial.rows import ROW, add_row, eight_rows, load_row, scale_row, transposed_rows, write_row

INERTIA = 0  # rows [I | p]
TRANSFER = 6 * ROW  # rows [E]
COMPLIANCE = 12 * ROW  # rows [W | c]
SIZE = 18 * ROW
EXTRA = 6  # column of p and c
RESPONSE = 12 * ROW  # rows [X | r], [Y | r]
SCRATCH = 18 * ROW  # what a solution needs beside

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
    inertia = _six_rows(right, INERTIA)
    transfer = transposed_rows(eight_rows(_six_rows(left, TRANSFER)))
    for i in range(6):
        # W_L [I_R | p_R]
        row = _times(left, COMPLIANCE + i * ROW, inertia)
        write_row(scratch, i * ROW, row)
        write_row(response, i * ROW, transfer[i])
        response[i * ROW + EXTRA] = left[COMPLIANCE + i * ROW + EXTRA] - scratch[i * ROW + EXTRA]
        scratch[i * ROW + i] += 1.0
    if two_handles:
        outer = _six_rows(right, TRANSFER)
        for i in range(6):
            write_row(response, (6 + i) * ROW, _times(left, COMPLIANCE + i * ROW, outer))
            response[(6 + i) * ROW + EXTRA] = response[i * ROW + EXTRA]
        _solve(scratch, response, 2)
    else:
        _solve(scratch, response, 1)


@kernel(inline=True)
def _make_symmetric(a, base):
    for i in range(6):
        for j in range(i + 1, 6):
            mean = 0.5 * (a[base + i * ROW + j] + a[base + j * ROW + i])
            a[base + i * ROW + j] = mean
            a[base + j * ROW + i] = mean


@kernel
def combine(left, right, response, out, scratch, two_handles):
    """Join two neighbours into one, given the response of what they share; arguments as in `respond`.

    Parameters
    ----------
    out : array [SIZE]
        Written; may be `left` or `right`. With nothing outboard only I and p are, and the rest is left as it is.
    """
    x = _six_rows(response, 0)
    # I_R [X | r] + [0 | p_R]
    for i in range(6):
        write_row(scratch, i * ROW, _times(right, INERTIA + i * ROW, x))
        scratch[i * ROW + EXTRA] += right[INERTIA + i * ROW + EXTRA]
    y = _six_rows(scratch, 0)
    for i in range(6):
        row = add_row(load_row(left, INERTIA + i * ROW), _times(left, TRANSFER + i * ROW, y))
        write_row(scratch, (6 + i) * ROW, row)
    if two_handles:
        outer = _six_rows(right, TRANSFER)
        y = _six_rows(response, 6 * ROW)
        for i in range(6):
            row = add_row(load_row(right, COMPLIANCE + i * ROW), _transposed_times(right, TRANSFER + i, y))
            write_row(scratch, i * ROW, row)
            write_row(scratch, (12 + i) * ROW, _transposed_times(response, i, outer))
        for i in range(6):
            write_row(out, TRANSFER + i * ROW, load_row(scratch, (12 + i) * ROW))
            write_row(out, COMPLIANCE + i * ROW, load_row(scratch, i * ROW))
        _make_symmetric(out, COMPLIANCE)
    for i in range(6):
        write_row(out, INERTIA + i * ROW, load_row(scratch, (6 + i) * ROW))
    _make_symmetric(out, INERTIA)


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
    combine(left, right, response, out, scratch, True)
