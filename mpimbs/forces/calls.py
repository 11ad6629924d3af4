"""Calls of the user's functions: what they raise or give wrongly becomes an error that names body and time.

Functions of time are called together: those by rows in compiled code, the others one after the other.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numba.core.dispatcher import Dispatcher

from mpimbs.base.arrays import Floats, Integers
from mpimbs.base.errors import HaltError, SimulationError
from mpimbs.kernels.calling import CallBack, address_of, call_back
from mpimbs.kernels.compiler import kernel
from mpimbs.model.over_time import BY_NUMBERS
from mpimbs.model.text.table import TimeFunction
from mpimbs.parts.subchain import Subchain
from mpimbs.sweep.along_joints import Bounded, servos_over_time

_LONGEST = 300  # characters of the message of an error that a function raised


def called(
    what: Callable[[], str], t: float, function: Callable[..., Any], *arguments: Any, of_time: bool = True
) -> Any:
    """Call a function of time and of more arguments.

    Parameters
    ----------
    what : callable
        Gives the subject of a message: the function, and on what it acts.
    t : float
        Time (s), its first argument.
    of_time : bool
        False: it is not told the time.

    Raises
    ------
    SimulationError
        It failed; names the error with file and line.
    HaltError
        It was interrupted, or called `sys.exit`: the other ranks know nothing of it yet, and would wait for this one.
    """
    try:
        return function(t, *arguments) if of_time else function(*arguments)
    except (KeyboardInterrupt, SystemExit) as error:
        how = "called sys.exit" if isinstance(error, SystemExit) else "was interrupted"
        raise HaltError.of(error, f"{what()} {how} at t = {t:g} s") from error
    except BaseException as error:
        raise SimulationError(f"{what()} failed at t = {t:g} s: {_short(error)}{_place(function, error)}") from error


def entered(entry: Dispatcher | None, *arguments: Any) -> int:
    """Give where compiled code is that calls a function with arguments like these; 0 where there is none.

    What numba can't compile is found again, and told, by the first call from Python.
    """
    with contextlib.suppress(Exception):
        return 0 if entry is None else address_of(entry, *arguments)
    return 0


def shaped(what: Callable[[], str], t: float, given: Any, shape: tuple[int, ...], quantity: str = "") -> Floats:
    """Give what a function gave as an array of a shape; one number stands for all.

    Raises
    ------
    SimulationError
        It is of another shape, or no numbers.
    """
    try:
        value = np.asarray(given)
        if value.dtype.kind not in "biuf":  # None would become NaN
            raise TypeError
        value = value.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        raise SimulationError(
            f"{what()} gave {_short(given)}{quantity} at t = {t:g} s, needs {_needed(shape)}"
        ) from None
    if value.ndim and value.shape != shape:
        numbers = f"{value.size} numbers" if value.ndim == 1 else f"numbers of shape {list(value.shape)}"
        raise SimulationError(f"{what()} gave {numbers}{quantity} at t = {t:g} s, needs {_needed(shape)}")
    return value if value.ndim else np.full(shape, value)


def _needed(shape: tuple[int, ...]) -> str:
    if not shape:
        return "one number"
    return str(shape[0]) if len(shape) == 1 else f"an array of shape {list(shape)}, or one number for all"


def _short(value: Any) -> str:
    """A value or an exception in one line."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    text = " ".join(repr(value).replace("\\n", " ").split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _place(function: Callable[..., Any], error: BaseException) -> str:
    """File and line where a function failed: the last in its own file, or where it begins, or the last known."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # without `called`
    code = _code(function)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    if code is not None and not own:
        return f" (function of {code.co_filename}, line {code.co_firstlineno})"
    last = (own or frames)[-1:]
    return "".join(f" ({frame.filename}, line {frame.lineno})" for frame in last)


def _code(function: Any) -> Any:
    """Give the code that a function is compiled from; None where that is not known."""
    for wrapped in ("func", "py_func"):  # of functools.partial, numba
        function = getattr(function, wrapped, function)
    return getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)


class ByPython:
    """Functions that `call` calls at a time (s), of what `told` has; they write to `found`."""

    def __init__(self, call: Callable[[float], None], told: list[Floats], found: list[Floats]) -> None:
        self._call, self._told, self._found = call, told, found
        # A time (s), what they were told then and gave; not a number: they were not called.
        self.kept = np.full(1 + sum(room.size for room in (*told, *found)), np.nan)

    def keep(self, t: float) -> None:
        """Keep what they were told and gave last, at a time (s), if they were called."""
        if not np.isnan(t):
            self.kept = np.concatenate([[t], *(room.ravel() for room in (*self._told, *self._found))])

    def gives_other(self) -> bool | None:
        """Whether of that they give something else now; None where they were not called."""
        if np.isnan(self.kept[0]):
            return None
        at = 1
        for room in self._told:
            room[:] = self.kept[at : at + room.size].reshape(room.shape)
            at += room.size
        self._call(self.kept[0])
        return bool((np.concatenate([room.ravel() for room in self._found]) != self.kept[at:]).any())


class RowsArrays(NamedTuple):
    """Functions by rows, as `values_of_rows` takes them; see `OverTime.knots`."""

    first: Integers  # [functions + 1]: knots of each
    times: Floats  # [knots] (s)
    numbers: Floats  # [knots * 3]: values, slopes, what was reached
    lags: Floats  # [functions] (s)
    places: Integers  # [functions]: among the values
    values: Floats  # of all functions, written
    others: int  # address of what calls those of Python's; 0 where there are none


_NO, _NONE = np.zeros(0, np.int64), np.zeros(0)
NO_ROWS = RowsArrays(_NO, _NONE, _NONE, _NONE, _NO, _NONE, 0)


@kernel
def values_at(t, rows):
    """Write the values of functions at a time t (s) to their places; gives whether none has failed.

    Of function f the knots are first[f] to first[f + 1] - 1: at `times` (s), with values, slopes, and what was reached
    [knots, 3]; see `OverTime.knots`. One that has no lag, lags[f] = 0, is its rows.
    """
    first, times, numbers, lags, places, found, others = rows
    for f in range(lags.size):
        low, high = first[f], first[f + 1]
        while high - low > 1:
            middle = (low + high) // 2
            if times[middle] <= t:
                low = middle
            else:
                high = middle
        s, at = t - times[low], 3 * low
        value, slope, reached = numbers[at], numbers[at + 1], numbers[at + 2]
        if s < 0.0:
            found[places[f]] = reached
        elif lags[f] == 0.0:
            found[places[f]] = value + slope * s
        else:
            late = slope * lags[f]
            found[places[f]] = value + slope * s - late + (reached - value + late) * np.exp(-s / lags[f])
    return others == 0 or call_back(others, t)


class TimeFunctions:
    """Functions of time, each of as many numbers as it is for.

    Parameters
    ----------
    functions : sequence of (str, function, int)
        What messages call each, itself, and how many numbers it gives.
    one_for_all : bool
        Whether one number may stand for all.

    Attributes
    ----------
    rows : RowsArrays
        Those by rows, and what calls the others.
    called : CallBack
        That.
    """

    def __init__(self, functions: Sequence[tuple[str, TimeFunction, int]], one_for_all: bool = True) -> None:
        ends = [0, *accumulate(count for *_, count in functions)]
        self._values, self._one_for_all, self.called = np.zeros(ends[-1]), one_for_all, CallBack(self._call)
        self._called: list[tuple[str, TimeFunction, slice]] = []
        times: list[float] = []
        numbers, first, lags, places = [np.zeros(0)], [0], list[float](), list[int]()
        for (title, function, count), begin in zip(functions, ends, strict=False):
            if not isinstance(function, BY_NUMBERS):
                self._called.append((title, function, slice(begin, begin + count)))
                continue
            at, *columns = function.knots
            for k, column in enumerate(np.stack(columns, axis=2).transpose(1, 0, 2)):
                times += at
                numbers.append(column.ravel())
                first.append(len(times))
                lags.append(function.lag)
                places.append(begin + k)
        self.rows = RowsArrays(
            *(np.array(first), np.array(times), np.concatenate(numbers), np.array(lags), np.array(places, np.int64)),
            self._values, self.called.address if self._called else 0,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._values)

    def at(self, t: float) -> Floats:
        """Give the values of all at a time (s), used again.

        Raises
        ------
        SimulationError
            A function failed, or gave others than so many finite numbers.
        """
        if self.rows.lags.size:
            values_at(t, self.rows._replace(others=0))
        self._call(t)
        return self._values

    @property
    def by_python(self) -> ByPython | None:
        """Those that Python calls, if any."""
        found = [self._values[own] for _, _, own in self._called]
        return ByPython(self._call, [], found) if found else None

    def _call(self, t: float) -> None:
        for title, function, own in self._called:
            self._values[own] = checked_values(title, t, function, own.stop - own.start, self._one_for_all)


def checked_values(title: str, t: float, given: object, count: int, one_for_all: bool = True) -> Floats:
    """Give so many numbers, constant or of a function of time (s), which messages call by a title.

    `one_for_all`: whether one number may stand for all.

    Raises
    ------
    SimulationError
        It failed, or gave others than so many finite numbers.
    """

    def subject() -> str:
        return title

    value = np.asarray(called(subject, t, given) if callable(given) else given)
    value = shaped(subject, t, value if value.ndim or one_for_all else value[None], (count,))
    if not np.all(np.isfinite(value)):
        raise SimulationError(f"{title.replace(' function', '')} is not finite at t = {t:g} s: {value}")
    return value


def torques_over_time(part: Subchain) -> tuple[TimeFunctions, Integers]:
    """Give the torques of the joints of a part that are functions of time, and along which speeds they act."""
    offset, given = part.columns.u_offset, part.columns.torque_functions
    speeds = [np.arange(*offset[body : body + 2]) for body, _ in given]
    functions = [
        (f"the torque function of body '{part.name_of(body)}'", function, len(own))
        for (body, function), own in zip(given, speeds, strict=True)
    ]
    return TimeFunctions(functions), np.concatenate([np.zeros(0, np.int64), *speeds])


def servos_of_time(part: Subchain, bounded: Bounded) -> tuple[TimeFunctions, Integers]:
    """Give the torques of servos of a part that are functions of time, and where they are among all."""
    given = servos_over_time(part.columns, bounded)
    functions = [
        (f"the servo_torque function of body '{part.name_of(k)}'", function, own.stop - own.start)
        for k, own, function in given
    ]
    return TimeFunctions(functions), np.concatenate([np.zeros(0, np.int64), *(np.r_[own] for _, own, _ in given)])
