"""Tables of parameters: what each copy of a system has of its own, a row a copy, from a file or from arrays."""

from __future__ import annotations

import csv
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError
from mpimbs.base.places import note_input

# What numpy raises where a file of arrays is damaged, or none.
UNREADABLE = OSError, ValueError, EOFError, MemoryError, NotImplementedError, zipfile.BadZipFile, zlib.error

NAME = "name"  # the column of what copies are called


@dataclass(frozen=True)
class ParameterTable:
    """A table of parameters."""

    where: str  # where it stood, for messages
    columns: tuple[str, ...]  # what the numbers are; see `model.variants`
    values: Floats  # [copies, columns]
    names: tuple[str, ...]  # what the copies are called, each its own
    lines: tuple[int, ...]  # on which line of its file each row stands; else, its number from 1 on
    head: int = 1  # on which line the names of the columns stand

    def place(self, row: int) -> str:
        """Say where a row stood."""
        return f"{self.where}, line {self.lines[row]}"


def read_table(path: str | Path) -> ParameterTable:
    """Read a table from a file: .npz with an array [copies] for each column, or text with commas (CSV).

    The first line of a text names the columns; empty lines and those that begin with # don't count.

    Raises
    ------
    InputError
        The file can't be read, has no rows, or what stands in it is none; names line and column.
    """
    note_input(path)
    try:
        if Path(path).suffix.lower() == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                return table_of({name: arrays[name] for name in arrays.files}, str(path))
        with open(path, newline="", encoding="utf-8-sig") as file:
            lines = list(_numbered(file))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; give a table of parameters (.csv, .npz)") from None
    except (*UNREADABLE, csv.Error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: is no readable table ({error}); give a .csv or .npz file") from None
    return _of_lines(str(path), lines)


def table_of(arrays: Mapping[str, Any], where: str = "parameters") -> ParameterTable:
    """Give the table of some columns, each an array [copies]; InputError if they are none, or not as many."""
    columns = {name: np.asarray(values) for name, values in arrays.items()}
    sizes = {name: values.shape for name, values in columns.items()}
    first = next(iter(sizes.values()), (0,))
    other = next((name for name, shape in sizes.items() if len(shape) != 1 or shape != first), None)
    if other is not None:
        raise InputError(
            f"{where}: column '{other}' has the shape {list(sizes[other])}; give an array of numbers, one for each "
            "copy, as many in each column"
        )
    names = columns.pop(NAME, None)
    for name, values in columns.items():
        if values.dtype.kind not in "fiu" or not np.isfinite(values).all():
            raise InputError(f"{where}: column '{name}' holds other than finite numbers; give one for each copy")
    (count,) = first
    rows = np.array(list(columns.values()), np.float64).reshape(len(columns), count).T
    called = [str(k) for k in range(count)] if names is None else list(map(str, names))
    return _checked(ParameterTable(where, tuple(columns), rows, tuple(called), tuple(range(1, count + 1))))


def _numbered(file: Any) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of the lines that count."""
    for number, cells in enumerate(csv.reader(file), 1):
        cells = [cell.strip() for cell in cells]
        if any(cells) and not cells[0].startswith("#"):
            yield number, cells


def _of_lines(where: str, lines: Sequence[tuple[int, list[str]]]) -> ParameterTable:
    if not lines:
        raise InputError(f"{where}: is empty; give a line with the names of columns, and one for each copy")
    first, head = lines[0]
    twice = next((name for k, name in enumerate(head) if name in head[:k]), None)
    if twice is not None or not all(head):
        what = "a column has no name" if twice is None else f"column '{twice}' stands twice"
        raise InputError(f"{where}, line {first}: {what}; give each its own")
    rows, names = [], list[str]()
    for number, cells in lines[1:]:
        if len(cells) != len(head):
            raise InputError(
                f"{where}, line {number}: has {len(cells)} values, and the table {len(head)} columns; give as many"
            )
        row = dict(zip(head, cells, strict=True))
        names.append(row.pop(NAME, str(len(names))))
        rows.append([_number(f"{where}, line {number}, column '{name}'", cell) for name, cell in row.items()])
    columns = tuple(name for name in head if name != NAME)
    values = np.array(rows, np.float64).reshape(len(rows), len(columns))
    return _checked(
        ParameterTable(where, columns, values, tuple(names), tuple(number for number, _ in lines[1:]), first)
    )


def _number(place: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{place}: {cell!r} is no finite number; give one")
    return value


def _checked(table: ParameterTable) -> ParameterTable:
    if not table.lines:
        raise InputError(f"{table.where}: has no rows; give one for each copy")
    for row, name in enumerate(table.names):
        if not name or name in table.names[:row]:
            what = f"the name '{name}' is that of a copy above" if name else "the copy has an empty name"
            raise InputError(f"{table.place(row)}, column '{NAME}': {what}; give each its own")
    return table
