"""What a user gives to functions: arrays, checked before compiled code reads them by address, and values of a kind."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from mpimbs.base.arrays import Floats
from mpimbs.base.errors import InputError

_KINDS: dict[Any, tuple[type, str]] = {
    float: (Real, "a number"),
    int: (Integral, "a whole number"),
    str: (str, "a text"),
    Path: (Path, "a path"),
    bool: (bool, "True or False"),
    NoneType: (NoneType, "None"),
}


FEW = 32  # numbers, which Python adds as fast as numpy multiplies them


def all_finite(values: Floats) -> bool:
    """Whether all numbers are finite; in less than half of the time that looking at each takes.

    Other products than `vdot` warn of what overflows.
    """
    total = sum(values.tolist()) if values.ndim == 1 and len(values) <= FEW else np.vdot(values, values)
    return math.isfinite(total) or bool(np.isfinite(values).all())


def array_of(values: Any) -> npt.NDArray[Any]:
    """Give what numpy makes an array of; of rows of different lengths one that holds no numbers."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.asarray(None)


def doubles(name: str, values: npt.ArrayLike, shape: int | tuple[int, ...], finite: bool = True) -> Floats:
    """Give what numpy makes an array of as compiled code reads it: doubles, one after the other, writable.

    An array that is so already is given as it is.

    Parameters
    ----------
    name : str
        What it is, for messages.
    shape : int or tuple of int
    finite : bool
        Whether all numbers have to be.

    Raises
    ------
    InputError
        It is of another shape, holds no real numbers, or one that is not finite.
    """
    wanted = (shape,) if isinstance(shape, int) else shape
    given = array_of(values)
    if given.dtype.kind not in "biuf":
        raise InputError(f"{name} must be {' x '.join(map(str, wanted))} numbers, got {_short(values)}")
    if given.shape != wanted:
        raise InputError(f"{name} must be an array of shape {wanted}, got one of shape {given.shape}")
    found = given if given.dtype == np.float64 and given.flags.carray else np.array(given, np.float64, order="C")
    return finite_doubles(name, found) if finite else found


def finite_doubles(name: str, found: Floats) -> Floats:
    """Give an array of doubles as it is, all of whose numbers are finite.

    Raises
    ------
    InputError
        One is not: of what name, and which.
    """
    if not all_finite(found):
        index = np.unravel_index(int(np.argmin(np.isfinite(found))), found.shape)
        raise InputError(f"{name} is not finite at index {', '.join(map(str, index))}; give finite numbers")
    return found


def check_time(t: object) -> None:
    """Refuse a time (s) that is none; InputError."""
    if not isinstance(t, Real) or not math.isfinite(t):
        raise InputError(f"t must be a time, a finite number of seconds, got {_short(t)}")


def as_path(name: str, given: object) -> Path:
    """Give a path that a user gave; InputError if it is none."""
    if not isinstance(given, str | os.PathLike):
        raise InputError(f"{name} must be a path, got {_short(given)}")
    return Path(given)


def choose(name: str, given: str, known: tuple[str, ...]) -> None:
    """Refuse a choice that is not among the known ones; InputError."""
    if given not in known:
        raise InputError(f"{name}: {given!r} is none of {', '.join(known)}")


def check_array(name: str, array: Any, shape: tuple[int, ...]) -> None:
    """Refuse what compiled code can't read or write as it is.

    Raises
    ------
    InputError
        It is no array, of another shape or type, not contiguous, or not writable.
    """
    if not isinstance(array, np.ndarray):
        got = f"a {type(array).__name__}"
    elif array.shape != shape or array.dtype != np.float64:
        got = f"{array.dtype} of shape {array.shape}"
    elif not array.flags.c_contiguous:
        got = "one that is not contiguous; give a copy"
    elif not array.flags.writeable:
        got = "one that is read-only; give a copy"
    else:
        return
    raise InputError(f"{name} must be a contiguous array of float64 of shape {shape}, got {got}")


def check_kinds(where: Any, given: Mapping[str, Any], called: str = "") -> None:
    """Refuse values that are not what the annotations of a function or class say.

    Parameters
    ----------
    given : mapping
        Values by the names that are annotated.
    called : str
        What they belong to, for messages.

    Raises
    ------
    InputError
        Names the first that is of another kind, and what it must be.
    """
    hints = _hints(where)
    for name, value in given.items():
        kinds = get_args(hints[name]) or (hints[name],)
        if not any(_is_a(value, kind) for kind in kinds):
            path = f"{called}.{name}" if called else name
            words = [_KINDS[kind][1] if kind in _KINDS else f"a {kind.__name__}" for kind in kinds]
            raise InputError(f"`{path}` must be {' or '.join(words)}, got {_short(value)}")


_hints = functools.cache(get_type_hints)  # which evaluates texts anew at each call


def _is_a(value: Any, kind: Any) -> bool:
    if isinstance(value, bool | np.bool_):  # to Python it is a whole number too
        return kind is bool
    return isinstance(value, _KINDS.get(kind, (kind, ""))[0])


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"a {type(value).__name__}"
