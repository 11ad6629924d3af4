"""Quaternions of the state: found to be none, made of unit length."""

from __future__ import annotations

import math

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.lanes import absolute, largest, load, sqrt, store, width
from mpimbs.sweep.structure import FIRST_Q, TURN

INFINITY = math.inf


@kernel
def make_quaternions_unit(zero, structure, q):
    """Scale every quaternion in `q` [nq] to unit length; return the largest | |quaternion| - 1 | found."""
    w = width(zero)
    deviation = zero
    for step in range(structure.steps.shape[0]):
        if structure.steps[step, TURN] == 4:
            first = structure.steps[step, FIRST_Q]
            square = zero
            for i in range(first, first + 4):
                x = load(zero, q, i * w)
                square = square + x * x
            length = sqrt(square)
            deviation = largest(deviation, absolute(length - 1.0))
            for i in range(first, first + 4):
                store(q, i * w, load(zero, q, i * w) / length)
    return deviation


@kernel
def broken_quaternion(first, q):
    """Give the first of the quaternions in `q` that has no direction, zero or not finite; -1 if all have one.

    `first` holds where each quaternion begins.
    """
    for k in range(first.shape[0]):
        i = first[k]
        square = q[i] * q[i] + q[i + 1] * q[i + 1] + q[i + 2] * q[i + 2] + q[i + 3] * q[i + 3]
        if not 0.0 < square < INFINITY:
            return k
    return -1
