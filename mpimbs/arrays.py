"""Arrays that a user gives: checked before compiled code reads them by address, which would read beyond their ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mpimbs.errors import InputError

Floats = npt.NDArray[np.float64]


def vector(name: str, values: npt.ArrayLike, size: int) -> Floats:
    """Give what numpy makes an array of as compiled code reads it: doubles, one after the other, writable.

    Parameters
    ----------
    name : str
        What it is, for messages.
    values : array_like [size]
    size : int

    Raises
    ------
    InputError
        It is of another size, or holds no real numbers.
    """
    try:
        given = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise InputError(f"{name} must be {size} numbers, got {_short(values)}") from None
    if given.dtype.kind not in "biuf":
        raise InputError(f"{name} must be {size} numbers, got {_short(values)}")
    if given.shape != (size,):
        raise InputError(f"{name} must be an array of shape ({size},), got one of shape {given.shape}")
    return given if given.dtype == np.float64 and given.flags.carray else np.array(given, np.float64)


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


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"a {type(value).__name__}"
