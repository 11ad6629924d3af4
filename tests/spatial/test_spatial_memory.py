"""Tables of addresses: compiled code finds the arrays again, which live as long as the table."""

import gc
import weakref

import numpy as np
import pytest

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.memory import Table, aligned_zeros, floats, integers

ITEMS = ("numbers", "counts", "many", "none")


@kernel
def _visit(table):
    """Add counts to numbers, and the plain number to the first; give the sizes."""
    numbers = floats(table, 0)
    counts = integers(table, 2)
    for i in range(counts.size):
        numbers[i] += counts[i]
    numbers[0] += table[4]
    return numbers.size, counts.size, floats(table, 6).size


def filled() -> tuple[Table, weakref.ref[np.ndarray], int]:
    """A table of arrays to which nothing else refers; a weak reference and the address of the first."""
    table = Table(ITEMS)
    numbers = np.linspace(0.5, 3.5, 4)
    table.add("numbers", numbers)
    table.add("counts", np.array([10, -20, 2**40]))
    table.add("many", -7)
    table.add("none", np.zeros(0))
    return table, weakref.ref(numbers), numbers.ctypes.data


def test_arrays_live_as_long_as_the_table() -> None:
    table, numbers, address = filled()
    gc.collect()
    others = [np.full(4, np.nan) for _ in range(100)]  # would take their place
    kept = numbers()
    assert kept is not None and kept.ctypes.data == address == table.data[0] and len(others) == 100
    assert _visit(table.data) == (4, 3, 0)
    assert kept.tolist() == [0.5 + 10 - 7, 1.5 - 20, 2.5 + 2**40, 3.5], "compiled code works on the array itself"
    del table, kept
    gc.collect()
    assert numbers() is None


def test_items() -> None:
    """Two integers an item, in the order of the names: address and size, or the number and zero."""
    table = filled()[0]
    assert table.data.dtype == np.int64 and table.data.shape == (2 * len(ITEMS),)
    assert table.data[1::2].tolist() == [4, 3, 0, 0] and table.data[4] == -7
    square = np.arange(6.0).reshape(2, 3)
    table.add("none", square)
    assert table.data[6:].tolist() == [square.ctypes.data, 6]
    with pytest.raises(KeyError):
        table.add("unknown", 1)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(8)[::2],
        np.zeros(8)[::-1],
        np.zeros((3, 2)).T,
        np.zeros(4, np.float32),
        np.zeros(4, np.int32),
        np.zeros(4, np.uint64),
        np.zeros(4, bool),
        np.zeros(4, complex),
        np.zeros(4, object),
        np.zeros(4, np.dtype(float).newbyteorder()),
    ],
    ids=["strided", "reversed", "transposed", "float32", "int32", "uint64", "bool", "complex", "object", "swapped"],
)
def test_arrays_that_compiled_code_would_misread(array: np.ndarray) -> None:
    table = Table(ITEMS)
    with pytest.raises(TypeError, match="none: a contiguous array of float64 or int64 is needed"):
        table.add("none", array)
    assert not table.data.any()


def test_aligned_zeros() -> None:
    for size in range(20):
        for array in [aligned_zeros(size) for _ in range(5)]:
            assert array.shape == (size,) and array.dtype == np.float64 and array.flags.c_contiguous
            assert not array.any()
            array[:] = 1.0
            if size:
                assert array.ctypes.data % 64 == 0, f"{size} numbers straddle cache lines"
