"""The inertia matrix from the lines of its degrees of freedom (`sweep.composite`): M_ij = S_i^T I_j S_j.

Numbers about points far away lose digits. Twists and loads are taken about a point nearby first, one for each block of
`BLOCK_ROWS` degrees of freedom, which all products with the loads of the block share. What is left is a product of two
matrices with six in common, written by registers: eight rows of eight columns, and the same mirrored, a block of
`BLOCK_ROWS` rows and columns at a time where it is full. The two halves are the same bits.
"""

from __future__ import annotations

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import span
from mpimbs.spatial.rows import (
    ROW,
    add_row,
    load_row,
    multiply_rows,
    scale_row,
    transposed_rows,
    write_row,
    zero_row,
)
from mpimbs.spatial.six import six_rows
from mpimbs.sweep.composite import FORCE_OF, MOMENT_OF, POINT, SHIFT_OF, TURN_OF

BLOCK_ROWS = 64  # degrees of freedom whose loads are taken about one point; a multiple of ROW
BLOCK_SIDE = 6 * BLOCK_ROWS  # numbers that a block has of either factor: those of each of the six side by side
ROOM = 2 * BLOCK_SIDE + BLOCK_ROWS * BLOCK_ROWS  # numbers that `inertia_rows` needs beside


@kernel(inline=True)
def _three(lines, pitch, number, d):
    return (lines[number * pitch + d], lines[(number + 1) * pitch + d], lines[(number + 2) * pitch + d])


@kernel(inline=True)
def _twist_about(lines, pitch, d, point, out, at, spacing):
    """Twist of a line about a point: the velocity there is v + w x (point - p)."""
    x, y, z = _three(lines, pitch, TURN_OF, d)
    a, b, c = _three(lines, pitch, SHIFT_OF, d)
    px, py, pz = _three(lines, pitch, POINT, d)
    rx, ry, rz = point[0] - px, point[1] - py, point[2] - pz
    out[at], out[at + spacing], out[at + 2 * spacing] = x, y, z
    out[at + 3 * spacing] = a + (y * rz - z * ry)
    out[at + 4 * spacing] = b + (z * rx - x * rz)
    out[at + 5 * spacing] = c + (x * ry - y * rx)


@kernel(inline=True)
def _load_about(lines, pitch, d, point, out, at, spacing):
    """Load of a line about a point: its moment there is n + (p - point) x f."""
    a, b, c = _three(lines, pitch, MOMENT_OF, d)
    x, y, z = _three(lines, pitch, FORCE_OF, d)
    px, py, pz = _three(lines, pitch, POINT, d)
    rx, ry, rz = px - point[0], py - point[1], pz - point[2]
    out[at] = a + (ry * z - rz * y)
    out[at + spacing] = b + (rz * x - rx * z)
    out[at + 2 * spacing] = c + (rx * y - ry * x)
    out[at + 3 * spacing], out[at + 4 * spacing], out[at + 5 * spacing] = x, y, z


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
def tile_of(twists, twist_at, spacing, loads, load_at):
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


@kernel
def write_block(twists, loads, buffer, first, last, n, i, j, out):
    """Write the products of BLOCK_ROWS twists and loads, in rows from i and columns from j on, and the same mirrored.

    Either of the two only where `first` to `last` has all its rows. What is near in memory is written together, so that
    cache lines are filled before they go. `buffer` has BLOCK_ROWS * BLOCK_ROWS numbers.
    """
    along = first <= i and i + BLOCK_ROWS <= last
    across = first <= j and j + BLOCK_ROWS <= last
    for c in range(0, BLOCK_ROWS, ROW):
        for r in range(0, BLOCK_ROWS, ROW):
            tile = tile_of(twists, r, BLOCK_ROWS, loads, c)
            if along:
                write_tile(buffer, r * BLOCK_ROWS + c, BLOCK_ROWS, tile)
            if across:
                write_tile(out, (j + c - first) * n + i + r, n, transposed_rows(tile))
    if along:
        for r in range(BLOCK_ROWS):
            for c in range(0, BLOCK_ROWS, ROW):
                write_row(out, (i + r - first) * n + j + c, load_row(buffer, r * BLOCK_ROWS + c))


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
    tile = tile_of(twists, 0, ROW, loads, at)
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
    write_tile(room, 0, ROW, tile_of(twists, 0, ROW, loads, at))
    for r in range(min(ROW, n - i)):
        row, end = i + r, ends[i + r]
        for c in range(max(0, row - j), min(ROW, n - j)):
            column = j + c
            number = room[r * ROW + c] if column < end else 0.0
            if first <= row < last:
                out[(row - first) * n + column] = number
            if first <= column < last:
                out[(column - first) * n + row] = number


@kernel(inline=True)
def _is_full(ends, first, last, n, i, j):
    """Whether the blocks of rows from i and from j on are apart, each all ours or not, and all of one branch."""
    if i + BLOCK_ROWS > j or j + BLOCK_ROWS > n:
        return False
    if (
        (i < first < i + BLOCK_ROWS)
        or (i < last < i + BLOCK_ROWS)
        or (j < first < j + BLOCK_ROWS)
        or (j < last < j + BLOCK_ROWS)
    ):
        return False
    least = j + BLOCK_ROWS
    for r in range(BLOCK_ROWS):
        least = min(least, ends[i + r])
    return least == j + BLOCK_ROWS


@kernel
def inertia_rows(lines, pitch, ends, armature, first, last, n, out, room):
    """Write rows of the inertia matrix.

    Parameters
    ----------
    lines : array [LINE * pitch]
        Of all n degrees of freedom of the system, depth first; then zeros.
    pitch : int
        A multiple of ROW, n at the least.
    ends : array [pitch]
        Behind the last degree of freedom that moves with each.
    armature : array [last - first]
        Inertia of rotors (kg m^2 or kg); or empty.
    first, last : int
        The rows: first to last - 1.
    out : array [(last - first) * n]
        Written.
    room : array [ROOM]
    """
    loads, twists, buffer = room[0:BLOCK_SIDE], room[BLOCK_SIDE : 2 * BLOCK_SIDE], room[2 * BLOCK_SIDE :]
    for begin in range(0, n, BLOCK_ROWS):
        end = min(begin + BLOCK_ROWS, n)
        if end <= first:
            continue  # columns before all rows: written with those of the rows, mirrored
        ours = begin < last  # also as rows
        point = _three(lines, pitch, POINT, begin)
        for j in range(begin, min(begin + BLOCK_ROWS, pitch)):
            _load_about(lines, pitch, j, point, loads, j - begin, BLOCK_ROWS)
        i, high = (0, end) if ours else (first // ROW * ROW, last)
        while i < high:
            if i % BLOCK_ROWS == 0 and _is_full(ends, first, last, n, i, begin):
                for r in range(BLOCK_ROWS):
                    _twist_about(lines, pitch, i + r, point, twists, r, BLOCK_ROWS)
                write_block(twists, loads, buffer, first, last, n, i, begin, out)
                i += BLOCK_ROWS
                continue
            least, most = n, 0
            for r in range(ROW):
                _twist_about(lines, pitch, i + r, point, twists, r, ROW)
                if i + r < n:
                    least, most = min(least, ends[i + r]), max(most, ends[i + r])
            for j in range(max(begin, i), end, ROW):
                if j >= i + ROW and j + ROW <= n and least >= j + ROW:
                    _write_products(twists, loads, j - begin, first, last, n, i, j, out)
                elif j >= i + ROW and j + ROW <= n and most <= j:
                    _write_nothing(first, last, n, i, j, out)
                    _write_nothing(first, last, n, j, i, out)
                else:
                    _write_corner(twists, loads, j - begin, buffer, ends, first, last, n, i, j, out)
            i += ROW
    for d in range(armature.size):
        out[d * n + first + d] += armature[d]


@kernel
def inertia_of_few(lines, pitch, related, armature, n, out, room):
    """Write the inertia matrix [n * n] of no more than BLOCK_ROWS degrees of freedom, in any order, all at once.

    Parameters
    ----------
    lines, pitch, out, room
        As of `inertia_rows`, but for the order.
    related : array [pitch * pitch]
        1 where a column moves with the row, 1/2 on the diagonal, else 0.
    armature : array [n]
        Inertia of rotors (kg m^2 or kg); or empty.
    """
    loads, twists, whole = span(room, 0, BLOCK_SIDE), span(room, BLOCK_SIDE, BLOCK_SIDE), 2 * BLOCK_SIDE
    point = _three(lines, pitch, POINT, 0)
    for d in range(pitch):
        _load_about(lines, pitch, d, point, loads, d, BLOCK_ROWS)
        _twist_about(lines, pitch, d, point, twists, d, BLOCK_ROWS)
    for r in range(0, pitch, ROW):
        for c in range(r, pitch, ROW):
            upper = _chosen(related, r * pitch + c, pitch, tile_of(twists, r, BLOCK_ROWS, loads, c))
            lower = _chosen(related, c * pitch + r, pitch, tile_of(twists, c, BLOCK_ROWS, loads, r))
            tile = _added(upper, transposed_rows(lower))
            write_tile(room, whole + r * pitch + c, pitch, tile)
            write_tile(room, whole + c * pitch + r, pitch, transposed_rows(tile))
    for i in range(n):
        for j in range(n):
            out[i * n + j] = room[whole + i * pitch + j]
    for d in range(armature.size):
        out[d * n + d] += armature[d]


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


@kernel
def inertia_entries(lines, pitch, armature, first, rows, columns, out):
    """Write some numbers of the inertia matrix, by their rows and columns, of which one moves with the other."""
    for number in range(rows.size):
        i, j = min(rows[number], columns[number]), max(rows[number], columns[number])
        x, y, z = _three(lines, pitch, TURN_OF, i)
        a, b, c = _three(lines, pitch, SHIFT_OF, i)
        here, there = _three(lines, pitch, POINT, i), _three(lines, pitch, POINT, j)
        rx, ry, rz = there[0] - here[0], there[1] - here[1], there[2] - here[2]
        n, f = _three(lines, pitch, MOMENT_OF, j), _three(lines, pitch, FORCE_OF, j)
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
