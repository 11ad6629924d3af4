"""Tables of addresses: compiled code finds the arrays again, which live as long as the table."""

from typing import NamedTuple

import numpy as np
import pytest

from mpimbs.base.arrays import Floats, Integers
from mpimbs.kernels.memory import NumberItem, Rows, Table, schema, size_of


class Inner(NamedTuple):
    counts: Integers
    rows: Rows


class Outer(NamedTuple):
    numbers: Floats
    inner: Inner
    many: int
    none: Floats


PLACES = schema(Outer)


def values(**changed: object) -> Outer:
    inner = Inner(np.array([10, -20, 2**40]), np.arange(16).reshape(2, 8))
    given = Outer(np.linspace(0.5, 3.5, 4), inner, -7, np.zeros(0))
    return given._replace(**changed)  # type: ignore[arg-type]


def test_items() -> None:
    """Two integers an item, in the order of the declaration: address and size, or the number and zero."""
    given = values()
    table = Table(given)
    assert table.data.dtype == np.int64 and len(table.data) == size_of(Outer) == 10
    assert table.data[1::2].tolist() == [4, 3, 16, 0, 0] and table.data[6] == -7
    assert table.data[[0, 2, 4]].tolist() == [a.ctypes.data for a in (given.numbers, *given.inner)]
    assert table.number("many") == -7
    table.set("many", 5)
    assert table.number("many") == 5 and isinstance(PLACES.many, NumberItem)
    with pytest.raises(TypeError, match="numbers: a contiguous array"):
        table.set("numbers", 1)


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
