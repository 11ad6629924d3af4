"""The inertia matrix from the lines of its degrees of freedom (`sweep.composite`): M_ij = S_i^T I_j S_j.

Numbers about points far away lose digits. Twists and loads are taken about a point nearby first, one for each block of
`BLOCK` degrees of freedom, which all products with the loads of the block share. What is left is a product of two
matrices with six in common, written by registers: eight rows of eight columns, and the same mirrored. The two halves
are the same bits.
"""

from __future__ import annotations

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.rows import ROW, add_row, load_row, scale_row, transposed_rows, write_row, zero_row
from mpimbs.sweep.composite import FORCE_OF, MOMENT_OF, POINT, SHIFT_OF, TURN_OF

BLOCK = 64  # degrees of freedom whose loads are taken about one point; a multiple of ROW
ROOM = 6 * BLOCK + 6 * ROW + ROW * ROW  # numbers that `inertia_rows` needs beside


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
def _six_rows(array, at, spacing):
    return (
        load_row(array, at),
        load_row(array, at + spacing),
        load_row(array, at + 2 * spacing),
        load_row(array, at + 3 * spacing),
        load_row(array, at + 4 * spacing),
        load_row(array, at + 5 * spacing),
    )


@kernel(inline=True)
def _write_eight(tile, first, last, n, i, j, out):
    """Write eight numbers of each of the rows i to i + 7 of the matrix, from column j on, that are ours."""
    at = (i - first) * n + j
    if first <= i and i + ROW <= last:
        write_row(out, at, tile[0])
        write_row(out, at + n, tile[1])
        write_row(out, at + 2 * n, tile[2])
        write_row(out, at + 3 * n, tile[3])
        write_row(out, at + 4 * n, tile[4])
        write_row(out, at + 5 * n, tile[5])
        write_row(out, at + 6 * n, tile[6])
        write_row(out, at + 7 * n, tile[7])
    else:
        for r in range(ROW):
            if first <= i + r < last:
                write_row(out, at + r * n, tile[r])


@kernel
def _write_products(twists, loads, at, first, last, n, i, j, out):
    """Write the products of eight twists and eight loads, and the same mirrored."""
    six = _six_rows(loads, at, BLOCK)
    tile = (
        _products(twists, 0, ROW, six),
        _products(twists, 1, ROW, six),
        _products(twists, 2, ROW, six),
        _products(twists, 3, ROW, six),
        _products(twists, 4, ROW, six),
        _products(twists, 5, ROW, six),
        _products(twists, 6, ROW, six),
        _products(twists, 7, ROW, six),
    )
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
    six = _six_rows(loads, at, BLOCK)
    for r in range(ROW):
        write_row(room, r * ROW, _products(twists, r, ROW, six))
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
    twist_at = 6 * BLOCK
    loads, twists, corner = room[0:twist_at], room[twist_at:], room[twist_at + 6 * ROW :]
    for begin in range(0, n, BLOCK):
        end = min(begin + BLOCK, n)
        if end <= first:
            continue  # columns before all rows: written with those of the rows, mirrored
        ours = begin < last  # also as rows
        point = _three(lines, pitch, POINT, begin)
        for j in range(begin, min(begin + BLOCK, pitch)):
            _load_about(lines, pitch, j, point, loads, j - begin, BLOCK)
        low, high = (0, end) if ours else (first // ROW * ROW, last)
        for i in range(low, high, ROW):
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
                    _write_corner(twists, loads, j - begin, corner, ends, first, last, n, i, j, out)
    for d in range(armature.size):
        out[d * n + first + d] += armature[d]


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
