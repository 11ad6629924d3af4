"""Numbers that change over time: rows of a time and values, with straight lines between them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Annotated, Any

import numpy as np
from pydantic import PlainValidator

from mpimbs.model.text import table
from mpimbs.model.text.table import TimeFunction

Rows = tuple[tuple[float, ...], ...]
_TIME = itemgetter(0)


class OverTime(tuple[tuple[float, ...], ...]):
    """A function of time (s) by its rows of a time and values: linear between them, constant before and behind."""

    __slots__ = ()

    def __call__(self, t: float) -> Any:
        """Give the value at a time (s), several as a tuple."""
        k = bisect_right(self, t, key=_TIME)
        if 0 < k < len(self):
            before, behind = self[k - 1], self[k]
            share = (t - before[0]) / (behind[0] - before[0])
            values = tuple(a + share * (b - a) for a, b in zip(before[1:], behind[1:], strict=True))
        else:
            values = self[min(k, len(self) - 1)][1:]
        return values[0] if len(values) == 1 else values

    def within(self, ends: tuple[float, float]) -> OverTime:
        """Give the same, but where it is beyond the ends of a range these: with rows where it comes to them."""
        times, values = np.array(self).T
        for end in ends:
            beyond = values - end
            k = np.flatnonzero(beyond[:-1] * beyond[1:] < 0.0)
            new = times[k] + beyond[k] / (beyond[k] - beyond[k + 1]) * (times[k + 1] - times[k])
            if np.isfinite(end) and len(new):
                everywhere = np.union1d(times, new)
                times, values = everywhere, np.interp(everywhere, times, values)
        return _of(times, np.clip(values, *ends))


def _of(times: Any, *columns: Any) -> OverTime:
    return OverTime(map(tuple, np.column_stack([times, *columns]).tolist()))


def _at(times: Any, value: OverTime | float) -> Any:
    """Values at times, of one for each."""
    return np.interp(times, *np.array(value).T) if isinstance(value, OverTime) else np.full(len(times), value)


def _times(values: Iterable[object]) -> Any:
    return np.unique(np.concatenate([np.array(value)[:, 0] for value in values if isinstance(value, OverTime)]))


def stacked(values: Sequence[OverTime | float]) -> OverTime:
    """Give several values as one of as many, some of which may be constant."""
    times = _times(values)
    return _of(times, *(_at(times, value) for value in values))


def weighed(constant: float, parts: Sequence[tuple[float, OverTime]]) -> OverTime:
    """Give a constant and the sum of some values, each times a factor."""
    times = _times(value for _, value in parts)
    return _of(times, constant + sum(factor * _at(times, value) for factor, value in parts))


def are_rows(value: Any) -> bool:
    """Whether a value is of rows: a list of lists, or what numpy has of such."""
    if isinstance(value, np.ndarray):
        return value.ndim == 2
    return isinstance(value, list | tuple) and any(isinstance(item, list | tuple | np.ndarray) for item in value)


def checked_rows(value: Any, count: int, what: str) -> Rows:
    """Return rows of a time and `count` values; ValueError if they are none, or out of order.

    A message calls the values `what`.
    """
    rows = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(rows, list | tuple) or not rows:
        raise ValueError(f"needs rows of a time and values, got {value!r}")
    rows = tuple(table.numbers(row, 1 + count, f"a time in s, and {what}") for row in rows)
    late = next((k for k in range(1, len(rows)) if rows[k][0] <= rows[k - 1][0]), None)
    if late is not None:
        raise ValueError(
            f"must be in order of time: row {late + 1} is at {rows[late][0]:g} s, after {rows[late - 1][0]:g} s"
        )
    return rows


def _vector_or_function(value: Any) -> tuple[float, ...] | TimeFunction:
    if are_rows(value):
        return OverTime(checked_rows(value, 3, "x y z"))
    return value if callable(value) else table.vector(value)


VectorOrFunction = Annotated[tuple[float, ...] | TimeFunction, PlainValidator(_vector_or_function)]
