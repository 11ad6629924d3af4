"""Rows of 6x6 matrices as one value, for what treats all columns alike.

Of doubles, the row is a SIMD register of `ROW` lanes, two of them spare. Of lanes, where every number fills a register
already, a row comes in parts of `PART` columns, a tuple each, so that what a loop over them keeps fits the registers.
Of uncompiled numbers it is a tuple of all six, or of so many columns as their type says.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from mpimbs.kernels.compiler import kernel, kernel_overload
from mpimbs.kernels.lanes import LANES, Lanes, extract, implement, load, machine_type, pointer, store, width
from mpimbs.kernels.layout import transposed
from mpimbs.kernels.tuples import load6, store_numbers
from mpimbs.spatial.inertia import add_outer, row

ROW = 8  # numbers that a stored row takes
PART = 2  # columns of a part of a row of lanes

_UNITS = np.eye(6, ROW).ravel()


@intrinsic
def _zero_register(typing_context: Any, zero: Any) -> Any:
    lanes = LANES[ROW]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return ir.Constant(lanes.vector, [0.0] * ROW)

    return lanes(zero), lower


def load_row(array: Any, index: int) -> Any:
    """Load a row of doubles, `ROW` numbers from an index on of a flat array: a register; uncompiled, an array."""
    return array[index : index + ROW].copy()


def write_row(array: Any, index: int, a: Any) -> None:
    """Store what `load_row` loads."""
    array[index : index + ROW] = a


def stream_row(array: Any, index: int, a: Any) -> None:
    """Store as `write_row` does what nobody reads soon, past the caches; where a cache line begins."""
    write_row(array, index, a)


def load_columns(zero: Any, array: Any, base: int) -> Any:
    """Load a row, or a part of one, from item `base` of a flat array on."""
    return load_row(array, base)


def entry(a: Any, i: int) -> Any:
    """Give one of the numbers of a row that `load_row` gave."""
    return a[i]


def multiply_rows(a: Any, b: Any) -> Any:
    """Products of the numbers of two rows, one by one."""
    return tuple(x * y for x, y in zip(a, b, strict=True))


def eight_rows(rows: Any) -> Any:
    """Six rows, as `load_row` gives them, with two of zeros below."""
    return (*rows, np.zeros(ROW), np.zeros(ROW))


def transposed_rows(rows: Any) -> Any:
    """Transpose eight rows, as `load_row` gives them."""
    return tuple(np.array(rows).T)


@functools.singledispatch
def columns_at_once(zero: Any) -> int:
    """Columns of a row that are treated at once. Other number types register their own for uncompiled use."""
    return 6


# A `singledispatch` object is not a plain function, which is what numba resolves: kernels call this.
def columns_of_part(zero: Any) -> int:
    """Columns of a row that are treated at once, for numbers of the type of `zero`: `PART` of lanes, else all six."""
    return columns_at_once(zero)


def unit_rows(zero: Any, first: int) -> Any:
    """Give the rows of the identity, or their part from column `first` on, for numbers of the type of `zero`."""
    return tuple(tuple(zero + (i == j) for j in range(first, first + columns_of_part(zero))) for i in range(6))


def zero_row(zero: Any) -> Any:
    """Give a row of zeros, for numbers of the type of `zero`."""
    return (zero,) * columns_of_part(zero)


def add_row(a: Any, b: Any) -> Any:
    """Sum of two rows."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def scale_row(x: Any, a: Any) -> Any:
    """Number times row."""
    return tuple(x * y for y in a)


def store_row(zero: Any, array: Any, base: int, a: Any) -> None:
    """Store a row, or a part of one, from item `base` of a flat array on, which has room for whole rows."""
    array[base : base + len(a)] = a


def store_column(zero: Any, array: Any, base: int, a: Any) -> None:
    """Store the numbers of a row, or of a part of one, `ROW` items apart."""
    array[base : base + len(a) * ROW : ROW] = a


def no_products(zero: Any) -> Any:
    """Give a symmetric 6x6 matrix of zeros to which `add_products` adds, for numbers of the type of `zero`."""
    return (zero,) * 21


def add_products(zero: Any, w: Any, x: Any, array: Any, base: int) -> Any:
    """Symmetric matrix W + x s s^T, of the six numbers s from item `base` of a flat array on."""
    return add_outer.py_func(w, x, tuple(array[base : base + 6]))


def store_products(zero: Any, array: Any, base: int, w: Any) -> None:
    """Store a symmetric matrix that `add_products` gave as six rows, from item `base` on; their column 6 is kept."""
    for i in range(6):
        array[base + i * ROW : base + i * ROW + 6] = row.py_func(w, i)


@intrinsic
def _stream(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        stored = builder.store(args[2], pointer(context, builder, array, args[0], args[1], machine_type(value)))
        stored.align = 8 * ROW
        once = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        stored.set_metadata("nontemporal", once)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), lower


# A row of doubles is itself a register of lanes; one of lanes is a tuple.
implement(load_row, lambda array, index: load(_zero_register(0.0), array, index))
implement(write_row, lambda array, index, a: store(array, index, a))
implement(stream_row, lambda array, index, a: _stream(array, index, a))
implement(
    load_columns,
    lambda zero, array, base: load_row(array, base),
    lambda zero, array, base: (load(zero, array, base * width(zero)), load(zero, array, (base + 1) * width(zero))),
)
implement(entry, lambda a, i: extract(a, i))
implement(multiply_rows, lambda a, b: (a[0] * b[0], a[1] * b[1]), lambda a, b: a * b)
implement(eight_rows, lambda rows: rows + (_zero_register(0.0), _zero_register(0.0)))
implement(transposed_rows, lambda rows: transposed(rows))
implement(columns_of_part, lambda zero: 6, lambda zero: PART)
implement(zero_row, lambda zero: _zero_register(zero), lambda zero: (zero, zero))
implement(add_row, lambda a, b: (a[0] + b[0], a[1] + b[1]), lambda a, b: a + b)


def _unit_rows(zero, first):
    return (
        load_row(_UNITS, 0),
        load_row(_UNITS, ROW),
        load_row(_UNITS, 2 * ROW),
        load_row(_UNITS, 3 * ROW),
        load_row(_UNITS, 4 * ROW),
        load_row(_UNITS, 5 * ROW),
    )


def _unit_rows_of_lanes(zero, first):
    return (
        (zero + (first == 0) * 1.0, zero),
        (zero, zero + (first == 0) * 1.0),
        (zero + (first == 2) * 1.0, zero),
        (zero, zero + (first == 2) * 1.0),
        (zero + (first == 4) * 1.0, zero),
        (zero, zero + (first == 4) * 1.0),
    )


implement(unit_rows, _unit_rows, _unit_rows_of_lanes)


@kernel_overload(scale_row)
def _overload_scale_row(x, a):
    if isinstance(a, Lanes):
        return lambda x, a: x * a
    return lambda x, a: (x * a[0], x * a[1])


@kernel_overload(store_row)
def _overload_store_row(zero, array, base, a):
    if isinstance(a, Lanes):
        return lambda zero, array, base, a: store(array, base, a)

    def lanes(zero, array, base, a):
        w = width(zero)
        store(array, base * w, a[0])
        store(array, (base + 1) * w, a[1])

    return lanes


@kernel_overload(store_column)
def _overload_store_column(zero, array, base, a):
    if isinstance(a, Lanes):

        def plain(zero, array, base, a):
            for i in range(6):
                array[base + i * ROW] = extract(a, i)

        return plain

    def lanes(zero, array, base, a):
        w = width(zero)
        store(array, base * w, a[0])
        store(array, (base + ROW) * w, a[1])

    return lanes


def _no_products(zero):
    row = _zero_register(zero)
    return (row, row, row, row, row, row)


def _no_products_of_lanes(zero):
    six = (zero, zero, zero, zero, zero, zero)
    return six + six + six + (zero, zero, zero)


implement(no_products, _no_products, _no_products_of_lanes)


def _add_products(zero, w, x, array, base):
    z = scale_row(x, load_row(array, base))
    return (
        add_row(w[0], scale_row(array[base], z)),
        add_row(w[1], scale_row(array[base + 1], z)),
        add_row(w[2], scale_row(array[base + 2], z)),
        add_row(w[3], scale_row(array[base + 3], z)),
        add_row(w[4], scale_row(array[base + 4], z)),
        add_row(w[5], scale_row(array[base + 5], z)),
    )


implement(add_products, _add_products, lambda zero, w, x, array, base: add_outer(w, x, load6(zero, array, base)))


def _store_products(zero, array, base, w):
    for i in range(6):
        beyond = array[base + i * ROW + 6]
        write_row(array, base + i * ROW, w[i])
        array[base + i * ROW + 6] = beyond
        for j in range(i):
            array[base + i * ROW + j] = array[base + j * ROW + i]


implement(store_products, _store_products, lambda zero, array, base, w: store_symmetric(zero, array, base, w))


@kernel(inline=True)
def store_symmetric(zero, array, base, i):
    """Store a symmetric 6x6 matrix, 21 numbers, as six rows of `ROW` from item `base` of a flat array on."""
    store_numbers(zero, array, base, row(i, 0))
    store_numbers(zero, array, base + ROW, row(i, 1))
    store_numbers(zero, array, base + 2 * ROW, row(i, 2))
    store_numbers(zero, array, base + 3 * ROW, row(i, 3))
    store_numbers(zero, array, base + 4 * ROW, row(i, 4))
    store_numbers(zero, array, base + 5 * ROW, row(i, 5))
