"""The acceleration form of the handle equations, and its assembly at a joint: the divide and conquer of Featherstone.

An assembly is one body, or several in sequence joined at the joints between them; its own inboard joint is no part of
it. Handle 1 is the first body at the point and in the frame of the body before it, handle 2 the last body in its own
frame. With loads f1, f2 on the handles [Critchley 2007, eq. 15-16]

    A1 = P11 f1 + P12 f2 + b1          A2 = P21 f1 + P22 f2 + b2          P21 = P12^T

P11 and P22 are positive definite, since a body's inertia is. They are kept as the mixed form is (`values.handles`), as
18 rows of 8 doubles: [P11 | b1], [P12], [P22 | b2], and zeros in what is left over.

A joint with motion subspace S (here in the frame of the body before) joins left L and right R. With the load f that R
receives through it, which f2 of L opposes, and the joint's force tau,

    S udot + c = A1 of R - A2 of L = P f + g        P = P11 of R + P22 of L        S^T f = tau - a udot
    g + c = P12 f2 of R - P21 f1 of L + b1 of R - b2 of L

with the inertia a of what drives each axis, the armature, solved by f = W g + h, with W as in eq. 27: minus the inverse
of P, and for each axis s of the joint, one after the other, y = -W s and m = s^T y + a, then

    W <- W + y y^T / m         h <- h + y (tau - s^T h) / m         udot = (tau - s^T h + y^T g) / m

where h and W are those before the axis was freed, and g those after the accelerations of later axes are known. The
paper's eq. 32 and 35 have a wrong superscript, which the derivation mends: P12 = -P12 of L W P12 of R.
"""

from __future__ import annotations

import numpy as np

from mpimbs.kernels.compiler import kernel
from mpimbs.spatial.rows import ROW, add_row, eight_rows, entry, load_row, scale_row, transposed_rows, write_row
from mpimbs.spatial.six import (
    EXTRA,
    UNITS,
    eliminated,
    negatives,
    products,
    six_rows,
    sums,
    symmetric,
    transposed_products,
    weighted,
    write_six,
)

NEAR = 0  # rows [P11 | b1]
CROSS = 6 * ROW  # rows [P12]
FAR = 12 * ROW  # rows [P22 | b2]
BLOCK = 18 * ROW

# A joint at handle 1: row [c | degrees of freedom], rows [s | tau | a] of its axes.
AXES = ROW
ROTOR = EXTRA + 1
JOINT = 7 * ROW
ASSEMBLY = BLOCK + JOINT  # a block with its inboard joint behind it: what one rank tells another

# What an assembly leaves for the way back: rows [W | h], row [b1 of R - b2 of L - c], rows [y | tau - s^T h | 1 / m].
CONSTANT = 6 * ROW
FREED = CONSTANT + ROW
RECORD = FREED + 6 * ROW

_EXTRA = np.eye(1, ROW, EXTRA).ravel()


@kernel(inline=True)
def inverse_six(a):
    """Inverse of a positive definite 6x6 matrix, six rows: no exchange of rows is needed for its accuracy."""
    return eliminated(a, six_rows(UNITS, 0), a, False)[0]


@kernel
def release(left, right, joint, freed, record):
    """Free the axes of a joint between two assemblies [Critchley 2007, eq. 23-28].

    Parameters
    ----------
    left, right : array [>= BLOCK]
    joint : array [JOINT]
        That at handle 1 of the right.
    freed : int
        The joint's degrees of freedom.
    record : array [RECORD]
        Written.
    """
    matrix = sums(six_rows(right, NEAR), six_rows(left, FAR))
    rows = negatives(symmetric(inverse_six(matrix)))
    for i in range(6):
        at = i * ROW + EXTRA
        record[CONSTANT + i] = right[NEAR + at] - left[FAR + at] - joint[i]
    for axis in range(freed):
        at = AXES + axis * ROW
        # [y | tau - s^T h] = -s^T [W | h] + [0 | tau],  m = s^T y + a
        tau = scale_row(joint[at + EXTRA], load_row(_EXTRA, 0))
        y = add_row(scale_row(-1.0, weighted(joint, at, rows)), tau)
        here = FREED + axis * ROW
        write_row(record, here, y)
        m = record[here] * joint[at]
        for i in range(1, 6):
            m += record[here + i] * joint[at + i]
        if joint[at + ROTOR] != 0.0:
            m += joint[at + ROTOR]
        reciprocal = 1.0 / m
        z = scale_row(reciprocal, y)
        rows = (
            add_row(rows[0], scale_row(record[here], z)),
            add_row(rows[1], scale_row(record[here + 1], z)),
            add_row(rows[2], scale_row(record[here + 2], z)),
            add_row(rows[3], scale_row(record[here + 3], z)),
            add_row(rows[4], scale_row(record[here + 4], z)),
            add_row(rows[5], scale_row(record[here + 5], z)),
        )
        record[here + EXTRA + 1] = reciprocal
    write_six(record, 0, rows)


@kernel
def assemble_pair(left, right, record, out):
    """Join two assemblies into one, after `release` [Critchley 2007, eq. 29-42].

    Parameters
    ----------
    left, right, out : array [>= BLOCK]
        `out` may not be one of the others.
    record : array [RECORD]
    """
    # d = W (b1 of R - b2 of L - c) + h, the load where f1 and f2 are zero
    for i in range(6):
        d = record[i * ROW + EXTRA]
        for k in range(6):
            d += record[i * ROW + k] * record[CONSTANT + k]
        out[i * ROW] = d
    unit = load_row(_EXTRA, 0)
    low = (scale_row(out[0], unit), scale_row(out[ROW], unit), scale_row(out[2 * ROW], unit))
    high = (scale_row(out[3 * ROW], unit), scale_row(out[4 * ROW], unit), scale_row(out[5 * ROW], unit))
    d = low + high
    # W P21 of L,  W P12 of R
    across = transposed_rows(eight_rows(six_rows(left, CROSS)))
    towards = products(record, 0, (across[0], across[1], across[2], across[3], across[4], across[5]))
    away = products(record, 0, six_rows(right, CROSS))
    near = sums(six_rows(left, NEAR), products(left, CROSS, sums(towards, negatives(d))))
    far = sums(six_rows(right, FAR), transposed_products(right, CROSS, sums(away, d)))
    write_six(out, CROSS, negatives(products(left, CROSS, away)))
    write_six(out, NEAR, symmetric(near))
    write_six(out, FAR, symmetric(far))


@kernel
def disassemble_pair(left, right, joint, freed, record, f1, f2, load, udot):
    """Find what happens at a joint between two assemblies, from the loads on their outer handles.

    Parameters
    ----------
    left, right, joint, freed, record
        As for `release`, which was called before.
    f1, f2 : array [6]
        Load on handle 1 of the left and on handle 2 of the right (N m, N).
    load : array [6]
        Written: the load that the right receives through the joint [Critchley 2007, eq. 26].
    udot : array [freed]
        Written: generalized accelerations of the joint (rad/s^2, m/s^2) [eq. 23].
    """
    # g = P12 f2 of R - P21 f1 of L + b1 of R - b2 of L - c,  f = W g + h
    across = transposed_rows(eight_rows(six_rows(right, CROSS)))
    g = weighted(f2, 0, (across[0], across[1], across[2], across[3], across[4], across[5]))
    g = add_row(g, scale_row(-1.0, weighted(f1, 0, six_rows(left, CROSS))))
    write_row(record, CONSTANT, add_row(g, load_row(record, CONSTANT)))
    f = weighted(record, CONSTANT, six_rows(record, 0))
    for i in range(6):
        load[i] = entry(f, i) + record[i * ROW + EXTRA]
    for axis in range(freed - 1, -1, -1):
        here = FREED + axis * ROW
        x = record[here + EXTRA]
        for k in range(6):
            x += record[here + k] * record[CONSTANT + k]
        x *= record[here + EXTRA + 1]
        udot[axis] = x
        for k in range(6):
            record[CONSTANT + k] -= joint[AXES + axis * ROW + k] * x


@kernel
def far_acceleration(block, f1, f2, acceleration):
    """Find A2 of an assembly, `acceleration` [6], from the loads on its handles [Critchley 2007, eq. 16]."""
    for i in range(6):
        a = block[FAR + i * ROW + EXTRA]
        for k in range(6):
            a += block[CROSS + k * ROW + i] * f1[k] + block[FAR + i * ROW + k] * f2[k]
        acceleration[i] = a
