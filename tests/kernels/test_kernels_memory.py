"""Tables of addresses: compiled code finds the arrays again, which live as long as the table."""

import gc
import weakref
from typing import NamedTuple

import numpy as np
import pytest

from mpimbs.kernels.compiler import kernel
from mpimbs.kernels.memory import Floats, Integers, NumberItem, Rows, Table, aligned_zeros, read, schema, size_of


class Inner(NamedTuple):
    counts: Integers
    rows: Rows


class Outer(NamedTuple):
    numbers: Floats
    inner: Inner
    many: int
    none: Floats


PLACES = schema(Outer)


@kernel
def _visit(table):
    """Add counts to numbers, and the plain number to the first; give the sizes."""
    inner = read(table, PLACES.inner)
    numbers = read(table, PLACES.numbers)
    for i in range(inner.counts.size):
        numbers[i] += inner.counts[i]
    numbers[0] += read(table, PLACES.many)
    rows = read(table, PLACES.inner.rows)
    return numbers.size, inner.counts.size, read(table, PLACES.none).size, rows.shape[0], rows[1, 3]


def values(**changed: object) -> Outer:
    inner = Inner(np.array([10, -20, 2**40]), np.arange(16).reshape(2, 8))
    given = Outer(np.linspace(0.5, 3.5, 4), inner, -7, np.zeros(0))
    return given._replace(**changed)  # type: ignore[arg-type]


def test_arrays_live_as_long_as_the_table() -> None:
    given = values()
    table, numbers, address = Table(given), weakref.ref(given.numbers), given.numbers.ctypes.data
    del given
    gc.collect()
    others = [np.full(4, np.nan) for _ in range(100)]  # would take their place
    kept = numbers()
    assert kept is not None and kept.ctypes.data == address and address in table.data and len(others) == 100
    assert _visit(table.data) == (4, 3, 0, 2, 11)
    assert kept.tolist() == [0.5 + 10 - 7, 1.5 - 20, 2.5 + 2**40, 3.5], "compiled code works on the array itself"
    del table, kept
    gc.collect()
    assert numbers() is None


def test_items() -> None:
    """Two integers an item, in the order of the declaration: address and size, or the number and zero."""
    given = values()
    table = Table(given)
    assert table.data.dtype == np.int64 and len(table.data) == size_of(Outer) == 10
    assert table.data[1::2].tolist() == [4, 3, 16, 0, 0] and table.data[6] == -7
    assert table.data[[0, 2, 4]].tolist() == [a.ctypes.data for a in (given.numbers, *given.inner)]
    assert table.number("many") == -7
    table.set_number("many", 5)
    assert table.number("many") == 5 and isinstance(PLACES.many, NumberItem)
    with pytest.raises(TypeError, match="numbers: is no number"):
        table.set_number("numbers", 1)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(8)[::2],
        np.zeros(8)[::-1],
        np.zeros((3, 2)).T,
        np.zeros(4, np.float32),
        np.zeros(4, np.int32),
        np.zeros(4, np.int64),
        np.zeros(4, bool),
        np.zeros(4, complex),
        np.zeros(4, object),
        np.zeros(4, np.dtype(float).newbyteorder()),
        3.0,
        None,
    ],
    ids=str,
)
def test_arrays_that_compiled_code_would_misread(array: object) -> None:
    with pytest.raises(TypeError, match=r"Outer\.none: a contiguous array of float64 is needed"):
        Table(values(none=array))


def test_other_kinds_than_declared() -> None:
    with pytest.raises(TypeError, match=r"Outer\.inner\.counts: a contiguous array of int64 is needed, not float64"):
        Table(values(inner=Inner(np.zeros(3), np.zeros((1, 8), np.int64))))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Outer\.inner\.rows: rows of 8 are needed, not \(2, 5\)"):
        Table(values(inner=Inner(np.zeros(3, np.int64), np.zeros((2, 5), np.int64))))
    with pytest.raises(TypeError, match=r"Outer\.many: a whole number is needed, not 0.5"):
        Table(values(many=0.5))


def test_a_field_without_a_place() -> None:
    class Wrong(NamedTuple):
        name: str

    with pytest.raises(TypeError, match=r"Wrong\.name: .*str.* has no place in a table"):
        schema(Wrong)


def test_aligned_zeros() -> None:
    for size in range(20):
        for array in [aligned_zeros(size) for _ in range(5)]:
            assert array.shape == (size,) and array.dtype == np.float64 and array.flags.c_contiguous
            assert not array.any()
            array[:] = 1.0
            if size:
                assert array.ctypes.data % 64 == 0, f"{size} numbers straddle cache lines"
