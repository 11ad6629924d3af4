"""A row of a 6x6 matrix as one value, for the part of a sweep that treats all columns alike.

Of doubles, the row is a SIMD register of `ROW` lanes, two of them unused. Of lanes, where every number fills a register
already, and of uncompiled numbers it is a 6-tuple.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.extending import intrinsic, overload

from mpimbs.spatial.lanes import LANES, Lanes, extract, load, store, width

ROW = 8  # doubles that a stored row of doubles takes

_UNITS = np.eye(6, ROW).ravel()
_NO_ROW = np.zeros(ROW)


@intrinsic
def _zero_register(typing_context: Any, zero: Any) -> Any:
    lanes = LANES[ROW]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return ir.Constant(lanes.vector, [0.0] * ROW)

    return lanes(zero), lower


def unit_rows(zero: Any) -> Any:
    """Give the rows of the identity, for numbers of the type of `zero`."""
    return tuple(tuple(zero + (i == j) for j in range(6)) for i in range(6))


def zero_row(zero: Any) -> Any:
    """Give a row of zeros, for numbers of the type of `zero`."""
    return (zero,) * 6


def add_row(a: Any, b: Any) -> Any:
    """Sum of two rows."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def scale_row(x: Any, a: Any) -> Any:
    """Number times row."""
    return tuple(x * y for y in a)


def entries(a: Any) -> Any:
    """Give the six numbers of a row."""
    return a


def store_row(zero: Any, array: Any, base: int, a: Any) -> None:
    """Store a row from item `base` of a flat array on, which has room for `ROW` numbers."""
    array[base : base + 6] = a


@overload(zero_row)
def _overload_zero_row(zero):
    if isinstance(zero, Lanes):
        return lambda zero: (zero, zero, zero, zero, zero, zero)
    return lambda zero: _zero_register(zero)


@overload(unit_rows)
def _overload_unit_rows(zero):
    if isinstance(zero, Lanes):

        def lanes(zero):
            o = zero
            e = zero + 1.0
            low = ((e, o, o, o, o, o), (o, e, o, o, o, o), (o, o, e, o, o, o))
            return (*low, (o, o, o, e, o, o), (o, o, o, o, e, o), (o, o, o, o, o, e))

        return lanes

    def plain(zero):
        like = _zero_register(zero)
        return (
            load(like, _UNITS, 0),
            load(like, _UNITS, ROW),
            load(like, _UNITS, 2 * ROW),
            load(like, _UNITS, 3 * ROW),
            load(like, _UNITS, 4 * ROW),
            load(like, _UNITS, 5 * ROW),
        )

    return plain


@overload(add_row)
def _overload_add_row(a, b):
    if isinstance(a, Lanes):
        return lambda a, b: a + b
    return lambda a, b: (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], a[4] + b[4], a[5] + b[5])


@overload(scale_row)
def _overload_scale_row(x, a):
    if isinstance(a, Lanes):
        return lambda x, a: x * a
    return lambda x, a: (x * a[0], x * a[1], x * a[2], x * a[3], x * a[4], x * a[5])


@overload(entries)
def _overload_entries(a):
    if isinstance(a, Lanes):
        return lambda a: (
            extract(a, 0),
            extract(a, 1),
            extract(a, 2),
            extract(a, 3),
            extract(a, 4),
            extract(a, 5),
        )
    return lambda a: a


@overload(store_row)
def _overload_store_row(zero, array, base, a):
    if isinstance(a, Lanes):
        return lambda zero, array, base, a: store(array, base, a)

    def lanes(zero, array, base, a):
        w = width(zero)
        for i in range(6):
            store(array, (base + i) * w, a[i])

    return lanes
