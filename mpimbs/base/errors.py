"""The errors that a user can cause or meet; everything else is a bug and ends with a traceback."""

from __future__ import annotations

import sys
import warnings

Keys = tuple[str | int, ...]
"""Where something stands in tables: keys, and the numbers of items of lists, from 0 on."""


class InputError(ValueError):
    """Bad input: one line that names the place (file, table), what is wrong, and the remedy.

    Attributes
    ----------
    keys : tuple of str and int
        Of what it is about, in the table that it was found in; none where it is about all of it.
    """

    keys: Keys = ()


def about(keys: Keys, message: str) -> InputError:
    """Make an InputError on what stands under keys of a table."""
    error = InputError(message)
    error.keys = keys
    return error


class SimulationError(RuntimeError):
    """A simulation that had to stop: names the time, the body and the likely cause."""


class LoadNotFiniteError(SimulationError):
    """A function of the state gave no finite numbers: with a smaller step it may."""


class InterruptionError(SimulationError):
    """A simulation that a signal has ended, after it wrote a checkpoint: names the time, and how to go on."""


def warn_caller(text: str) -> None:
    """Warn of something, at the line of the user's that called us, however deep we are."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "mpimbs":
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, stacklevel=depth)
