"""The number types of the kernels: a double, or `Lanes`, W doubles side by side in one SIMD register.

A kernel never names its type: it is given a `zero` of it, loads and stores through `load` and `store`, and computes
with the ordinary operators. Arrays for W lanes are interleaved, [item, lane], so the stride of an item is
`width(zero)`. Called uncompiled, the functions here take any Python number.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from mpimbs.kernels.checked import bound
from mpimbs.kernels.compiler import FASTMATH, kernel_overload
from mpimbs.kernels.kernel_cache import processor

FLAGS = tuple(sorted(FASTMATH))
WIDTHS = (2, 4, 8)


class Lanes(types.Type):
    """The numba type of W doubles in one register."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.vector = ir.VectorType(ir.DoubleType(), width)
        super().__init__(name=f"Lanes({width})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Lanes) -> None:
        super().__init__(dmm, fe_type, fe_type.vector)


LANES = {width: Lanes(width) for width in WIDTHS}


class Shared(types.Array):
    """The numba type of a flat array of numbers that all lanes have in common: one double each."""


register_model(Shared)(models.ArrayModel)


@functools.cache
def native_width() -> int:
    """Number of doubles in a SIMD register of this processor: 8 with AVX-512, 4 with AVX2, 2 otherwise."""
    features = processor()[1].split(",")
    return 8 if "+avx512f" in features else 4 if "+avx2" in features else 2


def implement(
    function: Callable[..., Any], of_doubles: Callable[..., Any], of_lanes: Callable[..., Any] | None = None
) -> None:
    """Give what kernels call in place of a function; `of_lanes`, where given, if the first argument is of lanes."""

    def chosen(*kinds: Any, **_: Any) -> Callable[..., Any]:
        return of_lanes if of_lanes is not None and isinstance(kinds[0], Lanes) else of_doubles

    kernel_overload(function, strict=False)(chosen)


# --- lowering -------------------------------------------------------------------------------------------------------


def _broadcast(builder: Any, vector: Any, value: Any) -> Any:
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), mask)


def _as_vector(builder: Any, lanes: Lanes, kind: Any, value: Any) -> Any:
    return value if isinstance(kind, Lanes) else _broadcast(builder, lanes.vector, value)


def _lower_binary(op: Any, instruction: str) -> None:
    operands = [pair for w in LANES.values() for pair in ((w, w), (w, types.float64), (types.float64, w))]
    result = {pair: next(kind for kind in pair if isinstance(kind, Lanes)) for pair in operands}

    @infer_global(op)
    class _Template(ConcreteTemplate):
        cases: ClassVar[list[Any]] = [signature(result[pair], *pair) for pair in operands]

    for pair in operands:

        def implementation(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            left, right = (
                _as_vector(builder, sig.return_type, kind, value) for kind, value in zip(sig.args, args, strict=True)
            )
            return getattr(builder, instruction)(left, right, flags=FLAGS)

        lower_builtin(op, *pair)(implementation)


for _op, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _lower_binary(_op, _instruction)


@infer_global(operator.neg)
class _Negation(ConcreteTemplate):
    cases: ClassVar[list[Any]] = [signature(w, w) for w in LANES.values()]


for _lanes in LANES.values():

    @lower_builtin(operator.neg, _lanes)
    def _negate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.fneg(args[0], flags=FLAGS)


def pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any, vector: Any, count: int = 1) -> Any:
    """Pointer to a number in an array, or to the first of so many, in a lowering."""
    whole = context.make_array(kind)(context, builder, array)
    bound(context, builder, index, count * getattr(vector, "count", 1), whole.nitems)
    return builder.bitcast(builder.gep(whole.data, [index]), vector.as_pointer())


def machine_type(kind: Any) -> Any:
    """LLVM's type of a number."""
    return kind.vector if isinstance(kind, Lanes) else ir.DoubleType()


def read_items(context: Any, builder: Any, kinds: Any, array: Any, index: Any, count: int = 1) -> list[Any]:
    """Read so many numbers from an array, whose first double is at an index, in a lowering.

    `kinds`: that of the numbers, and that of the array. Of what lanes share, each gets what there is.
    """
    number, kind = kinds
    one = machine_type(number)
    spread = isinstance(kind, Shared) and isinstance(number, Lanes)
    if spread:
        one, index = ir.DoubleType(), builder.sdiv(index, ir.Constant(index.type, number.width))
    first = pointer(context, builder, kind, array, index, one, count)
    values = []
    for i in range(count):
        values.append(builder.load(builder.gep(first, [ir.Constant(index.type, i)])))
        values[-1].align = 8
    return [_broadcast(builder, number.vector, value) for value in values] if spread else values


# A double, too, is loaded and stored without numba's treatment of negative indices.
@intrinsic
def _load(typing_context: Any, like: Any, array: Any, index: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return read_items(context, builder, (like, sig.args[1]), args[1], args[2])[0]

    return like(like, array, types.intp), lower


@intrinsic
def _store(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place = pointer(context, builder, sig.args[0], args[0], args[1], machine_type(value))
        builder.store(args[2], place).align = 8
        return context.get_dummy_value()

    return types.void(array, types.intp, value), lower


@intrinsic
def _shared(typing_context: Any, array: Any) -> Any:
    kind = Shared(types.float64, 1, "C", name="shared(float64)")
    return kind(array), lambda context, builder, sig, args: args[0]


@intrinsic(prefer_literal=True)
def _zero_lanes(typing_context: Any, width: Any) -> Any:
    lanes = LANES[width.literal_value]

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return ir.Constant(lanes.vector, [0.0] * lanes.width)

    return lanes(width), lower


@intrinsic
def extract(typing_context: Any, value: Any, lane: Any) -> Any:
    """Give the double in one lane."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.extract_element(args[0], builder.trunc(args[1], ir.IntType(32)))

    return types.float64(value, types.intp), lower


@intrinsic
def insert(typing_context: Any, value: Any, lane: Any, number: Any) -> Any:
    """Give the lanes with a double put into one of them."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.insert_element(args[0], args[2], builder.trunc(args[1], ir.IntType(32)))

    return value(value, types.intp, types.float64), lower


def _call(builder: Any, name: str, *args: Any) -> Any:
    """Call the LLVM intrinsic of a name for vectors."""
    vector = args[0].type
    function = ir.FunctionType(vector, [vector] * len(args))
    return builder.call(builder.module.declare_intrinsic(f"llvm.{name}.v{vector.count}f64", (), function), args)


@intrinsic
def _sqrt_lanes(typing_context: Any, value: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _call(builder, "sqrt", args[0])

    return value(value), lower


@intrinsic
def _absolute_lanes(typing_context: Any, value: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _call(builder, "fabs", args[0])

    return value(value), lower


@intrinsic
def _largest_lanes(typing_context: Any, a: Any, b: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _call(builder, "maximum", *args)

    return a(a, a), lower


@intrinsic
def copy_sign(typing_context: Any, size: Any, sign: Any) -> Any:
    """Give the lanes of `size` with the signs of those of `sign`, that of a zero included."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _call(builder, "copysign", *args)

    return size(size, size), lower


@intrinsic
def where_less(typing_context: Any, a: Any, b: Any, yes: Any, no: Any) -> Any:
    """Give in each lane `yes` where a < b, else `no`. Any of them may be a double, for all lanes, but not all four."""
    lanes = next(kind for kind in (a, b, yes, no) if isinstance(kind, Lanes))

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        left, right, first, second = (
            _as_vector(builder, lanes, kind, value) for kind, value in zip(sig.args, args, strict=True)
        )
        return builder.select(builder.fcmp_ordered("<", left, right), first, second)

    return lanes(a, b, yes, no), lower


@intrinsic
def all_between(typing_context: Any, value: Any, low: Any, high: Any) -> Any:
    """Whether low <= value <= high in every lane, for two doubles; NaN is not."""

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        above = builder.fcmp_ordered(">=", args[0], _broadcast(builder, args[0].type, args[1]))
        below = builder.fcmp_ordered("<=", args[0], _broadcast(builder, args[0].type, args[2]))
        mask = ir.IntType(value.width)
        return builder.icmp_signed("==", builder.bitcast(builder.and_(above, below), mask), ir.Constant(mask, -1))

    return types.boolean(value, types.float64, types.float64), lower


@intrinsic
def _sum_of_lanes(typing_context: Any, value: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        total, count = args[0], value.width
        while count > 1:
            count //= 2
            i32, none = ir.IntType(32), ir.Constant(total.type, ir.Undefined)
            low, high = (
                builder.shuffle_vector(total, none, ir.Constant(ir.VectorType(i32, count), list(range(k, k + count))))
                for k in (0, count)
            )
            total = builder.fadd(low, high, flags=FLAGS)
        return builder.extract_element(total, ir.Constant(ir.IntType(32), 0))

    return types.float64(value), lower


# --- what kernels call ----------------------------------------------------------------------------------------------


def zero_lanes(width: int) -> Any:
    """Zero in every one of `width` lanes; compiled code only, `width` a literal 2, 4 or 8."""
    raise TypeError("lanes exist in compiled code only")


def load(zero: Any, array: Any, index: int) -> Any:
    """Load a number of the type of `zero`, whose first double is at `index` of a flat contiguous array."""
    return array[index]


def store(array: Any, index: int, value: Any) -> None:
    """Store a number of type T with its first double at `index` of a flat contiguous array."""
    array[index] = value


def shared(array: Any) -> Any:
    """Give a flat array of doubles as numbers that all lanes have in common, to be loaded."""
    return array


def width(zero: Any) -> int:
    """Number of doubles in a number of the type of `zero`: 1, or W for lanes."""
    return 1


@functools.singledispatch
def square_root(value: Any) -> Any:
    """Square root of a number of type T. Other number types register their own for uncompiled use."""
    return math.sqrt(value)


# A `singledispatch` object is not a plain function, which is what numba resolves: kernels call this.
def sqrt(value: Any) -> Any:
    """Square root of a number of type T."""
    return square_root(value)


def absolute(value: Any) -> Any:
    """Magnitude of a number of type T."""
    return abs(value)


def largest(a: Any, b: Any) -> Any:
    """Give the larger of two numbers of type T, lane by lane; NaN if one is NaN."""
    return a if a > b or a != a else b


def over_lanes(value: Any) -> Any:
    """Sum over the lanes of a number of type T."""
    return value


@kernel_overload(zero_lanes, prefer_literal=True)
def _overload_zero_lanes_literal(width):
    if isinstance(width, types.IntegerLiteral):
        return lambda width: _zero_lanes(width)
    return None


@kernel_overload(width)
def _overload_width(zero):
    count = zero.width if isinstance(zero, Lanes) else 1
    return lambda zero: count


implement(load, lambda zero, array, index: _load(zero, array, index))
implement(store, lambda array, index, value: _store(array, index, value))
implement(shared, lambda array: _shared(array))
implement(sqrt, lambda value: np.sqrt(value), lambda value: _sqrt_lanes(value))
implement(absolute, lambda value: abs(value), lambda value: _absolute_lanes(value))
implement(largest, lambda a, b: a if a > b or a != a else b, lambda a, b: _largest_lanes(a, b))
implement(over_lanes, lambda value: value, lambda value: _sum_of_lanes(value))
