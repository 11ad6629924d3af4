"""Calls of the user's functions: what they raise or give wrongly becomes an error that names body and time."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import HaltError, SimulationError
from mpimbs.kernels.calling import address_of

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
