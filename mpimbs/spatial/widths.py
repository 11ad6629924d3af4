"""What Python calls of kernels that are given a `zero`: an entry for a double, and one for every number of lanes."""

from __future__ import annotations

import inspect
from typing import Any

from numba.core.dispatcher import Dispatcher

from mpimbs.spatial.compiler import kernel
from mpimbs.spatial.lanes import WIDTHS, zero_lanes


def by_width(function: Dispatcher, widths: tuple[int, ...] = (1, *WIDTHS), **constants: int) -> dict[int, Dispatcher]:
    """Give the entries of a kernel whose first argument is a `zero`, by their numbers of lanes: without that argument.

    Each is a plain function with the kernel's own arguments, since numba takes longer to unpack a tuple of them, and it
    is found in the cache by its name. None is compiled before it is called. `constants` stand for arguments that the
    entries are not given.
    """
    names = list(inspect.signature(function.py_func).parameters)[1:]
    given = ", ".join(name for name in names if name not in constants)
    handed_on = ", ".join(str(constants.get(name, name)) for name in names)
    stem = "_".join([function.py_func.__name__.strip("_"), *(f"{name}{value}" for name, value in constants.items())])
    entries = {}
    for width in widths:
        zero = "0.0" if width == 1 else f"zero_lanes({width})"
        scope: dict[str, Any] = {"function": function, "zero_lanes": zero_lanes}
        exec(f"def {stem}_{width}({given}):\n    return function({zero}, {handed_on})\n", scope)
        entry = scope[f"{stem}_{width}"]
        entry.__module__ = function.py_func.__module__
        entries[width] = kernel(entry)
    return entries
