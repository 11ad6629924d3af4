"""Arrays handed to compiled code by address: one call from Python carries one table instead of dozens of arrays.

numba takes about a tenth of a microsecond to unpack an array that it is given, which is what the sweep of a body costs.
A `Table` is an array of integers, made once, that holds addresses, sizes and plain numbers; compiled code makes arrays
of it again, for free.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from mpimbs.spatial.compiler import kernel

_LINE = 8  # doubles in a cache line


def _array_at(kind: Any) -> Any:
    """Make the array of a kind that begins at an address and has so many elements; nobody owns it."""
    array_type = types.Array(kind, 1, "C")

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind)))
        array = make_array(array_type)(context, builder)
        data = builder.inttoptr(args[0], context.get_data_type(kind).as_pointer())
        populate_array(array, data=data, shape=[args[1]], strides=[size], itemsize=size, meminfo=None)
        return array._getvalue()

    return array_type(types.int64, types.int64), lower


@intrinsic
def _floats_at(typing_context: Any, address: Any, size: Any) -> Any:
    return _array_at(types.float64)


@intrinsic
def _integers_at(typing_context: Any, address: Any, size: Any) -> Any:
    return _array_at(types.int64)


@kernel(inline=True)
def floats(table, item):
    """Give the array of doubles that `Table.add` put at an item of the table."""
    return _floats_at(table[item], table[item + 1])


@kernel(inline=True)
def integers(table, item):
    """Give the array of integers that `Table.add` put at an item of the table."""
    return _integers_at(table[item], table[item + 1])


@intrinsic
def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = make_array(sig.args[0])(context, builder, args[0]).data
        pointer = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        integer = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, integer, integer, integer])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(prefetch, [pointer, integer(0), integer(2), integer(1)])  # to read, second-level cache, data
        return context.get_dummy_value()

    return types.void(array, types.intp), lower


@kernel(inline=True)
def fetch_ahead(array, first, count):
    """Ask for numbers `first` to `first` + `count` of an array, or as many as there are, to be brought near."""
    for i in range(first, min(first + count, array.size), _LINE):
        _prefetch(array, i)


@intrinsic
def _flat_floats(typing_context: Any, array: Any) -> Any:
    """Give back a contiguous, writable array of doubles of one axis; any other is refused while compiling."""
    if not (
        isinstance(array, types.Array)
        and array.is_c_contig
        and array.mutable
        and array.ndim == 1
        and array.dtype == types.float64
    ):
        raise TypingError(f"needs a flat array of doubles, not {array}")
    return array(array), lambda context, builder, sig, args: args[0]


@kernel(inline=True)
def borrowed(array):
    """Give an array back that Python gave, if it is what kernels compute with: see `_flat_floats`."""
    return _flat_floats(array)


@kernel(inline=True)
def assign(array, values):
    """Copy all of `values` to the begin of a flat array. A slice on the left would take numba long to compile."""
    for i in range(values.size):
        array[i] = values[i]


def aligned_zeros(size: int) -> npt.NDArray[np.float64]:
    """Give zeros whose address is a multiple of a cache line: a register of lanes never straddles two."""
    room = np.zeros(size + _LINE)
    start = -room.ctypes.data % (8 * _LINE) // 8
    return room[start : start + size]


class Table:
    """Addresses of arrays, and plain numbers, by name; keeps the arrays alive.

    Parameters
    ----------
    names : sequence of str
        The items in order; an array takes two integers (address, number of elements), a number takes the first.

    Attributes
    ----------
    data : int64 [2 * len(names)]
        What compiled code is given: `floats(data, 2 * k)`, `integers(data, 2 * k)` or `data[2 * k]` for item k.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self.data: npt.NDArray[np.int64] = np.zeros(2 * len(names), np.int64)
        self._place = {name: 2 * k for k, name in enumerate(names)}
        self._kept: dict[str, npt.NDArray[Any]] = {}

    def add(self, name: str, value: npt.NDArray[Any] | int) -> None:
        """Put an array (contiguous, of doubles or int64; its address is kept, so never replace it) or a number."""
        item = self._place[name]
        if isinstance(value, np.ndarray):
            if not value.flags.c_contiguous or value.dtype not in (np.float64, np.int64):
                raise TypeError(f"{name}: a contiguous array of float64 or int64 is needed, not {value.dtype}")
            self._kept[name] = value
            self.data[item] = value.ctypes.data
            self.data[item + 1] = value.size
        else:
            self.data[item] = value

    def number(self, name: str) -> int:
        """Give back a number that was put."""
        return int(self.data[self._place[name]])
