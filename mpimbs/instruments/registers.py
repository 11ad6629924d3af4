"""Registers that count: the rows of `spatial.rows` as one number each, whose operations count in all columns.

Compiled code treats a row of doubles as one SIMD register: what is done in one column is done in all, in spare ones and
in those that nobody reads. `REGISTERS` has what `instruments.counting.counting` is to call in place of the rows'
functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpimbs.instruments.counting import Counted, CountedArray
from mpimbs.spatial import rows
from mpimbs.spatial.rows import ROW


class Register(Counted):
    """A row whose value is an array [ROW]; never a literal, since no compiler folds a row of different numbers."""

    __slots__ = ()
    __array_ufunc__ = None  # arrays leave their operations with a register to it
    columns = ROW

    def _other(self, other: Any) -> Counted:
        return Register(other, self.counts) if isinstance(other, np.ndarray) else super()._other(other)


def _load_row(array: Any, index: int) -> Any:
    """A register; of a constant array, which nothing counts, its numbers."""
    numbers = array[index : index + ROW].copy()
    if not isinstance(array, CountedArray):
        return numbers
    return Register(np.array([number.value for number in numbers]), numbers[0].counts)


def _write_row(array: Any, index: int, a: Any) -> None:
    array[index : index + ROW] = a.use()


def _entry(a: Any, i: int) -> Any:
    key = ("entry", i)
    if key not in a.done:
        a.done[key] = (a, Counted(float(a.value[i]), a.counts, operands=(a,)))
    return a.done[key][1]


def _multiply_rows(a: Any, b: Any) -> Any:
    return a * b


def _add_row(a: Any, b: Any) -> Any:
    return a + b


def _scale_row(x: Any, a: Any) -> Any:
    return x * (Register(a, x.counts) if isinstance(a, np.ndarray) else a)


def _eight_rows(six: Any) -> Any:
    return (*six, np.zeros(ROW), np.zeros(ROW))


def _transposed_rows(eight: Any) -> Any:
    registers = tuple(a for a in eight if isinstance(a, Register))
    values = np.array([a.value if isinstance(a, Register) else a for a in eight])
    return tuple(Register(column, registers[0].counts, operands=registers) for column in values.T)


REGISTERS: dict[Callable[..., Any], Callable[..., Any]] = {
    rows.load_row: _load_row,
    rows.write_row: _write_row,
    rows.entry: _entry,
    rows.multiply_rows: _multiply_rows,
    rows.add_row: _add_row,
    rows.scale_row: _scale_row,
    rows.eight_rows: _eight_rows,
    rows.transposed_rows: _transposed_rows,
}
