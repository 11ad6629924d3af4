"""Arrays handed to compiled code by address: one call from Python carries one table instead of dozens of arrays.

numba takes about a tenth of a microsecond to unpack an array that it is given, which is what the sweep of a body costs.
A `Table` is an array of integers, made once, that holds addresses, sizes and plain numbers; compiled code makes arrays
of it again, for free.

What is in a table is declared once, by a NamedTuple whose fields are `Floats`, `Integers`, `Rows`, `int`, or further
such tuples. `schema` gives the places of its items, `Table` puts the values of an instance there, and compiled code
reads them, one or a whole tuple, by `read`:

    class Plan(NamedTuple):
        turns: Floats  # [lanes * TURNING]
        tip: int

    PLAN = schema(Plan)
    table = Table(Plan(turns, 1))         # of `table.data`, compiled code gets `read(data, PLAN.turns)`
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.checked import bound
from mpimbs.kernels.compiler import kernel, kernel_overload

Rows = Annotated[Integers, 8]  # [any, 8]

_LINE = 8  # doubles in a cache line


def _view(context: Any, builder: Any, array_type: Any, data: Any, shape: list[Any]) -> Any:
    """Make an array of a type and a shape of one or two numbers, of what stands at a pointer; nobody owns it."""
    size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(array_type.dtype)))
    strides = [*(builder.mul(size, count) for count in shape[1:]), size]
    array = context.make_array(array_type)(context, builder)
    context.populate_array(array, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)
    return array._getvalue()


def _array_at(kind: Any, row: int = 0) -> Any:
    """Make the array of a kind that begins at an address and has so many elements, in rows of so many or flat."""
    array_type = types.Array(kind, 2 if row else 1, "C")

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        of_row = ir.Constant(args[1].type, row)
        data = builder.inttoptr(args[0], context.get_data_type(kind).as_pointer())
        return _view(context, builder, array_type, data, [builder.sdiv(args[1], of_row), of_row] if row else [args[1]])

    return array_type(types.int64, types.int64), lower


@intrinsic
def _floats_at(typing_context: Any, address: Any, size: Any) -> Any:
    return _array_at(types.float64)


@intrinsic
def _integers_at(typing_context: Any, address: Any, size: Any) -> Any:
    return _array_at(types.int64)


@intrinsic
def _rows_at(typing_context: Any, address: Any, size: Any) -> Any:
    return _array_at(types.int64, row=8)


@intrinsic
def _span(typing_context: Any, array: Any, first: Any, count: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        whole = context.make_array(array)(context, builder, args[0])
        bound(context, builder, args[1], args[2], whole.nitems)
        return _view(context, builder, array, builder.gep(whole.data, [args[1]]), [args[2]])

    return array(array, types.intp, types.intp), lower


def span(array: Any, first: int, count: int) -> Any:
    """Give `count` items of a flat array from `first` on, all of which are in it: a slice that nothing is asked for."""
    return array[first : first + count]


kernel_overload(span)(lambda array, first, count: lambda array, first, count: _span(array, first, count))


@intrinsic
def _rows(typing_context: Any, array: Any, count: Any, each: Any) -> Any:
    rows_type = types.Array(array.dtype, 2, "C")

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        flat = context.make_array(array)(context, builder, args[0])
        bound(context, builder, 0, builder.mul(args[1], args[2]), flat.nitems)
        return _view(context, builder, rows_type, flat.data, [args[1], args[2]])

    return rows_type(array, types.intp, types.intp), lower


def in_rows(array: Any, count: int, each: int) -> Any:
    """Give the first numbers of a flat array as rows [count, each]: numba's `reshape` brings much that isn't needed."""
    return array[: count * each].reshape(count, each)


kernel_overload(in_rows)(lambda array, count, each: lambda array, count, each: _rows(array, count, each))


class FloatItem(NamedTuple):
    """Place of an array of doubles in a table."""

    at: int


class IntegerItem(NamedTuple):
    """Place of an array of integers."""

    at: int


class RowItem(NamedTuple):
    """Place of an array of rows of eight integers."""

    at: int


class NumberItem(NamedTuple):
    """Place of a plain number."""

    at: int


_ITEMS: dict[Any, Any] = {Floats: FloatItem, Integers: IntegerItem, Rows: RowItem, int: NumberItem}
_DTYPES = {FloatItem: np.dtype(np.float64), IntegerItem: np.dtype(np.int64), RowItem: np.dtype(np.int64)}
Declared = TypeVar("Declared", bound=tuple[Any, ...])


def schema(declared: type[Declared], first: int = 0) -> Declared:
    """Give the places of a table's items, two integers each, from the NamedTuple that declares them.

    Raises
    ------
    TypeError
        A field is none of `Floats`, `Integers`, `Rows`, `int` and NamedTuples of these.
    """
    found: Declared = _places(declared, first)
    return found


@functools.cache  # tables of one kind are made by the dozen
def _places(declared: type[tuple[Any, ...]], first: int) -> Any:
    places: list[Any] = []
    for name, kind in get_type_hints(declared, include_extras=True).items():
        at = first + 2 * _count(places)
        if kind in _ITEMS:
            places.append(_ITEMS[kind](at))
        elif hasattr(kind, "_fields"):
            places.append(schema(kind, at))
        else:
            raise TypeError(f"{declared.__name__}.{name}: {kind} has no place in a table")
    return declared(*places)


def columns(declared: type[Declared]) -> Declared:
    """Give the columns of a table of integers, from the NamedTuple that declares them: of each field its number."""
    return declared(*range(len(get_type_hints(declared))))


def rows_of(found: Sequence[Sequence[int]]) -> Integers:
    """Give rows of a table, of eight numbers each, from those that are not zero behind."""
    rows = np.zeros((len(found), 8), np.int64)
    for row, numbers in zip(rows, found, strict=True):
        row[: len(numbers)] = numbers
    return rows


def size_of(declared: type[tuple[Any, ...]]) -> int:
    """Integers in a table."""
    return 2 * len(_items(declared))


def _is_item(place: Any) -> bool:
    return type(place) in _DTYPES or isinstance(place, NumberItem)


def _count(places: Any) -> int:
    """Number of items of a schema."""
    return sum(1 if _is_item(place) else _count(place) for place in places)


@functools.cache
def _items(declared: type[tuple[Any, ...]]) -> tuple[tuple[str, Any], ...]:
    """Names and places of all items of a table, in sequence."""
    return tuple(_named(schema(declared), declared.__name__))


def _named(places: Any, name: str) -> Iterator[tuple[str, Any]]:
    if _is_item(places):
        yield name, places
    else:
        for part, field in zip(places, places._fields, strict=True):
            yield from _named(part, f"{name}.{field}")


def _leaves(values: tuple[Any, ...]) -> Iterator[Any]:
    """All values of a NamedTuple of such, in sequence."""
    for value in values:
        if isinstance(value, tuple):
            yield from _leaves(value)
        else:
            yield value


def read(table: Any, item: Any) -> Any:
    """Give what stands at a place of a table; compiled code only.

    Parameters
    ----------
    table : int64 array
    item
        Of a `schema`: one item, or a NamedTuple of several, which gives the same of arrays and numbers.
    """
    raise TypeError("tables are read in compiled code only")


@kernel_overload(read)
def _overload_read(table, item):
    declared = item.instance_class
    if declared is FloatItem:
        return lambda table, item: _floats_at(table[item.at], table[item.at + 1])
    if declared is IntegerItem:
        return lambda table, item: _integers_at(table[item.at], table[item.at + 1])
    if declared is RowItem:
        return lambda table, item: _rows_at(table[item.at], table[item.at + 1])
    if declared is NumberItem:
        return lambda table, item: table[item.at]
    scope = {"__name__": __name__, "read": read, "declared": declared}
    parts = ", ".join(f"read(table, item.{name})" for name in declared._fields)
    exec(f"def made(table, item):\n    return declared({parts})\n", scope)
    return scope["made"]


@intrinsic
def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        pointer = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        integer = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, integer, integer, integer])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(prefetch, [pointer, integer(0), integer(2), integer(1)])  # to read, second-level cache, data
        return context.get_dummy_value()

    return types.void(array, types.intp), lower


@kernel(inline=True)
def prefetch(array, first, count):
    """Ask for numbers `first` to `first` + `count` of an array, or as many as there are, to be brought near."""
    for i in range(first, min(first + count, array.size), _LINE):
        _prefetch(array, i)


def _flat(array: Any, axes: int) -> Any:
    """Give a contiguous, writable array of doubles of so many axes, flat; any other is refused while compiling."""
    if not (
        isinstance(array, types.Array)
        and array.is_c_contig
        and array.mutable
        and array.ndim == axes
        and array.dtype == types.float64
    ):
        raise TypingError(f"needs a contiguous array of doubles of {axes} axes, not {array}")
    flat_type = types.Array(types.float64, 1, "C")

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        given = context.make_array(array)(context, builder, args[0])
        return _view(context, builder, flat_type, given.data, [given.nitems])

    return flat_type(array), lower


@intrinsic
def _flat_floats(typing_context: Any, array: Any) -> Any:
    return _flat(array, 1)


@intrinsic
def _flat_rows(typing_context: Any, array: Any) -> Any:
    return _flat(array, 2)


@kernel(inline=True)
def borrowed(array):
    """Give an array back that Python gave, if it is what kernels compute with: see `_flat`."""
    return _flat_floats(array)


@kernel(inline=True)
def borrowed_rows(array):
    """As `borrowed`, an array of two axes: flat."""
    return _flat_rows(array)


@intrinsic
def _address(typing_context: Any, array: Any) -> Any:
    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(array)(context, builder, args[0]).data
        return builder.ptrtoint(data, context.get_value_type(types.intp))

    return types.intp(array), lower


def before_line(array: Any) -> int:
    """How many doubles of an array come before a cache line begins: 0 of one that begins with a line."""
    return int(-array.ctypes.data // 8 % _LINE)


kernel_overload(before_line)(lambda array: lambda array: -_address(array) // 8 % _LINE)


@kernel(inline=True)
def assign(array, values):
    """Copy all of `values` to the begin of a flat array. A slice on the left would take numba long to compile."""
    for i in range(values.size):
        array[i] = values[i]


@kernel(inline=True)
def table_at(address, size):
    """Give a table of so many integers that stands at an address."""
    return _integers_at(address, size)


@kernel
def hand_out(values, rooms, numbers):
    """Write numbers of an array to several: `rooms` has the address and the size of each of these, `numbers` what it
    gets, one room after the other."""
    at = 0
    for k in range(0, rooms.size, 2):
        room = _floats_at(rooms[k], rooms[k + 1])
        for i in range(room.size):
            room[i] = values[numbers[at + i]]
        at += room.size


@kernel
def sum_at(addresses):
    """Give the sum of numbers that stand at some addresses."""
    total = 0.0
    for k in range(addresses.size):
        total += _floats_at(addresses[k], 1)[0]
    return total


@kernel
def put_at(addresses, values, numbers):
    """Write some of `values`, those of these `numbers`, where the addresses are."""
    for k in range(addresses.size):
        _floats_at(addresses[k], 1)[0] = values[numbers[k]]


def addresses_of(arrays: Sequence[npt.NDArray[Any]]) -> Integers:
    """Give where some arrays begin, which have to be kept."""
    return np.array([array.ctypes.data for array in arrays], np.int64)


def aligned_zeros(size: int) -> Floats:
    """Give zeros whose address is a multiple of a cache line: a register of lanes never straddles two."""
    return _from_a_line(np.zeros(size + _LINE), size)


def aligned_room(size: int) -> Floats:
    """Give as many doubles at such an address, to be written."""
    return _from_a_line(np.empty(size + _LINE), size)


def _from_a_line(room: Floats, size: int) -> Floats:
    start = -room.ctypes.data % (8 * _LINE) // 8
    return room[start : start + size]


def aligned(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Give an array of doubles or integers again, whose address is a multiple of a cache line."""
    room = aligned_zeros(values.size).view(values.dtype).reshape(values.shape)
    room[...] = values
    return room


class Table:
    """Addresses of arrays, and plain numbers, where compiled code reads them; keeps the arrays alive.

    Parameters
    ----------
    values : NamedTuple
        As declared, of arrays (contiguous; their addresses are kept, so never replace one) and numbers.

    Raises
    ------
    TypeError
        An array of another kind than declared, or one that is not contiguous.
    """

    def __init__(self, values: tuple[Any, ...]) -> None:
        items = _items(type(values))
        self.data: Integers = np.zeros(2 * len(items), np.int64)  # what compiled code is given, for `read`
        self._kept = values
        data: list[int] = []
        for (name, place), value in zip(items, _leaves(values), strict=True):
            data += self._put(name, place, value)
        self.data[:] = data

    @staticmethod
    def _put(name: str, place: Any, value: Any) -> tuple[int, int]:
        """Put a value at the place of an item."""
        if isinstance(place, NumberItem):
            if not isinstance(value, int | np.integer):
                raise TypeError(f"{name}: a whole number is needed, not {value!r}")
            return int(value), 0
        dtype = _DTYPES[type(place)]
        if not isinstance(value, np.ndarray) or value.dtype != dtype or not value.flags.c_contiguous:
            given = f"{value.dtype}" if isinstance(value, np.ndarray) else f"{value!r}"
            raise TypeError(f"{name}: a contiguous array of {dtype} is needed, not {given}")
        if isinstance(place, RowItem) and value.shape[1:] != (8,):
            raise TypeError(f"{name}: rows of 8 are needed, not {value.shape}")
        return value.__array_interface__["data"][0], value.size

    def number(self, name: str) -> int:
        """Give back a number."""
        return int(self.data[getattr(schema(type(self._kept)), name).at])

    def set(self, name: str, value: Any) -> None:
        """Change a number, or put an array in place of another; it is kept alive, too."""
        place = getattr(schema(type(self._kept)), name)
        self.data[place.at : place.at + 2] = self._put(name, place, value)
        if not isinstance(place, NumberItem):
            self._kept = self._kept._replace(**{name: value})  # type: ignore[attr-defined]
