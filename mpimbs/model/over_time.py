"""Numbers that change over time: rows of a time and values, with straight lines between them; or what follows them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Annotated, Any

import numpy as np
from pydantic import PlainValidator

from mpimbs.model.text import table
from mpimbs.model.text.table import TimeFunction

Rows = tuple[tuple[float, ...], ...]
_TIME = itemgetter(0)

Knots = tuple[list[float], Any, Any, Any]
"""Times (s) from which on a function of time is another line or follows one; there, [knots, numbers], the value of the
line, its slope, and what was reached."""


class OverTime(tuple[tuple[float, ...], ...]):
    """A function of time (s) by its rows of a time and values: linear between them, constant before and behind."""

    __slots__ = ()
    lag = 0.0  # s

    @property
    def knots(self) -> Knots:
        """Where straight lines begin; before the first one the value is that there."""
        times, values, slopes = _lines([row[0] for row in self], [row[1:] for row in self])
        return times, values, slopes, values

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


class Lagged(tuple[Any, ...]):
    """A function of time (s) that follows rows with a lag T (s): T dy/dt = rows(t) - y, from y(0) = begin, exactly.

    Before the time 0 it is `begin`. So actuators follow their controls (MuJoCo's dynamics "filter").
    """

    @property
    def rows(self) -> OverTime:
        """What it follows."""
        found: OverTime = self[0]
        return found

    @property
    def lag(self) -> float:
        """T (s)."""
        return float(self[1])

    @property
    def begin(self) -> tuple[float, ...]:
        """The values at the time 0."""
        return tuple(self[2])

    @cached_property
    def knots(self) -> Knots:
        """Where lines begin that it follows, from the time 0 on; before it is `begin`."""
        times = [0.0, *(row[0] for row in self.rows if row[0] > 0.0)]
        times, values, slopes = _lines(times, [self.rows(t) for t in times])
        reached = np.empty_like(values)
        reached[0] = self.begin
        for k in range(1, len(times)):
            reached[k] = self._at(times[k] - times[k - 1], values[k - 1], slopes[k - 1], reached[k - 1])
        return times, values, slopes, reached

    def _at(self, s: float, value: Any, slope: Any, reached: Any) -> Any:
        late = slope * self.lag
        return value + slope * s - late + (reached - value + late) * math.exp(-s / self.lag)

    def __call__(self, t: float) -> Any:
        """Give the value at a time (s), several as a tuple."""
        times, *given = self.knots
        k = bisect_right(times, t) - 1
        found = self.begin if k < 0 else tuple(self._at(t - times[k], *(each[k] for each in given)).tolist())
        return found[0] if len(found) == 1 else found


BY_NUMBERS = OverTime | Lagged
"""What changes over time by numbers alone, which files can hold."""


def _lines(times: list[float], values: Any) -> tuple[list[float], Any, Any]:
    """Times, values there [n, any], and the slopes from there on, behind the last none."""
    there = np.array(values, np.float64).reshape(len(times), -1)
    rises = np.diff(there, axis=0) / np.diff(times)[:, None]
    return times, there, np.vstack([rises, np.zeros(there.shape[1])])


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


def common_lag(values: Iterable[object]) -> float:
    """Give the lag (s) with which all functions of time among values follow their rows; 0 for none, or several."""
    lags = {value.lag if isinstance(value, Lagged) else 0.0 for value in values if callable(value)}
    return lags.pop() if len(lags) == 1 else 0.0


def together_lagged(values: Sequence[Any]) -> Lagged | None:
    """Give several values as one of as many, of which those over time have one lag; None where they don't."""
    if not (lag := common_lag(values)):
        return None
    begin = tuple(value.begin[0] if isinstance(value, Lagged) else value for value in values)
    rows = [value.rows if isinstance(value, Lagged) else value for value in values]
    return Lagged((stacked(rows), lag, begin))


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


def as_time_function(value: Any, count: int, what: str) -> TimeFunction | None:
    """Return the function of time that a value is: itself, by rows of `count` values, or with a lag; None of others.

    Raises
    ------
    ValueError
        Rows are none, or out of order; or what has a lag is not { rows, lag, begin }.
    """
    if isinstance(value, dict):
        if not {"rows", "lag"} <= value.keys() <= {"rows", "lag", "begin"}:
            raise ValueError(f"needs rows and a lag in s, and may have what it begins with: got {', '.join(value)}")
        lag, begin = table.number(value["lag"]), value.get("begin", 0.0)
        if lag <= 0.0:
            raise ValueError(f"lag must be positive, got {lag:g}")
        several = begin if isinstance(begin, list | tuple) else [begin] * count
        return Lagged((OverTime(checked_rows(value["rows"], count, what)), lag, table.numbers(several, count, what)))
    if callable(value) and not isinstance(value, OverTime):
        return value
    return OverTime(checked_rows(value, count, what)) if are_rows(value) else None


def _vector_or_function(value: Any) -> tuple[float, ...] | TimeFunction:
    found = as_time_function(value, 3, "x y z")
    return table.vector(value) if found is None else found


VectorOrFunction = Annotated[tuple[float, ...] | TimeFunction, PlainValidator(_vector_or_function)]
