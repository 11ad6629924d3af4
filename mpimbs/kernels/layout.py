"""From numbers in sequence to numbers side by side in lanes, and back.

A vector in sequence holds the W parts of the lanes one after the other, each of `count` numbers; interleaved, [item,
lane], it is what the sweeps load. Blocks of W x W numbers are transposed in registers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from mpimbs.kernels.compiler import kernel, kernel_overload
from mpimbs.kernels.lanes import Lanes, implement, load, store, width
from mpimbs.kernels.memory import span


@intrinsic
def _transpose(typing_context: Any, rows: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        w = rows.dtype.width
        vectors = cgutils.unpack_tuple(builder, args[0])
        half = w // 2
        while half:
            # exchange the blocks beside the diagonal, of ever smaller size
            low = [e if not e & half else w + e - half for e in range(w)]
            high = [e + half if not e & half else w + e for e in range(w)]
            kind = ir.VectorType(ir.IntType(32), w)
            for i in (k for k in range(w) if not k & half):
                a, b = vectors[i], vectors[i + half]
                vectors[i] = builder.shuffle_vector(a, b, ir.Constant(kind, low))
                vectors[i + half] = builder.shuffle_vector(a, b, ir.Constant(kind, high))
            half //= 2
        return context.make_tuple(builder, sig.return_type, vectors)

    if isinstance(rows, types.UniTuple) and isinstance(rows.dtype, Lanes) and rows.count == rows.dtype.width:
        return rows(rows), lower
    return None


def transposed(rows: Any) -> Any:
    """Transpose a square of numbers: W values of W lanes; uncompiled, one number."""
    return rows


implement(transposed, lambda rows: _transpose(rows))


def load_square(zero: Any, array: Any, index: int, stride: int) -> Any:
    """Load W values of W lanes, `stride` doubles from one to the next; uncompiled, one number."""
    return (array[index],)


@kernel_overload(load_square)
def _overload_load_square(zero, array, index, stride):
    w = zero.width if isinstance(zero, Lanes) else 1
    if w == 8:
        return lambda zero, array, index, stride: (
            load(zero, array, index),
            load(zero, array, index + stride),
            load(zero, array, index + 2 * stride),
            load(zero, array, index + 3 * stride),
            load(zero, array, index + 4 * stride),
            load(zero, array, index + 5 * stride),
            load(zero, array, index + 6 * stride),
            load(zero, array, index + 7 * stride),
        )
    if w == 4:
        return lambda zero, array, index, stride: (
            load(zero, array, index),
            load(zero, array, index + stride),
            load(zero, array, index + 2 * stride),
            load(zero, array, index + 3 * stride),
        )
    if w == 2:
        return lambda zero, array, index, stride: (load(zero, array, index), load(zero, array, index + stride))
    return lambda zero, array, index, stride: (load(zero, array, index),)


@kernel(inline=True)
def _store_square(array, index, stride, rows):
    for k in range(len(rows)):
        store(array, index + k * stride, rows[k])


@kernel
def interleave(zero, sequence, first, stride, count, lanes):
    """Write `count` numbers of each lane, which begin at `first` + lane * `stride` of `sequence`, side by side."""
    w = width(zero)
    whole = count - count % w
    for i in range(0, whole, w):
        _store_square(lanes, i * w, w, transposed(load_square(zero, sequence, first + i, stride)))
    for lane in range(w):
        for i in range(whole, count):
            lanes[i * w + lane] = sequence[first + lane * stride + i]


@kernel
def separate(zero, lanes, count, sequence, first, stride):
    """Write `count` numbers of each lane, which stand side by side, to `first` + lane * `stride` of `sequence`."""
    w = width(zero)
    whole = count - count % w
    for i in range(0, whole, w):
        _store_square(sequence, first + i, stride, transposed(load_square(zero, lanes, i * w, w)))
    for lane in range(w):
        for i in range(whole, count):
            sequence[first + lane * stride + i] = lanes[i * w + lane]


def side_by_side_from(zero, interleaved, sequence, first, stride, room):
    """Numbers of a tile's lanes, `stride` of each, interleaved: in `room`, or where they stand so already, as those of
    one lane do."""


def _side_by_side(zero, interleaved, sequence, first, stride, room):
    if interleaved != 0:
        return span(sequence, first, stride * width(zero))
    interleave(zero, sequence, first, stride, stride, room)
    return span(room, 0, stride * width(zero))


def _in_place(zero, interleaved, sequence, first, stride, room):
    return span(sequence, first, stride)


implement(side_by_side_from, _in_place, _side_by_side)


def room_side_by_side(zero, interleaved, sequence, first, stride, room):
    """Where a tile's lanes write `stride` numbers each: in `room`, or where they are to stand."""


def _room(zero, interleaved, sequence, first, stride, room):
    if interleaved != 0:
        return span(sequence, first, stride * width(zero))
    return span(room, 0, stride * width(zero))


implement(room_side_by_side, _in_place, _room)


def put_in_sequence(zero, interleaved, room, sequence, first, stride):
    """Bring what the lanes wrote in `room_side_by_side` to where it is to stand."""


def _put(zero, interleaved, room, sequence, first, stride):
    if interleaved == 0:
        separate(zero, room, stride, sequence, first, stride)


implement(put_in_sequence, lambda zero, interleaved, room, sequence, first, stride: None, _put)
