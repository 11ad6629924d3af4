"""Quaternions of the state made of unit length."""

from __future__ import annotations

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.lanes import absolute, largest, load, sqrt, store, width
from mpimbs.sweep.structure import FIRST_Q, TURN


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
