"""The handle equations of a subchain, and their product: what every coupling works on.

A subchain has an inboard handle 1, on the parent side of its first joint, and an outboard handle 2, the frame of its
last body. Its equations in the mixed form, spatial vectors with the angular part first, loads acting on the subchain:

    f1 = I A1 - E f2 + p            A2 = E^T A1 + W f2 + c

I: articulated inertia at handle 1; E: transfer of an outboard load to handle 1; W >= 0: compliance at handle 2 while
handle 1 is held. They are kept as one flat array of 90 doubles, the message between ranks: I (upper triangle, 21),
E (36, row by row), W (21), p (6), c (6). A subchain with nothing outboard has E = W = c = 0.

Left L and right R share a point: A2 of L = A1 of R = a, f2 of L = -f1 of R = f. Then

    (1 + W_L I_R) a = E_L^T A1 + W_L E_R f2 + c_L - W_L p_R

Both W_L and I_R are positive semi-definite, so that all eigenvalues of this matrix are at least 1. With its inverse N:

    I = I_L + E_L I_R N E_L^T           E = E_L N^T E_R         W = W_R + E_R^T N W_L E_R
    p = p_L + E_L (p_R + I_R N (c_L - W_L p_R))                 c = c_R + E_R^T N (c_L - W_L p_R)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mpimbs.spatial.compiler import kernel

INERTIA = 0
TRANSFER = 21
COMPLIANCE = 57
FORCE = 78
ACCELERATION = 84
SIZE = 90

Floats = npt.NDArray[np.float64]


def symmetric_matrix(packed: Floats) -> Floats:
    """Symmetric 6x6 matrix from its upper triangle [21]."""
    full = np.zeros((6, 6))
    full[np.triu_indices(6)] = packed
    return full + np.triu(full, 1).T


def matrices(block: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Handle equations as matrices (I [6, 6], E [6, 6], W [6, 6], p [6], c [6]), for inspection and tests.

    Parameters
    ----------
    block : array [SIZE]
        Handle equations in the flat form.
    """
    return (
        symmetric_matrix(block[INERTIA:TRANSFER]),
        block[TRANSFER:COMPLIANCE].reshape(6, 6).copy(),
        symmetric_matrix(block[COMPLIANCE:FORCE]),
        block[FORCE:ACCELERATION].copy(),
        block[ACCELERATION:SIZE].copy(),
    )


@kernel
def _unpack(block, offset, full):
    k = offset
    for i in range(6):
        for j in range(i, 6):
            full[i, j] = block[k]
            full[j, i] = block[k]
            k += 1


@kernel
def _pack(full, block, offset):
    k = offset
    for i in range(6):
        for j in range(i, 6):
            block[k] = 0.5 * (full[i, j] + full[j, i])
            k += 1


@kernel
def _product(a, b, out):
    """out = a b for 6x6 and 6xm arrays."""
    for i in range(6):
        for j in range(b.shape[1]):
            s = a[i, 0] * b[0, j]
            for k in range(1, 6):
                s += a[i, k] * b[k, j]
            out[i, j] = s


@kernel
def _solve(a, b):
    """Solve a x = b in place by elimination with row exchanges; a [6, 6] is destroyed, b [6, m] becomes x."""
    m = b.shape[1]
    for i in range(6):
        best = i
        for r in range(i + 1, 6):
            if abs(a[r, i]) > abs(a[best, i]):
                best = r
        if best != i:
            for j in range(6):
                a[i, j], a[best, j] = a[best, j], a[i, j]
            for j in range(m):
                b[i, j], b[best, j] = b[best, j], b[i, j]
        f = 1.0 / a[i, i]
        for r in range(i + 1, 6):
            g = a[r, i] * f
            for j in range(i + 1, 6):
                a[r, j] -= g * a[i, j]
            for j in range(m):
                b[r, j] -= g * b[i, j]
    for i in range(5, -1, -1):
        f = 1.0 / a[i, i]
        for j in range(m):
            s = b[i, j]
            for r in range(i + 1, 6):
                s -= a[i, r] * b[r, j]
            b[i, j] = s * f


@kernel
def join(left, right, out):
    """Join the handle equations of two neighbours into those of both [design, section 3; Critchley 2007, eq. 53-71].

    Parameters
    ----------
    left, right, out : array [SIZE]
        `out` may be one of the others.
    """
    inertia = np.empty((6, 6))
    compliance = np.empty((6, 6))
    outer = np.empty((6, 6))
    e_left = np.empty((6, 6))
    e_right = np.empty((6, 6))
    for i in range(6):
        for j in range(6):
            e_left[i, j] = left[TRANSFER + 6 * i + j]
            e_right[i, j] = right[TRANSFER + 6 * i + j]
    _unpack(right, INERTIA, inertia)
    _unpack(left, COMPLIANCE, compliance)
    # (1 + W_L I_R) X = [E_L^T, W_L E_R, c_L - W_L p_R]
    matrix = np.empty((6, 6))
    _product(compliance, inertia, matrix)
    x = np.empty((6, 13))
    _product(compliance, e_right, outer)
    for i in range(6):
        matrix[i, i] += 1.0
        s = left[ACCELERATION + i]
        for k in range(6):
            s -= compliance[i, k] * right[FORCE + k]
            x[i, k] = e_left[k, i]
            x[i, 6 + k] = outer[i, k]
        x[i, 12] = s
    _solve(matrix, x)
    # y = I_R X:  I_R N E_L^T,  I_R N W_L E_R,  I_R N (c_L - W_L p_R)
    y = np.empty((6, 13))
    _product(inertia, x, y)
    both = np.empty((6, 6))
    # I = I_L + E_L I_R N E_L^T
    _unpack(left, INERTIA, both)
    for i in range(6):
        for j in range(6):
            s = both[i, j]
            for k in range(6):
                s += e_left[i, k] * y[k, j]
            both[i, j] = s
    force = np.empty(6)
    acceleration = np.empty(6)
    for i in range(6):
        s = left[FORCE + i]
        t = right[ACCELERATION + i]
        for k in range(6):
            s += e_left[i, k] * (right[FORCE + k] + y[k, 12])
            t += e_right[k, i] * x[k, 12]
        force[i] = s
        acceleration[i] = t
    # W = W_R + E_R^T N W_L E_R
    _unpack(right, COMPLIANCE, outer)
    for i in range(6):
        for j in range(6):
            s = outer[i, j]
            for k in range(6):
                s += e_right[k, i] * x[k, 6 + j]
            outer[i, j] = s
    # E = E_L N^T E_R: the columns 0..5 of x are N E_L^T
    for i in range(6):
        for j in range(6):
            s = 0.0
            for k in range(6):
                s += x[k, i] * e_right[k, j]
            out[TRANSFER + 6 * i + j] = s
    _pack(both, out, INERTIA)
    _pack(outer, out, COMPLIANCE)
    for i in range(6):
        out[FORCE + i] = force[i]
        out[ACCELERATION + i] = acceleration[i]


@kernel
def solve_between(left, right, acceleration, load, shared_acceleration, shared_load):
    """Find acceleration and load at the point that two neighbours share, from A1 of the left and f2 of the right.

    Parameters
    ----------
    left, right : array [SIZE]
        Handle equations.
    acceleration, load : array [6]
        A1 of the left (rad/s^2, m/s^2), f2 of the right (N m, N).
    shared_acceleration, shared_load : array [6]
        Written: A2 of the left = A1 of the right, and f2 of the left. May be the given ones.
    """
    inertia = np.empty((6, 6))
    compliance = np.empty((6, 6))
    _unpack(right, INERTIA, inertia)
    _unpack(left, COMPLIANCE, compliance)
    matrix = np.empty((6, 6))
    _product(compliance, inertia, matrix)
    # the load on the left apart from what the shared acceleration gives: E_R f2 - p_R
    given = np.empty(6)
    for i in range(6):
        s = -right[FORCE + i]
        for k in range(6):
            s += right[TRANSFER + 6 * i + k] * load[k]
        given[i] = s
    x = np.empty((6, 1))
    for i in range(6):
        matrix[i, i] += 1.0
        s = left[ACCELERATION + i]
        for k in range(6):
            s += left[TRANSFER + 6 * k + i] * acceleration[k] + compliance[i, k] * given[k]
        x[i, 0] = s
    _solve(matrix, x)
    for i in range(6):
        s = given[i]
        for k in range(6):
            s -= inertia[i, k] * x[k, 0]
        shared_load[i] = s
    for i in range(6):
        shared_acceleration[i] = x[i, 0]
