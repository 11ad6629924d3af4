"""Symmetric positive definite equations between bodies, condensed: bodies eliminated, one dense front after the other.

A front is the matrix of the equations of some bodies, six rows each, of which those that are to be eliminated come
first. It is a flat array [size * size], rows one after the other; the upper triangle counts. With K = U^T U for the
rows that are eliminated,

    [K_ee  K_ek]         [U_ee^T  0] [1  0] [U_ee  U_ek]
    [      K_kk]    =    [U_ek^T  1] [0  C] [0       1 ]        C = K_kk - U_ek^T U_ek

is left C, the condensed matrix of the bodies that are kept [Malczyk & Fraczek 2012, eq. 27-30, of bodies one by one].
"""

from __future__ import annotations

from math import sqrt

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import span

SIDE = 6  # numbers of a body
SQUARE = SIDE * SIDE


@kernel
def begin_front(front, size):
    """Begin a front."""
    for i in range(size * size):
        front[i] = 0.0


@kernel
def add_condensed(front, size, places, condensed):
    """Add what is left of a front [kept * 6, kept * 6], all of it, to another one.

    Parameters
    ----------
    front : array [size * size]
    places : array [kept]
        Which of the bodies of this front they are.
    """
    kept = places.size
    own = SIDE * kept
    for a in range(kept):
        for b in range(kept):
            if places[a] <= places[b]:
                for i in range(SIDE):
                    source = span(condensed, (SIDE * a + i) * own + SIDE * b, SIDE)
                    target = span(front, (SIDE * places[a] + i) * size + SIDE * places[b], SIDE)
                    for j in range(SIDE):
                        target[j] += source[j]


@kernel
def eliminate_front(front, size, count, factor, condensed):
    """Eliminate the first `count` of `size` rows.

    Parameters
    ----------
    front : array [size * size]
        Room afterwards.
    factor : array [count * size]
        Written: rows of U, with reciprocals on the diagonal.
    condensed : array [(size - count)^2]
        Written, both triangles.

    Returns
    -------
    bool
        Whether the matrix is positive definite: else NaN is left.
    """
    sound = True
    for j in range(count):
        row = span(factor, j * size, size)
        own = span(front, j * size, size)
        sound = sound and own[j] > 0.0
        reciprocal = 1.0 / sqrt(own[j])
        for k in range(j + 1, size):
            row[k] = own[k] * reciprocal
        row[j] = reciprocal
        for i in range(j + 1, size):
            share = row[i]
            target = span(front, i * size, size)
            for k in range(i, size):
                target[k] -= share * row[k]
    left = size - count
    for i in range(left):
        source = span(front, (count + i) * size + count, left)
        for k in range(i, left):
            condensed[i * left + k] = source[k]
            condensed[k * left + i] = source[k]
    return sound


@kernel
def condense_right(factor, size, count, x):
    """Solve U^T y = x for the first `count` of `size` numbers, and take what they do to the others from these."""
    for j in range(count):
        row = span(factor, j * size, size)
        y = x[j] * row[j]
        x[j] = y
        for k in range(j + 1, size):
            x[k] -= y * row[k]


@kernel
def expand_solution(factor, size, count, x):
    """Solve for the first `count` of `size` numbers, given the others and, in their own place, y."""
    for j in range(count - 1, -1, -1):
        row = span(factor, j * size, size)
        s = x[j]
        for k in range(j + 1, size):
            s -= row[k] * x[k]
        x[j] = s * row[j]
