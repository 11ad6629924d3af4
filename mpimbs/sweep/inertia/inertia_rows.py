"""The inertia matrix from the lines of its degrees of freedom (`sweep.inertia.composite`): M_ij = S_i^T I_j S_j.

Numbers about points far away lose digits. Twists and loads are taken about a point nearby first, one for each block of
`BLOCK_ROWS` degrees of freedom, which all products with the loads of the block share. What is left is a product of two
matrices with six in common, written by registers: eight rows of eight columns, and the same mirrored. The two halves
are the same bits. Registers fill whole cache lines where rows begin with one.
"""

from __future__ import annotations

import numpy as np

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import before_line, span
from mpimbs.spatial.rows import (
    ROW,
    add_row,
    load_row,
    multiply_rows,
    scale_row,
    stream_row,
    transposed_rows,
    write_row,
    zero_row,
)
from mpimbs.spatial.six import six_rows
from mpimbs.spatial.vectors import add3, cross, sub3
from mpimbs.sweep.inertia.composite import FORCE_OF, MOMENT_OF, POINT, SHIFT_OF, TURN_OF

BLOCK_ROWS = 64  # degrees of freedom whose loads are taken about one point; a multiple of ROW
BLOCK_SIDE = 6 * BLOCK_ROWS  # numbers that a block has of either factor: those of each of the six side by side
ROOM = 2 * BLOCK_SIDE + ROW * ROW  # numbers that `inertia_rows` needs beside
_HALF = (np.triu(np.ones((ROW, ROW))) - 0.5 * np.eye(ROW)).ravel()  # above the diagonal, and half of this
_CACHED = 2**22  # doubles that a last-level cache of today holds; what is larger is written past it


@kernel(inline=True)
def _point(lines, pitch, number, d):
    """Three numbers of one line."""
    at = number * pitch + d
    return (lines[at], lines[at + pitch], lines[at + 2 * pitch])


@kernel(inline=True)
def _three(lines, pitch, number, d):
    """Three numbers of eight lines, from line d on."""
    at = number * pitch + d
    return (load_row(lines, at), load_row(lines, at + pitch), load_row(lines, at + 2 * pitch))


@kernel(inline=True)
def _write_three(out, at, spacing, rows):
    write_row(out, at, rows[0])
    write_row(out, at + spacing, rows[1])
    write_row(out, at + 2 * spacing, rows[2])


@kernel(inline=True)
def _twists_about(lines, pitch, d, point, out, at, spacing):
    """Twists of eight lines about a point: the velocity there is v + w x (point - p)."""
    w = _three(lines, pitch, TURN_OF, d)
    arm = sub3(point, _three(lines, pitch, POINT, d))
    _write_three(out, at, spacing, w)
    _write_three(out, at + 3 * spacing, spacing, add3(_three(lines, pitch, SHIFT_OF, d), cross(w, arm)))


@kernel(inline=True)
def _loads_about(lines, pitch, d, point, out, at, spacing):
    """Loads of eight lines about a point: the moment there is n + (p - point) x f."""
    f = _three(lines, pitch, FORCE_OF, d)
    arm = sub3(_three(lines, pitch, POINT, d), point)
    _write_three(out, at, spacing, add3(_three(lines, pitch, MOMENT_OF, d), cross(arm, f)))
    _write_three(out, at + 3 * spacing, spacing, f)


@kernel(inline=True)
def _products(factors, at, spacing, rows):
    """Sum of six rows, each times a number."""
    total = scale_row(factors[at], rows[0])
    total = add_row(scale_row(factors[at + spacing], rows[1]), total)
    total = add_row(scale_row(factors[at + 2 * spacing], rows[2]), total)
    total = add_row(scale_row(factors[at + 3 * spacing], rows[3]), total)
    total = add_row(scale_row(factors[at + 4 * spacing], rows[4]), total)
    return add_row(scale_row(factors[at + 5 * spacing], rows[5]), total)


@kernel(inline=True)
def products_of_eight(twists, twist_at, spacing, loads, load_at):
    """Products of eight twists, `spacing` numbers from one of their six to the next, and of eight loads: eight rows."""
    six = six_rows(loads, load_at, BLOCK_ROWS)
    return (
        _products(twists, twist_at, spacing, six),
        _products(twists, twist_at + 1, spacing, six),
        _products(twists, twist_at + 2, spacing, six),
        _products(twists, twist_at + 3, spacing, six),
        _products(twists, twist_at + 4, spacing, six),
        _products(twists, twist_at + 5, spacing, six),
        _products(twists, twist_at + 6, spacing, six),
        _products(twists, twist_at + 7, spacing, six),
    )


@kernel(inline=True)
def write_tile(array, at, spacing, tile):
    """Write eight rows, so many numbers from one to the next."""
    write_row(array, at, tile[0])
    write_row(array, at + spacing, tile[1])
    write_row(array, at + 2 * spacing, tile[2])
    write_row(array, at + 3 * spacing, tile[3])
    write_row(array, at + 4 * spacing, tile[4])
    write_row(array, at + 5 * spacing, tile[5])
    write_row(array, at + 6 * spacing, tile[6])
    write_row(array, at + 7 * spacing, tile[7])


@kernel(inline=True)
def _chosen(related, at, spacing, tile):
    """Eight rows, each number times one of `related`."""
    return (
        multiply_rows(load_row(related, at), tile[0]),
        multiply_rows(load_row(related, at + spacing), tile[1]),
        multiply_rows(load_row(related, at + 2 * spacing), tile[2]),
        multiply_rows(load_row(related, at + 3 * spacing), tile[3]),
        multiply_rows(load_row(related, at + 4 * spacing), tile[4]),
        multiply_rows(load_row(related, at + 5 * spacing), tile[5]),
        multiply_rows(load_row(related, at + 6 * spacing), tile[6]),
        multiply_rows(load_row(related, at + 7 * spacing), tile[7]),
    )


@kernel(inline=True)
def _added(a, b):
    return (
        add_row(a[0], b[0]),
        add_row(a[1], b[1]),
        add_row(a[2], b[2]),
        add_row(a[3], b[3]),
        add_row(a[4], b[4]),
        add_row(a[5], b[5]),
        add_row(a[6], b[6]),
        add_row(a[7], b[7]),
    )


@kernel(inline=True)
def _stream_tile(array, at, spacing, tile):
    """As `write_tile`, past the caches."""
    stream_row(array, at, tile[0])
    stream_row(array, at + spacing, tile[1])
    stream_row(array, at + 2 * spacing, tile[2])
    stream_row(array, at + 3 * spacing, tile[3])
    stream_row(array, at + 4 * spacing, tile[4])
    stream_row(array, at + 5 * spacing, tile[5])
    stream_row(array, at + 6 * spacing, tile[6])
    stream_row(array, at + 7 * spacing, tile[7])


@kernel(inline=True)
def is_streamed(out, n):
    """Whether rows of n numbers are written past the caches: more than these hold, and each begins with a line."""
    return out.size > _CACHED and n % ROW == 0 and before_line(out) == 0


@kernel(inline=True)
def _put_tile(array, at, spacing, tile, streamed):
    if streamed:
        _stream_tile(array, at, spacing, tile)
    else:
        write_tile(array, at, spacing, tile)


@kernel
def write_block(twists, loads, first, last, n, i, rows, j, columns, out, streamed):
    """Write the products of two blocks' twists and loads, in rows from i and columns from j on, and the same mirrored.

    Each where these are rows of `first` to `last`. The numbers of rows and columns are multiples of ROW. The two may be
    the same block. What is next to another in memory is written one after the other.
    """
    along, across = first <= i < last, first <= j < last
    outer, inner = (columns, rows) if across else (rows, columns)
    for one in range(0, outer, ROW):
        for other in range(0, one if i == j else inner, ROW):
            r, c = (other, one) if across else (one, other)
            tile = products_of_eight(twists, r, BLOCK_ROWS, loads, c)
            if along:
                _put_tile(out, (i + r - first) * n + j + c, n, tile, streamed)
            if across:
                _put_tile(out, (j + c - first) * n + i + r, n, transposed_rows(tile), streamed)
        if i == j:
            tile = _chosen(_HALF, 0, ROW, products_of_eight(twists, one, BLOCK_ROWS, loads, one))
            _put_tile(out, (i + one - first) * n + j + one, n, _added(tile, transposed_rows(tile)), streamed)


@kernel(inline=True)
def _write_eight(tile, first, last, n, i, j, out):
    """Write eight numbers of each of the rows i to i + 7 of the matrix, from column j on, that are ours."""
    if first <= i and i + ROW <= last:
        write_tile(out, (i - first) * n + j, n, tile)
    else:
        for r in range(ROW):
            if first <= i + r < last:
                write_row(out, (i - first + r) * n + j, tile[r])


@kernel
def _write_products(twists, loads, at, first, last, n, i, j, out):
    """Write the products of eight twists and eight loads, and the same mirrored."""
    tile = products_of_eight(twists, 0, ROW, loads, at)
    if i < last and i + ROW > first:
        _write_eight(tile, first, last, n, i, j, out)
    if j < last and j + ROW > first:
        _write_eight(transposed_rows(tile), first, last, n, j, i, out)


@kernel(inline=True)
def _write_nothing(first, last, n, i, j, out):
    for r in range(max(i, first), min(i + ROW, last)):
        write_row(out, (r - first) * n + j, zero_row(0.0))


@kernel
def _write_corner(twists, loads, at, room, ends, first, last, n, i, j, out):
    """Write eight by eight numbers one by one: on the diagonal, at the ends, and where not all are of one branch."""
    write_tile(room, 0, ROW, products_of_eight(twists, 0, ROW, loads, at))
    for r in range(min(ROW, n - i)):
        row, end = i + r, ends[i + r]
        for c in range(max(0, row - j), min(ROW, n - j)):
            column = j + c
            number = room[r * ROW + c] if column < end else 0.0
            if first <= row < last:
                out[(row - first) * n + column] = number
            if first <= column < last:
                out[(column - first) * n + row] = number


@kernel
def _write_looped_tiles(lines, pitch, ends, point, room, first, last, n, i, behind, begin, end, out):
    """Write rows i to behind - 1 in columns `begin` to `end` - 1, and the same mirrored: any two blocks.

    Eight by eight numbers; those beyond either block are written again, with others.
    """
    loads, twists, corner = room[0:BLOCK_SIDE], room[BLOCK_SIDE : 2 * BLOCK_SIDE], room[2 * BLOCK_SIDE :]
    while i < behind:
        least, most = n, 0
        _twists_about(lines, pitch, i, point, twists, 0, ROW)
        for r in range(min(ROW, n - i)):
            least, most = min(least, ends[i + r]), max(most, ends[i + r])
        for j in range(max(begin, i), end, ROW):
            if j >= i + ROW and j + ROW <= n and least >= j + ROW:
                _write_products(twists, loads, j - begin, first, last, n, i, j, out)
            elif j >= i + ROW and j + ROW <= n and most <= j:
                _write_nothing(first, last, n, i, j, out)
                _write_nothing(first, last, n, j, i, out)
            else:
                _write_corner(twists, loads, j - begin, corner, ends, first, last, n, i, j, out)
        i += ROW


@kernel(inline=True)
def _is_full(ends, i, behind, begin, end):
    """Whether the blocks of i to behind - 1 and `begin` to `end` - 1 have whole tiles, and all are of one branch."""
    least = end
    for row in range(i, behind):
        least = min(least, ends[row])
    return least == end and (behind - i) % ROW == 0 and (end - begin) % ROW == 0


@kernel
def inertia_rows(lines, pitch, ends, blocks, armature, first, last, n, out, room):
    """Write rows of the inertia matrix.

    Parameters
    ----------
    lines : array [LINE * pitch]
        Of all n degrees of freedom of the system, depth first; then zeros.
    pitch : int
        A multiple of ROW, n + ROW - 1 at the least; n, where all blocks begin at multiples of ROW.
    ends : array [pitch]
        Behind the last degree of freedom that moves with each.
    blocks : array [b + 1]
        Where blocks of no more than BLOCK_ROWS begin, and n; `first` and `last` are among these.
    armature : array [last - first]
        Inertia of rotors (kg m^2 or kg); or empty.
    first, last : int
        The rows: first to last - 1.
    out : array [(last - first) * n]
        Written.
    room : array [ROOM]
    """
    loads, twists = room[0:BLOCK_SIDE], room[BLOCK_SIDE : 2 * BLOCK_SIDE]
    streamed = is_streamed(out, n)
    for number in range(blocks.size - 1):
        begin, end = blocks[number], blocks[number + 1]
        if end <= first:
            continue  # columns before all rows: written with those of the rows, mirrored
        point = _point(lines, pitch, POINT, begin)
        for j in range(begin, end, ROW):
            _loads_about(lines, pitch, j, point, loads, j - begin, BLOCK_ROWS)
        for other in range(number + 1):
            i, behind = blocks[other], blocks[other + 1]
            if begin >= last and (behind <= first or last <= i):
                continue
            if _is_full(ends, i, behind, begin, end):
                for r in range(0, behind - i, ROW):
                    _twists_about(lines, pitch, i + r, point, twists, r, BLOCK_ROWS)
                whole_lines = streamed and i % ROW == 0 and begin % ROW == 0
                write_block(twists, loads, first, last, n, i, behind - i, begin, end - begin, out, whole_lines)
            else:
                _write_looped_tiles(lines, pitch, ends, point, room, first, last, n, i, behind, begin, end, out)
    for d in range(armature.size):
        out[d * n + first + d] += armature[d]


@kernel(inline=True)
def _copy(values, first, count, out, at):
    """Copy some numbers; registers straddle cache lines, which takes long, at the begin and the end at the most."""
    if count < ROW:
        for k in range(count):
            out[at + k] = values[first + k]
        return
    write_row(out, at, load_row(values, first))
    for k in range((before_line(out) - at) % ROW, count - ROW, ROW):
        write_row(out, at + k, load_row(values, first + k))
    write_row(out, at + count - ROW, load_row(values, first + count - ROW))


@kernel
def inertia_of_few(lines, pitch, related, tiles, armature, n, out, room):
    """Write the inertia matrix [n * n] of no more than BLOCK_ROWS degrees of freedom, all at once.

    Parameters
    ----------
    lines, pitch, out
        As of `inertia_rows`, but in any order in which what moves with a degree of freedom follows it.
    related : array [pitch * pitch]
        1 where a column moves with the row, 1/2 on the diagonal, else 0.
    tiles : array
        Rows and columns where eight by eight of these begin that are not all 0.
    armature : array [n]
        Inertia of rotors (kg m^2 or kg); or empty.
    room : array [2 * BLOCK_SIDE + pitch * pitch]
        Zeros at first.
    """
    loads, twists, whole = span(room, 0, BLOCK_SIDE), span(room, BLOCK_SIDE, BLOCK_SIDE), 2 * BLOCK_SIDE
    point = _point(lines, pitch, POINT, 0)
    for d in range(0, pitch, ROW):
        _loads_about(lines, pitch, d, point, loads, d, BLOCK_ROWS)
        _twists_about(lines, pitch, d, point, twists, d, BLOCK_ROWS)
    for number in range(0, tiles.size, 2):
        r, c = tiles[number], tiles[number + 1]
        tile = _chosen(related, r * pitch + c, pitch, products_of_eight(twists, r, BLOCK_ROWS, loads, c))
        mirrored = transposed_rows(tile)
        if r == c:
            write_tile(room, whole + r * pitch + c, pitch, _added(tile, mirrored))
        else:
            write_tile(room, whole + r * pitch + c, pitch, tile)
            write_tile(room, whole + c * pitch + r, pitch, mirrored)
    for i in range(n):
        _copy(room, whole + i * pitch, n, out, i * n)
    for d in range(armature.size):
        out[d * n + d] += armature[d]


@kernel
def inertia_entries(lines, pitch, armature, first, rows, columns, out):
    """Write some numbers of the inertia matrix, by their rows and columns, of which one moves with the other."""
    for number in range(rows.size):
        i, j = min(rows[number], columns[number]), max(rows[number], columns[number])
        x, y, z = _point(lines, pitch, TURN_OF, i)
        a, b, c = _point(lines, pitch, SHIFT_OF, i)
        here, there = _point(lines, pitch, POINT, i), _point(lines, pitch, POINT, j)
        rx, ry, rz = there[0] - here[0], there[1] - here[1], there[2] - here[2]
        n, f = _point(lines, pitch, MOMENT_OF, j), _point(lines, pitch, FORCE_OF, j)
        total = x * n[0] + y * n[1] + z * n[2] + (a + (y * rz - z * ry)) * f[0]
        total += (b + (z * rx - x * rz)) * f[1] + (c + (x * ry - y * rx)) * f[2]
        if i == j and armature.size > 0:
            total += armature[i - first]
        out[number] = total


@kernel
def rearrange(matrix, numbers, out):
    """Write a square matrix with its rows and columns at other places: `numbers` [n] says which are at each."""
    n = numbers.size
    for i in range(n):
        for j in range(n):
            out[numbers[i] * n + numbers[j]] = matrix[i * n + j]
