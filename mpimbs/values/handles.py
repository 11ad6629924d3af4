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

from mpimbs.base.arrays import Floats
from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import span
from mpimbs.spatial.rows import ROW, eight_rows, transposed_rows
from mpimbs.spatial.six import (
    EXTRA,
    LARGEST_FACTOR,
    UNITS,
    eliminated,
    extra_differences,
    extras,
    products,
    six_rows,
    solve_with_exchanges,
    sums,
    symmetric,
    transposed_products,
    write_six,
)

INERTIA = 0  # rows [I | p]
TRANSFER = 6 * ROW  # rows [E]
COMPLIANCE = 12 * ROW  # rows [W | c]
SIZE = 18 * ROW
RESPONSE = 12 * ROW  # rows [X | r], [Y | r]
SCRATCH = 18 * ROW  # what a solution needs beside


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
    product = products(left, COMPLIANCE, six_rows(right, INERTIA))
    r = extra_differences(six_rows(left, COMPLIANCE), product)
    matrix = sums(product, six_rows(UNITS, 0))
    x = sums(transposed_rows(eight_rows(six_rows(left, TRANSFER))), r)
    y = x
    if two_handles:
        y = sums(products(left, COMPLIANCE, six_rows(right, TRANSFER)), r)
    near, far, factor = eliminated(matrix, x, y, two_handles)
    if factor <= LARGEST_FACTOR:
        write_six(response, 0, near)
        if two_handles:
            write_six(response, 6 * ROW, far)
        return
    # Rounding would grow by the factors, which are of order one for most bodies: with exchanges they are at most one.
    write_six(scratch, 0, matrix)
    write_six(response, 0, x)
    if two_handles:
        write_six(response, 6 * ROW, y)
    solve_with_exchanges(scratch, response, 2 if two_handles else 1)


@kernel
def combine(left, right, response, out, two_handles):
    """Join two neighbours into one, given the response of what they share; arguments as in `respond`.

    Parameters
    ----------
    out : array [SIZE]
        Written; may be `left` or `right`. With nothing outboard only I and p are, and the rest is left as it is.
    """
    # [I_L | p_L] + E_L (I_R [X | r] + [0 | p_R])
    load = products(right, INERTIA, six_rows(response, 0))
    load = sums(load, extras(six_rows(right, INERTIA)))
    near = symmetric(sums(six_rows(left, INERTIA), products(left, TRANSFER, load)))
    if two_handles:
        # X^T E_R,  [W_R | c_R] + E_R^T [Y | r]
        transfer = transposed_products(response, 0, six_rows(right, TRANSFER))
        far = transposed_products(right, TRANSFER, six_rows(response, 6 * ROW))
        far = symmetric(sums(six_rows(right, COMPLIANCE), far))
        write_six(out, TRANSFER, transfer)
        write_six(out, COMPLIANCE, far)
    write_six(out, INERTIA, near)


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


@kernel(inline=True)
def item(array, number, size):
    """Give one of a sequence of items of the same size in a flat array."""
    return span(array, number * size, size)


@kernel
def join_to_next(blocks, number, responses, scratch, two_handles):
    """Join one of a sequence of blocks with the next, which already stands for all outboard of it, in its place.

    Parameters
    ----------
    blocks, responses : array [count * SIZE], [count * RESPONSE]
        Of neighbours in sequence; both written at `number`.
    scratch : array [SCRATCH]
    two_handles : bool
        As in `respond`.
    """
    left = item(blocks, number, SIZE)
    right = item(blocks, number + 1, SIZE)
    response = item(responses, number, RESPONSE)
    respond(left, right, response, scratch, two_handles)
    combine(left, right, response, left, two_handles)


@kernel
def spread_loads(blocks, responses, outer, loads):
    """Find A1 and f2 of neighbours in sequence that `join_to_next` has joined, from those of all together.

    Parameters
    ----------
    blocks, responses : array [count * SIZE], [count * RESPONSE]
        As the joins left them.
    outer : array [12]
        A1 and f2 of all together (rad/s^2, m/s^2; N m, N).
    loads : array [count * 12]
        Written: A1 and f2 of each.
    """
    count = blocks.size // SIZE
    load = outer[6:12]
    for i in range(6):
        loads[i] = outer[i]
        loads[12 * count - 6 + i] = load[i]
    for k in range(count - 1):
        at = 12 * k
        right = item(blocks, k + 1, SIZE)
        response = item(responses, k, RESPONSE)
        between(right, response, span(loads, at, 6), load, span(loads, at + 12, 6), span(loads, at + 6, 6))
