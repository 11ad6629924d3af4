"""Loads of neighbours whose handle equations are joined already: what `handles.join` does to p and c alone.

With I, E, W of the left L and the right R, the response X A1 + Y f2 of what they share, and N = (1 + W_L I_R)^-1:

    g = p_R + I_R c_L        h = N^T g              r = c_L - W_L h
    p = p_L + X^T g          c = c_R + E_R^T r

and, once A1 of the left and f2 of the right are known, for acceleration and load at the point that they share

    a = r + X A1 + Y f2      f = -h - I_R X A1 + N^T E_R f2

All matrices are kept as the rows that vectors are summed up by. Vectors are rows of eight numbers, in pairs: (p, c),
(h, r), (A1, f2).
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import assign, span
from mpimbs.spatial.rows import ROW, add_row, eight_rows, load_row, scale_row, transposed_rows, write_row
from mpimbs.spatial.six import UNITS, products, six_rows, transposed_products, weighted, write_six
from mpimbs.values.handles import COMPLIANCE, INERTIA, TRANSFER, respond

PAIR = 2 * ROW  # numbers of two vectors
_SIX = 6 * ROW
# Where the matrices of a join are kept; the last of the first ones is the end of what one handle takes.
_INERTIA, _COMPLIANCE, _NEAR, _LOADED, _MOVED, _PULLED, _TRANSFER, _FAR, _HELD, LOADS_JOINED = range(0, 10 * _SIX, _SIX)


@kernel(inline=True)
def _write_transposed(kept, at, rows):
    across = transposed_rows(eight_rows(rows))
    write_six(kept, at, across[0:6])


@kernel
def keep_join(left, right, response, copy, scratch, kept, two_handles):
    """Keep what a join does to loads.

    Parameters
    ----------
    left, right : array [SIZE]
    response : array [RESPONSE]
        As `respond` gave it of them.
    copy, scratch : array [SIZE], [SCRATCH]
        Overwritten.
    kept : array [LOADS_JOINED]
        Written.
    two_handles : bool
        As in `respond`.
    """
    assign(copy, left)
    write_six(copy, TRANSFER, six_rows(UNITS, 0))
    respond(copy, right, span(kept, _NEAR, _SIX), scratch, False)
    write_six(kept, _INERTIA, six_rows(right, INERTIA))
    write_six(kept, _COMPLIANCE, six_rows(left, COMPLIANCE))
    x = six_rows(response, 0)
    write_six(kept, _LOADED, x)
    _write_transposed(kept, _MOVED, x)
    _write_transposed(kept, _PULLED, products(right, INERTIA, x))
    if two_handles:
        transfer = six_rows(right, TRANSFER)
        write_six(kept, _TRANSFER, transfer)
        _write_transposed(kept, _FAR, six_rows(response, _SIX))
        _write_transposed(kept, _HELD, transposed_products(kept, _NEAR, transfer))


@kernel(inline=True)
def _summed(vector, at, matrix, rows):
    """Sum of the six rows of a matrix, times the numbers of a vector."""
    return weighted(vector, at, six_rows(matrix, rows))


@kernel
def join_loads(left, right, kept, between, out, two_handles):
    """Join the loads of two neighbours into those of both.

    Parameters
    ----------
    left, right : array [PAIR]
        p and c.
    kept : array [LOADS_JOINED]
        Of `keep_join`.
    between : array [PAIR]
        Written: h and r.
    out : array [PAIR]
        Written; may be `left` or `right`. Without handle 2, c is not.
    """
    own, moved = load_row(left, 0), load_row(left, ROW)
    far = load_row(right, ROW)
    write_row(between, 0, add_row(load_row(right, 0), _summed(left, ROW, kept, _INERTIA)))
    write_row(out, 0, add_row(own, _summed(between, 0, kept, _LOADED)))
    write_row(between, 0, _summed(between, 0, kept, _NEAR))
    write_row(between, ROW, add_row(moved, scale_row(-1.0, _summed(between, 0, kept, _COMPLIANCE))))
    if two_handles:
        write_row(out, ROW, add_row(far, _summed(between, ROW, kept, _TRANSFER)))


@kernel
def part_loads(kept, between, acceleration, load, shared_acceleration, shared_load, two_handles):
    """Find acceleration and load at the point that two neighbours share, from A1 of the left and f2 of the right.

    Parameters
    ----------
    kept, between : array [LOADS_JOINED], [PAIR]
        As `keep_join` and `join_loads` left them.
    acceleration, load : array [ROW]
    shared_acceleration, shared_load : array [ROW]
        Written. Neither may be a given one.
    two_handles : bool
        Whether f2 may not vanish.
    """
    a = add_row(load_row(between, ROW), _summed(acceleration, 0, kept, _MOVED))
    f = scale_row(-1.0, add_row(load_row(between, 0), _summed(acceleration, 0, kept, _PULLED)))
    if two_handles:
        a = add_row(a, _summed(load, 0, kept, _FAR))
        f = add_row(f, _summed(load, 0, kept, _HELD))
    write_row(shared_acceleration, 0, a)
    write_row(shared_load, 0, f)
