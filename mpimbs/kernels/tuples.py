"""Tuples of numbers, loaded from flat arrays, stored in them, and added: vectors, matrices, the states of walks.

Item k of an array stands at k times the width of its numbers. Each is one instruction a number, whatever the length: a
call for every number would take the compiler long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mpimbs.kernels.compiler import kernel_overload
from mpimbs.kernels.lanes import FLAGS, Lanes, implement, load, machine_type, pointer, read_items, store


def _index(builder: Any, base: Any, number: Any) -> Any:
    """Where item `base` begins, in doubles."""
    return builder.mul(base, ir.Constant(base.type, number.width if isinstance(number, Lanes) else 1))


def _loaded(count: int) -> Any:
    @intrinsic
    def loaded(typing_context: Any, zero: Any, array: Any, base: Any) -> Any:
        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            values = read_items(context, builder, (zero, array), args[1], _index(builder, args[2], zero), count)
            return context.make_tuple(builder, sig.return_type, values)

        return types.UniTuple(zero, count)(zero, array, types.intp), lower

    return loaded


@intrinsic
def _stored(typing_context: Any, array: Any, base: Any, values: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        index, one = _index(builder, args[1], values.dtype), machine_type(values.dtype)
        first = pointer(context, builder, array, args[0], index, one, values.count)
        for i, number in enumerate(cgutils.unpack_tuple(builder, args[2], values.count)):
            builder.store(number, builder.gep(first, [ir.Constant(index.type, i)])).align = 8
        return context.get_dummy_value()

    return types.void(array, types.intp, values), lower


@intrinsic
def _zeros(typing_context: Any, zero: Any, like: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.make_tuple(builder, like, [args[0]] * like.count)

    return like(zero, like), lower


@intrinsic
def _added(typing_context: Any, a: Any, b: Any) -> Any:
    if a != b:
        return None

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        left, right = (cgutils.unpack_tuple(builder, arg, a.count) for arg in args)
        sums = [builder.fadd(x, y, flags=FLAGS) for x, y in zip(left, right, strict=True)]
        return context.make_tuple(builder, a, sums)

    return a(a, b), lower


def _loader(count: int, what: str) -> Callable[..., Any]:
    """Make the function that loads so many numbers."""

    def loader(zero: Any, array: Any, base: int) -> Any:
        return tuple(load(zero, array, base + i) for i in range(count))

    loader.__doc__ = f"Load {what} from item `base` of a flat array on."
    loaded = _loaded(count)
    implement(loader, lambda zero, array, base: loaded(zero, array, base))
    return loader


load3 = _loader(3, "a 3-vector")
load6 = _loader(6, "a spatial vector")
load9 = _loader(9, "a 3x3 matrix")
load12 = _loader(12, "a frame change, or a boundary turn")
load18 = _loader(18, "a boundary motion")
load21 = _loader(21, "a symmetric 6x6 matrix")


def load_like(zero: Any, array: Any, base: int, like: Any) -> Any:
    """Load as many numbers as `like` has from item `base` of a flat array on."""
    return tuple(load(zero, array, base + i) for i in range(len(like)))


def store_numbers(zero: Any, array: Any, base: int, values: Any) -> None:
    """Store a tuple of numbers from item `base` of a flat array on."""
    for i, value in enumerate(values):
        store(array, base + i, value)


def add_numbers(a: Any, b: Any) -> Any:
    """Sum of two tuples of numbers, item by item."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def zeros_like(zero: Any, like: Any) -> Any:
    """As many zeros as `like` has numbers."""
    return (zero,) * len(like)


@kernel_overload(load_like)
def _overload_load_like(zero, array, base, like):
    loaded = _loaded(len(like))
    return lambda zero, array, base, like: loaded(zero, array, base)


implement(store_numbers, lambda zero, array, base, values: _stored(array, base, values))
implement(add_numbers, lambda a, b: _added(a, b))
implement(zeros_like, lambda zero, like: _zeros(zero, like))
