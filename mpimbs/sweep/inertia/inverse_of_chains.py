"""The inverse of the inertia matrix of a chain, as cheap as the matrix: it is semi-separable.

A unit force on freedom j leaves the acceleration y_j of its body, which reaches those outboard by the products of what
joints let through; of freedom i beyond, in the letters of the sweeps,

    M^-1_ij = g_i^T Psi_(i-1) ... Psi_(j+1) y_j      Psi = (1 - S U^T / D) X,    g_i^T = -U^T X / D,    i > j

V is how the acceleration before a joint answers to loads there: 0 at the root, and

    z = V U,  k = U^T z,  M^-1_jj = (1 + k / D) / D,  y = S M^-1_jj - z / D
    V <- X (V - z z^T / (D + k) + y y^T / M^-1_jj) X^T

Of blocks of freedoms, y is taken to the end of its block, and g to the begin of its own: what is left is a product of
two matrices with six in common, as of the matrix itself.
"""

from __future__ import annotations

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.tuples import load3, load6, load9, store_numbers
from mpimbs.spatial.inertia import add_outer, apply, inertia_inward
from mpimbs.spatial.rows import ROW, add_row, load_row, scale_row, transposed_rows, unit_rows, write_row
from mpimbs.spatial.six import six_rows, weighted, write_six
from mpimbs.spatial.vectors import add_along, dot6, rotate, scale3, scale6, transpose
from mpimbs.sweep.inertia.inertia_rows import (
    BLOCK_ROWS,
    BLOCK_SIDE,
    is_streamed,
    products_of_eight,
    write_block,
    write_tile,
)
from mpimbs.sweep.inward import mix, rows_inward
from mpimbs.sweep.structure import FIRST_U, LAST_U, PIVOT, PLACE

_MATRIX = 6 * ROW


@kernel(inline=True)
def _rows_outward(r, p, a):
    """Accelerations by columns, taken to the next frame: `motion_outward` of every column."""
    v0 = add_row(a[3], add_row(scale_row(p[2], a[1]), scale_row(-p[1], a[2])))
    v1 = add_row(a[4], add_row(scale_row(p[0], a[2]), scale_row(-p[2], a[0])))
    v2 = add_row(a[5], add_row(scale_row(p[1], a[0]), scale_row(-p[0], a[1])))
    return (
        mix(r[0], a[0], r[1], a[1], r[2], a[2]),
        mix(r[3], a[0], r[4], a[1], r[5], a[2]),
        mix(r[6], a[0], r[7], a[1], r[8], a[2]),
        mix(r[0], v0, r[1], v1, r[2], v2),
        mix(r[3], v0, r[4], v1, r[5], v2),
        mix(r[6], v0, r[7], v1, r[8], v2),
    )


@kernel(inline=True)
def _add_along_row(array, at, axis, pitch, x):
    """Add S x to accelerations by columns, in place."""
    write_row(array, at + axis * ROW, add_row(load_row(array, at + axis * ROW), x))
    if axis < 3:
        other = at + (axis + 3) * ROW
        write_row(array, other, add_row(load_row(array, other), scale_row(pitch, x)))


@kernel(inline=True)
def _let_through(structure, work, d, a):
    """Take accelerations by columns past a freedom, in place; gives the freedom's own."""
    base = d * PIVOT
    x = scale_row(-work.pivot[base + 6], weighted(work.pivot, base, six_rows(a, 0)))
    _add_along_row(a, 0, structure.axes[d], structure.pitch[d], x)
    return x


@kernel(inline=True)
def _moved_on(work, step, a):
    r, p = load9(0.0, work.place, step * PLACE), load3(0.0, work.place, step * PLACE + 9)
    write_six(a, 0, _rows_outward(r, p, six_rows(a, 0)))


@kernel
def _responses(structure, work, y, diagonal):
    """Write y [n * ROW] and the diagonal [n]."""
    o = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    v = o + o + o + (0.0, 0.0, 0.0)  # velocities first
    for step in range(structure.steps.shape[0]):
        r, p = load9(0.0, work.place, step * PLACE), load3(0.0, work.place, step * PLACE + 9)
        v = inertia_inward(transpose(r), scale3(-1.0, rotate(r, p)), v)
        for d in range(structure.steps[step, FIRST_U], structure.steps[step, LAST_U]):
            u, reciprocal = load6(0.0, work.pivot, d * PIVOT), work.pivot[d * PIVOT + 6]
            u = u[3:6] + u[0:3]
            z = apply(v, u)
            k = dot6(u, z)
            x = (1.0 + k * reciprocal) * reciprocal
            axis = structure.axes[d]
            s = scale6(-reciprocal, z[3:6] + z[0:3])
            s = add_along(s, axis, structure.pitch[d], x)
            store_numbers(0.0, y, d * ROW, s)
            diagonal[d] = x
            v = add_outer(add_outer(v, -reciprocal / (1.0 + k * reciprocal), z), 1.0 / x, s[3:6] + s[0:3])


@kernel
def _factors(structure, work, y, g, taken, through, a):
    """Write g of all freedoms from the begins of their blocks, and what these let through; y taken to their ends."""
    steps = structure.steps
    write_six(a, 0, unit_rows(0.0, 0))
    for step in range(steps.shape[0]):
        first, last = steps[step, FIRST_U], steps[step, LAST_U]
        for d in range(first, last):
            if d % BLOCK_ROWS == 0 and d > 0:
                for i in range(_MATRIX):
                    through[(d // BLOCK_ROWS - 1) * _MATRIX + i] = a[i]
                write_six(a, 0, unit_rows(0.0, 0))
            if d == first:
                _moved_on(work, step, a)
            write_row(taken, 0, _let_through(structure, work, d, a))
            at = d // BLOCK_ROWS * BLOCK_SIDE + d % BLOCK_ROWS
            for k in range(6):
                g[at + k * BLOCK_ROWS] = taken[k]
        if first == last:
            _moved_on(work, step, a)
    e = unit_rows(0.0, 0)
    for step in range(steps.shape[0] - 1, -1, -1):
        r, p = load9(0.0, work.place, step * PLACE), load3(0.0, work.place, step * PLACE + 9)
        first, last = steps[step, FIRST_U], steps[step, LAST_U]
        for d in range(last - 1, first - 1, -1):
            if d % BLOCK_ROWS == BLOCK_ROWS - 1:
                e = unit_rows(0.0, 0)
            write_six(a, 0, e)
            base = d * PIVOT
            write_row(a, _MATRIX, weighted(y, d * ROW, e))
            at = d // BLOCK_ROWS * BLOCK_SIDE + d % BLOCK_ROWS
            for k in range(6):
                taken[at + k * BLOCK_ROWS] = a[_MATRIX + k]
            axis = structure.axes[d]
            s = load_row(a, axis * ROW)
            if axis < 3:
                s = add_row(s, scale_row(structure.pitch[d], load_row(a, (axis + 3) * ROW)))
            s = scale_row(-work.pivot[base + 6], s)
            u = load6(0.0, work.pivot, base)
            e = (
                add_row(e[0], scale_row(u[0], s)),
                add_row(e[1], scale_row(u[1], s)),
                add_row(e[2], scale_row(u[2], s)),
                add_row(e[3], scale_row(u[3], s)),
                add_row(e[4], scale_row(u[4], s)),
                add_row(e[5], scale_row(u[5], s)),
            )
        e = rows_inward(r, p, e)


@kernel
def _within(structure, work, where, y, diagonal, begin, end, n, a, room, out):
    """Write the numbers of the freedoms begin to end - 1 with one another; `where` [n] are their steps."""
    for j in range(begin, end, ROW):
        for i in range(_MATRIX):
            a[i] = 0.0
        step = where[j]
        for d in range(j, end):
            if where[d] != step or d == j:
                for between in range(step + 1 if d > j else where[d], where[d] + 1):
                    _moved_on(work, between, a)
                step = where[d]
            write_row(room, (d - j) * ROW, _let_through(structure, work, d, a))
            if d < j + ROW:
                room[(d - j) * ROW + d - j] = diagonal[d]
                for k in range(6):
                    a[k * ROW + d - j] = y[d * ROW + k]
        wide = min(ROW, end - j)
        for d in range(j, min(j + ROW, end)):
            for c in range(d - j + 1):
                out[d * n + j + c] = room[(d - j) * ROW + c]
                out[(j + c) * n + d] = room[(d - j) * ROW + c]
        for d in range(j + ROW, end - ROW + 1, ROW):
            tile = (
                load_row(room, (d - j) * ROW),
                load_row(room, (d - j + 1) * ROW),
                load_row(room, (d - j + 2) * ROW),
                load_row(room, (d - j + 3) * ROW),
                load_row(room, (d - j + 4) * ROW),
                load_row(room, (d - j + 5) * ROW),
                load_row(room, (d - j + 6) * ROW),
                load_row(room, (d - j + 7) * ROW),
            )
            write_tile(out, d * n + j, n, tile)
            write_tile(out, j * n + d, n, transposed_rows(tile))
        for d in range(max(j + ROW, end - (end - j) % ROW), end):
            for c in range(wide):
                out[d * n + j + c] = room[(d - j) * ROW + c]
                out[(j + c) * n + d] = room[(d - j) * ROW + c]


@kernel
def _write_last(z, g, room, n, i, j, out):
    """Write the products of a block and the last one, which is not full."""
    for c in range(0, n - j, ROW):
        for r in range(0, BLOCK_ROWS, ROW):
            write_tile(room, 0, ROW, products_of_eight(z, r, BLOCK_ROWS, g, c))
            for k in range(ROW):
                for m in range(min(ROW, n - j - c)):
                    out[(i + r + k) * n + j + c + m] = room[k * ROW + m]
                    out[(j + c + m) * n + i + r + k] = room[k * ROW + m]


@kernel
def inverse_of_chain(structure, work, where, y, diagonal, g, ends, through, a, room, out):
    """Write the inverse [n * n] of the inertia matrix of a chain on the world, after `sweep.loads.factor`.

    Parameters
    ----------
    where : array [n]
        The step of each degree of freedom.
    y, diagonal, g, ends, through, a, room : array
        Room: [n * ROW], [n], for each block that is begun twice
        BLOCK_SIDE and 6 ROW, [12 ROW], [BLOCK_ROWS * BLOCK_ROWS].
    """
    n = structure.axes.size
    streamed = is_streamed(out, n)
    _responses(structure, work, y, diagonal)
    _factors(structure, work, y, g, ends, through, a)
    for begin in range(0, n, BLOCK_ROWS):
        end = min(begin + BLOCK_ROWS, n)
        _within(structure, work, where, y, diagonal, begin, end, n, a, room, out)
        z = ends[begin // BLOCK_ROWS * BLOCK_SIDE : (begin // BLOCK_ROWS + 1) * BLOCK_SIDE]
        for j in range(end, n, BLOCK_ROWS):
            block = j // BLOCK_ROWS
            load = g[block * BLOCK_SIDE : (block + 1) * BLOCK_SIDE]
            if j + BLOCK_ROWS <= n:
                write_block(z, load, 0, n, n, begin, BLOCK_ROWS, j, BLOCK_ROWS, out, streamed)
                for c in range(0, BLOCK_ROWS, ROW):
                    six = six_rows(z, c, BLOCK_ROWS)
                    for k in range(6):
                        write_row(z, k * BLOCK_ROWS + c, weighted(through, block * _MATRIX + k * ROW, six))
            else:
                _write_last(z, load, room, n, begin, j, out)
